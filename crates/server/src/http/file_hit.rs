//! The file that answers a request, of either version of HTTP.

use crate::clock::Clock;
use crate::file_error::FileError;
use crate::files::file_cache::Lookup;
use crate::files::file_variant::FileVariant;
use crate::files::open_file::{FileKey, OpenFile, VariantId};
use crate::net::body_source::BodySource;
use crate::net::file_chunk::{FileChunk, NextPart};
use crate::options::Options;

use sanderling_http::{LookupError, Multipart, Representation, Request, SitePath};
use sanderling_site_rules::ContentOf;
use sanderling_table::Ref;

/// A file that answers a request, in the variant that the client prefers.
pub(crate) struct FileHit<'l, 's> {
    file: &'l Ref<'s, FileKey, OpenFile>,
    id: VariantId,
    variant: &'l FileVariant,
}

/// The file that answers a request, or why there is none; and the file that is the page of that error.
pub(crate) type Found<'l, 's> = (Result<FileHit<'l, 's>, LookupError<'l>>, Option<FileHit<'l, 's>>);

impl<'l, 's> FileHit<'l, 's> {
    #[inline(always)]
    fn new(
        file: &'l Ref<'s, FileKey, OpenFile>,
        request: &Request<'_>,
        may_transform: impl Fn() -> bool,
    ) -> FileHit<'l, 's> {
        let id = file.variant_for(request, may_transform);
        FileHit { file, id, variant: file.variant(id) }
    }

    /// The file of a look-up of `path`, or why there is none and the file that is the page for it; `None` if the
    /// request waits for a job.
    #[inline(always)]
    pub(crate) fn find(
        lookup: &'l Lookup<'_, 's>,
        request: &Request<'_>,
        path: &'l SitePath<'l>,
        may_transform: impl Fn() -> bool,
    ) -> Option<Found<'l, 's>> {
        let file: &'l Ref<'s, FileKey, OpenFile> = match lookup {
            Lookup::Cached(file) => file,
            Lookup::Opened(file) | Lookup::Fallback(file) | Lookup::NotFoundPage(file) => file,
            Lookup::Failed(error) => return Some((Err(lookup_error(*error, path)), None)),
            Lookup::Pending => return None,
        };
        let hit = FileHit::new(file, request, may_transform);
        Some(match lookup {
            Lookup::NotFoundPage(_) => (Err(LookupError::NotFoundWithPage(hit.representation())), Some(hit)),
            _ => (Ok(hit), None),
        })
    }

    /// Whether the path has had other content before, although its name says that it changes with the content.
    pub(crate) fn has_reused_name(&self) -> bool {
        self.file.has_reused_name
    }

    pub(crate) fn representation(&self) -> &'l Representation {
        &self.variant.representation
    }

    pub(crate) fn may_use_sendfile(&self, options: &Options, clock: &Clock) -> bool {
        self.variant.may_use_sendfile(clock.unix_s(), options.open_files.sendfile_after)
    }

    /// The source of several ranges. Separate, so that the path of other responses stays short.
    #[cold]
    #[inline(never)]
    pub(crate) fn multipart(
        &self,
        multipart: &Multipart<'_>,
        may_use_sendfile: bool,
        copied_bytes_max: u64,
    ) -> BodySource<'s> {
        let (mut text, mut parts) = (Vec::new(), multipart.parts());
        if let Some(whole) = self.variant.content.in_memory()
            && multipart.length_bytes() <= copied_bytes_max
        {
            for part in parts {
                multipart.write_part_head(part, &mut text);
                let start = part.start_bytes as usize;
                text.extend_from_slice(&whole[start..start + part.length_bytes as usize]);
            }
            multipart.write_end(&mut text);
            return BodySource::Bytes { bytes: text, sent: 0 };
        }
        let first = parts.next().expect("several ranges have a first one");
        multipart.write_part_head(first, &mut text);
        let mut next_parts: Vec<_> = parts
            .map(|part| {
                let mut text = Vec::new();
                multipart.write_part_head(part, &mut text);
                NextPart { text, offset: part.start_bytes, length_bytes: part.length_bytes }
            })
            .collect();
        let mut end = Vec::new();
        multipart.write_end(&mut end);
        next_parts.push(NextPart { text: end, offset: 0, length_bytes: 0 });
        let chunk = self.chunk(first.start_bytes, first.length_bytes, may_use_sendfile);
        BodySource::File(chunk.with_parts(text, next_parts.into_iter()))
    }

    /// These bytes, if the file is in memory.
    pub(crate) fn in_memory(&self, start: u64, length_bytes: u64) -> Option<&'l [u8]> {
        let whole = self.variant.content.in_memory()?;
        Some(&whole[start as usize..(start + length_bytes) as usize])
    }

    /// These bytes, to be sent later.
    pub(crate) fn chunk(&self, start: u64, length_bytes: u64, may_use_sendfile: bool) -> FileChunk<'s> {
        FileChunk::new(self.file, self.id, start, length_bytes, may_use_sendfile)
    }
}

/// The kind of content of a response with this file. `is_substitute`: it is not at the path of the request.
pub(crate) fn content_of(hit: Option<&FileHit<'_, '_>>, is_substitute: bool) -> ContentOf {
    match hit {
        _ if is_substitute => ContentOf::OtherPath,
        Some(hit) if hit.has_reused_name() => ContentOf::ReusedPath,
        _ => ContentOf::Path,
    }
}

/// Whether there is no file, so that a rule may answer instead.
pub(crate) fn is_missing(error: FileError) -> bool {
    matches!(error, FileError::NotFound | FileError::NotFoundWithPage(_))
}

fn lookup_error<'r>(error: FileError, path: &'r SitePath<'r>) -> LookupError<'r> {
    match error {
        FileError::IsDirectory => LookupError::Directory(path),
        FileError::Moved(url) => LookupError::Moved(path, url),
        FileError::NotFound | FileError::NotFoundWithPage(_) => LookupError::NotFound,
        FileError::Forbidden => LookupError::Forbidden,
        FileError::Busy | FileError::Unavailable => LookupError::ServiceUnavailable,
        FileError::Failed => LookupError::InternalServerError,
    }
}
