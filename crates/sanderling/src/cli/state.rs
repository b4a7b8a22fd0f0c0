//! The arguments of `backup` and `export`.

use crate::state_files::{StateAction, StateCommand, StateLocation};
use clap::Args;
use sanderling_config::{ConfigSource, SearchPaths};
use std::path::PathBuf;

/// The state folder to use.
#[derive(Debug, Args)]
pub(super) struct StateArgs {
    /// The state folder [default: `state` of the configuration file, else /var/lib/sanderling]
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,

    /// The configuration file with the key `state`
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    config: Option<PathBuf>,
}

impl StateArgs {
    pub(super) fn command(self, action: StateAction, search_paths: &SearchPaths) -> StateCommand {
        let state = match (self.state, self.config) {
            (Some(folder), _) => StateLocation::Folder(folder),
            (None, Some(file)) => StateLocation::Configuration(ConfigSource::File(file)),
            (None, None) => search_paths
                .find()
                .map_or(StateLocation::Default, |file| StateLocation::Configuration(ConfigSource::File(file))),
        };
        StateCommand { state, action }
    }
}
