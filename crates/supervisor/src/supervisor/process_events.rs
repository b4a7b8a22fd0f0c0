//! The reports and exits of server processes.

use super::{QueuedRequest, Requester, Supervisor};
use crate::phase::{Phase, PhaseInput, Termination};
use crate::process::Process;
use sanderling_config::Exit;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{log, log_error, log_warning};
use sanderling_ipc::{Command, Event, FdKind, IncomingFds, KEPT_ZONES_FDS_MAX};
use sanderling_listeners::Listeners;
use sanderling_os::memfd;
use sanderling_os::process::ExitStatus;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum size of the indexes in all segments of kept zones.
const KEPT_INDEXES_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Events of one process that are handled before signals and deadlines are.
const EVENTS_PER_ITERATION_MAX: usize = 256;

impl Supervisor {
    /// Handles the events of all server processes.
    pub(super) fn handle_events(&mut self) {
        for index in 0..self.processes.len() {
            for _ in 0..EVENTS_PER_ITERATION_MAX {
                let Some((event, descriptors)) = self.processes[index].next_event() else { break };
                self.handle_event(index, event, descriptors);
            }
        }
    }

    pub(super) fn handle_event(&mut self, index: usize, event: Event, descriptors: IncomingFds) {
        let process = &mut self.processes[index];
        let generation = process.generation();
        match event {
            Event::Heartbeat => {}
            Event::LogFailed(kind) => self.logs.on_write_failure(kind),
            // The process is being terminated for the hang.
            Event::ThreadHung(_) if process.termination != Termination::None => {}
            Event::ThreadHung(thread) => {
                log_error(&format!("{process}: thread {thread} hung (`hang_timeout`); killed and restarted"));
                self.replace_hung(index);
            }
            Event::Failed => {
                if process.apply(PhaseInput::Failed) {
                    self.fail_reload_in_place(generation);
                    self.restart_after(Duration::ZERO);
                }
            }
            // Only a process that received the command to stop never accepts again.
            Event::AcceptStopped if self.lifecycle.is_stopping() && process.phase() == Phase::Draining => {
                if let Err(error) = self.listeners.shut_down_except(&Listeners::default()) {
                    log_error(&format!("cannot shut down a listener: {}", error_text(&error)));
                }
            }
            Event::AcceptStopped => process.end_for("it has stopped accepting connections without a command"),
            Event::AcceptLeft => self.on_accept_left(generation),
            Event::Stdout(text) => {
                let request = self.status_requests.iter().find(|request| request.generation == generation);
                if let (Some(request), Some(control)) = (request, &mut self.control) {
                    control.send_stdout(request.client, &text);
                }
            }
            Event::Done { is_success } => {
                let index = self.status_requests.iter().position(|request| request.generation == generation);
                if let Some(request) = index.and_then(|index| self.status_requests.remove(index)) {
                    self.finish_status(request.client, request.format, is_success);
                }
            }
            // The replacement process has its own certificates.
            Event::ZonesKept { .. } | Event::CertificatesKept if process.phase() == Phase::Draining => {}
            Event::ZonesKept { replaces_all } => {
                if let Err(problem) = self.keep_zones(descriptors, replaces_all) {
                    self.processes[index].end_for(problem);
                }
            }
            Event::CertificatesKept => {
                if let Err(problem) = self.secrets.keep(descriptors) {
                    self.processes[index].end_for(problem);
                }
                self.keeper.plan_erasure();
            }
            Event::ChallengesServed { number } if process.phase() == Phase::Serving => {
                self.pass_to_agent_of(index, Command::ChallengesServed { number }, Vec::new());
            }
            // The zones of a draining process are no longer served.
            Event::ZonesServed if process.phase() == Phase::Serving => {
                self.pass_to_draining(&Command::ZonesServed, &descriptors);
                self.pass_to_agent_of(index, Command::ZonesServed, descriptors);
            }
            Event::ZoneServed(zone) if process.phase() == Phase::Serving => {
                self.pass_to_draining(&Command::ZoneServed(zone.clone()), &Vec::new());
                self.pass_to_agent_of(index, Command::ZoneServed(zone), descriptors);
            }
            Event::ZoneNotified(notify) => self.pass_to_agent_of(index, Command::ZoneNotified(notify), descriptors),
            Event::JournalsChanged if process.phase() == Phase::Serving => {
                self.pass_to_agent_of(index, Command::StoreJournals, descriptors);
            }
            // The agent stores nothing that would lose updates stored for another process.
            Event::UpdatesMade(updates) => self.pass_to_agent_of(index, Command::StoreUpdates(updates), descriptors),
            Event::CertificatesServed if process.phase() == Phase::Serving => {
                self.pass_to_agent_of(index, Command::CertificatesServed, descriptors);
            }
            Event::ChallengesServed { .. }
            | Event::ZonesServed
            | Event::ZoneServed(_)
            | Event::JournalsChanged
            | Event::CertificatesServed => {}
            Event::ChallengesChanged { .. }
            | Event::BackendAddressesChanged
            | Event::CertificateStored { .. }
            | Event::DerivedStored
            | Event::KeeperLost
            | Event::ZoneStored { .. }
            | Event::UpdatesStored(_)
            | Event::AgentReport
            | Event::AgentFailed(_) => process.end_for("it has sent a message that only the agent may send"),
            Event::KeysHeld { .. } | Event::KeysKept | Event::KeeperReport(_) => {
                process.end_for("it has sent a message that only the keeper sends");
            }
            Event::BackendWanted { request, path } => process.connect_backend(request, Path::new(&path)),
            Event::Stderr(text) => self.forward_stderr(generation, &text),
            Event::Ready { problem_count } => self.on_ready(generation, problem_count),
            Event::ReloadRefused => self.on_refused(generation),
            Event::ReleaseSwitched { name } => {
                // The configuration may have changed meanwhile.
                if self.active.config.has_site(name.as_deref()) {
                    self.enqueue(QueuedRequest::ReloadSite(Requester::None, name));
                }
            }
            Event::Reloaded { changes, problem_count } => self.on_reloaded(generation, &changes, problem_count),
            Event::NewProcessNeeded(reason) => self.on_new_process_needed(generation, &reason),
            Event::Drained { cut_off_count } => {
                process.termination.expect_exit(Instant::now());
                self.cut_off_count = self.cut_off_count.saturating_add(cut_off_count);
            }
        }
    }

    /// Tells replaced processes which zones are served, so that they answer their last dynamic updates. A process that
    /// does not receive the list lets these updates fail.
    fn pass_to_draining(&mut self, command: &Command, descriptors: &IncomingFds) {
        let is_concerned = |process: &&mut Process| process.phase() == Phase::Draining && !process.connection.is_full();
        for process in self.processes.iter_mut().filter(is_concerned) {
            let copies: io::Result<IncomingFds> =
                descriptors.iter().map(|(kind, fd)| Ok((kind.clone(), fd.try_clone()?))).collect();
            match copies {
                Ok(copies) => process.send(command.clone(), copies),
                Err(error) => {
                    log_warning(&format!("cannot tell {process} which zones are served: {}", error_text(&error)));
                }
            }
        }
    }

    /// Passes the report of the process at `index` to the agent. A process that reports more than the agent can receive
    /// is terminated, except for NOTIFY, which clients cause.
    fn pass_to_agent_of(&mut self, index: usize, command: Command, descriptors: IncomingFds) {
        if !self.agent.is_full() {
            self.agent.send(command, descriptors);
        } else if !matches!(command, Command::ZoneNotified(_)) {
            self.processes[index].end_for("it floods the agent with messages");
        }
    }

    /// Aborts a process and starts another without waiting for its exit: the kernel may not end a thread that waits for
    /// a disk.
    pub(super) fn replace_hung(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let (generation, served) = (process.generation(), process.role.phase_since.elapsed());
        process.terminate(Termination::abort);
        if process.apply(PhaseInput::Failed) {
            self.fail_reload_in_place(generation);
            self.restart_after(served);
        }
    }

    /// Keeps good versions of zones for the next server process.
    ///
    /// # Errors
    /// Returns an error if the sender must not be trusted.
    pub(super) fn keep_zones(&mut self, descriptors: IncomingFds, replaces_all: bool) -> Result<(), &'static str> {
        for (kind, zones) in descriptors {
            // Another process must not trust memory that its sender can still change.
            if kind != FdKind::Zones || !memfd::is_sealed(&zones) {
                return Err("it has sent zones to keep in memory that is not sealed");
            }
            if replaces_all {
                self.kept_zones.clear();
            }
            self.kept_zones.truncate(KEPT_ZONES_FDS_MAX - 1);
            let bytes = |zones: &OwnedFd| memfd::length_bytes(zones).unwrap_or(u64::MAX);
            let all_bytes = self.kept_zones.iter().chain([&zones]).map(bytes).fold(0, u64::saturating_add);
            // Replaced versions have no more bytes than the current versions.
            let texts_bytes_max = self.active.config.limits.kept_zones_bytes_max.saturating_mul(2);
            if all_bytes > texts_bytes_max.saturating_add(KEPT_INDEXES_BYTES_MAX) {
                // The limit may have been lowered since.
                let problem = "a server process sends more zones to keep than `kept_zones_max`; ignoring them";
                self.limited_log.warning("kept zones", problem);
                continue;
            }
            self.kept_zones.push(zones);
        }
        Ok(())
    }

    /// Handles the exit of server processes. `Some` if the first process was never ready: the supervisor then exits as
    /// well.
    pub(super) fn reap(&mut self) -> Option<Exit> {
        let mut index = 0;
        while index < self.processes.len() {
            let status = self.processes[index].handle.try_wait().unwrap_or_else(|error| {
                log_warning(&format!("cannot wait for {}: {}; retrying", self.processes[index], error_text(&error)));
                None
            });
            let status = match status {
                Some(status) => status,
                None if self.processes[index].termination.is_given_up(Instant::now()) => {
                    let process = &self.processes[index];
                    log_error(&format!(
                        "{process} was killed and does not exit: a disk does not answer; continuing without it"
                    ));
                    ExitStatus::Unknown
                }
                None => {
                    index = index.saturating_add(1);
                    continue;
                }
            };
            // The process's last events still count, except that it can no longer serve.
            while let Some((event, descriptors)) = self.processes[index].next_event() {
                if !matches!(event, Event::Ready { .. }) {
                    self.handle_event(index, event, descriptors);
                }
            }
            let process = self.processes.remove(index);
            if let Some(exit) = self.on_exit(&process, status) {
                return Some(exit);
            }
        }
        None
    }

    pub(super) fn on_exit(&mut self, process: &Process, status: ExitStatus) -> Option<Exit> {
        let (unanswered, others) = std::mem::take(&mut self.status_requests)
            .into_iter()
            .partition::<VecDeque<_>, _>(|request| request.generation == process.generation());
        self.status_requests = others;
        for request in unanswered {
            self.reply(Requester::Client(request.client), Err("the server process exited before it answered"));
        }
        self.on_accept_left(process.generation());
        match process.phase() {
            Phase::Draining => {
                let is_expected = matches!(status, ExitStatus::Exited(0) | ExitStatus::Unknown);
                if !is_expected && !self.lifecycle.is_stopping() {
                    log(&format!("{process}, which had been replaced, {status}"));
                }
                None
            }
            Phase::Starting => self.on_failed_start(process.generation(), &format!("{process} {status}"), status),
            Phase::Serving => {
                let served = process.role.phase_since.elapsed();
                // The reason for killing it is already logged.
                if process.termination == Termination::None {
                    log_error(&format!("{process} {status} after {:.1} s; restarting", served.as_secs_f64()));
                }
                self.fail_reload_in_place(process.generation());
                self.restart_after(served);
                None
            }
        }
    }
}
