//! The memory of an idle connection: the growth of the process, with the side of the client.

use crate::support::{bind, builtin, run_alone, serve};
use sanderling_server::{Counter, Options};
use sanderling_testkit::http::HttpClient;
use sanderling_testkit::wait_until;

/// So many that the memory of the server itself counts little.
const CONNECTION_COUNT: usize = 4_000;
const IDLE_BYTES_MAX: usize = 2 * 1024;

/// The resident memory of the process.
fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").expect("readable");
    pages.split_whitespace().nth(1).and_then(|count| count.parse::<usize>().ok()).expect("a number") * PAGE_BYTES
}

#[test]
fn idle_connection_needs_little_memory() {
    if !run_alone("idle_memory::idle_connection_needs_little_memory") {
        return;
    }
    let limit = sanderling_os::rlimit::raise_nofile_limit().expect("raised");
    // Both sides have a descriptor.
    let count = CONNECTION_COUNT.min(limit as usize / 3);
    let (sockets, http, _) = bind(1);
    let mut options = Options::default();
    options.http.connections_per_client_max = options.http.connections_max;
    let idle_bytes = serve(builtin(), options, &sockets, 1, |server| {
        let answered = || {
            let mut client = HttpClient::connect(http);
            client.get("/file");
            client
        };
        let mut clients = Vec::with_capacity(count + 100);
        clients.extend((0..100).map(|_| answered()));
        let before = resident_bytes();
        clients.extend((0..count).map(|_| answered()));
        wait_until("all requests", || server.status().sum(Counter::HttpRequests) == clients.len() as u64);
        resident_bytes().saturating_sub(before) / count
    });
    println!("{count} idle connections: {idle_bytes} bytes each");
    assert!(idle_bytes <= IDLE_BYTES_MAX, "{idle_bytes} bytes for an idle connection");
}
