//! A thread with an event loop: it accepts connections and serves them, each within a budget per iteration.
//!
//! The poller is edge-triggered: it reports once that a source is ready. A source that is left before it is empty goes
//! into a ready list and is served again in the next iteration, which then does not wait.

mod accept;

use crate::clock::{Milliseconds, ms};
use crate::files::jobs::Inbox;
use crate::lifecycle::{AcceptGuard, DrainMode, State};
use crate::metrics::ThreadMetrics;
use crate::slab::Key;
use crate::socket_set::Role;
use crate::threads::connections::Connections;
use crate::threads::listener_state::{Accepting, ListenerState};
use crate::threads::shared::Shared;
use sanderling_os::poll::{Events, Interest, Poller, Readiness, Token};
use sanderling_os::tcp::Stream;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The longest wait, a day: the poller cannot wait for longer than 24 of them, and a drain may have no deadline.
const WAIT_MS_MAX: Milliseconds = 24 * 60 * 60 * 1000;
/// Sources that one wait reports. With the budget of each it bounds an iteration.
const EVENTS_PER_WAIT_MAX: usize = 64;

/// The parameters of a worker.
pub(crate) struct WorkerParams<'s> {
    pub(crate) poller: Poller,
    pub(crate) listeners: Vec<ListenerState<'s>>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) metrics: Arc<ThreadMetrics>,
    pub(crate) accept_guard: AcceptGuard<'s>,
}

/// A worker.
pub(crate) struct Worker<'s> {
    shared: &'s Shared,
    poller: Poller,
    listeners: Vec<ListenerState<'s>>,
    /// Listeners that had more connections than the budget allowed, by their index.
    ready_listeners: Vec<usize>,
    /// Connections that were accepted at the limit and wait until another one is closed.
    parked: Vec<ParkedConnection>,
    connections: Connections<'s>,
    inbox: Arc<Inbox>,
    metrics: Arc<ThreadMetrics>,
    drain_state: DrainState<'s>,
}

/// A connection without a permit.
#[derive(Debug)]
struct ParkedConnection {
    role: Role,
    stream: Stream,
    client: SocketAddr,
}

/// Whether a worker serves or drains.
#[derive(Debug)]
enum DrainState<'s> {
    /// It accepts connections and serves them.
    Serving(AcceptGuard<'s>),
    /// The server stops and no process replaces it. Connections are still accepted for a moment: one whose client has
    /// sent nothing may be held by the kernel
    /// ([`Listener::set_defer_accept`](sanderling_os::tcp::Listener::set_defer_accept)).
    FinalWindow { _guard: AcceptGuard<'s>, until_ms: Milliseconds, deadline_ms: Milliseconds },
    /// It accepts no more. Connections that remain at the deadline are aborted.
    Draining { mode: DrainMode, deadline_ms: Milliseconds },
}

/// The source of an event, as its token names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Connection(Key),
    Backend(Key),
    Listener(usize),
    /// Another thread wants the worker to check shared state.
    Wakeup,
}

/// The token of the worker's waker.
pub(crate) const WAKEUP: Token = KIND_WAKEUP << Key::BITS;
const KIND_CONNECTION: usize = 0;
const KIND_LISTENER: usize = 1;
const KIND_WAKEUP: usize = 2;
const KIND_BACKEND: usize = 3;

impl Source {
    fn token(self) -> Token {
        match self {
            Source::Connection(key) => KIND_CONNECTION << Key::BITS | key.packed() as usize,
            Source::Backend(key) => KIND_BACKEND << Key::BITS | key.packed() as usize,
            Source::Listener(index) => KIND_LISTENER << Key::BITS | index,
            Source::Wakeup => WAKEUP,
        }
    }

    fn from_token(token: Token) -> Source {
        let rest = token & ((1 << Key::BITS) - 1);
        match token >> Key::BITS {
            KIND_CONNECTION => Source::Connection(Key::unpacked(rest as u64)),
            KIND_BACKEND => Source::Backend(Key::unpacked(rest as u64)),
            KIND_LISTENER => Source::Listener(rest),
            _ => Source::Wakeup,
        }
    }
}

impl<'s> Worker<'s> {
    /// The worker `index`.
    pub(crate) fn new(shared: &'s Shared, index: usize, params: WorkerParams<'s>) -> io::Result<Worker<'s>> {
        let WorkerParams { poller, mut listeners, inbox, metrics, accept_guard } = params;
        for (index, listener) in listeners.iter_mut().enumerate() {
            if listener.register(Source::Listener(index).token(), &poller).is_err() {
                // No memory for it now: it is retried in the first iteration.
                listener.accepting = Accepting::Paused { until_ms: 0 };
            }
        }
        Ok(Worker {
            shared,
            poller,
            listeners,
            ready_listeners: Vec::new(),
            parked: Vec::new(),
            connections: Connections::new(shared, index, Arc::clone(&metrics), shared.clock()),
            inbox,
            metrics,
            drain_state: DrainState::Serving(accept_guard),
        })
    }

    /// Serves until the server drains and all connections have closed or were aborted.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_WAIT_MAX);
        while !self.is_drained() {
            self.run_once(&mut events)?;
        }
        self.connections.count_aborted();
        Ok(())
    }

    #[inline(always)]
    fn run_once(&mut self, events: &mut Events) -> io::Result<()> {
        self.metrics.heartbeat.begin_waiting();
        self.poller.wait(events, self.timeout())?;
        self.metrics.heartbeat.begin_iteration();
        self.connections.begin_iteration();
        self.update_drain_state()?;
        let ready = self.connections.take_ready();
        let ready_listeners = std::mem::take(&mut self.ready_listeners);
        for (token, readiness) in events.iter() {
            self.dispatch(Source::from_token(token), readiness);
        }
        ready.into_iter().for_each(|key| self.connections.advance_ready(key));
        ready_listeners.into_iter().for_each(|index| self.accept(index));
        self.connections.expire();
        if self.connections.has_backends() {
            let poller = &self.poller;
            self.connections.serve_backends(|descriptor, key| {
                poller.register(&descriptor, Source::Backend(key).token(), Interest::ReadableAndWritable)
            });
        }
        // After everything that closes connections: new ones get their permits immediately.
        self.resume_accepting();
        self.end_final_window()?;
        self.connections.end_iteration();
        Ok(())
    }

    /// How long to wait for events: not at all while work remains.
    fn timeout(&self) -> Option<Duration> {
        if self.connections.has_ready() || !self.ready_listeners.is_empty() {
            return Some(Duration::ZERO);
        }
        let paused = self.listeners.iter().filter_map(ListenerState::paused_until_ms);
        let next_ms = paused.chain(self.connections.next_deadline_ms()).chain(self.drain_state.next_ms()).min()?;
        // One more than the difference: with a clock of milliseconds, a wait that ends just before the deadline would
        // be useless.
        Some(Duration::from_millis(next_ms.saturating_sub(self.connections.clock().now_ms()).min(WAIT_MS_MAX) + 1))
    }

    fn dispatch(&mut self, source: Source, readiness: Readiness) {
        match source {
            Source::Connection(key) => self.connections.advance(key, Some(readiness)),
            Source::Backend(key) => self.connections.advance_backend(key, readiness),
            Source::Listener(index) => self.accept(index),
            Source::Wakeup => {
                for event in self.inbox.take() {
                    self.connections.note_event(event);
                }
                self.connections.take_backend_connections();
                self.evict_for_others();
            }
        }
    }

    /// Begins to drain once the server does, or to stop where it drained because it was replaced.
    fn update_drain_state(&mut self) -> io::Result<()> {
        let mode = match self.shared.lifecycle.state() {
            State::Serving => return Ok(()),
            State::Draining(mode) => mode,
            State::Ended => DrainMode::Replaced,
        };
        let now_ms = self.connections.clock().now_ms();
        let options = &self.shared.options;
        match (&self.drain_state, mode) {
            (DrainState::Serving(_), DrainMode::Replaced) => {
                let deadline_ms = now_ms.saturating_add(ms(self.shared.drain_timeout));
                // The guard is given up after the last accept.
                let _serving = std::mem::replace(&mut self.drain_state, DrainState::Draining { mode, deadline_ms });
                self.close_listeners()?;
                self.connections.drain(options.drain_grace);
            }
            (DrainState::Serving(_), DrainMode::Stopping) => {
                let deadline_ms = now_ms.saturating_add(ms(self.shared.drain_timeout));
                let until_ms = now_ms + ms(options.stop_grace());
                let serving = std::mem::replace(&mut self.drain_state, DrainState::Draining { mode, deadline_ms });
                if let DrainState::Serving(guard) = serving {
                    self.drain_state = DrainState::FinalWindow { _guard: guard, until_ms, deadline_ms };
                }
                self.connections.drain(options.stop_grace());
            }
            (&DrainState::Draining { mode: DrainMode::Replaced, deadline_ms }, DrainMode::Stopping) => {
                self.drain_state = DrainState::Draining { mode, deadline_ms };
                self.close_listeners()?;
                self.connections.drain(options.stop_grace());
            }
            (DrainState::FinalWindow { .. } | DrainState::Draining { .. }, _) => {}
        }
        Ok(())
    }

    fn end_final_window(&mut self) -> io::Result<()> {
        match self.drain_state {
            DrainState::FinalWindow { until_ms, deadline_ms, .. } if until_ms <= self.connections.clock().now_ms() => {
                // The guard is given up after the last accept.
                let mode = DrainMode::Stopping;
                let _final = std::mem::replace(&mut self.drain_state, DrainState::Draining { mode, deadline_ms });
                self.close_listeners()
            }
            _ => Ok(()),
        }
    }

    fn is_drained(&self) -> bool {
        let deadline_ms = match self.drain_state {
            DrainState::Serving(_) => return false,
            DrainState::FinalWindow { deadline_ms, .. } | DrainState::Draining { deadline_ms, .. } => deadline_ms,
        };
        let is_done = || self.connections.is_empty() && self.parked.is_empty() && self.has_closed_listeners();
        is_done() || self.connections.clock().now_ms() >= deadline_ms
    }
}

impl DrainState<'_> {
    /// When the state ends, at the latest.
    fn next_ms(&self) -> Option<Milliseconds> {
        match self {
            DrainState::Serving(_) => None,
            DrainState::FinalWindow { until_ms, deadline_ms, .. } => Some(*until_ms.min(deadline_ms)),
            DrainState::Draining { deadline_ms, .. } => Some(*deadline_ms),
        }
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        self.metrics.heartbeat.begin_waiting();
    }
}
