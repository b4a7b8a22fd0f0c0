//! Connections whose clients send a request immediately: accepted with the request (TCP_DEFER_ACCEPT), or before it.

use super::{Bench, Heading};
use crate::clients::{Client, any_address};
use crate::compare::{Candidate, Slice};
use crate::stopwatch::Stopwatch;
use sanderling_os::poll::{Events, Interest, Poller, Token};
use sanderling_os::tcp::{Listener, Stream};
use std::io;
use std::time::Duration;

pub(crate) const NAME: &str = "defer-accept";
/// Connections per slice.
const CONNECTION_COUNT: usize = 16;
const REQUEST: [u8; 64] = [b'q'; 64];

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let servers = [("with the request", "on", Server::new()?), ("when connected", "off", Server::new()?)];
    let rows =
        servers.map(|(name, variant, mut server)| Candidate::new(name, move || server.slice()).variant(NAME, variant));
    bench.calls(Heading::new(NAME, "Receiving the first request of a connection", "connection"), rows.into());
    Ok(())
}

struct Server {
    listener: Listener,
    poller: Poller,
    events: Events,
    /// The connections of this slice; a token is an index.
    streams: Vec<Stream>,
}

const LISTENER: Token = Token::MAX;

impl Server {
    fn new() -> io::Result<Server> {
        let listener = Listener::bind(any_address())?;
        let poller = Poller::new()?;
        poller.register(&listener, LISTENER, Interest::Readable)?;
        Ok(Server { listener, poller, events: Events::with_capacity(2 * CONNECTION_COUNT), streams: Vec::new() })
    }

    /// The clients connect, then send requests; the server runs once after each.
    fn slice(&mut self) -> io::Result<Slice> {
        let address = self.listener.local_address()?;
        // Uses the variant of this slice.
        self.listener.set_defer_accept();
        let mut stopwatch = Stopwatch::default();
        let mut clients: Vec<Client> =
            (0..CONNECTION_COUNT).map(|_| Client::connect(address)).collect::<io::Result<_>>()?;
        let mut request_count = stopwatch.time(|| self.run_once())?;
        clients.iter_mut().try_for_each(|client| client.send(&REQUEST))?;
        request_count += stopwatch.time(|| self.run_once())?;
        self.streams.clear();
        for client in clients {
            client.reset()?;
        }
        Ok(Slice::of_one_thread(&stopwatch, request_count as u64, (CONNECTION_COUNT - request_count) as u64))
    }

    /// Accepts and receives the arrived requests, and returns their number.
    fn run_once(&mut self) -> io::Result<usize> {
        self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
        let ready: Vec<Token> = self.events.iter().map(|(token, _)| token).collect();
        let mut request_count = 0;
        for token in ready {
            if token != LISTENER {
                request_count += usize::from(has_request(&self.streams[token]));
                continue;
            }
            while let Some((stream, _)) = self.listener.accept()? {
                if has_request(&stream) {
                    request_count += 1;
                } else {
                    self.poller.register(&stream, self.streams.len(), Interest::ReadableAndWritable)?;
                }
                self.streams.push(stream);
            }
        }
        Ok(request_count)
    }
}

fn has_request(stream: &Stream) -> bool {
    stream.receive(&mut [0; 1024]).is_ok_and(|count| count == REQUEST.len())
}
