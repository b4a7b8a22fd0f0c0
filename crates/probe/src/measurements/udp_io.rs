//! Answering datagrams: one per wait, all per wait, or in batches.

use super::{Bench, CHECK_INTERVAL, Heading};
use crate::clients::{QUERY_BYTES, any_address, query};
use crate::compare::{Candidate, Slice};
use crate::sides::run_both;
use sanderling_os::poll_set::PollSet;
use sanderling_os::udp::{BATCH_COUNT_MAX, Batch, Socket};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const NAME: &str = "udp-io";
/// Bytes of a reply.
const REPLY_BYTES: usize = 120;
/// Queries per slice.
const QUERY_COUNT: usize = 1_000;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let row = |name: &'static str, variant| Candidate::new(name, slice).variant(NAME, variant);
    let rows = vec![
        row("poll, recvmsg", "poll-recvmsg"),
        row("recvmsg until empty", "recvmsg"),
        row("recvmmsg, in batches", "recvmmsg"),
    ];
    let title = format!("Answering datagrams of {QUERY_BYTES} with {REPLY_BYTES} bytes, over loopback");
    let group = bench.loops(Heading::new(NAME, title, "datagram"), rows);
    group.notes.push(format!("a batch has up to {BATCH_COUNT_MAX} datagrams"));
    Ok(())
}

fn slice() -> io::Result<Slice> {
    let socket = Socket::bind(any_address())?;
    let address = socket.local_address()?;
    let (served, queried) = run_both(|is_over| serve(&socket, is_over), || query(address, QUERY_COUNT))?;
    let (answered, lost) = queried.result;
    Ok(Slice::of_both(&served, &queried, answered, lost))
}

/// The event loop of the server's datagram thread, with an answer that costs nothing.
fn serve(socket: &Socket, is_over: &AtomicBool) -> io::Result<()> {
    let mut batch = Batch::new();
    let mut poll_set = PollSet::new([socket.as_fd()]);
    while !is_over.load(Ordering::Relaxed) {
        let received = socket.receive(&mut batch)?;
        if received != 0 {
            let (queries, mut replies) = batch.queries_and_replies();
            for index in 0..received {
                let query = queries.get(index).bytes;
                replies.buffer()[..query.len()].copy_from_slice(query);
                replies.push(index, REPLY_BYTES);
            }
            socket.send(&mut batch);
        }
        if !Socket::may_have_more(received) {
            poll_set.wait(Some(CHECK_INTERVAL))?;
        }
    }
    Ok(())
}
