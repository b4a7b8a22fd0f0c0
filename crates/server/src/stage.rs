//! What a server is doing, from serving to its end, and how many of its threads still take new work.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Who answers those who come from now on, when a server drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Another process, on the same sockets: who waits in them is its own to answer.
    ForAnother,
    /// Nobody: who waits in the sockets, or comes within a last call, is let in and answered.
    ForGood,
}

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It takes what comes.
    Serving,
    /// It takes nothing new, or soon will not; what is there is finished.
    Draining(Drain),
    /// All workers have left.
    Ended,
}

impl Stage {
    fn number(self) -> u8 {
        match self {
            Stage::Serving => 0,
            Stage::Draining(Drain::ForAnother) => 1,
            Stage::Draining(Drain::ForGood) => 2,
            Stage::Ended => 3,
        }
    }

    fn of(number: u8) -> Stage {
        match number {
            0 => Stage::Serving,
            1 => Stage::Draining(Drain::ForAnother),
            2 => Stage::Draining(Drain::ForGood),
            _ => Stage::Ended,
        }
    }
}

/// How far a server is.
#[derive(Debug, Default)]
pub(crate) struct Course {
    stage: AtomicU8,
    taker_count: Mutex<usize>,
    nobody_takes: Condvar,
}

/// Held by a thread as long as it takes new work: connections, or datagrams.
#[derive(Debug)]
pub(crate) struct Taker<'s>(&'s Course);

impl Course {
    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        // Acquire pairs with the Release of `advance_to` and `leave_serving`.
        Stage::of(self.stage.load(Ordering::Acquire))
    }

    /// Goes on to `stage`, never back.
    pub(crate) fn advance_to(&self, stage: Stage) {
        self.stage.fetch_max(stage.number(), Ordering::AcqRel);
    }

    /// Begins to drain, unless that has begun.
    pub(crate) fn leave_serving(&self, drain: Drain) {
        let (serving, draining) = (Stage::Serving.number(), Stage::Draining(drain).number());
        // A failure means that somebody else was first, which is as good.
        let _ = self.stage.compare_exchange(serving, draining, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// One more that takes new work.
    pub(crate) fn enter(&self) -> Taker<'_> {
        *self.takers() += 1;
        Taker(self)
    }

    /// Waits until nobody takes new work any more; whether that came to be within `timeout`.
    pub(crate) fn wait_until_nobody_takes(&self, timeout: Duration) -> bool {
        let waited = self.nobody_takes.wait_timeout_while(self.takers(), timeout, |taker_count| *taker_count != 0);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn takers(&self) -> MutexGuard<'_, usize> {
        self.taker_count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        let mut taker_count = self.0.takers();
        *taker_count -= 1;
        if *taker_count == 0 {
            self.0.nobody_takes.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_goes_on_and_never_back() {
        let course = Course::default();
        let stages =
            [Stage::Serving, Stage::Draining(Drain::ForAnother), Stage::Draining(Drain::ForGood), Stage::Ended];
        for stage in stages {
            course.advance_to(stage);
            assert_eq!(course.stage(), stage);
        }
        course.advance_to(Stage::Serving);
        assert_eq!(course.stage(), Stage::Ended);
    }

    #[test]
    fn who_drains_for_another_goes_on_doing_so() {
        let course = Course::default();
        course.leave_serving(Drain::ForAnother);
        course.leave_serving(Drain::ForGood);
        assert_eq!(course.stage(), Stage::Draining(Drain::ForAnother));
    }

    #[test]
    fn the_last_to_take_new_work_is_waited_for() {
        let course = Course::default();
        let takers = [course.enter(), course.enter()];
        assert!(!course.wait_until_nobody_takes(Duration::ZERO));
        std::thread::scope(|scope| {
            scope.spawn(|| drop(takers));
            assert!(course.wait_until_nobody_takes(Duration::from_secs(20)));
        });
    }
}
