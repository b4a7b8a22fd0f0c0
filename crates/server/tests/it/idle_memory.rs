//! The memory of an idle connection: the growth of the process, with the side of the client.

use crate::support::{bind, builtin, run_alone, serve};
use sanderling_server::{Counter, Options};
use sanderling_testkit::http::HttpClient;
use sanderling_testkit::wait_until;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// So many that the memory of the server itself counts little.
const CONNECTION_COUNT: usize = 4_000;
const IDLE_BYTES_MAX: usize = 2 * 1024;

/// The resident memory of the process.
fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").expect("readable");
    pages.split_whitespace().nth(1).and_then(|count| count.parse::<usize>().ok()).expect("a number") * PAGE_BYTES
}

/// A client that has the answer to one request.
type Connect<C> = fn(SocketAddr) -> C;

/// The bytes that an idle connection needs.
fn idle_bytes<C>(mut options: Options, connect: Connect<C>) -> usize {
    let limit = sanderling_os::rlimit::raise_nofile_limit().expect("raised");
    // Both sides have a descriptor.
    let count = CONNECTION_COUNT.min(limit as usize / 3);
    let (sockets, http, _) = bind(1);
    options.http.connections_per_client_max = options.http.connections_max;
    let idle_bytes = serve(builtin(), options, &sockets, 1, |server| {
        let mut clients = Vec::with_capacity(count + 100);
        clients.extend((0..100).map(|_| connect(http)));
        let before = resident_bytes();
        clients.extend((0..count).map(|_| connect(http)));
        wait_until("all requests", || server.status().sum(Counter::HttpRequests) == clients.len() as u64);
        resident_bytes().saturating_sub(before) / count
    });
    println!("{count} idle connections: {idle_bytes} bytes each");
    idle_bytes
}

#[test]
fn idle_connection_needs_little_memory() {
    if !run_alone("idle_memory::idle_connection_needs_little_memory") {
        return;
    }
    let idle_bytes = idle_bytes(Options::default(), |address| {
        let mut client = HttpClient::connect(address);
        client.get("/file");
        client
    });
    assert!(idle_bytes <= IDLE_BYTES_MAX, "{idle_bytes} bytes for an idle connection");
}

#[test]
fn idle_http2_connection_needs_little_memory() {
    /// The preface, empty settings, and a request for `/file` of a host `a`, which enters the table with its path.
    const REQUEST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\
        \0\0\x0c\x01\x05\0\0\0\x01\x82\x86\x41\x01a\x44\x05/file";
    /// Ends the response.
    const CONTENT: &[u8] = b"\0\0\x07\0\x01\0\0\0\x01content";
    if !run_alone("idle_memory::idle_http2_connection_needs_little_memory") {
        return;
    }
    let mut options = Options::default();
    options.http.accepts_http2 = true;
    let idle_bytes = idle_bytes(options, |address| {
        let mut stream = TcpStream::connect(address).expect("connected");
        stream.write_all(REQUEST).expect("sent");
        let mut answer = Vec::new();
        while !answer.ends_with(CONTENT) {
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece).expect("received");
            assert_ne!(count, 0, "closed");
            answer.extend_from_slice(&piece[..count]);
        }
        stream
    });
    assert!(idle_bytes <= IDLE_BYTES_MAX, "{idle_bytes} bytes for an idle connection");
}
