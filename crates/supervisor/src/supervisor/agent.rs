//! The agent: the process that requests certificates and notifies secondary servers. The supervisor starts the agent
//! when the configuration needs it, restarts it after an exit, and kills it when it is no longer needed: all its
//! promises are in the state folder.
//!
//! Challenges for certificate authorities pass through here, unread, to the serving process, and the list of served
//! zones to the agent; the agent's report is kept for the operator.

use super::{Requester, Supervisor};
use crate::backoff::Backoff;
use crate::child::{Child, OnlyChild, Role, hang_limit};
use crate::phase::Phase;
use crate::program::{self, RUNNING};
use crate::started_with::StartedWith;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::log::{log_error, log_warning};
use sanderling_config::{AgentConfig, Authority, Config, STATE_REMEDY, lookup_user};
use sanderling_ipc::agent::AgentReport;
use sanderling_ipc::{
    Command, Connection, Event, FdKind, IncomingFds, Message, OutgoingFds, ProcessSupervision, RETRY_INTERVAL, Text,
    ZoneCommand,
};
use sanderling_os::memfd;
use sanderling_os::process::{ExitStatus, effective_uid};
use sanderling_os::signals::SIGKILL;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events that are handled before signals and deadlines are.
const EVENTS_PER_ITERATION_MAX: usize = 256;
/// The reason for terminating an agent that sends without end.
const FLOOD: &str = "it floods the server process with messages";
/// Maximum number of commands that wait for an agent to start.
const WAITING_MAX: usize = 16;

/// The supervisor's view of the agent.
#[derive(Debug, Default)]
pub(super) struct Agent {
    /// The state folder that an argument of `serve` gives.
    pub(super) state_argument: Option<PathBuf>,
    pub(super) process: OnlyChild<AgentProcess>,
    /// The configuration of the agent that runs, or was started last.
    config: Option<StartedWith<AgentConfig>>,
    /// Commands to read zones, and their clients, for the next agent.
    waiting: Vec<(Command, IncomingFds)>,
    /// The last challenges and their number, for the next server process.
    challenges: Option<(u64, OwnedFd)>,
    /// The last addresses of hosts with applications, for the next server process. They outlive their agent.
    backend_addresses: Option<OwnedFd>,
    pub(super) report: Option<AgentReport>,
    /// The problems in the report.
    problems: AgentReport,
    /// Whether the serving process has `problems`.
    are_problems_sent: bool,
    /// The reason why no agent works.
    problem: Option<String>,
    /// The logged problem: it is not logged again until an agent has worked.
    logged_problem: Option<String>,
    /// The process ID of the agent that has sent the report.
    reporter: Option<i32>,
}

/// The supervisor's view of a running agent.
#[derive(Debug, Default)]
pub(super) struct AgentProcess {
    /// The agent has reported that it cannot run.
    has_failed: bool,
}

impl Role for AgentProcess {
    const NAME: &'static str = "agent";
    const PROCESS_NAME: &'static str = "sanderling: agent";
    const DUMPS_CORE: bool = false;

    fn backoff() -> Backoff {
        Backoff::of_background()
    }
}

impl Agent {
    /// Records the problem because of which the agent does not work. Returns the text for the log, or `None` if it was
    /// already logged.
    fn note_problem(&mut self, problem: String) -> Option<&str> {
        self.problem = Some(problem.clone());
        if self.logged_problem.as_ref() == Some(&problem) {
            return None;
        }
        Some(self.logged_problem.insert(problem))
    }

    /// The next time when the agent needs the supervisor; a start counts only if it `can_start` now.
    pub(super) fn next_deadline(&self, can_start: bool) -> Option<Instant> {
        let retry = self.process.get().filter(|it| it.has_unsent()).map(|_| Instant::now() + RETRY_INTERVAL);
        retry.or(self.process.next_start().filter(|_| can_start))
    }

    /// Whether the running agent has reported, which shows that it works.
    fn has_reported(&self) -> bool {
        self.reporter.is_some() && self.reporter == self.process.pid()
    }

    /// Tells the clients that wait for an agent why no agent works.
    fn refuse_waiting(&mut self) {
        let refusal = format!("sanderling: {}; signed zones are reloaded when the agent starts\n", self.refusal());
        let waiting = std::mem::take(&mut self.waiting).into_iter().flat_map(|(_, descriptors)| descriptors);
        for mut client in waiting.filter_map(|(_, client)| Connection::from_fd(client).ok()) {
            // The client may have disconnected.
            let parts = Text::parts(&refusal).map(Event::Stderr).chain([Event::Done { is_success: false }]);
            let _ = parts.map(Message::Event).try_for_each(|message| client.send(&message));
        }
    }

    /// Whether the report comes from an agent that has exited, while the next one has not reported yet.
    pub(super) fn is_report_old(&self) -> bool {
        self.report.is_some() && self.reporter != self.process.pid()
    }

    /// `is_needed`: the configuration needs an agent.
    pub(super) fn supervision(&self, is_needed: bool) -> ProcessSupervision {
        let is_running = self.process.get().is_some() && self.problem.is_none();
        ProcessSupervision { is_needed, is_running, restarts: self.process.backoff.restart_count }
    }

    fn set_report(&mut self, report: Option<AgentReport>) {
        let problems = report.as_ref().map(AgentReport::problems).unwrap_or_default();
        self.are_problems_sent &= self.problems == problems;
        (self.report, self.problems) = (report, problems);
    }

    /// The problems in the report, for the serving process, unless it already has them. `is_new`: the process has not
    /// received anything yet.
    pub(super) fn problems_to_send(&mut self, is_new: bool) -> Option<&AgentReport> {
        let is_sent = std::mem::replace(&mut self.are_problems_sent, true) && !is_new;
        (!is_sent).then_some(&self.problems)
    }

    /// The reason why no agent works, if it has failed.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The answer to a client whose command needs the agent.
    fn refusal(&self) -> String {
        match &self.problem {
            Some(problem) => format!("the agent does not run: {problem}"),
            None => "the agent does not run yet; try again, and see the log".to_owned(),
        }
    }

    /// Kills the agent if it has sent nothing for `hang_limit`.
    fn kill_if_hung(&mut self, hang_limit: Duration) {
        if let Some(process) = self.process.get_mut().filter(|process| process.is_silent_for(hang_limit)) {
            let problem = format!("it hung for {} s (`agent_hang_timeout`)", hang_limit.as_secs());
            log_error(&format!("{process}: {problem}; killed and restarted"));
            process.kill();
            self.problem = Some(problem);
        }
    }

    /// Has an agent started that reads the files of authorities again, unless all certificates are requested without
    /// errors: a root, or the key of an external account, may have been corrected.
    pub(super) fn read_authorities_again(&mut self) {
        if self.problem.is_some() {
            // The cause of failed starts may have been corrected as well.
            self.process.hasten();
        }
        let started = self.config.iter().filter_map(|started| started.config.acme.as_ref());
        let authorities = started.flat_map(|acme| &acme.authorities);
        let has_files = |authority: &Authority| authority.external_account.is_some() || authority.root.is_some();
        let has_failed = |report: &AgentReport| {
            report.certificates.iter().any(|one| one.last_error.is_some() || !one.failing_names.is_empty())
        };
        if authorities.into_iter().any(has_files) && self.report.as_ref().is_none_or(has_failed) {
            self.config = None;
        }
    }

    /// The challenges for certificate authorities, for a server process that starts.
    pub(super) fn challenges(&self) -> io::Result<Option<(FdKind, OwnedFd)>> {
        let file = self.challenges.as_ref().map(|(_, file)| file.try_clone()).transpose()?;
        Ok(file.map(|file| (FdKind::Challenges, file)))
    }

    /// The addresses of hosts with applications, for a server process that starts.
    pub(super) fn backend_addresses(&self) -> io::Result<Option<(FdKind, OwnedFd)>> {
        let file = self.backend_addresses.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok(file.map(|file| (FdKind::BackendAddresses, file)))
    }

    /// The same, for the next supervisor.
    pub(super) fn kept_backend_addresses(&self) -> Option<BorrowedFd<'_>> {
        self.backend_addresses.as_ref().map(AsFd::as_fd)
    }

    /// Takes over those of the supervisor before.
    pub(super) fn inherit_backend_addresses(&mut self, file: Option<OwnedFd>) {
        self.backend_addresses = file.filter(|file| memfd::is_sealed(file));
    }

    /// Whether the agent can receive more; if too much is queued, the sender must wait.
    pub(super) fn is_full(&self) -> bool {
        self.process.get().is_some_and(|process| process.connection.is_full())
    }

    pub(super) fn send(&mut self, command: Command, descriptors: IncomingFds) {
        // If the process has exited, its exit is handled elsewhere.
        let _ = self.process.try_send(command, descriptors);
    }

    fn next_event(&mut self) -> Option<(Event, IncomingFds)> {
        self.process.receive().unwrap_or_else(|problem| {
            self.process.end_for(&problem);
            None
        })
    }
}

impl Supervisor {
    /// The state folder that `config` is served with.
    pub(super) fn state_path(&self, config: &Config) -> Option<PathBuf> {
        config.state_folder(self.agent.state_argument.as_deref())
    }

    /// Starts the agent if it is needed, and terminates it if it is unneeded or must have another configuration.
    pub(super) fn update_agent(&mut self) {
        if let Some(process) = self.agent.process.get_mut() {
            let _ = process.connection.flush();
        }
        self.agent.kill_if_hung(hang_limit(self.active.config.limits.agent_hang_timeout_ms));
        let needed = Arc::clone(&self.active.config);
        if !self.agent.config.as_mut().is_some_and(|started| started.is_for(&needed)) {
            self.agent.process.kill();
            self.agent.config = Some(StartedWith::new(&needed));
            self.agent.set_report(None);
            self.agent.problem = None;
            self.agent.process.schedule(needed.needs_agent().then(Instant::now));
        }
        if self.agent.has_reported() && self.agent.process.get().is_some_and(|process| !process.termination.is_killed())
        {
            for (command, client) in std::mem::take(&mut self.agent.waiting) {
                self.agent.send(command, client);
            }
        }
        let is_due = self.agent.process.next_start().is_some_and(|at| Instant::now() >= at);
        if !is_due || self.lifecycle.is_stopping() || self.serving_process().is_none() {
            return;
        }
        if let Err(error) = self.start_agent(&needed) {
            // Without a state folder, only a change of the configuration helps.
            let again = if self.state_path(&needed).is_some() { "; retrying" } else { "" };
            if let Some(problem) = self.agent.note_problem(error_text(&error)) {
                log_warning(&format!("cannot start the agent: {problem}{again}"));
            }
            self.agent.refuse_waiting();
            self.agent.process.schedule_after(Duration::ZERO);
        }
    }

    fn start_agent(&mut self, config: &Config) -> io::Result<()> {
        let no_folder = || {
            let effects = config.without_state();
            io::Error::other(format!("there is no state folder: {effects}; {STATE_REMEDY}"))
        };
        let state = self.state_path(config).ok_or_else(no_folder)?;
        prepare_state(&state, config)?;
        let tsig_secrets = super::secrets::tsig_secrets(config)?;
        let mut descriptors: OutgoingFds<'_> = vec![(FdKind::Configuration, self.active.text.as_fd())];
        descriptors.extend(tsig_secrets.iter().map(|secrets| (FdKind::TsigSecrets, secrets.as_fd())));
        let rest = [OsString::from("--state"), state.into_os_string()];
        let rest = self.source.to_arguments().into_iter().chain(rest).collect();
        let arguments = program::arguments("internal-agent", &self.forced, rest);
        self.agent.process.set(Child::start(Path::new(RUNNING), &arguments, descriptors, AgentProcess::default())?);
        // A draining process waits for updates that the previous agent has not stored.
        for process in self.processes.iter_mut().filter(|process| process.phase() != Phase::Starting) {
            process.send(Command::ReportZones, Vec::new());
        }
        Ok(())
    }

    pub(super) fn handle_agent_events(&mut self) {
        for _ in 0..EVENTS_PER_ITERATION_MAX {
            let Some((event, descriptors)) = self.agent.next_event() else { break };
            let mut descriptors = descriptors.into_iter();
            let descriptor = descriptors.next().map(|(_, descriptor)| descriptor);
            match (event, descriptor) {
                // Another process must not trust memory that its sender can still change.
                (Event::ChallengesChanged { number }, Some(file)) if memfd::is_sealed(&file) => {
                    self.agent.challenges = Some((number, file));
                    self.pass_on_challenges();
                }
                (Event::BackendAddressesChanged, Some(file)) if memfd::is_sealed(&file) => {
                    self.agent.backend_addresses = Some(file);
                    self.pass_on_backend_addresses();
                }
                (Event::AgentReport, Some(file)) => match AgentReport::from_memfd(file) {
                    Ok(report) => {
                        self.agent.set_report(Some(report));
                        self.agent.reporter = self.agent.process.pid();
                        (self.agent.problem, self.agent.logged_problem) = (None, None);
                    }
                    Err(error) => {
                        self.agent.process.end_for(&format!("its report is malformed: {}", error_text(&error)));
                    }
                },
                (Event::DerivedStored, None) => {
                    let config = Arc::clone(&self.active.config);
                    self.secrets.pass_on_soon(&config);
                }
                // The agent reports this once, as its last message, and each text is logged.
                (Event::AgentFailed(_), None) if self.agent.process.get().is_some_and(|it| it.role.has_failed) => {
                    self.agent.process.end_for("it has reported more than once that it cannot run");
                }
                (Event::AgentFailed(reason), None) => {
                    self.agent.process.get_mut().into_iter().for_each(|process| process.role.has_failed = true);
                    if let Some(problem) = self.agent.note_problem(reason.to_string()) {
                        log_error(&format!("the agent cannot run: {problem}; retrying"));
                    }
                }
                (Event::Heartbeat, None) => {}
                (Event::KeeperLost, None) => self.keeper.forget_agent(),
                (Event::CertificateStored { name }, None) => {
                    let config = Arc::clone(&self.active.config);
                    self.secrets.pass_on_soon(&config);
                    self.add_renewal_command(name);
                }
                (Event::ZoneStored { zone, is_forced }, Some(requester)) => {
                    let command = Command::Zone(ZoneCommand::Reload { zone, is_forced });
                    // Without a serving process, the agent notices the missing answer, and the next process loads the
                    // zone.
                    if self.serving_process().is_some_and(|process| process.connection.is_full()) {
                        self.agent.process.end_for(FLOOD);
                    } else if let Some(process) = self.serving_process() {
                        let changes = descriptors.filter(|(kind, _)| *kind == FdKind::ZoneChanges);
                        process.send(command, [(FdKind::Requester, requester)].into_iter().chain(changes).collect());
                    }
                }
                (Event::UpdatesStored(outcome), None) => {
                    // A starting process may have read the previous content, the serving process may not have made the
                    // update, and a draining process answers its last updates.
                    let (full, others): (Vec<_>, Vec<_>) =
                        self.processes.iter_mut().partition(|process| process.connection.is_full());
                    for process in others {
                        process.send(Command::UpdatesStored(outcome.clone()), Vec::new());
                    }
                    if full.iter().any(|process| process.phase() != Phase::Draining) {
                        self.agent.process.end_for(FLOOD);
                    }
                }
                _ => self.agent.process.end_for("it has sent a message that the agent never sends"),
            }
        }
    }

    /// Makes the serving process answer challenges.
    pub(super) fn pass_on_challenges(&mut self) {
        let Some((number, file)) = &self.agent.challenges else { return };
        let (number, file) = (*number, file.try_clone());
        match (self.serving_process(), file) {
            (Some(process), Ok(_)) if process.connection.is_full() => self.agent.process.end_for(FLOOD),
            (Some(process), Ok(file)) => {
                process.send(Command::UpdateChallenges { number }, vec![(FdKind::Challenges, file)]);
            }
            (_, Err(error)) => log_error(&format!("cannot pass on challenges: {}", error_text(&error))),
            // The next process gets the challenges when it is ready.
            (None, _) => {}
        }
    }

    /// Gives the serving process the addresses of hosts with applications.
    pub(super) fn pass_on_backend_addresses(&mut self) {
        match (self.agent.backend_addresses(), self.serving_process()) {
            (Ok(Some(_)), Some(process)) if process.connection.is_full() => self.agent.process.end_for(FLOOD),
            (Ok(Some(file)), Some(process)) => process.send(Command::UpdateBackendAddresses, vec![file]),
            // The next process gets them when it starts.
            (Ok(_), _) => {}
            (Err(error), _) => log_error(&format!("cannot pass on addresses of applications: {}", error_text(&error))),
        }
    }

    /// Gives the agent the secrets of TSIG keys, of which files have changed.
    pub(super) fn pass_on_tsig_secrets(&mut self) {
        match super::secrets::tsig_secrets(&self.active.config) {
            Ok(Some(secrets)) => self.agent.send(Command::UpdateSecrets, vec![(FdKind::TsigSecrets, secrets)]),
            Ok(None) => {}
            Err(error) => log_error(&format!("cannot pass on TSIG secrets to the agent: {}", error_text(&error))),
        }
    }

    /// Gives the agent a socket to the keeper.
    pub(super) fn pass_keeper_to_agent(&mut self, socket: OwnedFd) {
        self.agent.send(Command::UseKeeper, vec![(FdKind::ZoneKeys, socket)]);
    }

    /// Handles the exit of the agent.
    pub(super) fn reap_agent(&mut self) {
        let Some(status) = self.agent.process.exit_status() else { return };
        // The agent's last events still count: a certificate may be stored.
        self.handle_agent_events();
        let has_worked = self.agent.has_reported();
        let Some(process) = self.agent.process.take() else { return };
        // The agent's challenges are no longer needed; a continued order publishes them again.
        if let Ok(none) = sanderling_ipc::agent::challenges_to_memfd(&[])
            && self.agent.challenges.take().is_some()
        {
            self.agent.challenges = Some((0, none));
            self.pass_on_challenges();
            self.agent.challenges = None;
        }
        if self.lifecycle.is_stopping() || !self.active.config.needs_agent() {
            return;
        }
        self.agent.process.schedule_after(process.started_at.elapsed());
        if process.termination.is_killed() {
            self.agent.process.schedule(Some(Instant::now()));
        }
        let has_said_why = self.agent.problem.is_some() && self.agent.problem == self.agent.logged_problem;
        if (!process.termination.is_killed() || status != ExitStatus::Signaled(SIGKILL)) && !has_said_why {
            log_error(&format!("{process} {status}; restarting"));
            self.agent.problem.get_or_insert_with(|| format!("it {status}; see the log"));
        }
        if !process.termination.is_killed() && !has_worked {
            self.agent.refuse_waiting();
        }
    }

    /// Restarts the agent, which was terminated for an upgrade that failed.
    pub(super) fn restart_agent(&mut self) {
        self.agent.process.schedule(self.active.config.needs_agent().then(Instant::now));
    }

    /// Terminates the agent without a restart.
    pub(super) fn stop_agent(&mut self) {
        self.agent.process.schedule(None);
        self.agent.process.kill();
    }

    /// Makes the agent read zones that it signs, with the current configuration, and answer the client itself.
    pub(super) fn have_zones_read(&mut self, requester: Requester, command: Command) {
        if self.agent.waiting.len() >= WAITING_MAX {
            return self
                .reply(requester, Err("the agent does not run, so that signed zones are not read; see the log"));
        }
        let client = match (requester, &mut self.control) {
            (Requester::Client(id), Some(control)) => control.take_client(id),
            _ => None,
        };
        let client = client.map(|client| (FdKind::Requester, client.into_fd()));
        self.agent.waiting.push((command, client.into_iter().collect()));
        // The cause of failed starts may have been corrected, and the client should get an answer soon.
        self.agent.process.hasten();
        self.update_agent();
    }

    /// Makes the agent carry out a command, and answer the client itself.
    pub(super) fn pass_to_agent(&mut self, requester: Requester, command: Command) {
        let (Requester::Client(id), Some(control)) = (requester, &mut self.control) else { return };
        let client = control.client_fd(id).map(|fd| fd.try_clone_to_owned());
        match (self.agent.process.get().is_some(), client) {
            (true, Some(Ok(client))) => {
                self.agent.send(command, vec![(FdKind::Requester, client)]);
                self.control.as_mut().and_then(|control| control.take_client(id));
            }
            (false, Some(_)) if matches!(command, Command::Dnssec(_)) => {
                let reason = match self.active.config.signed_zones.is_empty() {
                    true => "no zone is signed; write dnssec = true in the domain".to_owned(),
                    false => self.agent.refusal(),
                };
                self.reply(requester, Err(&reason));
            }
            (false, Some(_)) if !self.active.config.requests_certificates() => {
                let reason = no_request_reason(&self.active.config);
                self.reply(requester, Err(reason));
            }
            (false, Some(_)) => {
                let reason = self.agent.refusal();
                self.reply(requester, Err(&reason));
            }
            (_, Some(Err(error))) => {
                self.reply(requester, Err(&format!("cannot pass the command on: {}", error_text(&error))));
            }
            (_, None) => {}
        }
    }
}

/// The reason why no certificates are requested with this configuration, and the remedy.
pub(super) fn no_request_reason(config: &Config) -> &'static str {
    match config.acme {
        None => "no certificates are requested; add [certificates] to the configuration file",
        Some(_) => {
            "no certificates are requested: no domain has an automatic certificate; add a domain with `site`, or certificate = \"auto\""
        }
    }
}

/// Reports that the state folder `state`, which `config` needs, belongs to another user than the configured one, or to
/// another version of the program. Checked before anything is served: signed zones would get SERVFAIL, and certificates
/// would not be renewed. Single files below the folder cause only a warning.
pub fn state_problem(config: &Config, state: &Path) -> Option<Diagnostic> {
    if !config.needs_agent() {
        return None;
    }
    // An unknown user is reported elsewhere.
    let user = lookup_user(config).ok()?.filter(|_| effective_uid() == 0).map_or(effective_uid(), |user| user.uid);
    let found = sanderling_state::check(state, user);
    let location = config.state_location.clone().map_or_else(|| Location::File(state.to_owned()), Location::from);
    match found {
        Ok(warning) => {
            warning.map(|warning| Diagnostic::warning(location, Problem::new(warning.problem(), warning.remedy())))
        }
        Err(error) => Some(Diagnostic::error(location, Problem::new(error.problem(), error.remedy()))),
    }
}

/// Creates the state folder, unless it exists.
pub(super) fn prepare_state(state: &Path, config: &Config) -> io::Result<()> {
    let user = lookup_user(config)
        .map_err(|diagnostics| io::Error::other(diagnostics.first().map_or(String::new(), ToString::to_string)))?;
    let owner = user.filter(|_| effective_uid() == 0).map(|user| (user.uid, user.gid));
    sanderling_state::prepare(state, owner).map_err(|error| io::Error::other(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_that_must_wait_for_a_serving_process_does_not_wake_the_supervisor() {
        let mut agent = Agent::default();
        let now = Some(Instant::now());
        agent.process.schedule(now);
        assert_eq!((agent.next_deadline(false), agent.next_deadline(true)), (None, now));
    }

    #[test]
    fn same_problem_is_in_the_log_once() {
        let mut agent = Agent::default();
        let mut log = |problem: &str| agent.note_problem(problem.to_owned()).map(str::to_owned);
        assert_eq!(log("no folder"), Some("no folder".to_owned()));
        assert_eq!([log("no folder"), log("no folder")], [None, None]);
        assert_eq!((log("full disk"), log("full disk")), (Some("full disk".to_owned()), None));
        assert_eq!(agent.problem(), Some("full disk"));
    }
}
