//! The configuration file that no argument names.

use super::usage_error;
use clap::error::ErrorKind;
use sanderling_config::{CONFIG_VARIABLE, ConfigSource, SearchPaths};
use std::path::PathBuf;

/// The first configuration file in `search_paths`, for `command`.
///
/// # Errors
/// There is none.
pub(super) fn find_file(command: &str, search_paths: &SearchPaths) -> Result<ConfigSource, clap::Error> {
    find_path(command, search_paths).map(ConfigSource::File)
}

/// The same as a path.
///
/// # Errors
/// There is none.
pub(super) fn find_path(command: &str, search_paths: &SearchPaths) -> Result<PathBuf, clap::Error> {
    if let Some(file) = search_paths.find() {
        return Ok(file);
    }
    let defaults: Vec<String> = search_paths.defaults().iter().map(|path| format!("  {}", path.display())).collect();
    let (verb, takes_zones) = match command {
        "serve" | "check" => (command, true),
        "config" => ("print", false),
        "doctor" => ("look at", false),
        other => (other, false),
    };
    let site = if command == "serve" { "  sanderling serve FOLDER                  a web site\n" } else { "" };
    let zone = match takes_zones {
        true => format!("  sanderling {command} --zone NAME=FILE        a zone\n"),
        false => String::new(),
    };
    let message = format!(
        "there is nothing to {verb}: no configuration file was found

{CONFIG_VARIABLE} is not set, and these files do not exist:
{}

Specify what to {verb}:
{site}{zone}  sanderling {command} --config FILE           everything in a configuration file
  sanderling demo                          the built-in domain",
        defaults.join("\n")
    );
    Err(usage_error(command, ErrorKind::MissingRequiredArgument, &message))
}
