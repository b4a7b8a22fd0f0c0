//! Model checking: each race in every interleaving, with every stale read that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p sanderling-table --release --test loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use sanderling_table::{LocalCache, Ref, Table};
// Not loom's: the ledger must not order what it observes.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Values in one run, each created at most once.
const VALUE_COUNT: usize = 8;

/// The number of drops of each value.
#[derive(Default)]
struct Ledger([AtomicU32; VALUE_COUNT]);

impl Ledger {
    fn dropped(&self, number: u32) -> u32 {
        self.0[number as usize].load(SeqCst)
    }
}

struct Value {
    number: u32,
    ledger: std::sync::Arc<Ledger>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.ledger.0[self.number as usize].fetch_add(1, SeqCst);
    }
}

struct Race {
    table: Table<u32, Value>,
    ledger: std::sync::Arc<Ledger>,
}

impl Race {
    fn value(&self, number: u32) -> Value {
        Value { number, ledger: self.ledger.clone() }
    }

    fn insert(&self, key: u32, number: u32) -> bool {
        self.table.insert(key, self.value(number)).is_ok()
    }

    /// The number of the value with this key, read while there is a reference.
    fn look_up(&self, key: u32) -> Option<u32> {
        let entry = self.table.get(&key)?;
        assert_eq!(*entry.key(), key, "wrong entry");
        assert_eq!(self.ledger.dropped(entry.number), 0, "dropped value");
        Some(entry.number)
    }

    fn dropped(&self, number: u32) -> bool {
        self.ledger.dropped(number) == 1
    }

    /// Checks the table after all threads have ended and dropped their references.
    fn check_at_rest(&self) {
        assert_eq!(self.table.check(), 0, "an invalidated value was not dropped");
    }
}

/// Runs `race` in all interleavings.
fn check(capacity_max: usize, race: impl Fn(Arc<Race>) + Sync + Send + Copy + 'static) {
    check_within(None, capacity_max, race);
}

/// Runs `race` in all interleavings with at most this many preemptions.
fn check_within(
    preemptions_max: Option<usize>,
    capacity_max: usize,
    race: impl Fn(Arc<Race>) + Sync + Send + Copy + 'static,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(preemptions_max);
    model.check(move || {
        let ledger = std::sync::Arc::<Ledger>::default();
        let shared = Arc::new(Race { table: Table::new(capacity_max), ledger: ledger.clone() });
        race(shared.clone());
        shared.check_at_rest();
        drop(shared);
        assert!(ledger.0.iter().all(|dropped| dropped.load(SeqCst) <= 1), "a value was dropped twice");
    });
}

fn spawn<R: 'static>(race: &Arc<Race>, run: impl FnOnce(&Race) -> R + 'static) -> thread::JoinHandle<R> {
    let race = race.clone();
    thread::spawn(move || run(&race))
}

/// Drops a reference in another thread. The table outlives it in [`check`].
fn spawn_release(race: &Arc<Race>, entry: Ref<'_, u32, Value>) -> thread::JoinHandle<()> {
    // SAFETY: only the lifetime changes; the thread's Arc, which it drops last, keeps the table alive.
    let entry: Ref<'static, u32, Value> = unsafe { std::mem::transmute(entry) };
    spawn(race, move |_| drop(entry))
}

#[test]
fn look_up_and_invalidation() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        assert!(race.table.invalidate(&1).is_some());
        assert_eq!(race.look_up(1), None, "an invalidated entry was found");
        assert!(matches!(reader.join().unwrap(), Some(1) | None));
        assert!(race.dropped(1));
    });
}

#[test]
fn look_up_and_invalidation_and_slot_reuse_by_another_key() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        race.table.invalidate(&1);
        // Full while the reader has a reference to the entry in the only slot.
        let reused = race.insert(2, 2);
        assert!(matches!(reader.join().unwrap(), Some(1) | None));
        assert!(reused || race.insert(2, 3), "the slot is free after the reader has ended");
        assert!(race.look_up(2).is_some());
    });
}

#[test]
fn look_up_and_invalidation_and_slot_reuse_by_the_same_key() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        race.table.invalidate(&1);
        race.insert(1, 2);
        assert!(matches!(reader.join().unwrap(), Some(1 | 2) | None));
    });
}

#[test]
fn replaced_key_is_always_found_despite_slot_reuse() {
    check(2, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        assert!(race.insert(1, 2));
        race.insert(2, 3);
        assert!(matches!(reader.join().unwrap(), Some(1 | 2)), "a key that is always in the table was missed");
        assert_eq!(race.look_up(1), Some(2));
    });
}

#[test]
fn bucket_that_returns_to_the_same_slot() {
    // Two replacements have too many interleavings to run all.
    check_within(Some(3), 2, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        // To the other slot and, unless the reader has a reference to the first, back: then the reader gets another
        // entry than it looked up, with the same bucket and key. The reader must see all of that entry.
        assert!(race.insert(1, 2));
        race.insert(1, 3);
        assert!(matches!(reader.join().unwrap(), Some(1..=3)));
    });
}

#[test]
fn look_up_and_first_insert() {
    check(1, |race| {
        let reader = spawn(&race, |race| race.look_up(1));
        assert!(race.insert(1, 1));
        assert!(matches!(reader.join().unwrap(), Some(1) | None));
    });
}

#[test]
fn look_up_and_index_growth() {
    check(4, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        let reader = spawn(&race, |race| (race.look_up(1), race.look_up(3)));
        assert!(race.insert(3, 3), "the third entry exceeds half of four buckets");
        let (old, new) = reader.join().unwrap();
        assert_eq!(old, Some(1), "an entry was missed while the index grew");
        assert!(matches!(new, Some(3) | None));
    });
}

#[test]
fn look_up_in_refilled_index_misses_nothing() {
    check(4, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        let reader = spawn(&race, |race| race.look_up(1));
        // Each insert finds half of the buckets used, by the first entry and a tombstone, and rebuilds the index: the
        // second time into the one that the reader may probe.
        for key in 2..4 {
            assert!(race.table.invalidate(&key).is_some());
            assert!(race.insert(key + 1, key + 1));
        }
        assert_eq!(reader.join().unwrap(), Some(1), "an entry was missed while the index was refilled");
    });
}

#[test]
fn replaced_key_is_not_missed_in_old_index() {
    check(4, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        let reader = spawn(&race, |race| race.look_up(1));
        // The old index still leads to the first slot, which has another key at the end.
        assert!(race.insert(3, 3) && race.insert(1, 4));
        race.insert(4, 5);
        assert!(matches!(reader.join().unwrap(), Some(1 | 4)), "a key that is always in the table was missed");
    });
}

#[test]
fn two_invalidations_of_one_key() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let other = spawn(&race, |race| race.table.invalidate(&1).is_some());
        let here = race.table.invalidate(&1).is_some();
        assert!(here ^ other.join().unwrap(), "exactly one invalidates it");
        assert!(race.dropped(1));
    });
}

#[test]
fn two_invalidations_of_one_reference() {
    check(2, |race| {
        assert!(race.insert(1, 1));
        let invalidate = |race: &Race| race.table.get(&1).is_some_and(|entry| race.table.invalidate_ref(&entry));
        let other = spawn(&race, move |race| invalidate(race));
        let here = invalidate(&race);
        assert!(here ^ other.join().unwrap(), "exactly one invalidates it");
        assert!(race.dropped(1));
    });
}

#[test]
fn two_replacements_of_one_key() {
    check(3, |race| {
        assert!(race.insert(1, 1));
        let other = spawn(&race, |race| race.insert(1, 2));
        assert!(race.insert(1, 3));
        assert!(other.join().unwrap());
        let last = race.look_up(1).unwrap();
        assert!(race.dropped(1) && race.dropped(5 - last) && !race.dropped(last));
    });
}

#[test]
fn invalidation_and_cached_look_up_and_sweep() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let mut cache = LocalCache::new(&race.table, 1);
        cache.get(&1);
        let invalidator = spawn(&race, |race| race.table.invalidate(&1).is_some());
        cache.sweep();
        let cached = cache.get(&1).map(|entry| entry.number);
        assert!(matches!(cached, Some(1) | None));
        assert!(invalidator.join().unwrap());
        cache.sweep();
        assert!(cache.is_empty() && race.dropped(1), "the value is dropped one sweep after its invalidation");
    });
}

#[test]
fn invalidation_during_first_cached_look_up_is_swept() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let mut cache = LocalCache::new(&race.table, 1);
        let invalidator = spawn(&race, |race| race.table.invalidate(&1).is_some());
        cache.get(&1);
        assert!(invalidator.join().unwrap());
        cache.sweep();
        assert!(cache.is_empty() && race.dropped(1), "an invalidated entry stays cached");
    });
}

#[test]
fn invalidation_during_first_cached_look_up_in_old_index_is_swept() {
    check(4, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        // This reference keeps the entry alive, so that the look-up gets it although it is invalidated.
        let entry = race.table.get(&1);
        let mut cache = LocalCache::new(&race.table, 1);
        let invalidator = spawn(&race, |race| race.insert(3, 3) && race.table.invalidate(&1).is_some());
        cache.get(&1);
        assert!(invalidator.join().unwrap());
        cache.sweep();
        assert!(cache.is_empty(), "an invalidated entry stays cached");
        drop(entry);
        assert!(race.dropped(1));
    });
}

#[test]
fn replacement_and_cached_look_up() {
    check(2, |race| {
        assert!(race.insert(1, 1));
        let mut cache = LocalCache::new(&race.table, 1);
        cache.get(&1);
        let writer = spawn(&race, |race| race.insert(1, 2));
        let cached = cache.get(&1).map(|entry| entry.number);
        assert!(matches!(cached, Some(1 | 2)), "a key that is always in the table was missed");
        assert!(writer.join().unwrap());
        assert_eq!(cache.get(&1).map(|entry| entry.number), Some(2));
        assert!(race.dropped(1));
    });
}

#[test]
fn last_release_by_reader_and_insert_into_its_slot() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let entry = race.table.get(&1).unwrap();
        race.table.invalidate(&1);
        let reader = spawn_release(&race, entry);
        if race.insert(2, 2) {
            assert!(race.dropped(1), "the slot was reused before its value was dropped");
            assert_eq!(race.look_up(2), Some(2));
        }
        reader.join().unwrap();
        assert!(race.dropped(1));
    });
}

#[test]
fn two_last_releases_at_once() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let first = race.table.get(&1).unwrap();
        let second = first.clone();
        race.table.invalidate(&1);
        let reader = spawn_release(&race, first);
        assert_eq!(second.number, 1);
        drop(second);
        reader.join().unwrap();
        assert!(race.dropped(1));
    });
}

#[test]
fn two_slots_freed_at_once_are_both_reused() {
    check(2, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        let other = spawn(&race, |race| drop(race.table.invalidate(&1)));
        drop(race.table.invalidate(&2));
        other.join().unwrap();
        assert!(race.insert(3, 3) && race.insert(4, 4) && !race.insert(5, 5));
    });
}

#[test]
fn look_up_between_last_decrement_and_death() {
    // Three threads have too many interleavings to run all.
    check_within(Some(3), 1, |race| {
        assert!(race.insert(1, 1));
        let first = spawn(&race, |race| race.look_up(1));
        let second = spawn(&race, |race| race.look_up(1));
        drop(race.table.invalidate(&1));
        assert!(matches!(first.join().unwrap(), Some(1) | None));
        assert!(matches!(second.join().unwrap(), Some(1) | None));
        assert!(race.dropped(1));
    });
}

/// The faults that the crate can inject, and the race that fails with each.
const FAULTS: [(&str, &str); 14] = [
    // The second check of the entry is missing.
    ("no_recheck", "replaced_key_is_always_found_despite_slot_reuse"),
    // A cached reference is used without checking its generation.
    ("no_cache_check", "replacement_and_cached_look_up"),
    // An increment succeeds although the entry is dead.
    ("unchecked_increment", "look_up_and_invalidation_and_slot_reuse_by_another_key"),
    // The slot is freed before its entry is dropped.
    ("free_before_drop", "last_release_by_reader_and_insert_into_its_slot"),
    // A miss is believed although the index was refilled meanwhile.
    ("no_rebuild_check", "look_up_in_refilled_index_misses_nothing"),
    // A miss is believed although the index was replaced meanwhile.
    ("no_index_check", "replaced_key_is_not_missed_in_old_index"),
    ("relaxed_start", "bucket_that_returns_to_the_same_slot"),
    ("relaxed_increment", "bucket_that_returns_to_the_same_slot"),
    ("relaxed_decrement", "two_last_releases_at_once"),
    ("relaxed_death", "look_up_and_invalidation"),
    ("relaxed_free", "last_release_by_reader_and_insert_into_its_slot"),
    ("relaxed_index", "look_up_and_index_growth"),
    ("relaxed_bucket", "look_up_in_refilled_index_misses_nothing"),
    ("relaxed_version", "invalidation_and_cached_look_up_and_sweep"),
];

#[test]
fn each_injected_fault_is_caught() {
    let this = std::env::current_exe().expect("the path of the test");
    for (fault, race) in FAULTS {
        let mut command = std::process::Command::new(&this);
        command.args(["--exact", race]).env("TABLE_FAULT", fault).env("RUST_BACKTRACE", "0");
        let out = command.output().expect("the test runs itself");
        let out = String::from_utf8_lossy(&out.stdout);
        let reason = out.lines().skip_while(|line| !line.contains("panicked at")).nth(1).unwrap_or_default();
        println!("{fault}: {reason}");
        assert!(out.contains(&format!("{race} ... FAILED")), "{race} passes with {fault}");
    }
}
