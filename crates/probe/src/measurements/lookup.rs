//! Looking up a shared open file: in a map with a mutex, in the shared table, or by a cached reference.

use super::{Bench, Heading};
use crate::compare::{Candidate, Slice};
use crate::sides::joined;
use crate::stopwatch::Stopwatch;
use sanderling_table::{LocalCache, Table};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::io;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Instant;

pub(crate) const NAME: &str = "lookup";
const THREAD_COUNTS: [usize; 4] = [1, 2, 4, 16];
const ENTRY_COUNT: usize = 1_024;
/// Look-ups of all threads together: enough for them to run at the same time.
const LOOKUPS_PER_SLICE: usize = 1 << 17;
/// Look-ups between two sweeps of the cached references, as in an iteration of an event loop.
const LOOKUPS_PER_ITERATION: usize = 64;

type Key = Box<[u8]>;

/// The data of an open file that a request reads.
struct Entry {
    descriptor: u64,
    length_bytes: u64,
}

/// As fast as the hash of the table, so that only the synchronization differs.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            // The fraction of the golden ratio.
            self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
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
        let with_mutex = move || {
            run_threads(thread_count, paths, || {
                |path: &[u8]| {
                    let entry = Arc::clone(&locked.lock().expect("no thread panics with the lock")[path]);
                    read(&entry)
                }
            })
        };
        let in_table = move || {
            run_threads(thread_count, paths, || |path: &[u8]| read(&shared.get(path).expect("all paths exist")))
        };
        let cached = move || {
            run_threads(thread_count, paths, || {
                let mut cache = LocalCache::new(shared, ENTRY_COUNT);
                let mut lookup_count = 0;
                move |path: &[u8]| {
                    lookup_count += 1;
                    if lookup_count % LOOKUPS_PER_ITERATION == 0 {
                        cache.sweep();
                    }
                    read(&cache.get(path).expect("all paths exist"))
                }
            })
        };
        let baseline = rows.len();
        let name = |name: &str| format!("{name}, {thread_count} thread{}", if thread_count == 1 { "" } else { "s" });
        rows.extend([
            Candidate::new(name("mutex"), with_mutex).against(baseline).threads(thread_count),
            Candidate::new(name("table"), in_table).against(baseline).threads(thread_count),
            Candidate::new(name("cached reference"), cached).against(baseline).threads(thread_count).used(true),
        ]);
    }
    let title = format!("Looking up one of {ENTRY_COUNT} shared open files by its path");
    let group = bench.loops(Heading::new(NAME, title, "look-up"), rows);
    group.note_gain();
    Ok(())
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

/// Runs look-ups on all threads at the same time; `make` makes the look-up function of each.
fn run_threads<L>(thread_count: usize, paths: &[Key], make: impl Fn() -> L + Sync) -> io::Result<Slice>
where
    L: FnMut(&[u8]) -> u64,
{
    let start = Barrier::new(thread_count);
    let lookups_each = LOOKUPS_PER_SLICE / thread_count;
    let work = |number: usize| {
        let mut look_up = make();
        // Another order for each thread; the step is coprime to the number of paths.
        let order = |at: usize| &*paths[(at * 389 + number * 61) % paths.len()];
        let mut sum = (0..paths.len()).fold(0, |sum: u64, at| sum.wrapping_add(look_up(order(at))));
        start.wait();
        let begin = Instant::now();
        let mut stopwatch = Stopwatch::default();
        stopwatch.time(|| (0..lookups_each).for_each(|at| sum = sum.wrapping_add(look_up(order(at)))));
        black_box(sum);
        (stopwatch.cpu_ns(), begin, Instant::now())
    };
    let spans: Vec<(f64, Instant, Instant)> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..thread_count).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| joined(thread.join())).collect()
    });
    let begin = spans.iter().map(|span| span.1).min().expect("there is a thread");
    let end = spans.iter().map(|span| span.2).max().expect("there is a thread");
    Ok(Slice {
        operation_count: (lookups_each * thread_count) as u64,
        cpu_ns: spans.iter().map(|span| span.0).sum(),
        wall_ns: (end - begin).as_nanos() as f64,
        ..Slice::default()
    })
}
