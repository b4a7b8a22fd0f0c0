//! The logs of requests: opened and rotated here, and passed to server processes, since their account may not open them.

use super::{Requester, Supervisor};
use crate::log_rotation::{MODE, compress, rotate};
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_config::{Config, LogKind, LogOutput, LogTarget, Rotation, RotationTime};
use sanderling_ipc::{Command, FdKind, IncomingFds};
use sanderling_os::error::with_context;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two checks whether the log is to be rotated, or can be opened at last.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const SYSLOG_PATH: &str = "/dev/log";
const S_PER_DAY: u64 = 86_400;

/// The logs of requests.
#[derive(Debug)]
pub(super) struct LogFiles([LogFile; LogKind::ALL.len()]);

/// What is known of one log.
#[derive(Debug)]
struct LogFile {
    kind: LogKind,
    state: State,
    /// When the log is checked next; `None` if nothing can become due.
    next_check: Option<Instant>,
    /// Compresses an earlier file.
    compression: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    /// It is a file, which is rotated. Its first line, or its last one when it was opened, is of this day since 1970.
    Rotated { file: File, rotation: Rotation, first_day: u64 },
    /// It is another target, or rotated by another program.
    Open,
    /// It could not be opened, for this reason, or not be written.
    Failed { open_error: Option<String> },
}

impl LogFiles {
    pub(super) fn new() -> LogFiles {
        LogFiles(LogKind::ALL.map(|kind| LogFile { kind, state: State::None, next_check: None, compression: None }))
    }

    pub(super) fn next_check(&self) -> Option<Instant> {
        self.0.iter().filter_map(|log_file| log_file.next_check).min()
    }

    /// Has the target opened again soon: a syslog daemon that was restarted has another socket.
    pub(super) fn on_write_failure(&mut self, kind: LogKind) {
        let log_file = &mut self.0[kind as usize];
        if matches!(log_file.state, State::Open) {
            log_file.state = State::Failed { open_error: None };
            log_file.next_check.get_or_insert(Instant::now() + CHECK_INTERVAL);
        }
    }

    /// What the operator is told of a log that could not be opened.
    pub(super) fn problem(&self) -> Option<String> {
        self.0.iter().find_map(LogFile::problem)
    }

    /// What a server process with `config` needs: nothing of a log that cannot be opened.
    pub(super) fn descriptors(&mut self, config: &Config) -> IncomingFds {
        self.0.iter_mut().filter_map(|log_file| log_file.descriptor(config)).collect()
    }
}

impl LogFile {
    fn descriptor(&mut self, config: &Config) -> Option<(FdKind, OwnedFd)> {
        let known_problem = self.problem();
        self.state = State::None;
        let opened = config.log_output(self.kind).map(|output| self.open(output));
        if let Some(Err(error)) = &opened {
            self.state = State::Failed { open_error: Some(error_text(error)) };
        }
        if let Some(problem) = self.problem().filter(|problem| known_problem.as_ref() != Some(problem)) {
            log_error(&problem);
        }
        let is_due_later = matches!(self.state, State::Rotated { .. } | State::Failed { .. });
        self.next_check = is_due_later.then(|| Instant::now() + CHECK_INTERVAL);
        Some((FdKind::Log(self.kind), opened?.ok()?))
    }

    fn problem(&self) -> Option<String> {
        let (kind, State::Failed { open_error: Some(error) }) = (self.kind, &self.state) else { return None };
        Some(format!(
            "cannot open the {kind}: {error}; until it can be opened, lines go to the target before, or are dropped if \
             there is none"
        ))
    }

    fn open(&mut self, output: &LogOutput) -> io::Result<OwnedFd> {
        self.state = State::Open;
        match &output.target {
            LogTarget::Stdout => io::stdout().as_fd().try_clone_to_owned(),
            LogTarget::Syslog => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(SYSLOG_PATH).map_err(|error| with_context("connect", SYSLOG_PATH, &error))?;
                Ok(socket.into())
            }
            LogTarget::File(path) => {
                // Without blocking: the path may be a FIFO that nobody reads.
                let file = sanderling_os::file::open_for_append(path, MODE)
                    .map_err(|error| with_context("open", path.display(), &error))?;
                let metadata = file.metadata()?;
                if let (Some(rotation), true) = (output.rotation, metadata.is_file()) {
                    let first_day = day(metadata.modified()?);
                    self.state = State::Rotated { file: file.try_clone()?, rotation, first_day };
                }
                Ok(file.into())
            }
        }
    }

    /// Whether the log is to be opened now, since it was rotated, or could not be opened before.
    fn is_to_be_opened(&mut self, config: &Config) -> bool {
        let now = Instant::now();
        if self.next_check.is_none_or(|at| now < at) {
            return false;
        }
        self.next_check = Some(now + CHECK_INTERVAL);
        let (Some(rotation), Some(output)) = (self.is_due(), config.log_output(self.kind)) else {
            return matches!(self.state, State::Failed { .. });
        };
        let rotated = self.rotate(output, rotation);
        if let Err(error) = &rotated {
            let (kind, text) = (self.kind, error_text(error));
            log_error(&format!("cannot rotate the {kind}: {text}; it grows until the next reload"));
            self.state = State::Open;
        }
        rotated.is_ok()
    }

    /// When the log is to be rotated now: how.
    fn is_due(&mut self) -> Option<Rotation> {
        let State::Rotated { file, rotation, first_day } = &mut self.state else { return None };
        if self.compression.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return None;
        }
        let (length_bytes, today) = (file.metadata().ok()?.len(), day(SystemTime::now()));
        if length_bytes == 0 {
            // A day without a request makes no file.
            *first_day = today;
        }
        let is_due = match rotation.time {
            RotationTime::Size(bytes) => length_bytes >= bytes,
            RotationTime::Daily => *first_day < today,
        };
        is_due.then_some(*rotation)
    }

    fn rotate(&mut self, output: &LogOutput, rotation: Rotation) -> io::Result<()> {
        let LogTarget::File(path) = &output.target else { return Ok(()) };
        if let Some(before) = rotate(path, rotation.keep)? {
            let work = move || {
                if let Err(error) = compress(&before) {
                    log_error(&format!("cannot compress {}: {}", before.display(), error_text(&error)));
                }
            };
            self.compression = Some(thread::Builder::new().name("compression".into()).spawn(work)?);
        }
        Ok(())
    }
}

fn day(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / S_PER_DAY)
}

impl Supervisor {
    /// Rotates the logs for which that is due, and opens those that could not be opened before.
    pub(super) fn update_logs(&mut self) {
        if self.task.is_some() {
            return;
        }
        let config = Arc::clone(&self.active.config);
        for kind in LogKind::ALL {
            let log_file = &mut self.logs.0[kind as usize];
            if log_file.is_to_be_opened(&config)
                && let Some((kind, descriptor)) = log_file.descriptor(&config)
            {
                self.pass_log(&kind, &descriptor);
            }
        }
    }

    /// Opens the logs again, after another program has renamed them.
    pub(super) fn reopen_logs(&mut self, requester: Requester) {
        if LogKind::ALL.iter().all(|kind| self.active.config.log_output(*kind).is_none()) {
            return self.reply(requester, Err("there is no log of requests; set `access` or `queries` in [log]"));
        }
        self.pass_logs();
        match self.logs.problem() {
            Some(problem) => self.reply(requester, Err(&problem)),
            None => self.reply(requester, Ok("reopened\n")),
        }
    }

    /// Opens the logs, and passes them to all server processes: those that drain write their last lines to them.
    pub(super) fn pass_logs(&mut self) {
        for (kind, descriptor) in self.logs.descriptors(&self.active.config) {
            self.pass_log(&kind, &descriptor);
        }
    }

    fn pass_log(&mut self, kind: &FdKind, descriptor: &OwnedFd) {
        for process in &mut self.processes {
            match descriptor.try_clone() {
                Ok(descriptor) => process.send(Command::UpdateLogs, vec![(kind.clone(), descriptor)]),
                Err(error) => log_error(&format!("cannot pass on a log: {}", error_text(&error))),
            }
        }
    }
}
