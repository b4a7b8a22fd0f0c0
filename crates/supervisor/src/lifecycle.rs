//! Whether the supervisor runs or stops, and the clients that wait for the end.

use crate::phase::PhaseInput;
use sanderling_ipc::control_socket::ClientId;

/// The origin of a request, which receives its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requester {
    /// A client of the control socket.
    Client(ClientId),
    /// A signal, or the supervisor itself: the result is only logged.
    Signal,
}

/// The state of the supervisor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    #[default]
    Running,
    /// It exits when all server processes have exited.
    Stopping {
        /// The clients that wait for it.
        waiting: Vec<ClientId>,
        /// Whether a signal was a reason: a second one stops at once.
        is_by_signal: bool,
    },
}

impl Lifecycle {
    pub(crate) fn is_stopping(&self) -> bool {
        *self != Lifecycle::Running
    }

    /// Begins to stop, or stops at once on a second signal: the input for the server processes.
    pub(crate) fn stop(&mut self, requester: Requester) -> PhaseInput {
        if *self == Lifecycle::Running {
            *self = Lifecycle::Stopping { waiting: Vec::new(), is_by_signal: false };
        }
        let Lifecycle::Stopping { waiting, is_by_signal } = self else { unreachable!("set above") };
        match requester {
            Requester::Client(id) => {
                waiting.push(id);
                PhaseInput::Stop
            }
            Requester::Signal if std::mem::replace(is_by_signal, true) => PhaseInput::StopNow,
            Requester::Signal => PhaseInput::Stop,
        }
    }

    /// The clients that wait for the end.
    pub(crate) fn into_waiting(self) -> Vec<ClientId> {
        match self {
            Lifecycle::Running => Vec::new(),
            Lifecycle::Stopping { waiting, .. } => waiting,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_signal_stops_at_once() {
        let mut lifecycle = Lifecycle::Running;
        assert!(!lifecycle.is_stopping());
        assert_eq!(lifecycle.stop(Requester::Client(1)), PhaseInput::Stop);
        assert!(lifecycle.is_stopping());
        assert_eq!(lifecycle.stop(Requester::Signal), PhaseInput::Stop);
        assert_eq!(lifecycle.stop(Requester::Client(2)), PhaseInput::Stop);
        assert_eq!(lifecycle.stop(Requester::Signal), PhaseInput::StopNow);
        assert_eq!(lifecycle.into_waiting(), [1, 2]);
    }
}
