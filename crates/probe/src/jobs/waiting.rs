//! Waiting on many connections: by epoll, as the server does, and by `io_uring`, to know what it would bring.

use super::{Bench, Heading};
use crate::conversation::Conversation;
use crate::rounds::{Candidate, Slice};
use crate::sides::run_both;
use sanderling_os::candidates::ring::Answerer;
use sanderling_os::poll::{Events, Interest, Poller};
use sanderling_os::tcp::{More, Stream};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const JOB: &str = "waiting";
pub(crate) const EPOLL: &str = "epoll";
pub(crate) const RING: &str = "io_uring";

const CONNECTION_COUNT: usize = 64;
/// Requests on each connection in a slice.
const REQUEST_COUNT: usize = 10;
const ANSWER: [u8; 640] = [b'a'; 640];
/// How long the server waits before it looks whether the slice is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let rows =
        vec![Candidate::new(EPOLL, || slice(serve_by_epoll)).used(true), Candidate::new(RING, || slice(serve_by_ring))];
    let title = format!("Answering requests on {CONNECTION_COUNT} connections, over loopback");
    let group = bench.loops(Heading::new(JOB, title, "request"), rows);
    group.notes.push("for information: the server has no io_uring, which most containers forbid".to_owned());
    Ok(())
}

fn slice(serve: impl FnOnce(&[Stream], &AtomicBool) -> io::Result<()> + Send) -> io::Result<Slice> {
    let Conversation { streams, mut askers } = Conversation::begin(CONNECTION_COUNT)?;
    let (served, asked) = run_both(|is_over| serve(&streams, is_over), || askers.ask(REQUEST_COUNT, ANSWER.len()))?;
    askers.end()?;
    Ok(Slice {
        operation_count: (CONNECTION_COUNT * REQUEST_COUNT) as u64,
        cpu_ns: served.cpu_ns,
        wall_ns: asked.wall_ns,
        peer_cpu_ns: Some(asked.cpu_ns),
        ..Slice::default()
    })
}

fn serve_by_epoll(streams: &[Stream], is_over: &AtomicBool) -> io::Result<()> {
    let mut poller = Poller::new()?;
    let mut events = Events::with_capacity(256);
    for (token, stream) in streams.iter().enumerate() {
        poller.register(stream, token, Interest::ReadableAndWritable)?;
    }
    while !is_over.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(LOOK_INTERVAL))?;
        for (token, _) in events.iter().filter(|(_, readiness)| readiness.readable) {
            match streams[token].receive(&mut [0; 1024]) {
                Ok(0) => {}
                Ok(_) => drop(streams[token].send(&ANSWER, More::No)?),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn serve_by_ring(streams: &[Stream], is_over: &AtomicBool) -> io::Result<()> {
    let mut answerer = Answerer::new(streams, &ANSWER)?;
    while !is_over.load(Ordering::Relaxed) {
        answerer.turn(LOOK_INTERVAL)?;
    }
    Ok(())
}
