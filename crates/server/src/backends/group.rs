//! The servers of a backend as one worker sees them, and the requests that wait for a connection to one of them.

use crate::backend_problems::BackendProblems;
use crate::backend_servers::{BackendServers, ServerState};
use crate::backends::choice;
use crate::clock::Milliseconds;
use crate::net::call::{Affinity, Call, CallError, CallState, Chosen, ResponseTime};
use crate::slab::Key;
use sanderling_site_rules::{Backend, BackendAddress, Balance, Route};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// How long after its last response a server that refuses connections counts as one that is being restarted.
const RESTART_MS: Milliseconds = 10_000;

/// The servers of a backend, and the requests that wait for a connection to one of them.
#[derive(Debug)]
pub(super) struct Group {
    /// All values that stand for it, so that their addresses name nothing else. None once no route has it and its
    /// connections are closed: another backend takes its place.
    pub(super) backends: Vec<Arc<Backend>>,
    pub(super) servers: Vec<Server>,
    pub(super) waiting: VecDeque<WaitingCall>,
    /// The share of requests that all servers have had, of [`Server::used`].
    virtual_time: u64,
    names: Names,
    /// The route of active checks; `None` without.
    pub(super) check: Option<Arc<Route>>,
}

/// Names of the backend that have no address.
#[derive(Debug, Default)]
struct Names {
    /// The first one whose look-up has not ended.
    awaited: Option<String>,
    /// The first one that was not found.
    not_found: Option<String>,
}

#[derive(Debug)]
pub(super) struct WaitingCall {
    pub(super) call: Call,
    pub(super) until_ms: Milliseconds,
    /// The error after which it tries again at the next look; `None` while it waits for a connection to become free.
    pub(super) error: Option<CallError>,
}

/// A server of a backend.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: BackendAddress,
    /// As the configuration has it, perhaps by a name.
    pub(super) configured: BackendAddress,
    /// The backend has it no longer.
    pub(super) is_removed: bool,
    /// Its place in the configuration: cookies name it by that.
    pub(super) place: u32,
    pub(super) weight: u64,
    /// Of its address, for [`choice::for_client`].
    pub(super) hash: u64,
    /// Unused connections, the last used one last.
    pub(super) idle: Vec<Key>,
    pub(super) open_count: usize,
    /// The requests that it was given, each divided by its share of them.
    pub(super) used: u64,
    /// When it last completed a response.
    pub(super) responded_ms: Option<Milliseconds>,
    /// When its next check begins; [`Milliseconds::MAX`] if none does.
    pub(super) next_check_ms: Milliseconds,
    pub(super) state: Arc<ServerState>,
}

impl Names {
    /// The addresses of a server.
    fn resolve(&mut self, address: &BackendAddress, addresses: &BTreeMap<String, Vec<IpAddr>>) -> Vec<BackendAddress> {
        let BackendAddress::Host { name, port } = address else { return vec![address.clone()] };
        match addresses.get(name).map(Vec::as_slice) {
            None => {
                self.awaited.get_or_insert_with(|| name.clone());
                Vec::new()
            }
            Some([]) => {
                self.not_found.get_or_insert_with(|| name.clone());
                Vec::new()
            }
            Some(found) => found.iter().map(|ip| BackendAddress::Tcp(SocketAddr::new(*ip, *port))).collect(),
        }
    }
}

impl Server {
    fn new(address: BackendAddress, configured: BackendAddress, state: Arc<ServerState>) -> Server {
        Server {
            hash: choice::hash(address.to_string().as_bytes()),
            address,
            configured,
            is_removed: false,
            place: 0,
            weight: 1,
            idle: Vec::new(),
            open_count: 0,
            used: 0,
            responded_ms: None,
            next_check_ms: Milliseconds::MAX,
            state,
        }
    }

    /// Whether another server can take its place, unless it is being checked.
    fn is_unused(&self) -> bool {
        self.is_removed && self.open_count == 0
    }

    /// It gets no requests any more; its unused connections, to be closed.
    pub(super) fn retire(&mut self) -> Vec<Key> {
        self.next_check_ms = Milliseconds::MAX;
        let idle = std::mem::take(&mut self.idle);
        idle.iter().for_each(|_| self.note_closed());
        idle
    }

    /// It gets a request.
    pub(super) fn note_request(&self, call: &mut CallState, now_ms: Milliseconds) {
        self.state.count_request();
        let time = ResponseTime::Since(now_ms);
        call.chosen = Some(Chosen { server: Arc::clone(&self.state), place: self.place, time });
    }

    /// It would have got a request, to which no connection could be made.
    pub(super) fn note_failed_request(&self, call: &mut CallState, now_ms: Milliseconds) {
        self.note_request(call, now_ms);
        self.state.count_error();
    }

    pub(super) fn note_opened(&mut self) {
        self.open_count += 1;
        self.state.note_opened();
    }

    pub(super) fn note_closed(&mut self) {
        self.open_count -= 1;
        self.state.note_closed();
    }
}

impl Group {
    /// Those of `backend`, without servers.
    pub(super) fn new(backend: &Arc<Backend>) -> Group {
        Group {
            backends: vec![Arc::clone(backend)],
            servers: Vec::new(),
            waiting: VecDeque::new(),
            virtual_time: 0,
            names: Names::default(),
            check: None,
        }
    }

    /// From now on its servers have the addresses of the backend, those of hosts by `addresses`. Servers with others
    /// get no requests any more; what is in progress ends. Returns their unused connections, which must be closed.
    /// `is_in_use`: whether the place of a server without connections cannot be taken by another one.
    pub(super) fn update_servers(
        &mut self,
        addresses: &BTreeMap<String, Vec<IpAddr>>,
        states: &BackendServers,
        problems: &Arc<BackendProblems>,
        is_in_use: impl Fn(usize) -> bool,
    ) -> Vec<Key> {
        let backend = Arc::clone(self.backend());
        self.servers.iter_mut().for_each(|server| server.is_removed = true);
        self.names = Names::default();
        let mut place = 0;
        for configured in &backend.servers {
            for address in self.names.resolve(&configured.address, addresses) {
                let known = self.servers.iter().position(|server| server.address == address);
                if known.is_some_and(|index| !self.servers[index].is_removed) {
                    continue;
                }
                let free =
                    || (0..self.servers.len()).find(|&index| self.servers[index].is_unused() && !is_in_use(index));
                let index = known.or_else(free).unwrap_or(self.servers.len());
                if known.is_none() {
                    let state = states.state(&backend, &address, problems);
                    let server = Server::new(address, configured.address.clone(), state);
                    self.servers.splice(index..(index + 1).min(self.servers.len()), [server]);
                }
                let server = &mut self.servers[index];
                (server.is_removed, server.place) = (false, place);
                server.weight = u64::from(configured.weight.max(1));
                place += 1;
            }
        }
        let removed = self.servers.iter_mut().filter(|server| server.is_removed);
        removed.flat_map(Server::retire).collect()
    }

    /// Whether a server of the backend is a host with a name.
    pub(super) fn has_names(&self) -> bool {
        self.backend().servers.iter().any(|server| matches!(server.address, BackendAddress::Host { .. }))
    }

    /// A name that was not found, if no server has an address.
    pub(super) fn missing_name(&self) -> Option<String> {
        let has_none = self.servers.iter().all(|server| server.is_removed);
        self.names.not_found.clone().filter(|_| has_none && self.names.awaited.is_none())
    }

    /// A name without an address, if no server has one: it was not found, or its look-up has not ended.
    pub(super) fn unknown_name(&self) -> Option<String> {
        let has_none = self.servers.iter().all(|server| server.is_removed);
        self.names.awaited.clone().or_else(|| self.names.not_found.clone()).filter(|_| has_none)
    }

    pub(super) fn backend(&self) -> &Arc<Backend> {
        self.backends.first().expect("a group has a backend")
    }

    /// Whether another backend can take its place.
    pub(super) fn is_free(&self) -> bool {
        self.backends.is_empty()
    }

    /// Whether it has no connection, and no request waits for one.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.servers.iter().all(|server| server.open_count == 0)
    }

    /// Whether its servers refuse connections, but have responded just before.
    pub(super) fn is_being_restarted(&self, now_ms: Milliseconds) -> bool {
        let has_responded = |server: &Server| server.responded_ms.is_some_and(|at_ms| now_ms < at_ms + RESTART_MS);
        self.servers.iter().any(has_responded)
    }

    /// The server for the next request, which then counts. Servers that are down get one only if all are. `None`: all
    /// have as many connections as they may.
    pub(super) fn choose(&mut self, affinity: Affinity, now_ms: Milliseconds) -> Option<usize> {
        let backend = self.backend();
        let slow_start = backend.distribution.slow_start;
        let can_take = |server: &Server| {
            !server.is_removed && (!server.idle.is_empty() || server.open_count < backend.connections_max)
        };
        let has_up = self.servers.iter().any(|server| can_take(server) && !server.state.is_down(now_ms));
        let candidate = |(index, server): (usize, &Server)| {
            (can_take(server) && (!has_up || !server.state.is_down(now_ms))).then(|| choice::Candidate {
                index,
                place: server.place,
                hash: server.hash,
                weight: server.weight * server.state.share(slow_start, now_ms),
                busy_count: (server.open_count - server.idle.len()) as u64,
                used: server.used.max(self.virtual_time),
            })
        };
        let candidates = self.servers.iter().enumerate().filter_map(candidate);
        let chosen = match (&backend.distribution.balance, affinity) {
            (Balance::Client, Affinity::Client(client)) => choice::for_client(candidates, client),
            (Balance::Cookie(_), Affinity::Place(place)) => choice::at_place(candidates, place),
            _ => choice::least_loaded(candidates),
        }?;
        self.virtual_time = chosen.used;
        self.servers[chosen.index].used = chosen.used + choice::SCALE / chosen.weight;
        Some(chosen.index)
    }
}
