//! Turns a program and its arguments into the outcome of a chore.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What came of one chore.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// Not done, for a reason that lies in this machine; the reason says what was left unproved.
    Skipped(String),
    Failed(String),
}

/// A command line to be run in the root of the project, with our own output streams unless said otherwise.
pub(crate) struct Program {
    command: Command,
}

impl Program {
    /// `name` as found through PATH.
    pub(crate) fn new(name: &str) -> Program {
        let mut command = Command::new(name);
        command.stdin(Stdio::null());
        Program { command }
    }

    /// The cargo that runs us, so that a toolchain chosen by `cargo +name` holds for every step.
    pub(crate) fn cargo() -> Program {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command.stdin(Stdio::null());
        Program { command }
    }

    /// Arguments, as many as `words` has between its spaces.
    pub(crate) fn args(mut self, words: &str) -> Program {
        self.command.args(words.split_whitespace());
        self
    }

    /// Arguments that may hold spaces.
    pub(crate) fn args_of(mut self, arguments: &[String]) -> Program {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Program {
        self.command.env(name, value);
        self
    }

    /// The program may ask its user something: a password, for one.
    pub(crate) fn interactive(mut self) -> Program {
        self.command.stdin(Stdio::inherit());
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Outcome {
        println!("$ {self}");
        match self.command.status() {
            Ok(status) if status.success() => Outcome::Passed,
            Ok(status) => Outcome::Failed(format!("`{self}`: {status}")),
            Err(error) => Outcome::Failed(format!("`{self}` cannot be started: {error}")),
        }
    }

    /// Runs it to its end and hands each line of its standard output to `each_line`, after printing it.
    pub(crate) fn run_and_read(mut self, mut each_line: impl FnMut(&str)) -> Outcome {
        println!("$ {self}");
        let mut child = match self.command.stdout(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(error) => return Outcome::Failed(format!("`{self}` cannot be started: {error}")),
        };
        let output = child.stdout.take().expect("standard output was asked for as a pipe");
        let copied = copy_lines(BufReader::new(output), &mut each_line);
        match (child.wait(), copied) {
            (Err(error), _) | (_, Err(error)) => Outcome::Failed(format!("`{self}`: {error}")),
            (Ok(status), Ok(())) if status.success() => Outcome::Passed,
            (Ok(status), Ok(())) => Outcome::Failed(format!("`{self}`: {status}")),
        }
    }

    /// Runs it silently; its standard output when it ended well.
    pub(crate) fn output(mut self) -> Option<String> {
        let output = self.command.stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The command line as one would type it.
impl fmt::Display for Program {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.command.get_envs() {
            write!(out, "{}={} ", name.display(), value.unwrap_or_default().display())?;
        }
        let name = PathBuf::from(self.command.get_program());
        write!(out, "{}", name.file_name().unwrap_or_default().display())?;
        for argument in self.command.get_args() {
            write!(out, " {}", argument.display())?;
        }
        Ok(())
    }
}

/// Sends a signal by its name without SIG. Whether it could be sent: a process that has ended needs none.
pub(crate) fn signal(pid: u32, name: &str) -> bool {
    let mut command = Command::new("kill");
    command.args(["-s", name, &pid.to_string()]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether PATH leads to a file of this name. Debian keeps administrators' programs in `sbin`, which a user's PATH
/// may lack.
pub(crate) fn is_installed(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(sbin).any(|folder| folder.join(name).is_file())
}

fn copy_lines(mut from: impl BufRead, each_line: &mut impl FnMut(&str)) -> io::Result<()> {
    let mut bytes = Vec::new();
    while from.read_until(b'\n', &mut bytes)? > 0 {
        let line = String::from_utf8_lossy(&bytes);
        print!("{line}");
        each_line(line.trim_end());
        bytes.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_shown_as_typed() {
        let program = Program::new("/usr/bin/env").args("-i true").env("LANG", "C");
        assert_eq!(program.to_string(), "LANG=C env -i true");
    }

    #[test]
    fn an_outcome_tells_the_command_that_failed() {
        assert_eq!(Program::new("true").run(), Outcome::Passed);
        assert_eq!(Program::new("false").run(), Outcome::Failed("`false`: exit status: 1".into()));
        let Outcome::Failed(reason) = Program::new("no-such-program").run() else { panic!("it ran") };
        assert!(reason.starts_with("`no-such-program` cannot be started: "), "{reason}");
    }

    #[test]
    fn lines_are_handed_on() {
        let mut lines = Vec::new();
        let outcome = Program::new("printf").args(r"one\ntwo").run_and_read(|line| lines.push(line.to_owned()));
        assert_eq!(outcome, Outcome::Passed);
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn programs_are_found_through_path() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program"));
    }
}
