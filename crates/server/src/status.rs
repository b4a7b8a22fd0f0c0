//! The state of a server at one moment, for `sanderling status`.

use crate::files::file_cache::CacheStats;
use crate::lifecycle::State;
use crate::metrics::{COUNTER_COUNT, Counter, ThreadMetrics};
use crate::statistics::Statistics;
use crate::threads::shared::Shared;
use sanderling_os::counters::{Syscall, SyscallCounts};

/// The state of a server. Each number is exact; numbers may be some microseconds apart.
#[derive(Clone, Debug)]
pub struct Status {
    /// The lifecycle state.
    pub state: State,
    /// How often the snapshot has been replaced.
    pub snapshot_version: u64,
    /// Workers and datagram threads, in the order of their start.
    pub threads: Vec<ThreadStatus>,
    /// The open-file cache.
    pub cache: CacheStats,
    /// Bytes that the buffers of all connections hold.
    pub buffers_bytes: usize,
    /// The detailed counts, if the server has them.
    pub statistics: Option<Statistics>,
}

/// The state of one thread.
#[derive(Clone, Debug)]
pub struct ThreadStatus {
    /// The thread's name.
    pub name: String,
    /// The indices of the socket sets that it serves.
    pub socket_sets: Vec<usize>,
    /// Iterations of its event loop.
    pub iteration_count: u64,
    counts: [u64; COUNTER_COUNT],
    calls: Option<SyscallCounts>,
}

impl Status {
    pub(crate) fn of(shared: &Shared) -> Status {
        let calls = sanderling_os::counters::all_thread_counts();
        // Where two threads have one name, the later one belongs to the running server.
        let calls_of = |name: &str| calls.iter().rev().find(|counts| counts.thread == name).cloned();
        let thread = |metrics: &ThreadMetrics| ThreadStatus {
            name: metrics.thread.clone(),
            socket_sets: metrics.socket_sets.clone(),
            iteration_count: metrics.heartbeat.iteration_count(),
            counts: metrics.counts(),
            calls: calls_of(&metrics.thread),
        };
        Status {
            state: shared.lifecycle.state(),
            snapshot_version: shared.snapshot_version(),
            threads: shared.metrics.threads().iter().map(|metrics| thread(metrics)).collect(),
            cache: shared.files.stats(),
            buffers_bytes: shared.buffers.held_bytes(),
            statistics: shared.statistics(),
        }
    }

    /// The sum of a counter over all threads.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.threads.iter().map(|thread| thread.count(counter)).sum()
    }
}

impl ThreadStatus {
    /// The thread's value of a counter.
    pub fn count(&self, counter: Counter) -> u64 {
        self.counts[counter as usize]
    }

    /// Open HTTP connections.
    pub fn http_open_count(&self) -> u64 {
        self.count(Counter::HttpConnections).saturating_sub(self.count(Counter::HttpClosed))
    }

    /// Open DNS connections over TCP.
    pub fn dns_open_count(&self) -> u64 {
        self.count(Counter::DnsStreams).saturating_sub(self.count(Counter::DnsStreamsClosed))
    }

    /// Connections of both protocols accepted so far.
    pub fn accepted_count(&self) -> u64 {
        self.count(Counter::HttpConnections) + self.count(Counter::DnsStreams)
    }

    /// The system calls that the thread has made, by kind.
    pub fn calls(&self) -> impl Iterator<Item = (Syscall, u64)> + '_ {
        self.calls.iter().flat_map(SyscallCounts::nonzero)
    }
}
