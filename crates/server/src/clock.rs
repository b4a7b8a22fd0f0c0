//! The time of an iteration: read once, and the same for all work in it.

use sanderling_http::HttpDate;
use sanderling_os::clock::monotonic_ms;
use std::time::{Duration, SystemTime};

/// Milliseconds since the server started, the unit of deadlines.
pub(crate) type Milliseconds = u64;

/// A worker's view of time.
///
/// The monotonic clock is read once per iteration. The kernel's coarse clock would be cheaper by some nanoseconds, but
/// it lags by up to 10 ms, so that a thread that waits for a deadline would mostly wake before it and wait again. The
/// wall clock is read when the monotonic one says that its second is over.
#[derive(Debug)]
pub(crate) struct Clock {
    source: Source,
    now_ms: Milliseconds,
    wall: WallClock,
}

/// Where the time comes from.
#[derive(Debug)]
enum Source {
    /// The system's clocks; deadlines count from this time of the monotonic one.
    System { start_ms: Milliseconds },
    /// A test, which sets it.
    #[cfg(any(test, feature = "simulation"))]
    Manual,
}

/// A second of the wall clock, which the system may set back and forth: only dates follow it, within a second.
#[derive(Debug)]
struct WallClock {
    unix_s: u64,
    date: HttpDate,
    /// When the second is over, unless the clock is set meanwhile.
    until_ms: Milliseconds,
}

impl Clock {
    /// A clock that counts from `start_ms` of the monotonic clock, which all workers share.
    pub(crate) fn new(start_ms: Milliseconds) -> Clock {
        let now_ms = monotonic_ms() - start_ms;
        Clock { source: Source::System { start_ms }, now_ms, wall: WallClock::read(now_ms) }
    }

    /// A clock that advances only by [`Clock::advance`], from 0 ms and from the Unix time `unix_s`.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn manual(unix_s: u64) -> Clock {
        Clock { source: Source::Manual, now_ms: 0, wall: WallClock::at(0, Duration::from_secs(unix_s)) }
    }

    /// Advances a manual clock.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn advance(&mut self, by: Duration) {
        let since_1970 = Duration::from_secs(self.wall.unix_s) + Duration::from_millis(self.now_ms % 1_000) + by;
        self.now_ms += ms(by);
        self.wall = WallClock::at(self.now_ms, since_1970);
    }

    /// Reads the time of the iteration that begins.
    pub(crate) fn tick(&mut self) {
        let start_ms = match self.source {
            Source::System { start_ms } => start_ms,
            #[cfg(any(test, feature = "simulation"))]
            Source::Manual => return,
        };
        self.now_ms = monotonic_ms() - start_ms;
        if self.now_ms >= self.wall.until_ms {
            self.wall = WallClock::read(self.now_ms);
        }
    }

    /// The time of this iteration.
    pub(crate) fn now_ms(&self) -> Milliseconds {
        self.now_ms
    }

    /// The time of this iteration in seconds since 1970.
    pub(crate) fn unix_s(&self) -> u64 {
        self.wall.unix_s
    }

    /// The time of this iteration in milliseconds since 1970.
    pub(crate) fn unix_ms(&self) -> u64 {
        self.wall.unix_s * 1_000 + (1_000_u64.saturating_sub(self.wall.until_ms.saturating_sub(self.now_ms))).min(999)
    }

    /// The time of this iteration as a Date field has it.
    pub(crate) fn date(&self) -> &HttpDate {
        &self.wall.date
    }
}

impl WallClock {
    #[cold]
    fn read(now_ms: Milliseconds) -> WallClock {
        // A clock before 1970 is wrong anyway: any date will do.
        WallClock::at(now_ms, SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    fn at(now_ms: Milliseconds, since_1970: Duration) -> WallClock {
        let remaining_ms = 1_000 - Milliseconds::from(since_1970.subsec_millis());
        let unix_s = since_1970.as_secs();
        WallClock { unix_s, date: HttpDate::from_unix_s(unix_s), until_ms: now_ms + remaining_ms }
    }
}

/// A duration in milliseconds. All configured durations fit.
pub(crate) fn ms(duration: Duration) -> Milliseconds {
    duration.as_secs() * 1000 + Milliseconds::from(duration.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_the_wall_clock_ends_after_its_milliseconds() {
        let check = |now_ms: Milliseconds, since_1970_ms: u64, expected: (u64, Milliseconds)| {
            let wall = WallClock::at(now_ms, Duration::from_millis(since_1970_ms));
            assert_eq!((wall.unix_s, wall.until_ms), expected, "{since_1970_ms} ms at {now_ms} ms");
            assert_eq!(wall.date, HttpDate::from_unix_s(wall.unix_s));
        };
        check(0, 0, (0, 1_000));
        check(70, 1_700_000_000_000, (1_700_000_000, 1_070));
        check(70, 1_700_000_000_001, (1_700_000_000, 1_069));
        // Never immediately: a clock that was read a moment too early is read again a millisecond later.
        check(70, 1_700_000_000_999, (1_700_000_000, 71));
    }

    #[test]
    fn a_wall_clock_that_is_set_back_or_forth_is_followed_when_its_second_is_over() {
        for earlier in [Duration::ZERO, Duration::from_secs(9_999_999_999)] {
            let mut clock = Clock::new(monotonic_ms());
            clock.wall = WallClock { until_ms: Milliseconds::MAX, ..WallClock::at(0, earlier) };
            clock.tick();
            assert_eq!(clock.unix_s(), earlier.as_secs(), "the second goes on");
            let before_ms = clock.now_ms();
            clock.wall.until_ms = before_ms;
            clock.tick();
            assert!(clock.unix_s() != earlier.as_secs() && clock.now_ms() - before_ms < 60_000);
            assert_eq!(*clock.date(), HttpDate::from_unix_s(clock.unix_s()));
        }
    }

    #[test]
    fn a_manual_clock_keeps_both_times_together() {
        let mut clock = Clock::manual(1_700_000_000);
        clock.advance(Duration::from_millis(2_600));
        clock.advance(Duration::from_millis(600));
        clock.tick();
        assert_eq!((clock.now_ms(), clock.unix_s()), (3_200, 1_700_000_003));
    }
}
