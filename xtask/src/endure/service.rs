//! A supervisor with its server process, in a folder of its own: started, told what to do, looked at, and ended.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::client;
use super::domain::{CONFIG, Config, Domain, PAGE_PATH};
use super::json::Value;
use super::network::free_address;
use super::pace::comes_true;
use super::processes;
use super::programs::Programs;
use crate::program::signal;

/// How long it may take until it answers, and until a command of its operator's has ended.
const START_LIMIT: Duration = Duration::from_secs(20);
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// How long it may take to end, and a server process that was replaced to be gone when its connections are.
pub(super) const END_LIMIT: Duration = Duration::from_secs(10);
/// In the folder: where the supervisor listens for commands, and what it writes.
const CONTROL: &str = "control";
const OUTPUT: &str = "output";
/// The program from which it runs, which an upgrade replaces.
const PROGRAM: &str = "sanderling";
/// What the word ends with by which a server process is told that it is one.
const SERVER_PROCESS: &str = "server-process";
/// The last lines of its output that are told when it fails.
const LAST_LINE_COUNT: usize = 5;

/// A service that runs. It is ended when it is dropped.
pub(super) struct Service {
    pub(super) domain: Domain,
    pub(super) http: SocketAddr,
    pub(super) dns: SocketAddr,
    folder: PathBuf,
    /// The program as it was built, which also gives the commands.
    built: PathBuf,
    supervisor: Child,
}

/// What a command of the operator's said.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) is_done: bool,
    pub(super) output: String,
    pub(super) errors: String,
    /// From its start to its end.
    pub(super) took: Duration,
}

/// What stands where the program stood when an upgrade is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewProgram {
    /// The same program once more: a file of its own.
    Good,
    /// One that ends at once.
    Crashes,
    /// One that refuses to run.
    Refuses,
    /// One that never says that it is ready.
    Hangs,
}

impl Service {
    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// What it wrote before it ended, or that it never answered.
    pub(super) fn start(programs: &Programs, name: &str, config: &Config) -> Result<Service, String> {
        let folder = programs.new_folder(name)?;
        let domain = Domain::write(&folder)?;
        let (http, dns) = (free_address()?, free_address()?);
        domain.set_config(&config.text(http, dns))?;
        put_program(&folder, &programs.sanderling, NewProgram::Good)?;
        let supervisor = launch(&folder)?;
        let mut service = Service { domain, http, dns, folder, built: programs.sanderling.clone(), supervisor };
        service.wait_until_it_answers()?;
        Ok(service)
    }

    /// Starts the supervisor once more by the same command, when the one before has been killed.
    pub(super) fn start_supervisor_again(&mut self) -> Result<(), String> {
        self.supervisor.wait().map_err(|error| format!("waiting for the supervisor: {error}"))?;
        self.supervisor = launch(&self.folder)?;
        Ok(())
    }

    fn wait_until_it_answers(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < START_LIMIT {
            let output = self.output();
            let announced = |line: String| output.lines().any(|candidate| candidate == line);
            if announced(format!("http {}", self.http)) && announced(format!("dns {}", self.dns)) {
                return client::get(self.http, "example.com", PAGE_PATH).map(drop);
            }
            if let Ok(Some(status)) = self.supervisor.try_wait() {
                return Err(format!("the service ended ({status}): {}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(format!("the service did not announce itself within {} s: {}", START_LIMIT.as_secs(), self.last_words()))
    }

    /// The number of the supervisor.
    pub(super) fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    /// Writes a configuration; nobody is told.
    pub(super) fn set_config(&self, config: &Config) -> Result<(), String> {
        self.domain.set_config(&config.text(self.http, self.dns))
    }

    /// `sanderling WORDS --control …`, to its end.
    ///
    /// # Errors
    /// It cannot be started, or does not end.
    pub(super) fn command(&self, words: &[&str]) -> Result<Told, String> {
        let mut command = Command::new(&self.built);
        command.args(words).args(["--control", CONTROL]).current_dir(&self.folder);
        command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let what = format!("`sanderling {}`", words.join(" "));
        let start = Instant::now();
        let mut child = command.spawn().map_err(|error| format!("{what} cannot be started: {error}"))?;
        // What it writes is a few lines, which a pipe holds until they are read.
        if !comes_true(COMMAND_LIMIT, || !matches!(child.try_wait(), Ok(None))) {
            // Nothing is left to try when these fail.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{what} did not end within {} s", COMMAND_LIMIT.as_secs()));
        }
        let took = start.elapsed();
        let output = child.wait_with_output().map_err(|error| format!("{what}: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(Told { is_done: output.status.success(), output: text(&output.stdout), errors: text(&output.stderr), took })
    }

    /// A reload that must succeed; what it says of the way that was taken.
    pub(super) fn reload(&self) -> Result<Told, String> {
        let told = self.command(&["reload"])?;
        if told.is_done { Ok(told) } else { Err(format!("a good configuration was refused: {}", told.errors)) }
    }

    /// What `sanderling status --json` tells.
    pub(super) fn status(&self) -> Result<Value, String> {
        let told = self.command(&["status", "--json"])?;
        if !told.is_done {
            return Err(format!("`sanderling status --json`: {}", told.errors));
        }
        Value::parse(&told.output)
    }

    /// The server processes, the oldest first; one that was replaced is there until its connections have ended.
    pub(super) fn server_pids(&self) -> Vec<u32> {
        let is_server =
            |pid: &u32| processes::command_line(*pid).iter().skip(1).any(|word| word.ends_with(SERVER_PROCESS));
        processes::children(self.supervisor_pid()).into_iter().filter(is_server).collect()
    }

    /// The only server process, as soon as there is but one.
    pub(super) fn only_server_pid(&self) -> Result<u32, String> {
        let mut pids = Vec::new();
        let is_alone = comes_true(END_LIMIT, || {
            pids = self.server_pids();
            pids.len() == 1
        });
        match pids.as_slice() {
            [pid] if is_alone => Ok(*pid),
            pids => Err(format!("there should be one server process, there are {}: {}", pids.len(), self.last_words())),
        }
    }

    /// Puts another program where this one was started from.
    pub(super) fn replace_program(&self, new: NewProgram) -> Result<(), String> {
        put_program(&self.folder, &self.built, new)
    }

    /// Whether all of its processes end within the limit.
    pub(super) fn is_gone_soon(&self) -> bool {
        comes_true(END_LIMIT, || !processes::working_in(&self.folder).into_iter().any(processes::runs))
    }

    /// Everything that it wrote so far.
    pub(super) fn output(&self) -> String {
        fs::read_to_string(self.folder.join(OUTPUT)).unwrap_or_default()
    }

    /// The last lines that it wrote.
    pub(super) fn last_words(&self) -> String {
        let output = self.output();
        let tail: Vec<&str> = output.lines().rev().take(LAST_LINE_COUNT).collect();
        tail.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let has_ended = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
        if !has_ended(&mut self.supervisor) {
            signal(self.supervisor_pid(), "TERM");
            comes_true(END_LIMIT, || has_ended(&mut self.supervisor));
        }
        // What is left, by its folder: numbers alone are used again.
        for pid in processes::working_in(&self.folder) {
            signal(pid, "KILL");
        }
        // It has ended, or was killed just now.
        let _ = self.supervisor.wait();
    }
}

/// Starts the supervisor. It writes behind what was written before.
fn launch(folder: &Path) -> Result<Child, String> {
    let path = folder.join(OUTPUT);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let output = fs::File::options().create(true).append(true).open(&path).map_err(failed)?;
    let errors = output.try_clone().map_err(failed)?;
    let mut command = Command::new(folder.join(PROGRAM));
    command.args(["serve", "--config", CONFIG, "--control", CONTROL]).current_dir(folder);
    command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(output).stderr(errors);
    command.spawn().map_err(|error| format!("the service cannot be started: {error}"))
}

/// Puts a program into the folder as an installation does: beside the old file, then in its place.
fn put_program(folder: &Path, built: &Path, new: NewProgram) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let (path, beside) = (folder.join(PROGRAM), folder.join("new-program"));
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let script = match new {
        NewProgram::Good => None,
        NewProgram::Crashes => Some("#!/bin/sh\nexit 1\n"),
        NewProgram::Refuses => Some("#!/bin/sh\nexec false\n"),
        NewProgram::Hangs => Some("#!/bin/sh\nexec sleep 600\n"),
    };
    match script {
        None => fs::copy(built, &beside).map(drop).map_err(failed)?,
        Some(script) => fs::write(&beside, script).map_err(failed)?,
    }
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    fs::rename(&beside, &path).map_err(failed)
}
