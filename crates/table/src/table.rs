//! Turns a key into a reference to the one entry that every thread shares.

use crate::count::Taking;
use crate::hash::Secret;
use crate::index::{At, Index, PLACE_COUNT_MIN, Place};
use crate::reference::{CachedRef, Ref};
use crate::slot::{Entry, Slot, SlotNumber};
use crate::slots::{CAPACITY_MAX, FreeSlots, Slots};
use crate::sync::{AtomicPtr, AtomicU64, Line, Mutex, MutexGuard, planted, unless_planted};
use core::borrow::Borrow;
use core::fmt;
use core::hash::{BuildHasher, Hash};
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::collections::HashSet;
use std::sync::{Arc, PoisonError};

/// Lends values to threads: look-ups take no lock, never wait for a writer, and never meet a value that was dropped.
///
/// The crate's page has the drawing and the proof. All methods but [`get`](Table::get) take the writers' lock: none
/// of them may be called by a closure that was given to another, nor by a key's `==`.
///
/// Threads share it if they may share its keys and values:
///
/// ```compile_fail
/// fn share<T: Sync>(_: T) {}
/// share(sanderling_table::Table::<u32, std::rc::Rc<u32>>::new(1));
/// ```
pub struct Table<K, V> {
    read: Line<Read>,
    slots: Slots<K, V>,
    writer: Line<Mutex<Writer>>,
}

/// What look-ups read and only rare writes change.
struct Read {
    /// The index that is in use; `Writer::indexes` owns it.
    index: AtomicPtr<Index>,
    /// How many rebuilds of the index have begun: a look-up that found nothing asks whether the index was rebuilt
    /// under its feet.
    rebuild_count: AtomicU64,
    /// How many entries have been retired: tells a worker whether there may be stale leases.
    version: AtomicU64,
    secret: Secret,
    taking: Taking,
    capacity_max: usize,
}

/// What only the one with the lock may touch.
struct Writer {
    free: FreeSlots,
    /// Entries that the index leads to.
    entry_count: usize,
    /// Places of the index in use that are not empty: entries and tombstones. At most half of all.
    used_count: usize,
    /// Every index that ever was: none is freed before the table, since a look-up may still walk it. At most two of a
    /// size, which take turns, so that all of them together are at most four times the largest.
    indexes: Vec<Arc<Index>>,
}

/// Why [`Table::insert`] did not insert.
#[derive(Debug)]
pub enum InsertError<'t, K, V> {
    /// The key is lent already. The existing is the entry to use; the loser's value comes back.
    Occupied {
        /// What stands in the table under this key.
        existing: Ref<'t, K, V>,
        /// What was to be inserted.
        value: V,
    },
    /// See [`Full`].
    Full(Full<K, V>),
}

/// All slots are taken, by entries that are lent or by retired ones that somebody still holds.
///
/// The remedy is to retire some entries and, if their holders take long to let go, to serve this one without the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full<K, V> {
    /// The key that was to be inserted.
    pub key: K,
    /// The value that was to be inserted.
    pub value: V,
}

/// Where the slots of a table are, at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// Entries that a look-up finds.
    pub entry_count: usize,
    /// Entries that no look-up finds any more but somebody still holds: their values are not dropped yet.
    pub invalidated_count: usize,
    /// Slots that wait for an entry, of those that were made.
    pub free_count: usize,
}

/// How a look-up in one index ended.
enum Outcome<'t, K, V> {
    Hit(Ref<'t, K, V>),
    Miss,
    /// The entry was retired between finding and holding it.
    Moved,
}

impl<K, V> Table<K, V> {
    /// An empty table for at most `capacity_max` values, those included that are retired but still held.
    ///
    /// # Panics
    /// If `capacity_max` is not in 1 to [`CAPACITY_MAX`].
    pub fn new(capacity_max: usize) -> Table<K, V> {
        Table::with_taking(capacity_max, Taking::default())
    }

    /// As [`new`](Table::new), with a chosen way for look-ups to take their references.
    ///
    /// # Panics
    /// If `capacity_max` is not in 1 to [`CAPACITY_MAX`].
    pub fn with_taking(capacity_max: usize, taking: Taking) -> Table<K, V> {
        assert!((1..=CAPACITY_MAX).contains(&capacity_max), "a table has room for 1 to {CAPACITY_MAX} values");
        let index = Arc::new(Index::new(PLACE_COUNT_MIN));
        Table {
            read: Line(Read {
                index: AtomicPtr::new(Arc::as_ptr(&index).cast_mut()),
                rebuild_count: AtomicU64::new(0),
                version: AtomicU64::new(0),
                secret: Secret::random(),
                taking,
                capacity_max,
            }),
            slots: Slots::new(),
            writer: Line(Mutex::new(Writer {
                free: FreeSlots::new(capacity_max as u32),
                entry_count: 0,
                used_count: 0,
                indexes: vec![index],
            })),
        }
    }

    /// How many values there may be.
    pub fn capacity_max(&self) -> usize {
        self.read.0.capacity_max
    }

    /// How many entries are lent.
    pub fn len(&self) -> usize {
        self.lock().entry_count
    }

    /// Whether no entry is lent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the slots are. Holders may let go while it counts: then an entry counts as retired for a moment longer.
    pub fn stats(&self) -> TableStats {
        let writer = self.lock();
        let made_count = writer.free.made_count() as usize;
        let free_count = self.slots.free_numbers(&writer.free).len();
        TableStats {
            entry_count: writer.entry_count,
            invalidated_count: made_count - writer.entry_count - free_count,
            free_count,
        }
    }

    /// Shows each lent entry to `visit`, with the writers' lock held: look-ups go on, writers wait.
    pub fn for_each(&self, mut visit: impl FnMut(&K, &V)) {
        let writer = self.lock();
        for (_, slot) in self.lent(&writer) {
            // SAFETY: the table's own reference holds a lent entry, and only a writer with the lock puts it.
            let entry = unsafe { slot.entry() };
            visit(&entry.key, &entry.value);
        }
    }

    /// Retires at most `count_max` of the entries that `choose` picks, and says how many. `choose` runs with the
    /// writers' lock held; the values are dropped after it, by their last holders.
    pub fn invalidate_where(&self, count_max: usize, mut choose: impl FnMut(&K, &V) -> bool) -> usize {
        // Made before the lock is taken, so dropped after it is given back: dropping a value may take long.
        let mut retired = Vec::new();
        let mut writer = self.lock();
        for (at, slot) in self.lent(&writer) {
            if retired.len() == count_max {
                break;
            }
            // SAFETY: the table's own reference holds a lent entry, and only a writer with the lock puts it.
            let entry = unsafe { slot.entry() };
            if choose(&entry.key, &entry.value) {
                writer.entry_count -= 1;
                retired.push(self.end_lending(&mut writer, at, slot, Place::TOMBSTONE));
            }
        }
        drop(writer);
        retired.len()
    }

    /// Retires exactly the entry that the caller holds, unless that happened already. Use it where the caller found
    /// his entry wanting: another thread may have replaced it meanwhile by a good one of the same key.
    pub fn invalidate_ref(&self, held: &Ref<'_, K, V>) -> bool {
        let mut writer = self.lock();
        // SAFETY: `held` is a reference to the entry.
        let hash = unsafe { held.slot().entry() }.hash;
        let found = self
            .index()
            .walk(hash)
            .find(|&(_, place)| place.number().is_some_and(|number| ptr::eq(self.slots.slot(number), held.slot())));
        let retired = found.map(|(at, _)| {
            writer.entry_count -= 1;
            self.end_lending(&mut writer, at, held.slot(), Place::TOMBSTONE)
        });
        // The caller still holds the entry, so the table's reference, which is put here, is never the last.
        retired.is_some()
    }

    /// Asserts everything that is true of a table while nobody has its lock; look-ups, puts and leases may go on.
    ///
    /// # Panics
    /// If anything is not as it must be: that is a bug in this crate, or memory was overwritten.
    pub fn check(&self) {
        let writer = self.lock();
        let index = self.index();
        let mut taken: HashSet<u32> = HashSet::new();
        for (at, slot) in self.lent(&writer) {
            assert!(taken.insert(slot.number().0), "slot {} stands in the index twice", slot.number().0);
            assert!(!slot.is_dead(), "slot {} is lent and dead", slot.number().0);
            assert!(slot.generation().is_lent(), "slot {} stands in the index and is retired", slot.number().0);
            // SAFETY: the table's own reference holds a lent entry, and only a writer with the lock puts it.
            let hash = unsafe { slot.entry() }.hash;
            let found = index.walk(hash).any(|(met, place)| met == at && place.number_for(hash) == Some(slot.number()));
            assert!(found, "a walk for the entry in slot {} ends before its place", slot.number().0);
        }
        assert_eq!(taken.len(), writer.entry_count, "entries in the index, entries counted");
        let used_count = index.places().filter(|&(_, place)| place != Place::EMPTY).count();
        assert_eq!(used_count, writer.used_count, "places in use, places counted");
        assert!(2 * used_count <= index.place_count(), "{used_count} of {} places are in use", index.place_count());
        for number in self.slots.free_numbers(&writer.free) {
            assert!(taken.insert(number.0), "slot {} is free and lent, or free twice", number.0);
            assert!(self.slots.slot(number).is_dead(), "slot {} is free and alive", number.0);
            assert!(!self.slots.slot(number).generation().is_lent(), "slot {} is free and lent", number.0);
        }
        assert!(taken.len() <= writer.free.made_count() as usize, "more slots in use than made");
        assert!(writer.free.made_count() as usize <= self.capacity_max(), "more slots made than allowed");
        for place_count in writer.indexes.iter().map(|index| index.place_count()) {
            let same = writer.indexes.iter().filter(|index| index.place_count() == place_count).count();
            assert!(same <= 2, "{same} indexes of {place_count} places");
        }
    }

    /// How many entries were retired so far. Acquire pairs with the Release in `end_lending`: the generations of all
    /// these have moved on.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.read.0.version.load(Acquire)
    }

    #[inline]
    pub(crate) fn slot(&self, number: SlotNumber) -> &Slot<K, V> {
        self.slots.slot(number)
    }

    /// Takes over a reference that was counted before.
    ///
    /// # Safety
    /// As for [`Ref::adopt`].
    pub(crate) unsafe fn adopt<'t>(&'t self, slot: &'t Slot<K, V>) -> Ref<'t, K, V> {
        // SAFETY: the caller's promise.
        unsafe { Ref::adopt(&self.slots, slot) }
    }

    /// Lends a reference that was counted before.
    ///
    /// # Safety
    /// As for [`CachedRef::new`].
    #[inline]
    pub(crate) unsafe fn lend<'l, 't>(&'t self, slot: &'t Slot<K, V>) -> CachedRef<'l, 't, K, V> {
        // SAFETY: the caller's promise.
        unsafe { CachedRef::new(&self.slots, slot) }
    }
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// The entry of this key with a reference of its own, or `None` if none is lent. Takes no lock: one atomic
    /// instruction takes the reference, and one puts it when it is dropped.
    #[inline]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.get_hashed(self.hash(key), key)
    }

    /// Publishes an entry, unless its key is lent already: then the value comes back with the existing.
    pub fn insert(&self, key: K, value: V) -> Result<Ref<'_, K, V>, InsertError<'_, K, V>> {
        let hash = self.hash(&key);
        let mut writer = self.lock();
        if let Some((_, slot)) = self.find(&writer, hash, &key) {
            // The table's own reference keeps the entry alive while this thread has the lock.
            slot.take_another();
            // SAFETY: the line above counted the reference.
            let existing = unsafe { Ref::adopt(&self.slots, slot) };
            return Err(InsertError::Occupied { existing, value });
        }
        let held = self.fill(&mut writer, Entry { hash, key, value }).map_err(InsertError::Full)?;
        self.append(&mut writer, hash, &held);
        Ok(held)
    }

    /// Publishes an entry and, in the same step, retires the one that its key had: there is no moment at which a
    /// look-up finds neither. Both values exist for a while, so a table without a free slot is [`Full`] for it too.
    pub fn replace(&self, key: K, value: V) -> Result<Ref<'_, K, V>, Full<K, V>> {
        let hash = self.hash(&key);
        let mut writer = self.lock();
        let found = self.find(&writer, hash, &key);
        let held = self.fill(&mut writer, Entry { hash, key, value })?;
        let old = match found {
            Some((at, slot)) => Some(self.end_lending(&mut writer, at, slot, Place::new(hash, held.slot().number()))),
            None => {
                self.append(&mut writer, hash, &held);
                None
            }
        };
        // The lock first: dropping the old value may take long.
        drop(writer);
        drop(old);
        Ok(held)
    }

    /// Stops lending the entry of this key: no look-up that begins after this returns finds it, every lease of it is
    /// stale, and its last holder drops the value. It waits for no reader. Returns the entry, if it was there: this
    /// caller, of all who retire it, is the one who did.
    pub fn invalidate<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        let hash = self.hash(key);
        let mut writer = self.lock();
        let (at, slot) = self.find(&writer, hash, key)?;
        writer.entry_count -= 1;
        Some(self.end_lending(&mut writer, at, slot, Place::TOMBSTONE))
    }

    #[inline]
    pub(crate) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        self.read.0.secret.hash_one(key)
    }

    #[inline]
    pub(crate) fn get_hashed<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Option<Ref<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        loop {
            // Acquire pairs with the Release in `rebuild`: the index read next is at least as new as this count.
            let rebuild_count = self.read.0.rebuild_count.load(Acquire);
            let index = self.index();
            match self.look_up(index, hash, key) {
                Outcome::Hit(held) => return Some(held),
                Outcome::Miss if self.is_unchanged(index, rebuild_count) => return None,
                // A writer rebuilt the index meanwhile, and this walk may have missed what stood elsewhere by then; or
                // it retired the entry that was found, and the key may have another one by now.
                Outcome::Miss | Outcome::Moved => {}
            }
        }
    }

    /// Whether a walk through `index` that found nothing is to be believed.
    #[inline]
    fn is_unchanged(&self, index: &Index, rebuild_count: u64) -> bool {
        // Still in use: else entries may have been added or replaced elsewhere. Whoever met a slot in its next life
        // (Acquire) sees the index that the writer used for that.
        let is_in_use = ptr::eq(self.index(), index) || planted("no_index_check");
        // Not filled anew: whoever read a place that a rebuild wrote (Acquire) sees the count that was raised before.
        let is_as_it_was = self.read.0.rebuild_count.load(Relaxed) == rebuild_count || planted("no_rebuild_check");
        is_in_use && is_as_it_was
    }

    #[inline]
    fn look_up<Q: Eq + ?Sized>(&self, index: &Index, hash: u64, key: &Q) -> Outcome<'_, K, V>
    where
        K: Borrow<Q>,
    {
        for (at, place) in index.walk(hash) {
            let Some(number) = place.number_for(hash) else { continue };
            let slot = self.slots.slot(number);
            let Some(held) = Ref::take(&self.slots, slot, self.read.0.taking) else { return Outcome::Moved };
            // The reference keeps an entry, but perhaps not the one that this place meant a moment ago. The place says
            // so if it was retired in this index; the generation says so if the index itself was replaced before.
            let is_same = index.read_again(at) == place && !held.is_invalidated();
            if !is_same && !planted("no_recheck") {
                return Outcome::Moved;
            }
            if held.key().borrow() == key {
                return Outcome::Hit(held);
            }
            // Another key with the same 32 bits: its reference is put here, and the walk goes on.
        }
        Outcome::Miss
    }

    /// The entry of this key. Asking for the writers' part proves that the caller has the lock.
    fn find<'t, Q: Eq + ?Sized>(&'t self, _: &Writer, hash: u64, key: &Q) -> Option<(At, &'t Slot<K, V>)>
    where
        K: Borrow<Q>,
    {
        self.index().walk(hash).find_map(|(at, place)| {
            let slot = self.slots.slot(place.number_for(hash)?);
            // SAFETY: the index leads to lent entries, which the table's own reference holds, and only a writer with
            // the lock puts that.
            let entry = unsafe { slot.entry() };
            (entry.key.borrow() == key).then_some((at, slot))
        })
    }
}

/// What writers do with the lock.
impl<K, V> Table<K, V> {
    /// The writers' part. A panic under the lock comes from a key's `==` or a caller's closure, which run only while
    /// everything behind the lock is consistent, so the poison is no news.
    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn index(&self) -> &Index {
        // Acquire pairs with the Release in `rebuild`.
        let index = self.read.0.index.load(Acquire);
        // SAFETY: it points into an Arc that stands in `Writer::indexes` until the table is dropped.
        unsafe { &*index }
    }

    /// The lent entries and their places. Asking for the writers' part proves that the caller has the lock.
    fn lent<'t>(&'t self, _: &Writer) -> impl Iterator<Item = (At, &'t Slot<K, V>)> + use<'t, K, V> {
        self.index().places().filter_map(|(at, place)| Some((at, self.slots.slot(place.number()?))))
    }

    /// Puts an entry into a free slot: held by the table and by the caller, known to nobody yet.
    fn fill(&self, writer: &mut Writer, entry: Entry<K, V>) -> Result<Ref<'_, K, V>, Full<K, V>> {
        let Some(slot) = self.slots.reserve(&mut writer.free) else {
            return Err(Full { key: entry.key, value: entry.value });
        };
        // SAFETY: `reserve` took the slot out of the free list for this call. `fill` counts two references: one is the
        // table's as long as the entry is lent, the other becomes the caller's.
        let held = unsafe {
            slot.fill(entry);
            Ref::adopt(&self.slots, slot)
        };
        Ok(held)
    }

    /// Makes an entry known under a key that is not lent.
    fn append(&self, writer: &mut Writer, hash: u64, held: &Ref<'_, K, V>) {
        if 2 * (writer.used_count + 1) > self.index().place_count() {
            self.rebuild(writer);
        }
        self.index().append(hash, held.slot().number());
        writer.used_count += 1;
        writer.entry_count += 1;
    }

    /// Fills another index with the lent entries, without the tombstones, and puts it in the place of this one.
    fn rebuild(&self, writer: &mut Writer) {
        let old = self.index();
        // Entries fill at most a quarter of it, so that as many can be added before the next rebuild.
        let crowded = 4 * writer.entry_count > old.place_count();
        let place_count = if crowded { 2 * old.place_count() } else { old.place_count() };
        // Release pairs with the Acquire in `get_hashed`; it stands before the first place is written, since a
        // look-up may still be walking the index that is about to be filled anew.
        self.read.0.rebuild_count.fetch_add(1, Release);
        let spare = writer.indexes.iter().find(|index| index.place_count() == place_count && !ptr::eq(&***index, old));
        let index = match spare {
            Some(spare) => {
                spare.clear();
                Arc::clone(spare)
            }
            None => {
                let index = Arc::new(Index::new(place_count));
                writer.indexes.push(Arc::clone(&index));
                index
            }
        };
        for (_, slot) in self.lent(writer) {
            // SAFETY: the table's own reference holds a lent entry, and only a writer with the lock puts it.
            let hash = unsafe { slot.entry() }.hash;
            index.append(hash, slot.number());
        }
        writer.used_count = writer.entry_count;
        // Release pairs with the Acquire in `index`.
        self.read.0.index.store(Arc::as_ptr(&index).cast_mut(), unless_planted("relaxed_index", Release));
    }

    /// Ends the lending of the entry at this place, where `instead` stands from now on, and gives the caller the table's
    /// own reference. The order matters: who sees the entry stale must not find it again.
    fn end_lending<'t>(&'t self, _: &mut Writer, at: At, slot: &'t Slot<K, V>, instead: Place) -> Ref<'t, K, V> {
        self.index().write(at, instead);
        slot.invalidate();
        // Release pairs with the Acquire in `version`.
        self.read.0.version.fetch_add(1, unless_planted("relaxed_version", Release));
        // SAFETY: the entry was lent until now, and what held it for the table goes to the caller: nothing leads
        // another writer here a second time.
        unsafe { Ref::adopt(&self.slots, slot) }
    }
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Table")
            .field("capacity_max", &self.capacity_max())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
