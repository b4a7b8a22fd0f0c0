//! The process's heap.

/// Returns the free memory of the heap to the system, where the allocator can (malloc_trim(3), glibc); it keeps it
/// otherwise.
///
/// Threads that allocate meanwhile wait for the part of the heap that is being searched: some milliseconds for each 64
/// MiB of free memory.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it has no requirements; the heap is locked while it is searched.
        unsafe { libc::malloc_trim(0) };
    }
}
