//! The files that are open, shared by all workers: a path below a site's root becomes a file that can be sent at once.
//!
//! An entry is immutable. It holds the descriptor, the facts that the kernel told of it, and the representation made of
//! them; of a small file also its content, read between two equal tellings of its facts. An entry that is found to be
//! out of date is retired and another one takes its place, so what is being sent from it stays one version.

use crate::clock::Milliseconds;
use crate::content::{BuiltinFile, Root, Site};
use os::failure::Cause;
use os::file::{File, Kind};
use sanderling_http::{Facts, Representation, SitePath, Time, media_type};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use table::{Held, Refused, Table};

/// Bounds of the cache.
#[derive(Clone, Copy, Debug)]
pub struct OpenFilesOptions {
    /// Files open at once, in the whole process.
    pub files_max: usize,
    /// Octets of the largest file that is kept in memory, to be sent together with its head.
    pub small_file_bytes_max: u64,
    /// How long an entry is used before the file system is asked again.
    pub fresh_ms: u64,
}

impl Default for OpenFilesOptions {
    fn default() -> OpenFilesOptions {
        OpenFilesOptions { files_max: 4_096, small_file_bytes_max: 8 * 1024, fresh_ms: 1_000 }
    }
}

/// What an entry is found by: the path, and behind it the site's id.
pub(crate) type FileKey = Vec<u8>;

/// A file, open or in memory.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) representation: Representation,
    pub(crate) body: Body,
    facts: Option<os::file::Facts>,
    checked_ms: AtomicU64,
}

/// Where the content of a file is.
#[derive(Debug)]
pub(crate) enum Body {
    /// In memory, whole.
    Memory(Box<[u8]>),
    /// In the program itself.
    Builtin(&'static [u8]),
    /// Behind a descriptor.
    Descriptor(File),
}

/// What stands at a path, other than a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoFile {
    /// A folder, asked for without a slash behind it.
    Folder,
    /// Nothing, or nothing that is served: a FIFO, a link that leads out.
    Missing,
    /// A file or folder that the server may not read.
    Forbidden,
    /// No descriptors are left, even after others were given back.
    Busy,
    /// The file system failed.
    Failed,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    table: Table<FileKey, OpenFile>,
    options: OpenFilesOptions,
}

/// The file that stands for a folder.
const INDEX: &[u8] = b"index.html";
/// How often a small file is read that changes under the reading.
const READS_MAX: usize = 3;
/// Entries retired at once when there are too many.
const EVICTED_COUNT: usize = 32;

impl OpenFiles {
    pub(crate) fn new(options: OpenFilesOptions) -> OpenFiles {
        OpenFiles { table: Table::new(options.files_max.min(table::CAPACITY_MAX)), options }
    }

    pub(crate) fn table(&self) -> &Table<FileKey, OpenFile> {
        &self.table
    }

    /// Whether the file system must be asked before the entry is used.
    #[inline]
    pub(crate) fn is_stale(&self, file: &OpenFile, now_ms: Milliseconds) -> bool {
        file.facts.is_some() && now_ms.saturating_sub(file.checked_ms.load(Ordering::Relaxed)) > self.options.fresh_ms
    }

    /// Asks the file system again: the entry goes on if nothing has changed, and another takes its place otherwise.
    pub(crate) fn refresh<'t>(
        &'t self,
        site: &Site,
        path: &SitePath<'_>,
        key: &[u8],
        old: &Held<'t, FileKey, OpenFile>,
        now: Now,
    ) -> Result<Held<'t, FileKey, OpenFile>, NoFile> {
        let found = self.find(site, path, now);
        if let Ok(new) = &found
            && new.facts == old.facts
        {
            old.checked_ms.store(now.ms, Ordering::Relaxed);
            return Ok(old.clone());
        }
        self.table.retire_held(old);
        self.publish(key, found?)
    }

    /// Opens the file and lends it to all workers.
    pub(crate) fn open(
        &self,
        site: &Site,
        path: &SitePath<'_>,
        key: &[u8],
        now: Now,
    ) -> Result<Held<'_, FileKey, OpenFile>, NoFile> {
        let file = match self.find(site, path, now) {
            Err(NoFile::Busy) => {
                // Descriptors that the cache holds are the ones that can be spared.
                self.table.retire_where(EVICTED_COUNT, |_, _| true);
                self.find(site, path, now)
            }
            found => found,
        };
        self.publish(key, file?)
    }

    fn publish(&self, key: &[u8], file: OpenFile) -> Result<Held<'_, FileKey, OpenFile>, NoFile> {
        match self.table.insert(key.to_vec(), file) {
            Ok(held) | Err(Refused::Lent { winner: held, .. }) => Ok(held),
            Err(Refused::Full(full)) => {
                self.table.retire_where(EVICTED_COUNT, |_, _| true);
                match self.table.insert(full.key, full.value) {
                    Ok(held) | Err(Refused::Lent { winner: held, .. }) => Ok(held),
                    Err(Refused::Full(_)) => Err(NoFile::Busy),
                }
            }
        }
    }

    fn find(&self, site: &Site, path: &SitePath<'_>, now: Now) -> Result<OpenFile, NoFile> {
        match &site.root {
            Root::Builtin(files) => find_builtin(files, path, now),
            Root::Folder(root) if path.ends_with_slash() => {
                let mut index = path.as_bytes().to_vec();
                if !index.is_empty() {
                    index.push(b'/');
                }
                index.extend_from_slice(INDEX);
                match self.find_beneath(root, &index, INDEX, now) {
                    // A folder of that name is no page.
                    Err(NoFile::Folder) => Err(NoFile::Missing),
                    found => found,
                }
            }
            Root::Folder(root) => self.find_beneath(root, path.as_bytes(), path.file_name(), now),
        }
    }

    fn find_beneath(
        &self,
        root: &os::directory::Directory,
        path: &[u8],
        file_name: &[u8],
        now: Now,
    ) -> Result<OpenFile, NoFile> {
        let file = match root.open_beneath_cached(path) {
            Ok(Some(file)) => Ok(file),
            Ok(None) => root.open_beneath(path),
            Err(error) => Err(error),
        };
        let file = file.map_err(|error| no_file(&error))?;
        let mut facts = file.facts().map_err(|error| no_file(&error))?;
        match facts.kind {
            Kind::Regular => {}
            Kind::Folder => return Err(NoFile::Folder),
            Kind::Other => return Err(NoFile::Missing),
        }
        let body = if facts.length_bytes <= self.options.small_file_bytes_max {
            Body::Memory(read_whole(&file, &mut facts)?)
        } else {
            Body::Descriptor(file)
        };
        Ok(OpenFile {
            representation: Representation::new(&facts_for_http(&facts), media_type(file_name), b"", now.unix_s),
            body,
            facts: Some(facts),
            checked_ms: AtomicU64::new(now.ms),
        })
    }
}

/// The time of the turn in which a file is looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) ms: Milliseconds,
    pub(crate) unix_s: u64,
}

impl OpenFile {
    /// Whether the file is still what it was when it was opened, as far as its descriptor tells.
    pub(crate) fn is_unchanged(&self) -> bool {
        match (&self.body, &self.facts) {
            (Body::Descriptor(file), Some(before)) => file.facts().is_ok_and(|now| {
                // A file that was renamed or unlinked meanwhile is still the version that was begun with.
                (now.length_bytes, now.modified) == (before.length_bytes, before.modified)
            }),
            _ => true,
        }
    }
}

/// Reads a small file whole, as one version: the facts before and after are the same.
fn read_whole(file: &File, facts: &mut os::file::Facts) -> Result<Box<[u8]>, NoFile> {
    for _ in 0..READS_MAX {
        let mut content = vec![0; facts.length_bytes as usize];
        let read = file.read_at(&mut content, 0).map_err(|error| no_file(&error))?;
        let after = file.facts().map_err(|error| no_file(&error))?;
        if after == *facts && read == content.len() {
            return Ok(content.into_boxed_slice());
        }
        *facts = after;
    }
    Err(NoFile::Busy)
}

fn find_builtin(files: &[BuiltinFile], path: &SitePath<'_>, now: Now) -> Result<OpenFile, NoFile> {
    let mut wanted = path.as_bytes().to_vec();
    if path.ends_with_slash() {
        if !wanted.is_empty() {
            wanted.push(b'/');
        }
        wanted.extend_from_slice(INDEX);
    }
    let Some(file) = files.iter().find(|file| file.path.as_bytes() == wanted) else {
        wanted.push(b'/');
        let is_folder = files.iter().any(|file| file.path.as_bytes().starts_with(&wanted));
        return Err(if is_folder { NoFile::Folder } else { NoFile::Missing });
    };
    // The content itself tells its versions apart, since there is no file that could.
    let mark = file.bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |mark, &octet| {
        (mark ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3)
    });
    let facts =
        Facts { length_bytes: file.bytes.len() as u64, modified: Time::default(), changed: Time::default(), device: 0, inode: mark };
    Ok(OpenFile {
        representation: Representation::new(&facts, media_type(file.path.as_bytes()), b"", now.unix_s),
        body: Body::Builtin(file.bytes),
        facts: None,
        checked_ms: AtomicU64::new(now.ms),
    })
}

fn facts_for_http(facts: &os::file::Facts) -> Facts {
    let time = |moment: os::file::Timestamp| Time { unix_s: moment.seconds, nanos: moment.nanoseconds };
    Facts {
        length_bytes: facts.length_bytes,
        modified: time(facts.modified),
        changed: time(facts.changed),
        device: facts.device,
        inode: facts.inode,
    }
}

/// What a failed look-up means to who asked.
fn no_file(error: &io::Error) -> NoFile {
    match os::failure::cause(error) {
        Cause::Missing => NoFile::Missing,
        Cause::Forbidden => NoFile::Forbidden,
        Cause::Exhausted => NoFile::Busy,
        Cause::Other => NoFile::Failed,
    }
}
