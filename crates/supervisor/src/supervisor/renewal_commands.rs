//! The commands `on_renew` of domains: run one after another when the agent has stored another certificate, each in a
//! separate process that waits for it (`internal-on-renew`). The commands have this process's privileges, so a message
//! from the agent is not enough to start one: the chain must have changed, and a command runs at most once in
//! `on_renew_interval`.

use super::Supervisor;
use crate::program::{self, RUNNING};
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_config::{CertificateFiles, read_issued};
use sanderling_os::process::ProcessHandle;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The name of the process in `ps`, before its arguments.
const PROCESS_NAME: &str = "sanderling: on_renew";

/// The waiting commands, by domain, and the process of the running command.
#[derive(Debug, Default)]
pub(super) struct RenewalCommands {
    waiting: VecDeque<String>,
    running: Option<ProcessHandle>,
    /// The certificates that commands were run for, by domain; `None` until the certificates at startup were read.
    known: Option<HashMap<String, Known>>,
}

/// The certificate that a domain's command was last run for, or that existed at startup.
#[derive(Debug, Default)]
struct Known {
    chain: Vec<u8>,
    /// When the command was run.
    run_at: Option<Instant>,
}

impl RenewalCommands {
    /// The descriptor to poll.
    pub(super) fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.running.as_ref().map(AsFd::as_fd)
    }

    /// The time when the next command may run, not before `now`.
    pub(super) fn next_start(&self, now: Instant, interval: Duration) -> Option<Instant> {
        let is_idle = self.running.is_none();
        self.waiting.iter().filter(|_| is_idle).map(|domain| self.start_at(domain, now, interval)).min()
    }

    fn start_at(&self, domain: &str, now: Instant, interval: Duration) -> Instant {
        let run_at = self.known.as_ref().and_then(|known| known.get(domain)?.run_at);
        run_at.map_or(now, |at| now.max(at + interval))
    }

    /// Schedules this domain's command; a waiting command already covers this certificate.
    fn add(&mut self, domain: String) {
        if !self.waiting.contains(&domain) {
            self.waiting.push_back(domain);
        }
    }

    /// The next domain whose command may run at `now`, unless a command is running.
    fn take_due(&mut self, now: Instant, interval: Duration) -> Option<String> {
        let is_due = |domain: &String| self.running.is_none() && self.start_at(domain, now, interval) <= now;
        let index = self.waiting.iter().position(is_due)?;
        self.waiting.remove(index)
    }

    /// Whether the domain's command was run for this chain, or the chain existed at startup.
    fn is_known(&self, domain: &str, chain: &[u8]) -> bool {
        self.known.as_ref().and_then(|known| known.get(domain)).is_some_and(|known| known.chain == chain)
    }

    /// The command was run for this chain.
    fn set_run(&mut self, domain: &str, chain: Vec<u8>, run_at: Instant) {
        self.known.get_or_insert_default().insert(domain.to_owned(), Known { chain, run_at: Some(run_at) });
    }

    /// The command could not be run for the current certificate.
    fn set_failed(&mut self, domain: String, failed_at: Instant) {
        self.known.get_or_insert_default().entry(domain).or_default().run_at = Some(failed_at);
    }
}

impl Supervisor {
    /// Handles that the agent has stored a certificate of this domain, whose command, if any, is then run.
    pub(super) fn add_renewal_command(&mut self, domain: String) {
        let has_command = self.renewed(&domain).is_some_and(|files| !files.on_renew.is_empty());
        if has_command {
            self.renewal_commands.add(domain);
        }
    }

    /// Reaps the process that has ended, and starts the next one.
    pub(super) fn update_renewal_commands(&mut self) {
        self.read_known_certificates();
        let commands = &mut self.renewal_commands;
        // The process itself reports the result.
        commands.running.take_if(|process| !matches!(process.try_wait(), Ok(None)));
        let (now, interval) = (Instant::now(), self.renewal_interval());
        while let Some(domain) = self.renewal_commands.take_due(now, interval) {
            match self.start_renewal_command(&domain) {
                Ok(process) => self.renewal_commands.running = process,
                Err(error) => {
                    log_error(&format!("cannot run `on_renew` of {domain}: {}", error_text(&error)));
                    // The agent may report another certificate at any rate.
                    self.renewal_commands.set_failed(domain, now);
                }
            }
        }
    }

    /// The shortest time between two runs of a domain's command.
    pub(super) fn renewal_interval(&self) -> Duration {
        Duration::from_millis(self.active.config.limits.on_renew_interval_ms)
    }

    /// Reads the existing certificates before any agent runs.
    fn read_known_certificates(&mut self) {
        if self.renewal_commands.known.is_some() {
            return;
        }
        let with_command = self.active.config.automatic_certificates().filter(|files| !files.on_renew.is_empty());
        let known = with_command.filter_map(|files| {
            let domain = files.names.first()?.as_str().to_owned();
            Some((domain, Known { chain: self.issued_chain(files).ok()?, run_at: None }))
        });
        self.renewal_commands.known = Some(known.collect());
    }

    /// The chain of a certificate that the agent has stored.
    fn issued_chain(&self, files: &CertificateFiles) -> io::Result<Vec<u8>> {
        let state = self.state_path(&self.active.config).ok_or(io::ErrorKind::NotFound)?;
        read_issued(&state, files).map(|(chain, _)| chain.to_vec())
    }

    /// `None` if the domain was removed from the configuration, or the certificate has not changed.
    fn start_renewal_command(&mut self, domain: &str) -> io::Result<Option<ProcessHandle>> {
        let config = &self.active.config;
        let (Some(files), Some(state)) = (self.renewed(domain), self.state_path(config)) else { return Ok(None) };
        let chain = self.issued_chain(files)?;
        let state = std::path::absolute(state)?;
        if self.renewal_commands.is_known(domain, &chain) {
            return Ok(None);
        }
        let mut arguments = vec![OsString::from(domain), state.into_os_string()];
        arguments.push(config.limits.on_renew_timeout_ms.to_string().into());
        arguments.push("--".into());
        arguments.extend(files.on_renew.iter().map(OsString::from));
        let arguments = program::arguments("internal-on-renew", &[], arguments);
        let process = program::spawn(Path::new(RUNNING), PROCESS_NAME, &arguments, &[])?;
        self.renewal_commands.set_run(domain, chain, Instant::now());
        Ok(Some(process))
    }

    fn renewed(&self, domain: &str) -> Option<&CertificateFiles> {
        let is_its = |files: &&CertificateFiles| files.names.first().is_some_and(|name| name.as_str() == domain);
        self.active.config.automatic_certificates().find(is_its)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(60);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn command_is_run_for_another_chain_alone() {
        let (mut commands, now) = (RenewalCommands::default(), Instant::now());
        assert!(!commands.is_known("a.test", b"first"));
        commands.set_run("a.test", b"first".to_vec(), now);
        assert!(commands.is_known("a.test", b"first"));
        assert!(!commands.is_known("a.test", b"second") && !commands.is_known("b.test", b"first"));
        // The command is retried for the chain for which it could not be run.
        commands.set_failed("a.test".to_owned(), now);
        assert!(!commands.is_known("a.test", b"second"));
    }

    #[test]
    fn command_of_a_domain_is_run_once_in_the_interval() {
        let (mut commands, now) = (RenewalCommands::default(), Instant::now());
        for domain in ["a.test", "a.test", "b.test"] {
            commands.add(domain.to_owned());
        }
        assert_eq!(commands.take_due(now, INTERVAL).as_deref(), Some("a.test"));
        commands.set_run("a.test", b"first".to_vec(), now);
        commands.add("a.test".to_owned());
        assert_eq!(commands.take_due(now, INTERVAL).as_deref(), Some("b.test"), "others do not wait");
        commands.set_failed("b.test".to_owned(), now);
        commands.add("b.test".to_owned());
        for at in [now, now + INTERVAL - SECOND] {
            assert_eq!(commands.take_due(at, INTERVAL), None);
            assert_eq!(commands.next_start(at, INTERVAL), Some(now + INTERVAL));
        }
        assert_eq!(commands.take_due(now + INTERVAL, INTERVAL).as_deref(), Some("a.test"));
        assert_eq!(commands.take_due(now + INTERVAL, INTERVAL).as_deref(), Some("b.test"));
        assert_eq!(commands.take_due(now + INTERVAL, INTERVAL), None);
    }
}
