//! Edge-triggered epoll by `mio`, with the calls counted.
//!
//! Edge-triggered: an event is reported once, so a caller that stops before a source is empty must remember the source.

use crate::counters::{Syscall, count};
use crate::error::with_second_try;
use mio::unix::SourceFd;
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

/// Identifies a source in its events.
pub type Token = usize;

/// What a source is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// Bytes, connections, or an end can be read.
    pub readable: bool,
    /// Bytes can be written, or writing fails.
    pub writable: bool,
    /// The peer has shut down its side. Bytes may remain to be read, up to the end of file.
    pub read_closed: bool,
}

/// An epoll instance.
#[derive(Debug)]
pub struct Poller(mio::Poll);

/// The events of one wait.
#[derive(Debug)]
pub struct Events(mio::Events);

impl Events {
    /// At most `events_per_wait_max` events; the others are reported by the next wait.
    pub fn with_capacity(events_per_wait_max: usize) -> Events {
        Events(mio::Events::with_capacity(events_per_wait_max))
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = (Token, Readiness)> + '_ {
        self.0.iter().map(|event| {
            let readable = event.is_readable() || event.is_read_closed() || event.is_error();
            let writable = event.is_writable() || event.is_write_closed() || event.is_error();
            (event.token().0, Readiness { readable, writable, read_closed: event.is_read_closed() || event.is_error() })
        })
    }
}

/// The events to report for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Of listeners and other sources that are only read.
    Readable,
    /// Of streams, which are registered once for both.
    ReadableAndWritable,
}

impl Poller {
    /// A poller without sources.
    pub fn new() -> io::Result<Poller> {
        count(Syscall::EpollCreate1);
        mio::Poll::new().map(Poller)
    }

    /// Reports events of `source` as `token`. Closing the descriptor ends the registration.
    pub fn register(&self, source: &impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        count(Syscall::EpollCtl);
        let interest = match interest {
            Interest::Readable => mio::Interest::READABLE,
            Interest::ReadableAndWritable => mio::Interest::READABLE | mio::Interest::WRITABLE,
        };
        self.0.registry().register(&mut SourceFd(&source.as_fd().as_raw_fd()), mio::Token(token), interest)
    }

    /// As [`Poller::register`] with [`Interest::Readable`], for a listener of several pollers: a connection wakes one of the
    /// pollers that wait, the first to have registered (`EPOLLEXCLUSIVE`). If none waits, each gets the event at its next
    /// wait, so that no connection is missed.
    ///
    /// Linux before 4.5 ignores the flag and wakes all of them.
    pub fn register_exclusive(&self, source: &impl AsFd, token: Token) -> io::Result<()> {
        count(Syscall::EpollCtl);
        // Not through mio, which does not have the flag.
        let flags = EventFlags::IN | EventFlags::ET | EventFlags::EXCLUSIVE;
        Ok(epoll::add(self.0.registry(), source, EventData::new_u64(token as u64), flags)?)
    }

    /// Reports no further events of `source`, which stays open.
    pub fn deregister(&self, source: &impl AsFd) -> io::Result<()> {
        count(Syscall::EpollCtl);
        self.0.registry().deregister(&mut SourceFd(&source.as_fd().as_raw_fd()))
    }

    /// Waits for at least one event, at most `timeout`; `None` is no limit. A signal ends the wait early, without events.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        count(Syscall::EpollWait);
        match self.0.poll(&mut events.0, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    /// A waker of this poller for other threads, reported as `token`.
    pub fn waker(&self, token: Token) -> io::Result<Waker> {
        count(Syscall::Eventfd2);
        count(Syscall::EpollCtl);
        mio::Waker::new(self.0.registry(), mio::Token(token)).map(|waker| Waker(Arc::new(waker)))
    }
}

/// Wakes a poller, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    /// Ends the current wait of the poller, or the next one.
    pub fn wake(&self) -> io::Result<()> {
        count(Syscall::EventfdWrite);
        // A wakeup that is lost would make a client wait.
        with_second_try(|| self.0.wake())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Listener;
    use std::net::TcpStream;

    const NO_WAIT: Option<Duration> = Some(Duration::ZERO);
    const TIMEOUT: Option<Duration> = Some(Duration::from_secs(5));
    const LISTENER: Token = 7;

    fn reports(poller: &mut Poller, timeout: Option<Duration>) -> bool {
        let mut events = Events::with_capacity(4);
        poller.wait(&mut events, timeout).expect("waited");
        events.iter().inspect(|(token, readiness)| assert!(*token == LISTENER && readiness.readable)).count() == 1
    }

    #[test]
    fn exclusive_listener_with_a_waiting_connection_is_reported_to_each_new_registration() {
        let listener = Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
        let (mut first, mut second) = (Poller::new().expect("made"), Poller::new().expect("made"));
        first.register_exclusive(&listener, LISTENER).expect("registered");
        assert!(!reports(&mut first, NO_WAIT));
        let _client = TcpStream::connect(listener.local_address().expect("bound")).expect("connected");
        assert!(reports(&mut first, TIMEOUT));
        assert!(!reports(&mut first, NO_WAIT), "reported once");
        second.register_exclusive(&listener, LISTENER).expect("registered");
        assert!(reports(&mut second, TIMEOUT));
        first.deregister(&listener).expect("deregistered");
        first.register_exclusive(&listener, LISTENER).expect("registered again");
        assert!(reports(&mut first, TIMEOUT));
    }
}
