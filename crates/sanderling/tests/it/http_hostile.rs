//! Malformed requests: each is refused at once, and the refusal arrives.

use std::thread;
use std::time::{Duration, Instant};

use crate::domain::{Domain, Setup};
use crate::http_answers::{HttpConnection, answer_to, check_serves};
use sanderling_testkit::RawConnection;

fn site() -> Domain {
    let large = vec![b'x'; 1_000_000];
    Domain::with_site(&[("index.html", b"hi\n"), ("large.bin", &large)])
}

/// The response has this status, and the connection is closed after it.
#[track_caller]
fn check_refused(domain: &Domain, request: &[u8], status: u16) {
    let mut connection = HttpConnection::open(domain.server.http());
    connection.send(request);
    let answer = connection.answer();
    let shown = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
    assert_eq!(answer.status, status, "{shown}\n{}", answer.head);
    assert_eq!(answer.field("Connection"), Some("close"), "{shown}\n{}", answer.head);
    connection.check_closed();
}

#[test]
fn malformed_requests_are_refused_and_closed() {
    let domain = site();
    for (request, status) in [
        ("\0\0\0\0\r\n\r\n", 400),
        ("GET\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET index.html HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET https://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /% HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /a\u{e9} HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET /#x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nBad Name: x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nName : x\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nName\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nA: b\0c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nA: b\rc\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nA: b\nX: c\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nExpect: tea\r\n\r\n", 417),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nExpect: tea\r\n\r\n", 417),
    ] {
        check_refused(&domain, request.as_bytes(), status);
    }
}

/// Ambiguous framing allows request smuggling (RFC 9112 §11.2).
#[test]
fn ambiguous_framing_is_refused() {
    let domain = site();
    for (fields, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0", 400),
        ("Content-Length: 5\r\nContent-Length: 5", 400),
        ("Content-Length: 5, 5", 400),
        ("Content-Length: 5\r\nContent-Length: 6", 400),
        ("Content-Length: +5", 400),
        ("Content-Length: -5", 400),
        ("Content-Length: 0x5", 400),
        ("Content-Length: ", 400),
        ("Content-Length: 5 5", 400),
        ("Content-Length: 99999999999999999999999", 400),
        ("Content-Length: 65537", 413),
        ("Content-Length: 18446744073709551615", 413),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: gzip", 400),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: chunked, identity", 400),
        ("Transfer-Encoding: \x0bchunked", 400),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n\r\n0\r\n\r\n");
        check_refused(&domain, request.as_bytes(), status);
    }
    check_refused(&domain, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
}

#[test]
fn malformed_chunks_are_refused() {
    let domain = site();
    for (content, status) in [
        ("x\r\n", 400),
        ("\r\n", 400),
        ("3\nabc", 400),
        ("3\r\nabcd\r\n", 400),
        ("-3\r\nabc\r\n", 400),
        ("3 \r\nabc\r\n", 400),
        ("00000000000000003\r\n", 400),
        ("ffffffffffffffff\r\nx", 413),
        ("10001\r\nx", 413),
        ("3;ext=\x01\r\n", 400),
        ("0\r\nbad name: x\r\n\r\n", 400),
    ] {
        let request = format!("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{content}");
        check_refused(&domain, request.as_bytes(), status);
    }
    // Extensions and trailers do not count as content, so they have a limit of their own.
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    check_refused(&domain, format!("{head}1;{}\r\n", "e".repeat(10_000)).as_bytes(), 400);
    check_refused(&domain, format!("{head}0\r\n{}\r\n", "T: t\r\n".repeat(2_000)).as_bytes(), 400);
}

#[test]
fn heads_above_their_limits_are_refused() {
    let domain = site();
    let long = "a".repeat(9_000);
    check_refused(&domain, format!("GET /{long} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes(), 414);
    let cookie = "c".repeat(17_000);
    check_refused(&domain, format!("GET / HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n").as_bytes(), 431);
    let fields = "A: b\r\n".repeat(100);
    check_refused(&domain, format!("GET / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes(), 431);
    let method = "M".repeat(40);
    check_refused(&domain, format!("{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes(), 501);
    // An endless head is refused at the limit.
    check_refused(&domain, format!("GET /{}", "a".repeat(20_000)).as_bytes(), 414);
    check_refused(&domain, format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}", "a".repeat(20_000)).as_bytes(), 431);
    // Requests at the limits are answered.
    let server = domain.server.http();
    let fields = "A: b\r\n".repeat(99);
    assert_eq!(answer_to(server, format!("GET / HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")).status, 200);
    let query = "q".repeat(8_192 - "/?".len());
    assert_eq!(answer_to(server, format!("GET /?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n")).status, 200);
}

/// A close with unread input makes the kernel send a reset, which can overtake the response (RFC 9112 §9.6).
#[test]
fn refusal_arrives_in_spite_of_unread_input() {
    let domain = site();
    for _ in 0..20 {
        let mut connection = HttpConnection::open(domain.server.http());
        let mut request = b"BAD\r\n\r\n".to_vec();
        request.resize(200_000, b'x');
        // The server may close before it has read everything.
        let _ = connection.raw().try_send(&request);
        assert_eq!(connection.answer().status, 400);
    }
}

/// The same for a response after which the client itself wants the close.
#[test]
fn response_arrives_in_spite_of_unread_input() {
    let domain = site();
    for _ in 0..5 {
        let mut connection = HttpConnection::open(domain.server.http());
        let mut request = b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec();
        request.resize(200_000, b'x');
        let _ = connection.raw().try_send(&request);
        assert_eq!(connection.answer().content.len(), 1_000_000);
    }
}

/// A client that keeps sending during a lingering close is not read for ever.
#[test]
fn refused_client_cannot_send_for_ever() {
    let domain = site();
    let mut raw = RawConnection::open(domain.server.http());
    raw.send(b"BAD\r\n\r\n");
    let start = Instant::now();
    let piece = [b'x'; 4096];
    while raw.try_send(&piece).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(20), "the server still reads");
    }
}

#[test]
fn random_bytes_leave_the_server_running() {
    const SEED: u64 = 20_260_101;
    const CLIENT_COUNT: u64 = 4;
    println!("seed {SEED}");
    // An incomplete request is given up soon.
    let limits = "http_header_deadline_ms = 200\nhttp_idle_timeout_ms = 200";
    let domain = Domain::serve(Setup { site: &[("index.html", b"hi\n")], limits, ..Setup::default() });
    let server = domain.server.http();
    thread::scope(|scope| {
        for client in 0..CLIENT_COUNT {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(SEED + client);
                for _ in 0..150 {
                    let request = damaged_request(&mut random);
                    let mut raw = RawConnection::open(server);
                    let _ = raw.try_send(&request);
                    raw.finish_sending();
                    let received = raw.read_to_close();
                    assert!(received.is_empty() || received.starts_with(b"HTTP/1.1 "), "{}", request.escape_ascii());
                }
            });
        }
    });
    check_serves(server);
}

/// Good requests with some bytes changed, removed or inserted.
fn damaged_request(random: &mut fastrand::Rng) -> Vec<u8> {
    let good = b"GET /index.html HTTP/1.1\r\nHost: localhost\r\nRange: bytes=0-1\r\nIf-None-Match: \"a\"\r\n\r\n";
    let mut request = good.repeat(1 + random.usize(..3));
    for _ in 0..random.usize(..6) {
        let at = random.usize(..request.len());
        match random.usize(..4) {
            0 => request[at] = random.u64(..) as u8,
            1 if request.len() > 1 => drop(request.remove(at)),
            2 => request.insert(at, b"\r\n \0:%/"[random.usize(..7)]),
            _ => request.truncate(at.max(1)),
        }
    }
    request
}

/// Connections that end at any point of an exchange.
#[test]
fn disconnecting_clients_leave_the_server_running() {
    let domain = site();
    let server = domain.server.http();
    let request = b"GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";
    thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || {
                for count in (worker..=request.len()).step_by(4) {
                    RawConnection::open(server).send(&request[..count]);
                    let mut raw = RawConnection::open(server);
                    raw.send(request);
                    raw.read_bytes(count);
                }
            });
        }
    });
    check_serves(server);
}
