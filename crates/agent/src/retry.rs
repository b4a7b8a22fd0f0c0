//! Pauses until failed work is retried.

use std::time::Duration;
use tokio::time::Instant;

/// When failed work is retried: after a pause, which is twice as long after each further failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pause_min: Duration,
    pause_max: Duration,
    /// The time of the last failure, and the pause after it.
    last: Option<(Instant, Duration)>,
    /// Whether nothing has succeeded since.
    has_failed: bool,
}

impl Retry {
    pub(crate) const fn new(pause_min: Duration, pause_max: Duration) -> Retry {
        Retry { pause_min, pause_max, last: None, has_failed: false }
    }

    pub(crate) fn on_failure(&mut self) {
        // A success between two failures may concern something else.
        let is_soon = |at: Instant, pause: Duration| at.elapsed() <= pause.saturating_add(self.pause_max);
        let before = self.last.filter(|(at, pause)| is_soon(*at, *pause));
        let pause = before.map_or(self.pause_min, |(_, pause)| pause.saturating_mul(2)).min(self.pause_max);
        (self.last, self.has_failed) = (Some((Instant::now(), pause)), true);
    }

    pub(crate) fn on_success(&mut self) {
        self.has_failed = false;
    }

    /// Time until the next attempt; `None` if there is nothing to retry.
    pub(crate) fn left(&self) -> Option<Duration> {
        let (at, pause) = self.last.filter(|_| self.has_failed)?;
        Some(pause.saturating_sub(at.elapsed()))
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.left().is_some_and(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().expect("built").block_on(test);
    }

    #[test]
    fn pauses_double_up_to_the_longest_until_nothing_fails_for_a_while() {
        run(async {
            let mut retry = Retry::new(Duration::from_millis(250), Duration::from_secs(1));
            assert!(retry.left().is_none() && !retry.is_paused());
            for expected_ms in [250, 500, 1_000, 1_000] {
                retry.on_failure();
                assert_eq!(retry.left().map(|left| left.as_millis()), Some(expected_ms));
                assert!(retry.is_paused());
                tokio::time::advance(Duration::from_millis(1_000)).await;
                assert!(!retry.is_paused() && retry.left() == Some(Duration::ZERO));
                retry.on_success();
                assert_eq!(retry.left(), None);
            }
            tokio::time::advance(Duration::from_secs(2)).await;
            retry.on_failure();
            assert_eq!(retry.left(), Some(Duration::from_millis(250)));
        });
    }
}
