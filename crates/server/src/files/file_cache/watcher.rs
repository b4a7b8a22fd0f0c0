//! The watcher thread: invalidates entries whose files have changed, and those that are no longer used.

use super::FileCache;
use crate::clock::ms;
use crate::files::watched_directories::Invalidation;
use sanderling_os::event_fd::EventFd;
use sanderling_os::poll_set::PollSet;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often unused entries are searched for.
const CLEANUP_INTERVAL: Duration = Duration::from_millis(500);

impl FileCache {
    /// Runs the thread while `goes_on`; `wakeup` makes it look.
    pub(crate) fn run_watcher(&self, wakeup: &EventFd, goes_on: impl Fn() -> bool) {
        let mut waiting = PollSet::new([wakeup.as_fd()].into_iter().chain(self.directories.descriptor()));
        let mut last_cleanup = Instant::now();
        while goes_on() {
            // After an error no descriptor is ready, and the events are read without one.
            let _ = waiting.wait(Some(CLEANUP_INTERVAL));
            if waiting.is_ready(0) {
                wakeup.drain();
            }
            let mut count = 0;
            self.directories.read_events(|invalidation| count += self.apply(&invalidation));
            if last_cleanup.elapsed() >= CLEANUP_INTERVAL {
                last_cleanup = Instant::now();
                count += self.invalidate_unused();
            }
            if count != 0 {
                self.jobs.wake_workers();
            }
        }
    }

    fn apply(&self, invalidation: &Invalidation) -> usize {
        let mut count = 0;
        for key in invalidation.keys() {
            count += usize::from(self.files.invalidate(&key).is_some());
            self.negative.invalidate(&key);
        }
        for key in invalidation.uncompressed_keys() {
            self.negative.invalidate(&key);
            // An entry that is not watched is revalidated soon; and a file whose precompressed form is written all the
            // time would be invalidated each time before it is sent.
            if let Some(file) = self.files.get(&key)
                && file.is_watched_after_event()
            {
                count += usize::from(self.files.invalidate_ref(&file));
            }
        }
        if invalidation.is_recursive() {
            count += self.files.invalidate_where(usize::MAX, |key, _| invalidation.contains(key));
            self.negative.invalidate_where(usize::MAX, |key, _| invalidation.contains(key));
        }
        count
    }

    /// Invalidates entries that were not used for long and those of deleted files that are not watched, and stops
    /// watching directories without entries.
    fn invalidate_unused(&self) -> usize {
        let now_ms = self.context_now().now_ms;
        // A file in use is revalidated at intervals: one that has not been for longer is not in use.
        let idle_ms = ms(self.options.idle_timeout + self.options.watched_valid_for.max(self.options.valid_for));
        let mut unwatched = Vec::new();
        let mut count = self.files.invalidate_where(usize::MAX, |key, file| {
            if !file.is_watched() && file.descriptor_count() > 0 {
                unwatched.push(key.clone());
            }
            now_ms.saturating_sub(file.checked_ms()) > idle_ms
        });
        // Outside the table's lock: the file system may have to be waited for.
        for key in unwatched {
            if let Some(file) = self.files.get(&key)
                && file.is_deleted()
            {
                count += usize::from(self.files.invalidate_ref(&file));
            }
        }
        if count != 0 {
            let mut keys = Vec::new();
            self.files.for_each(|key, _| keys.push(key.clone()));
            self.directories.keep_only(keys.iter());
        }
        count
    }
}
