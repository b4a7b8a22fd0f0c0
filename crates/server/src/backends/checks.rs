//! Active checks: one worker asks each server at intervals whether it answers, and all workers see the result.
//!
//! A check has a separate connection, which is not kept and does not count as one of the server's: it also shows
//! whether the server accepts connections. There is one check of a server at a time.

use crate::backends::connection::Progress;
use crate::backends::group::Group;
use crate::backends::{Backends, Purpose};
use crate::clock::{Milliseconds, ms};
use crate::net::call::{Call, CallError, CallRequest, ContentFraming};
use crate::net::proxy_protocol;
use crate::net::transport::Transport;
use crate::slab::Key;
use crate::waiter::Waiter;
use sanderling_site_rules::{BackendAddress, BackendRoute, ClientHeader, HealthCheck, Pattern, Route, RouteAction};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The checks of all servers.
#[derive(Debug)]
pub(super) struct Checks {
    /// The server of each check in progress, by its connection.
    running: BTreeMap<Key, (usize, usize)>,
    /// The servers of checks whose connection another process makes.
    opening: BTreeSet<(usize, usize)>,
    /// When the next one begins.
    next_ms: Milliseconds,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks { running: BTreeMap::new(), opening: BTreeSet::new(), next_ms: Milliseconds::MAX }
    }
}

impl Checks {
    /// Whether the connection is one of a check.
    pub(super) fn has(&self, key: Key) -> bool {
        !self.running.is_empty() && self.running.contains_key(&key)
    }

    /// Whether a check of this server is in progress.
    pub(super) fn is_checking(&self, place: (usize, usize)) -> bool {
        self.opening.contains(&place) || self.running.values().any(|running| *running == place)
    }

    /// Whether a check of a server of this group is in progress.
    pub(super) fn is_checking_any(&self, group: usize) -> bool {
        self.opening.iter().chain(self.running.values()).any(|place| place.0 == group)
    }

    /// When the next one begins; [`Milliseconds::MAX`] if none does.
    pub(super) fn next_ms(&self) -> Milliseconds {
        self.next_ms
    }
}

impl Backends {
    /// Begins to check the servers of a group, if their backend says so.
    pub(super) fn check_group(&mut self, group: usize, now_ms: Milliseconds) {
        let of_group = &mut self.groups[group];
        if of_group.check.is_some() {
            return;
        }
        of_group.check = check_route(of_group);
        if let (Some(checks), true) = (&mut self.checks, of_group.check.is_some()) {
            for (index, server) in of_group.servers.iter_mut().enumerate() {
                let begins = !server.is_removed && !checks.is_checking((group, index));
                let of_new = if begins { now_ms } else { Milliseconds::MAX };
                server.next_check_ms = server.next_check_ms.min(of_new);
            }
            checks.next_ms = now_ms;
        }
    }

    /// Begins the checks whose time has come.
    pub(super) fn begin_due_checks(&mut self, now_ms: Milliseconds) {
        if self.checks.as_ref().is_none_or(|checks| checks.next_ms > now_ms) {
            return;
        }
        for group in 0..self.groups.len() {
            for server in 0..self.groups[group].servers.len() {
                if self.groups[group].servers[server].next_check_ms <= now_ms {
                    self.begin_check((group, server), now_ms);
                }
            }
        }
        self.plan_checks();
    }

    fn plan_checks(&mut self) {
        let servers = self.groups.iter().flat_map(|group| &group.servers);
        let next_ms = servers.map(|server| server.next_check_ms).min();
        if let Some(checks) = &mut self.checks {
            checks.next_ms = next_ms.unwrap_or(Milliseconds::MAX);
        }
    }

    fn begin_check(&mut self, (group, server): (usize, usize), now_ms: Milliseconds) {
        let of_server = &mut self.groups[group].servers[server];
        // Until it has ended.
        of_server.next_check_ms = Milliseconds::MAX;
        let address = of_server.address.clone();
        match self.connect(&address, (group, server), Purpose::Check) {
            Ok(None) => {
                if let Some(checks) = &mut self.checks {
                    checks.opening.insert((group, server));
                }
            }
            Ok(Some(transport)) => self.continue_opened_check((group, server), Ok(transport), now_ms),
            Err(error) => self.continue_opened_check((group, server), Err(error), now_ms),
        }
    }

    /// Continues a check when its connection was begun, or could not be.
    pub(super) fn continue_opened_check(
        &mut self,
        place: (usize, usize),
        transport: io::Result<Transport>,
        now_ms: Milliseconds,
    ) {
        if let Some(checks) = &mut self.checks {
            checks.opening.remove(&place);
        }
        let group = &self.groups[place.0];
        let (Some(check), Some(route)) = (check_of(group).cloned(), group.check.clone()) else { return };
        let stream = transport.map_err(|error| CallError::Connect(error.kind()));
        let stream = stream.and_then(|transport| self.stream(transport, place).map_err(CallError::Tls));
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => return self.end_check(place, Err(error.to_string()), now_ms),
        };
        let key = self.add(stream, place);
        if let Some(checks) = &mut self.checks {
            checks.running.insert(key, place);
        }
        let is_unix = matches!(self.groups[place.0].servers[place.1].address, BackendAddress::Unix(_));
        match &check.path {
            Some(path) => {
                let group = &self.groups[place.0];
                let configured = &group.servers[place.1].configured;
                let request = request(path, &check, group.backend().distribution.client_header, configured);
                self.begin_on(key, Call::new(route, nobody(), request), now_ms);
            }
            // It is connected already.
            None if is_unix => self.finish_check(key, Ok(()), now_ms),
            None => {
                let Some(connection) = self.connections.get_mut(key) else { return };
                connection.timer.deadline_ms = now_ms + ms(check.interval);
                self.timers.queue(key, &mut connection.timer);
            }
        }
    }

    /// The connection of a check has made progress.
    pub(super) fn continue_check(&mut self, key: Key, progress: Progress, now_ms: Milliseconds) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let (group, _) = connection.server;
        let check = check_of(&self.groups[group]).cloned();
        let has_connected = connection.transport().is_writable();
        let status = connection.call().map(|call| call.state().response_status());
        let result = match (status, progress) {
            (Some(Some(200..400)), _) => Ok(()),
            (Some(Some(status)), _) => Err(format!("answers {status} to the check")),
            (None, Progress::Waits) if has_connected => Ok(()),
            (_, Progress::Waits) => return self.timers.queue(key, &mut connection.timer),
            (Some(_), Progress::Failed(CallError::Timeout(time))) => {
                let path = check.and_then(|check| check.path).unwrap_or_default();
                Err(format!("no answer to {path} within {} s", time.as_secs_f64()))
            }
            (_, Progress::Failed(error)) => Err(error.to_string()),
            (Some(_), _) => Err(CallError::Closed.to_string()),
            (None, _) => Err("accepts no connection".to_owned()),
        };
        self.finish_check(key, result, now_ms);
    }

    fn finish_check(&mut self, key: Key, result: Result<(), String>, now_ms: Milliseconds) {
        let place = self.checks.as_mut().and_then(|checks| checks.running.remove(&key));
        if let Some(mut connection) = self.connections.remove(key) {
            connection.end();
        }
        if let Some(place) = place {
            self.end_check(place, result, now_ms);
        }
    }

    /// Notes the result, and when the next check begins.
    fn end_check(&mut self, (group, server): (usize, usize), result: Result<(), String>, now_ms: Milliseconds) {
        let of_group = &mut self.groups[group];
        // It has ended together with the last route.
        let check = check_of(of_group).filter(|_| of_group.check.is_some());
        let Some(interval) = check.map(|check| check.interval) else { return };
        let Some(of_server) = of_group.servers.get_mut(server) else { return };
        if !of_server.is_removed {
            of_server.state.note_check(result, now_ms);
            of_server.next_check_ms = now_ms + ms(interval);
        }
        self.plan_checks();
    }
}

/// The check of a group; `None` if it has none, or no route has its backend any longer.
fn check_of(group: &Group) -> Option<&HealthCheck> {
    group.backends.first()?.distribution.check.as_ref()
}

/// The route of a request that checks a server.
fn check_route(group: &Group) -> Option<Arc<Route>> {
    let check = check_of(group)?;
    let action = RouteAction::Pass(Box::new(BackendRoute::new(Arc::clone(group.backend()), check.interval)));
    let name = check.path.as_deref().unwrap_or_default();
    Some(Arc::new(Route::new(name, Pattern::parse("/", &[]).ok()?, action)))
}

/// The request of a check.
fn request(path: &str, check: &HealthCheck, header: ClientHeader, configured: &BackendAddress) -> CallRequest {
    let mut head = Vec::new();
    if header == ClientHeader::ProxyV2 {
        proxy_protocol::put_local(&mut head);
    }
    // RFC 9112 §3.2: the value is empty if there is no authority.
    let host = match (&check.host, configured) {
        (Some(host), _) => host.clone(),
        (None, BackendAddress::Unix(_)) => String::new(),
        (None, address) => address.to_string(),
    };
    let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: sanderling\r\nConnection: close\r\n\r\n");
    head.extend_from_slice(text.as_bytes());
    CallRequest::new(head, ContentFraming::Plain, false, 0)
}

/// The waiter of a check: no connection of a client has this key.
fn nobody() -> Waiter {
    Waiter { worker_index: 0, connection: Key::unpacked(u64::MAX), stream: 0 }
}
