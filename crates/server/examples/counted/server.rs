//! Requests over loopback to a server with one worker. The client is another process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use sanderling_log_format::{Format, LogKind};
use sanderling_os::directory::Directory;
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use sanderling_server::{
    AccessLog, DefaultSite, LogTarget, Options, Role, Root, Server, Site, SiteOptions, Sites, Snapshot, SocketSet,
    StatisticsOptions,
};

use crate::{dns, http};

/// The subcommand of the client. callgrind does not follow child processes, so the client is not counted.
pub(crate) const CLIENT: &str = "client";
const HTTP: &str = "http";
const HTTP2: &str = "http2";
const DNS: &str = "dns";

/// Longer than a run: no entry becomes stale, and no connection times out.
const LONG: Duration = Duration::from_secs(3600);
/// Between two queries, so that the server receives each alone.
const PAUSE: Duration = Duration::from_millis(1);
/// For one answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A request for a cached small file on a persistent connection.
pub(crate) fn repeat_http(count: usize) {
    serve(options(), |http, _| run_client(HTTP, http, count));
}

/// The same over HTTP/2, without TLS: the instructions of encryption depend on the processor.
pub(crate) fn repeat_http2(count: usize) {
    serve(options(), |http, _| run_client(HTTP2, http, count));
}

/// A query over UDP.
pub(crate) fn repeat_dns(count: usize) {
    serve(options(), |_, dns| run_client(DNS, dns, count));
}

/// The request of [`repeat_http`], with detailed counts.
pub(crate) fn repeat_http_with_metrics(count: usize) {
    serve(options_with_metrics(), |http, _| run_client(HTTP, http, count));
}

/// The request of [`repeat_http`], with a line of the format `combined` in an access log.
pub(crate) fn repeat_http_with_log(count: usize) {
    let format = Format::parse("combined").expect("a preset");
    let log = AccessLog { format: Arc::new(format), one_of: 1 };
    serve_with(options(), Some(log), |http, _| run_client(HTTP, http, count));
}

/// The query of [`repeat_dns`], with detailed counts.
pub(crate) fn repeat_dns_with_metrics(count: usize) {
    serve(options_with_metrics(), |_, dns| run_client(DNS, dns, count));
}

/// Serves while `act` runs with the addresses of HTTP and DNS.
fn serve(options: Options, act: impl FnOnce(SocketAddr, SocketAddr)) {
    serve_with(options, None, act);
}

/// Serves as [`serve`] does, with an access log.
fn serve_with(options: Options, access_log: Option<AccessLog>, act: impl FnOnce(SocketAddr, SocketAddr)) {
    let directory = tempfile::tempdir().expect("created");
    std::fs::write(directory.path().join("512"), [b'x'; http::FILE_BYTES]).expect("written");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let sockets = SocketSet {
        streams: vec![(Role::HTTP, Arc::new(Listener::bind(any).expect("a port is free")))],
        datagrams: vec![(Role::DNS, Arc::new(Socket::bind(any).expect("a port is free")))],
    };
    let http = sockets.streams[0].1.local_address().expect("it is bound");
    let dns = sockets.datagrams[0].1.local_address().expect("it is bound");
    let root = Directory::open(directory.path()).expect("just created");
    let site = Site {
        id: 0,
        hosts: vec!["www.example".into()],
        root: Root::Directory(Arc::new(root)),
        options: SiteOptions::default(),
    };
    let mut snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::None), dns::zones());
    let has_log = access_log.is_some();
    snapshot.access_log = access_log;
    let server = Server::new(snapshot, options, Duration::ZERO);
    if has_log {
        let file = std::fs::File::create(directory.path().join("access.log")).expect("created");
        server.set_log_target(LogKind::Access, LogTarget::Stream(file)).expect("a thread");
    }
    server.run(&[sockets], 1, |_| act(http, dns)).expect("the server serves");
}

fn options() -> Options {
    let mut options = Options::default();
    options.http.requests_per_connection_max = u64::MAX;
    options.http.idle_timeout = LONG;
    options.http.accepts_http2 = true;
    options.open_files.valid_for = LONG;
    options.open_files.watched_valid_for = LONG;
    options.open_files.idle_timeout = LONG;
    options
}

fn options_with_metrics() -> Options {
    let statistics = StatisticsOptions { sites_max: 100, zones_max: 100 };
    Options { statistics: Some(statistics), ..options() }
}

fn run_client(transport: &str, address: SocketAddr, count: usize) {
    let program = std::env::current_exe().expect("the kernel names the running program");
    let status = Command::new(program).args([CLIENT, transport, &address.to_string(), &count.to_string()]).status();
    assert!(status.expect("started").success(), "the client has failed");
}

/// The client: sends `count` requests, one after another.
pub(crate) fn request(transport: &str, address: &str, count: usize) {
    let address = address.parse().expect("an address");
    match transport {
        HTTP => request_http(address, count),
        HTTP2 => request_http2(address, count),
        DNS => query_dns(address, count),
        other => panic!("unknown transport `{other}`"),
    }
}

fn request_http(address: SocketAddr, count: usize) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    stream.set_nodelay(true).expect("set");
    let mut answer = Vec::new();
    let mut chunk = [0; 2 * http::FILE_BYTES];
    // All responses are as long as the first one.
    stream.write_all(http::REQUEST.as_bytes()).expect("the server reads");
    while !is_complete(&answer) {
        let length = stream.read(&mut chunk).expect("the server answers in time");
        assert_ne!(length, 0, "the server closed after {:?}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&chunk[..length]);
    }
    for _ in 1..count {
        stream.write_all(http::REQUEST.as_bytes()).expect("the server reads");
        stream.read_exact(&mut answer).expect("the server answers in time");
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{:?}", String::from_utf8_lossy(&answer));
}

fn is_complete(answer: &[u8]) -> bool {
    let head_end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    head_end.is_some_and(|at| answer.len() >= at + 4 + http::FILE_BYTES)
}

fn request_http2(address: SocketAddr, count: usize) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    stream.set_nodelay(true).expect("set");
    // The preface, empty SETTINGS, and WINDOW_UPDATE of a GiB for the connection (RFC 9113 §3.4, §6.5, §6.9).
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x04\x08\0\0\0\0\0\x40\0\0\0";
    stream.write_all(preface).expect("the server reads");
    // GET and https by the static table of RFC 7541, then literals with its names `:path`, `:authority`, `user-agent`
    // and `accept`.
    let block = b"\x82\x86\x04\x04/512\x01\x0bwww.example\x0f\x2b\x0bcurl/8.14.1\x0f\x04\x03*/*";
    for number in 0..count as u32 {
        // HEADERS with END_STREAM and END_HEADERS on the next odd stream.
        let mut frame = vec![0, 0, block.len() as u8, 1, 1 | 4];
        frame.extend((2 * number + 1).to_be_bytes());
        frame.extend(block);
        stream.write_all(&frame).expect("the server reads");
        while !receive_frame(&mut stream) {}
    }
}

/// Receives a frame; whether it ends a response.
fn receive_frame(stream: &mut TcpStream) -> bool {
    let (mut header, mut payload) = ([0; 9], [0; 2 * http::FILE_BYTES]);
    stream.read_exact(&mut header).expect("the server answers in time");
    let [_, high, low, kind, flags, ..] = header;
    let payload = &mut payload[..usize::from(u16::from_be_bytes([high, low]))];
    stream.read_exact(payload).expect("the server answers in time");
    let is_data = kind == 0;
    assert!(!is_data || payload.len() == http::FILE_BYTES, "content of {} bytes", payload.len());
    // END_STREAM.
    is_data && flags & 1 != 0
}

fn query_dns(address: SocketAddr, count: usize) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    socket.connect(address).expect("connected");
    socket.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    let query = dns::query(dns::HIT);
    let mut reply = [0; 512];
    for _ in 0..count {
        std::thread::sleep(PAUSE);
        socket.send(&query).expect("the server's socket is open");
        let length = socket.recv(&mut reply).expect("the server answers in time");
        // The same id, and RCODE 0 (RFC 1035 §4.1.1).
        assert!(reply[..2] == query[..2] && reply[3] & 0xf == 0, "{:?}", &reply[..length]);
    }
}
