//! The commands of `sanderling dnssec`.

use super::control::ControlArgs;
use super::{ControlRequest, parse_zone_name};
use clap::Subcommand;
use sanderling_config::{DomainName, SearchPaths};
use sanderling_ipc::control_path::RuntimeEnv;
use sanderling_ipc::{Command, DnssecCommand};

/// A command about a zone that the running server signs.
#[derive(Debug, Subcommand)]
pub(super) enum DnssecArgs {
    /// Show the keys of a zone, the DS records for the registrar, and what waits for what
    Status {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        #[command(flatten)]
        control: ControlArgs,
    },
}

impl DnssecArgs {
    /// # Errors
    /// A message: the control socket is unknown.
    pub(super) fn request(self, search_paths: &SearchPaths, env: &RuntimeEnv) -> Result<ControlRequest, String> {
        let (command, control) = match self {
            DnssecArgs::Status { zone, control } => (DnssecCommand::Status { zone: zone.to_string() }, control),
        };
        control.request(Command::Dnssec(command), search_paths, env)
    }
}
