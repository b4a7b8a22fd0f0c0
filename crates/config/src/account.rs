//! The user that processes without privileges run as.

use crate::config::Config;
use crate::diagnostic::{Diagnostic, Location, Problem, ValueLocation, error_text};
use sanderling_os::process::effective_uid;
use sanderling_os::user::User;
use std::io;

/// The users that root serves as if the configuration has none: the one of the packages, or the one that owns nothing.
const DEFAULT_USERS: [&str; 2] = ["sanderling", "nobody"];

/// The user that a process without privileges switches to: that of the configuration, else a default one for root.
///
/// # Errors
/// The user or the group does not exist, or the user is root.
pub fn lookup_user(config: &Config) -> Result<Option<User>, Vec<Diagnostic>> {
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
    let diagnostic = |(location, error): (&ValueLocation, io::Error)| {
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
