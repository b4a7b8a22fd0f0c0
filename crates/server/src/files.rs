//! A worker's own view of the open-file cache: the leases of the files that it has served.

use crate::content::Site;
use crate::open_files::{FileKey, NoFile, Now, OpenFile, OpenFiles};
use sanderling_http::SitePath;
use table::{Held, Leases};

/// Files that one worker keeps leased.
const LEASES_MAX: usize = 1_024;

/// A worker's leases.
pub(crate) struct Files<'s> {
    shared: &'s OpenFiles,
    leases: Leases<'s, FileKey, OpenFile>,
    /// Room for the key of the look-up at hand.
    key: FileKey,
}

impl<'s> Files<'s> {
    pub(crate) fn new(shared: &'s OpenFiles) -> Files<'s> {
        Files { shared, leases: Leases::new(shared.table(), LEASES_MAX), key: FileKey::new() }
    }

    /// The file at `path` of `site`. A hit costs one look-up in the worker's own leases, and no call of the kernel.
    pub(crate) fn open(
        &mut self,
        site: &Site,
        path: &SitePath<'_>,
        now: Now,
    ) -> Result<Held<'s, FileKey, OpenFile>, NoFile> {
        self.key.clear();
        self.key.extend_from_slice(path.as_bytes());
        if path.ends_with_slash() {
            self.key.push(b'/');
        }
        self.key.extend_from_slice(&site.id.to_le_bytes());
        match self.leases.lease(&self.key) {
            Some(file) if !self.shared.is_stale(file, now.ms) => Ok(file.clone()),
            Some(file) => {
                let old = file.clone();
                self.shared.refresh(site, path, &self.key, &old, now)
            }
            None => self.shared.open(site, path, &self.key, now),
        }
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
