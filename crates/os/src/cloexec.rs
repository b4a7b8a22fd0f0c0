//! Sets and clears the close-on-exec flag of open descriptors.
//!
//! Descriptors created by this crate have it from the start (`O_CLOEXEC`, `SOCK_CLOEXEC`, `accept4`), so that no child
//! can inherit one by chance. This module is for inherited descriptors, and for those that a child is meant to inherit.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use crate::fallback::{Feature, Variant};
use rustix::io::{FdFlags, fcntl_setfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// The calls that set the flag. Both cost the same without the C library; `fcntl` is first since it works on every
/// descriptor.
pub static CLOEXEC: Feature = Feature::new(
    "cloexec",
    &[
        Variant { name: "fcntl", is_supported: || true },
        Variant { name: "fioclex", is_supported: fioclex_is_supported },
    ],
);

const BY_FCNTL: usize = 0;

/// The calls that set the flag for a range of descriptors: one `close_range(CLOSE_RANGE_CLOEXEC)` (Linux 5.11), or one
/// by one.
pub static CLOEXEC_RANGE: Feature = Feature::new(
    "cloexec-range",
    &[
        Variant { name: "close_range", is_supported: close_range_is_supported },
        Variant { name: "per-fd", is_supported: || true },
    ],
);

const BY_CLOSE_RANGE: usize = 0;

/// Sets the flag: `descriptor` is closed on exec. `object` names it in an error.
pub fn set(descriptor: impl AsFd, object: &str) -> io::Result<()> {
    change(&descriptor, true, object)
}

/// Clears the flag: `descriptor` stays open through exec. `object` names it in an error.
pub fn clear(descriptor: impl AsFd, object: &str) -> io::Result<()> {
    change(&descriptor, false, object)
}

/// Sets the flag of all open descriptors from `first` up.
pub fn set_from(first: RawFd) -> io::Result<()> {
    if CLOEXEC_RANGE.selected() == BY_CLOSE_RANGE {
        return set_range(first, RawFd::MAX);
    }
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(descriptor) = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        if descriptor >= first {
            count(Syscall::Fcntl);
            // SAFETY: sets a flag; a descriptor that was closed meanwhile gives EBADF, which does no harm.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

fn set_range(first: RawFd, last: RawFd) -> io::Result<()> {
    count(Syscall::CloseRange);
    // SAFETY: changes only flags of descriptors; none is closed, so no owner loses one.
    let status = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Tries a range without open descriptors.
fn close_range_is_supported() -> bool {
    set_range(RawFd::MAX - 1, RawFd::MAX).is_ok()
}

fn change(descriptor: &impl AsFd, close_on_exec: bool, object: &str) -> io::Result<()> {
    if CLOEXEC.selected() != BY_FCNTL {
        match change_by_ioctl(descriptor, close_on_exec) {
            // FIOCLEX refuses descriptors opened with O_PATH (EBADF), which fcntl accepts.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
            Err(error) => {
                let call = if close_on_exec { "ioctl(FIOCLEX)" } else { "ioctl(FIONCLEX)" };
                return Err(with_context(call, object, &error));
            }
            Ok(()) => return Ok(()),
        }
    }
    count(Syscall::Fcntl);
    let flags = if close_on_exec { FdFlags::CLOEXEC } else { FdFlags::empty() };
    fcntl_setfd(descriptor, flags).map_err(|errno| {
        let call = if close_on_exec { "fcntl(F_SETFD, FD_CLOEXEC)" } else { "fcntl(F_SETFD, 0)" };
        with_context(call, object, &errno.into())
    })
}

fn change_by_ioctl(descriptor: &impl AsFd, close_on_exec: bool) -> io::Result<()> {
    count(Syscall::Fioclex);
    let request = if close_on_exec { libc::FIOCLEX } else { libc::FIONCLEX };
    // SAFETY: FIOCLEX and FIONCLEX take no argument and change only the descriptor's own flag.
    match unsafe { libc::ioctl(descriptor.as_fd().as_raw_fd(), request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the flag and reads it back: some systems accept FIOCLEX without any effect.
fn fioclex_is_supported() -> bool {
    let Ok(event) = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()) else {
        return false;
    };
    change_by_ioctl(&event, true).is_ok()
        && rustix::io::fcntl_getfd(&event).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Serialises the tests that set the flag of all descriptors of the process, start a child, or need a descriptor
    /// without the flag.
    pub(crate) fn serialise() -> MutexGuard<'static, ()> {
        static LOCK: Mutex<()> = Mutex::new(());
        LOCK.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn null() -> OwnedFd {
        open("/dev/null", OFlags::RDONLY, Mode::empty()).expect("/dev/null")
    }

    #[track_caller]
    fn is_close_on_exec(descriptor: impl AsFd) -> bool {
        rustix::io::fcntl_getfd(descriptor).expect("open").contains(FdFlags::CLOEXEC)
    }

    #[test]
    fn every_variant_sets_and_clears_the_flag() {
        let _serial = serialise();
        let selected = |file: &OwnedFd, is_set| change(file, is_set, "/dev/null");
        for change in [selected as fn(&OwnedFd, bool) -> io::Result<()>, change_by_ioctl] {
            let file = null();
            assert!(!is_close_on_exec(&file));
            change(&file, true).expect("set");
            assert!(is_close_on_exec(&file));
            change(&file, false).expect("clear");
            assert!(!is_close_on_exec(&file));
        }
        assert!(fioclex_is_supported());
    }

    #[test]
    fn path_descriptor_falls_back_to_fcntl() {
        let path = open("/", OFlags::PATH, Mode::empty()).expect("/");
        assert_eq!(change_by_ioctl(&path, true).expect_err("refused").raw_os_error(), Some(libc::EBADF));
        set(&path, "/").expect("by fcntl");
        assert!(is_close_on_exec(&path));
    }

    #[test]
    fn every_variant_sets_a_range() {
        let _serial = serialise();
        // The test uses high numbers, which no other test of this process gets.
        let file = null();
        let first = 900;
        for (number, set_from) in
            [(first, set_from as fn(RawFd) -> io::Result<()>), (first + 1, |first| set_range(first, RawFd::MAX))]
        {
            // SAFETY: the number is not in use, since this process opens far fewer descriptors.
            let copy = unsafe { OwnedFd::from_raw_fd(libc::dup2(file.as_raw_fd(), number)) };
            assert!(!is_close_on_exec(&copy));
            set_from(number).expect("set");
            assert!(is_close_on_exec(&copy));
        }
    }
}
