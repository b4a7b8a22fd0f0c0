//! The processor time that the calling thread has used, which sharing the machine with others does not lengthen.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of processor time of this thread, in user space and in the kernel. Itself a system call of some 100 ns.
#[inline]
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
