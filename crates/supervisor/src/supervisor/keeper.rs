//! The keeper, which holds the private keys: started when the configuration has certificates or signed zones, given the
//! certificates' keys, and restarted after an exit.
//!
//! Each set of certificates for a server process comes with its own sockets to the keeper. A replaced keeper continues
//! for server processes that still have sockets to it, and exits after them.

use super::agent::prepare_state;
use super::{ActiveConfig, Supervisor};
use crate::child::{Child, OnlyChild, Role, kill_and_wait};
use crate::program::{self, RUNNING};
use crate::started_with::StartedWith;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{log_error, log_warning};
use sanderling_config::{Config, ConfigSource, KeeperConfig};
use sanderling_ipc::secrets::{NoCertificate, PassedCertificate, certificates_to_memfd};
use sanderling_ipc::signing::SigningCounts;
use sanderling_ipc::{Command, Event, FdKind, IncomingFds, KeeperSupervision, OutgoingFds, ProcessSupervision};
use sanderling_os::memfd;
use sanderling_os::poll_set::PollSet;
use sanderling_os::process::ProcessHandle;
use sanderling_os::request_socket::RequestSocket;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The reason why no keeper can hold keys.
const EXITED: &str = "it has exited";
/// Events that are handled before signals and deadlines are.
const EVENTS_PER_ITERATION_MAX: usize = 256;
/// Minimum time between two sockets to the same keeper for the agent, which may ask without end.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);
/// Time in which the keeper must have loaded keys. Thousands of RSA keys take a second.
const HOLD_TIME: Duration = Duration::from_secs(10);
/// Time in which a worker waits for a signature. A signature takes less than a millisecond, but took 300 ms on a
/// machine under heavy load. After this time, the handshake waits without the worker.
const SIGNATURE_TIME: Duration = Duration::from_millis(500);
/// Time in which the agent waits for an answer. RSA keys of many zones take seconds.
const ZONE_ANSWER_TIME: Duration = Duration::from_secs(30);
/// Maximum sockets of a server process, one per worker; further workers share them.
const SOCKETS_MAX: usize = 64;
/// Time after which keys that the serving process no longer needs are erased: a worker may still be signing with one.
const ERASE_DELAY: Duration = Duration::from_secs(10);

/// The keeper's state.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    pub(super) process: OnlyChild<KeeperProcess>,
    /// Keepers that have been replaced, and exit after the last server process that has a socket to them.
    replaced: Vec<ProcessHandle>,
    /// The keys for the next keeper.
    held_keys: Option<OwnedFd>,
    /// The time when the keeper may erase the keys that are no longer needed.
    erase_at: Option<Instant>,
    /// The number of the last set of keys.
    last_number: u64,
    /// The counters of earlier keepers.
    counts_before: SigningCounts,
}

/// The supervisor's view of a running keeper.
#[derive(Debug)]
pub(super) struct KeeperProcess {
    config: StartedWith<KeeperConfig>,
    counts: SigningCounts,
    /// Whether the state folder, where the keys of zones are, could not be used.
    lacks_zone_keys: bool,
    /// The process ID of the agent that has a socket to it.
    agent: Option<i32>,
    /// The last time when an agent received a socket to the keeper.
    connected_at: Option<Instant>,
}

impl Role for KeeperProcess {
    const NAME: &'static str = "keeper";
    const PROCESS_NAME: &'static str = "sanderling: keeper";
    const DUMPS_CORE: bool = false;
}

/// The input with which a keeper is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeeperStart<'s> {
    pub(super) source: &'s ConfigSource,
    pub(super) forced: &'s [String],
    pub(super) config: &'s Arc<Config>,
    pub(super) config_text: BorrowedFd<'s>,
    /// The state folder.
    pub(super) state: Option<&'s Path>,
}

impl Keeper {
    /// Takes over the previous supervisor's keepers, and their keys.
    pub(super) fn inherit(&mut self, processes: Vec<(i32, OwnedFd)>, held_keys: Option<OwnedFd>) {
        self.replaced.extend(processes.into_iter().map(|(pid, pidfd)| ProcessHandle::from_pidfd(pid, pidfd)));
        self.held_keys = held_keys;
    }

    /// The data for the next supervisor.
    pub(super) fn handover_fds(&self) -> impl Iterator<Item = (FdKind, BorrowedFd<'_>)> {
        let handles = self.process.get().map(|process| &process.handle).into_iter().chain(&self.replaced);
        let processes = handles.map(|handle| (FdKind::KeeperProcess { pid: handle.pid() }, handle.as_fd()));
        processes.chain(self.held_keys.iter().map(|keys| (FdKind::HeldKeys, keys.as_fd())))
    }

    /// The descriptors to poll.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.process.get().into_iter().flat_map(Child::poll_fds).chain(self.replaced.iter().map(AsFd::as_fd))
    }

    /// When to erase keys. Afterwards it waits for the exit of a draining process.
    pub(super) fn next_erasure(&self) -> Option<Instant> {
        self.erase_at.filter(|at| Instant::now() < *at)
    }

    /// `is_needed`: the configuration needs a keeper.
    pub(super) fn supervision(&self, is_needed: bool) -> KeeperSupervision {
        let counts = self.process.get().map(|process| process.role.counts).unwrap_or_default();
        let process = ProcessSupervision {
            is_needed,
            is_running: self.process.get().is_some_and(|process| !process.role.lacks_zone_keys),
            restarts: self.process.backoff.restart_count,
        };
        KeeperSupervision { process, counts: self.counts_before.plus(&counts) }
    }

    /// Makes the keeper hold the keys of `certificates`, and starts it if it does not run. The secrets for a server
    /// process: the certificates without their keys, and sockets to the keeper. Without a keeper, this fails.
    pub(super) fn pass_on(
        &mut self,
        certificates: &[PassedCertificate],
        start: KeeperStart<'_>,
    ) -> io::Result<IncomingFds> {
        self.hold(certificates, start).or_else(|error| {
            let problem = format!("the keeper does not run: {}", error_text(&error));
            log_warning(&format!("{problem}; retrying"));
            let failed = |_: &PassedCertificate| Err(NoCertificate::Unreadable(problem.clone()));
            let failed: Vec<PassedCertificate> = certificates.iter().map(failed).collect();
            self.process.kill();
            if !self.process.is_delayed() && self.process.get().is_none() {
                self.process.schedule_after(Duration::ZERO);
            }
            Ok(vec![(FdKind::Certificates, certificates_to_memfd(&failed)?)])
        })
    }

    fn hold(&mut self, certificates: &[PassedCertificate], start: KeeperStart<'_>) -> io::Result<IncomingFds> {
        let certificates = certificates_to_memfd(certificates)?;
        self.replace_unless_for(start.config);
        let mut descriptors = vec![(FdKind::Certificates, certificates)];
        if self.process.get().is_none() {
            if self.process.is_delayed() {
                return Err(io::Error::other(EXITED));
            }
            self.process.set(start.start()?);
            let held_keys = self.held_keys.as_ref().map(OwnedFd::try_clone).transpose()?;
            descriptors.extend(held_keys.map(|keys| (FdKind::HeldKeys, keys)));
        }
        let sockets = (0..start.config.worker_count.min(SOCKETS_MAX)).map(|_| RequestSocket::pair(SIGNATURE_TIME));
        let (mut of_server, mut of_keeper) = (Vec::new(), Vec::new());
        for pair in sockets {
            let [asking, answering] = pair?;
            of_server.push((FdKind::Keeper, asking));
            of_keeper.push((FdKind::Keeper, answering));
        }
        // Until a server process has reported that it uses this set, the previous set's keys are in use.
        self.erase_at = None;
        self.last_number = self.last_number.saturating_add(1);
        self.process.try_send(Command::HoldKeys { number: self.last_number }, descriptors)?;
        self.process.try_send(Command::ServeKeys, of_keeper)?;
        let certificates = self.wait_until_held()?;
        of_server.push((FdKind::Certificates, certificates));
        Ok(of_server)
    }

    /// Waits for the certificates without their keys.
    fn wait_until_held(&mut self) -> io::Result<OwnedFd> {
        let deadline = Instant::now() + HOLD_TIME;
        loop {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match self.process.receive().map_err(io::Error::other)? {
                Some((Event::KeysHeld { number }, descriptors)) if number == self.last_number => {
                    // Another process must not trust memory that the keeper can still change.
                    let certificates = descriptors.into_iter().next().map(|(_, certificates)| certificates);
                    let malformed = || io::Error::other("it has sent no certificates in sealed memory");
                    return certificates.filter(|file| memfd::is_sealed(file)).ok_or_else(malformed);
                }
                Some((event, descriptors)) => {
                    self.handle(&event, descriptors.into_iter().next()).map_err(io::Error::other)?;
                }
                None => {
                    let process = self.process.get_mut().filter(|process| process.is_heard());
                    let process = process.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, EXITED))?;
                    process.connection.flush()?;
                    PollSet::new([process.connection.as_fd()]).wait(Some(remaining))?;
                }
            }
        }
    }

    /// The serving process uses the last set of certificates: the keys of earlier sets can be erased soon.
    pub(super) fn plan_erasure(&mut self) {
        self.erase_at = Some(Instant::now() + ERASE_DELAY);
    }

    /// Makes the keeper erase all keys except the keys of the last set of certificates and of the good versions `kept`.
    fn erase_all_but(&mut self, kept: BorrowedFd<'_>) {
        self.erase_at = None;
        if let Ok(kept) = kept.try_clone_to_owned() {
            // If the keeper has exited, its exit is handled elsewhere.
            let _ = self.process.try_send(Command::RetainKeys, vec![(FdKind::KeptCertificates, kept)]);
        }
    }

    /// The agent needs another socket to the keeper.
    pub(super) fn forget_agent(&mut self) {
        if let Some(process) = self.process.get_mut() {
            process.role.agent = None;
        }
    }

    /// # Errors
    /// Returns an error if a keeper does not send such a message: the process runs foreign code.
    fn handle(&mut self, event: &Event, descriptor: Option<(FdKind, OwnedFd)>) -> Result<(), &'static str> {
        match (event, descriptor) {
            (Event::KeeperReport(counts), None) => {
                if let Some(process) = self.process.get_mut() {
                    process.role.counts = *counts;
                }
            }
            (Event::KeysKept, Some((FdKind::HeldKeys, keys))) if memfd::is_sealed(&keys) => self.held_keys = Some(keys),
            // The answer is for a set that is no longer awaited.
            (Event::KeysHeld { .. }, _) => {}
            _ => return Err("it has sent a message that the keeper never sends"),
        }
        Ok(())
    }

    /// Keeps the keeper running for the server processes that have sockets to it.
    fn replace(&mut self) {
        if let Some(process) = self.process.take() {
            self.counts_before = self.counts_before.plus(&process.role.counts);
            self.replaced.push(process.handle);
        }
    }

    /// Replaces a keeper that was started for another configuration than `config`.
    fn replace_unless_for(&mut self, config: &Arc<Config>) {
        if self.process.get_mut().is_some_and(|process| !process.role.is_for(config)) {
            self.replace();
        }
    }

    /// Kills all keepers, and waits for their exit. No server process still needs them.
    pub(super) fn end(&mut self) {
        self.replace();
        self.replaced.drain(..).for_each(|handle| kill_and_wait(&handle));
    }
}

impl KeeperStart<'_> {
    fn start(self) -> io::Result<Child<KeeperProcess>> {
        let descriptors: OutgoingFds<'_> = vec![(FdKind::Configuration, self.config_text)];
        let mut rest = self.source.to_arguments();
        let mut lacks_zone_keys = false;
        if let Some(state) = self.state.filter(|_| !self.config.signed_zones.is_empty()) {
            match prepare_state(state, self.config) {
                Ok(()) => rest.extend(["--state".into(), state.into()]),
                // The keeper does not have the certificates' keys.
                Err(error) if self.config.keeps_certificates() => {
                    lacks_zone_keys = true;
                    let problem = error_text(&error);
                    log_error(&format!("zones cannot be signed: {problem}; correct that, and run `sanderling reload`"));
                }
                Err(error) => return Err(error),
            }
        }
        let arguments = program::arguments("internal-keeper", self.forced, rest);
        let role = KeeperProcess {
            config: StartedWith::new(self.config),
            counts: SigningCounts::default(),
            lacks_zone_keys,
            agent: None,
            connected_at: None,
        };
        Child::start(Path::new(RUNNING), &arguments, descriptors, role)
    }
}

impl KeeperProcess {
    /// Whether a keeper that is started with `config` would behave in the same way.
    fn is_for(&mut self, config: &Arc<Config>) -> bool {
        self.config.is_for(config) && !self.lacks_zone_keys
    }
}

impl Supervisor {
    /// The secrets for a server process with the configuration `next`: certificates and keys.
    pub(super) fn secrets_for(&mut self, next: &ActiveConfig) -> io::Result<IncomingFds> {
        let ActiveConfig { config, text } = next;
        let state = self.state_path(config);
        let (config_text, state_of_zones) = (text.as_fd(), state.as_deref());
        let start =
            KeeperStart { source: &self.source, forced: &self.forced, config, config_text, state: state_of_zones };
        self.secrets.set_state(state.clone());
        let pass_on = |certificates: &[PassedCertificate]| self.keeper.pass_on(certificates, start);
        let descriptors = self.secrets.descriptors(config, pass_on)?;
        if self.keeper.process.next_start().is_some() {
            self.secrets.pass_on_again(config);
        }
        Ok(descriptors)
    }

    pub(super) fn handle_keeper_events(&mut self) {
        for _ in 0..EVENTS_PER_ITERATION_MAX {
            let handled = match self.keeper.process.receive() {
                Ok(Some((event, descriptors))) => self.keeper.handle(&event, descriptors.into_iter().next()),
                // The keeper has closed its connection, and may not exit on its own.
                Ok(None) => return self.keeper.process.get_mut().filter(|it| !it.is_heard()).map_or((), Child::kill),
                Err(problem) => return self.keeper.process.end_for(&problem),
            };
            if let Err(lie) = handled {
                return self.keeper.process.end_for(lie);
            }
        }
    }

    /// Kills a keeper that no longer reports, releases an unneeded keeper, and makes the keeper erase unused keys.
    pub(super) fn update_keeper(&mut self, hang_limit: Duration) {
        if !self.active.config.has_keeper() && self.task.is_none() {
            self.keeper.replace();
            self.keeper.held_keys = None;
            self.keeper.process.schedule(None);
        }
        let is_due = self.keeper.erase_at.is_some_and(|at| Instant::now() >= at);
        // A process that drains still signs with its certificates' keys.
        if is_due && self.processes.len() == 1 {
            self.secrets.kept().into_iter().for_each(|kept| self.keeper.erase_all_but(kept));
        }
        let Some(process) = self.keeper.process.get_mut() else { return };
        // If the keeper has exited, its exit is handled elsewhere.
        let _ = process.connection.flush();
        if process.is_silent_for(hang_limit) {
            log_error(&format!("{process} hung (`hang_timeout`); killed and restarted"));
            process.kill();
        }
    }

    /// Gives the agent and the keeper a socket between them if zones are signed, unless they have one. Starts the
    /// keeper if no certificate needs it, since it would otherwise start with the certificates' keys.
    pub(super) fn connect_agent_to_keeper(&mut self) {
        let config = Arc::clone(&self.active.config);
        let Some(agent) = self.agent.process.pid().filter(|_| !config.signed_zones.is_empty() && self.task.is_none())
        else {
            return;
        };
        if !config.keeps_certificates() && !self.start_keeper_for_zones(&config) {
            return;
        }
        let Some(KeeperProcess { agent: connected, connected_at, .. }) =
            self.keeper.process.get().map(|process| &process.role)
        else {
            return;
        };
        if *connected == Some(agent) || connected_at.is_some_and(|at| at.elapsed() < RECONNECT_INTERVAL) {
            return;
        }
        let pair = UnixStream::pair().and_then(|(asking, answering)| {
            asking.set_read_timeout(Some(ZONE_ANSWER_TIME))?;
            asking.set_write_timeout(Some(ZONE_ANSWER_TIME))?;
            self.keeper.process.try_send(Command::ServeZoneKeys, vec![(FdKind::ZoneKeys, answering.into())])?;
            Ok(asking)
        });
        match pair {
            Ok(asking) => {
                self.pass_keeper_to_agent(asking.into());
                if let Some(process) = self.keeper.process.get_mut() {
                    (process.role.agent, process.role.connected_at) = (Some(agent), Some(Instant::now()));
                }
            }
            Err(error) => log_warning(&format!("cannot connect the agent to the keeper: {}", error_text(&error))),
        }
    }

    /// Whether a keeper runs.
    fn start_keeper_for_zones(&mut self, config: &Arc<Config>) -> bool {
        self.keeper.replace_unless_for(config);
        if self.keeper.process.get().is_some() || self.keeper.process.is_delayed() {
            return self.keeper.process.get().is_some();
        }
        let state = self.state_path(config);
        let (config_text, state) = (self.active.text.as_fd(), state.as_deref());
        let start = KeeperStart { source: &self.source, forced: &self.forced, config, config_text, state };
        match start.start() {
            Ok(process) => self.keeper.process.set(process),
            Err(error) => {
                log_warning(&format!("the keeper does not run: {}; retrying", error_text(&error)));
                self.keeper.process.schedule_after(Duration::ZERO);
            }
        }
        self.keeper.process.get().is_some()
    }

    /// Handles the exit of keepers.
    pub(super) fn reap_keepers(&mut self) {
        self.keeper.replaced.retain(|handle| matches!(handle.try_wait(), Ok(None)));
        let Some(status) = self.keeper.process.exit_status() else { return };
        self.handle_keeper_events();
        let Some(process) = self.keeper.process.take() else { return };
        self.keeper.counts_before = self.keeper.counts_before.plus(&process.role.counts);
        if self.lifecycle.is_stopping() {
            return;
        }
        self.keeper.process.schedule_after(process.started_at.elapsed());
        log_error(&format!("{process} {status}; restarting"));
        let config = Arc::clone(&self.active.config);
        self.secrets.pass_on_again(&config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a delay, the supervisor would start a keeper in each iteration.
    #[test]
    fn each_start_that_fails_delays_the_next_one() {
        let directory = tempfile::tempdir().expect("created");
        let file = directory.path().join("file");
        std::fs::write(&file, "").expect("written");
        let source = ConfigSource::File("test.toml".into());
        let text = b"[domain.\"a.test\"]\nzone = \"a.zone\"\ndnssec = true\n";
        let config = Arc::new(source.parse(text).expect("valid"));
        let config_text = memfd::create("configuration", text).expect("created");
        let (state, config_text) = (file.join("state"), config_text.as_fd());
        let start = KeeperStart { source: &source, forced: &[], config: &config, config_text, state: Some(&state) };
        let mut keeper = Keeper::default();
        for count in 1..=3 {
            let before = Instant::now();
            keeper.pass_on(&[], start).expect("each certificate would have the error");
            assert!(keeper.process.next_start().is_some_and(|at| at > before), "{count}");
            assert_eq!(keeper.process.backoff.restart_count, count);
            keeper.process.schedule(Some(before));
        }
    }
}
