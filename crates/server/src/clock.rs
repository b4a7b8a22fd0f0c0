//! The time of a turn: read once, and the same for all that happens in it.

use sanderling_http::HttpDate;
use std::time::{Duration, Instant, SystemTime};

/// Milliseconds since the server started: what deadlines are told in.
pub(crate) type Milliseconds = u64;

/// A worker's view of time.
///
/// The clock that deadlines are told in is read for each turn, and precisely: the coarse one of the kernel would be
/// cheaper by some nanoseconds, but lags by up to 10 ms, so that who waits for a deadline would mostly wake before it and
/// wait again. The wall clock is read when the other one says that its second is over.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    now_ms: Milliseconds,
    wall: Wall,
}

/// A second of the wall clock, which may be set back and forth: only dates follow it, within a second.
#[derive(Debug)]
struct Wall {
    unix_s: u64,
    date: HttpDate,
    /// When it is over, if nobody sets the clock meanwhile.
    until_ms: Milliseconds,
}

impl Clock {
    /// A clock that counts from `start`, which all workers share.
    pub(crate) fn new(start: Instant) -> Clock {
        let now_ms = ms(start.elapsed());
        Clock { start, now_ms, wall: Wall::read(now_ms) }
    }

    /// Reads the time, for the turn that begins.
    pub(crate) fn tick(&mut self) {
        self.now_ms = ms(self.start.elapsed());
        if self.now_ms >= self.wall.until_ms {
            self.wall = Wall::read(self.now_ms);
        }
    }

    /// The time of this turn.
    pub(crate) fn now_ms(&self) -> Milliseconds {
        self.now_ms
    }

    /// The time of this turn in seconds since 1970.
    pub(crate) fn unix_s(&self) -> u64 {
        self.wall.unix_s
    }

    /// The time of this turn as a Date field has it.
    pub(crate) fn date(&self) -> &HttpDate {
        &self.wall.date
    }
}

impl Wall {
    #[cold]
    fn read(now_ms: Milliseconds) -> Wall {
        // A clock before 1970 is a broken one: any date is as good.
        Wall::at(now_ms, SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    fn at(now_ms: Milliseconds, since_1970: Duration) -> Wall {
        let left_ms = 1_000 - Milliseconds::from(since_1970.subsec_millis());
        let unix_s = since_1970.as_secs();
        Wall { unix_s, date: HttpDate::from_unix_s(unix_s), until_ms: now_ms + left_ms }
    }
}

/// A duration in milliseconds; those of configuration fit by far.
pub(crate) fn ms(duration: Duration) -> Milliseconds {
    duration.as_millis() as Milliseconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_the_wall_clock_is_over_when_its_milliseconds_are() {
        let check = |now_ms: Milliseconds, since_1970_ms: u64, expected: (u64, Milliseconds)| {
            let wall = Wall::at(now_ms, Duration::from_millis(since_1970_ms));
            assert_eq!((wall.unix_s, wall.until_ms), expected, "{since_1970_ms} ms at {now_ms} ms");
            assert_eq!(wall.date, HttpDate::from_unix_s(wall.unix_s));
        };
        check(0, 0, (0, 1_000));
        check(70, 1_700_000_000_000, (1_700_000_000, 1_070));
        check(70, 1_700_000_000_001, (1_700_000_000, 1_069));
        // Never at once: a clock that was read a moment too early is read again a millisecond later.
        check(70, 1_700_000_000_999, (1_700_000_000, 71));
    }

    #[test]
    fn a_clock_reads_its_wall_clock_again_when_the_second_is_over() {
        let mut clock = Clock::new(Instant::now());
        let long_ago = Wall::at(0, Duration::ZERO);
        clock.wall = Wall { until_ms: Milliseconds::MAX, ..long_ago };
        clock.tick();
        assert_eq!(clock.unix_s(), 0, "the second goes on");
        clock.wall.until_ms = clock.now_ms();
        clock.tick();
        assert_ne!(clock.unix_s(), 0);
        assert_eq!(*clock.date(), HttpDate::from_unix_s(clock.unix_s()));
    }
}
