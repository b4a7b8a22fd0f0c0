//! Connections whose clients ask at once: handed over with what they ask, or as soon as they are connected.

use super::{Bench, Heading};
use crate::rounds::{Candidate, Slice};
use crate::stopwatch::Stopwatch;
use sanderling_os::candidates::stream::Client;
use sanderling_os::poll::{Events, Interest, Poller, Token};
use sanderling_os::tcp::{Listener, Stream};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

pub(crate) const JOB: &str = "defer-accept";
/// Connections of a slice.
const CONNECTION_COUNT: usize = 16;
const REQUEST: [u8; 64] = [b'q'; 64];

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let servers = [("with the request", "on", Server::new()?), ("when connected", "off", Server::new()?)];
    let rows = servers.map(|(name, way, mut server)| Candidate::new(name, move || server.slice()).by_way(JOB, way));
    bench.calls(Heading::new(JOB, "Receiving the first request of a connection", "connection"), rows.into());
    Ok(())
}

struct Server {
    listener: Listener,
    poller: Poller,
    events: Events,
    /// Of this slice; a token is the place in it.
    streams: Vec<Stream>,
}

const LISTENER: Token = Token::MAX;

impl Server {
    fn new() -> io::Result<Server> {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let poller = Poller::new()?;
        poller.register(&listener, LISTENER, Interest::Readable)?;
        Ok(Server { listener, poller, events: Events::with_capacity(2 * CONNECTION_COUNT), streams: Vec::new() })
    }

    /// The clients connect, and then ask; the server has a turn after each.
    fn slice(&mut self) -> io::Result<Slice> {
        let address = self.listener.local_address()?;
        // By the way of this slice.
        self.listener.set_defer_accept();
        let mut stopwatch = Stopwatch::default();
        let mut clients: Vec<Client> =
            (0..CONNECTION_COUNT).map(|_| Client::connect(address)).collect::<io::Result<_>>()?;
        let mut asked_count = stopwatch.time(|| self.turn())?;
        clients.iter_mut().try_for_each(|client| client.send(&REQUEST))?;
        asked_count += stopwatch.time(|| self.turn())?;
        self.streams.clear();
        for client in clients {
            client.reset()?;
        }
        Ok(Slice::of_one_thread(&stopwatch, asked_count as u64, (CONNECTION_COUNT - asked_count) as u64))
    }

    /// Receives what there is; how many have asked.
    fn turn(&mut self) -> io::Result<usize> {
        self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
        let ready: Vec<Token> = self.events.iter().map(|(token, _)| token).collect();
        let mut asked_count = 0;
        for token in ready {
            if token != LISTENER {
                asked_count += usize::from(has_asked(&self.streams[token]));
                continue;
            }
            while let Some((stream, _)) = self.listener.accept()? {
                if has_asked(&stream) {
                    asked_count += 1;
                } else {
                    self.poller.register(&stream, self.streams.len(), Interest::ReadableAndWritable)?;
                }
                self.streams.push(stream);
            }
        }
        Ok(asked_count)
    }
}

fn has_asked(stream: &Stream) -> bool {
    stream.receive(&mut [0; 1024]).is_ok_and(|count| count == REQUEST.len())
}
