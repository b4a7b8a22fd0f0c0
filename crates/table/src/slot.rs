//! A slot holds one entry after another; a generation distinguishes valid from invalidated ones.

use crate::ref_count::RefCount;
use crate::sync::{AtomicU32, AtomicU64, CacheLine, UnsafeCell};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of a slot, counted through all segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotNumber(pub(crate) u32);

/// The number of times that an entry was published or invalidated in a slot. Even: the entry is valid. Odd: it is
/// invalidated, or the slot is free.
///
/// While there is a reference the slot can only change from valid to invalidated, so a holder needs no comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Generation(u64);

impl Generation {
    pub(crate) fn is_valid(self) -> bool {
        self.0.is_multiple_of(2)
    }
}

/// The entry in a slot; immutable while there is a reference.
pub(crate) struct Entry<K, V> {
    /// The hash of the key, stored so that a rebuild of the index need not compute it.
    pub(crate) hash: u64,
    pub(crate) key: K,
    pub(crate) value: V,
}

/// Type-stable: its memory stays a slot until the table is dropped.
///
/// The count has its own cache line, since every counted look-up writes it, while a cached one reads only the
/// generation and the entry.
#[repr(C)]
pub(crate) struct Slot<K, V> {
    count: CacheLine<RefCount>,
    generation: AtomicU64,
    number: SlotNumber,
    /// The next slot of the free list as `SlotNumber + 1`; 0 at its end.
    pub(crate) next_free: AtomicU32,
    /// Written only by the writer that allocated the slot and by the last holder; otherwise only read, by holders.
    entry: UnsafeCell<MaybeUninit<Entry<K, V>>>,
}

// SAFETY: threads share the entry by `&` (K, V: Sync), and the last holder may drop an entry of another thread (K, V:
// Send). The contracts of `publish`, `entry` and `drop_entry` exclude a write during a read.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Slot<K, V> {}

impl<K, V> Slot<K, V> {
    pub(crate) fn new(number: SlotNumber) -> Slot<K, V> {
        Slot {
            count: CacheLine(RefCount::dead()),
            generation: AtomicU64::new(1),
            number,
            next_free: AtomicU32::new(0),
            entry: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    pub(crate) fn number(&self) -> SlotNumber {
        self.number
    }

    /// Stores a valid entry with two references: the table's and the caller's.
    ///
    /// # Safety
    /// The caller has just allocated this slot.
    pub(crate) unsafe fn publish(&self, entry: Entry<K, V>) {
        // SAFETY: the count is dead, so no look-up gets a reference, and the slot is allocated to the caller alone.
        self.entry.with_mut(|cell| unsafe { (*cell).write(entry) });
        // Relaxed: a thread reads it for this entry only with a reference, after `RefCount::start` below.
        self.generation.fetch_add(1, Relaxed);
        self.count.0.start(2);
    }

    /// The entry.
    ///
    /// # Safety
    /// There is a reference for as long as the caller uses the result.
    #[inline]
    pub(crate) unsafe fn entry(&self) -> &Entry<K, V> {
        // SAFETY: `publish` wrote the entry before the first reference, and a reference excludes `drop_entry`.
        self.entry.with(|cell| unsafe { (*cell).assume_init_ref() })
    }

    /// Invalidates the entry for every local cache. Existing references keep it.
    pub(crate) fn invalidate(&self) {
        // Release pairs with the Acquire in `generation`: a thread that sees the entry invalidated sees the index
        // without it.
        self.generation.fetch_add(1, Release);
    }

    /// Acquire pairs with the Release in `invalidate`.
    #[inline]
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Acquire))
    }

    /// [`RefCount::try_increment`]
    #[inline]
    pub(crate) fn try_reference(&self) -> bool {
        self.count.0.try_increment()
    }

    /// [`RefCount::increment`]: only for a caller that has a reference.
    #[inline]
    pub(crate) fn reference(&self) {
        self.count.0.increment();
    }

    /// Removes a reference. `true` if it was the last one: the caller must call `drop_entry` and free the slot.
    #[inline]
    pub(crate) fn release(&self) -> bool {
        self.count.0.decrement()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.count.0.is_dead()
    }

    /// Drops the entry.
    ///
    /// # Safety
    /// `release` returned `true` to the caller, and the slot is not yet in the free list.
    pub(crate) unsafe fn drop_entry(&self) {
        // SAFETY: the count is dead, so there is no reference, and `release` returns `true` once per entry.
        self.entry.with_mut(|cell| unsafe { (*cell).assume_init_drop() });
    }
}

impl<K, V> Drop for Slot<K, V> {
    fn drop(&mut self) {
        if !self.is_dead() {
            // SAFETY: a count that is alive means that there is an entry. `&mut` excludes borrows, also if a reference
            // was leaked.
            self.entry.with_mut(|cell| unsafe { (*cell).assume_init_drop() });
        }
    }
}
