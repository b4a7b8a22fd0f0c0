//! Hostile clients in front of a strict backend, and a hostile backend behind: damaged requests and responses.
//!
//! `SANDERLING_HOSTILE` is the number of messages of each kind.

mod http2;
mod http2_backend;
mod messages;
mod mutations;

use super::backend_tests::{backend, backend_route, route, simulate_routes};
use super::*;
use messages::{Message, Read, Reader, read};
use sanderling_site_rules::{BackendRoute, RouteAction};
use sanderling_testkit::{number_or, seed};

const MESSAGES_DEFAULT: usize = 2_000;
/// Messages of one simulation: connections to the backend are shared by them.
const MESSAGES_PER_SERVER: usize = 40;
const ITERATIONS_MAX: usize = 1_000;
/// Exchanges of one connection until the server and the backend wait for each other.
const TURNS_MAX: usize = 64;
/// In the content of requests: a recipient that takes it for a request does not agree about where the content ends.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: example.com\r\n\r\n";

fn message_count() -> usize {
    number_or("SANDERLING_HOSTILE", MESSAGES_DEFAULT)
}

/// Runs `act` with a server that passes all requests on, and the numbers of its messages.
fn with_servers(act: impl Fn(&mut Simulation<'_>, std::ops::Range<usize>)) {
    let backend = backend(1, 100);
    let count = message_count();
    for first in (0..count).step_by(MESSAGES_PER_SERVER) {
        let action = RouteAction::Pass(Box::new(backend_route(&backend)));
        simulate_routes(vec![route("/*", action)], |simulation| {
            act(simulation, first..(first + MESSAGES_PER_SERVER).min(count));
        });
    }
}

/// A backend that answers each request that it takes for one by its target, and accepts no other bytes.
#[derive(Default)]
struct StrictBackend {
    /// Received and not answered bytes, by connection.
    received: Vec<Vec<u8>>,
    /// The answered requests.
    requests: Vec<Message>,
}

impl StrictBackend {
    /// Answers the requests that have arrived whole; whether there was one.
    fn answer(&mut self, simulation: &mut Simulation<'_>) -> bool {
        let mut has_answered = false;
        self.received.resize(simulation.backend_count(), Vec::new());
        for (connection, received) in self.received.iter_mut().enumerate() {
            received.extend(simulation.take_of_backend(connection));
            if received.is_empty() {
                continue;
            }
            let request = match read(Reader::BackendRequests, received) {
                Read::Partial(_) => continue,
                Read::Invalid => panic!("not a request: {}", received.escape_ascii()),
                Read::Whole(request, rest) => {
                    assert!(rest.is_empty(), "bytes after a request: {}", received.escape_ascii());
                    request
                }
            };
            received.clear();
            simulation.send_by_backend(connection, &echo(&request));
            self.requests.push(request);
            has_answered = true;
        }
        has_answered
    }

    /// Lets server and backend work until both wait.
    fn serve(&mut self, simulation: &mut Simulation<'_>) {
        for _ in 0..TURNS_MAX {
            simulation.run(ITERATIONS_MAX);
            if !self.answer(simulation) {
                return;
            }
        }
        panic!("requests without end");
    }
}

fn echo(request: &Message) -> Vec<u8> {
    let content = format!("echo {} {}", request.part(1).escape_ascii(), request.body.escape_ascii());
    let head = format!("HTTP/1.1 200 OK\r\nX-Echo: 1\r\nContent-Length: {}\r\n\r\n", content.len());
    let content = if request.part(0) == b"HEAD" { "" } else { &content };
    [head.as_bytes(), content.as_bytes()].concat()
}

fn request_templates(number: usize) -> [String; 6] {
    let head = format!(" /m/{number}?q=1 HTTP/1.1\r\nHost: example.com\r\n");
    let (length, chunk) = (SMUGGLED.len(), SMUGGLED.len());
    [
        format!("GET{head}\r\n"),
        format!("POST{head}Content-Length: {length}\r\n\r\n{SMUGGLED}"),
        format!("POST{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n{chunk:x}\r\n{SMUGGLED}\r\n0\r\n\r\n"),
        format!("POST{head}Content-Type: a/b\r\nContent-Length: 5\r\nX: y\r\n\r\nhello"),
        format!("GET{head}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
        format!("DELETE{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
    ]
}

/// The requests that a recipient finds in `bytes`, until one is invalid or incomplete.
fn requests_in(mut bytes: &[u8]) -> Vec<Message> {
    let mut requests = Vec::new();
    loop {
        // RFC 9112 §2.2.
        while let [b'\r', b'\n', rest @ ..] = bytes {
            bytes = rest;
        }
        match read(Reader::Requests, bytes) {
            Read::Whole(request, rest) => {
                requests.push(request);
                bytes = rest;
            }
            Read::Partial(_) | Read::Invalid => return requests,
        }
    }
}

#[test]
fn backend_sees_the_requests_that_a_strict_recipient_sees_and_nothing_else() {
    let seed = seed();
    let (accepted, all) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    with_servers(|simulation, numbers| {
        let mut backend = StrictBackend::default();
        for number in numbers {
            let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
            let mut sent = request_templates(number)[random.usize(..6)].clone().into_bytes();
            mutations::damage_request(&mut random, &mut sent);
            sent.extend_from_slice(format!("GET /next/{number} HTTP/1.1\r\nHost: example.com\r\n\r\n").as_bytes());
            let seen_before = backend.requests.len();
            let (first, rest) = sent.split_at(random.usize(..=sent.len()));
            let client = simulation.connect(Protocol::Http, first, usize::MAX).expect("accepted");
            backend.serve(simulation);
            simulation.send(client, rest);
            backend.serve(simulation);
            simulation.close(client);
            backend.serve(simulation);
            simulation.break_off(client);
            backend.serve(simulation);

            let shown = sent.escape_ascii();
            let seen = &backend.requests[seen_before..];
            let expected = requests_in(&sent);
            let mut expected_left = expected.iter();
            for request in seen {
                let is_same = |expected: &&Message| {
                    expected.part(0) == request.part(0)
                        && expected.part(1).ends_with(request.part(1))
                        && expected.body == request.body
                };
                assert!(expected_left.find(is_same).is_some(), "{number}: {shown}\n{seen:?}\n{expected:?}");
            }
            let received = simulation.take_received(client);
            assert_eq!(echoes(&received), seen.len(), "{number}: {shown}\n{}", received.escape_ascii());
            accepted.set(accepted.get() + seen.len());
            all.set(all.get() + 1);
        }
    });
    println!("{} connections, {} requests passed on", all.get(), accepted.get());
    assert!(accepted.get() > all.get() / 4, "too few requests are valid");
}

/// The responses of the backend in what a client has received; nothing may follow one that closes the connection.
fn echoes(mut received: &[u8]) -> usize {
    let mut count = 0;
    while !received.is_empty() {
        let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
        let (head, rest) = received.split_at(end);
        let Read::Whole(message, _) = read(Reader::Responses { is_head: true, is_closed: false }, head) else {
            panic!("not a response: {}", received.escape_ascii());
        };
        let length = message.field("content-length").map_or(0, |digits| {
            std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).expect("a number")
        });
        let has_content = rest.len() >= length && !(rest.starts_with(b"HTTP/1.1 ") && length > 0);
        received = &rest[if has_content { length } else { 0 }..];
        count += usize::from(message.field("x-echo").is_some());
        let closes = message.field("connection") == Some(b"close");
        assert!(!closes || received.is_empty(), "bytes after the last response: {}", received.escape_ascii());
    }
    count
}

/// A response to the request with this number, which all of its content names.
fn response_templates(number: usize) -> [String; 8] {
    let content = format!("[{number}]").repeat(20);
    let length = content.len();
    let chunked = format!("5\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n", &content[..5], length - 5, &content[5..]);
    [
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{content}"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: [{number}]\r\n\r\n{chunked}"),
        format!("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{content}"),
        format!("HTTP/1.0 200 OK\r\nX: y\r\n\r\n{content}"),
        format!(
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{content}"
        ),
        "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n".to_owned(),
        format!("HTTP/1.1 304 Not Modified\r\nContent-Length: {length}\r\nETag: \"[{number}]\"\r\n\r\n"),
        format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n{content}"),
    ]
}

/// The final response that a strict recipient sees in `bytes`: status and content, and whether that is whole.
fn final_response(mut bytes: &[u8], is_head: bool, is_closed: bool) -> Option<(u16, Vec<u8>, bool)> {
    loop {
        match read(Reader::Responses { is_head, is_closed }, bytes) {
            Read::Whole(message, rest) if matches!(message.status(), 100 | 102..200) => bytes = rest,
            Read::Whole(message, rest) if message.status() == 101 => return Some((101, rest.to_vec(), is_closed)),
            Read::Whole(message, _) => return Some((message.status(), message.body, true)),
            Read::Partial(Some(message)) => return Some((message.status(), message.body, false)),
            Read::Partial(None) | Read::Invalid => return None,
        }
    }
}

/// What a hostile backend does with the first request of each number; it answers further ones well.
struct Attack {
    number: usize,
    response: Vec<u8>,
    closes: bool,
    is_done: bool,
}

impl Attack {
    fn new(seed: u64, number: usize, is_upgrade: bool) -> Attack {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number as u64));
        let templates = response_templates(number);
        let mut response = templates[random.usize(..if is_upgrade { 8 } else { 7 })].clone().into_bytes();
        mutations::damage_response(&mut random, &mut response);
        if random.u8(..4) == 0 {
            // Nobody has asked for it.
            response.extend_from_slice(templates[0].as_bytes());
        }
        Attack { number, response, closes: random.bool(), is_done: false }
    }

    fn good(&self) -> Vec<u8> {
        response_templates(self.number)[0].clone().into_bytes()
    }

    /// Answers what has arrived, until the server waits.
    fn serve(&mut self, simulation: &mut Simulation<'_>) {
        for _ in 0..TURNS_MAX {
            simulation.run(ITERATIONS_MAX);
            let mut has_answered = false;
            for connection in 0..simulation.backend_count() {
                let received = simulation.take_of_backend(connection);
                if received.is_empty() {
                    continue;
                }
                has_answered = true;
                let response = if self.is_done { self.good() } else { self.response.clone() };
                simulation.send_by_backend(connection, &response);
                if !self.is_done && self.closes {
                    simulation.run(ITERATIONS_MAX);
                    simulation.close_by_backend(connection);
                }
                self.is_done = true;
            }
            if !has_answered {
                return;
            }
        }
        panic!("requests without end");
    }

    /// Whether a client may see this response as a whole one.
    fn allows_whole(&self, (status, content): (u16, &[u8]), is_head: bool) -> bool {
        let sent = [(self.response.clone(), self.closes), (self.good(), false)];
        sent.iter().any(|(sent, is_closed)| {
            // One that waits for the close, or for more, may have been ended by the timeout of the server.
            final_response(sent, is_head, *is_closed).is_some_and(|(own, own_content, is_whole)| {
                own == status
                    && is_whole
                    && (own_content == content || status == 101 && content.ends_with(&own_content))
            })
        })
    }
}

/// Whether a response is an error page of the server.
fn is_own(status: u16, content: &[u8]) -> bool {
    matches!(status, 502..=504) && (content.is_empty() || content.starts_with(b"The application "))
}

/// Bytes of no other response than this one: each has its number in 20 places, and a fault changes one of them.
fn names_only(number: usize, received: &[u8]) -> bool {
    let text = String::from_utf8_lossy(received);
    let named = text.split('[').skip(1).filter_map(|rest| rest.split_once(']')?.0.parse::<usize>().ok());
    let others: Vec<usize> = named.filter(|named| *named != number).collect();
    others.iter().all(|other| others.iter().filter(|named| *named == other).count() <= mutations::FAULTS_MAX)
}

#[test]
fn client_gets_the_response_to_its_request_or_none() {
    let seed = seed();
    let (whole, all) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    with_servers(|simulation, numbers| {
        for number in numbers {
            let is_upgrade = number % 4 == 3;
            let method = if number % 8 == 0 { "HEAD" } else { "GET" };
            let more = if is_upgrade { "Connection: Upgrade\r\nUpgrade: websocket\r\n" } else { "" };
            let mut attack = Attack::new(seed, number, is_upgrade);
            let request = format!("{method} /m/{number} HTTP/1.1\r\nHost: example.com\r\n{more}\r\n");
            let client = simulation.connect(Protocol::Http, request.as_bytes(), usize::MAX).expect("accepted");
            attack.serve(simulation);
            simulation.advance(Duration::from_secs(61));
            attack.serve(simulation);
            let ending = simulation.ending(client);
            let received = simulation.take_received(client);
            let shown = format!("{number}: {}\n{}", attack.response.escape_ascii(), received.escape_ascii());
            assert!(names_only(number, &received) || received.starts_with(b"HTTP/1.1 101 "), "{shown}");
            let is_closed = ending == Ending::ShutDown;
            if let Some((status, content, is_whole)) = final_response(&received, method == "HEAD", is_closed) {
                let has_length = received.windows(17).any(|bytes| bytes == b"\r\nContent-Length:");
                assert!(status != 204 || !has_length, "RFC 9110 \u{a7}8.6: {shown}");
                let is_allowed =
                    is_own(status, &content) || !is_whole || attack.allows_whole((status, &content), method == "HEAD");
                assert!(is_allowed, "{shown}");
                whole.set(whole.get() + usize::from(is_whole));
                // A client that waits has nothing to wait for, unless it has a tunnel.
                assert!(is_whole || ending != Ending::Open || status == 101, "{shown}");
            } else {
                panic!("neither a response nor an error: {shown}");
            }
            simulation.break_off(client);
            simulation.run(ITERATIONS_MAX);
            all.set(all.get() + 1);
        }
    });
    println!("{} responses, {} of them whole for the client", all.get(), whole.get());
    assert!(whole.get() > all.get() / 4);
}
