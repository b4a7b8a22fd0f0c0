//! Gives every map the same face: workers who look paths up in turns, and somebody who replaces an entry.

use crate::key::{Key, Look};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Stands for an open file: what a request reads of it, and a count of those that are alive.
pub struct File {
    pub descriptor: u64,
    pub length_bytes: u64,
    pub alive: &'static AtomicU64,
}

impl File {
    pub fn new(descriptor: u64, alive: &'static AtomicU64) -> File {
        alive.fetch_add(1, Relaxed);
        File { descriptor, length_bytes: 512, alive }
    }

    #[inline(always)]
    pub fn read(&self) -> u64 {
        self.descriptor ^ self.length_bytes
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Relaxed);
    }
}

/// A map under test. A turn looks all of its paths up, as one pass of a worker's loop does, and returns a sum of what it
/// read so that nothing is optimised away.
pub trait Candidate: Sync {
    const NAME: &'static str;
    /// Whether an entry can be replaced while others look.
    const REPLACES: bool = true;
    type Worker<'c>
    where
        Self: 'c;

    fn new(paths: &[Key], alive: &'static AtomicU64) -> Self;
    fn worker(&self) -> Self::Worker<'_>;
    fn turn(worker: &mut Self::Worker<'_>, paths: &[&Look]) -> u64;
    fn replace(&self, path: &Look, file: File);
}
