//! Backends that speak HTTP/2, and trailers.

use super::super::http2_tests::{Frame, frame, frames, opening};
use super::*;
use sanderling_http2::RESPONSE_WINDOW_BYTES;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PREFACE_BYTES: usize = 24;

const CALL: &str = "POST /s/m HTTP/1.1\r\nHost: example.com\r\nContent-Type: application/grpc\r\nTE: trailers\r\n\
    Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";

/// A server with one route for all paths, to one server that speaks HTTP/2.
fn simulate_http2(act: impl FnOnce(&mut Simulation<'_>)) {
    let backend = Backend { protocol: BackendProtocol::Http2, ..Backend::clone(&backend(1, 100)) };
    let action = RouteAction::Pass(Box::new(backend_route(&Arc::new(backend))));
    simulate_routes(vec![route("/*", action)], act);
}

/// Literal fields without indexing (RFC 7541 §6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

fn headers(flags: u8, stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, &block(fields))
}

/// A response with content and trailers.
fn whole_response(stream: u32) -> Vec<u8> {
    [
        headers(0, stream, &[(":status", "200"), ("content-type", "application/grpc")]),
        frame(DATA, 0, stream, b"answer"),
        headers(END_STREAM, stream, &[("grpc-status", "0"), ("content-length", "9")]),
    ]
    .concat()
}

impl Simulation<'_> {
    /// The frames that a backend has received.
    fn backend_frames(&mut self, connection: usize) -> Vec<Frame> {
        let received = self.take_of_backend(connection);
        frames(if received.starts_with(b"PRI ") { &received[PREFACE_BYTES..] } else { &received })
    }

    /// The settings of the backend, and these frames.
    fn answer_first(&mut self, connection: usize, sent: &[u8]) {
        self.send_by_backend(connection, &[&frame(SETTINGS, 0, 0, &[]), sent].concat());
        self.run(ITERATIONS_MAX);
    }
}

fn content(frames: &[Frame]) -> Vec<u8> {
    frames.iter().filter(|frame| frame.0 == DATA).flat_map(|frame| frame.3.clone()).collect()
}

#[test]
fn call_is_passed_on_and_its_trailers_back_and_the_connection_is_used_again() {
    simulate_http2(|simulation| {
        let client = simulation.request(CALL);
        let received = simulation.backend_frames(0);
        let kinds: Vec<u8> = received.iter().map(|frame| frame.0).collect();
        assert_eq!(kinds, [SETTINGS, WINDOW_UPDATE, HEADERS, DATA]);
        assert_eq!((content(&received), received[3].1), (b"hello".to_vec(), END_STREAM));
        let fields = String::from_utf8_lossy(&received[2].3).into_owned();
        assert!(fields.contains("trailers") && !fields.contains("chunked"), "{fields}");
        simulation.answer_first(0, &whole_response(1));
        let response = simulation.response(client);
        assert!(response.contains("\r\nTransfer-Encoding: chunked\r\n"), "{response}");
        assert!(response.ends_with("\r\n6\r\nanswer\r\n0\r\ngrpc-status: 0\r\n\r\n"), "{response}");
        // A client that takes no trailers gets the length.
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_count(), 1);
        let request: Vec<(u8, u8, u32)> =
            simulation.backend_frames(0).iter().map(|frame| (frame.0, frame.1, frame.2)).collect();
        assert_eq!(request, [(SETTINGS, 1, 0), (HEADERS, END_STREAM | END_HEADERS, 3)]);
        simulation.send_by_backend(0, &whole_response(3));
        let response = simulation.response(client);
        assert!(response.contains("Content-Length: 6\r\n") && response.ends_with("\r\n\r\nanswer"), "{response}");
    });
}

#[test]
fn client_of_http_2_gets_messages_and_trailers_as_they_arrive() {
    simulate_http2(|simulation| {
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "example.com"), (":path", "/s/m")];
        let client = simulation.connect(Protocol::Http, &[opening(), headers(0, 1, &fields)].concat(), UNLIMITED);
        let client = client.expect("accepted");
        for message in [&b"one"[..], b"two"] {
            simulation.send(client, &frame(DATA, 0, 1, message));
            simulation.run(ITERATIONS_MAX);
            assert_eq!(content(&simulation.backend_frames(0)), message);
            match message {
                b"one" => {
                    let head = headers(0, 1, &[(":status", "200")]);
                    simulation.answer_first(0, &[head, frame(DATA, 0, 1, b"1")].concat());
                }
                _ => simulation.send_by_backend(0, &frame(DATA, 0, 1, b"2")),
            }
            simulation.run(ITERATIONS_MAX);
            let received = frames(&simulation.take_received(client));
            assert_eq!(content(&received), if message == b"one" { b"1" } else { b"2" });
        }
        simulation.send(client, &frame(DATA, END_STREAM, 1, b""));
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_frames(0).last().map(|frame| frame.1), Some(END_STREAM));
        simulation.send_by_backend(0, &headers(END_STREAM, 1, &[("grpc-status", "0")]));
        simulation.run(ITERATIONS_MAX);
        let [(HEADERS, 5, 1, trailers)] = &frames(&simulation.take_received(client))[..] else { panic!("trailers") };
        assert_eq!(*trailers, block(&[("grpc-status", "0")]));
    });
}

#[test]
fn hints_reach_clients_that_understand_them() {
    simulate_http2(|simulation| {
        let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "example.com"), (":path", "/s")];
        let request = headers(END_STREAM, 1, &fields);
        let client = simulation.connect(Protocol::Http, &[opening(), request].concat(), UNLIMITED).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        simulation.take_received(client);
        let hints = headers(0, 1, &[(":status", "103"), ("link", "</a.css>; rel=preload")]);
        simulation.answer_first(0, &hints);
        simulation.run(ITERATIONS_MAX);
        let [(HEADERS, END_HEADERS, 1, received)] = &frames(&simulation.take_received(client))[..] else {
            panic!("hints")
        };
        assert!(received.windows(3).any(|text| text == b"103"), "{received:?}");
        simulation.send_by_backend(0, &whole_response(1));
        simulation.run(ITERATIONS_MAX);
        assert_eq!(content(&frames(&simulation.take_received(client))), b"answer");
    });
}

#[test]
fn trailers_of_chunked_content_reach_clients_that_take_them() {
    simulate_backend(|simulation| {
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nDigest: a\r\nHost: b\r\n\r\n";
        for (te, expected) in [("TE: trailers\r\n", "0\r\nDigest: a\r\n\r\n"), ("", "\r\n\r\nok")] {
            let client = simulation.request(&GET.replace("\r\n\r\n", &format!("\r\n{te}\r\n")));
            simulation.send_by_backend(0, chunked);
            let response = simulation.response(client);
            assert!(response.ends_with(expected), "{response}");
        }
    });
}

#[test]
fn refused_request_is_repeated_and_another_reset_is_an_error() {
    simulate_http2(|simulation| {
        let client = simulation.request(CALL);
        simulation.answer_first(0, &frame(RST_STREAM, 0, 1, &[0, 0, 0, 7]));
        assert_eq!(simulation.backend_count(), 2);
        simulation.answer_first(1, &frame(GOAWAY, 0, 0, &[0; 8]));
        assert_eq!(simulation.backend_count(), 3);
        assert_eq!(content(&simulation.backend_frames(2)), b"hello");
        simulation.answer_first(2, &frame(RST_STREAM, 0, 1, &[0, 0, 0, 2]));
        assert_eq!(simulation.backend_count(), 3);
        let response = simulation.response(client);
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n") && response.contains("grpc-status: 14\r\n"), "{response}");
        assert!(response.contains("grpc-message: The application reset the request (INTERNAL_ERROR).\r\n"));
        let client = simulation.request(GET);
        simulation.answer_first(3, b"");
        simulation.close_by_backend(3);
        simulation.run(ITERATIONS_MAX);
        simulation.answer_first(4, &[headers(0, 1, &[(":status", "200"), ("content-length", "5")])].concat());
        simulation.send_by_backend(4, &frame(DATA, END_STREAM, 1, b"four"));
        assert!(!simulation.response(client).ends_with("four\r\n"));
        assert!(!simulation.is_open(client), "the response is cut");
    });
}

#[test]
fn connection_that_the_backend_leaves_is_not_used_again() {
    simulate_http2(|simulation| {
        let client = simulation.request(GET);
        let goaway = frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
        simulation.answer_first(0, &[goaway.clone(), whole_response(1)].concat());
        assert!(simulation.response(client).ends_with("answer"));
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_count(), 2);
        simulation.answer_first(1, &whole_response(1));
        assert!(simulation.response(client).ends_with("answer"));
        // Nor one that it leaves later; a ping is answered.
        simulation.backend_frames(1);
        simulation.send_by_backend(1, &frame(6, 0, 0, b"12345678"));
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_frames(1), [(6, 1, 0, b"12345678".to_vec())]);
        simulation.send_by_backend(1, &goaway);
        simulation.send(client, GET.as_bytes());
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.backend_count(), 3);
    });
}

#[test]
fn slow_client_limits_what_the_backend_sends_and_not_what_it_receives() {
    simulate_http2(|simulation| {
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "example.com"), (":path", "/s/m")];
        // Its window is that of the start, and it does not open it.
        let client = simulation.connect(Protocol::Http, &[opening(), headers(0, 1, &fields)].concat(), UNLIMITED);
        let client = client.expect("accepted");
        simulation.run(ITERATIONS_MAX);
        simulation.answer_first(0, &headers(0, 1, &[(":status", "200")]));
        let window = RESPONSE_WINDOW_BYTES as usize;
        let opened = |frames: &[Frame]| frames.iter().filter(|frame| frame.0 == WINDOW_UPDATE && frame.2 == 1).count();
        let mut opened_count = 0;
        let mut left_bytes = window;
        // As much as the window of the backend allows.
        while left_bytes >= 16_384 {
            simulation.send_by_backend(0, &frame(DATA, 0, 1, &[b'x'; 16_384]));
            simulation.run(ITERATIONS_MAX);
            left_bytes -= 16_384;
            let more = opened(&simulation.backend_frames(0));
            opened_count += more;
            left_bytes += more * window / 2;
        }
        assert!((1..=2).contains(&opened_count), "{opened_count}");
        // Meanwhile the backend opens the window of the request, which is sent.
        for _ in 0..10 {
            simulation.send(client, &frame(DATA, 0, 1, &[b'y'; 10_000]));
            simulation.run(ITERATIONS_MAX);
        }
        let first = content(&simulation.backend_frames(0)).len();
        let window = frame(WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes());
        simulation.send_by_backend(0, &[window, frame(WINDOW_UPDATE, 0, 1, &100_000_u32.to_be_bytes())].concat());
        simulation.run(ITERATIONS_MAX);
        let rest = content(&simulation.backend_frames(0)).len();
        assert_eq!((first, first + rest), (65_535, 100_000));
    });
}

#[test]
fn backend_without_connections_has_a_status_of_grpc() {
    simulate_http2(|simulation| {
        simulation.refuse_backends(true);
        let client = simulation.request(CALL);
        let response = simulation.response(client);
        assert!(response.contains("\r\ngrpc-status: 14\r\ngrpc-message: The application refuses"), "{response}");
        let client = simulation.request(&CALL.replace("grpc", "grpc-web"));
        assert_eq!(status(&simulation.response(client)), "502");
    });
}

#[test]
fn backend_that_speaks_http_1_or_sends_frames_without_end_is_an_error() {
    simulate_http2(|simulation| {
        let client = simulation.request(GET);
        simulation.send_by_backend(0, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        assert!(simulation.response(client).ends_with("The application answers in HTTP/1.1, not in HTTP/2.\n"));
        let client = simulation.request(GET);
        simulation.set_backend_window(1, 0);
        simulation.answer_first(1, &frame(6, 0, 0, b"12345678").repeat(20_000));
        assert!(simulation.response(client).contains("sent too many frames"));
    });
}
