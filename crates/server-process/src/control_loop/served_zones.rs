//! Tells the agent, through the supervisor, which versions of zones are served: those that have secondary servers.

use super::ControlLoop;
use crate::load_status::ZoneState;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log;
use sanderling_config::{DomainName, TransfersByZone};
use sanderling_ipc::agent::served_zones_to_memfd;
use sanderling_ipc::{Event, FdKind, Message, ServedZone};
use std::sync::Arc;

impl ControlLoop<'_> {
    /// Tells which versions of all these zones are served.
    pub(super) fn report_zones(&mut self) {
        let config = Arc::clone(&self.state.config);
        if !config.has_secondaries() {
            return;
        }
        let transfers = config.transfers_by_zone();
        let states = self.state.load_status.zones.iter();
        let served: Vec<ServedZone> = states.filter_map(|zone| served_zone(zone, &transfers)).collect();
        match served_zones_to_memfd(&served) {
            Ok(file) => {
                let Some(supervisor) = &mut self.state.supervisor else { return };
                let event = Message::Event(Event::ZonesServed);
                if supervisor.send_with(&event, vec![(FdKind::ServedZones, file)]).is_err() {
                    self.on_supervisor_lost();
                }
            }
            Err(error) => log(&format!("cannot tell the agent which zones are served: {}", error_text(&error))),
        }
    }

    /// Tells which version of a zone is served, if it is one of them.
    pub(super) fn report_zone(&mut self, zone: &ZoneState) {
        if let Some(served) = served_zone(zone, &self.state.config.transfers_by_zone()) {
            self.send(Event::ZoneServed(served));
        }
    }
}

/// `None` if the agent is not concerned.
fn served_zone(zone: &ZoneState, transfers: &TransfersByZone<'_>) -> Option<ServedZone> {
    let name = DomainName::parse(&zone.name).ok()?;
    let is_concerned = !transfers.of(&name).secondaries.is_empty();
    is_concerned.then(|| ServedZone { name: zone.name.clone(), serial: zone.serial })
}
