//! The accounts of this machine, read from `/etc/passwd` and `/etc/group` (passwd(5), group(5)).
//!
//! The C library would load modules for this at run time (nsswitch.conf(5)), which a static program cannot do. Accounts
//! that only such a module knows, for example those of LDAP, are not found.

use crate::error::with_context;
use std::io;

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// A line of `/etc/passwd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    /// The primary group.
    pub(crate) gid: u32,
}

/// A line of `/etc/group`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

/// The account of the user `name`.
///
/// # Errors
/// The file cannot be read. One that does not exist has no accounts.
pub(crate) fn by_name(name: &str) -> io::Result<Option<Account>> {
    Ok(accounts(&read(USERS)?).find(|account| account.name == name))
}

/// The first account with the user ID `uid`.
///
/// # Errors
/// As for [`by_name`].
pub(crate) fn by_uid(uid: u32) -> io::Result<Option<Account>> {
    Ok(accounts(&read(USERS)?).find(|account| account.uid == uid))
}

/// The ID of the group `name`.
///
/// # Errors
/// As for [`by_name`].
pub(crate) fn group_id(name: &str) -> io::Result<Option<u32>> {
    Ok(groups(&read(GROUPS)?).find(|group| group.name == name).map(|group| group.gid))
}

/// The name of the first group with the ID `gid`.
///
/// # Errors
/// As for [`by_name`].
pub(crate) fn group_name(gid: u32) -> io::Result<Option<String>> {
    Ok(groups(&read(GROUPS)?).find(|group| group.gid == gid).map(|group| group.name))
}

/// The IDs of the groups of which `account` is a member, its primary one included: sorted, each once.
///
/// # Errors
/// As for [`by_name`].
pub(crate) fn group_ids_of(account: &Account) -> io::Result<Vec<u32>> {
    Ok(group_ids_in(&read(GROUPS)?, account))
}

fn group_ids_in(text: &str, account: &Account) -> Vec<u32> {
    let is_member = |group: &Group| group.members.contains(&account.name);
    let mut gids: Vec<u32> = groups(text).filter(is_member).map(|group| group.gid).chain([account.gid]).collect();
    gids.sort_unstable();
    gids.dedup();
    gids
}

fn read(path: &str) -> io::Result<String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(with_context("openat", path, &error)),
    }
}

/// `name:password:UID:GID:comment:home:shell`. The C library skips malformed lines too.
fn accounts(text: &str) -> impl Iterator<Item = Account> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let mut numbers = fields.skip(1).map(str::parse);
        Some(Account { name, uid: numbers.next()?.ok()?, gid: numbers.next()?.ok()? })
    })
}

/// `name:password:GID:member,member`.
fn groups(text: &str) -> impl Iterator<Item = Group> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let gid = fields.nth(1)?.parse().ok()?;
        Some(Group { name, gid, members: fields.next()?.split(',').map(str::to_owned).collect() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_forms_are_skipped() {
        let text = "root:x:0:0:root:/root:/bin/sh\n+@admins\n\n#a:x:1:1\nbad:x:one:1::/:\nshort:x:5\n\
                    big:x:4294967296:1::/:\nwww:x:33:44:::\n";
        let found: Vec<_> = accounts(text).map(|account| (account.name, account.uid, account.gid)).collect();
        let expected = [("root", 0, 0), ("#a", 1, 1), ("www", 33, 44)];
        assert_eq!(found, expected.map(|(name, uid, gid)| (name.to_owned(), uid, gid)));
    }

    #[test]
    fn groups_are_the_primary_one_and_those_with_the_user_as_a_member() {
        let text = "www:x:44:\nlogs:x:9:alice,www\nother:x:8:wwww\nbad:x:x:www\nagain:x:9:www\nssl:*:7:www\n+\n";
        let account = Account { name: "www".to_owned(), uid: 33, gid: 44 };
        assert_eq!(group_ids_in(text, &account), [7, 9, 44]);
        assert_eq!(group_ids_in("", &account), [44]);
    }

    /// The accounts that every system has, as the C library knows them (id(1)).
    #[test]
    fn accounts_of_this_machine_are_those_of_the_c_library() {
        for name in ["root", "daemon", "nobody"] {
            let account = by_name(name).expect("readable").expect("every system has it");
            let output = std::process::Command::new("id").args(["-G", name]).output().expect("id runs");
            let text = String::from_utf8(output.stdout).expect("numbers");
            let mut expected: Vec<u32> = text.split_whitespace().map(|gid| gid.parse().expect("a number")).collect();
            expected.sort_unstable();
            assert_eq!(group_ids_of(&account).expect("readable"), expected, "{name}");
            assert_eq!(by_uid(account.uid).expect("readable"), Some(account));
        }
        assert_eq!(by_name("no-such-user").expect("readable"), None);
        assert_eq!(group_id("root").expect("readable"), Some(0));
        assert_eq!(group_id("no-such-group").expect("readable"), None);
    }
}
