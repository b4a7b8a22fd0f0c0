//! Tells the agent, through the supervisor, which versions of zones are served: those that are signed, or have primary
//! or secondary servers, or may have `ALIAS` or be updated, and which primaries have sent NOTIFY. A process that this
//! one has replaced is informed as well: it answers dynamic updates when this process serves them.

use super::ControlLoop;
use crate::load_status::ZoneState;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_config::{Config, DomainName, TransfersByZone};
use sanderling_ipc::agent::{ServedZone, ServedZones, ZoneNotify, journals_to_memfds, served_zones_to_memfd};
use sanderling_ipc::{Event, FdKind};
use sanderling_server::{NotifyInbox, ReceivedNotify};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two deliveries of NOTIFY: a flood of them does not keep the supervisor busy.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(100);

/// NOTIFY messages of primaries, until they are forwarded.
#[derive(Debug)]
pub(super) struct NotifyForwarding {
    inbox: Arc<NotifyInbox>,
    next_at: Instant,
}

impl NotifyForwarding {
    pub(super) fn new(inbox: Arc<NotifyInbox>) -> NotifyForwarding {
        NotifyForwarding { inbox, next_at: Instant::now() }
    }

    /// The time to forward them.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (!self.inbox.is_empty()).then_some(self.next_at)
    }
}

impl ControlLoop<'_> {
    /// Tells which primaries have sent NOTIFY since the last time.
    pub(super) fn forward_notifies(&mut self) {
        if self.notifies.deadline().is_none_or(|at| Instant::now() < at) {
            return;
        }
        self.notifies.next_at = Instant::now() + NOTIFY_INTERVAL;
        for ReceivedNotify { apex, serial, from } in self.notifies.inbox.take() {
            // The name of a zone of the configuration needs no escapes.
            let name = apex.to_string();
            let name = if apex.as_name().is_root() { name } else { name.trim_end_matches('.').to_owned() };
            self.send(Event::ZoneNotified(ZoneNotify { name, serial, from }));
        }
    }

    /// Tells which versions of all these zones are served.
    pub(super) fn report_zones(&mut self) {
        let config = Arc::clone(&self.state.config);
        if !config.has_stored_zones() {
            return;
        }
        let transfers = config.transfers_by_zone();
        let load_status = &self.state.load_status;
        let updated: HashSet<&DomainName> = config.zone_updates.iter().map(|(apex, _)| apex).collect();
        let served = |zone: &Arc<ZoneState>| served_zone(zone, &config, &transfers, |apex| updated.contains(apex));
        let zones = load_status.zones.iter().filter_map(served).collect();
        let is_complete = load_status.folder.as_ref().is_none_or(|folder| folder.is_listed);
        match served_zones_to_memfd(&ServedZones { zones, is_complete }) {
            Ok(file) => self.send_with(Event::ZonesServed, FdKind::ServedZones, file),
            Err(error) => log_error(&format!("cannot tell the agent which zones are served: {}", error_text(&error))),
        }
    }

    /// Makes the agent store journals, if the configuration needs one for zones.
    pub(super) fn report_journals(&mut self, journals: &[(String, Vec<u8>)]) {
        if !self.state.config.has_stored_zones() {
            return;
        }
        for file in journals_to_memfds(journals) {
            match file {
                Ok(file) => self.send_with(Event::JournalsChanged, FdKind::Journals, file),
                Err(error) => {
                    log_error(&format!("cannot send journals to the agent: {}", error_text(&error)));
                }
            }
        }
    }

    /// Reports the served version of a zone, if the zone is among them.
    pub(super) fn report_zone(&mut self, zone: &ZoneState) {
        if !zone.added.aliases.is_empty() {
            // The `ALIAS` targets may not fit into a message.
            return self.report_zones();
        }
        let config = &self.state.config;
        let may_be_updated = |name: &DomainName| config.zone_updates.iter().any(|(apex, _)| apex == name);
        if let Some(served) = served_zone(zone, config, &config.transfers_by_zone(), may_be_updated) {
            self.send(Event::ZoneServed(served));
        }
    }
}

/// `None` if the zone does not concern the agent.
fn served_zone(
    zone: &ZoneState,
    config: &Config,
    transfers: &TransfersByZone<'_>,
    may_be_updated: impl Fn(&DomainName) -> bool,
) -> Option<ServedZone> {
    let name = DomainName::parse(&zone.name).ok()?;
    let is_of_operator = !zone.origin.is_agent();
    // A catalog must not bring a zone of the operator.
    let is_concerned = !is_of_operator
        || config.signed_zone(&name).is_some()
        || config.consumes_catalogs()
        || config.resolves_aliases()
        || may_be_updated(&name)
        || !transfers.of(&name).secondaries.is_empty()
        || config.catalogs.iter().any(|catalog| catalog.lists(transfers.of(&name)));
    let alias_targets = zone.added.alias_targets();
    is_concerned.then(|| ServedZone {
        name: zone.name.clone(),
        serial: zone.serial,
        is_of_operator,
        has_error: zone.problem.is_some(),
        alias_targets,
    })
}
