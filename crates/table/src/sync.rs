//! Names the atomics, the lock and the cell that the table stands on: the standard library's, or loom's when it is proved.

use core::sync::atomic::Ordering;

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64},
    sync::{Mutex, MutexGuard},
};

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64},
    sync::{Mutex, MutexGuard},
};

/// The standard cell with the two methods of loom's, which must know when an access begins and ends.
#[cfg(not(loom))]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}

/// A value on cache lines of its own: 64 bytes, since neighbours 128 bytes apart measured no quieter.
#[repr(align(64))]
pub(crate) struct Line<T>(pub(crate) T);

/// Whether this fault is planted. Never in a program: only loom's build has them, one in a run, named by the variable
/// `TABLE_PLANTED`, so that `tests/loom.rs` can see each of them caught.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn planted(_fault: &str) -> bool {
    false
}

#[cfg(loom)]
pub(crate) fn planted(fault: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("TABLE_PLANTED").ok()).as_deref() == Some(fault)
}

/// The sound ordering, or Relaxed where that fault is planted.
#[inline(always)]
pub(crate) fn unless_planted(fault: &str, sound: Ordering) -> Ordering {
    if planted(fault) { Ordering::Relaxed } else { sound }
}
