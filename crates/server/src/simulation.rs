//! Connections in memory, without sockets and threads, under a clock that the caller advances: for tests and fuzzing.

use crate::files::disk_file::HAS_EMPTY_PAGE_CACHE;
use crate::files::jobs::Inbox;
use crate::metrics::Counter;
use crate::net::memory_stream::MemoryStream;
use crate::net::transport::Transport;
use crate::options::Options;
use crate::protocols::connection::Protocol;
use crate::slab::Key;
use crate::snapshot::Snapshot;
use crate::status::Status;
use crate::threads::connections::Connections;
use crate::threads::shared::Shared;
use crate::threads::worker::WAKEUP;
use sanderling_os::poll::{Poller, Readiness};
use sanderling_tls::{ServerTls, Session};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use crate::net::memory_stream::Ending;

/// The Unix time at which every simulation begins.
pub const START_UNIX_S: u64 = 1_700_000_000;

/// The connections of one worker.
pub struct Simulation<'s> {
    shared: &'s Shared,
    connections: Connections<'s>,
    inbox: Arc<Inbox>,
    clients: Vec<Client>,
    /// What the next iteration reports of connections to backends.
    backend_readiness: Vec<Readiness>,
    /// Reads of file content do not end, as if a disk did not answer.
    is_disk_stalled: bool,
}

struct Client {
    /// `None` if the connection was closed while it was accepted.
    key: Option<Key>,
    stream: MemoryStream,
    /// What the next iteration reports.
    readiness: Readiness,
}

/// The address of clients without another one.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

const NOT_READY: Readiness = Readiness { readable: false, writable: false, read_closed: false };

/// Runs `act` with a simulation of a server with one worker.
pub fn simulate<R>(snapshot: Snapshot, options: Options, act: impl FnOnce(&mut Simulation<'_>) -> R) -> R {
    let shared = Shared::new(snapshot, options, Duration::MAX);
    let poller = Poller::new().expect("epoll is available");
    let inbox = Arc::new(Inbox::new(poller.waker(WAKEUP).expect("eventfd is available")));
    shared.jobs.set_inboxes(vec![Arc::clone(&inbox)]);
    let metrics = shared.metrics.register("worker 0".into(), Vec::new());
    let clock = crate::clock::Clock::manual(START_UNIX_S);
    let connections = Connections::new(&shared, 0, metrics, clock);
    HAS_EMPTY_PAGE_CACHE.set(false);
    act(&mut Simulation {
        shared: &shared,
        connections,
        inbox,
        clients: Vec::new(),
        backend_readiness: Vec::new(),
        is_disk_stalled: false,
    })
}

impl Simulation<'_> {
    /// A client connects, has sent `bytes`, and takes `window_bytes` of the answers; its number. `None`: a limit
    /// is reached, and there is no idle connection to close.
    pub fn connect(&mut self, protocol: Protocol, bytes: &[u8], window_bytes: usize) -> Option<usize> {
        self.connect_from(CLIENT, protocol, bytes, window_bytes)
    }

    /// The same, from this address.
    pub fn connect_from(
        &mut self,
        client: IpAddr,
        protocol: Protocol,
        bytes: &[u8],
        window_bytes: usize,
    ) -> Option<usize> {
        self.connect_by(client, protocol, bytes, window_bytes, |transport| transport)
    }

    /// The same over TLS: `bytes` and what follows, in both directions, are encrypted.
    pub fn connect_tls(
        &mut self,
        protocol: Protocol,
        tls: &ServerTls,
        bytes: &[u8],
        window_bytes: usize,
    ) -> Option<usize> {
        let encrypted = |transport: Transport| transport.with_tls(Session::new(tls));
        self.connect_by(CLIENT, protocol, bytes, window_bytes, encrypted)
    }

    /// The same without TLS, from a trusted proxy: `bytes` begin with a header of the PROXY protocol.
    pub fn connect_proxy(&mut self, client: IpAddr, bytes: &[u8]) -> Option<usize> {
        self.connect_by(client, Protocol::Http, bytes, usize::MAX, Transport::with_proxy_header)
    }

    fn connect_by(
        &mut self,
        client: IpAddr,
        protocol: Protocol,
        bytes: &[u8],
        window_bytes: usize,
        transport: impl FnOnce(Transport) -> Transport,
    ) -> Option<usize> {
        let address = SocketAddr::new(client, 1024 + (self.clients.len() % 60_000) as u16);
        let permit = self.connections.permit(protocol, address).ok()?;
        let stream = MemoryStream::default();
        stream.arrive(bytes);
        stream.open_window(window_bytes);
        let key = self.connections.insert(protocol, transport(Transport::memory(stream.clone())), permit);
        self.clients.push(Client { key, stream, readiness: NOT_READY });
        Some(self.clients.len() - 1)
    }

    /// The client sends `bytes`.
    pub fn send(&mut self, client: usize, bytes: &[u8]) {
        let client = &mut self.clients[client];
        client.stream.arrive(bytes);
        client.readiness.readable = true;
    }

    /// The client closes its sending side.
    pub fn close(&mut self, client: usize) {
        let client = &mut self.clients[client];
        client.stream.close_client_side();
        client.readiness.readable = true;
        client.readiness.read_closed = true;
    }

    /// The connection breaks.
    pub fn break_off(&mut self, client: usize) {
        let client = &mut self.clients[client];
        client.stream.break_off();
        client.readiness = Readiness { readable: true, writable: true, read_closed: true };
    }

    /// The client takes `bytes` more.
    pub fn open_window(&mut self, client: usize, bytes: usize) {
        let client = &mut self.clients[client];
        client.stream.open_window(bytes);
        client.readiness.writable = true;
    }

    /// Takes what the client has received.
    pub fn take_received(&mut self, client: usize) -> Vec<u8> {
        self.clients[client].stream.take_sent()
    }

    /// Bytes that the client has sent, and the server not received.
    pub fn unreceived_bytes(&self, client: usize) -> usize {
        self.clients[client].stream.unreceived_bytes()
    }

    /// How the server has ended its side of the connection.
    pub fn ending(&mut self, client: usize) -> Ending {
        self.clients[client].stream.ending()
    }

    /// Whether the server has the connection still.
    pub fn is_open(&mut self, client: usize) -> bool {
        self.clients[client].key.is_some_and(|key| self.connections.get_mut(key).is_some())
    }

    /// Makes connections to backends in memory, and not by the network.
    pub fn use_memory_backends(&mut self) {
        self.connections.memory_backend();
    }

    /// Connections to backends are refused, or not.
    pub fn refuse_backends(&mut self, refuses: bool) {
        self.connections.memory_backend().refuses = refuses;
    }

    /// Connections to these backends are refused, and no others.
    pub fn refuse_backends_at(&mut self, addresses: Vec<sanderling_site_rules::BackendAddress>) {
        self.connections.memory_backend().refusing = addresses;
    }

    /// The address of the server of a connection to a backend.
    pub fn backend_address(&mut self, connection: usize) -> String {
        self.connections.memory_backend().addresses[connection].to_string()
    }

    /// The servers of backends.
    pub fn backend_servers(&self) -> Vec<crate::BackendServerStatus> {
        self.shared.backend_servers.status()
    }

    /// Connections to backends that were made.
    pub fn backend_count(&mut self) -> usize {
        self.connections.memory_backend().streams.len()
    }

    /// Takes what a backend has received on a connection.
    pub fn take_of_backend(&mut self, connection: usize) -> Vec<u8> {
        self.connections.memory_backend().streams[connection].0.take_sent()
    }

    /// Bytes that a backend has sent, and the server not received.
    pub fn unreceived_of_backend(&mut self, connection: usize) -> usize {
        self.connections.memory_backend().streams[connection].0.unreceived_bytes()
    }

    /// A backend sends `bytes`.
    pub fn send_by_backend(&mut self, connection: usize, bytes: &[u8]) {
        self.connections.memory_backend().streams[connection].0.arrive(bytes);
        self.note_backend(connection, Readiness { readable: true, ..NOT_READY });
    }

    /// A backend closes its side.
    pub fn close_by_backend(&mut self, connection: usize) {
        self.connections.memory_backend().streams[connection].0.close_client_side();
        self.note_backend(connection, Readiness { readable: true, writable: false, read_closed: true });
    }

    /// A connection to a backend breaks.
    pub fn break_off_backend(&mut self, connection: usize) {
        self.connections.memory_backend().streams[connection].0.break_off();
        self.note_backend(connection, Readiness { readable: true, writable: true, read_closed: true });
    }

    /// A backend takes only so many bytes from now on.
    pub fn set_backend_window(&mut self, connection: usize, bytes: usize) {
        self.connections.memory_backend().streams[connection].0.set_window(bytes);
        self.note_backend(connection, Readiness { writable: true, ..NOT_READY });
    }

    fn note_backend(&mut self, connection: usize, readiness: Readiness) {
        self.backend_readiness.resize(self.backend_readiness.len().max(connection + 1), NOT_READY);
        let noted = &mut self.backend_readiness[connection];
        noted.readable |= readiness.readable;
        noted.writable |= readiness.writable;
        noted.read_closed |= readiness.read_closed;
    }

    /// Bytes that all connections hold.
    pub fn held_bytes(&self) -> usize {
        self.shared.buffers.held_bytes()
    }

    /// One iteration of the event loop.
    pub fn run_once(&mut self) {
        self.connections.begin_iteration();
        let ready = self.connections.take_ready();
        for client in &mut self.clients {
            let readiness = std::mem::replace(&mut client.readiness, NOT_READY);
            if let (Some(key), true) = (client.key, readiness != NOT_READY) {
                self.connections.advance(key, Some(readiness));
            }
        }
        for (index, readiness) in std::mem::take(&mut self.backend_readiness).into_iter().enumerate() {
            if readiness != NOT_READY {
                let (_, key) = self.connections.memory_backend().streams[index];
                self.connections.advance_backend(key, readiness);
            }
        }
        for event in self.inbox.take() {
            self.connections.note_event(event);
        }
        ready.into_iter().for_each(|key| self.connections.advance_ready(key));
        self.connections.expire();
        self.connections.serve_backends(|_, _| Ok(()));
        self.connections.end_iteration();
    }

    /// Iterates until no connection has work left, and does their jobs; at most `iterations_max` times.
    pub fn run(&mut self, iterations_max: usize) {
        for _ in 0..iterations_max {
            self.run_once();
            let mut has_jobs = false;
            while self.shared.jobs.run_due(|job| self.shared.files.run_job(job)) {
                has_jobs = true;
            }
            while self.shared.files.compress_next() {}
            while !self.is_disk_stalled
                && let Some(read) = self.shared.reads.try_next()
            {
                self.shared.reads.run(&read);
                has_jobs = true;
            }
            if !has_jobs && !self.connections.has_ready() {
                return;
            }
        }
    }

    /// Lets reads of file content, none of which is in the page cache, wait, or end.
    pub fn stall_disk(&mut self, is_stalled: bool) {
        self.is_disk_stalled = is_stalled;
        HAS_EMPTY_PAGE_CACHE.set(is_stalled);
    }

    /// Time passes; then one iteration.
    pub fn advance(&mut self, by: Duration) {
        self.connections.clock_mut().advance(by);
        self.shared.files.skip(by);
        self.run_once();
    }

    /// The server drains, and closes idle connections after `grace`.
    pub fn drain(&mut self, grace: Duration) {
        self.connections.drain(grace);
    }

    /// Replaces parts of the snapshot, from the next iteration on.
    pub fn update_snapshot(&mut self, change: impl FnOnce(&mut Snapshot)) {
        self.shared.update_snapshot(change);
    }

    /// Bytes of content that was compressed on demand.
    #[cfg(test)]
    fn compressed_bytes(&self) -> u64 {
        self.shared.files.compressed_bytes()
    }

    /// The value of a counter.
    pub fn count(&self, counter: Counter) -> u64 {
        Status::of(self.shared).sum(counter)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod http2_tests;
#[cfg(test)]
mod tls_tests;
#[cfg(test)]
mod site_rules_tests;
#[cfg(test)]
mod site_files_tests;
#[cfg(test)]
mod validators_tests;
#[cfg(test)]
mod clients_tests;
#[cfg(test)]
mod statistics_tests;
#[cfg(test)]
mod transfer_tests;
#[cfg(test)]
mod backend_tests;
#[cfg(test)]
mod hostile_backend_tests;
#[cfg(test)]
mod forward_auth_tests;
#[cfg(test)]
mod passed_responses_tests;
