//! strace, attached to a process of the service.

use crate::extent::becomes_true;
use crate::service::{LIMIT, is_running, send_signal};
use anyhow::{Context, ensure};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Time after which a process makes few calls.
const QUIET_TIME: Duration = Duration::from_millis(50);

/// Maximum time for strace to detach.
const DETACH_LIMIT: Duration = Duration::from_secs(2);

/// A strace that runs. strace is detached when this value is dropped.
pub(crate) struct Strace {
    child: Child,
    folder: TempDir,
}

impl Strace {
    /// Attaches to a process and, with `-f` among the arguments, to its threads and children.
    pub(crate) fn attach(pid: u32, arguments: &[String]) -> anyhow::Result<Strace> {
        let folder = TempDir::with_prefix("strace-")?;
        let errors = folder.path().join("errors");
        let mut command = Command::new("strace");
        command.args(arguments).arg("-o").arg(trace_path(folder.path())).args(["-p", &pid.to_string()]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&errors)?);
        let mut strace = Strace { child: command.spawn().context("strace")?, folder };
        let mut text = String::new();
        becomes_true(LIMIT, || {
            text = fs::read_to_string(&errors).unwrap_or_default();
            text.contains(" attached") || !matches!(strace.child.try_wait(), Ok(None))
        });
        ensure!(text.contains(" attached"), "strace does not attach to process {pid}: {}", text.trim());
        Ok(strace)
    }

    /// Attaches to the next process that the supervisor starts, before its first instruction. The process is stopped by
    /// a first strace, since two cannot trace it at the same time.
    pub(crate) fn attach_to_next_child(supervisor_pid: u32, arguments: &[String]) -> anyhow::Result<Strace> {
        let stop = ["-f", "-e", "trace=execve", "-e", "inject=execve:signal=SIGSTOP"].map(str::to_owned);
        let stopper = Strace::attach(supervisor_pid, &stop)?;
        let mut pid = None;
        becomes_true(LIMIT, || {
            let trace = stopper.trace();
            let stopped = trace.lines().find(|line| line.ends_with("--- stopped by SIGSTOP ---"));
            pid = stopped.and_then(|line| line.split(' ').next()?.parse().ok());
            pid.is_some()
        });
        let pid = pid.context("the supervisor has started no process")?;
        drop(stopper);
        let strace = Strace::attach(pid, arguments);
        // The process may already have exited, by the fault or with the first strace: that is judged like any other
        // exit.
        let _ = send_signal(pid, Signal::CONT);
        strace
    }

    /// The output of strace so far.
    pub(crate) fn trace(&self) -> String {
        fs::read_to_string(trace_path(self.folder.path())).unwrap_or_default()
    }

    /// Detaches strace; returns its output. A call that is failing at this moment would get another error, from the
    /// sandbox, so the calls that the end of the scenario causes are awaited.
    pub(crate) fn finish(mut self) -> String {
        thread::sleep(QUIET_TIME);
        self.detach();
        self.trace()
    }

    fn detach(&mut self) {
        let _ = send_signal(self.child.id(), Signal::TERM);
        // strace may wait forever for a process whose threads have exited. Killing strace detaches it as well.
        if !becomes_true(DETACH_LIMIT, || !matches!(self.child.try_wait(), Ok(None))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        self.detach();
    }
}

/// A program that is started by strace, as the child of the process that starts strace.
pub(crate) struct Launcher {
    folder: TempDir,
    /// The words before the program.
    pub(crate) words: Vec<String>,
}

impl Launcher {
    pub(crate) fn new(arguments: &[String]) -> anyhow::Result<Launcher> {
        let folder = TempDir::with_prefix("strace-")?;
        // A strace that starts a program ignores SIGTERM unless told otherwise.
        let mut words = ["strace", "-D", "-I", "waiting"].map(str::to_owned).to_vec();
        words.extend(arguments.iter().filter(|word| *word != "-f").cloned());
        words.extend(["-o".to_owned(), trace_path(folder.path()).to_string_lossy().into_owned()]);
        Ok(Launcher { folder, words })
    }

    /// Detaches strace from the program, which may have exited; returns strace's output.
    pub(crate) fn finish(self, pid: u32) -> String {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")?.trim().parse::<u32>().ok());
        if let Some(tracer) = tracer.filter(|tracer| *tracer != 0) {
            let _ = send_signal(tracer, Signal::TERM);
            becomes_true(LIMIT, || !is_running(tracer));
        }
        fs::read_to_string(trace_path(self.folder.path())).unwrap_or_default()
    }
}

fn trace_path(folder: &Path) -> PathBuf {
    folder.join("trace")
}
