//! The user and groups that this process runs as: looked up by name or ID, then switched to for good.

use crate::accounts;
use crate::error::with_context;
use nix::unistd::{self, Gid, Uid};
use std::fmt;
use std::io;
use std::sync::OnceLock;

/// Kept, since the sandbox does not allow a look-up.
static SWITCHED_NAME: OnceLock<String> = OnceLock::new();

/// A user ID with group IDs (credentials(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user ID.
    pub uid: u32,
    /// The primary group ID.
    pub gid: u32,
    /// All group IDs, sorted; the primary one is among them.
    pub gids: Vec<u32>,
    /// The user's name, or its ID if it has no name.
    pub name: String,
}

impl User {
    /// Looks up `user` with all its groups, or with `group` alone. Both arguments are names or IDs.
    ///
    /// An ID without an entry in the user database is valid together with a group.
    ///
    /// # Errors
    /// Returns an error if the user or group does not exist, the user is root, or the database cannot be read.
    pub fn lookup(user: &str, group: Option<&str>) -> io::Result<User> {
        let uid = user.parse().ok();
        let entry = match uid {
            Some(uid) => accounts::by_uid(uid)?,
            None => accounts::by_name(user)?,
        };
        let gid = group.map(group_id).transpose()?;
        let (uid, name) = match (&entry, uid) {
            (Some(entry), _) => (entry.uid, entry.name.clone()),
            (None, Some(uid)) => (uid, uid.to_string()),
            (None, None) => {
                let create = if is_account_name(user) {
                    format!("create it (useradd --system {user}) or ")
                } else {
                    String::new()
                };
                return Err(invalid(format!("unknown user {user:?}; {create}specify another user")));
            }
        };
        let (gid, gids) = match (gid, entry) {
            (Some(gid), _) => (gid, vec![gid]),
            (None, Some(entry)) => (entry.gid, accounts::group_ids_of(&entry)?),
            (None, None) => {
                let remedy = "add group = \"NAME\", or specify another user";
                return Err(invalid(format!("no user has the ID {uid}; {remedy}")));
            }
        };
        // setresuid(2) and setresgid(2) take -1 for "no change".
        if uid == u32::MAX || gid == u32::MAX {
            return Err(invalid(format!("{} is not a valid user or group ID; set another one", u32::MAX)));
        }
        if uid == 0 {
            return Err(invalid("`user` must not be root; specify another user".to_owned()));
        }
        Ok(User { uid, gid, gids, name })
    }

    /// Switches this process to the user and its groups, and proves that it cannot become root again.
    ///
    /// A process that runs as this user already keeps its supplementary groups, which it may not change.
    ///
    /// # Errors
    /// Returns an error after which the process must exit, since it may run as another user.
    ///
    /// # Panics
    /// Panics if another thread runs.
    pub fn switch(&self) -> io::Result<()> {
        assert_eq!(thread_count()?, 1, "the user is switched before any other thread runs");
        if !self.is_current()? {
            self.set_ids().map_err(|error| {
                let remedy = "start as root, as this user, or with the capabilities CAP_SETUID and CAP_SETGID";
                io::Error::new(error.kind(), format!("cannot switch to user {self}: {error}; {remedy}"))
            })?;
            let groups = sorted(unistd::getgroups()?);
            if !self.is_current()? || groups != self.gids {
                return Err(io::Error::other(format!("the kernel did not switch this process to user {self}")));
            }
        }
        let _ = SWITCHED_NAME.set(self.name.clone());
        let root = Uid::from_raw(0);
        if unistd::setresuid(root, root, root).is_err() {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "user {self} can become root; start without the capability CAP_SETUID, or as root without securebits"
        )))
    }

    /// Makes `call` with the rights of this user to files, and with no others (setfsuid(2)), on a thread of root:
    /// which file a path leads to, and whether it may be used, is decided as for a process of this user. The thread can
    /// be neither signalled nor read by the user meanwhile. The kernel makes no core dumps of the process from then on
    /// (`PR_SET_DUMPABLE`, prctl(2)).
    ///
    /// # Errors
    /// The thread may not change its groups; the call was not made.
    ///
    /// # Panics
    /// The kernel does not give the thread its own rights back.
    pub fn with_file_rights<T>(&self, call: impl FnOnce() -> T) -> io::Result<T> {
        let own_groups = rustix::process::getgroups()?;
        let groups: Vec<rustix::process::Gid> = self.gids.iter().copied().map(rustix::process::Gid::from_raw).collect();
        rustix::thread::set_thread_groups(&groups)?;
        let own = (unistd::geteuid(), unistd::getegid());
        // These calls have no error: each returns the previous ID.
        unistd::setfsgid(Gid::from_raw(self.gid));
        unistd::setfsuid(Uid::from_raw(self.uid));
        let has_rights = unistd::setfsuid(Uid::from_raw(u32::MAX)).as_raw() == self.uid;
        let result = has_rights.then(call);
        unistd::setfsuid(own.0);
        unistd::setfsgid(own.1);
        rustix::thread::set_thread_groups(&own_groups).expect("they were set before");
        assert_eq!(unistd::setfsuid(Uid::from_raw(u32::MAX)), own.0, "the rights of this thread are as before");
        result.ok_or_else(|| io::Error::from(io::ErrorKind::PermissionDenied))
    }

    /// Groups first, since only root may change them; the user ID last.
    fn set_ids(&self) -> io::Result<()> {
        let groups: Vec<Gid> = self.gids.iter().map(|&gid| Gid::from_raw(gid)).collect();
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        unistd::setgroups(&groups).map_err(|errno| with_context("setgroups", self.group_list(), &errno.into()))?;
        unistd::setresgid(gid, gid, gid).map_err(|errno| with_context("setresgid", gid, &errno.into()))?;
        unistd::setresuid(uid, uid, uid).map_err(|errno| with_context("setresuid", uid, &errno.into()))
    }

    /// Whether the real, effective and saved user and group IDs all belong to this user.
    fn is_current(&self) -> io::Result<bool> {
        let (user, group) = (unistd::getresuid()?, unistd::getresgid()?);
        let is_user = [user.real, user.effective, user.saved] == [Uid::from_raw(self.uid); 3];
        Ok(is_user && [group.real, group.effective, group.saved] == [Gid::from_raw(self.gid); 3])
    }

    fn group_list(&self) -> String {
        self.gids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
    }
}

/// The name of the user with the ID `uid`, or the ID if it has no name.
pub fn name_of(uid: u32) -> String {
    let entry = accounts::by_uid(uid).ok().flatten();
    entry.map_or_else(|| uid.to_string(), |entry| entry.name)
}

/// The name of the group that this process runs as, or its ID if it has no name.
pub fn own_group() -> String {
    let gid = unistd::getegid().as_raw();
    accounts::group_name(gid).ok().flatten().unwrap_or_else(|| gid.to_string())
}

/// `www-data (33), groups 33 44`.
impl fmt::Display for User {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({}), groups {}", self.name, self.uid, self.group_list())
    }
}

pub(crate) fn thread_count() -> io::Result<usize> {
    const PATH: &str = "/proc/self/task";
    let tasks = std::fs::read_dir(PATH).map_err(|error| with_context("opendir", PATH, &error))?;
    tasks.map(|task| task.map_or_else(|error| Err(with_context("getdents64", PATH, &error)), |_| Ok(1))).sum()
}

fn group_id(group: &str) -> io::Result<u32> {
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    accounts::group_id(group)?.ok_or_else(|| {
        let create =
            if is_account_name(group) { format!("create it (groupadd --system {group}) or ") } else { String::new() };
        invalid(format!("unknown group {group:?}; {create}specify another group"))
    })
}

/// The name of the user that this process has switched to ([`User::switch`]).
pub fn switched_name() -> Option<&'static str> {
    SWITCHED_NAME.get().map(String::as_str)
}

/// Whether `useradd` accepts the name (useradd(8)).
fn is_account_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    name.len() <= 32
        && name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.bytes().all(is_allowed)
}

fn sorted(groups: Vec<Gid>) -> Vec<u32> {
    let mut gids: Vec<u32> = groups.into_iter().map(Gid::as_raw).collect();
    gids.sort_unstable();
    gids.dedup();
    gids
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_found_by_name_and_by_id() {
        let nobody = User::lookup("nobody", None).expect("every system has it");
        assert_eq!(nobody.name, "nobody");
        assert_ne!(nobody.uid, 0);
        assert!(nobody.gids.contains(&nobody.gid), "{nobody:?}");
        assert_eq!(User::lookup(&nobody.uid.to_string(), None).expect("found"), nobody);
    }

    #[test]
    fn configured_group_replaces_all_groups_of_the_user() {
        let nobody = User::lookup("nobody", Some("54321")).expect("found");
        assert_eq!((nobody.gid, nobody.gids.as_slice()), (54_321, [54_321].as_slice()));
        let unnamed = User::lookup("54321", Some("54322")).expect("an ID needs no name");
        assert_eq!(unnamed.to_string(), "54321 (54321), groups 54322");
    }

    #[test]
    fn invalid_user_or_group_is_an_error_with_a_remedy() {
        let check = |user: &str, group: Option<&str>, expected: &str| {
            let error = User::lookup(user, group).expect_err(user);
            assert_eq!(error.to_string(), expected);
        };
        check(
            "no-such-user",
            None,
            "unknown user \"no-such-user\"; create it (useradd --system no-such-user) or specify another user",
        );
        check(
            "nobody",
            Some("no-such-group"),
            "unknown group \"no-such-group\"; create it (groupadd --system no-such-group) or specify another group",
        );
        check("54321", None, "no user has the ID 54321; add group = \"NAME\", or specify another user");
        check("4294967295", Some("1"), "4294967295 is not a valid user or group ID; set another one");
        check("root", None, "`user` must not be root; specify another user");
        check("0", Some("1"), "`user` must not be root; specify another user");
        check("a\0b", None, "unknown user \"a\\0b\"; specify another user");
    }

    #[test]
    #[should_panic(expected = "before any other thread runs")]
    fn process_with_several_threads_cannot_switch_the_user() {
        // The test harness runs each test in its own thread.
        let _ = User::lookup("nobody", None).expect("found").switch();
    }
}
