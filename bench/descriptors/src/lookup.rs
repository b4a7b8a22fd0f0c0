//! Finding what all threads share: under a lock, with a counted reference but no lock, and by a lease.

use crate::job::{Candidate, Job, Row};
use sanderling_table::{LocalCache, Table};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::hint::black_box;
use std::sync::{Arc, Barrier, LazyLock, Mutex};
use std::thread::{self, JoinHandle};

pub const JOB: Job = Job {
    name: "lookup",
    // So many that threads which are told to begin and to end by barriers spend their time between them.
    operations_per_thread: 1 << 16,
    rows: &[
        Row::new("lock, 1 thread", alone::<Locked>),
        Row::new("counted, 1 thread", alone::<Counted>),
        Row::new("lease, 1 thread", alone::<Leased>),
        Row { name: "lock, 2 threads", threads: 2, prepare: together::<Locked, 2> },
        Row { name: "counted, 2 threads", threads: 2, prepare: together::<Counted, 2> },
        Row { name: "lease, 2 threads", threads: 2, prepare: together::<Leased, 2> },
        Row { name: "lock, 4 threads", threads: 4, prepare: together::<Locked, 4> },
        Row { name: "counted, 4 threads", threads: 4, prepare: together::<Counted, 4> },
        Row { name: "lease, 4 threads", threads: 4, prepare: together::<Leased, 4> },
        Row { name: "lock, 16 threads", threads: 16, prepare: together::<Locked, 16> },
        Row { name: "counted, 16 threads", threads: 16, prepare: together::<Counted, 16> },
        Row { name: "lease, 16 threads", threads: 16, prepare: together::<Leased, 16> },
    ],
};

const ENTRY_COUNT: usize = 1_024;
/// Look-ups of a worker between two sweeps of its leases, as in a turn of its loop.
const LOOKS_PER_TURN: usize = 64;
/// Prime to the number of entries, so that every order meets all of them; and no neighbours.
const STEP: usize = 389;

type Key = Box<[u8]>;

/// Stands for an open file: what a request reads of it.
struct Entry {
    descriptor: u64,
    length_bytes: u64,
}

impl Entry {
    #[inline(always)]
    fn read(&self) -> u64 {
        self.descriptor ^ self.length_bytes
    }
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

static PATHS: LazyLock<Vec<Key>> = LazyLock::new(|| {
    (0..ENTRY_COUNT).map(|number| format!("/assets/file-{number:05}.css").into_bytes().into()).collect()
});

fn entries() -> impl Iterator<Item = (Key, Entry)> {
    PATHS.iter().zip(0..).map(|(path, descriptor)| (path.clone(), Entry { descriptor, length_bytes: 512 }))
}

/// One thread's way to the entries that all share.
trait LookUp {
    fn new() -> Self;
    fn look_up(&mut self, path: &[u8]) -> u64;
}

struct Locked;

type Map = HashMap<Key, Arc<Entry>, BuildHasherDefault<Fold>>;

static LOCKED: LazyLock<Mutex<Map>> =
    LazyLock::new(|| Mutex::new(entries().map(|(path, entry)| (path, Arc::new(entry))).collect()));

impl LookUp for Locked {
    fn new() -> Locked {
        Locked
    }

    #[inline(always)]
    fn look_up(&mut self, path: &[u8]) -> u64 {
        let entry = Arc::clone(&LOCKED.lock().expect("no thread panics with it")[path]);
        entry.read()
    }
}

static TABLE: LazyLock<Table<Key, Entry>> = LazyLock::new(|| {
    let table = Table::new(2 * ENTRY_COUNT);
    for (path, entry) in entries() {
        assert!(table.insert(path, entry).is_ok(), "the table has room for twice as many");
    }
    table
});

/// What a look-up needs that does not ask again whether the table is made.
struct Counted(&'static Table<Key, Entry>);

impl LookUp for Counted {
    fn new() -> Counted {
        Counted(&TABLE)
    }

    #[inline(always)]
    fn look_up(&mut self, path: &[u8]) -> u64 {
        self.0.get(path).expect("every path is there").read()
    }
}

struct Leased {
    leases: LocalCache<'static, Key, Entry>,
    look_count: usize,
}

impl LookUp for Leased {
    fn new() -> Leased {
        Leased { leases: LocalCache::new(&TABLE, ENTRY_COUNT), look_count: 0 }
    }

    #[inline(always)]
    fn look_up(&mut self, path: &[u8]) -> u64 {
        self.look_count += 1;
        if self.look_count.is_multiple_of(LOOKS_PER_TURN) {
            self.leases.sweep();
        }
        self.leases.get(path).expect("every path is there").read()
    }
}

/// Look-ups in an order of its own, so that threads seldom want the same entry at once.
struct Order<L> {
    way: L,
    at: usize,
}

impl<L: LookUp> Order<L> {
    /// It has met every entry once: nothing of a run is a first time.
    fn new(number: usize) -> Order<L> {
        let mut order = Order { way: L::new(), at: number * 61 };
        order.run(ENTRY_COUNT);
        order
    }
}

impl<L: LookUp> Candidate for Order<L> {
    fn run(&mut self, operation_count: usize) {
        let paths = &*PATHS;
        let mut sum = 0_u64;
        for _ in 0..operation_count {
            self.at = (self.at + STEP) % ENTRY_COUNT;
            sum = sum.wrapping_add(self.way.look_up(&paths[self.at]));
        }
        black_box(sum);
    }
}

fn alone<L: LookUp + 'static>() -> Box<dyn Candidate> {
    Box::new(Order::<L>::new(0))
}

fn together<L: LookUp + 'static, const THREADS: usize>() -> Box<dyn Candidate> {
    Box::new(Crew::new::<L>(THREADS))
}

/// Threads that look up at the same time, whenever they are told; a run ends with the last of them.
struct Crew {
    /// Met before a run and behind it, by the threads and by whoever measures.
    barrier: Arc<Barrier>,
    /// Look-ups of each thread in the run that begins; none when there will be no more.
    task: Arc<Mutex<usize>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    fn new<L: LookUp>(thread_count: usize) -> Crew {
        let barrier = Arc::new(Barrier::new(thread_count + 1));
        let task = Arc::new(Mutex::new(0));
        let threads = (0..thread_count)
            .map(|number| {
                let (barrier, task) = (Arc::clone(&barrier), Arc::clone(&task));
                thread::spawn(move || {
                    let mut order = Order::<L>::new(number);
                    barrier.wait();
                    loop {
                        barrier.wait();
                        let count = *task.lock().expect("nobody panics with it");
                        if count == 0 {
                            return;
                        }
                        order.run(count);
                        barrier.wait();
                    }
                })
            })
            .collect();
        // Whoever measures waits until all have met every entry.
        barrier.wait();
        Crew { barrier, task, threads }
    }
}

impl Candidate for Crew {
    fn run(&mut self, operation_count: usize) {
        *self.task.lock().expect("nobody panics with it") = operation_count / self.threads.len();
        self.barrier.wait();
        self.barrier.wait();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        *self.task.lock().expect("nobody panics with it") = 0;
        self.barrier.wait();
        for thread in self.threads.drain(..) {
            thread.join().expect("a look-up does not panic");
        }
    }
}
