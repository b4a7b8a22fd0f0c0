//! A file that can be sent at once, in each form that it is kept in: the facts, the representation made of them, and the
//! content or its descriptor.
//!
//! A response is one version of a file. What is kept in memory was read between two equal tellings of its facts; what
//! is sent from a descriptor is compared with them when it has been sent.

use crate::clock::Milliseconds;
use os::failure::Cause;
use os::file::{File, Kind};
use sanderling_http::{Coding, Facts, Fields, Representation, Time, Variant, choose_coding};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// How long after a change of a file nobody reads it. The times of a file change when a write begins: what is read
/// before it has ended is a mixture, with nothing to tell it by. A write of some megabytes takes a few milliseconds.
const SETTLING: Duration = Duration::from_millis(20);
/// How often a small file is read that changes under the reading.
const READS_MAX: usize = 3;

/// What an entry is found by: the path that was asked for, with the slash at its end if it has one, and behind it the
/// site's id.
pub(crate) type FileKey = Vec<u8>;

/// A file, open or in memory, with what is beside it in other codings: one entry, so that one look-up finds them all.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file as it is.
    plain: Form,
    /// The same in codings, each of them a file beside it. Most files have none.
    coded: Box<[(Coding, Form)]>,
    /// When the file system was last asked.
    checked_ms: AtomicU64,
    /// Somebody tells when it changes.
    is_watched: AtomicBool,
    /// Watching the folders of its path would not tell all: some of it was reached through a link, or could not be
    /// taken yet.
    hides_changes: bool,
}

/// A file in one coding.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) representation: Representation,
    pub(crate) body: Body,
    /// What the file system told; of a file in the program itself there is nothing to tell.
    facts: Option<os::file::Facts>,
    holding: Holding,
}

/// One version of a file on disk: what it holds, and the facts that are true of that.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) facts: os::file::Facts,
    body: Body,
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

impl Body {
    /// The content, if it is in memory.
    #[inline]
    pub(crate) fn in_memory(&self) -> Option<&[u8]> {
        match self {
            Body::Memory(content) => Some(content),
            Body::Builtin(content) => Some(content),
            Body::Descriptor(_) => None,
        }
    }
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
    /// How often it was begun before, and came to no end.
    pub(crate) try_count: u8,
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

impl OpenFile {
    pub(crate) fn new(plain: Form, coded: Vec<(Coding, Form)>, hides_changes: bool, look: Look) -> OpenFile {
        OpenFile {
            plain,
            coded: coded.into_boxed_slice(),
            checked_ms: AtomicU64::new(look.now_ms),
            is_watched: AtomicBool::new(false),
            hides_changes,
        }
    }

    /// The coding that the sender of `fields` likes best of those that the file is there in.
    #[inline]
    pub(crate) fn coding_for(&self, fields: &Fields<'_>) -> Coding {
        if self.coded.is_empty() {
            return Coding::Identity;
        }
        choose_coding(fields, self.coded.iter().map(|(coding, _)| *coding))
    }

    /// The file in `coding`; as it is where there is no such form.
    #[inline]
    pub(crate) fn form(&self, coding: Coding) -> &Form {
        self.coded.iter().find(|(own, _)| *own == coding).map_or(&self.plain, |(_, form)| form)
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

    /// The same for who has just counted a change ([`crate::watches::Watches::seen_count`]): in one order with
    /// [`OpenFile::note_watched`] and that count.
    pub(crate) fn is_watched_by_now(&self) -> bool {
        self.is_watched.load(Ordering::SeqCst)
    }

    /// From now on somebody tells, or no longer does.
    pub(crate) fn note_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// Octets of content that it keeps in memory.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.forms().map(|form| form.holding.content_bytes).sum()
    }

    /// Descriptors that it keeps open.
    pub(crate) fn descriptor_count(&self) -> u64 {
        self.forms().map(|form| form.holding.descriptors).sum()
    }

    fn forms(&self) -> impl Iterator<Item = &Form> {
        std::iter::once(&self.plain).chain(self.coded.iter().map(|(_, form)| form))
    }

    /// Whether the file system has anything to say about it.
    #[inline]
    pub(crate) fn can_change(&self) -> bool {
        self.plain.facts.is_some()
    }

    /// Whether both are the same version of the same file, in the same forms.
    pub(crate) fn is_same_as(&self, other: &OpenFile) -> bool {
        let coded_facts = |(coding, form): &(Coding, Form)| (*coding, form.facts);
        self.plain.facts == other.plain.facts
            && self.coded.iter().map(coded_facts).eq(other.coded.iter().map(coded_facts))
            && self.hides_changes == other.hides_changes
    }

    /// Whether a form of the file has no name any more: its descriptor keeps its blocks on the disk.
    pub(crate) fn is_deleted(&self) -> bool {
        self.forms().any(Form::is_deleted)
    }

    /// Whether watching the folders of its path tells of every change.
    pub(crate) fn can_be_watched(&self) -> bool {
        self.can_change() && !self.hides_changes
    }
}

impl Form {
    /// What is sent of a file on disk. `variant` says in which coding it is; `media_type` is that of its content
    /// without it.
    pub(crate) fn new(version: Version, media_type: &str, variant: Variant, look: Look, gauges: &Arc<Gauges>) -> Form {
        let Version { facts, body } = version;
        let representation = Representation::new(&facts_for_http(&facts), media_type, variant, b"", look.unix_s);
        let holding = match &body {
            Body::Memory(content) => Holding::new(gauges, 0, content.len() as u64),
            Body::Descriptor(_) => Holding::new(gauges, 1, 0),
            Body::Builtin(_) => Holding::new(gauges, 0, 0),
        };
        Form { representation, body, facts: Some(facts), holding }
    }

    /// What is sent of a file in the program itself.
    pub(crate) fn builtin(content: &'static [u8], representation: Representation, gauges: &Arc<Gauges>) -> Form {
        Form { representation, body: Body::Builtin(content), facts: None, holding: Holding::new(gauges, 0, 0) }
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

    fn is_deleted(&self) -> bool {
        match &self.body {
            Body::Descriptor(file) => file.facts().is_ok_and(|facts| facts.link_count == 0),
            _ => false,
        }
    }
}

impl Version {
    /// The version of `file` that is there now: small ones are read.
    pub(crate) fn take(file: File, look: Look, patience: Patience) -> Result<Result<Version, NoFile>, Unready> {
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
        if facts.length_bytes > look.small_file_bytes_max {
            return Ok(Ok(Version { facts, body: Body::Descriptor(file) }));
        }
        read_whole(&file, facts, look.small_file_bytes_max, patience)
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
                return Ok(Ok(Version { facts, body: Body::Memory(content.into_boxed_slice()) }));
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
pub(crate) fn no_file(error: &io::Error) -> NoFile {
    match os::failure::cause(error) {
        Cause::Missing => NoFile::Missing,
        Cause::Forbidden => NoFile::Forbidden,
        Cause::Exhausted => NoFile::Busy,
        Cause::Other => NoFile::Failed,
    }
}
