//! The atomics, lock and cell of the table: of the standard library, or of loom in its model checking.

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

/// The standard cell with the two methods of loom's, by which loom sees the start and end of an access.
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

/// A value on its own cache lines. 64 bytes: a distance of 128 was not measurably faster.
#[repr(align(64))]
pub(crate) struct CacheLine<T>(pub(crate) T);

/// Whether this fault is planted: one per run, selected by the variable `TABLE_PLANTED`, in loom's build only. The test
/// `each_planted_fault_is_caught` uses it.
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

/// The sound ordering, or Relaxed if that fault is planted.
#[inline(always)]
pub(crate) fn unless_planted(fault: &str, sound: Ordering) -> Ordering {
    if planted(fault) { Ordering::Relaxed } else { sound }
}
