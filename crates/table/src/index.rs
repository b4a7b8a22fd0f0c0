//! Turns a hash into the numbers of the slots that may hold its key.

use crate::slot::SlotNumber;
use crate::sync::{AtomicU64, unless_planted};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Places of the first index of a table.
pub(crate) const PLACE_COUNT_MIN: usize = if cfg!(loom) { 4 } else { 64 };

/// What stands at a place of the index: nothing yet, nothing any more, or 32 bits of a hash and a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Place {
    /// Never used: a walk ends here.
    pub(crate) const EMPTY: Place = Place(0);
    /// Its entry was retired: a walk goes on.
    pub(crate) const TOMBSTONE: Place = Place(1 << 32);

    pub(crate) fn new(hash: u64, number: SlotNumber) -> Place {
        Place(tag(hash) | u64::from(number.0 + 1))
    }

    /// The slot, if there is one.
    #[inline]
    pub(crate) fn number(self) -> Option<SlotNumber> {
        (self.0 as u32).checked_sub(1).map(SlotNumber)
    }

    /// The slot, if its key may have this hash.
    #[inline]
    pub(crate) fn number_for(self, hash: u64) -> Option<SlotNumber> {
        if self.0 & TAG == tag(hash) { self.number() } else { None }
    }
}

const TAG: u64 = !0 << 32;

/// The low half of a hash says where to start, so the high half is what is left to compare.
#[inline]
fn tag(hash: u64) -> u64 {
    hash & TAG
}

/// Open addressing, one step at a time. At least half of the places are EMPTY, so that walks are short.
///
/// Its memory stays an index until the table is dropped. One that has been replaced may be filled anew later: whoever
/// still walks it reads true places, only perhaps not those he came for, and [`crate::Table`] tells him so.
pub(crate) struct Index {
    places: Box<[AtomicU64]>,
}

/// Which place of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At(usize);

impl Index {
    /// All places empty; `place_count` is a power of two.
    pub(crate) fn new(place_count: usize) -> Index {
        assert!(place_count.is_power_of_two(), "a walk wraps by a mask");
        Index { places: (0..place_count).map(|_| AtomicU64::new(Place::EMPTY.0)).collect() }
    }

    pub(crate) fn place_count(&self) -> usize {
        self.places.len()
    }

    /// The places where a key of this hash may stand, up to the first empty one and that included.
    ///
    /// No more than all of them: an index that is filled anew under a walk could else lead it around for ever.
    #[inline]
    pub(crate) fn walk(&self, hash: u64) -> impl Iterator<Item = (At, Place)> {
        let mask = self.places.len() - 1;
        let start = hash as usize & mask;
        let mut is_over = false;
        (0..self.places.len()).map_while(move |step| {
            if is_over {
                return None;
            }
            let at = At((start + step) & mask);
            let place = self.read(at);
            is_over = place == Place::EMPTY;
            Some((at, place))
        })
    }

    /// Acquire pairs with the Release in `write`.
    #[inline]
    pub(crate) fn read(&self, At(at): At) -> Place {
        Place(self.places[at].load(Acquire))
    }

    /// What stands there now. Relaxed suffices after a reference was taken, since that was an Acquire: an entry whose
    /// count was seen alive in a later life of its slot left this place before.
    #[inline]
    pub(crate) fn read_again(&self, At(at): At) -> Place {
        Place(self.places[at].load(Relaxed))
    }

    /// Only with the writers' lock.
    pub(crate) fn write(&self, At(at): At, place: Place) {
        // Release pairs with the Acquire in `read`.
        self.places[at].store(place.0, unless_planted("relaxed_place", Release));
    }

    /// Puts a slot at the first empty place of its walk. Only with the writers' lock.
    pub(crate) fn append(&self, hash: u64, number: SlotNumber) {
        let (at, _) = self.walk(hash).find(|&(_, place)| place == Place::EMPTY).expect("half of the places are empty");
        self.write(at, Place::new(hash, number));
    }

    /// Makes each place empty. Only with the writers' lock.
    pub(crate) fn clear(&self) {
        for at in 0..self.places.len() {
            self.write(At(at), Place::EMPTY);
        }
    }

    /// All places, in no order that means anything.
    pub(crate) fn places(&self) -> impl Iterator<Item = (At, Place)> {
        (0..self.places.len()).map(|at| (At(at), self.read(At(at))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_walk_passes_tombstones_and_stops_behind_the_first_empty_place() {
        let index = Index::new(8);
        let hash = 0xabcd_0000_0000_0006;
        for number in 0..3 {
            index.append(hash, SlotNumber(number));
        }
        let (second, _) = index.walk(hash).nth(1).unwrap();
        index.write(second, Place::TOMBSTONE);
        let met: Vec<Place> = index.walk(hash).map(|(_, place)| place).collect();
        let first = Place::new(hash, SlotNumber(0));
        assert_eq!(met, [first, Place::TOMBSTONE, Place::new(hash, SlotNumber(2)), Place::EMPTY]);
        assert_eq!(first.number_for(hash), Some(SlotNumber(0)));
        assert_eq!(first.number_for(!hash), None);
    }

    #[test]
    fn neither_empty_nor_tombstone_is_a_slot_for_any_hash() {
        for hash in [0, 1 << 32, !0] {
            assert_eq!(Place::EMPTY.number_for(hash), None);
            assert_eq!(Place::TOMBSTONE.number_for(hash), None);
        }
    }

    #[test]
    fn a_walk_through_a_full_index_ends() {
        let index = Index::new(4);
        for (at, _) in index.places() {
            index.write(at, Place::TOMBSTONE);
        }
        assert_eq!(index.walk(3).count(), 4);
    }
}
