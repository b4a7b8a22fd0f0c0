//! Timeouts and limits of connections, as far as they depend on the kernel or on several workers. The tests of the
//! server crate have the others, in a simulation with a manual clock.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::domain::{Domain, Setup, ZONE};
use sanderling_testkit::dns::{A, Question, Reply};
use sanderling_testkit::http::{HttpClient, get, response_to};
use sanderling_testkit::{RawConnection, framed};

const SITE: &[(&str, &[u8])] = &[("index.html", b"hi\n")];
/// A timeout may be so late on a busy machine.
const DELAY_MAX: Duration = Duration::from_secs(5);

/// Checks a time since just before the server has started its timer.
#[track_caller]
fn check_about(took: Duration, expected_ms: u64) {
    let expected = Duration::from_millis(expected_ms);
    assert!(took + Duration::from_millis(20) >= expected, "{took:?} is less than {expected:?}");
    assert!(took < expected + DELAY_MAX, "{took:?} is more than {expected:?}");
}

#[test]
fn each_connection_is_closed_at_its_timeout() {
    let limits = "http_header_deadline_ms = 500\nhttp_idle_timeout_ms = 700\ndns_tcp_idle_timeout_ms = 400";
    let domain = Domain::serve(Setup { site: SITE, zone: ZONE, limits, ..Setup::default() });
    let (http, dns) = (domain.server.http(), domain.server.dns());
    thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            HttpClient::connect(http).check_closed();
            check_about(start.elapsed(), 500);
        });
        scope.spawn(|| {
            let mut client = HttpClient::connect(http);
            let start = Instant::now();
            client.get("/");
            client.check_closed();
            check_about(start.elapsed(), 700);
        });
        scope.spawn(|| {
            let mut tcp = RawConnection::open(dns);
            let start = Instant::now();
            query(&mut tcp);
            assert_eq!(tcp.read_to_close(), b"");
            check_about(start.elapsed(), 400);
        });
        scope.spawn(|| {
            let start = Instant::now();
            let mut tcp = RawConnection::open(dns);
            send_slowly(&mut tcp, &query_bytes());
            assert_eq!(tcp.read_to_close(), b"");
            check_about(start.elapsed(), 400);
        });
        for is_first in [true, false] {
            scope.spawn(move || {
                let start = Instant::now();
                let mut client = HttpClient::connect(http);
                if !is_first {
                    client.get("/");
                }
                send_slowly(client.tcp(), get("/").as_bytes());
                let response = client.response();
                check_about(start.elapsed(), 500);
                assert_eq!((response.status, response.field("Connection")), (408, Some("close")));
            });
        }
    });
}

/// Sends a byte each 100 ms until the server sends something or closes. No byte moves the deadline.
#[track_caller]
fn send_slowly(tcp: &mut RawConnection, bytes: &[u8]) {
    for byte in bytes {
        if tcp.try_send(&[*byte]).is_err() || !tcp.is_silent_for(Duration::from_millis(100)) {
            return;
        }
    }
    panic!("the server has received {} bytes slowly", bytes.len());
}

fn query_bytes() -> Vec<u8> {
    framed(&Question::new("example.com", A).message())
}

#[track_caller]
fn query(tcp: &mut RawConnection) {
    tcp.send(&query_bytes());
    assert_eq!(Reply::parse(&tcp.read_message()).answer.len(), 1);
}

#[test]
fn dns_connection_at_the_limit_replaces_one_of_another_worker() {
    let limits = "dns_tcp_connections_max = 2\ndns_tcp_idle_timeout_ms = 60000";
    let domain = Domain::serve(Setup { zone: ZONE, limits, worker_count: 4, ..Setup::default() });
    let mut connections = Vec::new();
    for _ in 0..24 {
        let mut tcp = RawConnection::open(domain.server.dns());
        let start = Instant::now();
        query(&mut tcp);
        assert!(start.elapsed() < DELAY_MAX, "the connection waited for {:?}", start.elapsed());
        connections.push(tcp);
    }
}

#[test]
fn connections_of_one_client_above_its_limit_replace_its_idle_ones_or_are_closed_and_logged_once() {
    let limits = "http_connections_per_client_max = 3\ndns_tcp_connections_per_client_max = 2";
    // A worker closes its own idle connections only.
    let domain = Domain::serve(Setup { site: SITE, zone: ZONE, limits, worker_count: 1 });
    let (http, dns) = (domain.server.http(), domain.server.dns());
    let mut clients: Vec<HttpClient> = (0..3).map(|_| HttpClient::connect(http)).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 200));
    let mut streams: Vec<RawConnection> = (0..2).map(|_| RawConnection::open(dns)).collect();
    streams.iter_mut().for_each(query);
    for _ in 0..2 {
        assert_eq!(response_to(http, get("/")).status, 200);
        query(&mut RawConnection::open(dns));
    }
    clients[0].check_closed();
    let mut clients: Vec<HttpClient> = (0..3).map(|_| HttpClient::connect(http)).collect();
    for client in &mut clients {
        client.get("/");
        client.send(&get("/")[..9]);
        // The part of the request has arrived when another connection has got an answer.
        query(&mut RawConnection::open(dns));
    }
    assert!(is_refused(http, get("/").as_bytes()));
    for key in ["http_connections_per_client_max", "dns_tcp_connections_per_client_max"] {
        let line = format!("{key} is reached");
        domain.server.wait_for_error(&line);
        assert_eq!(domain.server.errors().matches(&line).count(), 1);
    }
    let status = domain.directory.control("status").text();
    assert!(status.contains("http_client_evicted") && status.contains("http_over_client_limit 1"), "{status}");
    assert!(status.contains("dns_streams_client_evicted"), "{status}");
}

/// Whether the server closes a new connection, or resets it, without an answer to these bytes.
fn is_refused(server: SocketAddr, bytes: &[u8]) -> bool {
    let mut stream = TcpStream::connect(server).expect("connected");
    // The server may have reset the connection before.
    let _ = stream.write_all(bytes);
    matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
}

#[test]
fn idle_http_connection_is_closed_for_a_new_one_at_the_limit_and_that_is_logged() {
    let domain = Domain::serve(Setup { site: SITE, limits: "http_connections_max = 4", ..Setup::default() });
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut client = HttpClient::connect(domain.server.http());
        let start = Instant::now();
        assert_eq!(client.get("/").status, 200);
        assert!(start.elapsed() < DELAY_MAX, "the connection waited for {:?}", start.elapsed());
        idle.push(client);
    }
    domain.server.wait_for_error("http_connections_max is reached");
}

#[test]
fn client_that_receives_below_the_least_rate_is_reset_and_that_is_logged() {
    const FILE_BYTES: usize = 64 << 20;
    // The rate suffices for each send timeout, but not to finish within some of them.
    const CLIENT_BYTES_PER_S: usize = 10_000_000;
    let limits = "http_send_timeout_ms = 1000\nhttp_send_rate_min = 1000000000000";
    let content = vec![b'x'; FILE_BYTES];
    let domain = Domain::serve(Setup { site: &[("file", &content)], limits, ..Setup::default() });
    let mut client = RawConnection::open(domain.server.http());
    client.send(get("/file").as_bytes());
    let (start, mut received) = (Instant::now(), client.read_piece().len());
    loop {
        while received as f64 > start.elapsed().as_secs_f64() * CLIENT_BYTES_PER_S as f64 {
            domain.directory.control("status");
        }
        match client.try_read(64 * 1024) {
            0 => break,
            count => received += count,
        }
    }
    assert!(received < FILE_BYTES, "all {received} bytes");
    domain.server.wait_for_error("http_send_rate_min is not reached");
    let status = domain.directory.control("status").text();
    assert!(status.contains("http_slow_responses 1"), "{status}");
}

#[test]
fn pipelines_that_are_not_read_take_little_memory_beyond_the_budget() {
    const CLIENT_COUNT: usize = 20;
    const REQUEST_COUNT: usize = 400;
    let content = [b'x'; 16_000];
    let limits = "connection_buffers_bytes_max = 0";
    let domain = Domain::serve(Setup { site: &[("file", &content)], limits, ..Setup::default() });
    // More than the buffers of both sockets have room for.
    let pipeline = get("/file").repeat(REQUEST_COUNT);
    let connect = || {
        let mut client = HttpClient::connect(domain.server.http());
        client.send(&pipeline);
        client
    };
    let mut clients: Vec<HttpClient> = (0..CLIENT_COUNT).map(|_| connect()).collect();
    assert_eq!(response_to(domain.server.http(), get("/file")).status, 200);
    domain.server.wait_for_error("connection_buffers_bytes_max is reached");
    let status = domain.directory.control("status").text();
    let held = status.lines().find_map(|line| line.trim().strip_prefix("buffers")).expect("the line is there");
    let held: usize = held.trim().trim_end_matches(" bytes").parse().expect("a number");
    assert!(held <= CLIENT_COUNT * 4_096, "{held} bytes");
    for client in &mut clients {
        for _ in 0..REQUEST_COUNT {
            assert_eq!(client.response().body.len(), content.len());
        }
    }
}
