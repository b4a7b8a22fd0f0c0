//! Looks for files off the workers' turns: each file once, however many ask for it, and those who asked are told.

use crate::open_file::{FileKey, NoFile};
use crate::slab::Key;
use crate::sought::Sought;
use sanderling_os::poll::Waker;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Looks that wait for an opener; beyond that, who asks is told to come again.
const WAITING_MAX: usize = 4_096;

/// The looks that are under way, and those who wait for them.
#[derive(Debug, Default)]
pub(crate) struct Fills {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    under_way: HashMap<FileKey, Vec<Waiter>>,
    waiting: VecDeque<Job>,
    has_ended: bool,
}

/// A look for an opener.
#[derive(Debug)]
struct Job {
    sought: Sought,
    not_before: Instant,
    try_count: u8,
}

/// A connection that waits for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) worker_index: usize,
    pub(crate) peer: Key,
}

/// What became of a look, for a connection that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) peer: Key,
    /// Why there is no file; `None` when the cache has the answer now.
    pub(crate) trouble: Option<NoFile>,
}

/// Whose turn it is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The caller's, who ends it with [`Fills::end`] or hands it on with [`Fills::hand_over`].
    Ours,
    /// Somebody else's: the waiter will be told.
    Theirs,
}

/// Where a worker finds what its connections waited for.
#[derive(Debug)]
pub(crate) struct Inbox {
    done: Mutex<Vec<Done>>,
    waker: Waker,
}

impl Fills {
    /// Claims the look for `key`, or waits for whoever has.
    pub(crate) fn claim(&self, key: &FileKey, waiter: Waiter) -> Claim {
        let mut state = self.lock();
        if let Some(waiters) = state.under_way.get_mut(key) {
            waiters.push(waiter);
            return Claim::Theirs;
        }
        state.under_way.insert(key.clone(), Vec::new());
        Claim::Ours
    }

    /// Ends a look; those who wait for it.
    pub(crate) fn end(&self, key: &FileKey) -> Vec<Waiter> {
        self.lock().under_way.remove(key).unwrap_or_default()
    }

    /// Hands a claimed look to the openers, for `waiter` among others, to be begun after `delay`; `false` when too many
    /// wait for them already.
    pub(crate) fn hand_over(&self, sought: Sought, delay: Duration, waiter: Waiter) -> bool {
        let mut state = self.lock();
        if state.waiting.len() >= WAITING_MAX {
            return false;
        }
        if let Some(waiters) = state.under_way.get_mut(&sought.key) {
            waiters.push(waiter);
        }
        state.waiting.push_back(Job { sought, not_before: Instant::now() + delay, try_count: 0 });
        self.work.notify_one();
        true
    }

    /// Puts a look off that an opener has begun.
    pub(crate) fn postpone(&self, sought: Sought, try_count: u8, delay: Duration) {
        self.lock().waiting.push_back(Job { sought, not_before: Instant::now() + delay, try_count });
        self.work.notify_one();
    }

    /// The next look for an opener, who waits for it, and how often it was begun before; `None` when there will be
    /// none.
    pub(crate) fn next(&self) -> Option<(Sought, u8)> {
        let mut state = self.lock();
        loop {
            if state.has_ended {
                return None;
            }
            let now = Instant::now();
            if let Some(due) = state.waiting.iter().position(|job| job.not_before <= now) {
                let job = state.waiting.remove(due).expect("found just now");
                return Some((job.sought, job.try_count));
            }
            let next = state.waiting.iter().map(|job| job.not_before).min();
            state = match next {
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let pause = next.saturating_duration_since(now);
                    self.work.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Lets the openers go.
    pub(crate) fn finish(&self) {
        self.lock().has_ended = true;
        self.work.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbox {
    pub(crate) fn new(waker: Waker) -> Inbox {
        Inbox { done: Mutex::default(), waker }
    }

    /// Tells the worker.
    pub(crate) fn put(&self, done: Done) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        self.wake();
    }

    /// Wakes the worker, who then looks at everything that is shared.
    pub(crate) fn wake(&self) {
        // Fails only if the descriptor is gone, which the poller owns.
        let woken = self.waker.wake();
        debug_assert!(woken.is_ok());
    }

    /// What came since the last time.
    pub(crate) fn take(&self) -> Vec<Done> {
        std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_looked_for_once_however_many_ask() {
        let fills = Fills::default();
        let mut slab = crate::slab::Slab::new();
        let waiters: Vec<Waiter> = (0..3).map(|_| Waiter { worker_index: 0, peer: slab.insert(()) }).collect();
        let key = b"a".to_vec();
        assert_eq!(fills.claim(&key, waiters[0]), Claim::Ours);
        assert_eq!(fills.claim(&key, waiters[1]), Claim::Theirs);
        assert_eq!(fills.claim(&key, waiters[2]), Claim::Theirs);
        assert_eq!(fills.claim(&b"b".to_vec(), waiters[2]), Claim::Ours);
        assert_eq!(fills.end(&key), waiters[1..]);
        assert_eq!(fills.claim(&key, waiters[0]), Claim::Ours);
    }

    #[test]
    fn openers_leave_when_there_is_no_more_work() {
        let fills = Fills::default();
        std::thread::scope(|scope| {
            let opener = scope.spawn(|| fills.next());
            fills.finish();
            assert!(opener.join().expect("no panic").is_none());
        });
    }
}
