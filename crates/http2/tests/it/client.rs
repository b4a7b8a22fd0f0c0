//! The client's side: frames of a server become a response, and what breaks the protocol a fault. A session of this
//! crate is the server in some tests.

use crate::support::*;
use sanderling_http::Scheme;
use sanderling_http2::{Arrived, ClientFault, ClientSession, ErrorCode, RESPONSE_WINDOW_BYTES, Scratch};

const HEAD: &[u8] = b"GET /a HTTP/1.1\r\nHost: example.com\r\nTE: trailers\r\n\r\n";
/// `:status: 200` (RFC 7541 Appendix A).
const OK: &[u8] = b"\x88";
const INITIAL_WINDOW: usize = 65_535;

/// A client that has sent a request, and what it has received.
struct Client {
    session: ClientSession,
    scratch: Scratch,
    out: Vec<u8>,
    seen: Vec<String>,
}

impl Client {
    fn new(head: &[u8], is_last: bool) -> Client {
        let (mut session, mut out) = (ClientSession::new(), vec![]);
        session.begin(head, Scheme::Http, is_last, &mut out);
        Client { session, scratch: Scratch::default(), out, seen: vec![] }
    }

    fn receive(&mut self, mut bytes: &[u8]) -> Result<(), ClientFault> {
        loop {
            let (taken, arrived) = self.session.receive(bytes, &mut self.scratch, &mut self.out)?;
            bytes = &bytes[taken..];
            let Some(seen) = shown(arrived, &self.scratch) else { return Ok(()) };
            self.seen.push(seen);
        }
    }

    /// The frames that it has sent.
    fn sent(&mut self) -> Vec<Frame> {
        let out = std::mem::take(&mut self.out);
        frames(out.strip_prefix(PREFACE).unwrap_or(&out))
    }
}

/// `None` for the rest of a frame.
fn shown(arrived: Arrived<'_>, scratch: &Scratch) -> Option<String> {
    let text = scratch.head.escape_ascii();
    match arrived {
        Arrived::Partial => None,
        Arrived::Head { is_last } => Some(format!("head {is_last} {text}")),
        Arrived::Content { content, is_last } => Some(format!("content {is_last} {}", content.escape_ascii())),
        Arrived::Trailers => Some(format!("trailers {text}")),
    }
}

fn settings() -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[])
}

/// A header block of literal fields.
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![];
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn headers(flags: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, block)
}

/// What the client sees of these frames after the settings, or the fault.
#[track_caller]
fn check(sent: &[Vec<u8>], expected: Result<&[&str], ClientFault>) {
    let bytes = [&settings()[..], &sent.concat()].concat();
    for step in [bytes.len(), 1, 7] {
        let mut client = Client::new(HEAD, true);
        // A caller keeps the rest of a frame.
        let (mut kept, mut result) = (vec![], Ok(()));
        for piece in bytes.chunks(step) {
            kept.extend_from_slice(piece);
            while result.is_ok() {
                let (taken, arrived) = match client.session.receive(&kept, &mut client.scratch, &mut client.out) {
                    Ok(received) => received,
                    Err(fault) => {
                        result = Err(fault);
                        break;
                    }
                };
                let seen = shown(arrived, &client.scratch);
                kept.drain(..taken);
                let Some(seen) = seen else { break };
                client.seen.push(seen);
            }
        }
        match &expected {
            Ok(expected) => {
                let seen: Vec<&str> = client.seen.iter().map(String::as_str).collect();
                assert_eq!((&seen[..], result), (*expected, Ok(())));
            }
            Err(fault) => assert_eq!(result, Err(*fault), "{:?}", client.seen),
        }
    }
}

const SEEN_OK: &str = "head false HTTP/1.1 200 \\r\\n\\r\\n";

#[test]
fn server_of_this_crate_understands_the_requests() {
    let mut client = Client::new(HEAD, true);
    let mut server = Server::new(5);
    let answer = server.take_bytes(&client.out);
    assert_eq!(server.heads, ["GET /a HTTP/1.1\r\nhost: example.com\r\nte: trailers\r\n\r\n"]);
    client.receive(&answer).expect("a response");
    assert!(client.seen[0].starts_with("head false HTTP/1.1 200 "), "{:?}", client.seen);
    assert_eq!(client.seen[1], "content true xxxxx");
    assert!(client.session.can_begin());
    client.out.clear();
    client.session.begin(b"HEAD /b HTTP/1.1\r\nHost: a\r\n\r\n", Scheme::Http, true, &mut client.out);
    server.take_bytes(&client.out);
    assert_eq!(server.heads[1], "HEAD /b HTTP/1.1\r\nhost: a\r\n\r\n");
}

#[test]
fn response_arrives_with_its_trailers() {
    let trailers = fields(&[("grpc-status", "0")]);
    check(&[headers(END_STREAM, 1, OK)], Ok(&["head true HTTP/1.1 200 \\r\\n\\r\\n"]));
    check(
        &[headers(0, 1, OK), frame(DATA, 0, 1, b"ab"), frame(DATA, END_STREAM, 1, b"c")],
        Ok(&[SEEN_OK, "content false ab", "content true c"]),
    );
    check(
        &[headers(0, 1, OK), frame(DATA, PADDED, 1, b"\x01a\0"), headers(END_STREAM, 1, &trailers)],
        Ok(&[SEEN_OK, "content false a", "trailers grpc-status: 0\\r\\n"]),
    );
    check(
        &[
            headers(0, 1, &fields(&[(":status", "103"), ("link", "x")])),
            frame(PING, 0, 0, b"12345678"),
            headers(0, 1, &fields(&[(":status", "404")])),
            frame(DATA, END_STREAM, 1, b""),
            frame(RST_STREAM, 0, 1, &0_u32.to_be_bytes()),
            frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
        ],
        Ok(&[
            "head false HTTP/1.1 103 \\r\\nlink: x\\r\\n\\r\\n",
            "head false HTTP/1.1 404 \\r\\n\\r\\n",
            "content true ",
        ]),
    );
    let (start, rest) = (OK, fields(&[("a", "b")]));
    check(
        &[frame(HEADERS, END_STREAM, 1, start), frame(CONTINUATION, END_HEADERS, 1, &rest)],
        Ok(&["head true HTTP/1.1 200 \\r\\na: b\\r\\n\\r\\n"]),
    );
}

#[test]
fn server_that_breaks_the_protocol_is_a_fault() {
    let protocol = |code| Err(ClientFault::Protocol(code));
    let status = |fields_after: &[(&str, &str)]| {
        let mut all = vec![(":status", "200")];
        all.extend_from_slice(fields_after);
        fields(&all)
    };
    for malformed in [
        fields(&[]),
        fields(&[("a", "b"), (":status", "200")]),
        fields(&[(":status", "20")]),
        fields(&[(":status", "2000")]),
        fields(&[(":status", "+20")]),
        fields(&[(":path", "/")]),
        status(&[(":status", "200")]),
        status(&[("transfer-encoding", "chunked")]),
        status(&[("connection", "close")]),
        status(&[("Upper", "a")]),
        status(&[("a", "b\r\nc: d")]),
        status(&[("a b", "c")]),
        status(&[("content-length", "1x")]),
        status(&[("content-length", "1"), ("content-length", "2")]),
        fields(&[(":status", "101")]),
    ] {
        check(&[headers(0, 1, &malformed)], protocol(ErrorCode::ProtocolError));
    }
    check(&[headers(END_STREAM, 1, &fields(&[(":status", "100")]))], protocol(ErrorCode::ProtocolError));
    check(&[frame(DATA, 0, 1, b"a")], protocol(ErrorCode::ProtocolError));
    check(&[headers(0, 1, OK), headers(0, 1, &fields(&[("a", "b")]))], protocol(ErrorCode::ProtocolError));
    check(&[headers(0, 1, OK), headers(END_STREAM, 1, OK)], protocol(ErrorCode::ProtocolError));
    check(&[headers(0, 3, OK)], protocol(ErrorCode::StreamClosed));
    check(&[headers(END_STREAM, 1, OK), frame(DATA, 0, 1, b"a")], protocol(ErrorCode::StreamClosed));
    check(&[headers(0, 1, b"\xff\xff\xff\xff\xff\xff")], protocol(ErrorCode::CompressionError));
    check(&[frame(5, END_HEADERS, 1, b"\0\0\0\x02")], protocol(ErrorCode::ProtocolError));
    check(&[frame(HEADERS, 0, 1, OK), frame(PING, 0, 0, b"12345678")], protocol(ErrorCode::ProtocolError));
    check(&[frame(SETTINGS, 0, 0, &setting(2, 1))], protocol(ErrorCode::ProtocolError));
    check(&[frame(SETTINGS, 0, 0, b"12345")], protocol(ErrorCode::FrameSizeError));
    check(&[frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])], protocol(ErrorCode::FlowControlError));
    check(&[frame(WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1])], protocol(ErrorCode::ProtocolError));
    check(&[frame(DATA, 0, 1, &[0; 16_385])], protocol(ErrorCode::FrameSizeError));
    let endless = vec![headers(0, 1, &fields(&[(":status", "103")])); 20];
    check(&endless, Err(ClientFault::TooLong));
    let mut endless = vec![frame(HEADERS, 0, 1, OK)];
    endless.extend(vec![frame(CONTINUATION, 0, 1, b""); 20]);
    check(&endless, Err(ClientFault::TooLong));
}

#[test]
fn content_has_the_announced_length() {
    let with = |length: &str| headers(0, 1, &fields(&[(":status", "200"), ("content-length", length)]));
    let wrong = Err(ClientFault::WrongLength);
    check(&[with("2"), frame(DATA, END_STREAM, 1, b"a")], wrong);
    check(&[with("2"), frame(DATA, 0, 1, b"abc")], wrong);
    check(&[with("2"), headers(END_STREAM, 1, &fields(&[("a", "b")]))], wrong);
    check(&[headers(0, 1, &fields(&[(":status", "204")])), frame(DATA, 0, 1, b"a")], wrong);
    check(&[headers(END_STREAM, 1, &fields(&[(":status", "200"), ("content-length", "2")]))], wrong);
    let mut client = Client::new(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", true);
    client.receive(&[settings(), with("2")].concat()).expect("a head");
    assert_eq!(client.receive(&frame(DATA, 0, 1, b"ab")), wrong.map(|_: &[&str]| ()));
}

#[test]
fn reset_and_goaway_say_whether_the_request_may_be_repeated() {
    let reset = |code: u32| frame(RST_STREAM, 0, 1, &code.to_be_bytes());
    check(&[reset(7)], Err(ClientFault::NotProcessed));
    check(&[headers(0, 1, OK), reset(8)], Err(ClientFault::Reset(8)));
    check(&[frame(GOAWAY, 0, 0, &[0; 8])], Err(ClientFault::NotProcessed));
    let mut client = Client::new(HEAD, true);
    let goaway = frame(GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    client.receive(&[settings(), goaway, headers(END_STREAM, 1, OK)].concat()).expect("a response");
    assert!(!client.session.can_begin());
    let mut client = Client::new(HEAD, true);
    assert_eq!(client.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Err(ClientFault::Http1));
    assert_eq!(ClientFault::Reset(2).to_string(), "reset the request (INTERNAL_ERROR)");
}

#[test]
fn content_of_a_request_is_sent_as_far_as_the_windows_allow() {
    let mut client = Client::new(HEAD, false);
    client.receive(&settings()).expect("settings");
    let content = vec![b'x'; 100_000];
    client.sent();
    assert_eq!(client.session.put_content(&content, true, &mut client.out), INITIAL_WINDOW);
    let sent = client.sent();
    assert!(sent.iter().all(|frame| frame.kind == DATA && frame.flags == 0 && frame.payload.len() <= 16_384));
    assert_eq!(client.session.put_content(&content[INITIAL_WINDOW..], true, &mut client.out), 0);
    client.receive(&frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0])).expect("a window");
    assert_eq!(client.session.sendable_bytes(), 0);
    client.receive(&frame(SETTINGS, 0, 0, &setting(4, 200_000))).expect("a window");
    client.out.clear();
    let rest = &content[INITIAL_WINDOW..];
    assert_eq!(client.session.put_content(rest, true, &mut client.out), rest.len());
    assert_eq!(client.sent().last().map(|frame| frame.flags), Some(END_STREAM));
    assert_eq!(client.session.put_content(b"", true, &mut client.out), 0);
    assert!(client.out.is_empty());
    // An end without content is a frame of its own.
    let mut client = Client::new(HEAD, false);
    client.sent();
    client.session.put_content(b"", true, &mut client.out);
    assert_eq!(client.sent(), [Frame { kind: DATA, flags: END_STREAM, stream: 1, payload: vec![] }]);
}

#[test]
fn window_of_the_response_is_opened_as_the_caller_takes_content() {
    let mut client = Client::new(HEAD, true);
    client.receive(&[settings(), headers(0, 1, OK)].concat()).expect("a head");
    client.sent();
    let window = RESPONSE_WINDOW_BYTES as usize;
    let data = frame(DATA, 0, 1, &[0; 16_384]);
    for _ in 0..window / 16_384 {
        client.receive(&data).expect("content");
        client.session.open_window(window, &mut client.out);
    }
    // The window of the connection, not that of the stream.
    assert!(client.sent().iter().all(|frame| frame.kind == WINDOW_UPDATE && frame.stream == 0));
    let mut early = Client::new(HEAD, true);
    early.receive(&[settings(), headers(0, 1, OK)].concat()).expect("a head");
    client.session.open_window(window - 1_000, &mut client.out);
    assert!(client.out.is_empty(), "a small step is not worth a frame");
    client.session.open_window(window / 2, &mut client.out);
    let sent = client.sent();
    let half = (RESPONSE_WINDOW_BYTES / 2).to_be_bytes().to_vec();
    assert_eq!(sent, [Frame { kind: WINDOW_UPDATE, flags: 0, stream: 1, payload: half }]);
    for _ in 0..window / 2 / 16_384 {
        client.receive(&data).expect("content");
    }
    assert_eq!(client.receive(&frame(DATA, 0, 1, b"a")), Err(ClientFault::Protocol(ErrorCode::FlowControlError)));
}
