//! Time, corrections of the clock, and random delays that spread the actions of many servers.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Seconds that a clock may be set back unnoticed: scheduled actions are then late by that much.
const SET_BACK_S_MIN: u64 = 600;

/// Notices that the clock was set back after it was ahead: actions that were scheduled meanwhile would wait for that
/// time to come again.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    latest_unix_s: u64,
}

impl ClockWatch {
    pub(crate) fn new(now_unix_s: u64) -> ClockWatch {
        ClockWatch { latest_unix_s: now_unix_s }
    }

    /// Whether the clock was set back since the last call.
    pub(crate) fn was_set_back(&mut self, now_unix_s: u64) -> bool {
        let before = std::mem::replace(&mut self.latest_unix_s, now_unix_s);
        now_unix_s.saturating_add(SET_BACK_S_MIN) < before
    }
}

/// A number from `start` to `end`, both included; `start` if there is none.
pub(crate) fn random_between(start: u64, end: u64) -> u64 {
    let random = RandomState::new().build_hasher().finish();
    start + random % (end.saturating_sub(start) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_that_is_set_back_is_noticed_once() {
        let mut watch = ClockWatch::new(1_000_000);
        let seen = [1_000_060, 999_999, 9_000_000, 1_000_100, 1_000_160].map(|now| watch.was_set_back(now));
        assert_eq!(seen, [false, false, false, true, false]);
    }
}
