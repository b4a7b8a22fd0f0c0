//! Requests, errors, flow control, priorities and shutdown, as a client sees them.

use crate::support::*;
use sanderling_http::RequestError;
use sanderling_http2::{Activity, DATA_BYTES_MAX, ExceededLimit, Limits};

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const REFUSED_STREAM: u32 = 7;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;

/// Fields as a header block of literals.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = vec![];
    for text in fields.iter().flat_map(|(name, value)| [name, value]).enumerate().map(|(index, text)| {
        let is_name = index % 2 == 0;
        let mut literal = if is_name { vec![0] } else { vec![] };
        if text.len() < 127 {
            literal.push(text.len() as u8);
        } else {
            let rest = text.len() - 127;
            literal.extend([127, (rest & 0x7f) as u8 | 0x80, (rest >> 7) as u8 | 0x80, 0]);
        }
        literal.extend(text.bytes());
        literal
    }) {
        bytes.extend(text);
    }
    bytes
}

const START: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "http"), (":path", "/a?b"), (":authority", "x.y")];

fn request(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(fields))
}

/// The head that the parser of HTTP/1.1 is given.
#[track_caller]
fn check_head(fields: &[(&str, &str)], expected: &str) {
    let mut server = Server::opened(0);
    server.take(&request(fields));
    assert_eq!(server.heads, [expected]);
}

#[track_caller]
fn check_malformed(fields: &[(&str, &str)]) {
    let mut server = Server::opened(0);
    let sent = server.take(&request(fields));
    assert_eq!((sent[0].kind, sent[0].code(), sent.len()), (RST_STREAM, PROTOCOL_ERROR, 1), "{fields:?}");
    // Other streams are not affected.
    assert_eq!(server.take(&get(3))[0].kind, HEADERS);
}

/// The connection ends with this error.
#[track_caller]
fn check_error(code: u32, bytes: &[u8]) {
    let mut server = Server::opened(1 << 20);
    let sent = server.take(bytes);
    let last = sent.last().expect("GOAWAY");
    assert_eq!((last.kind, last.code(), server.is_closed), (GOAWAY, code, true));
    assert_eq!(server.take(&get(9)), []);
}

#[test]
fn heads_have_the_form_of_http_1_1() {
    check_head(&START, "GET /a?b HTTP/1.1\r\nhost: x.y\r\n\r\n");
    let fields = [&START[..], &[("accept", "*/*"), ("cookie", "a=b"), ("te", "trailers")]].concat();
    check_head(&fields, "GET /a?b HTTP/1.1\r\nhost: x.y\r\naccept: */*\r\nte: trailers\r\n\r\n");
    let host = [&START[..], &[("host", "X.y")]].concat();
    check_head(&host, "GET /a?b HTTP/1.1\r\nhost: x.y\r\n\r\n");
    // The parser refuses two different hosts.
    let other = [&START[..], &[("host", "z")]].concat();
    check_head(&other, "GET /a?b HTTP/1.1\r\nhost: x.y\r\nhost: z\r\n\r\n");
    check_head(&[(":method", "CONNECT"), (":authority", "x:1")], "CONNECT x:1 HTTP/1.1\r\nhost: x:1\r\n\r\n");
    let options = [(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), ("host", "a")];
    check_head(&options, "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n");
}

/// RFC 8441 §4.
#[test]
fn extended_connect_is_a_request_to_switch_the_protocol() {
    const CONNECT: [(&str, &str); 5] = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":path", "/a?b"),
        (":authority", "x.y"),
    ];
    let check = |is_accepted: bool, fields: &[(&str, &str)], expected: &[&str]| {
        let mut server = Server::opened(0);
        server.limits.accepts_websockets = is_accepted;
        server.take(&request(fields));
        assert_eq!(server.heads, expected, "{fields:?}");
    };
    let head = "GET https://x.y/a?b HTTP/1.1\r\nhost: x.y\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    check(true, &CONNECT, &[head]);
    check(false, &CONNECT, &[]);
    for missing in [":method", ":scheme", ":path", ":authority"] {
        let fields: Vec<_> = CONNECT.into_iter().filter(|(name, _)| *name != missing).collect();
        check(true, &fields, &[]);
    }
    check(true, &[&[(":method", "GET")], &CONNECT[1..]].concat(), &[]);
    for field in [("upgrade", "websocket"), ("content-length", "0"), ("content-length", "5")] {
        check(true, &[&CONNECT[..], &[field]].concat(), &[]);
    }
}

/// RFC 9113 §8.2.3.
#[test]
fn adjacent_cookies_are_one_line_if_they_are_kept() {
    let check = |fields: &[(&str, &str)], expected: &str| {
        let mut server = Server::opened(0);
        server.limits.keeps_cookies = true;
        server.take(&request(&[&START[..], fields].concat()));
        assert_eq!(server.heads, [format!("GET /a?b HTTP/1.1\r\nhost: x.y\r\n{expected}\r\n")]);
    };
    check(&[("cookie", "a=b")], "cookie: a=b\r\n");
    check(&[("a", "1"), ("cookie", "a=b"), ("cookie", "c=d"), ("cookie", "e")], "a: 1\r\ncookie: a=b; c=d; e\r\n");
    check(
        &[("cookie", "a=b"), ("a", "1"), ("cookie", "c=d"), ("cookie", "e")],
        "cookie: a=b\r\na: 1\r\ncookie: c=d; e\r\n",
    );
    check(&[("a", "1")], "a: 1\r\n");
}

#[test]
fn head_of_another_scheme_has_absolute_form() {
    let check = |method: &str, scheme: &str, path: &str, line: &str| {
        let fields = [(":method", method), (":scheme", scheme), (":path", path), (":authority", "x.y:1")];
        check_head(&fields, &format!("{line} HTTP/1.1\r\nhost: x.y:1\r\n\r\n"));
    };
    check("GET", "http", "/a?b", "GET /a?b");
    check("GET", "https", "/a?b", "GET https://x.y:1/a?b");
    check("GET", "HTTPS", "/", "GET HTTPS://x.y:1/");
    check("GET", "coap+tcp", "/", "GET coap+tcp://x.y:1/");
    check("OPTIONS", "https", "*", "OPTIONS https://x.y:1");
    let without_authority = [(":method", "GET"), (":scheme", "https"), (":path", "/"), ("host", "a")];
    check_head(&without_authority, "GET https:/// HTTP/1.1\r\nhost: a\r\n\r\n");
    for scheme in ["", "1", "http:", "http://evil.example", "ht tp", "a/b", "a?", "ü"] {
        check_malformed(&[START[0], (":scheme", scheme), START[2], START[3]]);
    }
}

#[test]
fn malformed_requests_reset_their_stream() {
    for missing in 0..3 {
        let mut fields = START.to_vec();
        fields.remove(missing);
        check_malformed(&fields);
    }
    for field in [
        (":path", "/again"),
        (":status", "200"),
        (":protocol", "websocket"),
        ("Accept", "*/*"),
        ("", "empty"),
        ("a b", "c"),
        ("a:b", "c"),
        ("a\r\nb", "c"),
        ("a", "b\r\nc"),
        ("a", "b\0"),
        ("a", " b"),
        ("a", "b\t"),
        ("connection", "close"),
        ("keep-alive", "1"),
        ("proxy-connection", "1"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("content-length", "x"),
        ("content-length", "1"),
    ] {
        check_malformed(&[&START[..], &[field]].concat());
    }
    check_malformed(&[&START[..3], &[("a", "b"), START[3]]].concat());
    for path in ["", "a", "http://x.y/", "*", "/a b", "/a\r\nb: c"] {
        check_malformed(&[START[0], START[1], START[3], (":path", path)]);
    }
    check_malformed(&[START[1], START[2], START[3], (":method", "GET / HTTP/1.1\r\nx:")]);
}

#[test]
fn heads_beyond_a_limit_are_refused_with_a_response() {
    // A field of 3,000 bytes that enters the table, and is repeated by its index.
    let mut bytes = block(&START);
    bytes.extend(b"\x40\x01a\x7f\xb9\x16");
    bytes.extend([b'x'; 3_000]);
    bytes.extend([0xbe; 5]);
    let mut server = Server::opened(0);
    let sent = server.take(&frame(HEADERS, END_STREAM | END_HEADERS, 1, &bytes));
    assert_eq!((sent[0].kind, &server.errors[..]), (HEADERS, &[RequestError::HeadTooLong][..]));
    let many = [&START[..], &[("a", "b"); 101]].concat();
    let mut server = Server::opened(0);
    server.take(&request(&many));
    assert_eq!(server.errors, [RequestError::TooManyFields]);
}

#[test]
fn request_is_answered_before_its_content_whose_length_is_checked() {
    let post = |length: &str| {
        let fields = [&START[..], &[("content-length", length)]].concat();
        frame(HEADERS, END_HEADERS, 1, &block(&fields))
    };
    // RFC 9113 §8.1: a response before the end of the request. Frames in flight are ignored, and the client ends its
    // side.
    let mut server = Server::opened(0);
    assert_eq!(kinds(&server.take(&[post("5"), frame(DATA, 0, 1, b"abc")].concat())), [HEADERS]);
    assert_eq!(server.session.activity(), Activity::Receiving);
    assert_eq!(server.take(&frame(DATA, END_STREAM | PADDED, 1, b"\x02de\0\0")), []);
    assert_eq!(server.session.activity(), Activity::Idle);
    // A response to a client that waits for 100 (Continue) tells it not to send the content.
    let fields = [&START[..], &[("expect", "100-continue"), ("content-length", "7")]].concat();
    assert_eq!(kinds(&server.take(&frame(HEADERS, END_HEADERS, 3, &block(&fields)))), [HEADERS]);
    server.take(&frame(RST_STREAM, 0, 3, &[0; 4]));
    assert_eq!(server.session.activity(), Activity::Idle);
    // RFC 9113 §8.5: a client never ends the stream of CONNECT by itself.
    let connect = block(&[(":method", "CONNECT"), (":authority", "x:1")]);
    assert_eq!(kinds(&server.take(&frame(HEADERS, END_HEADERS, 5, &connect))), [HEADERS]);

    for content in [&b"abcdef"[..], b"a"] {
        for awaits_content in [false, true] {
            let mut server = Server::opened(0);
            server.awaits_content = awaits_content;
            let sent = server.take(&[post("5"), frame(DATA, END_STREAM, 1, content)].concat());
            let last = sent.last().expect("RST_STREAM");
            assert_eq!((last.kind, last.code()), (RST_STREAM, PROTOCOL_ERROR));
            assert_eq!((server.heads.len(), sent.len()), if awaits_content { (0, 1) } else { (1, 2) });
            assert_eq!(server.session.activity(), Activity::Idle);
        }
    }
}

fn post_dns(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(&[&[(":method", "POST")], &START[1..]].concat()))
}

#[test]
fn content_that_is_awaited_is_given_with_its_request() {
    let mut server = Server::opened(0);
    server.awaits_content = true;
    assert_eq!(server.take(&[post_dns(1), frame(DATA, 0, 1, b"que")].concat()), []);
    assert_eq!(server.session.activity(), Activity::Receiving);
    server.take(&frame(DATA, END_STREAM | PADDED, 1, b"\x02ry\0\0"));
    assert!(server.heads.pop().is_some_and(|head| head.ends_with("\r\n\r\nquery")));
    // Trailers end a request as well.
    let trailers = frame(HEADERS, END_STREAM | END_HEADERS, 3, &block(&[("a", "b")]));
    server.take(&[post_dns(3), frame(DATA, 0, 3, b"a"), trailers].concat());
    assert!(server.heads.pop().is_some_and(|head| head.ends_with("\r\n\r\na")));
}

/// DATA frames with `length` bytes, the last of which ends the stream.
fn content_of(stream: u32, length: usize) -> Vec<u8> {
    let content = vec![0; length];
    let mut pieces = content.chunks(16_000).peekable();
    let mut frames = vec![];
    while let Some(piece) = pieces.next() {
        frames.extend(frame(DATA, if pieces.peek().is_none() { END_STREAM } else { 0 }, stream, piece));
    }
    frames
}

#[test]
fn content_of_one_request_may_have_the_length_of_a_dns_message() {
    let mut server = Server::opened(0);
    server.awaits_content = true;
    server.limits.request.body_bytes_max = 1_000_000;
    server.take(&[post_dns(1), content_of(1, 65_535)].concat());
    assert_eq!((server.heads.len(), server.errors.len()), (1, 0));
    server.take(&[post_dns(3), content_of(3, 65_536)].concat());
    assert_eq!((server.heads.len(), &server.errors[..]), (1, &[RequestError::BodyTooLarge][..]));
    server.limits.request.body_bytes_max = 1_000;
    server.take(&[post_dns(5), content_of(5, 1_001)].concat());
    assert_eq!((server.heads.len(), server.errors.len()), (1, 2));
}

#[test]
fn content_of_all_requests_together_is_limited() {
    let mut server = Server::opened(0);
    server.awaits_content = true;
    let content = vec![0; server.limits.kept_request_bytes_max / 4];
    let of_stream = |stream: u32| [post_dns(stream), frame(DATA, 0, stream, &content)].concat();
    assert_eq!(kinds(&server.take(&[of_stream(5), of_stream(7), of_stream(9)].concat())), [WINDOW_UPDATE]);
    // The client may repeat it.
    let sent = server.take(&of_stream(11));
    let reset = sent.last().expect("RST_STREAM");
    assert_eq!((reset.kind, reset.stream, reset.code()), (RST_STREAM, 11, REFUSED_STREAM));
    assert_eq!(server.exceeded, [ExceededLimit::KeptRequestBytes]);
    // Beside one that is longer than the limit there is no other.
    let mut server = Server::opened(0);
    server.awaits_content = true;
    server.take(&[post_dns(1), frame(DATA, 0, 1, &[0; 16_000]).repeat(4), frame(DATA, 0, 1, &[0; 1_500])].concat());
    let sent = server.take(&post_dns(3));
    assert_eq!((kinds(&sent), sent[0].code()), (vec![RST_STREAM], REFUSED_STREAM));
}

#[test]
fn a_client_that_does_not_end_its_request_after_the_response_is_asked_to() {
    let post = |stream: u32| {
        let fields = [&START[..], &[("content-length", "1000000")]].concat();
        frame(HEADERS, END_HEADERS, stream, &block(&fields))
    };
    let mut server = Server::opened(0);
    assert_eq!(kinds(&server.take(&[post(1), post(3)].concat())), [HEADERS, HEADERS]);
    let sent = server.end_oldest_partial();
    assert_eq!((sent[0].kind, sent[0].stream, sent[0].code()), (RST_STREAM, 1, 0));
    // As soon as their number would be too large.
    server.limits.streams_max = 2;
    assert_eq!(kinds(&server.take(&post(5))), [HEADERS]);
    let sent = server.take(&post(7));
    assert_eq!((kinds(&sent), sent[0].stream, sent[0].code()), (vec![RST_STREAM, HEADERS], 3, 0));
    // Such streams do not delay a shutdown.
    server.session.finish_shutdown(&mut vec![]);
    assert!(server.session.is_finished());
}

#[test]
fn a_client_that_waits_to_send_content_that_is_awaited_may_continue() {
    let fields = [&[(":method", "POST")], &START[1..], &[("expect", "100-continue")]].concat();
    let mut server = Server::opened(0);
    server.awaits_content = true;
    let sent = server.take(&frame(HEADERS, END_HEADERS, 1, &block(&fields)));
    // The status 100, after the change of the table's size, which is sent once.
    assert_eq!((sent[0].flags, &sent[0].payload[..]), (END_HEADERS, &b"\x20\x08\x03100"[..]));
    let sent = server.take(&frame(DATA, END_STREAM, 1, b"query"));
    assert_eq!((sent[0].flags, sent[0].payload[0]), (END_STREAM | END_HEADERS, 0x88));
    assert!(server.heads[0].ends_with("\r\n\r\nquery"), "{:?}", server.heads);
}

#[test]
fn frames_for_streams_that_were_reset_are_expected() {
    /// A request like `GET` that does not change the connection's table.
    const REQUEST: &[u8] = b"\x82\x86\x84\x01\x07example";
    // The client has opened as many streams as it may, all of which are reset, and as many again before it knows:
    // trailers and content of all of them are on their way.
    let mut server = Server::with_limits(1 << 20, Limits { reset_budget: 1_000, ..Limits::default() });
    server.take(&opening());
    let count = 2 * server.limits.streams_max;
    let streams = |first: u32| (first..first + count).map(|index| index * 2 + 1);
    server.limits.streams_max = 0;
    for stream in streams(0) {
        let sent = server.take(&frame(HEADERS, END_HEADERS, stream, REQUEST));
        let code = sent.first().map(Frame::code);
        assert_eq!((kinds(&sent), code), (vec![RST_STREAM], Some(REFUSED_STREAM)));
    }
    let trailers = block(&[("a", "b")]);
    for stream in streams(0) {
        let sent = [frame(DATA, 0, stream, &[0; 300]), frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers)];
        assert!(server.take(&sent.concat()).iter().all(|frame| frame.kind == WINDOW_UPDATE), "{stream}");
    }
    assert!(!server.is_closed);
    // The remembered bytes are bounded, and are counted.
    let held_bytes = server.session.held_bytes(|_| 0);
    for stream in streams(count) {
        assert_eq!(kinds(&server.take(&frame(HEADERS, END_HEADERS, stream, REQUEST))), [RST_STREAM]);
    }
    assert_eq!(server.session.held_bytes(|_| 0), held_bytes);
    let oldest = frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers);
    assert_eq!(kinds(&server.take(&oldest)), [GOAWAY]);
}

#[test]
fn requests_beyond_a_limit_are_refused_and_reported() {
    let mut server = Server::opened(1 << 20);
    server.limits.streams_max = 1;
    let sent = server.take(&[get(1), get(3), get(5)].concat());
    let refused: Vec<(u32, u32)> =
        sent.iter().filter(|frame| frame.kind == RST_STREAM).map(|frame| (frame.stream, frame.code())).collect();
    assert_eq!((refused, server.exceeded), (vec![(3, 7), (5, 7)], vec![ExceededLimit::Streams; 2]));
}

#[test]
fn violations_end_the_connection() {
    check_error(PROTOCOL_ERROR, &frame(DATA, 0, 1, b"x"));
    check_error(PROTOCOL_ERROR, &frame(DATA, 0, 0, b"x"));
    check_error(PROTOCOL_ERROR, &frame(HEADERS, END_HEADERS, 0, GET));
    check_error(PROTOCOL_ERROR, &frame(HEADERS, END_HEADERS, 2, GET));
    check_error(PROTOCOL_ERROR, &frame(HEADERS, END_HEADERS | PADDED, 1, &[9, 0]));
    check_error(PROTOCOL_ERROR, &frame(CONTINUATION, END_HEADERS, 1, GET));
    check_error(PROTOCOL_ERROR, &[frame(HEADERS, 0, 1, GET), frame(PING, 0, 0, &[0; 8])].concat());
    check_error(PROTOCOL_ERROR, &[frame(HEADERS, 0, 1, GET), frame(CONTINUATION, 4, 3, &[])].concat());
    check_error(PROTOCOL_ERROR, &frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0]));
    check_error(PROTOCOL_ERROR, &frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\0u=1"));
    check_error(PROTOCOL_ERROR, &frame(5, END_HEADERS, 1, &[0, 0, 0, 2]));
    check_error(PROTOCOL_ERROR, &frame(RST_STREAM, 0, 1, &[0; 4]));
    check_error(PROTOCOL_ERROR, &frame(WINDOW_UPDATE, 0, 0, &[0; 4]));
    check_error(PROTOCOL_ERROR, &frame(WINDOW_UPDATE, 0, 7, &[0, 0, 0, 1]));
    check_error(PROTOCOL_ERROR, &frame(SETTINGS, 0, 0, &setting(2, 2)));
    check_error(PROTOCOL_ERROR, &frame(SETTINGS, 0, 0, &setting(5, 16_383)));
    // RFC 9218 §2.1: 0 or 1, and no change after the first frame, which had none.
    check_error(PROTOCOL_ERROR, &frame(SETTINGS, 0, 0, &setting(9, 2)));
    check_error(PROTOCOL_ERROR, &frame(SETTINGS, 0, 0, &setting(9, 1)));
    check_error(PROTOCOL_ERROR, &frame(SETTINGS, 0, 1, &[]));
    check_error(FLOW_CONTROL_ERROR, &frame(SETTINGS, 0, 0, &setting(4, 1 << 31)));
    check_error(FLOW_CONTROL_ERROR, &frame(WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]));
    check_error(FRAME_SIZE_ERROR, &frame(SETTINGS, 0, 0, &[0; 5]));
    check_error(FRAME_SIZE_ERROR, &frame(SETTINGS, ACK, 0, &[0; 6]));
    check_error(FRAME_SIZE_ERROR, &frame(PING, 0, 0, &[0; 7]));
    check_error(FRAME_SIZE_ERROR, &frame(DATA, 0, 1, &[0; 16_385]));
    check_error(COMPRESSION_ERROR, &frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff]));
    check_error(STREAM_CLOSED, &[get(1), frame(DATA, 0, 1, b"x")].concat());
    check_error(STREAM_CLOSED, &[get(1), get(1)].concat());
    let mut server = Server::new(0);
    assert_eq!(server.take(b"GET / HTTP/1.1\r\n\r\n")[0].code(), PROTOCOL_ERROR);
    let mut server = Server::new(0);
    assert_eq!(server.take(&[PREFACE, &get(1)].concat()).last().map(Frame::code), Some(PROTOCOL_ERROR));
}

fn kinds(frames: &[Frame]) -> Vec<u8> {
    frames.iter().map(|frame| frame.kind).collect()
}

/// The content of DATA frames, as (stream, bytes, is_end).
fn content(frames: &[Frame]) -> Vec<(u32, usize, bool)> {
    let data = frames.iter().filter(|frame| frame.kind == DATA);
    data.map(|frame| (frame.stream, frame.payload.len(), frame.flags == END_STREAM)).collect()
}

#[test]
fn content_keeps_within_both_windows() {
    let mut server = Server::opened(40_000);
    server.take(&frame(SETTINGS, 0, 0, &setting(4, 20_000)));
    let first = server.take(&get(1));
    assert_eq!(content(&first), [(1, DATA_BYTES_MAX, false), (1, 20_000 - DATA_BYTES_MAX, false)]);
    assert_eq!(server.session.activity(), Activity::Answering);
    // A smaller initial window makes the stream's window negative (RFC 9113 §6.9.2).
    assert_eq!(content(&server.take(&frame(SETTINGS, 0, 0, &setting(4, 10_000)))), []);
    assert_eq!(content(&server.take(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0x27, 0x10]))), []);
    assert_eq!(content(&server.take(&frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 7]))), [(1, 7, false)]);
    let rest = server.take(&frame(WINDOW_UPDATE, 0, 1, &[0, 1, 0, 0]));
    assert_eq!(content(&rest), [(1, DATA_BYTES_MAX, false), (1, 40_000 - 20_007 - DATA_BYTES_MAX, true)]);
    assert_eq!(server.session.activity(), Activity::Idle);
    // 25,535 bytes are left to the connection.
    server.take(&frame(SETTINGS, 0, 0, &setting(4, 65_535)));
    assert_eq!(content(&server.take(&get(3))), [(3, DATA_BYTES_MAX, false), (3, 25_535 - DATA_BYTES_MAX, false)]);
}

#[test]
fn priorities_of_the_first_settings_may_be_repeated() {
    for value in [0, 1] {
        let settings = frame(SETTINGS, 0, 0, &setting(9, value));
        let mut server = Server::new(0);
        server.take(&[PREFACE, &settings, &settings].concat());
        assert!(!server.is_closed);
        let sent = server.take(&frame(SETTINGS, 0, 0, &setting(9, 1 - value)));
        assert_eq!(sent.last().map(Frame::code), Some(PROTOCOL_ERROR));
    }
}

#[test]
fn too_many_settings_are_too_many_control_frames() {
    let mut server = Server::opened(0);
    server.take(&frame(SETTINGS, 0, 0, &setting(0xf0, 0).repeat(33)));
    assert_eq!(server.exceeded, [ExceededLimit::ControlFrames]);
}

#[test]
fn the_latest_priority_of_a_stream_may_arrive_before_its_request() {
    let update = |stream: u32, value: &str| {
        frame(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], value.as_bytes()].concat())
    };
    let mut server = Server::opened(DATA_BYTES_MAX + 1);
    let updates = [update(5, "u=7"), update(3, "u=6"), update(5, "u=0"), update(9, "u=0"), update(9, "u=5")].concat();
    let requests = [1, 3, 5, 7, 9].map(get).concat();
    server.take(&frame(SETTINGS, 0, 0, &setting(4, 0)));
    server.take(&[updates, requests].concat());
    let sent = server.take(&frame(SETTINGS, 0, 0, &setting(4, 1)));
    let order: Vec<u32> = content(&sent).iter().map(|(stream, ..)| *stream).collect();
    assert_eq!(order, [5, 1, 7, 9, 3]);
    // Many are not kept, and the latest are.
    let mut server = Server::opened(1);
    server.take(&frame(SETTINGS, 0, 0, &setting(4, 0)));
    server.take(&(0..500).flat_map(|index| update(index * 2 + 1, "u=1")).collect::<Vec<u8>>());
    assert!(server.session.held_bytes(|_| 0) < 1_024);
    server.take(&[get(1), get(999)].concat());
    let sent = server.take(&frame(SETTINGS, 0, 0, &setting(4, 1)));
    assert_eq!(content(&sent).iter().map(|(stream, ..)| *stream).collect::<Vec<u32>>(), [999, 1]);
}

#[test]
fn urgent_responses_are_sent_first() {
    let with_priority = |stream: u32, value: &str| {
        let fields = [&START[..], &[("priority", value)]].concat();
        frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(&fields))
    };
    let mut server = Server::opened(DATA_BYTES_MAX + 1);
    server.take(&frame(SETTINGS, 0, 0, &setting(4, 0)));
    let requests = [with_priority(1, "u=5"), with_priority(3, "i"), with_priority(5, "i"), with_priority(7, "u=0")];
    assert_eq!(content(&server.take(&requests.concat())), []);
    // RFC 9218 §7.1: the client changes its mind.
    server.take(&frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1"));
    let order: Vec<u32> =
        content(&server.take(&frame(SETTINGS, 0, 0, &setting(4, 65_535)))).iter().map(|(stream, ..)| *stream).collect();
    assert_eq!(order, [7, 7, 1, 1, 3, 5, 3, 5]);
}

#[test]
fn graceful_shutdown_serves_what_the_client_had_sent() {
    let mut server = Server::opened(100_000);
    server.take(&get(1));
    let mut out = vec![];
    server.session.begin_shutdown(&mut out);
    assert_eq!(frames(&out)[0].payload, [0x7f, 255, 255, 255, 0, 0, 0, 0]);
    server.take(&get(3));
    out.clear();
    server.session.finish_shutdown(&mut out);
    assert_eq!(frames(&out)[0].payload, [0, 0, 0, 3, 0, 0, 0, 0]);
    // Ignored: the client repeats it on another connection.
    assert_eq!(server.take(&get(5)), []);
    let window = [0, 1, 0x86, 0xa0];
    let sent = server.take(&[frame(WINDOW_UPDATE, 0, 1, &window), frame(WINDOW_UPDATE, 0, 3, &window)].concat());
    assert!(sent.is_empty() && !server.is_closed);
    let sent = server.take(&frame(WINDOW_UPDATE, 0, 0, &[0, 4, 0, 0]));
    assert_eq!(content(&sent).iter().filter(|(.., is_end)| *is_end).count(), 2);
    assert!(server.is_closed);
}

#[test]
fn a_client_that_leaves_gets_its_answers() {
    let mut server = Server::opened(100_000);
    server.take(&[get(1), frame(GOAWAY, 0, 0, &[0; 8])].concat());
    assert!(!server.is_closed);
    let window = [0, 1, 0x86, 0xa0];
    server.take(&[frame(WINDOW_UPDATE, 0, 1, &window), frame(WINDOW_UPDATE, 0, 0, &window)].concat());
    assert!(server.is_closed);
}

#[test]
fn parked_requests_are_answered_later() {
    let mut server = Server::opened(5);
    server.is_slow = true;
    assert_eq!(server.take(&[get(1), get(3)].concat()), []);
    assert_eq!(server.session.activity(), Activity::Answering);
    server.take(&frame(RST_STREAM, 0, 1, &[0; 4]));
    let sent = server.resume();
    assert_eq!(content(&sent), [(3, 5, true)]);
    assert_eq!(server.heads.last().map(String::as_str), Some("GET / HTTP/1.1\r\nhost: example\r\n\r\n"));
}

#[test]
fn frames_in_single_bytes_are_the_same_frames() {
    let bytes = [opening(), get(1), frame(PING, 0, 0, b"12345678"), get(3)].concat();
    let whole = Server::new(20).take(&bytes);
    let mut server = Server::new(20);
    let pieces: Vec<Frame> = bytes.iter().flat_map(|byte| server.take(&[*byte])).collect();
    assert_eq!(pieces, whole);
}
