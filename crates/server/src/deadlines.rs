//! When which peer must be looked at again: a queue that is told of later deadlines only when an earlier one passes.
//!
//! A busy connection moves its deadline with each request. The queue is not told: it looks at the connection when the
//! old deadline passes, and takes the new one from there. So a request costs one store, and a connection that lives
//! long costs the queue one step for each timeout's length.

use crate::clock::Milliseconds;
use crate::slab::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Deadlines, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(BinaryHeap<Reverse<(Milliseconds, Key)>>);

impl Deadlines {
    /// Looks at `key` again at `at_ms`.
    pub(crate) fn push(&mut self, at_ms: Milliseconds, key: Key) {
        self.0.push(Reverse((at_ms, key)));
    }

    /// The earliest, wherever its peer's deadline has moved meanwhile.
    pub(crate) fn next_ms(&self) -> Option<Milliseconds> {
        self.0.peek().map(|Reverse((at_ms, _))| *at_ms)
    }

    /// The next peer to look at, if its time has come.
    pub(crate) fn pop_due(&mut self, now_ms: Milliseconds) -> Option<(Milliseconds, Key)> {
        if self.next_ms()? > now_ms {
            return None;
        }
        self.0.pop().map(|Reverse(due)| due)
    }
}
