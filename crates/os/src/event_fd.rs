//! Wakes a thread that waits outside a poller (eventfd(2)).

use crate::counters::{Syscall, count};
use crate::error::with_second_try;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A descriptor that is readable after a signal and until it is drained.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// An event descriptor that is not readable.
    pub fn new() -> io::Result<EventFd> {
        count(Syscall::Eventfd2);
        Ok(EventFd(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) -> io::Result<()> {
        count(Syscall::EventfdWrite);
        with_second_try(|| match rustix::io::write(&self.0, &1_u64.to_ne_bytes()) {
            // The counter is full, so the descriptor is readable already.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        })
    }

    /// Makes the descriptor unreadable; returns whether it was readable.
    pub fn drain(&self) -> bool {
        count(Syscall::EventfdRead);
        rustix::io::read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
