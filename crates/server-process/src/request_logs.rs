//! The logs of requests of a server process, and dnstap: their targets come from the supervisor, their formats from the
//! configuration.

use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_config::{Config, LogKind, LogTarget as Target};
use sanderling_server::{Dnstap, FrameStream, LogStatus, LogTarget, RequestLog, Server, Snapshot};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

/// Configures the request logs of `snapshot` according to `config`.
pub(crate) fn set_logs(config: &Config, snapshot: &mut Snapshot) {
    let access_log = config.access_log.as_ref();
    let query_log = config.query_log.as_ref();
    snapshot.access_log = access_log.map(|log| RequestLog { format: log.format.clone(), one_of: log.one_of });
    snapshot.query_log = query_log.map(|log| RequestLog { format: log.format.clone(), one_of: log.one_of });
    snapshot.dnstap = config.dnstap.as_ref().map(|dnstap| {
        let version = concat!("sanderling ", env!("CARGO_PKG_VERSION")).to_owned();
        let (queries, replies, identity) = (dnstap.queries, dnstap.replies, dnstap.identity.clone());
        Arc::new(Dnstap { queries, replies, identity, version })
    });
}

/// Writes the logs to the targets that came from the supervisor. A log whose target was not sent keeps its current
/// target.
pub(crate) fn set_targets(server: &Server, config: &Config, descriptors: Vec<(LogKind, OwnedFd)>) {
    for (kind, descriptor) in descriptors {
        let Some(output) = config.log_output(kind) else { continue };
        let target = match output.target {
            Target::Syslog => LogTarget::Syslog(UnixDatagram::from(descriptor)),
            Target::Dnstap(_) => LogTarget::Dnstap(FrameStream::new(descriptor)),
            Target::File(_) | Target::Stdout | Target::Stderr => LogTarget::Stream(File::from(descriptor)),
        };
        if let Err(error) = server.set_log_target(kind, target) {
            log_error(&format!("cannot write the {kind}: {}", error_text(&error)));
        }
    }
}

/// The state of messages about lines that could not be written.
#[derive(Debug)]
pub(crate) struct LostLines {
    kind: LogKind,
    error: Option<String>,
    /// The count when the last line could be written.
    dropped_before: u64,
}

impl LostLines {
    pub(crate) fn new(kind: LogKind) -> LostLines {
        LostLines { kind, error: None, dropped_before: 0 }
    }

    /// The message if lines begin to be lost, are lost for another reason, or are written again.
    pub(crate) fn line(&mut self, status: &LogStatus) -> Option<String> {
        let kind = self.kind;
        let message = match (&status.error, &self.error) {
            (Some(error), known) if known.as_ref() != Some(error) => {
                Some(format!("cannot write the {kind}: {error}; its {} are dropped", kind.records()))
            }
            (None, Some(_)) => {
                let count = status.dropped_count - self.dropped_before;
                Some(format!("the {kind} is writable again; {count} of its {} were dropped", kind.records()))
            }
            _ => None,
        };
        self.error.clone_from(&status.error);
        if self.error.is_none() {
            self.dropped_before = status.dropped_count;
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_of_lost_lines_are_reported_once() {
        let mut lost = LostLines::new(LogKind::Access);
        let mut check = |error: Option<&str>, dropped_count, expected: Option<&str>| {
            let status = LogStatus { dropped_count, written_count: 0, error: error.map(str::to_owned) };
            assert_eq!(lost.line(&status).as_deref(), expected);
        };
        check(None, 7, None);
        check(Some("full"), 9, Some("cannot write the access log: full; its lines are dropped"));
        check(Some("full"), 19, None);
        check(Some("other"), 20, Some("cannot write the access log: other; its lines are dropped"));
        check(None, 22, Some("the access log is writable again; 15 of its lines were dropped"));
        check(None, 22, None);
    }
}
