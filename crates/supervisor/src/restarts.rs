//! When a server process that has died is replaced: at once, unless those before it died young as well.

use std::time::Duration;

/// Whoever serves for so long has not died of its start.
const YOUNG: Duration = Duration::from_millis(100);
/// The first delay, which each further death of a young process doubles.
const DELAY_MIN: Duration = Duration::from_millis(10);
/// The longest delay.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// What is remembered of deaths.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    young_in_a_row: u32,
    /// Deaths so far.
    pub(super) count: u64,
}

impl Restarts {
    /// How long to wait after the death of a process that has served for `lived`.
    pub(super) fn delay_after(&mut self, lived: Duration) -> Duration {
        self.count += 1;
        if lived >= YOUNG {
            self.young_in_a_row = 0;
            return Duration::ZERO;
        }
        let doubled = DELAY_MIN.saturating_mul(1_u32.checked_shl(self.young_in_a_row).unwrap_or(u32::MAX));
        self.young_in_a_row = self.young_in_a_row.saturating_add(1);
        doubled.min(DELAY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_served_is_replaced_at_once() {
        let mut restarts = Restarts::default();
        for _ in 0..20 {
            assert_eq!(restarts.delay_after(Duration::from_millis(240)), Duration::ZERO);
        }
        assert_eq!(restarts.count, 20);
    }

    #[test]
    fn a_loop_slows_down_to_its_bound_and_is_forgotten_after_a_life() {
        let mut restarts = Restarts::default();
        let delays: Vec<u128> = (0..40).map(|_| restarts.delay_after(Duration::ZERO).as_millis()).collect();
        assert_eq!(delays[..10], [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000]);
        assert!(delays[10..].iter().all(|&delay_ms| delay_ms == 5000));
        assert_eq!(restarts.delay_after(YOUNG), Duration::ZERO);
        assert_eq!(restarts.delay_after(Duration::ZERO), DELAY_MIN);
    }
}
