//! The handshakes of a worker that wait until their key can sign: the process that has it was replaced, or hangs.

use crate::clock::Milliseconds;
use crate::slab::Key;
use std::collections::VecDeque;

/// Time between two tries. A try does the work of a handshake for nothing, but only for the first one that waits.
const TRY_INTERVAL_MS: Milliseconds = 20;
/// Entries at which those of connections that have closed are removed for the first time. Later ones, twice as many as
/// were left.
const LENGTH_MIN: usize = 1_024;

/// Connections in the order in which they began to wait.
#[derive(Debug, Default)]
pub(crate) struct KeyQueue {
    keys: VecDeque<Key>,
    /// The length at which those that no longer wait are removed.
    checked_length: usize,
    next_try_ms: Milliseconds,
}

impl KeyQueue {
    /// When the first one is retried; `None` if there is none.
    #[inline]
    pub(crate) fn next_try_ms(&self) -> Option<Milliseconds> {
        if self.keys.is_empty() { None } else { Some(self.next_try_ms) }
    }

    /// Appends a connection. `waits` tells which ones still do: there are as many as handshakes that a worker may have.
    pub(crate) fn push(&mut self, key: Key, now_ms: Milliseconds, mut waits: impl FnMut(Key) -> bool) {
        if self.keys.is_empty() {
            self.pause(now_ms);
        }
        if self.keys.len() >= self.checked_length.max(LENGTH_MIN) {
            self.keys.retain(|key| waits(*key));
            self.checked_length = 2 * self.keys.len();
        }
        self.keys.push_back(key);
    }

    pub(crate) fn first(&self) -> Option<Key> {
        self.keys.front().copied()
    }

    pub(crate) fn remove_first(&mut self) {
        self.keys.pop_front();
        if self.keys.is_empty() {
            *self = KeyQueue::default();
        }
    }

    /// The key cannot sign now.
    pub(crate) fn pause(&mut self, now_ms: Milliseconds) {
        self.next_try_ms = now_ms + TRY_INTERVAL_MS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn connections_that_have_closed_do_not_fill_the_queue() {
        let (mut slab, mut queue) = (Slab::new(), KeyQueue::default());
        let waiting: Vec<Key> = (0..600).map(|_| slab.insert(())).collect();
        for key in &waiting {
            queue.push(*key, 0, |key| slab.get_mut(key).is_some());
        }
        for _ in 0..20_000 {
            let closed = slab.insert(());
            queue.push(closed, 0, |key| slab.get_mut(key).is_some());
            slab.remove(closed);
            assert!(queue.keys.len() <= 2 * waiting.len() + LENGTH_MIN);
        }
        assert!(queue.keys.iter().filter(|key| waiting.contains(key)).eq(&waiting));
        assert_eq!(queue.next_try_ms(), Some(TRY_INTERVAL_MS));
        while queue.first().is_some() {
            queue.remove_first();
        }
        assert_eq!(queue.next_try_ms(), None);
    }
}
