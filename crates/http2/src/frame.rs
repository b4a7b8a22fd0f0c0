//! Frames of RFC 9113 §4 and §6: their headers, and the frames that a server sends.

use alloc::vec::Vec;

/// Bytes of a frame header.
pub(crate) const HEADER_BYTES: usize = 9;
/// The longest payload that a client may send: the default of SETTINGS_MAX_FRAME_SIZE. Every client accepts as much.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16_384;
/// The largest window and stream identifier.
pub(crate) const U31_MAX: u32 = u32::MAX >> 1;

/// The preface of a client (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
    /// RFC 9218 §7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 16;
}

/// Flags of frames.
pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// Settings (RFC 9113 §6.5.2).
pub(crate) mod setting {
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// RFC 9218 §2.1.
    pub(crate) const NO_RFC7540_PRIORITIES: u16 = 9;
    /// RFC 8441 §3.
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// The reason why a stream or a connection ends (RFC 9113 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// No error: a graceful shutdown.
    NoError = 0,
    /// The client breaks the protocol.
    ProtocolError = 1,
    /// The server cannot continue.
    InternalError = 2,
    /// The client sends more than its window.
    FlowControlError = 3,
    /// The client uses a stream that it has closed.
    StreamClosed = 5,
    /// A frame has an invalid size.
    FrameSizeError = 6,
    /// Too many streams: the client may repeat the request.
    RefusedStream = 7,
    /// A header block is invalid.
    CompressionError = 9,
    /// The client causes too much work.
    EnhanceYourCalm = 11,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameHeader {
    pub(crate) payload_bytes: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// Parses the header at the start of `bytes`; `None` if it is incomplete.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<FrameHeader> {
        let &[length_high, length_middle, length_low, kind, flags, stream @ ..] =
            bytes.first_chunk::<HEADER_BYTES>()?;
        Some(FrameHeader {
            payload_bytes: u32::from_be_bytes([0, length_high, length_middle, length_low]) as usize,
            kind,
            flags,
            // RFC 9113 §4.1: the first bit is reserved.
            stream: u32::from_be_bytes(stream) & U31_MAX,
        })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A frame header as bytes.
#[inline]
pub(crate) fn header(payload_bytes: usize, kind: u8, flags: u8, stream: u32) -> [u8; HEADER_BYTES] {
    let [_, high, middle, low] = (payload_bytes as u32).to_be_bytes();
    let [a, b, c, d] = stream.to_be_bytes();
    [high, middle, low, kind, flags, a, b, c, d]
}

/// The 32-bit number at the start of `bytes`, which the caller knows to be there.
pub(crate) fn u32_at_start(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |number| u32::from_be_bytes(*number))
}

pub(crate) fn put_settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    out.extend_from_slice(&header(settings.len() * 6, kind::SETTINGS, 0, 0));
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(crate) fn put_settings_ack(out: &mut Vec<u8>) {
    out.extend_from_slice(&header(0, kind::SETTINGS, flag::ACK, 0));
}

pub(crate) fn put_ping_ack(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&header(payload.len(), kind::PING, flag::ACK, 0));
    out.extend_from_slice(payload);
}

pub(crate) fn put_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(4, kind::WINDOW_UPDATE, 0, stream));
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(crate) fn put_reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(4, kind::RST_STREAM, 0, stream));
    out.extend_from_slice(&(code as u32).to_be_bytes());
}

pub(crate) fn put_goaway(last_stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    out.extend_from_slice(&header(8, kind::GOAWAY, 0, 0));
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&(code as u32).to_be_bytes());
}
