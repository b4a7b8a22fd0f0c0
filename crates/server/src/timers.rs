//! When a worker must check which connection: a queue that learns of a later deadline only when an earlier one passes.
//!
//! A busy connection moves its deadline without touching the queue: when the old deadline passes, the worker takes the
//! new one from the connection. So a request costs one store, and a long-lived connection costs the
//! queue one step per timeout.

use crate::clock::Milliseconds;
use crate::slab::{Key, Slab};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Deadlines of a worker's connections.
#[derive(Debug, Default)]
pub(crate) struct Timers(BinaryHeap<Reverse<(Milliseconds, Key)>>);

/// The deadline of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    /// When the connection expires, unless the deadline moves before.
    pub(crate) deadline_ms: Milliseconds,
    /// The earliest time that [`Timers`] has for the connection.
    pub(crate) queued_ms: Milliseconds,
}

impl Timer {
    pub(crate) fn new(deadline_ms: Milliseconds) -> Timer {
        Timer { deadline_ms, queued_ms: Milliseconds::MAX }
    }
}

impl Timers {
    /// Queues `timer`, unless the queue has an earlier time for it already.
    #[inline]
    pub(crate) fn queue(&mut self, key: Key, timer: &mut Timer) {
        if timer.deadline_ms < timer.queued_ms {
            timer.queued_ms = timer.deadline_ms;
            self.0.push(Reverse((timer.deadline_ms, key)));
        }
    }

    /// The earliest time in the queue.
    pub(crate) fn next_ms(&self) -> Option<Milliseconds> {
        self.0.peek().map(|Reverse((at_ms, _))| *at_ms)
    }

    /// The next connection whose deadline has passed, which it then no longer has. `timer_of`: the timer of a
    /// connection.
    pub(crate) fn pop_passed<C>(
        &mut self,
        now_ms: Milliseconds,
        connections: &mut Slab<C>,
        timer_of: impl Fn(&mut C) -> &mut Timer,
    ) -> Option<Key> {
        while self.next_ms()? <= now_ms {
            let Reverse((due_ms, key)) = self.0.pop()?;
            let Some(connection) = connections.get_mut(key) else { continue };
            let timer = timer_of(connection);
            if timer.queued_ms != due_ms {
                // A later entry of the queue that an earlier one has replaced.
                continue;
            }
            timer.queued_ms = Milliseconds::MAX;
            if timer.deadline_ms > now_ms {
                self.queue(key, timer);
                continue;
            }
            timer.deadline_ms = Milliseconds::MAX;
            return Some(key);
        }
        None
    }
}
