//! A queue of work that may wait for a disk without a limit, and its threads: there are as many as wait, so that other
//! work continues.
//!
//! One thread always waits for work, as long as there are fewer than [`THREADS_MAX`]: a thread that takes work while no
//! other one waits starts another thread first. A thread that has waited for a long time together with another one
//! ends.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Threads of one queue.
pub(crate) const THREADS_MAX: usize = 64;
/// How long a thread waits together with another one before it ends.
const IDLE_TIME: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_secs(10) };

/// The order of the work.
pub(crate) trait Queue {
    type Work;

    /// Takes work that may begin now. Without any: when to look again, if that is known.
    fn take(&mut self, now: Instant) -> Result<Self::Work, Option<Instant>>;

    /// Whether work remains, which may or may not begin now.
    fn has_more(&self) -> bool;
}

/// A queue with its threads.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue<Q> {
    state: Mutex<State<Q>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State<Q> {
    queue: Q,
    thread_count: usize,
    /// Threads that wait for work.
    waiting_count: usize,
    is_closed: bool,
}

/// Work for a thread.
struct Taken<W> {
    work: W,
    /// No other thread waits for work.
    is_last: bool,
}

impl<Q: Queue> WorkQueue<Q> {
    /// Changes the queue.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut Q) -> R) -> R {
        change(&mut self.lock().queue)
    }

    /// Wakes a thread: work has been added.
    pub(crate) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Adds a thread by `start`, unless there are as many as there may be. The thread calls [`WorkQueue::run_thread`].
    ///
    /// # Errors
    /// The errors of `start`.
    pub(crate) fn add_thread(&self, start: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        {
            let mut state = self.lock();
            if state.thread_count == THREADS_MAX {
                return Ok(());
            }
            state.thread_count += 1;
        }
        start().inspect_err(|_| self.lock().thread_count -= 1)
    }

    /// Does work with `run` until the queue is closed, or other threads are enough. `add` adds a thread by
    /// [`WorkQueue::add_thread`].
    pub(crate) fn run_thread(&self, run: impl Fn(Q::Work), add: impl Fn() -> io::Result<()>) {
        while let Some(Taken { work, is_last }) = self.next() {
            if is_last {
                // Without a further thread those that there are do all the work.
                let _ = add();
            }
            run(work);
        }
        self.lock().thread_count -= 1;
    }

    /// Waits for work; `None` if the thread is to end.
    fn next(&self) -> Option<Taken<Q::Work>> {
        let ends_at = Instant::now() + IDLE_TIME;
        let mut state = self.lock();
        while !state.is_closed {
            let now = Instant::now();
            let has_others = state.waiting_count > 0;
            let next_at = match state.queue.take(now) {
                Ok(work) => {
                    if has_others && state.queue.has_more() {
                        // The other threads may not wait for the time of the remaining work.
                        self.changed.notify_one();
                    }
                    return Some(Taken { work, is_last: !has_others });
                }
                Err(next_at) => next_at.or(has_others.then_some(ends_at)),
            };
            if has_others && now >= ends_at && next_at == Some(ends_at) {
                return None;
            }
            state.waiting_count += 1;
            state = match next_at {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(next_at) => {
                    let pause = next_at.saturating_duration_since(now);
                    self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.waiting_count -= 1;
        }
        None
    }

    /// Ends the threads, each after its work.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::Barrier;
    use std::thread::{self, Scope};

    impl Queue for VecDeque<u32> {
        type Work = u32;

        fn take(&mut self, _now: Instant) -> Result<u32, Option<Instant>> {
            self.pop_front().ok_or(None)
        }

        fn has_more(&self) -> bool {
            !self.is_empty()
        }
    }

    type TestQueue = WorkQueue<VecDeque<u32>>;

    fn start<'scope>(scope: &'scope Scope<'scope, '_>, queue: &'scope TestQueue, run: &'scope (impl Fn(u32) + Sync)) {
        let started = queue.add_thread(|| {
            let add_next = move || {
                start(scope, queue, run);
                Ok(())
            };
            scope.spawn(move || queue.run_thread(run, add_next));
            Ok(())
        });
        started.expect("started");
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < deadline, "it does not happen");
            thread::yield_now();
        }
    }

    #[test]
    fn there_are_as_many_threads_as_wait_and_they_end_when_idle() {
        let (queue, all_wait) = (TestQueue::default(), Barrier::new(THREADS_MAX));
        let run = |_| {
            all_wait.wait();
        };
        thread::scope(|scope| {
            for number in 0..THREADS_MAX as u32 {
                queue.update(|queue| queue.push_back(number));
            }
            start(scope, &queue, &run);
            wait_until(|| {
                let state = queue.lock();
                state.queue.is_empty() && state.thread_count == 1
            });
            queue.close();
        });
        assert_eq!(queue.lock().thread_count, 0);
    }

    #[test]
    fn threads_are_limited() {
        let queue = TestQueue::default();
        for _ in 0..THREADS_MAX {
            queue.add_thread(|| Ok(())).expect("added");
        }
        queue.add_thread(|| panic!("one too many")).expect("nothing to start");
        queue.lock().thread_count -= 1;
        queue.add_thread(|| Err(io::ErrorKind::OutOfMemory.into())).expect_err("no memory");
        assert_eq!(queue.lock().thread_count, THREADS_MAX - 1);
    }

    #[test]
    fn waiting_for_work_ends_when_the_queue_is_closed() {
        let queue = TestQueue::default();
        thread::scope(|scope| {
            start(scope, &queue, &|_| {});
            queue.close();
        });
        assert_eq!(queue.lock().thread_count, 0);
    }
}
