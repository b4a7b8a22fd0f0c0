//! Sets and clears close-on-exec on a descriptor that was made elsewhere: by `ioctl(FIOCLEX)` or by `fcntl(F_SETFD)`.
//!
//! What this crate opens itself is close-on-exec from its creation (`O_CLOEXEC`, `SOCK_CLOEXEC`, `accept4`), which
//! costs nothing and leaves no moment in which a child could inherit it. These functions are for the rest: descriptors
//! that were inherited, and the few that a child is meant to inherit.

use crate::counters::{Syscall, count};
use crate::fallback::{Feature, Variant};
use rustix::io::{FdFlags, fcntl_setfd};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// The ways, the preferred one first. Called without libc both cost the same within 2 %; `fcntl` stands first since it
/// works on every descriptor.
pub static CLOEXEC: Feature = Feature::new(
    "cloexec",
    &[Variant { name: "fcntl", is_supported: || true }, Variant { name: "fioclex", is_supported: fioclex_is_there }],
);

const BY_FCNTL: usize = 0;

/// How all descriptors of a range are set: by one `close_range(CLOSE_RANGE_CLOEXEC)` (Linux 5.11), or each by itself.
pub static CLOEXEC_RANGE: Feature = Feature::new(
    "cloexec-range",
    &[
        Variant { name: "close_range", is_supported: close_range_is_there },
        Variant { name: "per-fd", is_supported: || true },
    ],
);

const BY_CLOSE_RANGE: usize = 0;

/// Closes `descriptor` on exec. `object` names it in an error.
pub fn set(descriptor: impl AsFd, object: &str) -> io::Result<()> {
    change(&descriptor, true, object)
}

/// Lets `descriptor` live through exec. `object` names it in an error.
pub fn clear(descriptor: impl AsFd, object: &str) -> io::Result<()> {
    change(&descriptor, false, object)
}

/// Closes on exec every descriptor from `first` up that is open now.
pub fn set_from(first: RawFd) -> io::Result<()> {
    if CLOEXEC_RANGE.selected() == BY_CLOSE_RANGE {
        return close_range_on_exec(first, RawFd::MAX);
    }
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(descriptor) = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        if descriptor >= first {
            count(Syscall::Fcntl);
            // SAFETY: sets a flag; a descriptor that was closed meanwhile gives EBADF, which is no harm.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    Ok(())
}

fn close_range_on_exec(first: RawFd, last: RawFd) -> io::Result<()> {
    count(Syscall::CloseRange);
    // SAFETY: changes only the flags of descriptors; none is closed, so no owner loses one.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks for a range in which nothing is open.
fn close_range_is_there() -> bool {
    close_range_on_exec(RawFd::MAX - 1, RawFd::MAX).is_ok()
}

fn change(descriptor: &impl AsFd, close_on_exec: bool, object: &str) -> io::Result<()> {
    if CLOEXEC.selected() != BY_FCNTL {
        match by_ioctl(descriptor, close_on_exec) {
            // FIOCLEX refuses descriptors opened with O_PATH (EBADF), which fcntl does not.
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {}
            Err(error) => {
                let call = if close_on_exec { "ioctl(FIOCLEX)" } else { "ioctl(FIONCLEX)" };
                return Err(crate::error::with_context(call, object, &error));
            }
            Ok(()) => return Ok(()),
        }
    }
    count(Syscall::Fcntl);
    let flags = if close_on_exec { FdFlags::CLOEXEC } else { FdFlags::empty() };
    fcntl_setfd(descriptor, flags).map_err(|errno| {
        let call = if close_on_exec { "fcntl(F_SETFD, FD_CLOEXEC)" } else { "fcntl(F_SETFD, 0)" };
        crate::error::with_context(call, object, &errno.into())
    })
}

fn by_ioctl(descriptor: &impl AsFd, close_on_exec: bool) -> io::Result<()> {
    count(Syscall::Fioclex);
    let request = if close_on_exec { libc::FIOCLEX } else { libc::FIONCLEX };
    // SAFETY: FIOCLEX and FIONCLEX take no argument and change only the descriptor's own flag.
    match unsafe { libc::ioctl(descriptor.as_fd().as_raw_fd(), request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// FIOCLEX that answers without doing anything is known of other systems: the flag is read back.
fn fioclex_is_there() -> bool {
    let Ok(probe) = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()) else {
        return false;
    };
    by_ioctl(&probe, true).is_ok()
        && rustix::io::fcntl_getfd(&probe).is_ok_and(|flags| flags.contains(FdFlags::CLOEXEC))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use std::os::fd::FromRawFd;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Held by each test that sets the flag of all descriptors of the process, starts a child, or counts on a
    /// descriptor without the flag: they would see each other.
    pub(crate) fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    fn closes_on_exec(descriptor: impl AsFd) -> bool {
        rustix::io::fcntl_getfd(descriptor).expect("open").contains(FdFlags::CLOEXEC)
    }

    #[test]
    fn set_and_clear_by_the_way_in_use() {
        let _alone = alone();
        let file = open("/dev/null", OFlags::RDONLY, Mode::empty()).expect("/dev/null");
        assert!(!closes_on_exec(&file));
        set(&file, "/dev/null").expect("set");
        assert!(closes_on_exec(&file));
        clear(&file, "/dev/null").expect("clear");
        assert!(!closes_on_exec(&file));
    }

    #[test]
    fn a_path_descriptor_takes_the_flag_by_fcntl() {
        let path = open("/", OFlags::PATH, Mode::empty()).expect("/");
        assert_eq!(by_ioctl(&path, true).expect_err("refused").raw_os_error(), Some(libc::EBADF));
        set(&path, "/").expect("by fcntl");
        assert!(closes_on_exec(&path));
    }

    #[test]
    fn a_range_is_set_by_either_way() {
        let _alone = alone();
        // High numbers, which no other test of this process can have got meanwhile.
        let file = open("/dev/null", OFlags::RDONLY, Mode::empty()).expect("/dev/null");
        let first = 900;
        for (number, set_range) in [
            (first, set_from as fn(RawFd) -> io::Result<()>),
            (first + 1, |first| close_range_on_exec(first, RawFd::MAX)),
        ] {
            // SAFETY: the number is not in use: nothing opens so many descriptors here.
            let copy = unsafe { std::os::fd::OwnedFd::from_raw_fd(libc::dup2(file.as_raw_fd(), number)) };
            assert!(!closes_on_exec(&copy));
            set_range(number).expect("set");
            assert!(closes_on_exec(&copy));
        }
    }

    #[test]
    fn both_ways_do_the_same() {
        let _alone = alone();
        assert!(fioclex_is_there());
        let file = open("/dev/null", OFlags::RDONLY, Mode::empty()).expect("/dev/null");
        by_ioctl(&file, true).expect("set");
        assert!(closes_on_exec(&file));
        by_ioctl(&file, false).expect("clear");
        assert!(!closes_on_exec(&file));
    }
}
