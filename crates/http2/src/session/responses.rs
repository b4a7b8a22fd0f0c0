//! Frames of responses: heads, and content as the client takes it.

use alloc::vec::Vec;
use core::mem;

use super::{Content, Request, Session};
use crate::frame::{self, DATA_BYTES_MAX, ErrorCode, HEADER_BYTES, flag, kind};
use crate::limits::Limits;
use crate::priority::Priority;
use crate::response_head;
use crate::streams::{ClientSide, Stream, Work};

/// A DATA frame at the end of the output, which waits for its content.
#[derive(Debug)]
#[must_use]
pub struct DataFrame<'d, B> {
    session: &'d mut Session<B>,
    limits: &'d Limits,
    out: &'d mut Vec<u8>,
    start: usize,
    index: usize,
}

impl<B> Session<B> {
    /// Answers a request. `head` is in the form of HTTP/1.1, with its last empty line.
    pub fn answer(
        &mut self,
        request: Request,
        head: &[u8],
        content: Content<'_, B>,
        limits: &Limits,
        out: &mut Vec<u8>,
    ) {
        let Request { stream: id, window, priority, client_side, passed, .. } = request;
        let is_empty = matches!(content, Content::Empty);
        self.put_head(head, id, is_empty, out);
        match content {
            Content::Empty => self.end_stream(id, client_side, limits),
            Content::Bytes(bytes) => {
                out.extend_from_slice(&frame::header(bytes.len(), kind::DATA, flag::END_STREAM, id));
                out.extend_from_slice(bytes);
                self.window -= bytes.len() as i64;
                self.budgets.note_sent(bytes.len() as u32, limits);
                self.end_stream(id, client_side, limits);
            }
            Content::Later { body, length_bytes } => {
                let left_bytes = length_bytes.unwrap_or(u64::MAX);
                let work = Work::Sending { body, left_bytes, turn: self.streams.next_turn() };
                self.streams.push(Stream { id, window, priority, client_side, work, passed });
            }
        }
    }

    /// Sends the head of an interim response, in the form of HTTP/1.1.
    pub fn put_interim(&mut self, request: &Request, head: &[u8], out: &mut Vec<u8>) {
        self.put_head(head, request.stream, false, out);
    }

    pub(super) fn put_head(&mut self, head: &[u8], id: u32, is_end: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        response_head::encode(head, !mem::replace(&mut self.has_answered, true), out);
        frame::finish_block(start, id, is_end, out);
    }

    /// Whether [`Session::next_data`] gives a frame.
    pub fn can_send(&self) -> bool {
        self.window > 0 && self.streams.next_to_send().is_some()
    }

    /// Begins the next DATA frame, with at most `content_bytes_max` of content. `None`: there is no content, or the
    /// client takes none.
    pub fn next_data<'d>(
        &'d mut self,
        content_bytes_max: usize,
        limits: &'d Limits,
        out: &'d mut Vec<u8>,
    ) -> Option<DataFrame<'d, B>> {
        if self.window <= 0 {
            return None;
        }
        let index = self.streams.next_to_send()?;
        let stream = self.streams.at_mut(index);
        let Work::Sending { left_bytes, .. } = stream.work else { return None };
        let bytes_max = self.window.min(stream.window).min(content_bytes_max.min(DATA_BYTES_MAX) as i64) as usize;
        let bytes_max = bytes_max.min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
        let start = out.len();
        out.resize(start + HEADER_BYTES + bytes_max, 0);
        Some(DataFrame { session: self, limits, out, start, index })
    }

    /// Lets `stream` send again, if it waits for content ([`DataFrame::stall`]).
    pub fn wake(&mut self, stream: u32) {
        let turn = self.streams.next_turn();
        let Some(stream) = self.streams.find_mut(stream) else { return };
        stream.work = match mem::replace(&mut stream.work, Work::Abandoned) {
            Work::Stalled { body, left_bytes } => Work::Sending { body, left_bytes, turn },
            other => other,
        };
    }

    /// The response on `id` is sent whole.
    pub(super) fn end_stream(&mut self, id: u32, client_side: ClientSide, limits: &Limits) {
        self.budgets.note_answered(limits);
        if client_side != ClientSide::Ended {
            let priority = Priority::default();
            self.streams.push(Stream { id, window: 0, priority, client_side, work: Work::Discarding, passed: None });
        }
    }
}

impl<B> DataFrame<'_, B> {
    /// The source of the content, and the room for it: the content that is left, if it fits.
    pub fn parts(&mut self) -> (&mut B, &mut [u8]) {
        let Work::Sending { body, .. } = &mut self.session.streams.at_mut(self.index).work else {
            unreachable!("only a stream that sends has a frame")
        };
        (body, &mut self.out[self.start + HEADER_BYTES..])
    }

    /// Ends the frame, whose content is the first `length_bytes` of the room, at least one.
    pub fn finish(self, length_bytes: usize) {
        debug_assert!(length_bytes > 0);
        self.finish_as(length_bytes, false);
    }

    /// Ends the frame with the last content, perhaps none.
    pub fn finish_last(self, length_bytes: usize) {
        self.finish_as(length_bytes, true);
    }

    fn finish_as(self, length_bytes: usize, is_last: bool) {
        let DataFrame { session, limits, out, start, index } = self;
        debug_assert!(start + HEADER_BYTES + length_bytes <= out.len());
        out.truncate(start + HEADER_BYTES + length_bytes);
        let now = session.streams.next_turn();
        let stream = session.streams.at_mut(index);
        let (id, client_side) = (stream.id, stream.client_side);
        stream.window -= length_bytes as i64;
        let is_end = match &mut stream.work {
            Work::Sending { left_bytes, turn, .. } => {
                *left_bytes -= length_bytes as u64;
                *turn = now;
                is_last || *left_bytes == 0
            }
            _ => true,
        };
        session.window -= length_bytes as i64;
        session.budgets.note_sent(length_bytes as u32, limits);
        let flags = if is_end { flag::END_STREAM } else { 0 };
        out[start..start + HEADER_BYTES].copy_from_slice(&frame::header(length_bytes, kind::DATA, flags, id));
        if is_end {
            session.streams.remove(index);
            session.end_stream(id, client_side, limits);
        }
    }

    /// Ends the response with the first `length_bytes` of the room, perhaps none, and trailers: lines in the form of
    /// HTTP/1.1.
    pub fn finish_with_trailers(self, length_bytes: usize, lines: &[u8]) {
        let DataFrame { session, limits, out, start, index } = self;
        let Stream { id, client_side, .. } = session.streams.remove(index);
        let content_start = start + HEADER_BYTES;
        if length_bytes == 0 {
            out.truncate(start);
        } else {
            out.truncate(content_start + length_bytes);
            out[start..content_start].copy_from_slice(&frame::header(length_bytes, kind::DATA, 0, id));
            session.window -= length_bytes as i64;
            session.budgets.note_sent(length_bytes as u32, limits);
        }
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_BYTES]);
        response_head::encode_fields(lines, out);
        frame::finish_block(start, id, true, out);
        session.end_stream(id, client_side, limits);
    }

    /// The stream of the content.
    pub fn stream(&self) -> u32 {
        self.session.streams.at(self.index).id
    }

    /// Lets the stream wait for content until [`Session::wake`].
    pub fn stall(self) {
        let DataFrame { session, out, start, index, .. } = self;
        out.truncate(start);
        let work = &mut session.streams.at_mut(index).work;
        if let Work::Sending { body, left_bytes, .. } = mem::replace(work, Work::Abandoned) {
            *work = Work::Stalled { body, left_bytes };
        }
    }

    /// Ends the stream without the rest of the content, which the caller cannot supply.
    pub fn abort(self) {
        let DataFrame { session, out, start, index, .. } = self;
        out.truncate(start);
        let id = session.streams.remove(index).id;
        session.put_reset(id, ErrorCode::InternalError, out);
    }
}
