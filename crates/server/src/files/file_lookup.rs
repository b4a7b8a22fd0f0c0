//! The look-up of a requested path on disk: the file and its precompressed files.

mod listing;
mod precompressed;

use self::precompressed::{
    PrecompressedFiles, may_be_only_precompressed, may_be_precompressed, precompressed_variants,
};
use crate::file_error::FileError;
use crate::files::compression::{COMPRESSORS, CompressionQueue, OnDemand};
use crate::files::disk_file::cached_tail;
use crate::files::file_variant::{FileVariant, Gauges};
use crate::files::open_file::{
    Alternatives, Blocking, FileKey, LookupContext, OpenError, OpenFile, Purpose, RetryAfter, Storage, TagBasis,
    UnreadFile, file_error,
};
use crate::site::protection::Protection;
use crate::site::sites::{BuiltinFile, Root, Site, ancestors};
use sanderling_http::{
    CanonicalUrl, ContentCoding, FileMetadata, FileTime, Negotiation, PathTraits, Representation, Validator, media_type,
};
use sanderling_os::directory::Directory;
use sanderling_os::error::leads_out;
use sanderling_os::file::File;
use sanderling_site_rules::{changes_with_content, is_build_file};
use std::borrow::Cow;
use std::cell::RefCell;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// The index whose changes the watcher knows by its name.
const USUAL_INDEX: &str = "index.html";
/// The extension that a clean URL lacks.
const PAGE_EXTENSION: &[u8] = b".html";
/// The page for missing files, in its directory or one above.
pub(crate) const NOT_FOUND_PAGE: &[u8] = b"404.html";
/// The media type of files of unknown content, most of which cannot be made smaller.
const UNKNOWN_MEDIA_TYPE: &str = "application/octet-stream";
/// Directories in which it is searched for: the nearest ones and the root.
const PAGE_DIRECTORIES_MAX: usize = 16;
/// The number of successive attempts in which a file has grown until it is considered a file that is appended to. A
/// file that is written again does not grow each time.
const GROWTHS_MIN: u8 = 3;
/// Attempts after which a precompressed file that is being written is left out.
const RECENT_CHANGE_ATTEMPTS_MAX: u8 = 3;

/// A path that is looked up.
#[derive(Clone, Debug)]
pub(crate) struct FileLookup {
    pub(crate) site: Arc<Site>,
    pub(crate) key: FileKey,
    /// The observations of the file in earlier attempts.
    growth: RefCell<Growth>,
}

/// How a file changes between the attempts to read it.
#[derive(Clone, Debug, Default)]
struct Growth {
    /// The length at the last attempt.
    length_bytes: u64,
    /// The bytes before it.
    tail: Box<[u8]>,
    /// Attempts in turn, up to the last one, that have found the file longer, with the same bytes as before.
    count: u8,
}

impl Growth {
    fn record(&mut self, UnreadFile { file, metadata, .. }: &UnreadFile) {
        let has_grown = metadata.length_bytes > self.length_bytes
            && cached_tail(file, self.length_bytes).is_some_and(|tail| tail == self.tail && !tail.is_empty());
        self.count = if has_grown { self.count + 1 } else { 0 };
        self.length_bytes = metadata.length_bytes;
        self.tail = cached_tail(file, self.length_bytes).unwrap_or_default();
    }
}

/// The result of a look-up.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it moves from the stack into the table immediately")]
pub(crate) enum LookupResult {
    /// The file is the cached version, in the same codings; nothing was read.
    Unchanged,
    /// The file has changed, or was not cached.
    New(OpenFile),
}

/// The parameters of one attempt.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    /// The version in the cache.
    cached: Option<&'a OpenFile>,
    context: LookupContext,
    blocking: Blocking,
    gauges: &'a Arc<Gauges>,
    compression: &'a Arc<CompressionQueue>,
}

impl FileLookup {
    pub(crate) fn new(site: &Arc<Site>, key: &FileKey) -> FileLookup {
        FileLookup { site: Arc::clone(site), key: key.clone(), growth: RefCell::default() }
    }

    /// The directory of the file, relative to the document root, which itself is the empty path.
    pub(crate) fn directory(&self) -> &[u8] {
        parent(&self.key.path)
    }

    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(self.site.root, Root::Directory(_))
    }

    /// Whether browsers are told to keep the file because of its name.
    pub(crate) fn is_immutable_by_name(&self) -> bool {
        self.site.options.caches_fingerprinted() && changes_with_content(&self.key.path)
    }

    /// Looks the file up. `cached` is the version in the cache.
    pub(crate) fn run(
        &self,
        cached: Option<&OpenFile>,
        context: LookupContext,
        blocking: Blocking,
        (gauges, compression): (&Arc<Gauges>, &Arc<CompressionQueue>),
    ) -> Result<LookupResult, OpenError> {
        let attempt = Attempt { cached, context, blocking, gauges, compression };
        let path = &self.key.path;
        if self.key.site.purpose() == Purpose::Exact {
            return self.open(path, false, attempt);
        }
        let found = match path.strip_suffix(b"/") {
            None if path.is_empty() => self.find_index(path, attempt),
            Some(directory) => self.find_index(directory, attempt),
            None if self.site.options.files.clean_urls => self.find_page(path, attempt),
            None => self.open(path, false, attempt),
        };
        match found {
            Err(OpenError::File(FileError::NotFound)) => match self.open_previous(path, attempt)? {
                Some(found) => Ok(found),
                None => Err(self.not_found(attempt)),
            },
            found => found,
        }
    }

    /// Opens the file at `path` in the last release that has it, if its name and its content say that it is the same in
    /// all releases: it is a script or the like with a hash, and no release has other content for it.
    fn open_previous(&self, path: &[u8], attempt: Attempt<'_>) -> Result<Option<LookupResult>, OpenError> {
        let roots = &self.site.options.previous_roots;
        if roots.is_empty() || !is_build_file(path) {
            return Ok(None);
        }
        let mut found: Option<OpenFile> = None;
        for root in roots {
            let attempt = if found.is_none() { attempt } else { Attempt { cached: None, ..attempt } };
            // The watcher does not know these directories.
            let opened = match self.open_on_disk(root, path, true, attempt) {
                Ok(LookupResult::New(file)) => file,
                // It was compared when it was opened.
                Ok(LookupResult::Unchanged) => {
                    self.site.options.earlier_files.record(path);
                    return Ok(Some(LookupResult::Unchanged));
                }
                Err(OpenError::File(error)) if error.is_of_path() => continue,
                Err(error) => return Err(error),
            };
            match &found {
                None => found = Some(opened),
                Some(file) if file.validator() != opened.validator() => return Ok(None),
                Some(_) => {}
            }
        }
        if found.is_some() {
            self.site.options.earlier_files.record(path);
        }
        Ok(found.map(LookupResult::New))
    }

    /// Whether the content of the file at `path` is compared with that of other versions.
    fn compares_content(&self, path: &[u8]) -> bool {
        let options = &self.site.options;
        (options.caches_fingerprinted() || !options.previous_roots.is_empty()) && changes_with_content(path)
    }

    /// Finds the file that answers for a directory.
    fn find_index(&self, directory: &[u8], attempt: Attempt<'_>) -> Result<LookupResult, OpenError> {
        for (position, name) in self.site.options.files.index.iter().enumerate() {
            // The watcher does not know that the directory depends on this name.
            let is_unwatchable = position > 0 || name != USUAL_INDEX;
            match self.open(&join(directory, name.as_bytes()), is_unwatchable, attempt) {
                // A directory with the name index.html is not a page.
                Err(OpenError::File(FileError::NotFound | FileError::IsDirectory)) => {}
                found => return found,
            }
        }
        let has_page = || self.is_file(&[directory, PAGE_EXTENSION].concat(), attempt);
        let is_of_file = !directory.is_empty()
            && (self.is_file(directory, attempt)? || (self.site.options.files.clean_urls && has_page()?));
        if is_of_file {
            return Err(FileError::Moved(CanonicalUrl::WithoutSlash).into());
        }
        match &self.site.root {
            Root::Directory(root) if self.site.options.files.listing => self.list(root, directory, attempt),
            _ => Err(FileError::NotFound.into()),
        }
    }

    /// Finds a file whose URL may lack its extension. A file at the path itself takes precedence over one with the
    /// extension, and that over a directory.
    fn find_page(&self, path: &[u8], attempt: Attempt<'_>) -> Result<LookupResult, OpenError> {
        if let Some(clean) = self.clean_path(path)
            && self.is_file(path, attempt)?
        {
            if self.is_index(path) {
                return Err(FileError::Moved(CanonicalUrl::OfDirectory).into());
            }
            // Otherwise the clean URL belongs to another file.
            if !self.is_file(clean, attempt)? {
                return Err(FileError::Moved(CanonicalUrl::WithoutExtension).into());
            }
        }
        let error = match self.open(path, false, attempt) {
            Err(OpenError::File(error @ (FileError::NotFound | FileError::IsDirectory))) => error,
            found => return found,
        };
        let page = [path, PAGE_EXTENSION].concat();
        match self.open(&page, false, attempt) {
            Ok(_) if self.is_index(&page) => Err(FileError::Moved(CanonicalUrl::OfDirectory).into()),
            Err(OpenError::File(FileError::NotFound | FileError::IsDirectory)) => Err(error.into()),
            found => found,
        }
    }

    /// The path without the extension of a page, unless requests for that are refused.
    fn clean_path<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let clean = path.strip_suffix(PAGE_EXTENSION).filter(|path| !path.is_empty() && !path.ends_with(b"/"))?;
        (!PathTraits::of(clean).intersects(self.site.options.refused_paths)).then_some(clean)
    }

    /// Whether a page is what its directory is served as.
    fn is_index(&self, path: &[u8]) -> bool {
        self.site.options.files.index.first().is_some_and(|index| file_name(path) == index.as_bytes())
    }

    /// Whether there is a regular file that may be served.
    fn is_file(&self, path: &[u8], attempt: Attempt<'_>) -> Result<bool, OpenError> {
        if self.is_rules_file(path) {
            return Ok(false);
        }
        let found = match &self.site.root {
            Root::Builtin(files) => return Ok(files.iter().any(|file| file.path.as_bytes() == path)),
            Root::Directory(root) => {
                open_beneath(root, &self.site.options.link_targets, Cow::Borrowed(path), attempt.blocking)
            }
            Root::Unavailable => return Ok(false),
        };
        match found {
            Ok(_) => Ok(true),
            Err(OpenError::File(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the file has rules of the site, and is not served.
    fn is_rules_file(&self, path: &[u8]) -> bool {
        self.site.options.hides_rules_files && matches!(path, b"_redirects" | b"_headers")
    }

    /// The error that there is no file, with the nearest page for it.
    fn not_found(&self, attempt: Attempt<'_>) -> OpenError {
        let directories = ancestors(self.directory());
        let skipped_count = directories.clone().count().saturating_sub(PAGE_DIRECTORIES_MAX);
        let mut directories: Vec<&[u8]> = directories.skip(skipped_count).collect();
        if skipped_count > 0 {
            directories[0] = b"";
        }
        for directory in directories.into_iter().rev() {
            match (self.is_file(&join(directory, NOT_FOUND_PAGE), attempt), u16::try_from(directory.len())) {
                (Ok(true), Ok(bytes)) => return FileError::NotFoundWithPage(bytes).into(),
                (Ok(_), _) => {}
                (Err(error), _) => return error,
            }
        }
        FileError::NotFound.into()
    }

    /// Opens the file at `path`, with its precompressed files. `is_unwatchable`: the entry depends on other files too.
    fn open(&self, path: &[u8], is_unwatchable: bool, attempt: Attempt<'_>) -> Result<LookupResult, OpenError> {
        let Attempt { context, gauges, .. } = attempt;
        match &self.site.root {
            Root::Builtin(files) => {
                let protection = self.site.options.protection_of_file(path);
                find_builtin(files, path, protection, context, gauges).map(LookupResult::New)
            }
            Root::Directory(root) => self.open_on_disk(root, path, is_unwatchable, attempt),
            Root::Unavailable => Err(FileError::Unavailable.into()),
        }
    }

    fn open_on_disk(
        &self,
        root: &Directory,
        path: &[u8],
        is_unwatchable: bool,
        attempt: Attempt<'_>,
    ) -> Result<LookupResult, OpenError> {
        if self.is_rules_file(path) {
            return Err(FileError::NotFound.into());
        }
        let Attempt { cached, context, blocking, gauges, compression } = attempt;
        let media_type = self.site.options.media_type(file_name(path));
        let uncompressed = match open_beneath(root, &self.site.options.link_targets, Cow::Borrowed(path), blocking) {
            Err(OpenError::File(FileError::NotFound)) if may_be_only_precompressed(path, media_type, compression) => {
                return self.open_only_precompressed((root, path, media_type), is_unwatchable, attempt);
            }
            opened => opened?,
        };
        let uncompressed = OpenedFile { file: self.settled(uncompressed.file)?, ..uncompressed };
        let mut precompressed = match may_be_precompressed(path, media_type) {
            true => self.open_precompressed(root, path, Some(&uncompressed.file.metadata), attempt)?,
            false => PrecompressedFiles::default(),
        };
        let mut limits = context.limits;
        // A file may always have one descriptor; a precompressed one without a descriptor left is left out.
        let storage = limits.allocate(uncompressed.file.metadata.length_bytes).unwrap_or(Storage::Descriptor);
        precompressed.allocate(&uncompressed.file.metadata, &mut limits);
        let protection = self.site.options.protection_of_file(path);
        let cached = cached
            .filter(|cached| cached.is_same_version(&uncompressed.file.metadata, precompressed.metadata(), protection));
        // If the directories of the path are watched, a new symbolic link there invalidates the entry.
        let is_watched = cached.is_some_and(OpenFile::is_watched);
        let has_symlinks = !is_watched && (uncompressed.has_symlink_in_path(root) || precompressed.has_symlinks(root));
        let mut is_unwatchable = is_unwatchable || precompressed.is_unwatchable || has_symlinks;
        if cached.is_some_and(|cached| cached.is_unwatchable == is_unwatchable) {
            return Ok(LookupResult::Unchanged);
        }
        let coded = precompressed.read(context, blocking, &mut is_unwatchable)?;
        let is_compressed_on_demand = self.site.options.files.compress
            && coded.is_empty()
            && may_be_precompressed(path, media_type)
            && media_type != UNKNOWN_MEDIA_TYPE
            && compression.is_for(uncompressed.file.metadata.length_bytes);
        let (negotiation, tag_basis) = match coded.is_empty() {
            // It is read to be compressed anyway, and the tags of the variants follow from its own.
            true if is_compressed_on_demand => (Negotiation::OnDemand(COMPRESSORS), TagBasis::Content),
            true => (Negotiation::None, TagBasis::Metadata),
            false => (Negotiation::AcceptEncoding(ContentCoding::Identity), TagBasis::Metadata),
        };
        let tag_basis = if self.compares_content(path) { TagBasis::Content } else { tag_basis };
        let uncompressed = uncompressed.file.read(storage, tag_basis, blocking, context)?;
        let fields = (media_type, self.field_lines());
        let (metadata, validator) = (uncompressed.metadata, uncompressed.validator);
        let uncompressed = FileVariant::new(uncompressed, fields, negotiation, context.unix_s, gauges);
        let alternatives = match coded.is_empty() {
            true if is_compressed_on_demand => {
                let on_demand = OnDemand::new(compression, fields, (metadata, validator), context.unix_s, gauges);
                Alternatives::OnDemand(Arc::new(on_demand))
            }
            true => Alternatives::None,
            false => precompressed_variants(coded, fields, context, gauges),
        };
        Ok(LookupResult::New(OpenFile::new(uncompressed, alternatives, protection, is_unwatchable, context)))
    }

    /// The additional fields in the heads of the file: in a site with a fallback, what paths without a file get depends
    /// on these fields.
    fn field_lines(&self) -> &'static [u8] {
        let has_fallback = || self.site.options.files.fallback.is_some();
        if self.key.site.purpose() == Purpose::Exact && has_fallback() {
            return b"Vary: Accept, Sec-Fetch-Mode\r\n";
        }
        b""
    }

    /// The file, once it can be read. A file that has grown again at each of some attempts is appended to all the time,
    /// as a log is, and is read anyway: its written content does not change.
    fn settled(&self, file: UnreadFile) -> Result<UnreadFile, OpenError> {
        let Some(wait) = file.wait_after_change() else { return Ok(file) };
        let mut growth = self.growth.borrow_mut();
        growth.record(&file);
        if growth.count >= GROWTHS_MIN {
            return Ok(UnreadFile { is_growing: true, ..file });
        }
        Err(OpenError::Retry(RetryAfter::RecentChange(wait)))
    }
}

/// The directory of a file, relative to the document root, which itself is the empty path.
fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)]
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().expect("a split gives at least one part")
}

/// The file of a page that has a clean URL, by a path that leads to it.
pub(crate) fn page_path(path: &[u8]) -> Vec<u8> {
    if path.ends_with(PAGE_EXTENSION) { path.to_vec() } else { [path, PAGE_EXTENSION].concat() }
}

/// The path of a file in a directory.
pub(crate) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// An open file beneath a document root.
#[derive(Debug)]
struct OpenedFile<'p> {
    file: UnreadFile,
    /// Relative to the root.
    path: Cow<'p, [u8]>,
}

impl OpenedFile<'_> {
    /// Whether a symbolic link is part of its path.
    fn has_symlink_in_path(&self, root: &Directory) -> bool {
        !self.file.file.real_path().is_ok_and(|real| is_beneath(&real, root, &self.path))
    }
}

/// Opens the file at `path` and calls `fstat`.
fn open_beneath<'p>(
    root: &Directory,
    link_targets: &[Arc<Directory>],
    path: Cow<'p, [u8]>,
    blocking: Blocking,
) -> Result<OpenedFile<'p>, OpenError> {
    let opened = match root.open_beneath_cached(&path) {
        Ok(None) if blocking == Blocking::No => return Err(OpenError::Retry(RetryAfter::Disk)),
        Ok(None) => root.open_beneath(&path),
        Ok(Some(file)) => Ok(file),
        Err(error) => Err(error),
    };
    let file = match opened {
        Err(error) if leads_out(&error) && blocking == Blocking::No => return Err(OpenError::Retry(RetryAfter::Disk)),
        Err(error) if leads_out(&error) => open_linked(root, link_targets, &path)?,
        opened => opened.map_err(|error| file_error(&error))?,
    };
    Ok(OpenedFile { file: UnreadFile::new(file)?, path })
}

/// Opens the file at `path`, on which a symbolic link is absolute or leads out of the root, if its target is beneath
/// the root or a link target. It is opened by its real path beneath that directory, so that no link can change
/// meanwhile.
#[cold]
fn open_linked(root: &Directory, link_targets: &[Arc<Directory>], path: &[u8]) -> Result<File, FileError> {
    let Ok(real_path) = root.resolve(path) else { return Err(FileError::NotFound) };
    let directories = std::iter::once(root).chain(link_targets.iter().map(Arc::as_ref));
    let mut found =
        directories.filter_map(|directory| Some((directory, real_path.strip_prefix(directory.real_path()).ok()?)));
    if let Some((directory, rest)) = found.next() {
        let rest = rest.as_os_str().as_bytes();
        // An unreadable file is treated as missing: clients learn nothing of files outside.
        let rest = if rest.is_empty() { b"." } else { rest };
        return directory.open_beneath(rest).map_err(|_| FileError::NotFound);
    }
    Err(FileError::NotFound)
}

/// Whether `real` is `path` beneath `root`, so that no part of `path` is a symbolic link.
fn is_beneath(real: &Path, root: &Directory, path: &[u8]) -> bool {
    real.strip_prefix(root.real_path()).is_ok_and(|rest| rest.as_os_str().as_bytes() == path)
}

fn find_builtin(
    files: &'static [BuiltinFile],
    path: &[u8],
    protection: Protection,
    context: LookupContext,
    gauges: &Arc<Gauges>,
) -> Result<OpenFile, OpenError> {
    let Some(file) = files.iter().find(|file| file.path.as_bytes() == path) else {
        let is_below =
            |file: &BuiltinFile| file.path.as_bytes().strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
        let is_directory = files.iter().any(is_below);
        return Err(if is_directory { FileError::IsDirectory } else { FileError::NotFound }.into());
    };
    let metadata = FileMetadata {
        length_bytes: file.bytes.len() as u64,
        modified: FileTime::default(),
        changed: FileTime::default(),
        device: 0,
        inode: 0,
    };
    let validator = Validator::of_content(file.bytes);
    let representation =
        Representation::new(&metadata, validator, media_type(path), Negotiation::None, b"", context.unix_s);
    let uncompressed = FileVariant::builtin(file.bytes, representation, gauges);
    Ok(OpenFile::new(uncompressed, Alternatives::None, protection, true, context))
}

#[cfg(test)]
mod tests;
