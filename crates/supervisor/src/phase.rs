//! The state of a server process as its supervisor sees it: two tables of transitions, which know no process.

use sanderling_ipc::Command;
use sanderling_os::signals::{SIGABRT, SIGKILL, Signal};
use std::time::{Duration, Instant};

/// Time in which an aborted process may write a core dump.
const CORE_DUMP_TIME: Duration = Duration::from_secs(1);

/// What a server process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is not ready yet.
    Starting,
    /// It is the one that serves.
    Serving,
    /// It finishes what is in progress.
    Draining,
}

/// What changes the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhaseInput {
    /// The process has reported that it serves.
    Ready,
    /// Another process serves in its place.
    Replaced,
    /// The process has reported that it has failed.
    Failed,
    /// The server stops.
    Stop,
    /// The server stops without waiting for requests in progress.
    StopNow,
}

/// What the supervisor does to the process when the phase changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhaseAction {
    Nothing,
    Send(Command),
    Kill,
}

impl Phase {
    /// The next phase, and what to do; `None` if the input changes nothing.
    pub(crate) fn next(self, input: PhaseInput) -> Option<(Phase, PhaseAction)> {
        use PhaseAction::{Kill, Nothing, Send};
        Some(match (self, input) {
            (Phase::Starting, PhaseInput::Ready) => (Phase::Serving, Nothing),
            (Phase::Starting, PhaseInput::Stop | PhaseInput::StopNow) => (Phase::Draining, Kill),
            (Phase::Serving, PhaseInput::Replaced) => (Phase::Draining, Send(Command::Drain)),
            (Phase::Serving, PhaseInput::Failed) => (Phase::Draining, Nothing),
            (Phase::Serving, PhaseInput::Stop | PhaseInput::StopNow) => (Phase::Draining, Send(Command::Stop)),
            (Phase::Draining, PhaseInput::StopNow) => (Phase::Draining, Kill),
            _ => return None,
        })
    }

    /// The word in the status.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Serving => "serving",
            Phase::Draining => "draining",
        }
    }
}

/// How far the supervisor has gone to end a process by force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Termination {
    #[default]
    None,
    /// SIGABRT was sent, for a core dump.
    Aborted { kill_at: Instant },
    /// It was killed, and exits soon.
    Killed,
}

impl Termination {
    /// Aborts the process: the signal to send, unless one was sent already.
    pub(crate) fn abort(&mut self, now: Instant) -> Option<Signal> {
        if *self != Termination::None {
            return None;
        }
        *self = Termination::Aborted { kill_at: now + CORE_DUMP_TIME };
        Some(SIGABRT)
    }

    /// Kills the process: the signal to send, unless it was sent already.
    pub(crate) fn kill(&mut self) -> Option<Signal> {
        let is_new = *self != Termination::Killed;
        *self = Termination::Killed;
        is_new.then_some(SIGKILL)
    }

    /// Kills the process if it was aborted and has not exited in time.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Signal> {
        self.deadline().filter(|kill_at| now >= *kill_at).and_then(|_| self.kill())
    }

    /// When to call [`Termination::poll`].
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Termination::Aborted { kill_at } => Some(kill_at),
            Termination::None | Termination::Killed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_the_table() {
        use PhaseAction::{Kill, Nothing, Send};
        use PhaseInput::{Failed, Ready, Replaced, Stop, StopNow};
        let drain = Some((Phase::Draining, Send(Command::Drain)));
        let stop = Some((Phase::Draining, Send(Command::Stop)));
        let kill = Some((Phase::Draining, Kill));
        let table = [
            (Phase::Starting, [Some((Phase::Serving, Nothing)), None, None, kill, kill]),
            (Phase::Serving, [None, drain, Some((Phase::Draining, Nothing)), stop, stop]),
            (Phase::Draining, [None, None, None, None, kill]),
        ];
        for (phase, expected) in table {
            for (input, expected) in [Ready, Replaced, Failed, Stop, StopNow].into_iter().zip(expected) {
                assert_eq!(phase.next(input), expected, "{phase:?} {input:?}");
            }
        }
    }

    #[test]
    fn aborted_process_is_killed_after_the_time_for_its_core_dump() {
        let now = Instant::now();
        let mut termination = Termination::None;
        assert_eq!(termination.poll(now), None);
        assert_eq!(termination.abort(now), Some(SIGABRT));
        assert_eq!(termination.abort(now), None);
        assert_eq!(termination.poll(now), None);
        assert_eq!(termination.deadline(), Some(now + CORE_DUMP_TIME));
        assert_eq!(termination.poll(now + CORE_DUMP_TIME), Some(SIGKILL));
        assert_eq!(termination, Termination::Killed);
        assert_eq!((termination.deadline(), termination.kill()), (None, None));
    }

    #[test]
    fn killed_process_is_not_aborted() {
        let mut termination = Termination::None;
        assert_eq!(termination.kill(), Some(SIGKILL));
        assert_eq!(termination.abort(Instant::now()), None);
    }
}
