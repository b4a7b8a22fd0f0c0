//! What is done about failures that may repeat: pauses until the next attempt, and lines in the log that do not fill
//! it.

use sanderling_config::log::log_error;
use std::time::Duration;
use tokio::time::Instant;

/// Time between two lines of the log about the same matter.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// When what has failed is tried again: after a pause, which is twice as long after each further failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retry {
    pause_min: Duration,
    pause_max: Duration,
    /// When the last failure was, and the pause after it.
    last: Option<(Instant, Duration)>,
    /// Whether nothing has succeeded since.
    has_failed: bool,
}

impl Retry {
    pub(crate) const fn new(pause_min: Duration, pause_max: Duration) -> Retry {
        Retry { pause_min, pause_max, last: None, has_failed: false }
    }

    pub(crate) fn on_failure(&mut self) {
        // A success between two failures may have been one of something else.
        let is_soon = |at: Instant, pause: Duration| at.elapsed() <= pause.saturating_add(self.pause_max);
        let before = self.last.filter(|(at, pause)| is_soon(*at, *pause));
        let pause = before.map_or(self.pause_min, |(_, pause)| pause.saturating_mul(2)).min(self.pause_max);
        (self.last, self.has_failed) = (Some((Instant::now(), pause)), true);
    }

    pub(crate) fn on_success(&mut self) {
        self.has_failed = false;
    }

    /// Time until the next attempt; `None` if nothing is to be tried again.
    pub(crate) fn left(&self) -> Option<Duration> {
        let (at, pause) = self.last.filter(|_| self.has_failed)?;
        Some(pause.saturating_sub(at.elapsed()))
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.left().is_some_and(|left| !left.is_zero())
    }
}

/// Logs what may fail again and again: at most one line a minute.
#[derive(Debug, Default)]
pub(crate) struct RepeatedError {
    logged_at: Option<Instant>,
    /// Failures since then.
    left_out_count: u64,
}

impl RepeatedError {
    pub(crate) fn log(&mut self, message: &str) {
        if let Some(message) = self.message(message) {
            log_error(&message);
        }
    }

    fn message(&mut self, message: &str) -> Option<String> {
        if self.logged_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            self.left_out_count = self.left_out_count.saturating_add(1);
            return None;
        }
        self.logged_at = Some(Instant::now());
        Some(match std::mem::take(&mut self.left_out_count) {
            0 => message.to_owned(),
            count => format!("{message}; failures since the last such line: {count}"),
        })
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

    #[test]
    fn repeated_error_is_logged_once_a_minute_with_the_number_of_others() {
        run(async {
            let mut error = RepeatedError::default();
            assert_eq!(error.message("a").as_deref(), Some("a"));
            for _ in 0..2 {
                tokio::time::advance(Duration::from_secs(29)).await;
                assert_eq!(error.message("b"), None);
            }
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(error.message("c").as_deref(), Some("c; failures since the last such line: 2"));
            tokio::time::advance(LOG_INTERVAL).await;
            assert_eq!(error.message("d").as_deref(), Some("d"));
        });
    }
}
