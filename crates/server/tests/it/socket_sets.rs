//! Any numbers of workers and reuseport sockets: each connection and datagram is answered, whichever socket the kernel
//! selects.

use crate::support::{QUERY, bind, builtin, unlimited_errors};
use sanderling_server::{Counter, DrainMode, Server};
use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{DEADLINE, tcp_reply, udp_reply};

const CONNECTION_COUNT: usize = 300;
const CLIENT_COUNT: usize = 4;

#[track_caller]
fn check(worker_count: usize, set_count: usize) {
    let (sockets, http, dns) = bind(set_count);
    let server = Server::new(builtin(), unlimited_errors(), DEADLINE);
    let served = server.run(&sockets, worker_count, |server| {
        std::thread::scope(|scope| {
            for _ in 0..CLIENT_COUNT {
                scope.spawn(|| {
                    for _ in 0..CONNECTION_COUNT / CLIENT_COUNT {
                        assert_eq!(HttpClient::connect(http).get("/file").body, b"content");
                        assert_eq!(tcp_reply(dns, QUERY)[..2], QUERY[..2]);
                        assert_eq!(udp_reply(dns, QUERY)[..2], QUERY[..2]);
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
    println!("{worker_count} workers on {set_count} sockets:");
    for thread in &status.threads {
        let counts = [Counter::HttpConnections, Counter::DnsStreams, Counter::DnsUdpQueries]
            .map(|counter| thread.count(counter));
        println!("  {} on {:?}: {counts:?} HTTP and DNS connections, datagrams", thread.name, thread.socket_sets);
    }
    let mut served: Vec<usize> = status.threads.iter().flat_map(|thread| thread.socket_sets.clone()).collect();
    served.sort_unstable();
    served.dedup();
    assert_eq!(served, (0..set_count).collect::<Vec<_>>(), "each socket is served");
}

#[test]
fn three_workers_serve_four_sockets() {
    check(3, 4);
}

#[test]
fn one_worker_serves_four_sockets() {
    check(1, 4);
}

#[test]
fn four_workers_share_one_socket() {
    check(4, 1);
}

#[test]
fn five_workers_share_two_sockets() {
    check(5, 2);
}
