//! The precompressed files of a path: those next to the uncompressed file, or without one.

use super::{
    Attempt, FileLookup, LookupResult, OpenedFile, RECENT_CHANGE_ATTEMPTS_MAX, UNKNOWN_MEDIA_TYPE, open_beneath,
};
use crate::file_error::FileError;
use crate::files::compression::{CompressionQueue, read_whole};
use crate::files::decoding::decode;
use crate::files::file_variant::{FileContent, FileVariant, FileVersion, Gauges, http_metadata};
use crate::files::open_file::{
    Alternatives, Blocking, EntryLimits, LookupContext, OpenError, OpenFile, RetryAfter, Storage, TagBasis, UnreadFile,
    file_error,
};
use sanderling_http::{
    CODED_HEAD_BYTES, CODED_TAIL_BYTES, ContentCoding, Negotiation, Representation, Validator, coding_fault,
    is_compressible,
};
use sanderling_os::directory::Directory;
use sanderling_os::file::Metadata;
use std::borrow::Cow;
use std::sync::Arc;

impl FileLookup {
    pub(super) fn open_precompressed(
        &self,
        root: &Directory,
        path: &[u8],
        uncompressed: Option<&Metadata>,
        attempt: Attempt<'_>,
    ) -> Result<PrecompressedFiles, OpenError> {
        let Attempt { cached, context, blocking, .. } = attempt;
        let mut precompressed = PrecompressedFiles::default();
        let mut wait = None;
        let protection = self.site.options.protection_of_file(path);
        for coding in ContentCoding::COMPRESSED {
            let path = [path, coding.file_extension().as_bytes()].concat();
            if self.site.options.protection_of_file(&path) != protection {
                // A client that may have the file may not have this one, or the other way round.
                continue;
            }
            let opened = open_beneath(root, &self.site.options.link_targets, Cow::Owned(path), blocking)
                .and_then(|opened| Ok(OpenedFile { file: opened.file.settled()?, ..opened }))
                .and_then(|opened| {
                    let metadata = &opened.file.metadata;
                    let is_sent = cached.is_some_and(|it| it.has_precompressed(uncompressed, (coding, metadata)));
                    let is_sendable = is_sent || !has_fault(coding, &opened.file, uncompressed, blocking)?;
                    Ok(PrecompressedFile { coding, opened, is_sendable, storage: None })
                });
            match unless_unavailable(opened, context, &mut precompressed.is_unwatchable) {
                Ok(Some(file)) => precompressed.files.push(file),
                Ok(None) => {}
                Err(OpenError::Retry(RetryAfter::RecentChange(time))) => wait = wait.max(Some(time)),
                Err(error) => return Err(error),
            }
        }
        wait.map_or(Ok(precompressed), |time| Err(OpenError::Retry(RetryAfter::RecentChange(time))))
    }

    /// Opens the precompressed files of a path without a file. One of them is decoded for clients that accept none of
    /// their codings.
    #[cold]
    pub(super) fn open_only_precompressed(
        &self,
        (root, path, media_type): (&Directory, &[u8], &str),
        is_unwatchable: bool,
        attempt: Attempt<'_>,
    ) -> Result<LookupResult, OpenError> {
        let Attempt { cached, context, blocking, gauges, compression } = attempt;
        let mut precompressed = self.open_precompressed(root, path, None, attempt)?;
        precompressed.allocate_alone(&mut context.limits.clone(), compression.decoded_bytes_max());
        let version = precompressed.metadata().next().map(|(_, metadata)| *metadata);
        let protection = self.site.options.protection_of_file(path);
        let cached = cached.filter(|cached| {
            version.is_some_and(|version| cached.is_same_version(&version, precompressed.metadata(), protection))
        });
        let has_symlinks = !cached.is_some_and(OpenFile::is_watched) && precompressed.has_symlinks(root);
        let mut is_unwatchable = is_unwatchable || precompressed.is_unwatchable || has_symlinks;
        if cached.is_some_and(|cached| cached.is_unwatchable == is_unwatchable) {
            return Ok(LookupResult::Unchanged);
        }
        if version.is_some() && blocking == Blocking::No {
            // Workers do not decode.
            return Err(OpenError::Retry(RetryAfter::Disk));
        }
        let is_incomplete = precompressed.is_unwatchable;
        let coded = precompressed.read(context, blocking, &mut is_unwatchable)?;
        let Some((coding, FileVersion { metadata, content, .. })) = coded.first() else {
            return Err(if is_incomplete { FileError::Busy } else { FileError::NotFound }.into());
        };
        let length_max = compression.decoded_bytes_max();
        let decoded = match content {
            FileContent::Descriptor(file) => {
                // It may have changed just now; then the job tries again.
                let content = read_whole(file, metadata.length_bytes).map_err(|_| FileError::Busy)?;
                decode(&content, *coding, length_max)
            }
            content => decode(content.in_memory().unwrap_or_default(), *coding, length_max),
        };
        // A file that cannot be decoded, or becomes too long, has only its own URL.
        let decoded = decoded.map_err(|_| FileError::NotFound)?;
        let of_decoded = Metadata { length_bytes: decoded.len() as u64, ..*metadata };
        let fields = (media_type, self.field_lines());
        let representation = Representation::new(
            &http_metadata(&of_decoded),
            Validator::of_content(&decoded),
            media_type,
            Negotiation::AcceptEncoding(ContentCoding::Identity),
            fields.1,
            context.unix_s,
        );
        let uncompressed = FileVariant::recoded(decoded, representation, *metadata, gauges);
        let alternatives = precompressed_variants(coded, fields, context, gauges);
        Ok(LookupResult::New(OpenFile::new(uncompressed, alternatives, protection, is_unwatchable, context)))
    }
}

/// Whether precompressed files are looked for. A precompressed file that is requested by its own name is a file like
/// any other.
pub(super) fn may_be_precompressed(path: &[u8], media_type: &str) -> bool {
    is_compressible(media_type) && ContentCoding::strip_file_extension(path).is_none()
}

/// Whether precompressed files are looked for where there is no file. Most paths that clients only try have no known
/// media type.
pub(super) fn may_be_only_precompressed(path: &[u8], media_type: &str, compression: &CompressionQueue) -> bool {
    media_type != UNKNOWN_MEDIA_TYPE && compression.decoded_bytes_max() > 0 && may_be_precompressed(path, media_type)
}

pub(super) fn precompressed_variants(
    coded: Vec<(ContentCoding, FileVersion)>,
    fields: (&str, &[u8]),
    context: LookupContext,
    gauges: &Arc<Gauges>,
) -> Alternatives {
    let variant = |(coding, version)| {
        let negotiation = Negotiation::AcceptEncoding(coding);
        (coding, FileVariant::new(version, fields, negotiation, context.unix_s, gauges))
    };
    Alternatives::Precompressed(coded.into_iter().map(variant).collect())
}

/// The precompressed files of one file: `app.js.br` and the like.
#[derive(Debug, Default)]
pub(super) struct PrecompressedFiles {
    files: Vec<PrecompressedFile>,
    /// Watches on their directories would not report every change of them.
    pub(super) is_unwatchable: bool,
}

#[derive(Debug)]
struct PrecompressedFile {
    coding: ContentCoding,
    opened: OpenedFile<'static>,
    /// Clients of the coding decode it.
    is_sendable: bool,
    /// Where it is kept; `None` if it is not used.
    storage: Option<Storage>,
}

impl PrecompressedFiles {
    /// Chooses those that can be sent in place of the file with this metadata, within the limits.
    pub(super) fn allocate(&mut self, uncompressed: &Metadata, limits: &mut EntryLimits) {
        for PrecompressedFile { opened, is_sendable, storage, .. } in &mut self.files {
            let metadata = &opened.file.metadata;
            let is_used = *is_sendable && is_usable(metadata, uncompressed);
            *storage = is_used.then(|| limits.allocate(metadata.length_bytes)).flatten();
        }
    }

    /// The same where there is no file without a coding. One that is longer than a decoded file may be is not used.
    fn allocate_alone(&mut self, limits: &mut EntryLimits, length_max: u64) {
        for PrecompressedFile { opened, is_sendable, storage, .. } in &mut self.files {
            let length_bytes = opened.file.metadata.length_bytes;
            let is_used = *is_sendable && (1..=length_max).contains(&length_bytes);
            *storage = is_used.then(|| limits.allocate(length_bytes)).flatten();
        }
    }

    /// The metadata of the used ones.
    pub(super) fn metadata(&self) -> impl Iterator<Item = (ContentCoding, &Metadata)> {
        self.files.iter().filter(|file| file.storage.is_some()).map(|file| (file.coding, &file.opened.file.metadata))
    }

    /// Whether the path of any of them, used or not, has a symbolic link.
    pub(super) fn has_symlinks(&self, root: &Directory) -> bool {
        self.files.iter().any(|file| file.opened.has_symlink_in_path(root))
    }

    /// Reads those that are used; `is_unwatchable` becomes true if one of them was being changed.
    pub(super) fn read(
        self,
        context: LookupContext,
        blocking: Blocking,
        is_unwatchable: &mut bool,
    ) -> Result<Vec<(ContentCoding, FileVersion)>, OpenError> {
        let mut versions = Vec::new();
        for PrecompressedFile { coding, opened, storage, .. } in self.files {
            let Some(storage) = storage else { continue };
            let version = unless_unavailable(
                opened.file.read(storage, TagBasis::Metadata, blocking, context),
                context,
                is_unwatchable,
            )?;
            versions.extend(version.map(|version| (coding, version)));
        }
        Ok(versions)
    }
}

/// Leaves out a precompressed file that cannot be opened: the client gets another coding.
fn unless_unavailable<T>(
    result: Result<T, OpenError>,
    context: LookupContext,
    is_unwatchable: &mut bool,
) -> Result<Option<T>, OpenError> {
    match result {
        Ok(file) => return Ok(Some(file)),
        Err(OpenError::File(error)) if error.is_of_path() => {}
        // No inotify event will follow when it can be opened: the event for its change has already been read.
        Err(OpenError::File(_)) => {
            *is_unwatchable = true;
        }
        Err(OpenError::Retry(RetryAfter::RecentChange(_))) if context.attempt_count >= RECENT_CHANGE_ATTEMPTS_MAX => {
            *is_unwatchable = true;
        }
        Err(error) => return Err(error),
    }
    Ok(None)
}

/// Whether clients of the coding refuse the file, or decode a part of it.
fn has_fault(
    coding: ContentCoding,
    UnreadFile { file, metadata, .. }: &UnreadFile,
    uncompressed: Option<&Metadata>,
    blocking: Blocking,
) -> Result<bool, OpenError> {
    let read = |into: &mut [u8], offset| {
        let read = match file.read_at_cached(into, offset) {
            Ok(None) if blocking == Blocking::No => return Err(OpenError::Retry(RetryAfter::Disk)),
            Ok(None) => file.read_at(into, offset),
            Ok(Some(read)) => Ok(read),
            Err(error) => Err(error),
        };
        read.map_err(|error| file_error(&error).into())
    };
    let (mut head, mut tail) = ([0; CODED_HEAD_BYTES], [0; CODED_TAIL_BYTES]);
    let head_bytes = read(&mut head, 0)?;
    let tail_bytes = match coding {
        ContentCoding::Gzip => read(&mut tail, metadata.length_bytes.saturating_sub(CODED_TAIL_BYTES as u64))?,
        _ => 0,
    };
    let decoded_bytes = uncompressed.map(|metadata| metadata.length_bytes);
    Ok(coding_fault(coding, &head[..head_bytes], &tail[..tail_bytes], decoded_bytes).is_some())
}

/// Whether a precompressed file can be sent in place of the file without a coding: it is not older, and it is shorter.
pub(super) fn is_usable(precompressed: &Metadata, uncompressed: &Metadata) -> bool {
    // Compressors give their file the time of the original, and some of them only its whole seconds.
    let has_whole_seconds = precompressed.modified.nanoseconds == 0;
    let is_older = if has_whole_seconds {
        precompressed.modified.seconds < uncompressed.modified.seconds
    } else {
        precompressed.modified < uncompressed.modified
    };
    !is_older && precompressed.length_bytes != 0 && precompressed.length_bytes < uncompressed.length_bytes
}
