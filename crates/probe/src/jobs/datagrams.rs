//! Answering datagrams: one for each wait, drained, and in batches; a peer keeps many queries on the way.

use super::{Bench, Heading};
use crate::rounds::{Candidate, Slice};
use crate::sides::run_both;
use sanderling_os::candidates::datagrams::{Asked, Asker, Echo, Loop, QUERY_BYTES, REPLY_BYTES};
use sanderling_os::poll_set::PollSet;
use sanderling_os::udp::{Batch, Socket};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const JOB: &str = "udp-receive";
pub(crate) const SELECT_ONE: &str = "select, one";
pub(crate) const SELECT_DRAIN: &str = "select, drain";
pub(crate) const BATCH: &str = "batch";
/// 39,000 against 48,000 queries a second, NSD users' list, 2006.
pub(crate) const CLAIMED_RATIO: f64 = 39.0 / 48.0;

/// Queries of a slice.
const QUERY_COUNT: usize = 1_000;
/// How long the server waits before it looks whether the slice is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let candidate = |name: &str, form| Candidate::new(name, move || slice_of_candidate(form));
    let way = |name: &'static str, way| Candidate::new(name, slice_of_server).by_way(JOB, way);
    let rows = vec![
        candidate(SELECT_ONE, Loop::SelectOne),
        candidate(SELECT_DRAIN, Loop::SelectDrain).claimed(CLAIMED_RATIO),
        way("single", "poll-recvmsg"),
        way("drain", "recvmsg"),
        way(BATCH, "recvmmsg"),
        candidate("batches of 8", Loop::Batches(8)),
        candidate("batches of 32", Loop::Batches(32)),
        candidate("batches of 64", Loop::Batches(64)),
    ];
    let title = format!("Answering datagrams of {QUERY_BYTES} octets by {REPLY_BYTES}, over loopback");
    let group = bench.loops(Heading::new(JOB, title, "datagram"), rows);
    group.notes.push(format!(
        "single, drain and batch (of {}) are the server's own loops; it waits only when nothing came",
        sanderling_os::udp::BATCH_COUNT_MAX
    ));
    Ok(())
}

fn slice_of_candidate(form: Loop) -> io::Result<Slice> {
    let mut echo = Echo::bind(form)?;
    let address = echo.address()?;
    slice(address, |is_over| {
        while !is_over.load(Ordering::Relaxed) {
            echo.turn(LOOK_INTERVAL)?;
        }
        Ok(())
    })
}

/// The loop of the server's own thread for datagrams, with an answer that costs nothing.
fn slice_of_server() -> io::Result<Slice> {
    let socket = Socket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = socket.local_address()?;
    slice(address, |is_over| {
        let mut batch = Batch::new();
        let mut waiting = PollSet::new([socket.as_fd()]);
        while !is_over.load(Ordering::Relaxed) {
            let received = socket.receive(&mut batch)?;
            if received != 0 {
                for index in 0..received {
                    let (query, reply) = batch.query_and_reply(index);
                    reply[..query.bytes.len()].copy_from_slice(query.bytes);
                    batch.set_reply(index, REPLY_BYTES);
                }
                socket.send(&mut batch);
            }
            if !Socket::may_have_more(received) {
                waiting.wait(Some(LOOK_INTERVAL))?;
            }
        }
        Ok(())
    })
}

fn slice(address: SocketAddr, serve: impl FnOnce(&AtomicBool) -> io::Result<()> + Send) -> io::Result<Slice> {
    let mut asker = Asker::connect(address)?;
    let (served, asked) = run_both(serve, || asker.ask(QUERY_COUNT))?;
    let Asked { answered, lost } = asked.result;
    Ok(Slice {
        operation_count: answered as u64,
        error_count: lost as u64,
        cpu_ns: served.cpu_ns,
        wall_ns: asked.wall_ns,
        peer_cpu_ns: Some(asked.cpu_ns),
        ..Slice::default()
    })
}
