//! Waits for several file descriptors outside a poller (poll(2)).

use crate::counters::{Syscall, count};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

/// Pause after a wait that has failed, so that a caller that waits again is not busy.
const FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// Descriptors to wait for, until one of them is readable, or writable.
#[derive(Debug)]
pub struct PollSet<'d>(Vec<PollFd<'d>>);

impl<'d> PollSet<'d> {
    /// A set of these descriptors.
    pub fn new(descriptors: impl IntoIterator<Item = BorrowedFd<'d>>) -> PollSet<'d> {
        PollSet(descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect())
    }

    /// A set of these descriptors, each of which is ready when it is writable.
    pub fn for_writing(descriptors: impl IntoIterator<Item = BorrowedFd<'d>>) -> PollSet<'d> {
        PollSet(descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)).collect())
    }

    /// Adds a descriptor to wait for until it is readable.
    pub fn add_readable(&mut self, descriptor: BorrowedFd<'d>) {
        self.0.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    }

    /// Adds a descriptor to wait for until it is writable.
    pub fn add_writable(&mut self, descriptor: BorrowedFd<'d>) {
        self.0.push(PollFd::from_borrowed_fd(descriptor, PollFlags::OUT));
    }

    /// Waits until one is ready, at most `timeout`; `None` means no limit. A signal ends the wait early, and so does a
    /// lack of memory, after a pause: no program exits because of it.
    ///
    /// # Errors
    /// Returns any other error of the call, after the same pause. No descriptor is ready then, and the caller may wait
    /// again.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        poll_until(&mut self.0, timeout)
    }

    /// Whether nothing more can come from the descriptor at `index`, for example a closed terminal.
    pub fn has_hung_up(&self, index: usize) -> bool {
        self.0[index].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
    }

    /// Whether the descriptor at `index` was ready after the last wait.
    pub fn is_ready(&self, index: usize) -> bool {
        !self.0[index].revents().is_empty()
    }
}

/// Waits for one of `targets`, at most `timeout`; a signal or a lack of memory ends the wait early.
pub(crate) fn poll_until(targets: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    count(Syscall::Ppoll);
    // A timeout that the kernel cannot represent means no limit.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(targets, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => {
            // The last wait may have set some.
            targets.iter_mut().for_each(PollFd::clear_revents);
            thread::sleep(FAILURE_PAUSE);
            if matches!(errno, Errno::NOMEM | Errno::AGAIN) { Ok(()) } else { Err(errno.into()) }
        }
    }
}
