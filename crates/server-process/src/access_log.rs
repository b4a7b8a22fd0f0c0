//! The access log of a server process: its target comes from the supervisor, its format from the configuration.

use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log;
use sanderling_config::{AccessLogTarget, Config};
use sanderling_server::{AccessLog, LogStatus, LogTarget, Server};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

/// What the workers log, as `config` says.
pub(crate) fn access_log(config: &Config) -> Option<AccessLog> {
    let access_log = config.access_log.as_ref()?;
    Some(AccessLog { format: access_log.format.clone(), one_of: access_log.one_of })
}

/// Writes the log to the target that came from the supervisor, if there is one, and keeps the current one otherwise.
pub(crate) fn set_target(server: &Server, config: &Config, descriptor: Option<OwnedFd>) {
    let (Some(access_log), Some(descriptor)) = (&config.access_log, descriptor) else { return };
    let target = match access_log.target {
        AccessLogTarget::Syslog => LogTarget::Syslog(UnixDatagram::from(descriptor)),
        AccessLogTarget::File(_) | AccessLogTarget::Stdout => LogTarget::Stream(File::from(descriptor)),
    };
    if let Err(error) = server.set_access_log_target(target) {
        log(&format!("cannot write the access log: {}", error_text(&error)));
    }
}

/// What the operator was told of lines that could not be written.
#[derive(Debug, Default)]
pub(crate) struct LostLines {
    error: Option<String>,
    /// The count when the last line could be written.
    dropped_lines_before: u64,
}

impl LostLines {
    /// The message if lines begin to be lost, are lost for another reason, or are written again.
    pub(crate) fn line(&mut self, status: &LogStatus) -> Option<String> {
        let message = match (&status.error, &self.error) {
            (Some(error), known) if known.as_ref() != Some(error) => {
                Some(format!("cannot write the access log: {error}; its lines are dropped"))
            }
            (None, Some(_)) => {
                let count = status.dropped_lines - self.dropped_lines_before;
                Some(format!("the access log can be written again; {count} of its lines were dropped"))
            }
            _ => None,
        };
        self.error.clone_from(&status.error);
        if self.error.is_none() {
            self.dropped_lines_before = status.dropped_lines;
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_of_lost_lines_are_reported_once() {
        let mut lost = LostLines::default();
        let mut check = |error: Option<&str>, dropped_lines, expected: Option<&str>| {
            let status = LogStatus { dropped_lines, written_lines: 0, error: error.map(str::to_owned) };
            assert_eq!(lost.line(&status).as_deref(), expected);
        };
        check(None, 7, None);
        check(Some("full"), 9, Some("cannot write the access log: full; its lines are dropped"));
        check(Some("full"), 19, None);
        check(Some("other"), 20, Some("cannot write the access log: other; its lines are dropped"));
        check(None, 22, Some("the access log can be written again; 15 of its lines were dropped"));
        check(None, 22, None);
    }
}
