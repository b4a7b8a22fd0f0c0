//! The startup of a server process, from its cause to its result.

use super::agent::prepare_state;
use super::{ActiveConfig, Replacement, Requester, Start, Supervisor, Task};
use crate::child::Child;
use crate::phase::PhaseInput;
use crate::process::ServerProcess;
use crate::program;
use crate::program::RUNNING;
use crate::start_states::{AfterFailure, KeptVersions, StartInput, StartReason, StartState, StartStep};
use sanderling_config::Exit;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{self, log, log_error, log_warning, print};
use sanderling_ipc::{FdKind, OutgoingFds};
use sanderling_listeners::Listeners;
use sanderling_os::process::ExitStatus;
use sanderling_os::sd_notify::State;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

const WITHHELD: &str = "the next server process starts without the zones and certificates that earlier ones have kept: two starts with them have failed";
/// Maximum time that the answer to a reload waits for the replaced process to stop accepting.
const LEAVE_TIME: Duration = Duration::from_secs(2);

impl Supervisor {
    pub(super) fn begin_first(&mut self, next: ActiveConfig, listeners: Listeners) -> io::Result<()> {
        self.start(Path::new(RUNNING), StartReason::First, Requester::None, next, listeners)
    }

    /// Starts a process with the current configuration on the current sockets.
    pub(super) fn restart_exited(&mut self, start_reason: StartReason) {
        self.restore_listeners();
        let result = self.active.try_clone().and_then(|active| {
            let listeners = self.listeners.clone();
            self.start(Path::new(RUNNING), start_reason, Requester::None, active, listeners)
        });
        if let Err(error) = result {
            log_warning(&format!("cannot start a server process: {}; retrying", error_text(&error)));
            self.restart_after(Duration::ZERO);
        }
    }

    /// Binds listeners again that a server process has shut down. Call this before another process gets the listeners.
    pub(super) fn restore_listeners(&mut self) {
        let (listeners, report) = self.listeners.restored(&self.active.config);
        for (role, bound, result) in report {
            let service = role.service;
            match result {
                Ok(()) => {
                    log_warning(&format!(
                        "{service} {bound} had been shut down by a server process; it is bound again"
                    ));
                }
                Err(error) => log_error(&format!(
                    "{service} {bound} was changed by a server process, and cannot be restored: {}; restart the server",
                    error_text(&error)
                )),
            }
        }
        self.listeners = listeners;
    }

    /// Schedules a restart after a process has served for `served`.
    pub(super) fn restart_after(&mut self, served: Duration) {
        self.restart_at = Some(Instant::now() + self.backoff.delay_after(served));
    }

    /// Starts a process of `program`.
    ///
    /// # Errors
    /// Returns an error if the process cannot be started; nothing has changed then.
    pub(super) fn start(
        &mut self,
        program: &Path,
        start_reason: StartReason,
        requester: Requester,
        next: ActiveConfig,
        listeners: Listeners,
    ) -> io::Result<()> {
        let state = self.state_path(&next.config);
        let state_of_zones = state.as_ref().filter(|_| next.config.has_stored_zones());
        if let Some(Err(error)) = state_of_zones.map(|state| prepare_state(state, &next.config)) {
            log_error(&format!("cannot keep zones in the state folder: {}", error_text(&error)));
        }
        let mut passed_on = self.secrets_for(&next)?;
        passed_on.extend(self.logs.descriptors(&next.config));
        passed_on.extend(self.agent.challenges()?);
        passed_on.extend(self.agent.backend_addresses()?);
        let mut descriptors: OutgoingFds<'_> = vec![(FdKind::Configuration, next.text.as_fd())];
        descriptors.extend(passed_on.iter().map(|(kind, descriptor)| (kind.clone(), descriptor.as_fd())));
        let zones = self.kept_zones.iter().map(|zones| (FdKind::Zones, zones.as_fd()));
        let certificates = self.secrets.kept_for(&next.config).map(|kept| (FdKind::KeptCertificates, kept));
        let kept_fds: OutgoingFds<'_> = zones.chain(certificates).collect();
        let kept = match kept_fds.is_empty() {
            true => KeptVersions::None,
            false => KeptVersions::after(self.failed_with_kept_count),
        };
        if kept == KeptVersions::Passed {
            descriptors.extend(kept_fds);
        }
        descriptors.extend(self.control.iter().map(|control| (FdKind::ControlSocket, control.listener())));
        descriptors.extend(listeners.fds().map(|(role, socket)| (FdKind::Listener(role), socket)));
        let mut options: Vec<OsString> = Vec::new();
        if let StartReason::Reload { forced_zones, .. } = &start_reason {
            options.extend(forced_zones.iter().flat_map(|zone| ["--force-zone".into(), OsString::from(zone)]));
        }
        let arguments = self.arguments("internal-server-process", state.as_deref(), options);
        let generation = self.last_generation.saturating_add(1);
        self.processes.push(Child::start(
            program,
            &arguments,
            descriptors,
            ServerProcess::new(generation, &next.config),
        )?);
        self.last_generation = generation;
        let deadline = Instant::now() + next.start_timeout();
        let (reason, state) = (start_reason, StartState::Pending);
        let start = Start { requester, reason, next, listeners, generation, deadline, state, kept };
        self.task = Some(Task::Start(start));
        Ok(())
    }

    /// The arguments of `command` of this program: the options, and then the source of the configuration, which may end
    /// with a folder after `--`.
    pub(super) fn arguments(&self, command: &str, state: Option<&Path>, mut options: Vec<OsString>) -> Vec<OsString> {
        options.extend(self.control.iter().flat_map(|control| [OsString::from("--control"), control.path().into()]));
        options.extend(state.iter().flat_map(|path| [OsString::from("--state"), path.into()]));
        options.extend(self.source.to_arguments());
        program::arguments(command, &self.forced, options)
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
            && let Some((requester, ..)) = self.take_reload(generation)
        {
            self.refuse_reload(requester);
        }
    }

    /// The new process serves: the previous one drains.
    pub(super) fn on_ready(&mut self, generation: u64, problem_count: usize) {
        if self.step_start(generation, StartInput::Ready) != Some(StartStep::Serve) {
            return;
        }
        let Some(Task::Start(start)) = self.task.take() else { return };
        self.failed_with_kept_count = 0;
        if start.kept == KeptVersions::Withheld {
            // The new process sends its own good versions.
            self.kept_zones.clear();
            self.secrets.forget_kept();
        }
        let (mut pid, mut replaced_generation) = (0, None);
        for process in &mut self.processes {
            if process.generation() == generation {
                pid = process.pid();
                process.apply(PhaseInput::Ready);
            } else if process.apply(PhaseInput::Replaced) {
                replaced_generation = Some(process.generation());
            }
        }
        self.restart_at = None;
        print(&start.listeners.announcement_except(&self.announced));
        self.announced = start.listeners.clone();
        // Clients of an address that is no longer served are refused instead of waiting forever.
        if let Err(error) = self.listeners.shut_down_except(&start.listeners) {
            log_error(&format!("cannot shut down a listener: {}", error_text(&error)));
        }
        self.listeners = start.listeners;
        self.activate(start.next, start.requester);
        log::set_queue_limit(self.active.config.limits.log_queue_bytes_max);
        self.pass_on_challenges();
        self.pass_on_backend_addresses();
        self.notify(&[State::Ready]);
        match start.reason {
            StartReason::First => {}
            StartReason::Restart | StartReason::RecoverNewSockets => log(&format!("server process {pid} is serving")),
            StartReason::Reload { why, forced_zones } => {
                let message = format!("reloaded; server process {pid} has replaced the old one, because {why}\n");
                let Some(replaced_generation) = replaced_generation else {
                    return self.finish_reload(start.requester, &message, problem_count, forced_zones);
                };
                let (requester, deadline) = (start.requester, Instant::now() + LEAVE_TIME);
                let replacement =
                    Replacement { requester, replaced_generation, message, problem_count, forced_zones, deadline };
                self.task = Some(Task::Replace(replacement));
            }
            StartReason::Upgrade => {
                log(&format!("server process {pid}, started from {}, is serving", self.installed_program.display()));
                self.become_new_program(start.requester);
            }
        }
    }

    /// Handles the exit of a process that was not ready. `Some` if the supervisor exits as well.
    pub(super) fn on_failed_start(&mut self, generation: u64, exited: &str, status: ExitStatus) -> Option<Exit> {
        let Some(StartStep::Fail { is_reported }) = self.step_start(generation, StartInput::Exited) else {
            return None;
        };
        let Some(Task::Start(start)) = self.task.take() else { return None };
        if !is_reported {
            let message = format!("{exited} before it was ready");
            log_error(&message);
            self.send_stderr(start.requester, &format!("{message}\n"));
            if start.kept == KeptVersions::Passed {
                self.failed_with_kept_count = KeptVersions::failures_after(self.failed_with_kept_count, &start.reason);
                if KeptVersions::after(self.failed_with_kept_count) == KeptVersions::Withheld {
                    log_error(WITHHELD);
                }
                if start.reason == StartReason::First {
                    // This supervisor serves nothing yet, so the next start is without good versions.
                    return self.begin_first(start.next, start.listeners).err().map(|error| {
                        log_error(&format!("cannot start a server process: {}", error_text(&error)));
                        Exit::Failure
                    });
                }
            }
        }
        match start.reason {
            StartReason::First => {}
            StartReason::Restart | StartReason::RecoverNewSockets => self.pass_on_current(),
            StartReason::Reload { .. } => self.refuse_reload(start.requester),
            StartReason::Upgrade => {
                const FAILED: &str = "upgrade failed, keeping the running program";
                log_error(FAILED);
                self.pass_on_current();
                self.reply(start.requester, Err(FAILED));
            }
        }
        let listeners_with_new_sockets = self.listeners.with_added_sockets_of(&start.listeners);
        let has_new_sockets = listeners_with_new_sockets.has_more_than(&self.listeners);
        let has_serving_process = self.serving_process().is_some();
        match AfterFailure::of(&start.reason, has_serving_process, has_new_sockets) {
            AfterFailure::Exit => {
                let bad_configuration = ExitStatus::Exited(i32::from(Exit::BadConfiguration.status()));
                let is_refused = is_reported || status == bad_configuration;
                return Some(if is_refused { Exit::BadConfiguration } else { Exit::Failure });
            }
            AfterFailure::ServeNewSockets => self.serve_new_sockets(listeners_with_new_sockets),
            AfterFailure::RestartLater => self.restart_after(Duration::ZERO),
            AfterFailure::Keep => {}
        }
        None
    }

    /// Starts a process with the current configuration on the sockets of a failed start
    /// ([`StartReason::RecoverNewSockets`]).
    pub(super) fn serve_new_sockets(&mut self, listeners: Listeners) {
        self.listeners = listeners;
        self.restart_exited(StartReason::RecoverNewSockets);
    }

    pub(super) fn handle_task_deadline(&mut self) {
        if self.task.as_ref().and_then(Task::deadline).is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        let generation = match &self.task {
            Some(Task::Start(start)) => start.generation,
            Some(Task::Replace(_)) => return self.finish_replacement(),
            Some(Task::Reload { generation, .. }) => {
                return self.on_new_process_needed(
                    *generation,
                    "the serving process has not loaded the configuration within `start_timeout`",
                );
            }
            None => return,
        };
        if self.step_start(generation, StartInput::DeadlinePassed) == Some(StartStep::Kill) {
            for process in self.processes.iter_mut().filter(|process| process.generation() == generation) {
                log_error(&format!("{process} was not ready within `start_timeout`; killing it"));
                process.kill();
            }
        }
    }

    /// Sends an error of process `generation` to the requester of its task.
    pub(super) fn forward_stderr(&mut self, generation: u64, text: &str) {
        let requester = match &self.task {
            Some(task @ Task::Reload { requester, .. }) if task.is_reload_of(generation) => *requester,
            Some(Task::Start(start)) if start.generation == generation => start.requester,
            _ => return,
        };
        self.send_stderr(requester, text);
    }
}
