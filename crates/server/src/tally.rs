//! What a server has done and met, counted by each thread for itself and added up when somebody asks.

use crate::beat::Beat;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

macro_rules! counters {
    ($($variant:ident = $name:literal: $meaning:literal;)*) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $(#[doc = $meaning] $variant),* }

        impl Counter {
            /// All of them.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant),*];

            /// Its name for people and machines.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name),* }
            }
        }
    };
}

counters! {
    HttpConnections = "http_connections": "HTTP connections accepted.";
    HttpClosed = "http_closed": "HTTP connections that have ended since.";
    HttpRequests = "http_requests": "HTTP requests answered.";
    HttpRefused = "http_refused": "HTTP requests that were none: answered with an error and closed.";
    HttpTimeouts = "http_timeouts": "HTTP connections closed because a deadline passed.";
    HttpAborted = "http_aborted": "HTTP responses cut off, because their file changed while it was sent.";
    DnsStreams = "dns_streams": "DNS connections over TCP accepted.";
    DnsStreamsClosed = "dns_streams_closed": "DNS connections over TCP that have ended since.";
    DnsUdpQueries = "dns_udp_queries": "Datagrams received.";
    DnsTcpQueries = "dns_tcp_queries": "Queries received over TCP.";
    DnsSilences = "dns_silences": "Queries left without an answer, since they were none.";
    UdpReceiveErrors = "udp_receive_errors": "Calls to receive datagrams that failed.";
    UdpRepliesLost = "udp_replies_lost": "Replies over UDP that the kernel did not take.";
    AcceptErrors = "accept_errors": "Connections that could not be accepted, for want of descriptors or memory.";
    Panics = "panics": "Connections and queries ended by an error of ours.";
}

pub(crate) const COUNTER_COUNT: usize = Counter::ALL.len();

/// The numbers of one thread.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The thread's name.
    pub(crate) thread: String,
    /// The siblings that it serves, by their index.
    pub(crate) siblings: Vec<usize>,
    /// Its turns.
    pub(crate) beat: Beat,
    counts: [AtomicU64; COUNTER_COUNT],
}

impl Tally {
    /// Adds to a counter; only the thread that the tally belongs to does.
    #[inline]
    pub(crate) fn add(&self, counter: Counter, count: u64) {
        let number = &self.counts[counter as usize];
        // One writer: a load and a store lose nothing, and cost no locked instruction.
        number.store(number.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    /// All counts, in the order of [`Counter::ALL`].
    pub(crate) fn counts(&self) -> [u64; COUNTER_COUNT] {
        std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed))
    }
}

/// The numbers of all threads.
#[derive(Debug, Default)]
pub struct Tallies(Mutex<Vec<Arc<Tally>>>);

impl Tallies {
    /// A tally for one more thread.
    pub(crate) fn enter(&self, thread: String, siblings: Vec<usize>) -> Arc<Tally> {
        let counts = [const { AtomicU64::new(0) }; COUNTER_COUNT];
        let tally = Arc::new(Tally { thread, siblings, beat: Beat::default(), counts });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&tally));
        tally
    }

    /// What all threads have counted so far.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.all().iter().map(|tally| tally.counts[counter as usize].load(Ordering::Relaxed)).sum()
    }

    /// The tally of each thread, in the order in which they entered.
    pub(crate) fn all(&self) -> Vec<Arc<Tally>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
