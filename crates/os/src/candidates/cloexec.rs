//! Other calls that set close-on-exec: through the C library, without it, by reading first, and for a range.

use crate::counters::{Syscall, count};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd, ioctl_fioclex};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

/// `fcntl(F_SETFD)` through the C library, as the proposal of 2012 measured it.
#[inline]
pub fn by_library_fcntl(descriptor: impl AsFd) -> io::Result<()> {
    count(Syscall::Fcntl);
    // SAFETY: sets the flag of a descriptor that is borrowed, hence open; no memory is involved.
    done(unsafe { libc::fcntl(descriptor.as_fd().as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) })
}

/// `ioctl(FIOCLEX)` through the C library.
#[inline]
pub fn by_library_ioctl(descriptor: impl AsFd) -> io::Result<()> {
    count(Syscall::Fioclex);
    // SAFETY: FIOCLEX takes no argument and sets the flag of a descriptor that is borrowed, hence open.
    done(unsafe { libc::ioctl(descriptor.as_fd().as_raw_fd(), libc::FIOCLEX) })
}

/// `ioctl(FIOCLEX)` by the bare instruction.
#[inline]
pub fn by_bare_ioctl(descriptor: impl AsFd) -> io::Result<()> {
    count(Syscall::Fioclex);
    Ok(ioctl_fioclex(descriptor)?)
}

/// The flags read, changed and written back: two calls, as careful programs do it.
#[inline]
pub fn by_reading_first(descriptor: impl AsFd) -> io::Result<()> {
    count(Syscall::Fcntl);
    let flags = fcntl_getfd(&descriptor)?;
    count(Syscall::Fcntl);
    Ok(fcntl_setfd(&descriptor, flags | FdFlags::CLOEXEC)?)
}

/// `close_range(CLOSE_RANGE_CLOEXEC)` from one descriptor to another, both included (Linux 5.11).
#[inline]
pub fn by_close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    count(Syscall::CloseRange);
    // SAFETY: changes only the flags of descriptors; none is closed, so no owner loses one.
    done(unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) } as libc::c_int)
}

/// `/dev/null`, opened with close-on-exec or without.
#[inline]
pub fn open_null(close_on_exec: bool) -> io::Result<std::os::fd::OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    count(Syscall::Openat);
    let flags = if close_on_exec { OFlags::RDONLY | OFlags::CLOEXEC } else { OFlags::RDONLY };
    Ok(open(c"/dev/null", flags, Mode::empty())?)
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    #[test]
    fn every_candidate_sets_the_flag() {
        type Candidate = fn(&OwnedFd) -> io::Result<()>;
        let candidates: [(&str, Candidate); 5] = [
            ("library fcntl", |fd| by_library_fcntl(fd)),
            ("library ioctl", |fd| by_library_ioctl(fd)),
            ("bare ioctl", |fd| by_bare_ioctl(fd)),
            ("reading first", |fd| by_reading_first(fd)),
            ("close_range", |fd| by_close_range(fd.as_raw_fd(), fd.as_raw_fd())),
        ];
        for (name, set) in candidates {
            let file = open_null(false).expect("/dev/null");
            assert!(!fcntl_getfd(&file).expect("open").contains(FdFlags::CLOEXEC), "{name}");
            match set(&file) {
                // Before Linux 5.11.
                Err(error) if name == "close_range" => assert!(error.raw_os_error().is_some(), "{error}"),
                result => result.unwrap_or_else(|error| panic!("{name}: {error}")),
            }
            assert!(name == "close_range" || fcntl_getfd(&file).expect("open").contains(FdFlags::CLOEXEC), "{name}");
        }
        assert!(fcntl_getfd(open_null(true).expect("/dev/null")).expect("open").contains(FdFlags::CLOEXEC));
    }
}
