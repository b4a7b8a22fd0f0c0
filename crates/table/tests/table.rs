//! Tests of the public interface, mostly in one thread.
#![cfg(not(loom))]

use sanderling_table::{CAPACITY_MAX, Full, LocalCache, Ref, Table};
use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Fewer under Miri.
const MANY: u32 = if cfg!(miri) { 200 } else { 10_000 };

struct Counted<'c>(&'c AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn number_of(entry: Option<Ref<'_, u32, u32>>) -> Option<u32> {
    entry.map(|entry| *entry)
}

#[test]
fn full_table_returns_key_and_value() {
    let table = Table::new(2);
    assert!(table.insert(1, 10).is_ok() && table.insert(2, 20).is_ok());
    assert_eq!(table.insert(3, 30).map(drop), Err(Full { key: 3, value: 30 }));
    assert!(table.insert(1, 11).is_err(), "both values exist for a while");
    assert_eq!(number_of(table.get(&1)), Some(10));
    let entry = table.invalidate(&1);
    assert!(table.insert(3, 30).is_err(), "an invalidated value with a reference counts");
    drop(entry);
    assert!(table.insert(3, 30).is_ok());
    table.check();
}

#[test]
fn entry_of_another_table_is_not_invalidated() {
    let (table, other) = (Table::new(4), Table::new(4));
    let stranger = other.insert(1, 12).unwrap();
    assert!(table.insert(1, 13).is_ok());
    assert!(!table.invalidate_ref(&stranger));
    assert_eq!((table.check(), other.check(), table.len()), (0, 0, 1));
}

#[test]
fn every_entry_is_found_after_index_growth() {
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
fn continuous_change_keeps_two_indexes_of_each_size() {
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
    assert_eq!((table.len(), table.check()), (49, 0));
}

/// A key with the same hash as every other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Collision(u32);

impl Hash for Collision {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn colliding_keys_are_distinguished() {
    let key_count = if cfg!(miri) { 16 } else { 100 };
    let table = Table::new(key_count as usize);
    for key in 0..key_count {
        assert!(table.insert(Collision(key), key).is_ok());
    }
    for key in (0..key_count).step_by(2) {
        assert!(table.invalidate(&Collision(key)).is_some());
    }
    for key in 0..key_count {
        assert_eq!(table.get(&Collision(key)).map(|entry| *entry), (key % 2 == 1).then_some(key));
    }
    assert_eq!(table.check(), 0, "a reference taken to compare a key was not released");
}

#[test]
fn dropped_table_drops_values_with_leaked_references() {
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
fn panic_in_drop_of_value_loses_no_slot() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("expected panic");
        }
    }
    let table = Table::new(1);
    for _ in 0..3 {
        assert!(table.insert(1, Panics).is_ok());
        assert!(catch_unwind(AssertUnwindSafe(|| drop(table.invalidate(&1)))).is_err());
        assert_eq!((table.len(), table.check()), (0, 0));
    }
}

#[test]
fn panic_in_closure_leaves_table_consistent() {
    let drops = AtomicUsize::new(0);
    let table = Table::new(4);
    for key in 0..4 {
        assert!(table.insert(key, Counted(&drops)).is_ok());
    }
    let asked = Cell::new(0);
    let choose = |_: &i32, _: &Counted<'_>| {
        asked.set(asked.get() + 1);
        assert!(asked.get() < 3, "expected panic");
        true
    };
    assert!(catch_unwind(AssertUnwindSafe(|| table.invalidate_where(4, choose))).is_err());
    table.check();
    assert_eq!((table.len(), drops.load(SeqCst)), (2, 2), "the entries chosen before are invalidated and dropped");
}

#[test]
fn capacity_out_of_range_panics() {
    for capacity_max in [0, CAPACITY_MAX + 1] {
        assert!(catch_unwind(|| Table::<u32, u32>::new(capacity_max)).is_err(), "{capacity_max}");
    }
    assert_eq!(Table::<u32, u32>::new(CAPACITY_MAX).capacity_max(), CAPACITY_MAX);
}

#[test]
fn references_and_local_caches_are_send() {
    let table = Table::new(4);
    let entry = table.insert(1, String::from("one")).ok().unwrap();
    let cache = LocalCache::new(&table, 4);
    std::thread::scope(|scope| {
        scope.spawn(move || assert_eq!(*entry, "one"));
        scope.spawn(move || {
            let mut cache = cache;
            assert!(cache.get(&1).is_some());
        });
    });
}
