//! The privileges that a server process drops before it serves: its user, its capabilities, and all files and system
//! calls that serving does not need.

use sanderling_config::{Config, ReleaseLink};
use sanderling_os::directory::Directory;
use sanderling_os::error::with_second_try;
use sanderling_os::sandbox::{self, Landlock, Layer, SandboxConfig};
use sanderling_os::user::User;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

/// This process's sandbox.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) layers: sandbox::Sandbox,
    /// The user that the process has switched to.
    pub(crate) user: Option<String>,
}

impl Sandbox {
    /// Drops all privileges that serving `config`, with zone files in `zone_directories`, does not need. The process
    /// runs as `user` already.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a layer that it supports.
    pub(crate) fn enter(
        config: &Config,
        zone_directories: BTreeSet<PathBuf>,
        user: Option<User>,
    ) -> io::Result<Sandbox> {
        let layer = if config.sandbox { Layer::Enabled } else { Layer::Disabled };
        let layers = Sandbox::enter_layers(config, zone_directories, layer)?;
        Ok(Sandbox { layers, user: user.map(|user| user.name) })
    }

    /// Restricts this process to reading what a server process for `config` can read; system calls are not restricted.
    ///
    /// # Errors
    /// Returns an error if the kernel refuses a layer that it supports.
    pub(crate) fn enter_for_check(config: &Config, zone_directories: BTreeSet<PathBuf>) -> io::Result<()> {
        Sandbox::enter_layers(config, zone_directories, Layer::Disabled).map(drop)
    }

    /// `seccomp` is whether system calls are restricted.
    fn enter_layers(
        config: &Config,
        zone_directories: BTreeSet<PathBuf>,
        seccomp: Layer,
    ) -> io::Result<sandbox::Sandbox> {
        // Directories instead of files, which an editor may replace by others. Each directory is listed once: thousands
        // of zones may be in one directory. A directory that cannot be opened affects only its own site or zones.
        let mut paths = zone_directories;
        paths.extend(config.sites.iter().filter_map(|site| site.document_root.clone()));
        // A release that is published later is read by this process too.
        let links = config.sites.iter().filter_map(|site| Some(ReleaseLink::new(site.document_root.as_ref()?)));
        paths.extend(links.filter(|link| link.current().is_some()).filter_map(|link| link.directory().ok()));
        paths.extend(config.users_directories());
        let link_targets = config.sites.iter().flat_map(|site| &site.options.link_targets);
        paths.extend(link_targets.map(|(path, _)| path.clone()));
        // Directories are opened one at a time: together, they may need more descriptors than are left.
        let readable_fds = paths.iter().filter_map(|path| with_second_try(|| Directory::open(path)).ok());
        let landlock = if config.sandbox { Layer::Enabled } else { Layer::Disabled };
        let ports: Vec<u16> = config.backend_ports().into_iter().collect();
        sandbox::enter(SandboxConfig { readable_fds, landlock, seccomp }, &ports)
    }

    /// A note that this process can connect to more ports than `config` has.
    pub(crate) fn note(&self, config: &Config) -> Option<String> {
        let has_limit = self.layers.landlock.restricts_ports() || self.layers.landlock == Landlock::Disabled;
        (!has_limit && !config.backend_ports().is_empty()).then(|| {
            format!(
                "the server process may connect to all ports, not only those of applications: Landlock is {}, and \
                 restricts ports from version 4 on (Linux 6.7)",
                self.layers.landlock
            )
        })
    }

    /// Whether this process can read only in the directories that existed when it entered the sandbox.
    pub(crate) fn restricts_directories(&self) -> bool {
        matches!(self.layers.landlock, Landlock::Enforced { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::ConfigSource;
    use sanderling_os::sandbox::Seccomp;

    #[test]
    fn kernel_that_cannot_restrict_ports_is_noted_if_there_are_some() {
        let config = |address: &str| {
            let text = format!("[domain.\"a.test\".route.\"/\"]\nproxy = \"{address}\"\n");
            ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes()).expect("a configuration")
        };
        let check = |address: &str, landlock: Landlock, expected: bool| {
            let sandbox = Sandbox { layers: sandbox::Sandbox { landlock, seccomp: Seccomp::Enforced }, user: None };
            let note = sandbox.note(&config(address));
            assert_eq!(note.is_some(), expected, "{address} {landlock:?}: {note:?}");
        };
        check("127.0.0.1:1", Landlock::Enforced { version: 4 }, false);
        check("127.0.0.1:1", Landlock::Enforced { version: 3 }, true);
        check("127.0.0.1:1", Landlock::NotSupported, true);
        check("127.0.0.1:1", Landlock::Disabled, false);
        check("unix:/run/app.sock", Landlock::NotSupported, false);
    }
}
