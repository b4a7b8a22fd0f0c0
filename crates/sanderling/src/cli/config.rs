//! The arguments of `config`.

use super::search::find_path;
use crate::config_listing::ConfigListing;
use clap::Args;
use sanderling_config::SearchPaths;
use std::path::PathBuf;

/// Print the effective configuration: each key with its value and its place
///
/// Keys of the file and of those that it includes have their file and line, the others are defaults. A key that has no
/// default is not printed. The output is a configuration file that means the same.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sanderling config
  sanderling config --config /etc/sanderling/sanderling.toml
  sanderling config | grep -v '# default'      without the defaults

Exit status: 0 if the configuration has no errors, 1 if it has, 2 for a wrong command line.")]
pub(super) struct ConfigArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Write JSON: a list of the keys, each with the TOML of its value
    #[arg(long)]
    json: bool,
}

impl ConfigArgs {
    /// # Errors
    /// There is no configuration file.
    pub(super) fn listing(self, search_paths: &SearchPaths) -> Result<ConfigListing, clap::Error> {
        let file = match self.config {
            Some(file) => file,
            None => find_path("config", search_paths)?,
        };
        Ok(ConfigListing { file, is_json: self.json })
    }
}
