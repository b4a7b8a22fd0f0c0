//! The lifecycle of a server, from serving to its end, and how many of its threads still accept new work.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whether another process serves the listeners when this server drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    /// Another process accepts from the same listeners: connections that wait in them are left to it.
    Replaced,
    /// No process does: connections that wait in the listeners, or arrive within a short final window, are accepted.
    Stopping,
}

/// The state of a server. It only advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It accepts connections and answers.
    Serving,
    /// It finishes the work in progress.
    Draining(DrainMode),
    /// All workers have ended.
    Ended,
}

impl State {
    fn number(self) -> u8 {
        match self {
            State::Serving => 0,
            State::Draining(DrainMode::Replaced) => 1,
            State::Draining(DrainMode::Stopping) => 2,
            State::Ended => 3,
        }
    }

    fn from_number(number: u8) -> State {
        match number {
            0 => State::Serving,
            1 => State::Draining(DrainMode::Replaced),
            2 => State::Draining(DrainMode::Stopping),
            _ => State::Ended,
        }
    }
}

/// The state of a server, shared by its threads.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    state: AtomicU8,
    accepting_count: Mutex<usize>,
    stopped_accepting: Condvar,
}

/// Held by a thread as long as it accepts new work: connections, or datagrams.
#[derive(Debug)]
pub(crate) struct AcceptGuard<'s>(&'s Lifecycle);

impl Lifecycle {
    #[inline]
    pub(crate) fn state(&self) -> State {
        // Acquire pairs with the Release of `advance_to` and `begin_drain`.
        State::from_number(self.state.load(Ordering::Acquire))
    }

    /// Advances to `state`; does nothing if the server is in that state or a later one.
    pub(crate) fn advance_to(&self, state: State) {
        self.state.fetch_max(state.number(), Ordering::AcqRel);
    }

    /// Begins to drain, unless the server drains already in either mode.
    pub(crate) fn begin_drain(&self, mode: DrainMode) {
        let (serving, draining) = (State::Serving.number(), State::Draining(mode).number());
        // It fails only if another thread was first.
        let _ = self.state.compare_exchange(serving, draining, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Counts one more thread that accepts new work.
    pub(crate) fn begin_accepting(&self) -> AcceptGuard<'_> {
        *self.lock() += 1;
        AcceptGuard(self)
    }

    /// Waits until no thread accepts new work; `false` if that took longer than `timeout`.
    pub(crate) fn wait_until_none_accepts(&self, timeout: Duration) -> bool {
        let waited = self.stopped_accepting.wait_timeout_while(self.lock(), timeout, |count| *count != 0);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.accepting_count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AcceptGuard<'_> {
    fn drop(&mut self) {
        let mut count = self.0.lock();
        *count -= 1;
        if *count == 0 {
            self.0.stopped_accepting.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 4] =
        [State::Serving, State::Draining(DrainMode::Replaced), State::Draining(DrainMode::Stopping), State::Ended];

    #[test]
    fn the_state_only_advances() {
        let lifecycle = Lifecycle::default();
        for state in STATES {
            lifecycle.advance_to(state);
            assert_eq!(lifecycle.state(), state);
        }
        lifecycle.advance_to(State::Serving);
        assert_eq!(lifecycle.state(), State::Ended);
    }

    #[test]
    fn the_first_drain_mode_is_kept() {
        let lifecycle = Lifecycle::default();
        lifecycle.begin_drain(DrainMode::Replaced);
        lifecycle.begin_drain(DrainMode::Stopping);
        assert_eq!(lifecycle.state(), State::Draining(DrainMode::Replaced));
    }

    #[test]
    fn waiting_ends_when_the_last_thread_stops_accepting() {
        let lifecycle = Lifecycle::default();
        let guards = [lifecycle.begin_accepting(), lifecycle.begin_accepting()];
        assert!(!lifecycle.wait_until_none_accepts(Duration::ZERO));
        std::thread::scope(|scope| {
            scope.spawn(|| drop(guards));
            assert!(lifecycle.wait_until_none_accepts(Duration::from_secs(20)));
        });
    }
}
