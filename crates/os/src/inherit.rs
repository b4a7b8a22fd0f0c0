//! Descriptors that a process was given at its start, by the convention of systemd (sd_listen_fds(3)): so many from 3
//! on, each with a name.

use crate::cloexec;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Number of the first descriptor that is handed over.
pub const FIRST: RawFd = 3;
/// Tells how many there are.
pub const COUNT_VARIABLE: &str = "LISTEN_FDS";
/// Tells their names, parted by colons.
pub const NAMES_VARIABLE: &str = "LISTEN_FDNAMES";
/// Tells for whom they are meant.
pub const PID_VARIABLE: &str = "LISTEN_PID";
/// Descriptors that anybody may hand over.
const COUNT_MAX: usize = 4_096;

/// A descriptor that was handed over, with its name; without one it is `unknown`, as systemd says.
pub type Named = (String, OwnedFd);

/// Takes the descriptors that this process was given, and closes them on exec from now on. None when there are none, or
/// when they are meant for another process.
///
/// # Safety
/// To be called once, before any thread runs and before anything is opened: the numbers in the environment are then
/// owned by nobody else, and nobody reads the environment while the variables are removed.
pub unsafe fn take() -> io::Result<Vec<Named>> {
    let variable = |name| std::env::var(name).ok();
    let is_ours = variable(PID_VARIABLE).is_none_or(|pid| pid == std::process::id().to_string());
    let count = variable(COUNT_VARIABLE).filter(|_| is_ours).and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    let names = variable(NAMES_VARIABLE).unwrap_or_default();
    for name in [PID_VARIABLE, COUNT_VARIABLE, NAMES_VARIABLE] {
        // SAFETY: no other thread runs, as the caller guarantees.
        unsafe { std::env::remove_var(name) };
    }
    let mut names = names.split(':').filter(|name| !name.is_empty());
    let mut taken = Vec::new();
    for index in 0..count.min(COUNT_MAX) {
        let name = names.next().unwrap_or("unknown").to_owned();
        let number = FIRST + index as RawFd;
        // SAFETY: the number was given to this process for it to own, and nobody has taken it, as the caller
        // guarantees. One that is not open fails the next call.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        if let Err(error) = cloexec::set(&descriptor, &format!("descriptor {number} ({name})")) {
            // Not open, and so not to be closed.
            std::mem::forget(descriptor);
            return Err(error);
        }
        taken.push((name, descriptor));
    }
    Ok(taken)
}
