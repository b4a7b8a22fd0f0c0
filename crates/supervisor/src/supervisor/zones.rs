//! Commands about single zones, which the serving process carries out: it answers the client itself, so that a large
//! zone is not copied through the supervisor.

use super::{Requester, Supervisor};
use sanderling_config::diagnostic::error_text;
use sanderling_ipc::agent::AgentReport;
use sanderling_ipc::{Command, FdKind, ZoneCommand};
use std::os::fd::OwnedFd;

impl Supervisor {
    /// Makes the serving process carry out a command, and answer the client itself.
    pub(super) fn pass_to_serving_process(&mut self, requester: Requester, command: ZoneCommand) {
        if let ZoneCommand::Reload { zone, is_forced } = &command
            && self.active.config.signed_zones.iter().any(|signed| signed.apex.as_str() == zone)
        {
            let forced_zones = if *is_forced { vec![zone.clone()] } else { Vec::new() };
            let read = Command::ReadZones { zones: vec![zone.clone()], forced_zones, is_success: true };
            return self.have_zones_read(requester, read);
        }
        // The process judges the same facts that the answer shows.
        self.send_supervision();
        let report = self.zone_report(&command);
        let (Requester::Client(id), Some(control)) = (requester, &mut self.control) else { return };
        let client = control.client_fd(id).map(|fd| fd.try_clone_to_owned());
        match (self.serving_process(), client) {
            (Some(process), Some(Ok(client))) => {
                let mut descriptors = vec![(FdKind::Requester, client)];
                descriptors.extend(report.map(|report| (FdKind::AgentReport, report)));
                process.send(Command::Zone(command), descriptors);
                self.control.as_mut().and_then(|control| control.take_client(id));
            }
            (None, Some(_)) => self.reply(requester, Err("no server process running")),
            (_, Some(Err(error))) => {
                self.reply(requester, Err(&format!("cannot pass the command on: {}", error_text(&error))));
            }
            (_, None) => {}
        }
    }

    /// The agent's report about the zone in a status request; empty while it is unknown.
    fn zone_report(&self, command: &ZoneCommand) -> Option<OwnedFd> {
        let ZoneCommand::Status { zone: name } = command else { return None };
        let zone = self.agent.report.as_ref()?.zones.iter().find(|zone| zone.name == *name)?;
        AgentReport { zones: vec![zone.clone()], ..AgentReport::default() }.to_memfd().ok()
    }
}
