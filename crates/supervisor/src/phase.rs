//! The state of a server process as its supervisor sees it: two tables of transitions, which know no process.

use sanderling_ipc::Command;
use sanderling_os::signals::{SIGABRT, SIGKILL, Signal};
use std::time::{Duration, Instant};

/// Time for an aborted process to write a core dump.
const CORE_DUMP_TIME: Duration = Duration::from_secs(1);
/// Time for a process to exit after it reported its end or was killed. A process that takes longer has a thread in an
/// uninterruptible wait for a disk.
const EXIT_TIME: Duration = Duration::from_secs(2);

/// A server process's phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The process is not ready yet.
    Starting,
    /// The process serves clients.
    Serving,
    /// The process finishes the work in progress.
    Draining,
}

/// An input that changes the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PhaseInput {
    /// The process has reported that it serves.
    Ready,
    /// Another process has replaced this process.
    Replaced,
    /// The process has reported that it has failed.
    Failed,
    /// The server stops.
    Stop,
    /// The server stops without waiting for requests in progress.
    StopNow,
}

/// The supervisor's action when the phase changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PhaseAction {
    Nothing,
    Send(Command),
    Kill,
}

impl Phase {
    /// The next phase, and the action; `None` if the input changes nothing.
    pub(crate) fn next(self, input: PhaseInput) -> Option<(Phase, PhaseAction)> {
        use PhaseAction::{Kill, Nothing, Send};
        Some(match (self, input) {
            (Phase::Starting, PhaseInput::Ready) => (Phase::Serving, Nothing),
            (Phase::Starting, PhaseInput::Stop | PhaseInput::StopNow) => (Phase::Draining, Kill),
            (Phase::Serving, PhaseInput::Replaced) => (Phase::Draining, Send(Command::Drain)),
            // By its own report, which may be a lie, the process already drains.
            (Phase::Serving, PhaseInput::Failed) => (Phase::Draining, Send(Command::Drain)),
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

/// The stage of ending a process by force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Termination {
    #[default]
    None,
    /// SIGABRT was sent, for a core dump, or the process has reported its end.
    Exiting { kill_at: Instant },
    /// The process was killed, and exits soon or is given up.
    Killed { give_up_at: Instant },
}

impl Termination {
    /// Aborts the process: the signal to send, unless one was sent already.
    pub(crate) fn abort(&mut self, now: Instant) -> Option<Signal> {
        if *self != Termination::None {
            return None;
        }
        *self = Termination::Exiting { kill_at: now + CORE_DUMP_TIME };
        Some(SIGABRT)
    }

    /// The process has reported its end.
    pub(crate) fn expect_exit(&mut self, now: Instant) {
        if *self == Termination::None {
            *self = Termination::Exiting { kill_at: now + EXIT_TIME };
        }
    }

    /// Kills the process: the signal to send, unless it was sent already.
    pub(crate) fn kill(&mut self, now: Instant) -> Option<Signal> {
        if self.is_killed() {
            return None;
        }
        *self = Termination::Killed { give_up_at: now + EXIT_TIME };
        Some(SIGKILL)
    }

    /// Kills the process if it has not exited in time.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Signal> {
        match *self {
            Termination::Exiting { kill_at } if now >= kill_at => self.kill(now),
            _ => None,
        }
    }

    pub(crate) fn is_killed(self) -> bool {
        matches!(self, Termination::Killed { .. })
    }

    /// Whether the process was killed and does not exit.
    pub(crate) fn is_given_up(self, now: Instant) -> bool {
        matches!(self, Termination::Killed { give_up_at } if now >= give_up_at)
    }

    /// When to call [`Termination::poll`] and [`Termination::is_given_up`].
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Termination::None => None,
            Termination::Exiting { kill_at: at } | Termination::Killed { give_up_at: at } => Some(at),
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
        let drain = || Some((Phase::Draining, Send(Command::Drain)));
        let stop = || Some((Phase::Draining, Send(Command::Stop)));
        let kill = || Some((Phase::Draining, Kill));
        let table = [
            (Phase::Starting, [Some((Phase::Serving, Nothing)), None, None, kill(), kill()]),
            (Phase::Serving, [None, drain(), drain(), stop(), stop()]),
            (Phase::Draining, [None, None, None, None, kill()]),
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
        assert_eq!(termination.kill(now + CORE_DUMP_TIME), None);
    }

    #[test]
    fn process_that_reports_its_end_and_does_not_exit_is_killed_and_given_up() {
        let mut now = Instant::now();
        let mut termination = Termination::None;
        termination.expect_exit(now);
        now += EXIT_TIME;
        assert_eq!(termination.deadline(), Some(now));
        assert_eq!(termination.poll(now), Some(SIGKILL));
        assert!(!termination.is_given_up(now));
        assert_eq!(termination.deadline(), Some(now + EXIT_TIME));
        assert!(termination.is_given_up(now + EXIT_TIME));
        assert_eq!(termination.poll(now + EXIT_TIME), None);
    }

    #[test]
    fn killed_process_is_not_aborted() {
        let mut termination = Termination::None;
        assert_eq!(termination.kill(Instant::now()), Some(SIGKILL));
        assert_eq!(termination.abort(Instant::now()), None);
    }
}
