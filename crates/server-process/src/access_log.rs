//! The access log of a server process: its target comes from the supervisor, its format from the configuration.

use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log;
use sanderling_config::{AccessLogTarget, Config};
use sanderling_server::{AccessLog, LogTarget, Server};
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
