//! Files of users with the hashes of their passwords, as `htpasswd -B` writes them.

use argon2::{Argon2, PasswordHash, PasswordVerifier};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Users of one file.
const USERS_MAX: usize = 10_000;
/// Work factor of bcrypt: a verification with it takes about two seconds.
const BCRYPT_COST_MAX: u32 = 15;
/// Memory of one verification by Argon2, in KiB, and its passes.
const ARGON2_MEMORY_KIB_MAX: u32 = 256 * 1024;
const ARGON2_PASSES_MAX: u32 = 16;

/// The users of a file.
#[derive(Debug)]
pub struct Users {
    /// Distinguishes cached results from those of other files, and of earlier versions of this one.
    pub(crate) id: u64,
    /// Its path, which later versions have too.
    pub(crate) file: PathBuf,
    by_name: HashMap<Vec<u8>, Hash>,
    /// The hash that is checked for an unknown name, so that the time reveals nothing.
    decoy: Option<Hash>,
}

#[derive(Clone, Debug)]
enum Hash {
    Bcrypt(String),
    Argon2(String),
}

/// A skipped line: its number from 1, the problem and the remedy.
pub type UsersProblem = (u32, String, String);

const REMEDY: &str = "write NAME:HASH with a hash of bcrypt (htpasswd -B) or Argon2 (argon2 -e)";

impl Users {
    /// Parses the content of `file`; also its wrong lines.
    pub fn parse(file: &Path, content: &[u8]) -> (Users, Vec<UsersProblem>) {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let (mut by_name, mut problems, mut decoy) = (HashMap::new(), Vec::new(), None);
        for (index, line) in content.split(|&byte| byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
            let parsed = match parse_line(line) {
                Ok((name, _)) if by_name.contains_key(name) => {
                    Err(("the name is in the file twice".to_owned(), "remove one of the two lines"))
                }
                Ok(_) if by_name.len() == USERS_MAX => {
                    Err((format!("the file has more than {USERS_MAX} users"), "remove some"))
                }
                parsed => parsed.map_err(|message| (message, REMEDY)),
            };
            let parsed = parsed.map_err(|(message, remedy)| match fast_hash(line) {
                Some((name, kind)) => {
                    let message =
                        format!("the hash of {name} is {kind}: an attacker can try billions of passwords a second");
                    let file = file.display();
                    (message, format!("run htpasswd -B {file} {name}, which asks for the password, for one of bcrypt"))
                }
                None => (message, remedy.to_owned()),
            });
            match parsed {
                Ok((name, hash)) => {
                    decoy.get_or_insert_with(|| hash.clone());
                    by_name.insert(name.to_vec(), hash);
                }
                Err((message, remedy)) => problems.push((number, message, remedy)),
            }
        }
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        (Users { id, file: file.to_owned(), by_name, decoy }, problems)
    }

    /// The number of users.
    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Whether the user has this password. Takes long.
    pub(crate) fn verify(&self, name: &[u8], password: &[u8]) -> bool {
        let found = self.by_name.get(name);
        let Some(hash) = found.or(self.decoy.as_ref()) else { return false };
        let is_right = match hash {
            Hash::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Hash::Argon2(hash) => {
                PasswordHash::new(hash).is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok())
            }
        };
        is_right && found.is_some()
    }
}

/// The user of a line whose hash is of a kind that other servers accept, and the name of the kind.
fn fast_hash(line: &[u8]) -> Option<(&str, &'static str)> {
    const KINDS: [(&str, &str); 7] = [
        ("$apr1$", "MD5 of Apache"),
        ("$1$", "MD5"),
        ("{SHA}", "SHA-1"),
        ("{SSHA}", "salted SHA-1"),
        ("{PLAIN}", "the password itself"),
        ("$5$", "SHA-256"),
        ("$6$", "SHA-512"),
    ];
    let (name, hash) = str::from_utf8(line).ok()?.split_once(':')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    let is_name = !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain);
    let kind = KINDS.iter().find(|(start, _)| hash.starts_with(start)).filter(|_| is_name)?;
    Some((name, kind.1))
}

fn parse_line(line: &[u8]) -> Result<(&[u8], Hash), String> {
    let at = memchr::memchr(b':', line).ok_or("the line has no colon")?;
    let (name, hash) = (&line[..at], &line[at + 1..]);
    let hash = str::from_utf8(hash).map_err(|_| "the hash is not text")?;
    if name.is_empty() {
        return Err("the name is empty".to_owned());
    }
    if ["$2y$", "$2a$", "$2b$"].iter().any(|prefix| hash.starts_with(prefix)) {
        let cost: u32 = hash.get(4..6).and_then(|cost| cost.parse().ok()).ok_or("the hash of bcrypt is malformed")?;
        let is_valid = bcrypt::verify(b"", &hash.replacen(&format!("${cost:02}$"), "$04$", 1)).is_ok();
        return match cost {
            _ if !is_valid => Err("the hash of bcrypt is malformed".to_owned()),
            4..=BCRYPT_COST_MAX => Ok((name, Hash::Bcrypt(hash.to_owned()))),
            _ => Err(format!("the work factor {cost} of bcrypt is above {BCRYPT_COST_MAX}")),
        };
    }
    if hash.starts_with("$argon2") {
        let parsed = PasswordHash::new(hash).map_err(|_| "the hash of Argon2 is malformed")?;
        let params = argon2::Params::try_from(&parsed).map_err(|_| "the hash of Argon2 is malformed")?;
        if params.m_cost() > ARGON2_MEMORY_KIB_MAX || params.t_cost() > ARGON2_PASSES_MAX {
            return Err(format!("the hash needs more than {ARGON2_MEMORY_KIB_MAX} KiB or {ARGON2_PASSES_MAX} passes"));
        }
        return Ok((name, Hash::Argon2(hash.to_owned())));
    }
    Err("the hash is of an unknown or unsafe kind".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BCRYPT: &str = "$2b$04$wHXSLdq.PF5zVzyhX889aOS/BLazC9otFK3ssZ83cFcmG0yNV1ERW";
    const ARGON2: &str = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

    #[test]
    fn password_of_a_user_is_right_and_any_other_is_wrong() {
        let (users, problems) =
            Users::parse(Path::new("users"), format!("ann:{BCRYPT}\r\n\n bob:{ARGON2} \n").as_bytes());
        assert!(problems.is_empty(), "{problems:?}");
        for (name, password, expected) in [
            ("ann", "secret", true),
            ("bob", "password", true),
            ("ann", "password", false),
            ("bob", "secret", false),
            ("ann", "", false),
            ("eve", "secret", false),
            ("", "secret", false),
            ("Ann", "secret", false),
        ] {
            assert_eq!(users.verify(name.as_bytes(), password.as_bytes()), expected, "{name} {password}");
        }
        assert!(!Users::parse(Path::new("users"), b"").0.verify(b"ann", b"secret"));
    }

    #[test]
    fn wrong_line_is_reported() {
        let expensive = ARGON2.replace("m=256", "m=1048576");
        for (line, part) in [
            ("ann".to_owned(), "no colon"),
            (format!(":{BCRYPT}"), "empty"),
            ("ann:secret".to_owned(), "unknown"),
            ("ann:$2y$04$short".to_owned(), "malformed"),
            ("ann:$2y$xx$short".to_owned(), "malformed"),
            (format!("ann:{}", BCRYPT.replace("$04$", "$16$")), "above 15"),
            ("ann:$argon2id$x".to_owned(), "malformed"),
            (format!("ann:{expensive}"), "needs more"),
            (format!("bob:{BCRYPT}"), "twice"),
        ] {
            let (users, problems) = Users::parse(Path::new("users"), format!("bob:{BCRYPT}\n{line}\n").as_bytes());
            assert_eq!((users.count(), problems.len()), (1, 1), "{line}");
            assert!(problems[0].0 == 2 && problems[0].1.contains(part), "{line}: {problems:?}");
            let is_twice = part == "twice";
            assert_eq!(problems[0].2 == REMEDY, !is_twice, "{line}: {problems:?}");
        }
    }

    #[test]
    fn hash_of_another_server_is_refused_with_the_command_that_replaces_it() {
        for (hash, kind) in [("$apr1$a$b", "MD5 of Apache"), ("{SHA}abc=", "SHA-1"), ("$6$a$b", "SHA-512")] {
            let (users, problems) = Users::parse(Path::new("/etc/users"), format!("ann:{hash}\n").as_bytes());
            let message = format!("the hash of ann is {kind}: an attacker can try billions of passwords a second");
            let remedy = "run htpasswd -B /etc/users ann, which asks for the password, for one of bcrypt".to_owned();
            assert_eq!((users.count(), problems), (0, vec![(1, message, remedy)]));
        }
        // A name that is no word would make another command.
        let (_, problems) = Users::parse(Path::new("users"), b"a;b:$apr1$a$b\n");
        assert_eq!(problems[0].2, REMEDY);
    }
}
