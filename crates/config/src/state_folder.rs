//! The state folder: which one is used, and by which configurations.

use crate::config::Config;
use crate::diagnostic::{Diagnostic, Location, Problem};
use sanderling_os::process::effective_uid;
use sanderling_os::user::User;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The state folder of root, as the packages create it.
pub const DEFAULT_STATE: &str = "/var/lib/sanderling";

impl Config {
    /// The state folder: that of the argument `--state`, of the configuration, of the service manager, or the default one of root.
    pub fn state_folder(&self, argument: Option<&Path>) -> Option<PathBuf> {
        let of_service_manager =
            || std::env::var_os("STATE_DIRECTORY").filter(|path| !path.is_empty()).map(PathBuf::from);
        let default = || (effective_uid() == 0).then(|| PathBuf::from(DEFAULT_STATE));
        argument.map(Path::to_owned).or_else(|| self.state.clone()).or_else(of_service_manager).or_else(default)
    }

    /// Whether the agent has something to do: to request, to transfer or to derive, or a server to notify.
    pub fn needs_agent(&self) -> bool {
        self.requests_certificates() || self.has_stored_zones() || self.has_derived_records()
    }

    /// Whether there are certificates to request.
    pub fn requests_certificates(&self) -> bool {
        self.acme.is_some() && self.automatic_certificates().next().is_some()
    }

    /// Why the agent cannot use the state folder, if `user` serves, to which root switches. The argument `--state` is not known.
    pub fn state_folder_problem(&self, user: Option<&User>) -> Option<Diagnostic> {
        if !self.needs_agent() {
            return None;
        }
        let location = || self.state_location.clone().or_else(|| self.files.first().cloned().map(Location::File));
        let location = location().unwrap_or(Location::Argument("check".to_owned()));
        let Some(path) = self.state_folder(None) else {
            let message =
                "there is no state folder, unless root serves: certificates, transferred zones and the like need one";
            let remedy = "set `state` to a folder, or start `sanderling serve` as root";
            return Some(Diagnostic::note(location, Problem::new(message, remedy)));
        };
        let shown = path.display();
        let problem = match fs::metadata(&path) {
            Ok(metadata) if !metadata.is_dir() => {
                Problem::new(format!("the state folder `{shown}` is not a folder"), "set `state` to a folder")
            }
            Ok(metadata) => {
                // What `serve` refuses when it is root.
                let user = user.filter(|user| effective_uid() == 0 && user.uid != metadata.uid())?;
                let message = format!("the state folder `{shown}` belongs to user {}", metadata.uid());
                Problem::new(message, format!("give it to the user that serves: chown -R {} {shown}", user.name))
            }
            // `serve` creates it, but not what is above it.
            Err(_) if path.parent().is_none_or(|above| above.as_os_str().is_empty() || above.is_dir()) => return None,
            Err(_) => Problem::new(
                format!("the state folder `{shown}` cannot be created"),
                "create the folder above it, or set `state` to another one",
            ),
        };
        Some(Diagnostic::error(location, problem))
    }

    /// Whether there is something in the state folder, or may be from before.
    pub fn uses_state_folder(&self) -> bool {
        self.state.is_some() || self.needs_agent()
    }
}
