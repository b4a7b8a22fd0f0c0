//! Turns a slot number into a slot, and gives the empty ones out again.

use crate::slot::{Slot, SlotNumber};
use crate::sync::{AtomicPtr, AtomicU32, Line, planted, unless_planted};
use core::array;
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Slots of one segment: allocated together, on demand.
const SEGMENT_SLOT_COUNT: usize = if cfg!(loom) { 2 } else { 1024 };
/// Segments of a table.
const SEGMENT_COUNT_MAX: usize = if cfg!(loom) { 2 } else { 256 };
/// Entries of the largest table.
pub const CAPACITY_MAX: usize = SEGMENT_SLOT_COUNT * SEGMENT_COUNT_MAX;

type Segment<K, V> = [Slot<K, V>; SEGMENT_SLOT_COUNT];

/// All slots of a table. A segment, once made, is neither moved nor freed until the table is dropped: whoever follows
/// an old number still finds a slot.
pub(crate) struct Slots<K, V> {
    segments: [AtomicPtr<Segment<K, V>>; SEGMENT_COUNT_MAX],
    /// What last holders gave back: the topmost slot by `SlotNumber + 1`, 0 for none. The others hang below it.
    returned: Line<AtomicU32>,
    /// Makes the table Send and Sync only if its entries may be, which `AtomicPtr` does not ask.
    owned: PhantomData<Box<Segment<K, V>>>,
}

/// The writers' part of the free list, which stands behind their lock.
pub(crate) struct FreeSlots {
    /// Topmost of the slots taken over from `Slots::returned`, by `SlotNumber + 1`; 0 for none.
    top: u32,
    /// Slots that have been handed out at least once.
    made_count: u32,
    capacity_max: u32,
}

impl<K, V> Slots<K, V> {
    pub(crate) fn new() -> Slots<K, V> {
        Slots {
            segments: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            returned: Line(AtomicU32::new(0)),
            owned: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn slot(&self, number: SlotNumber) -> &Slot<K, V> {
        let at = number.0 as usize;
        // Acquire pairs with the Release in `make_segment_of`.
        let segment = self.segments[at / SEGMENT_SLOT_COUNT].load(Acquire);
        debug_assert!(!segment.is_null(), "a number is known only after its segment was made");
        // SAFETY: numbers come from `reserve`, which makes the segment first, and no segment is freed before `drop`,
        // which the borrow of `self` keeps away.
        unsafe { &(*segment)[at % SEGMENT_SLOT_COUNT] }
    }

    /// A slot that is nobody's: one that was given back, else a new one; `None` when all are in use.
    pub(crate) fn reserve(&self, free: &mut FreeSlots) -> Option<&Slot<K, V>> {
        if free.top == 0 {
            // Acquire pairs with the Release in `give_back`: the last holder has dropped the entry before it is
            // written anew. Writers take the whole list, so no two ever race for its top.
            free.top = self.returned.0.swap(0, Acquire);
        }
        if free.top != 0 {
            let slot = self.slot(SlotNumber(free.top - 1));
            free.top = slot.next_free.load(Relaxed);
            return Some(slot);
        }
        (free.made_count < free.capacity_max).then(|| {
            let number = SlotNumber(free.made_count);
            self.make_segment_of(number);
            free.made_count += 1;
            self.slot(number)
        })
    }

    fn make_segment_of(&self, number: SlotNumber) {
        let at = number.0 as usize;
        if !at.is_multiple_of(SEGMENT_SLOT_COUNT) {
            return;
        }
        let slots: Vec<Slot<K, V>> =
            (number.0..).take(SEGMENT_SLOT_COUNT).map(|number| Slot::empty(SlotNumber(number))).collect();
        let Ok(segment) = <Box<Segment<K, V>>>::try_from(slots) else {
            unreachable!("a segment has as many slots as were collected")
        };
        // Release pairs with the Acquire in `slot`.
        self.segments[at / SEGMENT_SLOT_COUNT].store(Box::into_raw(segment), Release);
    }

    /// Gives one reference back; the last holder drops the entry and hands the slot on. Nobody else may hand it out:
    /// while the count says zero, the entry is still being dropped.
    ///
    /// # Safety
    /// The caller owns a reference to the entry in this slot of this table, and uses it no more.
    #[inline]
    pub(crate) unsafe fn put(&self, slot: &Slot<K, V>) {
        if slot.put() {
            // SAFETY: that was the last reference.
            unsafe { self.end(slot) };
        }
    }

    /// # Safety
    /// `slot.put()` told the caller that its reference was the last.
    #[cold]
    unsafe fn end(&self, slot: &Slot<K, V>) {
        if planted("free_at_zero") {
            self.give_back(slot);
            // SAFETY: none. This is the fault, which only the proof's build can plant.
            return unsafe { slot.end() };
        }
        // Also when dropping the entry panics, its slot is not lost.
        let _after = GiveBack { slots: self, slot };
        // SAFETY: `put` said that this was the last reference, and the slot is given back only when `_after` drops.
        unsafe { slot.end() };
    }

    fn give_back(&self, slot: &Slot<K, V>) {
        let number = slot.number().0 + 1;
        let mut top = self.returned.0.load(Relaxed);
        loop {
            slot.next_free.store(top, Relaxed);
            // Release pairs with the Acquire in `reserve`.
            let success = unless_planted("relaxed_give_back", Release);
            match self.returned.0.compare_exchange_weak(top, number, success, Relaxed) {
                Ok(_) => return,
                // Another holder gave a slot back meanwhile, or a writer took them all.
                Err(now) => top = now,
            }
        }
    }

    /// The slots made so far, and of them the free ones. Only with the writers' lock, else the list may be taken apart.
    pub(crate) fn free_numbers(&self, free: &FreeSlots) -> Vec<SlotNumber> {
        let mut numbers = Vec::new();
        // Acquire pairs with the Release in `give_back`.
        for top in [free.top, self.returned.0.load(Acquire)] {
            let mut next = top;
            while next != 0 {
                let number = SlotNumber(next - 1);
                numbers.push(number);
                assert!(numbers.len() <= free.made_count as usize, "the free list holds a slot twice");
                next = self.slot(number).next_free.load(Relaxed);
            }
        }
        numbers
    }
}

struct GiveBack<'s, K, V> {
    slots: &'s Slots<K, V>,
    slot: &'s Slot<K, V>,
}

impl<K, V> Drop for GiveBack<'_, K, V> {
    fn drop(&mut self) {
        self.slots.give_back(self.slot);
    }
}

impl<K, V> Drop for Slots<K, V> {
    fn drop(&mut self) {
        for segment in &self.segments {
            let segment = segment.load(Relaxed);
            if !segment.is_null() {
                // SAFETY: `make_segment_of` got it from a Box and stored it once; `&mut self` proves that nobody
                // follows it any more. Each slot drops the entry that still stands in it.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}

impl FreeSlots {
    pub(crate) fn new(capacity_max: u32) -> FreeSlots {
        FreeSlots { top: 0, made_count: 0, capacity_max }
    }

    pub(crate) fn made_count(&self) -> u32 {
        self.made_count
    }
}
