//! Serves without a supervisor: answers at the control socket, and hands the process over to the next one.

use super::ControlLoop;
use crate::zone_answers::ZoneClient;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_ipc::control_socket::ClientId;
use sanderling_ipc::{Command, Connection, FdKind, OutgoingFds, ProcessInfo, StatusFormat, handover};
use std::os::fd::AsFd;
use std::time::{Instant, UNIX_EPOCH};

impl ControlLoop<'_> {
    pub(super) fn on_supervisor_lost(&mut self) {
        self.state.supervisor = None;
        log_error(&format!("lost the supervisor; still serving; {}", self.remedy()));
    }

    /// Answers commands at the control socket that need no supervisor.
    pub(super) fn handle_clients(&mut self) {
        let Some(control) = &mut self.state.control else { return };
        for (client, command) in control.receive_commands() {
            self.handle_client(client, &command);
        }
    }

    fn handle_client(&mut self, client: ClientId, command: &Command) {
        const NO_SUPERVISOR: &str =
            "there is no supervisor; run `sanderling serve` to start one that adopts the running server process\n";
        let (status, is_good) = match command {
            Command::Status(format) => self.status_text(*format),
            _ => Default::default(),
        };
        let status = match command {
            Command::Status(StatusFormat::Json) => format!("{{\"supervisor\":null,\"process\":{status}}}\n"),
            Command::Status(StatusFormat::Text | StatusFormat::Verbose) => format!("{NO_SUPERVISOR}{status}"),
            _ => status,
        };
        let Some(control) = &mut self.state.control else { return };
        match command {
            Command::Status(_) => {
                control.send_stdout(client, &status);
                control.finish(client, is_good);
            }
            Command::Stop => {
                self.stop();
                if let Some(mut control) = self.state.control.take() {
                    self.state.stop_client = control.take_client(client);
                    control.remove();
                }
            }
            Command::Reload { .. }
            | Command::ReloadSite { .. }
            | Command::Reopen
            | Command::Upgrade
            | Command::Drain
            | Command::UpdateSecrets
            | Command::UpdateChallenges { .. }
            | Command::UpdateBackendAddresses
            | Command::ChallengesServed { .. }
            | Command::ReportZones
            | Command::ZonesServed
            | Command::StoreJournals
            | Command::StoreUpdates(_)
            | Command::UpdatesStored(_)
            | Command::BackendConnected { .. }
            | Command::CertificatesServed
            | Command::ZoneServed(_)
            | Command::ZoneNotified(_)
            | Command::Certificates { .. }
            | Command::RenewCertificate { .. }
            | Command::RevokeCertificate { .. }
            | Command::HoldKeys { .. }
            | Command::RetainKeys
            | Command::ServeKeys
            | Command::ServeZoneKeys
            | Command::ReadZones { .. }
            | Command::Dnssec(_)
            | Command::UseKeeper
            | Command::UpdateLogs
            | Command::Supervision(_) => {
                control.send_stderr(client, &format!("sanderling: {NO_SUPERVISOR}"));
                control.finish(client, false);
            }
            Command::Zone(command) => {
                if let Some(connection) = control.take_client(client) {
                    self.answer_zone_command(command.clone(), None, None, ZoneClient::new(connection));
                }
            }
            Command::HandOver if self.state.supervisor.is_some() => {
                control.send_stderr(client, "sanderling: another supervisor has already adopted the process\n");
                control.finish(client, false);
            }
            Command::HandOver => {
                if let Some(connection) = control.take_client(client) {
                    self.hand_over_to(connection);
                }
            }
        }
    }

    /// Hands all descriptors over to a new supervisor, and takes its commands from now on.
    fn hand_over_to(&mut self, mut connection: Connection) {
        let Some(control) = &mut self.state.control else { return };
        let ready_at_unix_s = self.started_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let pid = std::process::id().cast_signed();
        let info = ProcessInfo { generation: 1, pid, is_serving: true, ready_at_unix_s };
        let mut descriptors: OutgoingFds<'_> = vec![
            (FdKind::Process(info), self.state.own_pidfd.as_fd()),
            (FdKind::Configuration, self.state.config_text.as_fd()),
            (FdKind::ControlSocket, control.listener()),
        ];
        descriptors.extend(self.state.kept_zones.iter().map(|zones| (FdKind::Zones, zones.as_fd())));
        descriptors.extend(self.state.keys_file.iter().map(|keys| (FdKind::SharedKeys, keys.as_fd())));
        let kept = &self.state.certificates.kept;
        descriptors.extend(kept.iter().map(|kept| (FdKind::KeptCertificates, kept.as_fd())));
        descriptors.extend(self.state.listeners.fds().map(|(role, socket)| (FdKind::Listener(role), socket)));
        match handover::send(&descriptors, &mut connection) {
            Ok(()) => {
                self.state.supervisor = Some(connection);
                // From now on, the supervisor answers; the clients must repeat their commands.
                control.disconnect_all();
            }
            Err(error) => log_error(&format!("cannot hand over to the new supervisor: {}", error_text(&error))),
        }
        self.next_heartbeat = Instant::now();
    }
}
