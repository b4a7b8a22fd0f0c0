//! All threads of a server, and what they share: sockets in, bytes out, until it is told to stop.

use crate::clock::Clock;
use crate::content::Content;
use crate::datagrams::Datagrams;
use crate::open_files::OpenFiles;
use crate::options::Options;
use crate::permits::Permits;
use crate::tally::Tallies;
use crate::worker::{Protocol, WAKEUP, Worker};
use os::poll::{Poller, Waker};
use os::tcp::Listener;
use os::udp::Socket;
use os::wake::Wakeup;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
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
}

/// How to wake a thread.
#[derive(Debug)]
enum Call {
    Worker(Waker),
    Datagrams(Arc<Wakeup>),
}

/// What one pair of threads runs on.
struct Prepared<'l> {
    poller: Poller,
    listeners: Vec<(Protocol, &'l Listener)>,
    sockets: &'l [Socket],
    wakeup: Arc<Wakeup>,
}

impl Server {
    /// A server of `content`. When it is told to drain, what still runs after `drain_timeout` is cut off.
    pub fn new(content: Content, options: Options, drain_timeout: Duration) -> Server {
        Server {
            drain_timeout,
            content: Mutex::new(Arc::new(content)),
            content_version: AtomicU64::new(0),
            stage: AtomicU8::new(Stage::Serving as u8),
            open_files: OpenFiles::new(options.open_files),
            http_permits: Permits::new(options.http.connections_max),
            dns_permits: Permits::new(options.dns.tcp_connections_max),
            tallies: Tallies::default(),
            start: Instant::now(),
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
        let prepared = siblings.iter().map(|siblings| self.prepare(siblings)).collect::<io::Result<Vec<_>>>()?;
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (index, prepared) in prepared.into_iter().enumerate() {
                let Prepared { poller, listeners, sockets, wakeup } = prepared;
                let worker = move || self.end_all_unless(Worker::new(self, poller, listeners).and_then(Worker::run));
                threads.push(thread::Builder::new().name(format!("worker {index}")).spawn_scoped(scope, worker)?);
                if !sockets.is_empty() {
                    let datagrams = move || self.end_all_unless(Datagrams::new(self, sockets, &wakeup).run());
                    let name = format!("datagrams {index}");
                    threads.push(thread::Builder::new().name(name).spawn_scoped(scope, datagrams)?);
                }
            }
            let result = supervise(self);
            self.drain();
            for thread in threads {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the server panicked")))?;
            }
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
        self.stage.store(Stage::Draining as u8, Ordering::Release);
        self.wake_all();
    }

    /// Whether the server has been told to drain, or one of its threads has ended.
    pub fn is_draining(&self) -> bool {
        self.stage() == Stage::Draining
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
        if self.stage.load(Ordering::Acquire) == Stage::Serving as u8 { Stage::Serving } else { Stage::Draining }
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
        let calls = [Call::Worker(poller.waker(WAKEUP)?), Call::Datagrams(Arc::clone(&wakeup))];
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).extend(calls);
        let http = siblings.http.iter().map(|listener| (Protocol::Http, listener));
        let dns = siblings.dns_streams.iter().map(|listener| (Protocol::Dns, listener));
        Ok(Prepared { poller, listeners: http.chain(dns).collect(), sockets: &siblings.dns_datagrams, wakeup })
    }

    /// A thread that ends with an error ends the others too: half a server would answer half of its clients.
    fn end_all_unless(&self, result: io::Result<()>) -> io::Result<()> {
        if result.is_err() {
            self.drain();
        }
        result
    }

    fn wake_all(&self) {
        for call in &*self.threads.lock().unwrap_or_else(PoisonError::into_inner) {
            // Fails only if the descriptor is gone, which the server owns until its end.
            let woken = match call {
                Call::Worker(waker) => waker.wake(),
                Call::Datagrams(wakeup) => wakeup.give(),
            };
            debug_assert!(woken.is_ok());
        }
    }
}
