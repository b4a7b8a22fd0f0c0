//! Frames of a client (RFC 9113 §6), some of which are wrong.

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Fields of a request but its method, for `/large` of `localhost`.
const FIELDS: &[u8] = b"\x87\x41\x09localhost\x04\x06/large";
const GET: &[u8] = b"\x82";
const POST: &[u8] = b"\x83";
const CONTENT_LENGTH_1: &[u8] = b"\x0f\x0d\x011";

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request whose response has much content.
pub(super) fn get(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &[GET, FIELDS].concat())
}

/// A request whose content follows.
pub(super) fn post(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, END_HEADERS, stream, &[POST, FIELDS].concat())
}

/// A request that announces content, and has none.
pub(super) fn empty_with_length(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, &[POST, FIELDS, CONTENT_LENGTH_1].concat())
}

/// A header block that decodes to 48 MB: a name of 4,000 bytes, inserted into the table, and references to it.
pub(super) fn references() -> Vec<u8> {
    [&b"\x40\x7f\xa1\x1e"[..], &[b'x'; 4_000], b"\x00", &[0xbe; 12_000]].concat()
}

pub(super) fn reset(stream: u32) -> Vec<u8> {
    const CANCEL: u32 = 8;
    frame(kind::RST_STREAM, 0, stream, &CANCEL.to_be_bytes())
}

pub(super) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}
