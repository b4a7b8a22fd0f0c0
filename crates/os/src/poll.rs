//! Waits until sources are ready: `mio`'s edge-triggered epoll, with the calls counted.
//!
//! Edge-triggered means that readiness is told once: who stops before a source is empty must remember it itself.

use crate::counters::{Call, count};
use mio::unix::SourceFd;
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
    pub ended: bool,
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
            (event.token().0, Readiness { readable, writable, ended: event.is_read_closed() || event.is_error() })
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
        count(Call::EpollCreate);
        mio::Poll::new().map(Poller)
    }

    /// Tells of `source` from now on, as `token`. The registration ends with the descriptor.
    pub fn register(&self, source: &impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        count(Call::EpollCtl);
        let interest = match interest {
            Interest::Readable => mio::Interest::READABLE,
            Interest::ReadableAndWritable => mio::Interest::READABLE | mio::Interest::WRITABLE,
        };
        self.0.registry().register(&mut SourceFd(&source.as_fd().as_raw_fd()), mio::Token(token), interest)
    }

    /// Tells no longer of `source`, which stays open.
    pub fn deregister(&self, source: &impl AsFd) -> io::Result<()> {
        count(Call::EpollCtl);
        self.0.registry().deregister(&mut SourceFd(&source.as_fd().as_raw_fd()))
    }

    /// Waits for at least one event, at most `timeout`; `None` waits for ever. A signal ends the wait early, without
    /// events.
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        count(Call::EpollWait);
        match self.0.poll(&mut events.0, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result,
        }
    }

    /// What wakes this poller from another thread, told as `token`.
    pub fn waker(&self, token: Token) -> io::Result<Waker> {
        count(Call::EventfdCreate);
        count(Call::EpollCtl);
        mio::Waker::new(self.0.registry(), mio::Token(token)).map(|waker| Waker(Arc::new(waker)))
    }
}

/// Wakes a poller from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    /// Ends the wait that the poller is in, or the next one.
    pub fn wake(&self) -> io::Result<()> {
        count(Call::EventfdWrite);
        self.0.wake()
    }
}
