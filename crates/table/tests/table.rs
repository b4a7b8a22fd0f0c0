//! What a table promises, asked through its public face by one thread, or by threads that take turns.
#![cfg(not(loom))]

use sanderling_table::{CAPACITY_MAX, Full, InsertError, LocalCache, Ref, Table, TableStats, Taking};
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Fewer under an interpreter.
const MANY: u32 = if cfg!(miri) { 200 } else { 10_000 };

/// Counts its drops.
struct Counted<'c>(&'c AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn number_of(held: Option<Ref<'_, u32, u32>>) -> Option<u32> {
    held.map(|held| *held)
}

#[test]
fn what_is_inserted_is_found_until_it_is_invalidated() {
    for taking in [Taking::Exchange, Taking::Add] {
        let table = Table::with_taking(4, taking);
        assert_eq!(number_of(table.get(&1)), None);
        assert_eq!(table.insert(1, 10).map(|held| *held).ok(), Some(10));
        assert_eq!(number_of(table.get(&1)), Some(10));
        assert_eq!(number_of(table.invalidate(&1)), Some(10));
        assert_eq!(number_of(table.get(&1)), None);
        assert!(table.invalidate(&1).is_none(), "only one caller retires it");
        table.check();
    }
}

#[test]
fn a_path_is_looked_up_by_its_octets() {
    let table: Table<Box<[u8]>, u32> = Table::new(4);
    assert!(table.insert(b"/index.html".as_slice().into(), 1).is_ok());
    assert_eq!(table.get(b"/index.html".as_slice()).as_deref(), Some(&1));
    assert!(table.get(b"/index.htm".as_slice()).is_none());
}

#[test]
fn the_loser_of_two_inserts_gets_its_value_back_and_the_winner_to_use() {
    let table = Table::new(4);
    assert!(table.insert("key", 1).is_ok());
    let Err(InsertError::Occupied { existing, value }) = table.insert("key", 2) else { panic!("the key is lent") };
    assert_eq!((*existing, value, *existing.key()), (1, 2, "key"));
}

#[test]
fn a_held_entry_outlives_its_retirement_and_its_last_holder_drops_it() {
    let drops = AtomicUsize::new(0);
    let table = Table::new(4);
    let first = table.insert(1, Counted(&drops)).ok().unwrap();
    let second = first.clone();
    assert!(!first.is_invalidated());
    drop(table.invalidate(&1));
    assert!(first.is_invalidated());
    drop(first);
    assert_eq!(drops.load(SeqCst), 0);
    drop(second);
    assert_eq!(drops.load(SeqCst), 1);
    table.check();
}

#[test]
fn replacing_keeps_the_old_value_for_its_holders_only() {
    let table = Table::new(4);
    let old = table.insert(1, 10).unwrap();
    assert_eq!(table.replace(1, 11).map(|held| *held), Ok(11));
    assert_eq!((*old, old.is_invalidated()), (10, true));
    assert_eq!(number_of(table.get(&1)), Some(11));
    assert_eq!(table.stats(), TableStats { entry_count: 1, invalidated_count: 1, free_count: 0 });
    assert_eq!(table.replace(2, 20).map(|held| *held).ok(), Some(20), "a key that is not lent is inserted");
    drop(old);
    assert_eq!(table.stats(), TableStats { entry_count: 2, invalidated_count: 0, free_count: 1 });
    table.check();
}

#[test]
fn a_full_table_gives_key_and_value_back_and_has_room_again_after_a_retirement() {
    let table = Table::new(2);
    assert!(table.insert(1, 10).is_ok() && table.insert(2, 20).is_ok());
    let refused = Full { key: 3, value: 30 };
    assert!(matches!(table.insert(3, 30), Err(InsertError::Full(full)) if full == refused));
    assert_eq!(
        table.replace(1, 11).map(|held| *held),
        Err(Full { key: 1, value: 11 }),
        "both values exist for a while"
    );
    assert_eq!(number_of(table.get(&1)), Some(10));
    let held = table.invalidate(&1);
    assert!(table.insert(3, 30).is_err(), "a retired value that is held still counts");
    drop(held);
    assert!(table.insert(3, 30).is_ok());
    table.check();
}

#[test]
fn only_the_entry_that_is_held_is_invalidated_by_its_holder() {
    let table = Table::new(4);
    let old = table.insert(1, 10).unwrap();
    assert!(table.replace(1, 11).is_ok());
    assert!(!table.invalidate_ref(&old), "it was retired already");
    assert_eq!(number_of(table.get(&1)), Some(11), "its successor is not concerned");
    let new = table.get(&1).unwrap();
    assert!(table.invalidate_ref(&new));
    assert!(!table.invalidate_ref(&new));
    let other = Table::new(4);
    let stranger = other.insert(1, 12).unwrap();
    assert!(table.insert(1, 13).is_ok());
    assert!(!table.invalidate_ref(&stranger), "an entry of another table");
    table.check();
    other.check();
}

#[test]
fn the_index_grows_and_every_entry_is_found_in_it() {
    let table = Table::new(MANY as usize);
    for key in 0..MANY {
        assert!(table.insert(key, key).is_ok());
    }
    assert!(table.insert(MANY, 0).is_err());
    assert_eq!((table.len(), table.capacity_max(), table.is_empty()), (MANY as usize, MANY as usize, false));
    assert!((0..MANY).all(|key| number_of(table.get(&key)) == Some(key)));
    table.check();
}

#[test]
fn endless_change_leaves_no_more_than_two_indexes_of_a_size() {
    let table = Table::new(50);
    for key in 0..MANY {
        assert!(table.insert(key, key).is_ok());
        if key >= 49 {
            assert_eq!(number_of(table.invalidate(&(key - 49))), Some(key - 49));
        }
        if key.is_multiple_of(97) {
            table.check();
        }
    }
    assert_eq!(table.stats(), TableStats { entry_count: 49, invalidated_count: 0, free_count: 1 });
}

/// A key whose hash is that of every other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Clash(u32);

impl Hash for Clash {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn keys_of_one_hash_are_told_apart() {
    let key_count = if cfg!(miri) { 16 } else { 100 };
    for taking in [Taking::Exchange, Taking::Add] {
        let table = Table::with_taking(key_count as usize, taking);
        for key in 0..key_count {
            assert!(table.insert(Clash(key), key).is_ok());
        }
        for key in (0..key_count).step_by(2) {
            assert!(table.invalidate(&Clash(key)).is_some());
        }
        for key in 0..key_count {
            assert_eq!(table.get(&Clash(key)).map(|held| *held), (key % 2 == 1).then_some(key));
        }
        table.check();
        assert_eq!(table.stats().invalidated_count, 0, "a reference taken to compare a key was not put");
    }
}

#[test]
fn invalidate_where_stops_at_its_bound_and_for_each_sees_the_rest() {
    let table = Table::new(100);
    for key in 0..100 {
        assert!(table.insert(key, key * 10).is_ok());
    }
    assert_eq!(table.invalidate_where(7, |key, _| key % 2 == 0), 7);
    let mut high_count = 0;
    table.for_each(|key, _| high_count += usize::from(*key >= 50));
    assert_eq!(table.invalidate_where(usize::MAX, |_, value| *value >= 500), high_count);
    let mut seen = 0;
    table.for_each(|key, value| {
        assert!(*key < 50 && *value == key * 10);
        seen += 1;
    });
    assert_eq!((seen, table.len()), (93 - high_count, 93 - high_count));
    table.check();
}

#[test]
fn a_table_drops_what_it_holds_also_what_somebody_forgot_to_give_back() {
    let drops = AtomicUsize::new(0);
    let table = Table::new(4);
    for key in 0..3 {
        assert!(table.insert(key, Counted(&drops)).is_ok());
    }
    std::mem::forget(table.get(&0));
    std::mem::forget(table.invalidate(&1));
    drop(table.invalidate(&2));
    assert_eq!(drops.load(SeqCst), 1);
    drop(table);
    assert_eq!(drops.load(SeqCst), 3);
}

#[test]
fn a_value_that_panics_when_dropped_costs_no_slot() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as planned");
        }
    }
    let table = Table::new(1);
    for _ in 0..3 {
        assert!(table.insert(1, Panics).is_ok());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(table.invalidate(&1)))).is_err());
        table.check();
    }
    assert_eq!(table.stats(), TableStats { entry_count: 0, invalidated_count: 0, free_count: 1 });
}

#[test]
fn a_panic_under_the_writers_lock_leaves_a_whole_table() {
    let drops = AtomicUsize::new(0);
    let table = Table::new(4);
    for key in 0..4 {
        assert!(table.insert(key, Counted(&drops)).is_ok());
    }
    let asked = Cell::new(0);
    let choose = |_: &i32, _: &Counted<'_>| {
        asked.set(asked.get() + 1);
        assert!(asked.get() < 3, "as planned");
        true
    };
    assert!(catch_unwind(AssertUnwindSafe(|| table.invalidate_where(4, choose))).is_err());
    table.check();
    assert_eq!((table.len(), drops.load(SeqCst)), (2, 2), "what was chosen before is retired and dropped");
}

#[test]
fn a_table_has_room_for_at_least_one_and_not_for_too_many() {
    for capacity_max in [0, CAPACITY_MAX + 1] {
        assert!(catch_unwind(|| Table::<u32, u32>::new(capacity_max)).is_err(), "{capacity_max}");
    }
    assert_eq!(Table::<u32, u32>::new(CAPACITY_MAX).capacity_max(), CAPACITY_MAX);
}

#[test]
fn entries_and_leases_are_for_more_than_one_thread() {
    let table = Table::new(4);
    let held = table.insert(1, String::from("one")).ok().unwrap();
    let leases = LocalCache::new(&table, 4);
    std::thread::scope(|scope| {
        scope.spawn(move || assert_eq!(*held, "one"));
        scope.spawn(move || {
            let mut leases = leases;
            assert!(leases.get(&1).is_some());
        });
    });
}

#[test]
fn deferred_close_ends_one_sweep_after_the_retirement() {
    let drops = AtomicUsize::new(0);
    let table = Table::new(4);
    assert!(table.insert(1, Counted(&drops)).is_ok());
    let mut workers: Vec<LocalCache<'_, i32, Counted<'_>>> = (0..3).map(|_| LocalCache::new(&table, 4)).collect();
    for worker in &mut workers {
        assert!(worker.get(&1).is_some());
    }
    drop(table.invalidate(&1));
    for (swept, worker) in workers.iter_mut().enumerate() {
        assert_eq!(drops.load(SeqCst), 0, "{swept} of three workers have swept");
        assert_eq!(worker.sweep(), 1);
    }
    assert_eq!(drops.load(SeqCst), 1);
}
