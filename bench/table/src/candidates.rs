//! The maps themselves: locks, sharded locks, reclaimers, swapped maps, and our table by count and by lease.

use crate::candidate::{Candidate, File};
use crate::key::{Key, Look, own};
use arc_swap::ArcSwap;
use sanderling_table::{LocalCache, Table};
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, RwLock};

type Hash = foldhash::fast::RandomState;
type Map<V> = HashMap<Key, V, Hash>;

fn files<V>(paths: &[Key], alive: &'static AtomicU64, wrap: impl Fn(File) -> V) -> impl Iterator<Item = (Key, V)> {
    paths.iter().zip(0..).map(move |(path, number)| (path.clone(), wrap(File::new(number, alive))))
}

/// Each worker's own map: what nothing that is shared can beat.
pub struct Private(Vec<(Key, u64)>, &'static AtomicU64);

impl Candidate for Private {
    const NAME: &'static str = "private HashMap (floor)";
    const REPLACES: bool = false;
    type Worker<'c> = Map<File>;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        Private(paths.iter().cloned().zip(0..).collect(), alive)
    }
    fn worker(&self) -> Map<File> {
        self.0.iter().map(|(path, number)| (path.clone(), File::new(*number, self.1))).collect()
    }
    #[inline(never)]
    fn turn(worker: &mut Map<File>, paths: &[&Look]) -> u64 {
        paths.iter().fold(0, |sum, &path| sum.wrapping_add(worker[path].read()))
    }
    fn replace(&self, _: &Look, _: File) {}
}

pub struct OneLock(Mutex<Map<Arc<File>>>);

impl Candidate for OneLock {
    const NAME: &'static str = "Mutex<HashMap> + Arc";
    type Worker<'c> = &'c Self;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        OneLock(Mutex::new(files(paths, alive, Arc::new).collect()))
    }
    fn worker(&self) -> &Self {
        self
    }
    #[inline(never)]
    fn turn(worker: &mut &Self, paths: &[&Look]) -> u64 {
        paths.iter().fold(0, |sum, &path| {
            let file = Arc::clone(&worker.0.lock().expect("nobody panics")[path]);
            sum.wrapping_add(file.read())
        })
    }
    fn replace(&self, path: &Look, file: File) {
        let old = self.0.lock().expect("nobody panics").insert(own(path), Arc::new(file));
        drop(old);
    }
}

pub struct ReadLock(RwLock<Map<Arc<File>>>);

impl Candidate for ReadLock {
    const NAME: &'static str = "RwLock<HashMap> + Arc";
    type Worker<'c> = &'c Self;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        ReadLock(RwLock::new(files(paths, alive, Arc::new).collect()))
    }
    fn worker(&self) -> &Self {
        self
    }
    #[inline(never)]
    fn turn(worker: &mut &Self, paths: &[&Look]) -> u64 {
        paths.iter().fold(0, |sum, &path| {
            let file = Arc::clone(&worker.0.read().expect("nobody panics")[path]);
            sum.wrapping_add(file.read())
        })
    }
    fn replace(&self, path: &Look, file: File) {
        let old = self.0.write().expect("nobody panics").insert(own(path), Arc::new(file));
        drop(old);
    }
}

pub struct Sharded(dashmap::DashMap<Key, Arc<File>, Hash>);

impl Candidate for Sharded {
    const NAME: &'static str = "dashmap + Arc";
    type Worker<'c> = &'c Self;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        Sharded(files(paths, alive, Arc::new).collect())
    }
    fn worker(&self) -> &Self {
        self
    }
    #[inline(never)]
    fn turn(worker: &mut &Self, paths: &[&Look]) -> u64 {
        paths.iter().fold(0, |sum, &path| {
            let file = Arc::clone(&*worker.0.get(path).expect("every path is there"));
            sum.wrapping_add(file.read())
        })
    }
    fn replace(&self, path: &Look, file: File) {
        drop(self.0.insert(own(path), Arc::new(file)));
    }
}

/// How long papaya's guard lives, and whether the file outlives it.
pub trait Pinning: Sync {
    const NAME: &'static str;
    fn turn(map: &papaya::HashMap<Key, Arc<File>, Hash>, paths: &[&Look]) -> u64;
}

pub struct Papaya<P>(papaya::HashMap<Key, Arc<File>, Hash>, std::marker::PhantomData<P>);
pub struct EachLook;
pub struct EachLookAndArc;
pub struct EachTurn;

impl Pinning for EachLook {
    const NAME: &'static str = "papaya, pinned for each look";
    fn turn(map: &papaya::HashMap<Key, Arc<File>, Hash>, paths: &[&Look]) -> u64 {
        paths.iter().fold(0, |sum, &path| sum.wrapping_add(map.pin().get(path).expect("every path is there").read()))
    }
}

impl Pinning for EachLookAndArc {
    const NAME: &'static str = "papaya, pinned for each look, + Arc";
    fn turn(map: &papaya::HashMap<Key, Arc<File>, Hash>, paths: &[&Look]) -> u64 {
        paths.iter().fold(0, |sum, &path| {
            let file = Arc::clone(map.pin().get(path).expect("every path is there"));
            sum.wrapping_add(file.read())
        })
    }
}

impl Pinning for EachTurn {
    const NAME: &'static str = "papaya, pinned for each turn";
    fn turn(map: &papaya::HashMap<Key, Arc<File>, Hash>, paths: &[&Look]) -> u64 {
        let pinned = map.pin();
        paths.iter().fold(0, |sum, &path| sum.wrapping_add(pinned.get(path).expect("every path is there").read()))
    }
}

impl<P: Pinning> Candidate for Papaya<P> {
    const NAME: &'static str = P::NAME;
    type Worker<'c>
        = &'c Self
    where
        P: 'c;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        Papaya(files(paths, alive, Arc::new).collect(), std::marker::PhantomData)
    }
    fn worker(&self) -> &Self {
        self
    }
    #[inline(never)]
    fn turn(worker: &mut &Self, paths: &[&Look]) -> u64 {
        P::turn(&worker.0, paths)
    }
    fn replace(&self, path: &Look, file: File) {
        self.0.pin().insert(own(path), Arc::new(file));
    }
}

/// The slab lends by number, so each worker keeps its own map from path to number; replacing is left out.
pub struct Slab(sharded_slab::Slab<File>, Vec<(Key, usize)>);

impl Candidate for Slab {
    const NAME: &'static str = "private HashMap + sharded-slab";
    const REPLACES: bool = false;
    type Worker<'c> = (&'c Self, Map<usize>);

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        let slab = sharded_slab::Slab::new();
        let numbers = files(paths, alive, |file| slab.insert(file).expect("the slab has room")).collect();
        Slab(slab, numbers)
    }
    fn worker(&self) -> (&Self, Map<usize>) {
        (self, self.1.iter().cloned().collect())
    }
    #[inline(never)]
    fn turn(worker: &mut (&Self, Map<usize>), paths: &[&Look]) -> u64 {
        paths.iter().fold(0, |sum, &path| {
            let file = worker.0.0.get(worker.1[path]).expect("every path is there");
            sum.wrapping_add(file.read())
        })
    }
    fn replace(&self, _: &Look, _: File) {}
}

pub struct Swapped(ArcSwap<Map<Arc<File>>>);

impl Swapped {
    fn exchange(&self, path: &Look, file: File) {
        let mut map = Map::clone(&self.0.load());
        map.insert(own(path), Arc::new(file));
        self.0.store(Arc::new(map));
    }
}

impl Candidate for Swapped {
    const NAME: &'static str = "arc-swap of a HashMap, load";
    type Worker<'c> = &'c Self;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        Swapped(ArcSwap::from_pointee(files(paths, alive, Arc::new).collect()))
    }
    fn worker(&self) -> &Self {
        self
    }
    #[inline(never)]
    fn turn(worker: &mut &Self, paths: &[&Look]) -> u64 {
        paths.iter().fold(0, |sum, &path| sum.wrapping_add(worker.0.load()[path].read()))
    }
    fn replace(&self, path: &Look, file: File) {
        self.exchange(path, file);
    }
}

pub struct SwappedCached(Swapped);

impl Candidate for SwappedCached {
    const NAME: &'static str = "arc-swap of a HashMap, Cache";
    type Worker<'c> = arc_swap::Cache<&'c ArcSwap<Map<Arc<File>>>, Arc<Map<Arc<File>>>>;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        SwappedCached(Swapped::new(paths, alive))
    }
    fn worker(&self) -> Self::Worker<'_> {
        arc_swap::Cache::new(&self.0.0)
    }
    #[inline(never)]
    fn turn(worker: &mut Self::Worker<'_>, paths: &[&Look]) -> u64 {
        paths.iter().fold(0, |sum, &path| sum.wrapping_add(worker.load()[path].read()))
    }
    fn replace(&self, path: &Look, file: File) {
        self.0.exchange(path, file);
    }
}

fn table_of(paths: &[Key], alive: &'static AtomicU64) -> Table<Key, File> {
    let table = Table::new(2 * paths.len() + 16);
    for (path, file) in files(paths, alive, |file| file) {
        assert!(table.insert(path, file).is_ok());
    }
    table
}

fn replace_in(table: &Table<Key, File>, path: &Look, file: File) {
    assert!(table.replace(own(path), file).is_ok(), "the table is twice as large as its entries");
}

fn counted_turn(table: &Table<Key, File>, paths: &[&Look]) -> u64 {
    paths.iter().fold(0, |sum, &path| sum.wrapping_add(table.get(path).expect("every path is there").read()))
}

pub struct Counted(Table<Key, File>);

impl Candidate for Counted {
    const NAME: &'static str = "table, counted";
    type Worker<'c> = &'c Self;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        Counted(table_of(paths, alive))
    }
    fn worker(&self) -> &Self {
        self
    }
    #[inline(never)]
    fn turn(worker: &mut &Self, paths: &[&Look]) -> u64 {
        counted_turn(&worker.0, paths)
    }
    fn replace(&self, path: &Look, file: File) {
        replace_in(&self.0, path, file);
    }
}

pub struct Leased(Table<Key, File>);

impl Candidate for Leased {
    const NAME: &'static str = "table, leased";
    type Worker<'c> = LocalCache<'c, Key, File>;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self {
        Leased(table_of(paths, alive))
    }
    fn worker(&self) -> LocalCache<'_, Key, File> {
        LocalCache::new(&self.0, self.0.len())
    }
    #[inline(never)]
    fn turn(worker: &mut LocalCache<'_, Key, File>, paths: &[&Look]) -> u64 {
        worker.sweep();
        paths.iter().fold(0, |sum, &path| sum.wrapping_add(worker.get(path).expect("every path is there").read()))
    }
    fn replace(&self, path: &Look, file: File) {
        replace_in(&self.0, path, file);
    }
}
