//! The supervisor's loop. The supervisor does one task at a time: a start, a reload, an upgrade. Requests that come
//! meanwhile wait. A failed task leaves the serving process as it was.

mod startup;
mod process_events;
mod reload;
mod upgrade;
mod start_task;
mod status;
mod certificates;
mod keeper;
mod agent;
mod renewal_commands;
mod zones;
mod log_files;
mod secrets;

pub use agent::state_problem;
pub use startup::serve;

use self::agent::Agent;
use self::keeper::Keeper;
use self::log_files::LogFiles;
use self::renewal_commands::RenewalCommands;
use self::secrets::Secrets;
use crate::backoff::Backoff;
use crate::child::{Child, hang_limit};
use crate::orphans::Orphans;
use crate::phase::{Phase, PhaseInput, Termination};
use crate::process::Process;
use crate::start_states::{KeptVersions, StartReason, StartState};
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{self, log, log_error, log_warning};
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{Config, ConfigSource, Exit, UNLIMITED};
use sanderling_ipc::control_socket::{ClientId, ControlSocket};
use sanderling_ipc::{Command, HEARTBEAT_INTERVAL, RETRY_INTERVAL, StatusFormat, Supervision, ZoneCommand};
use sanderling_listeners::Listeners;
use sanderling_os::error::with_context;
use sanderling_os::poll_set::PollSet;
use sanderling_os::sd_notify::{Notifier, State};
use sanderling_os::signals::{SIGHUP, SIGUSR1, SIGUSR2, Signals};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Reloads and upgrades that wait for the current task.
const QUEUE_MAX: usize = 64;
/// Additional time after `drain_timeout_ms` before a draining process is killed.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);
/// Pause after a failure to poll, such as for lack of memory.
const POLL_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The supervisor.
struct Supervisor {
    source: ConfigSource,
    forced: Vec<String>,
    /// The program that an upgrade switches to.
    installed_program: PathBuf,
    signals: Signals,
    control: Option<ControlSocket>,
    notifier: Notifier,
    listeners: Listeners,
    /// The addresses that have been printed on standard output.
    announced: Listeners,
    active: ActiveConfig,
    /// Good versions of zones for the next server process, in sealed memfds. Later versions replace earlier ones of the
    /// same zone.
    kept_zones: Vec<OwnedFd>,
    /// Starts in a row that have failed with good versions of zones or certificates.
    failed_with_kept_count: u32,
    secrets: Secrets,
    agent: Agent,
    keeper: Keeper,
    renewal_commands: RenewalCommands,
    logs: LogFiles,
    processes: Vec<Process>,
    orphans: Orphans,
    last_generation: u64,
    task: Option<Task>,
    queue: VecDeque<QueuedRequest>,
    /// Clients that wait for the status of the serving process, in the order of their requests.
    status_requests: VecDeque<StatusRequest>,
    backoff: Backoff,
    restart_at: Option<Instant>,
    /// Responses that replaced server processes have aborted after `drain_timeout_ms`.
    cut_off_count: u64,
    /// The last time when a server process was replaced at its own request.
    replaced_itself_at: Option<Instant>,
    /// The numbers of reloads that succeeded, succeeded in part, and failed.
    reload_counts: [u64; 3],
    /// Messages that processes can cause repeatedly.
    limited_log: LimitedLog,
    /// The data for metrics that the serving process, of this generation, has.
    sent_supervision: Option<(u64, Supervision)>,
    lifecycle: Lifecycle,
    next_watchdog: Option<Instant>,
    started_at: SystemTime,
}

/// A configuration, and its text as a sealed memfd.
#[derive(Debug)]
struct ActiveConfig {
    config: Arc<Config>,
    text: OwnedFd,
}

/// A client that waits for a server process's status.
#[derive(Clone, Copy, Debug)]
struct StatusRequest {
    client: ClientId,
    format: StatusFormat,
    /// The process that answers.
    generation: u64,
}

/// A request's origin, which receives its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requester {
    /// A client of the control socket.
    Client(ClientId),
    /// A signal, or the supervisor itself: the result is only logged.
    None,
}

/// A request that waits for the current task.
#[derive(Clone, Debug, PartialEq, Eq)]
enum QueuedRequest {
    /// A reload, with the zones that are reloaded in any case.
    Reload(Requester, Vec<String>),
    Upgrade(Requester),
    /// A reload of one site, with its domain; `None` for the site of `serve FOLDER`.
    ReloadSite(Requester, Option<String>),
    /// A zone command that waits for the process that should load the zone.
    Zone(Requester, ZoneCommand),
    /// The process of this generation asks to be replaced, for this reason.
    Replace(u64, String),
}

impl QueuedRequest {
    fn requester(&self) -> Requester {
        match self {
            QueuedRequest::Reload(requester, _)
            | QueuedRequest::ReloadSite(requester, _)
            | QueuedRequest::Upgrade(requester)
            | QueuedRequest::Zone(requester, _) => *requester,
            QueuedRequest::Replace(..) => Requester::None,
        }
    }
}

/// The current task.
#[derive(Debug)]
enum Task {
    /// The serving process loads a configuration.
    Reload {
        requester: Requester,
        next: ActiveConfig,
        forced_zones: Vec<String>,
        /// The process that received the command: no other process answers for it.
        generation: u64,
        /// When a new process is started instead.
        deadline: Instant,
    },
    /// A server process starts.
    Start(Start),
    /// A server process has replaced another for a reload, which is answered when the replaced process has stopped
    /// accepting.
    Replace(Replacement),
}

/// The start of a server process.
#[derive(Debug)]
struct Start {
    requester: Requester,
    reason: StartReason,
    next: ActiveConfig,
    listeners: Listeners,
    generation: u64,
    deadline: Instant,
    state: StartState,
    kept: KeptVersions,
}

/// A reload by a new process, which serves.
#[derive(Debug)]
struct Replacement {
    requester: Requester,
    /// The process that was replaced.
    replaced_generation: u64,
    message: String,
    problem_count: usize,
    forced_zones: Vec<String>,
    deadline: Instant,
}

impl Task {
    fn requester(&self) -> Requester {
        match self {
            Task::Reload { requester, .. }
            | Task::Start(Start { requester, .. })
            | Task::Replace(Replacement { requester, .. }) => *requester,
        }
    }

    /// Whether the task is a reload that process `generation` was told to do.
    fn is_reload_of(&self, generation: u64) -> bool {
        matches!(self, Task::Reload { generation: told, .. } if *told == generation)
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Task::Reload { deadline, .. } => Some(*deadline),
            Task::Start(start) => (start.state != StartState::TimedOut).then_some(start.deadline),
            Task::Replace(replacement) => Some(replacement.deadline),
        }
    }
}

/// Whether the supervisor runs or stops.
#[derive(Debug, Default, PartialEq, Eq)]
enum Lifecycle {
    #[default]
    Running,
    /// The supervisor exits when all server processes have exited.
    Stopping {
        /// The clients that wait for it.
        waiting: Vec<ClientId>,
        /// Whether a signal was a reason: a second one stops immediately.
        is_by_signal: bool,
    },
}

impl Lifecycle {
    fn is_stopping(&self) -> bool {
        *self != Lifecycle::Running
    }

    /// Begins to stop, or stops immediately on a second signal: the input for the server processes.
    fn stop(&mut self, requester: Requester) -> PhaseInput {
        if *self == Lifecycle::Running {
            *self = Lifecycle::Stopping { waiting: Vec::new(), is_by_signal: false };
        }
        let Lifecycle::Stopping { waiting, is_by_signal } = self else { unreachable!("set above") };
        match requester {
            Requester::Client(id) => {
                waiting.push(id);
                PhaseInput::Stop
            }
            Requester::None if std::mem::replace(is_by_signal, true) => PhaseInput::StopNow,
            Requester::None => PhaseInput::Stop,
        }
    }

    /// The clients that wait until the server has stopped.
    fn into_waiting(self) -> Vec<ClientId> {
        match self {
            Lifecycle::Running => Vec::new(),
            Lifecycle::Stopping { waiting, .. } => waiting,
        }
    }
}

impl Supervisor {
    /// Supervises until the server has stopped.
    fn run(mut self) -> Exit {
        log::set_queue_limit(self.active.config.limits.log_queue_bytes_max);
        loop {
            if let Err(error) = self.wait() {
                log_warning(&format!("cannot wait for events: {}; retrying", error_text(&error)));
                thread::sleep(POLL_RETRY_PAUSE);
            }
            self.handle_signals();
            self.handle_events();
            self.handle_agent_events();
            self.reap_agent();
            self.handle_keeper_events();
            self.reap_keepers();
            if let Some(exit) = self.reap() {
                // A server process that should be adopted still answers at the control socket.
                if self.processes.is_empty() {
                    self.keeper.end();
                    self.control.take().into_iter().for_each(ControlSocket::remove);
                }
                return exit;
            }
            self.handle_commands();
            self.handle_deadlines();
            self.begin_next();
            self.send_supervision();
            self.orphans.reap();
            if self.lifecycle.is_stopping() && self.processes.is_empty() {
                return self.finish();
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut sources = vec![self.signals.as_fd()];
        sources.extend(self.processes.iter().flat_map(Process::poll_fds));
        sources.extend(self.agent.process.get().into_iter().flat_map(Child::poll_fds));
        sources.extend(self.keeper.poll_fds());
        sources.extend(self.renewal_commands.poll_fd());
        sources.extend(self.control.iter().flat_map(ControlSocket::poll_fds));
        let now = Instant::now();
        let timeout = self.next_deadline().map(|deadline| deadline.saturating_duration_since(now));
        PollSet::new(sources).wait(timeout)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let drain_limit = self.drain_limit();
        let processes = self.processes.iter().flat_map(|process| {
            let heartbeat = (process.phase() == Phase::Serving).then(|| now + HEARTBEAT_INTERVAL);
            let retry = process.has_unsent().then(|| now + RETRY_INTERVAL);
            [heartbeat, retry, process.drain_deadline(drain_limit), process.termination.deadline()]
        });
        let task = self.task.as_ref().and_then(Task::deadline);
        // Requests that wait for the end of the task, or for a serving process, are checked then, because they may have
        // timed out meanwhile.
        let is_idle = self.task.is_none();
        let is_serving = self.processes.iter().any(|process| process.phase() == Phase::Serving);
        let control = self.control.as_ref().and_then(ControlSocket::deadline);
        processes
            .chain([
                task,
                control,
                self.restart_at.filter(|_| is_idle),
                self.next_watchdog,
                self.agent.next_deadline(is_serving),
                self.keeper.next_erasure(),
                self.keeper.process.next_start().filter(|at| now < *at),
                self.secrets.next_check().filter(|_| is_idle),
                self.logs.next_check(),
                self.renewal_commands.next_start(now, self.renewal_interval()),
            ])
            .flatten()
            .min()
    }

    /// Time after which a draining process is killed; `None` for never.
    fn drain_limit(&self) -> Option<Duration> {
        let timeout_ms = self.active.config.limits.drain_timeout_ms;
        (timeout_ms != UNLIMITED).then(|| Duration::from_millis(timeout_ms).saturating_add(DRAIN_MARGIN))
    }

    fn handle_signals(&mut self) {
        while let Some(signal) = self.signals.take() {
            match signal {
                SIGHUP => self.enqueue(QueuedRequest::Reload(Requester::None, Vec::new())),
                SIGUSR2 => self.enqueue(QueuedRequest::Upgrade(Requester::None)),
                SIGUSR1 => self.reopen_logs(Requester::None),
                _ => self.stop(Requester::None),
            }
        }
    }

    fn enqueue(&mut self, request: QueuedRequest) {
        if request.requester() == Requester::None && self.queue.contains(&request) {
            // The waiting request already covers this one.
            return;
        }
        if self.lifecycle.is_stopping() {
            self.reply(request.requester(), Err("the server is stopping"));
        } else if self.queue.len() == QUEUE_MAX {
            self.reply(request.requester(), Err("too many requests are waiting; try again later"));
        } else {
            self.queue.push_back(request);
        }
    }

    fn handle_commands(&mut self) {
        let Some(control) = &mut self.control else { return };
        for (client, command) in control.receive_commands() {
            let requester = Requester::Client(client);
            match command {
                Command::Status(format) => self.begin_status(client, format),
                Command::Reload { forced_zones } => self.enqueue(QueuedRequest::Reload(requester, forced_zones)),
                Command::ReloadSite { name } => self.enqueue(QueuedRequest::ReloadSite(requester, name)),
                Command::Zone(command @ ZoneCommand::Reload { .. }) => {
                    self.enqueue(QueuedRequest::Zone(requester, command));
                }
                Command::Zone(command) => self.pass_to_serving_process(requester, command),
                command @ Command::Dnssec(_) => self.pass_to_agent(requester, command),
                Command::Certificates { name, is_json } => {
                    self.reply_with_certificates(requester, name.as_deref(), is_json);
                }
                command @ (Command::RenewCertificate { .. } | Command::RevokeCertificate { .. }) => {
                    self.pass_to_agent(requester, command);
                }
                Command::Upgrade => self.enqueue(QueuedRequest::Upgrade(requester)),
                Command::Stop => self.stop(requester),
                Command::Reopen => self.reopen_logs(requester),
                Command::Drain
                | Command::UpdateSecrets
                | Command::UpdateLogs
                | Command::UpdateChallenges { .. }
                | Command::UpdateBackendAddresses
                | Command::ChallengesServed { .. }
                | Command::ReportZones
                | Command::ZonesServed
                | Command::StoreJournals
                | Command::StoreUpdates(_)
                | Command::UpdatesStored(_)
                | Command::BackendConnected { .. }
                | Command::CertificatesServed
                | Command::ZoneServed(_)
                | Command::HoldKeys { .. }
                | Command::RetainKeys
                | Command::ServeKeys
                | Command::ServeZoneKeys
                | Command::ReadZones { .. }
                | Command::UseKeeper
                | Command::ZoneNotified(_)
                | Command::Supervision(_) => {
                    self.reply(requester, Err("only a supervisor can send this command"));
                }
                Command::HandOver => {
                    let pid = std::process::id();
                    let message = format!(
                        "a supervisor is already running, process {pid}; stop it first, or specify another control socket"
                    );
                    self.reply(requester, Err(&message));
                }
            }
        }
    }

    /// Begins the next task if none is in progress.
    fn begin_next(&mut self) {
        while self.task.is_none() && !self.lifecycle.is_stopping() {
            // Requests come first: the current configuration may fail to start, and the requested one may not.
            match self.queue.pop_front() {
                Some(QueuedRequest::Reload(requester, forced_zones)) => self.begin_reload(requester, forced_zones),
                Some(QueuedRequest::ReloadSite(requester, name)) => self.begin_site_reload(requester, name),
                Some(QueuedRequest::Upgrade(requester)) => self.begin_upgrade(requester),
                Some(QueuedRequest::Zone(requester, command)) => self.pass_to_serving_process(requester, command),
                Some(QueuedRequest::Replace(generation, why)) => self.replace_serving(generation, &why),
                None if self.restart_at.is_some_and(|at| Instant::now() >= at) => {
                    self.restart_at = None;
                    self.restart_exited(StartReason::Restart);
                }
                None => return,
            }
        }
    }

    fn handle_deadlines(&mut self) {
        let hang_limit = hang_limit(self.active.config.limits.hang_timeout_ms);
        let drain_limit = self.drain_limit();
        for index in 0..self.processes.len() {
            let is_serving = self.processes[index].phase() == Phase::Serving;
            if is_serving && self.processes[index].is_silent_for(hang_limit) {
                let (process, hang_s) = (&self.processes[index], hang_limit.as_secs());
                log_error(&format!("{process} hung for {hang_s} s (`hang_timeout`); killed and restarted"));
                self.replace_hung(index);
            }
            let process = &mut self.processes[index];
            process.flush();
            if process.drain_deadline(drain_limit).is_some_and(|deadline| Instant::now() >= deadline) {
                log_error(&format!("{process} has not finished within `drain_timeout`, killing it"));
                process.kill();
            }
            process.terminate(Termination::poll);
        }
        self.handle_task_deadline();
        self.update_agent();
        self.update_keeper(hang_limit);
        self.update_secrets();
        self.connect_agent_to_keeper();
        self.update_logs();
        self.update_renewal_commands();
        if let Some(interval) = self.notifier.watchdog_interval()
            && self.next_watchdog.is_none_or(|at| Instant::now() >= at)
        {
            self.next_watchdog = Some(Instant::now() + interval);
            self.notify(&[State::Watchdog]);
        }
    }

    /// Stops all server processes gracefully; immediately on a second signal.
    fn stop(&mut self, requester: Requester) {
        self.notify(&[State::Stopping]);
        if !self.lifecycle.is_stopping() {
            log("stopping: requests in progress are finished");
        }
        let input = self.lifecycle.stop(requester);
        self.stop_agent();
        self.restart_at = None;
        for process in &mut self.processes {
            process.apply(input);
        }
        let task = self.task.take().map(|task| task.requester());
        let queued = self.queue.drain(..).map(|request| request.requester());
        let cancelled: Vec<Requester> = task.into_iter().chain(queued).collect();
        for requester in cancelled {
            self.reply(requester, Err("the server is stopping"));
        }
    }

    fn finish(mut self) -> Exit {
        self.agent.process.end();
        self.keeper.end();
        for client in std::mem::take(&mut self.lifecycle).into_waiting() {
            self.reply(Requester::Client(client), Ok("stopped\n"));
        }
        if let Some(control) = self.control.take() {
            control.remove();
        }
        Exit::Success
    }

    /// Sends a requester the result of its request: text for its standard output, or an error.
    fn reply(&mut self, requester: Requester, result: Result<&str, &str>) {
        let (Requester::Client(client), Some(control)) = (requester, &mut self.control) else { return };
        match result {
            Ok(text) => control.send_stdout(client, text),
            Err(error) => control.send_stderr(client, &format!("sanderling: {error}\n")),
        }
        control.finish(client, result.is_ok());
    }

    fn send_stdout(&mut self, requester: Requester, text: &str) {
        if let (Requester::Client(client), Some(control)) = (requester, &mut self.control) {
            control.send_stdout(client, text);
        }
    }

    fn send_stderr(&mut self, requester: Requester, text: &str) {
        let (Requester::Client(client), Some(control)) = (requester, &mut self.control) else { return };
        control.send_stderr(client, text);
    }

    /// Notifies the service manager.
    fn notify(&self, states: &[State<'_>]) {
        if let Err(error) = self.notifier.notify(states) {
            log_error(&format!("cannot notify the service manager: {}", error_text(&error)));
        }
    }

    fn serving_process(&mut self) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.phase() == Phase::Serving)
    }
}

impl ActiveConfig {
    fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.config.limits.start_timeout_ms)
    }

    fn try_clone(&self) -> io::Result<ActiveConfig> {
        let text = self
            .text
            .try_clone()
            .map_err(|error| with_context("fcntl(F_DUPFD_CLOEXEC)", "the configuration", &error))?;
        Ok(ActiveConfig { config: Arc::clone(&self.config), text })
    }

    /// The time when the configuration was read: the memfd keeps the time of its last write, even through an exec.
    fn read_at(&self) -> SystemTime {
        let text = self.text.try_clone().map(File::from);
        text.and_then(|text| text.metadata()?.modified()).unwrap_or(UNIX_EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reload_is_answered_by_the_process_that_was_told() {
        let text = sanderling_os::memfd::create("configuration", b"").expect("created");
        let next = ActiveConfig { config: Arc::new(Config::default()), text };
        let (requester, forced_zones, deadline) = (Requester::None, Vec::new(), Instant::now());
        let task = Task::Reload { requester, next, forced_zones, generation: 2, deadline };
        assert_eq!([1, 2, 3].map(|generation| task.is_reload_of(generation)), [false, true, false]);
    }

    #[test]
    fn second_signal_stops_at_once() {
        let mut lifecycle = Lifecycle::Running;
        assert!(!lifecycle.is_stopping());
        assert_eq!(lifecycle.stop(Requester::Client(1)), PhaseInput::Stop);
        assert!(lifecycle.is_stopping());
        assert_eq!(lifecycle.stop(Requester::None), PhaseInput::Stop);
        assert_eq!(lifecycle.stop(Requester::Client(2)), PhaseInput::Stop);
        assert_eq!(lifecycle.stop(Requester::None), PhaseInput::StopNow);
        assert_eq!(lifecycle.into_waiting(), [1, 2]);
    }
}
