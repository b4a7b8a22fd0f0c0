//! A reload, from the request to its result.

use super::{ActiveConfig, QueuedRequest, Replacement, Requester, Supervisor, Task};
use crate::program::RUNNING;
use crate::start_states::StartReason;
use crate::unix_backends::UnixBackends;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text, for_client};
use sanderling_config::log::{log, log_error, log_warning, report};
use sanderling_config::lookup_user;
use sanderling_ipc::control_socket::ControlSocket;
use sanderling_ipc::{CONFIGURATION_BYTES_MAX, Command, FdKind};
use sanderling_listeners::Listeners;
use sanderling_os::memfd;
use sanderling_os::sd_notify::State;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two replacements that a server process has asked for without a reload.
const REPLACEMENT_INTERVAL: Duration = Duration::from_secs(60);

impl Supervisor {
    pub(super) fn begin_reload(&mut self, requester: Requester, forced_zones: Vec<String>) {
        self.notify(&[State::Reloading]);
        let next = match self.read_config() {
            Ok(next) => next,
            Err(diagnostics) => {
                report(&diagnostics);
                for_client(&diagnostics).for_each(|line| self.send_stderr(requester, &line));
                return self.refuse_reload(requester);
            }
        };
        if next.config.control != self.active.config.control {
            const UNCHANGED: &str = "`control` has changed: the control socket keeps its path until the next start";
            log_warning(UNCHANGED);
            self.send_stderr(requester, &format!("sanderling: {UNCHANGED}\n"));
        }
        match self.control.as_mut().map_or(Ok(false), ControlSocket::restore) {
            // The running process would answer at the old socket if it lost its supervisor.
            Ok(true) => {
                let reason = "the control socket had been removed";
                return self.begin_replacement(requester, next, &forced_zones, reason);
            }
            Ok(false) => {}
            Err(error) => log_error(&format!("cannot restore the control socket: {}", error_text(&error))),
        }
        if let Some(reason) = next.config.needs_new_process(&self.active.config) {
            return self.begin_replacement(requester, next, &forced_zones, &reason);
        }
        let descriptors = self.secrets_for(&next).and_then(|mut descriptors| {
            descriptors.extend(self.logs.descriptors(&next.config));
            descriptors.push((FdKind::Configuration, next.text.try_clone()?));
            Ok(descriptors)
        });
        match (self.serving_process(), descriptors) {
            (Some(process), Ok(descriptors)) => {
                process.send(Command::Reload { forced_zones: forced_zones.clone() }, descriptors);
                let (generation, deadline) = (process.generation(), Instant::now() + next.start_timeout());
                self.task = Some(Task::Reload { requester, next, forced_zones, generation, deadline });
            }
            _ => self.begin_replacement(requester, next, &forced_zones, "no server process was running"),
        }
    }

    /// Makes the serving process load a site again, with the current configuration.
    pub(super) fn begin_site_reload(&mut self, requester: Requester, name: Option<String>) {
        let next = match self.active.try_clone() {
            Ok(next) => next,
            Err(error) => return self.refuse_reload_with(requester, &error_text(&error)),
        };
        let Some(process) = self.serving_process() else {
            return self.begin_replacement(requester, next, &[], "no server process was running");
        };
        process.send(Command::ReloadSite { name }, Vec::new());
        let (generation, deadline) = (process.generation(), Instant::now() + next.start_timeout());
        self.task = Some(Task::Reload { requester, next, forced_zones: Vec::new(), generation, deadline });
    }

    pub(super) fn read_config(&self) -> Result<ActiveConfig, Vec<Diagnostic>> {
        let text = self.source.read()?;
        // Usually only a zone has changed: do not parse an identical configuration again.
        let config = match memfd::read(&self.active.text, CONFIGURATION_BYTES_MAX) {
            Ok(active) if active == text => Arc::clone(&self.active.config),
            _ => Arc::new(self.source.parse(&text)?),
        };
        lookup_user(&config)?;
        let text = memfd::create("configuration", &text).map_err(|error| {
            let problem = Problem::new(format!("cannot store the configuration: {}", error_text(&error)), "");
            vec![Diagnostic::error(Location::Argument("reload".to_owned()), problem)]
        })?;
        Ok(ActiveConfig { config, text })
    }

    /// Starts a server process for `next`, which the serving one cannot apply for this reason.
    fn begin_replacement(&mut self, requester: Requester, next: ActiveConfig, forced_zones: &[String], why: &str) {
        self.restore_listeners();
        let listeners = match Listeners::bind(&next.config, &self.listeners) {
            Ok(listeners) => listeners,
            Err(error) => {
                let problem = error.to_problem(&self.source).to_string();
                return self.refuse_reload_with(requester, &problem);
            }
        };
        let listeners_with_new_sockets = self.listeners.with_added_sockets_of(&listeners);
        let start_reason = StartReason::Reload { why: why.to_owned(), forced_zones: forced_zones.to_vec() };
        if let Err(error) = self.start(Path::new(RUNNING), start_reason, requester, next, listeners) {
            if listeners_with_new_sockets.has_more_than(&self.listeners) {
                self.serve_new_sockets(listeners_with_new_sockets);
            }
            self.refuse_reload_with(requester, &format!("cannot start a server process: {}", error_text(&error)));
        }
    }

    /// Counts a reload that succeeded, succeeded in part, or failed.
    fn count_reload(&mut self, index: usize) {
        let count = &mut self.reload_counts[index];
        *count = count.saturating_add(1);
    }

    fn refuse_reload_with(&mut self, requester: Requester, problem: &str) {
        log_error(problem);
        self.send_stderr(requester, &format!("{problem}\n"));
        self.refuse_reload(requester);
    }

    pub(super) fn refuse_reload(&mut self, requester: Requester) {
        const REFUSED: &str = "reload failed, keeping the current configuration";
        log_error(REFUSED);
        self.count_reload(2);
        self.pass_on_current();
        self.reply(requester, Err(REFUSED));
        self.notify(&[State::Ready]);
    }

    /// Passes on the logs, certificates and keys of the current configuration after a failed start or a failed task for
    /// another configuration: the serving process may not have received their last changes.
    pub(super) fn pass_on_current(&mut self) {
        self.secrets.pass_on_again(&self.active.config);
        self.pass_logs();
    }

    /// Ends the task if it is a reload by process `generation`: the requester, the new configuration, the forced zones.
    pub(super) fn take_reload(&mut self, generation: u64) -> Option<(Requester, ActiveConfig, Vec<String>)> {
        match self.task.take_if(|task| task.is_reload_of(generation))? {
            Task::Reload { requester, next, forced_zones, .. } => Some((requester, next, forced_zones)),
            Task::Start(_) | Task::Replace(_) => None,
        }
    }

    pub(super) fn on_reloaded(&mut self, generation: u64, changes: &str, problem_count: usize) {
        if let Some((requester, next, forced_zones)) = self.take_reload(generation) {
            for process in self.processes.iter_mut().filter(|process| process.generation() == generation) {
                process.role.backends = UnixBackends::new(&next.config);
            }
            self.activate(next, requester);
            let message = format!("reloaded; no connection was closed\n{changes}");
            self.finish_reload(requester, &message, problem_count, forced_zones);
            self.notify(&[State::Ready]);
        }
    }

    /// The replaced process accepts no more, or has exited: all clients that connect from now on get the new
    /// configuration.
    pub(super) fn on_accept_left(&mut self, generation: u64) {
        if matches!(&self.task, Some(Task::Replace(replacement)) if replacement.replaced_generation == generation) {
            self.finish_replacement();
        }
    }

    pub(super) fn finish_replacement(&mut self) {
        if let Some(Task::Replace(replacement)) = self.task.take_if(|task| matches!(task, Task::Replace(_))) {
            let Replacement { requester, message, problem_count, forced_zones, .. } = replacement;
            self.finish_reload(requester, &message, problem_count, forced_zones);
        }
    }

    /// Continues with a server process's configuration.
    pub(super) fn activate(&mut self, next: ActiveConfig, requester: Requester) {
        self.active = next;
        self.secrets.keep_only_for(&self.active.config);
        let state = self.state_path(&self.active.config);
        let warnings = state.map_or_else(Vec::new, |state| self.active.config.abandoned_signatures(&state));
        report(&warnings);
        for_client(&warnings).for_each(|line| self.send_stderr(requester, &line));
    }

    /// Reports a reload that is in effect. The reload has failed in part if sites or zones could not be loaded. Zones
    /// that are signed are then read again by the agent, which ends the answer.
    pub(super) fn finish_reload(
        &mut self,
        requester: Requester,
        message: &str,
        problem_count: usize,
        forced_zones: Vec<String>,
    ) {
        self.agent.read_authorities_again();
        log(message.trim_end());
        self.count_reload(usize::from(problem_count > 0));
        let mut problems = Vec::new();
        if problem_count > 0 {
            problems.push(format!(
                "{problem_count} of the sites, zones, certificates and TSIG keys could not be loaded; everything else was reloaded"
            ));
            log_error(&problems[0]);
        }
        // The server's log already has the message.
        problems.extend(self.logs.problem());
        if !self.active.config.signed_zones.is_empty() {
            self.send_stdout(requester, message);
            problems.iter().for_each(|problem| self.send_stderr(requester, &format!("sanderling: {problem}\n")));
            let is_success = problems.is_empty();
            return self.have_zones_read(requester, Command::ReadZones { zones: Vec::new(), forced_zones, is_success });
        }
        if problems.is_empty() {
            return self.reply(requester, Ok(message));
        }
        self.send_stdout(requester, message);
        self.reply(requester, Err(&problems.join("\nsanderling: ")));
    }

    pub(super) fn on_new_process_needed(&mut self, generation: u64, reason: &str) {
        match self.take_reload(generation) {
            Some((requester, next, forced_zones)) => self.begin_replacement(requester, next, &forced_zones, reason),
            None => self.enqueue(QueuedRequest::Replace(generation, reason.to_owned())),
        }
    }

    /// Replaces the serving process by another with the same configuration, if its generation is still `generation`. A
    /// process may ask for its replacement repeatedly.
    pub(super) fn replace_serving(&mut self, generation: u64, why: &str) {
        let is_serving = self.serving_process().is_some_and(|process| process.generation() == generation);
        if !is_serving || self.replaced_itself_at.is_some_and(|at| at.elapsed() < REPLACEMENT_INTERVAL) {
            return;
        }
        match self.active.try_clone() {
            Ok(next) => {
                self.replaced_itself_at = Some(Instant::now());
                self.begin_replacement(Requester::None, next, &[], why);
            }
            Err(error) => log_error(&format!("cannot replace the server process: {}", error_text(&error))),
        }
    }

    /// Handles the exit of process `generation`, which may be the process that reloads.
    pub(super) fn fail_reload_in_place(&mut self, generation: u64) {
        if let Some((requester, ..)) = self.take_reload(generation) {
            self.count_reload(2);
            self.pass_on_current();
            self.reply(requester, Err("the server process exited during the reload; try again"));
        }
    }
}
