//! Malformed and hostile requests: the response arrives, and the connection closes. The tests of the http crate have
//! all cases of each class.

use std::thread;

use crate::domain::{Domain, Setup};
use fastrand::Rng;
use sanderling_testkit::RawConnection;
use sanderling_testkit::http::{HttpClient, check_serves};

fn site() -> Domain {
    let large = vec![b'x'; 1_000_000];
    Domain::with_site(&[("index.html", b"hi\n"), ("large.bin", &large)])
}

#[test]
fn malformed_request_of_each_class_is_refused_and_closes_the_connection() {
    let domain = site();
    let with_fields = |fields: &str| format!("POST / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n");
    let chunked = with_fields("Transfer-Encoding: chunked");
    for (request, status) in [
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), 505),
        (format!("GET /{}", "a".repeat(20_000)), 414),
        (with_fields(&format!("A: {}", "a".repeat(20_000))), 431),
        (with_fields("Expect: 100-continue\r\nExpect: tea"), 417),
        (with_fields("Content-Length: 5\r\nTransfer-Encoding: chunked"), 400),
        (with_fields("Content-Length: 65537"), 413),
        (with_fields("Transfer-Encoding: gzip, chunked"), 501),
        (format!("{chunked}3\r\nabcd\r\n"), 400),
    ] {
        let mut client = HttpClient::connect(domain.server.http());
        client.send(&request);
        let response = client.response();
        let start = &request[..request.len().min(200)];
        assert_eq!(response.status, status, "{start}\n{}", response.head);
        assert_eq!(response.field("Connection"), Some("close"), "{start}\n{}", response.head);
        client.check_closed();
    }
}

#[test]
fn random_requests_do_no_harm() {
    const CLIENT_COUNT: u64 = 4;
    let seed = sanderling_testkit::seed();
    // Partial requests time out soon.
    let limits = "http_header_deadline_ms = 200\nhttp_idle_timeout_ms = 200";
    let domain = Domain::serve(Setup { site: &[("index.html", b"hi\n")], limits, ..Setup::default() });
    let server = domain.server.http();
    thread::scope(|scope| {
        for number in 0..CLIENT_COUNT {
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed.wrapping_add(number));
                for _ in 0..150 {
                    let request = corrupted_requests(&mut random);
                    let mut tcp = RawConnection::open(server);
                    let _ = tcp.try_send(&request);
                    tcp.finish_sending();
                    let received = tcp.read_to_close();
                    assert!(received.is_empty() || received.starts_with(b"HTTP/1.1 "), "{}", request.escape_ascii());
                }
            });
        }
    });
    check_serves(server);
}

/// Valid requests with some bytes changed, removed or inserted.
fn corrupted_requests(random: &mut Rng) -> Vec<u8> {
    let valid = b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-1\r\nIf-None-Match: \"a\"\r\n\r\n";
    let mut requests = valid.repeat(random.usize(1..4));
    for _ in 0..random.usize(..6) {
        let at = random.usize(..requests.len());
        match random.u8(..4) {
            0 => requests[at] = random.u8(..),
            1 if requests.len() > 1 => drop(requests.remove(at)),
            2 => requests.insert(at, b"\r\n \0:%/"[random.usize(..7)]),
            _ => requests.truncate(at.max(1)),
        }
    }
    requests
}

#[test]
fn connections_closed_at_each_point_of_an_exchange_do_no_harm() {
    let domain = site();
    let server = domain.server.http();
    let request = b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                for count in (number..=request.len()).step_by(4) {
                    RawConnection::open(server).send(&request[..count]);
                    let mut tcp = RawConnection::open(server);
                    tcp.send(request);
                    tcp.read_bytes(count);
                }
            });
        }
    });
    check_serves(server);
}
