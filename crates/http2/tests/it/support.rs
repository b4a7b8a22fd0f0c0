//! A server that answers each request, and frames as a client sends and receives them.

use sanderling_http::Scheme;
use sanderling_http2::{
    Content, DATA_BYTES_MAX, ExceededLimit, Exchange, Limits, PartialEnd, Received, Request, Scratch, Session,
};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// GET http://example/ as a header block.
pub(crate) const GET: &[u8] = b"\x82\x86\x84\x41\x07example";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 16;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

/// A frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A request without content.
pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, GET)
}

/// A setting.
pub(crate) fn setting(name: u16, value: u32) -> Vec<u8> {
    [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// The first bytes from a client.
pub(crate) fn opening() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, ACK, 0, &[])].concat()
}

/// A received frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error code of RST_STREAM or GOAWAY.
    pub(crate) fn code(&self) -> u32 {
        let start = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[start..start + 4].try_into().expect("a code"))
    }
}

/// Divides `bytes` into frames.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = vec![];
    while let Some((header, rest)) = bytes.split_at_checked(9) {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let stream = u32::from_be_bytes(header[5..9].try_into().expect("four bytes"));
        frames.push(Frame { kind: header[3], flags: header[4], stream, payload: rest[..length].to_vec() });
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "half a frame: {bytes:?}");
    frames
}

/// A server that answers each request with `content_bytes` bytes, and remembers their heads.
pub(crate) struct Server {
    pub(crate) session: Session<u8>,
    pub(crate) limits: Limits,
    pub(crate) content_bytes: usize,
    /// The content of requests is awaited.
    pub(crate) awaits_content: bool,
    /// Requests are parked instead.
    pub(crate) is_slow: bool,
    pub(crate) heads: Vec<String>,
    pub(crate) errors: Vec<sanderling_http::RequestError>,
    pub(crate) exceeded: Vec<ExceededLimit>,
    pub(crate) parked: Vec<u32>,
    scratch: Scratch,
    input: Vec<u8>,
    pub(crate) is_closed: bool,
}

impl Server {
    pub(crate) fn new(content_bytes: usize) -> Server {
        Server::with_limits(content_bytes, Limits::default())
    }

    pub(crate) fn with_limits(content_bytes: usize, limits: Limits) -> Server {
        Server {
            session: Session::new(&limits, Scheme::Http),
            limits,
            content_bytes,
            awaits_content: false,
            is_slow: false,
            heads: vec![],
            errors: vec![],
            exceeded: vec![],
            parked: vec![],
            scratch: Scratch::default(),
            input: vec![],
            is_closed: false,
        }
    }

    /// A connection whose client has sent what it sends first.
    pub(crate) fn opened(content_bytes: usize) -> Server {
        let mut server = Server::new(content_bytes);
        let kinds: Vec<u8> = server.take(&opening()).iter().map(|frame| frame.kind).collect();
        assert_eq!(kinds, [SETTINGS, SETTINGS]);
        server
    }

    /// Takes what the client sends; returns what the server sends.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Frame> {
        frames(&self.take_bytes(bytes))
    }

    pub(crate) fn take_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        self.input.extend_from_slice(bytes);
        let mut consumed = 0;
        loop {
            let mut exchange = Exchange { limits: &self.limits, scratch: &mut self.scratch, out: &mut out };
            let (taken, received) = self.session.receive(&self.input[consumed..], &mut exchange);
            consumed += taken;
            match received {
                Received::Request(request) if self.awaits_content && request.has_content() => {
                    let awaited = self.session.await_content(request, &self.scratch.head, &self.limits, &mut out);
                    if let Err(Received::Refused(limit)) = awaited {
                        self.exceeded.push(limit);
                    }
                }
                Received::Request(request) | Received::Content(request) => self.answer(request, &mut out),
                Received::Refused(limit) => self.exceeded.push(limit),
                Received::Closed(limit) => {
                    self.exceeded.extend(limit);
                    self.is_closed = true;
                    break;
                }
                Received::Partial => break,
                // Of a parked request: it stays in the session.
                Received::Passed(_) => {}
            }
        }
        self.input.drain(..consumed);
        self.send(&mut out);
        self.is_closed |= self.session.is_finished();
        out
    }

    fn answer(&mut self, request: Request, out: &mut Vec<u8>) {
        self.errors.extend(request.error());
        if request.error().is_none() {
            self.heads.push(String::from_utf8_lossy(&self.scratch.head).into_owned());
        }
        if self.is_slow {
            self.parked.push(request.stream());
            return self.session.park(request, &self.scratch.head.clone());
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", self.content_bytes);
        let content = vec![b'x'; self.content_bytes];
        let content = match self.content_bytes {
            0 => Content::Empty,
            length if self.session.has_room_for(&request, length as u64) => Content::Bytes(&content),
            length => Content::Later { body: b'x', length_bytes: Some(length as u64) },
        };
        self.session.answer(request, head.as_bytes(), content, &self.limits, out);
    }

    fn send(&mut self, out: &mut Vec<u8>) {
        while let Some(mut frame) = self.session.next_data(DATA_BYTES_MAX, &self.limits, out) {
            let (byte, room) = frame.parts();
            room.fill(*byte);
            let length = room.len();
            frame.finish(length);
        }
    }

    /// Ends the reception of a request.
    pub(crate) fn end_oldest_partial(&mut self) -> Vec<Frame> {
        let mut out = vec![];
        let mut exchange = Exchange { limits: &self.limits, scratch: &mut self.scratch, out: &mut out };
        if let PartialEnd::Request(request) = self.session.end_oldest_partial(&mut exchange) {
            self.answer(request, &mut out);
        }
        frames(&out)
    }

    /// Ends the work on the parked requests and answers them.
    pub(crate) fn resume(&mut self) -> Vec<Frame> {
        self.is_slow = false;
        let mut out = vec![];
        for stream in std::mem::take(&mut self.parked) {
            if let Some(request) = self.session.resume(stream, &mut self.scratch) {
                self.answer(request, &mut out);
            }
        }
        self.send(&mut out);
        frames(&out)
    }
}
