//! Reads the user files that may log in to some paths.

use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::without_byte_order_mark;
use sanderling_server::{AuthRule, Users};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Bytes of the largest file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The rule with its users. If they cannot be read, no user can log in.
pub(crate) fn load(
    rule: &sanderling_config::AuthRule,
    errors: &mut Vec<Diagnostic>,
    warnings: &mut Vec<Diagnostic>,
) -> AuthRule {
    let shown = rule.users_file.display();
    let content = read(&rule.users_file);
    if let Err(error) = &content {
        let message = format!("cannot read the user file `{shown}`: {}", error_text(error));
        let remedy = format!("{}; until then, no user can log in", remedy(error));
        errors.push(Diagnostic::error(rule.location.clone(), Problem::new(message, remedy)));
    }
    let text = content.as_deref().map_or(&[][..], without_byte_order_mark);
    let (users, problems) = Users::parse(&rule.users_file, text);
    if content.is_ok() && users.count() == 0 && problems.is_empty() {
        let message = format!("the user file `{shown}` has no users, so no user can log in");
        let remedy = format!("add one, for example with htpasswd -B {shown} NAME");
        warnings.push(Diagnostic::warning(rule.location.clone(), Problem::new(message, remedy)));
    }
    for (line, message, remedy) in problems {
        let location = Location::Position { file: rule.users_file.clone(), line, column: 1 };
        errors.push(Diagnostic::error(location, Problem::new(format!("{message}; the line is skipped"), remedy)));
    }
    AuthRule { realm: rule.realm.clone(), users: Arc::new(users) }
}

/// The remedy for an error of reading a user file.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "create the file, or correct its path",
        io::ErrorKind::PermissionDenied => "allow the server's user to read it",
        _ => "specify a user file as written by htpasswd -B",
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opened without blocking: a FIFO would block a reload forever.
    let file = sanderling_os::file::open_nonblocking(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok(content)
}
