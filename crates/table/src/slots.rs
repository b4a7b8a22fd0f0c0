//! Allocates slots and frees them.

use crate::slot::{Slot, SlotNumber};
use crate::sync::{AtomicPtr, AtomicU32, CacheLine, fault_injected, unless_injected};
use core::array;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Slots of one segment, which is allocated as a whole on demand.
const SEGMENT_SLOT_COUNT: usize = if cfg!(loom) { 2 } else { 1024 };
/// Segments of a table.
const SEGMENT_COUNT_MAX: usize = if cfg!(loom) { 2 } else { 256 };
/// The largest capacity of a table.
pub const CAPACITY_MAX: usize = SEGMENT_SLOT_COUNT * SEGMENT_COUNT_MAX;

type Segment<K, V> = [Slot<K, V>; SEGMENT_SLOT_COUNT];

/// All slots of a table. A segment is neither moved nor freed before the table is dropped, so that an outdated slot
/// number still leads to a slot.
pub(crate) struct Slots<K, V> {
    segments: [AtomicPtr<Segment<K, V>>; SEGMENT_COUNT_MAX],
    /// The head of the list of slots that last holders freed, as `SlotNumber + 1`; 0 if it is empty.
    freed: CacheLine<AtomicU32>,
    /// Makes the table Send and Sync only if its entries are, which `AtomicPtr` would not require.
    owned: PhantomData<Box<Segment<K, V>>>,
}

/// The writers' part of the free list, protected by their lock.
pub(crate) struct FreeList {
    /// The head of the list taken from `Slots::freed`, as `SlotNumber + 1`; 0 if it is empty.
    head: u32,
    /// Slots that have been allocated at least once.
    created_count: u32,
    capacity_max: u32,
}

impl<K, V> Slots<K, V> {
    pub(crate) fn new() -> Slots<K, V> {
        Slots {
            segments: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            freed: CacheLine(AtomicU32::new(0)),
            owned: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn slot(&self, number: SlotNumber) -> &Slot<K, V> {
        let at = number.0 as usize;
        // Acquire pairs with the Release in `make_segment_of`.
        let segment = self.segments[at / SEGMENT_SLOT_COUNT].load(Acquire);
        debug_assert!(!segment.is_null(), "the segment of a slot number exists");
        // SAFETY: numbers come from `allocate`, which makes the segment first, and no segment is freed before `drop`,
        // which the borrow of `self` excludes.
        unsafe { &(*segment)[at % SEGMENT_SLOT_COUNT] }
    }

    /// A freed slot, else a new one; `None` if all are in use.
    pub(crate) fn allocate(&self, free: &mut FreeList) -> Option<&Slot<K, V>> {
        if free.head == 0 {
            // Acquire pairs with the Release in `free`: the last holder has dropped the entry. The writer takes the
            // whole list, so there is no ABA problem.
            free.head = self.freed.0.swap(0, Acquire);
        }
        if free.head != 0 {
            let slot = self.slot(SlotNumber(free.head - 1));
            free.head = slot.next_free.load(Relaxed);
            return Some(slot);
        }
        (free.created_count < free.capacity_max).then(|| {
            let number = SlotNumber(free.created_count);
            self.make_segment_of(number);
            free.created_count += 1;
            self.slot(number)
        })
    }

    fn make_segment_of(&self, number: SlotNumber) {
        let at = number.0 as usize;
        if !at.is_multiple_of(SEGMENT_SLOT_COUNT) {
            return;
        }
        let slots: Vec<Slot<K, V>> =
            (number.0..).take(SEGMENT_SLOT_COUNT).map(|number| Slot::new(SlotNumber(number))).collect();
        let Ok(segment) = <Box<Segment<K, V>>>::try_from(slots) else {
            unreachable!("a segment has as many slots as were collected")
        };
        // Release pairs with the Acquire in `slot`.
        self.segments[at / SEGMENT_SLOT_COUNT].store(Box::into_raw(segment), Release);
    }

    /// Removes a reference; the last holder drops the entry and frees the slot. Until then the slot cannot be
    /// allocated.
    ///
    /// # Safety
    /// The caller owns a reference to the entry in this slot of this table and no longer uses it.
    #[inline]
    pub(crate) unsafe fn release(&self, slot: &Slot<K, V>) {
        if slot.release() {
            // SAFETY: that was the last reference.
            unsafe { self.drop_entry(slot) };
        }
    }

    /// # Safety
    /// `slot.release()` returned `true` to the caller.
    #[cold]
    unsafe fn drop_entry(&self, slot: &Slot<K, V>) {
        if fault_injected("free_before_drop") {
            self.free(slot);
            // SAFETY: none. This is the fault, which only loom's build can inject.
            return unsafe { slot.drop_entry() };
        }
        // Frees the slot even if dropping the entry panics.
        let _guard = FreeOnDrop { slots: self, slot };
        // SAFETY: `release` returned `true`, and the slot is freed when `_guard` is dropped.
        unsafe { slot.drop_entry() };
    }

    fn free(&self, slot: &Slot<K, V>) {
        let number = slot.number().0 + 1;
        let mut head = self.freed.0.load(Relaxed);
        loop {
            slot.next_free.store(head, Relaxed);
            // Release pairs with the Acquire in `allocate`.
            let success = unless_injected("relaxed_free", Release);
            match self.freed.0.compare_exchange_weak(head, number, success, Relaxed) {
                Ok(_) => return,
                // Another holder freed a slot, or a writer took the list.
                Err(now) => head = now,
            }
        }
    }

    /// The free slots of those made so far. Only with the writers' lock, else the list may change.
    pub(crate) fn free_numbers(&self, free: &FreeList) -> Vec<SlotNumber> {
        let mut numbers = Vec::new();
        // Acquire pairs with the Release in `free`.
        for head in [free.head, self.freed.0.load(Acquire)] {
            let mut next = head;
            while next != 0 {
                let number = SlotNumber(next - 1);
                numbers.push(number);
                assert!(numbers.len() <= free.created_count as usize, "a slot is in the free list twice");
                next = self.slot(number).next_free.load(Relaxed);
            }
        }
        numbers
    }
}

struct FreeOnDrop<'s, K, V> {
    slots: &'s Slots<K, V>,
    slot: &'s Slot<K, V>,
}

impl<K, V> Drop for FreeOnDrop<'_, K, V> {
    fn drop(&mut self) {
        self.slots.free(self.slot);
    }
}

impl<K, V> Drop for Slots<K, V> {
    fn drop(&mut self) {
        for segment in &self.segments {
            let segment = segment.load(Relaxed);
            if !segment.is_null() {
                // SAFETY: `make_segment_of` stored it once, from a Box, and `&mut self` excludes any use. Each slot
                // drops the entry that is still in it.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}

impl FreeList {
    pub(crate) fn new(capacity_max: u32) -> FreeList {
        FreeList { head: 0, created_count: 0, capacity_max }
    }

    pub(crate) fn created_count(&self) -> u32 {
        self.created_count
    }
}
