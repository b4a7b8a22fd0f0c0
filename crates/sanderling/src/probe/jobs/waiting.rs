//! Waiting on many connections: by epoll, as the server does, and by `io_uring`, to know what it would bring.

use super::{Bench, Heading};
use crate::probe::rounds::{Candidate, Slice};
use crate::probe::sides::run_both;
use os::candidates::ring::Answerer;
use os::candidates::stream::{Client, use_cubic};
use os::poll::{Events, Interest, Poller};
use os::tcp::{Follows, Listener, Stream};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const JOB: &str = "waiting";
pub(crate) const EPOLL: &str = "epoll";
pub(crate) const RING: &str = "io_uring";

const CONNECTION_COUNT: usize = 64;
/// Requests on each connection in a slice.
const REQUEST_COUNT: usize = 30;
const REQUEST: [u8; 100] = [b'r'; 100];
const ANSWER: [u8; 640] = [b'a'; 640];
/// How long the server waits before it looks whether the slice is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let rows = vec![
        Candidate::new(EPOLL, || slice(serve_by_epoll)),
        Candidate::new(RING, || slice(|streams, _| serve_by_ring(streams))),
    ];
    let title = format!("Answering requests on {CONNECTION_COUNT} connections, over loopback");
    let group = bench.loops(Heading::new(JOB, title, "request"), rows);
    group.notes.push("for information: the server has no io_uring, which most containers forbid".to_owned());
    Ok(())
}

fn slice(serve: impl FnOnce(&[Stream], &AtomicBool) -> io::Result<()> + Send) -> io::Result<Slice> {
    let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    // Where cubic is missing, the default has to do.
    let _ = use_cubic(&listener);
    let address = listener.local_address()?;
    let mut clients: Vec<Client> =
        (0..CONNECTION_COUNT).map(|_| Client::connect(address)).collect::<io::Result<_>>()?;
    let mut streams = Vec::with_capacity(CONNECTION_COUNT);
    while let Some((stream, _)) = listener.accept()? {
        streams.push(stream);
    }
    let (served, asked) = run_both(|is_over| serve(&streams, is_over), || ask(&mut clients))?;
    for client in clients {
        client.reset()?;
    }
    Ok(Slice {
        operation_count: (CONNECTION_COUNT * REQUEST_COUNT) as u64,
        cpu_ns: served.cpu_ns,
        wall_ns: asked.wall_ns,
        peer_cpu_ns: Some(asked.cpu_ns),
        ..Slice::default()
    })
}

/// A request on every connection, then every answer, again and again.
fn ask(clients: &mut [Client]) -> io::Result<()> {
    for _ in 0..REQUEST_COUNT {
        clients.iter_mut().try_for_each(|client| client.send(&REQUEST))?;
        clients.iter_mut().try_for_each(|client| client.receive(&mut [0; ANSWER.len()]))?;
    }
    Ok(())
}

fn serve_by_epoll(streams: &[Stream], is_over: &AtomicBool) -> io::Result<()> {
    let mut poller = Poller::new()?;
    let mut events = Events::with_capacity(256);
    for (token, stream) in streams.iter().enumerate() {
        poller.register(stream, token, Interest::ReadableAndWritable)?;
    }
    while !is_over.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(LOOK_INTERVAL))?;
        for (token, readiness) in events.iter().filter(|(_, readiness)| readiness.readable) {
            debug_assert!(readiness.readable);
            match streams[token].receive(&mut [0; 1024]) {
                Ok(0) => {}
                Ok(_) => drop(streams[token].send(&ANSWER, Follows::Nothing)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The ring waits without a limit: it ends by the number of answers.
fn serve_by_ring(streams: &[Stream]) -> io::Result<()> {
    let mut answerer = Answerer::new(streams, &ANSWER)?;
    let mut answered = 0;
    while answered < streams.len() * REQUEST_COUNT {
        answered += answerer.turn()?;
    }
    Ok(())
}
