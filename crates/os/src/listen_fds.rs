//! Descriptors that a process was given at its start, by the convention of systemd (sd_listen_fds(3)): so many from 3
//! on, each with a name.
//!
//! What was inherited has lived through exec and so is not close-on-exec; whatever this process opens itself is. That
//! tells the two apart, and taking a descriptor marks it: it can be taken once.

use crate::cloexec;
use crate::counters::{Syscall, count};
use rustix::io::FdFlags;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

/// Number of the first descriptor that is handed over.
pub const FIRST_FD: RawFd = 3;
/// Tells how many there are.
pub const COUNT_VARIABLE: &str = "LISTEN_FDS";
/// Tells their names, parted by colons.
pub const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";
/// Tells for whom they are meant; empty for whoever is started with it.
pub const PID_VARIABLE: &str = "LISTEN_PID";
/// Descriptors that anybody may hand over.
const COUNT_MAX: usize = 4_096;

/// A descriptor that was handed over, with its name; without one it is `unknown`, as systemd says.
pub type NamedFd = (String, OwnedFd);

/// Takes the descriptors that the environment says were handed to this process, and closes them on exec from now on.
/// None when there are none, or when they are meant for another process.
///
/// # Errors
/// One of them is not open, or was taken already; or they are too many.
pub fn take() -> io::Result<Vec<NamedFd>> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_ours = variable(PID_VARIABLE).is_none_or(|pid| pid == std::process::id().to_string());
    let count = variable(COUNT_VARIABLE).filter(|_| is_ours).and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    let names = variable(NAMES_VARIABLE).unwrap_or_default();
    let mut names = names.split(':').filter(|name| !name.is_empty());
    if count > COUNT_MAX {
        let problem = format!("{COUNT_VARIABLE}={count}: at most {COUNT_MAX} descriptors can be handed over");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let numbers = (0..count).map(|index| FIRST_FD + index as RawFd);
    let named = numbers.map(|number| (names.next().unwrap_or("unknown").to_owned(), number));
    let named: Vec<(String, RawFd)> = named.collect();
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    named.iter().try_for_each(|(_, number)| check(*number))?;
    // One call for all of them, and for whatever else was inherited.
    cloexec::set_from(FIRST_FD)?;
    // SAFETY: each was checked just now.
    Ok(named.into_iter().map(|(name, number)| (name, unsafe { OwnedFd::from_raw_fd(number) })).collect())
}

/// Two threads that ask for the same number must not both find it untaken.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Takes descriptor `number`, which this process has inherited, and closes it on exec from now on.
///
/// # Errors
/// It is not open, it was opened or taken in this process, or it is one of the standard streams.
pub fn take_fd(number: RawFd) -> io::Result<OwnedFd> {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    check(number)?;
    // SAFETY: it was checked just now, and is only borrowed.
    cloexec::set(unsafe { BorrowedFd::borrow_raw(number) }, &format!("descriptor {number}"))?;
    // SAFETY: it was checked just now.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Whether descriptor `number` is open and nobody in this process owns it: all that is opened here is close-on-exec from
/// its creation (this crate and the standard library see to that), as is whatever was taken before.
fn check(number: RawFd) -> io::Result<()> {
    let refused = |why: &str| io::Error::other(format!("descriptor {number}, which is said to be handed over, {why}"));
    if number < FIRST_FD {
        return Err(refused("is a standard stream"));
    }
    // SAFETY: the number is only asked about; one that is not open gives EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    count(Syscall::Fcntl);
    let flags = rustix::io::fcntl_getfd(borrowed).map_err(|_| refused("is not open"))?;
    if flags.contains(FdFlags::CLOEXEC) {
        return Err(refused("belongs to this process already"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd, IntoRawFd};

    #[test]
    fn what_was_inherited_is_taken_once() {
        let own = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("made");
        let error = take_fd(own.as_raw_fd()).expect_err("ours");
        assert!(error.to_string().contains("belongs to this process already"), "{error}");
        // As if it had come through exec.
        cloexec::clear(own.as_fd(), "a test's").expect("cleared");
        let taken = take_fd(own.into_raw_fd()).expect("taken");
        take_fd(taken.as_raw_fd()).expect_err("taken already");
    }

    #[test]
    fn what_is_not_open_is_told() {
        let error = take_fd(1_000_000).expect_err("not open");
        assert!(error.to_string().contains("descriptor 1000000") && error.to_string().contains("not open"), "{error}");
        take_fd(1).expect_err("a standard stream");
    }
}
