//! Wakes a thread that waits outside a poller: an eventfd that can be waited for beside its sockets.

use crate::counters::{Syscall, count};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A call from one thread to another.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A wake-up that nobody has given yet.
    pub fn new() -> io::Result<EventFd> {
        count(Syscall::Eventfd2);
        Ok(EventFd(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable, until it is taken.
    pub fn signal(&self) -> io::Result<()> {
        count(Syscall::EventfdWrite);
        match rustix::io::write(&self.0, &1_u64.to_ne_bytes()) {
            // Full: it is readable already.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes what was given; whether anything was.
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
