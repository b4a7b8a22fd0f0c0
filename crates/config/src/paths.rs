//! Checks that the paths of the configuration lead to a directory and to regular files.

use crate::diagnostic::{Problem, error_text};
use crate::operator_text::without_byte_order_mark;
use sanderling_os::error::with_second_try;
use sanderling_os::process::effective_uid;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use zeroize::Zeroizing;

/// The longest path of a Unix socket (unix(7)): 108 bytes with the NUL at its end.
pub(super) const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Whether `path` is a directory; problems call it `what`.
pub(super) fn check_directory(what: &str, path: &Path) -> Result<(), Problem> {
    let shown = path.display();
    match with_second_try(|| fs::metadata(path)) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => {
            Err(Problem::new(format!("the {what} `{shown}` is not a directory"), "specify a directory, not a file"))
        }
        Err(error) => Err(unreachable(what, path, &error)),
    }
}

/// Bytes of the largest file with certificates, a key or secrets.
const SECRET_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the `kind` of file in this `form` at `path`. No copy of a key is made while it is read.
pub(super) fn read_secret_file(kind: &str, form: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let shown = path.display();
    // Opened without blocking, because the path may be a FIFO.
    let file = sanderling_os::file::open_nonblocking(path).map_err(|error| unreadable(kind, path, &error))?;
    let metadata = file.metadata().map_err(|error| unreachable(kind, path, &error))?;
    let file_type = metadata.file_type();
    let reason = match metadata.len() {
        _ if file_type.is_dir() => Some("is a directory".to_owned()),
        _ if file_type.is_fifo() => Some("is a FIFO".to_owned()),
        _ if !file_type.is_file() => Some("is a device".to_owned()),
        bytes if bytes > SECRET_FILE_BYTES_MAX => {
            Some(format!("has {bytes} bytes; at most {SECRET_FILE_BYTES_MAX} are read"))
        }
        _ => None,
    };
    if let Some(reason) = reason {
        return Err(Problem::new(format!("the {kind} `{shown}` {reason}"), format!("specify a regular {form} file")));
    }
    let mut content = Zeroizing::new(Vec::with_capacity(metadata.len() as usize + 1));
    file.take(SECRET_FILE_BYTES_MAX).read_to_end(&mut content).map_err(|error| unreachable(kind, path, &error))?;
    // Decoded in place, so that there is only one copy of a secret.
    let mark_bytes = content.len() - without_byte_order_mark(&content).len();
    content.drain(..mark_bytes);
    Ok(content)
}

/// Bytes of a secret of cookies (RFC 9018 §4.4).
pub const COOKIE_SECRET_BYTES: usize = 16;
/// A secret of cookies.
pub type CookieSecret = Zeroizing<[u8; COOKIE_SECRET_BYTES]>;

/// Reads a file with one or two secrets of cookies, each as hexadecimal digits on a line.
pub(super) fn read_cookie_secrets(path: &Path) -> Result<(CookieSecret, Option<CookieSecret>), Problem> {
    let content = read_secret_file("cookie secret file", "text", path)?;
    let problem = |reason: &str| {
        let remedy = "write one or two lines of 32 hexadecimal digits, as printed by `openssl rand -hex 16`";
        Problem::new(format!("the cookie secret file `{}` {reason}", path.display()), remedy)
    };
    let mut secrets =
        content.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).map(|line| {
            let mut secret = CookieSecret::default();
            let (digits, rest) = line.as_chunks::<2>();
            if digits.len() != secret.len() || !rest.is_empty() {
                return Err(problem("has a line of the wrong length"));
            }
            for (byte, digits) in secret.iter_mut().zip(digits) {
                let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
                let (Some(high), Some(low)) = (high, low) else {
                    return Err(problem("has a character that is not a hexadecimal digit"));
                };
                *byte = (high << 4 | low) as u8;
            }
            Ok(secret)
        });
    let first = secrets.next().unwrap_or_else(|| Err(problem("is empty")))?;
    let second = secrets.next().transpose()?;
    if secrets.next().is_some() { Err(problem("has more than two secrets")) } else { Ok((first, second)) }
}

/// Whether other users than the owner and the group can read the `kind` of file at `path`. A parent directory that
/// other users cannot enter protects the file.
pub(super) fn check_key_mode(kind: &str, path: &Path) -> Result<(), Problem> {
    const READ: u32 = 0o004;
    const ENTER: u32 = 0o001;
    let has = |path: &Path, bit| fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & bit != 0);
    // The directories of the file that a symbolic link leads to.
    let Ok(file) = fs::canonicalize(path) else { return Ok(()) };
    if !has(&file, READ) || !file.ancestors().skip(1).all(|directory| has(directory, ENTER)) {
        return Ok(());
    }
    let shown = path.display();
    Err(Problem::new(format!("all users can read the {kind} `{shown}`"), format!("run chmod o-r {shown}")))
}

/// Whether there is a program at `path`.
pub(super) fn check_program(path: &Path) -> Result<(), Problem> {
    let shown = path.display();
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 => Ok(()),
        Ok(_) => Err(Problem::new(format!("`{shown}` is not a program"), "specify an executable file")),
        Err(error) => Err(unreachable("program", path, &error)),
    }
}

/// Whether a file has a certificate, as PEM.
pub(super) fn has_certificate(content: &[u8]) -> bool {
    const MARK: &[u8] = b"-----BEGIN CERTIFICATE-----";
    content.windows(MARK.len()).any(|window| window == MARK)
}

/// Whether a file has a private key, as PEM, DER or PKCS#12.
pub(super) fn has_private_key(content: &[u8]) -> bool {
    const MARK: &[u8] = b"PRIVATE KEY-----";
    // An INTEGER, the version, is first in a key, and not in a certificate.
    let is_der = match content {
        [0x30, 0x82, _, _, first, ..] | [0x30, 0x81, _, first, ..] | [0x30, _, first, ..] => *first == 0x02,
        _ => false,
    };
    is_der || content.windows(MARK.len()).any(|window| window == MARK)
}

/// Whether `file` is a regular file: reading a pipe or a device could block forever.
pub(super) fn check_zone_file(file: &Path) -> Result<(), Problem> {
    let shown = file.display();
    match with_second_try(|| fs::metadata(file)).as_ref().map(Metadata::file_type) {
        Ok(file_type) if file_type.is_file() => Ok(()),
        Ok(file_type) if file_type.is_dir() => {
            Err(Problem::new(format!("the zone file `{shown}` is a directory"), "specify a file in it"))
        }
        Ok(_) => Err(Problem::new(format!("the zone file `{shown}` is not a regular file"), "specify a regular file")),
        Err(error) => Err(unreachable("zone file", file, error)),
    }
}

/// Whether a log can be written at `path`, which is created if it does not exist.
pub(super) fn check_log_file(path: &Path) -> Result<(), Problem> {
    let shown = path.display();
    let not_permitted = |kind: &str, path: &Path| {
        let message = format!("{} cannot write {kind} `{}`", user_text(), path.display());
        let remedy = "change its owner to this user (chown), or write to another folder, such as /var/log/sanderling";
        Problem::new(message, remedy)
    };
    check_log_directory(path)?;
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => {
            let message = format!("the log `{shown}` is a symbolic link, which is not followed");
            Err(Problem::new(message, "specify its target, or write \"stdout\""))
        }
        Ok(metadata) if metadata.is_dir() => {
            Err(Problem::new(format!("the access log `{shown}` is a directory"), "specify a file in it"))
        }
        Ok(_) if sanderling_os::file::is_writable(path) => Ok(()),
        Ok(_) => Err(not_permitted("the access log", path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            check_directory("directory of the access log", directory)?;
            let is_writable = sanderling_os::file::is_writable(directory);
            if is_writable { Ok(()) } else { Err(not_permitted("the directory of the access log", directory)) }
        }
        Err(error) => Err(unreachable("access log", path, &error)),
    }
}

/// The first ID of user groups: lower IDs are system groups, such as `syslog`, whose members are only services.
const FIRST_PERSON_ID: u32 = 1_000;
const OTHERS: u32 = 0o002;
const GROUP: u32 = 0o020;

/// A log's directory; `None` if it does not exist, which is reported otherwise.
fn log_directory(log: &Path) -> Option<(&Path, Metadata)> {
    let directory = log.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((directory, fs::metadata(directory).ok()?))
}

fn log_directory_problem(writer: &str, directory: &Path) -> Problem {
    let message = format!("{writer} can write to the directory `{}` of the log", directory.display());
    Problem::new(message, "use a directory that only the supervisor's user can write to")
}

/// Checks that not every user can create files in the log's directory: they could replace the log, or put a link in
/// place of a rotated log.
fn check_log_directory(log: &Path) -> Result<(), Problem> {
    match log_directory(log) {
        Some((directory, metadata)) if metadata.mode() & OTHERS != 0 => {
            Err(log_directory_problem("every user", directory))
        }
        _ => Ok(()),
    }
}

/// A warning if a user other than root, this process's user, the server's `account` and the log's owner can create
/// files in its directory.
pub(super) fn log_directory_warning(log: &Path, account: Option<u32>) -> Option<Problem> {
    let (directory, metadata) = log_directory(log)?;
    let owner = fs::symlink_metadata(log).ok().map(|metadata| metadata.uid());
    let (uid, gid) = (metadata.uid(), metadata.gid());
    let writer = if uid != 0 && uid != effective_uid() && ![account, owner].contains(&Some(uid)) {
        format!("its owner, the user with ID {uid},")
    } else if metadata.mode() & GROUP != 0 && uid == 0 && gid >= FIRST_PERSON_ID {
        format!("the group with ID {gid}")
    } else {
        return None;
    };
    Some(log_directory_problem(&writer, directory))
}

/// Whether the state folder `path` can be used; one that does not exist is created.
pub(super) fn check_state_folder(path: &Path) -> Result<(), Problem> {
    match check_directory("state folder", path) {
        Err(_) if fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) => Ok(()),
        Err(_) if fs::metadata(path).is_ok() => {
            let message = format!("the state folder `{}` is not a folder", path.display());
            Err(Problem::new(message, "set `state` to a folder"))
        }
        Ok(()) if !sanderling_os::file::is_writable(path) => {
            let message = format!("{} cannot write to the state folder `{}`", user_text(), path.display());
            Err(Problem::new(message, "make the server's user the owner of the folder and its content (chown -R)"))
        }
        result => result,
    }
}

/// Whether a control socket can be created at `path`.
pub(super) fn check_control_path(path: &Path) -> Result<(), Problem> {
    let shown = path.display();
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.len() > SOCKET_PATH_BYTES_MAX || bytes.contains(&0) {
        let message = format!("`control` is not a socket path: {} bytes", bytes.len());
        return Err(Problem::new(
            message,
            format!("write a path of at most {SOCKET_PATH_BYTES_MAX} bytes, without NUL"),
        ));
    }
    if let Ok(metadata) = fs::symlink_metadata(path) {
        return match metadata.file_type().is_socket() {
            true => Ok(()),
            false => {
                Err(Problem::new(format!("`control`: {shown} exists but is not a socket"), "specify another path"))
            }
        };
    }
    // The server creates the socket's directory, and none above it.
    let above = path.parent().and_then(Path::parent).filter(|above| !above.as_os_str().is_empty());
    // A directory that this user cannot reach may exist for the user that starts the server.
    let is_missing = |above: &&Path| match fs::metadata(above) {
        Ok(metadata) => !metadata.is_dir(),
        Err(error) => error.kind() != io::ErrorKind::PermissionDenied,
    };
    match above.filter(is_missing) {
        Some(above) => {
            let message = format!("`control`: the directory {} does not exist", above.display());
            Err(Problem::new(message, "create it or specify another path"))
        }
        None => Ok(()),
    }
}

/// This process's user.
fn user_text() -> String {
    sanderling_os::user::switched_name().map_or_else(|| "this user".to_owned(), |name| format!("the user `{name}`"))
}

/// Whether this user can read the `kind` of file at `path`, which not all users should.
pub(super) fn check_readable(kind: &str, path: &Path) -> Result<(), Problem> {
    sanderling_os::file::open_nonblocking(path).map(drop).map_err(|error| unreadable(kind, path, &error))
}

/// The folder that certbot lets only root enter.
const CERTBOT_FOLDER: &str = "/etc/letsencrypt";

/// The problem of a file that not all users should read: its remedy opens it to the group of this process.
fn unreadable(kind: &str, path: &Path, error: &io::Error) -> Problem {
    let is_found = fs::metadata(path).is_ok();
    let mut problem = match error.kind() {
        io::ErrorKind::PermissionDenied if is_found => {
            Problem::new(format!("{} cannot read the {kind} `{}`", user_text(), path.display()), "")
        }
        io::ErrorKind::PermissionDenied => unreachable(kind, path, error),
        _ => return unreachable(kind, path, error),
    };
    let group = sanderling_os::user::own_group();
    let (target, mode) = if is_found { (path, "640") } else { (closed_folder(path), "750") };
    let target = target.display();
    problem.remedy = match path.starts_with(CERTBOT_FOLDER) {
        true => format!(
            "have certbot copy it in a --deploy-hook to a folder such as /etc/sanderling/keys, with chgrp {group} and chmod \
             640, and specify the copy"
        ),
        false => format!("run chgrp {group} {target}; chmod {mode} {target}"),
    };
    problem
}

/// The deepest directory above `path` that can be reached: this user may not enter it.
fn closed_folder(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|above| fs::metadata(above).is_ok()).unwrap_or(Path::new("."))
}

fn unreachable(object: &str, path: &Path, error: &io::Error) -> Problem {
    let shown = path.display();
    let (state, remedy) = match error.kind() {
        io::ErrorKind::NotFound => ("does not exist".to_owned(), "create it or correct the path".to_owned()),
        io::ErrorKind::PermissionDenied => {
            let (user, closed) = (user_text(), closed_folder(path).display());
            let remedy = format!("run chmod o+x {closed}, or move the {object}");
            (format!("cannot be reached: {user} cannot enter {closed}"), remedy)
        }
        _ => (format!("cannot be opened: {}", error_text(error)), "correct the path".to_owned()),
    };
    Problem::new(format!("the {object} `{shown}` {state}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn log_is_in_a_directory_that_nobody_else_can_write_and_is_no_link() {
        let directory = tempfile::tempdir().expect("created");
        let log = directory.path().join("access.log");
        let set_mode = |mode: u32| {
            fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).expect("ours");
        };
        let check = |mode: u32, expected: &str| {
            set_mode(mode);
            let problem = check_log_file(&log).err().map_or(String::new(), |problem| problem.to_string());
            assert!(problem.contains(expected) && problem.is_empty() == expected.is_empty(), "{mode:o}: {problem}");
        };
        let check_warning = |mode: u32, account: Option<u32>, expected: &str| {
            check(mode, "");
            let problem = log_directory_warning(&log, account).map_or(String::new(), |problem| problem.to_string());
            assert!(problem.contains(expected) && problem.is_empty() == expected.is_empty(), "{mode:o}: {problem}");
        };
        check_warning(0o755, None, "");
        check(0o757, "every user can write to the directory");
        check(0o1777, "every user can write to the directory");
        if effective_uid() == 0 {
            let own = |uid, gid| std::os::unix::fs::chown(directory.path(), Some(uid), Some(gid)).expect("root may");
            own(12_345, 12_345);
            check_warning(0o755, None, "its owner, the user with ID 12345, can write to the directory");
            check_warning(0o755, Some(12_345), "");
            // As /var/log, for the group `syslog`.
            own(0, 104);
            check_warning(0o775, None, "");
            own(0, 12_345);
            check_warning(0o775, None, "the group with ID 12345 can write to the directory");
            // The log belongs to the same user.
            own(12_345, 12_345);
            fs::write(&log, "").expect("written");
            std::os::unix::fs::chown(&log, Some(12_345), None).expect("root may");
            check_warning(0o755, None, "");
            fs::remove_file(&log).expect("ours");
        }
        fs::write(&log, "").expect("written");
        check(0o700, "");
        fs::remove_file(&log).expect("ours");
        symlink("elsewhere", &log).expect("linked");
        check(0o700, "is a symbolic link");
        // Devices and pipes can be logs too.
        assert!(check_log_file(Path::new("/dev/null")).is_ok());
    }
}
