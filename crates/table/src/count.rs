//! Turns one word into the number of holders of an entry, and tells a live entry from a dead one.

use crate::sync::{AtomicU64, planted, unless_planted};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// How a look-up takes its reference. Both are sound on the same word, in any mixture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taking {
    /// Compare and exchange, never from zero: the first form of the idea (FreeBSD, 2009). Under contention each
    /// success makes every other thread try again.
    Exchange,
    /// Add first and look afterwards whether the entry was dead (Linux `file_ref`, 2024): one instruction that cannot
    /// fail, however many threads want the entry.
    #[default]
    Add,
}

/// Counts from here on are dead. Failed additions are never undone: at one in a nanosecond it takes 292 years
/// for them to leave this zone, and as long for living holders to reach it.
const DEAD: u64 = 1 << 63;

/// The holders of one entry.
///
/// ```text
///   n holders ──take──▶ n+1        0 ──last put──▶ DEAD ──slot handed out again──▶ 2
///             ◀──put───
/// ```
///
/// Between the put that leaves zero and the step from zero to DEAD, an addition may still come in; then that step
/// fails, the entry lives on, and its new holder is the one who will try the step again.
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Nobody's, and not to be taken.
    pub(crate) fn dead() -> Count {
        Count(AtomicU64::new(DEAD))
    }

    /// Starts a life with `holders` references. Only for the writer to whom the free list gave the slot.
    pub(crate) fn start(&self, holders: u64) {
        // Release pairs with the Acquire in `take`: whoever takes a reference sees the entry that was written before,
        // even if it came here by an index place of the slot's last life.
        //
        // An exchange, where a store would do, tells whether the slot was nobody's; and loom keeps the order of a word
        // that is only exchanged, while it would let a failed addition undo a store.
        let before = self.0.swap(holders, unless_planted("relaxed_publish", Release));
        assert!(before >= DEAD, "the free list gave out a slot that is held");
    }

    /// One more holder; `false` when the entry is dead, or about to be.
    #[inline]
    pub(crate) fn take(&self, taking: Taking) -> bool {
        match taking {
            Taking::Exchange => self.take_by_exchange(),
            Taking::Add => self.take_by_add(),
        }
    }

    #[inline]
    fn take_by_exchange(&self) -> bool {
        // Acquire, here and on failure, pairs with the AcqRel in `put`: who finds the entry dead also finds what its
        // retirement wrote into the index, so that the next look does not end here again.
        let mut seen = self.0.load(Acquire);
        loop {
            if seen == 0 || seen >= DEAD {
                return false;
            }
            // Acquire pairs with the Release in `start`.
            let success = unless_planted("relaxed_exchange", Acquire);
            match self.0.compare_exchange_weak(seen, seen + 1, success, Acquire) {
                Ok(_) => return true,
                // Another thread took or put a reference meanwhile, or the exchange failed for no reason.
                Err(now) => seen = now,
            }
        }
    }

    #[inline]
    fn take_by_add(&self) -> bool {
        // Acquire pairs with the Release in `start` when the entry lives, and with the AcqRel in `put` when it is dead.
        let before = self.0.fetch_add(1, unless_planted("relaxed_add", Acquire));
        before < DEAD || planted("plain_add")
    }

    /// One more holder, taken by one who already is: the entry cannot die meanwhile, so nothing is to be seen anew.
    #[inline]
    pub(crate) fn take_another(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// One holder less. `true` when that was the last: then the entry is dead, and the caller alone must end it.
    #[inline]
    pub(crate) fn put(&self) -> bool {
        // Release pairs with the Acquire half of the exchange below: the last holder drops the entry after everybody's
        // last look at it.
        let before = self.0.fetch_sub(1, unless_planted("relaxed_put", Release));
        before == 1 && self.end()
    }

    #[cold]
    fn end(&self) -> bool {
        // AcqRel: Acquire pairs with the Release of each earlier put, Release with the Acquire of a take that fails.
        // It fails when a look-up came in after the put; that look-up holds the entry now.
        let success = unless_planted("relaxed_end", AcqRel);
        self.0.compare_exchange(0, DEAD, success, Relaxed).is_ok()
    }

    /// Whether nobody holds the entry and nobody will.
    pub(crate) fn is_dead(&self) -> bool {
        self.0.load(Relaxed) >= DEAD
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_dead_count_is_not_taken_however_often_one_tries() {
        for taking in [Taking::Exchange, Taking::Add] {
            let count = Count::dead();
            for _ in 0..100 {
                assert!(!count.take(taking), "{taking:?}");
            }
            assert!(count.is_dead());
            count.start(1);
            assert!(count.take(taking), "{taking:?}: a new life forgets the failed tries");
            assert!(!count.put());
            assert!(count.put());
        }
    }

    #[test]
    fn exchange_never_raises_from_zero_and_add_wins_against_the_end() {
        let count = Count::dead();
        count.start(1);
        assert_eq!(count.0.fetch_sub(1, Relaxed), 1, "as a last put begins");
        assert!(!count.take(Taking::Exchange));
        assert!(count.take(Taking::Add));
        assert!(!count.end(), "a holder came in, so the entry must not end");
        assert!(count.put());
    }
}
