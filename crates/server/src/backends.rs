//! The connections of one worker to the backends of routes: which of them gets a request, and what follows a failure.
//!
//! A connection has one request at a time. Unused ones are kept, and the last used one is taken first, so that the
//! others expire. A request that finds a kept connection closed is repeated on a new one, if the backend cannot have
//! carried it out, or if it may be carried out twice.

mod changes;
mod checks;
mod group;
mod connection;
mod choice;

use crate::backend_problems::{BackendProblem, BackendProblems};
use crate::backend_servers::BackendServers;
use crate::backend_tls::BackendTlsSettings;
use crate::clock::{Clock, Milliseconds, ms};
use crate::net::backend_stream::BackendStream;
use crate::net::call::{
    Call, CallError, CallHandle, CallRequest, CallResponse, CallState, Chosen, ResponseTime, Wakeups,
};
use crate::net::transport::Transport;
use crate::slab::{Key, Slab};
use crate::timers::Timers;
use crate::unix_connector::UnixConnector;
use crate::waiter::Waiter;
use checks::Checks;
use connection::{BackendConnection, Progress, Tools};
use group::{Group, WaitingCall};
use sanderling_http2::ClientFault;
use sanderling_os::poll::Readiness;
use sanderling_os::tcp::Stream;
use sanderling_site_rules::{Backend, BackendAddress, ClientHeader, Route};
use sanderling_tls::ClientError;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Connections on which one request is tried, at most.
const ATTEMPTS_MAX: u8 = 3;
/// How often a request tries again to reach a server that is being restarted.
const RETRY_MS: Milliseconds = 50;
/// Requests that wait for a connection to one backend; further ones are refused.
const WAITING_MAX: usize = 1_024;

/// The connections of a worker to backends.
#[derive(Debug, Default)]
pub(crate) struct Backends {
    connections: Slab<BackendConnection>,
    groups: Vec<Group>,
    /// The group of each backend of the routes. Backends that are equal have one group, so that a reload keeps it.
    group_of: HashMap<*const Backend, usize>,
    timers: Timers,
    wakeups: Wakeups,
    /// Connections that are not registered with the poller.
    unregistered: Vec<Key>,
    /// The settings for the encryption of connections.
    tls: Arc<BackendTlsSettings>,
    /// Makes connections to UNIX sockets for this worker.
    unix: Option<(Arc<UnixConnector>, usize)>,
    /// Each such connection that is being made.
    opening: HashMap<u32, Opening>,
    /// The waiters that get an event.
    awakened: Vec<Waiter>,
    problems: Arc<BackendProblems>,
    /// The states of servers, which workers share.
    servers: Arc<BackendServers>,
    /// The addresses of hosts.
    addresses: Arc<BTreeMap<String, Vec<IpAddr>>>,
    /// The active checks; `None` if another worker makes them.
    checks: Option<Checks>,
    /// When requests whose connection failed try again.
    retry_ms: Milliseconds,
    /// Whether requests may wait for a connection.
    has_waiting: bool,
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) memory: Option<MemoryBackend>,
}

/// A connection that another process makes.
#[derive(Clone, Copy, Debug)]
struct Opening {
    /// The backend and its server.
    place: (usize, usize),
    purpose: Purpose,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Requests,
    Check,
}

/// The end of a connection whose other end is a test.
#[cfg(any(test, feature = "simulation"))]
#[derive(Debug, Default)]
pub(crate) struct MemoryBackend {
    /// The streams, in the order in which they were connected, with their keys.
    pub(crate) streams: Vec<(crate::net::memory_stream::MemoryStream, Key)>,
    /// The address of the server of each.
    pub(crate) addresses: Vec<BackendAddress>,
    /// The next connections fail.
    pub(crate) refuses: bool,
    /// The next connections to these fail.
    pub(crate) refusing: Vec<BackendAddress>,
}

impl Backends {
    /// Without connections. `unix`: makes those to UNIX sockets for the worker with this index. The first worker checks
    /// servers for all.
    pub(crate) fn new(
        unix: Option<Arc<UnixConnector>>,
        worker_index: usize,
        problems: Arc<BackendProblems>,
        servers: Arc<BackendServers>,
    ) -> Backends {
        Backends {
            unix: unix.map(|connector| (connector, worker_index)),
            problems,
            servers,
            checks: (worker_index == 0).then(Checks::default),
            ..Backends::default()
        }
    }

    /// New connections are encrypted with these settings.
    pub(crate) fn set_tls(&mut self, settings: &Arc<BackendTlsSettings>) {
        self.tls = Arc::clone(settings);
    }

    /// Passes a request on. The waiter receives an event when there is a response, or room for more content.
    pub(crate) fn begin(
        &mut self,
        route: &Arc<Route>,
        request: CallRequest,
        waiter: Waiter,
        clock: &Clock,
    ) -> CallHandle {
        let call = Call::new(Arc::clone(route), waiter, request);
        let handle = call.handle(&self.wakeups);
        self.assign(call, clock.now_ms());
        handle
    }

    /// Gives a request to a server, or lets it wait for a connection.
    fn assign(&mut self, call: Call, now_ms: Milliseconds) {
        let backend = Arc::clone(&call.state().backend_route().backend);
        let group_index = self.group_index(&backend);
        let group = &mut self.groups[group_index];
        let affinity = call.state().request.affinity;
        let Some(server) = group.choose(affinity, now_ms) else {
            return match group.missing_name() {
                Some(name) => self.fail(&call, CallError::NameNotFound(name)),
                None => self.wait(group_index, call, None, now_ms),
            };
        };
        let chosen = &mut group.servers[server];
        // The other unused connections may have ended together with the one on which it has failed.
        let is_repeated = call.state().failed_count > 0;
        let has_room = chosen.open_count < backend.connections_max;
        match chosen.idle.pop() {
            Some(key) if !is_repeated => return self.begin_on(key, call, now_ms),
            Some(key) if has_room => chosen.idle.push(key),
            Some(key) => {
                self.connections.remove(key);
                chosen.note_closed();
            }
            None => {}
        }
        let address = chosen.address.clone();
        match self.connect(&address, (group_index, server), Purpose::Requests) {
            Ok(transport) => {
                let stream = transport.map(|transport| self.stream(transport, (group_index, server))).transpose();
                let stream = match stream {
                    Ok(stream) => stream,
                    Err(error) => {
                        self.groups[group_index].servers[server].note_failed_request(&mut call.state(), now_ms);
                        return self.fail(&call, CallError::Tls(error));
                    }
                };
                self.groups[group_index].servers[server].note_opened();
                if let Some(stream) = stream {
                    let key = self.add(stream, (group_index, server));
                    self.begin_on(key, call, now_ms);
                } else {
                    self.wait(group_index, call, None, now_ms);
                }
            }
            Err(error) => {
                let error = CallError::Connect(error.kind());
                let server = &self.groups[group_index].servers[server];
                server.note_failed_request(&mut call.state(), now_ms);
                server.state.note_unreachable(&error.to_string(), now_ms);
                self.fail_or_repeat(call, error, true, now_ms);
            }
        }
    }

    /// The group of a backend.
    fn group_index(&mut self, backend: &Arc<Backend>) -> usize {
        if let Some(&index) = self.group_of.get(&Arc::as_ptr(backend)) {
            return index;
        }
        let known = self.groups.iter().position(|group| group.backends.first().is_some_and(|own| own == backend));
        let index = match known {
            Some(index) => {
                self.groups[index].backends.push(Arc::clone(backend));
                index
            }
            None => {
                let mut group = Group::new(backend);
                group.update_servers(&self.addresses, &self.servers, &self.problems, |_| false);
                let is_checked = |group| self.checks.as_ref().is_some_and(|checks| checks.is_checking_any(group));
                let free = (0..self.groups.len()).find(|&index| self.groups[index].is_free() && !is_checked(index));
                let index = free.unwrap_or(self.groups.len());
                self.groups.splice(index..(index + 1).min(self.groups.len()), [group]);
                index
            }
        };
        self.group_of.insert(Arc::as_ptr(backend), index);
        index
    }

    fn wait(&mut self, group_index: usize, call: Call, error: Option<CallError>, now_ms: Milliseconds) {
        let group = &mut self.groups[group_index];
        let connect_timeout = call.state().backend_route().backend.connect_timeout;
        let until_ms = *call.state().waits_until_ms.get_or_insert(now_ms + ms(connect_timeout));
        if group.waiting.len() >= WAITING_MAX {
            return self.fail(&call, CallError::Busy(Duration::ZERO));
        }
        group.waiting.push_back(WaitingCall { call, until_ms, error });
        self.has_waiting = true;
    }

    #[cfg(any(test, feature = "simulation"))]
    fn note_memory(&mut self, key: Key) {
        if let Some((_, last)) = self.memory.as_mut().and_then(|memory| memory.streams.last_mut()) {
            *last = key;
        }
    }

    #[cfg(not(any(test, feature = "simulation")))]
    #[expect(clippy::unused_self, reason = "tests have another one")]
    fn note_memory(&self, _key: Key) {}

    /// The stream of a connection that is being made, encrypted if the backend wants it.
    fn stream(&self, transport: Transport, (group, server): (usize, usize)) -> Result<BackendStream, ClientError> {
        let (backend, server) = (self.groups[group].backend(), &self.groups[group].servers[server]);
        match &backend.tls {
            None => Ok(BackendStream::plain(transport)),
            Some(tls) => {
                let session = self.tls.session(tls, &server.configured, &backend.protocol)?;
                Ok(BackendStream::encrypted(transport, session))
            }
        }
    }

    fn add(&mut self, transport: BackendStream, (group, server): (usize, usize)) -> Key {
        let protocol = &self.groups[group].backend().protocol;
        let key = self.connections.insert(BackendConnection::new(transport, protocol, (group, server)));
        self.unregistered.push(key);
        self.note_memory(key);
        key
    }

    /// Takes the connections to UNIX sockets that were made.
    pub(crate) fn take_unix_connections(&mut self, now_ms: Milliseconds) {
        let Some((connector, worker_index)) = &self.unix else { return };
        for (request, result) in connector.take_results(*worker_index) {
            let Some(Opening { place: (group, server), purpose }) = self.opening.remove(&request) else { continue };
            match result {
                result if purpose == Purpose::Check => {
                    let transport = result.map(|descriptor| Transport::plain(Stream::from(descriptor)));
                    self.continue_opened_check((group, server), transport, now_ms);
                }
                Ok(descriptor) => {
                    let stream = BackendStream::plain(Transport::plain(Stream::from(descriptor)));
                    let key = self.add(stream, (group, server));
                    self.continue_after(Progress::Free, key, now_ms);
                }
                Err(error) => {
                    let group = &mut self.groups[group];
                    let of_server = &mut group.servers[server];
                    of_server.note_closed();
                    let error = CallError::Connect(error.kind());
                    of_server.state.note_unreachable(&error.to_string(), now_ms);
                    if let Some(WaitingCall { call, .. }) = group.waiting.pop_front() {
                        of_server.note_failed_request(&mut call.state(), now_ms);
                        self.fail_or_repeat(call, error, true, now_ms);
                    }
                }
            }
        }
    }

    /// Begins a connection; `None`: another process makes it.
    fn connect(
        &mut self,
        address: &BackendAddress,
        place: (usize, usize),
        purpose: Purpose,
    ) -> io::Result<Option<Transport>> {
        #[cfg(any(test, feature = "simulation"))]
        if let Some(memory) = &mut self.memory {
            if memory.refuses || memory.refusing.contains(address) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let stream = crate::net::memory_stream::MemoryStream::default();
            stream.open_window(usize::MAX);
            memory.streams.push((stream.clone(), Key::unpacked(0)));
            memory.addresses.push(address.clone());
            return Ok(Some(Transport::memory(stream)));
        }
        match address {
            BackendAddress::Host { .. } => Err(io::ErrorKind::Unsupported.into()),
            BackendAddress::Tcp(address) => Stream::connect(*address).map(|stream| Some(Transport::plain(stream))),
            BackendAddress::Unix(path) => {
                let (connector, worker_index) = self.unix.as_ref().ok_or(io::ErrorKind::Unsupported)?;
                let request = connector.want(*worker_index, path)?;
                self.opening.insert(request, Opening { place, purpose });
                Ok(None)
            }
        }
    }

    /// Begins a request on a connection without one.
    fn begin_on(&mut self, key: Key, call: Call, now_ms: Milliseconds) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if !self.checks.as_ref().is_some_and(|checks| checks.has(key)) {
            let (group, server) = connection.server;
            self.groups[group].servers[server].note_request(&mut call.state(), now_ms);
        }
        call.state().connection = Some(key);
        connection.begin(call);
        // A response cannot be there yet, so that no room is needed.
        self.advance(key, None, &mut [], now_ms);
    }

    /// Serves a connection that may have become ready. `room`: for received bytes.
    pub(crate) fn advance(&mut self, key: Key, readiness: Option<Readiness>, room: &mut [u8], now_ms: Milliseconds) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if let Some(readiness) = readiness {
            connection.set_readiness(readiness);
        }
        let (group, _) = connection.server;
        let connect_timeout = self.groups[group].backend().connect_timeout;
        let progress = connection.advance(connect_timeout, &mut Tools { room, now_ms, awakened: &mut self.awakened });
        self.continue_after(progress, key, now_ms);
    }

    /// Carries on the work of the clients' sides, and repeats it while that makes more.
    pub(crate) fn advance_awaited(&mut self, room: &mut [u8], now_ms: Milliseconds) {
        for call in self.wakeups.take() {
            let mut state = call.state();
            if state.is_over() {
                self.awakened.extend(state.take_waiter());
            }
            let connection = state.connection;
            drop(state);
            match connection {
                Some(key) => self.advance(key, None, room, now_ms),
                None if !self.has_waiting => {}
                None => {
                    for group in &mut self.groups {
                        group.waiting.retain(|waiting| !waiting.call.state().is_over());
                    }
                }
            }
        }
    }

    fn continue_after(&mut self, progress: Progress, key: Key, now_ms: Milliseconds) {
        if self.checks.as_ref().is_some_and(|checks| checks.has(key)) {
            return self.continue_check(key, progress, now_ms);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        if let Some(call) = connection.call() {
            let mut state = call.state();
            if let Some(text) = state.take_error_text() {
                let backend = state.backend_name();
                let message = format!("backend {backend} for `{}`: {text}", state.route_name());
                self.problems.report(BackendProblem { backend, message });
            }
            note_response(&mut state, now_ms);
        }
        match progress {
            Progress::Waits => self.timers.queue(key, &mut connection.timer),
            Progress::Free => {
                connection.end();
                let (group_index, server_index) = connection.server;
                let group = &mut self.groups[group_index];
                group.servers[server_index].responded_ms = Some(now_ms);
                let is_for_one = group.backend().distribution.client_header == ClientHeader::ProxyV2;
                if is_for_one || group.servers[server_index].is_removed {
                    // The next request may be that of another client.
                    return drop(self.close(key, now_ms));
                }
                if let Some(WaitingCall { call, .. }) = group.waiting.pop_front() {
                    return self.begin_on(key, call, now_ms);
                }
                let kept_for = connection.kept_for(group.backend().idle_timeout);
                connection.timer.deadline_ms = now_ms + ms(kept_for);
                self.timers.queue(key, &mut connection.timer);
                group.servers[server_index].idle.push(key);
            }
            Progress::Over => drop(self.close(key, now_ms)),
            Progress::Failed(error) => self.fail_connection(key, error, now_ms),
        }
    }

    /// Closes a connection, and returns its call.
    fn close(&mut self, key: Key, now_ms: Milliseconds) -> Option<Call> {
        let mut connection = self.connections.remove(key)?;
        let call = connection.end();
        let (group_index, server_index) = connection.server;
        let group = &mut self.groups[group_index];
        let server = &mut group.servers[server_index];
        server.note_closed();
        server.idle.retain(|idle| *idle != key);
        drop(connection);
        if let Some(WaitingCall { call, .. }) = group.waiting.pop_front() {
            self.assign(call, now_ms);
        }
        call
    }

    /// A connection has failed: its request is tried on another one, if it may be.
    fn fail_connection(&mut self, key: Key, error: CallError, now_ms: Milliseconds) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (group_index, server_index) = connection.server;
        // A handshake that fails with one server would fail again.
        let may_ask_another = self.groups[group_index].servers.len() > 1 && connection.has_sent_nothing();
        let is_unsent = match error {
            CallError::Connect(_) | CallError::ConnectTimeout(_) => true,
            CallError::Tls(_) => may_ask_another,
            _ => false,
        };
        let is_refused = error == CallError::Http2(ClientFault::NotProcessed) && !connection.has_received();
        let may_repeat = is_unsent
            || is_refused
            || (error == CallError::Closed
                && !connection.has_received()
                && (connection.call().is_some_and(|call| call.state().request.is_idempotent)
                    || (connection.is_reused && connection.has_sent_nothing())));
        let group = &self.groups[group_index];
        let state = &group.servers[server_index].state;
        state.count_error();
        match &error {
            _ if is_unsent => state.note_unreachable(&error.to_string(), now_ms),
            CallError::Timeout(_) => {
                state.note_error(group.backend().distribution.errors_max, &error.to_string(), now_ms);
            }
            _ => {}
        }
        if let Some(call) = self.close(key, now_ms) {
            self.fail_or_repeat(call, error, may_repeat, now_ms);
        }
    }

    fn fail_or_repeat(&mut self, call: Call, error: CallError, may_repeat: bool, now_ms: Milliseconds) {
        let mut state = call.state();
        state.failed_count += 1;
        let is_repeated = may_repeat && state.failed_count < ATTEMPTS_MAX && state.request.rewind();
        let waits_until_ms = state.waits_until_ms;
        drop(state);
        let backend = Arc::clone(&call.state().backend_route().backend);
        let group_index = self.group_index(&backend);
        if matches!(error, CallError::Connect(_))
            && may_repeat
            && self.groups[group_index].is_being_restarted(now_ms)
            && waits_until_ms.is_none_or(|until_ms| now_ms < until_ms)
        {
            // These attempts do not count: nothing was sent.
            call.state().failed_count -= 1;
            return self.wait(group_index, call, Some(error), now_ms);
        }
        if is_repeated { self.assign(call, now_ms) } else { self.fail(&call, error) }
    }

    fn fail(&mut self, call: &Call, error: CallError) {
        let mut state = call.state();
        if !state.is_given_up() {
            let message = format!("{}; a request to `{}` failed", state.describe(&error), state.route_name());
            self.problems.report(BackendProblem { backend: state.backend_name(), message });
        }
        state.response = CallResponse::Failed(error);
        self.awakened.extend(state.take_waiter());
    }

    /// When the next deadline passes.
    pub(crate) fn next_deadline_ms(&self) -> Option<Milliseconds> {
        let groups = if self.has_waiting { &self.groups[..] } else { &[] };
        let of_waiting = groups.iter().flat_map(|group| &group.waiting).map(|waiting| match waiting.error {
            None => waiting.until_ms,
            Some(_) => self.retry_ms,
        });
        let of_checks = self.checks.as_ref().map(Checks::next_ms);
        of_waiting.chain(self.timers.next_ms()).chain(of_checks).min()
    }

    /// Ends what has taken too long.
    pub(crate) fn expire(&mut self, now_ms: Milliseconds) {
        while let Some(key) = self.timers.pop_passed(now_ms, &mut self.connections, |connection| &mut connection.timer)
        {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let (group, _) = connection.server;
            let connect_timeout = self.groups[group].backend().connect_timeout;
            let progress = connection.expire(connect_timeout, &mut self.awakened);
            self.continue_after(progress, key, now_ms);
        }
        self.expire_waiting(now_ms);
        self.begin_due_checks(now_ms);
    }

    /// Ends the waits that have taken too long, and tries again where no connection could be made.
    fn expire_waiting(&mut self, now_ms: Milliseconds) {
        if !self.has_waiting {
            return;
        }
        let retries = self.retry_ms <= now_ms;
        if retries {
            self.retry_ms = now_ms + RETRY_MS;
        }
        for index in 0..self.groups.len() {
            let connect_timeout = self.groups[index].backend().connect_timeout;
            let is_due = |waiting: &WaitingCall| waiting.until_ms <= now_ms || (retries && waiting.error.is_some());
            let waiting = std::mem::take(&mut self.groups[index].waiting);
            let (due, waiting): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(is_due);
            self.groups[index].waiting = waiting;
            for WaitingCall { call, until_ms, error } in due {
                match error {
                    Some(_) if now_ms < until_ms => self.assign(call, now_ms),
                    error => {
                        let of_name = self.groups[index].unknown_name().map(CallError::NameNotFound);
                        let busy = CallError::Busy(connect_timeout);
                        self.fail(&call, error.or(of_name).unwrap_or(busy));
                    }
                }
            }
        }
        self.has_waiting = self.groups.iter().any(|group| !group.waiting.is_empty());
    }

    /// The waiters that get an event.
    pub(crate) fn take_awakened(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.awakened)
    }

    /// Whether something is left that [`Backends::advance_awaited`] or [`Backends::take_awakened`] has to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.awakened.is_empty() || !self.wakeups.is_empty()
    }

    /// Registers new connections with a poller.
    pub(crate) fn register(&mut self, register: impl Fn(BorrowedFd<'_>, Key) -> io::Result<()>, now_ms: Milliseconds) {
        for key in std::mem::take(&mut self.unregistered) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let registered = connection.transport().descriptor().map_or(Ok(()), |descriptor| register(descriptor, key));
            if let Err(error) = registered {
                self.fail_connection(key, CallError::Connect(error.kind()), now_ms);
            }
        }
    }
}

/// The same value for each request of the client at `address`. A client of IPv6 has a network of 64 bits, and changes
/// its address in it.
pub(crate) fn client_hash(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => choice::hash(&address.octets()),
        IpAddr::V6(address) => choice::hash(&address.octets()[..8]),
    }
}

/// Counts the response whose head has arrived, if it was not counted.
fn note_response(state: &mut CallState, now_ms: Milliseconds) {
    let Some(status) = state.response_status() else { return };
    let errors_max = state.backend_route().backend.distribution.errors_max;
    if let Some(Chosen { server, time, .. }) = &mut state.chosen
        && let ResponseTime::Since(since_ms) = *time
    {
        let after_ms = now_ms.saturating_sub(since_ms);
        *time = ResponseTime::After(after_ms);
        server.note_response(status, after_ms, errors_max, now_ms);
    }
}
