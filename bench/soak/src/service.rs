//! A supervisor with its server processes, in a temporary folder.

use crate::extent::{Extent, becomes_true};
use crate::site::{CONFIG, Config, PAGE_PATH, Site};
use anyhow::{Context, bail, ensure};
use domain::base::iana::Rtype;
use loadgen::{Load, Running, client};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Maximum time for starting, stopping or a command on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
const CONTROL: &str = "control";
const OUTPUT: &str = "output";
/// The program file, which an upgrade replaces.
const PROGRAM: &str = "sanderling";
/// A running service. The service is stopped when it is dropped.
pub(crate) struct Service {
    pub(crate) site: Site,
    pub(crate) extent: Extent,
    /// The program as it was built; commands are given by it.
    built: PathBuf,
    supervisor: Child,
    // This field follows `supervisor`: the processes exit before their folder is removed.
    _folder: TempDir,
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) is_success: bool,
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) took: Duration,
}

/// The file that an upgrade finds in place of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewProgram {
    /// A copy of the same program.
    Good,
    Exits,
    /// A program that executes another and exits.
    Execs,
    /// A program that never becomes ready.
    Hangs,
}

impl Service {
    pub(crate) fn start(program: &Path, extent: Extent, config: &Config) -> anyhow::Result<Service> {
        let folder = TempDir::with_prefix("soak-")?;
        // Root serves as another user, which must reach it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let addresses = [client::free_address()?, client::free_address()?, client::free_address()?];
        let site = Site::write(folder.path(), addresses, config)?;
        replace_program(folder.path(), program, NewProgram::Good)?;
        let supervisor = spawn(folder.path(), &[])?;
        let built = program.to_owned();
        let mut service = Service { site, extent, built, supervisor, _folder: folder };
        service.wait_until_ready()?;
        Ok(service)
    }

    /// Starts the supervisor again by the same command, preceded by the words of a launcher, after the previous
    /// supervisor has exited.
    pub(crate) fn restart_supervisor(&mut self, launcher: &[String]) -> anyhow::Result<()> {
        self.supervisor.wait()?;
        self.supervisor = spawn(&self.site.folder, launcher)?;
        Ok(())
    }

    /// The supervisor's exit status, if it has exited.
    pub(crate) fn supervisor_status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.supervisor.try_wait()?)
    }

    pub(crate) fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let (http, dns) = (self.site.http, self.site.dns);
        let is_ready = becomes_true(LIMIT, || {
            client::get(http, "example.com", PAGE_PATH, "").is_ok_and(|(response, _)| response.status == 200)
                && client::query_tcp(dns, "example.com", Rtype::SOA).is_ok()
                || !matches!(self.supervisor.try_wait(), Ok(None))
        });
        let has_ended = !matches!(self.supervisor.try_wait(), Ok(None));
        ensure!(is_ready && !has_ended, "the service did not start: {}", self.last_output());
        Ok(())
    }

    pub(crate) fn load(&self) -> anyhow::Result<Running> {
        self.start_load(&self.site.target(self.extent.load())?)
    }

    pub(crate) fn start_load(&self, load: &Load) -> anyhow::Result<Running> {
        load.start().with_context(|| self.last_output())
    }

    pub(crate) fn supervisor_pid(&self) -> u32 {
        self.supervisor.id()
    }

    pub(crate) fn set_config(&self, config: &Config) -> anyhow::Result<()> {
        Ok(self.site.set_config(config)?)
    }

    /// Runs `sanderling WORDS --control …` to its end.
    pub(crate) fn command(&self, words: &[&str]) -> anyhow::Result<Ended> {
        let mut command = Command::new(&self.built);
        command.args(words).args(["--control", CONTROL]).current_dir(&self.site.folder).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let mut child = command.spawn()?;
        // A few lines of output fit into the pipe.
        if !becomes_true(LIMIT, || !matches!(child.try_wait(), Ok(None))) {
            child.kill()?;
            bail!("`sanderling {}` did not end within {LIMIT:?}: {}", words.join(" "), self.last_output());
        }
        let took = start.elapsed();
        let output = child.wait_with_output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        let (is_success, errors) = (output.status.success(), text(&output.stderr));
        Ok(Ended { is_success, output: text(&output.stdout), errors, took })
    }

    pub(crate) fn reload(&self) -> anyhow::Result<Ended> {
        let ended = self.command(&["reload"])?;
        ensure!(ended.is_success, "a valid configuration was refused: {}", ended.errors);
        Ok(ended)
    }

    fn status(&self) -> anyhow::Result<Value> {
        let ended = self.command(&["status", "--json"])?;
        ensure!(ended.is_success, "`sanderling status --json` failed: {}", ended.errors);
        Ok(serde_json::from_str(&ended.output)?)
    }

    /// Whether the supervisor that was started last controls the service.
    pub(crate) fn is_supervised(&self) -> bool {
        self.status().is_ok_and(|status| status.pointer("/supervisor/pid") == Some(&self.supervisor_pid().into()))
    }

    pub(crate) fn worker_count(&self) -> anyhow::Result<u64> {
        let status = self.status()?;
        status["process"]["worker_count"].as_u64().with_context(|| format!("no worker count in {status}"))
    }

    /// The number of connections that each worker has accepted.
    pub(crate) fn accepted_counts(&self) -> anyhow::Result<Vec<u64>> {
        let status = self.status()?;
        let threads = status.pointer("/process/threads").and_then(Value::as_array).cloned().unwrap_or_default();
        let workers =
            threads.iter().filter(|thread| thread["name"].as_str().is_some_and(|name| name.starts_with("worker")));
        let counts = workers.map(|worker| worker["accepted"].as_u64()).collect::<Option<_>>();
        counts.with_context(|| format!("no accepted connections in {status}"))
    }

    /// The server processes that accept or finish connections.
    pub(crate) fn server_pids(&self) -> anyhow::Result<Vec<u32>> {
        let status = self.status()?;
        let processes = status.pointer("/supervisor/processes").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(processes.iter().filter_map(|process| u32::try_from(process["pid"].as_u64()?).ok()).collect())
    }

    /// The process ID of the only server process, after others have ended.
    pub(crate) fn only_server_pid(&self) -> anyhow::Result<u32> {
        let mut pids = Vec::new();
        becomes_true(LIMIT, || {
            pids = self.server_pids().unwrap_or_default();
            pids.len() == 1
        });
        match pids[..] {
            [pid] => Ok(pid),
            _ => bail!("expected one server process, found {pids:?}: {}", self.last_output()),
        }
    }

    /// The process ID of the server process that was started last.
    pub(crate) fn newest_server_pid(&self) -> anyhow::Result<u32> {
        self.server_pids()?.last().copied().with_context(|| format!("no server process: {}", self.last_output()))
    }

    pub(crate) fn replace_program(&self, new: NewProgram) -> anyhow::Result<()> {
        replace_program(&self.site.folder, &self.built, new)
    }

    /// Whether all processes of the service have ended.
    pub(crate) fn has_ended(&self) -> bool {
        becomes_true(LIMIT, || !processes_in(&self.site.folder).into_iter().any(is_running))
    }

    /// All that the service has written.
    pub(crate) fn output(&self) -> String {
        fs::read_to_string(self.site.folder.join(OUTPUT)).unwrap_or_default()
    }

    /// The last lines that the service has written.
    pub(crate) fn last_output(&self) -> String {
        let output = self.output();
        output.lines().skip(output.lines().count().saturating_sub(5)).collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if matches!(self.supervisor.try_wait(), Ok(None)) {
            // The process may have ended meanwhile.
            let _ = send_signal(self.supervisor_pid(), Signal::TERM);
            becomes_true(LIMIT, || !matches!(self.supervisor.try_wait(), Ok(None)));
        }
        // Process IDs are reused, so the rest is found by its folder.
        for pid in processes_in(&self.site.folder) {
            let _ = send_signal(pid, Signal::KILL);
        }
        let _ = self.supervisor.wait();
    }
}

/// Starts the supervisor; its output is appended to a file.
fn spawn(folder: &Path, launcher: &[String]) -> anyhow::Result<Child> {
    let output = fs::File::options().create(true).append(true).open(folder.join(OUTPUT))?;
    let program = folder.join(PROGRAM);
    let mut command = match launcher {
        [] => Command::new(program),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command.args(["serve", "--config", CONFIG, "--control", CONTROL]).current_dir(folder).env("NO_COLOR", "1");
    for name in ["SANDERLING_CONFIG", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    Ok(command.spawn()?)
}

/// Replaces the program by a rename, as installing it does.
fn replace_program(folder: &Path, built: &Path, new: NewProgram) -> anyhow::Result<()> {
    let path = folder.join("new-program");
    let script = match new {
        NewProgram::Good => None,
        NewProgram::Exits => Some("#!/bin/sh\nexit 1\n"),
        NewProgram::Execs => Some("#!/bin/sh\nexec false\n"),
        NewProgram::Hangs => Some("#!/bin/sh\nexec sleep 600\n"),
    };
    let written = match script {
        // Other programs write the file: if this process had it open for writing, a child of another thread could
        // inherit the descriptor, and executing the file would fail (ETXTBSY).
        None => Command::new("cp").arg(built).arg(&path).status()?,
        Some(script) => {
            Command::new("sh").args(["-c", "printf %s \"$1\" > \"$2\"", "sh", script]).arg(&path).status()?
        }
    };
    ensure!(written.success(), "{} cannot be written", path.display());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(fs::rename(&path, folder.join(PROGRAM))?)
}

pub(crate) fn send_signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("process IDs are above zero")?;
    kill_process(pid, signal).with_context(|| format!("{signal:?} for process {pid:?}"))
}

/// Whether a process exists and is no zombie (proc_pid_stat(5)).
pub(crate) fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain any character.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The number of open descriptors, except for zones that the supervisor keeps, whose limited number changes.
pub(crate) fn fd_count(pid: u32) -> usize {
    let is_zones = |link: PathBuf| link.to_string_lossy().starts_with("/memfd:zones");
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter(|descriptor| !fs::read_link(descriptor.path()).is_ok_and(is_zones)).count()
}

/// The processes whose working directory is this folder.
pub fn processes_in(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder)).collect()
}
