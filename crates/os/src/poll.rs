//! Waits until sources are ready: `mio`'s edge-triggered epoll, with the calls counted.
//!
//! Edge-triggered means that readiness is told once: who stops before a source is empty must remember it itself.

use crate::counters::{Syscall, count};
use mio::unix::SourceFd;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

/// Names a source to whoever waits for it.
pub type Token = usize;

/// What a source is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Bytes, connections, or an end can be read.
    pub readable: bool,
    /// Bytes can be written, or writing has failed.
    pub writable: bool,
    /// The peer has ended its side, perhaps behind bytes that are still to be read: only the end itself proves the
    /// source empty.
    pub read_closed: bool,
}

/// Waits on many sources.
#[derive(Debug)]
pub struct Poller(mio::Poll);

/// Room for what one wait tells.
#[derive(Debug)]
pub struct Events(mio::Events);

impl Events {
    /// Room for `events_per_wait_max` events; the others are told by the next wait.
    pub fn with_capacity(events_per_wait_max: usize) -> Events {
        Events(mio::Events::with_capacity(events_per_wait_max))
    }

    /// What the last wait told.
    pub fn iter(&self) -> impl Iterator<Item = (Token, Readiness)> + '_ {
        self.0.iter().map(|event| {
            // An error or the end of the peer's side shows by reading as well as by writing.
            let readable = event.is_readable() || event.is_read_closed() || event.is_error();
            let writable = event.is_writable() || event.is_write_closed() || event.is_error();
            (event.token().0, Readiness { readable, writable, read_closed: event.is_read_closed() || event.is_error() })
        })
    }
}

/// What to be told of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Listeners, and whatever is only read.
    Readable,
    /// Streams: both at once, registered once and for all.
    ReadableAndWritable,
}

impl Poller {
    /// A poller without sources.
    pub fn new() -> io::Result<Poller> {
        count(Syscall::EpollCreate1);
        mio::Poll::new().map(Poller)
    }

    /// Tells of `source` from now on, as `token`. The registration ends with the descriptor.
    pub fn register(&self, source: &impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        count(Syscall::EpollCtl);
        let interest = match interest {
            Interest::Readable => mio::Interest::READABLE,
            Interest::ReadableAndWritable => mio::Interest::READABLE | mio::Interest::WRITABLE,
        };
        self.0.registry().register(&mut SourceFd(&source.as_fd().as_raw_fd()), mio::Token(token), interest)
    }

    /// As [`Poller::register`] with [`Interest::Readable`], for a listener that several pollers wait on: what comes wakes
    /// one of those who wait, the first to have registered (`EPOLLEXCLUSIVE`). Who is busy is told as well, when he waits
    /// next, so that nothing that comes is told to nobody.
    ///
    /// Linux before 4.5 does not know the flag, passes over it, and wakes all of them.
    pub fn register_exclusive(&self, source: &impl AsFd, token: Token) -> io::Result<()> {
        count(Syscall::EpollCtl);
        // Not by mio, which cannot say so.
        let flags = EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE;
        Ok(epoll::add(self.0.registry(), source, EventData::new_u64(token as u64), flags)?)
    }

    /// Tells no longer of `source`, which stays open.
    pub fn deregister(&self, source: &impl AsFd) -> io::Result<()> {
        count(Syscall::EpollCtl);
        self.0.registry().deregister(&mut SourceFd(&source.as_fd().as_raw_fd()))
    }

    /// Waits for at least one event, at most `timeout`; `None` waits for ever. A signal ends the wait early, without
    /// events.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        count(Syscall::EpollWait);
        match self.0.poll(&mut events.0, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    /// What wakes this poller from another thread, told as `token`.
    pub fn waker(&self, token: Token) -> io::Result<Waker> {
        count(Syscall::Eventfd2);
        count(Syscall::EpollCtl);
        mio::Waker::new(self.0.registry(), mio::Token(token)).map(|waker| Waker(Arc::new(waker)))
    }
}

/// Wakes a poller from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    /// Ends the wait that the poller is in, or the next one.
    pub fn wake(&self) -> io::Result<()> {
        count(Syscall::EventfdWrite);
        self.0.wake()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Listener;
    use std::net::TcpStream;

    const NOT_AT_ALL: Option<Duration> = Some(Duration::ZERO);
    const SECOND: Option<Duration> = Some(Duration::from_secs(5));
    const LISTENER: Token = 7;

    fn tells(poller: &mut Poller, timeout: Option<Duration>) -> bool {
        let mut events = Events::with_capacity(4);
        poller.wait(&mut events, timeout).expect("waited");
        events.iter().inspect(|(token, readiness)| assert!(*token == LISTENER && readiness.readable)).count() == 1
    }

    #[test]
    fn a_shared_listener_is_told_to_whoever_registers_while_somebody_waits_in_it() {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let (mut first, mut second) = (Poller::new().expect("made"), Poller::new().expect("made"));
        first.register_exclusive(&listener, LISTENER).expect("registered");
        assert!(!tells(&mut first, NOT_AT_ALL));
        let _client = TcpStream::connect(listener.local_address().expect("bound")).expect("connected");
        assert!(tells(&mut first, SECOND));
        assert!(!tells(&mut first, NOT_AT_ALL), "told once");
        second.register_exclusive(&listener, LISTENER).expect("registered");
        assert!(tells(&mut second, SECOND));
        first.deregister(&listener).expect("deregistered");
        first.register_exclusive(&listener, LISTENER).expect("registered again");
        assert!(tells(&mut first, SECOND));
    }
}
