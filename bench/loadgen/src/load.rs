//! The description of a load, and a load that runs in a thread of its own.

use crate::datagrams::Datagrams;
use crate::dns::{DnsProtocol, Question, learn_records};
use crate::http::HttpProtocol;
use crate::http2::Http2;
use crate::outcome::Kind;
use crate::report::{Counts, Recorder, Report, Request};
use crate::streams::{IdleClose, Protocol, Reuse, Streams};
use crate::tls::Tls;
use fastrand::Rng;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;

/// Time to start the thread before the first request is due.
const START_DELAY: Duration = Duration::from_millis(20);
/// Requests are due on ticks of this length. With a wakeup for each request, the load generator's own processor time
/// would dominate.
const TICK: Duration = Duration::from_millis(1);
const TICKS_PER_S: u64 = 1_000;
/// Requests sent on one tick. The rest follows on the next one, so that responses are received at any rate.
const SENDS_PER_TICK_MAX: usize = 512;

/// A load: requests at fixed rates for some time.
#[derive(Clone, Debug)]
pub struct Load {
    /// The time for which requests are due.
    pub length: Duration,
    /// Determines questions and IDs.
    pub seed: u64,
    /// Requests a second of each kind, in the order of [`Kind::ALL`].
    pub rates: [u32; Kind::ALL.len()],
    /// The web server; required by the rates of HTTP.
    pub http: Option<HttpTarget>,
    /// The encrypted listener of a web server; required by the rates of HTTPS. Any certificate is accepted.
    pub https: Option<HttpTarget>,
    /// The DNS server; required by the rates of DNS.
    pub dns: Option<DnsTarget>,
    /// Persistent connections of each kind; 16 by default. When all are busy, more are opened, which end with their
    /// response.
    pub connection_count: usize,
    /// Ports that queries over UDP use in turn; 64 by default.
    pub udp_port_count: usize,
    /// The timeout of a request over TCP, from the time when it is due; 5 s by default.
    pub tcp_deadline: Duration,
    /// The timeout of a query over UDP, from the time when it is due; 2 s by default.
    pub udp_deadline: Duration,
}

/// A file of a web server.
#[derive(Clone, Debug)]
pub struct HttpTarget {
    /// The server's address.
    pub address: SocketAddr,
    /// The `Host` field.
    pub host: String,
    /// The request target.
    pub path: String,
    /// Each of these contents is correct: for a file that is replaced during the load.
    pub contents: Vec<Vec<u8>>,
    /// The moment when the client notices that the server has closed an idle connection.
    pub idle_close: IdleClose,
}

/// Questions to a DNS server.
#[derive(Clone, Debug)]
pub struct DnsTarget {
    /// The server's address, the same over UDP and TCP.
    pub address: SocketAddr,
    /// From [`crate::parse_questions`]; asked in random order.
    pub questions: Vec<Question>,
    /// Whether replies must have the same records as before the load. The ID, the question, the response code and the
    /// syntax are always checked.
    pub checks_records: bool,
}

impl HttpTarget {
    /// A file with one correct content.
    pub fn new(address: SocketAddr, path: &str, content: Vec<u8>) -> HttpTarget {
        let idle_close = IdleClose::Immediately;
        HttpTarget { address, host: address.to_string(), path: path.to_owned(), contents: vec![content], idle_close }
    }
}

impl DnsTarget {
    /// Questions whose replies have the same records as before the load.
    pub fn new(address: SocketAddr, questions: Vec<Question>) -> DnsTarget {
        DnsTarget { address, questions, checks_records: true }
    }
}

/// A running load. The load stops when it is dropped.
#[derive(Debug)]
pub struct Running {
    seed: u64,
    start: Instant,
    thread: JoinHandle<io::Result<()>>,
    counts: Vec<(Kind, Arc<Mutex<Counts>>)>,
    stop: Stop,
}

#[derive(Debug, Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Load {
    /// A load without requests.
    pub fn new(length: Duration, seed: u64) -> Load {
        Load {
            length,
            seed,
            rates: [0; Kind::ALL.len()],
            http: None,
            https: None,
            dns: None,
            connection_count: 16,
            udp_port_count: 64,
            tcp_deadline: Duration::from_secs(5),
            udp_deadline: Duration::from_secs(2),
        }
    }

    /// Learns the expected records from the DNS server if they are to be checked, then runs the load in a thread.
    ///
    /// # Errors
    /// Returns an error if the DNS server does not answer, or the thread cannot be started.
    ///
    /// # Panics
    /// Panics if no request would be sent.
    pub fn start(&self) -> io::Result<Running> {
        let has_target = |kind: &Kind| match kind {
            Kind::HttpNew | Kind::HttpKept => self.http.is_some(),
            Kind::HttpsNew | Kind::HttpsKept | Kind::Http2 => self.https.is_some(),
            Kind::DnsUdp | Kind::DnsTcpNew | Kind::DnsTcpKept => self.dns.is_some(),
        };
        let kinds = Kind::ALL.iter().copied().zip(self.rates).filter(|(kind, rate)| *rate > 0 && has_target(kind));
        let kinds: Vec<(Kind, u32)> = kinds.collect();
        assert!(!kinds.is_empty(), "a load has a rate above zero, and the target of its kind");
        let mut load = self.clone();
        if let Some(dns) = load.dns.as_mut().filter(|dns| dns.checks_records) {
            let advice = "check that the server runs and has the name";
            let failed = |why| io::Error::other(format!("question before the load: {why}; {advice}"));
            learn_records(dns.address, &mut dns.questions).map_err(failed)?;
        }
        let stop = Stop::default();
        let counts: Vec<_> = kinds.iter().map(|(kind, _)| (*kind, Arc::<Mutex<Counts>>::default())).collect();
        let start = Instant::now() + START_DELAY;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (thread_counts, thread_stop) = (counts.clone(), Arc::clone(&stop.0));
        let run = move || {
            let run = async {
                let mut running = JoinSet::new();
                for ((kind, counts), (_, per_s)) in thread_counts.iter().zip(kinds) {
                    let recorder = Rc::new(Recorder::new(start, counts));
                    let schedule = Schedule::new(start, per_s, load.length);
                    running.spawn_local(load.clone().run(*kind, schedule, recorder, Arc::clone(&thread_stop)));
                }
                while let Some(result) = running.join_next().await {
                    result.expect("a task does not panic")?;
                }
                Ok(())
            };
            LocalSet::new().block_on(&runtime, run)
        };
        let thread = std::thread::Builder::new().name("loadgen".to_owned()).spawn(run)?;
        Ok(Running { seed: self.seed, start, thread, counts, stop })
    }

    async fn run(
        self,
        kind: Kind,
        schedule: Schedule,
        recorder: Rc<Recorder>,
        stop: Arc<AtomicBool>,
    ) -> io::Result<()> {
        let random = Rng::with_seed(self.seed.wrapping_add(kind as u64));
        let kept = |idle_close| Reuse::Kept { connection_count: self.connection_count, idle_close };
        let is_encrypted = matches!(kind, Kind::HttpsNew | Kind::HttpsKept | Kind::Http2);
        let http = if is_encrypted { self.https } else { self.http };
        match (kind, http, self.dns) {
            (Kind::HttpNew | Kind::HttpKept | Kind::HttpsNew | Kind::HttpsKept, Some(http), _) => {
                let is_new = matches!(kind, Kind::HttpNew | Kind::HttpsNew);
                let reuse = if is_new { Reuse::Never } else { kept(http.idle_close) };
                let tls = if is_encrypted { Some(Tls::new(&http.host, b"http/1.1")?) } else { None };
                let protocol = HttpProtocol::new(&http.host, &http.path, is_new, http.contents.into());
                let streams = Streams::new(http.address, tls, protocol, reuse, self.tcp_deadline, &recorder);
                run_streams(&streams, schedule, &stop).await?;
            }
            (Kind::Http2, Some(http), _) => {
                let HttpTarget { address, host, path, contents, .. } = http;
                let (count, deadline) = (self.connection_count, self.tcp_deadline);
                let http2 = Http2::new(address, &host, &path, contents, count, deadline, &recorder)?;
                let exchange = |request| Rc::clone(&http2).exchange(request);
                let sending_end = run_exchanges(exchange, schedule, &recorder, &stop).await?;
                http2.check_idle().await;
                recorder.finish(sending_end);
            }
            (Kind::DnsUdp, _, Some(dns)) => {
                let (questions, port_count) = (dns.questions.into(), self.udp_port_count);
                let mut datagrams =
                    Datagrams::open(dns.address, port_count, &questions, random, self.udp_deadline, &recorder)?;
                let sending_end = schedule.run(&recorder, &stop, |requests| {
                    requests.for_each(|request| datagrams.send(request));
                    datagrams.expire();
                });
                let sending_end = sending_end.await?;
                while !datagrams.expire() {
                    tokio::time::sleep(TICK).await;
                }
                recorder.finish(sending_end);
            }
            (_, _, Some(dns)) => {
                // A DNS server cannot announce that it closes a connection.
                let reuse = if kind == Kind::DnsTcpNew { Reuse::Never } else { kept(IdleClose::Immediately) };
                let protocol = DnsProtocol::new(&dns.questions.into(), random);
                let streams = Streams::new(dns.address, None, protocol, reuse, self.tcp_deadline, &recorder);
                run_streams(&streams, schedule, &stop).await?;
            }
            _ => unreachable!("each kind has its target"),
        }
        Ok(())
    }
}

async fn run_streams<P: Protocol + 'static>(
    streams: &Rc<Streams<P>>,
    schedule: Schedule,
    stop: &AtomicBool,
) -> io::Result<()> {
    let exchange = |request| Rc::clone(streams).exchange(request);
    let sending_end = run_exchanges(exchange, schedule, &streams.recorder, stop).await?;
    streams.check_idle();
    streams.recorder.finish(sending_end);
    Ok(())
}

/// Sends requests when they are due, and waits for their ends; the time of the last one's start.
async fn run_exchanges<E: Future<Output = ()> + 'static>(
    exchange: impl Fn(Request) -> E,
    schedule: Schedule,
    recorder: &Recorder,
    stop: &AtomicBool,
) -> io::Result<Instant> {
    let mut exchanges = JoinSet::new();
    let sending_end = schedule.run(recorder, stop, |requests| {
        requests.for_each(|request| drop(exchanges.spawn_local(exchange(request))));
        while exchanges.try_join_next().is_some() {}
    });
    let sending_end = sending_end.await?;
    while exchanges.join_next().await.is_some() {}
    Ok(sending_end)
}

#[derive(Debug)]
struct Schedule {
    start: Instant,
    per_s: u64,
    count_max: u64,
    taken_count: u64,
}

impl Schedule {
    /// `per_s` requests a second, which is not zero, from `start` on.
    fn new(start: Instant, per_s: u32, length: Duration) -> Schedule {
        let count_max = u128::from(per_s) * length.as_nanos() / 1_000_000_000;
        Schedule { start, per_s: per_s.into(), count_max: u64::try_from(count_max).unwrap_or(u64::MAX), taken_count: 0 }
    }

    /// The next request, if it is due. After a pause of the load generator all missed requests are due immediately.
    fn take_due(&mut self, now: Instant) -> Option<Request> {
        let tick_index = u128::from(self.taken_count) * u128::from(TICKS_PER_S) / u128::from(self.per_s);
        let due = self.start + TICK * u32::try_from(tick_index).unwrap_or(u32::MAX);
        if self.taken_count == self.count_max || due > now {
            return None;
        }
        self.taken_count += 1;
        Some(Request { due })
    }

    /// Calls `send` on each tick with the requests that are due, until all are sent or `stop` is set; returns the time.
    async fn run(
        mut self,
        recorder: &Recorder,
        stop: &AtomicBool,
        mut send: impl FnMut(&mut dyn Iterator<Item = Request>),
    ) -> io::Result<Instant> {
        let ticks = Ticks::new(self.start)?;
        while self.taken_count < self.count_max && !stop.load(Ordering::Relaxed) {
            ticks.next().await?;
            let due = std::iter::from_fn(|| self.take_due(Instant::now()));
            send(&mut due.take(SENDS_PER_TICK_MAX).inspect(|request| recorder.count_sent(*request)));
        }
        Ok(Instant::now())
    }
}

/// A timer with the kernel's precision. Tokio's precision is a millisecond, which would be part of each latency.
struct Ticks(AsyncFd<OwnedFd>);

impl Ticks {
    #[allow(unsafe_code, reason = "tokio requires it for descriptors of other crates")]
    fn new(start: Instant) -> io::Result<Ticks> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // An initial expiration of zero disarms the timer (timerfd_create(2)).
        let first = start.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let timespec = |length| Timespec::try_from(length).expect("both are far below the range of seconds");
        let ticks = Itimerspec { it_interval: timespec(TICK), it_value: timespec(first) };
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &ticks)?;
        // SAFETY: an `OwnedFd` stays open, and the same, until it is dropped.
        Ok(Ticks(unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?))
    }

    async fn next(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        // The number of ticks does not matter, as the schedule reads the clock.
        rustix::io::read(&self.0, &mut [0; 8]).map(drop).or_else(|errno| match errno {
            rustix::io::Errno::AGAIN => Ok(()),
            _ => Err(errno.into()),
        })
    }
}

impl Running {
    /// Correct responses so far.
    pub fn ok_count(&self) -> u64 {
        let ok_count = |counts: &Mutex<Counts>| counts.lock().expect("no thread panics with the lock").ok_count;
        self.counts.iter().map(|(_, counts)| ok_count(counts)).sum()
    }

    /// Stops sending and waits until the last request has ended.
    ///
    /// # Errors
    /// Returns the same errors as [`Running::finish`].
    pub fn finish_now(self) -> io::Result<Report> {
        self.stop.0.store(true, Ordering::Relaxed);
        self.finish()
    }

    /// Waits until the last request has ended: at most one deadline after the last was due.
    ///
    /// # Errors
    /// Returns an error if a socket cannot be opened.
    pub fn finish(self) -> io::Result<Report> {
        let Running { seed, start, thread, counts: all, stop: _stop } = self;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let counts = |counts: &Mutex<Counts>| counts.lock().expect("no thread panics with the lock").clone();
        let kinds = all.iter().map(|(kind, of)| (*kind, counts(of))).collect();
        Ok(Report { seed, length: start.elapsed(), kinds })
    }
}
