//! Requests over loopback into the work of a whole server with one worker; their client is another process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use sanderling_os::directory::Directory;
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use sanderling_server::{DefaultSite, Options, Root, Server, Site, Sites, Snapshot, SocketSet};

use crate::{dns, http};

/// The word of the command line that makes the program a client. It is a process of its own because an instrument that
/// looks at the server does not follow its children: the client is neither counted nor slowed down.
pub(crate) const ASK: &str = "ask";
const HTTP: &str = "http";
const DNS: &str = "dns";

/// Longer than a run takes by far: nothing ages and nobody is cut off meanwhile.
const LONG: Duration = Duration::from_secs(3600);
/// Between two queries: the server looks for more before it waits, and whether it finds the next one already must not
/// depend on who is quicker. What is counted is a query that comes alone.
const PAUSE: Duration = Duration::from_millis(1);
/// How long the client waits for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// A keep-alive request for a known small file.
pub(crate) fn repeat_http(count: usize) {
    serve(|http, _| ask_from_outside(HTTP, http, count));
}

/// A query in a datagram of its own.
pub(crate) fn repeat_dns(count: usize) {
    serve(|_, dns| ask_from_outside(DNS, dns, count));
}

/// Runs a server while `act` has its addresses for HTTP and for DNS.
fn serve(act: impl FnOnce(SocketAddr, SocketAddr)) {
    let folder = Folder::new();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let siblings = SocketSet {
        http: vec![Listener::bind(any).expect("a port is free")],
        dns_streams: Vec::new(),
        dns_datagrams: vec![Socket::bind(any).expect("a port is free")],
    };
    let http = siblings.http[0].local_address().expect("it is bound");
    let dns = siblings.dns_datagrams[0].local_address().expect("it is bound");
    let root = Directory::open(&folder.0).expect("the folder was made just now");
    let site = Site { id: 0, hosts: vec!["www.example".into()], root: Root::Folder(std::sync::Arc::new(root)) };
    let snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::None), dns::zones());
    let server = Server::new(snapshot, options(), Duration::ZERO);
    server.run(&[siblings], 1, |_| act(http, dns)).expect("the server serves");
}

fn options() -> Options {
    let mut options = Options::default();
    options.http.requests_per_connection_max = u64::MAX;
    options.http.idle_timeout = LONG;
    options.open_files.fresh_for = LONG;
    options.open_files.watched_fresh_for = LONG;
    options.open_files.idle_timeout = LONG;
    options
}

/// The site's folder; dropping it removes it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("sanderling-counted-{}", std::process::id()));
        // Not `create_dir_all`: a folder, or a link, that somebody has put there is not ours to use.
        std::fs::create_dir(&path).expect("the folder for temporary files can be written");
        std::fs::write(path.join("512"), [b'x'; http::FILE_BYTES]).expect("a folder of ours can be written");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ask_from_outside(transport: &str, address: SocketAddr, count: usize) {
    let program = std::env::current_exe().expect("the program knows its own path");
    let status = Command::new(program).args([ASK, transport, &address.to_string(), &count.to_string()]).status();
    assert!(status.expect("the program can be started again").success(), "the client gave up");
}

/// The client: asks `count` times, one request after the other.
pub(crate) fn ask(transport: &str, address: &str, count: usize) {
    let address = address.parse().expect("it is the address that the server was bound to");
    match transport {
        HTTP => ask_http(address, count),
        DNS => ask_dns(address, count),
        other => panic!("there is no transport `{other}`"),
    }
}

fn ask_http(address: SocketAddr, count: usize) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    stream.set_nodelay(true).expect("a stream of TCP has this option");
    let mut answer = Vec::new();
    let mut chunk = [0; 2 * http::FILE_BYTES];
    // The first answer tells how long the others are.
    stream.write_all(http::REQUEST.as_bytes()).expect("the server reads");
    while !is_whole(&answer) {
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

fn is_whole(answer: &[u8]) -> bool {
    let head_end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    head_end.is_some_and(|at| answer.len() >= at + 4 + http::FILE_BYTES)
}

fn ask_dns(address: SocketAddr, count: usize) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    socket.connect(address).expect("loopback leads there");
    socket.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    let query = dns::query(dns::HIT);
    let mut reply = [0; 512];
    for _ in 0..count {
        std::thread::sleep(PAUSE);
        socket.send(&query).expect("the server's socket is open");
        let length = socket.recv(&mut reply).expect("the server answers in time");
        // The same identifier, and no error (RFC 1035 §4.1.1).
        assert!(reply[..2] == query[..2] && reply[3] & 0xf == 0, "{:?}", &reply[..length]);
    }
}
