//! The exit status of the program.

use std::process::{ExitCode, Termination};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success.
    Success,
    /// A failure at run time; `check` has found errors; `doctor` has found something wrong; the running server did not
    /// answer, refused, or has a problem.
    Failure,
    /// The command line is wrong in a way that its parser does not check: `--force` names an unknown feature.
    Usage,
    /// The configuration of `serve` is wrong (EX_CONFIG of sysexits.h). A restart does not help, so a service manager
    /// should not try it: RestartPreventExitStatus=78 of systemd.
    BadConfiguration,
}

impl Exit {
    /// The number of the exit status.
    pub fn status(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failure => 1,
            // As clap does.
            Exit::Usage => 2,
            Exit::BadConfiguration => 78,
        }
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        ExitCode::from(self.status())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_the_stability_page_are_those_of_the_program() {
        let all = [Exit::Success, Exit::Failure, Exit::Usage, Exit::BadConfiguration];
        let statuses = all.map(|exit| format!("{} {exit:?}", exit.status()));
        sanderling_testkit::check_promised("exit-statuses", statuses);
    }
}
