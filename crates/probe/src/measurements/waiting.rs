//! Waiting for many connections: by epoll, as the server does, or by io_uring.

use super::{Bench, CHECK_INTERVAL, Heading};
use crate::clients::Connections;
use crate::compare::{Candidate, Slice};
use crate::sides::run_both;
use sanderling_os::io_uring::Responder;
use sanderling_os::poll::{Events, Interest, Poller};
use sanderling_os::tcp::{More, Stream};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const NAME: &str = "waiting";

const CONNECTION_COUNT: usize = 64;
/// Requests per connection and slice.
const REQUEST_COUNT: usize = 10;
const ANSWER: [u8; 640] = [b'a'; 640];

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let rows = vec![
        Candidate::new("epoll", || slice(serve_by_epoll)).used(true),
        Candidate::new("io_uring", || slice(serve_by_ring)),
    ];
    let title = format!("Answering requests on {CONNECTION_COUNT} connections, over loopback");
    let group = bench.loops(Heading::new(NAME, title, "request"), rows);
    group.notes.push("the server does not use io_uring, which most containers forbid".to_owned());
    Ok(())
}

fn slice(serve: impl FnOnce(&[Stream], &AtomicBool) -> io::Result<()> + Send) -> io::Result<Slice> {
    let Connections { streams, mut clients } = Connections::open(CONNECTION_COUNT)?;
    let (served, asked) =
        run_both(|is_over| serve(&streams, is_over), || clients.request(REQUEST_COUNT, ANSWER.len()))?;
    clients.reset()?;
    Ok(Slice::of_both(&served, &asked, CONNECTION_COUNT * REQUEST_COUNT, 0))
}

fn serve_by_epoll(streams: &[Stream], is_over: &AtomicBool) -> io::Result<()> {
    let mut poller = Poller::new()?;
    let mut events = Events::with_capacity(256);
    for (token, stream) in streams.iter().enumerate() {
        poller.register(stream, token, Interest::ReadableAndWritable)?;
    }
    while !is_over.load(Ordering::Relaxed) {
        poller.wait(&mut events, Some(CHECK_INTERVAL))?;
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
    let mut responder = Responder::new(streams, &ANSWER)?;
    while !is_over.load(Ordering::Relaxed) {
        responder.run_once(CHECK_INTERVAL)?;
    }
    Ok(())
}
