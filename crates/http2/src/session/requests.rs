//! Frames that make requests: HEADERS, CONTINUATION and DATA.

use alloc::boxed::Box;
use core::mem;

use sanderling_http::{DNS_MESSAGE_BYTES_MAX, RequestError};

use super::{Exchange, Outcome, PartialBlock, Phase, Received, Request, Session, request_of};
use crate::frame::{self, ErrorCode, FrameHeader, INITIAL_WINDOW, flag};
use crate::limits::ExceededLimit;
use crate::request_head::{DecodedHead, HeadState, Scratch, decode_request, decode_trailers};
use crate::streams::{ClientSide, Stream, Work};

/// Received content after which the client may send as much again.
const WINDOW_UPDATE_BYTES: u32 = INITIAL_WINDOW / 2;
/// Shorter pieces of content, but the last, count as control frames.
const SMALL_CONTENT_BYTES: usize = 256;

/// The treatment of received content.
#[derive(Clone, Copy)]
enum Arrival {
    /// The content is kept, since the response depends on it.
    Kept,
    /// The content is longer than the limit.
    TooLong,
    /// The connection has no room for the content, in addition to its other requests.
    NoRoom,
    /// The content is discarded, since no response depends on it.
    Discarded,
    /// The content is discarded, and ends the stream: its response is sent whole.
    LastDiscarded,
}

impl<B> Session<B> {
    pub(super) fn take_headers(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        exchange: &mut Exchange<'_>,
    ) -> Outcome<Option<Received>> {
        // RFC 9113 §5.1.1: clients open streams with odd numbers.
        if header.stream.is_multiple_of(2) {
            return Err(ErrorCode::ProtocolError.into());
        }
        let bytes = header.header_block(payload)?;
        if bytes.len() > exchange.limits.header_block_bytes_max {
            return Err(ExceededLimit::HeaderBlockBytes.into());
        }
        if header.has(flag::END_HEADERS) {
            return self.take_block(header, bytes, exchange);
        }
        self.block = Some(Box::new(PartialBlock { header, bytes: bytes.to_vec(), continuation_count: 0 }));
        Ok(None)
    }

    pub(super) fn take_continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        exchange: &mut Exchange<'_>,
    ) -> Outcome<Option<Received>> {
        let mut block = self.block.take().ok_or(ErrorCode::ProtocolError)?;
        if block.header.stream != header.stream {
            return Err(ErrorCode::ProtocolError.into());
        }
        block.continuation_count += 1;
        block.bytes.extend_from_slice(payload);
        if block.continuation_count > exchange.limits.continuations_max {
            return Err(ExceededLimit::Continuations.into());
        }
        if block.bytes.len() > exchange.limits.header_block_bytes_max {
            return Err(ExceededLimit::HeaderBlockBytes.into());
        }
        if header.has(flag::END_HEADERS) {
            return self.take_block(block.header, &block.bytes, exchange);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// Takes a whole header block: a request, or trailers.
    fn take_block(
        &mut self,
        header: FrameHeader,
        bytes: &[u8],
        exchange: &mut Exchange<'_>,
    ) -> Outcome<Option<Received>> {
        let id = header.stream;
        self.budgets.note_payload(bytes.len());
        let is_ignored = match self.phase {
            Phase::Final { last_stream } => id > last_stream,
            _ => false,
        };
        if id <= self.last_stream || is_ignored {
            let is_valid = decode_trailers(&mut self.decoder, bytes, exchange.scratch, exchange.limits)?;
            if is_ignored {
                self.budgets.take_control()?;
                return Ok(None);
            }
            return self.take_trailers(header, is_valid, exchange);
        }
        let limits = exchange.limits;
        self.last_stream = id;
        self.request_count += 1;
        let decoded = decode_request(&mut self.decoder, bytes, exchange.scratch, limits, self.scheme)?;
        let early_priority = self.early_priorities.take(id);
        if self.request_count == limits.requests_max {
            self.finish_shutdown(exchange.out);
        }
        if self.streams.len() >= limits.streams_max as usize && !self.reset_discarded(exchange.out) {
            self.refuse(id, ErrorCode::RefusedStream, exchange.out)?;
            return Ok(Some(Received::Refused(ExceededLimit::Streams)));
        }
        let DecodedHead { state, content_bytes, has_expectation, is_connect, priority } = decoded;
        // Until the client has the server's settings, it may fill the initial window of RFC 9113 §6.9.2.
        let window_bytes = limits.content_window().max(INITIAL_WINDOW);
        let client_side = ClientSide::Open { left_bytes: content_bytes, window_bytes };
        let client_side = client_side.after(0, header.has(flag::END_STREAM));
        let (client_side, error) = match (client_side, state) {
            (Some(client_side), HeadState::Complete) => (client_side, None),
            (Some(client_side), HeadState::Refused(error)) => (client_side, Some(error)),
            (None, _) | (_, HeadState::Malformed) => {
                self.refuse(id, ErrorCode::ProtocolError, exchange.out)?;
                return Ok(None);
            }
        };
        let (window, priority) = (i64::from(self.stream_window), early_priority.unwrap_or(priority));
        let awaits_continue = has_expectation;
        let request =
            Request { stream: id, window, priority, client_side, awaits_continue, is_connect, error, passed: None };
        Ok(Some(Received::Request(request)))
    }

    /// A header block on a stream that was opened before.
    fn take_trailers(
        &mut self,
        header: FrameHeader,
        is_valid: bool,
        exchange: &mut Exchange<'_>,
    ) -> Outcome<Option<Received>> {
        let id = header.stream;
        match self.streams.position(id) {
            Some(index) if self.streams.at(index).client_side != ClientSide::Ended => {
                // RFC 9113 §8.1: trailers end the request.
                if !is_valid || !header.has(flag::END_STREAM) {
                    self.drop_stream(index);
                    self.refuse(id, ErrorCode::ProtocolError, exchange.out)?;
                    return Ok(None);
                }
                self.take_content(index, &[], true, exchange)
            }
            None if self.reset_streams.contains(&id) => {
                self.budgets.take_control()?;
                Ok(None)
            }
            _ => Err(ErrorCode::StreamClosed.into()),
        }
    }

    pub(super) fn take_data(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        exchange: &mut Exchange<'_>,
    ) -> Outcome<Option<Received>> {
        let id = header.stream;
        if self.is_idle(id) {
            return Err(ErrorCode::ProtocolError.into());
        }
        let content = header.without_padding(payload)?;
        let is_end = header.has(flag::END_STREAM);
        if content.len() < SMALL_CONTENT_BYTES && !is_end {
            self.budgets.take_control()?;
        }
        self.budgets.note_payload(content.len());
        self.unreported_bytes += payload.len() as u32;
        if self.unreported_bytes > WINDOW_UPDATE_BYTES {
            frame::put_window_update(0, mem::take(&mut self.unreported_bytes), exchange.out);
        }
        let Some(index) = self.streams.position(id) else {
            if self.reset_streams.contains(&id) {
                self.budgets.take_control()?;
            } else {
                self.refuse(id, ErrorCode::StreamClosed, exchange.out)?;
            }
            return Ok(None);
        };
        match self.streams.at(index).client_side {
            // RFC 9113 §5.1, half-closed (remote).
            ClientSide::Ended => return Err(ErrorCode::StreamClosed.into()),
            // RFC 9113 §6.9.1. The connection's window is opened as content arrives, which is discarded or has a limit.
            ClientSide::Open { window_bytes, .. } if payload.len() > window_bytes as usize => {
                self.drop_stream(index);
                self.refuse(id, ErrorCode::FlowControlError, exchange.out)?;
                return Ok(None);
            }
            ClientSide::Open { .. } => {}
        }
        let received = self.take_content(index, content, is_end, exchange)?;
        // The limit of the content, which the window is made for, does not count padding.
        let padding_bytes = (payload.len() - content.len()) as u32;
        if padding_bytes > 0 && !is_end && self.streams.position(id).is_some() {
            frame::put_window_update(id, padding_bytes, exchange.out);
        }
        Ok(received)
    }

    /// Content of a stream that the client has not ended before.
    fn take_content(
        &mut self,
        index: usize,
        content: &[u8],
        is_end: bool,
        exchange: &mut Exchange<'_>,
    ) -> Outcome<Option<Received>> {
        let limits = exchange.limits;
        let Stream { id, client_side, .. } = *self.streams.at(index);
        let Some(client_side) = client_side.after(content.len() as u64, is_end) else {
            self.drop_stream(index);
            self.refuse(id, ErrorCode::ProtocolError, exchange.out)?;
            return Ok(None);
        };
        if let Some(passed) = &mut self.streams.at_mut(index).passed {
            passed.extend_from_slice(content);
            self.streams.at_mut(index).client_side = client_side;
            return Ok(Some(Received::Passed(id)));
        }
        let work = &self.streams.at(index).work;
        let arrival = match work {
            Work::Receiving { head, head_bytes } => {
                let content_bytes = (head.len() - head_bytes + content.len()) as u64;
                if content_bytes > limits.request.body_bytes_max.min(DNS_MESSAGE_BYTES_MAX as u64) {
                    Arrival::TooLong
                } else if self.may_keep_more(head.len(), content.len(), limits) {
                    Arrival::Kept
                } else {
                    Arrival::NoRoom
                }
            }
            Work::Discarding if is_end => Arrival::LastDiscarded,
            _ => Arrival::Discarded,
        };
        let stream = self.streams.at_mut(index);
        stream.client_side = client_side;
        match arrival {
            Arrival::Kept => {
                if let Work::Receiving { head, .. } = &mut stream.work {
                    head.extend_from_slice(content);
                }
                let request = || self.take_request(index, None, exchange.scratch);
                Ok(is_end.then(request).map(Received::Content))
            }
            Arrival::TooLong => {
                let request = self.take_request(index, Some(RequestError::BodyTooLarge), exchange.scratch);
                Ok(Some(Received::Content(request)))
            }
            Arrival::NoRoom => {
                self.streams.remove(index);
                self.refuse(id, ErrorCode::RefusedStream, exchange.out)?;
                Ok(Some(Received::Refused(ExceededLimit::KeptRequestBytes)))
            }
            Arrival::Discarded => Ok(None),
            Arrival::LastDiscarded => {
                self.streams.remove(index);
                Ok(None)
            }
        }
    }

    pub(super) fn take_request(&mut self, index: usize, error: Option<RequestError>, scratch: &mut Scratch) -> Request {
        let mut stream = self.streams.remove(index);
        if let Work::Receiving { head, .. } = &mut stream.work {
            scratch.head = mem::take(head);
        }
        request_of(stream, error)
    }
}
