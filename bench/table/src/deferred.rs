//! Turns one retirement into the number of look-ups until the value was dropped: when does an evicted file close?

use crate::candidate::File;
use crossbeam_epoch::{self as epoch, Atomic, Owned};
use sanderling_table::{LocalCache, Table};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

const LOOKS_MAX: u64 = 2_000_000;
const LOOKS_PER_TURN: u64 = 64;
const WORKER_COUNT: usize = 2;

pub fn show() {
    println!("one entry retired, then only others looked up: look-ups until its value is dropped");
    for (name, looks) in [
        ("table, leased by two workers", leased()),
        ("papaya, pinned for each turn", papaya()),
        ("crossbeam-epoch, pinned for each turn", crossbeam(false)),
        ("crossbeam-epoch, flushed by the writer", crossbeam(true)),
    ] {
        match looks {
            Some(looks) => println!("{name:40} {looks}"),
            None => println!("{name:40} not within {LOOKS_MAX}"),
        }
    }
}

/// Looks up in turns until nothing is `alive`.
fn looks_until_dropped(alive: &AtomicU64, mut turn: impl FnMut()) -> Option<u64> {
    for looks in (0..LOOKS_MAX).step_by(LOOKS_PER_TURN as usize) {
        if alive.load(SeqCst) == 0 {
            return Some(looks);
        }
        turn();
    }
    None
}

/// The retired file, and one of whose life nobody asks.
fn counts() -> (&'static AtomicU64, &'static AtomicU64) {
    (Box::leak(Box::default()), Box::leak(Box::default()))
}

fn leased() -> Option<u64> {
    let (alive, others) = counts();
    let table = Table::new(4);
    assert!(table.insert(1, File::new(1, alive)).is_ok() && table.insert(2, File::new(2, others)).is_ok());
    let mut workers: Vec<_> = (0..WORKER_COUNT).map(|_| LocalCache::new(&table, 4)).collect();
    for worker in &mut workers {
        assert!(worker.get(&1).is_some() && worker.get(&2).is_some());
    }
    drop(table.invalidate(&1));
    looks_until_dropped(alive, || {
        for worker in &mut workers {
            worker.sweep();
            for _ in 0..LOOKS_PER_TURN / WORKER_COUNT as u64 {
                assert!(worker.get(&2).is_some());
            }
        }
    })
}

fn papaya() -> Option<u64> {
    let (alive, others) = counts();
    let map = papaya::HashMap::new();
    map.pin().insert(1, Arc::new(File::new(1, alive)));
    map.pin().insert(2, Arc::new(File::new(2, others)));
    map.pin().remove(&1);
    looks_until_dropped(alive, || {
        let pinned = map.pin();
        for _ in 0..LOOKS_PER_TURN {
            assert!(pinned.get(&2).is_some());
        }
    })
}

fn crossbeam(flushes: bool) -> Option<u64> {
    let (alive, others) = counts();
    let retired = Atomic::new(File::new(1, alive));
    let other = Atomic::new(File::new(2, others));
    {
        let guard = epoch::pin();
        let old = retired.swap(Owned::new(File::new(3, others)).into_shared(&guard), SeqCst, &guard);
        // SAFETY: the swap made `old` unreachable for whoever pins later.
        unsafe { guard.defer_destroy(old) };
        if flushes {
            guard.flush();
        }
    }
    looks_until_dropped(alive, || {
        let guard = epoch::pin();
        for _ in 0..LOOKS_PER_TURN {
            // SAFETY: `other` is never replaced.
            assert!(unsafe { other.load(Relaxed, &guard).deref() }.read() != 0);
        }
    })
}
