//! The reference count of an entry, which also tells whether the entry is dead.

use crate::sync::{AtomicU64, fault_injected, unless_injected};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// Counts from here on are dead. Failed increments are never undone: at one per nanosecond it takes 292 years until
/// they wrap around, and as long until references reach this value.
const DEAD: u64 = 1 << 63;

/// The number of references to one entry.
///
/// ```text
///   n ──increment──▶ n+1        0 ──last decrement──▶ DEAD ──slot is reused──▶ 2
///     ◀──decrement──
/// ```
///
/// Between the decrement to zero and the exchange of zero for DEAD another thread may increment. The exchange then
/// fails, the entry stays alive, and the new holder performs the last decrement.
pub(crate) struct RefCount(AtomicU64);

impl RefCount {
    /// Without references; increments fail.
    pub(crate) fn dead() -> RefCount {
        RefCount(AtomicU64::new(DEAD))
    }

    /// Makes a dead count alive. Only for the writer that allocated the slot.
    pub(crate) fn start(&self, references: u64) {
        // Release pairs with the Acquire in `try_increment`: the thread that gets a reference sees the entry, even if
        // it followed an index bucket of the slot's previous entry.
        //
        // An exchange instead of a store asserts that the slot was dead. Also, loom would let a failed increment undo a
        // store.
        let before = self.0.swap(references, unless_injected("relaxed_start", Release));
        assert!(before >= DEAD, "a slot with references was allocated");
    }

    /// Adds a reference; `false` if the entry is dead.
    ///
    /// A single addition that cannot fail, as in Linux's `file_ref`: unlike a compare-and-swap loop, it costs the same
    /// with any number of threads.
    #[inline]
    pub(crate) fn try_increment(&self) -> bool {
        // Acquire pairs with the Release in `start` if the entry is alive. If it is dead, it pairs with the AcqRel in
        // `try_die`, so that the next look-up sees the index without the entry.
        let before = self.0.fetch_add(1, unless_injected("relaxed_increment", Acquire));
        before < DEAD || fault_injected("unchecked_increment")
    }

    /// Adds a reference for a caller that has one, so that the entry cannot die meanwhile.
    #[inline]
    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// Removes a reference. If it returns `true` the entry is dead, and only the caller may drop it.
    #[inline]
    pub(crate) fn decrement(&self) -> bool {
        // Release pairs with the Acquire half in `try_die`: the entry is dropped after every thread's last access.
        let before = self.0.fetch_sub(1, unless_injected("relaxed_decrement", Release));
        before == 1 && self.try_die()
    }

    #[cold]
    fn try_die(&self) -> bool {
        // Acquire pairs with the Release of each earlier decrement, Release with the Acquire of a failed increment.
        // Fails if another thread incremented after the decrement to zero: that thread holds the entry now.
        let success = unless_injected("relaxed_death", AcqRel);
        self.0.compare_exchange(0, DEAD, success, Relaxed).is_ok()
    }

    /// Whether there is no reference and will be none.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.load(Relaxed) >= DEAD
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn dead_count_is_never_incremented() {
        let count = RefCount::dead();
        for _ in 0..100 {
            assert!(!count.try_increment());
        }
        assert!(count.is_dead());
        count.start(1);
        assert!(count.try_increment(), "failed increments are forgotten");
        assert!(!count.decrement());
        assert!(count.decrement());
    }
}
