//! A listener as one worker sees it: registered with its poller alone or beside others, and asked, paused or closed.

use crate::clock::Milliseconds;
use sanderling_os::poll::{Interest, Poller, Token};
use sanderling_os::tcp::Listener;
use std::io;

/// Which protocol a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Dns,
}

/// A listener, and whether it is asked.
#[derive(Debug)]
pub(crate) struct Gate<'s> {
    pub(crate) protocol: Protocol,
    pub(crate) listener: &'s Listener,
    /// Other workers wait for it too.
    pub(crate) is_shared: bool,
    /// Connections that were let in since this worker took its place among those who wait.
    pub(crate) place_accept_count: usize,
    pub(crate) is_registered: bool,
    pub(crate) state: GateState,
}

/// Whether a listener is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateState {
    /// Whenever it is ready.
    Open,
    /// Then, since it could not be when it was ready.
    Paused { until_ms: Milliseconds },
    /// No more: the server drains.
    Closed,
}

impl<'s> Gate<'s> {
    /// A gate for what comes to `listener`.
    pub(crate) fn new(protocol: Protocol, listener: &'s Listener, is_shared: bool) -> Gate<'s> {
        Gate { protocol, listener, is_shared, place_accept_count: 0, is_registered: false, state: GateState::Open }
    }

    /// When it is asked again, if it is paused.
    pub(crate) fn paused_until_ms(&self) -> Option<Milliseconds> {
        match self.state {
            GateState::Paused { until_ms } => Some(until_ms),
            GateState::Open | GateState::Closed => None,
        }
    }

    /// A connection of HTTP has left, and with it the reason for the pause, perhaps.
    pub(crate) fn end_pause_of_http(&mut self) {
        if let (Protocol::Http, GateState::Paused { until_ms }) = (self.protocol, &mut self.state) {
            *until_ms = 0;
        }
    }

    /// Has `poller` tell of the listener as `token`.
    pub(crate) fn register(&mut self, token: Token, poller: &Poller) -> io::Result<()> {
        if self.is_shared {
            poller.register_exclusive(self.listener, token)?;
        } else {
            poller.register(self.listener, token, Interest::Readable)?;
        }
        self.is_registered = true;
        Ok(())
    }

    /// Has `poller` tell no longer of the listener.
    pub(crate) fn deregister(&mut self, poller: &Poller) -> io::Result<()> {
        match std::mem::take(&mut self.is_registered) {
            true => poller.deregister(self.listener),
            false => Ok(()),
        }
    }
}
