//! Errors of system calls: adds the call and its object for the operator, and classifies errors for the caller.

use std::io;

/// Puts the call and its object before `error`: `bind("127.0.0.1:80") failed: Permission denied (os error 13)`.
///
/// This is for errors that an operator reads; the hot path keeps the bare error.
pub fn with_context(call: &str, object: impl std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{call}(\"{object}\") failed: {error}"))
}

/// The number of `error` for another process (errno(3)), which makes an error of it by
/// [`io::Error::from_raw_os_error`]: that of the call, of a denial or of a full queue; `EIO` for any other one.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        _ => libc::EIO,
    })
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

/// Repeats a call once if it has failed for lack of memory, by an interruption or by a disk error: a temporary fault
/// must not cost a site, a zone or a wakeup. This is for calls that can be repeated.
pub fn with_second_try<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound, PermissionDenied};
    call().or_else(|error| match error.kind() {
        NotFound | PermissionDenied | NotADirectory | InvalidFilename | InvalidInput => Err(error),
        _ => call(),
    })
}

/// Whether `error` means that the file, or its folder, does not exist.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
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

/// Whether a path was not opened because it leads out of its root
/// ([`Directory::open_beneath`](crate::directory::Directory::open_beneath)).
pub fn leads_out(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EXDEV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_that_may_pass_have_a_second_try() {
        for (code, try_count) in [(libc::ENOENT, 1), (libc::EACCES, 1), (libc::ENOMEM, 2), (libc::EIO, 2)] {
            let mut count = 0;
            let result: io::Result<()> = with_second_try(|| {
                count += 1;
                Err(io::Error::from_raw_os_error(code))
            });
            assert_eq!((result.expect_err("both fail").raw_os_error(), count), (Some(code), try_count));
        }
        let mut results = [Ok(7), Err(io::Error::from_raw_os_error(libc::EINTR))].into_iter().rev();
        assert_eq!(with_second_try(|| results.next().expect("two tries")).expect("the second"), 7);
    }
}
