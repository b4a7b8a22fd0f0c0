//! The commands of `sanderling zone`.

use super::control::ControlArgs;
use super::domain::DomainArgs;
use super::{Command as CliCommand, parse_zone_name};
use crate::folder_zone::FolderAction;
use clap::Subcommand;
use clap::error::ErrorKind;
use sanderling_config::{DomainName, SearchPaths};
use sanderling_ipc::control_path::RuntimeEnv;
use sanderling_ipc::{Command, ZoneCommand};
use std::path::PathBuf;

/// A command about zones.
#[derive(Debug, Subcommand)]
pub(super) enum ZoneArgs {
    /// List all zones: name, serial, number of records, state, file
    ///
    /// The state is `served`; `kept` if an earlier version is served because the newest one cannot be loaded, signed or
    /// transferred; `expiring` if signatures should have been replaced; `unsigned` if it should be signed but is not;
    /// `bogus` if signatures have expired; or `unavailable` if queries get SERVFAIL.
    List {
        /// Write JSON instead of text
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Show the state of one zone, and whether its file differs from the served version
    Status {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Print the records of a zone as they are served, as a zone file
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
    /// Print the zone file with the dynamic updates merged in
    ///
    /// Derived records are not included. Replace the file with the output, raise its serial, and reload the zone: the
    /// file then replaces the updates.
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
    /// Copy a zone file into the zone folder, and serve the zone
    ///
    /// For a configuration with a zone folder, such as `zones = "zones/*.zone"` in `[dns]`. FILE is copied into it as
    /// NAME.zone, unless it has errors or the server refuses it. The server does not need to run.
    #[command(after_help = "Examples:
  sanderling zone add example.com example.com.zone
  sanderling zone add example.com example.com.zone --config /etc/sanderling/sanderling.toml

Exit status: 0 if the zone is served, or the file is in the folder and no server could be reached;
1 if not; 2 for a wrong command line.")]
    Add {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        /// The zone file of the zone
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        arguments: DomainArgs,
    },
    /// Take a zone out of the zone folder, and keep its file
    ///
    /// The zone file stays in the folder as NAME.zone.removed, which the server ignores. This file does not contain
    /// dynamic updates: `sanderling zone export NAME` prints the zone with them. The server does not need to run.
    #[command(after_help = "Examples:
  sanderling zone remove example.com

Exit status: 0 if the zone is no longer served, or no server could be reached; 1 if not; 2 for a
wrong command line.")]
    Remove {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        #[command(flatten)]
        arguments: DomainArgs,
    },
}

impl ZoneArgs {
    /// # Errors
    /// Returns an error if the control socket is unknown, or there is no configuration.
    pub(super) fn command(self, search_paths: &SearchPaths, env: &RuntimeEnv) -> Result<CliCommand, clap::Error> {
        let (command, control) = match self {
            ZoneArgs::List { json, control } => (ZoneCommand::List { is_json: json }, control),
            ZoneArgs::Status { zone, control } => (ZoneCommand::Status { zone: zone.to_string() }, control),
            ZoneArgs::Export { zone, control } => (ZoneCommand::Export { zone: zone.to_string() }, control),
            ZoneArgs::Show { zone, rrtype, control } => (ZoneCommand::Show { zone: zone.to_string(), rrtype }, control),
            ZoneArgs::Add { zone, file, arguments } => {
                return arguments
                    .folder_zone(zone, FolderAction::Add(file), (search_paths, env))
                    .map(CliCommand::FolderZone);
            }
            ZoneArgs::Remove { zone, arguments } => {
                return arguments
                    .folder_zone(zone, FolderAction::Remove, (search_paths, env))
                    .map(CliCommand::FolderZone);
            }
        };
        let request = control.request(Command::Zone(command), search_paths, env);
        request
            .map(CliCommand::Control)
            .map_err(|problem| super::usage_error("zone", ErrorKind::MissingRequiredArgument, &problem))
    }
}
