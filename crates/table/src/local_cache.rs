//! Turns references that a worker took once into look-ups that touch nothing shared but a generation.

use crate::reference::CachedRef;
use crate::slot::{Slot, SlotNumber};
use crate::slots::CAPACITY_MAX;
use crate::sync::planted;
use crate::table::Table;
use core::borrow::Borrow;
use core::hash::Hash;
use core::mem;

/// The entries that one worker has leased from a table: its private map from key to slot.
///
/// A hit is one private look-up and one load of the slot's generation; no instruction of it writes shared memory, so it
/// costs the same with any number of workers. Each lease is a real reference. What is retired meanwhile is given back
/// by the first look-up that meets it, or by the next [`sweep`](LocalCache::sweep).
///
/// **Its duty**: call `sweep` once a turn and before sleeping. A worker that sleeps keeps what it has leased, so whoever
/// needs retired values dropped now (no descriptors left) must wake the workers.
pub struct LocalCache<'t, K, V> {
    table: &'t Table<K, V>,
    /// Open addressing, one step at a time, at most half full; a power of two.
    places: Box<[Place]>,
    count: usize,
    capacity_max: usize,
    /// Where the next lease to give back is looked for when there are too many.
    hand: usize,
    /// The table's version at the last sweep.
    version: u64,
}

/// What stands at a place: nothing, or a lease, which is a slot with a reference of its own to the entry there. Beside the
/// slot's number there is room for some bits of the hash.
///
/// Four octets, so that sixteen places share a cache line: where many workers have many leases, the time goes for lines
/// that are not in the cache, and the entry's own are needed anyway. The generation is not kept, since the reference
/// holds the slot: it can go from lent to retired, and no further.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Place(u32);

/// The bits of a place that are `SlotNumber + 1`.
const NUMBER: u32 = (CAPACITY_MAX as u32 + 1).next_power_of_two() - 1;

impl Place {
    const EMPTY: Place = Place(0);

    fn new(hash: u64, number: SlotNumber) -> Place {
        Place(tag(hash) | (number.0 + 1))
    }

    /// The slot, if there is one.
    #[inline]
    fn number(self) -> Option<SlotNumber> {
        (self.0 & NUMBER).checked_sub(1).map(SlotNumber)
    }

    /// The slot, if its key may have this hash.
    #[inline]
    fn number_for(self, hash: u64) -> Option<SlotNumber> {
        if self.0 & !NUMBER == tag(hash) { self.number() } else { None }
    }
}

/// The low half of a hash says where to start, so bits of the high half are left to compare.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 & !NUMBER
}

/// How a look among the leases ended.
enum Found<'t, K, V> {
    /// With the lease of the key, at this place.
    Lease(usize, &'t Slot<K, V>),
    /// At the empty place where it belongs.
    Gap(usize),
}

impl<'t, K, V> LocalCache<'t, K, V> {
    /// No leases yet, at most `capacity_max` (at least 1) later: then one gives way to the next.
    ///
    /// It allocates here once, 8 to 16 bytes for each lease.
    pub fn new(table: &'t Table<K, V>, capacity_max: usize) -> LocalCache<'t, K, V> {
        let capacity_max = capacity_max.max(1);
        let place_count = (2 * capacity_max).next_power_of_two();
        LocalCache {
            table,
            places: vec![Place::EMPTY; place_count].into(),
            count: 0,
            capacity_max,
            hand: 0,
            version: table.version(),
        }
    }

    /// The table from which these are leased.
    pub fn table(&self) -> &'t Table<K, V> {
        self.table
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Gives every stale lease back, and says how many. Costs one load if nothing was retired since the last time.
    #[inline]
    pub fn sweep(&mut self) -> usize {
        let version = self.table.version();
        if version == self.version {
            return 0;
        }
        self.version = version;
        self.sweep_all()
    }

    #[cold]
    fn sweep_all(&mut self) -> usize {
        let before = self.count;
        for at in 0..self.places.len() {
            // What is given back makes another lease move up, mostly to this place: look at it again.
            while let Some(number) = self.places[at].number()
                && !self.table.slot(number).generation().is_lent()
            {
                self.give_back(at, number);
            }
        }
        before - self.count
    }

    /// Gives every lease back: for a worker that has nothing to do for long.
    pub fn clear(&mut self) {
        for at in 0..self.places.len() {
            while let Some(number) = self.places[at].number() {
                self.give_back(at, number);
            }
        }
    }

    /// Gives back the next lease in the order of hashes, which is no order that anybody outside can foresee.
    fn give_back_any(&mut self) {
        let mask = self.places.len() - 1;
        // There is a lease, so this ends.
        loop {
            if let Some(number) = self.places[self.hand].number() {
                return self.give_back(self.hand, number);
            }
            self.hand = (self.hand + 1) & mask;
        }
    }

    /// Takes the lease of this slot out of its place, and closes the gap: a lease behind it moves up if its walk, which
    /// begins at its hash, passes the gap and would end there.
    fn give_back(&mut self, at: usize, number: SlotNumber) {
        let mask = self.places.len() - 1;
        let slot = self.table.slot(number);
        // SAFETY: the place owned this reference, and ends here.
        let given_back = unsafe { self.table.adopt(slot) };
        self.places[at] = Place::EMPTY;
        self.count -= 1;
        let mut gap = at;
        let mut next = (at + 1) & mask;
        while let Some(number) = self.places[next].number() {
            // SAFETY: the place owns a reference to the entry.
            let hash = unsafe { self.table.slot(number).entry() }.hash;
            let steps_from_start = next.wrapping_sub(hash as usize) & mask;
            let steps_from_gap = next.wrapping_sub(gap) & mask;
            if steps_from_gap <= steps_from_start {
                self.places[gap] = mem::replace(&mut self.places[next], Place::EMPTY);
                gap = next;
            }
            next = (next + 1) & mask;
        }
        // Last, when all is in order again: it may drop the value.
        drop(given_back);
    }
}

impl<'t, K: Hash + Eq, V> LocalCache<'t, K, V> {
    /// The entry of this key, leased: at once if it was leased already and is not retired, else by
    /// [`Table::get`]. `None` if the table lends no such entry.
    ///
    /// The borrow ends with the turn. What is needed longer (a slow response) clones the [`Ref`](crate::Ref): one atomic
    /// addition.
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<CachedRef<'_, 't, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.table.hash(key);
        let slot = match self.find(hash, key) {
            // Acquire, in `generation`, pairs with the Release of the retirement: who finds the lease stale finds the
            // index without its entry.
            Found::Lease(_, slot) if slot.generation().is_lent() || planted("no_lease_check") => slot,
            Found::Lease(at, stale) => {
                self.give_back(at, stale.number());
                self.take(hash, key)?
            }
            Found::Gap(_) => self.take(hash, key)?,
        };
        // SAFETY: a place owns a reference to the entry, and keeps it as long as this borrow keeps others away.
        Some(unsafe { self.table.lend(slot) })
    }

    #[inline]
    fn find<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Found<'t, K, V>
    where
        K: Borrow<Q>,
    {
        let mask = self.places.len() - 1;
        let mut at = hash as usize & mask;
        // Half of the places are empty, so this ends.
        loop {
            let place = self.places[at];
            if place == Place::EMPTY {
                return Found::Gap(at);
            }
            if let Some(number) = place.number_for(hash) {
                let slot = self.table.slot(number);
                // SAFETY: the place owns a reference to the entry.
                if unsafe { slot.entry() }.key.borrow() == key {
                    return Found::Lease(at, slot);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// LocalCache an entry that is not leased.
    #[cold]
    fn take<Q: Eq + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<&'t Slot<K, V>>
    where
        K: Borrow<Q>,
    {
        let held = self.table.get_hashed(hash, key)?;
        if self.count == self.capacity_max {
            self.give_back_any();
        }
        let (Found::Gap(at) | Found::Lease(at, _)) = self.find(hash, key);
        let slot = held.into_slot();
        self.places[at] = Place::new(hash, slot.number());
        self.count += 1;
        Some(slot)
    }
}

/// Gives back what is still leased.
impl<K, V> Drop for LocalCache<'_, K, V> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A key whose hash is that of every other.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Clash(u32);

    impl Hash for Clash {
        fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
    }

    fn table_of<K: Hash + Eq + Copy>(keys: impl IntoIterator<Item = K>) -> Table<K, K> {
        let table = Table::new(64);
        for key in keys {
            assert!(table.insert(key, key).is_ok());
        }
        table
    }

    #[test]
    fn a_second_look_finds_the_lease_and_takes_no_other() {
        let table = table_of([7u32]);
        let mut leases = LocalCache::new(&table, 4);
        assert!(leases.is_empty());
        for _ in 0..3 {
            assert_eq!(leases.get(&7).map(|held| **held), Some(7));
            assert_eq!(leases.len(), 1);
        }
        assert!(leases.get(&8).is_none());
        assert_eq!(leases.len(), 1);
    }

    #[test]
    fn a_retired_entry_is_not_leased_again_and_a_sweep_gives_it_back() {
        let table = table_of([1u32, 2]);
        let mut leases = LocalCache::new(&table, 4);
        leases.get(&1);
        leases.get(&2);
        assert_eq!(leases.sweep(), 0);
        assert!(table.invalidate(&1).is_some());
        assert_eq!(table.stats().invalidated_count, 1, "the lease still holds it");
        assert_eq!(leases.sweep(), 1);
        assert_eq!(table.stats().invalidated_count, 0);
        assert!(leases.get(&1).is_none());
        assert_eq!(leases.get(&2).map(|held| **held), Some(2));
    }

    #[test]
    fn a_look_up_that_meets_a_stale_lease_gives_it_back_without_a_sweep() {
        let table = table_of([1u32]);
        let mut leases = LocalCache::new(&table, 4);
        leases.get(&1);
        assert!(table.replace(1, 10).is_ok());
        assert_eq!(leases.get(&1).map(|held| **held), Some(10));
        assert_eq!(table.stats().invalidated_count, 0);
        assert_eq!(leases.sweep(), 0);
    }

    #[test]
    fn a_clone_outlives_the_lease_and_the_retirement() {
        let table = table_of([1u32]);
        let mut leases = LocalCache::new(&table, 4);
        let held = leases.get(&1).unwrap().clone();
        table.invalidate(&1);
        leases.sweep();
        assert!(leases.is_empty());
        assert_eq!((*held, held.is_invalidated()), (1, true));
        drop(held);
        assert_eq!(table.stats().invalidated_count, 0);
    }

    #[test]
    fn leases_that_end_give_everything_back() {
        let table = table_of(0..8u32);
        let mut leases = LocalCache::new(&table, 8);
        for key in 0..8 {
            assert!(leases.get(&key).is_some());
            table.invalidate(&key);
        }
        assert_eq!(table.stats().invalidated_count, 8);
        drop(leases);
        assert_eq!(table.stats().invalidated_count, 0);
    }

    #[test]
    fn too_many_leases_give_way_one_by_one() {
        let table = table_of(0..40u32);
        let mut leases = LocalCache::new(&table, 5);
        for round in 0..3 {
            for key in 0..40 {
                assert_eq!(leases.get(&key).map(|held| **held), Some(key), "round {round}");
                assert!(leases.len() <= 5);
            }
        }
        for key in 0..40 {
            table.invalidate(&key);
        }
        assert_eq!(table.stats().invalidated_count, 5, "no reference is kept but those of the leases");
        leases.clear();
        assert_eq!(table.stats().invalidated_count, 0);
        table.check();
    }

    #[test]
    fn keys_of_one_hash_stay_apart_while_gaps_close() {
        let table = table_of((0..8).map(Clash));
        let mut leases = LocalCache::new(&table, 8);
        for given_back in 0..8 {
            for key in 0..8 {
                assert_eq!(leases.get(&Clash(key)).map(|held| **held), Some(Clash(key)));
            }
            let Found::Lease(at, slot) = leases.find(table.hash(&Clash(given_back)), &Clash(given_back)) else {
                unreachable!("it was leased")
            };
            leases.give_back(at, slot.number());
            for key in (0..8).filter(|&key| key != given_back) {
                let found = leases.find(table.hash(&Clash(key)), &Clash(key));
                assert!(matches!(found, Found::Lease(..)), "{key} behind {given_back}");
            }
        }
    }

    #[test]
    fn every_lease_stays_within_reach_of_its_hash() {
        let table = table_of(0..60u64);
        let mut leases = LocalCache::new(&table, 32);
        for step in 0..if cfg!(miri) { 100 } else { 2_000u64 } {
            leases.get(&(step * step % 61));
            let numbers: Vec<SlotNumber> = leases.places.iter().filter_map(|place| place.number()).collect();
            assert_eq!(numbers.len(), leases.count);
            for number in numbers {
                // SAFETY: the lease is a reference to the entry.
                let entry = unsafe { table.slot(number).entry() };
                let found = leases.find(entry.hash, &entry.key);
                assert!(matches!(found, Found::Lease(_, slot) if slot.number() == number), "step {step}");
            }
        }
    }
}
