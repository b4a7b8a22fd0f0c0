//! The arguments of the commands that change files of the running server: `publish`, `rollback`, `zone add` and `zone
//! remove`.

use super::control::CHANGE_TIMEOUT_S;
use super::{parse_number, usage_error};
use crate::folder_zone::{FolderAction, FolderZone};
use crate::publication::{Publication, Release};
use clap::Args;
use clap::error::ErrorKind;
use sanderling_config::{ConfigSource, DomainName, SearchPaths};
use sanderling_ipc::control_path::{RuntimeEnv, of_client};
use std::path::PathBuf;
use std::time::Duration;

/// A day: a new process may have to start.
const TIMEOUT_S_MAX: u64 = 86_400;

/// The configuration with the domain, and the server that serves it.
#[derive(Debug, Args)]
pub(super) struct DomainArgs {
    /// The configuration file that contains the domain
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The server's control socket [default: from the configuration file, else the default path]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,

    /// Time to wait for the server's answer
    #[arg(long, value_name = "SECONDS", default_value_t = CHANGE_TIMEOUT_S, value_parser = |text: &str| parse_number(text, TIMEOUT_S_MAX))]
    timeout: u64,
}

impl DomainArgs {
    /// The configuration with the domain, for `command`.
    ///
    /// # Errors
    /// Returns an error if there is no configuration source.
    pub(super) fn source(&self, command: &str, search_paths: &SearchPaths) -> Result<ConfigSource, clap::Error> {
        match &self.config {
            Some(file) => Ok(ConfigSource::File(file.clone())),
            None => search_paths.find().map(ConfigSource::File).ok_or_else(|| {
                let message = "no configuration file was found; specify it with --config FILE";
                usage_error(command, ErrorKind::MissingRequiredArgument, message)
            }),
        }
    }

    pub(super) fn publication(
        self,
        name: DomainName,
        release: Release,
        source: ConfigSource,
        (search_paths, env): (&SearchPaths, &RuntimeEnv),
    ) -> Publication {
        let socket = of_client(self.control, self.config, search_paths, env);
        Publication { source, name, release, socket, timeout: Duration::from_secs(self.timeout) }
    }

    pub(super) fn folder_zone(
        self,
        zone: DomainName,
        action: FolderAction,
        (search_paths, env): (&SearchPaths, &RuntimeEnv),
    ) -> Result<FolderZone, clap::Error> {
        let source = self.source("zone", search_paths)?;
        let socket = of_client(self.control, self.config, search_paths, env);
        Ok(FolderZone { source, zone, action, socket, timeout: Duration::from_secs(self.timeout) })
    }
}
