//! The client's side of a connection, which has one request at a time: a request becomes frames, and received frames
//! become its response.
//!
//! After a fault the connection closes, so that there is no state between a request that has failed and the next one.

mod request_block;
mod response_block;

use alloc::boxed::Box;
use alloc::vec::Vec;

use sanderling_http::{ResponseLimits, Scheme};

use crate::frame::{
    self, DATA_BYTES_MAX, ErrorCode, FrameHeader, HEADER_BYTES, INITIAL_WINDOW, PAYLOAD_BYTES_MAX, PREFACE,
    SETTING_BYTES, SETTINGS_MAX, U31_MAX, check_window, flag, kind, setting,
};
use crate::hpack::Decoder;
use crate::request_head::{BlockError, Scratch};

/// Content of a response that the server may send before the caller has taken it.
pub const RESPONSE_WINDOW_BYTES: u32 = 128 * 1024;
/// A window is opened by at least as much, so that a small piece of content is not answered by a frame.
const WINDOW_UPDATE_BYTES_MIN: u32 = RESPONSE_WINDOW_BYTES / 2;
/// Bytes of an encoded header block, which decodes to a head within [`ResponseLimits`].
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// CONTINUATION frames of one header block.
const CONTINUATIONS_MAX: u8 = 16;
/// Interim responses to one request.
const INTERIM_COUNT_MAX: u8 = 16;

/// The client's side of a connection.
#[derive(Debug)]
pub struct ClientSession {
    decoder: Decoder,
    phase: Phase,
    /// A header block that has arrived in part.
    block: Option<Box<PartialBlock>>,
    /// The current request, until its response has ended.
    stream: Option<ClientStream>,
    last_stream: u32,
    /// Content that the server takes on all streams together, and on a new one.
    send_window: i64,
    new_stream_window: u32,
    /// Content that the server may still send.
    receive_window: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was sent.
    New,
    /// The first SETTINGS frame of the server has not arrived.
    FirstSettings,
    Open,
    /// The server takes no further request.
    Leaving,
}

#[derive(Debug)]
struct PartialBlock {
    header: FrameHeader,
    bytes: Vec<u8>,
    continuation_count: u8,
}

/// The current request.
#[derive(Debug)]
struct ClientStream {
    id: u32,
    send_window: i64,
    receive_window: u32,
    is_request_ended: bool,
    is_head_request: bool,
    response: ResponseState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseState {
    /// The head has not arrived, but so many of interim responses.
    Head { interim_count: u8 },
    /// Content, or trailers. The bytes that are left of it, if its length is known.
    Content { left_bytes: Option<u64> },
}

/// A part of a response that has arrived ([`ClientSession::receive`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<'i> {
    /// The rest of a frame is missing, or there is no input.
    Partial,
    /// The head of a response is in [`Scratch::head`], in the form of HTTP/1.1. That of an interim response is followed
    /// by another head.
    Head {
        /// The response has no content and no trailers.
        is_last: bool,
    },
    /// Content of the response.
    Content {
        /// The content.
        content: &'i [u8],
        /// The response has ended with it.
        is_last: bool,
    },
    /// The response has ended with trailers, which are in [`Scratch::head`]: lines in the form of HTTP/1.1.
    Trailers,
}

/// Why there is no response, or no whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientFault {
    /// The server says that it has not processed the request, which may be repeated on another connection.
    NotProcessed,
    /// The server has reset the request, with this code.
    Reset(u32),
    /// The server breaks the protocol.
    Protocol(ErrorCode),
    /// A head is longer than its limit.
    TooLong,
    /// It sends more frames than it gets replies to, or without anything of the response in them.
    TooManyFrames,
    /// It answers in HTTP/1.1.
    Http1,
    /// The length of the content is not the one that the head announces (RFC 9113 §8.1.1).
    WrongLength,
}

impl core::fmt::Display for ClientFault {
    /// A verb that follows the name of the server: `reset the request (INTERNAL_ERROR)`.
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ClientFault::NotProcessed => out.write_str("did not process the request"),
            ClientFault::Reset(code) => write!(out, "reset the request ({})", frame::error_name(*code)),
            ClientFault::Protocol(code) => write!(out, "breaks HTTP/2 ({})", frame::error_name(*code as u32)),
            ClientFault::TooLong => out.write_str("sent a head that is too long"),
            ClientFault::TooManyFrames => out.write_str("sent too many frames"),
            ClientFault::Http1 => out.write_str("answers in HTTP/1.1, not in HTTP/2"),
            ClientFault::WrongLength => out.write_str("sent content of another length than it announced"),
        }
    }
}

impl From<ErrorCode> for ClientFault {
    fn from(code: ErrorCode) -> ClientFault {
        ClientFault::Protocol(code)
    }
}

impl From<BlockError> for ClientFault {
    fn from(error: BlockError) -> ClientFault {
        match error {
            BlockError::Compression => ErrorCode::CompressionError.into(),
            BlockError::TooLong => ClientFault::TooLong,
        }
    }
}

impl ClientSession {
    /// A connection on which nothing was sent.
    #[expect(clippy::new_without_default, reason = "a session is no plain value")]
    pub fn new() -> ClientSession {
        ClientSession {
            decoder: Decoder::new(),
            phase: Phase::New,
            block: None,
            stream: None,
            last_stream: 0,
            send_window: i64::from(INITIAL_WINDOW),
            new_stream_window: INITIAL_WINDOW,
            receive_window: RESPONSE_WINDOW_BYTES,
        }
    }

    /// Whether the connection takes another request.
    pub fn can_begin(&self) -> bool {
        self.phase != Phase::Leaving && self.stream.is_none() && self.last_stream < U31_MAX - 2
    }

    /// Begins a request, if [`ClientSession::can_begin`]. `head` is in the form of HTTP/1.1, with its last empty line;
    /// the fields of a connection in it are left out.
    pub fn begin(&mut self, head: &[u8], scheme: Scheme, is_last: bool, out: &mut Vec<u8>) {
        let is_first = self.phase == Phase::New;
        if is_first {
            self.phase = Phase::FirstSettings;
            out.extend_from_slice(PREFACE);
            let settings = [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, RESPONSE_WINDOW_BYTES)];
            frame::put_settings(&settings, out);
            frame::put_window_update(0, RESPONSE_WINDOW_BYTES - INITIAL_WINDOW, out);
        }
        let id = if is_first { 1 } else { self.last_stream + 2 };
        self.last_stream = id;
        self.stream = Some(ClientStream {
            id,
            send_window: i64::from(self.new_stream_window),
            receive_window: RESPONSE_WINDOW_BYTES,
            is_request_ended: is_last,
            is_head_request: head.starts_with(b"HEAD "),
            response: ResponseState::Head { interim_count: 0 },
        });
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        request_block::encode(head, scheme, is_first, out);
        frame::finish_block(start, id, is_last, out);
    }

    /// Bytes of content of the request that the server takes now.
    pub fn sendable_bytes(&self) -> usize {
        let of_stream = self.stream.as_ref().filter(|stream| !stream.is_request_ended);
        of_stream.map_or(0, |stream| stream.send_window.min(self.send_window).max(0) as usize)
    }

    /// Sends content of the request, as much as the server takes, and returns how much. `is_last`: the request ends
    /// with it.
    pub fn put_content(&mut self, content: &[u8], is_last: bool, out: &mut Vec<u8>) -> usize {
        let taken = &content[..content.len().min(self.sendable_bytes())];
        let Some(stream) = self.stream.as_mut().filter(|stream| !stream.is_request_ended) else { return 0 };
        stream.is_request_ended = is_last && taken.len() == content.len();
        stream.send_window -= taken.len() as i64;
        self.send_window -= taken.len() as i64;
        let mut rest = taken;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(DATA_BYTES_MAX));
            rest = after;
            let is_end = stream.is_request_ended && rest.is_empty();
            let flags = if is_end { flag::END_STREAM } else { 0 };
            out.extend_from_slice(&frame::header(piece.len(), kind::DATA, flags, stream.id));
            out.extend_from_slice(piece);
        }
        if taken.is_empty() && stream.is_request_ended {
            out.extend_from_slice(&frame::header(0, kind::DATA, flag::END_STREAM, stream.id));
        }
        taken.len()
    }

    /// Lets the server send content until the caller holds [`RESPONSE_WINDOW_BYTES`], of which it holds `held_bytes`.
    pub fn open_window(&mut self, held_bytes: usize, out: &mut Vec<u8>) {
        let Some(stream) = &mut self.stream else { return };
        let room_bytes = (RESPONSE_WINDOW_BYTES as usize).saturating_sub(held_bytes) as u32;
        open(&mut stream.receive_window, room_bytes, stream.id, out);
    }

    /// Takes frames off `input` until something of the response has arrived; returns how many bytes were taken.
    /// Replies are appended to the output, one short frame for each received frame at most.
    ///
    /// # Errors
    /// Why the connection ends.
    pub fn receive<'i>(
        &mut self,
        input: &'i [u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Arrived<'i>), ClientFault> {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let Some(header) = FrameHeader::parse(rest) else { return Ok((consumed, Arrived::Partial)) };
            if header.payload_bytes > PAYLOAD_BYTES_MAX {
                let is_http1 = self.phase == Phase::FirstSettings && rest.starts_with(b"HTTP/1.");
                return Err(if is_http1 { ClientFault::Http1 } else { ErrorCode::FrameSizeError.into() });
            }
            let frame_bytes = HEADER_BYTES + header.payload_bytes;
            let Some(payload) = rest.get(HEADER_BYTES..frame_bytes) else { return Ok((consumed, Arrived::Partial)) };
            consumed += frame_bytes;
            if let Some(arrived) = self.take_frame(header, payload, scratch, out)? {
                return Ok((consumed, arrived));
            }
        }
    }

    fn take_frame<'i>(
        &mut self,
        header: FrameHeader,
        payload: &'i [u8],
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<Arrived<'i>>, ClientFault> {
        if matches!(self.phase, Phase::New | Phase::FirstSettings) {
            if header.kind != kind::SETTINGS || header.has(flag::ACK) {
                return Err(ErrorCode::ProtocolError.into());
            }
            self.phase = Phase::Open;
        }
        if self.block.is_some() && header.kind != kind::CONTINUATION {
            return Err(ErrorCode::ProtocolError.into());
        }
        match header.kind {
            kind::HEADERS => self.take_headers(header, payload, scratch),
            kind::CONTINUATION => self.take_continuation(header, payload, scratch),
            kind::DATA => self.take_data(header, payload, out),
            _ => self.take_control(header, payload, out).map(|()| None),
        }
    }

    fn take_headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Option<Arrived<'static>>, ClientFault> {
        let bytes = header.header_block(payload)?;
        if header.has(flag::END_HEADERS) {
            return self.take_block(header, bytes, scratch).map(Some);
        }
        self.block = Some(Box::new(PartialBlock { header, bytes: bytes.to_vec(), continuation_count: 0 }));
        Ok(None)
    }

    fn take_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Option<Arrived<'static>>, ClientFault> {
        let mut block = self.block.take().ok_or(ErrorCode::ProtocolError)?;
        if block.header.stream != header.stream {
            return Err(ErrorCode::ProtocolError.into());
        }
        block.continuation_count += 1;
        block.bytes.extend_from_slice(payload);
        if block.continuation_count > CONTINUATIONS_MAX || block.bytes.len() > BLOCK_BYTES_MAX {
            return Err(ClientFault::TooLong);
        }
        if header.has(flag::END_HEADERS) {
            return self.take_block(block.header, &block.bytes, scratch).map(Some);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// Takes a whole header block: a head, or trailers.
    fn take_block(
        &mut self,
        header: FrameHeader,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Arrived<'static>, ClientFault> {
        let ClientSession { decoder, stream, .. } = self;
        let current = stream.as_mut().filter(|stream| stream.id == header.stream).ok_or(ErrorCode::StreamClosed)?;
        let (is_last, limits) = (header.has(flag::END_STREAM), ResponseLimits::default());
        let ResponseState::Head { interim_count } = current.response else {
            response_block::decode_trailers(decoder, bytes, scratch, &limits)?;
            // RFC 9113 §8.1: trailers end the response.
            if !is_last {
                return Err(ErrorCode::ProtocolError.into());
            }
            self.end_response()?;
            return Ok(Arrived::Trailers);
        };
        let head = response_block::decode(decoder, bytes, scratch, &limits)?;
        match head.status {
            // RFC 9113 §8.6: there is no upgrade.
            101 => return Err(ErrorCode::ProtocolError.into()),
            // RFC 9113 §8.1: an interim response does not end the stream.
            100..200 if is_last => return Err(ErrorCode::ProtocolError.into()),
            100..200 if interim_count == INTERIM_COUNT_MAX => return Err(ClientFault::TooLong),
            100..200 => current.response = ResponseState::Head { interim_count: interim_count + 1 },
            204 | 304 => current.response = ResponseState::Content { left_bytes: Some(0) },
            _ if current.is_head_request => current.response = ResponseState::Content { left_bytes: Some(0) },
            _ => current.response = ResponseState::Content { left_bytes: head.content_bytes },
        }
        if is_last {
            self.end_response()?;
        }
        Ok(Arrived::Head { is_last })
    }

    fn take_data<'i>(
        &mut self,
        header: FrameHeader,
        payload: &'i [u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Arrived<'i>>, ClientFault> {
        let content = header.without_padding(payload)?;
        let stream = self.stream.as_mut().filter(|stream| stream.id == header.stream);
        let stream = stream.ok_or(ErrorCode::StreamClosed)?;
        let ResponseState::Content { left_bytes } = &mut stream.response else {
            return Err(ErrorCode::ProtocolError.into());
        };
        if let Some(left_bytes) = left_bytes {
            *left_bytes = left_bytes.checked_sub(content.len() as u64).ok_or(ClientFault::WrongLength)?;
        }
        for window in [&mut stream.receive_window, &mut self.receive_window] {
            *window = window.checked_sub(payload.len() as u32).ok_or(ErrorCode::FlowControlError)?;
        }
        // What has arrived is limited by the window of the stream.
        open(&mut self.receive_window, RESPONSE_WINDOW_BYTES, 0, out);
        let is_last = header.has(flag::END_STREAM);
        if is_last {
            self.end_response()?;
        }
        Ok((is_last || !content.is_empty()).then_some(Arrived::Content { content, is_last }))
    }

    /// The response has ended. If the request has not, its stream would stay open, so that no other one follows.
    fn end_response(&mut self) -> Result<(), ClientFault> {
        let Some(stream) = self.stream.take() else { return Ok(()) };
        if !stream.is_request_ended {
            self.phase = Phase::Leaving;
        }
        match stream.response {
            ResponseState::Content { left_bytes: Some(1..) } => Err(ClientFault::WrongLength),
            _ => Ok(()),
        }
    }

    /// A frame without a header block and without content.
    fn take_control(&mut self, header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) -> Result<(), ClientFault> {
        header.check_control()?;
        let number = frame::u32_at_start(payload);
        match header.kind {
            kind::SETTINGS if !header.has(flag::ACK) => return self.take_settings(payload, out),
            kind::WINDOW_UPDATE => return self.take_window_update(header.stream, number & U31_MAX),
            kind::PING if !header.has(flag::ACK) => frame::put_ping_ack(payload, out),
            kind::RST_STREAM if self.is_idle(header.stream) => return Err(ErrorCode::ProtocolError.into()),
            // That of a stream whose response has ended asks not to send the rest of the request.
            kind::RST_STREAM if self.stream.take_if(|stream| stream.id == header.stream).is_none() => {}
            kind::RST_STREAM if number == ErrorCode::RefusedStream as u32 => return Err(ClientFault::NotProcessed),
            kind::RST_STREAM => return Err(ClientFault::Reset(number)),
            kind::GOAWAY => {
                self.phase = Phase::Leaving;
                if self.stream.as_ref().is_some_and(|stream| stream.id > number & U31_MAX) {
                    return Err(ClientFault::NotProcessed);
                }
            }
            // RFC 9113 §8.4: the settings do not allow it.
            kind::PUSH_PROMISE => return Err(ErrorCode::ProtocolError.into()),
            // RFC 9113 §5.5: unknown types are ignored.
            _ => {}
        }
        Ok(())
    }

    fn take_settings(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), ClientFault> {
        if payload.len() > SETTINGS_MAX * SETTING_BYTES {
            return Err(ClientFault::TooLong);
        }
        for entry in payload.chunks_exact(SETTING_BYTES) {
            let value = frame::u32_at_start(&entry[2..]);
            match u16::from_be_bytes([entry[0], entry[1]]) {
                // RFC 9113 §6.5.2: a server does not ask for pushed responses.
                setting::ENABLE_PUSH if value != 0 => return Err(ErrorCode::ProtocolError.into()),
                setting::MAX_FRAME_SIZE if !(PAYLOAD_BYTES_MAX as u32..1 << 24).contains(&value) => {
                    return Err(ErrorCode::ProtocolError.into());
                }
                setting::INITIAL_WINDOW_SIZE => {
                    if value > U31_MAX {
                        return Err(ErrorCode::FlowControlError.into());
                    }
                    let change = i64::from(value) - i64::from(self.new_stream_window);
                    self.new_stream_window = value;
                    if let Some(stream) = &mut self.stream {
                        stream.send_window += change;
                        check_window(stream.send_window)?;
                    }
                }
                // Larger frames and the table of the server are not used, nor more than one stream.
                _ => {}
            }
        }
        frame::put_settings_ack(out);
        Ok(())
    }

    fn take_window_update(&mut self, id: u32, increment: u32) -> Result<(), ClientFault> {
        if increment == 0 || self.is_idle(id) {
            return Err(ErrorCode::ProtocolError.into());
        }
        let of_stream = self.stream.as_mut().filter(|stream| stream.id == id).map(|stream| &mut stream.send_window);
        let window = if id == 0 { Some(&mut self.send_window) } else { of_stream };
        if let Some(window) = window {
            *window += i64::from(increment);
            check_window(*window)?;
        }
        Ok(())
    }

    /// Whether the stream was never opened.
    fn is_idle(&self, id: u32) -> bool {
        id > self.last_stream || (id != 0 && id.is_multiple_of(2))
    }
}

/// Opens a window to `room_bytes`, if that is worth a frame.
fn open(window: &mut u32, room_bytes: u32, stream: u32, out: &mut Vec<u8>) {
    let increment = room_bytes.saturating_sub(*window);
    if increment >= WINDOW_UPDATE_BYTES_MIN {
        *window += increment;
        frame::put_window_update(stream, increment, out);
    }
}
