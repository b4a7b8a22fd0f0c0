//! The state folder, with state that outlives the processes, such as certificates, private keys, accounts and orders.
//!
//! One process owns the state folder, and holds a lock; another process owns the folder with the zones' private keys. A
//! change is durable when the call returns, and a crash at any moment leaves the content before or after it, never a
//! part: a file is written next to the old one, flushed, and renamed, and its folder is flushed. Only the owner may
//! read files and folders (0600, 0700).
//!
//! ```text
//! version                                what this folder has the form of
//! lock                                   locked by the process that owns the folder
//! certificates/NAME -> ../generations/NAME-N
//! generations/NAME-N/{fullchain.pem, privkey.pem}
//! ```
//!
//! Other files are the business of the caller, in [`FOLDERS`]. The chain and the key of a certificate change together,
//! by one rename of a link; other programs read them at `certificates/NAME/`.
#![forbid(unsafe_code)]

mod copy;
mod unfinished_file;

pub use copy::copy;
pub use unfinished_file::UnfinishedFile;

use sanderling_os::directory::{Directory, give_directory};
use sanderling_os::error::is_missing;
use sanderling_os::user::name_of;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The form of the folder. A program reads no folder of a later one.
const VERSION: u32 = 1;
/// The folders of the process that owns the state folder. The owner's sandbox allows access only to these folders: the
/// zones' private keys are next to them.
pub const FOLDERS: [&str; 12] = [
    CERTIFICATES,
    GENERATIONS,
    "acme",
    "orders",
    "renewals",
    "rotations",
    "derived",
    "zones",
    "journals",
    "updates",
    "signing",
    "signed",
];
const VERSION_FILE: &str = "version";
const LOCK_FILE: &str = "lock";
/// The contents of the state folder other than [`FOLDERS`]. The keeper owns the keys of zones.
const OTHERS: [&str; 3] = [VERSION_FILE, LOCK_FILE, "keys"];
/// Where other programs find certificates, below the folder.
pub const CERTIFICATES: &str = "certificates";
const GENERATIONS: &str = "generations";
/// The chain of a certificate, below its folder.
pub const CHAIN_FILE: &str = "fullchain.pem";
/// A certificate's private key, below its folder.
pub const KEY_FILE: &str = "privkey.pem";
/// Bytes of the largest file.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Maximum number of files and folders, below the folders of the state folder, whose owner is checked at startup.
const CHECKED_ENTRIES_MAX: usize = 1_000_000;
/// The remedy for a folder of another program's version or content. Another folder would be without the keys of signed
/// zones.
const REMEDY_OF_VERSION: &str = "install the later version again, or restore the backup from before the upgrade";
const REMEDY_OF_CONTENT: &str = "set `state` to the path of the state folder, or restore the folder from its backup; it has the keys of signed zones";
/// Files and folders that a warning names.
const NAMED_ENTRIES_MAX: usize = 3;
/// Bytes of a file that shows whether one can be written.
const PROBE_BYTES: usize = 4096;
/// The prefix of files that are written before they are renamed.
const TEMPORARY: &str = ".new-";

/// The reason why the folder cannot be used, and the remedy.
#[derive(Debug)]
pub struct StateError {
    problem: String,
    remedy: String,
}

impl fmt::Display for StateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.problem)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(out, "; {}", self.remedy) }
    }
}

impl std::error::Error for StateError {}

impl StateError {
    /// The problem.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The remedy; empty if unknown.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

fn problem(problem: String, remedy: impl Into<String>) -> StateError {
    StateError { problem, remedy: remedy.into() }
}

/// The error of doing something with the file or folder at `path`.
fn failed(action: &str, path: &Path, error: &io::Error) -> StateError {
    let remedy = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space; serving continues, and the change will be retried"
        }
        ErrorKind::PermissionDenied => {
            "change the folder's owner to the server's user (chown -R), and its mode to 0700"
        }
        ErrorKind::ReadOnlyFilesystem => "mount it writable; a new installation can set `state` to another folder",
        ErrorKind::NotFound => "create the folder above it, or set `state` to another one",
        _ => "",
    };
    problem(format!("cannot {action} {}: {error}", path.display()), remedy)
}

/// Creates the folder at `path` for `owner`, its user and group, unless it exists. The caller must have the right to
/// write to the folder above it.
///
/// # Errors
/// Returns an error if the folder cannot be created, or belongs to another user.
pub fn prepare(path: &Path, owner: Option<(u32, u32)>) -> Result<(), StateError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {
            if let Some((user, group)) = owner {
                // A user that can write the folder above may have replaced it.
                give_directory(path, user, group).map_err(|error| failed("change the owner of", path, &error))?;
            }
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed("create the state folder", path, &error)),
    }
    let metadata = fs::metadata(path).map_err(|error| failed("reach the state folder", path, &error))?;
    if !metadata.is_dir() {
        return Err(problem(format!("the state folder {} is not a folder", path.display()), "set `state` to a folder"));
    }
    if let Some((user, _)) = owner.filter(|(user, _)| *user != metadata.uid()) {
        let message = format!("the state folder {} belongs to user {}", path.display(), name_of(metadata.uid()));
        return Err(problem(message, remedy_of_owner(path, user)));
    }
    Ok(())
}

/// Whether the folder at `path` and its folders belong to `user` and this version: a restored copy may belong to
/// another user. A folder that cannot be reached or written is another matter: it may be there and writable later.
/// Returns problems of single files, with which the server can start: they affect only single zones and certificates.
///
/// # Errors
/// Returns the problem and its remedy.
pub fn check(path: &Path, user: u32) -> Result<Option<StateError>, StateError> {
    if !fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(None);
    }
    let folders = FOLDERS.into_iter().chain(OTHERS).map(|name| path.join(name));
    for path_of_own in std::iter::once(path.to_owned()).chain(folders) {
        if let Some(what) = what_is_wrong(&path_of_own, user) {
            return Err(problem(format!("{} {what}", path_of_own.display()), remedy_of_owner(path, user)));
        }
    }
    // The agent can write the folder, and this process may be root.
    let file = Directory::open(path).and_then(|folder| folder.open_without_links(VERSION_FILE.as_bytes()));
    match file.and_then(|file| file.read_all(FILE_BYTES_MAX)) {
        Ok(version) => check_version(path, &version)?,
        // It would be filled with new keys.
        Err(error) if error.kind() == ErrorKind::NotFound => nested_folder(path).map_or(Ok(()), Err)?,
        // Root without the capability to read it: its owner can.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
        Err(error) => return Err(failed("read", &path.join(VERSION_FILE), &error)),
    }
    Ok(nested_folder(path).or_else(|| unusable_entries(path, user)))
}

/// A state folder in the state folder at `root`: a copy that was restored to the wrong place.
fn nested_folder(root: &Path) -> Option<StateError> {
    let entries = fs::read_dir(root).ok()?.flatten().take(CHECKED_ENTRIES_MAX);
    let is_own =
        |path: &Path| path.file_name().is_some_and(|name| FOLDERS.into_iter().chain(OTHERS).any(|own| name == own));
    let is_file = |path: PathBuf| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    let mut paths = entries.map(|entry| entry.path());
    let nested = paths.find(|path| !is_own(path) && is_file(path.join(VERSION_FILE)))?;
    let (nested, root) = (nested.display(), root.display());
    Some(problem(
        format!("{nested} is a state folder in the state folder {root}: its keys and certificates are not used"),
        format!(
            "if it is a restored copy, stop the server, and move its content up: cp -a {nested}/. {root}/ && rm -r \
             {nested}; if not, move it elsewhere"
        ),
    ))
}

fn remedy_of_owner(root: &Path, user: u32) -> String {
    let (root, user) = (root.display(), name_of(user));
    format!("change its owner to the server's user: chown -R {user} {root}; chmod -R u+rwX {root}")
}

/// The reason why `user` cannot use the file or folder at `path`; `None` if it can, or if there is none.
fn what_is_wrong(path: &Path, user: u32) -> Option<String> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        // Something else has removed it meanwhile, or root does not have the capability to reach it: its owner can.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return None,
        Err(error) => return Some(format!("cannot be reached: {error}")),
    };
    if metadata.uid() != user {
        return Some(format!("belongs to user {}", name_of(metadata.uid())));
    }
    let is_closed = metadata.is_dir() && metadata.mode() & 0o700 != 0o700;
    is_closed.then(|| "lacks the permissions rwx of its owner".to_owned())
}

/// The files below the folders of the state folder `root` that `user` cannot use: their number, and the first ones.
fn unusable_entries(root: &Path, user: u32) -> Option<StateError> {
    let (mut named, mut count, mut left) = (Vec::new(), 0_usize, CHECKED_ENTRIES_MAX);
    let mut folders: Vec<PathBuf> = FOLDERS.into_iter().chain(OTHERS).map(|name| root.join(name)).collect();
    while let Some(folder) = folders.pop() {
        // The entry is not a folder, is readable only to its owner, or was already counted.
        let Ok(found) = fs::read_dir(&folder) else { continue };
        for entry in found.flatten().take(left) {
            left = left.saturating_sub(1);
            let path = entry.path();
            if let Some(what) = what_is_wrong(&path, user) {
                count += 1;
                if named.len() < NAMED_ENTRIES_MAX {
                    named.push(format!("{} {what}", path.display()));
                }
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            }
        }
    }
    let more = match count - named.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let message = format!("{}{more}; the zones and certificates concerned are not updated", named.join(", "));
    (count > 0).then(|| problem(message, remedy_of_owner(root, user)))
}

/// Whether this program knows the version in `text`, of the folder at `path`.
fn check_version(path: &Path, text: &[u8]) -> Result<(), StateError> {
    let path = path.display();
    match str::from_utf8(text).ok().and_then(|text| text.trim().parse::<u32>().ok()) {
        Some(VERSION) => Ok(()),
        Some(version) => Err(problem(
            format!("the state folder {path} has version {version}, and this program supports version {VERSION}"),
            REMEDY_OF_VERSION,
        )),
        None => Err(problem(
            format!("{path} is not a state folder: its file `{VERSION_FILE}` is not a number"),
            REMEDY_OF_CONTENT,
        )),
    }
}

/// The state folder, locked.
#[derive(Debug)]
pub struct StateFolder {
    root: PathBuf,
    /// Closing it releases the lock.
    _lock: File,
}

impl StateFolder {
    /// Opens the folder at `path`, which exists, and locks it. Unfinished files after a crash are removed.
    ///
    /// # Errors
    /// Returns an error if another process owns the folder, or if the folder has a later version or cannot be written.
    pub fn open(path: &Path) -> Result<StateFolder, StateError> {
        let metadata = fs::metadata(path).map_err(|error| failed("reach the state folder", path, &error))?;
        if metadata.mode() & 0o077 != 0 {
            // The folder holds private keys.
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))
                .map_err(|error| failed("set the mode of", path, &error))?;
        }
        let lock_path = path.join(LOCK_FILE);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|error| failed("write", &lock_path, &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message = format!("another process uses the state folder {}", path.display());
                return Err(problem(message, "stop the other server, or set `state` to a separate folder"));
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock", &lock_path, &error)),
        }
        let folder = StateFolder { root: path.to_owned(), _lock: lock };
        folder.check_version()?;
        for name in FOLDERS {
            folder.create_folder(&path.join(name))?;
        }
        remove_unfinished(path, |name| FOLDERS.contains(&name))?;
        folder.remove_unused_generations()?;
        Ok(folder)
    }

    fn check_version(&self) -> Result<(), StateError> {
        let Some(text) = self.read(VERSION_FILE)? else {
            return self.write(VERSION_FILE, format!("{VERSION}\n").as_bytes());
        };
        check_version(&self.root, &text)
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The content of the file `name`; `None` if there is none.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        let path = self.path_of(name)?;
        let mut content = Vec::new();
        match File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut content)) {
            Ok(_) => Ok(Some(content)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(failed("read", &path, &error)),
        }
    }

    /// The content of the file `name`, of any length.
    pub fn read_long(&self, name: &str) -> Result<Vec<u8>, StateError> {
        let path = self.path_of(name)?;
        fs::read(&path).map_err(|error| failed("read", &path, &error))
    }

    /// Whether there is a file `name`.
    pub fn has(&self, name: &str) -> bool {
        self.path_of(name).is_ok_and(|path| path.is_file())
    }

    /// Gives the file `name` this content. Missing folders are created.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), StateError> {
        let path = self.path_of(name)?;
        let parent = path.parent().unwrap_or(&self.root);
        self.create_folder(parent)?;
        write_durably(&path, content).map_err(|error| failed("write", &path, &error))
    }

    /// A new file in the folder `folder`, to be written piece by piece, with a unique name.
    pub fn begin_file(&self, folder: &str) -> Result<UnfinishedFile, StateError> {
        static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = LAST_NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = self.path_of(folder)?;
        self.create_folder(&folder)?;
        let path = folder.join(format!("{TEMPORARY}part-{number}"));
        UnfinishedFile::create(&path).map_err(|error| failed("write", &path, &error))
    }

    /// Gives the file `name`, whose folder exists, the content of `file`.
    pub fn finish_file(&self, file: UnfinishedFile, name: &str) -> Result<(), StateError> {
        let path = self.path_of(name)?;
        file.finish(&path).map_err(|error| failed("write", &path, &error))
    }

    /// Writes `content` after the first `length` bytes of the file `name`, which has them, in place of data that a
    /// crash has left there. After a crash, the file may have a part of it.
    pub fn append(&self, name: &str, length: u64, content: &[u8]) -> Result<(), StateError> {
        let path = self.path_of(name)?;
        let append = || {
            let mut file = OpenOptions::new().append(true).open(&path)?;
            if file.metadata()?.len() != length {
                let mut start = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
                File::open(&path)?.read_exact(&mut start)?;
                return write_durably(&path, &[&start, content].concat());
            }
            file.write_all(content)?;
            file.sync_all()
        };
        append().map_err(|error| failed("write", &path, &error))
    }

    /// Whether a file next to `name` can be written at this moment. The test file is removed again.
    pub fn check_writable(&self, name: &str) -> Result<(), StateError> {
        let path = self.path_of(name)?;
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let probe = path.with_file_name(format!("{TEMPORARY}probe-{name}"));
        self.create_folder(probe.parent().unwrap_or(&self.root))?;
        let written = write_durably(&probe, &[0; PROBE_BYTES]).and_then(|()| remove_durably(&probe));
        written.map_err(|error| failed("write", &probe, &error))
    }

    /// Removes the file `name`, if there is one.
    pub fn remove(&self, name: &str) -> Result<(), StateError> {
        let path = self.path_of(name)?;
        match fs::remove_file(&path) {
            Ok(()) => flush_folder(path.parent().unwrap_or(&self.root)).map_err(|error| failed("flush", &path, &error)),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(failed("remove", &path, &error)),
        }
    }

    /// Stores the chain and the key of a certificate atomically, in place of the previous ones.
    pub fn store_certificate(&self, name: &str, chain: &[u8], key: &[u8]) -> Result<(), StateError> {
        let link = self.path_of(&format!("{CERTIFICATES}/{name}"))?;
        let before = fs::read_link(&link).ok();
        let number = before.as_deref().map_or(0, generation_of) + 1;
        let generation = self.path_of(&format!("{GENERATIONS}/{name}-{number}"))?;
        // A generation left by a crash is not in use: its link was not created.
        remove_folder(&generation).map_err(|error| failed("remove", &generation, &error))?;
        self.create_folder(&generation)?;
        for (file, content) in [(CHAIN_FILE, chain), (KEY_FILE, key)] {
            let path = generation.join(file);
            write_durably(&path, content).map_err(|error| failed("write", &path, &error))?;
        }
        let temporary = link.with_file_name(format!("{TEMPORARY}{name}"));
        let target = Path::new("..").join(GENERATIONS).join(format!("{name}-{number}"));
        let switched = remove_file(&temporary)
            .and_then(|()| std::os::unix::fs::symlink(target, &temporary))
            .and_then(|()| fs::rename(&temporary, &link))
            .and_then(|()| flush_folder(&self.root.join(CERTIFICATES)));
        switched.map_err(|error| failed("write", &link, &error))?;
        // The last but one is kept for readers that have just followed the link.
        if let Some(old) = number.checked_sub(2).filter(|old| *old > 0) {
            let old = self.root.join(GENERATIONS).join(format!("{name}-{old}"));
            remove_folder(&old).map_err(|error| failed("remove", &old, &error))?;
        }
        Ok(())
    }

    /// The chain of a stored certificate; `None` if there is none.
    pub fn chain(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        self.read(&format!("{CERTIFICATES}/{name}/{CHAIN_FILE}"))
    }

    fn path_of(&self, name: &str) -> Result<PathBuf, StateError> {
        let is_below = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !is_below {
            return Err(problem(format!("`{name}` is not a valid name in the state folder"), ""));
        }
        Ok(self.root.join(name))
    }

    fn create_folder(&self, path: &Path) -> Result<(), StateError> {
        if path == self.root || path.is_dir() {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(&self.root);
        self.create_folder(parent)?;
        create_folder(path).map_err(|error| failed("create", path, &error))
    }

    /// Removes generations that no link leads to, except the previous one: a crash came before the switch to a later
    /// generation, or before the removal of an older one.
    fn remove_unused_generations(&self) -> Result<(), StateError> {
        let generations = self.root.join(GENERATIONS);
        for (path, _) in entries(&generations).map_err(|error| failed("read", &generations, &error))? {
            let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('-'));
            let current = name.and_then(|(name, _)| fs::read_link(self.root.join(CERTIFICATES).join(name)).ok());
            let is_kept = |current: u64| (current.saturating_sub(1)..=current).contains(&generation_of(&path));
            if !current.is_some_and(|current| is_kept(generation_of(&current))) {
                remove_folder(&path).map_err(|error| failed("remove", &path, &error))?;
            }
        }
        Ok(())
    }
}

/// Removes unfinished files that a crash has left in the folder at `path`, and in folders below with these names.
pub fn remove_unfinished(path: &Path, is_own: fn(&str) -> bool) -> Result<(), StateError> {
    let found = match entries(path) {
        // A folder of another user, or without the mode bits of its owner, affects only its own content.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(()),
        found => found.map_err(|error| failed("read", path, &error))?,
    };
    for (path, is_folder) in found {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if is_folder && is_own(name) {
            remove_unfinished(&path, |_| true)?;
        } else if !is_folder && name.starts_with(TEMPORARY) {
            remove_file(&path).map_err(|error| failed("remove", &path, &error))?;
        }
    }
    Ok(())
}

/// The number at the end of the name of a generation; 0 if there is none.
fn generation_of(path: &Path) -> u64 {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.rsplit_once('-')?.1.parse().ok()).unwrap_or(0)
}

/// The paths in a folder, and whether each is a folder itself.
fn entries(folder: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
    fs::read_dir(folder)?.map(|entry| entry.and_then(|entry| Ok((entry.path(), entry.file_type()?.is_dir())))).collect()
}

/// Gives the file at `path` this content. Only its owner may read it. Only one process at a time may write the file.
pub fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).expect("names are text");
    let temporary = path.with_file_name(format!("{TEMPORARY}{name}"));
    remove_file(&temporary)?;
    UnfinishedFile::create(&temporary).and_then(|mut file| {
        file.write_all(content)?;
        file.finish(path)
    })
}

/// Removes the file at `path`, if it exists, so that it stays removed after a crash.
pub fn remove_durably(path: &Path) -> io::Result<()> {
    remove_file(path)?;
    flush_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Creates the folder at `path`, which only its owner may read, in a folder that exists.
pub fn create_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => flush_folder(path.parent().unwrap_or(Path::new("."))),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn flush_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn remove_file(path: &Path) -> io::Result<()> {
    absent_is_ok(fs::remove_file(path))
}

fn remove_folder(path: &Path) -> io::Result<()> {
    absent_is_ok(fs::remove_dir_all(path))
}

fn absent_is_ok(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests;
