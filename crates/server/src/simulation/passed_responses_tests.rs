//! Responses of backends that are changed on their way: compressed, announced by hints, or a tunnel in HTTP/2.

use super::backend_tests::{backend, backend_route, route, simulate_routes};
use super::http2_tests::{frame, opening};
use super::*;
use sanderling_site_rules::{BackendRoute, RouteAction};
use std::io::Read;

const UNLIMITED: usize = usize::MAX;
const ITERATIONS_MAX: usize = 1_000;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// One route for all paths, changed by `change`.
fn simulate_route(change: impl FnOnce(&mut BackendRoute), act: impl FnOnce(&mut Simulation<'_>)) {
    let mut pass = backend_route(&backend(1, 100));
    change(&mut pass);
    simulate_routes(vec![route("/*", RouteAction::Pass(Box::new(pass)))], act);
}

impl Simulation<'_> {
    /// The response to a request with these fields, if the backend answers so.
    fn response_of(&mut self, request: &str, response: &[u8]) -> (String, Vec<u8>) {
        let count = self.backend_count();
        let client = self.connect(Protocol::Http, request.as_bytes(), UNLIMITED).expect("accepted");
        self.run(ITERATIONS_MAX);
        let connection = if self.backend_count() > count { count } else { count - 1 };
        self.send_by_backend(connection, response);
        self.run(ITERATIONS_MAX);
        let received = self.take_received(client);
        let end = received.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
        let head = String::from_utf8(received[..end].to_vec()).expect("text");
        (head, received[end..].to_vec())
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: example.com\r\nAccept-Encoding: gzip, br\r\n\r\n";

fn unzipped(content: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let _ = flate2::read::MultiGzDecoder::new(content).read_to_end(&mut plain);
    plain
}

#[test]
fn text_is_compressed_and_its_head_says_so() {
    let text = "0123456789".repeat(1_000);
    let whole = |fields: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{text}", text.len());
    simulate_route(
        |route| route.compresses = true,
        |simulation| {
            let (head, content) = simulation.response_of(
                GET,
                whole("Content-Type: text/html\r\nETag: \"a\"\r\nVary: Cookie\r\nAccept-Ranges: bytes\r\n").as_bytes(),
            );
            assert_eq!(unzipped(&content), text.as_bytes(), "{head}");
            for line in ["Content-Encoding: gzip", "ETag: W/\"a\"", "Vary: Cookie, Accept-Encoding"] {
                assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
            }
            assert!(!head.contains("Accept-Ranges") && content.len() < 200, "{head}");
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", content.len())), "{head}");
            let zstd = GET.replace("gzip, br", "gzip, br, zstd");
            let (head, content) = simulation.response_of(&zstd, whole("Content-Type: application/json\r\n").as_bytes());
            assert!(head.contains("\r\nContent-Encoding: zstd\r\n"), "{head}");
            assert_eq!(zstd::decode_all(&content[..]).expect("zstd"), text.as_bytes());
        },
    );
}

#[test]
fn response_that_must_stay_as_it_is_is_not_compressed() {
    let text = "0123456789".repeat(1_000);
    let whole = |status: &str, fields: &str, text: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n{text}", text.len())
    };
    let html = "Content-Type: text/html\r\n";
    let check = |is_on: bool, request: &str, response: String, content: &str, varies: bool| {
        simulate_route(
            |route| route.compresses = is_on,
            |simulation| {
                let (head, received) = simulation.response_of(request, response.as_bytes());
                assert_eq!(String::from_utf8_lossy(&received), content, "{head}");
                assert!(!head.contains("Content-Encoding: gzip") && head.contains("Content-Length"), "{head}");
                assert_eq!(head.contains("Vary: Accept-Encoding"), varies, "{head}");
            },
        );
    };
    check(false, GET, whole("200 OK", html, &text), &text, false);
    check(true, GET, whole("200 OK", html, "short"), "short", true);
    check(true, &GET.replace("gzip, br", "br"), whole("200 OK", html, &text), &text, true);
    check(true, &GET.replace("Accept", "X"), whole("200 OK", html, &text), &text, true);
    check(true, GET, whole("200 OK", "Content-Type: image/png\r\n", &text), &text, false);
    check(true, GET, whole("200 OK", "", &text), &text, false);
    for field in
        ["Content-Encoding: br", "Cache-Control: no-transform", "Content-Range: bytes 0-1/2", "Repr-Digest: x=:a:"]
    {
        check(true, GET, whole("200 OK", &format!("{html}{field}\r\n"), &text), &text, false);
    }
    check(true, GET, whole("206 Partial Content", html, &text), &text, false);
    let head_only = format!("HTTP/1.1 200 OK\r\n{html}Content-Length: 10000\r\n\r\n");
    check(true, &GET.replace("GET", "HEAD"), head_only, "", true);
}

#[test]
fn compressed_stream_arrives_part_by_part_and_one_that_is_cut_does_not_look_whole() {
    simulate_route(
        |route| route.compresses = true,
        |simulation| {
            let client = simulation.connect(Protocol::Http, GET.as_bytes(), UNLIMITED).expect("accepted");
            simulation.run(ITERATIONS_MAX);
            simulation.send_by_backend(0, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
            let mut content = Vec::new();
            for number in 0..10 {
                let part = format!("data: {number}\n\n");
                simulation.send_by_backend(0, part.as_bytes());
                simulation.run(ITERATIONS_MAX);
                let received = simulation.take_received(client);
                let mut rest = match number {
                    0 => &received[received.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4..],
                    _ => &received[..],
                };
                while let Some(end) = rest.windows(2).position(|end| end == b"\r\n") {
                    let length =
                        usize::from_str_radix(str::from_utf8(&rest[..end]).expect("text"), 16).expect("a length");
                    content.extend_from_slice(&rest[end + 2..end + 2 + length]);
                    rest = &rest[end + 2 + length + 2..];
                }
                assert!(unzipped(&content).ends_with(part.as_bytes()), "{part}");
            }
            simulation.break_off_backend(0);
            simulation.run(ITERATIONS_MAX);
            let end = simulation.take_received(client);
            assert!(!end.ends_with(b"0\r\n\r\n") && !simulation.is_open(client), "{end:?}");
        },
    );
}

#[test]
fn hints_are_passed_on_by_http2_and_by_option_to_http1() {
    const HINTS: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n";
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for is_on in [false, true] {
        simulate_route(
            |route| route.sends_hints_by_http1 = is_on,
            |simulation| {
                let client = simulation.connect(Protocol::Http, GET.as_bytes(), UNLIMITED).expect("accepted");
                simulation.run(ITERATIONS_MAX);
                simulation.send_by_backend(0, &[HINTS, b"HTTP/1.1 102 Processing\r\n\r\n", HINTS].concat());
                simulation.run(ITERATIONS_MAX);
                let hints = String::from_utf8(simulation.take_received(client)).expect("text");
                let one = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nVia: 1.1 sanderling\r\n\r\n";
                assert_eq!(hints, if is_on { one.repeat(2) } else { String::new() });
                simulation.send_by_backend(0, OK);
                simulation.run(ITERATIONS_MAX);
                assert!(simulation.take_received(client).ends_with(b"\r\n\r\nok"));
            },
        );
    }
    simulate_route(
        |_| (),
        |simulation| {
            let client = open(simulation, &[(":method", "GET"), (":path", "/")], END_STREAM);
            simulation.take_received(client);
            simulation.send_by_backend(0, HINTS);
            simulation.run(ITERATIONS_MAX);
            let hints = simulation.take_received(client);
            assert_eq!((hints[3], hints[4]), (HEADERS, END_HEADERS));
            assert!(hints.windows(3).any(|text| text == b"103"), "{hints:?}");
            simulation.send_by_backend(0, OK);
            simulation.run(ITERATIONS_MAX);
            assert!(simulation.take_received(client).ends_with(b"ok"));
        },
    );
    // A backend that never ends them.
    simulate_route(
        |_| (),
        |simulation| {
            let (head, _) = simulation.response_of(GET, &HINTS.repeat(17));
            assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
            let (head, _) = simulation.response_of(GET, &[&HINTS.repeat(16)[..], OK].concat());
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        },
    );
}

#[test]
fn response_after_hints_ends_an_upload_that_the_backend_does_not_read() {
    const POST: &str = "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1000000\r\n\r\nthe first part";
    simulate_route(
        |_| (),
        |simulation| {
            let client = simulation.connect(Protocol::Http, POST.as_bytes(), UNLIMITED).expect("accepted");
            simulation.run(ITERATIONS_MAX);
            simulation.send_by_backend(0, b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n");
            simulation.run(ITERATIONS_MAX);
            let refused = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            simulation.send_by_backend(0, refused);
            simulation.run(ITERATIONS_MAX);
            let received = simulation.take_received(client);
            assert!(received.starts_with(b"HTTP/1.1 413 "), "{}", received.escape_ascii());
        },
    );
}

/// Literal fields without indexing and Huffman codes (RFC 7541 §6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// A client of HTTP/2 whose first request has these fields.
fn open(simulation: &mut Simulation<'_>, fields: &[(&str, &str)], flags: u8) -> usize {
    let fields = [&[(":scheme", "http"), (":authority", "example.com")], fields].concat();
    let head = frame(HEADERS, END_HEADERS | flags, 1, &block(&fields));
    let client = simulation.connect(Protocol::Http, &[opening(), head].concat(), UNLIMITED).expect("accepted");
    simulation.run(ITERATIONS_MAX);
    client
}

const CONNECT: [(&str, &str); 3] = [(":method", "CONNECT"), (":protocol", "websocket"), (":path", "/ws")];
const SWITCH: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Accept: x\r\nSec-WebSocket-Protocol: chat\r\n\r\n";

#[test]
fn stream_of_http2_becomes_a_web_socket() {
    simulate_route(
        |_| (),
        |simulation| {
            let client = open(simulation, &CONNECT, 0);
            // SETTINGS_ENABLE_CONNECT_PROTOCOL.
            assert!(simulation.take_received(client).windows(6).any(|setting| setting == [0, 8, 0, 0, 0, 1]));
            simulation.send(client, &frame(DATA, 0, 1, b"early"));
            simulation.run(ITERATIONS_MAX);
            let request = String::from_utf8(simulation.take_of_backend(0)).expect("text");
            assert!(
                request.starts_with("GET /ws HTTP/1.1\r\nHost: example.com\r\nConnection: upgrade\r\n"),
                "{request}"
            );
            assert!(request.contains("Upgrade: websocket\r\n") && request.ends_with("\r\n\r\n"), "{request}");
            let key = request.split("Sec-WebSocket-Key: ").nth(1).expect("a key");
            assert_eq!(key.find("\r\n"), Some(24), "{request}");
            assert!(!request.contains("chunked") && !request.contains("Content-Length"), "{request}");
            simulation.send_by_backend(0, &[SWITCH, b"hello"].concat());
            simulation.run(ITERATIONS_MAX);
            let response = simulation.take_received(client);
            let text = String::from_utf8_lossy(&response);
            assert!(response.contains(&0x88) && text.contains("chat") && text.ends_with("hello"), "{text:?}");
            assert!(!text.to_lowercase().contains("accept") && !text.contains("upgrade"), "{text:?}");
            assert_eq!(simulation.take_of_backend(0), b"early");
            simulation.advance(Duration::from_secs(3_000));
            simulation.send(client, &frame(DATA, 0, 1, b"ping"));
            simulation.run(ITERATIONS_MAX);
            assert_eq!(simulation.take_of_backend(0), b"ping");
            simulation.send_by_backend(0, b"pong");
            simulation.run(ITERATIONS_MAX);
            let received = simulation.take_received(client);
            assert!(received.ends_with(&frame(DATA, 0, 1, b"pong")), "{received:?}");
            simulation.close_by_backend(0);
            simulation.run(ITERATIONS_MAX);
            assert!(simulation.take_received(client).ends_with(&frame(DATA, END_STREAM, 1, b"")));
            assert!(simulation.is_open(client));
        },
    );
}

#[test]
fn web_socket_by_http2_that_is_refused_is_no_tunnel() {
    let check = |fields: &[(&str, &str)], answer: &[u8], expected: &str| {
        simulate_route(
            |_| (),
            |simulation| {
                let client = open(simulation, fields, 0);
                if simulation.backend_count() > 0 {
                    simulation.send_by_backend(0, answer);
                    simulation.run(ITERATIONS_MAX);
                }
                let received = simulation.take_received(client);
                let text = String::from_utf8_lossy(&received);
                assert!(text.contains(expected), "{fields:?}: {text:?}");
            },
        );
    };
    check(&CONNECT, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "501");
    check(&CONNECT, b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "no");
    let other = [(":method", "CONNECT"), (":protocol", "connect-udp"), (":path", "/ws")];
    check(&other, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "501");
    // Plain CONNECT stays refused, and other methods have no protocol.
    let reset = "\u{0}\u{0}\u{4}\u{3}\u{0}";
    check(&[(":method", "GET"), (":protocol", "websocket"), (":path", "/ws")], b"", reset);
    check(&[(":method", "CONNECT"), (":path", "/ws")], b"", reset);
}
