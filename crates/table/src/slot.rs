//! Turns a place in memory into one entry after another, each known by its generation.

use crate::count::{Count, Taking};
use crate::sync::{AtomicU32, AtomicU64, Line, UnsafeCell};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Which slot, counted from the first of the first segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotNumber(pub(crate) u32);

/// How often the slot began or ended a lending. Even: the entry is lent. Odd: it is retired, or the slot is empty.
///
/// While an entry is held, its slot can go from lent to retired and no further; so a holder asks no more than which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Generation {
    pub(crate) fn is_lent(self) -> bool {
        self.0.is_multiple_of(2)
    }
}

/// What stands in a slot. It is immutable while anyone holds it.
pub(crate) struct Entry<K, V> {
    /// Of the key, kept so that the index can be rebuilt without asking the key.
    pub(crate) hash: u64,
    pub(crate) key: K,
    pub(crate) value: V,
}

/// Type-stable: its memory stays a slot from its making until the table is dropped.
///
/// The count has a cache line of its own, since every counted look-up writes it, while a lease reads only the
/// generation and the entry.
#[repr(C)]
pub(crate) struct Slot<K, V> {
    count: Line<Count>,
    generation: AtomicU64,
    number: SlotNumber,
    /// The slot below this one in the free list, by `SlotNumber + 1`; 0 at its end.
    pub(crate) next_free: AtomicU32,
    /// Written while the slot is nobody's but its writer's, or its last holder's; else only read, by holders.
    entry: UnsafeCell<MaybeUninit<Entry<K, V>>>,
}

// SAFETY: threads share the entry by `&` (K, V: Sync), and the last holder drops what another thread made (K, V: Send).
// That nobody writes the cell while another reads it is the contract of `fill`, `entry` and `end`.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Slot<K, V> {}

impl<K, V> Slot<K, V> {
    pub(crate) fn empty(number: SlotNumber) -> Slot<K, V> {
        Slot {
            count: Line(Count::dead()),
            generation: AtomicU64::new(1),
            number,
            next_free: AtomicU32::new(0),
            entry: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    pub(crate) fn number(&self) -> SlotNumber {
        self.number
    }

    /// Begins a lending with two references: the table's own and the caller's.
    ///
    /// # Safety
    /// The free list gave this slot to the caller, who has not used it yet.
    pub(crate) unsafe fn fill(&self, entry: Entry<K, V>) {
        // SAFETY: the slot is dead, so no look-up takes it, and the caller is the only one whom the free list gave it.
        self.entry.with_mut(|cell| unsafe { (*cell).write(entry) });
        // Relaxed: whoever reads it for this entry has taken a reference, and sees it by `Count::start` below.
        self.generation.fetch_add(1, Relaxed);
        self.count.0.start(2);
    }

    /// The entry.
    ///
    /// # Safety
    /// The caller holds a reference, or knows that one is held, for as long as it uses what it gets.
    #[inline]
    pub(crate) unsafe fn entry(&self) -> &Entry<K, V> {
        // SAFETY: `fill` wrote the entry before the first reference, and the caller's keeps `end` away.
        self.entry.with(|cell| unsafe { (*cell).assume_init_ref() })
    }

    /// Ends the lending: from now on every lease of this entry is stale. The holders keep it.
    pub(crate) fn invalidate(&self) {
        // Release pairs with the Acquire in `generation`: who sees the entry retired sees the index without it.
        self.generation.fetch_add(1, Release);
    }

    /// Acquire pairs with the Release in `retire`.
    #[inline]
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Acquire))
    }

    #[inline]
    pub(crate) fn take(&self, taking: Taking) -> bool {
        self.count.0.take(taking)
    }

    /// See [`Count::take_another`]: only for one who already holds the entry.
    #[inline]
    pub(crate) fn take_another(&self) {
        self.count.0.take_another();
    }

    /// Whether this put was the last; then the caller must call `end` and give the slot to the free list.
    #[inline]
    pub(crate) fn put(&self) -> bool {
        self.count.0.put()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.count.0.is_dead()
    }

    /// Drops the entry.
    ///
    /// # Safety
    /// `put` told the caller that its reference was the last, and the slot is not yet in the free list.
    pub(crate) unsafe fn end(&self) {
        // SAFETY: the count is dead, so nobody holds the entry or will, and `put` answers `true` once in a life.
        self.entry.with_mut(|cell| unsafe { (*cell).assume_init_drop() });
    }
}

impl<K, V> Drop for Slot<K, V> {
    fn drop(&mut self) {
        if !self.is_dead() {
            // SAFETY: a live count means that an entry stands here. `&mut` proves that nobody borrows it, also when
            // somebody forgot to give his reference back.
            self.entry.with_mut(|cell| unsafe { (*cell).assume_init_drop() });
        }
    }
}
