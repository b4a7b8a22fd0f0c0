//! A worker's own view of the open-file cache: the leases of the files that it has served.

use crate::clock::Clock;
use crate::content::{Content, LastSite, Site};
use crate::fills::Waiter;
use crate::open_file::{FileKey, OpenFile};
use crate::open_files::{Lookup, OpenFiles};
use crate::slab::Key;
use sanderling_http::{Host, SitePath};
use sanderling_table::{LocalCache, Ref};
use std::sync::Arc;

/// Files that one worker keeps leased.
const LEASES_MAX: usize = 4_096;

/// A worker's leases.
pub(crate) struct Files<'s> {
    shared: &'s OpenFiles,
    leases: LocalCache<'s, FileKey, OpenFile>,
    last_site: LastSite,
    worker_index: usize,
    /// Room for the key of the look-up at hand.
    key: FileKey,
}

impl<'s> Files<'s> {
    pub(crate) fn new(shared: &'s OpenFiles, worker_index: usize) -> Files<'s> {
        let leases = LocalCache::new(shared.files(), LEASES_MAX);
        Files { shared, leases, last_site: LastSite::default(), worker_index, key: FileKey::new() }
    }

    /// Lends `file` no more: it was found to be another than the entry says, and nobody has told of it.
    pub(crate) fn retire(&self, file: &Ref<'s, FileKey, OpenFile>) {
        self.shared.retire_changed(file);
    }

    /// The site of `content` that `host` selects; only a request of HTTP/1.0 has none.
    #[inline]
    pub(crate) fn site_for<'c>(&mut self, content: &'c Content, host: Option<Host<'_>>) -> Option<&'c Arc<Site>> {
        self.last_site.site_for(content, host)
    }

    /// What is known of `path` in `site`. A hit costs one look-up in the worker's own leases, and no call of the
    /// kernel. `peer` is told when nothing is known yet.
    #[inline]
    pub(crate) fn open(&mut self, site: &Arc<Site>, path: &SitePath<'_>, peer: Key, clock: &Clock) -> Lookup<'_, 's> {
        self.key.clear();
        self.key.extend_from_slice(path.as_bytes());
        if path.ends_with_slash() && !path.as_bytes().is_empty() {
            self.key.push(b'/');
        }
        self.key.extend_from_slice(&site.id.to_le_bytes());
        let is_known = match self.leases.get(&self.key) {
            Some(file) if !self.shared.is_stale(&file, clock.now_ms()) => return Lookup::Lent(file),
            file => file.is_some(),
        };
        let look = self.shared.look_at(clock.now_ms(), clock.unix_s());
        let waiter = Waiter { worker_index: self.worker_index, peer };
        self.shared.look_up(site, path, &self.key, is_known, look, waiter)
    }

    /// Gives back what was retired: once a turn, before the worker may sleep.
    pub(crate) fn sweep(&mut self) {
        self.leases.sweep();
    }

    /// Gives everything back.
    pub(crate) fn clear(&mut self) {
        self.leases.clear();
    }
}
