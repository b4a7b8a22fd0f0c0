//! The access log: opened and rotated here, and passed to server processes, since their account may not open it.

use super::{Requester, Supervisor};
use crate::log_rotation::{MODE, compress, rotate};
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log;
use sanderling_config::{AccessLog, AccessLogTarget, Config, Rotation, RotationTime};
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

/// What is known of the access log.
#[derive(Debug, Default)]
pub(super) struct AccessLogFile {
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
    /// It could not be opened, or not be written.
    Failed,
}

impl AccessLogFile {
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.next_check
    }

    /// Has the target opened again soon: a syslog daemon that was restarted has another socket.
    pub(super) fn on_write_failure(&mut self) {
        if matches!(self.state, State::Open) {
            self.state = State::Failed;
            self.next_check.get_or_insert(Instant::now() + CHECK_INTERVAL);
        }
    }

    /// What a server process with `config` needs: nothing without a log, or if it cannot be opened.
    pub(super) fn descriptors(&mut self, config: &Config) -> IncomingFds {
        let had_failed = matches!(self.state, State::Failed);
        self.state = State::None;
        let opened = config.access_log.as_ref().map(|access_log| self.open(access_log));
        if let Some(Err(error)) = &opened {
            self.state = State::Failed;
            if !had_failed {
                let text = error_text(error);
                log(&format!("cannot open the access log: {text}; requests are not logged until it can be opened"));
            }
        }
        let is_due_later = matches!(self.state, State::Rotated { .. } | State::Failed);
        self.next_check = is_due_later.then(|| Instant::now() + CHECK_INTERVAL);
        opened.and_then(Result::ok).map(|descriptor| (FdKind::AccessLog, descriptor)).into_iter().collect()
    }

    fn open(&mut self, access_log: &AccessLog) -> io::Result<OwnedFd> {
        self.state = State::Open;
        match &access_log.target {
            AccessLogTarget::Stdout => io::stdout().as_fd().try_clone_to_owned(),
            AccessLogTarget::Syslog => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(SYSLOG_PATH).map_err(|error| with_context("connect", SYSLOG_PATH, &error))?;
                Ok(socket.into())
            }
            AccessLogTarget::File(path) => {
                // Without blocking: the path may be a FIFO that nobody reads.
                let file = sanderling_os::file::open_for_append(path, MODE)
                    .map_err(|error| with_context("open", path.display(), &error))?;
                let metadata = file.metadata()?;
                if let (Some(rotation), true) = (access_log.rotation, metadata.is_file()) {
                    let first_day = day(metadata.modified()?);
                    self.state = State::Rotated { file: file.try_clone()?, rotation, first_day };
                }
                Ok(file.into())
            }
        }
    }

    /// Whether the log is to be rotated now.
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

    fn rotate(&mut self, access_log: &AccessLog, rotation: Rotation) -> io::Result<()> {
        let AccessLogTarget::File(path) = &access_log.target else { return Ok(()) };
        if let Some(before) = rotate(path, rotation.keep)? {
            let work = move || {
                if let Err(error) = compress(&before) {
                    log(&format!("cannot compress {}: {}", before.display(), error_text(&error)));
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
    /// Rotates the log if that is due, and opens it if it could not be opened before.
    pub(super) fn update_access_log(&mut self) {
        let now = Instant::now();
        if self.task.is_some() || self.access_log.next_check.is_none_or(|at| now < at) {
            return;
        }
        self.access_log.next_check = Some(now + CHECK_INTERVAL);
        let config = Arc::clone(&self.active.config);
        if let (Some(rotation), Some(access_log)) = (self.access_log.is_due(), &config.access_log) {
            if let Err(error) = self.access_log.rotate(access_log, rotation) {
                log(&format!("cannot rotate the access log: {}; it grows until the next reload", error_text(&error)));
                self.access_log.state = State::Open;
                return;
            }
        } else if !matches!(self.access_log.state, State::Failed) {
            return;
        }
        self.pass_access_log();
    }

    /// Opens the log again, after another program has renamed it.
    pub(super) fn reopen_access_log(&mut self, requester: Requester) {
        match self.active.config.access_log {
            None => self.reply(requester, Err("there is no access log; set `access` in [log]")),
            Some(_) => {
                self.pass_access_log();
                match self.access_log.state {
                    State::Failed => {
                        self.reply(requester, Err("cannot open the access log; the server's log says why"));
                    }
                    _ => self.reply(requester, Ok("reopened\n")),
                }
            }
        }
    }

    /// Opens the log, and passes it to all server processes: those that drain write their last lines to it.
    pub(super) fn pass_access_log(&mut self) {
        let config = &self.active.config;
        for (kind, descriptor) in self.access_log.descriptors(config) {
            for process in &mut self.processes {
                match descriptor.try_clone() {
                    Ok(descriptor) => process.send(Command::UpdateAccessLog, vec![(kind.clone(), descriptor)]),
                    Err(error) => log(&format!("cannot pass on the access log: {}", error_text(&error))),
                }
            }
        }
    }
}
