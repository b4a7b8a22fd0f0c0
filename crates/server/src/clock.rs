//! The time of a turn: read once, and the same for all that happens in it.

use sanderling_http::HttpDate;
use std::time::{Duration, Instant, SystemTime};

/// Milliseconds since the server started: what deadlines are told in.
pub(crate) type Milliseconds = u64;

/// A worker's view of time.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    now_ms: Milliseconds,
    unix_s: u64,
    date: HttpDate,
}

impl Clock {
    /// A clock that counts from `start`, which all workers share.
    pub(crate) fn new(start: Instant) -> Clock {
        let unix_s = unix_s();
        Clock { start, now_ms: ms(start.elapsed()), unix_s, date: HttpDate::from_unix_s(unix_s) }
    }

    /// Reads the time, for the turn that begins.
    pub(crate) fn tick(&mut self) {
        self.now_ms = ms(self.start.elapsed());
        // The wall clock may be set back and forth; only dates follow it.
        let unix_s = unix_s();
        if unix_s != self.unix_s {
            self.unix_s = unix_s;
            self.date = HttpDate::from_unix_s(unix_s);
        }
    }

    /// The time of this turn.
    pub(crate) fn now_ms(&self) -> Milliseconds {
        self.now_ms
    }

    /// The time of this turn in seconds since 1970.
    pub(crate) fn unix_s(&self) -> u64 {
        self.unix_s
    }

    /// The time of this turn as a Date field has it.
    pub(crate) fn date(&self) -> &HttpDate {
        &self.date
    }
}

/// A duration in milliseconds; those of configuration fit by far.
pub(crate) fn ms(duration: Duration) -> Milliseconds {
    duration.as_millis() as Milliseconds
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
