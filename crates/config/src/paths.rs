//! Whether a path leads to what the configuration takes it for.

use crate::diagnostic::Fault;
use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

/// Nothing if `folder` is a folder.
pub(super) fn check_site_folder(folder: &Path) -> Result<(), Fault> {
    let shown = folder.display();
    match fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(Fault::new(format!("the site `{shown}` is not a folder"), "name the folder that holds the file")),
        Err(error) => Err(unreachable_fault("site", folder, &error)),
    }
}

/// Nothing if `file` is a regular file: reading a pipe or a device could wait for ever.
pub(super) fn check_zone_file(file: &Path) -> Result<(), Fault> {
    let shown = file.display();
    match fs::metadata(file).as_ref().map(Metadata::file_type) {
        Ok(kind) if kind.is_file() => Ok(()),
        Ok(kind) if kind.is_dir() => {
            Err(Fault::new(format!("the zone file `{shown}` is a folder"), "name the zone file in it"))
        }
        Ok(_) => Err(Fault::new(format!("the zone file `{shown}` is not a regular file"), "copy the zone into one")),
        Err(error) => Err(unreachable_fault("zone file", file, error)),
    }
}

fn unreachable_fault(what: &str, path: &Path, error: &io::Error) -> Fault {
    let shown = path.display();
    let (state, remedy) = match error.kind() {
        io::ErrorKind::NotFound => ("does not exist".to_owned(), "create it or correct the path"),
        io::ErrorKind::PermissionDenied => ("is out of reach".to_owned(), "let this user search every folder above it"),
        _ => (format!("can't be looked at: {error}"), "correct the path"),
    };
    Fault::new(format!("the {what} `{shown}` {state}"), remedy)
}
