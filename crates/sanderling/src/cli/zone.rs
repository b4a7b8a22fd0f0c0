//! The commands of `sanderling zone`.

use super::control::ControlArgs;
use super::{ControlRequest, parse_zone_name};
use clap::Subcommand;
use sanderling_config::{DomainName, SearchPaths};
use sanderling_ipc::control_path::RuntimeEnv;
use sanderling_ipc::{Command, ZoneCommand};

/// A command about zones of the running server.
#[derive(Debug, Subcommand)]
pub(super) enum ZoneArgs {
    /// List all zones: name, serial, number of records, state, file
    ///
    /// The state is `served`; `kept` if the file was refused, so that the last good version is served; or `unavailable` if there is
    /// none, and queries are answered with SERVFAIL.
    List {
        /// Write JSON instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Show the state of one zone, and whether its file differs from what is served
    Status {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Print the records of a zone as they are answered, as a zone file
    #[command(after_help = "Examples:
  sanderling zone show example.com
  sanderling zone show example.com --rrtype MX
  sanderling zone show example.com | diff - <(ssh ns2 sanderling zone show example.com)

Exit status: 0 if all records were printed, 1 if there is no such zone or the server did not answer,
2 for a wrong command line.")]
    Show {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        /// Only records of TYPE, such as MX or TYPE15
        #[arg(long, value_name = "TYPE")]
        rrtype: Option<String>,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Print a zone as its file would be with the dynamic updates
    ///
    /// Without the records that the server derives. Put it into the file, with a later serial, and reload the zone: the file then takes the
    /// place of the updates.
    #[command(after_help = "Examples:
  sanderling zone export example.com
  sanderling zone export example.com > example.com.zone

Exit status: 0 if all records were printed, 1 if there is no such zone or the server did not answer,
2 for a wrong command line.")]
    Export {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        #[command(flatten)]
        control: ControlArgs,
    },
}

impl ZoneArgs {
    /// # Errors
    /// A message: the control socket is unknown.
    pub(super) fn request(self, search_paths: &SearchPaths, env: &RuntimeEnv) -> Result<ControlRequest, String> {
        let (command, control) = match self {
            ZoneArgs::List { json, control } => (ZoneCommand::List { is_json: json }, control),
            ZoneArgs::Status { zone, control } => (ZoneCommand::Status { zone: zone.to_string() }, control),
            ZoneArgs::Export { zone, control } => (ZoneCommand::Export { zone: zone.to_string() }, control),
            ZoneArgs::Show { zone, rrtype, control } => (ZoneCommand::Show { zone: zone.to_string(), rrtype }, control),
        };
        control.request(Command::Zone(command), search_paths, env)
    }
}
