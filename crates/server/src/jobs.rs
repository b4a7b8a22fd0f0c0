//! Work that may wait for the file system, done by job threads, and its completions, which return to the worker whose
//! connection waits.

use crate::file_lookup::FileLookup;
use crate::open_file::FileError;
use crate::slab::Key;
use sanderling_os::poll::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Jobs that wait for a thread; further ones are refused.
const QUEUED_MAX: usize = 4_096;

/// Work that a worker must not wait for: opens a file and publishes it in the open-file cache.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) lookup: FileLookup,
    /// Attempts before this one.
    pub(crate) attempt_count: u8,
}

/// The connection that waits for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) worker_index: usize,
    pub(crate) connection: Key,
}

/// The end of a job, for one connection that waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) connection: Key,
    /// The cache has the answer now, unless there is an error that it does not keep.
    pub(crate) result: Result<(), FileError>,
}

/// Jobs of all workers.
#[derive(Debug, Default)]
pub(crate) struct JobQueue {
    state: Mutex<State>,
    changed: Condvar,
    inboxes: OnceLock<Vec<Arc<Inbox>>>,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<QueuedJob>,
    is_closed: bool,
}

#[derive(Debug)]
struct QueuedJob {
    job: Job,
    not_before: Instant,
}

/// Where a worker receives completions.
#[derive(Debug)]
pub(crate) struct Inbox {
    completions: Mutex<Vec<Completion>>,
    waker: Waker,
}

impl JobQueue {
    /// Sets where completions go. Called once, before any thread runs.
    pub(crate) fn set_inboxes(&self, inboxes: Vec<Arc<Inbox>>) {
        self.inboxes.set(inboxes).expect("the inboxes are set once, before the threads start");
    }

    /// Queues a first attempt that is to begin after `delay`; returns the look-up if too many jobs are queued.
    pub(crate) fn enqueue(&self, lookup: FileLookup, delay: Duration) -> Result<(), FileLookup> {
        let mut state = self.lock();
        if state.jobs.len() >= QUEUED_MAX {
            return Err(lookup);
        }
        self.push(&mut state, Job { lookup, attempt_count: 0 }, delay);
        Ok(())
    }

    /// Queues a further attempt.
    pub(crate) fn retry(&self, lookup: FileLookup, attempt_count: u8, delay: Duration) {
        self.push(&mut self.lock(), Job { lookup, attempt_count }, delay);
    }

    fn push(&self, state: &mut State, job: Job, delay: Duration) {
        state.jobs.push_back(QueuedJob { job, not_before: Instant::now() + delay });
        self.changed.notify_one();
    }

    /// Waits for the next job; `None` when the queue is closed.
    pub(crate) fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            let now = Instant::now();
            if let Some(due) = state.take_due(now) {
                return Some(due);
            }
            state = match state.jobs.iter().map(|job| job.not_before).min() {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let pause = next.saturating_duration_since(now);
                    self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The next job that is due, without a wait.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn try_next(&self) -> Option<Job> {
        self.lock().take_due(Instant::now())
    }

    /// Ends the threads that wait in [`JobQueue::next`].
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Reports the end of a job to those that wait for it.
    pub(crate) fn complete(&self, waiters: &[Waiter], result: Result<(), FileError>) {
        let Some(inboxes) = self.inboxes.get() else { return };
        for waiter in waiters {
            inboxes[waiter.worker_index].put(Completion { connection: waiter.connection, result });
        }
    }

    /// Wakes all workers; each then looks at all shared state.
    pub(crate) fn wake_workers(&self) {
        self.inboxes.get().into_iter().flatten().for_each(|inbox| inbox.wake());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_due(&mut self, now: Instant) -> Option<Job> {
        let due = self.jobs.iter().position(|job| job.not_before <= now)?;
        self.jobs.remove(due).map(|queued| queued.job)
    }
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Inbox {
        Inbox { completions: Mutex::default(), waker }
    }

    fn put(&self, completion: Completion) {
        self.completions.lock().unwrap_or_else(PoisonError::into_inner).push(completion);
        self.wake();
    }

    /// Wakes the worker.
    pub(crate) fn wake(&self) {
        // It fails only if the descriptor is closed, which the poller owns.
        let woken = self.waker.wake();
        debug_assert!(woken.is_ok());
    }

    /// The completions since the last call.
    pub(crate) fn take(&self) -> Vec<Completion> {
        std::mem::take(&mut *self.completions.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_job_ends_when_the_queue_is_closed() {
        let jobs = JobQueue::default();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| jobs.next());
            jobs.close();
            assert!(thread.join().expect("no panic").is_none());
        });
    }
}
