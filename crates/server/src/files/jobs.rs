//! Work that may wait for the file system, done by job threads, and the events that return to the worker whose
//! connection waits.
//!
//! A look-up on a disk or a network file system that does not answer occupies its thread. So the look-ups of one site,
//! and those of one directory in its document root, run in a part of the threads that there may be.

use crate::files::file_lookup::FileLookup;
use crate::files::work_queue::{Queue, THREADS_MAX, WorkQueue};
use crate::slab::Key;
use crate::waiter::{Event, Waiter};
use sanderling_os::poll::Waker;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Jobs of one site that run at the same time.
const RUNNING_PER_SITE_MAX: usize = THREADS_MAX / 2;
/// The same for one directory in a document root, with all below it.
const RUNNING_PER_TOP_DIRECTORY_MAX: usize = RUNNING_PER_SITE_MAX / 8;
/// Jobs that wait for a thread; further ones are refused.
const QUEUED_MAX: usize = 8_192;
/// The same for one site.
const QUEUED_PER_SITE_MAX: usize = QUEUED_MAX / 2;

/// Work that a worker must not wait for: opens a file and publishes it in the open-file cache.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) lookup: FileLookup,
    /// Attempts before this one.
    pub(crate) attempt_count: u8,
}

/// An event on its way to the connection that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentEvent {
    pub(crate) connection: Key,
    pub(crate) stream: u32,
    pub(crate) event: Event,
}

/// Jobs of all workers.
#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    queue: WorkQueue<Jobs>,
    inboxes: OnceLock<Vec<Arc<Inbox>>>,
}

#[derive(Debug, Default)]
struct Jobs {
    queued: VecDeque<QueuedJob>,
    running: Vec<JobPlace>,
}

/// Where the file of a job is.
#[derive(Debug, PartialEq, Eq)]
struct JobPlace {
    site_id: u32,
    /// The first directory of its path; empty for a file of the document root itself.
    top_directory: Vec<u8>,
}

#[derive(Debug)]
struct QueuedJob {
    job: Job,
    not_before: Instant,
}

/// Where a worker receives events.
#[derive(Debug)]
pub(crate) struct Inbox {
    events: Mutex<Vec<SentEvent>>,
    waker: Waker,
}

impl JobQueue {
    /// Sets where events go. Called once, before any thread runs.
    pub(crate) fn set_inboxes(&self, inboxes: Vec<Arc<Inbox>>) {
        self.inboxes.set(inboxes).expect("the inboxes are set once, before the threads start");
    }

    /// Queues a first attempt that is to begin after `delay`; returns the look-up if too many jobs are queued.
    pub(crate) fn enqueue(&self, lookup: FileLookup, delay: Duration) -> Result<(), FileLookup> {
        self.queue.update(|jobs| {
            if jobs.is_full_for(lookup.key.site.id()) {
                return Err(lookup);
            }
            jobs.push(Job { lookup, attempt_count: 0 }, delay);
            Ok(())
        })?;
        self.queue.notify();
        Ok(())
    }

    /// Queues a further attempt.
    pub(crate) fn retry(&self, lookup: FileLookup, attempt_count: u8, delay: Duration) {
        self.queue.update(|jobs| jobs.push(Job { lookup, attempt_count }, delay));
        self.queue.notify();
    }

    /// Adds a thread by `start`, which runs [`JobQueue::run_thread`].
    ///
    /// # Errors
    /// The errors of `start`.
    pub(crate) fn add_thread(&self, start: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.queue.add_thread(start)
    }

    /// Runs jobs with `run` as of [`WorkQueue::run_thread`].
    pub(crate) fn run_thread(&self, run: impl Fn(Job), add: impl Fn() -> io::Result<()>) {
        self.queue.run_thread(|job| self.run_and_finish(job, &run), add);
    }

    /// Runs the next job that is due; false if there is none.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn run_due(&self, run: impl Fn(Job)) -> bool {
        let due = self.queue.update(|jobs| jobs.take(Instant::now()));
        due.map(|job| self.run_and_finish(job, run)).is_ok()
    }

    fn run_and_finish(&self, job: Job, run: impl Fn(Job)) {
        let place = job.place();
        run(job);
        self.queue.update(|jobs| jobs.finish(&place));
    }

    /// Ends the threads.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Sends an event to those that wait for it.
    pub(crate) fn send_event(&self, waiters: &[Waiter], event: Event) {
        let Some(inboxes) = self.inboxes.get() else { return };
        for &Waiter { worker_index, connection, stream } in waiters {
            inboxes[worker_index].put(SentEvent { connection, stream, event });
        }
    }

    /// Wakes all workers; each then checks all shared state.
    pub(crate) fn wake_workers(&self) {
        self.inboxes.get().into_iter().flatten().for_each(|inbox| inbox.wake());
    }
}

impl Queue for Jobs {
    type Work = Job;

    /// Takes the first job that is due and has a thread of its place.
    fn take(&mut self, now: Instant) -> Result<Job, Option<Instant>> {
        let can_run = |queued: &QueuedJob| queued.not_before <= now && self.has_thread_for(&queued.job);
        let Some(due) = self.queued.iter().position(can_run).and_then(|index| self.queued.remove(index)) else {
            // A job that is due, but has no free thread of its place, is taken by the thread that ends one there.
            return Err(self.queued.iter().map(|queued| queued.not_before).filter(|time| *time > now).min());
        };
        self.running.push(due.job.place());
        Ok(due.job)
    }

    fn has_more(&self) -> bool {
        !self.queued.is_empty()
    }
}

impl Jobs {
    fn push(&mut self, job: Job, delay: Duration) {
        self.queued.push_back(QueuedJob { job, not_before: Instant::now() + delay });
    }

    fn has_thread_for(&self, job: &Job) -> bool {
        let of_site = || self.running.iter().filter(|place| place.site_id == job.lookup.key.site.id());
        of_site().count() < RUNNING_PER_SITE_MAX
            && of_site().filter(|place| place.top_directory == job.top_directory()).count()
                < RUNNING_PER_TOP_DIRECTORY_MAX
    }

    /// A job at `place` has ended.
    fn finish(&mut self, place: &JobPlace) {
        let index = self.running.iter().position(|running| running == place).expect("the job was running");
        self.running.swap_remove(index);
    }

    fn is_full_for(&self, site_id: u32) -> bool {
        let of_site = || self.queued.iter().filter(|queued| queued.job.lookup.key.site.id() == site_id).count();
        self.queued.len() >= QUEUED_MAX || self.queued.len() >= QUEUED_PER_SITE_MAX && of_site() >= QUEUED_PER_SITE_MAX
    }
}

impl Job {
    fn top_directory(&self) -> &[u8] {
        self.lookup.directory().split(|&byte| byte == b'/').next().expect("a split gives at least one part")
    }

    fn place(&self) -> JobPlace {
        JobPlace { site_id: self.lookup.key.site.id(), top_directory: self.top_directory().to_vec() }
    }
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Inbox {
        Inbox { events: Mutex::default(), waker }
    }

    fn put(&self, event: SentEvent) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        self.wake();
    }

    /// Wakes the worker.
    pub(crate) fn wake(&self) {
        // It fails only if the descriptor is closed, which the poller owns.
        let woken = self.waker.wake();
        debug_assert!(woken.is_ok());
    }

    /// The events since the last call.
    pub(crate) fn take(&self) -> Vec<SentEvent> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::open_file::FileKey;
    use crate::site::sites::{Root, Site, SiteOptions};
    use sanderling_http::SitePath;

    fn enqueue(jobs: &JobQueue, site_id: u32, path: &str) -> bool {
        let site =
            Arc::new(Site { id: site_id, hosts: Vec::new(), root: Root::Unavailable, options: SiteOptions::default() });
        let path = SitePath::parse(path.as_bytes()).expect("a path");
        let mut key = FileKey::default();
        key.set(site_id, &path);
        jobs.enqueue(FileLookup::new(&site, &key), Duration::ZERO).is_ok()
    }

    /// The number of jobs that begin now, if all of them wait for a disk.
    fn begin_all(jobs: &JobQueue) -> usize {
        std::iter::from_fn(|| jobs.queue.update(|jobs| jobs.take(Instant::now()).ok())).count()
    }

    #[test]
    fn jobs_of_one_directory_or_one_site_leave_threads_for_others() {
        let jobs = JobQueue::default();
        let enqueue_many = |site_id, directory: &str| {
            (0..THREADS_MAX).for_each(|number| assert!(enqueue(&jobs, site_id, &format!("{directory}/{number}"))));
            begin_all(&jobs)
        };
        assert_eq!(enqueue_many(1, "/a"), RUNNING_PER_TOP_DIRECTORY_MAX);
        assert_eq!(enqueue_many(1, "/a/b"), 0);
        assert_eq!(enqueue_many(1, ""), RUNNING_PER_TOP_DIRECTORY_MAX);
        let began: usize = (0..8).map(|number| enqueue_many(1, &format!("/{number}"))).sum();
        assert_eq!(began, RUNNING_PER_SITE_MAX - 2 * RUNNING_PER_TOP_DIRECTORY_MAX);
        assert_eq!(enqueue_many(2, "/a"), RUNNING_PER_TOP_DIRECTORY_MAX);
        for top_directory in ["a", "", "0"] {
            jobs.queue.update(|jobs| jobs.finish(&JobPlace { site_id: 1, top_directory: top_directory.into() }));
            assert_eq!(begin_all(&jobs), 1);
        }
    }

    #[test]
    fn jobs_of_one_site_leave_room_in_the_queue_for_others() {
        let jobs = JobQueue::default();
        let queued = |site_id| (0..QUEUED_MAX).filter(|number| enqueue(&jobs, site_id, &format!("/{number}"))).count();
        assert_eq!([1, 2, 3].map(queued), [QUEUED_PER_SITE_MAX, QUEUED_PER_SITE_MAX, 0]);
    }
}
