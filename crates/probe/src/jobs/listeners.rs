//! Several workers that accept connections of one address: from one listener that they share, or each from its sibling.

use super::{Bench, Heading};
use crate::report::Basis;
use crate::rounds::{Candidate, Slice};
use crate::sides::unwound;
use crate::stopwatch::Stopwatch;
use sanderling_os::candidates::listener::{ListenerWait, Wakes, another};
use sanderling_os::candidates::stream::{Client, use_cubic};
use sanderling_os::poll::{Events, Interest, Poller};
use sanderling_os::tcp::{Listener, More};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const JOB: &str = "listeners";
pub(crate) const SHARED: &str = "shared, wakes all";
pub(crate) const SHARED_ONE: &str = "shared, wakes one";
pub(crate) const SIBLINGS: &str = "siblings";
pub(crate) const WORKER_COUNTS: [usize; 2] = [2, 4];
/// 46.3 % more throughput on a machine with two sockets, nginx developers' list, 2014.
pub(crate) const CLAIMED_RATIO: f64 = 1.0 / 1.463;

/// Connections of a slice.
const CONNECTION_COUNT: usize = 480;
/// Threads that connect.
const CLIENT_COUNT: usize = 2;
/// Connections that each of them has open at once.
const OPEN_COUNT: usize = 16;
/// Connections that a worker accepts before it waits again, so that others get their share.
const ACCEPTED_PER_WAIT_MAX: usize = 16;
/// How long a worker waits before it looks whether the slice is over.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// Answers that a client misses before it gives up: it has waited seconds for each.
const ERRORS_MAX: u64 = 3;
const ANSWER: [u8; 64] = [b'a'; 64];

/// The name of a candidate's row.
pub(crate) fn row_name(candidate: &str, worker_count: usize) -> String {
    format!("{candidate}, {worker_count}")
}

#[derive(Clone, Copy, Debug)]
enum Plan {
    Shared(Wakes),
    Siblings,
}

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let mut rows = Vec::new();
    for worker_count in WORKER_COUNTS {
        let baseline = rows.len();
        let plans = [
            (SHARED, Plan::Shared(Wakes::Everybody)),
            (SHARED_ONE, Plan::Shared(Wakes::One)),
            (SIBLINGS, Plan::Siblings),
        ];
        for (name, plan) in plans {
            let row = Candidate::new(row_name(name, worker_count), move || slice(plan, worker_count))
                .against(baseline)
                .threads(worker_count)
                .used(name == SIBLINGS);
            rows.push(if name == SIBLINGS { row.claimed(CLAIMED_RATIO) } else { row });
        }
    }
    let mut heading = Heading::new(JOB, "Accepting connections with several workers, over loopback", "connection");
    heading.basis = Basis::BothSides;
    let group = bench.loops(heading, rows);
    group.notes.push("compared by processor time of both sides; most: the share of the busiest worker".to_owned());
    Ok(())
}

/// What a worker waits by.
enum Wait {
    Shared(ListenerWait),
    Own(Poller, Events),
}

impl Wait {
    fn new(plan: Plan, listener: &Listener) -> io::Result<Wait> {
        Ok(match plan {
            Plan::Shared(wakes) => Wait::Shared(ListenerWait::new(listener, wakes)?),
            Plan::Siblings => {
                let poller = Poller::new()?;
                poller.register(listener, 0, Interest::Readable)?;
                Wait::Own(poller, Events::with_capacity(16))
            }
        })
    }

    fn wait(&mut self) -> io::Result<()> {
        match self {
            Wait::Shared(wait) => wait.wait(LOOK_INTERVAL),
            Wait::Own(poller, events) => poller.wait(events, Some(LOOK_INTERVAL)),
        }
    }
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
        let clients: Vec<_> = clients.into_iter().map(|client| unwound(client.join())).collect();
        is_over.store(true, Ordering::Relaxed);
        let accepted: Vec<_> = workers.into_iter().map(|worker| unwound(worker.join())).collect();
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

/// A listener for each worker: its own sibling, or the one of all.
fn bind(plan: Plan, worker_count: usize) -> io::Result<Vec<Listener>> {
    let first = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    // Where cubic is missing, the default has to do.
    let _ = use_cubic(&first);
    let address = first.local_address()?;
    let mut listeners = vec![first];
    for _ in 1..worker_count {
        let next = match plan {
            Plan::Shared(_) => another(&listeners[0])?,
            // The port is one that the kernel has just given to this process.
            Plan::Siblings => Listener::bind_reuseport(address)?,
        };
        let _ = use_cubic(&next);
        listeners.push(next);
    }
    Ok(listeners)
}

/// Accepts, answers and closes until the slice is over; how many.
fn work(plan: Plan, listener: &Listener, is_over: &AtomicBool, start: &Barrier) -> io::Result<u64> {
    let wait = Wait::new(plan, listener);
    start.wait();
    let mut wait = wait?;
    let mut accepted_count = 0;
    let mut may_have_more = false;
    while !is_over.load(Ordering::Relaxed) {
        if !may_have_more {
            wait.wait()?;
        }
        may_have_more = true;
        for _ in 0..ACCEPTED_PER_WAIT_MAX {
            match listener.accept()? {
                Some((stream, _)) => {
                    // A client that went away is the client's error.
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

/// Connects a client's share, some at a time, and reads each answer; how many went wrong.
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
