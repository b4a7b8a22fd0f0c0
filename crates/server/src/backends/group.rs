//! The servers of a backend as one worker sees them, and the requests that wait for a connection to one of them.

use crate::backend_problems::BackendProblems;
use crate::backend_servers::{BackendServers, ServerState};
use crate::backends::choice;
use crate::clock::Milliseconds;
use crate::net::call::{Affinity, Call, CallError, CallState, Chosen, ResponseTime};
use crate::slab::Key;
use sanderling_site_rules::{Backend, BackendAddress, Balance, Route};
use std::collections::VecDeque;
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
    /// The route of active checks; `None` without.
    pub(super) check: Option<Arc<Route>>,
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

impl Server {
    /// It gets a request.
    pub(super) fn note_request(&self, call: &mut CallState, now_ms: Milliseconds) {
        self.state.count_request();
        let time = ResponseTime::Since(now_ms);
        call.chosen = Some(Chosen { server: Arc::clone(&self.state), place: self.place, time });
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
    /// The servers of `backend`, whose states are in `states`.
    pub(super) fn new(backend: &Arc<Backend>, states: &BackendServers, problems: &Arc<BackendProblems>) -> Group {
        let server = |(place, server): (usize, &sanderling_site_rules::BackendServer)| Server {
            address: server.address.clone(),
            place: u32::try_from(place).unwrap_or(u32::MAX),
            weight: u64::from(server.weight.max(1)),
            hash: choice::hash(server.address.to_string().as_bytes()),
            idle: Vec::new(),
            open_count: 0,
            used: 0,
            responded_ms: None,
            next_check_ms: Milliseconds::MAX,
            state: states.state(backend, &server.address, problems),
        };
        Group {
            backends: vec![Arc::clone(backend)],
            servers: backend.servers.iter().enumerate().map(server).collect(),
            waiting: VecDeque::new(),
            virtual_time: 0,
            check: None,
        }
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
        let backend = Arc::clone(self.backend());
        let slow_start = backend.distribution.slow_start;
        let can_take = |server: &Server| !server.idle.is_empty() || server.open_count < backend.connections_max;
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
