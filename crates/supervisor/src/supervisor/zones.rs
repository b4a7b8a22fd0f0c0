//! Commands about single zones, which the serving process carries out: it answers the client itself, so that a large zone is
//! not copied through the supervisor.

use super::{Requester, Supervisor};
use sanderling_config::diagnostic::error_text;
use sanderling_ipc::{Command, FdKind, ZoneCommand};

impl Supervisor {
    /// Has the serving process carry out a command, and answer the client itself.
    pub(super) fn pass_to_serving_process(&mut self, requester: Requester, mut command: ZoneCommand) {
        if let ZoneCommand::Reload { zone, is_forced } = &command
            && self.active.config.signed_zones.iter().any(|signed| signed.apex.as_str() == zone)
        {
            let forced_zones = if *is_forced { vec![zone.clone()] } else { Vec::new() };
            let read = Command::ReadZones { zones: vec![zone.clone()], forced_zones, is_success: true };
            return self.have_zones_read(requester, read);
        }
        if let ZoneCommand::Status { zone, report } = &mut command {
            let of_agent = self.agent.report.as_ref();
            let found = of_agent.and_then(|of_agent| of_agent.zones.iter().find(|one| one.name == *zone));
            *report = found.cloned().map(Box::new);
        }
        let (Requester::Client(id), Some(control)) = (requester, &mut self.control) else { return };
        let client = control.client_fd(id).map(|fd| fd.try_clone_to_owned());
        match (self.serving_process(), client) {
            (Some(process), Some(Ok(client))) => {
                process.send(Command::Zone(command), vec![(FdKind::Requester, client)]);
                self.control.as_mut().and_then(|control| control.take_client(id));
            }
            (None, Some(_)) => self.reply(requester, Err("no server process running")),
            (_, Some(Err(error))) => {
                self.reply(requester, Err(&format!("cannot pass the command on: {}", error_text(&error))));
            }
            (_, None) => {}
        }
    }
}
