//! Delays before a process that has exited is restarted: none, unless it exited right after its startup.

use std::time::Duration;

/// A process that has run for this time did not exit because of its startup.
const QUICK_EXIT_MAX: Duration = Duration::from_millis(100);
/// This limit for a process that no client waits for.
const BACKGROUND_QUICK_EXIT_MAX: Duration = Duration::from_secs(10);
/// The first delay; each further quick exit doubles it.
const DELAY_MIN: Duration = Duration::from_millis(10);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// This limit for a process that no client waits for.
const BACKGROUND_DELAY_MAX: Duration = Duration::from_secs(60);

/// The delay between restarts.
#[derive(Debug)]
pub(super) struct Backoff {
    quick_exit_count: u32,
    /// Restarts so far.
    pub(super) restart_count: u64,
    quick_exit_max: Duration,
    delay_max: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { quick_exit_count: 0, restart_count: 0, quick_exit_max: QUICK_EXIT_MAX, delay_max: DELAY_MAX }
    }
}

impl Backoff {
    /// The delays of a process that no client waits for.
    pub(super) fn of_background() -> Backoff {
        let (quick_exit_max, delay_max) = (BACKGROUND_QUICK_EXIT_MAX, BACKGROUND_DELAY_MAX);
        Backoff { quick_exit_max, delay_max, ..Backoff::default() }
    }

    /// The next exit counts as the first one: the cause of earlier ones may have been corrected.
    pub(super) fn forget_exits(&mut self) {
        self.quick_exit_count = 0;
    }

    /// The delay after the exit of a process that has served for `served`.
    pub(super) fn delay_after(&mut self, served: Duration) -> Duration {
        self.restart_count = self.restart_count.saturating_add(1);
        if served >= self.quick_exit_max {
            self.quick_exit_count = 0;
            return Duration::ZERO;
        }
        let doubled = DELAY_MIN.saturating_mul(1_u32.checked_shl(self.quick_exit_count).unwrap_or(u32::MAX));
        self.quick_exit_count = self.quick_exit_count.saturating_add(1);
        doubled.min(self.delay_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_has_served_is_restarted_at_once() {
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            assert_eq!(backoff.delay_after(Duration::from_millis(240)), Duration::ZERO);
        }
        assert_eq!(backoff.restart_count, 20);
    }

    #[test]
    fn delay_doubles_up_to_its_maximum_and_is_reset() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = (0..40).map(|_| backoff.delay_after(Duration::ZERO).as_millis()).collect();
        assert_eq!(delays[..10], [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000]);
        assert!(delays[10..].iter().all(|&delay_ms| delay_ms == 5000));
        assert_eq!(backoff.delay_after(QUICK_EXIT_MAX), Duration::ZERO);
        assert_eq!(backoff.delay_after(Duration::ZERO), DELAY_MIN);
        let mut backoff = Backoff::of_background();
        let total: Duration = (0..30).map(|_| backoff.delay_after(QUICK_EXIT_MAX)).sum();
        assert!(total > BACKGROUND_DELAY_MAX * 16, "{total:?}");
        backoff.forget_exits();
        assert_eq!(backoff.delay_after(Duration::ZERO), DELAY_MIN);
    }
}
