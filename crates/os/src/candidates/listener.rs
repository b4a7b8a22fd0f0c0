//! Other ways for several threads to wait for connections: one listener in the epoll sets of all of them.

use crate::counters::{Syscall, count};
use crate::tcp::Listener;
use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Whom the kernel wakes for a connection on a listener that several threads wait on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakes {
    /// Everybody who waits, as long as a connection waits (level-triggered).
    Everybody,
    /// One of those who wait (`EPOLLEXCLUSIVE`, Linux 4.5).
    One,
}

/// One thread's wait for a listener that others may wait on too.
#[derive(Debug)]
pub struct ListenerWait(OwnedFd);

impl ListenerWait {
    /// Waits for `listener`.
    pub fn new(listener: &Listener, wakes: Wakes) -> io::Result<ListenerWait> {
        count(Syscall::EpollCreate1);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        count(Syscall::EpollCtl);
        let flags = match wakes {
            Wakes::Everybody => epoll::EventFlags::IN,
            Wakes::One => epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE,
        };
        epoll::add(&set, listener, epoll::EventData::new_u64(0), flags)?;
        Ok(ListenerWait(set))
    }

    /// Until a connection waits, or for `timeout`.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        count(Syscall::EpollWait);
        let empty = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [empty; 1];
        let timeout = Timespec::try_from(timeout).ok();
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The same listener once more, under another descriptor.
pub fn another(listener: &Listener) -> io::Result<Listener> {
    Ok(Listener::from(rustix::io::fcntl_dupfd_cloexec(listener, 0)?))
}
