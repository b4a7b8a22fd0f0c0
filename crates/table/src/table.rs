//! The table that all threads share: look-ups without a lock, writers with one.

use crate::hash::HashSeed;
use crate::index::{BUCKET_COUNT_MIN, Bucket, BucketIndex, Index};
use crate::reference::{CachedRef, Ref};
use crate::slot::{Entry, Slot, SlotNumber};
use crate::slots::{CAPACITY_MAX, FreeList, Slots};
use crate::sync::{AtomicPtr, AtomicU64, CacheLine, Mutex, MutexGuard, fault_injected, unless_injected};
use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

/// A map from keys to values that threads share by reference. Look-ups take no lock and never wait for a writer.
///
/// All methods but [`get`](Table::get) take the writers' lock: a closure passed to one of them, or the `==` of a key,
/// must not call another.
///
/// Threads may share it if they may share its keys and values:
///
/// ```compile_fail
/// fn share<T: Sync>(_: T) {}
/// share(sanderling_table::Table::<u32, std::rc::Rc<u32>>::new(1));
/// ```
pub struct Table<K, V> {
    read: CacheLine<Read>,
    slots: Slots<K, V>,
    writer: CacheLine<Mutex<Writer>>,
}

/// Read by look-ups, and written only by writers.
struct Read {
    /// The current index; `Writer::indexes` owns it.
    index: AtomicPtr<Index>,
    /// The number of index rebuilds that have begun: a look-up that finds nothing checks whether one happened
    /// meanwhile.
    rebuild_count: AtomicU64,
    /// The number of invalidated entries: a worker checks whether its local cache may have invalidated ones.
    version: AtomicU64,
    seed: HashSeed,
    capacity_max: usize,
}

/// Protected by the writers' lock.
struct Writer {
    free: FreeList,
    entry_count: usize,
    /// Buckets of the current index that are not empty: entries and tombstones. At most half of all.
    used_count: usize,
    /// Every index so far: none is freed before the table, since a look-up may still probe it. At most two of each
    /// size, which alternate, so that all together are at most four times the largest.
    indexes: Vec<Arc<Index>>,
}

/// All slots are in use, by valid entries or by invalidated ones that still have references. The caller should
/// invalidate some entries; if their references last, it should do without the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full<K, V> {
    /// The key that was not inserted.
    pub key: K,
    /// The value that was not inserted.
    pub value: V,
}

enum Lookup<'t, K, V> {
    Hit(Ref<'t, K, V>),
    Miss,
    /// The entry was invalidated before the reference was taken: look up again.
    Retry,
}

impl<K, V> Table<K, V> {
    /// An empty table for at most `capacity_max` values, including invalidated ones that still have references.
    ///
    /// # Panics
    /// Panics if `capacity_max` is not in 1 to [`CAPACITY_MAX`].
    pub fn new(capacity_max: usize) -> Table<K, V> {
        assert!((1..=CAPACITY_MAX).contains(&capacity_max), "the capacity of a table is 1 to {CAPACITY_MAX}");
        let index = Arc::new(Index::new(BUCKET_COUNT_MIN));
        Table {
            read: CacheLine(Read {
                index: AtomicPtr::new(Arc::as_ptr(&index).cast_mut()),
                rebuild_count: AtomicU64::new(0),
                version: AtomicU64::new(0),
                seed: HashSeed::random(),
                capacity_max,
            }),
            slots: Slots::new(),
            writer: CacheLine(Mutex::new(Writer {
                free: FreeList::new(capacity_max as u32),
                entry_count: 0,
                used_count: 0,
                indexes: vec![index],
            })),
        }
    }

    /// The capacity.
    pub fn capacity_max(&self) -> usize {
        self.read.0.capacity_max
    }

    /// The number of valid entries.
    pub fn len(&self) -> usize {
        self.lock().entry_count
    }

    /// Whether there is no valid entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `visit` for each valid entry, with the writers' lock held.
    pub fn for_each(&self, mut visit: impl FnMut(&K, &V)) {
        let writer = self.lock();
        for (_, slot) in self.entries(&writer) {
            // SAFETY: the table has a reference to each valid entry, which only a writer with the lock releases.
            let entry = unsafe { slot.entry() };
            visit(&entry.key, &entry.value);
        }
    }

    /// Invalidates at most `count_max` of the entries for which `choose` returns `true`, and returns how many. `choose`
    /// is called with the writers' lock held; values are dropped after its release, by the last holders.
    pub fn invalidate_where(&self, count_max: usize, mut choose: impl FnMut(&K, &V) -> bool) -> usize {
        // Declared before the lock is taken, so dropped after its release: dropping a value may take long.
        let mut invalidated = Vec::new();
        let mut writer = self.lock();
        for (at, slot) in self.entries(&writer) {
            if invalidated.len() == count_max {
                break;
            }
            // SAFETY: the table has a reference to each valid entry, which only a writer with the lock releases.
            let entry = unsafe { slot.entry() };
            if choose(&entry.key, &entry.value) {
                invalidated.push(self.remove(&mut writer, at, slot));
            }
        }
        drop(writer);
        invalidated.len()
    }

    /// Invalidates exactly this entry, and returns whether it was valid. For an entry that proved wrong: by its key, a
    /// correct one that replaced it meanwhile could be invalidated.
    pub fn invalidate_ref(&self, entry: &Ref<'_, K, V>) -> bool {
        let mut writer = self.lock();
        // SAFETY: `entry` is a reference to the entry.
        let hash = unsafe { entry.slot().entry() }.hash;
        let is_same = |number| ptr::eq(self.slots.slot(number), entry.slot());
        let found = self.index().probe(hash).find(|&(_, bucket)| bucket.number().is_some_and(is_same));
        let invalidated = found.map(|(at, _)| self.remove(&mut writer, at, entry.slot()));
        // The table's reference, which is dropped here with the lock held, is not the last: the caller has one.
        invalidated.is_some()
    }

    /// Asserts the invariants of the table, for tests. Look-ups and local caches may continue in the meantime.
    ///
    /// Returns the number of invalidated entries that still have references. An entry whose last reference is dropped
    /// meanwhile may still count.
    ///
    /// # Panics
    /// Panics if an invariant is violated, which is a bug in this crate or a memory error.
    pub fn check(&self) -> usize {
        let writer = self.lock();
        let index = self.index();
        let mut seen: HashSet<u32> = HashSet::new();
        for (at, slot) in self.entries(&writer) {
            assert!(seen.insert(slot.number().0), "slot {} is in the index twice", slot.number().0);
            assert!(!slot.is_dead(), "slot {} is in the index and dead", slot.number().0);
            assert!(slot.generation().is_valid(), "slot {} is in the index and invalidated", slot.number().0);
            // SAFETY: the table has a reference to each valid entry, which only a writer with the lock releases.
            let hash = unsafe { slot.entry() }.hash;
            let is_found =
                index.probe(hash).any(|(met, bucket)| met == at && bucket.number_for(hash) == Some(slot.number()));
            assert!(is_found, "the probe for slot {} does not reach it", slot.number().0);
        }
        assert_eq!(seen.len(), writer.entry_count, "entries in the index, entries counted");
        let used_count = index.buckets().filter(|&(_, bucket)| bucket != Bucket::EMPTY).count();
        assert_eq!(used_count, writer.used_count, "buckets in use, buckets counted");
        assert!(2 * used_count <= index.bucket_count(), "{used_count} of {} buckets are in use", index.bucket_count());
        for number in self.slots.free_numbers(&writer.free) {
            assert!(seen.insert(number.0), "slot {} is free and in the index, or free twice", number.0);
            assert!(self.slots.slot(number).is_dead(), "slot {} is free and alive", number.0);
            assert!(!self.slots.slot(number).generation().is_valid(), "slot {} is free and valid", number.0);
        }
        assert!(seen.len() <= writer.free.created_count() as usize, "more slots are in use than made");
        assert!(writer.free.created_count() as usize <= self.capacity_max(), "more slots are made than allowed");
        for bucket_count in writer.indexes.iter().map(|index| index.bucket_count()) {
            let same = writer.indexes.iter().filter(|index| index.bucket_count() == bucket_count).count();
            assert!(same <= 2, "{same} indexes have {bucket_count} buckets");
        }
        writer.free.created_count() as usize - seen.len()
    }

    /// The number of invalidated entries. Acquire pairs with the Release in `replace_bucket`: the generations of all
    /// these have changed.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.read.0.version.load(Acquire)
    }

    #[inline]
    pub(crate) fn slot(&self, number: SlotNumber) -> &Slot<K, V> {
        self.slots.slot(number)
    }

    /// [`Ref::from_counted`]
    ///
    /// # Safety
    /// As for that.
    pub(crate) unsafe fn ref_from_counted<'t>(&'t self, slot: &'t Slot<K, V>) -> Ref<'t, K, V> {
        // SAFETY: the caller's promise.
        unsafe { Ref::from_counted(&self.slots, slot) }
    }

    /// [`CachedRef::new`]
    ///
    /// # Safety
    /// As for that.
    #[inline]
    pub(crate) unsafe fn cached_ref<'c, 't>(&'t self, slot: &'t Slot<K, V>) -> CachedRef<'c, 't, K, V> {
        // SAFETY: the caller's promise.
        unsafe { CachedRef::new(&self.slots, slot) }
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// A reference to the valid entry with this key. Takes no lock: one atomic instruction counts the reference, and
    /// another one when it is dropped.
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.get_hashed(self.hash(key), key)
    }

    /// Inserts an entry and, in the same step, invalidates the one with its key, if there is one: every look-up finds
    /// one of both. Since both values exist for a while, this always needs a free slot.
    pub fn insert(&self, key: K, value: V) -> Result<Ref<'_, K, V>, Full<K, V>> {
        let hash = self.hash(&key);
        let mut writer = self.lock();
        let found = self.find(&writer, hash, &key);
        let new = self.publish(&mut writer, Entry { hash, key, value })?;
        let old = match found {
            Some((at, slot)) => {
                Some(self.replace_bucket(&mut writer, at, slot, Bucket::new(hash, new.slot().number())))
            }
            None => {
                self.add_to_index(&mut writer, hash, &new);
                None
            }
        };
        // The lock first: dropping the old value may take long.
        drop(writer);
        drop(old);
        Ok(new)
    }

    /// Invalidates the entry with this key, and returns it if there was one. Look-ups that begin after the return do
    /// not find it; the last holder drops the value.
    pub fn invalidate<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let mut writer = self.lock();
        let (at, slot) = self.find(&writer, hash, key)?;
        Some(self.remove(&mut writer, at, slot))
    }

    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.read.0.seed.hash_one(key)
    }

    #[inline]
    pub(crate) fn get_hashed<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        loop {
            // Acquire pairs with the Release in `rebuild`: the index loaded next is at least as new as this count.
            let rebuild_count = self.read.0.rebuild_count.load(Acquire);
            let index = self.index();
            match self.look_up(index, hash, key) {
                Lookup::Hit(entry) => return Some(entry),
                Lookup::Miss if self.is_unchanged(index, rebuild_count) => return None,
                // A writer rebuilt the index meanwhile, so that the probe may have missed the entry; or it invalidated
                // the entry that was found, and the key may have another one now.
                Lookup::Miss | Lookup::Retry => {}
            }
        }
    }

    /// Whether a probe of `index` that found nothing is conclusive.
    #[inline]
    fn is_unchanged(&self, index: &Index, rebuild_count: u64) -> bool {
        // Still current, else entries may have been inserted elsewhere. A look-up that met a later entry of a slot
        // (Acquire) sees the index that the writer used for it.
        let is_current = ptr::eq(self.index(), index) || fault_injected("no_index_check");
        // Not filled again: a look-up that read a bucket from a rebuild (Acquire) sees the count raised before it.
        let is_same_build =
            self.read.0.rebuild_count.load(Relaxed) == rebuild_count || fault_injected("no_rebuild_check");
        is_current && is_same_build
    }

    #[inline]
    fn look_up<Q: Eq + ?Sized>(&self, index: &Index, hash: u64, key: &Q) -> Lookup<'_, K, V>
    where
        K: Borrow<Q>,
    {
        for (at, bucket) in index.probe(hash) {
            let Some(number) = bucket.number_for(hash) else { continue };
            let slot = self.slots.slot(number);
            let Some(entry) = Ref::try_new(&self.slots, slot) else { return Lookup::Retry };
            // The reference may be to a later entry of the slot. The bucket shows it if the entry was invalidated in
            // this index; the generation, if the index was replaced before that.
            let is_same = index.reload(at) == bucket && !entry.is_invalidated();
            if !is_same && !fault_injected("no_recheck") {
                return Lookup::Retry;
            }
            if entry.key().borrow() == key {
                return Lookup::Hit(entry);
            }
            // Another key with the same 32 bits of hash: its reference is dropped here, and the probe continues.
        }
        Lookup::Miss
    }

    /// The valid entry with this key. The argument of type [`Writer`] proves that the caller has the lock.
    fn find<'t, Q: Eq + ?Sized>(&'t self, _: &Writer, hash: u64, key: &Q) -> Option<(BucketIndex, &'t Slot<K, V>)>
    where
        K: Borrow<Q>,
    {
        self.index().probe(hash).find_map(|(at, bucket)| {
            let slot = self.slots.slot(bucket.number_for(hash)?);
            // SAFETY: the table has a reference to each entry in the index, which only a writer with the lock releases.
            let entry = unsafe { slot.entry() };
            (entry.key.borrow() == key).then_some((at, slot))
        })
    }
}

/// For writers with the lock.
impl<K, V> Table<K, V> {
    /// Takes the writers' lock. Poison is ignored: a panic comes from the `==` of a key or the closure of a caller,
    /// which run only while all data is consistent.
    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn index(&self) -> &Index {
        // Acquire pairs with the Release in `rebuild`.
        let index = self.read.0.index.load(Acquire);
        // SAFETY: `Writer::indexes` owns it, by an Arc, until the table is dropped.
        unsafe { &*index }
    }

    /// The valid entries. The argument of type [`Writer`] proves that the caller has the lock.
    fn entries<'t>(&'t self, _: &Writer) -> impl Iterator<Item = (BucketIndex, &'t Slot<K, V>)> + use<'t, K, V> {
        self.index().buckets().filter_map(|(at, bucket)| Some((at, self.slots.slot(bucket.number()?))))
    }

    /// Stores an entry in a free slot, not yet in the index.
    fn publish(&self, writer: &mut Writer, entry: Entry<K, V>) -> Result<Ref<'_, K, V>, Full<K, V>> {
        let Some(slot) = self.slots.allocate(&mut writer.free) else {
            return Err(Full { key: entry.key, value: entry.value });
        };
        // SAFETY: `allocate` has just returned the slot. `publish` counts two references: the table's, and the one that
        // is returned.
        let new = unsafe {
            slot.publish(entry);
            Ref::from_counted(&self.slots, slot)
        };
        Ok(new)
    }

    /// Adds an entry whose key the index does not have.
    fn add_to_index(&self, writer: &mut Writer, hash: u64, new: &Ref<'_, K, V>) {
        if 2 * (writer.used_count + 1) > self.index().bucket_count() {
            self.rebuild(writer);
        }
        self.index().insert(hash, new.slot().number());
        writer.used_count += 1;
        writer.entry_count += 1;
    }

    /// Fills another index with the valid entries, without tombstones, and makes it the current one.
    fn rebuild(&self, writer: &mut Writer) {
        let old = self.index();
        // Entries fill at most a quarter of the new index, so that as many can be added before the next rebuild.
        let is_crowded = 4 * writer.entry_count > old.bucket_count();
        let bucket_count = if is_crowded { 2 * old.bucket_count() } else { old.bucket_count() };
        // Release pairs with the Acquire in `get_hashed`. Before the first bucket is stored, since a look-up may still
        // probe the index that is filled again.
        self.read.0.rebuild_count.fetch_add(1, Release);
        let spare =
            writer.indexes.iter().find(|index| index.bucket_count() == bucket_count && !ptr::eq(&***index, old));
        let index = match spare {
            Some(spare) => {
                spare.clear();
                Arc::clone(spare)
            }
            None => {
                let index = Arc::new(Index::new(bucket_count));
                writer.indexes.push(Arc::clone(&index));
                index
            }
        };
        for (_, slot) in self.entries(writer) {
            // SAFETY: the table has a reference to each valid entry, which only a writer with the lock releases.
            let hash = unsafe { slot.entry() }.hash;
            index.insert(hash, slot.number());
        }
        writer.used_count = writer.entry_count;
        // Release pairs with the Acquire in `index`.
        self.read.0.index.store(Arc::as_ptr(&index).cast_mut(), unless_injected("relaxed_index", Release));
    }

    /// Removes the entry in this bucket from the index and invalidates it. Returns the table's reference.
    fn remove<'t>(&'t self, writer: &mut Writer, at: BucketIndex, slot: &'t Slot<K, V>) -> Ref<'t, K, V> {
        writer.entry_count -= 1;
        self.replace_bucket(writer, at, slot, Bucket::TOMBSTONE)
    }

    /// Stores `bucket` in place of the entry's, and then invalidates the entry: a thread that sees it invalidated must
    /// not find it again. Returns the table's reference.
    fn replace_bucket<'t>(
        &'t self,
        _: &mut Writer,
        at: BucketIndex,
        slot: &'t Slot<K, V>,
        bucket: Bucket,
    ) -> Ref<'t, K, V> {
        self.index().store(at, bucket);
        slot.invalidate();
        // Release pairs with the Acquire in `version`.
        self.read.0.version.fetch_add(1, unless_injected("relaxed_version", Release));
        // SAFETY: the table's reference goes to the caller: the index leads no other writer to the slot.
        unsafe { Ref::from_counted(&self.slots, slot) }
    }
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Table")
            .field("capacity_max", &self.capacity_max())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
