//! The results of a load: counts, latencies and the first losses.

use crate::outcome::{Cause, Kind, Note};
use hdrhistogram::Histogram;
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// Losses of one kind that are kept in detail; all are counted.
const LOSSES_KEPT_MAX: usize = 4;
/// Decimal digits to which latencies are exact.
const LATENCY_DIGITS: u8 = 3;

/// The outcome of a load.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed that produces the same questions and IDs again.
    pub seed: u64,
    /// The time from the first due request to the end of the last.
    pub length: Duration,
    /// The counts of each kind whose rate was not zero.
    pub kinds: Vec<(Kind, Counts)>,
}

impl Report {
    /// The counts of one kind; `None` when its rate was zero.
    pub fn counts(&self, kind: Kind) -> Option<&Counts> {
        self.kinds.iter().find(|(found, _)| *found == kind).map(|(_, counts)| counts)
    }

    /// Requests sent, of all kinds.
    pub fn sent_count(&self) -> u64 {
        self.kinds.iter().map(|(_, counts)| counts.sent_count).sum()
    }

    /// Requests lost, of all kinds and for all causes.
    pub fn lost_count(&self) -> u64 {
        self.kinds.iter().map(|(_, counts)| counts.lost_count()).sum()
    }

    /// Persistent connections that the server closed without a loss, of all kinds.
    pub fn closed_by_server_count(&self) -> u64 {
        self.kinds.iter().map(|(_, counts)| counts.closed_by_server_count()).sum()
    }

    /// The longest delay of sending, of all kinds: how long this machine was busy with something else.
    pub fn late_max(&self) -> Duration {
        self.kinds.iter().map(|(_, counts)| counts.late_max).max().unwrap_or_default()
    }
}

/// The outcome of the requests of one kind: `sent_count` is the sum of `ok_count` and [`Counts::lost_count`].
#[derive(Clone, Debug)]
pub struct Counts {
    /// Requests that were due, including those that could not be sent.
    pub sent_count: u64,
    /// Requests with a correct response.
    pub ok_count: u64,
    /// The longest time without the end of a correct response: the length of an outage.
    pub silence_max: Duration,
    /// The longest delay of sending. If this delay is long, latencies describe this machine more than the server.
    pub late_max: Duration,
    /// The first losses with their times and causes, by the time of their ends.
    pub first_losses: Vec<String>,
    /// Losses of each cause, indexed by `Cause as usize`.
    pub lost: [u64; Cause::ALL.len()],
    latencies_ns: Histogram<u64>,
    notes: [u64; Note::ALL.len()],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            sent_count: 0,
            ok_count: 0,
            silence_max: Duration::ZERO,
            late_max: Duration::ZERO,
            first_losses: Vec::new(),
            latencies_ns: Histogram::new(LATENCY_DIGITS).expect("the precision is within the range of 0 to 5"),
            lost: [0; Cause::ALL.len()],
            notes: [0; Note::ALL.len()],
        }
    }
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

    /// The number of times that an event was noted.
    pub fn noted(&self, note: Note) -> u64 {
        self.notes[note as usize]
    }

    /// Persistent connections that the server closed without a loss.
    pub fn closed_by_server_count(&self) -> u64 {
        [Note::ConnectionClose, Note::IdleClose, Note::IdleReset].iter().map(|note| self.noted(*note)).sum()
    }

    /// The latency of correct responses at a quantile: 0.5 is the median, 1.0 the maximum.
    pub fn latency(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.latencies_ns.value_at_quantile(quantile))
    }

    /// Each cause of losses with its count: `2 timeout, 1 refused`; empty without losses.
    pub fn causes(&self) -> String {
        list(Cause::ALL, &self.lost)
    }
}

fn list<N: fmt::Display>(names: &[N], counts: &[u64]) -> String {
    let parts = names.iter().zip(counts).filter(|(_, count)| **count > 0);
    parts.map(|(name, count)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| format!("{:.1}", duration.as_secs_f64() * 1e3);
        let head = ["sent", "ok", "lost", "p50 ms", "p99 ms", "max ms", "silence ms", "late ms"];
        let row = |cells: [String; 8]| cells.map(|cell| format!("{cell:>11}")).concat();
        writeln!(f, "{:<13}{}", "kind", row(head.map(str::to_owned)))?;
        for (kind, counts) in &self.kinds {
            let [sent, ok, lost] = [counts.sent_count, counts.ok_count, counts.lost_count()].map(|it| it.to_string());
            let [p50, p99, max] = [0.5, 0.99, 1.0].map(|quantile| ms(counts.latency(quantile)));
            let cells = [sent, ok, lost, p50, p99, max, ms(counts.silence_max), ms(counts.late_max)];
            writeln!(f, "{kind:<13}{}", row(cells))?;
        }
        for (kind, counts) in &self.kinds {
            for (title, list) in [("lost", counts.causes()), ("noted", list(Note::ALL, &counts.notes))] {
                if !list.is_empty() {
                    writeln!(f, "{kind:<13} {title}: {list}")?;
                }
            }
            for loss in &counts.first_losses {
                writeln!(f, "{kind:<13} {loss}")?;
            }
        }
        let (lost, sent, length_s) = (self.lost_count(), self.sent_count(), self.length.as_secs_f64());
        write!(f, "{lost} lost of {sent} in {length_s:.1} s; seed {}", self.seed)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Latencies and deadlines count from here even when sending is late. Otherwise a slow server would hide its
    /// slowness by delaying the requests that show it.
    pub(crate) due: Instant,
}

pub(crate) struct Recorder {
    counts: Arc<Mutex<Counts>>,
    start: Instant,
    last_ok: Cell<Instant>,
}

impl Recorder {
    pub(crate) fn new(start: Instant, counts: &Arc<Mutex<Counts>>) -> Recorder {
        Recorder { counts: Arc::clone(counts), start, last_ok: Cell::new(start) }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("no thread panics with the lock")
    }

    pub(crate) fn count_sent(&self, request: Request) {
        let mut counts = self.counts();
        counts.sent_count += 1;
        counts.late_max = counts.late_max.max(request.due.elapsed());
    }

    pub(crate) fn count_ok(&self, request: Request) {
        let latency_ns = request.due.elapsed().as_nanos();
        let mut counts = self.counts();
        counts.ok_count += 1;
        let latency_ns = u64::try_from(latency_ns).unwrap_or(u64::MAX);
        counts.latencies_ns.record(latency_ns).expect("the histogram resizes itself");
        drop(counts);
        self.end_silence(Instant::now());
    }

    /// A request is lost. `detail` is called only when the loss is kept in detail.
    pub(crate) fn count_lost(&self, request: Request, cause: Cause, detail: impl FnOnce() -> String) {
        let mut counts = self.counts();
        counts.lost[cause as usize] += 1;
        if counts.first_losses.len() < LOSSES_KEPT_MAX {
            let due_ms = request.due.saturating_duration_since(self.start).as_millis();
            let (lost_ms, detail) = (self.start.elapsed().as_millis(), detail());
            counts.first_losses.push(format!("request due at {due_ms} ms, {cause} at {lost_ms} ms: {detail}"));
        }
    }

    pub(crate) fn note(&self, note: Note) {
        self.counts().notes[note as usize] += 1;
    }

    /// The last request has ended. After `sending_end` no request was due, so only outstanding responses count as
    /// silence.
    pub(crate) fn finish(&self, sending_end: Instant) {
        self.end_silence(sending_end.max(self.last_ok.get()));
    }

    fn end_silence(&self, now: Instant) {
        let silence = now.saturating_duration_since(self.last_ok.replace(now));
        let mut counts = self.counts();
        counts.silence_max = counts.silence_max.max(silence);
    }
}
