//! A listener as one worker sees it: registered with its poller, and open, paused or closed.

use crate::clock::Milliseconds;
use crate::socket_set::Role;
use sanderling_os::poll::{Interest, Poller, Token};
use sanderling_os::tcp::Listener;
use std::io;

/// A listener, and whether the worker accepts from it.
#[derive(Debug)]
pub(crate) struct ListenerState<'s> {
    pub(crate) role: Role,
    pub(crate) listener: &'s Listener,
    /// Other workers accept from it too.
    pub(crate) is_shared: bool,
    /// Connections accepted since the worker was last registered, which is its place among those that the kernel wakes.
    pub(crate) accepted_since_registered: usize,
    is_registered: bool,
    pub(crate) accepting: Accepting,
}

/// Whether a worker accepts from a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepting {
    /// Whenever it is ready.
    Open,
    /// From this time on, since the worker could not when it was ready.
    Paused { until_ms: Milliseconds },
    /// Never again: the server drains.
    Closed,
}

impl<'s> ListenerState<'s> {
    pub(crate) fn new(role: Role, listener: &'s Listener, is_shared: bool) -> ListenerState<'s> {
        ListenerState {
            role,
            listener,
            is_shared,
            accepted_since_registered: 0,
            is_registered: false,
            accepting: Accepting::Open,
        }
    }

    /// When a pause ends; `None` if the listener is not paused.
    pub(crate) fn paused_until_ms(&self) -> Option<Milliseconds> {
        match self.accepting {
            Accepting::Paused { until_ms } => Some(until_ms),
            Accepting::Open | Accepting::Closed => None,
        }
    }

    /// Ends a pause immediately.
    pub(crate) fn end_pause(&mut self) {
        if let Accepting::Paused { until_ms } = &mut self.accepting {
            *until_ms = 0;
        }
    }

    /// Registers the listener with `poller` as `token`, unless it is registered.
    pub(crate) fn register(&mut self, token: Token, poller: &Poller) -> io::Result<()> {
        if self.is_registered {
            return Ok(());
        }
        if self.is_shared {
            poller.register_exclusive(self.listener, token)?;
        } else {
            poller.register(self.listener, token, Interest::Readable)?;
        }
        self.is_registered = true;
        self.accepted_since_registered = 0;
        Ok(())
    }

    /// Removes the listener from `poller`.
    pub(crate) fn deregister(&mut self, poller: &Poller) -> io::Result<()> {
        match std::mem::take(&mut self.is_registered) {
            true => poller.deregister(self.listener),
            false => Ok(()),
        }
    }
}
