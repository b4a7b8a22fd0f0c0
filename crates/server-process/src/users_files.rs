//! Reads the files of users that may log in to some paths.

use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_config::without_byte_order_mark;
use sanderling_server::{AuthRule, Users};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Bytes of the largest file.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The rule with its users. If they cannot be read, nobody can log in.
pub(crate) fn load(rule: &sanderling_config::AuthRule, errors: &mut Vec<Diagnostic>) -> AuthRule {
    let content = read(&rule.users_file).unwrap_or_else(|error| {
        let message = format!("cannot read the users `{}`: {}", rule.users_file.display(), error_text(&error));
        let remedy = "create the file and allow the user of the server to read it; until then nobody can log in";
        errors.push(Diagnostic::error(rule.location.clone(), Problem::new(message, remedy)));
        Vec::new()
    });
    let (users, problems) = Users::parse(&rule.users_file, without_byte_order_mark(&content));
    for (line, message, remedy) in problems {
        let location = Location::Position { file: rule.users_file.clone(), line, column: 1 };
        errors.push(Diagnostic::error(location, Problem::new(format!("{message}; the line is skipped"), remedy)));
    }
    AuthRule { realm: rule.realm.clone(), users: Arc::new(users) }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Without blocking: a FIFO would block a reload for ever.
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
