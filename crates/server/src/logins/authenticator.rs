//! Checks names and passwords (RFC 7617) in separate threads, because a check takes as long as thousands of requests,
//! and remembers the results for a short time.
//!
//! The threads are at most as many as [`PasswordOptions`] says and have less priority than those that serve. The number
//! of waiting checks is bounded, and [`LoginQueue`] decides which one is next and which is refused.

use crate::clock::{Milliseconds, ms};
use crate::files::jobs::JobQueue;
use crate::logins::login_queue::{LoginQueue, Origin};
use crate::options::PasswordOptions;
use crate::site::users::Users;
use crate::waiter::{Event, Waiter};
use sanderling_os::clock::monotonic_ms;
use sanderling_os::panics;
use sanderling_os::process::lower_thread_priority;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Results that are remembered.
const RESULTS_MAX: usize = 4_096;
/// Bytes of a name with its password.
pub(crate) const CREDENTIALS_BYTES_MAX: usize = 1_024;
/// Time for the workers to answer requests whose check was refused after a wait.
const REFUSED_MS: Milliseconds = 250;
/// The nice value of the threads: while all processors are busy, they get a quarter of the time.
const NICE: i32 = 5;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Granted,
    Denied,
    /// The waiter receives an event.
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
    queue: LoginQueue<Check>,
    /// Those that are being made.
    running: Vec<Running>,
    /// Result and its end, by the hash of users, name and password: no password is kept.
    results: HashMap<CheckId, (CheckResult, Milliseconds)>,
    thread_count: usize,
    is_closed: bool,
}

type CheckId = (u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckResult {
    Right,
    Wrong,
    /// The password was not checked: others were before it, or it has waited for too long.
    Refused,
}

#[derive(Debug)]
struct Running {
    id: CheckId,
    origin: Origin,
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
struct Check {
    id: CheckId,
    users: Arc<Users>,
    credentials: Credentials,
    waiters: Vec<Waiter>,
}

impl Authenticator {
    pub(crate) fn new(options: PasswordOptions, jobs: Arc<JobQueue>) -> Authenticator {
        let keys = [RandomState::new(), RandomState::new()];
        Authenticator { state: Mutex::default(), has_work: Condvar::new(), jobs, keys, options }
    }

    /// Whether `credentials` belong to a user. Without a result yet, `waiter` receives an event when there is one.
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
            Some((result, until_ms)) if now_ms < *until_ms => {
                return match result {
                    CheckResult::Right => Verdict::Granted,
                    CheckResult::Wrong => Verdict::Denied,
                    CheckResult::Refused => Verdict::Busy,
                };
            }
            _ => {}
        }
        if let Some(waiters) = state.waiters_of(id) {
            waiters.push(waiter);
            return Verdict::Pending;
        }
        let PasswordOptions { queued_max, queued_per_client_max, .. } = self.options;
        let [name, users_file] = [self.keys[0].hash_one(&credentials.name), self.keys[0].hash_one(&users.file)];
        let origin = Origin::new(client, name, users_file);
        if state.count_of_client(&origin) >= queued_per_client_max || !self.has_thread(&mut state) {
            return Verdict::Busy;
        }
        let waiting_max = queued_max.saturating_sub(state.running.len());
        let check = Check { id, users: Arc::clone(users), credentials: credentials.clone(), waiters: vec![waiter] };
        let Ok(refused) = state.queue.push(check, origin, waiting_max, now_ms) else { return Verdict::Busy };
        let waiters = refused.map(|check| state.refuse(check, now_ms));
        drop(state);
        self.has_work.notify_one();
        if let Some(waiters) = waiters {
            self.jobs.send_event(&waiters, Event::PasswordChecked);
        }
        Verdict::Pending
    }

    /// Ends the threads, after the checks that they make.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.has_work.notify_all();
    }

    /// Starts a thread, unless there is one for each check that waits or is made, or as many as there may be; whether
    /// there is one.
    fn has_thread(self: &Arc<Self>, state: &mut State) -> bool {
        let wanted = (state.queue.len() + state.running.len() + 1).min(self.options.threads_max);
        if state.thread_count < wanted {
            let of_thread = Arc::clone(self);
            let started = thread::Builder::new().name("auth".to_owned()).spawn(move || of_thread.run());
            state.thread_count += usize::from(started.is_ok());
        }
        state.thread_count > 0
    }

    fn run(&self) {
        panics::end_process(panics::Scope::Thread);
        // Without it, checks have the same priority as requests.
        let _ = lower_thread_priority(NICE);
        let mut state = self.lock();
        while !state.is_closed {
            let now_ms = monotonic_ms();
            if let Some(check) = state.queue.take_expired(now_ms) {
                let waiters = state.refuse(check, now_ms);
                drop(state);
                self.jobs.send_event(&waiters, Event::PasswordChecked);
                state = self.lock();
                continue;
            }
            let Some((check, origin)) = state.queue.take_next(now_ms) else {
                state = self.has_work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Check { id, users, credentials, waiters } = check;
            state.running.push(Running { id, origin, waiters });
            drop(state);
            let is_right = users.verify(&credentials.name, &credentials.password);
            let now_ms = monotonic_ms();
            state = self.lock();
            let Some(index) = state.running.iter().position(|running| running.id == id) else { continue };
            let Running { waiters, .. } = state.running.swap_remove(index);
            state.queue.note(&origin, is_right, now_ms);
            let (result, valid_for) = match is_right {
                true => (CheckResult::Right, self.options.granted_for),
                false => (CheckResult::Wrong, self.options.denied_for),
            };
            state.remember(id, result, now_ms, ms(valid_for));
            drop(state);
            self.jobs.send_event(&waiters, Event::PasswordChecked);
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
    /// The waiters of a pending or running check.
    fn waiters_of(&mut self, id: CheckId) -> Option<&mut Vec<Waiter>> {
        let running = self.running.iter_mut().find(|running| running.id == id).map(|running| &mut running.waiters);
        running.or_else(|| self.queue.iter_mut().find(|check| check.id == id).map(|check| &mut check.waiters))
    }

    /// Checks of the same client that wait or are being made.
    fn count_of_client(&self, origin: &Origin) -> usize {
        let running = self.running.iter().filter(|running| running.origin.has_same_client(origin));
        self.queue.count_of_client(origin) + running.count()
    }

    /// Refuses a check that has waited; its waiters are to receive events.
    fn refuse(&mut self, check: Check, now_ms: Milliseconds) -> Vec<Waiter> {
        self.remember(check.id, CheckResult::Refused, now_ms, REFUSED_MS);
        check.waiters
    }

    /// Remembers a result for so long.
    fn remember(&mut self, id: CheckId, result: CheckResult, now_ms: Milliseconds, valid_ms: Milliseconds) {
        if self.results.len() >= RESULTS_MAX {
            self.results.retain(|_, (_, until_ms)| now_ms < *until_ms);
        }
        if self.results.len() >= RESULTS_MAX {
            // Guesses of clients must not push out correct passwords.
            self.results.retain(|_, (result, _)| *result == CheckResult::Right);
        }
        if self.results.len() >= RESULTS_MAX {
            self.results.clear();
        }
        self.results.insert(id, (result, now_ms + valid_ms));
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
        state.remember((0, 0), CheckResult::Right, 0, 60_000);
        for number in 1..RESULTS_MAX as u64 + 10 {
            state.remember((number, 0), CheckResult::Wrong, 1, 10_000);
            assert!(state.results.len() <= RESULTS_MAX);
        }
        assert!(state.results.contains_key(&(0, 0)));
    }

    #[test]
    fn result_is_remembered_for_the_time_of_the_options() {
        let seconds = Duration::from_secs;
        let options = PasswordOptions { granted_for: seconds(3), denied_for: seconds(2), ..PasswordOptions::default() };
        let hash = bcrypt::hash("right", 4).expect("a hash");
        let users = Arc::new(Users::parse("users".as_ref(), format!("a:{hash}\n").as_bytes()).0);
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
        authenticator.lock().thread_count = options.threads_max;
        let users = Arc::new(Users::parse("users".as_ref(), b"").0);
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
        // Passwords that were not asked for before.
        for client in 3..=190 {
            assert_eq!(check(client, client), Verdict::Pending, "at the limit it takes the place of another one");
            assert!(authenticator.lock().queue.len() <= options.queued_max);
        }
        assert_eq!(authenticator.lock().queue.len(), options.queued_max);
        assert_eq!(check(1, 0), Verdict::Busy, "it was refused a moment ago");
    }
}
