//! What an idle connection costs in memory: measured as the growth of the process, client's side and all, and printed.

use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::tcp::Listener;
use sanderling_server::{BuiltinFile, Counter, DefaultSite, Options, Root, Server, Site, Sites, Snapshot, SocketSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(20);
/// Enough that what a server has once counts little; a descriptor for each side of each.
const CONNECTION_COUNT: usize = 4_000;
const IDLE_BYTES_MAX: usize = 2 * 1024;
const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: b"content" }];

/// Bytes of memory that the process has.
fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").expect("the kernel tells");
    pages.split_whitespace().nth(1).and_then(|count| count.parse::<usize>().ok()).expect("a number") * PAGE_BYTES
}

/// A connection that has been answered once.
fn answered(address: std::net::SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let mut bytes = [0; 512];
    assert_ne!(stream.read(&mut bytes).expect("answered"), 0);
    stream
}

#[test]
fn an_idle_connection_costs_little_memory() {
    let limit = sanderling_os::rlimit::raise_nofile_limit().expect("raised");
    let count = CONNECTION_COUNT.min(limit as usize / 3);
    let sockets = SocketSet {
        http: vec![Listener::bind("127.0.0.1:0".parse().expect("an address")).expect("bound")],
        ..SocketSet::default()
    };
    let address = sockets.http[0].local_address().expect("bound");
    let site = Site { id: 0, hosts: Vec::new(), root: Root::Builtin(FILES) };
    let zones = ZoneMap::new(HashSeed(1), []);
    let snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), zones);
    let server = Server::new(snapshot, Options::default(), Duration::ZERO);
    let served = server.run(&[sockets], 1, |server| {
        let mut clients = Vec::with_capacity(count + 100);
        clients.extend((0..100).map(|_| answered(address)));
        let before = resident_bytes();
        clients.extend((0..count).map(|_| answered(address)));
        let start = Instant::now();
        while server.metrics().sum(Counter::HttpRequests) < clients.len() as u64 {
            assert!(start.elapsed() < DEADLINE, "not all are answered");
            std::thread::yield_now();
        }
        resident_bytes().saturating_sub(before) / count
    });
    let idle_bytes = served.expect("served");
    println!("{count} idle connections: {idle_bytes} bytes each");
    assert!(idle_bytes <= IDLE_BYTES_MAX, "{idle_bytes} bytes for an idle connection");
}
