//! A failed call for people: the name of the call that was really made, the object it was made on, the kernel's reason.

use std::io;

/// `error` with the call and its object before it: `bind("127.0.0.1:80") failed: Permission denied (os error 13)`.
///
/// For the edge where an operator reads it; the hot path keeps the bare error.
pub fn with_context(call: &str, object: impl std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}(\"{object}\") failed: {error}"))
}

/// What the kernel's reason means to whoever asked for a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// Nothing is there, or nothing that may be reached: a link that leads out of its root is as good as none.
    NotFound,
    /// It is there, and not for us.
    PermissionDenied,
    /// No descriptors or no memory are left.
    Exhausted,
    /// Anything else.
    Other,
}

/// What `error` means.
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
