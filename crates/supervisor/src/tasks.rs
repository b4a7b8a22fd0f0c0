//! The tasks of the supervisor from request to result: a start, a reload, an upgrade, a restart.

use crate::lifecycle::Requester;
use crate::phase::PhaseInput;
use crate::process::Process;
use crate::program::{self, RUNNING};
use crate::start::{AfterFailure, StartInput, StartReason, StartState, StartStep};
use crate::{ActiveConfig, StatusRequest, Supervisor};
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::log::{log, print, report};
use sanderling_ipc::{
    ARTEFACT_BYTES_MAX, ArtefactKind, Command, Connection, Exit, FdKind, OutgoingFds, PendingCommand, handover,
};
use sanderling_listeners::Listeners;
use sanderling_os::error::with_context;
use sanderling_os::process::ExitStatus;
use sanderling_os::sd_notify::State;
use sanderling_os::signals::{SIGHUP, SIGUSR2};
use sanderling_os::{memfd, signals};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A request that waits for the current task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuedRequest {
    Reload(Requester),
    Upgrade(Requester),
}

impl QueuedRequest {
    pub(super) fn requester(self) -> Requester {
        match self {
            QueuedRequest::Reload(requester) | QueuedRequest::Upgrade(requester) => requester,
        }
    }
}

/// The current task.
#[derive(Debug)]
pub(super) enum Task {
    /// The serving process loads a configuration.
    Reload {
        requester: Requester,
        next: ActiveConfig,
        /// When a new process is started instead.
        deadline: Instant,
    },
    /// A server process starts.
    Start(Start),
}

/// The start of a server process.
#[derive(Debug)]
pub(super) struct Start {
    requester: Requester,
    reason: StartReason,
    next: ActiveConfig,
    listeners: Listeners,
    generation: u64,
    deadline: Instant,
    state: StartState,
}

impl Task {
    pub(super) fn requester(&self) -> Requester {
        match self {
            Task::Reload { requester, .. } | Task::Start(Start { requester, .. }) => *requester,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Task::Reload { deadline, .. } => Some(*deadline),
            Task::Start(start) => (start.state != StartState::TimedOut).then_some(start.deadline),
        }
    }
}

impl Supervisor {
    /// Begins the next task if there is none.
    pub(super) fn begin_next(&mut self) {
        while self.task.is_none() && !self.lifecycle.is_stopping() {
            // Requests come first: the current configuration may fail to start, and the requested one may not.
            match self.queue.pop_front() {
                Some(QueuedRequest::Reload(requester)) => self.begin_reload(requester),
                Some(QueuedRequest::Upgrade(requester)) => self.begin_upgrade(requester),
                None if self.restart_at.is_some_and(|at| Instant::now() >= at) => {
                    self.restart_at = None;
                    self.restart_exited(StartReason::Restart);
                }
                None => return,
            }
        }
    }

    pub(super) fn begin_first(&mut self, next: ActiveConfig, listeners: Listeners) -> io::Result<()> {
        self.start(Path::new(RUNNING), StartReason::First, Requester::Signal, next, listeners)
    }

    /// Starts a process with the current configuration on the current sockets.
    fn restart_exited(&mut self, start_reason: StartReason) {
        let result = self.active.try_clone().and_then(|active| {
            let listeners = self.listeners.clone();
            self.start(Path::new(RUNNING), start_reason, Requester::Signal, active, listeners)
        });
        if let Err(error) = result {
            log(&format!("cannot start a server process: {}; retrying", error_text(&error)));
            self.restart_after(Duration::ZERO);
        }
    }

    /// Schedules a restart after a process has served for `served`.
    pub(super) fn restart_after(&mut self, served: Duration) {
        self.restart_at = Some(Instant::now() + self.backoff.delay_after(served));
    }

    fn begin_reload(&mut self, requester: Requester) {
        self.notify(&[State::Reloading]);
        let next = match self.read_config() {
            Ok(next) => next,
            Err(diagnostics) => {
                report(&diagnostics);
                for diagnostic in &diagnostics {
                    self.send_stderr(requester, &format!("{diagnostic}\n"));
                }
                return self.refuse_reload(requester);
            }
        };
        if next.config.control != self.active.config.control {
            const UNCHANGED: &str = "`control` has changed: the control socket keeps its path until the next start";
            log(UNCHANGED);
            self.send_stderr(requester, &format!("sanderling: {UNCHANGED}\n"));
        }
        if let Some(reason) = next.config.needs_new_process(&self.active.config) {
            return self.begin_replacement(requester, next, reason);
        }
        let text = next.text.try_clone();
        match (self.serving_process(), text) {
            (Some(process), Ok(text)) => {
                process.send(Command::Reload, vec![(FdKind::Artefact(ArtefactKind::Configuration), text)]);
                let deadline = Instant::now() + next.start_timeout();
                self.task = Some(Task::Reload { requester, next, deadline });
            }
            _ => self.begin_replacement(requester, next, "no server process was running"),
        }
    }

    fn read_config(&self) -> Result<ActiveConfig, Vec<Diagnostic>> {
        let text = self.source.read()?;
        // Mostly it is a zone that has changed, and reading the same configuration again would be in vain.
        let config = match memfd::read(&self.active.text, ARTEFACT_BYTES_MAX) {
            Ok(active) if active == text => Arc::clone(&self.active.config),
            _ => Arc::new(self.source.parse(&text)?),
        };
        let text = memfd::create("configuration", &text).map_err(|error| {
            let problem = Problem::new(error_text(&error), "check the memory and the file descriptor limit");
            vec![Diagnostic::error(Location::Argument("reload".to_owned()), problem)]
        })?;
        Ok(ActiveConfig { config, text })
    }

    /// Starts a server process for `next`, which the serving one cannot apply for this reason.
    fn begin_replacement(&mut self, requester: Requester, next: ActiveConfig, why: &str) {
        let listeners = match Listeners::bind(&next.config, &self.listeners) {
            Ok(listeners) => listeners,
            Err(error) => {
                let problem = error.to_problem(&self.source).to_string();
                return self.refuse_reload_with(requester, &problem);
            }
        };
        let larger = self.listeners.with_sockets_of(&listeners);
        let start_reason = StartReason::Reload(why.to_owned());
        if let Err(error) = self.start(Path::new(RUNNING), start_reason, requester, next, listeners) {
            if larger.has_more_than(&self.listeners) {
                self.serve_new_sockets(larger);
            }
            self.refuse_reload_with(requester, &error_text(&error));
        }
    }

    fn refuse_reload_with(&mut self, requester: Requester, problem: &str) {
        log(problem);
        self.send_stderr(requester, &format!("{problem}\n"));
        self.refuse_reload(requester);
    }

    fn refuse_reload(&mut self, requester: Requester) {
        const REFUSED: &str = "reload failed, keeping the current configuration";
        log(REFUSED);
        self.reply(requester, Err(REFUSED));
        self.notify(&[State::Ready]);
    }

    fn begin_upgrade(&mut self, requester: Requester) {
        let program = self.installed_program.clone();
        let result = self.active.try_clone().and_then(|active| {
            let listeners = self.listeners.clone();
            self.start(&program, StartReason::Upgrade, requester, active, listeners)
        });
        if let Err(error) = result {
            let message = format!(
                "upgrade failed, keeping the running program: cannot start {}: {}",
                program.display(),
                error_text(&error)
            );
            log(&message);
            self.reply(requester, Err(&message));
        }
    }

    /// Starts a process of `program`.
    ///
    /// # Errors
    /// It cannot be started, and nothing has changed.
    fn start(
        &mut self,
        program: &Path,
        start_reason: StartReason,
        requester: Requester,
        next: ActiveConfig,
        listeners: Listeners,
    ) -> io::Result<()> {
        let (ours, theirs) = Connection::pair()?;
        let mut descriptors: OutgoingFds<'_> = vec![
            (FdKind::Connection, theirs.as_fd()),
            (FdKind::Artefact(ArtefactKind::Configuration), next.text.as_fd()),
        ];
        descriptors.extend(self.control.iter().map(|control| (FdKind::ControlSocket, control.listener())));
        descriptors.extend(listeners.fds().map(|(role, socket)| (FdKind::Listener(role), socket)));
        let arguments = self.arguments("internal-server-process");
        // A signal to all processes with the name of the program would kill one that has no handler yet.
        signals::block_all()?;
        let handle = sanderling_os::process::spawn(program, &arguments, &handover::named(descriptors));
        signals::unblock_all()?;
        let handle = handle?;
        self.last_generation += 1;
        let generation = self.last_generation;
        let deadline = Instant::now() + next.start_timeout();
        self.processes.push(Process::new(generation, handle, ours));
        let (reason, state) = (start_reason, StartState::Pending);
        self.task = Some(Task::Start(Start { requester, reason, next, listeners, generation, deadline, state }));
        Ok(())
    }

    fn arguments(&self, command: &str) -> Vec<OsString> {
        let control = self.control.iter().flat_map(|control| [OsString::from("--control"), control.path().into()]);
        let rest = control.chain(self.source.to_arguments()).collect();
        program::arguments(command, &self.forced, rest)
    }

    /// The next step of the start of process `generation`; `None` if that is not the current task.
    fn step_start(&mut self, generation: u64, input: StartInput) -> Option<StartStep> {
        match &mut self.task {
            Some(Task::Start(start)) if start.generation == generation => {
                let step = start.state.next(input);
                match step {
                    StartStep::Wait(state) => start.state = state,
                    StartStep::Kill => start.state = StartState::TimedOut,
                    StartStep::Serve | StartStep::Fail { .. } => {}
                }
                Some(step)
            }
            _ => None,
        }
    }

    pub(super) fn on_refused(&mut self, generation: u64) {
        if self.step_start(generation, StartInput::Refused).is_none()
            && let Some((requester, _)) = self.take_reload()
        {
            self.refuse_reload(requester);
        }
    }

    /// Ends the task if it is a reload by the serving process: the requester and the new configuration.
    fn take_reload(&mut self) -> Option<(Requester, ActiveConfig)> {
        match self.task.take_if(|task| matches!(task, Task::Reload { .. }))? {
            Task::Reload { requester, next, .. } => Some((requester, next)),
            Task::Start(_) => None,
        }
    }

    pub(super) fn on_reloaded(&mut self, changes: &str, problem_count: usize) {
        if let Some((requester, next)) = self.take_reload() {
            self.active = next;
            self.loaded_at = SystemTime::now();
            self.finish_reload(requester, &format!("reloaded; no connection was closed\n{changes}"), problem_count);
            self.notify(&[State::Ready]);
        }
    }

    /// Reports a reload that is in effect. It has failed in part if sites or zones could not be loaded.
    fn finish_reload(&mut self, requester: Requester, message: &str, problem_count: usize) {
        log(message.trim_end());
        if problem_count == 0 {
            return self.reply(requester, Ok(message));
        }
        let problems =
            format!("{problem_count} of the sites and zones could not be loaded; everything else was reloaded");
        log(&problems);
        self.send_stdout(requester, message);
        self.reply(requester, Err(&problems));
    }

    pub(super) fn on_new_process_needed(&mut self, reason: &str) {
        if let Some((requester, next)) = self.take_reload() {
            self.begin_replacement(requester, next, reason);
        }
    }

    /// The process that was to reload has exited or leaves.
    pub(super) fn fail_reload_in_place(&mut self) {
        if let Some((requester, _)) = self.take_reload() {
            self.reply(requester, Err("the server process exited during the reload; try again"));
        }
    }

    /// The new process serves: the one before drains.
    pub(super) fn on_ready(&mut self, generation: u64, problem_count: usize) {
        if self.step_start(generation, StartInput::Ready) != Some(StartStep::Serve) {
            return;
        }
        let Some(Task::Start(start)) = self.task.take() else { return };
        let mut pid = 0;
        for process in &mut self.processes {
            if process.generation == generation {
                pid = process.pid();
                process.apply(PhaseInput::Ready);
            } else {
                process.apply(PhaseInput::Replaced);
            }
        }
        self.restart_at = None;
        print(&start.listeners.announcement_except(&self.announced));
        self.announced = start.listeners.clone();
        // Clients of an address that is no longer served are refused instead of waiting for ever.
        if let Err(error) = self.listeners.shut_down_except(&start.listeners) {
            log(&error_text(&error));
        }
        self.listeners = start.listeners;
        self.active = start.next;
        self.loaded_at = SystemTime::now();
        self.notify(&[State::Ready]);
        match start.reason {
            StartReason::First => {}
            StartReason::Restart | StartReason::NewSockets => log(&format!("server process {pid} serves")),
            StartReason::Reload(why) => {
                let message = format!("reloaded with the new server process {pid}: {why}\n");
                self.finish_reload(start.requester, &message, problem_count);
            }
            StartReason::Upgrade => {
                log(&format!("server process {pid} of {} serves", self.installed_program.display()));
                self.become_new_program(start.requester);
            }
        }
    }

    /// Replaces this program by the new one. Returns only if that fails, and nothing has changed.
    fn become_new_program(&mut self, requester: Requester) {
        let error = match self.try_become_new_program(requester) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        let message = format!("the new program serves, but the old one still supervises: {}", error_text(&error));
        log(&message);
        self.reply(requester, Err(&message));
    }

    fn try_become_new_program(&mut self, requester: Requester) -> io::Result<Infallible> {
        // The new program registers its signal handlers first; a signal before that would kill it. Signals that have
        // arrived are handled here, and later ones wait for the new program.
        signals::block_all()?;
        self.handle_signals();
        for StatusRequest { client, .. } in std::mem::take(&mut self.status_requests) {
            self.reply(Requester::Client(client), Err("the program is being upgraded; try again"));
        }
        let error = if self.lifecycle.is_stopping() {
            io::Error::other("the server is stopping")
        } else {
            self.exec_new_program(requester).unwrap_or_else(|error| error)
        };
        signals::unblock_all()?;
        Err(error)
    }

    /// The error of the exec or of its preparation. A signal that is sent here stays pending through the exec.
    fn exec_new_program(&self, requester: Requester) -> io::Result<io::Error> {
        let mut descriptors: OutgoingFds<'_> =
            vec![(FdKind::Artefact(ArtefactKind::Configuration), self.active.text.as_fd())];
        descriptors.extend(self.control.iter().map(|control| (FdKind::ControlSocket, control.listener())));
        descriptors.extend(self.listeners.fds().map(|(role, socket)| (FdKind::Listener(role), socket)));
        descriptors.extend(self.processes.iter().flat_map(Process::handover_fds));
        let client = |requester, pending| match requester {
            Requester::Client(id) => self.control.as_ref()?.client_fd(id).map(|fd| (FdKind::Client(pending), fd)),
            Requester::Signal => None,
        };
        descriptors.extend(client(requester, PendingCommand::ThisUpgrade));
        for request in &self.queue {
            let (pending, signal) = match request {
                QueuedRequest::Reload(_) => (PendingCommand::Reload, SIGHUP),
                QueuedRequest::Upgrade(_) => (PendingCommand::Upgrade, SIGUSR2),
            };
            match request.requester() {
                Requester::Signal => signals::send_to_self(signal)?,
                requester => descriptors.extend(client(requester, pending)),
            }
        }
        let (list, variable) = handover::to_list(&descriptors)?;
        let kept: Vec<BorrowedFd<'_>> = descriptors.iter().map(|(_, kept)| *kept).chain([list.as_fd()]).collect();
        Ok(sanderling_os::process::exec(&self.installed_program, &self.arguments("serve"), &[variable], &kept))
    }

    /// Handles the exit of a process that was not ready. `Some` if the supervisor exits as well.
    pub(super) fn on_failed_start(&mut self, generation: u64, exited: &str, status: ExitStatus) -> Option<Exit> {
        let Some(StartStep::Fail { is_reported }) = self.step_start(generation, StartInput::Exited) else {
            return None;
        };
        let Some(Task::Start(start)) = self.task.take() else { return None };
        if !is_reported {
            let message = format!("{exited} before it was ready");
            log(&message);
            self.send_stderr(start.requester, &format!("{message}\n"));
        }
        match start.reason {
            StartReason::First | StartReason::Restart | StartReason::NewSockets => {}
            StartReason::Reload(_) => self.refuse_reload(start.requester),
            StartReason::Upgrade => {
                const FAILED: &str = "upgrade failed, keeping the running program";
                log(FAILED);
                self.reply(start.requester, Err(FAILED));
            }
        }
        let larger = self.listeners.with_sockets_of(&start.listeners);
        let has_new_sockets = larger.has_more_than(&self.listeners);
        let has_serving_process = self.serving_process().is_some();
        match AfterFailure::of(&start.reason, has_serving_process, has_new_sockets) {
            AfterFailure::Exit => {
                let bad_configuration = ExitStatus::Exited(i32::from(Exit::BadConfiguration.status()));
                let is_refused = is_reported || status == bad_configuration;
                return Some(if is_refused { Exit::BadConfiguration } else { Exit::Failure });
            }
            AfterFailure::ServeNewSockets => self.serve_new_sockets(larger),
            AfterFailure::RestartLater => self.restart_after(Duration::ZERO),
            AfterFailure::Keep => {}
        }
        None
    }

    /// Starts a process with the current configuration on sockets that were bound for one that did not become ready:
    /// clients may wait in them.
    fn serve_new_sockets(&mut self, listeners: Listeners) {
        self.listeners = listeners;
        self.restart_exited(StartReason::NewSockets);
    }

    pub(super) fn handle_task_deadline(&mut self) {
        if self.task.as_ref().and_then(Task::deadline).is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        let generation = match &self.task {
            Some(Task::Start(start)) => start.generation,
            _ => {
                return self.on_new_process_needed(
                    "the serving process has not loaded the configuration within `start_timeout_ms`",
                );
            }
        };
        if self.step_start(generation, StartInput::DeadlinePassed) == Some(StartStep::Kill) {
            for process in self.processes.iter_mut().filter(|process| process.generation == generation) {
                log(&format!("{process} is not ready within `start_timeout_ms`, killing it"));
                process.kill();
            }
        }
    }

    /// Sends an error of process `generation` to the requester of its task.
    pub(super) fn forward_stderr(&mut self, generation: u64, text: &str) {
        let requester = match &self.task {
            Some(Task::Reload { requester, .. }) => *requester,
            Some(Task::Start(start)) if start.generation == generation => start.requester,
            _ => return,
        };
        self.send_stderr(requester, text);
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
}

impl ActiveConfig {
    fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.config.limits.start_timeout_ms)
    }

    pub(super) fn try_clone(&self) -> io::Result<ActiveConfig> {
        let text = self
            .text
            .try_clone()
            .map_err(|error| with_context("fcntl(F_DUPFD_CLOEXEC)", "the configuration", &error))?;
        Ok(ActiveConfig { config: Arc::clone(&self.config), text })
    }
}
