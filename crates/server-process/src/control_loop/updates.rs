//! Has dynamic updates applied and stored, and answers them: all waiting updates of a zone together. No other load runs
//! meanwhile.
//!
//! ```text
//! inbox → loader → the agent stores what they make → the version is served → the clients are answered
//! ```

use super::{ControlLoop, Finished};
use crate::load_status::ZoneState;
use crate::loader::{ChangedUpdates, DeniedChange, Loader, Reloaded, UpdatedVersion, UpdatedZone};
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{DomainName, Limits};
use sanderling_dns::update::{UpdateMessage, UpdateRefusal, UpdateResult};
use sanderling_dns::{Name, Zone, ZoneEntry, ZoneLimits, is_later};
use sanderling_ipc::agent::{ServedZone, StoreResult, UpdatesId, UpdatesOutcome, UpdatesToStore, updates_to_memfd};
use sanderling_ipc::{Event, FdKind};
use sanderling_server::{DrainMode, ReceivedUpdate, UpdateInbox};
use sanderling_zone_files::StoreRequest;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Updates that are applied together.
const GROUP_MAX: usize = 256;
/// Time after the last update of a zone until its version is built as a whole.
const MERGE_AFTER: Duration = Duration::from_secs(60);
/// Maximum time from the first update to a merge, for a zone whose updates continue.
const MERGE_AT_LATEST_AFTER: Duration = Duration::from_secs(300);
const FAILED: UpdateResult = UpdateResult::Refused(UpdateRefusal::Failed);

/// The updates that wait, and those whose version is being stored.
pub(super) struct UpdateQueue {
    inbox: Arc<UpdateInbox>,
    storing: Option<Box<Storing>>,
    last_number: u64,
    /// Zones whose stored version differs from the served one: another process has stored updates, or the agent was
    /// late.
    outdated: BTreeSet<DomainName>,
    /// The updates of versions that are stored and not in service yet.
    awaited: Vec<AwaitedUpdates>,
    /// The serials that the successor of this process serves.
    served_by_next: HashMap<String, Option<u32>>,
    /// The number of the last version that was not stored in time.
    given_up: u64,
    timeout: Duration,
    pub(super) failures: LimitedLog,
    refusals: LimitedLog,
    /// Zones that have changed since they were built as a whole.
    changed: BTreeMap<DomainName, ChangeTimes>,
    merge: Merge,
}

/// The times of a zone's first and last updates.
#[derive(Clone, Copy, Debug)]
struct ChangeTimes {
    first: Instant,
    last: Instant,
}

/// A version that is built as a whole while updates continue.
enum Merge {
    None,
    /// A thread builds it.
    Running,
    /// The built version waits for the loader, which adds the changes made meanwhile.
    Built(Box<BuiltVersion>),
}

/// A version that was built as a whole.
pub(super) struct BuiltVersion {
    apex: DomainName,
    base: Arc<Zone>,
    /// `None` after a panic.
    merged: Option<Zone>,
}

/// Updates that wait for a version which is stored and not in service yet: the agent, which has signed it, hands it
/// over, or another process serves in place of this one.
struct AwaitedUpdates {
    apex: DomainName,
    /// The serial of the version.
    serial: u32,
    /// Whether the version includes the updates. Otherwise the updates are applied to it.
    has_updates: bool,
    updates: Vec<(ReceivedUpdate, UpdateResult)>,
    deadline: Instant,
}

/// A version that the agent must store.
struct Storing {
    /// The loader, held so that no other load runs; `None` for a version that the agent signs: the agent may hand over
    /// others in the meantime.
    loader: Option<Loader>,
    apex: DomainName,
    version: UpdatedVersion,
    updates: Vec<(ReceivedUpdate, UpdateResult)>,
    number: u64,
    deadline: Instant,
}

/// Updates that were applied.
pub(super) struct UpdateApplication {
    loader: Loader,
    apex: DomainName,
    updates: Vec<ReceivedUpdate>,
    /// `None` after a panic.
    updated: Option<UpdatedZone>,
}

/// A zone with a version that was built as a whole, unless it was too late.
pub(super) struct MergedZone {
    loader: Loader,
    merged: Option<(ZoneEntry, Arc<ZoneState>)>,
}

impl UpdateQueue {
    /// A queue of the updates that arrive in `inbox`.
    pub(super) fn new(inbox: Arc<UpdateInbox>, limits: &Limits) -> UpdateQueue {
        UpdateQueue {
            inbox,
            storing: None,
            last_number: 0,
            outdated: BTreeSet::new(),
            awaited: Vec::new(),
            served_by_next: HashMap::new(),
            given_up: 0,
            timeout: Duration::from_millis(limits.dns_update_timeout_ms),
            failures: LimitedLog::default(),
            refusals: LimitedLog::default(),
            changed: BTreeMap::new(),
            merge: Merge::None,
        }
    }

    /// The deadline for the next update, which is then answered although it is not stored.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let oldest = self.inbox.oldest().map(|since| since + self.timeout);
        let awaited = self.awaited.iter().map(|awaited| awaited.deadline);
        self.storing.as_ref().map(|storing| storing.deadline).into_iter().chain(oldest).chain(awaited).min()
    }

    /// Notes a change of a zone.
    pub(super) fn note_change(&mut self, apex: DomainName, now: Instant) {
        self.changed.entry(apex).or_insert(ChangeTimes { first: now, last: now }).last = now;
    }

    /// Takes a zone whose version must be built as a whole.
    fn take_due(&mut self, now: Instant) -> Option<DomainName> {
        let is_due = |(_, times): &(&DomainName, &ChangeTimes)| {
            let since = |time| now.saturating_duration_since(time);
            since(times.last) >= MERGE_AFTER || since(times.first) >= MERGE_AT_LATEST_AFTER
        };
        let apex = self.changed.iter().find(is_due).map(|(apex, _)| apex.clone())?;
        self.changed.remove(&apex);
        Some(apex)
    }

    fn next_id(&mut self) -> UpdatesId {
        self.last_number += 1;
        UpdatesId { pid: std::process::id(), number: self.last_number }
    }
}

fn without_final_dot(name: Name<'_>) -> String {
    name.to_string().trim_end_matches('.').to_owned()
}

impl ControlLoop<'_> {
    /// Answers the updates whose time has passed, and begins to apply others if the loader is free.
    pub(super) fn handle_updates(&mut self) {
        let now = Instant::now();
        if let Some(storing) = self.updates.storing.take_if(|storing| storing.deadline <= now) {
            let apex = &storing.apex;
            let message =
                format!("zone {apex}: the agent did not store the dynamic updates in time (`dns_update_timeout`)");
            self.updates.failures.warning(apex.as_str(), &message);
            self.give_up(*storing);
        }
        let expired: Vec<_> = self.updates.awaited.extract_if(.., |awaited| awaited.deadline <= now).collect();
        for AwaitedUpdates { apex, updates, .. } in expired {
            let message = format!(
                "zone {apex}: a dynamic update gets SERVFAIL: its version was not in service in time (`dns_update_timeout`)"
            );
            self.updates.failures.warning(apex.as_str(), &message);
            self.answer_updates(updates.into_iter().map(|(update, _)| (update, FAILED)));
        }
        if let Some(before) = now.checked_sub(self.updates.timeout) {
            let expired = self.updates.inbox.take_older_than(before);
            if let Some(first) = expired.first() {
                let apex = without_final_dot(first.message.apex());
                let message = format!(
                    "zone {apex}: a dynamic update gets SERVFAIL: it was not applied in time (`dns_update_timeout`)"
                );
                self.updates.failures.warning(&apex, &message);
            }
            self.answer_updates(expired.into_iter().map(|update| (update, FAILED)));
        }
        // After updates, work that waited for the loader comes first.
        self.load_derived();
        self.handle_waiting();
        // The next updates are for that version.
        if self.state.loader.is_none() || self.updates.storing.is_some() || !self.updates.awaited.is_empty() {
            return;
        }
        if let Some(apex) = self.updates.outdated.pop_first() {
            return self.load_stored_updates(apex);
        }
        match std::mem::replace(&mut self.updates.merge, Merge::None) {
            Merge::Built(built) => return self.take_built(*built),
            Merge::Running => self.updates.merge = Merge::Running,
            Merge::None => self.begin_merge(now),
        }
        let updates = self.updates.inbox.take_of_one_zone(GROUP_MAX);
        let name = updates.first().map(|update| update.message.apex().to_string());
        let Some(name) = name else { return };
        let Ok(apex) = DomainName::parse(&name) else {
            return self.answer_updates(updates.into_iter().map(|update| (update, FAILED)));
        };
        self.apply_updates(apex, updates);
    }

    fn apply_updates(&mut self, apex: DomainName, updates: Vec<ReceivedUpdate>) {
        let Some(loader) = self.state.loader.take() else { return };
        let (config, zone) = (Arc::clone(&self.state.config), apex.clone());
        let count = updates.len();
        let shared = Arc::new(updates);
        let of_load = Arc::clone(&shared);
        let load = move |loader: &mut Loader| {
            let messages: Vec<&UpdateMessage<'_>> = of_load.iter().map(|update| &update.message).collect();
            loader.apply_updates(&config, &zone, &messages)
        };
        let started = self.start_load(loader, load, |loader, updated| {
            // The closure that was called has dropped its reference.
            let updates = Arc::into_inner(shared).unwrap_or_default();
            Finished::Updates(Box::new(UpdateApplication { loader, apex, updates, updated }))
        });
        self.loads_one = started.is_ok();
        let Err((error, finish)) = started else { return };
        if let Some(loader) = self.state.loader.take() {
            let problem = format!("cannot start a thread to apply it: {}", error_text(&error));
            let refused = UpdatedZone::refused(count, UpdateRefusal::Failed, Some(problem));
            if let Finished::Updates(application) = finish(loader, Some(refused)) {
                self.finish_updates(*application);
            }
        }
    }

    /// Answers the updates that change nothing, or makes the agent store the result.
    pub(super) fn finish_updates(&mut self, application: UpdateApplication) {
        let UpdateApplication { loader, apex, mut updates, updated } = application;
        let Some(UpdatedZone { results, version, problem, denied }) = updated else {
            log_error(&format!(
                "zone {apex}: applying dynamic updates panicked; this is a bug in sanderling: report it"
            ));
            self.return_loader(loader);
            return self.answer_updates(updates.into_iter().map(|update| (update, FAILED)));
        };
        let text = |update: &ReceivedUpdate, rcode, problem: &str| {
            let key = update.message.key().map(without_final_dot).unwrap_or_default();
            let client = update.client();
            format!("zone {apex}: a dynamic update of {client} with the key {key} gets {rcode}: {problem}")
        };
        if let (Some(problem), Some(update)) = (problem, updates.first()) {
            self.updates.failures.warning(apex.as_str(), &text(update, "SERVFAIL", &problem));
        }
        if let Some(DeniedChange { index, owner, rtype }) = denied
            && let Some(update) = updates.get(index)
        {
            let problem = format!("no rule in `update` allows this key to change {rtype} records at {owner}");
            self.updates.refusals.warning(apex.as_str(), &text(update, "REFUSED", &problem));
        }
        let rest = updates.split_off(results.len().min(updates.len()));
        self.updates.inbox.put_back(rest);
        let updates: Vec<_> = updates.into_iter().zip(results).collect();
        let Some(version) = version else {
            self.return_loader(loader);
            let deadline = Instant::now() + self.updates.timeout;
            return self.answer_when_served(apex, updates, deadline);
        };
        let id = self.updates.next_id();
        let deadline = Instant::now() + self.updates.timeout;
        let number = id.number;
        self.send_updates(&apex, id, &version.to_store);
        let loader = match version.is_signed_by_agent() {
            true => {
                self.return_loader(loader);
                None
            }
            false => Some(loader),
        };
        self.updates.storing = Some(Box::new(Storing { loader, apex, version, updates, number, deadline }));
    }

    /// Makes the agent store data that the previous agent may have lost.
    pub(super) fn store_updates_again(&mut self) {
        let Some(storing) = self.updates.storing.take() else { return };
        let id = UpdatesId { pid: std::process::id(), number: storing.number };
        self.send_updates(&storing.apex, id, &storing.version.to_store);
        self.updates.storing = Some(storing);
    }

    /// Makes the agent store the result for updates after zone files were read.
    pub(super) fn report_updates(&mut self, updates: &ChangedUpdates) {
        for (apex, to_store) in updates {
            let id = self.updates.next_id();
            self.send_updates(apex, id, to_store);
        }
    }

    fn send_updates(&mut self, apex: &DomainName, id: UpdatesId, to_store: &StoreRequest) {
        let StoreRequest { content, replaces } = to_store;
        let file = match updates_to_memfd(content) {
            Ok(file) => file,
            Err(error) => {
                return log_error(&format!("cannot send dynamic updates to the agent: {}", error_text(&error)));
            }
        };
        let updates = UpdatesToStore { zone: apex.as_str().to_owned(), id, replaces: *replaces };
        self.send_with(Event::UpdatesMade(updates), FdKind::Updates, file);
    }

    /// Serves the version that is stored now, and answers its updates.
    pub(super) fn on_updates_stored(&mut self, outcome: &UpdatesOutcome) {
        let UpdatesOutcome { zone, id, result, serial } = outcome;
        let is_own = id.pid == std::process::id();
        let storing = self.updates.storing.take_if(|storing| is_own && storing.number == id.number);
        match (storing, result) {
            (Some(storing), result) if storing.version.is_signed_by_agent() => {
                self.wait_for_signed(*storing, *result, *serial);
            }
            // Each process serves the versions that the agent hands over.
            (None, _) if serial.is_some() => {}
            (Some(storing), StoreResult::Stored) => self.serve_updated(*storing),
            (Some(storing), StoreResult::Outdated) => {
                // The updates are applied again, to the version that another process has stored.
                let Storing { loader, apex, updates, .. } = *storing;
                self.apply_again(updates);
                self.updates.outdated.insert(apex);
                loader.into_iter().for_each(|loader| self.return_loader(loader));
            }
            (Some(storing), StoreResult::Failed) => self.give_up(*storing),
            (None, StoreResult::Failed) => {}
            // The result of reading a zone file, or the served version.
            (None, StoreResult::Stored) if is_own && id.number != self.updates.given_up => {}
            (None, StoreResult::Stored | StoreResult::Outdated) => {
                self.updates.outdated.extend(DomainName::parse(zone));
            }
        }
    }

    /// Answers the updates of a zone that the agent signs when the version is in service.
    fn wait_for_signed(&mut self, storing: Storing, result: StoreResult, serial: Option<u32>) {
        let Some(serial) = serial.filter(|_| result != StoreResult::Failed) else {
            let apex = &storing.apex;
            let message = format!("zone {apex}: a dynamic update gets SERVFAIL: the agent did not sign and store it");
            self.updates.failures.warning(apex.as_str(), &message);
            return self.give_up(storing);
        };
        let Storing { apex, updates, deadline, .. } = storing;
        let has_updates = result == StoreResult::Stored;
        if !has_updates && self.is_replaced() {
            // The agent hands it over to the next process.
            self.apply_again(updates);
            self.updates.outdated.insert(apex);
            return;
        }
        self.await_service(AwaitedUpdates { apex, serial, has_updates, updates, deadline });
    }

    /// Puts back updates to apply to another version.
    fn apply_again(&self, updates: Vec<(ReceivedUpdate, UpdateResult)>) {
        self.updates.inbox.put_back(updates.into_iter().map(|(update, _)| update).collect());
    }

    /// Answers updates when their version is in service, which it may be already.
    fn await_service(&mut self, awaited: AwaitedUpdates) {
        let name = awaited.apex.to_string();
        self.updates.awaited.push(awaited);
        let served = match self.is_replaced() {
            true => self.updates.served_by_next.get(&name).copied().flatten(),
            false => self.own_serial(&name),
        };
        if served.is_some() {
            self.answer_awaited(&name, served);
        }
    }

    /// Answers updates that this process's version has, when the process serves it that has replaced this one.
    fn answer_when_served(
        &mut self,
        apex: DomainName,
        updates: Vec<(ReceivedUpdate, UpdateResult)>,
        deadline: Instant,
    ) {
        match self.own_serial(apex.as_str()).filter(|_| self.is_replaced()) {
            Some(serial) => {
                self.await_service(AwaitedUpdates { apex, serial, has_updates: true, updates, deadline });
            }
            None => self.answer_updates(updates),
        }
    }

    /// The serial of this process's version of a zone.
    fn own_serial(&self, name: &str) -> Option<u32> {
        self.state.load_status.zones.iter().find(|zone| zone.name == name)?.serial
    }

    /// This process serves another version of a zone.
    pub(super) fn on_zone_served(&mut self, name: &str, serial: Option<u32>) {
        if !self.is_replaced() {
            self.answer_awaited(name, serial);
        }
    }

    /// The process that has replaced this one serves these versions.
    pub(super) fn on_served_by_next(&mut self, zones: &[ServedZone]) {
        for ServedZone { name, serial, .. } in zones {
            self.updates.served_by_next.insert(name.clone(), *serial);
            self.answer_awaited(name, *serial);
        }
    }

    /// Whether another process serves in place of this one: an answered update must be visible there.
    pub(super) fn is_replaced(&self) -> bool {
        self.ordered_end == Some(DrainMode::Replaced)
    }

    /// Answers the updates of the version that is in service now, or applies them to it. If the zone is no longer
    /// served, all its updates are answered.
    fn answer_awaited(&mut self, name: &str, served: Option<u32>) {
        let is_of_version = |awaited: &mut AwaitedUpdates| {
            awaited.apex.as_str() == name && !served.is_some_and(|served| is_later(awaited.serial, served))
        };
        let of_version: Vec<_> = self.updates.awaited.extract_if(.., is_of_version).collect();
        for AwaitedUpdates { has_updates, updates, .. } in of_version {
            match has_updates {
                true => self.answer_updates(updates),
                false => self.apply_again(updates),
            }
        }
    }

    fn serve_updated(&mut self, storing: Storing) {
        let Storing { loader, apex, version, updates, deadline, .. } = storing;
        let Some(mut loader) = loader else { return self.answer_updates(updates) };
        let taken = loader.take_updated(version);
        self.updates.note_change(apex.clone(), Instant::now());
        self.return_loader(loader);
        if let Some(one) = taken {
            self.report_journals(&one.journals);
            self.put_into_service(one.entry, &one.state);
        }
        self.answer_when_served(apex, updates, deadline);
    }

    /// Begins to build an updated zone as a whole, on a separate thread: updates continue meanwhile. A zone to merge is
    /// looked for at least once per heartbeat.
    fn begin_merge(&mut self, now: Instant) {
        let Some(apex) = self.updates.take_due(now) else { return };
        let Some(base) = self.state.loader.as_ref().and_then(|loader| loader.version_to_merge(&apex)) else { return };
        let limits = ZoneLimits { records_per_rrset_max: self.state.config.limits.zone_records_per_rrset_max };
        let (sender, finished) = (self.results.0.clone(), Arc::clone(&self.load_finished));
        let build = move || {
            let merged = catch_unwind(AssertUnwindSafe(|| base.merged(limits))).ok().flatten();
            // Fails only if the process exits.
            let _ = sender.send(Finished::Built(Box::new(BuiltVersion { apex, base, merged })));
            let _ = finished.signal();
        };
        match thread::Builder::new().name("merge".to_owned()).spawn(build) {
            Ok(_) => self.updates.merge = Merge::Running,
            Err(error) => log_error(&format!("cannot start a thread to build a zone: {}", error_text(&error))),
        }
    }

    pub(super) fn on_built(&mut self, built: Box<BuiltVersion>) {
        self.updates.merge = if built.merged.is_some() { Merge::Built(built) } else { Merge::None };
    }

    /// Makes the loader add the changes since then to a version that was built as a whole.
    fn take_built(&mut self, built: BuiltVersion) {
        let BuiltVersion { apex, base, merged: Some(merged) } = built else { return };
        let Some(loader) = self.state.loader.take() else { return };
        let config = Arc::clone(&self.state.config);
        let take = move |loader: &mut Loader| loader.take_merged(&config, &apex, &base, merged);
        let started = self.start_load(loader, take, |loader, merged| {
            Finished::Merged(Box::new(MergedZone { loader, merged: merged.flatten() }))
        });
        self.loads_one = started.is_ok();
        if let Err((error, _)) = started {
            log_error(&format!("cannot start a thread to build a zone: {}", error_text(&error)));
        }
    }

    pub(super) fn serve_merged(&mut self, merged: MergedZone) {
        self.return_loader(merged.loader);
        if let Some((entry, state)) = merged.merged {
            self.put_into_service(entry, &state);
        }
    }

    /// Drops a version that is not stored in time.
    fn give_up(&mut self, storing: Storing) {
        let Storing { loader, updates, number, .. } = storing;
        self.updates.given_up = number;
        loader.into_iter().for_each(|loader| self.return_loader(loader));
        self.answer_updates(updates.into_iter().map(|(update, result)| match result {
            UpdateResult::Done => (update, FAILED),
            refused => (update, refused),
        }));
    }

    fn return_loader(&mut self, loader: Loader) {
        self.state.loader = Some(loader);
        self.loads_one = false;
    }

    /// Builds a zone again with the stored updates.
    fn load_stored_updates(&mut self, apex: DomainName) {
        let Some(loader) = self.state.loader.take() else { return };
        let config = Arc::clone(&self.state.config);
        let load = move |loader: &mut Loader| match config.signed_zone(&apex) {
            None => loader.load_updates(&config, &apex),
            Some(_) => match loader.load_one(&config, &apex, false) {
                Ok(Reloaded::Loaded(one)) => vec![*one],
                Ok(Reloaded::Removed(_)) | Err(_) => Vec::new(),
            },
        };
        self.start_building_again(loader, load);
    }

    fn answer_updates(&self, updates: impl IntoIterator<Item = (ReceivedUpdate, UpdateResult)>) {
        for (update, result) in updates {
            self.updates.inbox.note_answer(&update, result);
            self.server.reply_to_update(update, result);
        }
    }

    /// Answers all updates, since this process applies no more.
    pub(super) fn end_updates(&mut self) {
        if let Some(storing) = self.updates.storing.take() {
            self.give_up(*storing);
        }
        for AwaitedUpdates { updates, .. } in std::mem::take(&mut self.updates.awaited) {
            self.answer_updates(updates.into_iter().map(|(update, _)| (update, FAILED)));
        }
        let waiting = self.updates.inbox.close();
        self.answer_updates(waiting.into_iter().map(|update| (update, FAILED)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_os::event_fd::EventFd;

    fn queue() -> UpdateQueue {
        let (limits, wakeup) = (Limits::default(), Arc::new(EventFd::new().expect("a descriptor")));
        let inbox = UpdateInbox::new(wakeup, limits.dns_updates_waiting_max, limits.dns_update_signatures_max);
        UpdateQueue::new(Arc::new(inbox), &limits)
    }

    #[test]
    fn zone_is_built_as_a_whole_after_its_last_update() {
        let (mut queue, second) = (queue(), Duration::from_secs(1));
        let (start, apex) = (Instant::now(), DomainName::parse("example.com").expect("a name"));
        queue.note_change(apex.clone(), start);
        queue.note_change(apex.clone(), start + second);
        assert_eq!(queue.take_due(start + MERGE_AFTER), None);
        let due = start + MERGE_AFTER + second;
        assert_eq!((queue.take_due(due), queue.take_due(due)), (Some(apex), None));
    }

    #[test]
    fn zone_whose_updates_go_on_is_built_as_a_whole_too() {
        let (mut queue, second) = (queue(), Duration::from_secs(1));
        let (start, apex) = (Instant::now(), DomainName::parse("example.com").expect("a name"));
        let mut now = start;
        let mut built = Vec::new();
        while now < start + 2 * MERGE_AT_LATEST_AFTER + MERGE_AFTER {
            queue.note_change(apex.clone(), now);
            built.extend(queue.take_due(now).map(|_| now.duration_since(start).as_secs()));
            now += second;
        }
        assert_eq!(built, [300, 601]);
    }
}
