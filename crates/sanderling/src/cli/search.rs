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
    let others = match command {
        "serve" => {
            "  sanderling serve FOLDER                  a web site\n  \
               sanderling serve --zone NAME=FILE        a zone\n  \
               sanderling demo                          the built-in domain\n"
        }
        "check" => "  sanderling check --zone NAME=FILE        a zone\n",
        _ => "",
    };
    let example = format!("sanderling {command} --config FILE");
    let message = format!(
        "no configuration file was found

{CONFIG_VARIABLE} is not set, and these files do not exist:
{}

Specify one:
  {example:<40} a configuration file
{others}",
        defaults.join("\n")
    );
    Err(usage_error(command, ErrorKind::MissingRequiredArgument, message.trim_end()))
}
