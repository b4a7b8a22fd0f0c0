//! The commands `on_renew` of domains: run one after the other when the agent has stored another certificate, each in a
//! process of its own that waits for it (`internal-on-renew`). They have the rights of this process.

use super::Supervisor;
use crate::program::{self, RUNNING};
use sanderling_config::CertificateFiles;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_os::process::ProcessHandle;
use sanderling_os::signals;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// What `ps` shows of the process before its arguments.
const PROCESS_NAME: &str = "sanderling: on_renew";

/// The commands that wait, by their domains, and the process of the one that runs.
#[derive(Debug, Default)]
pub(super) struct RenewalCommands {
    waiting: VecDeque<String>,
    running: Option<ProcessHandle>,
}

impl RenewalCommands {
    /// The descriptor to poll.
    pub(super) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.running.as_ref().map(AsFd::as_fd)
    }
}

impl Supervisor {
    /// The agent has stored a certificate of this domain: its command is run, if it has one.
    pub(super) fn add_renewal_command(&mut self, domain: String) {
        let has_command = self.renewed(&domain).is_some_and(|files| !files.on_renew.is_empty());
        let waiting = &mut self.renewal_commands.waiting;
        // A command that waits is for this certificate, too.
        if has_command && !waiting.contains(&domain) {
            waiting.push_back(domain);
        }
    }

    /// Reaps the process that has ended, and starts the next one.
    pub(super) fn update_renewal_commands(&mut self) {
        let commands = &mut self.renewal_commands;
        // The process reports how it has ended.
        commands.running.take_if(|process| !matches!(process.try_wait(), Ok(None)));
        while self.renewal_commands.running.is_none()
            && let Some(domain) = self.renewal_commands.waiting.pop_front()
        {
            match self.start_renewal_command(&domain) {
                Ok(process) => self.renewal_commands.running = process,
                Err(error) => log_error(&format!("cannot run `on_renew` of {domain}: {}", error_text(&error))),
            }
        }
    }

    /// `None` if the configuration does not have it any more.
    fn start_renewal_command(&self, domain: &str) -> io::Result<Option<ProcessHandle>> {
        let config = &self.active.config;
        let (Some(files), Some(state)) = (self.renewed(domain), self.state_path(config)) else { return Ok(None) };
        let state = std::path::absolute(state)?;
        let mut arguments = vec![OsString::from(domain)];
        arguments.extend([&files.chain, &files.key].map(|path| state.join(path).into_os_string()));
        arguments.push(config.limits.on_renew_timeout_ms.to_string().into());
        arguments.push("--".into());
        arguments.extend(files.on_renew.iter().map(OsString::from));
        let arguments = program::arguments("internal-on-renew", &[], arguments);
        signals::block_all()?;
        let process = sanderling_os::process::spawn(Path::new(RUNNING), PROCESS_NAME, &arguments, &[]);
        signals::unblock_all()?;
        process.map(Some)
    }

    fn renewed(&self, domain: &str) -> Option<&CertificateFiles> {
        let is_its = |files: &&CertificateFiles| files.names.first().is_some_and(|name| name.as_str() == domain);
        self.active.config.automatic_certificates().find(is_its)
    }
}
