//! All threads of a server, and what they share: sockets in, bytes out, until it is told to stop.

use crate::content::Content;
use crate::datagrams::Datagrams;
use crate::fills::Inbox;
use crate::open_files::Census;
use crate::options::Options;
use crate::shared::{Shared, Stage};
use crate::tally::Tallies;
use crate::worker::{Protocol, WAKEUP, Worker};
use os::poll::Poller;
use os::tcp::Listener;
use os::udp::Socket;
use os::wake::Wakeup;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

/// The sockets of one worker: a sibling of each address. They are bound before any worker runs, and outlive them all.
#[derive(Debug, Default)]
pub struct Siblings {
    /// Where HTTP connections come in.
    pub http: Vec<Listener>,
    /// Where DNS streams come in.
    pub dns_streams: Vec<Listener>,
    /// Where DNS datagrams come in.
    pub dns_datagrams: Vec<Socket>,
}

impl Siblings {
    /// Lets nobody connect any more: for whoever owns the sockets, when no process goes on serving them.
    pub fn shut_down(&self) -> io::Result<()> {
        self.http.iter().chain(&self.dns_streams).try_for_each(Listener::shut_down)
    }
}

/// A server: what its threads share, and how to wake them.
#[derive(Debug)]
pub struct Server {
    shared: Shared,
    threads: Mutex<Vec<Call>>,
}

/// How to wake a thread.
#[derive(Debug)]
enum Call {
    Worker(Arc<Inbox>),
    Datagrams(Arc<Wakeup>),
}

/// What one pair of threads runs on.
struct Prepared<'l> {
    poller: Poller,
    listeners: Vec<(Protocol, &'l Listener)>,
    sockets: &'l [Socket],
    inbox: Arc<Inbox>,
    wakeup: Arc<Wakeup>,
}

impl Server {
    /// A server of `content`. When it is told to drain, what still runs after `drain_timeout` is cut off.
    pub fn new(content: Content, options: Options, drain_timeout: Duration) -> Server {
        Server { shared: Shared::new(content, options, drain_timeout), threads: Mutex::new(Vec::new()) }
    }

    /// Serves on `siblings`, one worker for each, while `supervise` runs on this thread; drains when that returns, and
    /// returns what it returned when all threads have ended.
    ///
    /// # Errors
    /// Of the calls that set the threads up, and of waiting, which no server can go on without. An error of a peer, a
    /// file or a datagram is never one of these.
    pub fn run<R>(&self, siblings: &[Siblings], supervise: impl FnOnce(&Server) -> R) -> io::Result<R> {
        os::jobs::choose_all();
        let prepared = siblings.iter().map(|siblings| self.prepare(siblings)).collect::<io::Result<Vec<_>>>()?;
        let watcher_wakeup = Wakeup::new()?;
        self.shared.open_files.set_inboxes(prepared.iter().map(|prepared| Arc::clone(&prepared.inbox)).collect());
        thread::scope(|scope| {
            // However this closure is left, the threads that it has started end.
            let ending = Ending { server: self, watcher_wakeup: &watcher_wakeup };
            let shared = &self.shared;
            let watch = || shared.open_files.run_watcher(&watcher_wakeup, || shared.stage() != Stage::Ended);
            let mut helpers = vec![self.spawn(scope, "watcher".into(), watch)?];
            for index in 0..shared.options.open_files.opener_count {
                let open = || {
                    shared.open_files.run_opener();
                    Ok(())
                };
                helpers.push(self.spawn(scope, format!("opener {index}"), open)?);
            }
            let mut workers = Vec::new();
            for (index, prepared) in prepared.into_iter().enumerate() {
                let Prepared { poller, listeners, sockets, inbox, wakeup } = prepared;
                let work = move || Worker::new(shared, index, poller, inbox, listeners).and_then(Worker::run);
                workers.push(self.spawn(scope, format!("worker {index}"), work)?);
                if !sockets.is_empty() {
                    let work = move || Datagrams::new(shared, sockets, &wakeup).run();
                    workers.push(self.spawn(scope, format!("datagrams {index}"), work)?);
                }
            }
            let result = supervise(self);
            self.drain();
            let ended = join_all(workers);
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

    /// Stops accepting, and lets what runs finish.
    pub fn drain(&self) {
        self.shared.advance_to(Stage::Draining);
        self.wake_all();
    }

    /// Whether the server has been told to drain, or one of its threads has ended.
    pub fn is_draining(&self) -> bool {
        self.shared.stage() != Stage::Serving
    }

    /// What it has done and met.
    pub fn tallies(&self) -> &Tallies {
        &self.shared.tallies
    }

    /// What the open-file cache holds.
    pub fn open_files_census(&self) -> Census {
        self.shared.open_files.census()
    }

    fn prepare<'l>(&self, siblings: &'l Siblings) -> io::Result<Prepared<'l>> {
        let poller = Poller::new()?;
        let wakeup = Arc::new(Wakeup::new()?);
        let inbox = Arc::new(Inbox::new(poller.waker(WAKEUP)?));
        let calls = [Call::Worker(Arc::clone(&inbox)), Call::Datagrams(Arc::clone(&wakeup))];
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).extend(calls);
        let http = siblings.http.iter().map(|listener| (Protocol::Http, listener));
        let dns = siblings.dns_streams.iter().map(|listener| (Protocol::Dns, listener));
        Ok(Prepared { poller, listeners: http.chain(dns).collect(), sockets: &siblings.dns_datagrams, inbox, wakeup })
    }

    fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        name: String,
        work: impl FnOnce() -> io::Result<()> + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, io::Result<()>>> {
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
            self.drain();
        }
        result
    }

    fn wake_all(&self) {
        for call in &*self.threads.lock().unwrap_or_else(PoisonError::into_inner) {
            match call {
                Call::Worker(inbox) => inbox.wake(),
                Call::Datagrams(wakeup) => {
                    // Fails only if the descriptor is gone, which the server owns until its end.
                    let given = wakeup.give();
                    debug_assert!(given.is_ok());
                }
            }
        }
    }
}

/// Ends the threads of a server when it goes.
struct Ending<'s> {
    server: &'s Server,
    watcher_wakeup: &'s Wakeup,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.server.drain();
        self.server.shared.advance_to(Stage::Ended);
        self.server.shared.open_files.finish();
        // Fails only if the descriptor is gone, which whoever runs the server owns.
        let given = self.watcher_wakeup.give();
        debug_assert!(given.is_ok());
    }
}

/// Drains the server when a thread is left by a panic.
struct DrainOnPanic<'s>(&'s Server);

impl Drop for DrainOnPanic<'_> {
    fn drop(&mut self) {
        self.0.drain();
    }
}

/// Waits for all `threads`; the first error of any.
fn join_all(threads: Vec<ScopedJoinHandle<'_, io::Result<()>>>) -> io::Result<()> {
    let joined = threads
        .into_iter()
        .map(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked"))));
    joined.fold(Ok(()), io::Result::and)
}
