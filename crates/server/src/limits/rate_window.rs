//! The least rates at which a client must receive a response and send a request.
//!
//! A rate is measured at the deadlines of a connection and nowhere else: a response that the transport takes in one
//! step, and a request that arrives whole, are never measured.

use crate::clock::Milliseconds;

/// How long a request may arrive before its rate counts, and then the time over which it is measured. A client that
/// loses its network for a moment must not be refused.
pub(crate) const RECEIVE_WINDOW_MS: Milliseconds = 20_000;

/// The time over which the rate of a connection is measured, with its deadline whatever the rate is.
#[derive(Debug, Default)]
pub(crate) enum RateWindow {
    /// Nothing is measured.
    #[default]
    None,
    /// A request is being received.
    Receiving(Window),
    /// A response is blocked by the transport.
    Sending(Window),
}

#[derive(Debug)]
pub(crate) struct Window {
    end_ms: Milliseconds,
    /// The count of bytes at the start. `None`: it was not read, since most windows do not reach their end.
    start_bytes: Option<u64>,
    deadline_ms: Milliseconds,
}

/// The meaning of a passed deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The time of the connection is over.
    DeadlinePassed,
    /// The client is below the least rate.
    TooSlow,
    /// Only a window has ended. The next deadline is this.
    Continues(Milliseconds),
}

impl RateWindow {
    /// A request begins to arrive. Returns the earlier of its deadline and the end of the window.
    pub(crate) fn begin_receiving(&mut self, now_ms: Milliseconds, deadline_ms: Milliseconds) -> Milliseconds {
        let window = Window { end_ms: now_ms + RECEIVE_WINDOW_MS, start_bytes: Some(0), deadline_ms };
        let next_ms = window.next_ms();
        *self = RateWindow::Receiving(window);
        next_ms
    }

    /// A response is blocked. `deadline_ms`: a new deadline, if the transport has taken something. Returns the earlier
    /// of the deadline and the end of the window, which is `length_ms` long.
    pub(crate) fn continue_sending(
        &mut self,
        now_ms: Milliseconds,
        length_ms: Milliseconds,
        deadline_ms: Milliseconds,
    ) -> Milliseconds {
        match self {
            RateWindow::Sending(window) => window.deadline_ms = deadline_ms,
            _ => {
                let end_ms = now_ms + length_ms;
                *self = RateWindow::Sending(Window { end_ms, start_bytes: None, deadline_ms });
            }
        }
        self.next_ms().unwrap_or(deadline_ms)
    }

    /// Whether a request is received that has no deadline but the rate.
    pub(crate) fn is_unbounded(&self) -> bool {
        matches!(self, RateWindow::Receiving(window) if window.deadline_ms == Milliseconds::MAX)
    }

    /// The deadline of a blocked response.
    pub(crate) fn send_deadline_ms(&self) -> Option<Milliseconds> {
        match self {
            RateWindow::Sending(window) => Some(window.deadline_ms),
            _ => None,
        }
    }

    /// A deadline has passed, and the count is `bytes` now, if it is known. The next window is `length_ms` long, as was
    /// the last.
    pub(crate) fn expire(
        &mut self,
        now_ms: Milliseconds,
        length_ms: Milliseconds,
        bytes: Option<u64>,
        bytes_per_s_min: u64,
    ) -> Expiry {
        let (RateWindow::Receiving(window) | RateWindow::Sending(window)) = self else { return Expiry::DeadlinePassed };
        if window.deadline_ms <= now_ms {
            return Expiry::DeadlinePassed;
        }
        if let (Some(start_bytes), Some(bytes)) = (window.start_bytes, bytes) {
            let expected = u128::from(bytes_per_s_min) * u128::from(length_ms) / 1_000;
            if u128::from(bytes.saturating_sub(start_bytes)) < expected {
                return Expiry::TooSlow;
            }
        }
        window.start_bytes = bytes;
        window.end_ms = now_ms + length_ms;
        Expiry::Continues(window.next_ms())
    }

    fn next_ms(&self) -> Option<Milliseconds> {
        match self {
            RateWindow::Receiving(window) | RateWindow::Sending(window) => Some(window.next_ms()),
            RateWindow::None => None,
        }
    }
}

impl Window {
    fn next_ms(&self) -> Milliseconds {
        self.end_ms.min(self.deadline_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH_MS: Milliseconds = 1_000;

    #[test]
    fn a_client_is_too_slow_if_a_measured_window_has_fewer_bytes_than_the_rate() {
        let check = |counts: &[Option<u64>], expected: Expiry| {
            let mut window = RateWindow::None;
            assert_eq!(window.continue_sending(0, LENGTH_MS, 90_000), LENGTH_MS);
            let mut ends = (1..).map(|number| number * LENGTH_MS);
            let mut expire = |bytes: &Option<u64>| window.expire(ends.next().expect("endless"), LENGTH_MS, *bytes, 10);
            let results: Vec<Expiry> = counts.iter().map(&mut expire).collect();
            assert_eq!(results.last(), Some(&expected), "{counts:?}");
        };
        check(&[Some(0)], Expiry::Continues(2_000));
        check(&[Some(0), Some(9)], Expiry::TooSlow);
        check(&[Some(0), Some(10)], Expiry::Continues(3_000));
        check(&[Some(0), Some(100), Some(109)], Expiry::TooSlow);
        check(&[Some(0), Some(100), Some(110)], Expiry::Continues(4_000));
        check(&[None, None, Some(5), None, Some(6)], Expiry::Continues(6_000));
    }

    #[test]
    fn the_deadline_comes_before_the_rate() {
        let mut window = RateWindow::None;
        assert_eq!(window.begin_receiving(0, 5_000), 5_000);
        assert_eq!(window.expire(5_000, RECEIVE_WINDOW_MS, Some(0), 10), Expiry::DeadlinePassed);
        assert_eq!(window.begin_receiving(0, 90_000), RECEIVE_WINDOW_MS);
        assert_eq!(window.expire(RECEIVE_WINDOW_MS, RECEIVE_WINDOW_MS, Some(199), 10), Expiry::TooSlow);
    }
}
