//! Frames of RFC 9113 §4 and §6: their headers, and the frames that both sides send.

use alloc::vec::Vec;

/// Bytes of a frame header.
pub(crate) const HEADER_BYTES: usize = 9;
/// The longest payload that a client may send: the default of SETTINGS_MAX_FRAME_SIZE. Every client accepts as much.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 16_384;
/// The windows of a connection at its start (RFC 9113 §6.9.2).
pub(crate) const INITIAL_WINDOW: u32 = 65_535;
/// Content of one DATA frame: with its header, the frame is one TLS record.
pub const DATA_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - HEADER_BYTES;
/// Settings of one frame. RFC 9113 knows six.
pub(crate) const SETTINGS_MAX: usize = 32;
/// Bytes of one of them.
pub(crate) const SETTING_BYTES: usize = 6;
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

/// The name of an error code (RFC 9113 §7).
pub(crate) fn error_name(code: u32) -> &'static str {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    NAMES.get(code as usize).copied().unwrap_or("an unknown error")
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

    /// Checks stream and size of a frame that is neither HEADERS nor DATA.
    #[inline]
    pub(crate) fn check_control(&self) -> Result<(), ErrorCode> {
        let is_of_connection = matches!(self.kind, kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE);
        let is_of_stream = matches!(self.kind, kind::PRIORITY | kind::RST_STREAM);
        if (is_of_connection && self.stream != 0) || (is_of_stream && self.stream == 0) {
            return Err(ErrorCode::ProtocolError);
        }
        let is_valid_size = match self.kind {
            kind::SETTINGS if self.has(flag::ACK) => self.payload_bytes == 0,
            kind::SETTINGS => self.payload_bytes.is_multiple_of(SETTING_BYTES),
            kind::PRIORITY => self.payload_bytes == 5,
            kind::RST_STREAM | kind::WINDOW_UPDATE => self.payload_bytes == 4,
            kind::PRIORITY_UPDATE => self.payload_bytes >= 4,
            kind::PING => self.payload_bytes == 8,
            kind::GOAWAY => self.payload_bytes >= 8,
            _ => true,
        };
        if is_valid_size { Ok(()) } else { Err(ErrorCode::FrameSizeError) }
    }

    /// The payload of a DATA or HEADERS frame without its padding (RFC 9113 §6.1).
    #[inline]
    pub(crate) fn without_padding<'p>(&self, payload: &'p [u8]) -> Result<&'p [u8], ErrorCode> {
        if self.stream == 0 {
            return Err(ErrorCode::ProtocolError);
        }
        if !self.has(flag::PADDED) {
            return Ok(payload);
        }
        let (&padding_bytes, rest) = payload.split_first().ok_or(ErrorCode::FrameSizeError)?;
        let content_bytes = rest.len().checked_sub(usize::from(padding_bytes)).ok_or(ErrorCode::ProtocolError)?;
        Ok(&rest[..content_bytes])
    }

    /// The header block of a HEADERS frame, without the deprecated priority, which is ignored except for the error of
    /// RFC 7540 §5.3.1.
    #[inline]
    pub(crate) fn header_block<'p>(&self, payload: &'p [u8]) -> Result<&'p [u8], ErrorCode> {
        let bytes = self.without_padding(payload)?;
        if !self.has(flag::PRIORITY) {
            return Ok(bytes);
        }
        let (dependency, rest) = bytes.split_at_checked(5).ok_or(ErrorCode::FrameSizeError)?;
        if u32_at_start(dependency) & U31_MAX == self.stream { Err(ErrorCode::ProtocolError) } else { Ok(rest) }
    }
}

/// RFC 9113 §6.9.1.
#[inline]
pub(crate) fn check_window(window: i64) -> Result<(), ErrorCode> {
    if window > i64::from(U31_MAX) { Err(ErrorCode::FlowControlError) } else { Ok(()) }
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

/// Writes the frame header at `start` before the header block at the end of `out`, and divides a block that is too long
/// for one frame (RFC 9113 §4.3).
#[inline]
pub(crate) fn finish_block(start: usize, id: u32, is_end: bool, out: &mut Vec<u8>) {
    let block_bytes = out.len() - start - HEADER_BYTES;
    let end_stream = if is_end { flag::END_STREAM } else { 0 };
    if block_bytes <= PAYLOAD_BYTES_MAX {
        let header = header(block_bytes, kind::HEADERS, flag::END_HEADERS | end_stream, id);
        return out[start..start + HEADER_BYTES].copy_from_slice(&header);
    }
    let block = out.split_off(start + HEADER_BYTES);
    out.truncate(start);
    let mut pieces = block.chunks(PAYLOAD_BYTES_MAX).peekable();
    let (mut kind, mut flags) = (kind::HEADERS, end_stream);
    while let Some(piece) = pieces.next() {
        flags |= if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
        out.extend_from_slice(&header(piece.len(), kind, flags, id));
        out.extend_from_slice(piece);
        (kind, flags) = (kind::CONTINUATION, 0);
    }
}
