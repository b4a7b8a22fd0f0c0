//! Checks names and passwords (RFC 7617) by a thread of its own, since a check takes as long as thousands of requests,
//! and remembers the results for a short time.
//!
//! One thread bounds what clients can make the server spend: checks that wait beyond the limits of
//! [`PasswordOptions`] are refused.

use crate::clock::{Milliseconds, ms};
use crate::jobs::JobQueue;
use crate::options::PasswordOptions;
use crate::users::Users;
use crate::waiter::Waiter;
use sanderling_os::clock::monotonic_ms;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Results that are remembered.
const RESULTS_MAX: usize = 4_096;
/// Bytes of a name with its password.
pub(crate) const CREDENTIALS_BYTES_MAX: usize = 1_024;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    Denied,
    /// The waiter receives a completion.
    Pending,
    /// Too many checks wait.
    Busy,
}

/// A name and a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(crate) name: Vec<u8>,
    pub(crate) password: Vec<u8>,
}

/// The checks of all workers.
#[derive(Debug)]
pub(crate) struct Authenticator {
    state: Mutex<State>,
    has_work: Condvar,
    jobs: Arc<JobQueue>,
    /// Two keys of a hash with 128 bits: only one that knows them could make credentials with the same hash as others.
    keys: [RandomState; 2],
    options: PasswordOptions,
}

#[derive(Debug, Default)]
struct State {
    queued: VecDeque<Check>,
    /// Result and its end, by the hash of users, name and password: no password is kept.
    results: HashMap<CheckId, (bool, Milliseconds)>,
    has_thread: bool,
    is_closed: bool,
}

type CheckId = (u64, u64);

#[derive(Debug)]
struct Check {
    id: CheckId,
    users: Arc<Users>,
    credentials: Credentials,
    client: IpAddr,
    waiters: Vec<Waiter>,
}

impl Authenticator {
    pub(crate) fn new(options: PasswordOptions, jobs: Arc<JobQueue>) -> Authenticator {
        let keys = [RandomState::new(), RandomState::new()];
        Authenticator { state: Mutex::default(), has_work: Condvar::new(), jobs, keys, options }
    }

    /// Whether `credentials` are those of a user. Without a result yet, `waiter` receives a completion when there is
    /// one.
    pub(crate) fn check(
        self: &Arc<Self>,
        users: &Arc<Users>,
        credentials: &Credentials,
        client: IpAddr,
        waiter: Waiter,
        now_ms: Milliseconds,
    ) -> Verdict {
        let id = self.id_of(users, credentials);
        let mut state = self.lock();
        match state.results.get(&id) {
            Some((true, until_ms)) if now_ms < *until_ms => return Verdict::Granted,
            Some((false, until_ms)) if now_ms < *until_ms => return Verdict::Denied,
            _ => {}
        }
        if let Some(queued) = state.queued.iter_mut().find(|queued| queued.id == id) {
            queued.waiters.push(waiter);
            return Verdict::Pending;
        }
        let client = network_of(client);
        let of_client = state.queued.iter().filter(|queued| queued.client == client).count();
        let PasswordOptions { queued_max, queued_per_client_max, .. } = self.options;
        if state.queued.len() >= queued_max || of_client >= queued_per_client_max || !self.has_thread(&mut state) {
            return Verdict::Busy;
        }
        let (users, credentials) = (Arc::clone(users), credentials.clone());
        state.queued.push_back(Check { id, users, credentials, client, waiters: vec![waiter] });
        self.has_work.notify_one();
        Verdict::Pending
    }

    /// Ends the thread, after the check that it makes.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.has_work.notify_all();
    }

    /// Starts the thread, unless there is one; whether there is.
    fn has_thread(self: &Arc<Self>, state: &mut State) -> bool {
        if !state.has_thread {
            let of_thread = Arc::clone(self);
            let started = thread::Builder::new().name("auth".to_owned()).spawn(move || of_thread.run());
            state.has_thread = started.is_ok();
        }
        state.has_thread
    }

    fn run(&self) {
        let mut state = self.lock();
        while !state.is_closed {
            // It stays in the queue while it is checked, so that further requests wait for the same check.
            let Some(check) = state.queued.front() else {
                state = self.has_work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (users, credentials) = (Arc::clone(&check.users), check.credentials.clone());
            drop(state);
            let is_granted = users.verify(&credentials.name, &credentials.password);
            let now_ms = monotonic_ms();
            state = self.lock();
            let Some(check) = state.queued.pop_front() else { continue };
            let valid_for = if is_granted { self.options.granted_for } else { self.options.denied_for };
            state.remember(check.id, is_granted, now_ms, ms(valid_for));
            drop(state);
            self.jobs.complete(&check.waiters, Ok(()));
            state = self.lock();
        }
    }

    fn id_of(&self, users: &Users, credentials: &Credentials) -> CheckId {
        let parts = (users.id, &credentials.name, &credentials.password);
        (self.keys[0].hash_one(parts), self.keys[1].hash_one(parts))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Remembers a result for so long.
    fn remember(&mut self, id: CheckId, is_granted: bool, now_ms: Milliseconds, valid_ms: Milliseconds) {
        if self.results.len() >= RESULTS_MAX {
            self.results.retain(|_, (_, until_ms)| now_ms < *until_ms);
        }
        if self.results.len() >= RESULTS_MAX {
            // What clients guess must not push out what is right.
            self.results.retain(|_, (is_granted, _)| *is_granted);
        }
        if self.results.len() >= RESULTS_MAX {
            self.results.clear();
        }
        self.results.insert(id, (is_granted, now_ms + valid_ms));
    }
}

/// The address of IPv4, or the /64 of IPv6.
fn network_of(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) & !u128::from(u64::MAX)).to_be_bytes()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;
    use sanderling_testkit::wait_until;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    #[test]
    fn results_are_bounded_and_right_ones_stay() {
        let mut state = State::default();
        state.remember((0, 0), true, 0, 60_000);
        for number in 1..RESULTS_MAX as u64 + 10 {
            state.remember((number, 0), false, 1, 10_000);
            assert!(state.results.len() <= RESULTS_MAX);
        }
        assert!(state.results.contains_key(&(0, 0)));
    }

    #[test]
    fn result_is_remembered_for_the_time_of_the_options() {
        let seconds = Duration::from_secs;
        let options = PasswordOptions { granted_for: seconds(3), denied_for: seconds(2), ..PasswordOptions::default() };
        let hash = bcrypt::hash("right", 4).expect("a hash");
        let users = Arc::new(Users::parse(format!("a:{hash}\n").as_bytes()).0);
        let waiter = Waiter { worker_index: 0, connection: Slab::new().insert(()), stream: 0 };
        for (password, verdict, valid_ms) in [("right", Verdict::Granted, 3_000), ("wrong", Verdict::Denied, 2_000)] {
            let authenticator = Arc::new(Authenticator::new(options, Arc::default()));
            let credentials = Credentials { name: b"a".to_vec(), password: password.into() };
            let check = |now_ms| authenticator.check(&users, &credentials, Ipv4Addr::LOCALHOST.into(), waiter, now_ms);
            let start_ms = monotonic_ms();
            assert_eq!(check(start_ms), Verdict::Pending);
            wait_until("a result", || !authenticator.lock().results.is_empty());
            let (_, until_ms) = *authenticator.lock().results.values().next().expect("a result");
            assert!((start_ms..=monotonic_ms()).contains(&(until_ms - valid_ms)));
            assert_eq!(check(until_ms - 1), verdict);
            assert_eq!(check(until_ms), Verdict::Pending, "it is checked again");
            authenticator.close();
        }
    }

    #[test]
    fn checks_that_wait_are_bounded_for_each_client() {
        let options = PasswordOptions { queued_max: 100, queued_per_client_max: 3, ..PasswordOptions::default() };
        let authenticator = Arc::new(Authenticator::new(options, Arc::default()));
        // Nothing takes them off the queue.
        authenticator.lock().has_thread = true;
        let users = Arc::new(Users::parse(b"").0);
        let mut slab = Slab::new();
        let waiter = Waiter { worker_index: 0, connection: slab.insert(()), stream: 0 };
        let check = |client: u8, password: u8| {
            let credentials = Credentials { name: b"a".to_vec(), password: vec![password] };
            authenticator.check(&users, &credentials, Ipv4Addr::new(192, 0, 2, client).into(), waiter, 0)
        };
        for password in 0..options.queued_per_client_max as u8 {
            assert_eq!(check(1, password), Verdict::Pending);
        }
        assert_eq!(check(1, 100), Verdict::Busy);
        assert_eq!(check(1, 0), Verdict::Pending, "it waits for the same check");
        let queued = (2..=255).filter(|&client| check(client, 200 - client % 2) == Verdict::Pending).count();
        assert_eq!(queued, 254, "they wait for one of two checks");
        let others = (2..=255).filter(|&client| check(client, client) == Verdict::Pending).count();
        assert_eq!(authenticator.lock().queued.len(), options.queued_max);
        assert!(others < 254);
    }
}
