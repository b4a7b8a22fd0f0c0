//! A file that can be sent at once, in each form that it is kept in: the facts, the representation made of them, and the
//! content or its descriptor.
//!
//! A response is one version of a file. What is kept in memory was read between two equal tellings of its facts; what
//! is sent from a descriptor is compared with them when it has been sent.

use crate::clock::Milliseconds;
use sanderling_http::{ContentCoding, Fields, FileMetadata, FileTime, Negotiation, Representation, negotiate_coding};
use sanderling_os::error::ErrorClass;
use sanderling_os::file::{File, FileType};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// How long after a change of a file nobody reads it. The times of a file change when a write begins: what is read
/// before it has ended is a mixture, with nothing to tell it by. A write of some megabytes takes a few milliseconds.
const SETTLING: Duration = Duration::from_millis(20);

/// What an entry is found by: the path that was asked for, with the slash at its end if it has one, and behind it the
/// site's id.
pub(crate) type FileKey = Vec<u8>;

/// A file, open or in memory, with what is beside it in other codings: one entry, so that one look-up finds them all.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file as it is.
    plain: Form,
    /// The same in codings, each of them a file beside it. Most files have none.
    coded: Box<[(ContentCoding, Form)]>,
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
    facts: Option<sanderling_os::file::Metadata>,
    holding: Holding,
}

/// A file on disk that is open and has not been read.
#[derive(Debug)]
pub(crate) struct Examined {
    pub(crate) file: File,
    pub(crate) facts: sanderling_os::file::Metadata,
}

/// Where the content of a file is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In memory.
    Memory,
    /// Where it is, behind its descriptor.
    Descriptor,
}

/// What one entry may take, of what all of them may together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Octets of the largest file that is kept in memory.
    pub(crate) small_file_bytes_max: u64,
    /// Octets of content in memory.
    pub(crate) content_bytes: u64,
    /// Descriptors.
    pub(crate) descriptors: u64,
}

/// One version of a file on disk: what it holds, and the facts that are true of that.
#[derive(Debug)]
pub(crate) struct Version {
    facts: sanderling_os::file::Metadata,
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
    pub(crate) room: Room,
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
    pub(crate) fn new(plain: Form, coded: Vec<(ContentCoding, Form)>, hides_changes: bool, look: Look) -> OpenFile {
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
    pub(crate) fn coding_for(&self, fields: &Fields<'_>) -> ContentCoding {
        if self.coded.is_empty() {
            return ContentCoding::Identity;
        }
        negotiate_coding(fields, self.coded.iter().map(|(coding, _)| *coding))
    }

    /// The file in `coding`; as it is where there is no such form.
    #[inline]
    pub(crate) fn form(&self, coding: ContentCoding) -> &Form {
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

    /// Whether it is the version of these facts, in these forms.
    pub(crate) fn has_facts<'f>(
        &self,
        plain: &'f sanderling_os::file::Metadata,
        coded: impl Iterator<Item = (ContentCoding, &'f sanderling_os::file::Metadata)>,
    ) -> bool {
        let own = self.coded.iter().map(|(coding, form)| (*coding, form.facts.as_ref()));
        self.plain.facts.as_ref() == Some(plain) && own.eq(coded.map(|(coding, facts)| (coding, Some(facts))))
    }

    /// Whether watching the folders of its path would not tell of every change.
    pub(crate) fn hides_changes(&self) -> bool {
        self.hides_changes
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
    pub(crate) fn new(
        version: Version,
        media_type: &str,
        variant: Negotiation,
        look: Look,
        gauges: &Arc<Gauges>,
    ) -> Form {
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

    /// Whether the file is still the version that was begun with, as far as its descriptor tells. One that was unlinked, or
    /// got one more name, is; one that was renamed or whose mode was changed is not, since that looks like a write whose
    /// time was set back.
    pub(crate) fn is_unchanged(&self) -> bool {
        let (Body::Descriptor(file), Some(before)) = (&self.body, &self.facts) else { return true };
        file.metadata().is_ok_and(|now| {
            // The time of the inode changes with the number of its names as well, which is no change of the content.
            let has_other_names = now.link_count != before.link_count;
            (now.length_bytes, now.modified) == (before.length_bytes, before.modified)
                && (now.changed == before.changed || has_other_names)
        })
    }

    fn is_deleted(&self) -> bool {
        match &self.body {
            Body::Descriptor(file) => file.metadata().is_ok_and(|facts| facts.link_count == 0),
            _ => false,
        }
    }
}

impl Examined {
    /// The facts of `file`, which has been left alone for long enough to be read.
    pub(crate) fn of(file: File) -> Result<Result<Examined, NoFile>, Unready> {
        let facts = match file.metadata() {
            Ok(facts) => facts,
            Err(error) => return Ok(Err(no_file(&error))),
        };
        match facts.file_type {
            FileType::Regular => {}
            FileType::Directory => return Ok(Err(NoFile::Folder)),
            FileType::Other => return Ok(Err(NoFile::Missing)),
        }
        match left_to_settle(&facts) {
            Some(left) => Err(Unready::Settling(left)),
            None => Ok(Ok(Examined { file, facts })),
        }
    }

    /// The version that was seen, kept in `place`.
    pub(crate) fn take(self, place: Place, patience: Patience) -> Result<Result<Version, NoFile>, Unready> {
        let Examined { file, facts } = self;
        match place {
            Place::Memory => read_whole(&file, facts, patience),
            Place::Descriptor => Ok(Ok(Version { facts, body: Body::Descriptor(file) })),
        }
    }
}

impl Room {
    /// Where a content of this length is kept, which the room is less by then; `None` when there is no room for it. What
    /// is larger than all that may be in memory together is not kept there.
    pub(crate) fn place(&mut self, length_bytes: u64) -> Option<Place> {
        if length_bytes <= self.small_file_bytes_max.min(self.content_bytes) {
            self.content_bytes -= length_bytes;
            return Some(Place::Memory);
        }
        self.descriptors = self.descriptors.checked_sub(1)?;
        Some(Place::Descriptor)
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

/// Reads a file whole, as the version that the facts are true of: they are the same behind the reading.
fn read_whole(
    file: &File,
    facts: sanderling_os::file::Metadata,
    patience: Patience,
) -> Result<Result<Version, NoFile>, Unready> {
    let mut content = vec![0; facts.length_bytes as usize];
    let read = match file.read_at_cached(&mut content, 0) {
        Ok(Some(read)) => Ok(read),
        Err(error) => Err(error),
        Ok(None) if patience == Patience::None => return Err(Unready::WouldWait),
        Ok(None) => file.read_at(&mut content, 0),
    };
    match (read, file.metadata()) {
        (Err(error), _) | (_, Err(error)) => Ok(Err(no_file(&error))),
        (Ok(_), Ok(after)) if after != facts => Err(Unready::Settling(SETTLING)),
        // A file whose length is none: what a driver or a program makes up while it is read.
        (Ok(read), Ok(_)) if read != content.len() => Ok(Err(NoFile::Failed)),
        (Ok(_), Ok(_)) => Ok(Ok(Version { facts, body: Body::Memory(content.into_boxed_slice()) })),
    }
}

/// How long to wait until the last change of a file is over; `None` when it is.
fn left_to_settle(facts: &sanderling_os::file::Metadata) -> Option<Duration> {
    let changed = facts.modified.max(facts.changed);
    let changed = Duration::new(u64::try_from(changed.seconds).ok()?, changed.nanoseconds);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    // A change that is yet to come is one of another clock, and says nothing.
    SETTLING.checked_sub(now.checked_sub(changed)?).filter(|left| !left.is_zero())
}

fn facts_for_http(facts: &sanderling_os::file::Metadata) -> FileMetadata {
    let time = |moment: sanderling_os::file::Timestamp| FileTime { unix_s: moment.seconds, nanos: moment.nanoseconds };
    FileMetadata {
        length_bytes: facts.length_bytes,
        modified: time(facts.modified),
        changed: time(facts.changed),
        device: facts.device,
        inode: facts.inode,
    }
}

/// What a failed look-up means to who asked.
pub(crate) fn no_file(error: &io::Error) -> NoFile {
    match sanderling_os::error::classify(error) {
        ErrorClass::NotFound => NoFile::Missing,
        ErrorClass::PermissionDenied => NoFile::Forbidden,
        ErrorClass::Exhausted => NoFile::Busy,
        ErrorClass::Other => NoFile::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_os::directory::Directory;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    /// What the file holds at first.
    const CONTENT: &[u8] = b"one version";

    /// A folder with a file called `file`.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("sanderling-open-file-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).expect("made");
            fs::write(path.join("file"), CONTENT).expect("written");
            Folder(path)
        }

        fn see(&self) -> Examined {
            let folder = Directory::open(&self.0).expect("opened");
            loop {
                match Examined::of(folder.open_beneath(b"file").expect("opened")) {
                    Ok(seen) => return seen.expect("a file"),
                    Err(unready) => std::thread::park_timeout(unready.delay()),
                }
            }
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_version_is_unchanged_as_long_as_nobody_can_have_written_it() {
        let check = |name: &str, act: &dyn Fn(&Path), expected: bool| {
            let folder = Folder::new(name);
            let version = folder.see().take(Place::Descriptor, Patience::Any).expect("ready").expect("a file");
            let room = Room { small_file_bytes_max: 0, content_bytes: 0, descriptors: 1 };
            let look = Look { now_ms: 0, unix_s: 0, room, try_count: 0 };
            let form = Form::new(version, "text/plain", Negotiation::None, look, &Arc::default());
            assert!(form.is_unchanged(), "{name}: at first");
            act(&folder.0.join("file"));
            assert_eq!(form.is_unchanged(), expected, "{name}");
        };
        let link = |path: &Path| fs::hard_link(path, path.with_extension("link")).expect("linked");
        let unlink = |path: &Path| fs::remove_file(path.with_extension("link")).expect("unlinked");
        let write = |path: &Path| fs::write(path, [b'x'; CONTENT.len()]).expect("written");
        check("read", &|path| drop(fs::read(path).expect("read")), true);
        check("unlinked", &|path| fs::remove_file(path).expect("removed"), true);
        check("linked", &link, true);
        check("written", &write, false);
        check("appended", &|path| fs::write(path, [CONTENT, CONTENT].concat()).expect("written"), false);
        // What is left of a write whose time was set back is a newer time of the inode, and these leave the same.
        let write_and_set_back = |path: &Path| {
            let modified = fs::metadata(path).and_then(|facts| facts.modified()).expect("a time");
            write(path);
            fs::File::options().write(true).open(path).and_then(|file| file.set_modified(modified)).expect("set");
        };
        check("set-back", &write_and_set_back, false);
        check("renamed", &|path| fs::rename(path, path.with_extension("moved")).expect("renamed"), false);
        check("mode", &|path| fs::set_permissions(path, PermissionsExt::from_mode(0o600)).expect("set"), false);
        let link_and_unlink = |path: &Path| {
            link(path);
            unlink(path);
        };
        check("link-and-unlink", &link_and_unlink, false);
    }

    #[test]
    fn what_was_written_between_the_look_and_the_reading_is_left_to_settle() {
        let folder = Folder::new("between");
        let version = folder.see().take(Place::Memory, Patience::Any).expect("settled").expect("a file");
        assert!(matches!(version.body, Body::Memory(content) if *content == *CONTENT));
        for content in [[b'x'; CONTENT.len()].as_slice(), b"shorter", b""] {
            let seen = folder.see();
            fs::write(folder.0.join("file"), content).expect("written");
            let taken = seen.take(Place::Memory, Patience::Any);
            assert!(matches!(taken, Err(Unready::Settling(_))), "{taken:?}");
        }
    }
}
