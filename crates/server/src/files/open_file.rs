//! An entry of the open-file cache: one file, open or in memory, in each content coding that exists on disk, with
//! response heads that are already written.
//!
//! A response is one version of a file. Content in memory was read between two equal results of `fstat`; content that
//! is sent from a descriptor is compared with the first result when it has been sent.

use crate::clock::Milliseconds;
use crate::file_error::FileError;
use crate::files::compression::OnDemand;
use crate::files::disk_file::{DiskFile, cached_tail};
use crate::files::file_variant::{FileContent, FileVariant, FileVersion, http_metadata, is_older};
use crate::site::protection::Protection;
use crate::site::sites::Site;
use sanderling_http::{ContentCoding, ContentHash, Request, SitePath, Validator, negotiate_coding};
use sanderling_os::error::ErrorClass;
use sanderling_os::file::{File, FileType, Metadata};
use std::hash::{Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// How long after a change a file is not read. Its times change when a write begins, and a program that has written
/// once will probably write again. That the last write has ended is made sure of by [`UnreadFile::read`].
pub(super) const RECENT_CHANGE: Duration = Duration::from_millis(20);
/// Bytes of the longest file that is read only for its entity tag.
const HASHED_BYTES_MAX: u64 = 4 << 20;
/// Bytes that are read for it in one step.
const HASHED_PART_BYTES: usize = 64 << 10;
const _: () = assert!(HASHED_PART_BYTES.is_multiple_of(ContentHash::PART_BYTES));

/// The key of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileKey {
    /// The path below the document root, with its final slash if it has one.
    pub(crate) path: Vec<u8>,
    pub(crate) site: KeySite,
}

/// A site, and the kind of the path: one word, because each request compares it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySite(u32);

/// The kind of a key's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The path of a request.
    Request,
    /// The path of the file itself, whatever its URL is: of an error page, or of the fallback.
    Exact,
}

impl KeySite {
    const EXACT: u32 = 1 << 31;

    #[inline]
    pub(crate) fn new(site_id: u32, purpose: Purpose) -> KeySite {
        debug_assert!(site_id <= Site::ID_MAX);
        KeySite(match purpose {
            Purpose::Request => site_id,
            Purpose::Exact => site_id | KeySite::EXACT,
        })
    }

    pub(crate) fn id(self) -> u32 {
        self.0 & !KeySite::EXACT
    }

    pub(crate) fn purpose(self) -> Purpose {
        if self.0 & KeySite::EXACT == 0 { Purpose::Request } else { Purpose::Exact }
    }
}

// By hand: the derived `Hash` would also write the length of `path`, which is not needed before a field of fixed size.
impl Hash for FileKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.path);
        state.write_u32(self.site.0);
    }
}

impl FileKey {
    /// Becomes the key of `path` in the site, without an allocation if the path fits into the space of the previous
    /// one.
    #[inline]
    pub(crate) fn set(&mut self, site_id: u32, path: &SitePath<'_>) {
        self.site = KeySite::new(site_id, Purpose::Request);
        self.path.clear();
        self.path.extend_from_slice(path.as_bytes());
        if path.ends_with_slash() && !path.as_bytes().is_empty() {
            self.path.push(b'/');
        }
    }

    /// The key of the file at exactly this path.
    pub(crate) fn exact(site_id: u32, path: Vec<u8>) -> FileKey {
        FileKey { path, site: KeySite::new(site_id, Purpose::Exact) }
    }
}

/// A file in all its variants: one entry, so that one look-up finds them all.
#[derive(Debug)]
pub(crate) struct OpenFile {
    uncompressed: FileVariant,
    alternatives: Alternatives,
    /// The rules that protect the file, whatever path it was found for.
    pub(crate) protection: Protection,
    /// When the file system was last asked.
    checked_ms: AtomicU64,
    /// The kernel reports changes of the file.
    is_watched: AtomicBool,
    /// Watches on the directories of its path would not report every change: its path leads through a symbolic link, or
    /// a precompressed file could not be opened yet.
    pub(crate) is_unwatchable: bool,
    /// The path has had other content before, although its name says that it changes with the content.
    pub(crate) has_reused_name: bool,
}

/// The variants of a file other than the uncompressed one.
#[derive(Debug)]
pub(crate) enum Alternatives {
    None,
    /// Its precompressed files, in their codings.
    Precompressed(Box<[(ContentCoding, FileVariant)]>),
    /// Those that are made when a client first accepts them.
    OnDemand(Arc<OnDemand>),
    /// The listing of a directory as JSON; the other one is HTML.
    Json(Box<FileVariant>),
}

/// One of the variants of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VariantId {
    Uncompressed,
    Coded(ContentCoding),
    Json,
}

/// A file on disk that is open and has not been read.
#[derive(Debug)]
pub(crate) struct UnreadFile {
    pub(crate) file: File,
    pub(crate) metadata: Metadata,
    /// It is being appended to: its version is what `metadata` says, however much longer it becomes.
    pub(crate) is_growing: bool,
}

/// Where to keep the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// In memory.
    Memory,
    /// On disk, behind an open descriptor.
    Descriptor,
}

/// The input of the entity tag of a file that is not kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagBasis {
    /// Its content, if that is not too long to be read for it.
    Content,
    /// Its metadata, unless its times may be those of other versions: then its content anyway.
    Metadata,
}

/// The limits of one entry; [`EntryLimits::allocate`] leaves the rest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryLimits {
    /// Bytes of the largest file that is kept in memory.
    pub(crate) small_file_bytes_max: u64,
    /// Bytes of content in memory.
    pub(crate) content_bytes: u64,
    pub(crate) descriptors: u64,
    /// Entries of a listed directory.
    pub(crate) listed_entries: usize,
}

/// Why an attempt to open a file gave no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenError {
    /// There is no file.
    File(FileError),
    /// The attempt must be repeated.
    Retry(RetryAfter),
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> OpenError {
        OpenError::File(error)
    }
}

/// Why an attempt must be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryAfter {
    /// The file system would have to wait for a disk.
    Disk,
    /// The file changed just now, and the write may not have ended: repeat after this time.
    RecentChange(Duration),
}

impl RetryAfter {
    /// How long to wait before the next attempt, at least.
    pub(crate) fn delay(self) -> Duration {
        match self {
            RetryAfter::Disk => Duration::ZERO,
            RetryAfter::RecentChange(wait) => wait,
        }
    }
}

/// Whether an attempt may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocking {
    /// The worker has other connections to serve.
    No,
    Yes,
}

/// The time and the limits of an attempt to open a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookupContext {
    pub(crate) now_ms: Milliseconds,
    pub(crate) unix_s: u64,
    pub(crate) limits: EntryLimits,
    /// Attempts before this one.
    pub(crate) attempt_count: u8,
    /// For how long after a change a process may still be writing a file.
    pub(crate) sendfile_after: Duration,
}

impl OpenFile {
    pub(crate) fn new(
        uncompressed: FileVariant,
        alternatives: Alternatives,
        protection: Protection,
        is_unwatchable: bool,
        context: LookupContext,
    ) -> OpenFile {
        OpenFile {
            uncompressed,
            alternatives,
            protection,
            checked_ms: AtomicU64::new(context.now_ms),
            is_watched: AtomicBool::new(false),
            is_unwatchable,
            has_reused_name: false,
        }
    }

    /// Distinguishes its version from others.
    pub(crate) fn validator(&self) -> Validator {
        self.uncompressed.representation.validator()
    }

    /// The variant that the sender of `request` prefers.
    #[inline(always)]
    pub(crate) fn variant_for(&self, request: &Request<'_>, may_transform: impl Fn() -> bool) -> VariantId {
        match &self.alternatives {
            Alternatives::None => VariantId::Uncompressed,
            _ => self.alternative_for(request, may_transform),
        }
    }

    /// The same for a file that has several variants, or may have.
    #[inline(never)]
    fn alternative_for(&self, request: &Request<'_>, may_transform: impl Fn() -> bool) -> VariantId {
        match &self.alternatives {
            Alternatives::None => VariantId::Uncompressed,
            Alternatives::Precompressed(coded) => {
                match negotiate_coding(&request.fields, coded.iter().map(|(coding, _)| *coding)) {
                    ContentCoding::Identity => VariantId::Uncompressed,
                    coding => VariantId::Coded(coding),
                }
            }
            Alternatives::OnDemand(on_demand) => match on_demand.coding_for(request, &self.uncompressed) {
                ContentCoding::Identity => VariantId::Uncompressed,
                coding if may_transform() => VariantId::Coded(coding),
                _ => VariantId::Uncompressed,
            },
            Alternatives::Json(_) if request.prefers_json() => VariantId::Json,
            Alternatives::Json(_) => VariantId::Uncompressed,
        }
    }

    /// A variant, or the uncompressed one if the file does not have it.
    #[inline]
    pub(crate) fn variant(&self, id: VariantId) -> &FileVariant {
        match (&self.alternatives, id) {
            (Alternatives::Precompressed(coded), VariantId::Coded(coding)) => {
                let found = coded.iter().find(|(candidate, _)| *candidate == coding);
                found.map_or(&self.uncompressed, |(_, variant)| variant)
            }
            (Alternatives::OnDemand(on_demand), VariantId::Coded(coding)) => {
                on_demand.variant(coding).unwrap_or(&self.uncompressed)
            }
            (Alternatives::Json(json), VariantId::Json) => json,
            _ => &self.uncompressed,
        }
    }

    /// When the file system was last asked. While that answer is valid, this is also about when the file was last used.
    #[inline]
    pub(crate) fn checked_ms(&self) -> Milliseconds {
        self.checked_ms.load(Ordering::Relaxed)
    }

    /// Records that the file system was asked, and nothing has changed.
    pub(crate) fn set_checked(&self, now_ms: Milliseconds) {
        self.checked_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Whether the kernel reports changes of the file.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// The same, for the thread that has just counted an event ([`WatchedDirectories::event_count`]): SeqCst puts this
    /// load, the store of [`OpenFile::set_watched`] and the count into one order.
    ///
    /// [`WatchedDirectories::event_count`]: crate::files::watched_directories::WatchedDirectories::event_count
    pub(crate) fn is_watched_after_event(&self) -> bool {
        self.is_watched.load(Ordering::SeqCst)
    }

    pub(crate) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::SeqCst);
    }

    /// Bytes of content that the entry keeps in memory.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.variants().map(|variant| variant.usage.content_bytes).sum()
    }

    /// Bytes of content that was compressed or decoded on demand.
    pub(crate) fn compressed_bytes(&self) -> u64 {
        self.variants().map(|variant| variant.usage.compressed_bytes).sum()
    }

    /// Descriptors that the entry keeps open.
    pub(crate) fn descriptor_count(&self) -> u64 {
        self.variants().map(|variant| variant.usage.descriptors).sum()
    }

    fn variants(&self) -> impl Iterator<Item = &FileVariant> {
        let (json, on_demand) = match &self.alternatives {
            Alternatives::Json(json) => (Some(&**json), None),
            Alternatives::OnDemand(on_demand) => (None, Some(on_demand.variants())),
            Alternatives::None | Alternatives::Precompressed(_) => (None, None),
        };
        let precompressed = self.precompressed().iter().map(|(_, variant)| variant);
        std::iter::once(&self.uncompressed).chain(precompressed).chain(json).chain(on_demand.into_iter().flatten())
    }

    fn precompressed(&self) -> &[(ContentCoding, FileVariant)] {
        match &self.alternatives {
            Alternatives::Precompressed(coded) => coded,
            Alternatives::None | Alternatives::OnDemand(_) | Alternatives::Json(_) => &[],
        }
    }

    /// Whether the entry has this version of a precompressed file, together with this version of the uncompressed file.
    pub(crate) fn has_precompressed(
        &self,
        uncompressed: Option<&Metadata>,
        (coding, metadata): (ContentCoding, &Metadata),
    ) -> bool {
        let mut coded = self.precompressed().iter();
        uncompressed.is_none_or(|metadata| self.uncompressed.metadata.as_ref() == Some(metadata))
            && coded.any(|(cached, variant)| *cached == coding && variant.metadata.as_ref() == Some(metadata))
    }

    /// Whether the file is on disk.
    #[inline]
    pub(crate) fn can_change(&self) -> bool {
        self.uncompressed.metadata.is_some()
    }

    /// Whether the entry has these results of `fstat`, in these codings, and this protection.
    pub(crate) fn is_same_version<'f>(
        &self,
        uncompressed: &'f Metadata,
        coded: impl Iterator<Item = (ContentCoding, &'f Metadata)>,
        protection: Protection,
    ) -> bool {
        let cached = self.precompressed().iter().map(|(coding, variant)| (*coding, variant.metadata.as_ref()));
        self.protection == protection
            && self.uncompressed.metadata.as_ref() == Some(uncompressed)
            && cached.eq(coded.map(|(coding, metadata)| (coding, Some(metadata))))
    }

    /// Whether a file was unlinked, whose blocks on disk the descriptor keeps.
    pub(crate) fn is_deleted(&self) -> bool {
        self.variants().any(FileVariant::is_deleted)
    }
}

impl UnreadFile {
    /// A regular file.
    pub(crate) fn new(file: File) -> Result<UnreadFile, OpenError> {
        let metadata = file.metadata().map_err(|error| file_error(&error))?;
        match metadata.file_type {
            FileType::Regular => Ok(UnreadFile { file, metadata, is_growing: false }),
            FileType::Directory => Err(FileError::IsDirectory.into()),
            FileType::Other => Err(FileError::NotFound.into()),
        }
    }

    /// The same file, if its last change is not too recent for it to be read.
    pub(crate) fn settled(self) -> Result<UnreadFile, OpenError> {
        match self.wait_after_change() {
            Some(wait) => Err(OpenError::Retry(RetryAfter::RecentChange(wait))),
            None => Ok(self),
        }
    }

    /// How long to wait until the last change is no longer recent; `None` if it is not.
    pub(crate) fn wait_after_change(&self) -> Option<Duration> {
        let changed = self.metadata.modified.max(self.metadata.changed);
        let changed = Duration::new(u64::try_from(changed.seconds).ok()?, changed.nanoseconds);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        // A change in the future has the time of another clock.
        RECENT_CHANGE.checked_sub(now.checked_sub(changed)?).filter(|wait| !wait.is_zero())
    }

    /// Reads the version that `fstat` has seen, or keeps its descriptor. A write that has begun before ends first: the
    /// times of the file do not show it, and data read before it ends may be a mixture. One that begins later changes
    /// the times.
    pub(crate) fn read(
        self,
        storage: Storage,
        tag_basis: TagBasis,
        blocking: Blocking,
        context: LookupContext,
    ) -> Result<FileVersion, OpenError> {
        if !is_older(&self.metadata, context.unix_s, context.sendfile_after) {
            match blocking {
                Blocking::No => return Err(OpenError::Retry(RetryAfter::Disk)),
                Blocking::Yes => self.file.wait_for_write(),
            }
        }
        match storage {
            Storage::Memory => self.read_whole(blocking),
            Storage::Descriptor => {
                let validator = self.validator(tag_basis, blocking)?;
                let UnreadFile { file, metadata, .. } = self;
                let file = Arc::new(DiskFile::new(file, metadata));
                Ok(FileVersion { metadata, content: FileContent::Descriptor(file), validator })
            }
        }
    }

    /// The input of the entity tag of the file, if it is not kept in memory.
    fn validator(&self, tag_basis: TagBasis, blocking: Blocking) -> Result<Validator, OpenError> {
        let metadata = http_metadata(&self.metadata);
        let is_of_content = tag_basis == TagBasis::Content || metadata.modified.may_be_set();
        if !is_of_content || metadata.length_bytes > HASHED_BYTES_MAX || self.is_growing {
            return Ok(Validator::of_metadata(&metadata));
        }
        if blocking == Blocking::No {
            // Workers do not read a file that they do not send.
            return Err(OpenError::Retry(RetryAfter::Disk));
        }
        let mut hash = ContentHash::new(metadata.length_bytes);
        let mut part = vec![0; HASHED_PART_BYTES];
        let mut offset = 0;
        while offset < metadata.length_bytes {
            let rest = metadata.length_bytes - offset;
            let part = &mut part[..rest.min(HASHED_PART_BYTES as u64) as usize];
            let read = self.file.read_at(part, offset).map_err(|error| file_error(&error))?;
            if read != part.len() {
                return Err(OpenError::Retry(RetryAfter::RecentChange(RECENT_CHANGE)));
            }
            hash.put(part);
            offset += read as u64;
        }
        match self.file.metadata().map_err(|error| file_error(&error))? == self.metadata {
            true => Ok(hash.finish()),
            false => Err(OpenError::Retry(RetryAfter::RecentChange(RECENT_CHANGE))),
        }
    }

    /// Reads the file whole. `fstat` has the same result after the read as before it, so that the read content is one
    /// version.
    fn read_whole(self, blocking: Blocking) -> Result<FileVersion, OpenError> {
        let UnreadFile { file, metadata, is_growing } = self;
        let mut content = vec![0; metadata.length_bytes as usize];
        let read = match file.read_at_cached(&mut content, 0) {
            Ok(None) if blocking == Blocking::No => return Err(OpenError::Retry(RetryAfter::Disk)),
            Ok(None) => file.read_at(&mut content, 0),
            Ok(Some(read)) => Ok(read),
            Err(error) => Err(error),
        };
        let read = read.map_err(|error| file_error(&error))?;
        let now = file.metadata().map_err(|error| file_error(&error))?;
        let has_grown = || {
            let tail = cached_tail(&file, metadata.length_bytes);
            now.length_bytes > metadata.length_bytes && tail.is_some_and(|tail| content.ends_with(&tail))
        };
        if now != metadata && !(is_growing && has_grown()) {
            return Err(OpenError::Retry(RetryAfter::RecentChange(RECENT_CHANGE)));
        }
        if read != content.len() {
            // A file such as in /proc, whose `st_size` is not the length that a read returns.
            return Err(FileError::Failed.into());
        }
        let validator = Validator::of_content(&content);
        Ok(FileVersion { metadata, content: FileContent::Memory(content.into_boxed_slice()), validator })
    }
}

impl EntryLimits {
    /// Where content of this length is kept, taken off the limits; `None` if there is no room. A file larger than the
    /// limit for all content in memory is not kept in memory.
    pub(crate) fn allocate(&mut self, length_bytes: u64) -> Option<Storage> {
        if length_bytes <= self.small_file_bytes_max.min(self.content_bytes) {
            self.content_bytes -= length_bytes;
            return Some(Storage::Memory);
        }
        self.descriptors = self.descriptors.checked_sub(1)?;
        Some(Storage::Descriptor)
    }
}

/// The meaning of a failed call for the request.
pub(crate) fn file_error(error: &io::Error) -> FileError {
    match sanderling_os::error::classify(error) {
        ErrorClass::NotFound => FileError::NotFound,
        ErrorClass::PermissionDenied => FileError::Forbidden,
        ErrorClass::Exhausted => FileError::Busy,
        ErrorClass::Other => FileError::Failed,
    }
}

#[cfg(test)]
mod tests;
