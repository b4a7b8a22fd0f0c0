//! Many threads do everything at once, and each value says by itself whether it was lent rightly.
//!
//! `TABLE_STRESS_STEPS` is the number of steps of each thread, `TABLE_STRESS_SEED` repeats a run's choices.
#![cfg(not(loom))]

use sanderling_table::{LocalCache, Table, Taking};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::thread;

const THREAD_COUNT: u64 = 6;
const KEY_COUNT: u64 = 40;
/// Fewer than keys, so that threads meet full tables, and slots change keys all the time.
const CAPACITY_MAX: usize = 24;
const STEPS_DEFAULT: u64 = if cfg!(miri) { 150 } else { 60_000 };
const STEPS_PER_TURN: u64 = 32;

/// Of a living value; a dropped one has another.
const CANARY: u64 = 0x005a_4d4e_4445_524c;

/// What was made and what was dropped, by all threads.
#[derive(Default)]
struct Ledger {
    alive_count: AtomicI64,
    made_count: AtomicU64,
}

struct Value<'l> {
    canary: u64,
    key: u64,
    /// Written once, by the maker, in plain memory: who reads another number has seen a value half made.
    echo: [u64; 4],
    ledger: &'l Ledger,
}

impl<'l> Value<'l> {
    fn new(key: u64, ledger: &'l Ledger) -> Value<'l> {
        ledger.alive_count.fetch_add(1, Relaxed);
        ledger.made_count.fetch_add(1, Relaxed);
        Value { canary: CANARY, key, echo: [key; 4], ledger }
    }

    fn check(&self, key: u64) {
        assert_eq!(self.canary, CANARY, "a value was lent after it was dropped");
        assert_eq!((self.key, self.echo), (key, [key; 4]), "the wrong value, or half of one, was lent");
    }
}

impl Drop for Value<'_> {
    fn drop(&mut self) {
        assert_eq!(self.canary, CANARY, "a value was dropped twice");
        self.canary = 0;
        self.ledger.alive_count.fetch_sub(1, Relaxed);
    }
}

/// Marsaglia's xorshift with 64 bits.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a whole number"))
}

/// One worker: leases for what it needs now, references for what it needs longer, and now and then a change.
fn work<'l>(table: &Table<u64, Value<'l>>, ledger: &'l Ledger, mut random: Random, steps: u64) {
    let mut leases = LocalCache::new(table, 8);
    let mut held = Vec::new();
    for step in 0..steps {
        let key = random.below(KEY_COUNT);
        match random.below(64) {
            0..40 => {
                if let Some(lease) = leases.get(&key) {
                    lease.check(key);
                    if random.below(16) == 0 {
                        held.push(lease.clone());
                    }
                }
            }
            40..56 => {
                if let Some(entry) = table.get(&key) {
                    entry.check(*entry.key());
                    entry.check(key);
                }
            }
            56..59 => drop(table.insert(key, Value::new(key, ledger)).map(|entry| entry.check(key))),
            59..61 => drop(table.replace(key, Value::new(key, ledger)).map(|entry| entry.check(key))),
            61 => drop(table.invalidate(&key)),
            62 => drop(table.get(&key).map(|entry| table.invalidate_ref(&entry))),
            _ => {
                table.invalidate_where(3, |key, value| {
                    value.check(*key);
                    key.is_multiple_of(7)
                });
            }
        }
        if held.len() > 4 {
            let oldest = held.remove(0);
            oldest.check(oldest.key);
        }
        if step % STEPS_PER_TURN == 0 {
            leases.sweep();
        }
    }
}

fn check(taking: Taking) {
    let seed = from_environment("TABLE_STRESS_SEED", u64::from(std::process::id()) << 20 | 1);
    let steps = from_environment("TABLE_STRESS_STEPS", STEPS_DEFAULT);
    println!("{taking:?}: TABLE_STRESS_SEED={seed} TABLE_STRESS_STEPS={steps}");
    let ledger = Ledger::default();
    let table = Table::with_taking(CAPACITY_MAX, taking);
    thread::scope(|scope| {
        for worker in 1..=THREAD_COUNT {
            let (table, ledger) = (&table, &ledger);
            scope.spawn(move || work(table, ledger, Random(seed.wrapping_mul(worker).max(1)), steps));
        }
        for _ in 0..steps / 1_000 {
            table.check();
            let stats = table.stats();
            assert!(stats.entry_count + stats.invalidated_count <= CAPACITY_MAX, "{stats:?}");
            thread::yield_now();
        }
    });
    table.check();
    let stats = table.stats();
    assert_eq!(stats.invalidated_count, 0, "all threads ended, but somebody still holds");
    let alive_count = ledger.alive_count.load(Relaxed);
    assert_eq!(alive_count, stats.entry_count as i64, "of {} values made", ledger.made_count.load(Relaxed));
    drop(table);
    assert_eq!(ledger.alive_count.load(Relaxed), 0, "a value was not dropped, or one was dropped twice");
}

#[test]
fn references_by_exchange_stand_everything_at_once() {
    check(Taking::Exchange);
}

#[test]
fn references_by_addition_stand_everything_at_once() {
    check(Taking::Add);
}
