//! What passes between a connection and the protocol on it: what the protocol may know of the connection, and what it made
//! of the input.

use crate::send_queue::FileChunk;
use std::net::SocketAddr;

/// How a connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseMode {
    /// At once, if all that the client sent was received.
    AtOnce,
    /// After a wait for the client: something may still be arriving, for which the kernel would reset the connection.
    Linger,
}

/// What the protocol made of the input.
#[derive(Debug)]
pub(crate) enum Step<'s> {
    /// The rest of a request is missing.
    Partial,
    /// A request was answered: output was written, and a part of a file follows it, if any.
    Answered(Option<FileChunk<'s>>),
    /// The same, and it is the last answer.
    Last(CloseMode, Option<FileChunk<'s>>),
    /// The request, still in the input, waits for a job.
    WaitForJob,
    /// The input is not of this protocol: the connection closes without an answer.
    Invalid,
}

/// What the protocol may know of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionInfo<'c> {
    pub(crate) client: &'c SocketAddr,
    /// Requests answered before.
    pub(crate) answered_count: u64,
    /// More bytes may have arrived than the input holds.
    pub(crate) may_have_sent_more: bool,
}
