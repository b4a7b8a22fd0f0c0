//! The startup of a server process: a table of its transitions, and of the reactions to a failure. This module handles
//! no processes.

/// The reason why a server process is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartReason {
    /// The process is the first.
    First,
    /// The server process has exited.
    Restart,
    /// The serving process cannot apply the new configuration.
    Reload { why: String, forced_zones: Vec<String> },
    /// The process runs the newly installed program.
    Upgrade,
    /// A failed start has bound new sockets. Clients may already be in their listen queues, so a process with the
    /// current configuration must serve them.
    RecoverNewSockets,
}

/// The stage of the startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartState {
    Pending,
    /// The process has reported that the configuration is wrong, and exits.
    Refused,
    /// The process was killed, since it was not ready in time.
    TimedOut,
}

/// An event during startup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartInput {
    Ready,
    Refused,
    DeadlinePassed,
    Exited,
}

/// The supervisor's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartStep {
    Wait(StartState),
    /// Kill the process, and wait for its exit.
    Kill,
    /// The process serves from now on.
    Serve,
    /// The start has failed.
    Fail {
        /// Whether the process has reported the reason.
        is_reported: bool,
    },
}

impl StartState {
    /// The next step.
    pub(crate) fn next(self, input: StartInput) -> StartStep {
        match (self, input) {
            // The process was killed, so its reports come too late.
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

/// The reaction to a failed start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// The supervisor exits: nothing has been served yet.
    Exit,
    /// A process with the current configuration serves the new sockets ([`StartReason::RecoverNewSockets`]).
    ServeNewSockets,
    /// The start is retried later.
    RestartLater,
    /// The serving process is kept.
    Keep,
}

impl AfterFailure {
    /// The reaction to a failed start for this `reason`.
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

/// Maximum failed starts in a row with good versions of zones and certificates. An earlier process, which may have run
/// foreign code, has sent these versions: further starts are without them.
const FAILURES_WITH_KEPT_MAX: u32 = 2;

/// The good versions of zones and certificates from earlier processes that a server process gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptVersions {
    /// No good versions exist.
    None,
    /// The process gets all good versions.
    Passed,
    /// The process gets no good versions.
    Withheld,
}

impl KeptVersions {
    /// The versions that a process gets if any exist, after this number of processes with good versions has failed to
    /// start.
    pub(crate) fn after(failure_count: u32) -> KeptVersions {
        if failure_count < FAILURES_WITH_KEPT_MAX { KeptVersions::Passed } else { KeptVersions::Withheld }
    }

    /// The number of failures, including a process with good versions that was started for this `reason`. If the
    /// supervisor serves nothing yet, the next start is without them.
    pub(crate) fn failures_after(failure_count: u32, reason: &StartReason) -> u32 {
        if *reason == StartReason::First { FAILURES_WITH_KEPT_MAX } else { failure_count.saturating_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_versions_with_which_no_process_becomes_ready_are_withheld() {
        let mut count = 0;
        for expected in [KeptVersions::Passed, KeptVersions::Passed, KeptVersions::Withheld, KeptVersions::Withheld] {
            assert_eq!(KeptVersions::after(count), expected);
            count = KeptVersions::failures_after(count, &StartReason::Restart);
        }
        assert_eq!(KeptVersions::after(KeptVersions::failures_after(0, &StartReason::First)), KeptVersions::Withheld);
        assert_eq!(KeptVersions::failures_after(u32::MAX, &StartReason::Upgrade), u32::MAX);
    }

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
