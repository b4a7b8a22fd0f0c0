//! The open-file cache, shared by all workers: one entry for each requested path, immutable and the same for all.
//!
//! ```text
//! hit     the worker has a reference                             no call, no lock
//! miss    another worker has opened the file                     no call
//!         it is opened now, if its directory is watched and  openat2, fstat, readlink, preadv2, fstat; and three
//!         no disk has to be waited for                           openat2 for the precompressed files
//!         otherwise by a job, while the worker serves others     and the connection receives an event
//! stale   the kernel reports a change (inotify)                  the entry is invalidated
//!         its time has passed                                    openat2, fstat, and the same for precompressed files
//! ```
//!
//! A response that is being sent from an invalidated entry continues with the version with which it began. Paths
//! without a file are cached apart from files (negative entries), so that a flood of them evicts no file.

mod watcher;

use crate::clock::{Milliseconds, ms};
use crate::file_error::FileError;
use crate::files::compression::CompressionQueue;
use crate::files::eviction::{EVICTED_FRACTION, Eviction};
use crate::files::file_lookup::{FileLookup, LookupResult};
use crate::files::file_variant::Gauges;
use crate::files::jobs::{Job, JobQueue};
use crate::files::known_contents::KnownContents;
use crate::files::open_file::{Blocking, EntryLimits, FileKey, LookupContext, OpenError, OpenFile, RetryAfter};
use crate::files::watched_directories::WatchedDirectories;
use crate::metrics::ThreadMetrics;
use crate::options::OpenFilesOptions;
use crate::site::sites::Site;
use crate::statistics::Series;
use crate::waiter::{Event, Waiter};
use sanderling_os::clock::{monotonic_ms, unix_seconds};
use sanderling_table::{CachedRef, Ref, Table};
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The cache.
#[derive(Debug)]
pub(crate) struct FileCache {
    files: Table<FileKey, OpenFile>,
    negative: Table<FileKey, NegativeEntry>,
    /// Look-ups that have begun, each with the connections that wait for it.
    in_progress: Mutex<HashMap<FileKey, Vec<Waiter>>>,
    jobs: Arc<JobQueue>,
    directories: WatchedDirectories,
    gauges: Arc<Gauges>,
    compression: Arc<CompressionQueue>,
    known_contents: KnownContents,
    options: OpenFilesOptions,
    /// When the server was created, on the monotonic clock.
    start_ms: Milliseconds,
    evicted_count: AtomicU64,
    /// By which a simulation is ahead of the monotonic clock.
    #[cfg(any(test, feature = "simulation"))]
    skipped_ms: AtomicU64,
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
    /// The path leads to no file, and this file is the page that says so.
    NotFoundPage(Ref<'s, FileKey, OpenFile>),
    /// The path leads to no file, and this file answers for it.
    Fallback(Ref<'s, FileKey, OpenFile>),
    /// The path leads to no file.
    Failed(FileError),
    /// The connection receives an event.
    Pending,
}

impl<'s> Lookup<'_, 's> {
    /// The file that answers the request, unless the path has none.
    #[inline]
    pub(crate) fn file(&self) -> Option<&Ref<'s, FileKey, OpenFile>> {
        match self {
            Lookup::Cached(file) => Some(file),
            Lookup::Opened(file) | Lookup::Fallback(file) | Lookup::NotFoundPage(file) => Some(file),
            Lookup::Failed(_) | Lookup::Pending => None,
        }
    }

    /// Counts the result for a request that has waited for `job_count` jobs.
    #[inline]
    pub(crate) fn count(&self, job_count: u8, metrics: &ThreadMetrics) {
        let Some(statistics) = &metrics.statistics else { return };
        let result = match self {
            Lookup::Cached(_) if job_count == 0 => 0,
            Lookup::Cached(_) | Lookup::Opened(_) => 1,
            Lookup::Failed(_) | Lookup::NotFoundPage(_) | Lookup::Fallback(_) => 2,
            Lookup::Pending => return,
        };
        statistics.add(Series::Lookups(result), 1);
    }
}

/// Whether a look-up is the caller's to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    /// It is; the caller ends it.
    Acquired,
    /// Another thread runs it, and the waiter receives an event.
    InProgress,
}

/// Completes a look-up if its thread panics.
struct PanicGuard<'a> {
    cache: &'a FileCache,
    key: &'a FileKey,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.cache.finish(self.key, Err(FileError::Failed));
        }
    }
}

/// Attempts for one look-up, when descriptors are lacking or the file is being written.
const ATTEMPTS_MAX: u8 = 10;
/// How long the result of a job is valid, at least, for those that have waited for it.
const VALID_AFTER_JOB: Duration = Duration::from_secs(1);
/// How long a job waits for workers to release descriptors.
const DESCRIPTOR_RETRY_DELAY: Duration = Duration::from_millis(20);

impl FileCache {
    pub(crate) fn new(options: OpenFilesOptions, jobs: Arc<JobQueue>, start_ms: Milliseconds) -> FileCache {
        FileCache {
            // Invalidated entries that are still sent keep their slots: the configured limit is kept on the others.
            files: Table::new(sanderling_table::CAPACITY_MAX),
            negative: Table::new(options.negative_entries_max.clamp(1, sanderling_table::CAPACITY_MAX)),
            in_progress: Mutex::default(),
            jobs,
            directories: WatchedDirectories::new(options.watched_directories_max),
            gauges: Arc::default(),
            compression: Arc::new(CompressionQueue::new(options.compression)),
            known_contents: KnownContents::default(),
            options,
            start_ms,
            evicted_count: AtomicU64::new(0),
            #[cfg(any(test, feature = "simulation"))]
            skipped_ms: AtomicU64::new(0),
        }
    }

    /// The table that workers take references from.
    pub(crate) fn files(&self) -> &Table<FileKey, OpenFile> {
        &self.files
    }

    /// Whether the file system must be asked before the entry is used.
    #[inline]
    pub(crate) fn is_stale(&self, file: &OpenFile, now_ms: Milliseconds) -> bool {
        let valid_for = if file.is_watched() { self.options.watched_valid_for } else { self.options.valid_for };
        now_ms.saturating_sub(file.checked_ms()) > ms(valid_for) && file.can_change()
    }

    /// Looks up a path for which the worker has no reference, or a stale one: in the negative entries, then on disk if
    /// that needs no wait, and otherwise by a job. `has_waited`: the request has waited for a job, whose result is used
    /// even if entries are valid for less time than the job takes to report it.
    pub(crate) fn look_up(
        &self,
        site: &Arc<Site>,
        key: &FileKey,
        context: LookupContext,
        waiter: Waiter,
        has_waited: bool,
    ) -> Lookup<'_, '_> {
        let valid_for = if has_waited { self.options.valid_for.max(VALID_AFTER_JOB) } else { self.options.valid_for };
        let is_valid = |found_ms| context.now_ms.saturating_sub(found_ms) <= ms(valid_for);
        if has_waited
            && let Some(file) = self.files.get(key)
            && is_valid(file.checked_ms())
        {
            return Lookup::Opened(file);
        }
        if let Some(negative) = self.negative.get(key) {
            if is_valid(negative.found_ms) {
                return Lookup::Failed(negative.error);
            }
            self.negative.invalidate_ref(&negative);
        }
        if self.claim(key, waiter) == Claim::InProgress {
            return Lookup::Pending;
        }
        let _guard = PanicGuard { cache: self, key };
        let lookup = FileLookup::new(site, key);
        // Watching a directory for the first time may have to wait, and so may any call where watching is impossible:
        // on a remote file system.
        let is_watchable = self.directories.descriptor().is_some() && lookup.is_on_disk();
        let result = if is_watchable && !self.directories.is_watched(site, lookup.directory()) {
            Err(OpenError::Retry(RetryAfter::Disk))
        } else {
            self.run(&lookup, context, Blocking::No)
        };
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
        match self.jobs.enqueue(lookup, delay) {
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
            error if error.is_of_path() => Ok(()),
            error => Err(error),
        });
        let waiters = self.lock_in_progress().remove(key).unwrap_or_default();
        self.jobs.send_event(&waiters, Event::LookedUp(result));
    }

    fn lock_in_progress(&self) -> MutexGuard<'_, HashMap<FileKey, Vec<Waiter>>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a look-up, and publishes the file or caches that there is none.
    fn run(
        &self,
        lookup: &FileLookup,
        context: LookupContext,
        blocking: Blocking,
    ) -> Result<Ref<'_, FileKey, OpenFile>, OpenError> {
        let event_count_before = self.directories.event_count();
        let cached = self.files.get(&lookup.key);
        let file = match lookup.run(cached.as_deref(), context, blocking, (&self.gauges, &self.compression)) {
            Ok(LookupResult::Unchanged) => {
                let cached = cached.expect("only a cached file can be unchanged");
                cached.set_checked(context.now_ms);
                cached
            }
            Ok(LookupResult::New(mut file)) => {
                file.has_reused_name = lookup.is_immutable_by_name()
                    && self.known_contents.has_changed(&lookup.site, &lookup.key.path, file.validator());
                self.publish(&lookup.key, file, cached.is_some())?
            }
            Err(error) => {
                // After an error that says nothing about the file, the cached version stays.
                if let OpenError::File(error) = error
                    && error.is_of_path()
                {
                    self.files.invalidate(&lookup.key);
                    self.insert_negative(&lookup.key, NegativeEntry { error, found_ms: context.now_ms });
                }
                return Err(error);
            }
        };
        // The watcher may have handled an event of this file before the entry was published, or while the entry was not
        // watched. Both threads store and then load, SeqCst: this one stores `is_watched` and loads the event count,
        // the watcher increments the count and loads `is_watched`. So at least one of them sees the other's store. If
        // the count has changed, the file is treated as unwatched and soon revalidated.
        let can_be_reported = self.directories.is_watched(&lookup.site, lookup.directory()) && !file.is_unwatchable;
        file.set_watched(can_be_reported);
        let is_reported = can_be_reported && self.directories.event_count() == event_count_before;
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
            // Sleeping workers may have references to the replaced version.
            self.jobs.wake_workers();
        }
        Ok(published)
    }

    /// Evicts entries beyond the limits, but not `new`.
    fn keep_limits(&self, new: &OpenFile) {
        let options = &self.options;
        if self.files.len() > options.files_max {
            self.evict_beyond(options.files_max as u64, Some(new), |_| 1);
        }
        if self.gauges.content_bytes.load(Ordering::Relaxed) > options.content_bytes_max {
            self.evict_beyond(options.content_bytes_max, Some(new), OpenFile::content_bytes);
        }
        if self.gauges.descriptors.load(Ordering::Relaxed) > options.descriptors_max as u64 {
            self.evict_beyond(options.descriptors_max as u64, Some(new), OpenFile::descriptor_count);
        }
        self.keep_compression_limit(Some(new));
    }

    /// Compresses files as they are asked for, until [`FileCache::end_compression`].
    pub(crate) fn run_compression(&self) {
        self.compression.run_thread(|| self.keep_compression_limit(None));
    }

    /// Compresses the next file; `false` if none is asked for.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn compress_next(&self) -> bool {
        self.compression.run_next(|| self.keep_compression_limit(None))
    }

    #[cfg(test)]
    pub(crate) fn compressed_bytes(&self) -> u64 {
        self.gauges.compressed_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn end_compression(&self) {
        self.compression.close();
    }

    fn keep_compression_limit(&self, new: Option<&OpenFile>) {
        let max = self.options.compression.content_bytes_max;
        if self.gauges.compressed_bytes.load(Ordering::Relaxed) > max {
            self.evict_beyond(max, new, OpenFile::compressed_bytes);
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

    /// Evicts what valid entries weigh together beyond `max`, but not `new`. Invalidated entries may still be sent, and
    /// no eviction closes them sooner.
    fn evict_beyond(&self, max: u64, new: Option<&OpenFile>, weight: impl Fn(&OpenFile) -> u64) {
        let mut sum = 0;
        self.files.for_each(|_, file| sum += weight(file));
        if sum > max {
            self.evict(sum - max, new, weight);
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
            weight > 0 && eviction.should_evict(file.checked_ms(), weight)
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

    /// Runs a look-up as a job, which may wait for the file system.
    pub(crate) fn run_job(&self, job: Job) {
        let Job { lookup, attempt_count } = job;
        self.directories.watch(&lookup.site, lookup.directory());
        let result = match self.run(&lookup, LookupContext { attempt_count, ..self.context_now() }, Blocking::Yes) {
            Ok(_) => Ok(()),
            Err(OpenError::File(FileError::Busy)) if attempt_count < ATTEMPTS_MAX => {
                // Evicted entries close their descriptors as soon as the workers give up their references.
                self.evict(1, None, OpenFile::descriptor_count);
                return self.jobs.retry(lookup, attempt_count + 1, DESCRIPTOR_RETRY_DELAY);
            }
            Err(OpenError::Retry(after)) if attempt_count < ATTEMPTS_MAX => {
                return self.jobs.retry(lookup, attempt_count + 1, after.delay());
            }
            Err(OpenError::File(error)) => Err(error),
            Err(OpenError::Retry(_)) => Err(FileError::Busy),
        };
        self.finish(&lookup.key, result);
    }

    fn context_now(&self) -> LookupContext {
        let now_ms = monotonic_ms() - self.start_ms;
        #[cfg(any(test, feature = "simulation"))]
        let now_ms = now_ms + self.skipped_ms.load(Ordering::Relaxed);
        self.context_at(now_ms, unix_seconds())
    }

    /// The clock of a simulation advances.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn skip(&self, by: Duration) {
        self.skipped_ms.fetch_add(ms(by), Ordering::Relaxed);
    }

    /// The context of a first attempt at this time.
    pub(crate) fn context_at(&self, now_ms: Milliseconds, unix_s: u64) -> LookupContext {
        let limits = EntryLimits {
            small_file_bytes_max: self.options.small_file_bytes_max,
            content_bytes: self.options.content_bytes_max,
            descriptors: self.options.descriptors_max as u64,
            listed_entries: self.options.listing_entries_max,
        };
        LookupContext { now_ms, unix_s, limits, attempt_count: 0, sendfile_after: self.options.sendfile_after }
    }

    /// The entries of the cache.
    pub(crate) fn stats(&self) -> CacheStats {
        CacheStats {
            file_count: self.files.len(),
            negative_count: self.negative.len(),
            descriptor_count: self.gauges.descriptors.load(Ordering::Relaxed),
            content_bytes: self.gauges.content_bytes.load(Ordering::Relaxed),
            watched_directory_count: self.directories.count(),
            evicted_count: self.evicted_count.load(Ordering::Relaxed),
        }
    }
}

/// The entries of the open-file cache.
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
    pub watched_directory_count: usize,
    /// Files evicted so far.
    pub evicted_count: u64,
}
