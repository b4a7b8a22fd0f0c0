//! The start of a server process: a table of its transitions, and of what follows a failure. It knows no process.

/// Why a server process is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartReason {
    /// It is the first.
    First,
    /// The server process has exited.
    Restart,
    /// The serving process cannot apply the new configuration.
    Reload { why: String, forced_zones: Vec<String> },
    /// It is of the newly installed program.
    Upgrade,
    /// A failed start has bound new sockets. Clients may already be in their listen queues, so a process with the
    /// current configuration must serve them.
    RecoverNewSockets,
}

/// How far the start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartState {
    Pending,
    /// The process has reported that the configuration is wrong, and exits.
    Refused,
    /// The process was killed, since it was not ready in time.
    TimedOut,
}

/// What happens during a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartInput {
    Ready,
    Refused,
    DeadlinePassed,
    Exited,
}

/// What the supervisor does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartStep {
    Wait(StartState),
    /// Kill the process, and wait for its exit.
    Kill,
    /// The process serves from now on.
    Serve,
    /// The start has failed.
    Fail {
        /// Whether the process has reported why.
        is_reported: bool,
    },
}

impl StartState {
    /// The next step.
    pub(crate) fn next(self, input: StartInput) -> StartStep {
        match (self, input) {
            // The process was killed: what it reports meanwhile comes too late.
            (StartState::TimedOut, StartInput::Ready | StartInput::Refused | StartInput::DeadlinePassed) => {
                StartStep::Wait(StartState::TimedOut)
            }
            (_, StartInput::Ready) => StartStep::Serve,
            (_, StartInput::Refused) => StartStep::Wait(StartState::Refused),
            (_, StartInput::DeadlinePassed) => StartStep::Kill,
            (state, StartInput::Exited) => StartStep::Fail { is_reported: state == StartState::Refused },
        }
    }
}

/// What follows a failed start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The supervisor exits: nothing has been served yet.
    Exit,
    /// A process with the current configuration serves the new sockets ([`StartReason::RecoverNewSockets`]).
    ServeNewSockets,
    /// The start is tried again later.
    RestartLater,
    /// The serving process is kept.
    Keep,
}

impl AfterFailure {
    /// What follows the failure of a start for this `reason`.
    pub(crate) fn of(reason: &StartReason, has_serving_process: bool, has_new_sockets: bool) -> AfterFailure {
        match reason {
            StartReason::First => AfterFailure::Exit,
            _ if has_new_sockets => AfterFailure::ServeNewSockets,
            StartReason::Restart | StartReason::RecoverNewSockets => AfterFailure::RestartLater,
            StartReason::Reload { .. } | StartReason::Upgrade if !has_serving_process => AfterFailure::RestartLater,
            StartReason::Reload { .. } | StartReason::Upgrade => AfterFailure::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_follows_the_table() {
        use StartInput::{DeadlinePassed, Exited, Ready, Refused};
        let wait = StartStep::Wait;
        let fail = |is_reported| StartStep::Fail { is_reported };
        let table = [
            (StartState::Pending, [StartStep::Serve, wait(StartState::Refused), StartStep::Kill, fail(false)]),
            (StartState::Refused, [StartStep::Serve, wait(StartState::Refused), StartStep::Kill, fail(true)]),
            (StartState::TimedOut, {
                let late = wait(StartState::TimedOut);
                [late, late, late, fail(false)]
            }),
        ];
        for (state, expected) in table {
            for (input, expected) in [Ready, Refused, DeadlinePassed, Exited].into_iter().zip(expected) {
                assert_eq!(state.next(input), expected, "{state:?} {input:?}");
            }
        }
    }

    #[test]
    fn failure_is_followed_by_what_keeps_clients_served() {
        use AfterFailure::{Exit, Keep, RestartLater, ServeNewSockets};
        let reload = StartReason::Reload { why: "a reason".to_owned(), forced_zones: Vec::new() };
        // With a serving process and without, each without new sockets; then with new sockets.
        for (reason, expected) in [
            (StartReason::First, [Exit, Exit, Exit]),
            (StartReason::Restart, [RestartLater, RestartLater, ServeNewSockets]),
            (reload, [Keep, RestartLater, ServeNewSockets]),
            (StartReason::Upgrade, [Keep, RestartLater, ServeNewSockets]),
            (StartReason::RecoverNewSockets, [RestartLater, RestartLater, ServeNewSockets]),
        ] {
            let found = [(true, false), (false, false), (true, true)]
                .map(|(has_serving, has_new_sockets)| AfterFailure::of(&reason, has_serving, has_new_sockets));
            assert_eq!(found, expected, "{reason:?}");
        }
    }
}
