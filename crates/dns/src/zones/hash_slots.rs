//! An open-addressing hash table from names to numbers. The user of the table stores the names.

use crate::zones::name_hash::NameHash;
use alloc::boxed::Box;
use alloc::vec;

/// The fewest bits of a slot index: a table starts with 64 slots.
const BITS_MIN: u32 = 6;

/// A table of 2^`bits` slots, at least a quarter of them empty. Nothing is ever removed.
#[derive(Clone, Debug)]
pub(crate) struct HashSlots {
    slots: Box<[Slot]>,
    bits: u32,
}

/// A slot: the tag of a hash in the upper half, a number in the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u64);

impl Slot {
    /// Numbers are below 2^32 - 1, so no used slot has this value.
    pub(crate) const EMPTY: Slot = Slot(u64::MAX);

    /// Whether the slot is used for a name with this tag: almost always the name with this hash.
    #[inline]
    pub(crate) fn matches(self, hash: NameHash) -> bool {
        self != Slot::EMPTY && self.has_tag_of(hash)
    }

    #[inline]
    fn has_tag_of(self, hash: NameHash) -> bool {
        (self.0 >> 32) as u32 == hash.tag()
    }

    #[inline]
    pub(crate) fn number(self) -> u32 {
        self.0 as u32
    }
}

impl HashSlots {
    /// An empty table with room for `count` names.
    pub(crate) fn for_count(count: usize) -> HashSlots {
        let bits = bits_for(count);
        HashSlots { slots: vec![Slot::EMPTY; 1 << bits].into_boxed_slice(), bits }
    }

    /// Whether `count` names leave a quarter of the slots empty.
    pub(crate) fn has_room_for(&self, count: usize) -> bool {
        bits_for(count) <= self.bits
    }

    /// Inserts the number of a name that is not in the table.
    pub(crate) fn insert(&mut self, hash: NameHash, number: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash.slot(self.bits);
        while self.slots[at] != Slot::EMPTY {
            at = (at + 1) & mask;
        }
        self.slots[at] = Slot(u64::from(hash.tag()) << 32 | u64::from(number));
    }

    /// Replaces the number of the name with this hash and the number `known`.
    pub(crate) fn replace(&mut self, hash: NameHash, known: u32, number: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash.slot(self.bits);
        while !(self.slots[at].has_tag_of(hash) && self.slots[at].number() == known) {
            at = (at + 1) & mask;
        }
        self.slots[at] = Slot(u64::from(hash.tag()) << 32 | u64::from(number));
    }

    /// The logarithm of the number of slots.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// The slot at which the search for `hash` starts.
    #[inline]
    pub(crate) fn first(&self, hash: NameHash) -> Slot {
        self.slots[hash.slot(self.bits)]
    }

    /// The number of the name with this hash for which `is_name` is true.
    #[inline(always)]
    pub(crate) fn find(&self, hash: NameHash, is_name: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.slots.len() - 1;
        let mut at = hash.slot(self.bits);
        // The search ends at an empty slot.
        loop {
            let slot = self.slots[at];
            if slot == Slot::EMPTY {
                return None;
            }
            if slot.has_tag_of(hash) && is_name(slot.number()) {
                return Some(slot.number());
            }
            at = (at + 1) & mask;
        }
    }

    /// The numbers of all names.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().filter(|slot| **slot != Slot::EMPTY).map(|slot| slot.number())
    }

    /// Bytes of the slots.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }
}

fn bits_for(count: usize) -> u32 {
    (count + count / 3 + 1).next_power_of_two().trailing_zeros().max(BITS_MIN)
}
