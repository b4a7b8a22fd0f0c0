//! A worker's private cache of references, whose look-ups write no shared memory.

use crate::reference::CachedRef;
use crate::slot::{Slot, SlotNumber};
use crate::slots::CAPACITY_MAX;
use crate::sync::fault_injected;
use crate::table::Table;
use core::borrow::Borrow;
use core::hash::Hash;
use core::mem;

/// A cache of references to entries of a table, for one thread.
///
/// A hit is one private look-up and one load of the entry's generation; it writes no shared memory, so it costs the
/// same with any number of threads. Cached references are counted: they keep invalidated entries alive until a look-up
/// of the key or the next [`sweep`](LocalCache::sweep) releases them.
///
/// Call `sweep` in each iteration of the event loop and before sleeping. If the values of invalidated entries must be
/// dropped soon, wake the threads that sleep.
pub struct LocalCache<'t, K, V> {
    table: &'t Table<K, V>,
    /// Open addressing with linear probing, at most half full; a power of two.
    buckets: Box<[CachedSlot]>,
    count: usize,
    capacity_max: usize,
    /// Where the search for the next reference to evict starts.
    evict_index: usize,
    /// The table's version at the last sweep.
    version: u64,
}

/// An empty bucket, or the number of a slot to whose entry the cache has a reference, with some bits of its hash.
///
/// Four bytes, so that sixteen share a cache line: with many entries, cache misses dominate the cost of a look-up. The
/// generation is not stored, since the reference keeps the slot: it can only change from valid to invalidated.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CachedSlot(u32);

/// The bits that are `SlotNumber + 1`.
const NUMBER: u32 = (CAPACITY_MAX as u32 + 1).next_power_of_two() - 1;

impl CachedSlot {
    const EMPTY: CachedSlot = CachedSlot(0);

    fn new(hash: u64, number: SlotNumber) -> CachedSlot {
        CachedSlot(tag(hash) | (number.0 + 1))
    }

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

/// Bits of the high half of a hash; the low half selects the first bucket.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 & !NUMBER
}

enum Probe<'t, K, V> {
    /// The entry, valid or not, and its bucket.
    Hit(usize, &'t Slot<K, V>),
    /// The empty bucket for the key.
    Vacant(usize),
}

impl<'t, K, V> LocalCache<'t, K, V> {
    /// An empty cache of at most `capacity_max` references, at least 1; beyond that it evicts.
    ///
    /// Allocates 8 to 16 bytes per reference, once.
    pub fn new(table: &'t Table<K, V>, capacity_max: usize) -> LocalCache<'t, K, V> {
        let capacity_max = capacity_max.max(1);
        let bucket_count = (2 * capacity_max).next_power_of_two();
        LocalCache {
            table,
            buckets: vec![CachedSlot::EMPTY; bucket_count].into(),
            count: 0,
            capacity_max,
            evict_index: 0,
            version: table.version(),
        }
    }

    /// The number of cached references.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no reference is cached.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Releases the references to invalidated entries, and returns how many. Costs one load if no entry of the table
    /// was invalidated since the last sweep.
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
        for at in 0..self.buckets.len() {
            // `release` may move another reference to this bucket: check it again.
            while let Some(number) = self.buckets[at].number()
                && !self.table.slot(number).generation().is_valid()
            {
                self.release(at, number);
            }
        }
        before - self.count
    }

    /// Releases all references.
    pub fn clear(&mut self) {
        for at in 0..self.buckets.len() {
            while let Some(number) = self.buckets[at].number() {
                self.release(at, number);
            }
        }
    }

    /// Releases the next reference in the order of hashes, which clients cannot predict.
    fn evict(&mut self) {
        let mask = self.buckets.len() - 1;
        // The cache is full, so this ends.
        loop {
            if let Some(number) = self.buckets[self.evict_index].number() {
                return self.release(self.evict_index, number);
            }
            self.evict_index = (self.evict_index + 1) & mask;
        }
    }

    /// Releases the reference in this bucket, and moves later ones back so that each probe still reaches its entry.
    fn release(&mut self, at: usize, number: SlotNumber) {
        let mask = self.buckets.len() - 1;
        let slot = self.table.slot(number);
        // SAFETY: the bucket owned this reference, and is emptied here.
        let released = unsafe { self.table.ref_from_counted(slot) };
        self.buckets[at] = CachedSlot::EMPTY;
        self.count -= 1;
        let mut vacant = at;
        let mut next = (at + 1) & mask;
        while let Some(number) = self.buckets[next].number() {
            // SAFETY: the bucket owns a reference to the entry.
            let hash = unsafe { self.table.slot(number).entry() }.hash;
            let steps_from_start = next.wrapping_sub(hash as usize) & mask;
            let steps_from_vacant = next.wrapping_sub(vacant) & mask;
            if steps_from_vacant <= steps_from_start {
                self.buckets[vacant] = mem::replace(&mut self.buckets[next], CachedSlot::EMPTY);
                vacant = next;
            }
            next = (next + 1) & mask;
        }
        // Last, while the cache is consistent: it may drop the value.
        drop(released);
    }
}

impl<'t, K: Hash + Eq, V> LocalCache<'t, K, V> {
    /// The valid entry with this key, from the cache or by [`Table::get`]; `None` if the table has none.
    ///
    /// Clone the [`Ref`](crate::Ref) to keep the entry longer than the borrow: one atomic addition.
    #[inline(always)]
    pub fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<CachedRef<'_, 't, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.table.hash(key);
        let slot = match self.find(hash, key) {
            // Acquire, in `generation`, pairs with the Release in `Slot::invalidate`: a thread that sees the entry
            // invalidated sees the index without it.
            Probe::Hit(_, slot) if slot.generation().is_valid() || fault_injected("no_cache_check") => slot,
            Probe::Hit(at, invalidated) => {
                self.release(at, invalidated.number());
                self.fill(hash, key)?
            }
            Probe::Vacant(_) => self.fill(hash, key)?,
        };
        // SAFETY: a bucket owns a reference to the entry, and keeps it while `self` is borrowed.
        Some(unsafe { self.table.cached_ref(slot) })
    }

    #[inline]
    fn find<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Probe<'t, K, V>
    where
        K: Borrow<Q>,
    {
        let mask = self.buckets.len() - 1;
        let mut at = hash as usize & mask;
        // Half of the buckets are empty, so this ends.
        loop {
            let bucket = self.buckets[at];
            if bucket == CachedSlot::EMPTY {
                return Probe::Vacant(at);
            }
            if let Some(number) = bucket.number_for(hash) {
                let slot = self.table.slot(number);
                // SAFETY: the bucket owns a reference to the entry.
                if unsafe { slot.entry() }.key.borrow() == key {
                    return Probe::Hit(at, slot);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// Caches a reference to an entry that is not cached.
    #[cold]
    fn fill<Q: Eq + ?Sized>(&mut self, hash: u64, key: &Q) -> Option<&'t Slot<K, V>>
    where
        K: Borrow<Q>,
    {
        let entry = self.table.get_hashed(hash, key)?;
        if self.count == self.capacity_max {
            self.evict();
        }
        let (Probe::Vacant(at) | Probe::Hit(at, _)) = self.find(hash, key);
        let slot = entry.into_slot();
        self.buckets[at] = CachedSlot::new(hash, slot.number());
        self.count += 1;
        Some(slot)
    }
}

impl<K, V> Drop for LocalCache<'_, K, V> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A key with the same hash as every other.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Collision(u32);

    impl Hash for Collision {
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
    fn dropped_cache_releases_all_references() {
        let table = table_of(0..8u32);
        let mut cache = LocalCache::new(&table, 8);
        for key in 0..8 {
            assert!(cache.get(&key).is_some());
            table.invalidate(&key);
        }
        assert_eq!(table.check(), 8);
        drop(cache);
        assert_eq!(table.check(), 0);
    }

    #[test]
    fn full_cache_evicts_one_reference_per_look_up() {
        let table = table_of(0..40u32);
        let mut cache = LocalCache::new(&table, 5);
        for round in 0..3 {
            for key in 0..40 {
                assert_eq!(cache.get(&key).map(|entry| **entry), Some(key), "round {round}");
                assert!(cache.len() <= 5);
            }
        }
        for key in 0..40 {
            table.invalidate(&key);
        }
        assert_eq!(table.check(), 5, "evicted references are released");
        drop(cache);
        assert_eq!(table.check(), 0);
    }

    #[test]
    fn colliding_keys_are_found_after_each_release() {
        let table = table_of((0..8).map(Collision));
        let mut cache = LocalCache::new(&table, 8);
        for released in 0..8 {
            for key in 0..8 {
                assert_eq!(cache.get(&Collision(key)).map(|entry| **entry), Some(Collision(key)));
            }
            let Probe::Hit(at, slot) = cache.find(table.hash(&Collision(released)), &Collision(released)) else {
                unreachable!("it is cached")
            };
            cache.release(at, slot.number());
            for key in (0..8).filter(|&key| key != released) {
                let found = cache.find(table.hash(&Collision(key)), &Collision(key));
                assert!(matches!(found, Probe::Hit(..)), "{key} after the release of {released}");
            }
        }
    }

    #[test]
    fn every_cached_reference_is_reached_by_its_probe() {
        let table = table_of(0..60u64);
        let mut cache = LocalCache::new(&table, 32);
        for step in 0..if cfg!(miri) { 100 } else { 2_000u64 } {
            cache.get(&(step * step % 61));
            let numbers: Vec<SlotNumber> = cache.buckets.iter().filter_map(|bucket| bucket.number()).collect();
            assert_eq!(numbers.len(), cache.count);
            for number in numbers {
                // SAFETY: the cache has a reference to the entry.
                let entry = unsafe { table.slot(number).entry() };
                let found = cache.find(entry.hash, &entry.key);
                assert!(matches!(found, Probe::Hit(_, slot) if slot.number() == number), "step {step}");
            }
        }
    }
}
