//! Whether a thread makes progress: it increments a number in each iteration, and another thread watches the number.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The most that one check adds to the time that a thread is thought to have been hung. Between two checks that are
/// further apart the whole process may have been stopped.
const CHECK_GAP_MAX: Duration = Duration::from_millis(1_500);

/// The iterations of one thread. The number never goes back; it is odd while the thread works and even while it waits.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    number: AtomicU64,
    /// The thread makes calls that may wait for a disk.
    is_in_file_call: AtomicBool,
}

impl Heartbeat {
    /// The thread begins an iteration.
    #[inline]
    pub(crate) fn begin_iteration(&self) {
        self.update(|number| (number + 1) | 1);
    }

    /// The thread is about to wait, or ends.
    #[inline]
    pub(crate) fn begin_waiting(&self) {
        self.update(|number| (number + 1) & !1);
    }

    /// Runs `call`, which may wait for a disk.
    #[inline]
    pub(crate) fn during_file_call<R>(&self, call: impl FnOnce() -> R) -> R {
        let _guard = FileCallGuard(&self.is_in_file_call);
        self.is_in_file_call.store(true, Ordering::Relaxed);
        call()
    }

    /// The number of iterations that have begun.
    pub(crate) fn iteration_count(&self) -> u64 {
        self.number().div_ceil(2)
    }

    /// Whether the thread is in an iteration.
    #[cfg(test)]
    pub(crate) fn is_working(&self) -> bool {
        is_working(self.number())
    }

    fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    #[inline]
    fn update(&self, next: impl FnOnce(u64) -> u64) {
        // Only its own thread writes the number, so a load and a store lose nothing. One number holds both the
        // iteration and whether the thread works, so that no order between two numbers has to be kept.
        self.number.store(next(self.number()), Ordering::Relaxed);
    }
}

/// Ends a call that may wait for a disk, also by a panic.
struct FileCallGuard<'h>(&'h AtomicBool);

impl Drop for FileCallGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Checks heartbeats from time to time.
#[derive(Debug, Default)]
pub(crate) struct Watchdog {
    seen: Vec<Seen>,
    last_check: Option<Instant>,
}

/// A thread that makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hang {
    pub(crate) index: usize,
    /// It probably waits for a disk.
    pub(crate) is_in_file_call: bool,
}

/// The number of a thread at the last check, and how long the thread has had it.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    number: u64,
    hung_for: Duration,
}

impl Watchdog {
    /// The first of `heartbeats` that has been in the same iteration for `limit`; one that waits for a disk only if
    /// there is no other. Each check has the same threads as the previous one, and possibly more after them.
    pub(crate) fn check<'h>(
        &mut self,
        now: Instant,
        heartbeats: impl Iterator<Item = &'h Heartbeat>,
        limit: Duration,
    ) -> Option<Hang> {
        let gap = self.last_check.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.last_check = Some(now);
        let mut hung: Option<Hang> = None;
        for (index, heartbeat) in heartbeats.enumerate() {
            if index == self.seen.len() {
                self.seen.push(Seen::default());
            }
            let seen = &mut self.seen[index];
            let number = heartbeat.number();
            if is_working(number) && seen.number == number {
                seen.hung_for += gap.min(CHECK_GAP_MAX);
            } else {
                *seen = Seen { number, hung_for: Duration::ZERO };
            }
            if is_working(number) && seen.hung_for >= limit {
                let is_in_file_call = heartbeat.is_in_file_call.load(Ordering::Relaxed);
                if hung.is_none_or(|hung| hung.is_in_file_call && !is_in_file_call) {
                    hung = Some(Hang { index, is_in_file_call });
                }
            }
        }
        hung
    }
}

fn is_working(number: u64) -> bool {
    number % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);
    const SECOND: Duration = Duration::from_secs(1);
    const NOTHING: fn(&Heartbeat) = |_| {};
    const ITERATION: fn(&Heartbeat) = Heartbeat::begin_iteration;

    /// The number of checks after which a thread is reported as hung; it takes one of `steps` before each check.
    fn check(steps: &[fn(&Heartbeat)], gap: Duration) -> Option<usize> {
        let (heartbeat, mut watchdog, start) = (Heartbeat::default(), Watchdog::default(), Instant::now());
        steps.iter().enumerate().position(|(index, step)| {
            step(&heartbeat);
            watchdog.check(start + gap * index as u32, [&heartbeat].into_iter(), LIMIT).is_some()
        })
    }

    #[test]
    fn a_thread_that_stays_in_one_iteration_is_hung() {
        assert_eq!(check(&[ITERATION, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING], SECOND), Some(5));
    }

    #[test]
    fn a_thread_that_waits_is_not_hung() {
        assert_eq!(check(&[NOTHING; 20], SECOND), None);
        let mut steps = [NOTHING; 20];
        steps[0] = |heartbeat| {
            heartbeat.begin_iteration();
            heartbeat.begin_waiting();
        };
        assert_eq!(check(&steps, SECOND), None);
    }

    #[test]
    fn a_thread_that_never_waits_is_not_hung() {
        assert_eq!(check(&[ITERATION; 20], SECOND), None);
    }

    #[test]
    fn a_stopped_process_is_not_hung() {
        let hour = Duration::from_secs(3600);
        assert_eq!(check(&[ITERATION, NOTHING, NOTHING, ITERATION, NOTHING], hour), None);
    }

    #[test]
    fn each_iteration_is_counted_once() {
        let heartbeat = Heartbeat::default();
        heartbeat.begin_waiting();
        assert_eq!(heartbeat.iteration_count(), 0);
        heartbeat.begin_iteration();
        heartbeat.begin_iteration();
        heartbeat.begin_waiting();
        heartbeat.begin_waiting();
        assert_eq!(heartbeat.iteration_count(), 2);
        heartbeat.begin_iteration();
        assert_eq!(heartbeat.iteration_count(), 3);
    }

    #[test]
    fn the_hung_thread_is_named_among_others() {
        let (heartbeats, mut watchdog, start) =
            ([(); 3].map(|()| Heartbeat::default()), Watchdog::default(), Instant::now());
        heartbeats[1].begin_iteration();
        let checks = (0..10).map(|second| {
            heartbeats[2].begin_iteration();
            watchdog.check(start + SECOND * second, heartbeats.iter(), LIMIT)
        });
        assert_eq!(checks.last(), Some(Some(Hang { index: 1, is_in_file_call: false })));
    }

    #[test]
    fn a_thread_that_waits_for_a_disk_is_distinguished_and_hides_no_other() {
        let (heartbeats, mut watchdog, start) =
            ([(); 2].map(|()| Heartbeat::default()), Watchdog::default(), Instant::now());
        let mut check = |seconds: std::ops::Range<u32>| {
            seconds.map(|second| watchdog.check(start + SECOND * second, heartbeats.iter(), LIMIT)).last()
        };
        heartbeats[0].begin_iteration();
        heartbeats[0].during_file_call(|| {
            assert_eq!(check(0..10), Some(Some(Hang { index: 0, is_in_file_call: true })));
            heartbeats[1].begin_iteration();
            assert_eq!(check(10..20), Some(Some(Hang { index: 1, is_in_file_call: false })));
        });
    }
}
