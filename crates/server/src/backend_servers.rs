//! The servers of backends, as all workers see them: which of them are down and why, and what they were asked.
//!
//! Workers read the state of a server for each request without a lock; a change of it takes one. The workers that
//! notice something report it to [`BackendProblems`], from which the control thread logs it.

use crate::backend_problems::{BackendProblem, BackendProblems};
use crate::clock::{Milliseconds, ms};
use sanderling_site_rules::{Backend, BackendAddress, CHECK_FAILURES_MAX};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a server that has failed gets no request while another one does: first, and at most.
const DOWN_MS: Milliseconds = 500;
const DOWN_MS_MAX: Milliseconds = 30_000;
/// The whole share of a server that is not starting slowly.
pub(crate) const SHARE_MAX: u64 = 64;

/// The servers that workers have.
#[derive(Debug, Default)]
pub(crate) struct BackendServers(Mutex<Vec<Known>>);

#[derive(Debug)]
struct Known {
    backend: Backend,
    address: BackendAddress,
    state: Arc<ServerState>,
}

/// The state of a server, which workers share.
#[derive(Debug)]
pub(crate) struct ServerState {
    name: Arc<str>,
    /// Until when it gets no requests while another server does; 0 if it may have some.
    down_until_ms: AtomicU64,
    /// When it was last up again; [`Milliseconds::MAX`] if it was never down.
    up_since_ms: AtomicU64,
    /// Whether there is something in `health` that a response ends.
    is_suspect: AtomicBool,
    health: Mutex<Health>,
    requests: AtomicU64,
    errors: AtomicU64,
    responses: AtomicU64,
    response_ms: AtomicU64,
    open: AtomicU64,
    problems: Arc<BackendProblems>,
}

#[derive(Debug, Default)]
struct Health {
    /// Why it is down; `None` if it is up.
    down: Option<(Cause, String)>,
    /// For how long it was marked last.
    delay_ms: Milliseconds,
    /// Errors one after another.
    error_count: u32,
    /// Failed checks one after another.
    failed_checks: u32,
}

/// The event after which a server is up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A response, or a check that succeeds.
    Connection,
    /// A response that is no error.
    Responses,
    /// A check that succeeds.
    Check,
}

/// A server of a backend, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendServerStatus {
    /// Its address, as in the configuration.
    pub address: String,
    /// Why it is down; `None` if it is up.
    pub down: Option<String>,
    /// Requests that it was given.
    pub requests: u64,
    /// Those of them to which it gave no response, or one with status 502, 503 or 504.
    pub errors: u64,
    /// Open connections to it.
    pub connections: u64,
    /// Its responses.
    pub responses: u64,
    /// The time from each request to the head of its response, summed.
    pub response_ms: u64,
}

impl BackendServers {
    /// The state of the server of `backend` at `address`.
    pub(crate) fn state(
        &self,
        backend: &Backend,
        address: &BackendAddress,
        problems: &Arc<BackendProblems>,
    ) -> Arc<ServerState> {
        let mut known = self.lock();
        known.retain(|known| Arc::strong_count(&known.state) > 1);
        if let Some(found) = known.iter().find(|known| known.address == *address && known.backend == *backend) {
            return Arc::clone(&found.state);
        }
        let state = Arc::new(ServerState::new(address.to_string(), Arc::clone(problems)));
        known.push(Known { backend: backend.clone(), address: address.clone(), state: Arc::clone(&state) });
        state
    }

    /// The servers that workers have, by address: those of several backends are one.
    pub(crate) fn status(&self) -> Vec<BackendServerStatus> {
        let mut all: Vec<BackendServerStatus> = Vec::new();
        for known in self.lock().iter().filter(|known| Arc::strong_count(&known.state) > 1) {
            let status = known.state.status();
            match all.iter_mut().find(|other| other.address == status.address) {
                Some(other) => other.add(status),
                None => all.push(status),
            }
        }
        all.sort_by(|a, b| a.address.cmp(&b.address));
        all
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerState {
    pub(crate) fn new(name: String, problems: Arc<BackendProblems>) -> ServerState {
        ServerState {
            name: name.into(),
            down_until_ms: AtomicU64::new(0),
            up_since_ms: AtomicU64::new(Milliseconds::MAX),
            is_suspect: AtomicBool::new(false),
            health: Mutex::default(),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            responses: AtomicU64::new(0),
            response_ms: AtomicU64::new(0),
            open: AtomicU64::new(0),
            problems,
        }
    }

    /// Its address.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether it gets no request while another server does.
    pub(crate) fn is_down(&self, now_ms: Milliseconds) -> bool {
        self.down_until_ms.load(Ordering::Relaxed) > now_ms
    }

    /// Its share of requests, from 1 to [`SHARE_MAX`]: it rises for the time `slow_start` after it was down.
    pub(crate) fn share(&self, slow_start: Duration, now_ms: Milliseconds) -> u64 {
        let up_since_ms = self.up_since_ms.load(Ordering::Relaxed);
        let slow_start_ms = ms(slow_start);
        if up_since_ms == Milliseconds::MAX || slow_start_ms == 0 {
            return SHARE_MAX;
        }
        let elapsed_ms = now_ms.saturating_sub(up_since_ms).min(slow_start_ms);
        (SHARE_MAX * elapsed_ms / slow_start_ms).max(1)
    }

    pub(crate) fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// The head of a response with `status` has arrived after this time. `errors_max`: of the backend.
    pub(crate) fn note_response(
        &self,
        status: u16,
        after_ms: Milliseconds,
        errors_max: Option<u32>,
        now_ms: Milliseconds,
    ) {
        self.responses.fetch_add(1, Ordering::Relaxed);
        self.response_ms.fetch_add(after_ms, Ordering::Relaxed);
        if matches!(status, 502..=504) {
            self.count_error();
            if errors_max.is_some() {
                return self.note_error(errors_max, &format!("answers {status}"), now_ms);
            }
        }
        if self.is_suspect.load(Ordering::Relaxed) {
            let mut health = self.lock();
            health.error_count = 0;
            if !matches!(health.down, Some((Cause::Check, _))) {
                self.set_up(&mut health, now_ms);
            }
        }
    }

    /// No connection could be made, because of `problem`.
    pub(crate) fn note_unreachable(&self, problem: &str, now_ms: Milliseconds) {
        self.mark_down(&mut self.lock(), Cause::Connection, problem, now_ms);
    }

    /// A request has got an error, or no response in time. So many one after another mark the server as down.
    pub(crate) fn note_error(&self, errors_max: Option<u32>, problem: &str, now_ms: Milliseconds) {
        let Some(errors_max) = errors_max else { return };
        let mut health = self.lock();
        health.error_count = health.error_count.saturating_add(1);
        self.is_suspect.store(true, Ordering::Relaxed);
        if health.error_count >= errors_max {
            self.mark_down(&mut health, Cause::Responses, problem, now_ms);
        }
    }

    /// A check has ended.
    pub(crate) fn note_check(&self, result: Result<(), String>, now_ms: Milliseconds) {
        let mut health = self.lock();
        match result {
            Ok(()) => {
                health.failed_checks = 0;
                if !matches!(health.down, Some((Cause::Responses, _))) {
                    self.set_up(&mut health, now_ms);
                }
            }
            Err(problem) => {
                health.failed_checks = health.failed_checks.saturating_add(1);
                if health.failed_checks >= CHECK_FAILURES_MAX {
                    self.mark_down(&mut health, Cause::Check, &problem, now_ms);
                }
            }
        }
    }

    fn mark_down(&self, health: &mut Health, cause: Cause, problem: &str, now_ms: Milliseconds) {
        self.is_suspect.store(true, Ordering::Relaxed);
        let is_checked = matches!(health.down, Some((Cause::Check, _)));
        if cause == Cause::Check {
            self.down_until_ms.store(Milliseconds::MAX, Ordering::Relaxed);
        } else if !is_checked {
            health.delay_ms = (health.delay_ms * 2).clamp(DOWN_MS, DOWN_MS_MAX);
            self.down_until_ms.store(now_ms + health.delay_ms, Ordering::Relaxed);
        }
        if health.down.is_none() {
            self.report(format!("backend server {} is down: {problem}", self.name));
        }
        let cause = if is_checked { Cause::Check } else { cause };
        health.down = Some((cause, problem.to_owned()));
    }

    fn set_up(&self, health: &mut Health, now_ms: Milliseconds) {
        self.is_suspect.store(health.failed_checks > 0, Ordering::Relaxed);
        if health.down.take().is_some() {
            health.delay_ms = 0;
            self.up_since_ms.store(now_ms, Ordering::Relaxed);
            self.down_until_ms.store(0, Ordering::Relaxed);
            self.report(format!("backend server {} is up again", self.name));
        }
    }

    fn report(&self, message: String) {
        // Messages are limited by what they are about: the end of a problem is logged even if it comes soon.
        self.problems.report(BackendProblem { backend: message.clone(), message });
    }

    fn status(&self) -> BackendServerStatus {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BackendServerStatus {
            address: self.name.to_string(),
            down: self.lock().down.as_ref().map(|(_, problem)| problem.clone()),
            requests: read(&self.requests),
            errors: read(&self.errors),
            connections: read(&self.open),
            responses: read(&self.responses),
            response_ms: read(&self.response_ms),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BackendServerStatus {
    /// Adds what the server did for another backend.
    fn add(&mut self, other: BackendServerStatus) {
        self.down = self.down.take().or(other.down);
        self.requests += other.requests;
        self.errors += other.errors;
        self.connections += other.connections;
        self.responses += other.responses;
        self.response_ms += other.response_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> ServerState {
        ServerState::new("192.0.2.1:80".to_owned(), Arc::default())
    }

    fn messages(state: &ServerState) -> Vec<String> {
        state.problems.take().into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn unreachable_server_is_down_for_longer_each_time_until_it_responds() {
        let state = state();
        let mut now_ms = 0;
        for delay_ms in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            state.note_unreachable("refuses connections", now_ms);
            assert!(state.is_down(now_ms + delay_ms - 1) && !state.is_down(now_ms + delay_ms), "{delay_ms}");
            now_ms += delay_ms;
        }
        assert_eq!(state.status().down.as_deref(), Some("refuses connections"));
        assert_eq!(messages(&state), ["backend server 192.0.2.1:80 is down: refuses connections"]);
        state.note_response(404, 3, None, now_ms);
        assert_eq!(messages(&state), ["backend server 192.0.2.1:80 is up again"]);
        let status = state.status();
        assert_eq!((status.down, status.responses, status.response_ms, status.errors), (None, 1, 3, 0));
        state.note_unreachable("refuses connections", now_ms);
        assert!(!state.is_down(now_ms + DOWN_MS));
    }

    #[test]
    fn errors_in_a_row_mark_a_server_as_down_only_with_a_limit() {
        let state = state();
        for _ in 0..9 {
            state.note_response(503, 1, None, 0);
        }
        assert_eq!((state.is_down(0), state.status().errors), (false, 9));
        let limit = Some(3);
        state.note_response(503, 1, limit, 0);
        state.note_error(limit, "did not respond within 60 s", 0);
        state.note_response(200, 1, limit, 0);
        state.note_response(502, 1, limit, 0);
        state.note_response(504, 1, limit, 0);
        assert!(!state.is_down(0) && messages(&state).is_empty());
        state.note_response(503, 1, limit, 0);
        assert!(state.is_down(DOWN_MS - 1) && !state.is_down(DOWN_MS));
        assert_eq!(messages(&state), ["backend server 192.0.2.1:80 is down: answers 503"]);
        // A check does not know what requests get.
        state.note_check(Ok(()), 1);
        assert!(state.is_down(1));
        // After the time, one further error suffices.
        state.note_response(503, 1, limit, DOWN_MS);
        assert!(state.is_down(DOWN_MS));
        state.note_response(500, 1, limit, DOWN_MS);
        assert!(!state.is_down(DOWN_MS), "500 is an answer of the application");
    }

    #[test]
    fn failed_checks_in_a_row_mark_a_server_as_down_until_one_succeeds() {
        let state = state();
        let fail = || state.note_check(Err("answers 500".to_owned()), 0);
        (1..CHECK_FAILURES_MAX).for_each(|_| fail());
        state.note_check(Ok(()), 0);
        (1..CHECK_FAILURES_MAX).for_each(|_| fail());
        assert!(!state.is_down(0));
        fail();
        assert!(state.is_down(Milliseconds::MAX - 1));
        // What requests get does not count.
        state.note_response(200, 1, None, 0);
        state.note_unreachable("refuses connections", 0);
        assert!(state.is_down(Milliseconds::MAX - 1));
        state.note_check(Ok(()), 7);
        assert!(!state.is_down(7));
        assert_eq!(
            messages(&state),
            ["backend server 192.0.2.1:80 is down: answers 500", "backend server 192.0.2.1:80 is up again"]
        );
    }

    #[test]
    fn share_rises_after_a_server_was_down() {
        let state = state();
        let slow_start = Duration::from_secs(64);
        assert_eq!(state.share(slow_start, 0), SHARE_MAX);
        state.note_unreachable("refuses connections", 0);
        state.note_response(200, 1, None, 1_000);
        for (now_ms, share) in [(1_000, 1), (3_000, 2), (33_000, 32), (65_000, 64), (999_000, 64)] {
            assert_eq!(state.share(slow_start, now_ms), share, "{now_ms}");
        }
        assert_eq!(state.share(Duration::ZERO, 1_000), SHARE_MAX);
    }

    #[test]
    fn state_is_shared_and_forgotten_with_its_last_user() {
        let (servers, problems) = (BackendServers::default(), Arc::default());
        let address = BackendAddress::Unix("/run/a.sock".into());
        let backend = Backend {
            servers: Vec::new(),
            protocol: sanderling_site_rules::BackendProtocol::Http1,
            tls: None,
            connect_timeout: Duration::ZERO,
            idle_timeout: Duration::ZERO,
            connections_max: 1,
            distribution: sanderling_site_rules::Distribution::default(),
        };
        let other = Backend { connections_max: 2, ..backend.clone() };
        let first = servers.state(&backend, &address, &problems);
        assert!(Arc::ptr_eq(&first, &servers.state(&backend, &address, &problems)));
        let second = servers.state(&other, &address, &problems);
        assert!(!Arc::ptr_eq(&first, &second));
        first.count_request();
        second.count_request();
        second.note_unreachable("refuses connections", 0);
        let [status] = &servers.status()[..] else { panic!("one address") };
        assert_eq!((status.address.as_str(), status.requests), ("unix:/run/a.sock", 2));
        assert_eq!(status.down.as_deref(), Some("refuses connections"));
        drop((first, second));
        assert_eq!(servers.status(), []);
        assert_eq!(servers.state(&backend, &address, &problems).status().requests, 0);
    }
}
