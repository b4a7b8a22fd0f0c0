//! The commands of `sanderling dnssec`.

use super::control::ControlArgs;
use super::state::StateArgs;
use super::{Command as CliCommand, parse_zone_name};
use crate::state_files::StateAction;
use clap::Subcommand;
use clap::error::ErrorKind;
use sanderling_config::{DomainName, SearchPaths};
use sanderling_ipc::control_path::RuntimeEnv;
use sanderling_ipc::{Command, DnssecCommand, RolloverKeys};
use std::path::PathBuf;

/// A command about a zone that the server signs.
#[derive(Debug, Subcommand)]
pub(super) enum DnssecArgs {
    /// Show a zone's keys, the DS records for the registrar, and the pending step
    Status {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Replace a zone's keys
    ///
    /// New keys are introduced, and the old ones removed and erased, in steps that never break the zone for any
    /// resolver. Steps wait for all name servers of the zone, for the parent zone and for caches;
    /// `sanderling dnssec status` shows the current wait. Without an option, all keys are replaced. During a rollover,
    /// another is refused, except with `--compromised`.
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
        /// The private keys may have leaked: also replace keys that are being introduced
        #[arg(long)]
        compromised: bool,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Sign a zone with new keys, whatever DS records the parent zone has
    ///
    /// Before it creates the first key of a zone, the server queries the parent zone for DS records. If these belong to
    /// another key, for example after the loss of the state folder, or the query fails, the zone is not signed. This
    /// command signs it anyway. As long as the parent zone has other DS records, or resolvers have them in their
    /// caches, resolvers reject all answers: use the command only if the parent zone has no DS records, or if they have
    /// expired from caches.
    #[command(after_help = "Example:
  sanderling dnssec new-keys example.com

Exit status: 0 if the zone is signed with new keys, 1 if it is not, 2 for a wrong command line.")]
    NewKeys {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        #[command(flatten)]
        control: ControlArgs,
    },
    /// Write the private keys of a zone for another program
    ///
    /// To BIND's files `KNAME.+ALGORITHM+TAG.private` and `.key`. Only this user can read the private keys. The server
    /// does not need to run.
    #[command(after_help = "Examples:
  sanderling dnssec export example.com keys

Exit status: 0 if the files were written, 1 if not, 2 for a wrong command line.")]
    Export {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        /// The folder of the files
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        #[command(flatten)]
        arguments: StateArgs,
    },
    /// Import the keys of a zone that another program has signed
    ///
    /// For a zone that this server has not signed yet: import its keys, then add `dnssec`. Each `.private` file of BIND
    /// needs its `.key` file next to it. Import all keys of the zone with one command. The server does not need to run.
    #[command(after_help = "Examples:
  sanderling dnssec import example.com Kexample.com.+013+12345.private

Exit status: 0 if the zone has these keys, 1 if not, 2 for a wrong command line.")]
    Import {
        /// The zone
        #[arg(value_name = "NAME", value_parser = parse_zone_name)]
        zone: DomainName,
        /// The files with the private keys
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        arguments: StateArgs,
    },
}

impl DnssecArgs {
    /// # Errors
    /// Returns an error if the control socket is unknown.
    pub(super) fn command(self, search_paths: &SearchPaths, env: &RuntimeEnv) -> Result<CliCommand, clap::Error> {
        let (command, control) = match self {
            DnssecArgs::Status { zone, control } => (DnssecCommand::Status { zone: zone.to_string() }, control),
            DnssecArgs::NewKeys { zone, control } => (DnssecCommand::NewKeys { zone: zone.to_string() }, control),
            DnssecArgs::Rollover { zone, ksk, zsk, compromised, control } => {
                let keys = match (ksk, zsk) {
                    (true, _) => RolloverKeys::Ksk,
                    (_, true) => RolloverKeys::Zsk,
                    (false, false) => RolloverKeys::All,
                };
                let (zone, is_compromised) = (zone.to_string(), compromised);
                (DnssecCommand::Rollover { zone, keys, is_compromised }, control)
            }
            DnssecArgs::Export { zone, folder, arguments } => {
                let action = StateAction::ExportKeys(zone, folder);
                return Ok(CliCommand::State(arguments.command(action, search_paths)));
            }
            DnssecArgs::Import { zone, files, arguments } => {
                let action = StateAction::ImportKeys(zone, files);
                return Ok(CliCommand::State(arguments.command(action, search_paths)));
            }
        };
        let request = control.request(Command::Dnssec(command), search_paths, env);
        request
            .map(CliCommand::Control)
            .map_err(|problem| super::usage_error("dnssec", ErrorKind::MissingRequiredArgument, &problem))
    }
}
