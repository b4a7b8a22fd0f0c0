//! Time, and chance that spreads what many servers would do at the same time.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A number from `start` to `end`, both included; `start` if there is none.
pub(crate) fn random_between(start: u64, end: u64) -> u64 {
    let random = RandomState::new().build_hasher().finish();
    start + random % (end.saturating_sub(start) + 1)
}
