//! All threads of a server, and what they share: sockets in, bytes out, until it is told to stop.

use crate::beat::Lookout;
use crate::content::Content;
use crate::datagrams::{self, Datagrams};
use crate::fills::Inbox;
use crate::gate::{Gate, Protocol};
use crate::open_files::Census;
use crate::options::Options;
use crate::shared::Shared;
use crate::siblings::{Siblings, charges_of};
use crate::stage::{Drain, Stage};
use crate::standing::Standing;
use crate::tally::Tallies;
use crate::worker::{self, WAKEUP, Worker};
use sanderling_os::event_fd::EventFd;
use sanderling_os::poll::Poller;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long [`Server::drain`] waits for its threads to take nothing new any more: much longer than a
/// turn and a last call.
const STOP_WAIT_MAX: Duration = Duration::from_secs(1);

/// A server: what its threads share, and how to wake them.
#[derive(Debug)]
pub struct Server {
    shared: Shared,
    threads: Mutex<Vec<Call>>,
    lookout: Mutex<Lookout>,
}

/// How to wake a thread.
#[derive(Debug)]
enum Call {
    Worker(Arc<Inbox>),
    Datagrams(Arc<EventFd>),
}

impl Server {
    /// A server of `content`. When it is told to drain, what still runs after `drain_timeout` is cut off.
    pub fn new(content: Content, options: Options, drain_timeout: Duration) -> Server {
        let shared = Shared::new(content, options, drain_timeout);
        Server { shared, threads: Mutex::default(), lookout: Mutex::default() }
    }

    /// Serves on all of `siblings` with `worker_count` workers while `supervise` runs on this thread; drains for good
    /// when that returns and has not drained, and returns what it returned when all threads have ended. Only once.
    ///
    /// Workers and sets of siblings may be any number of each: a worker serves several sets where there are fewer
    /// workers, and workers share a set where there are more. Best is a set for each worker.
    ///
    /// # Errors
    /// Of the calls that set the threads up, and of waiting, which no server can go on without. An error of a peer, a
    /// file or a datagram is never one of these.
    pub fn run<R>(
        &self,
        siblings: &[Siblings],
        worker_count: usize,
        supervise: impl FnOnce(&Server) -> R,
    ) -> io::Result<R> {
        if worker_count == 0 {
            let text = "a server without workers answers nobody: let it have one at least";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        sanderling_os::features::select_all();
        let posts = (0..worker_count).map(|index| self.post(index, worker_count, siblings));
        let (workers, datagrams): (Vec<_>, Vec<_>) = posts.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let watcher_wakeup = EventFd::new()?;
        self.shared.open_files.set_inboxes(workers.iter().map(|post| Arc::clone(&post.inbox)).collect());
        thread::scope(|scope| {
            // However this closure is left, the threads that it has started end.
            let ending = Ending { server: self, watcher_wakeup: &watcher_wakeup };
            let helpers = self.spawn_helpers(scope, &watcher_wakeup)?;
            let mut threads = Vec::new();
            for (index, post) in workers.into_iter().enumerate() {
                let name = post.tally.thread.clone();
                let work = move || Worker::new(&self.shared, index, post).and_then(Worker::run);
                threads.push(self.spawn(scope, name, work)?);
            }
            for post in datagrams.into_iter().flatten() {
                let name = post.tally.thread.clone();
                threads.push(self.spawn(scope, name, || Datagrams::new(&self.shared, post).run())?);
            }
            let result = supervise(self);
            self.leave_serving(Drain::ForGood);
            let ended = join_all(threads);
            drop(ending);
            ended.and(join_all(helpers))?;
            Ok(result)
        })
    }

    /// Replaces what is served. Each thread takes it up at its next turn; connections stay open.
    pub fn replace_content(&self, content: Content) {
        self.shared.replace_content(content);
        self.wake_all();
    }

    /// Takes nothing new, behind a short last call if nobody serves on, and lets what is there finish: requests and queries that are under way are answered, their
    /// connections are told to end and are closed behind the answer, and those that wait for nothing are closed after
    /// the grace of the options, which is short then.
    ///
    /// Returns when no thread takes anything new, which is the time for the owner of the sockets to shut them down if
    /// nobody serves on; a thread that hangs is waited for no longer than a second.
    pub fn drain(&self, drain: Drain) {
        self.shared.course.advance_to(Stage::Draining(drain));
        self.wake_all();
        self.shared.course.wait_until_nobody_takes(STOP_WAIT_MAX);
    }

    /// Whether the server has been told to drain, or one of its threads has ended.
    pub fn is_draining(&self) -> bool {
        self.shared.course.stage() != Stage::Serving
    }

    /// The name of a thread that has been in one turn for longer than the options allow, if there is one: a worker, or
    /// one that serves datagrams. Only looks that follow each other, a second or so apart, find it.
    pub fn hung_thread(&self) -> Option<String> {
        self.hung_thread_at(Instant::now())
    }

    fn hung_thread_at(&self, now: Instant) -> Option<String> {
        let tallies = self.shared.tallies.all();
        let mut lookout = self.lookout.lock().unwrap_or_else(PoisonError::into_inner);
        let beats = tallies.iter().map(|tally| &tally.beat);
        let hung = lookout.look(now, beats, self.shared.options.hang_limit)?;
        Some(tallies[hung].thread.clone())
    }

    /// How the server stands.
    pub fn standing(&self) -> Standing {
        Standing::of(&self.shared)
    }

    /// What it has done and met.
    pub fn tallies(&self) -> &Tallies {
        &self.shared.tallies
    }

    /// What the open-file cache holds.
    pub fn open_files_census(&self) -> Census {
        self.shared.open_files.census()
    }

    /// What the worker `index` of `worker_count` runs on, and the thread beside it if there are datagrams to serve.
    fn post<'l>(
        &'l self,
        index: usize,
        worker_count: usize,
        siblings: &'l [Siblings],
    ) -> io::Result<(worker::Post<'l>, Option<datagrams::Post<'l>>)> {
        let charges = charges_of(index, worker_count, siblings.len());
        let served: Vec<usize> = charges.iter().map(|charge| charge.sibling_index).collect();
        let (mut gates, mut sockets) = (Vec::new(), Vec::new());
        for charge in charges {
            let set = &siblings[charge.sibling_index];
            let gate = |protocol, listener| Gate::new(protocol, listener, charge.is_shared);
            gates.extend(set.http.iter().map(|listener| gate(Protocol::Http, listener)));
            gates.extend(set.dns_streams.iter().map(|listener| gate(Protocol::Dns, listener)));
            sockets.extend(&set.dns_datagrams);
        }
        let poller = Poller::new()?;
        let inbox = Arc::new(Inbox::new(poller.waker(WAKEUP)?));
        self.note(Call::Worker(Arc::clone(&inbox)));
        let enter = |kind: &str| self.shared.tallies.enter(format!("{kind} {index}"), served.clone());
        let worker = worker::Post { poller, gates, inbox, tally: enter("worker"), taker: self.shared.course.enter() };
        if sockets.is_empty() {
            return Ok((worker, None));
        }
        let wakeup = Arc::new(EventFd::new()?);
        self.note(Call::Datagrams(Arc::clone(&wakeup)));
        let (tally, taker) = (enter("datagrams"), self.shared.course.enter());
        Ok((worker, Some(datagrams::Post { sockets, wakeup, tally, taker })))
    }

    fn note(&self, call: Call) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// Starts those who work for all workers: the one who watches files, and those who wait for the file system.
    fn spawn_helpers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        watcher_wakeup: &'scope EventFd,
    ) -> io::Result<Vec<Thread<'scope>>> {
        let shared = &self.shared;
        let watch = || shared.open_files.run_watcher(watcher_wakeup, || shared.course.stage() != Stage::Ended);
        let mut helpers = vec![self.spawn(scope, "watcher".into(), watch)?];
        for index in 0..shared.options.open_files.opener_count {
            let open = || {
                shared.open_files.run_opener();
                Ok(())
            };
            helpers.push(self.spawn(scope, format!("opener {index}"), open)?);
        }
        Ok(helpers)
    }

    fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        name: String,
        work: impl FnOnce() -> io::Result<()> + Send + 'scope,
    ) -> io::Result<Thread<'scope>> {
        let work = || {
            // Half a server would answer half of its clients: a thread that panics ends the others too.
            let ending = DrainOnPanic(self);
            let result = self.drain_if_failed(work());
            std::mem::forget(ending);
            result
        };
        thread::Builder::new().name(name).spawn_scoped(scope, work)
    }

    /// A thread that ends with an error ends the others too: half a server would answer half of its clients.
    fn drain_if_failed(&self, result: io::Result<()>) -> io::Result<()> {
        if result.is_err() {
            self.leave_serving(Drain::ForGood);
        }
        result
    }

    /// Drains, unless that has begun, and waits for nobody.
    fn leave_serving(&self, drain: Drain) {
        self.shared.course.leave_serving(drain);
        self.wake_all();
    }

    fn wake_all(&self) {
        for call in &*self.threads.lock().unwrap_or_else(PoisonError::into_inner) {
            match call {
                Call::Worker(inbox) => inbox.wake(),
                Call::Datagrams(wakeup) => {
                    // Fails only if the descriptor is gone, which the server owns until its end.
                    let given = wakeup.signal();
                    debug_assert!(given.is_ok());
                }
            }
        }
    }
}

/// Ends the threads of a server when it goes.
struct Ending<'s> {
    server: &'s Server,
    watcher_wakeup: &'s EventFd,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.server.leave_serving(Drain::ForGood);
        self.server.shared.course.advance_to(Stage::Ended);
        self.server.shared.open_files.finish();
        // Fails only if the descriptor is gone, which whoever runs the server owns.
        let given = self.watcher_wakeup.signal();
        debug_assert!(given.is_ok());
    }
}

/// Drains the server when a thread is left by a panic.
struct DrainOnPanic<'s>(&'s Server);

impl Drop for DrainOnPanic<'_> {
    fn drop(&mut self) {
        self.0.leave_serving(Drain::ForGood);
    }
}

/// A thread of a server.
type Thread<'scope> = ScopedJoinHandle<'scope, io::Result<()>>;

/// Waits for all `threads`; the first error of any.
fn join_all(threads: Vec<Thread<'_>>) -> io::Result<()> {
    let joined = threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked"))));
    joined.fold(Ok(()), io::Result::and)
}

#[cfg(test)]
mod tests;
