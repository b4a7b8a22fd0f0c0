//! The request that waits for a job or for the control thread.

use crate::slab::Key;

/// Where the completion of a job goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) worker_index: usize,
    pub(crate) connection: Key,
    /// The stream of the request in HTTP/2; 0 in HTTP/1.1.
    pub(crate) stream: u32,
}
