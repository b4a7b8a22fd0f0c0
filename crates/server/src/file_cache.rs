//! The open-file cache, shared by all workers: one entry for each requested path, immutable and the same for all.
//!
//! ```text
//! hit     the worker has a reference of its own                  no call, no lock
//! miss    another worker has opened the file                     no call
//!         it is opened at once, if no disk has to be waited for  openat2, fstat, read; and three openat2 for the
//!                                                                precompressed files
//!         otherwise by a job, while the worker serves others     and the connection receives a completion
//! stale   the kernel reports a change (inotify)                  the entry is invalidated
//!         a time has passed                                      openat2, fstat, and the same for precompressed files
//! ```
//!
//! A response that is being sent from an invalidated entry goes on with the version it began with. Paths without a file are
//! cached apart from files (negative entries), so that a flood of them evicts no file.

use crate::clock::{Milliseconds, ms};
use crate::file_lookup::{FileLookup, Revalidation};
use crate::jobs::{Job, JobQueue, JobResult, Waiter};
use crate::open_file::{Attempt, Blocking, Budget, FileError, FileKey, Gauges, OpenError, OpenFile, RetryAfter};
use crate::options::OpenFilesOptions;
use crate::sites::Site;
use crate::watched_dirs::{Outdated, WatchedDirs};
use sanderling_http::SitePath;
use sanderling_os::clock::{monotonic_ms, unix_seconds};
use sanderling_os::event_fd::EventFd;
use sanderling_os::poll_set::PollSet;
use sanderling_table::{CachedRef, Ref, Table};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The cache.
#[derive(Debug)]
pub(crate) struct FileCache {
    files: Table<FileKey, OpenFile>,
    negative: Table<FileKey, NegativeEntry>,
    /// Look-ups that have begun, each with the connections that wait for it.
    in_progress: Mutex<HashMap<FileKey, Vec<Waiter>>>,
    jobs: Arc<JobQueue>,
    dirs: WatchedDirs,
    gauges: Arc<Gauges>,
    options: OpenFilesOptions,
    /// When the server was created, on the monotonic clock.
    start_ms: Milliseconds,
    evicted_count: AtomicU64,
}

/// A path without a file.
#[derive(Debug)]
struct NegativeEntry {
    error: FileError,
    found_ms: Milliseconds,
}

/// The result of a look-up for a request.
pub(crate) enum Lookup<'f, 's> {
    /// The worker has a reference to this file.
    Cached(CachedRef<'f, 's, FileKey, OpenFile>),
    /// The file was opened or revalidated just now.
    Opened(Ref<'s, FileKey, OpenFile>),
    /// The path leads to no file.
    Failed(FileError),
    /// The connection receives a completion.
    Pending,
}

/// Whether a look-up is the caller's to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// It is; the caller ends it.
    Acquired,
    /// Another thread runs it, and the waiter receives a completion.
    InProgress,
}

/// Completes a look-up whose thread panics.
struct PanicGuard<'a> {
    cache: &'a FileCache,
    key: &'a FileKey,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        self.cache.finish(self.key, Err(FileError::Failed));
    }
}

/// One in this many entries is evicted when there are too many: so rarely that a scan of all of them costs little.
const EVICTED_FRACTION: usize = 16;
/// Attempts for one look-up, when descriptors are lacking or the file is being written.
const ATTEMPTS_MAX: u8 = 10;
/// How long a job waits for workers to release descriptors.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);
/// How often unused entries are looked for.
const CLEANUP_INTERVAL: Duration = Duration::from_millis(500);

impl FileCache {
    pub(crate) fn new(options: OpenFilesOptions, jobs: Arc<JobQueue>, start_ms: Milliseconds) -> FileCache {
        FileCache {
            // Invalidated entries that are still sent keep their slots: the configured limit is kept on the others.
            files: Table::new(sanderling_table::CAPACITY_MAX),
            negative: Table::new(options.negative_entries_max.clamp(1, sanderling_table::CAPACITY_MAX)),
            in_progress: Mutex::default(),
            jobs,
            dirs: WatchedDirs::new(options.watched_dirs_max),
            gauges: Arc::default(),
            options,
            start_ms,
            evicted_count: AtomicU64::new(0),
        }
    }

    /// The table that workers take references from.
    pub(crate) fn files(&self) -> &Table<FileKey, OpenFile> {
        &self.files
    }

    /// Whether the file system must be asked before the entry is used.
    #[inline]
    pub(crate) fn is_stale(&self, file: &OpenFile, now_ms: Milliseconds) -> bool {
        let fresh_for = if file.is_watched() { self.options.watched_fresh_for } else { self.options.fresh_for };
        now_ms.saturating_sub(file.checked_ms()) > ms(fresh_for) && file.can_change()
    }

    /// Looks up a path for which the worker has no reference, or a stale one (`is_known`): in the negative entries, then
    /// on disk if that needs no wait, and otherwise by a job.
    pub(crate) fn look_up(
        &self,
        site: &Arc<Site>,
        path: &SitePath<'_>,
        key: &FileKey,
        is_known: bool,
        attempt: Attempt,
        waiter: Waiter,
    ) -> Lookup<'_, '_> {
        if let Some(negative) = self.negative.get(key) {
            if attempt.now_ms.saturating_sub(negative.found_ms) <= ms(self.options.fresh_for) {
                return Lookup::Failed(negative.error);
            }
            self.negative.invalidate_ref(&negative);
        }
        if self.claim(key, waiter) == Claim::InProgress {
            return Lookup::Pending;
        }
        let guard = PanicGuard { cache: self, key };
        let lookup = FileLookup::new(site, path, key);
        // Watching a directory for the first time may have to wait.
        let is_watchable = self.dirs.descriptor().is_some() && lookup.is_on_disk();
        let result = if !is_known && is_watchable && !self.dirs.is_watched(site, lookup.directory()) {
            Err(OpenError::Retry(RetryAfter::Disk))
        } else {
            self.run(&lookup, attempt, Blocking::No)
        };
        std::mem::forget(guard);
        match result {
            Ok(file) => {
                self.finish(key, Ok(()));
                Lookup::Opened(file)
            }
            // A job makes room, and waits for it.
            Err(OpenError::File(FileError::Busy)) => self.enqueue(lookup, Duration::ZERO, waiter),
            Err(OpenError::Retry(after)) => self.enqueue(lookup, after.delay(), waiter),
            Err(OpenError::File(error)) => {
                self.finish(key, Err(error));
                Lookup::Failed(error)
            }
        }
    }

    /// Hands a claimed look-up to a job, or ends it if too many jobs are queued.
    fn enqueue(&self, lookup: FileLookup, delay: Duration, waiter: Waiter) -> Lookup<'_, '_> {
        let key = lookup.key.clone();
        self.lock_in_progress().entry(key.clone()).or_default().push(waiter);
        match self.jobs.enqueue(Job::OpenFile(lookup), delay) {
            Ok(()) => Lookup::Pending,
            Err(_) => {
                self.lock_in_progress().entry(key.clone()).or_default().retain(|other| *other != waiter);
                self.finish(&key, Err(FileError::Busy));
                Lookup::Failed(FileError::Busy)
            }
        }
    }

    /// Claims the look-up of `key`, or waits for the thread that has.
    fn claim(&self, key: &FileKey, waiter: Waiter) -> Claim {
        let mut in_progress = self.lock_in_progress();
        if let Some(waiters) = in_progress.get_mut(key) {
            waiters.push(waiter);
            return Claim::InProgress;
        }
        in_progress.insert(key.clone(), Vec::new());
        Claim::Acquired
    }

    /// Ends a look-up.
    fn finish(&self, key: &FileKey, result: Result<(), FileError>) {
        // The waiters find the other errors in the negative entries.
        let result = result.or_else(|error| match error {
            FileError::Busy | FileError::Unavailable | FileError::Failed => Err(error),
            FileError::IsDirectory | FileError::NotFound | FileError::Forbidden => Ok(()),
        });
        let waiters = self.lock_in_progress().remove(key).unwrap_or_default();
        self.jobs.complete(&waiters, JobResult::FileOpened(result));
    }

    fn lock_in_progress(&self) -> MutexGuard<'_, HashMap<FileKey, Vec<Waiter>>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a look-up, and publishes the file or caches that there is none.
    fn run(
        &self,
        lookup: &FileLookup,
        attempt: Attempt,
        blocking: Blocking,
    ) -> Result<Ref<'_, FileKey, OpenFile>, OpenError> {
        let event_count_before = self.dirs.event_count();
        let known = self.files.get(&lookup.key);
        let file = match lookup.run(known.as_deref(), attempt, blocking, &self.gauges) {
            Ok(Revalidation::Unchanged) => {
                let known = known.expect("only a known file can be unchanged");
                known.note_checked(attempt.now_ms);
                known
            }
            Ok(Revalidation::Changed(file)) => self.publish(&lookup.key, file, known.is_some())?,
            Err(error) => {
                // After an error that says nothing about the file, the known version stays.
                if let OpenError::File(error @ (FileError::NotFound | FileError::IsDirectory | FileError::Forbidden)) =
                    error
                {
                    self.files.invalidate(&lookup.key);
                    self.insert_negative(&lookup.key, NegativeEntry { error, found_ms: attempt.now_ms });
                }
                return Err(error);
            }
        };
        // An event between the look-up and the publishing may have been about this file, and found no entry to
        // invalidate, or one that was not watched: then the file is revalidated soon. This thread notes the watch first and
        // reads the count after; the watcher counts first and reads the note after: one of them learns of the other.
        let can_be_reported = self.dirs.is_watched(&lookup.site, lookup.directory()) && file.can_be_watched();
        file.set_watched(can_be_reported);
        let is_reported = can_be_reported && self.dirs.event_count() == event_count_before;
        file.set_watched(is_reported);
        Ok(file)
    }

    fn publish(
        &self,
        key: &FileKey,
        file: OpenFile,
        replaces_another: bool,
    ) -> Result<Ref<'_, FileKey, OpenFile>, FileError> {
        let published = self.files.insert(key.clone(), file).or_else(|full| {
            self.evict(1, None, |_| 1);
            self.files.insert(full.key, full.value).map_err(|_| FileError::Busy)
        })?;
        self.keep_limits(&published);
        if replaces_another {
            // Sleeping workers may have references to the version that was replaced.
            self.jobs.wake_workers();
        }
        Ok(published)
    }

    /// Evicts entries beyond the limits, but not `new`.
    fn keep_limits(&self, new: &OpenFile) {
        let options = &self.options;
        if self.files.len() > options.files_max {
            self.evict_beyond(options.files_max as u64, new, |_| 1);
        }
        if self.gauges.content_bytes.load(Ordering::Relaxed) > options.content_bytes_max {
            self.evict_beyond(options.content_bytes_max, new, OpenFile::content_bytes);
        }
        if self.gauges.descriptors.load(Ordering::Relaxed) > options.descriptors_max as u64 {
            self.evict_beyond(options.descriptors_max as u64, new, OpenFile::descriptor_count);
        }
    }

    fn insert_negative(&self, key: &FileKey, entry: NegativeEntry) {
        if let Err(full) = self.negative.insert(key.clone(), entry) {
            let count = (self.negative.capacity_max() / EVICTED_FRACTION).max(1);
            self.negative.invalidate_where(count, |_, _| true);
            // Without the entry, the next request asks the file system again.
            let _ = self.negative.insert(full.key, full.value);
        }
    }

    /// Evicts what valid entries weigh together beyond `max`, but not `new`. Invalidated entries may still be sent, and no
    /// eviction closes them sooner.
    fn evict_beyond(&self, max: u64, new: &OpenFile, weight: impl Fn(&OpenFile) -> u64) {
        let mut sum = 0;
        self.files.for_each(|_, file| sum += weight(file));
        if sum > max {
            self.evict(sum - max, Some(new), weight);
        }
    }

    /// Invalidates the least recently used entries with a weight, but not `spared`.
    fn evict(&self, excess: u64, spared: Option<&OpenFile>, weight: impl Fn(&OpenFile) -> u64) {
        let weight =
            |file: &OpenFile| if spared.is_some_and(|spared| ptr::eq(spared, file)) { 0 } else { weight(file) };
        let mut files = Vec::new();
        self.files.for_each(|_, file| files.push((file.checked_ms(), weight(file))));
        files.retain(|&(_, weight)| weight > 0);
        let Some(mut eviction) = Eviction::plan(files, excess) else { return };
        let count = self.files.invalidate_where(usize::MAX, |_, file| {
            let weight = weight(file);
            weight > 0 && eviction.takes(file.checked_ms(), weight)
        });
        self.evicted_count.fetch_add(count as u64, Ordering::Relaxed);
        // Sleeping workers may have references to evicted entries.
        self.jobs.wake_workers();
    }

    /// Invalidates a file that was found to have changed.
    pub(crate) fn invalidate(&self, file: &Ref<'_, FileKey, OpenFile>) {
        if self.files.invalidate_ref(file) {
            // Sleeping workers may have references to it.
            self.jobs.wake_workers();
        }
    }

    /// Runs a look-up as a job, which may wait for the file system. `number` is that of earlier attempts.
    pub(crate) fn run_job(&self, lookup: FileLookup, number: u8) {
        self.dirs.watch(&lookup.site, lookup.directory());
        let result = match self.run(&lookup, Attempt { number, ..self.attempt_now() }, Blocking::Yes) {
            Ok(_) => Ok(()),
            Err(OpenError::File(FileError::Busy)) if number < ATTEMPTS_MAX => {
                // Evicted entries close their descriptors as soon as the workers give up their references.
                self.evict(1, None, OpenFile::descriptor_count);
                return self.jobs.retry(Job::OpenFile(lookup), number + 1, EXHAUSTED_PAUSE);
            }
            Err(OpenError::Retry(after)) if number < ATTEMPTS_MAX => {
                return self.jobs.retry(Job::OpenFile(lookup), number + 1, after.delay());
            }
            Err(OpenError::File(error)) => Err(error),
            Err(OpenError::Retry(_)) => Err(FileError::Busy),
        };
        self.finish(&lookup.key, result);
    }

    /// The watcher thread: invalidates what the kernel reports as changed and what was not used for long.
    pub(crate) fn run_watcher(&self, wakeup: &EventFd, goes_on: impl Fn() -> bool) -> io::Result<()> {
        let mut waiting = PollSet::new(self.dirs.descriptor().into_iter().chain([wakeup.as_fd()]));
        let mut last_cleanup = Instant::now();
        while goes_on() {
            waiting.wait(Some(CLEANUP_INTERVAL))?;
            if waiting.is_last_ready() {
                wakeup.drain();
            }
            let mut count = 0;
            self.dirs.read_events(|outdated| count += self.invalidate_outdated(&outdated));
            if last_cleanup.elapsed() >= CLEANUP_INTERVAL {
                last_cleanup = Instant::now();
                count += self.invalidate_unused();
            }
            if count != 0 {
                self.jobs.wake_workers();
            }
        }
        Ok(())
    }

    fn invalidate_outdated(&self, outdated: &Outdated) -> usize {
        let mut count = 0;
        for key in outdated.keys() {
            count += usize::from(self.files.invalidate(&key).is_some());
            self.negative.invalidate(&key);
        }
        for key in outdated.identity_keys() {
            // An entry that is not watched is revalidated soon; and a file whose precompressed form is written all the time
            // would be invalidated each time before it is sent.
            if let Some(file) = self.files.get(&key)
                && file.is_watched_after_event()
            {
                count += usize::from(self.files.invalidate_ref(&file));
            }
        }
        if outdated.is_recursive() {
            count += self.files.invalidate_where(usize::MAX, |key, _| outdated.contains(key));
            self.negative.invalidate_where(usize::MAX, |key, _| outdated.contains(key));
        }
        count
    }

    /// Invalidates entries that were not used for long and those of deleted files that are not watched, and stops watching
    /// directories without entries.
    fn invalidate_unused(&self) -> usize {
        let now_ms = self.attempt_now().now_ms;
        // A file in use is revalidated again and again: one that was not for longer is not in use.
        let idle_ms = ms(self.options.idle_timeout + self.options.watched_fresh_for.max(self.options.fresh_for));
        let mut unwatched = Vec::new();
        let mut count = self.files.invalidate_where(usize::MAX, |key, file| {
            if !file.is_watched() && file.descriptor_count() > 0 {
                unwatched.push(key.clone());
            }
            now_ms.saturating_sub(file.checked_ms()) > idle_ms
        });
        // Outside of the table's lock: the file system may have to be waited for.
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
            self.dirs.keep_only(keys.iter());
        }
        count
    }

    fn attempt_now(&self) -> Attempt {
        self.attempt_at(monotonic_ms() - self.start_ms, unix_seconds())
    }

    /// A first attempt at this time.
    pub(crate) fn attempt_at(&self, now_ms: Milliseconds, unix_s: u64) -> Attempt {
        let budget = Budget {
            small_file_bytes_max: self.options.small_file_bytes_max,
            content_bytes: self.options.content_bytes_max,
            descriptors: self.options.descriptors_max as u64,
        };
        Attempt { now_ms, unix_s, budget, number: 0 }
    }

    /// What the cache holds.
    pub(crate) fn stats(&self) -> CacheStats {
        CacheStats {
            file_count: self.files.len(),
            negative_count: self.negative.len(),
            descriptor_count: self.gauges.descriptors.load(Ordering::Relaxed),
            content_bytes: self.gauges.content_bytes.load(Ordering::Relaxed),
            watched_dir_count: self.dirs.count(),
            evicted_count: self.evicted_count.load(Ordering::Relaxed),
        }
    }
}

/// Which entries are evicted: the least recently used, a fraction of all at least, and as many more as weigh the excess.
#[derive(Debug, PartialEq, Eq)]
struct Eviction {
    /// Entries last used before this time are evicted, and of those last used at it as many as are still needed.
    newest_ms: Milliseconds,
    left_count: usize,
    left_weight: u64,
}

impl Eviction {
    /// A plan for `files`, each with the time of its last use and its weight; `None` if there are none.
    fn plan(mut files: Vec<(Milliseconds, u64)>, excess: u64) -> Option<Eviction> {
        files.sort_unstable_by_key(|&(used_ms, _)| used_ms);
        let (mut left_count, mut left_weight) = ((files.len() / EVICTED_FRACTION).max(1), excess);
        for same_time in files.chunk_by(|(one_ms, _), (other_ms, _)| one_ms == other_ms) {
            let sum: u64 = same_time.iter().map(|&(_, weight)| weight).sum();
            if same_time.len() >= left_count && sum >= left_weight {
                return Some(Eviction { newest_ms: same_time[0].0, left_count, left_weight });
            }
            left_count = left_count.saturating_sub(same_time.len());
            left_weight = left_weight.saturating_sub(sum);
        }
        // All of them weigh less than the excess.
        files.last().map(|&(newest_ms, _)| Eviction { newest_ms, left_count: files.len(), left_weight })
    }

    /// Whether this entry is evicted.
    fn takes(&mut self, used_ms: Milliseconds, weight: u64) -> bool {
        if used_ms != self.newest_ms {
            return used_ms < self.newest_ms;
        }
        let is_needed = self.left_count > 0 || self.left_weight > 0;
        self.left_count = self.left_count.saturating_sub(1);
        self.left_weight = self.left_weight.saturating_sub(weight);
        is_needed
    }
}

/// What the open-file cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStats {
    /// Files.
    pub file_count: usize,
    /// Negative entries: paths without a file.
    pub negative_count: usize,
    /// Open descriptors, those of invalidated files among them that are still being sent.
    pub descriptor_count: u64,
    /// Bytes of content in memory.
    pub content_bytes: u64,
    /// Directories that are watched.
    pub watched_dir_count: usize,
    /// Files evicted so far.
    pub evicted_count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The indices of the evicted files; each file has the time of its last use and its weight.
    fn evicted(files: &[(Milliseconds, u64)], excess: u64) -> Vec<usize> {
        let Some(mut eviction) = Eviction::plan(files.to_vec(), excess) else { return Vec::new() };
        let evicted = files.iter().enumerate().filter(|&(_, &(used_ms, weight))| eviction.takes(used_ms, weight));
        evicted.map(|(index, _)| index).collect()
    }

    #[test]
    fn the_least_recently_used_files_are_evicted_and_no_more_than_needed() {
        assert_eq!(evicted(&[], 1), [0_usize; 0]);
        assert_eq!(evicted(&[(5, 1), (3, 1), (4, 1)], 1), [1]);
        assert_eq!(evicted(&[(5, 1), (3, 1), (4, 1)], 2), [1, 2]);
        assert_eq!(evicted(&[(5, 10), (3, 1), (4, 10)], 2), [1, 2], "by weight, not by number");
        assert_eq!(evicted(&[(5, 10), (3, 20), (4, 10)], 2), [1]);
        assert_eq!(evicted(&[(7, 1), (7, 1), (7, 1)], 2), [0, 1], "of equally old ones");
        assert_eq!(evicted(&[(7, 1), (2, 1), (7, 1), (7, 1)], 3), [0, 1, 2], "in any order");
        assert_eq!(evicted(&[(1, 1), (2, 1)], 9), [0, 1], "all, where all are too few");
        let many: Vec<(Milliseconds, u64)> = (0..100).map(|used_ms| (used_ms, 20)).collect();
        assert_eq!(evicted(&many, 1), (0..100 / EVICTED_FRACTION).collect::<Vec<_>>(), "a fraction at least");
        assert_eq!(evicted(&many, 980), (0..49).collect::<Vec<_>>());
    }
}
