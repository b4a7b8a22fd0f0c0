//! Checks that the paths of the configuration lead to a directory and to regular files.

use crate::diagnostic::{Problem, error_text};
use sanderling_os::error::with_second_try;
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

/// Whether `root` is a directory.
pub(super) fn check_document_root(root: &Path) -> Result<(), Problem> {
    let shown = root.display();
    match with_second_try(|| fs::metadata(root)) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(Problem::new(format!("the site `{shown}` is not a directory"), "give a directory, not a file")),
        Err(error) => Err(unreachable("site", root, &error)),
    }
}

/// Whether `file` is a regular file: reading a pipe or a device could block for ever.
pub(super) fn check_zone_file(file: &Path) -> Result<(), Problem> {
    let shown = file.display();
    match with_second_try(|| fs::metadata(file)).as_ref().map(Metadata::file_type) {
        Ok(file_type) if file_type.is_file() => Ok(()),
        Ok(file_type) if file_type.is_dir() => {
            Err(Problem::new(format!("the zone file `{shown}` is a directory"), "give a file in it"))
        }
        Ok(_) => Err(Problem::new(format!("the zone file `{shown}` is not a regular file"), "give a regular file")),
        Err(error) => Err(unreachable("zone file", file, error)),
    }
}

fn unreachable(object: &str, path: &Path, error: &io::Error) -> Problem {
    let shown = path.display();
    let (state, remedy) = match error.kind() {
        io::ErrorKind::NotFound => ("does not exist".to_owned(), "create it or correct the path"),
        io::ErrorKind::PermissionDenied => (
            "cannot be reached: permission denied".to_owned(),
            "give this user execute permission on all directories above it",
        ),
        _ => (format!("cannot be opened: {}", error_text(error)), "correct the path"),
    };
    Problem::new(format!("the {object} `{shown}` {state}"), remedy)
}
