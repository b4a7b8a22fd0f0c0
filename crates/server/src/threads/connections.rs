//! The connections of one worker: which of them have work left, when each expires, and which may be closed for a new
//! one.
//!
//! It is driven by the worker, which owns the poller and the listeners, and in tests by a simulation without either.

use crate::backends::Backends;
use crate::clock::{Clock, Milliseconds};
use crate::context::{Buffers, Context, Inspection};
use crate::files::jobs::SentEvent;
use crate::files::local_files::LocalFiles;
use crate::limits::idle_list::{ClientIdleLists, Handshakes, IdleList};
use crate::limits::key_queue::KeyQueue;
use crate::limits::permits::{ClientPrefix, Permit, PermitError};
use crate::log::access_log::WorkerLog;
use crate::log::query_log::ThreadQueryLog;
use crate::metrics::{Counter, ThreadMetrics};
use crate::net::transport::Transport;
use crate::protocols::connection::{Connection, Next, Protocol};
use crate::slab::{Key, Slab};
use crate::snapshot::Snapshot;
use crate::statistics::Series;
use crate::threads::shared::Shared;
use crate::timers::Timers;
use crate::waiter::{Event, Waiter};
use sanderling_log_format::LogKind;
use sanderling_os::poll::Readiness;
use sanderling_tls::ServerTls;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Handshakes that continue in one iteration: each costs as much as many requests.
const HANDSHAKES_PER_ITERATION_MAX: usize = 8;

/// Connections of the ready list that are served in one iteration: a worker checks its listeners again soon, however
/// many connections have work left.
const READY_PER_ITERATION_MAX: usize = 16;

/// How often in one iteration backends and clients take what the other side has for them.
const EXCHANGES_PER_ITERATION_MAX: usize = 8;

/// The connections of one worker.
pub(crate) struct Connections<'s> {
    shared: &'s Shared,
    worker_index: usize,
    slab: Slab<Connection<'s>>,
    /// Connections to backends; `None` until a site has a route to one.
    backends: Option<Box<Backends>>,
    /// Connections whose budget was used up before their work was done, each once.
    ready: Vec<Key>,
    timers: Timers,
    /// Of each [`Protocol`].
    idle: [IdleList; 2],
    /// HTTP connections with part of a request, in the order in which the requests began.
    partial: IdleList,
    /// Of each [`Protocol`].
    handshakes: [Handshakes; 2],
    /// Those that wait until their key can sign.
    key_queue: KeyQueue,
    /// The idle connections of each client and [`Protocol`], where one client may not have all permits.
    idle_of_clients: Option<Box<[ClientIdleLists; 2]>>,
    clock: Clock,
    buffers: Buffers,
    files: LocalFiles<'s>,
    snapshot: Snapshot,
    snapshot_version: u64,
    metrics: Arc<ThreadMetrics>,
    log: Option<Rc<WorkerLog>>,
    query_log: Option<ThreadQueryLog>,
    inspection: Inspection,
    use_number: u64,
    /// How long idle connections stay open, once the server drains.
    drain_grace: Option<Duration>,
    /// A connection has closed since [`Connections::take_closed`].
    has_closed: bool,
    /// Handshakes that can continue in this iteration.
    handshakes_left: usize,
}

impl<'s> Connections<'s> {
    pub(crate) fn new(
        shared: &'s Shared,
        worker_index: usize,
        metrics: Arc<ThreadMetrics>,
        clock: Clock,
    ) -> Connections<'s> {
        let (snapshot, snapshot_version) = shared.snapshot();
        let mut connections = Connections {
            shared,
            worker_index,
            slab: Slab::new(),
            backends: None,
            ready: Vec::new(),
            timers: Timers::default(),
            idle: [IdleList::new(), IdleList::new()],
            partial: IdleList::new(),
            handshakes: [Handshakes::new(), Handshakes::new()],
            key_queue: KeyQueue::default(),
            idle_of_clients: [Protocol::Http, Protocol::Dns]
                .iter()
                .any(|&protocol| shared.permits(protocol).has_client_limit())
                .then(Box::default),
            clock,
            buffers: Buffers::new(&shared.options),
            files: LocalFiles::new(&shared.files),
            snapshot,
            snapshot_version,
            metrics,
            log: None,
            query_log: None,
            inspection: Inspection::None,
            use_number: 0,
            drain_grace: None,
            has_closed: false,
            handshakes_left: HANDSHAKES_PER_ITERATION_MAX,
        };
        connections.update_log();
        connections.update_backends();
        connections
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn clock_mut(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// Whether a connection of `client` begins with a header of the PROXY protocol.
    pub(crate) fn is_proxy(&self, client: &SocketAddr) -> bool {
        self.snapshot.http_clients.sends_proxy_header(client.ip())
    }

    /// The TLS settings of a new encrypted connection of `protocol`.
    pub(crate) fn tls(&self, protocol: Protocol) -> Option<&ServerTls> {
        let tls = self.snapshot.tls.as_ref()?;
        Some(match protocol {
            Protocol::Http => &tls.https,
            Protocol::Dns => &tls.dot,
        })
    }

    /// Begins an iteration: reads the clock, and takes the newest snapshot.
    pub(crate) fn begin_iteration(&mut self) {
        self.clock.tick();
        self.handshakes_left = HANDSHAKES_PER_ITERATION_MAX;
        if self.shared.buffers.is_scarce() != self.buffers.limits.is_scarce() {
            self.buffers.limits = self.shared.piece_limits();
        }
        if self.shared.snapshot_version() != self.snapshot_version {
            let (snapshot, version) = self.shared.snapshot();
            let previous = std::mem::replace(&mut self.snapshot, snapshot);
            self.snapshot_version = version;
            self.update_log();
            let Snapshot { sites, backend_addresses, backend_tls, .. } = &self.snapshot;
            let has_same_backends = Arc::ptr_eq(&previous.sites, sites)
                && Arc::ptr_eq(&previous.backend_addresses, backend_addresses)
                && Arc::ptr_eq(&previous.backend_tls, backend_tls);
            if !has_same_backends {
                self.update_backends();
            }
        }
        if let Some(log) = &self.log {
            log.set_time(&self.clock);
        }
    }

    /// Begins or ends to log and count responses, as the snapshot says.
    fn update_log(&mut self) {
        let Snapshot { access_log, slots, http_clients, .. } = &self.snapshot;
        self.shared.update_query_log(&mut self.query_log, &self.snapshot);
        let has_log = access_log.is_some() || self.metrics.statistics.is_some();
        self.inspection =
            if self.shared.request_budget.client_rate.is_some() || (has_log && http_clients.are_named_by_fields()) {
                Inspection::Rules
            } else if has_log {
                Inspection::Log
            } else {
                Inspection::None
            };
        if !has_log {
            self.log = None;
            return;
        }
        let log = self.log.get_or_insert_with(|| Rc::new(WorkerLog::new(Arc::clone(&self.metrics))));
        log.set(access_log.as_ref(), self.shared.log_queue(LogKind::Access), slots);
    }

    /// Begins to connect to backends if a site has a route to one, and forgets those that have none any longer.
    fn update_backends(&mut self) {
        if self.backends.is_none() && self.snapshot.sites.backends().next().is_some() {
            let backends = Backends::new(
                self.snapshot.unix_connector.clone(),
                self.worker_index,
                Arc::clone(&self.shared.backend_problems),
                Arc::clone(&self.shared.backend_servers),
            );
            self.backends = Some(Box::new(backends));
        }
        if let Some(backends) = &mut self.backends {
            backends.set_tls(&self.snapshot.backend_tls);
            backends.set_addresses(&self.snapshot.backend_addresses, self.clock.now_ms());
            backends.set_used(self.snapshot.sites.backends(), self.clock.now_ms());
        }
    }

    /// Connections to backends are made in memory.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn memory_backend(&mut self) -> &mut crate::backends::MemoryBackend {
        self.backends.get_or_insert_default().memory.get_or_insert_default()
    }

    /// Serves a connection to a backend that has become ready.
    #[cold]
    pub(crate) fn advance_backend(&mut self, key: Key, readiness: Readiness) {
        let now_ms = self.clock.now_ms();
        if let Some(backends) = &mut self.backends {
            backends.advance(key, Some(readiness), self.buffers.received_room(), now_ms);
        }
        self.exchange_with_backends();
    }

    /// Takes connections to backends that another process has made.
    pub(crate) fn take_backend_connections(&mut self) {
        if let Some(backends) = &mut self.backends {
            backends.take_unix_connections(self.clock.now_ms());
        }
    }

    /// Whether there may be connections to backends: [`Connections::serve_backends`] serves them.
    #[inline]
    pub(crate) fn has_backends(&self) -> bool {
        self.backends.is_some()
    }

    /// Ends an iteration of the connections to backends: those whose deadline has passed, the exchange with clients,
    /// and new ones for the poller.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve_backends(&mut self, register: impl Fn(BorrowedFd<'_>, Key) -> io::Result<()>) {
        let now_ms = self.clock.now_ms();
        if let Some(backends) = &mut self.backends {
            backends.expire(now_ms);
        }
        self.exchange_with_backends();
        if let Some(backends) = &mut self.backends {
            backends.register(register, now_ms);
        }
    }

    /// Lets backends and clients take from each other what they have, until neither has more.
    fn exchange_with_backends(&mut self) {
        for _ in 0..EXCHANGES_PER_ITERATION_MAX {
            let Some(backends) = &mut self.backends else { return };
            if !backends.has_work() {
                return;
            }
            backends.advance_awaited(self.buffers.received_room(), self.clock.now_ms());
            for Waiter { connection, stream, .. } in backends.take_awakened() {
                self.note_event(SentEvent { connection, stream, event: Event::Backend });
            }
        }
    }

    /// Whether backends or their clients have work left.
    fn has_backend_work(&self) -> bool {
        self.backends.as_ref().is_some_and(|backends| backends.has_work())
    }

    /// Ends an iteration: gives up references to files that were invalidated, before the worker may sleep.
    pub(crate) fn end_iteration(&mut self) {
        self.files.sweep();
        if self.metrics.statistics.is_some() {
            self.count_states();
        }
        if let Some(log) = &self.log {
            log.pass_on();
        }
        if let Some(log) = &self.query_log {
            log.pass_on();
        }
    }

    // Separate, so that an iteration without detailed counts stays short.
    #[cold]
    #[inline(never)]
    fn count_states(&self) {
        let Some(statistics) = &self.metrics.statistics else { return };
        let handshaking = self.handshakes[0].count();
        let counts = [handshaking, self.partial.count().saturating_sub(handshaking), self.idle[0].count()];
        for (state, count) in counts.into_iter().enumerate() {
            statistics.set(Series::InState(state), count);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Connection<'s>> {
        self.slab.get_mut(key)
    }

    /// When the next connection expires, at the earliest, or handshakes that wait for their key are retried.
    pub(crate) fn next_deadline_ms(&self) -> Option<Milliseconds> {
        let next_ms = match &self.backends {
            None => self.timers.next_ms(),
            Some(backends) => self.timers.next_ms().into_iter().chain(backends.next_deadline_ms()).min(),
        };
        self.key_queue.next_try_ms().map_or(next_ms, |try_ms| Some(next_ms.map_or(try_ms, |next| next.min(try_ms))))
    }

    /// Whether a connection has work left, so that the worker must not wait.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || self.has_backend_work()
    }

    /// A permit for one more connection. At the limit of all, the longest idle connection is closed for it, and at that
    /// of a client the longest idle one of this client.
    pub(crate) fn permit(&mut self, protocol: Protocol, client: SocketAddr) -> Result<Permit<'s>, PermitError> {
        let permits = self.shared.permits(protocol);
        let taken = permits.take(client).or_else(|error| match error {
            PermitError::Exhausted if self.evict(protocol) => permits.take(client),
            PermitError::ClientLimit if self.evict_of_client(protocol, ClientPrefix::of(client.ip())) => {
                permits.take(client)
            }
            error => Err(error),
        });
        if taken.as_ref().err() == Some(&PermitError::ClientLimit) {
            let counters = [Counter::HttpOverClientLimit, Counter::DnsStreamsOverClientLimit];
            self.metrics.add(counters[protocol as usize], 1);
        }
        taken
    }

    /// Adds a connection and serves it immediately, because its first request has usually arrived with it. `None`: it
    /// was served whole and is closed already.
    pub(crate) fn insert(&mut self, protocol: Protocol, transport: Transport, permit: Permit<'s>) -> Option<Key> {
        self.metrics.add([Counter::HttpConnections, Counter::DnsStreams][protocol as usize], 1);
        let now_ms = self.clock.now_ms();
        if let Some(statistics) = &self.metrics.statistics {
            statistics.add(Series::Open(protocol as usize, transport.is_encrypted()), 1);
        }
        let connection = Connection::new(protocol, transport, permit, &self.shared.options, now_ms);
        let is_handshaking = connection.is_handshaking();
        let key = self.slab.insert(connection);
        if is_handshaking {
            self.begin_handshake(protocol, key);
        }
        self.advance(key, None);
        self.slab.get_mut(key).is_some().then_some(key)
    }

    /// Serves a connection that may have become ready.
    pub(crate) fn advance(&mut self, key: Key, readiness: Option<Readiness>) {
        let Some(connection) = self.slab.get_mut(key) else { return };
        if let Some(readiness) = readiness {
            connection.set_readiness(readiness);
            if connection.is_in_ready_list {
                // It is served with the ready list, once per iteration.
                return;
            }
        }
        if connection.is_handshaking() {
            return self.advance_handshake(key);
        }
        self.with_connection(key, Connection::advance);
    }

    /// Counts the handshake of a new connection, and closes the oldest one if there are too many.
    #[inline(never)]
    fn begin_handshake(&mut self, protocol: Protocol, key: Key) {
        if let Some(oldest) = self.handshakes[protocol as usize].oldest_of(self.shared.options.tls_handshakes_max) {
            self.metrics.add(Counter::TlsEvicted, 1);
            self.end(oldest);
        }
        self.handshakes[protocol as usize].begin(key);
    }

    /// Serves a connection whose handshake is not complete.
    #[inline(never)]
    fn advance_handshake(&mut self, key: Key) {
        // Those in the queue are tried in its order.
        if self.awaits_key(key) || !self.may_handshake(key) {
            return;
        }
        self.go_on_with_handshake(key);
        if self.awaits_key(key) {
            let Connections { slab, key_queue, clock, .. } = self;
            key_queue.push(key, clock.now_ms(), |key| slab.get_mut(key).is_some_and(|it| it.awaits_key()));
        }
    }

    fn go_on_with_handshake(&mut self, key: Key) {
        self.with_connection(key, Connection::advance);
        // One that has closed was taken off the list then.
        if let Some(connection) = self.slab.get_mut(key)
            && !connection.is_handshaking()
        {
            self.handshakes[connection.protocol() as usize].end(key);
        }
    }

    fn awaits_key(&mut self, key: Key) -> bool {
        self.slab.get_mut(key).is_some_and(|connection| connection.awaits_key())
    }

    /// Tries the handshakes that wait for their key, the oldest first: while the first one waits, so do the others.
    #[cold]
    #[inline(never)]
    fn try_keys(&mut self) {
        while let Some(key) = self.key_queue.first() {
            if self.awaits_key(key) {
                let Some(left) = self.handshakes_left.checked_sub(1) else { return };
                self.handshakes_left = left;
                self.go_on_with_handshake(key);
                if self.awaits_key(key) {
                    return self.key_queue.pause(self.clock.now_ms());
                }
            }
            self.key_queue.remove_first();
        }
    }

    /// Whether a handshake can continue in this iteration; otherwise it continues in the next one.
    fn may_handshake(&mut self, key: Key) -> bool {
        if let Some(left) = self.handshakes_left.checked_sub(1) {
            self.handshakes_left = left;
            return true;
        }
        if let Some(connection) = self.slab.get_mut(key)
            && !std::mem::replace(&mut connection.is_in_ready_list, true)
        {
            self.ready.push(key);
        }
        false
    }

    /// The first connections that have work left, for [`Connections::advance_ready`].
    pub(crate) fn take_ready(&mut self) -> Vec<Key> {
        if self.ready.len() <= READY_PER_ITERATION_MAX {
            return std::mem::take(&mut self.ready);
        }
        let rest = self.ready.split_off(READY_PER_ITERATION_MAX);
        std::mem::replace(&mut self.ready, rest)
    }

    /// Serves a connection out of the ready list.
    pub(crate) fn advance_ready(&mut self, key: Key) {
        if let Some(connection) = self.slab.get_mut(key) {
            connection.is_in_ready_list = false;
        }
        self.advance(key, None);
    }

    /// Serves a connection that has received an event.
    pub(crate) fn note_event(&mut self, sent: SentEvent) {
        self.with_connection(sent.connection, |connection, context| {
            connection.note_event(sent.stream, sent.event);
            connection.advance(context)
        });
    }

    /// Serves or closes the connections whose deadline has passed, and tries handshakes that wait for their key.
    pub(crate) fn expire(&mut self) {
        let now_ms = self.clock.now_ms();
        if self.key_queue.next_try_ms().is_some_and(|try_ms| try_ms <= now_ms) {
            self.try_keys();
        }
        while let Some(key) = self.timers.pop_passed(now_ms, &mut self.slab, |connection| &mut connection.timer) {
            self.with_connection(key, Connection::expire);
        }
    }

    /// Begins to drain: connections learn that they are to close, and idle ones stay open for `grace`.
    pub(crate) fn drain(&mut self, grace: Duration) {
        self.drain_grace = Some(grace);
        let keys: Vec<Key> = self.slab.keys().collect();
        // Those in the ready list are served anyway.
        for key in keys {
            if self.slab.get_mut(key).is_some_and(|connection| !connection.is_in_ready_list) {
                self.advance(key, None);
            }
        }
    }

    /// Closes the connection of `protocol` that was not used for longest or, if none is idle, the one that has been
    /// receiving a request for longest; whether there was one.
    pub(crate) fn evict(&mut self, protocol: Protocol) -> bool {
        let (key, counter) = match (self.idle[protocol as usize].oldest(), protocol) {
            (Some(key), Protocol::Http) => (key, Counter::HttpEvicted),
            (Some(key), Protocol::Dns) => (key, Counter::DnsStreamsEvicted),
            (None, Protocol::Http) => match self.partial.oldest() {
                Some(key) => (key, Counter::HttpPartialEvicted),
                None => return false,
            },
            (None, Protocol::Dns) => return false,
        };
        self.metrics.add(counter, 1);
        self.end(key);
        true
    }

    /// Closes the connection of `client` that was not used for longest; whether there was one.
    fn evict_of_client(&mut self, protocol: Protocol, client: ClientPrefix) -> bool {
        let lists = self.idle_of_clients.as_ref().map(|lists| &lists[protocol as usize]);
        let Some(key) = lists.and_then(|lists| lists.oldest(client)) else { return false };
        self.metrics.add([Counter::HttpClientEvicted, Counter::DnsStreamsClientEvicted][protocol as usize], 1);
        self.end(key);
        true
    }

    /// Ends the stream of a connection in an orderly way, and closes it.
    #[inline(never)]
    fn end(&mut self, key: Key) {
        if let Some(connection) = self.slab.get_mut(key) {
            connection.end();
        }
        self.close(key);
    }

    /// Closes a connection.
    pub(crate) fn close(&mut self, key: Key) {
        let Some(mut connection) = self.slab.remove(key) else { return };
        connection.release(&self.shared.buffers);
        self.has_closed = true;
        let protocol = connection.protocol() as usize;
        self.idle[protocol].remove(key);
        self.partial.remove(key);
        self.handshakes[protocol].end(key);
        if let Some(lists) = &mut self.idle_of_clients {
            lists[protocol].update(connection.client(), key, None);
        }
        if let Some(statistics) = &self.metrics.statistics {
            // One that is added with the largest number is one less.
            statistics.add(Series::Open(protocol, connection.transport().is_encrypted()), u64::MAX);
        }
        self.metrics.add([Counter::HttpClosed, Counter::DnsStreamsClosed][protocol], 1);
    }

    /// Whether a connection has closed since the last call.
    pub(crate) fn take_closed(&mut self) -> bool {
        std::mem::take(&mut self.has_closed)
    }

    /// Counts the responses that are aborted if all connections close now.
    pub(crate) fn count_aborted(&mut self) {
        let keys: Vec<Key> = self.slab.keys().collect();
        let of_connection = |key| self.slab.get_mut(key).map_or(0, |connection| connection.unsent_response_count());
        let count = keys.into_iter().map(of_connection).sum::<usize>();
        self.metrics.add(Counter::CutOff, count as u64);
    }

    /// Gives up the cached references to files: their descriptors are the ones that can be spared.
    pub(crate) fn release_files(&mut self) {
        self.files.clear();
    }

    /// Lets `act` work on a connection, and takes the step that the connection then requests.
    // Separate: inlined into its callers it takes more instructions for each request.
    #[inline(never)]
    fn with_connection(
        &mut self,
        key: Key,
        act: impl FnOnce(&mut Connection<'s>, &mut Context<'_, 's>) -> io::Result<Next>,
    ) {
        let Some(connection) = self.slab.get_mut(key) else { return };
        self.use_number += 1;
        let mut context = Context {
            snapshot: &self.snapshot,
            files: &mut self.files,
            reads: &self.shared.reads,
            authenticator: &self.shared.authenticator,
            backends: self.backends.as_deref_mut(),
            options: &self.shared.options,
            clock: &self.clock,
            buffers: &mut self.buffers,
            metrics: &self.metrics,
            waiter: Waiter { worker_index: self.worker_index, connection: key, stream: 0 },
            use_number: self.use_number,
            inspection: self.inspection,
            request_budget: &self.shared.request_budget,
            log: self.log.as_ref(),
            query_log: self.query_log.as_ref(),
            drain_grace: self.drain_grace,
        };
        let next = match catch_unwind(AssertUnwindSafe(|| act(connection, &mut context))) {
            Ok(Ok(next)) => next,
            // An error of the transport means that the client has disconnected.
            Ok(Err(_)) => return self.close(key),
            Err(_) => {
                self.metrics.add(Counter::Panics, 1);
                // The panic may have left the buffers in any state.
                self.buffers = Buffers::new(&self.shared.options);
                return self.close(key);
            }
        };
        match next {
            Next::Close => return self.end(key),
            Next::Again if !connection.is_in_ready_list => {
                connection.is_in_ready_list = true;
                self.ready.push(key);
            }
            Next::Again | Next::Wait => {}
        }
        if connection.charge(&self.shared.buffers) {
            self.buffers.limits = self.shared.piece_limits();
            if self.buffers.limits.is_scarce() {
                self.metrics.add(Counter::BuffersScarce, 1);
                if connection.holds_too_much_of_a_request() {
                    self.metrics.add(Counter::BuffersRefused, 1);
                    return self.close(key);
                }
            }
        }
        // On the path of each request: a match costs less than an index.
        let [http, dns] = &mut self.idle;
        let list = match connection.protocol() {
            Protocol::Http => http,
            Protocol::Dns => dns,
        };
        match connection.idle_use_number() {
            Some(last_used) => {
                if list.touch(key, last_used) {
                    self.partial.remove(key);
                }
            }
            None if connection.is_lingering() => {
                list.put_oldest(key);
                self.partial.remove(key);
            }
            None => {
                list.remove(key);
                match connection.partial_use_number() {
                    Some(since) => drop(self.partial.touch(key, since)),
                    None => self.partial.remove(key),
                }
            }
        }
        if let Some(lists) = &mut self.idle_of_clients {
            lists[connection.protocol() as usize].update(connection.client(), key, connection.idle_use_number());
        }
        self.timers.queue(key, &mut connection.timer);
    }
}
