//! What a server process gives up before it serves: its user, its capabilities, and every file and call that serving does
//! not need.

use sanderling_config::Config;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, reason};
use sanderling_os::sandbox::{self, Landlock, Layer, Sandbox};
use sanderling_os::user::User;
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

/// The user that the server process switches to, if the configuration has one.
///
/// # Errors
/// The user or the group does not exist, or the user is root.
pub(crate) fn lookup_user(config: &Config) -> Result<Option<User>, Vec<Diagnostic>> {
    let Some(account) = &config.account else { return Ok(None) };
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
    let remedy = "correct `user` and `group`, or remove them";
    let diagnostic = |(location, error): (&Location, io::Error)| {
        Diagnostic::error(location.clone(), Problem::new(reason(&error), remedy))
    };
    Err(errors.into_iter().map(diagnostic).collect())
}

/// What was left to this process.
#[derive(Debug)]
pub(super) struct Confinement {
    pub(super) confined: Sandbox,
    /// Whom it has become, if it has become somebody else.
    pub(super) user: Option<String>,
}

impl Confinement {
    /// Gives up what serving `config` does not need.
    ///
    /// # Errors
    /// The account cannot be taken up; something that is to be served cannot be opened by it.
    pub(super) fn of(config: &Config, identity: Option<User>) -> io::Result<Confinement> {
        let user = identity.as_ref().map(|identity| identity.name.clone());
        let layer = if config.sandbox { Layer::Enabled } else { Layer::Disabled };
        // The folder of a zone file rather than the file: an editor puts another file in its place.
        let zone_folders = config.zones.iter().map(|zone| match zone.file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        });
        let folders = config.sites.iter().map(|site| site.folder.clone()).chain(zone_folders);
        // Of a hundred thousand zones most lie side by side, and each folder here takes a descriptor for a while.
        let readable: BTreeSet<PathBuf> = folders.collect();
        let readable = readable.into_iter().collect();
        let wanted = sandbox::SandboxConfig {
            user: identity,
            readable_paths: readable,
            landlock: layer,
            seccomp: layer,
            ..Default::default()
        };
        Ok(Confinement { confined: sandbox::enter(&wanted)?, user })
    }

    /// Whether this process might be kept from what another one, not confined yet, could read.
    pub(super) fn keeps_from_files(&self) -> bool {
        self.user.is_some() || self.keeps_to_folders()
    }

    /// Whether this process can read in no folders but those that it had when it was confined.
    pub(super) fn keeps_to_folders(&self) -> bool {
        matches!(self.confined.landlock, Landlock::Enforced { .. })
    }
}
