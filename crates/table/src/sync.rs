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

/// Whether this fault is injected: one per run, selected by the variable `TABLE_FAULT`, in loom's build only. The test
/// `each_injected_fault_is_caught` uses it.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) const fn fault_injected(_fault: &str) -> bool {
    false
}

#[cfg(loom)]
pub(crate) fn fault_injected(fault: &str) -> bool {
    static INJECTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    INJECTED.get_or_init(|| std::env::var("TABLE_FAULT").ok()).as_deref() == Some(fault)
}

/// The sound ordering, or Relaxed if that fault is injected.
#[inline(always)]
pub(crate) fn unless_injected(fault: &str, sound: Ordering) -> Ordering {
    if fault_injected(fault) { Ordering::Relaxed } else { sound }
}
