//! A worker's view of the open-file cache: references to the files that it has served.

use crate::clock::Clock;
use crate::file_cache::{FileCache, Lookup};
use crate::jobs::Waiter;
use crate::open_file::{FileError, FileKey, OpenFile};
use crate::sites::{Site, SiteCache, Sites};
use sanderling_http::{Host, SitePath};
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

    /// Looks `path` up in `site`. A hit costs one look-up in the worker's map, and no system call. `waiter` receives a
    /// completion if the result is [`Lookup::Pending`].
    // Always, although both versions of HTTP call it.
    #[inline(always)]
    pub(crate) fn open(
        &mut self,
        site: &Arc<Site>,
        path: &SitePath<'_>,
        waiter: Waiter,
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
        self.shared.look_up(site, path, &self.key, context, waiter)
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
