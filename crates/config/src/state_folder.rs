//! The state folder: which one is used, and by which configurations.

use crate::config::Config;
use sanderling_os::process::effective_uid;
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

    /// Whether there is something in the state folder, or may be from before.
    pub fn uses_state_folder(&self) -> bool {
        self.state.is_some() || self.needs_agent()
    }
}
