//! The request that waits for another thread, and the event that it waits for.

use crate::file_error::FileError;
use crate::slab::Key;

/// Where an event goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) worker_index: usize,
    pub(crate) connection: Key,
    /// The stream of the request in HTTP/2; 0 in HTTP/1.1.
    pub(crate) stream: u32,
}

/// The event for which a request has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A file was looked up: the cache has the answer now, unless there is an error that it does not keep.
    LookedUp(Result<(), FileError>),
    /// A password was checked, or the check refused.
    PasswordChecked,
    /// A piece of a file was read.
    Read,
    /// A backend has responded, has more of its response, or takes more of the request.
    Backend,
    /// An update was carried out or refused, and has its reply.
    UpdateAnswered,
}
