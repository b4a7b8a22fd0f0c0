//! A worker's view of the open-file cache: references to the files that it has served.

use crate::clock::Clock;
use crate::file_error::FileError;
use crate::files::file_cache::{FileCache, Lookup};
use crate::files::file_lookup::{NOT_FOUND_PAGE, join, page_path};
use crate::files::open_file::{FileKey, OpenFile};
use crate::site::sites::{Site, SiteCache, Sites};
use crate::waiter::Waiter;
use sanderling_http::{Host, Request, SitePath};
use sanderling_table::{LocalCache, Ref};
use std::sync::Arc;

/// Files that one worker keeps references to.
const FILES_MAX: usize = 4_096;

/// A worker's references to files.
pub(crate) struct LocalFiles<'s> {
    shared: &'s FileCache,
    references: LocalCache<'s, FileKey, OpenFile>,
    site_cache: SiteCache,
    /// Room for the key of the current look-up.
    key: FileKey,
}

impl<'s> LocalFiles<'s> {
    pub(crate) fn new(shared: &'s FileCache) -> LocalFiles<'s> {
        let references = LocalCache::new(shared.files(), FILES_MAX);
        LocalFiles { shared, references, site_cache: SiteCache::default(), key: FileKey::default() }
    }

    /// Invalidates `file`, which has changed without an event from the kernel.
    pub(crate) fn invalidate(&self, file: &Ref<'s, FileKey, OpenFile>) {
        self.shared.invalidate(file);
    }

    /// The site of `sites` for `host`, which only an HTTP/1.0 request lacks.
    #[inline]
    pub(crate) fn site_for<'c>(&mut self, sites: &'c Sites, host: Option<Host<'_>>) -> Option<&'c Arc<Site>> {
        self.site_cache.find(sites, host)
    }

    /// The index of the site that was looked up last.
    pub(crate) fn last_site_index(&self) -> Option<usize> {
        self.site_cache.index()
    }

    /// Looks `path` up in `site`. A hit costs one look-up in the worker's map, and no system call. `waiter` receives an
    /// event if the result is [`Lookup::Pending`]; `has_waited`: the request has received one.
    // Always, although both versions of HTTP call it.
    #[inline(always)]
    pub(crate) fn open(
        &mut self,
        site: &Arc<Site>,
        path: &SitePath<'_>,
        (waiter, has_waited): (Waiter, bool),
        clock: &Clock,
    ) -> Lookup<'_, 's> {
        if path.traits().intersects(site.options.refused_paths) {
            return Lookup::Failed(FileError::NotFound);
        }
        self.key.set(site.id, path);
        if let Some(file) = self.references.get(&self.key)
            && !self.shared.is_stale(&file, clock.now_ms())
        {
            return Lookup::Cached(file);
        }
        let context = self.shared.context_at(clock.now_ms(), clock.unix_s());
        self.shared.look_up(site, &self.key, context, waiter, has_waited)
    }

    /// The answer to a request whose path has no file because of `error`: the fallback of the site, or a page that says
    /// so. `is_of_rule`: a rule leads to the path. The client does not know it, so that the file is served, whatever
    /// its URL is.
    #[cold]
    #[inline(never)]
    pub(crate) fn open_instead(
        &mut self,
        error: FileError,
        (site, path, request): (&Arc<Site>, &SitePath<'_>, &Request<'_>),
        is_of_rule: bool,
        waiter: (Waiter, bool),
        clock: &Clock,
    ) -> Lookup<'_, 's> {
        if is_of_rule && error.has_clean_url() {
            return match self.open_exact(site, page_path(path.as_bytes()), waiter, clock) {
                Ok(Some(file)) => Lookup::Opened(file),
                Ok(None) => Lookup::Pending,
                Err(error) => Lookup::Failed(error),
            };
        }
        let (directory, has_page) = match error {
            FileError::NotFoundWithPage(bytes) => (&path.as_bytes()[..usize::from(bytes)], true),
            // Whether there is a page was not asked for a refused path.
            FileError::NotFound => (&b""[..], path.traits().intersects(site.options.refused_paths)),
            _ => return Lookup::Failed(error),
        };
        if let Some(fallback) = &site.options.files.fallback
            && request.is_navigation()
        {
            match self.open_exact(site, fallback.as_bytes().to_vec(), waiter, clock) {
                Ok(Some(file)) => return Lookup::Fallback(file),
                Ok(None) => return Lookup::Pending,
                Err(_) => {}
            }
        }
        if !has_page {
            return Lookup::Failed(FileError::NotFound);
        }
        match self.open_exact(site, join(directory, NOT_FOUND_PAGE), waiter, clock) {
            Ok(Some(file)) => Lookup::NotFoundPage(file),
            Ok(None) => Lookup::Pending,
            Err(_) => Lookup::Failed(FileError::NotFound),
        }
    }

    /// Opens the file at exactly this path; `None` if `waiter` receives an event.
    fn open_exact(
        &mut self,
        site: &Arc<Site>,
        path: Vec<u8>,
        (waiter, has_waited): (Waiter, bool),
        clock: &Clock,
    ) -> Result<Option<Ref<'s, FileKey, OpenFile>>, FileError> {
        let key = FileKey::exact(site.id, path);
        if let Some(file) = self.references.get(&key)
            && !self.shared.is_stale(&file, clock.now_ms())
        {
            return Ok(Some(Ref::clone(&file)));
        }
        let context = self.shared.context_at(clock.now_ms(), clock.unix_s());
        match self.shared.look_up(site, &key, context, waiter, has_waited) {
            Lookup::Opened(file) => Ok(Some(file)),
            Lookup::Failed(error) => Err(error),
            Lookup::Pending => Ok(None),
            Lookup::Cached(_) | Lookup::NotFoundPage(_) | Lookup::Fallback(_) => {
                unreachable!("the shared cache has no references of a worker, and does not choose pages")
            }
        }
    }

    /// Gives up references that were invalidated: once per iteration, before the worker may sleep.
    pub(crate) fn sweep(&mut self) {
        self.references.sweep();
    }

    /// Gives up all references.
    pub(crate) fn clear(&mut self) {
        self.references.clear();
    }
}
