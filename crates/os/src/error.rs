//! Errors of system calls: adds the call and its object for the operator, and classifies errors for the caller.

use std::io;

/// Puts the call and its object before `error`: `bind("127.0.0.1:80") failed: Permission denied (os error 13)`.
///
/// For errors that an operator reads; the hot path keeps the bare error.
pub fn with_context(call: &str, object: impl std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}(\"{object}\") failed: {error}"))
}

/// The class of an error of a call that opens or accepts something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The object does not exist, or is out of reach: a link that leads out of its root counts as absent.
    NotFound,
    /// The object exists, and this process may not use it.
    PermissionDenied,
    /// No file descriptor or no memory is left.
    Exhausted,
    /// Anything else.
    Other,
}

/// The class of `error`.
pub fn classify(error: &io::Error) -> ErrorClass {
    match error.raw_os_error() {
        Some(
            libc::ENOENT | libc::ENOTDIR | libc::EXDEV | libc::ELOOP | libc::ENAMETOOLONG | libc::ENXIO | libc::ENODEV,
        ) => ErrorClass::NotFound,
        Some(libc::EACCES | libc::EPERM) => ErrorClass::PermissionDenied,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => ErrorClass::Exhausted,
        _ => ErrorClass::Other,
    }
}
