//! The processors that this process may use, and a thread's stay on one of them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// The numbers of the processors that this process may use, in order.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&number| set.is_set(number)).collect())
}

/// Keeps the calling thread on one processor, until it ends.
pub fn stay_on(number: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(number);
    Ok(sched_setaffinity(None, &set)?)
}
