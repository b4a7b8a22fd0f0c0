//! All threads of a server, and what they share: sockets in, bytes out, until it is told to stop.

use crate::clock::Clock;
use crate::content::Content;
use crate::datagrams::Datagrams;
use crate::fills::Inbox;
use crate::open_files::{Census, OpenFiles};
use crate::options::Options;
use crate::permits::Permits;
use crate::tally::Tallies;
use crate::worker::{Protocol, WAKEUP, Worker};
use os::poll::Poller;
use os::tcp::Listener;
use os::udp::Socket;
use os::wake::Wakeup;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

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

/// A server: its content, its bounds, and the threads that run.
#[derive(Debug)]
pub struct Server {
    options: Options,
    drain_timeout: Duration,
    content: Mutex<Arc<Content>>,
    /// Raised by each replacement, so that a turn that finds it unchanged takes no lock.
    content_version: AtomicU64,
    stage: AtomicU8,
    open_files: OpenFiles,
    http_permits: Permits,
    dns_permits: Permits,
    tallies: Tallies,
    start: Instant,
    threads: Mutex<Vec<Call>>,
}

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Serving,
    /// No new connections; those that are there finish.
    Draining,
    /// All workers have left.
    Ended,
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
        let start = Instant::now();
        Server {
            drain_timeout,
            content: Mutex::new(Arc::new(content)),
            content_version: AtomicU64::new(0),
            stage: AtomicU8::new(Stage::Serving as u8),
            open_files: OpenFiles::new(options.open_files, start),
            http_permits: Permits::new(options.http.connections_max),
            dns_permits: Permits::new(options.dns.tcp_connections_max),
            tallies: Tallies::default(),
            start,
            threads: Mutex::new(Vec::new()),
            options,
        }
    }

    /// Serves on `siblings`, one worker for each, while `supervise` runs on this thread; drains when that returns, and
    /// returns what it returned when all threads have ended.
    ///
    /// # Errors
    /// Of the calls that set the threads up, and of waiting, which no server can go on without. An error of a peer, a
    /// file or a datagram is never one of these.
    pub fn run<R>(&self, siblings: &[Siblings], supervise: impl FnOnce(&Server) -> R) -> io::Result<R> {
        os::ways::choose_all();
        let prepared = siblings.iter().map(|siblings| self.prepare(siblings)).collect::<io::Result<Vec<_>>>()?;
        let watcher_wakeup = Wakeup::new()?;
        self.open_files.set_inboxes(prepared.iter().map(|prepared| Arc::clone(&prepared.inbox)).collect());
        thread::scope(|scope| {
            // However this closure is left, the threads that it has started end.
            let ending = Ending { server: self, watcher_wakeup: &watcher_wakeup };
            let watch = || self.open_files.run_watcher(&watcher_wakeup, || self.stage() != Stage::Ended);
            let mut helpers = vec![self.spawn(scope, "watcher".into(), watch)?];
            for index in 0..self.options.open_files.opener_count {
                let open = || {
                    self.open_files.run_opener();
                    Ok(())
                };
                helpers.push(self.spawn(scope, format!("opener {index}"), open)?);
            }
            let mut workers = Vec::new();
            for (index, prepared) in prepared.into_iter().enumerate() {
                let Prepared { poller, listeners, sockets, inbox, wakeup } = prepared;
                let work = move || Worker::new(self, index, poller, inbox, listeners).and_then(Worker::run);
                workers.push(self.spawn(scope, format!("worker {index}"), work)?);
                if !sockets.is_empty() {
                    let work = move || Datagrams::new(self, sockets, &wakeup).run();
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
        *self.content.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(content);
        // Release pairs with the Acquire of `content_version`: who sees the new number finds the new content.
        self.content_version.fetch_add(1, Ordering::Release);
        self.wake_all();
    }

    /// Stops accepting, and lets what runs finish.
    pub fn drain(&self) {
        // From `Serving` alone: a drain that is asked for again must not undo the end.
        let (from, to) = (Stage::Serving as u8, Stage::Draining as u8);
        let _ = self.stage.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        self.wake_all();
    }

    /// Whether the server has been told to drain, or one of its threads has ended.
    pub fn is_draining(&self) -> bool {
        self.stage() != Stage::Serving
    }

    /// What it has done and met.
    pub fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    pub(crate) fn content(&self) -> (Arc<Content>, u64) {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&content), self.content_version())
    }

    #[inline]
    pub(crate) fn content_version(&self) -> u64 {
        // Acquire pairs with the Release of `replace_content`.
        self.content_version.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        // Acquire pairs with the Release of `drain`.
        match self.stage.load(Ordering::Acquire) {
            stage if stage == Stage::Serving as u8 => Stage::Serving,
            stage if stage == Stage::Draining as u8 => Stage::Draining,
            _ => Stage::Ended,
        }
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        self.drain_timeout
    }

    pub(crate) fn open_files(&self) -> &OpenFiles {
        &self.open_files
    }

    pub(crate) fn permits(&self, protocol: Protocol) -> &Permits {
        match protocol {
            Protocol::Http => &self.http_permits,
            Protocol::Dns => &self.dns_permits,
        }
    }

    pub(crate) fn clock(&self) -> Clock {
        Clock::new(self.start)
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
        thread::Builder::new().name(name).spawn_scoped(scope, || self.drain_if_failed(work()))
    }

    /// A thread that ends with an error ends the others too: half a server would answer half of its clients.
    fn drain_if_failed(&self, result: io::Result<()>) -> io::Result<()> {
        if result.is_err() {
            self.drain();
        }
        result
    }

    /// What the open-file cache holds.
    pub fn open_files_census(&self) -> Census {
        self.open_files.census()
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
        self.server.stage.store(Stage::Ended as u8, Ordering::Release);
        self.server.open_files.finish();
        // Fails only if the descriptor is gone, which whoever runs the server owns.
        let given = self.watcher_wakeup.give();
        debug_assert!(given.is_ok());
    }
}

/// Waits for all `threads`; the first error of any.
fn join_all(threads: Vec<ScopedJoinHandle<'_, io::Result<()>>>) -> io::Result<()> {
    let joined = threads.into_iter().map(|thread| {
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked")))
    });
    joined.fold(Ok(()), io::Result::and)
}
