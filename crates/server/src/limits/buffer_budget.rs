//! The memory of all connections' buffers: requests that are not processed, and answers that the clients have not
//! taken.
//!
//! Up to the budget, a connection may hold its share: a pipeline is received, answered and sent in large pieces. Beyond
//! it, buffers are scarce: a connection is served in pieces so small that it can continue without more than a few KiB,
//! and its further requests stay in the socket until the client has taken the previous answers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that a connection can hold while buffers are scarce: a usual request.
pub(crate) const SCARCE_BYTES_MAX: usize = 2 * 1024;
/// Content in memory up to this size is copied after its head, which is cheaper than a second part of the send.
const COPIED_BYTES_MAX: u64 = 16 * 1024;

/// The bytes that all connections hold, and how many they may hold.
#[derive(Debug)]
pub(crate) struct BufferBudget {
    held_bytes: AtomicUsize,
    bytes_max: usize,
}

impl BufferBudget {
    pub(crate) fn new(bytes_max: usize) -> BufferBudget {
        BufferBudget { held_bytes: AtomicUsize::new(0), bytes_max }
    }

    /// A connection holds `after` bytes instead of `before`.
    pub(crate) fn change(&self, before: usize, after: usize) {
        // Relaxed: the number guards no other memory. It wraps for a decrease.
        self.held_bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    /// The bytes that all connections hold.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Whether they hold more than the budget.
    pub(crate) fn is_scarce(&self) -> bool {
        self.held_bytes() > self.bytes_max
    }
}

/// The pieces in which a connection is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceLimits {
    /// Bytes that are received before they are processed, unless a request is longer.
    pub(crate) received_bytes_max: usize,
    /// Bytes of answers after which they are sent, before more are written.
    pub(crate) written_bytes_max: usize,
    /// Content in memory up to this size is copied to the answer; more is sent from where it is.
    pub(crate) copied_bytes_max: u64,
}

/// One request after the other: an answer is sent before the next one is written, and its content is not copied.
const SCARCE: PieceLimits =
    PieceLimits { received_bytes_max: SCARCE_BYTES_MAX, written_bytes_max: 1, copied_bytes_max: 0 };

impl PieceLimits {
    /// The limits for a share of `share_bytes`.
    pub(crate) fn new(is_scarce: bool, share_bytes: usize) -> PieceLimits {
        match is_scarce {
            false => PieceLimits {
                received_bytes_max: share_bytes,
                written_bytes_max: share_bytes,
                copied_bytes_max: COPIED_BYTES_MAX,
            },
            true => SCARCE,
        }
    }

    /// Whether these are the limits while buffers are scarce.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.copied_bytes_max == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_scarce_while_the_connections_hold_more_than_the_budget() {
        let budget = BufferBudget::new(100);
        budget.change(0, 60);
        budget.change(0, 40);
        assert!(!budget.is_scarce());
        budget.change(40, 41);
        assert!(budget.is_scarce());
        budget.change(60, 0);
        assert_eq!((budget.held_bytes(), budget.is_scarce()), (41, false));
    }
}
