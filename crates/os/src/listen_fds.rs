//! File descriptors passed to a process at start, by the convention of systemd (sd_listen_fds(3)): numbered from 3,
//! each with a name.
//!
//! An inherited descriptor is not close-on-exec, and everything that this process opens is. This distinguishes them,
//! and since taking a descriptor sets the flag, each can be taken only once.

use crate::cloexec;
use crate::counters::{Syscall, count};
use rustix::io::FdFlags;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// The first descriptor passed.
pub const FIRST_FD: RawFd = 3;
/// The environment variable with the number of descriptors.
pub const COUNT_VARIABLE: &str = "LISTEN_FDS";
/// The environment variable for a program that inherits none.
pub const NO_FDS: (&str, &str) = (COUNT_VARIABLE, "");
/// The environment variable with their names, separated by colons.
pub const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";
/// The environment variable with the process they are for; empty for any process.
pub const PID_VARIABLE: &str = "LISTEN_PID";
/// Descriptors that may be passed.
const COUNT_MAX: usize = 4_096;

/// A descriptor with its name; `unknown` if none is given, as in systemd.
pub type NamedFd = (String, OwnedFd);

/// Takes the descriptors that the environment lists and makes them close-on-exec. Empty if there are none, or if they
/// are for another process.
///
/// # Errors
/// Returns an error if a descriptor is not open or was already taken, or if there are too many.
pub fn take() -> io::Result<Vec<NamedFd>> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_for_us = variable(PID_VARIABLE).is_none_or(|pid| pid == std::process::id().to_string());
    let count = variable(COUNT_VARIABLE).filter(|_| is_for_us).and_then(|count| count.parse().ok()).unwrap_or(0);
    if count > COUNT_MAX {
        let problem = format!("{COUNT_VARIABLE}={count} is too large, the limit is {COUNT_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let names = variable(NAMES_VARIABLE).unwrap_or_default();
    let names = names.split(':').filter(|name| !name.is_empty()).chain(std::iter::repeat("unknown"));
    let numbers = FIRST_FD..FIRST_FD + count as RawFd;
    let _guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    numbers.clone().try_for_each(check)?;
    // A single call covers all of them, and any other inherited descriptor.
    cloexec::set_from(FIRST_FD)?;
    // SAFETY: `check` proved each open and without an owner.
    Ok(numbers.zip(names).map(|(number, name)| (name.to_owned(), unsafe { OwnedFd::from_raw_fd(number) })).collect())
}

/// Two threads must not both find the same descriptor untaken.
static LOCK: Mutex<()> = Mutex::new(());

/// Takes the inherited descriptor `number` and makes it close-on-exec.
///
/// # Errors
/// Returns an error if the descriptor is not open, was opened or taken in this process, or is a standard stream.
pub fn take_fd(number: RawFd) -> io::Result<OwnedFd> {
    let _guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    check(number)?;
    // SAFETY: `check` proved it open and without an owner.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    cloexec::set(&descriptor, &format!("descriptor {number}"))?;
    Ok(descriptor)
}

/// Checks that descriptor `number` is open and has no owner in this process: all that is opened or taken here is
/// close-on-exec (by this crate and the standard library).
fn check(number: RawFd) -> io::Result<()> {
    let error = |reason: &str| io::Error::other(format!("inherited descriptor {number} {reason}"));
    if number < FIRST_FD {
        return Err(error("is a standard stream"));
    }
    // SAFETY: only its flags are read; if it is not open, that fails with EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    count(Syscall::Fcntl);
    let flags = rustix::io::fcntl_getfd(borrowed).map_err(|_| error("is not open"))?;
    if flags.contains(FdFlags::CLOEXEC) {
        return Err(error("belongs to this process already"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

    #[test]
    fn inherited_descriptor_is_taken_only_once() {
        let _serial = cloexec::tests::serialise();
        let own = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("created");
        let error = take_fd(own.as_raw_fd()).expect_err("ours");
        assert!(error.to_string().ends_with("belongs to this process already"), "{error}");
        // As after an exec.
        cloexec::clear(own.as_fd(), "test").expect("cleared");
        let taken = take_fd(own.into_raw_fd()).expect("taken");
        take_fd(taken.as_raw_fd()).expect_err("taken already");
    }

    #[test]
    fn closed_descriptor_and_standard_stream_are_refused() {
        let error = take_fd(1_000_000).expect_err("not open");
        assert_eq!(error.to_string(), "inherited descriptor 1000000 is not open");
        take_fd(1).expect_err("a standard stream");
    }
}
