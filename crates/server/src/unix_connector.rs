//! Connections to the UNIX sockets of applications: workers want them, the control thread has the supervisor make them,
//! and the workers take them. The sandbox lets this process create no such socket.

use sanderling_os::event_fd::EventFd;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Requests to the supervisor that are not answered yet; further ones wait here. It ends a process that takes fewer
/// answers than it makes requests.
const OUTSTANDING_MAX: usize = 128;
/// Requests that are not answered yet, those that wait here among them; further ones fail.
const UNANSWERED_MAX: usize = 65_536;

/// The wanted connections of all workers, and those that were made.
#[derive(Debug)]
pub struct UnixConnector {
    state: Mutex<State>,
    /// Wakes the control thread.
    wakeup: Arc<EventFd>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<WantedConnection>,
    /// The worker of each request that is not answered: of those that wait, and those that were taken.
    workers: HashMap<u32, usize>,
    last_request: u32,
    /// The results for each worker, until it takes them.
    results: HashMap<usize, Vec<ConnectionResult>>,
    supervisor: Supervisor,
}

/// Whether there is a process that makes connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Supervisor {
    #[default]
    Present,
    Lost,
}

/// A connection that a worker waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedConnection {
    /// Its number, until it is answered.
    pub request: u32,
    /// The path of the socket.
    pub path: PathBuf,
}

/// The answer to the request with this number: a connected, non-blocking stream.
pub type ConnectionResult = (u32, io::Result<OwnedFd>);

impl UnixConnector {
    /// Signals `wakeup` when a connection is wanted.
    pub fn new(wakeup: Arc<EventFd>) -> UnixConnector {
        UnixConnector { state: Mutex::default(), wakeup }
    }

    /// Asks for a connection of the worker with this index to the socket at `path`; the number of the request.
    ///
    /// # Errors
    /// Too many wait (`WouldBlock`), or there is no supervisor (`NotConnected`).
    pub fn want(&self, worker_index: usize, path: &Path) -> io::Result<u32> {
        let mut state = self.lock();
        if state.supervisor == Supervisor::Lost {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if state.workers.len() >= UNANSWERED_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut request = state.last_request.wrapping_add(1);
        while state.workers.contains_key(&request) {
            request = request.wrapping_add(1);
        }
        state.last_request = request;
        state.workers.insert(request, worker_index);
        let wakes = state.waiting.is_empty();
        state.waiting.push_back(WantedConnection { request, path: path.to_owned() });
        drop(state);
        if wakes {
            // Without a wakeup, the control thread finds it at its next heartbeat.
            let _ = self.wakeup.signal();
        }
        Ok(request)
    }

    /// Takes the requests that the supervisor may get now. Called by the control thread.
    pub fn take_wanted(&self) -> Vec<WantedConnection> {
        let mut state = self.lock();
        let outstanding = state.workers.len() - state.waiting.len();
        let count = OUTSTANDING_MAX.saturating_sub(outstanding).min(state.waiting.len());
        state.waiting.drain(..count).collect()
    }

    /// Notes the answer of the supervisor; the index of the worker that has to be woken, `None` if nobody has asked.
    pub fn answer(&self, request: u32, result: io::Result<OwnedFd>) -> Option<usize> {
        let mut state = self.lock();
        let worker_index = state.workers.remove(&request)?;
        state.results.entry(worker_index).or_default().push((request, result));
        Some(worker_index)
    }

    /// From now on there is no supervisor: all requests fail. The workers that have to be woken.
    pub fn fail_all(&self) -> Vec<usize> {
        let mut state = self.lock();
        state.supervisor = Supervisor::Lost;
        state.waiting.clear();
        let unanswered = std::mem::take(&mut state.workers);
        for (request, worker_index) in unanswered {
            let result = Err(io::ErrorKind::NotConnected.into());
            state.results.entry(worker_index).or_default().push((request, result));
        }
        state.results.keys().copied().collect()
    }

    /// Takes the answers for the worker with this index.
    pub fn take_results(&self, worker_index: usize) -> Vec<ConnectionResult> {
        self.lock().results.remove(&worker_index).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn connector() -> UnixConnector {
        UnixConnector::new(Arc::new(EventFd::new().expect("created")))
    }

    fn connection() -> io::Result<OwnedFd> {
        Ok(UnixStream::pair().expect("a pair").0.into())
    }

    #[test]
    fn worker_gets_the_connection_that_it_wants() {
        let connector = connector();
        let path = Path::new("/run/app.sock");
        let requests = [7, 8].map(|worker| connector.want(worker, path).expect("room"));
        assert!(connector.wakeup.drain(), "the control thread is woken");
        let wanted = connector.take_wanted();
        assert_eq!(wanted, requests.map(|request| WantedConnection { request, path: path.to_owned() }));
        assert!(connector.take_wanted().is_empty());
        assert_eq!(connector.answer(requests[1], connection()), Some(8));
        assert_eq!(connector.answer(requests[0], Err(io::ErrorKind::NotFound.into())), Some(7));
        assert_eq!(connector.answer(requests[0], connection()), None, "it is answered already");
        let results = connector.take_results(8);
        assert!(matches!(results[..], [(request, Ok(_))] if request == requests[1]), "{results:?}");
        assert!(connector.take_results(8).is_empty());
        assert!(matches!(connector.take_results(7)[..], [(_, Err(_))]));
    }

    #[test]
    fn supervisor_gets_few_requests_at_a_time_in_their_order() {
        let connector = connector();
        let requests: Vec<u32> =
            (0..OUTSTANDING_MAX + 1).map(|_| connector.want(0, Path::new("/a")).expect("room")).collect();
        let wanted = connector.take_wanted();
        assert_eq!(wanted.iter().map(|wanted| wanted.request).collect::<Vec<_>>(), requests[..OUTSTANDING_MAX]);
        assert!(connector.take_wanted().is_empty());
        connector.answer(requests[0], connection());
        assert_eq!(connector.take_wanted()[0].request, requests[OUTSTANDING_MAX]);
    }

    #[test]
    fn requests_beyond_the_limit_and_without_a_supervisor_fail() {
        let connector = connector();
        let first = connector.want(3, Path::new("/a")).expect("room");
        for _ in 1..UNANSWERED_MAX {
            connector.want(4, Path::new("/a")).expect("room");
        }
        let error = connector.want(3, Path::new("/a")).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let mut workers = connector.fail_all();
        workers.sort_unstable();
        assert_eq!(workers, [3, 4]);
        assert!(matches!(connector.take_results(3)[..], [(request, Err(_))] if request == first));
        assert_eq!(connector.want(3, Path::new("/a")).expect_err("no supervisor").kind(), io::ErrorKind::NotConnected);
        assert!(connector.take_wanted().is_empty());
    }
}
