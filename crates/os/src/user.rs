//! Turns the name of a user into the user that this process takes up, for good.

use crate::error::with_context;
use rustix::process::{Gid, Uid, getgroups};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;

/// Octets that the entry of a user or a group may take in the system's data base. The members of a group stand in its
/// entry: some ten thousand fit.
const ENTRY_BYTES_MAX: usize = 1024 * 1024;
/// Octets that are tried first; most entries are shorter.
const ENTRY_BYTES_FIRST: usize = 4096;
/// Groups that a user may be in (`NGROUPS_MAX`, limits.h).
const GROUPS_MAX: usize = 65_536;

/// A user with groups: what the kernel asks for whenever this process wants something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The first of the groups.
    pub gid: u32,
    /// All groups of the user, sorted; the first group is among them.
    pub gids: Vec<u32>,
    /// The user's name, or its number where it has none.
    pub name: String,
}

impl User {
    /// The user of `user` with its own groups, or of `user` in `group` alone. Both are names or numbers.
    ///
    /// A number that no user has is an user as well: then a group must be told.
    ///
    /// # Errors
    /// There is no such user or group, the user is root, or the data base cannot be read.
    pub fn lookup(user: &str, group: Option<&str>) -> io::Result<User> {
        let entry = match user.parse::<u32>() {
            Ok(uid) => user_with_id(uid)?.ok_or(uid),
            Err(_) => Ok(user_named(user)?.ok_or_else(|| no_user(user))?),
        };
        let gid = group.map(find_group).transpose()?;
        let found = match (entry, gid) {
            (Ok(entry), None) => entry.with_its_groups()?,
            (Ok(entry), Some(gid)) => User { uid: entry.uid, gid, gids: vec![gid], name: entry.name },
            (Err(uid), Some(gid)) => User { uid, gid, gids: vec![gid], name: uid.to_string() },
            (Err(uid), None) => {
                return Err(wrong(format!("no user has the number {uid}: tell a group beside it, or another user")));
            }
        };
        // -1 means "leave it as it is" to the calls that take an user up (setresuid(2)).
        if found.uid == u32::MAX || found.gid == u32::MAX {
            return Err(wrong(format!("the number {} stands for no user and no group: tell another one", u32::MAX)));
        }
        if found.uid == 0 {
            return Err(wrong(format!("the user \"{user}\" is root, whom nothing confines: tell another user")));
        }
        Ok(found)
    }

    /// Is this user in these groups from now on, and proves that there is no way back.
    ///
    /// A process that is this user already keeps the groups that it was started with: it may not choose others.
    ///
    /// # Errors
    /// The process must not go on as if nothing had happened: it is not the user that it was meant to be.
    ///
    /// # Panics
    /// If another thread runs: the kernel keeps an user for each thread, and that one would keep its own.
    pub fn switch(&self) -> io::Result<()> {
        assert_eq!(thread_count()?, 1, "an user is taken up before any other thread runs");
        if !self.is_in_force() {
            self.set().map_err(|error| {
                let remedy = "start as root, as this user, or with the capabilities CAP_SETUID and CAP_SETGID";
                io::Error::new(error.kind(), format!("cannot become the user {self}: {error}; {remedy}"))
            })?;
            let groups = sorted(getgroups()?.into_iter().map(Gid::as_raw).collect());
            if !self.is_in_force() || groups != self.gids {
                return Err(io::Error::other(format!("the kernel did not make this process the user {self}")));
            }
        }
        self.prove_no_way_back()
    }

    /// The groups first, since only root may change them; the user last, since then all else is out of reach.
    fn set(&self) -> io::Result<()> {
        let groups: Vec<Gid> = self.gids.iter().map(|&id| Gid::from_raw(id)).collect();
        let (user, group) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&groups).map_err(|errno| with_context("setgroups", self.group_list(), &errno.into()))?;
        set_thread_res_gid(group, group, group).map_err(|errno| with_context("setresgid", self.gid, &errno.into()))?;
        set_thread_res_uid(user, user, user).map_err(|errno| with_context("setresuid", self.uid, &errno.into()))
    }

    /// Whether the real, the effective and the saved user and group are all this one's.
    fn is_in_force(&self) -> bool {
        let (mut users, mut groups) = ([0; 3], [0; 3]);
        let [real, effective, saved] = &mut users;
        // SAFETY: each pointer is that of an integer of this frame, which the call fills in.
        let users_told = unsafe { libc::getresuid(real, effective, saved) };
        let [real, effective, saved] = &mut groups;
        // SAFETY: as above.
        let groups_told = unsafe { libc::getresgid(real, effective, saved) };
        users_told == 0 && groups_told == 0 && users == [self.uid; 3] && groups == [self.gid; 3]
    }

    fn group_list(&self) -> String {
        self.gids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
    }

    fn prove_no_way_back(&self) -> io::Result<()> {
        if set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err() {
            return Ok(());
        }
        // It is root again, and must not go on: whoever forgets to look at this error gets no service.
        Err(io::Error::other(format!(
            "the user {self} may become root: start without the capability CAP_SETUID, or as root without securebits"
        )))
    }
}

/// `www-data (33), groups 33 44`.
impl fmt::Display for User {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({}), groups {}", self.name, self.uid, self.group_list())
    }
}

/// The threads of this process.
fn thread_count() -> io::Result<usize> {
    let threads =
        std::fs::read_dir("/proc/self/task").map_err(|error| with_context("opendir", "/proc/self/task", &error))?;
    Ok(threads.count())
}

/// What the data base tells of a user.
#[derive(Debug)]
struct UserEntry {
    uid: u32,
    gid: u32,
    name: String,
}

impl UserEntry {
    fn with_its_groups(self) -> io::Result<User> {
        let name = CString::new(self.name.as_str()).map_err(|_| no_user(&self.name))?;
        let mut gids = vec![0; 64];
        loop {
            let mut count = gids.len() as libc::c_int;
            // SAFETY: `name` ends with a NUL, and `count` tells the room that the list has.
            let told = unsafe { libc::getgrouplist(name.as_ptr(), self.gid, gids.as_mut_ptr(), &raw mut count) };
            let count = usize::try_from(count).unwrap_or(0);
            if told >= 0 {
                gids.truncate(count);
                break;
            }
            if count <= gids.len() || count > GROUPS_MAX {
                return Err(io::Error::other(format!("the groups of the user \"{}\" cannot be told", self.name)));
            }
            gids.resize(count, 0);
        }
        let gids = sorted(gids);
        Ok(User { uid: self.uid, gid: self.gid, gids, name: self.name })
    }
}

fn user_named(name: &str) -> io::Result<Option<UserEntry>> {
    let name = CString::new(name).map_err(|_| no_user(name))?;
    // SAFETY: `name` ends with a NUL; `ask` says what it guarantees of the others.
    ask(
        "getpwnam_r",
        |entry, room, length, found| unsafe { libc::getpwnam_r(name.as_ptr(), entry, room, length, found) },
        user_of,
    )
}

fn user_with_id(id: u32) -> io::Result<Option<UserEntry>> {
    // SAFETY: `ask` says what it guarantees of the pointers.
    ask("getpwuid_r", |entry, room, length, found| unsafe { libc::getpwuid_r(id, entry, room, length, found) }, user_of)
}

fn user_of(entry: &libc::passwd) -> UserEntry {
    // SAFETY: the name of an entry that was found ends with a NUL, and stands in room that outlives this call.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    UserEntry { uid: entry.pw_uid, gid: entry.pw_gid, name: name.to_string_lossy().into_owned() }
}

fn find_group(group: &str) -> io::Result<u32> {
    if let Ok(id) = group.parse() {
        return Ok(id);
    }
    let no_group =
        || wrong(format!("there is no group \"{group}\": make it (groupadd --system {group}), or tell another"));
    let name = CString::new(group).map_err(|_| no_group())?;
    // SAFETY: `name` ends with a NUL; `ask` says what it guarantees of the others.
    let found = ask(
        "getgrnam_r",
        |entry, room, length, found| unsafe { libc::getgrnam_r(name.as_ptr(), entry, room, length, found) },
        |entry: &libc::group| entry.gr_gid,
    )?;
    found.ok_or_else(no_group)
}

/// Asks the data base for one entry by `call`, with more room until it fits. `call` gets pointers to an entry, to room
/// of the length that it is told, and to the place of the answer; all live until it returns, and so does what `read`
/// is shown.
fn ask<Entry, Answer>(
    name: &str,
    call: impl Fn(*mut Entry, *mut libc::c_char, usize, *mut *mut Entry) -> libc::c_int,
    read: impl Fn(&Entry) -> Answer,
) -> io::Result<Option<Answer>> {
    let mut room: Vec<libc::c_char> = vec![0; ENTRY_BYTES_FIRST];
    loop {
        let mut entry = std::mem::MaybeUninit::<Entry>::uninit();
        let mut found = std::ptr::null_mut();
        match call(entry.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut found) {
            // SAFETY: not null means that the call has filled in `entry`, to which it points.
            0 => return Ok(unsafe { found.as_ref() }.map(&read)),
            libc::ERANGE if room.len() < ENTRY_BYTES_MAX => room.resize(room.len() * 2, 0),
            libc::EINTR => {}
            // getpwnam(3): each of these was met for an entry that is not there.
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            errno => {
                let error = io::Error::from_raw_os_error(errno);
                return Err(io::Error::new(error.kind(), format!("{name} failed: {error}")));
            }
        }
    }
}

fn sorted(mut gids: Vec<u32>) -> Vec<u32> {
    gids.sort_unstable();
    gids.dedup();
    gids
}

fn no_user(user: &str) -> io::Error {
    wrong(format!("there is no user \"{user}\": make it (useradd --system {user}), or tell another one"))
}

fn wrong(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_name_and_by_its_number() {
        let nobody = User::lookup("nobody", None).expect("every system has it");
        assert_eq!(nobody.name, "nobody");
        assert_ne!(nobody.uid, 0);
        assert!(nobody.gids.contains(&nobody.gid), "{nobody:?}");
        assert_eq!(User::lookup(&nobody.uid.to_string(), None).expect("found"), nobody);
    }

    #[test]
    fn a_group_that_is_told_is_the_only_one() {
        let nobody = User::lookup("nobody", Some("54321")).expect("found");
        assert_eq!((nobody.gid, nobody.gids.as_slice()), (54_321, [54_321].as_slice()));
        let stranger = User::lookup("54321", Some("54322")).expect("a number needs no name");
        assert_eq!(stranger.to_string(), "54321 (54321), groups 54322");
    }

    #[test]
    fn what_cannot_be_an_identity_says_what_to_do() {
        let check = |user: &str, group: Option<&str>, expected: &str| {
            let error = User::lookup(user, group).expect_err(user);
            assert_eq!(error.to_string(), expected);
        };
        check(
            "no-such-user",
            None,
            "there is no user \"no-such-user\": make it (useradd --system no-such-user), or tell another one",
        );
        check(
            "nobody",
            Some("no-such-group"),
            "there is no group \"no-such-group\": make it (groupadd --system no-such-group), or tell another",
        );
        check("54321", None, "no user has the number 54321: tell a group beside it, or another user");
        check("4294967295", Some("1"), "the number 4294967295 stands for no user and no group: tell another one");
        check("root", None, "the user \"root\" is root, whom nothing confines: tell another user");
        check("0", Some("1"), "the user \"0\" is root, whom nothing confines: tell another user");
        check("a\0b", None, "there is no user \"a\0b\": make it (useradd --system a\0b), or tell another one");
    }

    #[test]
    fn a_process_with_threads_takes_up_no_identity() {
        // The harness itself runs each test in a thread of its own.
        let nobody = User::lookup("nobody", None).expect("found");
        let refused = std::panic::catch_unwind(|| nobody.switch());
        assert!(refused.is_err(), "{refused:?}");
    }
}
