//! Several workers that accept connections of one address: from a shared listener, or each from a reuseport socket.

use super::{Bench, CHECK_INTERVAL, Heading};
use crate::clients::{Client, any_address, disable_pacing};
use crate::compare::{Candidate, Slice};
use crate::report::Basis;
use crate::sides::joined;
use crate::stopwatch::Stopwatch;
use sanderling_os::poll::{Events, Interest, Poller};
use sanderling_os::tcp::{Listener, More};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

pub(crate) const NAME: &str = "listeners";
const WORKER_COUNTS: [usize; 2] = [2, 4];
/// Connections per slice.
const CONNECTION_COUNT: usize = 480;
/// Threads that connect.
const CLIENT_COUNT: usize = 2;
/// Open connections of each of them.
const OPEN_COUNT: usize = 16;
/// Connections that a worker accepts before it waits again.
const ACCEPTED_PER_WAIT_MAX: usize = 16;
/// Missing answers after which a client gives up: it has waited seconds for each.
const ERRORS_MAX: u64 = 3;
const ANSWER: [u8; 64] = [b'a'; 64];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// One listener; a connection wakes all waiting threads.
    Shared,
    /// One listener; a connection wakes one of the waiting threads (`EPOLLEXCLUSIVE`).
    SharedExclusive,
    /// A reuseport socket each.
    Reuseport,
}

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let mut rows = Vec::new();
    for worker_count in WORKER_COUNTS {
        let baseline = rows.len();
        for (name, plan) in [
            ("shared, wakes all", Plan::Shared),
            ("shared, wakes one", Plan::SharedExclusive),
            ("reuseport", Plan::Reuseport),
        ] {
            let name = format!("{name}, {worker_count}");
            let row = Candidate::new(name, move || slice(plan, worker_count)).against(baseline);
            rows.push(row.threads(worker_count).used(plan == Plan::Reuseport));
        }
    }
    let mut heading = Heading::new(NAME, "Accepting connections with 2 and 4 workers, over loopback", "connection");
    heading.basis = Basis::BothSides;
    let group = bench.loops(heading, rows);
    group.note_gain();
    group.notes.push("compared by the CPU time of both sides".to_owned());
    Ok(())
}

fn slice(plan: Plan, worker_count: usize) -> io::Result<Slice> {
    let listeners = bind(plan, worker_count)?;
    let address = listeners[0].local_address()?;
    let is_over = AtomicBool::new(false);
    let start = Barrier::new(worker_count + CLIENT_COUNT);
    let (is_over, start) = (&is_over, &start);
    let (accepted, connected, wall) = thread::scope(|scope| {
        let workers: Vec<_> = listeners
            .iter()
            .map(|listener| scope.spawn(move || timed(|| work(plan, listener, is_over, start))))
            .collect();
        let clients: Vec<_> = (0..CLIENT_COUNT)
            .map(|_| {
                scope.spawn(move || {
                    start.wait();
                    let begin = Instant::now();
                    let connected = timed(|| connect_all(address));
                    (connected, begin, Instant::now())
                })
            })
            .collect();
        let clients: Vec<_> = clients.into_iter().map(|client| joined(client.join())).collect();
        is_over.store(true, Ordering::Relaxed);
        let accepted: Vec<_> = workers.into_iter().map(|worker| joined(worker.join())).collect();
        let begin = clients.iter().map(|client| client.1).min().expect("there is a client");
        let end = clients.iter().map(|client| client.2).max().expect("there is a client");
        (accepted, clients.into_iter().map(|client| client.0).collect::<Vec<_>>(), end - begin)
    });
    let counts: Vec<u64> = accepted.iter().map(|(count, _)| count.as_ref().map_or(0, |&count| count)).collect();
    let cpu_ns = accepted.iter().map(|(_, cpu_ns)| cpu_ns).sum();
    let peer_cpu_ns = connected.iter().map(|(_, cpu_ns)| cpu_ns).sum();
    for (result, _) in accepted {
        result?;
    }
    let mut error_count = 0;
    for (result, _) in connected {
        error_count += result?;
    }
    let operation_count: u64 = counts.iter().sum();
    let busiest_share = counts.iter().max().map(|&most| most as f64 / operation_count.max(1) as f64);
    let wall_ns = wall.as_nanos() as f64;
    Ok(Slice { operation_count, error_count, cpu_ns, wall_ns, peer_cpu_ns: Some(peer_cpu_ns), busiest_share })
}

fn timed<R>(work: impl FnOnce() -> R) -> (R, f64) {
    let mut stopwatch = Stopwatch::default();
    let result = stopwatch.time(work);
    (result, stopwatch.cpu_ns())
}

/// A listener for each worker, or the same one for all.
fn bind(plan: Plan, worker_count: usize) -> io::Result<Vec<Listener>> {
    let first = Listener::bind(any_address())?;
    disable_pacing(&first);
    let address = first.local_address()?;
    let mut listeners = vec![first];
    for _ in 1..worker_count {
        let next = match plan {
            Plan::Shared | Plan::SharedExclusive => Listener::from(listeners[0].as_fd().try_clone_to_owned()?),
            Plan::Reuseport => Listener::bind_reuseport(address)?,
        };
        disable_pacing(&next);
        listeners.push(next);
    }
    Ok(listeners)
}

/// Accepts, answers and closes until the slice is over, and returns the number of connections.
fn work(plan: Plan, listener: &Listener, is_over: &AtomicBool, start: &Barrier) -> io::Result<u64> {
    let poller = Poller::new().and_then(|poller| {
        match plan {
            Plan::SharedExclusive => poller.register_exclusive(listener, 0)?,
            Plan::Shared | Plan::Reuseport => poller.register(listener, 0, Interest::Readable)?,
        }
        Ok(poller)
    });
    start.wait();
    let (mut poller, mut events) = (poller?, Events::with_capacity(16));
    let mut accepted_count = 0;
    let mut may_have_more = false;
    while !is_over.load(Ordering::Relaxed) {
        if !may_have_more {
            poller.wait(&mut events, Some(CHECK_INTERVAL))?;
        }
        may_have_more = true;
        for _ in 0..ACCEPTED_PER_WAIT_MAX {
            match listener.accept()? {
                Some((stream, _)) => {
                    // The client reports a connection that it has lost.
                    let _ = stream.send(&ANSWER, More::No);
                    accepted_count += 1;
                }
                None => {
                    may_have_more = false;
                    break;
                }
            }
        }
    }
    Ok(accepted_count)
}

/// Opens the connections of one client thread, and reads each answer. Returns the number of errors.
fn connect_all(address: SocketAddr) -> io::Result<u64> {
    let mut error_count = 0;
    for _ in 0..CONNECTION_COUNT / CLIENT_COUNT / OPEN_COUNT {
        let clients: Vec<Client> = (0..OPEN_COUNT).map(|_| Client::connect(address)).collect::<io::Result<_>>()?;
        for mut client in clients {
            if let Err(error) = client.receive(&mut [0; ANSWER.len()]) {
                error_count += 1;
                if error_count == ERRORS_MAX {
                    return Err(error);
                }
            }
            client.reset()?;
        }
    }
    Ok(error_count)
}
