//! The commands of `sanderling dnssec`.

use super::control::ControlArgs;
use super::{ControlRequest, parse_zone_name};
use clap::Subcommand;
use sanderling_config::{DomainName, SearchPaths};
use sanderling_ipc::control_path::RuntimeEnv;
use sanderling_ipc::{Command, DnssecCommand, RolloverKeys};

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
    /// Replace the keys of a zone
    ///
    /// New keys are introduced, and the old ones removed and erased, in steps of which none breaks the zone for any resolver. Steps wait for
    /// all name servers of the zone, for the parent zone and for caches; `sanderling dnssec status` says for which. Without an option, all keys
    /// are replaced.
    #[command(after_help = "Examples:
  sanderling dnssec rollover example.com
  sanderling dnssec rollover example.com --zsk    the parent zone is not involved

Exit status: 0 if the rollover has begun, 1 if it has not, 2 for a wrong command line.")]
    Rollover {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        /// Only the KSK, or the CSK
        #[arg(long)]
        ksk: bool,
        /// Only the ZSK, or the CSK
        #[arg(long, conflicts_with = "ksk")]
        zsk: bool,
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
            DnssecArgs::Rollover { zone, ksk, zsk, control } => {
                let keys = match (ksk, zsk) {
                    (true, _) => RolloverKeys::Ksk,
                    (_, true) => RolloverKeys::Zsk,
                    (false, false) => RolloverKeys::All,
                };
                (DnssecCommand::Rollover { zone: zone.to_string(), keys }, control)
            }
        };
        control.request(Command::Dnssec(command), search_paths, env)
    }
}
