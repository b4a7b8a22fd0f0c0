//! The files that are open, shared by all workers: one entry for each path that is asked for, the same on all of them.
//!
//! ```text
//! hit    the worker's own lease                                          no call, no lock
//! miss   another worker's entry                                          no call
//!        looked for at once, if all of it is in memory                   openat2, fstat, read; three openat2 more
//!                                                                        for what is beside it in other codings
//!        else by an opener, while the worker serves others               and the connection is told
//! stale  told by the kernel (inotify)                                    the entry is retired, another is made
//!        asked about again in time, and the facts are the same           openat2, fstat, and as above what is beside it
//! ```
//!
//! Entries are immutable. What is found to be out of date is retired, and whoever still sends from it goes on with the
//! version that he began with. Paths that lead nowhere are kept apart from files, so that a flood of them drives out
//! nothing else.

use crate::clock::{Milliseconds, ms};
use crate::content::Site;
use crate::fills::{Claim, Done, Fills, Inbox, Waiter};
use crate::open_file::{FileKey, Gauges, Look, NoFile, OpenFile, Patience, Room, Unready};
use crate::options::OpenFilesOptions;
use crate::sought::{Sighting, Sought};
use crate::watches::{Outdated, Watches};
use sanderling_http::SitePath;
use sanderling_os::event_fd::EventFd;
use sanderling_os::poll_set::PollSet;
use sanderling_table::{CachedRef, InsertError, Ref, Table};
use std::io;
use std::os::fd::AsFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// A path that leads nowhere.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) why: NoFile,
    found_ms: Milliseconds,
}

/// The cache.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    files: Table<FileKey, OpenFile>,
    missing: Table<FileKey, Missing>,
    fills: Fills,
    watches: Watches,
    gauges: Arc<Gauges>,
    options: OpenFilesOptions,
    start: Instant,
    inboxes: OnceLock<Vec<Arc<Inbox>>>,
    evicted_count: AtomicU64,
}

/// What is known of a path now.
pub(crate) enum Lookup<'f, 's> {
    /// This file, lent for the turn.
    Lent(CachedRef<'f, 's, FileKey, OpenFile>),
    /// This file, looked for just now.
    Found(Ref<'s, FileKey, OpenFile>),
    /// That there is none.
    NoFile(NoFile),
    /// Nothing yet: the connection will be told.
    Later,
}

/// Tells those who wait for a look that nobody will end, since whoever had begun it panicked.
struct Abandoned<'a> {
    files: &'a OpenFiles,
    key: &'a FileKey,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        self.files.tell_all(self.key, Some(NoFile::Failed));
    }
}

/// One in this many entries is retired when there are too many: so rarely that looking at all of them costs nothing.
const EVICTED_SHARE: usize = 16;
/// How often a look is begun again: when there are no descriptors, or a file is being changed.
const TRIES_MAX: u8 = 10;
/// How long to wait for workers to give descriptors back.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(20);
/// How often entries are looked at that nobody may use any more.
const LOOK_AROUND_INTERVAL: Duration = Duration::from_millis(500);

impl OpenFiles {
    pub(crate) fn new(options: OpenFilesOptions, start: Instant) -> OpenFiles {
        OpenFiles {
            // What was retired, and is still sent or leased, has its place as well: the bound is kept on what is lent.
            files: Table::new(sanderling_table::CAPACITY_MAX),
            missing: Table::new(options.missing_max.clamp(1, sanderling_table::CAPACITY_MAX)),
            fills: Fills::default(),
            watches: Watches::new(options.folders_watched_max),
            gauges: Arc::default(),
            options,
            start,
            inboxes: OnceLock::new(),
            evicted_count: AtomicU64::new(0),
        }
    }

    /// The table that workers lease from.
    pub(crate) fn files(&self) -> &Table<FileKey, OpenFile> {
        &self.files
    }

    /// Where the workers hear of files that their connections wait for; told once, before any thread runs.
    pub(crate) fn set_inboxes(&self, inboxes: Vec<Arc<Inbox>>) {
        self.inboxes.set(inboxes).expect("set once, by whoever starts the threads");
    }

    /// Whether the file system must be asked before the entry is used.
    #[inline]
    pub(crate) fn is_stale(&self, file: &OpenFile, now_ms: Milliseconds) -> bool {
        let fresh_for = if file.is_watched() { self.options.watched_fresh_for } else { self.options.fresh_for };
        now_ms.saturating_sub(file.checked_ms()) > ms(fresh_for) && file.can_change()
    }

    /// What is known of a path whose file is not leased, or stale: from the table of those that lead nowhere, by a look
    /// at what is in memory, or later.
    pub(crate) fn look_up(
        &self,
        site: &Arc<Site>,
        path: &SitePath<'_>,
        key: &FileKey,
        is_known: bool,
        look: Look,
        waiter: Waiter,
    ) -> Lookup<'_, '_> {
        if let Some(missing) = self.missing.get(key) {
            if look.now_ms.saturating_sub(missing.found_ms) <= ms(self.options.fresh_for) {
                return Lookup::NoFile(missing.why);
            }
            self.missing.invalidate_ref(&missing);
        }
        if self.fills.claim(key, waiter) == Claim::Theirs {
            return Lookup::Later;
        }
        let abandoned = Abandoned { files: self, key };
        let sought = Sought::new(site, path, key);
        // A folder that nobody watches yet may have to be waited for.
        let is_watchable = self.watches.descriptor().is_some() && sought.is_on_disk();
        let found = if !is_known && is_watchable && !self.watches.watches(site, sought.folder()) {
            Err(Unready::WouldWait)
        } else {
            self.find_and_publish(&sought, look, Patience::None)
        };
        std::mem::forget(abandoned);
        match found {
            // An opener makes room, and waits for it.
            Ok(Err(NoFile::Busy)) if self.fills.hand_over(sought.clone(), Duration::ZERO, waiter) => Lookup::Later,
            Ok(result) => {
                self.tell_all(key, result.as_ref().err().copied());
                match result {
                    Ok(file) => Lookup::Found(file),
                    Err(no_file) => Lookup::NoFile(no_file),
                }
            }
            Err(unready) if self.fills.hand_over(sought, unready.delay(), waiter) => Lookup::Later,
            Err(_) => {
                self.tell_all(key, Some(NoFile::Busy));
                Lookup::NoFile(NoFile::Busy)
            }
        }
    }

    /// Looks for the file and lends it to all workers, or remembers that there is none.
    fn find_and_publish(
        &self,
        sought: &Sought,
        look: Look,
        patience: Patience,
    ) -> Result<Result<Ref<'_, FileKey, OpenFile>, NoFile>, Unready> {
        let seen_before = self.watches.seen_count();
        let known = self.files.get(&sought.key);
        let published = match sought.find(known.as_deref(), look, patience, &self.gauges)? {
            Ok(Sighting::Same) => {
                let known = known.expect("nothing is the same as what is not known");
                known.note_checked(look.now_ms);
                Ok(known)
            }
            Ok(Sighting::Another(file)) => self.publish(&sought.key, file, known.is_some()),
            Err(why) => {
                // Not to be able to look is no reason to give up what there is.
                if matches!(why, NoFile::Missing | NoFile::Folder | NoFile::Forbidden) {
                    self.files.invalidate(&sought.key);
                    self.remember_missing(&sought.key, Missing { why, found_ms: look.now_ms });
                }
                Err(why)
            }
        };
        if let Ok(file) = &published {
            // What was seen between the look and the lending may have been about this file, and found no entry to
            // retire, or one that nobody watched yet: then it is asked about again soon. Noted first and asked after,
            // while the watcher counts first and looks at the note after: one of the two learns of the other.
            let can_be_told = self.watches.watches(&sought.site, sought.folder()) && file.can_be_watched();
            file.note_watched(can_be_told);
            let is_told_of = can_be_told && self.watches.seen_count() == seen_before;
            file.note_watched(is_told_of);
        }
        Ok(published)
    }

    /// Lends `file` from now on.
    fn publish(
        &self,
        key: &FileKey,
        file: OpenFile,
        is_another_lent: bool,
    ) -> Result<Ref<'_, FileKey, OpenFile>, NoFile> {
        let published = self.files.replace(key.clone(), file).or_else(|full| {
            self.evict(1, None, |_| 1);
            self.files.replace(full.key, full.value).map_err(|_| NoFile::Busy)
        })?;
        self.keep_bounds(&published);
        if is_another_lent {
            // Cached references that sleeping workers hold keep the version that was replaced.
            self.wake_workers();
        }
        Ok(published)
    }

    /// Evicts what the files that are lent take beyond their bounds, but not `new`.
    fn keep_bounds(&self, new: &OpenFile) {
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

    fn remember_missing(&self, key: &FileKey, missing: Missing) {
        if let Err(InsertError::Full(full)) = self.missing.insert(key.clone(), missing) {
            let count = (self.missing.capacity_max() / EVICTED_SHARE).max(1);
            self.missing.invalidate_where(count, |_, _| true);
            // Not to remember it costs another look, and no more.
            let _ = self.missing.insert(full.key, full.value);
        }
    }

    /// Evicts what the files that are lent weigh beyond `max` together, but not `new`. What is retired already may still be
    /// sent, and no eviction lets it go sooner.
    fn evict_beyond(&self, max: u64, new: &OpenFile, weight: impl Fn(&OpenFile) -> u64) {
        let mut sum = 0;
        self.files.for_each(|_, file| sum += weight(file));
        if sum > max {
            self.evict(sum - max, Some(new), weight);
        }
    }

    /// Retires, of the files that weigh anything, those that were used the longest ago, but not `spared`.
    fn evict(&self, excess: u64, spared: Option<&OpenFile>, weight: impl Fn(&OpenFile) -> u64) {
        let weight =
            |file: &OpenFile| if spared.is_some_and(|spared| ptr::eq(spared, file)) { 0 } else { weight(file) };
        let mut files = Vec::new();
        self.files.for_each(|_, file| files.push((file.checked_ms(), weight(file))));
        files.retain(|&(_, weight)| weight > 0);
        let Some(mut eviction) = Eviction::of(files, excess) else { return };
        let retired = self.files.invalidate_where(usize::MAX, |_, file| {
            let weight = weight(file);
            weight > 0 && eviction.takes(file.checked_ms(), weight)
        });
        self.evicted_count.fetch_add(retired as u64, Ordering::Relaxed);
        // Cached references that sleeping workers hold keep what was retired.
        self.wake_workers();
    }

    /// Lends a file no more that was found to have changed.
    pub(crate) fn retire_changed(&self, file: &Ref<'_, FileKey, OpenFile>) {
        if self.files.invalidate_ref(file) {
            // Cached references that sleeping workers hold keep what was retired.
            self.wake_workers();
        }
    }

    fn tell_all(&self, key: &FileKey, trouble: Option<NoFile>) {
        // What the cache remembers the waiters find there.
        let trouble = trouble.filter(|why| matches!(why, NoFile::Busy | NoFile::Failed));
        let Some(inboxes) = self.inboxes.get() else { return };
        for waiter in self.fills.end(key) {
            inboxes[waiter.worker_index].put(Done { peer: waiter.peer, trouble });
        }
    }

    /// Wakes all workers, who then look at everything that is shared.
    pub(crate) fn wake_workers(&self) {
        for inbox in self.inboxes.get().into_iter().flatten() {
            inbox.wake();
        }
    }

    /// One opener's work: waits for the file system in the workers' place.
    pub(crate) fn run_opener(&self) {
        while let Some((sought, try_count)) = self.fills.next() {
            self.watches.watch(&sought.site, sought.folder());
            let trouble = match self.find_and_publish(&sought, Look { try_count, ..self.look() }, Patience::Any) {
                Ok(Ok(_)) => None,
                Ok(Err(NoFile::Busy)) if try_count < TRIES_MAX => {
                    // Descriptors that are leased only are the ones that can be spared; workers give them back at once.
                    self.evict(1, None, OpenFile::descriptor_count);
                    self.fills.postpone(sought, try_count + 1, EXHAUSTED_PAUSE);
                    continue;
                }
                Ok(Err(why)) => Some(why),
                Err(unready) if try_count < TRIES_MAX => {
                    self.fills.postpone(sought, try_count + 1, unready.delay());
                    continue;
                }
                Err(_) => Some(NoFile::Busy),
            };
            self.tell_all(&sought.key, trouble);
        }
    }

    /// Lets the openers go.
    pub(crate) fn finish(&self) {
        self.fills.finish();
    }

    /// The watcher's work: retires what the kernel says has changed, and what nobody has used for long.
    pub(crate) fn run_watcher(&self, wakeup: &EventFd, goes_on: impl Fn() -> bool) -> io::Result<()> {
        let mut waiting = PollSet::new(self.watches.descriptor().into_iter().chain([wakeup.as_fd()]));
        let mut looked_around = Instant::now();
        while goes_on() {
            waiting.wait(Some(LOOK_AROUND_INTERVAL))?;
            if waiting.is_last_ready() {
                wakeup.drain();
            }
            let mut retired_count = 0;
            self.watches.read(|outdated| retired_count += self.retire(&outdated));
            if looked_around.elapsed() >= LOOK_AROUND_INTERVAL {
                looked_around = Instant::now();
                retired_count += self.retire_unused();
            }
            if retired_count != 0 {
                self.wake_workers();
            }
        }
        Ok(())
    }

    fn retire(&self, outdated: &Outdated) -> usize {
        let mut retired_count = 0;
        for key in outdated.keys() {
            retired_count += usize::from(self.files.invalidate(&key).is_some());
            self.missing.invalidate(&key);
        }
        for key in outdated.plain_keys() {
            // One that nobody watches is asked about again soon; and a file whose coded one is written on and on would
            // else be retired again and again, before anybody is sent it.
            if let Some(file) = self.files.get(&key)
                && file.is_watched_by_now()
            {
                retired_count += usize::from(self.files.invalidate_ref(&file));
            }
        }
        if outdated.is_wide() {
            retired_count += self.files.invalidate_where(usize::MAX, |key, _| outdated.is_above(key));
            self.missing.invalidate_where(usize::MAX, |key, _| outdated.is_above(key));
        }
        retired_count
    }

    /// Retires entries that nobody has used for long, and those of deleted files that nobody told of; watches no longer
    /// the folders that are left empty.
    fn retire_unused(&self) -> usize {
        let now_ms = self.look().now_ms;
        // A file that is used is asked about again and again: one that was not for longer is not used.
        let idle_ms = ms(self.options.idle_timeout + self.options.watched_fresh_for.max(self.options.fresh_for));
        let mut unwatched = Vec::new();
        let mut retired_count = self.files.invalidate_where(usize::MAX, |key, file| {
            if !file.is_watched() && file.descriptor_count() > 0 {
                unwatched.push(key.clone());
            }
            now_ms.saturating_sub(file.checked_ms()) > idle_ms
        });
        // Asked outside of the table's lock: the file system may be one that makes us wait.
        for key in unwatched {
            if let Some(file) = self.files.get(&key)
                && file.is_deleted()
            {
                retired_count += usize::from(self.files.invalidate_ref(&file));
            }
        }
        if retired_count != 0 {
            let mut keys = Vec::new();
            self.files.for_each(|key, _| keys.push(key.clone()));
            self.watches.keep_only(keys.iter());
        }
        retired_count
    }

    fn look(&self) -> Look {
        let unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.look_at(ms(self.start.elapsed()), unix_s)
    }

    /// A look in the turn of this time.
    pub(crate) fn look_at(&self, now_ms: Milliseconds, unix_s: u64) -> Look {
        let room = Room {
            small_file_bytes_max: self.options.small_file_bytes_max,
            content_bytes: self.options.content_bytes_max,
            descriptors: self.options.descriptors_max as u64,
        };
        Look { now_ms, unix_s, room, try_count: 0 }
    }

    /// What the cache holds, for whoever watches the server.
    pub(crate) fn census(&self) -> Census {
        Census {
            file_count: self.files.len(),
            missing_count: self.missing.len(),
            descriptor_count: self.gauges.descriptors.load(Ordering::Relaxed),
            content_bytes: self.gauges.content_bytes.load(Ordering::Relaxed),
            folder_watched_count: self.watches.folder_count(),
            evicted_count: self.evicted_count.load(Ordering::Relaxed),
        }
    }
}

/// Which files go: those that were used the longest ago, a share of them at least, and as many more as weigh what there is
/// too much.
#[derive(Debug, PartialEq, Eq)]
struct Eviction {
    /// Those that were last used before this go, and of those that were used just then as many as are still wanted.
    youngest_ms: Milliseconds,
    left_count: usize,
    left_weight: u64,
}

impl Eviction {
    /// Of `files`, each with the time of its last use and with its weight; `None` if there are none.
    fn of(mut files: Vec<(Milliseconds, u64)>, excess: u64) -> Option<Eviction> {
        files.sort_unstable_by_key(|&(used_ms, _)| used_ms);
        let (mut left_count, mut left_weight) = ((files.len() / EVICTED_SHARE).max(1), excess);
        for of_one_time in files.chunk_by(|(one_ms, _), (other_ms, _)| one_ms == other_ms) {
            let sum: u64 = of_one_time.iter().map(|&(_, weight)| weight).sum();
            if of_one_time.len() >= left_count && sum >= left_weight {
                return Some(Eviction { youngest_ms: of_one_time[0].0, left_count, left_weight });
            }
            left_count = left_count.saturating_sub(of_one_time.len());
            left_weight = left_weight.saturating_sub(sum);
        }
        // All of them weigh too little.
        files.last().map(|&(youngest_ms, _)| Eviction { youngest_ms, left_count: files.len(), left_weight })
    }

    /// Whether this file goes.
    fn takes(&mut self, used_ms: Milliseconds, weight: u64) -> bool {
        if used_ms != self.youngest_ms {
            return used_ms < self.youngest_ms;
        }
        let is_wanted = self.left_count > 0 || self.left_weight > 0;
        self.left_count = self.left_count.saturating_sub(1);
        self.left_weight = self.left_weight.saturating_sub(weight);
        is_wanted
    }
}

/// What the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Files that are lent.
    pub file_count: usize,
    /// Paths that lead nowhere.
    pub missing_count: usize,
    /// Descriptors, those of retired files among them that are still being sent.
    pub descriptor_count: u64,
    /// Octets of content in memory.
    pub content_bytes: u64,
    /// Folders that are watched.
    pub folder_watched_count: usize,
    /// Files retired to make room, so far.
    pub evicted_count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that go, by their places; each has the time of its last use and its weight.
    fn evicted(files: &[(Milliseconds, u64)], excess: u64) -> Vec<usize> {
        let Some(mut eviction) = Eviction::of(files.to_vec(), excess) else { return Vec::new() };
        let gone = files.iter().enumerate().filter(|&(_, &(used_ms, weight))| eviction.takes(used_ms, weight));
        gone.map(|(at, _)| at).collect()
    }

    #[test]
    fn the_files_that_were_used_the_longest_ago_go_and_no_more_than_must() {
        assert_eq!(evicted(&[], 1), [0_usize; 0]);
        assert_eq!(evicted(&[(5, 1), (3, 1), (4, 1)], 1), [1]);
        assert_eq!(evicted(&[(5, 1), (3, 1), (4, 1)], 2), [1, 2]);
        assert_eq!(evicted(&[(5, 10), (3, 1), (4, 10)], 2), [1, 2], "by weight, not by number");
        assert_eq!(evicted(&[(5, 10), (3, 20), (4, 10)], 2), [1]);
        assert_eq!(evicted(&[(7, 1), (7, 1), (7, 1)], 2), [0, 1], "of those that are equally old");
        assert_eq!(evicted(&[(7, 1), (2, 1), (7, 1), (7, 1)], 3), [0, 1, 2], "whatever their order");
        assert_eq!(evicted(&[(1, 1), (2, 1)], 9), [0, 1], "all, where all are too few");
        let many: Vec<(Milliseconds, u64)> = (0..100).map(|used_ms| (used_ms, 20)).collect();
        assert_eq!(evicted(&many, 1), (0..100 / EVICTED_SHARE).collect::<Vec<_>>(), "a share at least");
        assert_eq!(evicted(&many, 980), (0..49).collect::<Vec<_>>());
    }
}
