//! A copy of the state folder that is as it was at one moment, although another process changes it meanwhile.
//!
//! Every change of the folder makes a new file, folder or link, and renames it. The copy is consistent if the folder
//! has the same entries before and after it.
//!
//! The process may be root, and another user may write the folder at any moment: everything is opened relative to the
//! folder, and no link is followed.

use super::{LOCK_FILE, StateError, TEMPORARY, failed, flush_folder, problem};
use sanderling_os::directory::{Directory, EntryKind};
use sanderling_os::file::{File, FileType, Metadata, free_bytes};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Copies that are begun again because the folder has changed.
const ATTEMPTS_MAX: u32 = 20;

/// Maximum entries of a folder; more are an error.
const ENTRIES_MAX: usize = 1 << 20;
/// Bytes that are copied in one step.
const PIECE_BYTES: usize = 64 * 1024;

/// A file, folder or link of the folder, and the metadata that distinguishes it from a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    /// Below the folder.
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Folder,
    /// Some of its metadata differs after a replacement.
    File(Metadata),
    Link(PathBuf),
}

/// Copies the state folder at `from` to the new folder `to`, in which only this user may read. The number of files.
///
/// # Errors
/// Returns an error if `to` exists, or if a file cannot be read or written.
pub fn copy(from: &Path, to: &Path) -> Result<usize, StateError> {
    if to.exists() {
        return Err(problem(format!("{} exists", to.display()), "specify a folder that does not exist"));
    }
    if !from.join(super::VERSION_FILE).is_file() {
        return Err(problem(
            format!("{} is not a state folder", from.display()),
            "specify the server's state folder with `--state`",
        ));
    }
    let real = |path: &Path| fs::canonicalize(path);
    let above = to.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let real_above = real(above).map_err(|error| failed_at_copy("reach", above, &error))?;
    if real_above.starts_with(real(from).map_err(|error| failed("reach", from, &error))?) {
        let message = format!("{} is in the state folder {} itself", to.display(), from.display());
        return Err(problem(message, "specify a folder elsewhere, preferably on another disk"));
    }
    let root = Directory::open(from).map_err(|error| failed("reach", from, &error))?;
    for _ in 0..ATTEMPTS_MAX {
        let before = list(from, &root)?;
        check_space(&before, above)?;
        create_folder(to)?;
        let is_complete = copy_items(from, &root, &before, to)
            .and_then(|is_complete| Ok(is_complete && list(from, &root)? == before));
        if matches!(is_complete, Ok(true)) {
            return Ok(before.iter().filter(|item| matches!(item.kind, Kind::File(_))).count());
        }
        // An unfinished copy may contain private keys.
        let removed = fs::remove_dir_all(to).map_err(|error| failed_at_copy("remove", to, &error));
        is_complete.and(removed)?;
    }
    Err(problem(format!("{} keeps changing", from.display()), "try again later"))
}

/// All entries of the folder except its lock and files that are being written, sorted.
fn list(from: &Path, root: &Directory) -> Result<Vec<Item>, StateError> {
    let (mut items, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        let unreadable = |error: &io::Error| failed("read", &from.join(&folder), error);
        let entries = root.open_without_links(bytes(&folder)).and_then(|opened| opened.entries(ENTRIES_MAX, |_| true));
        let entries = match entries {
            Ok((entries, false)) => entries,
            Ok((_, true)) => {
                return Err(unreadable(&io::Error::other(format!("it has more than {ENTRIES_MAX} entries"))));
            }
            // The file was removed: the next list differs.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.as_os_str().is_empty() => continue,
            Err(error) => return Err(unreadable(&error)),
        };
        for entry in entries {
            let path = folder.join(OsStr::from_bytes(&entry.name));
            if entry.name.starts_with(TEMPORARY.as_bytes()) || path == Path::new(LOCK_FILE) {
                continue;
            }
            let kind = match entry.kind {
                EntryKind::Link => Kind::Link(root.read_link(bytes(&path)).unwrap_or_default()),
                EntryKind::File { file_type: FileType::Directory, .. } => {
                    folders.push(path.clone());
                    Kind::Folder
                }
                EntryKind::File { .. } => match root.metadata_without_links(bytes(&path)) {
                    Ok(metadata) => Kind::File(metadata),
                    Err(_) => continue,
                },
            };
            items.push(Item { path, kind });
        }
    }
    items.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(items)
}

/// Whether the copy fits next to `to`: a file with holes may be longer than any disk.
fn check_space(items: &[Item], above: &Path) -> Result<(), StateError> {
    let length = |item: &Item| if let Kind::File(metadata) = &item.kind { metadata.length_bytes } else { 0 };
    let needed = items.iter().map(length).fold(0, u64::saturating_add);
    let free = free_bytes(above).map_err(|error| failed("reach", above, &error))?;
    let message = format!("the copy has {needed} bytes, and {} has room for {free}", above.display());
    if needed <= free { Ok(()) } else { Err(problem(message, "free some space, or specify a folder on another disk")) }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn create_folder(path: &Path) -> Result<(), StateError> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| failed_at_copy("create the folder", path, &error))
}

/// As [`failed`], for a file or folder of the copy, where the operator chose to have it.
fn failed_at_copy(action: &str, path: &Path, error: &io::Error) -> StateError {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "create this folder for the copy, or specify another one",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space, or specify a folder elsewhere",
        _ => "specify a folder that this user can write to",
    };
    problem(format!("cannot {action} {}: {error}", path.display()), remedy)
}

/// Whether all were there to copy, to the empty folder `to`.
fn copy_items(from: &Path, root: &Directory, items: &[Item], to: &Path) -> Result<bool, StateError> {
    for item in items {
        let (source, target) = (from.join(&item.path), to.join(&item.path));
        match &item.kind {
            // The order is sorted, so a folder precedes its content.
            Kind::Folder => create_folder(&target)?,
            Kind::Link(leads_to) => {
                std::os::unix::fs::symlink(leads_to, &target)
                    .map_err(|error| failed_at_copy("write", &target, &error))?;
            }
            Kind::File(listed) => {
                let opened = root.open_without_links(bytes(&item.path));
                let file = match opened.and_then(|file| file.metadata().map(|metadata| (file, metadata))) {
                    // The file was replaced or removed.
                    Ok((_, metadata)) if metadata != *listed => return Ok(false),
                    Ok((_, metadata)) if metadata.file_type != FileType::Regular => {
                        return Err(failed("read", &source, &io::Error::other("it is not a regular file")));
                    }
                    Ok((file, _)) => file,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                    Err(error) => return Err(failed("read", &source, &error)),
                };
                copy_file(&file, listed.length_bytes, &target)
                    .map_err(|error| failed_at_copy("write", &target, &error))?;
            }
        }
    }
    let folders = items.iter().filter(|item| item.kind == Kind::Folder).map(|item| to.join(&item.path));
    for folder in folders.chain([to.to_owned()]) {
        flush_folder(&folder).map_err(|error| failed_at_copy("flush", &folder, &error))?;
    }
    Ok(true)
}

/// Copies the first `length` bytes. Holes stay holes, so that the copy takes no more space than the file.
fn copy_file(source: &File, length: u64, target: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(target)?;
    let (mut piece, mut start) = (vec![0; PIECE_BYTES], 0);
    while start < length {
        let wanted = piece.len().min(usize::try_from(length - start).unwrap_or(usize::MAX));
        let read = source.read_at(&mut piece[..wanted], start)?;
        if read == 0 {
            break;
        }
        if piece[..read].iter().all(|byte| *byte == 0) {
            file.seek_relative(read as i64)?;
        } else {
            file.write_all(&piece[..read])?;
        }
        start += read as u64;
    }
    file.set_len(start)?;
    file.sync_all()
}
