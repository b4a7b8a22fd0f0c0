//! A server process's control thread: carries out the supervisor's commands, loads new configurations, sends
//! heartbeats, answers at the control socket while there is no supervisor, and answers clients that collect metrics.
//! The thread serves no other network clients.

mod backend_connections;
mod config_reload;
mod derived_zones;
mod served_zones;
mod site_reload;
mod unsupervised;
mod updates;
mod zone_commands;

use crate::assembly::Assembly;
use crate::certificates::{Certificates, SecretDescriptors};
use crate::challenges::ActiveChallenges;
use crate::heap_trim::HeapTrim;
use crate::kept_zones::NewSegment;
use crate::limit_log::LimitLog;
use crate::load_status::LoadStatus;
use crate::loader::{ChangedUpdates, Loaded, Loader};
use crate::metrics::{Content, Metrics, MetricsListener, Page, TextFormat};
use crate::request_logs::{self, LostLines};
use crate::sandbox::Sandbox;
use crate::service_state::{AgentProblems, ServiceState};
use crate::site_watcher::{SiteChange, SiteWatcher, WatchedSite};
use crate::status::{ProcessStatus, StatusParts};
use crate::transfers::log_refused;
use backend_connections::not_found;
use sanderling_config::diagnostic::{Diagnostic, error_text, for_client};
use sanderling_config::log::{log, log_error, log_warning, report};
use sanderling_config::repeated_messages::{LimitedLog, VersionLog};
use sanderling_config::{Config, ConfigSource, LogKind};
use sanderling_ipc::agent::{AgentReport, challenges_from_memfd, served_zones_from_memfd};
use sanderling_ipc::control_socket::ControlSocket;
use sanderling_ipc::derived::DerivedSet;
use sanderling_ipc::handover::Descriptors;
use sanderling_ipc::{
    Command, Connection, Event, FdKind, HEARTBEAT_INTERVAL, IncomingFds, Message, RETRY_INTERVAL, Received,
    StatusFormat, Supervision, Text,
};
use sanderling_listeners::Listeners;
use sanderling_os::event_fd::EventFd;
use sanderling_os::poll_set::PollSet;
use sanderling_os::signals::{SIGINT, SIGQUIT, SIGTERM, Signals};
use sanderling_server::{BackendProblem, DrainMode, Server};
use served_zones::NotifyForwarding;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant, SystemTime};
use updates::UpdateQueue;

/// Unsent events above which heartbeats and text are dropped.
const UNSENT_EVENTS_MAX: usize = 4_096;
/// Time between two looks whether clients are still connected, when the process drains.
const DRAIN_INTERVAL: Duration = Duration::from_millis(100);

/// The loaded and inherited state of a server process.
pub(crate) struct ProcessState {
    pub(crate) source: ConfigSource,
    pub(crate) config: Arc<Config>,
    /// The text of `config`, for the next supervisor.
    pub(crate) config_text: OwnedFd,
    /// The segments of kept zones that the supervisor has, for the next one.
    pub(crate) kept_zones: Vec<Arc<OwnedFd>>,
    /// A segment that the supervisor must keep when this process serves.
    pub(crate) unsent_zones: Option<NewSegment>,
    /// The dynamic updates that the agent must store when this process serves.
    pub(crate) unsent_updates: ChangedUpdates,
    /// `None` while it loads.
    pub(crate) loader: Option<Loader>,
    /// Sites to watch.
    pub(crate) watched_sites: Vec<WatchedSite>,
    /// The state of the served sites and zones.
    pub(crate) load_status: LoadStatus,
    pub(crate) certificates: Certificates,
    pub(crate) assembly: Assembly,
    /// The descriptors that came with the configuration that is being loaded.
    pub(crate) received_secrets: SecretDescriptors,
    /// Targets of logs that came with a configuration.
    pub(crate) log_targets: Vec<(LogKind, OwnedFd)>,
    /// The agent's derived records, as last received.
    pub(crate) derived: Arc<DerivedSet>,
    /// The shared keys, for the next supervisor.
    pub(crate) keys_file: Option<OwnedFd>,
    /// `None` after the supervisor has exited.
    pub(crate) supervisor: Option<Connection>,
    pub(crate) control: Option<ControlSocket>,
    /// The client that has stopped the process while there was no supervisor; it learns of the end.
    pub(crate) stop_client: Option<Connection>,
    /// The inherited sockets.
    pub(crate) listeners: Listeners,
    pub(crate) metrics_listener: MetricsListener,
    /// The supervisor's counters, for the metrics; they are kept when the supervisor is lost.
    pub(crate) supervision: Supervision,
    pub(crate) sandbox: Sandbox,
    /// Secrets that this process could read.
    pub(crate) exposed_secrets: Vec<Diagnostic>,
    pub(crate) own_pidfd: OwnedFd,
}

/// The control thread.
pub(crate) struct ControlLoop<'s> {
    server: &'s Server,
    state: ProcessState,
    results: (Sender<Finished>, Receiver<Finished>),
    /// A load has finished, rules have changed, or there is something in an inbox.
    load_finished: Arc<EventFd>,
    site_watcher: SiteWatcher,
    notifies: NotifyForwarding,
    updates: UpdateQueue,
    /// Commands that wait until another command releases the loader.
    waiting: VecDeque<(Command, IncomingFds)>,
    /// The loader loads only a site or zone.
    loads_one: bool,
    /// Each thread that answers about zones has a reference.
    answers: Arc<()>,
    /// The received command to end, if any.
    ordered_end: Option<DrainMode>,
    next_heartbeat: Instant,
    /// The last wait for events has failed.
    has_wait_failed: bool,
    /// The thread that waits for a disk, as logged.
    logged_disk_wait: Option<String>,
    /// The errors of the logs of requests, as logged.
    lost_lines: [LostLines; LogKind::ALL.len()],
    limit_log: LimitLog,
    backend_log: LimitedLog,
    transfer_log: LimitedLog,
    version_log: VersionLog,
    heap_trim: HeapTrim,
    started_at: SystemTime,
    /// The problems that the agent reports.
    agent_problems: AgentProblems,
    /// Configurations that were loaded by this process after its start.
    reload_count: u64,
}

/// The loader's finished work.
enum Finished {
    Config(Box<LoadResult>),
    Site(Box<site_reload::SiteResult>),
    Zone(Box<zone_commands::ZoneResult>),
    DerivedZones(Box<derived_zones::DerivedResult>),
    Updates(Box<updates::UpdateApplication>),
    Built(Box<updates::BuiltVersion>),
    Merged(Box<updates::MergedZone>),
}

/// The result of loading a configuration.
struct LoadResult {
    loader: Loader,
    config_text: OwnedFd,
    result: Result<(Arc<Config>, Loaded), Vec<Diagnostic>>,
}

impl<'s> ControlLoop<'s> {
    pub(crate) fn new(server: &'s Server, state: ProcessState) -> ControlLoop<'s> {
        let Assembly { wakeup, notifies, updates, .. } = &state.assembly;
        let load_finished = Arc::clone(wakeup);
        ControlLoop {
            server,
            site_watcher: SiteWatcher::new(&state.config.limits, Arc::clone(&load_finished)),
            notifies: NotifyForwarding::new(Arc::clone(notifies)),
            updates: UpdateQueue::new(Arc::clone(updates), &state.config.limits),
            state,
            results: mpsc::channel(),
            load_finished,
            waiting: VecDeque::new(),
            loads_one: false,
            answers: Arc::default(),
            ordered_end: None,
            next_heartbeat: Instant::now(),
            has_wait_failed: false,
            logged_disk_wait: None,
            lost_lines: LogKind::ALL.map(LostLines::new),
            limit_log: LimitLog::default(),
            backend_log: LimitedLog::default(),
            transfer_log: LimitedLog::default(),
            version_log: VersionLog::default(),
            heap_trim: HeapTrim::default(),
            started_at: SystemTime::now(),
            agent_problems: AgentProblems::default(),
            reload_count: 0,
        }
    }

    /// Runs until the server drains; the connections to the supervisor and to the client that has stopped the process.
    pub(crate) fn run(mut self, signals: &Signals) -> [Option<Connection>; 2] {
        self.send(Event::Ready { problem_count: self.problem_count() });
        if self.state.supervisor.is_none() {
            // The next supervisor may have started another process, and only one may serve.
            log_error("lost the supervisor before this process was ready; exiting");
            self.server.drain(DrainMode::Replaced);
            return [None, None];
        }
        let unsent_zones = self.state.unsent_zones.take();
        self.keep_zones(unsent_zones);
        self.keep_certificates();
        self.watch_sites();
        let updates = std::mem::take(&mut self.state.unsent_updates);
        self.report_updates(&updates);
        self.report_zones();
        self.report_certificates();
        self.run_until_drain(signals);
        // A command to drain may have arrived: afterwards the supervisor shuts down listeners.
        self.handle_commands();
        if self.ordered_end.is_none() {
            if !self.state.listeners.is_listening() {
                log_error("another process has shut down a listener (shutdown(2)); this process ends and is replaced");
                // All threads must notice the stop.
                self.server.drain(DrainMode::Stopping);
            }
            log_error("this server process has failed; finishing requests in progress, then exiting");
            self.send(Event::Failed);
        }
        self.run_until_clients_are_served(signals);
        self.end_updates();
        self.fail_backends();
        [self.state.supervisor, self.state.stop_client]
    }

    /// Continues with dynamic updates until the last one is answered. Those of a process that is replaced are not to
    /// fail for that. Each has its own time limit. A client that is connected may still send one. Continues also with
    /// connections to applications, which requests in progress may want.
    fn run_until_clients_are_served(&mut self, signals: &Signals) {
        let is_stopping = |this: &Self| this.ordered_end == Some(DrainMode::Stopping);
        let start = Instant::now();
        while !is_stopping(self) && self.may_have_updates() || self.may_want_backends(start.elapsed()) {
            self.wait_and_log_error(signals);
            self.handle_signals(signals);
            self.handle_commands();
            self.handle_loaded();
            self.handle_updates();
            self.request_backends();
            self.flush();
        }
    }

    fn may_have_updates(&self) -> bool {
        let is_replaced = self.ordered_end == Some(DrainMode::Replaced);
        let has_clients = || self.server.status().threads.iter().any(|thread| thread.dns_open_count() > 0);
        self.state.assembly.updates.unanswered_count() > 0
            || is_replaced && !self.state.config.zone_updates.is_empty() && has_clients()
    }

    fn run_until_drain(&mut self, signals: &Signals) {
        while !self.server.is_draining() && self.state.metrics_listener.is_listening() {
            self.wait_and_log_error(signals);
            self.handle_signals(signals);
            self.handle_commands();
            self.handle_loaded();
            self.handle_changed_sites();
            self.handle_updates();
            self.request_backends();
            self.forward_notifies();
            if self.state.supervisor.is_none() {
                self.handle_clients();
            }
            self.serve_metrics();
            self.send_heartbeat();
            self.flush();
        }
    }

    /// Waits for events. An error does not end a server process: the sources are checked anyway, and one error is
    /// logged until a wait has succeeded.
    fn wait_and_log_error(&mut self, signals: &Signals) {
        let result = self.wait(signals);
        self.load_finished.drain();
        if let (Err(error), false) = (&result, self.has_wait_failed) {
            log_warning(&format!("cannot wait for events: {}; retrying", error_text(error)));
        }
        self.has_wait_failed = result.is_err();
    }

    fn wait(&self, signals: &Signals) -> io::Result<()> {
        let mut sources = vec![signals.as_fd(), self.load_finished.as_fd()];
        let mut deadline =
            if self.server.is_draining() { Instant::now() + DRAIN_INTERVAL } else { self.next_heartbeat };
        if let Some(supervisor) = &self.state.supervisor {
            sources.push(supervisor.as_fd());
            if supervisor.unsent_count() > 0 {
                deadline = deadline.min(Instant::now() + RETRY_INTERVAL);
            }
        } else if let Some(control) = &self.state.control {
            sources.extend(control.poll_fds());
            deadline = control.deadline().map_or(deadline, |of_clients| of_clients.min(deadline));
        }
        deadline = self.updates.deadline().map_or(deadline, |of_updates| of_updates.min(deadline));
        deadline = self.notifies.deadline().map_or(deadline, |of_notifies| of_notifies.min(deadline));
        deadline = self.state.metrics_listener.deadline().map_or(deadline, |of_clients| of_clients.min(deadline));
        let mut sources = PollSet::new(sources);
        self.state.metrics_listener.add_to(&mut sources);
        sources.wait(Some(deadline.saturating_duration_since(Instant::now())))
    }

    /// A signal from the terminal reaches the supervisor as well, which handles it as long as it exists.
    fn handle_signals(&mut self, signals: &Signals) {
        while let Some(signal) = signals.take() {
            match (&self.state.supervisor, signal) {
                (None, SIGTERM | SIGINT | SIGQUIT) => self.stop(),
                (None, _) => log_warning(&format!("there is no supervisor; {}", self.remedy())),
                (Some(_), _) => {}
            }
        }
    }

    fn handle_commands(&mut self) {
        while let Some(supervisor) = &mut self.state.supervisor {
            match supervisor.recv() {
                Ok(Received::WouldBlock) => return,
                Ok(Received::Message(Message::Command(command), descriptors)) => self.handle(command, descriptors),
                Ok(Received::Message(other, _)) => {
                    self.send_new_process_needed(&format!("the running process received {other:?}"));
                }
                Ok(Received::Closed) => self.on_supervisor_lost(),
                // No descriptor was free for the configuration, or the supervisor has another version.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    self.send_new_process_needed(&format!(
                        "the running process cannot receive it: {}",
                        error_text(&error)
                    ));
                }
                Err(_) => self.on_supervisor_lost(),
            }
        }
    }

    fn handle(&mut self, command: Command, descriptors: IncomingFds) {
        match command {
            Command::Reload { .. } if self.loads_one => {
                self.waiting.push_back((command, descriptors));
            }
            Command::ReloadSite { name } => self.reload_site(name),
            Command::Zone(command) => self.handle_zone_command(command, descriptors),
            Command::Reload { forced_zones } => self.receive_config(descriptors, &forced_zones),
            Command::UpdateSecrets => self.update_secrets(descriptors),
            Command::UpdateChallenges { number } => self.update_challenges(number, descriptors),
            Command::UpdateBackendAddresses => self.update_backend_addresses(descriptors),
            Command::ReportZones => {
                self.report_zones();
                self.report_certificates();
                self.store_updates_again();
            }
            Command::UpdatesStored(outcome) => self.on_updates_stored(&outcome),
            Command::BackendConnected { request, errno } => self.on_backend_connected(request, errno, descriptors),
            Command::ZoneServed(zone) => self.on_served_by_next(&[zone]),
            Command::ZonesServed => {
                let zones = descriptors.into_iter().next().map(|(_, zones)| served_zones_from_memfd(zones));
                match zones.unwrap_or_else(|| Err(io::Error::other("the command has no descriptor"))) {
                    Ok(served) => self.on_served_by_next(&served.zones),
                    Err(error) => log_error(&format!("cannot read the list of served zones: {}", error_text(&error))),
                }
            }
            Command::UpdateLogs => {
                let received: Descriptors = descriptors.into_iter().collect();
                request_logs::set_targets(self.server, &self.state.config, received.logs);
            }
            Command::Status(format) => {
                let (text, is_good) = self.status_text(format);
                Text::parts(&text).for_each(|part| self.send(Event::Stdout(part)));
                self.send(Event::Done { is_success: is_good });
            }
            Command::Supervision(supervision) => self.take_supervision(supervision, descriptors),
            Command::Drain => {
                self.ordered_end = Some(DrainMode::Replaced);
                self.server.drain(DrainMode::Replaced);
                self.waiting.retain(|(command, _)| !matches!(command, Command::Zone(_)));
                self.send(Event::AcceptLeft);
            }
            Command::Stop => self.stop(),
            Command::Upgrade
            | Command::Reopen
            | Command::HandOver
            | Command::ChallengesServed { .. }
            | Command::StoreJournals
            | Command::StoreUpdates(_)
            | Command::CertificatesServed
            | Command::HoldKeys { .. }
            | Command::RetainKeys
            | Command::ServeKeys
            | Command::ServeZoneKeys
            | Command::ReadZones { .. }
            | Command::Dnssec(_)
            | Command::UseKeeper
            | Command::ZoneNotified(_)
            | Command::Certificates { .. }
            | Command::RenewCertificate { .. }
            | Command::RevokeCertificate { .. } => {
                log_warning(&format!("ignoring the command {command:?}: it is not for a server process"));
            }
        }
    }

    /// Serves the ACME challenges from now on.
    fn update_challenges(&mut self, number: u64, descriptors: IncomingFds) {
        let received: Descriptors = descriptors.into_iter().collect();
        let challenges = received.challenges.ok_or_else(|| io::Error::other("the command has no descriptor"));
        match challenges.and_then(challenges_from_memfd) {
            Ok(challenges) => {
                self.state.assembly.challenges = ActiveChallenges::new(challenges, &self.state.config);
                self.server.update_snapshot(self.state.assembly.zones_with_challenges(&self.state.config));
                self.send(Event::ChallengesServed { number });
            }
            Err(error) => {
                log_error(&format!("cannot read the challenges of certificate authorities: {}", error_text(&error)));
            }
        }
    }

    fn stop(&mut self) {
        self.ordered_end = Some(DrainMode::Stopping);
        self.server.drain(DrainMode::Stopping);
        // From now on clients must be refused. The supervisor knows which sockets belong to a service manager.
        if self.state.supervisor.is_some() {
            return self.send(Event::AcceptStopped);
        }
        if let Err(error) = self.state.listeners.shut_down_except(&Listeners::default()) {
            log_error(&format!("cannot shut down a listener: {}", error_text(&error)));
        }
    }

    /// The remedy without a supervisor.
    fn remedy(&self) -> String {
        match self.state.control {
            Some(_) => "run `sanderling serve` to adopt this process".to_owned(),
            None => format!("stop it with: kill {}", std::process::id()),
        }
    }

    /// Sends an event with a descriptor to the supervisor, if there is one.
    fn send_with(&mut self, event: Event, kind: FdKind, descriptor: OwnedFd) {
        let Some(supervisor) = &mut self.state.supervisor else { return };
        if supervisor.send_with(&Message::Event(event), vec![(kind, descriptor)]).is_err() {
            self.on_supervisor_lost();
        }
    }

    /// Sends an event to the supervisor. Heartbeats and text are dropped while many events are unsent.
    fn send(&mut self, event: Event) {
        let Some(supervisor) = &mut self.state.supervisor else { return };
        let may_drop = matches!(event, Event::Heartbeat | Event::LogFailed(_) | Event::Stdout(_) | Event::Stderr(_));
        if may_drop && supervisor.unsent_count() >= UNSENT_EVENTS_MAX {
            return;
        }
        if supervisor.send(&Message::Event(event)).is_err() {
            self.on_supervisor_lost();
        }
    }

    fn flush(&mut self) {
        if self.state.supervisor.as_mut().is_some_and(|supervisor| supervisor.flush().is_err()) {
            self.on_supervisor_lost();
        }
    }

    fn send_new_process_needed(&mut self, reason: &str) {
        self.send(Event::NewProcessNeeded(Text::new(reason)));
    }

    /// Sends diagnostics for the client that has requested a reload.
    fn send_diagnostics(&mut self, diagnostics: &[Diagnostic]) {
        for_client(diagnostics).for_each(|line| self.send(Event::Stderr(Text::new(&line))));
    }

    fn send_heartbeat(&mut self) {
        let now = Instant::now();
        if now < self.next_heartbeat {
            return;
        }
        self.next_heartbeat = now + HEARTBEAT_INTERVAL;
        self.server.free_replaced_zones();
        let status = self.server.status();
        let is_dry_run = self.state.config.dns_rate_limit.dry_run;
        let lines = self.limit_log.lines(now, is_dry_run, |counter| status.sum(counter));
        lines.iter().for_each(|line| log_warning(line));
        for BackendProblem { backend, message } in self.server.take_backend_problems() {
            self.backend_log.warning(&backend, &message);
        }
        log_refused(&self.state.assembly.outgoing_transfers.take_refused(), &mut self.transfer_log);
        self.version_log.take_due(now).iter().for_each(|line| log(line));
        if self.heap_trim.is_due(status.buffers_bytes) {
            sanderling_os::heap::trim();
        }
        let hung = self.server.hung_thread();
        let waiting = hung.as_ref().filter(|thread| thread.waits_for_disk).map(|thread| thread.name.clone());
        if let Some(thread) = waiting.as_ref().filter(|_| waiting != self.logged_disk_wait) {
            log_warning(&format!("thread {thread} is waiting for a disk, and so are its connections"));
        }
        self.logged_disk_wait = waiting;
        for kind in LogKind::ALL {
            let status = self.server.log_status(kind).unwrap_or_default();
            self.lost_lines[kind as usize].line(&status).iter().for_each(|line| log_warning(line));
            if status.error.is_some() {
                self.send(Event::LogFailed(kind));
            }
        }
        match hung {
            Some(thread) if !thread.waits_for_disk => self.send(Event::ThreadHung(Text::new(&thread.name))),
            // Unsent events are as good as a heartbeat.
            _ if self.state.supervisor.as_ref().is_some_and(|supervisor| supervisor.unsent_count() > 0) => {}
            _ => self.send(Event::Heartbeat),
        }
    }

    /// Watches the sites that are served now.
    fn watch_sites(&mut self) {
        let sites = std::mem::take(&mut self.state.watched_sites);
        log_watch_error(self.site_watcher.watch(sites));
    }

    /// Applies rules that have changed in a document root, and begins to load sites that have another release.
    fn handle_changed_sites(&mut self) {
        while let Some(change) = self.site_watcher.take() {
            let mut changed = match change {
                SiteChange::Rules(changed) => changed,
                SiteChange::Release(index) => {
                    self.on_release_switched(index);
                    continue;
                }
            };
            report(&changed.loaded.warnings);
            let (redirects, fields) = changed.loaded.rules.rule_counts();
            let mut watched = None;
            self.server.update_snapshot(|snapshot| {
                if let Some((sites, site)) = changed.apply(&snapshot.sites) {
                    (snapshot.sites, watched) = (Arc::new(sites), Some(site));
                }
            });
            let Some(watched) = watched else { continue };
            let shown = changed.document_root().display();
            log(&format!("site {shown}: {redirects} rules of _redirects, {fields} of _headers"));
            log_watch_error(self.site_watcher.update(watched));
        }
    }

    /// Sites, zones, certificates and TSIG keys that could not be loaded.
    fn problem_count(&self) -> usize {
        self.state.load_status.problem_count() + self.state.certificates.problem_count()
    }

    fn take_supervision(&mut self, supervision: Supervision, descriptors: IncomingFds) {
        self.state.supervision = supervision;
        for (_, file) in descriptors.into_iter().filter(|(kind, _)| *kind == FdKind::AgentReport) {
            match AgentReport::from_memfd(file) {
                Ok(report) => self.agent_problems = AgentProblems::of(report),
                Err(error) => log_error(&format!("cannot read the agent's report: {}", error_text(&error))),
            }
        }
    }

    /// The state of all that is served at this moment.
    fn service_state(&self) -> ServiceState<'_> {
        let has_supervisor = self.state.supervisor.is_some();
        let mut servers = self.server.backend_servers();
        let addresses = self.state.assembly.backend_addresses.iter();
        servers.extend(addresses.filter(|(_, found)| found.is_empty()).map(|(name, _)| not_found(name)));
        ServiceState::new(&self.state.config, &self.agent_problems, &self.state.supervision, has_supervisor, servers)
    }

    /// The status, and whether everything is served as configured.
    fn status_text(&self, format: StatusFormat) -> (String, bool) {
        if format == StatusFormat::Metrics {
            return (self.metrics_text(TextFormat::OpenMetrics), true);
        }
        let service_state = self.service_state();
        let status = ProcessStatus::new(&StatusParts {
            server: self.server,
            sandbox: &self.state.sandbox,
            load_status: &self.state.load_status,
            certificates: &self.state.certificates.states,
            tsig_keys: self.state.certificates.tsig_keys(),
            service_state: &service_state,
            started_at: self.started_at,
            worker_count: self.state.config.worker_count,
            reload_count: self.reload_count,
            exposed_secrets: &self.state.exposed_secrets,
        });
        let text = match format {
            StatusFormat::Json => status.to_json(),
            StatusFormat::Verbose => status.to_verbose_text(),
            StatusFormat::Text | StatusFormat::Metrics => status.to_text(),
        };
        (text, status.is_good())
    }

    /// The metrics at this moment.
    fn metrics_text(&self, format: TextFormat) -> String {
        let metrics = Metrics {
            status: self.server.status(),
            logs: LogKind::ALL.map(|log| self.server.log_status(log)),
            load_status: &self.state.load_status,
            certificates: &self.state.certificates.states,
            tsig_keys: self.state.certificates.tsig_keys(),
            service_state: &self.service_state(),
            supervision: self.state.supervision,
            started_at: self.started_at,
            worker_count: self.state.config.worker_count,
            zones_max: self.state.config.limits.metrics_zones_max,
        };
        metrics.to_text(format)
    }

    /// A page of the metrics listener.
    fn page(&self, page: Page) -> Content {
        match page {
            Page::Metrics(format) => Content::Good(self.metrics_text(format)),
            Page::Health => match self.server.hung_thread() {
                None => Content::Good("ok\n".to_owned()),
                Some(thread) => Content::Bad(format!("thread {} does not continue\n", thread.name)),
            },
            Page::Readiness => {
                let (load_status, certificates) = (&self.state.load_status, &self.state.certificates);
                let state = self.service_state();
                let has_failed =
                    |log: &LogKind| self.server.log_status(*log).is_some_and(|status| status.error.is_some());
                let failed: Vec<LogKind> = LogKind::ALL.into_iter().filter(has_failed).collect();
                match state.readiness(load_status, &certificates.states, certificates.tsig_keys(), &failed) {
                    Ok(text) => Content::Good(text),
                    Err(text) => Content::Bad(text),
                }
            }
        }
    }

    /// Answers the clients that ask for metrics.
    fn serve_metrics(&mut self) {
        // The list is taken out, since the text is made from the rest.
        let mut listener = std::mem::replace(&mut self.state.metrics_listener, MetricsListener::new(Vec::new()));
        listener.serve(|page| self.page(page));
        self.state.metrics_listener = listener;
    }
}

fn log_watch_error(result: io::Result<()>) {
    if let Err(error) = result {
        log_error(&format!("cannot start the thread that watches sites: {}", error_text(&error)));
    }
}
