//! How a server stands at a moment: what its threads have done, what is open, and what the cache holds.

use crate::open_files::Census;
use crate::shared::Shared;
use crate::stage::Stage;
use crate::tally::{COUNTER_COUNT, Counter, Tally};
use sanderling_os::counters::{Syscall, SyscallCounts};

/// A snapshot of a server, for whoever asks how it is. Each number is right, and they may be of slightly different times.
#[derive(Clone, Debug)]
pub struct Standing {
    /// What the server is doing.
    pub stage: Stage,
    /// How often what is served has been replaced.
    pub content_version: u64,
    /// The workers and the threads that serve datagrams, in the order in which they were started.
    pub threads: Vec<ThreadStanding>,
    /// What the open-file cache holds.
    pub open_files: Census,
}

/// A snapshot of one thread.
#[derive(Clone, Debug)]
pub struct ThreadStanding {
    /// Its name.
    pub name: String,
    /// The sets of siblings that it serves, by their index.
    pub siblings: Vec<usize>,
    /// The turns that it has begun.
    pub turn_count: u64,
    counts: [u64; COUNTER_COUNT],
    calls: Option<SyscallCounts>,
}

impl Standing {
    /// How `shared` stands now.
    pub(crate) fn of(shared: &Shared) -> Standing {
        let calls = sanderling_os::counters::all_thread_counts();
        // A process has one server, mostly; of two threads of one name the later one is meant.
        let calls_of = |name: &str| calls.iter().rev().find(|counts| counts.thread == name).cloned();
        let thread = |tally: &Tally| ThreadStanding {
            name: tally.thread.clone(),
            siblings: tally.siblings.clone(),
            turn_count: tally.beat.turn_count(),
            counts: tally.counts(),
            calls: calls_of(&tally.thread),
        };
        Standing {
            stage: shared.course.stage(),
            content_version: shared.content_version(),
            threads: shared.tallies.all().iter().map(|tally| thread(tally)).collect(),
            open_files: shared.open_files.census(),
        }
    }

    /// What all threads have counted so far.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.threads.iter().map(|thread| thread.of(counter)).sum()
    }
}

impl ThreadStanding {
    /// What the thread has counted so far.
    pub fn of(&self, counter: Counter) -> u64 {
        self.counts[counter as usize]
    }

    /// HTTP connections that are open.
    pub fn http_open_count(&self) -> u64 {
        self.of(Counter::HttpConnections).saturating_sub(self.of(Counter::HttpClosed))
    }

    /// DNS streams that are open.
    pub fn dns_open_count(&self) -> u64 {
        self.of(Counter::DnsStreams).saturating_sub(self.of(Counter::DnsStreamsClosed))
    }

    /// Connections of both protocols that were accepted so far.
    pub fn accepted_count(&self) -> u64 {
        self.of(Counter::HttpConnections) + self.of(Counter::DnsStreams)
    }

    /// The kinds of system calls that it has made, with their numbers.
    pub fn calls(&self) -> impl Iterator<Item = (Syscall, u64)> + '_ {
        self.calls.iter().flat_map(SyscallCounts::nonzero)
    }
}
