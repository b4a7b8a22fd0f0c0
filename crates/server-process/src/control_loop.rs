//! The control thread of a server process: carries out the commands of the supervisor, loads new configurations, sends
//! heartbeats, answers at the control socket while there is no supervisor, and answers those that collect metrics. It serves no other
//! client of the network.

mod served_zones;
mod site_reload;
mod zone_commands;

use crate::access_log::{self, LostLines};
use crate::certificates::{Certificates, LoadedSecrets, SecretDescriptors};
use crate::challenges::ActiveChallenges;
use crate::client_policy::set_client_policies;
use crate::heap_trim::HeapTrim;
use crate::kept_zones::NewSegment;
use crate::limit_log::LimitLog;
use crate::load_status::LoadStatus;
use crate::loader::{Loaded, Loader};
use crate::metrics::{Metrics, MetricsListener, TextFormat};
use crate::reply_options::reply_options;
use crate::sandbox::Sandbox;
use crate::site_watcher::{SiteChange, SiteWatcher, WatchedSite};
use crate::status::ProcessStatus;
use crate::transfers::transfer_policy;
use crate::zone_answers::ZoneClient;
use crate::zone_loader::Denial;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::log::{log, report};
use sanderling_config::{Config, ConfigSource, DomainName, ListenerRole, Service};
use sanderling_dns::ZoneMap;
use sanderling_ipc::agent::challenges_from_memfd;
use sanderling_ipc::control_socket::{ClientId, ControlSocket};
use sanderling_ipc::handover::Descriptors;
use sanderling_ipc::{
    CONFIGURATION_BYTES_MAX, Command, Connection, Event, FdKind, HEARTBEAT_INTERVAL, IncomingFds, Message, OutgoingFds,
    ProcessInfo, RETRY_INTERVAL, Received, StatusFormat, Supervision, Text, handover,
};
use sanderling_os::event_fd::EventFd;
use sanderling_os::memfd;
use sanderling_os::poll_set::PollSet;
use sanderling_os::signals::{SIGINT, SIGQUIT, SIGTERM, Signals};
use sanderling_server::{DrainMode, Server, SocketSet, TransferSlots};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Unsent events above which heartbeats and text are dropped.
const UNSENT_EVENTS_MAX: usize = 4_096;
/// Diagnostics that are sent to the client that has requested a reload; standard error has its own limit.
const DIAGNOSTICS_SENT_MAX: usize = 100;

/// What a server process has loaded and inherited.
pub(crate) struct ProcessState {
    pub(crate) source: ConfigSource,
    pub(crate) config: Arc<Config>,
    /// The text of `config`, for the next supervisor.
    pub(crate) config_text: OwnedFd,
    /// The segments of kept zones that the supervisor has, for the next one.
    pub(crate) kept_zones: Vec<Arc<OwnedFd>>,
    /// A segment that the supervisor must keep when this process serves.
    pub(crate) unsent_zones: Option<NewSegment>,
    /// `None` while it loads.
    pub(crate) loader: Option<Loader>,
    /// Sites that are to be watched.
    pub(crate) watched_sites: Vec<WatchedSite>,
    /// The state of what is served.
    pub(crate) load_status: LoadStatus,
    pub(crate) certificates: Certificates,
    pub(crate) transfer_slots: Arc<TransferSlots>,
    /// What came with the configuration that is being loaded.
    pub(crate) received_secrets: SecretDescriptors,
    /// A target of the access log that came with a configuration.
    pub(crate) access_log: Option<OwnedFd>,
    /// The shared keys, for the next supervisor.
    pub(crate) keys_file: Option<OwnedFd>,
    /// `None` after the supervisor has exited.
    pub(crate) supervisor: Option<Connection>,
    pub(crate) control: Option<ControlSocket>,
    /// The client that has stopped the process while there was no supervisor; it learns of the end.
    pub(crate) stop_client: Option<Connection>,
    pub(crate) metrics_listener: MetricsListener,
    /// What the supervisor has counted, for the metrics; it is kept when the supervisor is lost.
    pub(crate) supervision: Supervision,
    pub(crate) sandbox: Sandbox,
    pub(crate) own_pidfd: OwnedFd,
}

/// The control thread.
pub(crate) struct ControlLoop<'s> {
    server: &'s Server,
    /// The zones that are served, without what certificate authorities look for.
    zones: Arc<ZoneMap>,
    challenges: ActiveChallenges,
    socket_sets: &'s [SocketSet],
    state: ProcessState,
    results: (Sender<Finished>, Receiver<Finished>),
    /// A load has finished, or rules have changed.
    load_finished: Arc<EventFd>,
    site_watcher: SiteWatcher,
    /// Commands that wait until another one does not need the loader any more.
    waiting: VecDeque<(Command, IncomingFds)>,
    /// The loader loads a site or zone alone.
    loads_one: bool,
    /// Each thread that answers about zones has a reference.
    answers: Arc<()>,
    /// Whether a command to stop or drain has arrived.
    is_stopping: bool,
    next_heartbeat: Instant,
    /// The last wait for events has failed.
    has_wait_failed: bool,
    /// The thread that waits for a disk, as logged.
    logged_disk_wait: Option<String>,
    /// The error of the access log, as logged.
    lost_lines: LostLines,
    limit_log: LimitLog,
    heap_trim: HeapTrim,
    started_at: SystemTime,
}

/// What the loader has finished.
enum Finished {
    Config(Box<LoadResult>),
    Site(Box<site_reload::SiteResult>),
    Zone(Box<zone_commands::ZoneResult>),
}

/// The result of loading a configuration.
struct LoadResult {
    loader: Loader,
    config_text: OwnedFd,
    result: Result<(Arc<Config>, Loaded), Vec<Diagnostic>>,
}

impl<'s> ControlLoop<'s> {
    pub(crate) fn new(
        server: &'s Server,
        socket_sets: &'s [SocketSet],
        state: ProcessState,
    ) -> io::Result<ControlLoop<'s>> {
        let load_finished = Arc::new(EventFd::new()?);
        Ok(ControlLoop {
            zones: server.zones(),
            challenges: ActiveChallenges::default(),
            server,
            site_watcher: SiteWatcher::new(&state.config.limits, Arc::clone(&load_finished)),
            socket_sets,
            state,
            results: mpsc::channel(),
            load_finished,
            waiting: VecDeque::new(),
            loads_one: false,
            answers: Arc::default(),
            is_stopping: false,
            next_heartbeat: Instant::now(),
            has_wait_failed: false,
            logged_disk_wait: None,
            lost_lines: LostLines::default(),
            limit_log: LimitLog::default(),
            heap_trim: HeapTrim::default(),
            started_at: SystemTime::now(),
        })
    }

    /// Runs until the server drains; the connections to the supervisor and to the client that has stopped the process.
    pub(crate) fn run(mut self, signals: &Signals) -> [Option<Connection>; 2] {
        self.send(Event::Ready { problem_count: self.problem_count() });
        if self.state.supervisor.is_none() {
            // The next supervisor may have started another process, and only one may serve.
            log("lost the supervisor before this process was ready; exiting");
            self.server.drain(DrainMode::Replaced);
            return [None, None];
        }
        let unsent_zones = self.state.unsent_zones.take();
        self.keep_zones(unsent_zones);
        self.keep_certificates();
        self.watch_sites();
        self.report_zones();
        self.run_until_drain(signals);
        if !self.is_stopping {
            log("this server process has failed; it finishes requests in progress and exits");
            self.send(Event::Failed);
        }
        [self.state.supervisor, self.state.stop_client]
    }

    fn run_until_drain(&mut self, signals: &Signals) {
        while !self.server.is_draining() {
            self.wait_and_log_error(signals);
            self.handle_signals(signals);
            self.handle_commands();
            self.handle_loaded();
            self.handle_changed_sites();
            if self.state.supervisor.is_none() {
                self.handle_clients();
            }
            self.serve_metrics();
            self.send_heartbeat();
            self.flush();
        }
    }

    /// Waits for events. An error ends no process that serves: the sources are looked at all the same, and one error is
    /// logged until a wait has succeeded.
    fn wait_and_log_error(&mut self, signals: &Signals) {
        let result = self.wait(signals);
        self.load_finished.drain();
        if let (Err(error), false) = (&result, self.has_wait_failed) {
            log(&format!("cannot wait for events: {}; retrying", error_text(error)));
        }
        self.has_wait_failed = result.is_err();
    }

    fn wait(&self, signals: &Signals) -> io::Result<()> {
        let mut sources = vec![signals.as_fd(), self.load_finished.as_fd()];
        let mut deadline = self.next_heartbeat;
        if let Some(supervisor) = &self.state.supervisor {
            sources.push(supervisor.as_fd());
            if supervisor.unsent_count() > 0 {
                deadline = deadline.min(Instant::now() + RETRY_INTERVAL);
            }
        } else if let Some(control) = &self.state.control {
            sources.extend(control.poll_fds());
            deadline = control.deadline().map_or(deadline, |of_clients| of_clients.min(deadline));
        }
        deadline = self.state.metrics_listener.deadline().map_or(deadline, |of_clients| of_clients.min(deadline));
        let mut sources = PollSet::new(sources);
        self.state.metrics_listener.add_to(&mut sources);
        sources.wait(Some(deadline.saturating_duration_since(Instant::now())))
    }

    /// A signal of the terminal reaches the supervisor as well, which handles it as long as it exists.
    fn handle_signals(&mut self, signals: &Signals) {
        while let Some(signal) = signals.take() {
            match (&self.state.supervisor, signal) {
                (None, SIGTERM | SIGINT | SIGQUIT) => self.stop(),
                (None, _) => log(&format!("there is no supervisor; {}", self.remedy())),
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
                // No descriptor was free for the configuration, or the supervisor is of another version.
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
            Command::Reload { forced_zones } => {
                let mut received = Descriptors::default();
                received.extend(descriptors);
                let Descriptors { configuration, certificates, shared_keys, tsig_secrets, access_log, .. } = received;
                self.state.access_log = access_log;
                self.state.received_secrets = SecretDescriptors { certificates, shared_keys, tsig_secrets, kept: None };
                let result = configuration.ok_or_else(|| io::Error::other("no configuration came with the command"));
                if let Err(error) = result.and_then(|text| self.load(text, &forced_zones)) {
                    self.send_new_process_needed(&format!(
                        "the running process cannot load it: {}",
                        error_text(&error)
                    ));
                }
            }
            Command::UpdateSecrets => {
                let mut received = Descriptors::default();
                received.extend(descriptors);
                let Descriptors { certificates, shared_keys, tsig_secrets, .. } = received;
                let config = Arc::clone(&self.state.config);
                let known: HashSet<_> = self.state.certificates.diagnostics.iter().map(ToString::to_string).collect();
                let secrets = self
                    .load_secrets(&config, SecretDescriptors { certificates, shared_keys, tsig_secrets, kept: None });
                self.state.certificates.replaced.iter().for_each(|line| log(line));
                let is_new = |diagnostic: &&Diagnostic| !known.contains(&diagnostic.to_string());
                report(&self.state.certificates.diagnostics.iter().filter(is_new).cloned().collect::<Vec<_>>());
                if let Some(LoadedSecrets { tls, shared_keys, tsig_keys, .. }) = secrets {
                    self.server.update_snapshot(|snapshot| {
                        snapshot.tls = tls;
                        snapshot.reply_options = reply_options(&config, shared_keys.as_ref(), tsig_keys);
                    });
                }
            }
            Command::UpdateChallenges { number } => self.update_challenges(number, descriptors),
            Command::ReportZones => self.report_zones(),
            Command::UpdateAccessLog => {
                let mut received = Descriptors::default();
                received.extend(descriptors);
                access_log::set_target(self.server, &self.state.config, received.access_log);
            }
            Command::Status(format) => {
                let text = self.status_text(format);
                Text::parts(&text).for_each(|part| self.send(Event::Stdout(part)));
                self.send(Event::Done { is_success: true });
            }
            Command::Supervision(supervision) => self.state.supervision = supervision,
            Command::Drain => {
                self.is_stopping = true;
                self.server.drain(DrainMode::Replaced);
            }
            Command::Stop => self.stop(),
            Command::Upgrade
            | Command::Reopen
            | Command::HandOver
            | Command::ChallengesServed { .. }
            | Command::ZonesServed
            | Command::ZoneServed(_)
            | Command::Certificates { .. }
            | Command::RenewCertificate { .. } => {
                log(&format!("ignoring the command {command:?}: a server process does not carry it out"));
            }
        }
    }

    /// Answers what certificate authorities look for from now on.
    fn update_challenges(&mut self, number: u64, descriptors: IncomingFds) {
        let mut received = Descriptors::default();
        received.extend(descriptors);
        let challenges = received.challenges.ok_or_else(|| io::Error::other("none came with the command"));
        match challenges.and_then(challenges_from_memfd) {
            Ok(challenges) => {
                self.challenges = ActiveChallenges::new(challenges);
                let (tokens, zones) = (self.challenges.tokens(), self.challenges.overlay(&self.zones));
                self.server.update_snapshot(|snapshot| {
                    snapshot.challenges = tokens;
                    snapshot.zones = zones;
                });
                self.send(Event::ChallengesServed { number });
            }
            Err(error) => log(&format!("cannot answer certificate authorities: {}", error_text(&error))),
        }
    }

    fn stop(&mut self) {
        self.is_stopping = true;
        self.server.drain(DrainMode::Stopping);
        // From now on clients are to be refused. The supervisor knows which sockets belong to a service manager.
        if self.state.supervisor.is_some() {
            return self.send(Event::AcceptStopped);
        }
        let of_metrics = self.state.metrics_listener.listeners().iter().map(|listener| listener.shutdown());
        for result in self.socket_sets.iter().map(SocketSet::shut_down).chain(of_metrics) {
            if let Err(error) = result {
                log(&format!("cannot shut down a listener: {}", error_text(&error)));
            }
        }
    }

    fn on_supervisor_lost(&mut self) {
        self.state.supervisor = None;
        log(&format!("lost supervisor; still serving; {}", self.remedy()));
    }

    /// What the operator does without a supervisor.
    fn remedy(&self) -> String {
        match self.state.control {
            Some(_) => "run `sanderling serve` to adopt this process".to_owned(),
            None => format!("stop it with: kill {}", std::process::id()),
        }
    }

    /// Sends an event to the supervisor. Heartbeats and text are dropped while many events are unsent.
    fn send(&mut self, event: Event) {
        let Some(supervisor) = &mut self.state.supervisor else { return };
        let may_drop = matches!(event, Event::Heartbeat | Event::AccessLogFailed | Event::Stdout(_) | Event::Stderr(_));
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
        for diagnostic in diagnostics.iter().take(DIAGNOSTICS_SENT_MAX) {
            self.send(Event::Stderr(Text::new(&format!("{diagnostic}\n"))));
        }
        if diagnostics.len() > DIAGNOSTICS_SENT_MAX {
            let more = diagnostics.len() - DIAGNOSTICS_SENT_MAX;
            self.send(Event::Stderr(Text::new(&format!("and {more} more in the log\n"))));
        }
    }

    fn send_heartbeat(&mut self) {
        let now = Instant::now();
        if now < self.next_heartbeat {
            return;
        }
        self.next_heartbeat = now + HEARTBEAT_INTERVAL;
        self.server.free_replaced_zones();
        let status = self.server.status();
        self.limit_log.lines(now, |counter| status.sum(counter)).iter().for_each(|line| log(line));
        if self.heap_trim.is_due(status.buffers_bytes) {
            sanderling_os::heap::trim();
        }
        let hung = self.server.hung_thread();
        let waiting = hung.as_ref().filter(|thread| thread.waits_for_disk).map(|thread| thread.name.clone());
        if let Some(thread) = waiting.as_ref().filter(|_| waiting != self.logged_disk_wait) {
            log(&format!("thread {thread} waits for a disk, and its connections wait with it"));
        }
        self.logged_disk_wait = waiting;
        let access_log_status = self.server.access_log_status().unwrap_or_default();
        self.lost_lines.line(&access_log_status).iter().for_each(|line| log(line));
        if access_log_status.error.is_some() {
            self.send(Event::AccessLogFailed);
        }
        match hung {
            Some(thread) if !thread.waits_for_disk => self.send(Event::ThreadHung(Text::new(&thread.name))),
            // Unsent events are as good as a heartbeat.
            _ if self.state.supervisor.as_ref().is_some_and(|supervisor| supervisor.unsent_count() > 0) => {}
            _ => self.send(Event::Heartbeat),
        }
    }

    /// Loads a configuration on a new thread: zones may take seconds, in which heartbeats are due.
    fn load(&mut self, config_text: OwnedFd, forced_zones: &[String]) -> io::Result<()> {
        // Before the loader is taken, which an error would not give back.
        let text = memfd::read(&config_text, CONFIGURATION_BYTES_MAX)?;
        let is_same =
            memfd::read(&self.state.config_text, CONFIGURATION_BYTES_MAX).is_ok_and(|current| current == text);
        let same_config = is_same.then(|| Arc::clone(&self.state.config));
        let Some(mut loader) = self.state.loader.take() else {
            return Err(io::Error::other("it is still loading the previous configuration"));
        };
        let (source, sender, finished) =
            (self.state.source.clone(), self.results.0.clone(), Arc::clone(&self.load_finished));
        let forced_zones: Vec<DomainName> = forced_zones.iter().flat_map(|zone| DomainName::parse(zone)).collect();
        let run = move || {
            let parse_and_load = || {
                let config = same_config.map_or_else(|| source.parse(&text).map(Arc::new), Ok)?;
                let loaded = loader.load(&config, &forced_zones);
                Ok((config, loaded))
            };
            // A bug in a parser fails the reload, and nothing else.
            let result = catch_unwind(AssertUnwindSafe(parse_and_load)).unwrap_or_else(|_| {
                let remedy = "this is a bug in sanderling: report it with the configuration and its zones";
                let problem = Problem::new("loading the configuration panicked", remedy);
                Err(vec![Diagnostic::error(Location::Argument("reload".to_owned()), problem)])
            });
            // Fails only if the process exits.
            let _ = sender.send(Finished::Config(Box::new(LoadResult { loader, config_text, result })));
            let signalled = finished.signal();
            debug_assert!(signalled.is_ok());
        };
        thread::Builder::new().name("loader".to_owned()).spawn(run)?;
        Ok(())
    }

    /// Applies what was loaded, if there is something.
    fn handle_loaded(&mut self) {
        match self.results.1.try_recv() {
            Ok(Finished::Config(result)) => self.handle_config(*result),
            Ok(Finished::Site(result)) => self.apply_site(*result),
            Ok(Finished::Zone(result)) => self.apply_zone(*result),
            Err(_) => return,
        }
        self.handle_waiting();
    }

    fn handle_config(&mut self, result: LoadResult) {
        let LoadResult { loader, config_text, result } = result;
        self.state.loader = Some(loader);
        let result = result.map(|(config, mut loaded)| {
            // Before the result: when a client has it, a crash must not lose the versions.
            self.keep_zones(loaded.kept.take());
            (config, loaded)
        });
        match result {
            Err(diagnostics) => {
                report(&diagnostics);
                self.send_diagnostics(&diagnostics);
                self.send(Event::ReloadRefused);
            }
            // A new process loads before it enters its sandbox.
            Ok((_, Loaded { denial: Denial::Sandbox(path), .. })) if self.state.sandbox.restricts_directories() => {
                self.send_new_process_needed(&format!("its sandbox does not allow {}", path.display()));
            }
            Ok((config, loaded)) => match config.needs_new_process(&self.state.config) {
                Some(reason) => self.send_new_process_needed(&reason),
                None => self.apply(config, config_text, loaded),
            },
        }
    }

    /// Has the supervisor keep good versions of zones.
    fn keep_zones(&mut self, segment: Option<NewSegment>) {
        let Some(NewSegment { descriptor, replaces_all }) = segment else { return };
        if let (Some(supervisor), Ok(copy)) = (&mut self.state.supervisor, descriptor.try_clone()) {
            let event = Message::Event(Event::ZonesKept { replaces_all });
            if supervisor.send_with(&event, vec![(FdKind::Zones, copy)]).is_err() {
                self.on_supervisor_lost();
            }
        }
        if replaces_all {
            self.state.kept_zones.clear();
        }
        self.state.kept_zones.push(descriptor);
    }

    /// Has the supervisor keep the good versions of certificates.
    fn keep_certificates(&mut self) {
        if let (Some(supervisor), Some(Ok(copy))) =
            (&mut self.state.supervisor, self.state.certificates.kept.as_ref().map(OwnedFd::try_clone))
            && supervisor
                .send_with(&Message::Event(Event::CertificatesKept), vec![(FdKind::KeptCertificates, copy)])
                .is_err()
        {
            self.on_supervisor_lost();
        }
    }

    fn apply(&mut self, config: Arc<Config>, config_text: OwnedFd, loaded: Loaded) {
        let Loaded { mut snapshot, load_status, changes, warnings, errors, watched_sites, .. } = loaded;
        for diagnostics in [&errors, &warnings] {
            report(diagnostics);
            self.send_diagnostics(diagnostics);
        }
        let descriptors = std::mem::take(&mut self.state.received_secrets);
        let secrets = self.load_secrets(&config, descriptors);
        let diagnostics = std::mem::take(&mut self.state.certificates.diagnostics);
        report(&diagnostics);
        self.send_diagnostics(&diagnostics);
        self.state.certificates.diagnostics = diagnostics;
        access_log::set_target(self.server, &config, self.state.access_log.take());
        snapshot.access_log = access_log::access_log(&config);
        set_client_policies(&config, &mut snapshot);
        snapshot.transfers = transfer_policy(&config, &self.state.transfer_slots);
        self.zones = Arc::clone(&snapshot.zones);
        snapshot.zones = self.challenges.overlay(&self.zones);
        snapshot.challenges = self.challenges.tokens();
        self.server.update_snapshot(|current| {
            match secrets {
                Some(LoadedSecrets { tls, shared_keys, tsig_keys, .. }) => {
                    snapshot.tls = tls;
                    snapshot.reply_options = reply_options(&config, shared_keys.as_ref(), tsig_keys);
                }
                None => {
                    snapshot.tls = current.tls.clone();
                    snapshot.reply_options = Arc::clone(&current.reply_options);
                }
            }
            *current = snapshot;
        });
        self.state.config = config;
        self.state.config_text = config_text;
        self.state.load_status = load_status;
        self.state.watched_sites = watched_sites;
        self.watch_sites();
        let certificates = &self.state.certificates;
        let mut text = changes.to_text();
        certificates.replaced.iter().for_each(|line| text += &format!("{line}\n"));
        text += &(self.state.load_status.problems_text() + &certificates.problems_text());
        let problem_count = self.problem_count();
        self.send(Event::Reloaded { changes: Text::new(&text), problem_count });
        self.report_zones();
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

    /// Sites, zones and certificates that could not be loaded.
    fn problem_count(&self) -> usize {
        self.state.load_status.problem_count() + self.state.certificates.problem_count()
    }

    /// Loads certificates and keys; `None` if the current ones stay.
    fn load_secrets(&mut self, config: &Config, descriptors: SecretDescriptors) -> Option<LoadedSecrets> {
        let mut loaded = self.state.certificates.load(config, descriptors);
        self.keep_certificates();
        match &mut loaded {
            Ok(secrets) => self.state.keys_file = secrets.keys_file.take(),
            Err(error) => log(&format!("cannot load the certificates and keys: {}", error_text(error))),
        }
        loaded.ok()
    }

    fn status_text(&self, format: StatusFormat) -> String {
        let status = ProcessStatus::new(
            self.server,
            &self.state.sandbox,
            &self.state.load_status,
            &self.state.certificates.states,
            self.started_at,
            self.state.config.worker_count,
        );
        match format {
            StatusFormat::Text => status.to_text(),
            StatusFormat::Verbose => status.to_verbose_text(),
            StatusFormat::Json => status.to_json(),
            StatusFormat::Metrics => self.metrics().to_text(TextFormat::OpenMetrics),
        }
    }

    /// The metrics at this moment.
    fn metrics(&self) -> Metrics<'_> {
        Metrics {
            status: self.server.status(),
            access_log: self.server.access_log_status(),
            load_status: &self.state.load_status,
            certificates: &self.state.certificates.states,
            supervision: self.state.supervision,
            started_at: self.started_at,
            worker_count: self.state.config.worker_count,
            zones_max: self.state.config.limits.metrics_zones_max,
        }
    }

    /// Answers the clients that ask for metrics.
    fn serve_metrics(&mut self) {
        // Taken out, since the text is made of the rest.
        let mut listener = std::mem::replace(&mut self.state.metrics_listener, MetricsListener::new(Vec::new()));
        listener.serve(|format| self.metrics().to_text(format));
        self.state.metrics_listener = listener;
    }

    /// Answers at the control socket what can be answered without a supervisor.
    fn handle_clients(&mut self) {
        let Some(control) = &mut self.state.control else { return };
        for (client, command) in control.receive_commands() {
            self.handle_client(client, &command);
        }
    }

    fn handle_client(&mut self, client: ClientId, command: &Command) {
        const NO_SUPERVISOR: &str =
            "there is no supervisor; run `sanderling serve` to start one that adopts the running server process\n";
        let status = match command {
            Command::Status(format @ StatusFormat::Json) => {
                format!("{{\"supervisor\":null,\"process\":{}}}\n", self.status_text(*format))
            }
            Command::Status(format @ StatusFormat::Metrics) => self.status_text(*format),
            Command::Status(format) => format!("{NO_SUPERVISOR}{}", self.status_text(*format)),
            _ => String::new(),
        };
        let Some(control) = &mut self.state.control else { return };
        match command {
            Command::Status(_) => {
                control.send_stdout(client, &status);
                control.finish(client, true);
            }
            Command::Stop => {
                self.stop();
                if let Some(mut control) = self.state.control.take() {
                    self.state.stop_client = control.take_client(client);
                    control.remove();
                }
            }
            Command::Reload { .. }
            | Command::ReloadSite { .. }
            | Command::Reopen
            | Command::Upgrade
            | Command::Drain
            | Command::UpdateSecrets
            | Command::UpdateChallenges { .. }
            | Command::ChallengesServed { .. }
            | Command::ReportZones
            | Command::ZonesServed
            | Command::ZoneServed(_)
            | Command::Certificates { .. }
            | Command::RenewCertificate { .. }
            | Command::UpdateAccessLog
            | Command::Supervision(_) => {
                control.send_stderr(client, &format!("sanderling: {NO_SUPERVISOR}"));
                control.finish(client, false);
            }
            Command::Zone(command) => {
                if let Some(connection) = control.take_client(client) {
                    self.answer_zone_command(command.clone(), ZoneClient::new(connection));
                }
            }
            Command::HandOver if self.state.supervisor.is_some() => {
                control.send_stderr(client, "sanderling: another supervisor has adopted the process already\n");
                control.finish(client, false);
            }
            Command::HandOver => {
                if let Some(connection) = control.take_client(client) {
                    self.hand_over_to(connection);
                }
            }
        }
    }

    /// Hands all descriptors over to a new supervisor, and takes its commands from now on.
    fn hand_over_to(&mut self, mut connection: Connection) {
        let Some(control) = &mut self.state.control else { return };
        let ready_at_unix_s = self.started_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let pid = std::process::id().cast_signed();
        let info = ProcessInfo { generation: 1, pid, is_serving: true, ready_at_unix_s };
        let mut descriptors: OutgoingFds<'_> = vec![
            (FdKind::Process(info), self.state.own_pidfd.as_fd()),
            (FdKind::Configuration, self.state.config_text.as_fd()),
            (FdKind::ControlSocket, control.listener()),
        ];
        descriptors.extend(self.state.kept_zones.iter().map(|zones| (FdKind::Zones, zones.as_fd())));
        descriptors.extend(self.state.keys_file.iter().map(|keys| (FdKind::SharedKeys, keys.as_fd())));
        let kept = &self.state.certificates.kept;
        descriptors.extend(kept.iter().map(|kept| (FdKind::KeptCertificates, kept.as_fd())));
        let kind = |service| FdKind::Listener(ListenerRole::internal(service));
        for sockets in self.socket_sets {
            descriptors.extend(sockets.http.iter().map(|socket| (kind(Service::Http), socket.as_fd())));
            descriptors.extend(sockets.https.iter().map(|socket| (kind(Service::Https), socket.as_fd())));
            descriptors.extend(sockets.dot.iter().map(|socket| (kind(Service::Dot), socket.as_fd())));
            descriptors.extend(sockets.dns_streams.iter().map(|socket| (kind(Service::Dns), socket.as_fd())));
            descriptors.extend(sockets.dns_datagrams.iter().map(|socket| (kind(Service::Dns), socket.as_fd())));
        }
        let of_metrics = self.state.metrics_listener.listeners().iter();
        descriptors.extend(of_metrics.map(|listener| (kind(Service::Metrics), listener.as_fd())));
        match handover::send(&descriptors, &mut connection) {
            Ok(()) => {
                self.state.supervisor = Some(connection);
                // From now on the supervisor answers; the clients have to ask again.
                control.disconnect_all();
            }
            Err(error) => log(&format!("cannot hand over to the new supervisor: {}", error_text(&error))),
        }
        self.next_heartbeat = Instant::now();
    }
}

fn log_watch_error(result: io::Result<()>) {
    if let Err(error) = result {
        log(&format!("cannot start a thread for changes of sites: {}", error_text(&error)));
    }
}
