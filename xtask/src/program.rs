//! Runs programs, and prints or keeps their output.

use std::env;
use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The step was not run because of this machine; the reason says what remains unchecked.
    Skipped(String),
    Failed(String),
}

impl Outcome {
    /// The outcome of a chore that has no result.
    pub(crate) fn of(result: Result<(), String>) -> Outcome {
        result.map_or_else(Outcome::Failed, |()| Outcome::Passed)
    }

    /// For a chore that goes on if this one has not failed.
    pub(crate) fn into_result(self) -> Result<(), String> {
        match self {
            Outcome::Passed | Outcome::Skipped(_) => Ok(()),
            Outcome::Failed(reason) => Err(reason),
        }
    }

    /// Both outcomes; the failure of the first if there are two.
    pub(crate) fn and(self, other: Outcome) -> Outcome {
        self.and_then(|| other)
    }

    /// The next outcome if this one is no failure.
    pub(crate) fn and_then(self, next: impl FnOnce() -> Outcome) -> Outcome {
        if matches!(self, Outcome::Failed(_)) { self } else { next() }
    }
}

/// The output of a chore: printed line by line, or kept while other chores run.
#[derive(Debug, Default)]
pub(crate) struct Log {
    kept: Option<String>,
}

impl Log {
    pub(crate) fn kept() -> Log {
        Log { kept: Some(String::new()) }
    }

    pub(crate) fn line(&mut self, line: &str) {
        match &mut self.kept {
            Some(text) => *text += &format!("{line}\n"),
            None => println!("{line}"),
        }
    }

    pub(crate) fn append(&mut self, other: &Log) {
        other.kept.iter().flat_map(|text| text.lines()).for_each(|line| self.line(line));
    }
}

/// A command line, which runs in the root of the project.
pub(crate) struct Program {
    command: Command,
}

impl Program {
    /// `name` as found by PATH.
    pub(crate) fn new(name: &str) -> Program {
        let mut command = Command::new(name);
        command.stdin(Stdio::null());
        Program { command }
    }

    /// The cargo that runs this program, so that `cargo +TOOLCHAIN` applies to all steps.
    pub(crate) fn cargo() -> Program {
        Program::new(&env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
    }

    /// Cargo with low priority, which uses the processor time that tests leave.
    pub(crate) fn cargo_in_background() -> Program {
        Program::in_background(&env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
    }

    /// `name` with a lower priority.
    pub(crate) fn in_background(name: &str) -> Program {
        Program::new("nice").args("-n 10").args_of(&[name.to_owned()])
    }

    /// Arguments, separated by spaces.
    pub(crate) fn args(mut self, words: &str) -> Program {
        self.command.args(words.split_whitespace());
        self
    }

    /// Arguments that may contain spaces.
    pub(crate) fn args_of(mut self, arguments: &[String]) -> Program {
        self.command.args(arguments);
        self
    }

    /// The folder in which it runs, instead of the root.
    pub(crate) fn current_dir(mut self, folder: &Path) -> Program {
        self.command.current_dir(folder);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Program {
        self.command.env(name, value);
        self
    }

    /// Runs the program with its output in `log`.
    pub(crate) fn run(mut self, log: &mut Log) -> Outcome {
        log.line(&format!("$ {self}"));
        let result = match log.kept {
            // Directly, so that programs detect a terminal.
            None => self.command.status(),
            Some(_) => self.run_and_read(log),
        };
        match result {
            Ok(status) if status.success() => Outcome::Passed,
            Ok(status) => Outcome::Failed(format!("`{self}`: {status}")),
            Err(error) => Outcome::Failed(format!("`{self}`: {error}")),
        }
    }

    fn run_and_read(&mut self, log: &mut Log) -> io::Result<std::process::ExitStatus> {
        let (reader, writer) = io::pipe()?;
        let mut child = self.command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
        // The command keeps the writing ends; without this, the pipe would never end.
        self.command.stdout(Stdio::null()).stderr(Stdio::null());
        let (mut reader, mut line) = (BufReader::new(reader), Vec::new());
        while reader.read_until(b'\n', &mut line)? > 0 {
            log.line(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        child.wait()
    }

    /// Runs the program, and prints its output only if it fails.
    pub(crate) fn run_silently(self, log: &mut Log) -> Result<(), String> {
        let mut own = Log::kept();
        let result = self.run(&mut own).into_result();
        if result.is_err() {
            log.append(&own);
        }
        result
    }

    /// Runs the program silently; its standard output if it succeeds.
    pub(crate) fn output(mut self) -> Option<String> {
        let output = self.command.stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The command line as it can be typed.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.command.get_envs() {
            write!(f, "{}={} ", name.display(), value.unwrap_or_default().display())?;
        }
        let name = PathBuf::from(self.command.get_program());
        write!(f, "{}", name.file_name().unwrap_or_default().display())?;
        self.command.get_args().try_for_each(|argument| write!(f, " {}", argument.display()))
    }
}

/// Whether PATH, or a folder of administrators' programs, has a program.
pub(crate) fn is_installed(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(sbin).any(|folder| folder.join(name).is_file())
}

/// The folder into which cargo builds.
pub(crate) fn target_folder() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_command_is_named() {
        let mut log = Log::kept();
        assert_eq!(Program::new("true").run(&mut log), Outcome::Passed);
        let expected = Outcome::Failed("`LANG=C env false`: exit status: 1".to_owned());
        assert_eq!(Program::new("/usr/bin/env").args("false").env("LANG", "C").run(&mut log), expected);
    }

    #[test]
    fn output_of_both_streams_is_kept() {
        let mut log = Log::kept();
        let program = Program::new("sh").args_of(&["-c".to_owned(), "echo one; echo two >&2".to_owned()]);
        assert_eq!(program.run(&mut log), Outcome::Passed);
        assert_eq!(log.kept.as_deref(), Some("$ sh -c echo one; echo two >&2\none\ntwo\n"));
    }
}
