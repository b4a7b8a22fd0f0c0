//! A rate turned into the moments at which requests are due, whatever the server does.

use std::time::{Duration, Instant};

/// Requests are due on beats of this length, as many on each as the rate asks for. A finer clock would wake this program
/// for every request, and its own processor time would be what is measured.
pub(crate) const BEAT: Duration = Duration::from_millis(1);
const BEATS_PER_S: u64 = 1_000;

/// One request: when it is due, and which one of its kind it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Latencies and deadlines count from here, also when the sending was late: else a slow server would hide its
    /// slowness by delaying the requests that would have shown it.
    pub(crate) due: Instant,
    /// Counted from 0.
    pub(crate) number: u64,
}

/// The requests of one kind, from the first to the last.
#[derive(Debug)]
pub(crate) struct Schedule {
    start: Instant,
    per_s: u64,
    count_max: u64,
    taken_count: u64,
}

impl Schedule {
    /// `per_s` requests a second from `start` on; `per_s` is not zero.
    pub(crate) fn new(start: Instant, per_s: u32, length: Duration) -> Schedule {
        let count_max = u128::from(per_s) * length.as_nanos() / 1_000_000_000;
        Schedule { start, per_s: per_s.into(), count_max: u64::try_from(count_max).unwrap_or(u64::MAX), taken_count: 0 }
    }

    /// The next request if it is due. Those missed while this program did not run are all due at once.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Request> {
        if self.is_over() {
            return None;
        }
        let beat_index = u128::from(self.taken_count) * u128::from(BEATS_PER_S) / u128::from(self.per_s);
        let due = self.start + Duration::from_millis(u64::try_from(beat_index).unwrap_or(u64::MAX));
        if due > now {
            return None;
        }
        let request = Request { due, number: self.taken_count };
        self.taken_count += 1;
        Some(request)
    }

    /// No request more.
    pub(crate) fn end(&mut self) {
        self.count_max = self.taken_count;
    }

    /// Whether all are taken.
    pub(crate) fn is_over(&self) -> bool {
        self.taken_count == self.count_max
    }
}

#[cfg(test)]
mod tests {
    use super::Schedule;
    use std::time::{Duration, Instant};

    /// Takes what is due at each of these times and compares the counts.
    #[track_caller]
    fn check(per_s: u32, length_ms: u64, taken: &[(u64, usize)]) {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, per_s, Duration::from_millis(length_ms));
        for &(at_us, count) in taken {
            let now = start + Duration::from_micros(at_us);
            let dues: Vec<_> = std::iter::from_fn(|| schedule.take_due(now)).collect();
            assert_eq!(dues.len(), count, "at {at_us} µs");
            assert!(dues.iter().all(|request| request.due <= now));
        }
        assert!(schedule.is_over());
    }

    #[test]
    fn each_beat_has_its_share() {
        check(2_000, 3, &[(0, 2), (999, 0), (1_000, 2), (2_500, 2), (9_000, 0)]);
    }

    #[test]
    fn a_slow_rate_skips_beats() {
        check(400, 10, &[(0, 1), (1_999, 0), (2_000, 1), (5_000, 1), (7_000, 1)]);
    }

    #[test]
    fn what_was_missed_is_due_at_once() {
        check(1_000, 100, &[(0, 1), (50_000, 50), (99_000, 49)]);
    }

    #[test]
    fn an_ended_schedule_gives_nothing() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, 1_000, Duration::from_secs(1));
        assert!(schedule.take_due(start).is_some());
        schedule.end();
        assert!(schedule.take_due(start + Duration::from_secs(1)).is_none());
        assert!(schedule.is_over());
    }
}
