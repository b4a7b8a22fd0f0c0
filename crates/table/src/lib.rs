//! Lends values to threads: a look-up takes no lock, waits for nobody, and never meets a value that was dropped.
//!
//! A worker asks a [`Table`] for a key and gets a [`Ref`]: the value with a reference of its own. A worker that asks for
//! the same keys again and again asks its own [`LocalCache`], which took such references once. Retiring an entry stops its
//! lending at once; its value is dropped by whoever holds it last, and by nothing later.
//!
//! ```
//! use sanderling_table::{LocalCache, Table};
//!
//! let table: Table<Box<[u8]>, String> = Table::new(1_000);
//! table.insert(b"/".as_slice().into(), "home".into()).expect("the table is empty");
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         let mut leases = LocalCache::new(&table, 100);
//!         for _turn in 0..3 {
//!             leases.sweep();
//!             let home = leases.get(b"/".as_slice()).expect("it is not retired");
//!             assert_eq!(**home, "home");
//!         }
//!     });
//! });
//! assert_eq!(table.invalidate(b"/".as_slice()).as_deref().map(String::as_str), Some("home"));
//! assert!(table.get(b"/".as_slice()).is_none());
//! ```
//!
//! # Shape
//!
//! ```text
//!   LocalCache of a worker                      Table, shared by all
//!  ┌───────────────────────┐
//!  │ hash ─▶ tag, slot + 1 ┼────────────────────────────┐
//!  │         and reference │                            │
//!  └───────────────────────┘    index in use            │    segments, made on demand
//!                             ┌─────┬───────────┐       │   ┌──────────────────────────────────────┐
//!   hash of a key ──low half─▶│ tag │ slot + 1 ─┼───────┴──▶│ slot: count of references            │ own line
//!                  high half =│ tag │ tombstone │           │       ─────────────────────────────  │
//!                             │  –  │   empty   │           │       generation │ hash, key, value  │
//!                             └─────┴───────────┘           ├──────────────────────────────────────┤
//!   indexes that were replaced ┌───┐ ┌───┐                  │ slot ─▶ slot ─▶ … the free list      │
//!   stay, and take turns       └───┘ └───┘                  └──────────────────────────────────────┘
//!                                                             neither moved nor freed with the table alive
//! ```
//!
//! * **Look-up**: index, place, slot; take a reference, but none of a dead entry; then read the place again and ask the
//!   generation whether the entry is still lent. If either says no, put the reference and begin anew. Then compare the key.
//! * **Retire**, with the writers' lock: the place becomes a tombstone, or means the entry's successor; the
//!   generation moves on, which makes leases stale; the table's version moves on, which tells workers to sweep. After
//!   the lock is given back, the table's own reference is put.
//! * **Last put**: drops the entry, and only then hands its slot to the free list. Nothing else hands slots out.
//! * **Lease**: a private look-up and one load of the slot's generation, beside the key that is compared anyway. Since
//!   the worker owns a reference, the worst that a lost race can do is to use a value a moment after it was retired, or
//!   to drop it one turn later.
//!
//! It is how FreeBSD's kernel has looked up files since 2009: memory that stays what it is, a count that is never raised
//! from the dead, and a second look. Here the second look asks the entry as well as the place, because an index that
//! has been replaced never learns of a retirement. What looks like the other great hazard, a slot that was used again
//! for another key, is harmless: the reference is good for whatever stands there, and the key is compared.
//!
//! # Two ways to take a reference
//!
//! [`Taking::Exchange`] and [`Taking::Add`] do the same to the same word, and both are proved. The addition is the
//! default: one hot entry, looked up and put back, took 18.3 to 19.0 ns of processor time by addition and 20.5 to 21.9 ns by
//! exchange (tenth percentiles at 1 to 16 threads on two busy processors, numbers as keys; a mutex around a map 32 to 36 ns,
//! a lease 4.2 to 4.6 ns). And its cost does not grow with the number of threads that try at once, as that of a loop
//! does. `cargo run --release --features numbers` in `bench/table` makes these figures, and more.
//!
//! # What is bounded
//!
//! Values, the retired ones that are still held among them: `capacity_max`. LocalCache of a worker: `leases_max`. Memory: slots
//! for the most values there ever were, and indexes that are together at most four times the largest. A walk through
//! an index: half of the places are empty, and no walk goes around twice. A look-up begins anew only when a writer changed
//! something under it, so that some thread always gets on.
//!
//! # What it does not do
//!
//! It knows no time, no order of use and no files: who wants to evict the entry used longest ago keeps that in the
//! value and asks [`Table::invalidate_where`]. Writers wait for each other. Opening a file for a key that is missing is not
//! done once for all: who inserts second gets the existing. It needs `std` for the writers' lock and for a seed.
//!
//! # Proof
//!
//! * `RUSTFLAGS="--cfg loom" cargo test -p sanderling-table --release --test loom`: every race of two threads, in all
//!   interleavings, for both ways of taking; and each of the planted faults must be caught by it.
//! * `cargo test -p sanderling-table`: promises one by one, any sequence against a plain map, and all at once under
//!   stress (`TABLE_STRESS_STEPS` for longer).
//! * `cargo +nightly miri test -p sanderling-table --lib --test table --test stress`: no undefined behaviour in what those
//!   do; and ThreadSanitizer finds no race in the stress (`RUSTFLAGS=-Zsanitizer=thread`, `-Zbuild-std`).
#![deny(clippy::undocumented_unsafe_blocks)]

// Each module imports only from those below it.
mod local_cache;
mod table;
mod reference;
mod index;
mod slots;
mod slot;
mod count;
mod hash;
mod sync;

pub use count::Taking;
pub use local_cache::LocalCache;
pub use reference::{CachedRef, Ref};
pub use slots::CAPACITY_MAX;
pub use table::{Full, InsertError, Table, TableStats};
