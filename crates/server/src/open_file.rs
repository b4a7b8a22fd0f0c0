//! A file that can be sent at once: its facts, the representation made of them, and its content or its descriptor.
//!
//! A response is one version of a file. What is kept in memory was read between two equal tellings of its facts; what
//! is sent from a descriptor is compared with them when it has been sent.

use crate::clock::Milliseconds;
use crate::content::{BuiltinFile, Root, Site};
use os::directory::Directory;
use os::failure::Cause;
use os::file::{File, Kind};
use sanderling_http::{Facts, Representation, SitePath, Time, Variant, media_type};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The file that stands for a folder.
const INDEX: &[u8] = b"index.html";
/// How long after a change of a file nobody reads it. The times of a file change when a write begins: what is read
/// before it has ended is a mixture, with nothing to tell it by. A write of some megabytes takes a few milliseconds.
const SETTLING: Duration = Duration::from_millis(20);
/// How often a small file is read that changes under the reading.
const READS_MAX: usize = 3;

/// What an entry is found by: the path that was asked for, with the slash at its end if it has one, and behind it the
/// site's id.
pub(crate) type FileKey = Vec<u8>;

/// A file, open or in memory.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) representation: Representation,
    pub(crate) body: Body,
    /// What the file system told; of a file in the program itself there is nothing to tell.
    facts: Option<os::file::Facts>,
    /// When the file system was last asked.
    checked_ms: AtomicU64,
    /// Somebody tells when it changes.
    is_watched: AtomicBool,
    /// It was reached through a link, so that watching the folders of its path would not tell all.
    has_links_on_its_way: bool,
    _holding: Holding,
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

/// What all open files take together.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) descriptors: AtomicU64,
    pub(crate) content_bytes: AtomicU64,
}

/// A file that is looked for: what was asked, and what that means beneath the site's root.
#[derive(Clone, Debug)]
pub(crate) struct Sought {
    pub(crate) site: Arc<Site>,
    pub(crate) key: FileKey,
    /// Relative to the root.
    pub(crate) path: Vec<u8>,
    /// A slash stood behind the path: it is a folder's index that is looked for.
    is_index: bool,
}

/// How long a look for a file may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Only what is in memory: the worker has other connections to serve.
    None,
    /// As long as the file system needs.
    Any,
}

/// The moment of a look, and the bounds that it works within.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) now_ms: Milliseconds,
    pub(crate) unix_s: u64,
    pub(crate) small_file_bytes_max: u64,
}

/// Why a look has come to no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unready {
    /// The file system would have to wait for a disk.
    WouldWait,
    /// The file has been changed just now, and whoever does that may not have ended: look again after this time.
    Settling(Duration),
}

impl Unready {
    /// How long to wait before the next look, at least.
    pub(crate) fn delay(self) -> Duration {
        match self {
            Unready::WouldWait => Duration::ZERO,
            Unready::Settling(left) => left,
        }
    }
}

impl Sought {
    pub(crate) fn new(site: &Arc<Site>, path: &SitePath<'_>, key: &[u8]) -> Sought {
        let mut file_path = path.as_bytes().to_vec();
        if path.ends_with_slash() {
            if !file_path.is_empty() {
                file_path.push(b'/');
            }
            file_path.extend_from_slice(INDEX);
        }
        Sought { site: Arc::clone(site), key: key.to_vec(), path: file_path, is_index: path.ends_with_slash() }
    }

    /// The folder that the file is in, relative to the root; empty for the root itself.
    pub(crate) fn folder(&self) -> &[u8] {
        let end = self.path.iter().rposition(|&octet| octet == b'/').unwrap_or(0);
        &self.path[..end]
    }

    /// Whether the file system has to be asked for it.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.site.root, Root::Folder(_))
    }

    /// Looks for the file.
    pub(crate) fn find(
        &self,
        look: Look,
        patience: Patience,
        gauges: &Arc<Gauges>,
    ) -> Result<Result<OpenFile, NoFile>, Unready> {
        let found = match &self.site.root {
            Root::Builtin(files) => Ok(find_builtin(files, &self.path, look, gauges)),
            Root::Folder(root) => self.find_beneath(root, look, patience, gauges),
        }?;
        Ok(match found {
            // A folder that is called index.html is no page.
            Err(NoFile::Folder) if self.is_index => Err(NoFile::Missing),
            found => found,
        })
    }

    fn find_beneath(
        &self,
        root: &Directory,
        look: Look,
        patience: Patience,
        gauges: &Arc<Gauges>,
    ) -> Result<Result<OpenFile, NoFile>, Unready> {
        let opened = match root.open_beneath_cached(&self.path) {
            Ok(Some(file)) => Ok(file),
            Err(error) => Err(error),
            Ok(None) if patience == Patience::None => return Err(Unready::WouldWait),
            Ok(None) => root.open_beneath(&self.path),
        };
        let file = match opened {
            Ok(file) => file,
            Err(error) => return Ok(Err(no_file(&error))),
        };
        let facts = match file.facts() {
            Ok(facts) => facts,
            Err(error) => return Ok(Err(no_file(&error))),
        };
        match facts.kind {
            Kind::Regular => {}
            Kind::Folder => return Ok(Err(NoFile::Folder)),
            Kind::Other => return Ok(Err(NoFile::Missing)),
        }
        if let Some(left) = left_to_settle(&facts) {
            return Err(Unready::Settling(left));
        }
        let has_links_on_its_way = !file.real_path().is_ok_and(|real| is_beneath(&real, root, &self.path));
        let (facts, body) = if facts.length_bytes > look.small_file_bytes_max {
            (facts, Body::Descriptor(file))
        } else {
            match read_whole(&file, facts, look.small_file_bytes_max, patience)? {
                Ok((facts, content)) => (facts, Body::Memory(content)),
                Err(no_file) => return Ok(Err(no_file)),
            }
        };
        let name = &self.path[self.path.iter().rposition(|&octet| octet == b'/').map_or(0, |slash| slash + 1)..];
        let representation =
            Representation::new(&facts_for_http(&facts), media_type(name), Variant::Only, b"", look.unix_s);
        Ok(Ok(OpenFile { has_links_on_its_way, ..OpenFile::new(representation, body, Some(facts), look, gauges) }))
    }
}

impl OpenFile {
    fn new(
        representation: Representation,
        body: Body,
        facts: Option<os::file::Facts>,
        look: Look,
        gauges: &Arc<Gauges>,
    ) -> OpenFile {
        let holding = match &body {
            Body::Memory(content) => Holding::new(gauges, 0, content.len() as u64),
            Body::Descriptor(_) => Holding::new(gauges, 1, 0),
            Body::Builtin(_) => Holding::new(gauges, 0, 0),
        };
        OpenFile {
            representation,
            body,
            facts,
            checked_ms: AtomicU64::new(look.now_ms),
            is_watched: AtomicBool::new(false),
            has_links_on_its_way: false,
            _holding: holding,
        }
    }

    /// When the file system was last asked: which also tells, within the time that an answer is good for, when the
    /// file was last used.
    #[inline]
    pub(crate) fn checked_ms(&self) -> Milliseconds {
        self.checked_ms.load(Ordering::Relaxed)
    }

    /// The file system was asked, and nothing has changed.
    pub(crate) fn note_checked(&self, now_ms: Milliseconds) {
        self.checked_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether somebody tells when it changes.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// From now on somebody tells, or no longer does.
    pub(crate) fn note_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Relaxed);
    }

    /// Whether the file system has anything to say about it.
    #[inline]
    pub(crate) fn can_change(&self) -> bool {
        self.facts.is_some()
    }

    /// Whether both are the same version of the same file.
    pub(crate) fn is_same_as(&self, other: &OpenFile) -> bool {
        self.facts == other.facts
    }

    /// Whether the file has been left alone for so long that nobody is likely to be writing it now.
    pub(crate) fn is_settled(&self, unix_s: u64, settled_after: Duration) -> bool {
        let Some(facts) = &self.facts else { return true };
        let changed_s = facts.modified.seconds.max(facts.changed.seconds);
        // A time that is yet to come tells nothing.
        u64::try_from(changed_s).is_ok_and(|changed_s| changed_s + settled_after.as_secs() <= unix_s)
    }

    /// Whether the file is still the version that was begun with, as far as its descriptor tells. One that was renamed
    /// or unlinked meanwhile is.
    pub(crate) fn is_unchanged(&self) -> bool {
        let (Body::Descriptor(file), Some(before)) = (&self.body, &self.facts) else { return true };
        file.facts().is_ok_and(|now| {
            // The time of the inode changes with the number of its names as well, which is no change of the content.
            let may_be_renamed = now.link_count != before.link_count;
            (now.length_bytes, now.modified) == (before.length_bytes, before.modified)
                && (now.changed == before.changed || may_be_renamed)
        })
    }

    /// Whether the file has no name any more: its descriptor keeps its blocks on the disk.
    pub(crate) fn is_deleted(&self) -> bool {
        match &self.body {
            Body::Descriptor(file) => file.facts().is_ok_and(|facts| facts.link_count == 0),
            _ => false,
        }
    }

    /// Whether watching the folders of its path tells of every change.
    pub(crate) fn can_be_watched(&self) -> bool {
        self.facts.is_some() && !self.has_links_on_its_way
    }
}

/// What one file takes, counted as long as it is there.
#[derive(Debug)]
struct Holding {
    gauges: Arc<Gauges>,
    descriptors: u64,
    content_bytes: u64,
}

impl Holding {
    fn new(gauges: &Arc<Gauges>, descriptors: u64, content_bytes: u64) -> Holding {
        gauges.descriptors.fetch_add(descriptors, Ordering::Relaxed);
        gauges.content_bytes.fetch_add(content_bytes, Ordering::Relaxed);
        Holding { gauges: Arc::clone(gauges), descriptors, content_bytes }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.gauges.descriptors.fetch_sub(self.descriptors, Ordering::Relaxed);
        self.gauges.content_bytes.fetch_sub(self.content_bytes, Ordering::Relaxed);
    }
}

/// Whether `real` is where `path` beneath `root` leads if no link is on the way.
fn is_beneath(real: &Path, root: &Directory, path: &[u8]) -> bool {
    real.strip_prefix(root.real_path()).is_ok_and(|rest| rest.as_os_str().as_bytes() == path)
}

/// The whole of a file, and the facts that were true of it while it was read.
type Version = (os::file::Facts, Box<[u8]>);

/// Reads a small file whole, as one version: the facts before and after are the same.
fn read_whole(
    file: &File,
    mut facts: os::file::Facts,
    length_bytes_max: u64,
    patience: Patience,
) -> Result<Result<Version, NoFile>, Unready> {
    for _ in 0..READS_MAX {
        let mut content = vec![0; facts.length_bytes as usize];
        let read = match file.read_at_cached(&mut content, 0) {
            Ok(Some(read)) => Ok(read),
            Err(error) => Err(error),
            Ok(None) if patience == Patience::None => return Err(Unready::WouldWait),
            Ok(None) => file.read_at(&mut content, 0),
        };
        let after = match (read, file.facts()) {
            (Err(error), _) | (_, Err(error)) => return Ok(Err(no_file(&error))),
            (Ok(read), Ok(after)) if after == facts && read == content.len() => {
                return Ok(Ok((facts, content.into_boxed_slice())));
            }
            (_, Ok(after)) => after,
        };
        if after.length_bytes > length_bytes_max {
            break;
        }
        facts = after;
    }
    // Somebody writes it again and again; the client may come again as well.
    Ok(Err(NoFile::Busy))
}

/// How long to wait until the last change of a file is over; `None` when it is.
fn left_to_settle(facts: &os::file::Facts) -> Option<Duration> {
    let changed = facts.modified.max(facts.changed);
    let changed = Duration::new(u64::try_from(changed.seconds).ok()?, changed.nanoseconds);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    // A change that is yet to come is one of another clock, and says nothing.
    SETTLING.checked_sub(now.checked_sub(changed)?).filter(|left| !left.is_zero())
}

fn find_builtin(
    files: &'static [BuiltinFile],
    path: &[u8],
    look: Look,
    gauges: &Arc<Gauges>,
) -> Result<OpenFile, NoFile> {
    let Some(file) = files.iter().find(|file| file.path.as_bytes() == path) else {
        let is_below =
            |file: &&BuiltinFile| file.path.as_bytes().strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
        return Err(if files.iter().any(|file| is_below(&file)) { NoFile::Folder } else { NoFile::Missing });
    };
    // The content itself tells its versions apart, since there is no file that could: FNV-1a, 64 bits.
    let mark = file
        .bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |mark, &octet| (mark ^ u64::from(octet)).wrapping_mul(0x0100_0000_01b3));
    let facts = Facts {
        length_bytes: file.bytes.len() as u64,
        modified: Time::default(),
        changed: Time::default(),
        device: 0,
        inode: mark,
    };
    let representation = Representation::new(&facts, media_type(path), Variant::Only, b"", look.unix_s);
    Ok(OpenFile::new(representation, Body::Builtin(file.bytes), None, look, gauges))
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
