//! The same in front by HTTP/2: fields that HTTP/1.1 could not have, content of another length than announced, and cut
//! responses.

use super::super::http2_tests::{frame, opening};
use super::*;
use fastrand::Rng;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Fields that are added to a request, or that replace those with the same name.
const FIELDS: &[(&str, &str)] = &[
    (":path", ""),
    (":path", "*"),
    (":path", "m/1"),
    (":path", "/m /1"),
    (":path", "/m\r\nX-Injected: 1"),
    (":path", "/m/1 HTTP/1.1\r\nHost: example.com\r\n\r\nGET /smuggled"),
    (":path", "/m/../x"),
    (":path", "/m/%2e%2e/x"),
    (":path", "/m/%00"),
    (":path", "/m#x"),
    (":path", "http://evil.example/m"),
    (":path", "/m\0"),
    (":path", "/m\t1"),
    (":method", ""),
    (":method", "G T"),
    (":method", "GET /smuggled HTTP/1.1\r\n"),
    (":method", "CONNECT"),
    (":method", "HEAD"),
    (":method", "get"),
    (":scheme", "https"),
    (":scheme", ""),
    (":scheme", "x\r\ny"),
    (":authority", ""),
    (":authority", "evil.example"),
    (":authority", "example.com\r\nX-Injected: 1"),
    (":authority", "a@example.com"),
    (":authority", "example.com:99999"),
    (":protocol", "websocket"),
    (":status", "200"),
    (":unknown", "x"),
    ("host", "evil.example"),
    ("host", "example.com"),
    ("host", "example.com\r\nX-Injected: 1"),
    ("content-length", "0"),
    ("content-length", "5"),
    ("content-length", "46"),
    ("content-length", "+5"),
    ("content-length", "5, 5"),
    ("content-length", ""),
    ("content-length", "99999"),
    ("transfer-encoding", "chunked"),
    ("transfer-encoding", "identity"),
    ("Transfer-Encoding", "chunked"),
    ("transfer_encoding", "chunked"),
    ("connection", "close"),
    ("connection", "transfer-encoding"),
    ("upgrade", "websocket"),
    ("te", "trailers"),
    ("te", "chunked"),
    ("keep-alive", "x"),
    ("proxy-connection", "x"),
    ("x", "y\r\nX-Injected: 1"),
    ("x", "y\nX-Injected: 1"),
    ("x", "y\rX-Injected: 1"),
    ("x", "y\0"),
    ("x", " y"),
    ("x", "y\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"),
    ("X", "y"),
    ("", "y"),
    ("x y", "z"),
    ("x:", "z"),
    ("x\r\nx-injected", "1"),
    ("x\n", "1"),
    ("expect", "100-continue"),
    ("trailer", "x"),
    ("cookie", "a=1"),
    ("cookie", "b=2\r\nX-Injected: 1"),
    ("proxy", "http://evil.example"),
    ("http2-settings", "x"),
];

/// Literal fields without indexing and Huffman codes (RFC 7541 §6.2.2).
fn block(fields: &[(String, String)]) -> Vec<u8> {
    let text = |text: &String| {
        assert!(text.len() < 127, "its length has one byte");
        [&[text.len() as u8], text.as_bytes()].concat()
    };
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

/// The frames of a damaged request on stream 1, and of a good one on stream 3; whether the client resets the first one.
fn requests(random: &mut Rng, number: usize) -> (Vec<u8>, bool) {
    let own = |fields: &[(&str, &str)]| -> Vec<(String, String)> {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let has_content = random.bool();
    let method = if has_content { "POST" } else { "GET" };
    let path = format!("/m/{number}");
    let mut fields =
        own(&[(":method", method), (":scheme", "http"), (":authority", "example.com"), (":path", &path), ("x-a", "b")]);
    if has_content && random.bool() {
        fields.push(("content-length".to_owned(), SMUGGLED.len().to_string()));
    }
    for _ in 0..random.usize(..=2) {
        let (name, value) = random.choice(FIELDS).expect("there are some");
        let field = ((*name).to_owned(), (*value).to_owned());
        match fields.iter().position(|(own, _)| own == name).filter(|_| random.u8(..4) > 0) {
            Some(at) => fields[at] = field,
            None => fields.insert(random.usize(..=fields.len()), field),
        }
    }
    let head_flags = if has_content { END_HEADERS } else { END_HEADERS | END_STREAM };
    let mut sent = frame(HEADERS, head_flags, 1, &block(&fields));
    let mut is_reset = false;
    if has_content {
        let (first, rest) = SMUGGLED.split_at(random.usize(..=SMUGGLED.len()));
        sent.extend(frame(DATA, 0, 1, first.as_bytes()));
        match random.u8(..5) {
            0 => {
                is_reset = true;
                sent.extend(frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]));
            }
            1 => {
                sent.extend(frame(DATA, 0, 1, rest.as_bytes()));
                let (name, value) = random.choice(FIELDS).expect("there are some");
                let trailers = [((*name).to_owned(), (*value).to_owned())];
                sent.extend(frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&trailers)));
            }
            2 => sent.extend(frame(DATA, END_STREAM, 1, &[])),
            _ => sent.extend(frame(DATA, END_STREAM, 1, rest.as_bytes())),
        }
    }
    let next = format!("/next/{number}");
    let fields = own(&[(":method", "GET"), (":scheme", "http"), (":authority", "example.com"), (":path", &next)]);
    sent.extend(frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&fields)));
    (sent, is_reset)
}

/// The content of a stream, and how it has ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stream {
    content: Vec<u8>,
    has_head: bool,
    is_whole: bool,
    is_reset: bool,
}

fn stream(mut received: &[u8], wanted: u32) -> Stream {
    let mut stream = Stream::default();
    while let Some((header, rest)) = received.split_at_checked(9) {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let (payload, after) =
            rest.split_at_checked(length).unwrap_or_else(|| panic!("no frame: {}", received.escape_ascii()));
        received = after;
        if header[5..] != wanted.to_be_bytes() {
            continue;
        }
        assert!(!stream.is_whole || header[3] == RST_STREAM, "a frame after the last one of its stream");
        match header[3] {
            DATA => stream.content.extend_from_slice(payload),
            HEADERS => stream.has_head = true,
            RST_STREAM => stream.is_reset = true,
            _ => continue,
        }
        stream.is_whole |= header[3] != RST_STREAM && header[4] & END_STREAM != 0;
    }
    stream
}

#[test]
fn http2_request_has_no_more_meaning_for_the_backend_than_one_request() {
    let seed = seed();
    let (accepted, all) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    with_servers(|simulation, numbers| {
        let mut backend = StrictBackend::default();
        for number in numbers {
            let mut random = Rng::with_seed(seed.wrapping_add(number as u64));
            let (requests, is_reset) = requests(&mut random, number);
            let sent = [opening(), requests].concat();
            let seen_before = backend.requests.len();
            let (first, rest) = sent.split_at(random.usize(..=sent.len()));
            let client = simulation.connect(Protocol::Http, first, usize::MAX).expect("accepted");
            backend.serve(simulation);
            simulation.send(client, rest);
            backend.serve(simulation);
            let received = simulation.take_received(client);
            simulation.break_off(client);
            backend.serve(simulation);

            let seen = &backend.requests[seen_before..];
            let shown = format!("{number}: {}\n{seen:?}\n{}", sent.escape_ascii(), received.escape_ascii());
            assert!(seen.len() <= 2, "{shown}");
            for request in seen {
                assert!(!request.fields.iter().any(|(name, _)| name.contains("injected")), "{shown}");
                assert_ne!(request.part(1), b"/smuggled", "{shown}");
                assert!(SMUGGLED.as_bytes().starts_with(&request.body), "{shown}");
            }
            let next = format!("/next/{number}").into_bytes();
            let is_next = |request: &&Message| request.part(1) == next;
            let streams = [stream(&received, 1), stream(&received, 3)];
            let answered = |stream: &Stream| stream.content.starts_with(b"echo ") && stream.is_whole;
            assert_eq!(answered(&streams[1]), seen.iter().any(|request| is_next(&request)), "{shown}");
            if let Some(request) = seen.iter().find(|request| !is_next(request)) {
                // A response of the backend that is no tunnel would look like one in HTTP/2.
                let is_tunnel = request.fields.iter().any(|(name, _)| name == "upgrade");
                let is_answered = match request.part(0) {
                    b"HEAD" => true,
                    _ if is_tunnel => streams[0].is_whole && streams[0].content.is_empty(),
                    _ => answered(&streams[0]) || streams[0].is_reset,
                };
                assert!(is_answered || is_reset, "{shown}");
                accepted.set(accepted.get() + 1);
            } else {
                assert!(!answered(&streams[0]), "{shown}");
            }
            all.set(all.get() + 1);
        }
    });
    println!("{} damaged requests, {} passed on", all.get(), accepted.get());
    assert!(accepted.get() > all.get() / 10, "too few requests are valid");
}

#[test]
fn content_of_a_refused_stream_reaches_no_backend() {
    with_servers(|simulation, _| {
        let mut backend = StrictBackend::default();
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "example.com"), (":path", "/")];
        let fields = [&fields[..], &[("content-length", "5")]].concat();
        let fields: Vec<_> = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let frames = [
            frame(HEADERS, END_HEADERS, 1, &block(&fields)),
            frame(DATA, 0, 1, b"longer than announced"),
            frame(DATA, END_STREAM, 1, b"hello"),
        ];
        let client = simulation.connect(Protocol::Http, &[opening(), frames.concat()].concat(), usize::MAX);
        backend.serve(simulation);
        assert!(stream(&simulation.take_received(client.expect("accepted")), 1).is_reset);
        assert_eq!(backend.requests, []);
    });
}

/// A request without a length, whose content is as long as the route allows with the first frame.
#[test]
fn content_beyond_the_limit_of_the_route_is_refused_before_and_after_the_response_has_begun() {
    const CONTENT: &[u8] = b"0123456789";
    let backend_route = BackendRoute { body_bytes_max: CONTENT.len() as u64, ..backend_route(&backend(1, 100)) };
    for has_begun in [false, true] {
        let action = RouteAction::Pass(Box::new(backend_route.clone()));
        simulate_routes(vec![route("/*", action)], |simulation| {
            let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "example.com"), (":path", "/")];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let head = frame(HEADERS, END_HEADERS, 1, &block(&fields));
            let request = [opening(), head, frame(DATA, 0, 1, CONTENT)].concat();
            let client = simulation.connect(Protocol::Http, &request, usize::MAX).expect("accepted");
            simulation.run(ITERATIONS_MAX);
            assert!(simulation.take_of_backend(0).ends_with(b"\r\n\r\na\r\n0123456789\r\n"));
            if has_begun {
                simulation.send_by_backend(0, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok");
                simulation.run(ITERATIONS_MAX);
            }
            simulation.send(client, &frame(DATA, 0, 1, b"x"));
            simulation.run(ITERATIONS_MAX);
            let own = stream(&simulation.take_received(client), 1);
            match has_begun {
                false => {
                    assert!(own.is_whole && !own.is_reset, "{own:?}");
                    assert_eq!(own.content, b"The application takes no content of this length.\n");
                }
                true => assert!(own.has_head && !own.is_whole && own.is_reset, "{own:?}"),
            }
            assert_eq!(simulation.count(Counter::BackendErrors), 0);
            assert_eq!(simulation.take_of_backend(0), b"");
        });
    }
}

#[test]
fn content_for_which_a_slow_backend_has_no_room_follows_later() {
    const PIECE: &[u8] = &[b'x'; 10_000];
    with_servers(|simulation, _| {
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "example.com"), (":path", "/")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let request = [opening(), frame(HEADERS, END_HEADERS, 1, &block(&fields))].concat();
        let client = simulation.connect(Protocol::Http, &request, usize::MAX).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        simulation.set_backend_window(0, 0);
        // All but a part of the last one fit.
        for _ in 0..6 {
            simulation.send(client, &frame(DATA, 0, 1, PIECE));
            simulation.run(ITERATIONS_MAX);
        }
        simulation.send(client, &frame(DATA, END_STREAM, 1, PIECE));
        simulation.run(ITERATIONS_MAX);
        let mut backend = StrictBackend::default();
        simulation.set_backend_window(0, usize::MAX);
        backend.serve(simulation);
        let lengths: Vec<usize> = backend.requests.iter().map(|request| request.body.len()).collect();
        assert_eq!(lengths, [7 * PIECE.len()]);
    });
}

#[test]
fn http2_client_gets_the_response_to_its_request_or_none() {
    let seed = seed();
    let (whole, all) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    with_servers(|simulation, numbers| {
        for number in numbers {
            let method = if number % 8 == 0 { "HEAD" } else { "GET" };
            let path = format!("/m/{number}");
            let fields = [(":method", method), (":scheme", "http"), (":authority", "example.com"), (":path", &*path)];
            let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&fields));
            let mut attack = Attack::new(seed, number, false);
            let client = simulation.connect(Protocol::Http, &[opening(), request].concat(), usize::MAX);
            let client = client.expect("accepted");
            attack.serve(simulation);
            simulation.advance(Duration::from_secs(61));
            attack.serve(simulation);
            let received = simulation.take_received(client);
            let own = stream(&received, 1);
            let shown = format!("{number}: {}\n{own:?}", attack.response.escape_ascii());
            assert!(names_only(number, &own.content), "{shown}");
            assert!(own.is_whole || own.is_reset, "{shown}");
            if own.is_whole {
                let statuses = (100..600).map(|status| (status, &own.content[..]));
                let is_allowed = is_own(502, &own.content)
                    || statuses.into_iter().any(|response| attack.allows_whole(response, method == "HEAD"));
                assert!(is_allowed && own.has_head, "{shown}");
                whole.set(whole.get() + 1);
            }
            simulation.break_off(client);
            simulation.run(ITERATIONS_MAX);
            all.set(all.get() + 1);
        }
    });
    println!("{} responses, {} of them whole for the client", all.get(), whole.get());
    assert!(whole.get() > all.get() / 4);
}
