//! Finding what all threads share: under a lock, with a counted reference but no lock, and by a lease.

use super::{Bench, Heading};
use crate::rounds::{Candidate, Slice};
use crate::sides::unwound;
use crate::stopwatch::Stopwatch;
use sanderling_table::{LocalCache, Table};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::io;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Instant;

pub(crate) const JOB: &str = "lookup";
pub(crate) const LOCK: &str = "lock";
pub(crate) const COUNTED: &str = "counted, no lock";
pub(crate) const LEASE: &str = "lease";
pub(crate) const THREAD_COUNTS: [usize; 4] = [1, 2, 4, 16];
/// 428 % better: 1 of 5.28 times the cost, by libMicro with 16 threads on 8 processors, FreeBSD, 2009.
pub(crate) const CLAIMED_RATIO: f64 = 1.0 / 5.28;
/// The threads of that claim.
pub(crate) const CLAIMED_THREAD_COUNT: usize = 16;

const ENTRY_COUNT: usize = 1_024;
/// Of all threads together: so many that threads on several processors really meet.
const LOOKS_PER_SLICE: usize = 1 << 17;
/// Look-ups of a worker between two sweeps of its leases, as in a turn of its loop.
const LOOKS_PER_TURN: usize = 64;

type Key = Box<[u8]>;

/// Stands for an open file: what a request reads of it.
struct Entry {
    descriptor: u64,
    length_bytes: u64,
}

/// Hashes about as quickly as the table does, so that what differs is the lock. Nobody hostile chooses these keys.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            // The fraction of the golden ratio: odd, and its bits have no pattern.
            self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

/// The name of a candidate's row.
pub(crate) fn row_name(candidate: &str, thread_count: usize) -> String {
    format!("{candidate}, {thread_count} thread{}", if thread_count == 1 { "" } else { "s" })
}

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let paths: Vec<Key> = (0..ENTRY_COUNT).map(|number| path(number).into()).collect();
    let locked: Mutex<HashMap<Key, Arc<Entry>, BuildHasherDefault<Fold>>> =
        Mutex::new(paths.iter().zip(0..).map(|(path, number)| (path.clone(), Arc::new(entry(number)))).collect());
    let shared: Table<Key, Entry> = Table::new(2 * ENTRY_COUNT);
    for (path, number) in paths.iter().zip(0..) {
        shared.insert(path.clone(), entry(number)).map_err(|_| io::Error::other("the table is full"))?;
    }
    let (paths, locked, shared) = (&paths, &locked, &shared);
    let mut rows = Vec::new();
    for thread_count in THREAD_COUNTS {
        let under_lock = move || {
            run_threads(thread_count, paths, || {
                |path: &[u8]| {
                    let entry = Arc::clone(&locked.lock().expect("no thread panics with it")[path]);
                    read(&entry)
                }
            })
        };
        let counted = move || {
            run_threads(thread_count, paths, || |path: &[u8]| read(&shared.get(path).expect("every path is there")))
        };
        let leased = move || {
            run_threads(thread_count, paths, || {
                let mut leases = LocalCache::new(shared, ENTRY_COUNT);
                let mut look_count = 0;
                move |path: &[u8]| {
                    look_count += 1;
                    if look_count % LOOKS_PER_TURN == 0 {
                        leases.sweep();
                    }
                    read(&leases.get(path).expect("every path is there"))
                }
            })
        };
        let lock_index = rows.len();
        rows.push(Candidate::new(row_name(LOCK, thread_count), under_lock));
        rows.push(claimed_at(thread_count, Candidate::new(row_name(COUNTED, thread_count), counted)));
        rows.push(claimed_at(thread_count, Candidate::new(row_name(LEASE, thread_count), leased)).used(true));
        let of_these_threads = rows.split_off(lock_index);
        rows.extend(of_these_threads.into_iter().map(|row| row.against(lock_index).threads(thread_count)));
    }
    let title = format!("Looking up one of {ENTRY_COUNT} shared open files by its path");
    let group = bench.loops(Heading::new(JOB, title, "look-up"), rows);
    group.notes.push("the server looks up by lease; it counts a reference when a worker meets a file first".to_owned());
    Ok(())
}

/// The claim is of one number of threads.
fn claimed_at(thread_count: usize, row: Candidate<'_>) -> Candidate<'_> {
    if thread_count == CLAIMED_THREAD_COUNT { row.claimed(CLAIMED_RATIO) } else { row }
}

fn path(number: usize) -> Vec<u8> {
    format!("/assets/file-{number:05}.css").into_bytes()
}

fn entry(number: u64) -> Entry {
    Entry { descriptor: number, length_bytes: 512 }
}

#[inline(always)]
fn read(entry: &Entry) -> u64 {
    entry.descriptor ^ entry.length_bytes
}

/// Lets each thread make a look-up of its own by `make`, and look paths up at the same time as the others.
fn run_threads<L>(thread_count: usize, paths: &[Key], make: impl Fn() -> L + Sync) -> io::Result<Slice>
where
    L: FnMut(&[u8]) -> u64,
{
    let start = Barrier::new(thread_count);
    let looks_each = LOOKS_PER_SLICE / thread_count;
    let work = |number: usize| {
        let mut look_up = make();
        // Each thread in an order of its own; a step that is prime to the number of paths meets all of them.
        let order = |at: usize| &*paths[(at * 389 + number * 61) % paths.len()];
        let mut sum = (0..paths.len()).fold(0, |sum: u64, at| sum.wrapping_add(look_up(order(at))));
        start.wait();
        let begin = Instant::now();
        let mut stopwatch = Stopwatch::default();
        stopwatch.time(|| (0..looks_each).for_each(|at| sum = sum.wrapping_add(look_up(order(at)))));
        black_box(sum);
        (stopwatch.cpu_ns(), begin, Instant::now())
    };
    let spans: Vec<(f64, Instant, Instant)> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..thread_count).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| unwound(thread.join())).collect()
    });
    let begin = spans.iter().map(|span| span.1).min().expect("there is a thread");
    let end = spans.iter().map(|span| span.2).max().expect("there is a thread");
    Ok(Slice {
        operation_count: (looks_each * thread_count) as u64,
        cpu_ns: spans.iter().map(|span| span.0).sum(),
        wall_ns: (end - begin).as_nanos() as f64,
        ..Slice::default()
    })
}
