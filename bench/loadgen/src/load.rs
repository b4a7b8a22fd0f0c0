//! The description of a load, and a load that runs in threads of its own.

use crate::datagrams::Datagrams;
use crate::dns::{DnsProtocol, Question, learn_records};
use crate::http::HttpProtocol;
use crate::outcome::Kind;
use crate::report::{Counts, Progress, Recorder, Report};
use crate::runner::{self, Client, Poller, Schedule};
use crate::streams::{IdleClose, Reuse, Streams};
use fastrand::Rng;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time to start the threads before the first request is due.
const START_DELAY: Duration = Duration::from_millis(20);
/// UDP ports of one load; each needs a file descriptor.
const UDP_PORT_COUNT_MAX: usize = 4096;

/// Requests a second of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// [`Kind::HttpNew`].
    pub http_new: u32,
    /// [`Kind::HttpKept`].
    pub http_kept: u32,
    /// [`Kind::DnsUdp`].
    pub dns_udp: u32,
    /// [`Kind::DnsTcpNew`].
    pub dns_tcp_new: u32,
    /// [`Kind::DnsTcpKept`].
    pub dns_tcp_kept: u32,
}

/// A load: requests at fixed rates for some time.
#[derive(Clone, Debug)]
pub struct Load {
    /// How long requests are due.
    pub length: Duration,
    /// Determines questions and IDs.
    pub seed: u64,
    /// Requests a second.
    pub rates: Rates,
    /// The web server; required by the rates of HTTP.
    pub http: Option<HttpTarget>,
    /// The DNS server; required by the rates of DNS.
    pub dns: Option<DnsTarget>,
    /// Persistent connections of each kind; 16 by default. When all are busy, more are opened, which end with their
    /// response.
    pub connection_count: usize,
    /// Ports that queries over UDP use in turn; 64 by default.
    pub udp_port_count: usize,
    /// From the time when a request over TCP is due; 5 s by default.
    pub tcp_deadline: Duration,
    /// From the time when a query over UDP is due; 2 s by default.
    pub udp_deadline: Duration,
}

/// A file of a web server.
#[derive(Clone, Debug)]
pub struct HttpTarget {
    /// The address of the server.
    pub address: SocketAddr,
    /// The `Host` field.
    pub host: String,
    /// The request target.
    pub path: String,
    /// Each of these contents is correct: for a file that is replaced during the load.
    pub contents: Vec<Vec<u8>>,
    /// When the client notices that the server has closed an idle connection.
    pub idle_close: IdleClose,
}

/// Questions to a DNS server.
#[derive(Clone, Debug)]
pub struct DnsTarget {
    /// The address of the server, the same over UDP and TCP.
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

/// A running load. It stops sending when it is dropped.
#[derive(Debug)]
pub struct Running {
    seed: u64,
    start: Instant,
    threads: Vec<Thread>,
    stop: Arc<AtomicBool>,
    /// Disconnected when the last thread has ended.
    ended: Receiver<()>,
}

#[derive(Debug)]
struct Thread {
    kind: Kind,
    /// Returns the time when the last request had ended.
    handle: JoinHandle<io::Result<Instant>>,
    counts: Arc<Mutex<Counts>>,
}

/// Creates a client in its own thread.
type OpenClient = dyn FnOnce(&Poller) -> io::Result<Box<dyn Client>> + Send;

impl Load {
    /// A load without requests.
    pub fn new(length: Duration, seed: u64) -> Load {
        Load {
            length,
            seed,
            rates: Rates::default(),
            http: None,
            dns: None,
            connection_count: 16,
            udp_port_count: 64,
            tcp_deadline: Duration::from_secs(5),
            udp_deadline: Duration::from_secs(2),
        }
    }

    /// Learns the expected records from the DNS server if they are to be checked, then runs the load in threads.
    ///
    /// # Errors
    /// The load is invalid, the DNS server does not answer, or a thread cannot be started.
    pub fn start(&self) -> io::Result<Running> {
        let mut clients = Vec::new();
        if let Some(http) = &self.http {
            self.add_http(http, &mut clients)?;
        }
        if let Some(dns) = &self.dns {
            self.add_dns(dns, &mut clients)?;
        }
        clients.retain(|(_, rate, _)| *rate > 0);
        if clients.is_empty() {
            return Err(invalid("no rate is above zero"));
        }
        let (ending, ended) = channel();
        let start = Instant::now() + START_DELAY;
        let mut running = Running { seed: self.seed, start, threads: Vec::new(), stop: Arc::default(), ended };
        for (kind, rate, open) in clients {
            let schedule = Schedule::new(start, rate, self.length);
            running.spawn(kind, schedule, open, ending.clone())?;
        }
        Ok(running)
    }

    fn add_http(&self, http: &HttpTarget, clients: &mut Vec<(Kind, u32, Box<OpenClient>)>) -> io::Result<()> {
        let HttpTarget { address, host, path, contents, idle_close } = http;
        if contents.is_empty() {
            return Err(invalid("no expected content"));
        }
        if !path.starts_with('/') || path.contains(|c: char| c.is_ascii_control() || c == ' ') {
            return Err(invalid(&format!("invalid path {path:?}; it begins with / and has no spaces")));
        }
        let contents: Arc<[Vec<u8>]> = contents.clone().into();
        let protocol = |closes| HttpProtocol::new(host, path, closes, Arc::clone(&contents));
        let kept = Reuse::Kept { connection_count: self.connection_count, idle_close: *idle_close };
        let new = Streams::new(*address, protocol(true), Reuse::Never, self.tcp_deadline);
        let kept = Streams::new(*address, protocol(false), kept, self.tcp_deadline);
        clients.push((Kind::HttpNew, self.rates.http_new, Box::new(|_| Ok(Box::new(new)))));
        clients.push((Kind::HttpKept, self.rates.http_kept, Box::new(|_| Ok(Box::new(kept)))));
        Ok(())
    }

    fn add_dns(&self, dns: &DnsTarget, clients: &mut Vec<(Kind, u32, Box<OpenClient>)>) -> io::Result<()> {
        if dns.questions.is_empty() {
            return Err(invalid("no questions; write lines such as `www.example.com A`"));
        }
        if !(1..=UDP_PORT_COUNT_MAX).contains(&self.udp_port_count) {
            let why = format!("{} UDP ports are out of range; write 1 to {UDP_PORT_COUNT_MAX}", self.udp_port_count);
            return Err(invalid(&why));
        }
        let mut random = Rng::with_seed(self.seed);
        let mut questions = dns.questions.clone();
        if dns.checks_records {
            let learned = learn_records(dns.address, &mut questions, self.tcp_deadline, random.fork());
            let advice = "check that the server runs and has the name";
            learned.map_err(|why| io::Error::other(format!("question before the load: {why}; {advice}")))?;
        }
        let questions: Arc<[Question]> = questions.into();
        let (address, rates) = (dns.address, self.rates);
        // A DNS server cannot announce that it closes a connection.
        let kept = Reuse::Kept { connection_count: self.connection_count, idle_close: IdleClose::Immediately };
        for (kind, rate, reuse) in
            [(Kind::DnsTcpNew, rates.dns_tcp_new, Reuse::Never), (Kind::DnsTcpKept, rates.dns_tcp_kept, kept)]
        {
            let protocol = DnsProtocol::new(Arc::clone(&questions), random.fork());
            let streams = Streams::new(address, protocol, reuse, self.tcp_deadline);
            clients.push((kind, rate, Box::new(|_| Ok(Box::new(streams)))));
        }
        let (port_count, deadline) = (self.udp_port_count, self.udp_deadline);
        let open: Box<OpenClient> = Box::new(move |poller| {
            Ok(Box::new(Datagrams::open(address, port_count, questions, random, deadline, poller)?))
        });
        clients.push((Kind::DnsUdp, rates.dns_udp, open));
        Ok(())
    }
}

impl Running {
    fn spawn(&mut self, kind: Kind, schedule: Schedule, open: Box<OpenClient>, ending: Sender<()>) -> io::Result<()> {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let recorder = Recorder::new(self.start, Arc::clone(&counts));
        let stop = Arc::clone(&self.stop);
        let run = move || {
            let _ending = ending;
            let poller = Poller::open()?;
            let mut client = open(&poller)?;
            runner::run(client.as_mut(), &poller, schedule, recorder, &stop)?;
            Ok(Instant::now())
        };
        let handle = std::thread::Builder::new().name(kind.to_string()).spawn(run)?;
        self.threads.push(Thread { kind, handle, counts });
        Ok(())
    }

    /// The counts so far, of all kinds.
    pub fn progress(&self) -> Progress {
        self.threads.iter().fold(Progress::default(), |sum, thread| sum.plus(&thread.counts))
    }

    /// Waits at most this long for the end of the load; whether it has ended.
    pub fn wait_end(&self, timeout: Duration) -> bool {
        self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }

    /// Stops sending; outstanding requests can still be answered.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Stops sending and waits until the last request has ended.
    ///
    /// # Errors
    /// A thread has failed.
    pub fn finish_now(self) -> io::Result<Report> {
        self.stop();
        self.finish()
    }

    /// Waits until the last request has ended: at most one deadline after the last was due.
    ///
    /// # Errors
    /// A thread has failed.
    pub fn finish(mut self) -> io::Result<Report> {
        let mut kinds = Vec::new();
        let mut end = self.start;
        for thread in std::mem::take(&mut self.threads) {
            let result = thread.handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            end = end.max(result.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", thread.kind)))?);
            kinds.push((thread.kind, thread.counts.lock().expect("no thread panics with the lock").clone()));
        }
        kinds.sort_by_key(|(kind, _)| *kind as usize);
        Ok(Report { seed: self.seed, length: end - self.start, kinds })
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
