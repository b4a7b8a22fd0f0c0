//! Servers on the loopback that follow a script, their responses, and a short load on them.

use loadgen::{Cause, Counts, DnsTarget, HttpTarget, Kind, Load, parse_questions};
use rustix::net::{AddressFamily, SocketType};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) const CONTENT: &[u8] = b"a sanderling runs along the edge of the water\n";
/// The questions: one name that exists and one that does not.
pub(crate) const QUESTIONS: &str = "www.example.com A\nmissing.example.com AAAA NXDOMAIN\n";
/// Bytes of the OPT record in queries.
const OPT_BYTES: usize = 11;

/// A response with this content that keeps the connection open.
pub(crate) fn http(content: &[u8]) -> Vec<u8> {
    http_with("", content)
}

/// A response with more fields, each with its line end.
pub(crate) fn http_with(fields: &str, content: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nServer: fake\r\n{fields}Content-Length: {}\r\n\r\n", content.len());
    [head.as_bytes(), content].concat()
}

/// The correct reply to one of [`QUESTIONS`].
pub(crate) fn dns(query: &[u8]) -> Vec<u8> {
    let question = &query[12..query.len() - OPT_BYTES];
    let is_missing = question.starts_with(b"\x07missing");
    let (code, answer_count) = if is_missing { (3, 0) } else { (0, 1) };
    let header = [query[0], query[1], 0x84, code, 0, 1, 0, answer_count, 0, 0, 0, 0];
    let address: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\x01\x2c\0\x04\xc0\0\x02\x01";
    [header.as_slice(), question, if is_missing { &[] } else { address }].concat()
}

/// The correct reply with one byte changed by `xor`.
pub(crate) fn dns_changed(query: &[u8], index: usize, xor: u8) -> Vec<u8> {
    let mut reply = dns(query);
    reply[index] ^= xor;
    reply
}

/// The correct reply to a query over TCP, both with their lengths before them (RFC 1035 §4.2.2).
pub(crate) fn dns_tcp(request: &[u8]) -> Vec<u8> {
    framed(&dns(&request[2..]))
}

pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let length_bytes = u16::try_from(message.len()).expect("the messages of these tests are short");
    [&length_bytes.to_be_bytes(), message].concat()
}

pub(crate) enum Action {
    /// Sends bytes and waits for the next request.
    Send(Vec<u8>),
    SendAndClose(Vec<u8>),
    SendAndReset(Vec<u8>),
    /// Sends nothing, and waits until the client closes.
    Wait,
}

/// Starts a TCP server that runs until the test process ends. The script receives the number of the request, from 0,
/// and the request: a client sends it by one call, when the previous response is complete.
pub(crate) fn tcp_server(script: impl Fn(u64, &[u8]) -> Action + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
    let address = listener.local_addr().expect("the listener is bound");
    let server = Arc::new((script, AtomicU64::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, server) = (stream.expect("file descriptors suffice"), Arc::clone(&server));
            std::thread::spawn(move || serve(stream, &server.0, &server.1));
        }
    });
    address
}

fn serve(mut stream: TcpStream, script: impl Fn(u64, &[u8]) -> Action, request_count: &AtomicU64) {
    let mut buffer = [0; 1500];
    while let Ok(length_bytes @ 1..) = stream.read(&mut buffer) {
        let number = request_count.fetch_add(1, Ordering::SeqCst);
        let mut send = |bytes: &[u8]| stream.write_all(bytes).expect("the client receives");
        match script(number, &buffer[..length_bytes]) {
            Action::Send(bytes) => send(&bytes),
            Action::SendAndClose(bytes) => return send(&bytes),
            Action::SendAndReset(bytes) => {
                send(&bytes);
                // Lingering for no time resets the connection (socket(7), SO_LINGER).
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("the stream is open");
                return;
            }
            Action::Wait => return drop(stream.read(&mut [0])),
        }
    }
}

/// Datagrams, each with its destination.
pub(crate) type Sends = Vec<(SocketAddr, Vec<u8>)>;

/// Starts a UDP server that runs until the test process ends. The script receives the number of the query, from 0, its
/// sender, and the query.
pub(crate) fn udp_server(mut script: impl FnMut(u64, SocketAddr, &[u8]) -> Sends + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
    let address = socket.local_addr().expect("the socket is bound");
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        for number in 0.. {
            let (length_bytes, client) = socket.recv_from(&mut buffer).expect("an unconnected socket has no errors");
            for (destination, datagram) in script(number, client, &buffer[..length_bytes]) {
                socket.send_to(&datagram, destination).expect("the loopback delivers it");
            }
        }
    });
    address
}

/// A TCP port without a listener, reserved while the descriptor is open.
pub(crate) fn refusing_tcp_port() -> (OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("file descriptors suffice");
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("the loopback has a free port");
    let address = rustix::net::getsockname(&socket).expect("the socket is bound");
    (socket, SocketAddr::try_from(address).expect("the address is one of IPv4"))
}

/// A UDP port that is unreachable while the socket is open: it receives only from one peer, which never sends.
pub(crate) fn refusing_udp_port() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("the loopback has a free port");
    let address = socket.local_addr().expect("the socket is bound");
    socket.connect(address).expect("a socket can be its own peer");
    (socket, address)
}

/// Requests of one load.
pub(crate) const COUNT: u64 = 60;
/// One request in this many is answered incorrectly.
pub(crate) const BAD_EVERY: u64 = 6;
pub(crate) const BAD_COUNT: u64 = COUNT / BAD_EVERY;
/// Long enough for a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(1);
const PER_S: u32 = 200;
const SEED: u64 = 7;

/// [`COUNT`] requests of one kind.
pub(crate) fn load(kind: Kind, server: SocketAddr) -> Load {
    println!("seed {SEED}");
    let mut load = Load::new(Duration::from_millis(300), SEED);
    load.rates[kind as usize] = PER_S;
    if matches!(kind, Kind::HttpNew | Kind::HttpKept) {
        load.http = Some(HttpTarget::new(server, "/page", CONTENT.to_vec()));
    } else {
        let questions = parse_questions(QUESTIONS).expect("the questions are valid");
        load.dns = Some(DnsTarget { checks_records: false, ..DnsTarget::new(server, questions) });
    }
    load
}

#[track_caller]
pub(crate) fn run(load: &Load, kind: Kind) -> Counts {
    let report = load.start().expect("the load is valid").finish().expect("resources suffice");
    println!("{report}");
    let counts = report.counts(kind).expect("the rate is not zero").clone();
    assert_eq!(counts.sent_count, counts.ok_count + counts.lost_count(), "every request has one end");
    counts
}

/// All requests were sent, and this many are lost, all for this cause.
#[track_caller]
pub(crate) fn check_lost(counts: &Counts, cause: Cause, lost_count: u64) {
    assert_eq!(counts.sent_count, COUNT, "requests are sent whatever the server does");
    assert_eq!((counts.lost(cause), counts.lost_count()), (lost_count, lost_count), "{}", counts.causes());
}
