//! How the program ends.

use std::process::{ExitCode, Termination};

/// How the program ends, as its caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Success,
    /// Something failed at run time, `check` found errors, or the server that was asked did not answer or refused.
    Failure,
    /// The command line is wrong in a way that its grammar can't tell: `--force` names a job that there is not.
    WrongCommandLine,
    /// `serve` was given a configuration that is wrong; EX_CONFIG of sysexits.h. A service manager that sees it should
    /// not try again: systemd's RestartPreventExitStatus=78.
    BadConfiguration,
}

impl Exit {
    /// The number that the caller sees.
    pub fn status(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failure => 1,
            // The number that clap has chosen for what it finds wrong itself.
            Exit::WrongCommandLine => 2,
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
    fn ends_have_the_numbers_that_the_help_tells() {
        let number = |exit: Exit| format!("{:?}", exit.report());
        let expected = |number: u8| format!("{:?}", ExitCode::from(number));
        for (exit, status) in
            [(Exit::Success, 0), (Exit::Failure, 1), (Exit::WrongCommandLine, 2), (Exit::BadConfiguration, 78)]
        {
            assert_eq!(number(exit), expected(status), "{exit:?}");
        }
    }
}
