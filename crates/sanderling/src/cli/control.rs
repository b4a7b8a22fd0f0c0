//! The arguments of the commands that control the running server.

use super::parse_number;
use clap::Args;
use sanderling_config::SearchPaths;
use sanderling_ipc::control_path::{RuntimeEnv, of_client};
use sanderling_ipc::{Command, DnssecCommand, ZoneCommand};
use std::path::PathBuf;
use std::time::Duration;

/// The timeout of `status`, which waits for nothing.
const STATUS_TIMEOUT_S: u64 = 5;
/// For `reload` and `upgrade`: zones may be large, and a new process may have to start.
pub(super) const CHANGE_TIMEOUT_S: u64 = 60;
/// The timeout of `renew` and `revoke`.
const RENEWAL_TIMEOUT_S: u64 = 300;
/// For `stop`: the default of `drain_timeout_ms`, and 5 s to exit.
const STOP_TIMEOUT_S: u64 = 35;
/// For `zone list`, `zone show` and `zone export`, which may write a gigabyte.
const ZONE_TIMEOUT_S: u64 = 600;
/// A week, as `drain_timeout_ms` may be.
const TIMEOUT_S_MAX: u64 = 604_800;

/// A command for the running server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlRequest {
    pub(crate) command: Command,
    /// The control socket.
    pub(crate) socket: PathBuf,
    /// The time to wait for the whole answer.
    pub(crate) timeout: Duration,
}

/// The server to ask, and the time to wait for its answer.
#[derive(Debug, Args)]
pub(super) struct ControlArgs {
    /// The server's control socket [default: from the configuration file, else the default path]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// The configuration file with the key `control`
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,

    /// Time to wait for the whole answer [default: 5 for `status`, `certificates`, `zone status` and `dnssec status`,
    /// 300 for `renew` and `revoke`, 600 for `zone list`, `zone show` and `zone export`, 60 for `reload` and `upgrade`,
    /// 35 for `stop`]
    ///
    /// For `stop`, more than `drain_timeout_ms`.
    #[arg(long, value_name = "SECONDS", value_parser = |text: &str| parse_number(text, TIMEOUT_S_MAX))]
    timeout: Option<u64>,
}

impl ControlArgs {
    /// # Errors
    /// Returns a message if the control socket is unknown.
    pub(super) fn request(
        self,
        command: Command,
        search_paths: &SearchPaths,
        env: &RuntimeEnv,
    ) -> Result<ControlRequest, String> {
        let default_s = match command {
            Command::Status(_)
            | Command::Certificates { .. }
            | Command::Dnssec(DnssecCommand::Status { .. })
            | Command::Zone(ZoneCommand::Status { .. }) => STATUS_TIMEOUT_S,
            // An authority takes its time.
            Command::RenewCertificate { .. } | Command::RevokeCertificate { .. } => RENEWAL_TIMEOUT_S,
            Command::Zone(ZoneCommand::List { .. } | ZoneCommand::Show { .. } | ZoneCommand::Export { .. }) => {
                ZONE_TIMEOUT_S
            }
            Command::Stop => STOP_TIMEOUT_S,
            _ => CHANGE_TIMEOUT_S,
        };
        let socket = of_client(self.control, self.config, search_paths, env)?;
        Ok(ControlRequest { command, socket, timeout: Duration::from_secs(self.timeout.unwrap_or(default_s)) })
    }
}
