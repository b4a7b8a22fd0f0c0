//! The logs of requests: their targets and formats.

use crate::diagnostic::{Diagnostic, ValueLocation};
use crate::paths::{check_log_file, log_directory_warning};
use sanderling_log_format::{Format, HttpVariable, QueryVariable};
use std::path::PathBuf;
use std::sync::Arc;

/// The log of HTTP requests.
pub type AccessLog = RequestLog<HttpVariable>;
/// The log of DNS queries.
pub type QueryLog = RequestLog<QueryVariable>;

/// A log of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLog<V> {
    /// The target of the log's lines.
    pub output: LogOutput,
    /// The content of a line.
    pub format: Arc<Format<V>>,
    /// One in this many requests is logged.
    pub one_of: u32,
}

/// Queries and replies of DNS that are passed on as dnstap messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dnstap {
    /// Where they go: [`LogTarget::Dnstap`].
    pub output: LogOutput,
    /// Whether queries are passed on.
    pub queries: bool,
    /// Whether replies are.
    pub replies: bool,
    /// The name of the server in each message, if it has one.
    pub identity: Option<String>,
}

/// The target of a log's lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOutput {
    /// The file or another target.
    pub target: LogTarget,
    /// The position of the target in the configuration.
    pub location: ValueLocation,
    /// The rotation of the file; `None` if another program rotates it.
    pub rotation: Option<Rotation>,
}

impl LogOutput {
    /// The reason why the supervisor cannot open it, if it runs as this user; or a warning that users other than this
    /// user and the server's `account` could replace it.
    pub fn path_problem(&self, account: Option<u32>) -> Option<Diagnostic> {
        let LogTarget::File(path) = &self.target else { return None };
        match check_log_file(path) {
            Err(problem) => Some(Diagnostic::error(self.location.clone(), problem)),
            Ok(()) => Some(Diagnostic::warning(self.location.clone(), log_directory_warning(path, account)?)),
        }
    }
}

/// The target of the lines of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// The file at this path, which is created if it does not exist.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// This machine's syslog daemon, which journald replaces.
    Syslog,
    /// A program that listens at the Unix socket with this path and reads dnstap messages.
    Dnstap(PathBuf),
}

/// How the supervisor rotates a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The condition for starting a new file.
    pub time: RotationTime,
    /// Earlier files that are kept, compressed.
    pub keep: u32,
}

/// The condition for starting a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationTime {
    /// After midnight, UTC.
    Daily,
    /// When the file has this many bytes.
    Size(u64),
}
