//! The threads of a server, and its interface.

use crate::backend_problems::BackendProblem;
use crate::backend_servers::BackendServerStatus;
use crate::dns::updates::{self, ReceivedUpdate, ReplyPlace};
use crate::files::file_reads::FileReads;
use crate::files::jobs::Inbox;
use crate::heartbeat::Watchdog;
use crate::lifecycle::{DrainMode, State};
use crate::log::log_queue::{LogStatus, LogTarget};
use crate::options::Options;
use crate::snapshot::Snapshot;
use crate::socket_set::{Role, SocketSet, assign};
use crate::status::Status;
use crate::threads::datagrams::{DatagramParams, Datagrams};
use crate::threads::listener_state::ListenerState;
use crate::threads::shared::Shared;
use crate::threads::worker::{WAKEUP, Worker, WorkerParams};
use crate::waiter::Event;
use sanderling_dns::ZoneMap;
use sanderling_dns::update::UpdateResult;
use sanderling_log_format::LogKind;
use sanderling_os::clock::unix_seconds;
use sanderling_os::event_fd::EventFd;
use sanderling_os::panics;
use sanderling_os::poll::Poller;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long [`Server::drain`] waits for the threads to accept no more: much longer than an iteration and the final
/// window.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(1);

/// Time for writing the access log at the end.
const LOG_WAIT_MAX: Duration = Duration::from_secs(1);

/// A server.
#[derive(Debug)]
pub struct Server {
    shared: Shared,
    wakers: Mutex<Vec<ThreadWaker>>,
    watchdog: Mutex<Watchdog>,
}

/// A thread that makes no progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HungThread {
    /// Its name.
    pub name: String,
    /// It is in a call that may wait for a disk. Another process would have to wait as well.
    pub waits_for_disk: bool,
}

/// How to wake a thread.
#[derive(Debug)]
enum ThreadWaker {
    Worker(Arc<Inbox>),
    Datagrams(Arc<EventFd>),
}

impl Server {
    /// The served zones.
    pub fn zones(&self) -> Arc<ZoneMap> {
        Arc::clone(&self.shared.snapshot().0.zones)
    }

    /// A server of `snapshot`. When it drains, connections that remain after `drain_timeout` are aborted.
    pub fn new(snapshot: Snapshot, options: Options, drain_timeout: Duration) -> Server {
        let shared = Shared::new(snapshot, options, drain_timeout);
        Server { shared, wakers: Mutex::default(), watchdog: Mutex::default() }
    }

    /// Serves all `socket_sets` with `worker_count` workers while `control` runs on this thread. When `control`
    /// returns, the server stops, unless it drains already; when all threads have ended, the result of `control` is
    /// returned. Called once.
    ///
    /// Any number of workers can serve any number of sets: a worker serves several sets where there are fewer workers,
    /// and workers share a set where there are more. One set for each worker is best.
    ///
    /// # Errors
    /// The errors of the calls that set up the threads, and of waiting, without which no thread can continue. An error
    /// of a client, a file or a datagram is never returned.
    pub fn run<R>(
        &self,
        socket_sets: &[SocketSet],
        worker_count: usize,
        control: impl FnOnce(&Server) -> R,
    ) -> io::Result<R> {
        self.run_and_report(socket_sets, worker_count, control, |result| result)
    }

    /// As [`Server::run`]; `report` is called with the result of `control` when serving has ended. After it the server
    /// waits for threads that may wait for a disk.
    ///
    /// # Errors
    /// As for [`Server::run`]; then `report` is not called.
    pub fn run_and_report<R, T>(
        &self,
        socket_sets: &[SocketSet],
        worker_count: usize,
        control: impl FnOnce(&Server) -> R,
        report: impl FnOnce(R) -> T,
    ) -> io::Result<T> {
        if worker_count == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a server needs at least one worker"));
        }
        sanderling_os::features::select_all();
        let params = (0..worker_count).map(|index| self.thread_params(index, worker_count, socket_sets));
        let (workers, datagrams): (Vec<_>, Vec<_>) = params.collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
        let watcher_wakeup = EventFd::new()?;
        self.shared.jobs.set_inboxes(workers.iter().map(|params| Arc::clone(&params.inbox)).collect());
        thread::scope(|scope| {
            // However this closure is left, the threads that it has started end.
            let stop = StopOnDrop { server: self, watcher_wakeup: &watcher_wakeup };
            let helpers = self.spawn_helpers(scope, &watcher_wakeup)?;
            let mut threads = Vec::new();
            for (index, params) in workers.into_iter().enumerate() {
                let name = params.metrics.thread.clone();
                let work = move || Worker::new(&self.shared, index, params).and_then(Worker::run);
                threads.push(self.spawn(scope, name, work)?);
            }
            for params in datagrams.into_iter().flatten() {
                let name = params.metrics.thread.clone();
                let work = || {
                    Datagrams::new(&self.shared, params).run();
                    Ok(())
                };
                threads.push(self.spawn(scope, name, work)?);
            }
            let result = control(self);
            self.begin_drain(DrainMode::Stopping);
            let ended = join_all(threads);
            drop(stop);
            ended?;
            for log in LogKind::ALL {
                self.shared.log_queue(log).close(LOG_WAIT_MAX);
            }
            let reported = report(result);
            join_all(helpers)?;
            Ok(reported)
        })
    }

    /// Replaces parts of the snapshot. Each thread uses the new one from its next iteration on; connections stay open.
    /// The replaced zones stay in memory until [`Server::free_replaced_zones`].
    pub fn update_snapshot(&self, change: impl FnOnce(&mut Snapshot)) {
        self.shared.update_snapshot(change);
        self.wake_all();
    }

    /// Answers a dynamic update. A client over UDP that cannot be reached sends it again.
    pub fn reply_to_update(&self, update: ReceivedUpdate, result: UpdateResult) {
        let ReceivedUpdate { message, info, place, .. } = update;
        let mut out = [0; updates::REPLY_BYTES_MAX];
        let length_bytes = message.reply(result, unix_seconds(), &mut out).unwrap_or(0);
        let reply = &out[..length_bytes];
        self.shared.record_late_reply(&info, reply);
        match place {
            ReplyPlace::Datagram { socket, path } => {
                let _ = socket.send_later(*path, reply);
            }
            ReplyPlace::Stream { waiter, reply: late } => {
                late.set(reply);
                self.shared.jobs.send_event(&[waiter], Event::UpdateAnswered);
            }
        }
    }

    /// Writes `log` to `target` from now on.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn set_log_target(&self, log: LogKind, target: LogTarget) -> io::Result<()> {
        self.shared.log_queue(log).set_target(target)
    }

    /// The state of `log`; `None` if there has been none.
    pub fn log_status(&self, log: LogKind) -> Option<LogStatus> {
        self.shared.log_queue(log).status()
    }

    /// Frees replaced zones from which no thread answers, which may take long. Called from time to time by the thread
    /// that replaces them.
    pub fn free_replaced_zones(&self) {
        self.shared.free_replaced_zones();
    }

    /// Drains: no new connections are accepted, after a short final window if no process replaces this server. Requests
    /// in progress are answered, and their connections close after the response; idle connections close after the grace
    /// of the options.
    ///
    /// Returns when no thread accepts; then the owner of the sockets can shut them down if no process serves them. A
    /// hung thread is waited for no longer than a second.
    pub fn drain(&self, mode: DrainMode) {
        self.shared.lifecycle.advance_to(State::Draining(mode));
        self.wake_all();
        self.shared.lifecycle.wait_until_none_accepts(DRAIN_WAIT_MAX);
    }

    /// Whether the server drains: after `drain`, or because one of its threads has ended.
    pub fn is_draining(&self) -> bool {
        self.shared.lifecycle.state() != State::Serving
    }

    /// A thread that has been in one iteration for longer than the options allow. Only calls that follow each other,
    /// about a second apart, find it.
    pub fn hung_thread(&self) -> Option<HungThread> {
        self.hung_thread_at(Instant::now())
    }

    fn hung_thread_at(&self, now: Instant) -> Option<HungThread> {
        let threads = self.shared.metrics.threads();
        let mut watchdog = self.watchdog.lock().unwrap_or_else(PoisonError::into_inner);
        let heartbeats = threads.iter().map(|thread| &thread.heartbeat);
        let hang = watchdog.check(now, heartbeats, self.shared.options.hang_limit)?;
        Some(HungThread { name: threads[hang.index].thread.clone(), waits_for_disk: hang.is_in_file_call })
    }

    /// The state of the server.
    pub fn status(&self) -> Status {
        Status::of(&self.shared)
    }

    /// The parameters of the worker `index` of `worker_count`, and of the datagram thread with the same index, if there
    /// are sockets for it.
    fn thread_params<'l>(
        &'l self,
        index: usize,
        worker_count: usize,
        socket_sets: &'l [SocketSet],
    ) -> io::Result<(WorkerParams<'l>, Option<DatagramParams<'l>>)> {
        let assignments = assign(index, worker_count, socket_sets.len());
        let set_indices: Vec<usize> = assignments.iter().map(|assignment| assignment.set_index).collect();
        let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
        for assignment in assignments {
            let set = &socket_sets[assignment.set_index];
            for (role, listener) in &set.streams {
                listeners.push(ListenerState::new(*role, listener, assignment.is_shared));
            }
            sockets.extend(set.datagrams.iter().filter(|(role, _)| *role == Role::DNS).map(|(_, socket)| socket));
        }
        let register = |kind: &str| self.shared.metrics.register(format!("{kind} {index}"), set_indices.clone());
        let poller = Poller::new()?;
        let inbox = Arc::new(Inbox::new(poller.waker(WAKEUP)?));
        self.add_waker(ThreadWaker::Worker(Arc::clone(&inbox)));
        let (metrics, accept_guard) = (register("worker"), self.shared.lifecycle.begin_accepting());
        let worker = WorkerParams { poller, listeners, inbox, metrics, accept_guard };
        if sockets.is_empty() {
            return Ok((worker, None));
        }
        let wakeup = Arc::new(EventFd::new()?);
        self.add_waker(ThreadWaker::Datagrams(Arc::clone(&wakeup)));
        let (metrics, accept_guard) = (register("datagrams"), self.shared.lifecycle.begin_accepting());
        Ok((worker, Some(DatagramParams { sockets, wakeup, metrics, accept_guard })))
    }

    fn add_waker(&self, waker: ThreadWaker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    /// Starts the threads that serve no socket: the watcher of files, and those for jobs.
    fn spawn_helpers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        watcher_wakeup: &'scope EventFd,
    ) -> io::Result<Vec<Thread<'scope>>> {
        let shared = &self.shared;
        let watch = || {
            shared.files.run_watcher(watcher_wakeup, || shared.lifecycle.state() != State::Ended);
            Ok(())
        };
        let compress = || {
            shared.files.run_compression();
            Ok(())
        };
        let helpers =
            vec![self.spawn(scope, "watcher".into(), watch)?, self.spawn(scope, "compress".into(), compress)?];
        add_read_thread(&shared.reads)?;
        self.add_job_thread(scope)?;
        Ok(helpers)
    }

    /// Starts a thread for jobs, which starts the next one.
    fn add_job_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> io::Result<()> {
        let shared = &self.shared;
        let work = || {
            shared.jobs.run_thread(|job| shared.files.run_job(job), || self.add_job_thread(scope));
            Ok(())
        };
        // The scope joins it.
        shared.jobs.add_thread(|| self.spawn(scope, "job".into(), work).map(drop))
    }

    /// Starts a thread. If it panics or ends with an error, the server stops: the sockets of the thread would not be
    /// served.
    fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        name: String,
        work: impl FnOnce() -> io::Result<()> + Send + 'scope,
    ) -> io::Result<Thread<'scope>> {
        let work = || {
            let _guard = DrainOnPanic(self);
            let result = work();
            if result.is_err() {
                self.begin_drain(DrainMode::Stopping);
            }
            result
        };
        thread::Builder::new().name(name).spawn_scoped(scope, work)
    }

    /// Begins to drain, unless the server drains already, and does not wait.
    fn begin_drain(&self, mode: DrainMode) {
        self.shared.lifecycle.begin_drain(mode);
        self.wake_all();
    }

    /// Takes the problems of backends since the last call, for the log.
    pub fn take_backend_problems(&self) -> Vec<BackendProblem> {
        self.shared.backend_problems.take()
    }

    /// The servers of backends that workers have.
    pub fn backend_servers(&self) -> Vec<BackendServerStatus> {
        self.shared.backend_servers.status()
    }

    /// Wakes a worker, for which there is a connection to an application ([`crate::UnixConnector`]).
    pub fn wake_worker(&self, index: usize) {
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let inboxes = wakers.iter().filter_map(|waker| match waker {
            ThreadWaker::Worker(inbox) => Some(inbox),
            ThreadWaker::Datagrams(_) => None,
        });
        inboxes.skip(index).take(1).for_each(|inbox| inbox.wake());
    }

    fn wake_all(&self) {
        for waker in &*self.wakers.lock().unwrap_or_else(PoisonError::into_inner) {
            match waker {
                ThreadWaker::Worker(inbox) => inbox.wake(),
                ThreadWaker::Datagrams(wakeup) => signal(wakeup),
            }
        }
    }
}

/// Starts a thread for reads, which starts the next one. It is not a thread of the scope: it ends with the process if a
/// disk does not answer.
fn add_read_thread(reads: &Arc<FileReads>) -> io::Result<()> {
    let of_thread = Arc::clone(reads);
    let work = move || {
        panics::end_process(panics::Scope::Thread);
        of_thread.run_thread(|| add_read_thread(&of_thread));
    };
    reads.add_thread(|| thread::Builder::new().name("read".into()).spawn(work).map(drop))
}

fn signal(wakeup: &EventFd) {
    // It fails only if the descriptor is closed, which `wakeup` owns.
    let signaled = wakeup.signal();
    debug_assert!(signaled.is_ok());
}

/// Ends the threads of a server when it is dropped.
struct StopOnDrop<'s> {
    server: &'s Server,
    watcher_wakeup: &'s EventFd,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.server.begin_drain(DrainMode::Stopping);
        self.server.shared.lifecycle.advance_to(State::Ended);
        self.server.shared.jobs.close();
        self.server.shared.reads.close();
        self.server.shared.files.end_compression();
        self.server.shared.authenticator.close();
        signal(self.watcher_wakeup);
    }
}

/// Drains the server if its thread panics.
struct DrainOnPanic<'s>(&'s Server);

impl Drop for DrainOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.begin_drain(DrainMode::Stopping);
        }
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
