//! Edge-triggered epoll, with the calls counted.
//!
//! Edge-triggered: an event is reported once, so a caller that stops before a source is empty must remember the source.

use crate::counters::{Syscall, count};
use crate::error::with_second_try;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Identifies a source in its events.
pub type Token = usize;

/// The readiness of a source.
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
pub struct Poller(OwnedFd);

/// The events of one wait.
pub struct Events(Vec<epoll::Event>);

impl Events {
    /// At most `events_per_wait_max` events; the others are reported by the next wait.
    pub fn with_capacity(events_per_wait_max: usize) -> Events {
        Events(Vec::with_capacity(events_per_wait_max))
    }

    /// The events of the last wait.
    pub fn iter(&self) -> impl Iterator<Item = (Token, Readiness)> + '_ {
        const CLOSED: EventFlags = EventFlags::HUP.union(EventFlags::ERR);
        const READ_CLOSED: EventFlags = EventFlags::RDHUP.union(CLOSED);
        self.0.iter().map(|event| {
            let (flags, data) = (event.flags, event.data);
            let readiness = Readiness {
                readable: flags.intersects(EventFlags::IN | READ_CLOSED),
                writable: flags.intersects(EventFlags::OUT | CLOSED),
                read_closed: flags.intersects(READ_CLOSED),
            };
            (data.u64() as Token, readiness)
        })
    }
}

/// The events to report for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// For listeners and other sources that are only read.
    Readable,
    /// For streams, which are registered once for both.
    ReadableAndWritable,
}

impl Poller {
    /// A poller without sources.
    pub fn new() -> io::Result<Poller> {
        count(Syscall::EpollCreate1);
        Ok(Poller(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Reports events of `source` as `token`. Closing the descriptor ends the registration.
    pub fn register(&self, source: &impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        self.add(
            source,
            token,
            match interest {
                Interest::Readable => EventFlags::IN | EventFlags::RDHUP,
                Interest::ReadableAndWritable => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
            },
        )
    }

    /// Like [`Poller::register`] with [`Interest::Readable`], for a listener shared by several pollers: a connection
    /// wakes only the waiting poller that registered first (`EPOLLEXCLUSIVE`). If none waits, each gets the event at
    /// its next wait, so that no connection is missed.
    ///
    /// Linux before 4.5 ignores the flag and wakes all pollers.
    pub fn register_exclusive(&self, source: &impl AsFd, token: Token) -> io::Result<()> {
        self.add(source, token, EventFlags::IN | EventFlags::EXCLUSIVE)
    }

    fn add(&self, source: &impl AsFd, token: Token, flags: EventFlags) -> io::Result<()> {
        count(Syscall::EpollCtl);
        Ok(epoll::add(&self.0, source, EventData::new_u64(token as u64), flags | EventFlags::ET)?)
    }

    /// Reports no further events of `source`, which stays open.
    pub fn deregister(&self, source: &impl AsFd) -> io::Result<()> {
        count(Syscall::EpollCtl);
        Ok(epoll::delete(&self.0, source)?)
    }

    /// Waits for at least one event, at most `timeout`, which the kernel takes in milliseconds, rounded up; `None`
    /// means no limit. A signal ends the wait early, without events.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        count(Syscall::EpollPwait);
        events.0.clear();
        let timeout = timeout
            .map(|timeout| Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) });
        match epoll::wait(&self.0, spare_capacity(&mut events.0), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A waker of this poller for other threads, reported as `token`.
    pub fn waker(&self, token: Token) -> io::Result<Waker> {
        count(Syscall::Eventfd2);
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        self.register(&eventfd, token, Interest::Readable)?;
        Ok(Waker(Arc::new(eventfd)))
    }
}

/// Wakes a poller, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the current wait of the poller, or the next one.
    pub fn wake(&self) -> io::Result<()> {
        count(Syscall::EventfdWrite);
        // Each write is a separate event, so that the poller need not read the counter, which never overflows 64 bits.
        // A wakeup that is lost would make a client wait.
        with_second_try(|| Ok(rustix::io::write(&*self.0, &1_u64.to_ne_bytes()).map(drop)?))
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
