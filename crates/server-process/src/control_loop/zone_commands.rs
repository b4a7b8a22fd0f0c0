//! Carries out the commands about single zones.

use super::{ControlLoop, Finished};
use crate::load_status::ZoneState;
use crate::loader::{Loader, MemberChanges, OneZone, Reloaded, RemovedZone};
use crate::zone_answers::{JudgedZone, ZoneAnswers, ZoneClient};
use sanderling_config::DomainName;
use sanderling_config::diagnostic::{error_text, for_client};
use sanderling_config::log::{log, log_error, log_warning, report};
use sanderling_config::repeated_messages::VersionChange;
use sanderling_dns::{NameBuf, ZoneEntry, ZoneMap, is_later};
use sanderling_ipc::agent::{AgentReport, ZoneReport, zone_changes_from_memfd};
use sanderling_ipc::{Command, Connection, FdKind, IncomingFds, ZoneCommand};
use sanderling_zone_files::{Denial, wire_name};
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

/// Answers that are written concurrently.
const ANSWERS_MAX: usize = 8;
/// Commands that wait for the loader.
const WAITING_MAX: usize = 64;

/// A zone that was loaded again, for this client.
pub(super) struct ZoneResult {
    loader: Loader,
    client: ZoneClient,
    result: Result<Reloaded, String>,
}

impl ControlLoop<'_> {
    /// Carries out a command whose client came with it.
    pub(super) fn handle_zone_command(&mut self, command: ZoneCommand, descriptors: IncomingFds) {
        if self.is_replaced() {
            // The client, which is disconnected, asks the next process.
            return;
        }
        let (mut requester, mut changes, mut report) = (None, None, None);
        for (kind, descriptor) in descriptors {
            match kind {
                FdKind::Requester => requester = Some(descriptor),
                FdKind::ZoneChanges => changes = Some(descriptor),
                FdKind::AgentReport => {
                    report = AgentReport::from_memfd(descriptor).ok().and_then(|it| it.zones.into_iter().next());
                }
                _ => {}
            }
        }
        match requester.map(Connection::from_fd) {
            Some(Ok(connection)) => self.answer_zone_command(command, changes, report, ZoneClient::new(connection)),
            _ => log_warning(&format!("ignoring the command {command:?}, which came without a client")),
        }
    }

    /// `changes` come with the command to load a zone, and the agent's report for a zone's status.
    pub(super) fn answer_zone_command(
        &mut self,
        command: ZoneCommand,
        changes: Option<OwnedFd>,
        report: Option<ZoneReport>,
        client: ZoneClient,
    ) {
        let (ZoneCommand::Reload { zone, .. }
        | ZoneCommand::Status { zone, .. }
        | ZoneCommand::Show { zone, .. }
        | ZoneCommand::Export { zone }) = &command
        else {
            return self.answer(command, None, report, client);
        };
        match DomainName::parse(zone) {
            Err(problem) => client.finish(Err(&problem.to_string())),
            Ok(name) => match command {
                ZoneCommand::Reload { is_forced, .. } => self.reload_zone(name, is_forced, changes, client),
                command => self.answer(command, Some(name), report, client),
            },
        }
    }

    /// Loads a zone, or applies `changes` that continue from the version in service, on a new thread, when the loader
    /// exists.
    fn reload_zone(&mut self, name: DomainName, is_forced: bool, changes: Option<OwnedFd>, client: ZoneClient) {
        let Some(mut loader) = self.state.loader.take() else {
            if self.waiting.len() == WAITING_MAX {
                return client.finish(Err("too many requests are waiting; try again later"));
            }
            let command = Command::Zone(ZoneCommand::Reload { zone: name.to_string(), is_forced });
            let changes = changes.map(|changes| (FdKind::ZoneChanges, changes));
            let descriptors = [(FdKind::Requester, client.into_fd())].into_iter().chain(changes).collect();
            return self.waiting.push_back((command, descriptors));
        };
        loader.set_derived(Arc::clone(&self.state.derived));
        let (config, zone) = (Arc::clone(&self.state.config), name.to_string());
        let load = move |loader: &mut Loader| {
            let changes = changes.filter(|_| !is_forced).and_then(|changes| zone_changes_from_memfd(changes).ok());
            let changed = changes.and_then(|changes| loader.apply_changes(&config, &name, &changes));
            match changed {
                Some(one) => Ok(Reloaded::Loaded(Box::new(one))),
                None => loader.load_one(&config, &name, is_forced),
            }
        };
        let started = self.start_load(loader, load, |loader, result| {
            let result = result.unwrap_or_else(|| {
                Err("loading the zone panicked; this is a bug in sanderling: report it with the zone".to_owned())
            });
            Finished::Zone(Box::new(ZoneResult { loader, client, result }))
        });
        self.loads_one = started.is_ok();
        let Err((error, finish)) = started else { return };
        let problem = format!("cannot start a thread to load the zone {zone}: {}", error_text(&error));
        log_error(&problem);
        // The agent, or another client that waits for the zone, is informed and retries.
        if let Some(loader) = self.state.loader.take()
            && let Finished::Zone(result) = finish(loader, Some(Err(problem)))
        {
            self.apply_zone(*result);
        }
    }

    /// Continues with the commands that waited for the loader.
    pub(super) fn handle_waiting(&mut self) {
        while self.state.loader.is_some()
            && let Some((command, descriptors)) = self.waiting.pop_front()
        {
            self.handle(command, descriptors);
        }
    }

    /// Applies a zone that was loaded again.
    pub(super) fn apply_zone(&mut self, result: ZoneResult) {
        let ZoneResult { loader, mut client, result } = result;
        self.state.loader = Some(loader);
        self.loads_one = false;
        if self.is_replaced() {
            // The client, which is disconnected, asks the next process.
            return;
        }
        let one = match result {
            Ok(Reloaded::Loaded(one)) => *one,
            Ok(Reloaded::Removed(removed)) => return self.apply_removal(removed, client),
            Err(error) => return client.finish(Err(&error)),
        };
        let OneZone {
            entry,
            state,
            before,
            is_unchanged,
            has_same_records,
            warnings,
            errors,
            denial,
            kept,
            journals,
            updates,
            members,
        } = one;
        self.keep_zones(kept);
        self.report_journals(&journals);
        self.report_updates(&updates);
        if let Some(reason) = self.ask_for_replacement(&denial) {
            return client.finish(Err(&reason));
        }
        for diagnostics in [&errors, &warnings] {
            report(diagnostics);
            for_client(diagnostics).for_each(|line| client.send_line(line.trim_end()));
        }
        if let Denial::Sandbox(path) = denial {
            client.send_line(&format!("{}; run `sanderling reload`", denied_text(&path)));
        }
        let content = match (is_unchanged, has_same_records) {
            (true, _) => ZoneContent::SameFiles,
            (false, true) => ZoneContent::SameRecords,
            (false, false) => ZoneContent::Changed,
        };
        let problem_of_agent = self.service_state().zone_problem(&state).map(str::to_owned);
        let text = outcome_text(&state, before.as_deref(), content, problem_of_agent.as_deref());
        if !is_unchanged {
            if let Ok(apex) = DomainName::parse(&state.name) {
                // The new version may be made from changes, which make answers slower.
                self.updates.note_change(apex, Instant::now());
            }
            self.put_into_service(entry, &state);
            if content == ZoneContent::Changed || state.problem.is_some() {
                self.log_version(&state, before.as_deref(), &text);
            }
        }
        if !members.is_empty() {
            self.serve_members(members);
        }
        match state.problem.is_none() && state.serial.is_some() {
            true => client.finish(Ok(&format!("{text}\n"))),
            false => client.finish(Err(&text)),
        }
    }

    /// Asks for another process to replace this one if the sandbox denies a file of the state folder: the folder was
    /// created after the process entered the sandbox, and the agent, which wrote the file, cannot reload. The answer to
    /// the agent in that case.
    fn ask_for_replacement(&mut self, denial: &Denial) -> Option<String> {
        let Denial::Sandbox(path) = denial else { return None };
        let state = self.state.loader.as_ref().and_then(Loader::state_folder);
        let is_of_agent = state.is_some_and(|state| path.starts_with(state));
        if !is_of_agent || !self.state.sandbox.restricts_directories() {
            return None;
        }
        let reason = denied_text(path);
        self.send_new_process_needed(&reason);
        Some(format!("{reason}; replacing this process, at most once a minute"))
    }

    /// Logs a new version of a zone: at most one line a minute, unless there is a problem.
    pub(super) fn log_version(&mut self, state: &ZoneState, before: Option<&ZoneState>, text: &str) {
        let serials = before.and_then(|before| before.serial).zip(state.serial);
        match serials.filter(|&(from, to)| is_later(to, from) && state.problem.is_none()) {
            Some((from, to)) => {
                let line = text.strip_prefix(&format!("zone {}: ", state.name)).unwrap_or(text).to_owned();
                let change = VersionChange { from, to, line, of_several: format!(", {} records", state.record_count) };
                self.version_log.note(&state.name, change, Instant::now()).iter().for_each(|line| log(line));
            }
            None => log(text),
        }
    }

    fn serve_zones(&mut self, zones: ZoneMap) {
        self.state.assembly.zones = Arc::new(zones);
        self.server.update_snapshot(self.state.assembly.zone_parts(&self.state.config));
    }

    /// Serves a version of a zone from now on.
    pub(super) fn put_into_service(&mut self, entry: ZoneEntry, state: &Arc<ZoneState>) {
        self.serve_zones(self.state.assembly.zones.with_entry(entry));
        let states = &mut self.state.load_status.zones;
        match states.iter_mut().find(|zone| zone.name == state.name) {
            Some(place) => *place = Arc::clone(state),
            None => {
                states.push(Arc::clone(state));
                self.state.load_status.recount_folder(self.state.config.zone_folder.as_ref());
            }
        }
        self.report_zone(state);
        self.on_zone_served(&state.name, state.serial);
    }

    /// Stops serving a zone whose file was removed.
    fn apply_removal(&mut self, removed: RemovedZone, client: ZoneClient) {
        let RemovedZone { name, kept, journals } = removed;
        self.keep_zones(kept);
        self.report_journals(&journals);
        let text = format!("zone {name}: removed, because its file is no longer in the zone folder");
        self.change_zones(Vec::new(), &[name]);
        log(&text);
        client.finish(Ok(&format!("{text}\n")));
    }

    /// Serves the zones that catalogs have added, and no longer those that they have removed.
    fn serve_members(&mut self, members: MemberChanges) {
        let MemberChanges { added, removed } = members;
        log(&format!("zones of catalogs: {} added, {} removed", added.len(), removed.len()));
        self.change_zones(added, &removed);
    }

    /// Serves further zones, and no longer those that are `removed`.
    fn change_zones(&mut self, added: Vec<(ZoneEntry, Arc<ZoneState>)>, removed: &[DomainName]) {
        let (entries, added): (Vec<ZoneEntry>, Vec<Arc<ZoneState>>) = added.into_iter().unzip();
        let removed_names: Vec<NameBuf> = removed.iter().map(wire_name).collect();
        let zones = &self.state.assembly.zones;
        self.serve_zones(zones.with_changes(removed_names.iter().map(NameBuf::as_name), entries));
        let removed: HashSet<&str> = removed.iter().map(DomainName::as_str).collect();
        let states = &mut self.state.load_status.zones;
        states.retain(|zone| !removed.contains(zone.name.as_str()));
        states.extend(added);
        self.state.load_status.recount_folder(self.state.config.zone_folder.as_ref());
        self.report_zones();
    }

    /// Answers on a new thread.
    fn answer(
        &mut self,
        command: ZoneCommand,
        name: Option<DomainName>,
        report: Option<ZoneReport>,
        client: ZoneClient,
    ) {
        // This thread holds one of the references.
        if Arc::strong_count(&self.answers) > ANSWERS_MAX {
            return client.finish(Err("too many answers are being written; try again later"));
        }
        let challenges = self.state.assembly.challenges.names().cloned().collect();
        let service_state = self.service_state();
        let states = self.state.load_status.zones.iter().map(|zone| JudgedZone::new(zone, &service_state));
        let answers = ZoneAnswers {
            zones: self.server.zones(),
            states: states.collect(),
            challenges,
            transfers: Arc::clone(&self.state.assembly.outgoing_transfers),
        };
        let running = Arc::clone(&self.answers);
        let sources = name.as_ref().and_then(|name| self.state.loader.as_ref()?.sources(name).cloned());
        let run = move || {
            let _running = running;
            match (command, name) {
                (ZoneCommand::Status { .. }, Some(name)) => answers.status(&name, sources, report.as_ref(), client),
                (ZoneCommand::Show { rrtype, .. }, Some(name)) => answers.show(&name, rrtype.as_deref(), client),
                (ZoneCommand::Export { .. }, Some(name)) => answers.export(&name, client),
                (ZoneCommand::List { is_json }, _) => answers.list(is_json, client),
                _ => {}
            }
        };
        if let Err(error) = thread::Builder::new().name("zone-answer".to_owned()).spawn(run) {
            log_error(&format!("cannot start a thread to answer: {}", error_text(&error)));
        }
    }
}

/// The differences of a reloaded zone from its previous version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ZoneContent {
    SameFiles,
    /// The zone's files have changed, but not its records: the agent has rewritten them, or comments have changed.
    SameRecords,
    Changed,
}

fn denied_text(path: &Path) -> String {
    format!("the running process's sandbox does not allow {}", path.display())
}

/// The result of loading a zone; `transfer_problem` is the reason why it is not transferred.
fn outcome_text(
    state: &ZoneState,
    before: Option<&ZoneState>,
    content: ZoneContent,
    transfer_problem: Option<&str>,
) -> String {
    let ZoneState { name, serial, record_count, problem, .. } = state;
    let old = before.and_then(|before| Some((before.serial?, before.record_count)));
    match (serial, problem, old) {
        (None, None, Some((old, _))) => format!(
            "zone {name}: serial {old} is no longer served, because its stored version was removed or has expired; \
                queries get SERVFAIL until it is transferred"
        ),
        (None, None, None) => {
            let cause =
                transfer_problem.map_or(String::new(), |problem| format!("; the last attempt failed: {problem}"));
            format!("zone {name}: not transferred yet, or expired; queries get SERVFAIL until it is transferred{cause}")
        }
        (None, ..) => format!("zone {name}: unavailable; queries get SERVFAIL until it is corrected and reloaded"),
        (Some(serial), Some(_), _) => format!("zone {name}: not reloaded, keeping serial {serial}"),
        (Some(serial), None, _) if content != ZoneContent::Changed => {
            let what = if content == ZoneContent::SameFiles { "files" } else { "records" };
            format!("zone {name}: its {what} are unchanged; serial {serial}, {record_count} records")
        }
        (Some(serial), None, None) => format!("zone {name}: added, serial {serial}, {record_count} records"),
        (Some(serial), None, Some((old, old_count))) => {
            let warning = match serial.wrapping_sub(old).cast_signed() {
                0 => "; the serial has not changed, so secondaries will not notice",
                // RFC 1982 section 3.2.
                ..0 => "; the serial is lower, so secondaries will not notice",
                _ => "",
            };
            format!("zone {name}: serial {old} -> {serial}, {old_count} -> {record_count} records{warning}")
        }
    }
}
