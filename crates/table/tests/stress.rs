//! Stress test: many threads perform all operations at once, and each value detects a wrong access.
//!
//! `TABLE_STRESS_STEPS` is the number of steps of each thread, `TABLE_STRESS_SEED` the seed of their choices. Also run
//! it by `cargo +nightly miri test -p sanderling-table --lib --test table --test stress` and with ThreadSanitizer
//! (`RUSTFLAGS=-Zsanitizer=thread`, `-Zbuild-std`).
#![cfg(not(loom))]

use fastrand::Rng;
use sanderling_table::{LocalCache, Table};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread;

const THREAD_COUNT: u64 = 6;
const KEY_COUNT: u64 = 40;
/// Less than KEY_COUNT, so that the table is often full and slots change keys.
const CAPACITY_MAX: usize = 24;
const STEPS_DEFAULT: u64 = if cfg!(miri) { 150 } else { 60_000 };
const STEPS_PER_SWEEP: u64 = 32;

/// The canary of a value that is not dropped.
const CANARY: u64 = 0x005a_4d4e_4445_524c;

/// Counts the values of all threads.
#[derive(Default)]
struct Ledger {
    alive_count: AtomicI64,
    created_count: AtomicU64,
}

struct Value<'l> {
    canary: u64,
    key: u64,
    /// Written once, not atomically: another number proves that a partial value was read.
    echo: [u64; 4],
    ledger: &'l Ledger,
}

impl<'l> Value<'l> {
    fn new(key: u64, ledger: &'l Ledger) -> Value<'l> {
        ledger.alive_count.fetch_add(1, Relaxed);
        ledger.created_count.fetch_add(1, Relaxed);
        Value { canary: CANARY, key, echo: [key; 4], ledger }
    }

    fn check(&self, key: u64) {
        assert_eq!(self.canary, CANARY, "a dropped value was read");
        assert_eq!((self.key, self.echo), (key, [key; 4]), "a wrong or partial value was read");
    }
}

impl Drop for Value<'_> {
    fn drop(&mut self) {
        assert_eq!(self.canary, CANARY, "a value was dropped twice");
        self.canary = 0;
        self.ledger.alive_count.fetch_sub(1, Relaxed);
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("an integer"))
}

/// A worker: mostly cached look-ups, some references that it keeps longer, and some changes.
fn work<'l>(table: &Table<u64, Value<'l>>, ledger: &'l Ledger, mut random: Rng, steps: u64) {
    let mut cache = LocalCache::new(table, 8);
    let mut kept = Vec::new();
    for step in 0..steps {
        let key = random.u64(..KEY_COUNT);
        match random.u8(..64) {
            0..40 => {
                if let Some(entry) = cache.get(&key) {
                    entry.check(key);
                    if random.u8(..16) == 0 {
                        kept.push(entry.clone());
                    }
                }
            }
            40..56 => {
                if let Some(entry) = table.get(&key) {
                    entry.check(*entry.key());
                    entry.check(key);
                }
            }
            56..61 => drop(table.insert(key, Value::new(key, ledger)).map(|entry| entry.check(key))),
            61 => drop(table.invalidate(&key)),
            62 => drop(table.get(&key).map(|entry| table.invalidate_ref(&entry))),
            _ => {
                table.invalidate_where(3, |key, value| {
                    value.check(*key);
                    key.is_multiple_of(7)
                });
            }
        }
        if kept.len() > 4 {
            let oldest = kept.remove(0);
            oldest.check(oldest.key);
        }
        if step % STEPS_PER_SWEEP == 0 {
            cache.sweep();
        }
    }
}

#[test]
fn all_operations_at_once() {
    let seed = from_environment("TABLE_STRESS_SEED", u64::from(std::process::id()) << 20 | 1);
    let steps = from_environment("TABLE_STRESS_STEPS", STEPS_DEFAULT);
    println!("TABLE_STRESS_SEED={seed} TABLE_STRESS_STEPS={steps}");
    let ledger = Ledger::default();
    let table = Table::new(CAPACITY_MAX);
    thread::scope(|scope| {
        for worker in 1..=THREAD_COUNT {
            let (table, ledger) = (&table, &ledger);
            scope.spawn(move || work(table, ledger, Rng::with_seed(seed.wrapping_add(worker)), steps));
        }
        for _ in 0..steps / 1_000 {
            assert!(table.check() <= CAPACITY_MAX);
            thread::yield_now();
        }
    });
    assert_eq!(table.check(), 0, "a reference was not released");
    let alive_count = ledger.alive_count.load(Relaxed);
    assert_eq!(alive_count, table.len() as i64, "of {} values made", ledger.created_count.load(Relaxed));
    drop(table);
    assert_eq!(ledger.alive_count.load(Relaxed), 0, "a value was not dropped, or one was dropped twice");
}
