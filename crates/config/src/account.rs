//! The user that processes without privileges run as.

use crate::config::Config;
use crate::diagnostic::{Diagnostic, Location, Problem, ValueLocation, error_text};
use sanderling_os::process::effective_uid;
use sanderling_os::user::User;
use std::fs;
use std::io;

/// The default user that root serves as: the user that the packages create.
pub const OWN_USER: &str = "sanderling";
/// The user that root serves as if the default user does not exist. Other services run as this user, and may signal its
/// processes and use up its limits, so it must own nothing.
const SHARED_USER: &str = "nobody";

/// The user that a process without privileges switches to: the configured user, or for root a default user.
///
/// # Errors
/// Returns an error if the user or the group does not exist, the user is root, or no user is set for root, which would
/// serve as a user shared with other services.
pub fn lookup_user(config: &Config) -> Result<Option<User>, Vec<Diagnostic>> {
    let Some(account) = &config.user_and_group else { return default_user(config) };
    let group = account.group.as_deref();
    let error = match User::lookup(&account.user, group) {
        Ok(user) => return Ok(Some(user)),
        Err(error) => error,
    };
    // Numeric IDs need not exist, so each name is looked up together with a number: a wrong user does not hide a wrong
    // group.
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

fn default_user(config: &Config) -> Result<Option<User>, Vec<Diagnostic>> {
    if effective_uid() != 0 {
        return Ok(None);
    }
    if let Some(problem) = shared_user_problem(config) {
        return Err(vec![problem]);
    }
    let found = [OWN_USER, SHARED_USER].iter().find_map(|name| User::lookup(name, None).ok());
    found.map(Some).ok_or_else(|| {
        let message = format!("refusing to serve as root: no user `{OWN_USER}` or `{SHARED_USER}`");
        let remedy = format!("create one (useradd --system {OWN_USER}), or set `user` in the configuration file");
        vec![Diagnostic::error(place(config, "serve"), Problem::new(message, remedy))]
    })
}

/// The ID of the user that the server serves as, if root starts it.
pub fn account_id(config: &Config) -> Option<u32> {
    let name = config.user_and_group.as_ref().map_or(OWN_USER, |account| account.user.as_str());
    let group = config.user_and_group.as_ref().and_then(|account| account.group.as_deref());
    Some(User::lookup(name, group).ok()?.uid)
}

/// The problem that this process is root and would serve as a user shared with other services, which must own neither
/// secrets nor a state folder. A user other than root serves as itself.
fn shared_user_problem(config: &Config) -> Option<Diagnostic> {
    shared_user_problem_of(config, User::lookup(OWN_USER, None).is_ok(), effective_uid() == 0)
}

fn shared_user_problem_of(config: &Config, has_own_user: bool, is_root: bool) -> Option<Diagnostic> {
    let owns_nothing = !config.uses_state_folder() && !config.has_secrets();
    if !is_root || config.user_and_group.is_some() || owns_nothing || has_own_user {
        return None;
    }
    let message = format!(
        "refusing to serve as `{SHARED_USER}`, which other services use too, with secrets or a state folder, and \
            there is no user `{OWN_USER}`"
    );
    let mut remedy = format!("create it (useradd --system {OWN_USER}), or set `user` to a dedicated user");
    let state = config.state_folder(None).filter(|state| fs::symlink_metadata(state).is_ok());
    if let Some(state) = state.filter(|_| config.uses_state_folder()) {
        remedy += &format!(
            ", and change the owner of the state folder to that user (chown -R {OWN_USER}: {})",
            state.display()
        );
    }
    Some(Diagnostic::error(place(config, "serve"), Problem::new(message, remedy)))
}

fn place(config: &Config, command: &str) -> Location {
    config.files.first().cloned().map_or_else(|| Location::Argument(command.to_owned()), Location::File)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConfigSource;

    const ZONE: &str = "[dns]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nzone = \"a.zone\"\n";

    fn config(text: &str) -> Config {
        let source = ConfigSource::File("sanderling.toml".into());
        source.parse(text.as_bytes()).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}"))
    }

    #[test]
    fn root_needs_a_user_of_its_own_if_there_is_something_to_own() {
        let tls = "[https]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"a.test\"]\nsite = \"src\"\n\
                   certificate = { chain = \"a.pem\", key = \"a.key\" }\n";
        let primaries =
            "[dns]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"a.test\"]\nprimaries = [{ address = \"192.0.2.1\" }]\n";
        let catalog = format!("{ZONE}[catalog.\"c.test\"]\nprimaries = [{{ address = \"192.0.2.1\" }}]\n");
        let cookies = ZONE.replace("[domain", "cookie_secret_file = \"c.secret\"\n[domain");
        let auth = "[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"a.test\"]\nsite = \"src\"\n\
                    auth = { \"/*\" = { users_file = \"users\" } }\n";
        let owning = [
            format!("state = \"state\"\n{ZONE}"),
            format!("{ZONE}dnssec = true\n"),
            format!("{ZONE}[tsig.k]\nsecret_file = \"k\"\n"),
            format!("{ZONE}secondaries = [{{ address = \"192.0.2.1\" }}]\n"),
            tls.to_owned(),
            primaries.to_owned(),
            catalog,
            cookies,
            auth.to_owned(),
        ];
        for text in owning {
            let config = config(&text);
            let problem = shared_user_problem_of(&config, false, true).unwrap_or_else(|| panic!("{text}"));
            assert!(problem.is_error() && problem.to_string().contains("useradd --system sanderling"), "{problem}");
            // The user that runs `check` may be the user that the server runs as.
            assert_eq!(shared_user_problem_of(&config, false, false), None);
            assert_eq!(shared_user_problem_of(&config, true, true), None);
        }
        for text in [ZONE.to_owned(), format!("user = \"nobody\"\nstate = \"state\"\n{ZONE}")] {
            assert_eq!(shared_user_problem_of(&config(&text), false, true), None);
        }
    }

    #[test]
    fn owner_of_a_state_folder_that_is_there_is_to_be_changed() {
        let folder = tempfile::tempdir().expect("created");
        let path = folder.path().display();
        let config = config(&format!("state = \"{path}\"\n{ZONE}"));
        let problem = shared_user_problem_of(&config, false, true).expect("it has a state folder").to_string();
        assert!(problem.contains(&format!("(chown -R sanderling: {path})")), "{problem}");
    }
}
