//! The kernel's clocks, in the units that deadlines and dates have.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second of the year 9999: later times come from an error, or from another process that lies.
pub const UNIX_SECONDS_MAX: u64 = 253_402_300_799;

/// Seconds since 1970, from the kernel's coarse clock: it lags by up to 10 ms and needs no system call. 0 if the clock
/// is set to a time before.
#[inline]
pub fn unix_seconds() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME_COARSE).ok().and_then(|time| time.tv_sec().try_into().ok()).unwrap_or(0)
}

/// Milliseconds since 1970-01-01 00:00 UTC, as exact as a tick of the kernel.
pub fn unix_ms() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_REALTIME_COARSE).ok();
    let ms = time.map(|time| time.tv_sec() * 1_000 + time.tv_nsec() / 1_000_000);
    ms.and_then(|ms| ms.try_into().ok()).unwrap_or(0)
}

/// Milliseconds of the monotonic clock, from an arbitrary origin that is the same for all processes until the next
/// boot.
#[inline]
pub fn monotonic_ms() -> u64 {
    // The clock is always there and never negative.
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000 + time.tv_nsec() as u64 / 1_000_000)
}

/// The time this many seconds after 1970, at most [`UNIX_SECONDS_MAX`]: sums and differences of such times do not
/// overflow, wherever the number comes from.
pub fn from_unix_seconds(unix_s: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(unix_s.min(UNIX_SECONDS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_any_number_of_seconds_can_be_computed_with() {
        assert_eq!(from_unix_seconds(7), UNIX_EPOCH + Duration::from_secs(7));
        for unix_s in [UNIX_SECONDS_MAX, u64::MAX] {
            let time = from_unix_seconds(unix_s);
            let since = time.duration_since(UNIX_EPOCH).expect("later");
            assert_eq!(since, Duration::from_secs(UNIX_SECONDS_MAX));
            assert!(time + since > time);
        }
    }
}
