//! How a worker accepts connections: within a budget, at the limit in exchange for an idle connection, and with pauses
//! when there is nothing to accept with.

use super::{DrainState, ParkedConnection, Source, Worker};
use crate::clock::ms;
use crate::lifecycle::DrainMode;
use crate::limits::permits::{Permit, PermitError};
use crate::metrics::Counter;
use crate::net::transport::Transport;
use crate::protocols::connection::Protocol;
use crate::socket_set::Role;
use crate::threads::listener_state::{Accepting, ListenerState};
use sanderling_os::error::{ErrorClass, classify};
use sanderling_os::poll::Interest;
use sanderling_os::tcp::Stream;
use sanderling_tls::Session;
use std::io;
use std::time::Duration;

/// Connections that a worker accepts from one listener in one iteration.
const ACCEPTS_PER_ITERATION_MAX: usize = 64;
/// Connections that a worker accepts from a listener before it closes it: more than the longest listen queue, 65,535.
const FINAL_ACCEPTS_MAX: usize = 1 << 16;
/// Connections of a shared listener after which its other workers are woken before this one.
const ACCEPTS_PER_REGISTRATION: usize = 16;
/// How long a listener is paused when there is no permit, no descriptor or no memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections that remain in a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    Empty,
    /// Possibly more, for the next iteration.
    MoreNow,
    /// Possibly more, for which there is no permit or descriptor now.
    MoreLater,
}

impl<'s> Worker<'s> {
    /// Accepts what waits in a listener: until nothing does, since that is reported once, and within the budget of an
    /// iteration. On a shared listener each new connection wakes another worker that waits.
    #[inline(never)]
    pub(super) fn accept(&mut self, index: usize) {
        if self.listeners.get(index).is_none_or(|listener| listener.accepting != Accepting::Open) {
            return;
        }
        if self.accept_batch(index, ACCEPTS_PER_ITERATION_MAX) == Backlog::MoreNow {
            self.ready_listeners.push(index);
        }
        let listener = &self.listeners[index];
        if listener.is_shared && listener.accepted_since_registered >= ACCEPTS_PER_REGISTRATION {
            self.requeue_behind_other_workers(index);
        }
    }

    fn accept_batch(&mut self, index: usize, count_max: usize) -> Backlog {
        let ListenerState { role, listener, .. } = self.listeners[index];
        let protocol = role.protocol;
        for _ in 0..count_max {
            match listener.accept() {
                Ok(Some((stream, client))) => match self.connections.permit(protocol, client) {
                    Ok(permit) => self.add_connection(role, stream, permit),
                    Err(PermitError::ClientLimit) => drop(stream),
                    Err(PermitError::Exhausted) => {
                        self.metrics.add([Counter::HttpDelayed, Counter::DnsStreamsDelayed][protocol as usize], 1);
                        self.parked.push(ParkedConnection { role, stream, client });
                        self.shared.request_eviction(protocol);
                        return self.pause(index);
                    }
                },
                Ok(None) => return Backlog::Empty,
                Err(error) => {
                    self.metrics.add(Counter::AcceptErrors, 1);
                    if classify(&error) == ErrorClass::Exhausted {
                        self.connections.release_files();
                    } else if self.listeners[index].accepting == Accepting::Closed {
                        // The owner of the listener has shut it down.
                        return Backlog::Empty;
                    } else if matches!(self.drain_state, DrainState::Serving(_)) && !listener.is_listening() {
                        // Another process that has it has shut it down: a next one gets another socket.
                        self.listeners[index].accepting = Accepting::Closed;
                        self.shared.lifecycle.begin_drain(DrainMode::Stopping);
                        return Backlog::Empty;
                    }
                    return self.pause(index);
                }
            }
            self.listeners[index].accepted_since_registered += 1;
        }
        Backlog::MoreNow
    }

    #[inline(never)]
    fn encrypted(&self, protocol: Protocol, stream: Stream) -> Option<Transport> {
        Some(Transport::plain(stream).with_tls(Session::new(self.connections.tls(protocol)?)))
    }

    /// Serves a new connection, and registers it with the poller if it is still open then.
    fn add_connection(&mut self, Role { protocol, is_encrypted }: Role, stream: Stream, permit: Permit<'s>) {
        let mut transport = match is_encrypted {
            false => Transport::plain(stream),
            true => match self.encrypted(protocol, stream) {
                Some(transport) => transport,
                // Without a certificate there is nothing to say.
                None => return,
            },
        };
        if protocol == Protocol::Http && self.connections.is_proxy(permit.client()) {
            transport = transport.with_proxy_header();
        }
        let Some(key) = self.connections.insert(protocol, transport, permit) else { return };
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(descriptor) = connection.transport().descriptor() else { return };
        let token = Source::Connection(key).token();
        if self.poller.register(&descriptor, token, Interest::ReadableAndWritable).is_err() {
            // No memory for one more.
            self.metrics.add(Counter::AcceptErrors, 1);
            self.connections.close(key);
        }
    }

    /// Closes an idle connection for a worker that has none itself.
    pub(super) fn evict_for_others(&mut self) {
        for protocol in [Protocol::Http, Protocol::Dns] {
            if !self.shared.is_eviction_wanted(protocol) {
                continue;
            }
            if !self.shared.permits(protocol).is_exhausted() || self.connections.evict(protocol) {
                self.shared.end_eviction_request(protocol);
            }
        }
    }

    /// Registers a shared listener again, after the other workers: with `EPOLLEXCLUSIVE` the kernel wakes the worker
    /// that waits and was registered first, which would get nearly all connections.
    fn requeue_behind_other_workers(&mut self, index: usize) {
        let listener = &mut self.listeners[index];
        let deregistered = listener.deregister(&self.poller);
        if deregistered.and_then(|()| listener.register(Source::Listener(index).token(), &self.poller)).is_err() {
            // No memory for it now: the listener is retried after a pause.
            self.pause(index);
        }
    }

    /// Accepts from the listener later, without a new report: readiness is not reported twice. The other listeners go
    /// on: a protocol at its limit must not stop the other one.
    fn pause(&mut self, index: usize) -> Backlog {
        let until_ms = self.connections.clock().now_ms() + ms(ACCEPT_PAUSE);
        self.listeners[index].accepting = Accepting::Paused { until_ms };
        Backlog::MoreLater
    }

    /// Ends the pauses whose time is over.
    pub(super) fn resume_accepting(&mut self) {
        let has_closed = self.connections.take_closed();
        let now_ms = self.connections.clock().now_ms();
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            if has_closed {
                listener.end_pause();
            }
            if listener.paused_until_ms().is_none_or(|until_ms| now_ms < until_ms) {
                continue;
            }
            let protocol = listener.role.protocol;
            if !self.admit_parked(protocol) {
                self.shared.request_eviction(protocol);
                self.pause(index);
            } else if matches!(self.drain_state, DrainState::Draining { .. }) {
                self.close_listener(index);
            } else if self.listeners[index].register(Source::Listener(index).token(), &self.poller).is_err() {
                self.pause(index);
            } else {
                self.listeners[index].accepting = Accepting::Open;
                self.accept(index);
            }
        }
    }

    /// Serves the parked connections of `protocol`; `false` if there are not permits for all.
    fn admit_parked(&mut self, protocol: Protocol) -> bool {
        while let Some(index) = self.parked.iter().position(|parked| parked.role.protocol == protocol) {
            match self.connections.permit(protocol, self.parked[index].client) {
                Ok(permit) => {
                    let ParkedConnection { role, stream, .. } = self.parked.remove(index);
                    self.add_connection(role, stream, permit);
                }
                Err(PermitError::ClientLimit) => drop(self.parked.remove(index)),
                Err(PermitError::Exhausted) => return false,
            }
        }
        true
    }

    /// Accepts no more. The accept guard must be held until this returns.
    pub(super) fn close_listeners(&mut self) -> io::Result<()> {
        for index in 0..self.listeners.len() {
            self.listeners[index].deregister(&self.poller)?;
            // A paused listener, which may have parked connections, is closed after its pause.
            if self.listeners[index].paused_until_ms().is_none() {
                self.close_listener(index);
            }
        }
        Ok(())
    }

    /// Accepts the connections that must not be left in the listener, and then none.
    fn close_listener(&mut self, index: usize) {
        self.listeners[index].accepting = Accepting::Closed;
        let is_stopping = matches!(self.drain_state, DrainState::Draining { mode: DrainMode::Stopping, .. });
        // A connection in a shared listener may have woken only this worker: the other processes would not learn of it
        // before another connection arrives.
        if self.listeners[index].is_shared || is_stopping {
            self.accept_batch(index, FINAL_ACCEPTS_MAX);
        }
    }

    pub(super) fn has_closed_listeners(&self) -> bool {
        self.listeners.iter().all(|listener| listener.accepting == Accepting::Closed)
    }
}
