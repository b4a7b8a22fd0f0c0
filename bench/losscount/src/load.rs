//! What is asked of which server how often, turned into a running load and then its report.

use crate::datagrams::Datagrams;
use crate::dns_stream::DnsStream;
use crate::http::{CONTENT_COUNT_MAX, HttpRequest};
use crate::lane::{self, Exchange};
use crate::outcome::Kind;
use crate::poller::Poller;
use crate::probe::learn_digests;
use crate::question::Question;
use crate::random::Random;
use crate::report::Report;
use crate::schedule::Schedule;
use crate::streams::{IdleNotice, Reuse, Streams};
use crate::tally::{Counts, Published, Standing, Tally};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const TCP_DEADLINE: Duration = Duration::from_secs(5);
const UDP_DEADLINE: Duration = Duration::from_secs(2);
const CONNECTION_COUNT: usize = 16;
const UDP_PORT_COUNT: usize = 64;
/// Ports of one load: each is a descriptor.
const UDP_PORT_COUNT_MAX: usize = 4096;
/// The threads are there before the first request is due.
const HEAD_START: Duration = Duration::from_millis(20);

/// A load: rates, for a time.
#[derive(Clone, Debug)]
pub struct Load {
    /// For how long requests are due.
    pub length: Duration,
    /// Draws the questions and ids.
    pub seed: u64,
    /// From the moment when a request over TCP is due; 5 s unless told.
    pub tcp_deadline: Duration,
    /// From the moment when a query over UDP is due; 2 s unless told.
    pub udp_deadline: Duration,
    /// What is asked over HTTP.
    pub http: Option<HttpLoad>,
    /// What is asked over DNS.
    pub dns: Option<DnsLoad>,
}

impl Load {
    /// A load of nothing yet.
    pub fn new(length: Duration, seed: u64) -> Load {
        Load { length, seed, tcp_deadline: TCP_DEADLINE, udp_deadline: UDP_DEADLINE, http: None, dns: None }
    }
}

/// One file, asked for over HTTP.
#[derive(Clone, Debug)]
pub struct HttpLoad {
    /// The server.
    pub peer: SocketAddr,
    /// The `Host` field.
    pub host: String,
    /// The request target.
    pub path: String,
    /// The contents of which any is right: at most 64. Several serve a file that is replaced during the load.
    pub contents: Vec<Vec<u8>>,
    /// Requests a second, each on a new connection.
    pub new_per_s: u32,
    /// Requests a second on kept connections.
    pub kept_per_s: u32,
    /// Kept connections. When all of them are busy, others are opened, which end with their answer.
    pub connection_count: usize,
    /// When the end of an idle connection is seen.
    pub idle_notice: IdleNotice,
}

impl HttpLoad {
    /// No rates yet; 16 kept connections.
    pub fn new(peer: SocketAddr, path: &str, content: Vec<u8>) -> HttpLoad {
        HttpLoad {
            peer,
            host: peer.to_string(),
            path: path.to_owned(),
            contents: vec![content],
            new_per_s: 0,
            kept_per_s: 0,
            connection_count: CONNECTION_COUNT,
            idle_notice: IdleNotice::AtOnce,
        }
    }
}

/// Questions, asked over DNS in a random order.
#[derive(Clone, Debug)]
pub struct DnsLoad {
    /// The server, the same over UDP and TCP.
    pub peer: SocketAddr,
    /// From [`crate::parse_questions`].
    pub questions: Vec<Question>,
    /// Which records are right.
    pub content: DnsContent,
    /// Queries a second over UDP.
    pub udp_per_s: u32,
    /// Ports from which they go out in turn.
    pub udp_port_count: usize,
    /// Queries a second over TCP, each on a new connection.
    pub tcp_new_per_s: u32,
    /// Queries a second over TCP on kept connections.
    pub tcp_kept_per_s: u32,
    /// Kept connections. When all of them are busy, others are opened, which end with their answer.
    pub connection_count: usize,
    /// When the end of an idle connection is seen.
    pub idle_notice: IdleNotice,
}

impl DnsLoad {
    /// No rates yet; 64 ports, 16 kept connections, answers as before the load.
    pub fn new(peer: SocketAddr, questions: Vec<Question>) -> DnsLoad {
        DnsLoad {
            peer,
            questions,
            content: DnsContent::AsBefore,
            udp_per_s: 0,
            udp_port_count: UDP_PORT_COUNT,
            tcp_new_per_s: 0,
            tcp_kept_per_s: 0,
            connection_count: CONNECTION_COUNT,
            idle_notice: IdleNotice::AtOnce,
        }
    }
}

/// Which records make an answer right. Id, question, response code and form are checked in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsContent {
    /// Those of the answer and authority sections that the server gave when it was asked once, over TCP, before the load.
    AsBefore,
    /// Any: for a zone that changes during the load.
    Any,
}

/// Why there was no load, or no report.
#[derive(Debug)]
pub enum LoadError {
    /// The load asks for something that cannot be, and what would mend it.
    Wrong(String),
    /// The server did not answer before the load.
    Probe(String),
    /// This machine refuses what the load needs.
    Os(Kind, io::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Wrong(why) => f.write_str(why),
            LoadError::Probe(why) => {
                write!(f, "asking once before the load: {why}; is the server up, and the name there?")
            }
            LoadError::Os(kind, error) => write!(f, "{}: {error}", kind.name()),
        }
    }
}

impl std::error::Error for LoadError {}

/// A load under way. Dropped, it sends no more.
#[derive(Debug)]
pub struct Running {
    seed: u64,
    start: Instant,
    lanes: Vec<Lane>,
    stop: Arc<AtomicBool>,
    /// Closed when the last lane has ended.
    ended: Receiver<()>,
}

#[derive(Debug)]
struct Lane {
    kind: Kind,
    /// Ends with the counts, and the moment when its last request had ended.
    thread: JoinHandle<io::Result<(Counts, Instant)>>,
    published: Arc<Published>,
}

impl Load {
    /// Asks the DNS server for the right answers if need be, and then lets the load run in threads of its own.
    pub fn start(&self) -> Result<Running, LoadError> {
        let mut orders = Vec::new();
        if let Some(http) = &self.http {
            orders.extend(self.http_orders(http)?);
        }
        if let Some(dns) = &self.dns {
            orders.extend(self.dns_orders(dns)?);
        }
        if orders.is_empty() {
            return Err(LoadError::Wrong("no rate is above zero: there is nothing to send".to_owned()));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (ending, ended) = channel();
        let start = Instant::now() + HEAD_START;
        let mut running = Running { seed: self.seed, start, lanes: Vec::new(), stop, ended };
        for order in orders {
            running.lanes.push(self.spawn(order, start, &running.stop, ending.clone())?);
        }
        Ok(running)
    }

    fn spawn(
        &self,
        order: Order,
        start: Instant,
        stop: &Arc<AtomicBool>,
        ending: Sender<()>,
    ) -> Result<Lane, LoadError> {
        let kind = order.kind;
        let published = Arc::new(Published::default());
        let tally = Tally::new(start, Arc::clone(&published));
        let schedule = Schedule::new(start, order.per_s, self.length);
        let stop = Arc::clone(stop);
        let run = move || {
            let _ending = ending;
            let poller = Poller::open()?;
            let mut exchange = (order.open)(&poller)?;
            poller.start_beats(start)?;
            let counts = lane::run(exchange.as_mut(), &poller, schedule, tally, &stop)?;
            Ok((counts, Instant::now()))
        };
        let named = std::thread::Builder::new().name(kind.name().to_owned());
        let thread = named.spawn(run).map_err(|error| LoadError::Os(kind, error))?;
        Ok(Lane { kind, thread, published })
    }

    fn http_orders(&self, http: &HttpLoad) -> Result<Vec<Order>, LoadError> {
        if http.contents.is_empty() || http.contents.len() > CONTENT_COUNT_MAX {
            return Err(LoadError::Wrong(format!("there must be 1 to {CONTENT_COUNT_MAX} expected contents")));
        }
        if !http.path.starts_with('/') || http.path.contains(|c: char| c.is_ascii_control() || c == ' ') {
            return Err(LoadError::Wrong(format!("{:?} is no path: it begins with / and has no spaces", http.path)));
        }
        let contents: Arc<[Vec<u8>]> = http.contents.clone().into();
        let request = |closes| HttpRequest::new(&http.host, &http.path, closes, Arc::clone(&contents));
        let kept = Reuse::Kept { connection_count: http.connection_count, idle_notice: http.idle_notice };
        let (peer, deadline) = (http.peer, self.tcp_deadline);
        Ok(keep_rated([
            Order::streams(Kind::HttpNew, http.new_per_s, Streams::new(peer, request(true), Reuse::Never, deadline)),
            Order::streams(Kind::HttpKept, http.kept_per_s, Streams::new(peer, request(false), kept, deadline)),
        ]))
    }

    fn dns_orders(&self, dns: &DnsLoad) -> Result<Vec<Order>, LoadError> {
        if dns.questions.is_empty() {
            return Err(LoadError::Wrong(
                "there are no questions to ask: a line such as `www.example.com A`".to_owned(),
            ));
        }
        if dns.udp_port_count == 0 || dns.udp_port_count > UDP_PORT_COUNT_MAX {
            return Err(LoadError::Wrong(format!("there must be 1 to {UDP_PORT_COUNT_MAX} UDP ports")));
        }
        let questions: Arc<[Question]> = match dns.content {
            DnsContent::Any => dns.questions.clone().into(),
            DnsContent::AsBefore => {
                learn_digests(dns.peer, &dns.questions, self.tcp_deadline).map_err(LoadError::Probe)?.into()
            }
        };
        let random = |kind: Kind| Random::new(self.seed, kind as u64);
        let protocol = |kind| DnsStream::new(Arc::clone(&questions), random(kind));
        let kept = Reuse::Kept { connection_count: dns.connection_count, idle_notice: dns.idle_notice };
        let (peer, deadline) = (dns.peer, self.tcp_deadline);
        let fresh = Streams::new(peer, protocol(Kind::DnsTcpNew), Reuse::Never, deadline);
        let kept = Streams::new(peer, protocol(Kind::DnsTcpKept), kept, deadline);
        let (udp_random, port_count, udp_deadline) = (random(Kind::DnsUdp), dns.udp_port_count, self.udp_deadline);
        let udp = Order {
            kind: Kind::DnsUdp,
            per_s: dns.udp_per_s,
            open: Box::new(move |poller| {
                Ok(Box::new(Datagrams::open(peer, port_count, questions, udp_random, udp_deadline, poller)?))
            }),
        };
        Ok(keep_rated([
            udp,
            Order::streams(Kind::DnsTcpNew, dns.tcp_new_per_s, fresh),
            Order::streams(Kind::DnsTcpKept, dns.tcp_kept_per_s, kept),
        ]))
    }
}

/// What one lane is to do; it is opened in the lane's own thread.
struct Order {
    kind: Kind,
    per_s: u32,
    open: Box<OpenExchange>,
}

type OpenExchange = dyn FnOnce(&Poller) -> io::Result<Box<dyn Exchange>> + Send;

impl Order {
    fn streams(kind: Kind, per_s: u32, streams: impl Exchange + Send + 'static) -> Order {
        Order { kind, per_s, open: Box::new(move |_| Ok(Box::new(streams))) }
    }
}

fn keep_rated(orders: impl IntoIterator<Item = Order>) -> Vec<Order> {
    orders.into_iter().filter(|order| order.per_s > 0).collect()
}

impl Running {
    /// How it stands, all kinds together.
    pub fn standing(&self) -> Standing {
        self.lanes.iter().map(|lane| lane.published.standing()).fold(Standing::default(), |sum, one| Standing {
            sent_count: sum.sent_count + one.sent_count,
            ok_count: sum.ok_count + one.ok_count,
            lost_count: sum.lost_count + one.lost_count,
        })
    }

    /// How one kind stands: nothing, when it has no rate.
    pub fn standing_of(&self, kind: Kind) -> Standing {
        let lane = self.lanes.iter().find(|lane| lane.kind == kind);
        lane.map_or_else(Standing::default, |lane| lane.published.standing())
    }

    /// Waits until the load has ended, at most this long; whether it has.
    pub fn wait_end(&self, at_most: Duration) -> bool {
        self.ended.recv_timeout(at_most) == Err(RecvTimeoutError::Disconnected)
    }

    /// Sends no more; what is outstanding may still be answered.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits until the last request has ended: at latest a deadline after the last was due.
    pub fn finish(mut self) -> Result<Report, LoadError> {
        let mut kinds = Vec::new();
        let mut end = self.start;
        for lane in std::mem::take(&mut self.lanes) {
            let result = lane.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (counts, lane_end) = result.map_err(|error| LoadError::Os(lane.kind, error))?;
            kinds.push((lane.kind, counts));
            end = end.max(lane_end);
        }
        Ok(Report { seed: self.seed, length: end - self.start, kinds })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
