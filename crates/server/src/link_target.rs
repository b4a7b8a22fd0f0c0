//! What a site answers to a request for a path, found without a server: for `check`, which follows the links of pages.
//!
//! The look-up is that of requests, so that the two cannot differ. It reads no content, and waits for the disk.

use crate::compression::CompressionQueue;
use crate::file_lookup::FileLookup;
use crate::open_file::{Blocking, EntryLimits, FileError, FileKey, LookupContext, OpenError};
use crate::options::OpenFilesOptions;
use crate::site_rules::Action;
use crate::sites::Site;
use sanderling_http::{Method, SitePath, SitePathError, Status};
use sanderling_site_rules::RequestPath;
use std::sync::Arc;
use std::time::Duration;

/// Redirects that are followed within a site; browsers follow 20.
const REDIRECTS_MAX: usize = 10;
/// Descriptors of one file: that of itself, and those of its precompressed files.
const DESCRIPTORS: u64 = 8;

/// What follows a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkUse {
    /// A person: a page is opened.
    Navigation,
    /// A page: it needs a script, an image and the like.
    Resource,
}

/// The status of a link to `target`, a path and perhaps a query, within `site`: that of an error, or `None` if it leads to a file, a page
/// that is redirected to, or another host.
pub fn link_error(site: &Arc<Site>, host: Option<&[u8]>, target: &[u8], link_use: LinkUse) -> Option<Status> {
    let mut target = target.to_vec();
    for _ in 0..=REDIRECTS_MAX {
        match step(site, host, &target, link_use) {
            Ok(None) => return None,
            Ok(Some(location)) if location.starts_with(b"/") && !location.starts_with(b"//") => target = location,
            Ok(Some(_)) => return None,
            Err(status) => return Some(status),
        }
    }
    None
}

/// Follows a link: `Ok(None)` if there is a file, `Ok` with a location if it is redirected.
fn step(site: &Arc<Site>, host: Option<&[u8]>, target: &[u8], link_use: LinkUse) -> Result<Option<Vec<u8>>, Status> {
    let (raw_path, query) = match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    };
    let path = SitePath::parse(raw_path).map_err(|error| match error {
        SitePathError::Malformed => Status::BadRequest,
        SitePathError::TooLong => Status::NotFound,
    })?;
    let Some(rules) = &site.options.rules else { return find(site, &path, link_use) };
    if rules.is_doh_path(&path) {
        return Ok(None);
    }
    let request = RequestPath { host, path: path.as_bytes(), ends_with_slash: path.ends_with_slash(), query };
    match Action::by_rules(rules, Method::Get, &request) {
        Action::FileOrRule(outcome) => match find(site, &path, link_use) {
            Err(Status::NotFound) => follow(site, Action::of(outcome), link_use),
            found => found,
        },
        Action::File => find(site, &path, link_use),
        action => follow(site, action, link_use),
    }
}

fn follow(site: &Arc<Site>, action: Action<'_>, link_use: LinkUse) -> Result<Option<Vec<u8>>, Status> {
    match action {
        Action::Redirect(_, location) => Ok(Some(location)),
        Action::Page(status) | Action::OtherFile(_, Some(status)) => Err(status),
        Action::OtherFile(path, None) => match SitePath::parse(&path) {
            Ok(path) => find(site, &path, link_use),
            Err(_) => Err(Status::NotFound),
        },
        Action::File | Action::FileOrRule(_) | Action::DnsQuery | Action::Respond(_) => Ok(None),
    }
}

/// Looks a file up.
fn find(site: &Arc<Site>, path: &SitePath<'_>, link_use: LinkUse) -> Result<Option<Vec<u8>>, Status> {
    let missing = || match (&site.options.files.fallback, link_use) {
        (Some(_), LinkUse::Navigation) => Ok(None),
        _ => Err(Status::NotFound),
    };
    if path.traits().intersects(site.options.refused_paths) {
        return missing();
    }
    let mut key = FileKey::default();
    key.set(site.id, path);
    match look_up(site, &key) {
        Err(FileError::IsDirectory) => {
            key.path.push(b'/');
            match look_up(site, &key) {
                Err(FileError::NotFound | FileError::NotFoundWithPage(_)) => missing(),
                _ => Ok(None),
            }
        }
        Err(FileError::NotFound | FileError::NotFoundWithPage(_)) => missing(),
        Err(FileError::Forbidden) => Err(Status::Forbidden),
        // These say nothing about the link.
        Ok(()) | Err(FileError::Moved(_) | FileError::Busy | FileError::Unavailable | FileError::Failed) => Ok(None),
    }
}

fn look_up(site: &Arc<Site>, key: &FileKey) -> Result<(), FileError> {
    let limits = EntryLimits {
        small_file_bytes_max: 0,
        content_bytes: 0,
        descriptors: DESCRIPTORS,
        listed_entries: OpenFilesOptions::default().listing_entries_max,
    };
    let context =
        LookupContext { now_ms: 0, unix_s: 0, limits, attempt_count: u8::MAX, sendfile_after: Duration::ZERO };
    let compression = Arc::new(CompressionQueue::new(OpenFilesOptions::default().compression));
    match FileLookup::new(site, key).run(None, context, Blocking::Yes, (&Arc::default(), &compression)) {
        // A file that is being written exists.
        Ok(_) | Err(OpenError::Retry(_)) => Ok(()),
        Err(OpenError::File(error)) => Err(error),
    }
}
