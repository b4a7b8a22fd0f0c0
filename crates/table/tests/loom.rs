//! Runs each race that the table can meet through every interleaving and every stale read that memory allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p sanderling-table --release --test loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use sanderling_table::{Full, InsertError, LocalCache, Ref, Table, Taking};
// Not loom's: the ledger only counts, and must not order what it watches.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The numbers of values in one run; each is made at most once.
const VALUE_COUNT: usize = 8;

/// How often each value was dropped.
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

/// A table whose values are numbered: the tens say which key they belong to.
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

    fn replace(&self, key: u32, number: u32) -> bool {
        self.table.replace(key, self.value(number)).is_ok()
    }

    /// The number of the value under `key`, read while it is held.
    fn look_up(&self, key: u32) -> Option<u32> {
        let held = self.table.get(&key)?;
        assert_eq!(*held.key(), key, "the wrong entry was lent");
        assert_eq!(self.ledger.dropped(held.number), 0, "a dropped value was lent");
        Some(held.number)
    }

    fn dropped(&self, number: u32) -> bool {
        self.ledger.dropped(number) == 1
    }

    /// What must be true when every thread has ended and gave everything back.
    fn check_at_rest(&self) {
        self.table.check();
        assert_eq!(self.table.stats().invalidated_count, 0, "a retired value was not dropped");
    }
}

/// Both ways of taking a reference, each through all interleavings of `race`.
fn check(capacity_max: usize, race: impl Fn(Arc<Race>) + Sync + Send + Copy + 'static) {
    check_within(None, capacity_max, race);
}

/// As [`check`], but only the interleavings in which threads are interrupted at most so often.
fn check_within(
    interruptions_max: Option<usize>,
    capacity_max: usize,
    race: impl Fn(Arc<Race>) + Sync + Send + Copy + 'static,
) {
    for taking in [Taking::Exchange, Taking::Add] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = model.preemption_bound.or(interruptions_max);
        model.check(move || {
            let ledger = std::sync::Arc::<Ledger>::default();
            let table = Table::with_taking(capacity_max, taking);
            let shared = Arc::new(Race { table, ledger: ledger.clone() });
            race(shared.clone());
            shared.check_at_rest();
            drop(shared);
            assert!(ledger.0.iter().all(|dropped| dropped.load(SeqCst) <= 1), "a value was dropped twice");
        });
    }
}

fn spawn<R: 'static>(race: &Arc<Race>, run: impl FnOnce(&Race) -> R + 'static) -> thread::JoinHandle<R> {
    let race = race.clone();
    thread::spawn(move || run(&race))
}

/// Lets a thread put a reference that another one took. The table outlives it in [`check`].
fn spawn_put(race: &Arc<Race>, held: Ref<'_, u32, Value>) -> thread::JoinHandle<()> {
    // SAFETY: only the lifetime changes; the Arc that the thread keeps and drops last keeps the table alive.
    let held: Ref<'static, u32, Value> = unsafe { std::mem::transmute(held) };
    spawn(race, move |_| drop(held))
}

#[test]
fn look_up_against_retire() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        assert!(race.table.invalidate(&1).is_some());
        assert_eq!(race.look_up(1), None, "retired and found again");
        assert!(matches!(reader.join().unwrap(), Some(1) | None));
        assert!(race.dropped(1));
    });
}

#[test]
fn look_up_against_retire_and_reuse_of_the_slot_for_another_key() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        race.table.invalidate(&1);
        // Full while the reader is the last holder of the only slot.
        let reused = race.insert(2, 2);
        assert!(matches!(reader.join().unwrap(), Some(1) | None));
        assert!(reused || race.insert(2, 3), "the slot is free once the reader has ended");
        assert!(race.look_up(2).is_some());
    });
}

#[test]
fn look_up_against_retire_and_reuse_of_the_slot_for_the_same_key() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        race.table.invalidate(&1);
        race.insert(1, 2);
        assert!(matches!(reader.join().unwrap(), Some(1 | 2) | None));
    });
}

#[test]
fn a_replaced_key_is_never_missing_also_when_its_old_slot_is_reused() {
    check(2, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        assert!(race.replace(1, 2));
        race.insert(2, 3);
        assert!(matches!(reader.join().unwrap(), Some(1 | 2)), "a key that is always lent was missed");
        assert_eq!(race.look_up(1), Some(2));
    });
}

#[test]
fn a_place_that_comes_to_mean_the_same_slot_again() {
    // Two replacements make too many interleavings for all of them.
    check_within(Some(3), 2, |race| {
        assert!(race.insert(1, 1));
        let reader = spawn(&race, |race| race.look_up(1));
        // To the other slot and, unless the reader holds the first, back: then neither the place nor the key tells
        // the reader that it holds another entry than the one it looked up. It must see that one whole.
        assert!(race.replace(1, 2));
        race.replace(1, 3);
        assert!(matches!(reader.join().unwrap(), Some(1..=3)));
    });
}

#[test]
fn first_insert_against_look_up() {
    check(1, |race| {
        let reader = spawn(&race, |race| race.look_up(1));
        assert!(race.insert(1, 1));
        assert!(matches!(reader.join().unwrap(), Some(1) | None));
    });
}

#[test]
fn growth_of_the_index_against_look_up() {
    check(4, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        let reader = spawn(&race, |race| (race.look_up(1), race.look_up(3)));
        assert!(race.insert(3, 3), "the third entry does not fit into half of four places");
        let (old, new) = reader.join().unwrap();
        assert_eq!(old, Some(1), "an entry was missed while the index grew");
        assert!(matches!(new, Some(3) | None));
    });
}

#[test]
fn a_look_up_in_an_index_that_is_filled_anew_misses_nothing() {
    check(4, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        let reader = spawn(&race, |race| race.look_up(1));
        // Each insert finds half of the places used, by the first entry and a tombstone, and so rebuilds the index: the
        // second time into the one from which the reader may have started.
        for key in 2..4 {
            assert!(race.table.invalidate(&key).is_some());
            assert!(race.insert(key + 1, key + 1));
        }
        assert_eq!(reader.join().unwrap(), Some(1), "an entry was missed while the index was filled anew");
    });
}

#[test]
fn a_key_that_is_replaced_after_the_index_grew_is_not_missed_in_the_old_one() {
    check(4, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        let reader = spawn(&race, |race| race.look_up(1));
        // The old index still leads to the first slot, which holds another key by the end.
        assert!(race.insert(3, 3) && race.replace(1, 4));
        race.insert(4, 5);
        assert!(matches!(reader.join().unwrap(), Some(1 | 4)), "a key that is always lent was missed");
    });
}

#[test]
fn two_inserts_of_one_key() {
    check(2, |race| {
        let insert = |race: &Race, number| match race.table.insert(1, race.value(number)) {
            Ok(held) => held.number,
            Err(InsertError::Occupied { existing, value }) => {
                assert_eq!(value.number, number, "the loser gets another's value back");
                existing.number
            }
            Err(InsertError::Full(Full { .. })) => unreachable!("there are two slots"),
        };
        let other = spawn(&race, move |race| insert(race, 1));
        let here = insert(&race, 2);
        let there = other.join().unwrap();
        assert_eq!(here, there, "two winners");
        assert_eq!(race.look_up(1), Some(here));
        assert!(race.dropped(3 - here), "the loser's value is dropped by the loser");
    });
}

#[test]
fn two_evictors_of_one_key() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let other = spawn(&race, |race| race.table.invalidate(&1).is_some());
        let here = race.table.invalidate(&1).is_some();
        assert!(here ^ other.join().unwrap(), "one of the two retires it");
        assert!(race.dropped(1));
    });
}

#[test]
fn two_holders_who_retire_what_they_hold() {
    check(2, |race| {
        assert!(race.insert(1, 1));
        let retire = |race: &Race| race.table.get(&1).is_some_and(|held| race.table.invalidate_ref(&held));
        let other = spawn(&race, move |race| retire(race));
        let here = retire(&race);
        assert!(here ^ other.join().unwrap(), "one of the two retires it");
        assert!(race.dropped(1));
    });
}

#[test]
fn two_replacements_of_one_key() {
    check(3, |race| {
        assert!(race.insert(1, 1));
        let other = spawn(&race, |race| race.replace(1, 2));
        assert!(race.replace(1, 3));
        assert!(other.join().unwrap());
        let last = race.look_up(1).unwrap();
        assert!(race.dropped(1) && race.dropped(5 - last) && !race.dropped(last));
    });
}

#[test]
fn retire_against_lease_and_sweep() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let mut leases = LocalCache::new(&race.table, 1);
        leases.get(&1);
        let evictor = spawn(&race, |race| race.table.invalidate(&1).is_some());
        leases.sweep();
        let leased = leases.get(&1).map(|held| held.number);
        assert!(matches!(leased, Some(1) | None));
        assert!(evictor.join().unwrap());
        leases.sweep();
        assert!(leases.is_empty() && race.dropped(1), "one sweep after the retirement the value is dropped");
    });
}

#[test]
fn a_new_lease_against_retire_is_found_by_the_next_sweep() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let mut leases = LocalCache::new(&race.table, 1);
        let evictor = spawn(&race, |race| race.table.invalidate(&1).is_some());
        leases.get(&1);
        assert!(evictor.join().unwrap());
        leases.sweep();
        assert!(leases.is_empty() && race.dropped(1), "the lease was taken as fresh and never becomes stale");
    });
}

#[test]
fn a_new_lease_by_an_index_that_was_replaced_is_found_by_the_next_sweep() {
    check(4, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        // Somebody holds the entry throughout, so that it can be taken although it is retired.
        let held = race.table.get(&1);
        let mut leases = LocalCache::new(&race.table, 1);
        let evictor = spawn(&race, |race| race.insert(3, 3) && race.table.invalidate(&1).is_some());
        leases.get(&1);
        assert!(evictor.join().unwrap());
        leases.sweep();
        assert!(leases.is_empty(), "the lease was taken as fresh and never becomes stale");
        drop(held);
        assert!(race.dropped(1));
    });
}

#[test]
fn replace_against_lease() {
    check(2, |race| {
        assert!(race.insert(1, 1));
        let mut leases = LocalCache::new(&race.table, 1);
        leases.get(&1);
        let writer = spawn(&race, |race| race.replace(1, 2));
        let leased = leases.get(&1).map(|held| held.number);
        assert!(matches!(leased, Some(1 | 2)), "a key that is always lent was missed");
        assert!(writer.join().unwrap());
        assert_eq!(leases.get(&1).map(|held| held.number), Some(2));
        assert!(race.dropped(1));
    });
}

#[test]
fn last_put_by_a_reader_against_an_insert_that_reuses_the_slot() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let held = race.table.get(&1).unwrap();
        race.table.invalidate(&1);
        let reader = spawn_put(&race, held);
        if race.insert(2, 2) {
            assert!(race.dropped(1), "the slot was handed out before its value was dropped");
            assert_eq!(race.look_up(2), Some(2));
        }
        reader.join().unwrap();
        assert!(race.dropped(1));
    });
}

#[test]
fn two_last_holders_put_at_once() {
    check(1, |race| {
        assert!(race.insert(1, 1));
        let first = race.table.get(&1).unwrap();
        let second = first.clone();
        race.table.invalidate(&1);
        let reader = spawn_put(&race, first);
        assert_eq!(second.number, 1);
        drop(second);
        reader.join().unwrap();
        assert!(race.dropped(1));
    });
}

#[test]
fn two_slots_given_back_at_once_are_both_found_again() {
    check(2, |race| {
        assert!(race.insert(1, 1) && race.insert(2, 2));
        let other = spawn(&race, |race| drop(race.table.invalidate(&1)));
        drop(race.table.invalidate(&2));
        other.join().unwrap();
        assert!(race.insert(3, 3) && race.insert(4, 4) && !race.insert(5, 5));
    });
}

#[test]
fn a_look_up_between_the_last_put_and_the_end() {
    // Three threads make too many interleavings for all of them.
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

/// Faults that `planted` knows in the crate, each a step that looks superfluous until two threads meet in it; and the race
/// that shows it.
const FAULTS: [(&str, &str); 15] = [
    // The entry is used without asking whether it is still the one that was looked up.
    ("no_recheck", "a_replaced_key_is_never_missing_also_when_its_old_slot_is_reused"),
    // A lease is used without asking whether its entry is still lent.
    ("no_lease_check", "replace_against_lease"),
    // An addition is believed although the entry was dead.
    ("plain_add", "look_up_against_retire_and_reuse_of_the_slot_for_another_key"),
    // The slot is handed out while its last entry is still being dropped.
    ("free_at_zero", "last_put_by_a_reader_against_an_insert_that_reuses_the_slot"),
    // Having found nothing is believed although the index was filled anew meanwhile.
    ("no_rebuild_check", "a_look_up_in_an_index_that_is_filled_anew_misses_nothing"),
    // Or although another index took its place.
    ("no_index_check", "a_key_that_is_replaced_after_the_index_grew_is_not_missed_in_the_old_one"),
    ("relaxed_publish", "a_place_that_comes_to_mean_the_same_slot_again"),
    ("relaxed_exchange", "look_up_against_retire_and_reuse_of_the_slot_for_another_key"),
    ("relaxed_add", "a_place_that_comes_to_mean_the_same_slot_again"),
    ("relaxed_put", "two_last_holders_put_at_once"),
    ("relaxed_end", "look_up_against_retire"),
    ("relaxed_give_back", "last_put_by_a_reader_against_an_insert_that_reuses_the_slot"),
    ("relaxed_index", "growth_of_the_index_against_look_up"),
    ("relaxed_place", "a_look_up_in_an_index_that_is_filled_anew_misses_nothing"),
    ("relaxed_version", "retire_against_lease_and_sweep"),
];

#[test]
fn each_planted_fault_is_caught() {
    let this = std::env::current_exe().expect("a test knows its own program");
    for (fault, race) in FAULTS {
        let mut command = std::process::Command::new(&this);
        command.args(["--exact", race]).env("TABLE_PLANTED", fault).env("RUST_BACKTRACE", "0");
        let out = command.output().expect("a test runs itself");
        let out = String::from_utf8_lossy(&out.stdout);
        let reason = out.lines().skip_while(|line| !line.contains("panicked at")).nth(1).unwrap_or_default();
        println!("{fault}: {reason}");
        assert!(out.contains(&format!("{race} ... FAILED")), "{race} does not see {fault}");
    }
}
