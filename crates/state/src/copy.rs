//! A copy of the state folder that is as it was at one moment, although another process changes it meanwhile.
//!
//! Every change of the folder makes a new file, folder or link, and renames it. So the copy is that of one moment if
//! the folder has the same ones before and after it.

use super::{LOCK_FILE, StateError, TEMPORARY, failed, flush_folder, problem};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Copies that are begun again because the folder has changed.
const ATTEMPTS_MAX: u32 = 20;

/// What of a file changes when it is replaced: device, inode, length, and time of the last change with its nanoseconds.
type Identity = (u64, u64, u64, i64, i64);

/// A file, folder or link of the folder, and what distinguishes it from one that takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    /// Below the folder.
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Folder,
    File(Identity),
    Link(PathBuf),
}

/// Copies the state folder at `from` to the new folder `to`, in which only this user may read. The number of files.
///
/// # Errors
/// `to` exists, or something cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> Result<usize, StateError> {
    if to.exists() {
        return Err(problem(format!("{} exists", to.display()), "name a folder that does not exist"));
    }
    if !from.join(super::VERSION_FILE).is_file() {
        return Err(problem(
            format!("{} is not a state folder", from.display()),
            "name that of the server with `--state`",
        ));
    }
    let real = |path: &Path| fs::canonicalize(path).map_err(|error| failed("reach", path, &error));
    let above = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if real(above)?.starts_with(real(from)?) {
        let message = format!("{} is in the state folder {} itself", to.display(), from.display());
        return Err(problem(message, "name a folder elsewhere, best on another disk"));
    }
    for _ in 0..ATTEMPTS_MAX {
        let before = list(from)?;
        create_folder(to)?;
        let is_complete =
            copy_items(from, &before, to).and_then(|is_complete| Ok(is_complete && list(from)? == before));
        if matches!(is_complete, Ok(true)) {
            return Ok(before.iter().filter(|item| matches!(item.kind, Kind::File(_))).count());
        }
        // A part of it may have private keys.
        let removed = fs::remove_dir_all(to).map_err(|error| failed("remove", to, &error));
        is_complete.and(removed)?;
    }
    Err(problem(format!("{} changes all the time", from.display()), "try again later"))
}

/// All of the folder but its lock and files that are being written, sorted.
fn list(root: &Path) -> Result<Vec<Item>, StateError> {
    let (mut items, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let full = root.join(&folder);
        let entries = match fs::read_dir(&full) {
            Ok(entries) => entries,
            // It was removed: the next list differs.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.as_os_str().is_empty() => continue,
            Err(error) => return Err(failed("read", &full, &error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| failed("read", &full, &error))?;
            let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
            if name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) || path == Path::new(LOCK_FILE) {
                continue;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            let kind = if metadata.is_dir() {
                folders.push(path.clone());
                Kind::Folder
            } else if metadata.is_symlink() {
                Kind::Link(fs::read_link(entry.path()).unwrap_or_default())
            } else {
                Kind::File((metadata.dev(), metadata.ino(), metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
            };
            items.push(Item { path, kind });
        }
    }
    items.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(items)
}

fn create_folder(path: &Path) -> Result<(), StateError> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| failed("create the folder", path, &error))
}

/// Whether all were there to copy, to the empty folder `to`.
fn copy_items(from: &Path, items: &[Item], to: &Path) -> Result<bool, StateError> {
    for item in items {
        let (source, target) = (from.join(&item.path), to.join(&item.path));
        match &item.kind {
            // Sorted, so a folder precedes what is in it.
            Kind::Folder => create_folder(&target)?,
            Kind::Link(leads_to) => {
                std::os::unix::fs::symlink(leads_to, &target).map_err(|error| failed("write", &target, &error))?;
            }
            Kind::File(_) => {
                let mut source = match fs::File::open(&source) {
                    Ok(file) => file,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                    Err(error) => return Err(failed("read", &source, &error)),
                };
                let copied = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&target);
                let copied = copied.and_then(|mut file| {
                    io::copy(&mut source, &mut file)?;
                    file.sync_all()
                });
                copied.map_err(|error| failed("write", &target, &error))?;
            }
        }
    }
    let folders = items.iter().filter(|item| item.kind == Kind::Folder).map(|item| to.join(&item.path));
    for folder in folders.chain([to.to_owned()]) {
        flush_folder(&folder).map_err(|error| failed("flush", &folder, &error))?;
    }
    Ok(true)
}
