//! Property test: any sequence of operations has the same results on a table and on a map.
#![cfg(not(loom))]

use proptest::prelude::*;
use sanderling_table::{LocalCache, Ref, Table};
use std::collections::HashMap;

const CAPACITY_MAX: usize = 6;
const KEY_COUNT: u8 = 10;
const CACHE_CAPACITY_MAX: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Insert(u8),
    Invalidate(u8),
    InvalidateOdd(usize),
    /// Look up and keep the reference.
    Get(u8),
    /// Drop the oldest reference.
    Drop,
    InvalidateRef,
    GetCached(u8),
    Sweep,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..KEY_COUNT;
    let step = prop_oneof![
        6 => key().prop_map(Step::Insert),
        2 => key().prop_map(Step::Invalidate),
        1 => (0..4usize).prop_map(Step::InvalidateOdd),
        2 => key().prop_map(Step::Get),
        2 => Just(Step::Drop),
        1 => Just(Step::InvalidateRef),
        4 => key().prop_map(Step::GetCached),
        1 => Just(Step::Sweep),
    ];
    proptest::collection::vec(step, 0..200)
}

struct Pair<'t> {
    table: &'t Table<u8, u32>,
    model: HashMap<u8, u32>,
    references: Vec<Ref<'t, u8, u32>>,
    cache: LocalCache<'t, u8, u32>,
    /// The next value; each is used once.
    next: u32,
}

impl Pair<'_> {
    fn perform(&mut self, step: &Step) {
        self.next += 1;
        match *step {
            Step::Insert(key) => match self.table.insert(key, self.next) {
                Ok(entry) => {
                    assert_eq!(*entry, self.next);
                    self.model.insert(key, self.next);
                }
                Err(full) => {
                    assert_eq!((full.key, full.value), (key, self.next));
                    assert_eq!(self.table.len() + self.table.check(), CAPACITY_MAX);
                }
            },
            Step::Invalidate(key) => {
                assert_eq!(self.table.invalidate(&key).map(|entry| *entry), self.model.remove(&key));
            }
            Step::InvalidateOdd(count_max) => {
                let mut invalidated = Vec::new();
                let count = self.table.invalidate_where(count_max, |key, value| {
                    let chosen = value % 2 == 1;
                    if chosen {
                        invalidated.push(*key);
                    }
                    chosen
                });
                assert_eq!(count, invalidated.len());
                invalidated.iter().for_each(|key| assert!(self.model.remove(key).is_some()));
                assert!(count == count_max || self.model.values().all(|value| value % 2 == 0));
            }
            Step::Get(key) => {
                let entry = self.table.get(&key);
                assert_eq!(entry.as_deref(), self.model.get(&key));
                self.references.extend(entry);
            }
            Step::Drop => drop((!self.references.is_empty()).then(|| self.references.remove(0))),
            Step::InvalidateRef => {
                if let Some(entry) = self.references.last() {
                    let is_valid = self.model.get(entry.key()) == Some(&**entry);
                    assert_eq!(entry.is_invalidated(), !is_valid);
                    assert_eq!(self.table.invalidate_ref(entry), is_valid);
                    if is_valid {
                        self.model.remove(entry.key());
                    }
                }
            }
            Step::GetCached(key) => {
                assert_eq!(self.cache.get(&key).map(|entry| **entry), self.model.get(&key).copied());
                assert!(self.cache.len() <= CACHE_CAPACITY_MAX);
            }
            Step::Sweep => {
                self.cache.sweep();
                assert!(self.cache.len() <= self.model.len(), "an invalidated entry stays cached");
            }
        }
    }

    fn check(&self) {
        let invalidated_count = self.table.check();
        let mut seen = HashMap::new();
        self.table.for_each(|key, value| assert_eq!(seen.insert(*key, *value), None));
        assert_eq!(seen, self.model);
        assert_eq!(self.table.len(), self.model.len());
        assert!(invalidated_count <= self.references.len() + self.cache.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn table_behaves_like_a_map(steps in steps()) {
        let table = Table::new(CAPACITY_MAX);
        let cache = LocalCache::new(&table, CACHE_CAPACITY_MAX);
        let mut pair = Pair { table: &table, model: HashMap::new(), references: Vec::new(), cache, next: 0 };
        for step in &steps {
            pair.perform(step);
            pair.check();
        }
        drop(pair);
        prop_assert_eq!(table.check(), 0);
    }
}
