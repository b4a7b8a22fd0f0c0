//! The ends of single requests turned into counts, latencies and the first losses in words.

use crate::histogram::Histogram;
use crate::outcome::{Cause, Note};
use crate::schedule::Request;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Losses of one kind that are kept in words; all are counted.
const LOSSES_KEPT_MAX: usize = 16;

/// What became of the requests of one kind. `sent_count` is `ok_count` and the losses together, none left over.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests that were due, those included that could not be sent.
    pub sent_count: u64,
    /// Requests answered rightly.
    pub ok_count: u64,
    /// From the moment a request was due to the last octet of its right answer.
    pub latency: Histogram,
    /// The longest time without the end of a right answer: what an outage lasted.
    pub silence_max: Duration,
    /// The longest time from a request's due moment until this program came to send it. When it is long, the latencies
    /// tell of this machine more than of the server.
    pub late_max: Duration,
    /// Processor time of this load's own thread.
    pub own_cpu: Duration,
    /// The first losses, in the order of their ends.
    pub first_losses: Vec<Loss>,
    lost: [u64; Cause::ALL.len()],
    notes: [u64; Note::ALL.len()],
}

impl Counts {
    /// Requests lost for this cause.
    pub fn lost(&self, cause: Cause) -> u64 {
        self.lost[cause as usize]
    }

    /// Requests lost for any cause.
    pub fn lost_count(&self) -> u64 {
        self.lost.iter().sum()
    }

    /// How often this was noted.
    pub fn noted(&self, note: Note) -> u64 {
        self.notes[note as usize]
    }

    /// Kept connections that the server ended without a loss: politely, or while no request was outstanding. Those that
    /// it ended otherwise are in the losses.
    pub fn closed_by_server_count(&self) -> u64 {
        [Note::PoliteClose, Note::IdleClose, Note::IdleReset].iter().map(|note| self.noted(*note)).sum()
    }
}

/// One lost request, for people.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Counted from 0 among its kind.
    pub number: u64,
    /// When it was due, from the start of the load.
    pub due_after: Duration,
    /// When it was known to be lost, from the start of the load.
    pub lost_after: Duration,
    /// Why.
    pub cause: Cause,
    /// What was seen, and on which connection.
    pub detail: String,
}

/// How a load stands while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Requests that were due so far.
    pub sent_count: u64,
    /// Requests answered rightly so far.
    pub ok_count: u64,
    /// Requests lost so far.
    pub lost_count: u64,
}

/// The standing of one kind, as its thread publishes it.
#[derive(Debug, Default)]
pub(crate) struct Published {
    sent_count: AtomicU64,
    ok_count: AtomicU64,
    lost_count: AtomicU64,
}

impl Published {
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            sent_count: self.sent_count.load(Ordering::Relaxed),
            ok_count: self.ok_count.load(Ordering::Relaxed),
            lost_count: self.lost_count.load(Ordering::Relaxed),
        }
    }
}

/// Counts the requests of one kind.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: Counts,
    start: Instant,
    last_ok: Instant,
    lost_count: u64,
    published: Arc<Published>,
}

impl Tally {
    pub(crate) fn new(start: Instant, published: Arc<Published>) -> Tally {
        Tally { counts: Counts::default(), start, last_ok: start, lost_count: 0, published }
    }

    /// A request is sent now, or at least tried.
    pub(crate) fn count_sent(&mut self, request: Request, now: Instant) {
        self.counts.sent_count += 1;
        self.counts.late_max = self.counts.late_max.max(now.saturating_duration_since(request.due));
    }

    /// The last octet of a right answer came now.
    pub(crate) fn count_ok(&mut self, request: Request, now: Instant) {
        self.counts.ok_count += 1;
        self.counts.latency.add(now.saturating_duration_since(request.due));
        self.end_silence(now);
    }

    /// A request is lost now. `detail` is asked for only when it is kept.
    pub(crate) fn count_lost(&mut self, request: Request, cause: Cause, now: Instant, detail: impl FnOnce() -> String) {
        self.counts.lost[cause as usize] += 1;
        self.lost_count += 1;
        if self.counts.first_losses.len() < LOSSES_KEPT_MAX {
            self.counts.first_losses.push(Loss {
                number: request.number,
                due_after: request.due.saturating_duration_since(self.start),
                lost_after: now.saturating_duration_since(self.start),
                cause,
                detail: detail(),
            });
        }
    }

    pub(crate) fn note(&mut self, note: Note) {
        self.counts.notes[note as usize] += 1;
    }

    /// Lets other threads see how it stands.
    pub(crate) fn publish(&self) {
        self.published.sent_count.store(self.counts.sent_count, Ordering::Relaxed);
        self.published.ok_count.store(self.counts.ok_count, Ordering::Relaxed);
        self.published.lost_count.store(self.lost_count, Ordering::Relaxed);
    }

    /// The counts, when the last request has ended. `sending_end` is when the last one was due: what followed was no
    /// silence of the server's, unless an answer was still to come.
    pub(crate) fn finish(mut self, sending_end: Instant, own_cpu: Duration) -> Counts {
        self.end_silence(sending_end.max(self.last_ok));
        self.counts.own_cpu = own_cpu;
        self.publish();
        self.counts
    }

    fn end_silence(&mut self, now: Instant) {
        self.counts.silence_max = self.counts.silence_max.max(now.saturating_duration_since(self.last_ok));
        self.last_ok = now;
    }
}
