//! The listing of a directory without an index.

use super::{Attempt, FileLookup, LookupResult, join, open_linked};
use crate::file_error::FileError;
use crate::files::file_variant::FileVariant;
use crate::files::open_file::{Alternatives, Blocking, OpenError, OpenFile, RetryAfter, VariantId, file_error};
use crate::site::protection::Protection;
use sanderling_http::{ListedFile, Listing, PathTraits};
use sanderling_os::directory::{Directory, DirectoryEntry, EntryKind};
use sanderling_os::error::leads_out;
use sanderling_os::file::{FileType, Metadata};

/// The additional fields in the heads of both forms. No name of a file can become a script.
const FIELD_LINES: &[u8] =
    b"Vary: Accept\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n";

impl FileLookup {
    /// Lists `directory` as a page and as JSON.
    pub(super) fn list(
        &self,
        root: &Directory,
        directory: &[u8],
        attempt: Attempt<'_>,
    ) -> Result<LookupResult, OpenError> {
        let Attempt { cached, context, blocking, gauges, .. } = attempt;
        if blocking == Blocking::No {
            // Reading a large directory takes long, even without a wait for a disk.
            return Err(OpenError::Retry(RetryAfter::Disk));
        }
        // There is no index.
        let rules = self.site.options.protection();
        let protection = rules.map_or_else(Protection::default, |rules| rules.of_missing(directory, true));
        let is_shown = |name: &[u8]| {
            let path = join(directory, name);
            // A client that can see the listing learns nothing of files that only others can see.
            !PathTraits::of(&path).intersects(self.site.options.refused_paths)
                && self.site.options.protection_of_file(&path).is_implied_by(&[protection])
        };
        let open = |path: &[u8]| match root.open_beneath(if path.is_empty() { b"." } else { path }) {
            Err(error) if leads_out(&error) => open_linked(root, &self.site.options.link_targets, path),
            opened => opened.map_err(|error| file_error(&error)),
        };
        let opened = open(directory)?;
        let metadata = opened.metadata().map_err(|error| file_error(&error))?;
        if metadata.file_type != FileType::Directory {
            return Err(FileError::NotFound.into());
        }
        let read = opened.entries(context.limits.listed_entries, is_shown);
        let (entries, is_truncated) = read.map_err(|error| file_error(&error))?;
        let target_of = |name: &[u8]| open(&join(directory, name)).ok()?.metadata().ok();
        let mut entries: Vec<ListedFile> = entries.into_iter().filter_map(|entry| listed(entry, target_of)).collect();
        Listing::sort(&mut entries);
        let listing = Listing { path: directory, entries: &entries, is_truncated };
        let (mut html, mut json) = (Vec::new(), Vec::new());
        listing.write_html(&mut html);
        listing.write_json(&mut json);
        let is_same_protection = cached.is_some_and(|cached| cached.protection == protection);
        let cached = cached.and_then(|cached| cached.variant(VariantId::Uncompressed).content.in_memory());
        if is_same_protection && cached == Some(&html) {
            return Ok(LookupResult::Unchanged);
        }
        let generated = |content, media_type| {
            FileVariant::generated(content, (media_type, FIELD_LINES), metadata, context.unix_s, gauges)
        };
        let html = generated(html, "text/html; charset=utf-8");
        let json = Alternatives::Json(Box::new(generated(json, "application/json")));
        // No event says that a length has changed, so the directory is read again.
        Ok(LookupResult::New(OpenFile::new(html, json, protection, true, context)))
    }
}

/// An entry as it is served: a link counts as its target, and files that are not served are not listed.
fn listed(entry: DirectoryEntry, target_of: impl Fn(&[u8]) -> Option<Metadata>) -> Option<ListedFile> {
    let (file_type, length_bytes, modified) = match entry.kind {
        EntryKind::File { file_type, length_bytes, modified } => (file_type, length_bytes, modified),
        EntryKind::Link => {
            let target = target_of(&entry.name)?;
            (target.file_type, target.length_bytes, target.modified)
        }
    };
    let is_directory = match file_type {
        FileType::Directory => true,
        FileType::Regular => false,
        FileType::Other => return None,
    };
    Some(ListedFile { name: entry.name, is_directory, length_bytes, modified_unix_s: modified.seconds })
}
