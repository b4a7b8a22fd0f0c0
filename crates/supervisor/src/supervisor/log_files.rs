//! The logs of requests: opened and rotated here, and passed to server processes, since their account may not open
//! them.

use super::{Requester, Supervisor};
use crate::log_rotation::{MODE, compress, rotate};
use sanderling_config::diagnostic::{Diagnostic, error_text};
use sanderling_config::log::{log, log_error, log_warning};
use sanderling_config::{Config, LogKind, LogOutput, LogTarget, Rotation, RotationTime};
use sanderling_ipc::{Command, FdKind, IncomingFds};
use sanderling_os::error::with_context;
use sanderling_os::log_directory::LogDirectory;
use sanderling_os::socket;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two checks whether the log was removed, must be rotated, or can be opened again.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const SYSLOG_PATH: &str = "/dev/log";
const S_PER_DAY: u64 = 86_400;

/// The logs of requests.
#[derive(Debug)]
pub(super) struct LogFiles([LogFile; LogKind::ALL.len()]);

/// The state of one log.
#[derive(Debug)]
struct LogFile {
    kind: LogKind,
    state: State,
    /// The time of the next check; `None` if nothing can become due.
    next_check: Option<Instant>,
    /// Compresses an earlier file.
    compression: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    /// The target is a regular file. The first line, or the last line when the file was opened, was written on this day
    /// since 1970. `rotation` is `None` if another program rotates the log, or a rotation has failed.
    File { file: File, rotation: Option<Rotation>, first_day: u64 },
    /// The target is not a regular file.
    Open,
    /// The target could not be written or opened, for the reason in `problem`. `was_removed`: lines go to a removed
    /// file.
    Failed { problem: Option<String>, was_removed: bool },
}

impl LogFiles {
    pub(super) fn new() -> LogFiles {
        LogFiles(LogKind::ALL.map(|kind| LogFile { kind, state: State::None, next_check: None, compression: None }))
    }

    pub(super) fn next_check(&self) -> Option<Instant> {
        self.0.iter().filter_map(|log_file| log_file.next_check).min()
    }

    /// Lets the target be opened again soon: a syslog daemon that was restarted has another socket.
    pub(super) fn on_write_failure(&mut self, kind: LogKind) {
        let log_file = &mut self.0[kind as usize];
        if matches!(log_file.state, State::Open | State::File { rotation: None, .. }) {
            log_file.state = State::Failed { problem: None, was_removed: false };
            log_file.next_check.get_or_insert(Instant::now() + CHECK_INTERVAL);
        }
    }

    /// The message about a log that could not be opened. A program that reads dnstap may be absent.
    pub(super) fn problem(&self) -> Option<String> {
        self.0.iter().filter(|log_file| log_file.kind != LogKind::Dnstap).find_map(LogFile::problem)
    }

    /// The problems of all logs, as in [`LogFiles::problem`].
    pub(super) fn problems(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(LogFile::problem)
    }

    /// The logs for a server process with `config`: none for a log that cannot be opened.
    pub(super) fn descriptors(&mut self, config: &Config) -> IncomingFds {
        self.0.iter_mut().filter_map(|log_file| log_file.descriptor(config)).collect()
    }
}

/// As [`socket::connect_to_path`], with an error for the operator.
fn connect_to_path(path: &Path) -> io::Result<OwnedFd> {
    socket::connect_to_path(path).map_err(|error| with_context("connect", path.display(), &error))
}

impl LogFile {
    fn descriptor(&mut self, config: &Config) -> Option<(FdKind, OwnedFd)> {
        let (known_problem, was_removed) = (self.problem(), self.was_removed());
        self.state = State::None;
        let output = config.log_output(self.kind)?;
        let opened = self.open(output);
        match &opened {
            Ok(_) if known_problem.is_some() && self.kind == LogKind::Dnstap => {
                log(&format!("the {} has a reader now", self.kind));
            }
            Ok(_) if was_removed => log_warning(&format!("the {} was removed; it is created again", self.kind)),
            Ok(_) => {}
            Err(error) => {
                let problem = open_problem(self.kind, output, error, was_removed);
                if known_problem.as_ref() != Some(&problem) {
                    log_error(&problem);
                }
                self.state = State::Failed { problem: Some(problem), was_removed };
            }
        }
        let is_due_later = matches!(self.state, State::File { .. } | State::Failed { .. });
        self.next_check = is_due_later.then(|| Instant::now() + CHECK_INTERVAL);
        Some((FdKind::Log(self.kind), opened.ok()?))
    }

    fn problem(&self) -> Option<String> {
        match &self.state {
            State::Failed { problem, .. } => problem.clone(),
            State::None | State::File { .. } | State::Open => None,
        }
    }

    /// Whether the file was removed, perhaps with its directory. A renamed file still exists.
    fn was_removed(&self) -> bool {
        match &self.state {
            State::File { file, .. } => file.metadata().is_ok_and(|metadata| metadata.nlink() == 0),
            State::Failed { was_removed, .. } => *was_removed,
            State::None | State::Open => false,
        }
    }

    fn open(&mut self, output: &LogOutput) -> io::Result<OwnedFd> {
        self.state = State::Open;
        match &output.target {
            LogTarget::Stdout => io::stdout().as_fd().try_clone_to_owned(),
            LogTarget::Stderr => io::stderr().as_fd().try_clone_to_owned(),
            LogTarget::Syslog => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(SYSLOG_PATH).map_err(|error| with_context("connect", SYSLOG_PATH, &error))?;
                Ok(socket.into())
            }
            LogTarget::Dnstap(path) => connect_to_path(path),
            LogTarget::File(path) => {
                // Opened without blocking: the path may be a FIFO without a reader.
                let (directory, name) = LogDirectory::of(path)?;
                let opened = directory.open_for_append(name, MODE);
                let file = opened.map_err(|error| with_context("open", path.display(), &error))?;
                let metadata = file.metadata()?;
                if metadata.is_file() {
                    let first_day = day(metadata.modified()?);
                    self.state = State::File { file: file.try_clone()?, rotation: output.rotation, first_day };
                }
                Ok(file.into())
            }
        }
    }

    /// Whether the log must be opened now, because it was removed or rotated, or could not be opened before.
    fn is_to_be_opened(&mut self, config: &Config) -> bool {
        let now = Instant::now();
        if self.next_check.is_none_or(|at| now < at) {
            return false;
        }
        self.next_check = Some(now + CHECK_INTERVAL);
        if matches!(self.state, State::Failed { .. }) || self.was_removed() {
            return true;
        }
        let (Some(rotation), Some(output)) = (self.is_due(), config.log_output(self.kind)) else { return false };
        let rotated = self.rotate(output, rotation);
        if let Err(error) = &rotated {
            let (kind, text) = (self.kind, error_text(error));
            log_error(&format!("cannot rotate the {kind}: {text}; it grows until the next reload"));
            if let State::File { rotation, .. } = &mut self.state {
                *rotation = None;
            }
        }
        rotated.is_ok()
    }

    /// The rotation that is due now, if any.
    fn is_due(&mut self) -> Option<Rotation> {
        let State::File { file, rotation: Some(rotation), first_day } = &mut self.state else { return None };
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
        let (directory, name) = LogDirectory::of(path)?;
        if let Some(before) = rotate(&directory, name, rotation.keep)? {
            let shown = path.with_file_name(&before);
            let work = move || {
                if let Err(error) = compress(&directory, &before) {
                    log_error(&format!("cannot compress {}: {}", shown.display(), error_text(&error)));
                }
            };
            self.compression = Some(thread::Builder::new().name("compression".into()).spawn(work)?);
        }
        Ok(())
    }
}

/// The message about a log that cannot be opened.
fn open_problem(kind: LogKind, output: &LogOutput, error: &io::Error, was_removed: bool) -> String {
    let mut text = match was_removed {
        true => format!("the {kind} was removed, and cannot be created again: {}", error_text(error)),
        false => format!("cannot open the {kind}: {}", error_text(error)),
    };
    // The supervisor has its own rights here.
    if let Some(cause) = output.path_problem(None).filter(Diagnostic::is_error) {
        text += &format!("; {}", cause.problem);
    }
    let lines = match output.target {
        LogTarget::Dnstap(_) => "are dropped",
        _ if was_removed => "are lost",
        _ => "go to the previous target, or are dropped if there is none",
    };
    format!("{text}; until it can be opened, {} {lines}", kind.records())
}

fn day(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / S_PER_DAY)
}

impl Supervisor {
    /// Rotates the logs that are due, and opens logs that could not be opened before.
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
                self.pass_log(&kind, descriptor);
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

    /// Opens the logs, and passes them to all server processes, including draining processes, which write their last
    /// lines.
    pub(super) fn pass_logs(&mut self) {
        for (kind, descriptor) in self.logs.descriptors(&self.active.config) {
            self.pass_log(&kind, descriptor);
        }
    }

    fn pass_log(&mut self, kind: &FdKind, descriptor: OwnedFd) {
        let mut opened = Some(descriptor);
        let dnstap = self.active.config.dnstap.as_ref().filter(|_| *kind == FdKind::Log(LogKind::Dnstap));
        for process in &mut self.processes {
            let descriptor = match (dnstap.map(|dnstap| &dnstap.output.target), opened.take()) {
                (Some(LogTarget::Dnstap(path)), None) => connect_to_path(path),
                // Frames of two processes must not be mixed: the next one gets its own connection.
                (Some(_), Some(descriptor)) => Ok(descriptor),
                (None, Some(descriptor)) => descriptor.try_clone().inspect(|_| opened = Some(descriptor)),
                (_, None) => return,
            };
            match descriptor {
                Ok(descriptor) => process.send(Command::UpdateLogs, vec![(kind.clone(), descriptor)]),
                Err(error) => log_error(&format!("cannot pass on a log: {}", error_text(&error))),
            }
        }
    }
}
