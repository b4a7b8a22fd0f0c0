//! Any sequence of steps, done on a table and on a plain map, must look the same.
#![cfg(not(loom))]

use proptest::prelude::*;
use sanderling_table::{Full, InsertError, LocalCache, Ref, Table, Taking};
use std::collections::HashMap;

const CAPACITY_MAX: usize = 6;
const KEY_COUNT: u8 = 10;
const LEASES_MAX: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Insert(u8),
    Replace(u8),
    Retire(u8),
    RetireOdd(usize),
    /// Look up, and keep the reference.
    Hold(u8),
    /// Put the reference that was kept longest.
    Put,
    RetireHeld,
    Lease(u8),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..KEY_COUNT;
    let step = prop_oneof![
        4 => key().prop_map(Step::Insert),
        2 => key().prop_map(Step::Replace),
        2 => key().prop_map(Step::Retire),
        1 => (0..4usize).prop_map(Step::RetireOdd),
        2 => key().prop_map(Step::Hold),
        2 => Just(Step::Put),
        1 => Just(Step::RetireHeld),
        4 => key().prop_map(Step::Lease),
        1 => Just(Step::Sweep),
    ];
    proptest::collection::vec(step, 0..200)
}

/// The table, what it should hold, and those who hold of it.
struct Pair<'t> {
    table: &'t Table<u8, u32>,
    model: HashMap<u8, u32>,
    held: Vec<Ref<'t, u8, u32>>,
    leases: LocalCache<'t, u8, u32>,
    /// The next value; each is used once.
    next: u32,
}

impl Pair<'_> {
    fn take(&mut self, step: &Step) {
        self.next += 1;
        match *step {
            Step::Insert(key) => self.insert(key),
            Step::Replace(key) => match self.table.replace(key, self.next) {
                Ok(held) => {
                    assert_eq!(*held, self.next);
                    self.model.insert(key, self.next);
                }
                Err(full) => self.check_full(&full),
            },
            Step::Retire(key) => assert_eq!(self.table.invalidate(&key).map(|held| *held), self.model.remove(&key)),
            Step::RetireOdd(count_max) => {
                let mut gone = Vec::new();
                let count = self.table.invalidate_where(count_max, |key, value| {
                    let chosen = value % 2 == 1;
                    if chosen {
                        gone.push(*key);
                    }
                    chosen
                });
                assert_eq!(count, gone.len());
                gone.iter().for_each(|key| assert!(self.model.remove(key).is_some()));
                assert!(count == count_max || self.model.values().all(|value| value % 2 == 0));
            }
            Step::Hold(key) => {
                let held = self.table.get(&key);
                assert_eq!(held.as_deref(), self.model.get(&key));
                self.held.extend(held);
            }
            Step::Put => drop((!self.held.is_empty()).then(|| self.held.remove(0))),
            Step::RetireHeld => {
                if let Some(held) = self.held.last() {
                    let is_lent = self.model.get(held.key()) == Some(&**held);
                    assert_eq!(held.is_invalidated(), !is_lent);
                    assert_eq!(self.table.invalidate_ref(held), is_lent);
                    if is_lent {
                        self.model.remove(held.key());
                    }
                }
            }
            Step::Lease(key) => {
                assert_eq!(self.leases.get(&key).map(|held| **held), self.model.get(&key).copied());
                assert!(self.leases.len() <= LEASES_MAX);
            }
            Step::Sweep => {
                self.leases.sweep();
                assert!(self.leases.len() <= self.model.len(), "a stale lease was kept");
            }
        }
    }
}

impl Pair<'_> {
    fn insert(&mut self, key: u8) {
        match self.table.insert(key, self.next) {
            Ok(held) => {
                assert_eq!(*held, self.next);
                assert_eq!(self.model.insert(key, self.next), None);
            }
            Err(InsertError::Occupied { existing, value }) => {
                assert_eq!((Some(&*existing), value), (self.model.get(&key), self.next));
            }
            Err(InsertError::Full(full)) => self.check_full(&full),
        }
    }

    fn check_full(&self, full: &Full<u8, u32>) {
        assert_eq!(full.value, self.next);
        let stats = self.table.stats();
        assert_eq!(stats.entry_count + stats.invalidated_count, CAPACITY_MAX);
    }

    fn check(&self) {
        self.table.check();
        let mut seen = HashMap::new();
        self.table.for_each(|key, value| assert_eq!(seen.insert(*key, *value), None));
        assert_eq!(seen, self.model);
        let stats = self.table.stats();
        assert_eq!(stats.entry_count, self.model.len());
        assert!(stats.invalidated_count <= self.held.len() + self.leases.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_looks_like_a_map(steps in steps(), add in any::<bool>()) {
        let table = Table::with_taking(CAPACITY_MAX, if add { Taking::Add } else { Taking::Exchange });
        let leases = LocalCache::new(&table, LEASES_MAX);
        let mut pair = Pair { table: &table, model: HashMap::new(), held: Vec::new(), leases, next: 0 };
        for step in &steps {
            pair.take(step);
            pair.check();
        }
        pair.held.clear();
        pair.leases.clear();
        prop_assert_eq!(table.stats().invalidated_count, 0);
    }
}
