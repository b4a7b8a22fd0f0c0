//! A concurrent table of shared values: look-ups take no lock, never wait, and never see a dropped value.
//!
//! [`Table::get`] returns a [`Ref`], a counted reference to a value. A worker that looks up the same keys repeatedly
//! uses a [`LocalCache`] of such references. An invalidated entry is no longer found; its value is dropped with the
//! last reference, and never later.
//!
//! ```
//! use sanderling_table::{LocalCache, Table};
//!
//! let table: Table<Box<[u8]>, String> = Table::new(1_000);
//! table.insert(b"/".as_slice().into(), "home".into()).expect("the table is empty");
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         let mut cache = LocalCache::new(&table, 100);
//!         for _iteration in 0..3 {
//!             cache.sweep();
//!             let home = cache.get(b"/".as_slice()).expect("it is valid");
//!             assert_eq!(**home, "home");
//!         }
//!     });
//! });
//! assert_eq!(table.invalidate(b"/".as_slice()).as_deref().map(String::as_str), Some("home"));
//! assert!(table.get(b"/".as_slice()).is_none());
//! ```
//!
//! # Structure
//!
//! ```text
//!   LocalCache of a worker                  Table, shared by all
//!  ┌───────────────────────┐
//!  │ hash ─▶ tag, slot + 1 ┼────────────────────────────┐
//!  │         and reference │                            │
//!  └───────────────────────┘    current index           │    segments, made on demand
//!                             ┌─────┬───────────┐       │   ┌──────────────────────────────────────┐
//!   hash of a key ──low half─▶│ tag │ slot + 1 ─┼───────┴──▶│ slot: reference count                │ own cache line
//!                  high half =│ tag │ tombstone │           │       ─────────────────────────────  │
//!                             │  –  │   empty   │           │       generation │ hash, key, value  │
//!                             └─────┴───────────┘           ├──────────────────────────────────────┤
//!   replaced indexes          ┌───┐ ┌───┐                   │ slot ─▶ slot ─▶ … the free list      │
//!   stay and alternate        └───┘ └───┘                   └──────────────────────────────────────┘
//!                                                             neither moved nor freed before the table
//! ```
//!
//! * **Look-up**: probe the index, increment the slot's count unless the entry is dead, then check that the bucket is
//!   unchanged and the generation valid; if not, decrement and start again. Then compare the key.
//! * **Invalidation**, with the writers' lock: the bucket becomes a tombstone or the successor's bucket; the generation
//!   changes; the table's version changes. The table's own reference is dropped after the lock is released.
//! * **Last decrement**: drops the entry, then frees its slot.
//! * **Cached look-up**: a private probe and one load of the generation. The worker owns a reference, so a lost race
//!   can only use an entry a moment after its invalidation, or drop it one sweep later.
//!
//! A slot that was reused for another key is harmless: the reference is to its current entry, and the key is compared.
//! The second check needs the generation too, because a replaced index is not updated by invalidations.
//!
//! Bounds: `capacity_max` values, including invalidated ones with references; memory for the most values so far, and
//! indexes of at most four times the largest; no probe visits a bucket twice; a look-up starts again only after a
//! writer's change.
//!
//! The reasons for this design are in `docs/decisions/0008-local-caches.md`. Tests check it: `tests/loom.rs` checks all
//! interleavings of each race and that injected faults are found, `tests/model.rs` compares with a map,
//! `tests/stress.rs` runs all operations concurrently, also under Miri and ThreadSanitizer.
#![deny(clippy::undocumented_unsafe_blocks)]

// Each module imports only from those below it.
mod local_cache;
mod table;
mod reference;
mod index;
mod slots;
mod slot;
mod ref_count;
mod hash;
mod sync;

pub use local_cache::LocalCache;
pub use reference::{CachedRef, Ref};
pub use slots::CAPACITY_MAX;
pub use table::{Full, Table};
