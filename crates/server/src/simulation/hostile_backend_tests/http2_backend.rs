//! A hostile backend that speaks HTTP/2: frames that are damaged, missing, repeated or of other streams.

use super::super::http2_tests::{Frame, frame, frames};
use super::*;
use fastrand::Rng;
use sanderling_site_rules::{Backend, BackendProtocol};
use std::sync::Arc;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PREFACE_BYTES: usize = 24;

/// Fields that a response of HTTP/2 may not have, or that make its length another one.
const FIELDS: &[(&str, &str)] = &[
    ("transfer-encoding", "chunked"),
    ("connection", "close"),
    ("content-length", "0"),
    ("content-length", "5"),
    ("content-length", "99999"),
    ("content-length", "+5"),
    ("x", "y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0"),
    ("x\r\nx-injected", "1"),
    (":status", "204"),
    (":path", "/"),
    ("X-Upper", "1"),
    ("x-good", "1"),
];

/// A response to the request with this number, and whether a client may see it as a whole one.
struct Response {
    sent: Vec<u8>,
    may_be_whole: bool,
}

fn block(fields: &[(String, String)]) -> Vec<u8> {
    let text = |text: &String| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

fn content_of(number: usize) -> String {
    format!("[{number}]").repeat(20)
}

fn response(random: &mut Rng, number: usize, stream: u32, is_damaged: bool) -> Response {
    let content = content_of(number);
    let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut fields = vec![own(":status", "200"), own("x-a", "b")];
    let has_length = random.bool();
    if has_length {
        fields.push(own("content-length", &content.len().to_string()));
    }
    let mut may_be_whole = true;
    let damage = if is_damaged { random.u8(..6) } else { u8::MAX };
    if damage == 0 {
        let &(name, value) = random.choice(FIELDS).expect("there are some");
        fields.insert(random.usize(..=fields.len()), own(name, value));
        may_be_whole = name == "x-good" && fields[0].0 == ":status";
    }
    let (first, rest) = content.as_bytes().split_at(random.usize(1..content.len()));
    let trailers = block(&[own("x-trailer", &format!("[{number}]"))]);
    let mut sent = vec![
        frame(HEADERS, END_HEADERS, stream, &block(&fields)),
        frame(DATA, 0, stream, first),
        frame(DATA, 0, stream, rest),
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers),
    ];
    match damage {
        // What is missing is noticed by the length, and always at the end.
        1 => {
            let at = random.usize(..sent.len());
            sent.remove(at);
            may_be_whole = matches!(at, 1 | 2) && !has_length;
        }
        2 => {
            let at = random.usize(..sent.len());
            sent.insert(at, sent[at].clone());
            may_be_whole = matches!(at, 1 | 2) && !has_length;
        }
        3 => {
            let kind = random.choice([DATA, HEADERS, RST_STREAM, GOAWAY, CONTINUATION, 5, 6, 8, 99]).expect("some");
            let other = random.choice([0, 1, 2, stream, stream + 2]).expect("some");
            let payload = random.choice([&b"\0\0\0\x01\0\0\0\x02"[..], b"\0\0\0\x02", b"\x88", b""]).expect("some");
            sent.insert(random.usize(..=sent.len()), frame(kind, random.u8(..), other, payload));
        }
        4 => sent.truncate(random.usize(..sent.len())),
        _ => {}
    }
    may_be_whole &= damage != 4;
    let mut sent = sent.concat();
    if damage == 5 {
        let at = random.usize(..sent.len());
        sent[at] ^= 1 << random.u8(..8);
    }
    Response { sent, may_be_whole }
}

/// The streams on which a backend has received the heads of requests.
fn requested(received: &[u8]) -> Vec<u32> {
    let bytes = if received.starts_with(b"PRI ") { &received[PREFACE_BYTES..] } else { received };
    frames(bytes).iter().filter(|frame: &&Frame| frame.0 == HEADERS).map(|frame| frame.2).collect()
}

#[test]
fn client_gets_the_response_to_its_request_or_none_from_a_backend_of_http_2() {
    let seed = seed();
    let (mut whole, mut all) = (0, 0);
    for first in (0..message_count()).step_by(MESSAGES_PER_SERVER) {
        let backend = Backend { protocol: BackendProtocol::Http2, ..Backend::clone(&backend(1, 100)) };
        let action = RouteAction::Pass(Box::new(backend_route(&Arc::new(backend))));
        simulate_routes(vec![route("/*", action)], |simulation| {
            let mut known_connections = 0;
            for number in first..first + MESSAGES_PER_SERVER {
                let mut random = Rng::with_seed(seed.wrapping_add(number as u64));
                let request = format!("GET /m/{number} HTTP/1.1\r\nHost: example.com\r\nTE: trailers\r\n\r\n");
                let client = simulation.connect(Protocol::Http, request.as_bytes(), usize::MAX).expect("accepted");
                let mut may_be_whole = false;
                let mut is_damaged = random.bool();
                let mut is_quiet = false;
                while !is_quiet {
                    simulation.run(ITERATIONS_MAX);
                    is_quiet = true;
                    for connection in 0..simulation.backend_count() {
                        let received = simulation.take_of_backend(connection);
                        for stream in requested(&received) {
                            let settings = frame(SETTINGS, 0, 0, &[]);
                            let start = if connection >= known_connections { &settings[..] } else { &[] };
                            let response = response(&mut random, number, stream, is_damaged);
                            may_be_whole |= response.may_be_whole;
                            is_damaged = false;
                            is_quiet = false;
                            simulation.send_by_backend(connection, &[start, &response.sent].concat());
                        }
                    }
                    known_connections = simulation.backend_count();
                }
                simulation.advance(Duration::from_secs(61));
                simulation.run(ITERATIONS_MAX);
                let is_closed = simulation.ending(client) == Ending::ShutDown;
                let received = simulation.take_received(client);
                let shown = format!("{number}: {}", received.escape_ascii());
                assert!(names_only(number, &received), "{shown}");
                assert!(!received.windows(10).any(|bytes| bytes.eq_ignore_ascii_case(b"x-injected")), "{shown}");
                let Some((status, content, is_whole)) = final_response(&received, false, is_closed) else {
                    panic!("neither a response nor an error: {shown}");
                };
                // All content is there before the end of the stream, which the fault may concern.
                let is_expected = may_be_whole || content == content_of(number).as_bytes();
                assert!(is_own(status, &content) || !is_whole || is_expected, "{shown}");
                whole += usize::from(is_whole && status == 200);
                all += 1;
                simulation.break_off(client);
                simulation.run(ITERATIONS_MAX);
            }
        });
    }
    println!("{all} responses, {whole} of them whole for the client");
    assert!(whole > all / 4, "{whole}");
}
