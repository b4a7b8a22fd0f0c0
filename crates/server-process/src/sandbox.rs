//! What a server process gives up before it serves: its user, its capabilities, and all files and system calls that
//! serving does not need.

use sanderling_config::Config;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_os::directory::Directory;
use sanderling_os::error::with_second_try;
use sanderling_os::process::effective_uid;
use sanderling_os::sandbox::{self, Landlock, Layer, SandboxConfig};
use sanderling_os::user::User;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

/// The users that root serves as if the configuration has none: the one of the packages, or the one that owns nothing.
const DEFAULT_USERS: [&str; 2] = ["sanderling", "nobody"];

/// The user that the server process switches to: that of the configuration, else a default one for root.
///
/// # Errors
/// The user or the group does not exist, or the user is root.
pub(crate) fn lookup_user(config: &Config) -> Result<Option<User>, Vec<Diagnostic>> {
    let Some(account) = &config.user_and_group else { return default_user() };
    let group = account.group.as_deref();
    let error = match User::lookup(&account.user, group) {
        Ok(user) => return Ok(Some(user)),
        Err(error) => error,
    };
    // Numbers need not exist, so each name is looked up beside one: a wrong user does not hide a wrong group.
    let errors = match group {
        None => vec![(&account.user_location, error)],
        Some(group) => {
            let user_error = User::lookup(&account.user, Some("0")).err();
            let group_error = User::lookup("1", Some(group)).err();
            [(&account.user_location, user_error), (&account.group_location, group_error)]
                .into_iter()
                .filter_map(|(location, error)| error.map(|error| (location, error)))
                .collect()
        }
    };
    // The errors name their remedies.
    let diagnostic = |(location, error): (&Location, io::Error)| {
        Diagnostic::error(location.clone(), Problem::new(error_text(&error), ""))
    };
    Err(errors.into_iter().map(diagnostic).collect())
}

fn default_user() -> Result<Option<User>, Vec<Diagnostic>> {
    if effective_uid() != 0 {
        return Ok(None);
    }
    let found = DEFAULT_USERS.iter().find_map(|name| User::lookup(name, None).ok());
    found.map(Some).ok_or_else(|| {
        let message = "root must not serve, and there is neither a user `sanderling` nor `nobody`";
        let remedy = "create one (useradd --system sanderling), or set `user` in the configuration file";
        vec![Diagnostic::error(Location::Argument("serve".to_owned()), Problem::new(message, remedy))]
    })
}

/// The sandbox of this process.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) layers: sandbox::Sandbox,
    /// The user that the process has switched to.
    pub(crate) user: Option<String>,
}

impl Sandbox {
    /// Gives up what serving `config` does not need, with zone files in `zone_directories`. The process runs as `user`
    /// already.
    ///
    /// # Errors
    /// The kernel refuses a layer that it supports.
    pub(crate) fn enter(
        config: &Config,
        zone_directories: BTreeSet<PathBuf>,
        user: Option<User>,
    ) -> io::Result<Sandbox> {
        let layer = if config.sandbox { Layer::Enabled } else { Layer::Disabled };
        // Directories instead of files, which an editor may replace by others. Each once: each needs a descriptor, and
        // thousands of zones may be in one directory. One that cannot be opened concerns its own site or zones alone.
        let mut paths = zone_directories;
        paths.extend(config.sites.iter().map(|site| site.document_root.clone()));
        paths.extend(config.users_directories());
        let link_targets = config.sites.iter().flat_map(|site| &site.options.link_targets);
        paths.extend(link_targets.map(|(path, _)| path.clone()));
        let directories: Vec<Directory> =
            paths.iter().filter_map(|path| with_second_try(|| Directory::open(path)).ok()).collect();
        let sandbox_config = SandboxConfig {
            readable_fds: directories.iter().map(AsFd::as_fd).collect(),
            landlock: layer,
            seccomp: layer,
        };
        Ok(Sandbox { layers: sandbox::enter(&sandbox_config)?, user: user.map(|user| user.name) })
    }

    /// Whether this process can read only in the directories that existed when it entered the sandbox.
    pub(crate) fn restricts_directories(&self) -> bool {
        matches!(self.layers.landlock, Landlock::Enforced { .. })
    }
}
