//! Descriptors that are waited for together outside a poller.

use crate::counters::{Syscall, count};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Descriptors to wait for outside a poller, until one of them can be read.
#[derive(Debug)]
pub struct PollSet<'d>(Vec<PollFd<'d>>);

impl<'d> PollSet<'d> {
    /// Waits for these.
    pub fn new(descriptors: impl IntoIterator<Item = BorrowedFd<'d>>) -> PollSet<'d> {
        PollSet(descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect())
    }

    /// Until one can be read, or for `timeout`; `None` waits for ever. A signal ends it early.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        poll_until(&mut self.0, timeout)
    }

    /// Whether the last wait was ended by the last of the descriptors, perhaps among others.
    pub fn is_last_ready(&self) -> bool {
        self.0.last().is_some_and(|last| !last.revents().is_empty())
    }
}

/// Waits for one of `targets`, or for `timeout`; a signal ends it early.
pub(crate) fn poll_until(targets: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    count(Syscall::Ppoll);
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(targets, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
