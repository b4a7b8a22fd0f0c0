//! Workers and sockets in any numbers: every connection and every datagram is answered, whichever sibling the kernel
//! gives it to. The shares of the workers are printed.

use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use sanderling_server::{
    BuiltinFile, Counter, DefaultSite, DrainMode, Options, Root, Server, Site, Sites, Snapshot, SocketSet,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(20);
const CONNECTION_COUNT: usize = 300;
/// Threads that ask at once.
const CLIENT_COUNT: usize = 4;
const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: b"content" }];
const QUERY: &[u8] = b"\0\x07\0\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";

/// The tests print shares by the names of threads, which must not be those of two servers.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// SocketSet of one address of each kind, and the addresses.
fn bind(sibling_count: usize) -> (Vec<SocketSet>, SocketAddr, SocketAddr) {
    let any = "127.0.0.1:0".parse().expect("an address");
    let (socket, streams) = Socket::bind_with_listener(any).expect("bound");
    let mut sets = vec![SocketSet {
        http: vec![Listener::bind(any).expect("bound")],
        dns_streams: vec![streams],
        dns_datagrams: vec![socket],
    }];
    let http = sets[0].http[0].local_address().expect("bound");
    let dns = sets[0].dns_datagrams[0].local_address().expect("bound");
    for _ in 1..sibling_count {
        sets.push(SocketSet {
            http: vec![Listener::bind_reuseport(http).expect("bound")],
            dns_streams: vec![Listener::bind_reuseport(dns).expect("bound")],
            dns_datagrams: vec![Socket::bind_reuseport(dns).expect("bound")],
        });
    }
    (sets, http, dns)
}

fn stream(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream
}

fn ask_http(address: SocketAddr) {
    let mut stream = stream(address);
    stream.write_all(b"GET /file HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.ends_with("\r\n\r\ncontent"), "{answer}");
}

fn ask_dns_stream(address: SocketAddr) {
    let mut stream = stream(address);
    stream.write_all(&[&(QUERY.len() as u16).to_be_bytes(), QUERY].concat()).expect("sent");
    let mut start = [0; 4];
    stream.read_exact(&mut start).expect("answered");
    assert_eq!(start[2..], QUERY[..2]);
}

fn ask_dns_datagram(address: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    socket.send_to(QUERY, address).expect("sent");
    assert!(socket.recv(&mut [0; 512]).expect("answered") >= QUERY.len());
}

/// Has everybody answered by `worker_count` workers on `sibling_count` sockets.
fn check(worker_count: usize, sibling_count: usize) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (sockets, http, dns) = bind(sibling_count);
    let site = Site { id: 0, hosts: Vec::new(), root: Root::Builtin(FILES) };
    let zones = ZoneMap::new(HashSeed(1), []);
    let snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), zones);
    let server = Server::new(snapshot, Options::default(), DEADLINE);
    let served = server.run(&sockets, worker_count, |server| {
        std::thread::scope(|scope| {
            for _ in 0..CLIENT_COUNT {
                scope.spawn(|| {
                    for _ in 0..CONNECTION_COUNT / CLIENT_COUNT {
                        ask_http(http);
                        ask_dns_stream(dns);
                        ask_dns_datagram(dns);
                    }
                });
            }
        });
        server.drain(DrainMode::Stopping);
        server.status()
    });
    let status = served.expect("served");
    for counter in [Counter::HttpConnections, Counter::DnsStreams, Counter::DnsUdpQueries] {
        assert_eq!(status.sum(counter), CONNECTION_COUNT as u64, "{}", counter.name());
    }
    println!("{worker_count} workers on {sibling_count} sockets:");
    for thread in &status.threads {
        let (name, sockets) = (&thread.name, &thread.socket_sets);
        let (http, streams) = (thread.count(Counter::HttpConnections), thread.count(Counter::DnsStreams));
        let datagrams = thread.count(Counter::DnsUdpQueries);
        println!("  {name} on {sockets:?}: {http} HTTP, {streams} streams, {datagrams} datagrams");
    }
    let mut served: Vec<usize> = status.threads.iter().flat_map(|thread| thread.socket_sets.clone()).collect();
    served.sort_unstable();
    served.dedup();
    assert_eq!(served, (0..sibling_count).collect::<Vec<_>>(), "each sibling is somebody's");
}

#[test]
fn three_workers_adopt_a_fourth_sibling() {
    check(3, 4);
}

#[test]
fn one_worker_adopts_all_siblings() {
    check(1, 4);
}

#[test]
fn four_workers_share_one_listener() {
    check(4, 1);
}

#[test]
fn five_workers_share_two_siblings() {
    check(5, 2);
}
