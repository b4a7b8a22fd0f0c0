//! A connection: received frames become requests, and responses become frames.

mod control;
mod requests;
mod responses;

pub use responses::DataFrame;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use sanderling_http::{RequestError, Scheme};

use crate::frame::{
    self, DATA_BYTES_MAX, ErrorCode, FrameHeader, HEADER_BYTES, INITIAL_WINDOW, PAYLOAD_BYTES_MAX, PREFACE, U31_MAX,
    flag, kind, setting,
};
use crate::hpack::Decoder;
use crate::limits::{Budgets, ExceededLimit, Limits};
use crate::priority::{EarlyPriorities, Priority};
use crate::request_head::{BlockError, Scratch};
use crate::streams::{ClientSide, Stream, Streams, Work};

/// Factor for the number of recently reset streams, for which frames may still arrive: it multiplies
/// [`Limits::streams_max`]. A client may have opened as many again before it learns that all of its streams are reset.
const RESET_STREAMS_KEPT: usize = 2;

/// The state with which a connection receives frames.
#[derive(Debug)]
pub struct Exchange<'x> {
    /// The limits of all connections.
    pub limits: &'x Limits,
    /// The buffers for decoding requests.
    pub scratch: &'x mut Scratch,
    /// The output, to which the server's frames are appended.
    pub out: &'x mut Vec<u8>,
}

/// A connection. `B` is the caller's source of the content of a response.
#[derive(Debug)]
pub struct Session<B> {
    scheme: Scheme,
    phase: Phase,
    decoder: Decoder,
    /// A header block that has arrived in part.
    block: Option<Box<PartialBlock>>,
    streams: Streams<B>,
    /// The highest stream that the client has opened.
    last_stream: u32,
    request_count: u64,
    /// Content that the client takes on all streams together.
    window: i64,
    /// The first window of each stream.
    stream_window: u32,
    /// The priorities of streams that are not open yet.
    early_priorities: EarlyPriorities,
    /// SETTINGS_NO_RFC7540_PRIORITIES, once the first settings have arrived.
    old_priorities: Option<u32>,
    /// Content received since the last WINDOW_UPDATE.
    unreported_bytes: u32,
    budgets: Budgets,
    reset_streams: VecDeque<u32>,
    reset_streams_max: usize,
    /// A response was encoded.
    has_answered: bool,
    /// Whether the client sends no more requests.
    is_client_leaving: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The preface has not arrived whole.
    Preface,
    /// The first SETTINGS frame has not arrived.
    FirstSettings,
    Open,
    /// The client was asked to open no further streams; those that it opens meanwhile are served.
    ShuttingDown,
    /// Streams above this one are ignored.
    Final {
        last_stream: u32,
    },
    /// The connection has ended.
    Closed,
}

#[derive(Debug)]
struct PartialBlock {
    header: FrameHeader,
    bytes: Vec<u8>,
    continuation_count: u8,
}

/// The result of [`Session::receive`].
#[derive(Debug)]
pub enum Received {
    /// The rest of a frame is missing, or there is no input.
    Partial,
    /// The head of a request is complete, and in [`Scratch::head`]. Give it to [`Session::answer`], [`Session::park`]
    /// or, if the response depends on content that [has not arrived](Request::has_content), [`Session::await_content`].
    Request(Request),
    /// An awaited content is complete: [`Scratch::head`] has the head and the content after it. Give the request to
    /// [`Session::answer`] or [`Session::park`].
    Content(Request),
    /// Content of this stream has arrived that [`Session::take_passed`] gives.
    Passed(u32),
    /// A request was refused because of this limit; what follows in the input is not taken yet.
    Refused(ExceededLimit),
    /// The connection has ended, because of this limit or of another error of the client; the output has the reason.
    Closed(Option<ExceededLimit>),
}

/// A request that is not answered yet.
#[derive(Debug)]
#[must_use]
pub struct Request {
    stream: u32,
    window: i64,
    priority: Priority,
    client_side: ClientSide,
    awaits_continue: bool,
    is_connect: bool,
    error: Option<RequestError>,
    /// As that of the stream.
    passed: Option<Vec<u8>>,
}

impl Request {
    /// The number of the stream.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// Whether content may follow, or is kept, which is discarded unless it is awaited or passed on.
    pub fn has_content(&self) -> bool {
        self.client_side != ClientSide::Ended || self.passed.is_some()
    }

    /// Whether it asks for a tunnel (RFC 8441), which a response with a status of 2xx begins.
    pub fn is_connect(&self) -> bool {
        self.is_connect
    }

    /// The reason why the request is refused, if it exceeds a limit: then its head is incomplete.
    pub fn error(&self) -> Option<RequestError> {
        self.error
    }
}

/// The outcome for a request that has not arrived whole ([`Session::end_oldest_partial`]).
#[derive(Debug)]
pub enum PartialEnd {
    /// There is none that can be ended separately.
    HasNone,
    /// The request's stream was reset, after the response.
    Reset,
    /// The request must be answered; its head is in [`Scratch::head`].
    Request(Request),
}

/// The content of a response.
#[derive(Debug)]
pub enum Content<'c, B> {
    /// None.
    Empty,
    /// The next bytes of the content, for which [`Session::has_room_for`] is true.
    Bytes(&'c [u8]),
    /// As many bytes as `length_bytes`, at least one, which the caller supplies later, in [`DataFrame`]s.
    Later {
        /// The source of the bytes.
        body: B,
        /// Their number; `None` if only the source knows the end ([`DataFrame::finish_last`]).
        length_bytes: Option<u64>,
    },
}

/// The reason why a connection waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// The connection waits for the next request.
    Idle,
    /// The connection waits for the rest of a request.
    Receiving,
    /// The connection waits for the caller, or for the client to take content.
    Answering,
}

/// The reason why a connection ends.
#[derive(Clone, Copy)]
enum Violation {
    Protocol(ErrorCode),
    Limit(ExceededLimit),
}

impl From<ErrorCode> for Violation {
    fn from(code: ErrorCode) -> Violation {
        Violation::Protocol(code)
    }
}

impl From<ExceededLimit> for Violation {
    fn from(limit: ExceededLimit) -> Violation {
        Violation::Limit(limit)
    }
}

impl From<BlockError> for Violation {
    fn from(error: BlockError) -> Violation {
        match error {
            BlockError::Compression => ErrorCode::CompressionError.into(),
            BlockError::TooLong => ExceededLimit::HeaderBlockBytes.into(),
        }
    }
}

/// An error ends the connection.
type Outcome<T> = Result<T, Violation>;

impl<B> Session<B> {
    /// A connection on which nothing has been received. `scheme`: the scheme of its requests. The heads of others have
    /// a target in absolute-form.
    pub fn new(limits: &Limits, scheme: Scheme) -> Session<B> {
        Session {
            scheme,
            phase: Phase::Preface,
            decoder: Decoder::new(),
            block: None,
            streams: Streams::new(),
            last_stream: 0,
            request_count: 0,
            window: i64::from(INITIAL_WINDOW),
            stream_window: INITIAL_WINDOW,
            early_priorities: EarlyPriorities::default(),
            old_priorities: None,
            unreported_bytes: 0,
            budgets: Budgets::new(limits),
            reset_streams: VecDeque::new(),
            reset_streams_max: limits.streams_max as usize * RESET_STREAMS_KEPT,
            has_answered: false,
            is_client_leaving: false,
        }
    }

    /// The reason why the connection waits.
    pub fn activity(&self) -> Activity {
        if self.streams.iter().any(|stream| !matches!(stream.work, Work::Receiving { .. } | Work::Discarding)) {
            Activity::Answering
        } else if self.streams.len() > 0 || self.block.is_some() {
            Activity::Receiving
        } else {
            Activity::Idle
        }
    }

    /// Whether the connection has ended, so that it closes once its output is sent.
    pub fn is_finished(&self) -> bool {
        match self.phase {
            Phase::Closed => true,
            Phase::Final { .. } => self.streams.are_answered(),
            _ => self.is_client_leaving && self.streams.are_answered(),
        }
    }

    /// Responses that have begun and are not sent whole.
    pub fn unsent_response_count(&self) -> usize {
        let is_unsent = |stream: &&Stream<B>| matches!(stream.work, Work::Sending { .. } | Work::Stalled { .. });
        self.streams.iter().filter(is_unsent).count()
    }

    /// Bytes of memory that the connection holds, including the waiting content, as `of_body` measures it.
    pub fn held_bytes(&self, of_body: impl Fn(&B) -> usize) -> usize {
        let of_stream = |stream: &Stream<B>| match &stream.work {
            Work::Receiving { head, .. } | Work::Parked { head, .. } => head.capacity(),
            Work::Sending { body, .. } | Work::Stalled { body, .. } => of_body(body),
            Work::Abandoned | Work::Discarding => 0,
        };
        let of_stream = |stream: &Stream<B>| of_stream(stream) + stream.passed.as_ref().map_or(0, Vec::capacity);
        let of_block = self.block.as_ref().map_or(0, |block| block.bytes.capacity());
        let of_streams = self.streams.iter().map(of_stream).sum::<usize>();
        let of_numbers = self.reset_streams.capacity() * size_of::<u32>() + self.early_priorities.held_bytes();
        self.decoder.held_bytes() + of_block + self.streams.list_bytes() + of_streams + of_numbers
    }

    /// The bytes of incomplete requests.
    pub fn partial_bytes(&self) -> usize {
        let of_stream = |stream: &Stream<B>| match &stream.work {
            Work::Receiving { head, .. } => head.capacity(),
            _ => 0,
        };
        let of_block = self.block.as_ref().map_or(0, |block| block.bytes.capacity());
        of_block + self.streams.iter().map(of_stream).sum::<usize>()
    }

    /// Whether the connection may keep another head of a request that cannot be answered yet.
    pub fn may_keep(&self, head: &[u8], limits: &Limits) -> bool {
        self.may_keep_more(0, head.len(), limits)
    }

    /// Whether a request of which `own_bytes` are kept may keep `more_bytes`. A single request is limited only by the
    /// limits of requests.
    fn may_keep_more(&self, own_bytes: usize, more_bytes: usize, limits: &Limits) -> bool {
        let of_stream = |stream: &Stream<B>| match &stream.work {
            Work::Receiving { head, .. } | Work::Parked { head, .. } => head.len(),
            _ => 0,
        };
        let kept_bytes = self.streams.iter().map(of_stream).sum::<usize>();
        kept_bytes == own_bytes || kept_bytes + more_bytes <= limits.kept_request_bytes_max
    }

    /// Releases memory that an idle connection does not need.
    pub fn shrink(&mut self) {
        self.streams.shrink();
    }

    /// Takes frames off `input` until there is a request; returns how many bytes were taken. Replies are appended to
    /// the output: at most two short frames for each frame that was taken, and once the server's settings.
    pub fn receive(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> (usize, Received) {
        let mut consumed = 0;
        loop {
            let taken = match self.phase {
                Phase::Closed => return (input.len(), Received::Closed(None)),
                Phase::Preface => self.take_preface(&input[consumed..], exchange).map(|taken| (taken, None)),
                _ => self.take_frame(&input[consumed..], exchange),
            };
            match taken {
                Ok((0, _)) => return (consumed, Received::Partial),
                Ok((taken_bytes, received)) => {
                    consumed += taken_bytes;
                    if let Some(received) = received {
                        return (consumed, received);
                    }
                }
                Err(violation) => return (input.len(), Received::Closed(self.close_by(violation, exchange.out))),
            }
        }
    }

    /// Ends the connection because of an error of the client; the limit that it has exceeded, if any.
    fn close_by(&mut self, violation: Violation, out: &mut Vec<u8>) -> Option<ExceededLimit> {
        let (code, limit) = match violation {
            Violation::Protocol(code) => (code, None),
            Violation::Limit(limit) => (ErrorCode::EnhanceYourCalm, Some(limit)),
        };
        self.close(code, out);
        limit
    }

    /// Ends the connection immediately. The client learns why, and which requests were not processed.
    pub fn close(&mut self, code: ErrorCode, out: &mut Vec<u8>) {
        if self.phase != Phase::Closed {
            frame::put_goaway(self.last_stream, code, out);
            self.phase = Phase::Closed;
            self.streams.clear();
            self.block = None;
        }
    }

    /// Begins a graceful shutdown (RFC 9113 §6.8): asks the client to send no further requests.
    pub fn begin_shutdown(&mut self, out: &mut Vec<u8>) {
        if matches!(self.phase, Phase::Open) {
            frame::put_goaway(U31_MAX, ErrorCode::NoError, out);
            self.phase = Phase::ShuttingDown;
        }
    }

    /// Continues with it when the data that the client sent meanwhile has arrived: further requests are ignored.
    /// No frame is written if the client was already informed, or has not sent anything yet.
    pub fn finish_shutdown(&mut self, out: &mut Vec<u8>) {
        if !matches!(self.phase, Phase::Preface | Phase::Final { .. } | Phase::Closed) {
            frame::put_goaway(self.last_stream, ErrorCode::NoError, out);
            self.phase = Phase::Final { last_stream: self.last_stream };
        }
    }

    /// Whether the client takes content of `length_bytes` now, in one frame.
    pub fn has_room_for(&self, request: &Request, length_bytes: u64) -> bool {
        length_bytes <= DATA_BYTES_MAX as u64 && length_bytes as i64 <= self.window.min(request.window)
    }

    /// Receives the content of a request, which [`Session::receive`] then gives again. `Err`: the request is refused,
    /// or the connection has ended.
    #[expect(clippy::needless_pass_by_value, reason = "a request waits or is answered")]
    pub fn await_content(
        &mut self,
        request: Request,
        head: &[u8],
        limits: &Limits,
        out: &mut Vec<u8>,
    ) -> Result<(), Received> {
        let Request { stream: id, window, priority, client_side, awaits_continue, .. } = request;
        if !self.may_keep(head, limits) {
            return Err(match self.refuse(id, ErrorCode::RefusedStream, out) {
                Ok(()) => Received::Refused(ExceededLimit::KeptRequestBytes),
                Err(violation) => Received::Closed(self.close_by(violation, out)),
            });
        }
        // RFC 9110 §10.1.1.
        if awaits_continue {
            self.put_head(b"HTTP/1.1 100 Continue\r\n\r\n", id, false, out);
        }
        let work = Work::Receiving { head: head.to_vec(), head_bytes: head.len() };
        self.streams.push(Stream { id, window, priority, client_side, work, passed: None });
        Ok(())
    }

    /// Keeps a request that cannot be answered yet, until [`Session::resume`]; [`Session::may_keep`] is true. Content
    /// that arrives meanwhile is kept as well, up to the window, for [`Session::pass_content`].
    pub fn park(&mut self, request: Request, head: &[u8]) {
        let Request { stream: id, window, priority, client_side, awaits_continue, is_connect, passed, .. } = request;
        let passed = passed.or_else(|| (client_side != ClientSide::Ended).then(Vec::new));
        let work = Work::Parked { head: head.to_vec(), awaits_continue, is_connect };
        self.streams.push(Stream { id, window, priority, client_side, work, passed });
    }

    /// Parks a request whose content the caller takes as it arrives, by [`Session::take_passed`].
    pub fn pass_content(&mut self, mut request: Request, head: &[u8], out: &mut Vec<u8>) {
        // RFC 9110 §10.1.1: if part of the content has arrived, the client does not wait.
        let awaits_continue = mem::take(&mut request.awaits_continue);
        if awaits_continue
            && request.passed.as_ref().is_none_or(Vec::is_empty)
            && request.client_side != ClientSide::Ended
        {
            self.put_head(b"HTTP/1.1 100 Continue\r\n\r\n", request.stream, false, out);
        }
        self.park(request, head);
    }

    /// Takes up to `bytes_max` of the content of such a request, for which its window is opened again, and whether it
    /// has ended with them. `None`: the caller gets no content of this stream.
    pub fn take_passed(&mut self, stream: u32, bytes_max: usize, out: &mut Vec<u8>) -> Option<(Vec<u8>, bool)> {
        let stream = self.streams.find_mut(stream)?;
        let passed = stream.passed.as_mut()?;
        let taken: Vec<u8> = match passed.len() <= bytes_max {
            true => mem::take(passed),
            false => passed.drain(..bytes_max).collect(),
        };
        let is_end = passed.is_empty() && stream.client_side == ClientSide::Ended;
        if is_end {
            stream.passed = None;
        } else if let ClientSide::Open { window_bytes, .. } = &mut stream.client_side
            && !taken.is_empty()
        {
            *window_bytes += taken.len() as u32;
            frame::put_window_update(stream.id, taken.len() as u32, out);
        }
        Some((taken, is_end))
    }

    /// The source of the content of a response that is being sent.
    pub fn body(&self, stream: u32) -> Option<&B> {
        self.streams.iter().find(|open| open.id == stream).and_then(|stream| match &stream.work {
            Work::Sending { body, .. } | Work::Stalled { body, .. } => Some(body),
            _ => None,
        })
    }

    /// Whether the client has reset the stream of a parked request.
    pub fn is_abandoned(&self, stream: u32) -> bool {
        self.streams.iter().any(|open| open.id == stream && matches!(open.work, Work::Abandoned))
    }

    /// Ends such a stream, whose work is over.
    pub fn forget_abandoned(&mut self, stream: u32) {
        if let Some(index) = self.streams.position(stream) {
            self.streams.remove(index);
        }
    }

    /// Whether streams wait for the client to take content, or for content that is not of `is_of_other`.
    pub fn waits_for_client(&self, is_of_other: impl Fn(&B) -> bool) -> bool {
        self.streams.iter().any(|stream| match &stream.work {
            Work::Sending { .. } => true,
            Work::Stalled { body, .. } => !is_of_other(body),
            _ => false,
        })
    }

    /// Takes back a parked request. `None`: the client has reset its stream.
    pub fn resume(&mut self, stream: u32, scratch: &mut Scratch) -> Option<Request> {
        let index = self.streams.position(stream)?;
        let (awaits_continue, is_connect) = match &mut self.streams.at_mut(index).work {
            Work::Parked { head, awaits_continue, is_connect } => {
                scratch.head = mem::take(head);
                (*awaits_continue, *is_connect)
            }
            Work::Abandoned => {
                self.streams.remove(index);
                return None;
            }
            Work::Receiving { .. } | Work::Sending { .. } | Work::Stalled { .. } | Work::Discarding => return None,
        };
        Some(Request { awaits_continue, is_connect, ..request_of(self.streams.remove(index), None) })
    }

    /// Asks the client to stop sending a request whose response was sent whole (RFC 9113 §8.1); returns whether there
    /// is such a request.
    ///
    /// This is delayed: clients that are still sending, such as curl 7.88, would discard the response.
    fn reset_discarded(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(index) = self.streams.first_discarded() else { return false };
        let id = self.streams.remove(index).id;
        self.put_reset(id, ErrorCode::NoError, out);
        true
    }

    /// The stream of the oldest request that is still arriving, and the number of received bytes, unless the request is
    /// discarded. A header block that has arrived in part is the last one.
    pub fn oldest_partial(&self) -> Option<(u32, Option<u64>)> {
        let of_stream = |stream: &Stream<B>| match &stream.work {
            Work::Receiving { head, .. } => Some((stream.id, Some(head.len() as u64))),
            Work::Discarding => Some((stream.id, None)),
            _ => None,
        };
        let of_block = || self.block.as_ref().map(|block| (block.header.stream, Some(block.bytes.len() as u64)));
        self.streams.iter().filter_map(of_stream).min().or_else(of_block)
    }

    /// Ends the receiving of the request that has been arriving for longest.
    pub fn end_oldest_partial(&mut self, exchange: &mut Exchange<'_>) -> PartialEnd {
        let Some((id, _)) = self.oldest_partial() else { return PartialEnd::HasNone };
        let Some(index) = self.streams.position(id) else { return PartialEnd::HasNone };
        if matches!(self.streams.at(index).work, Work::Discarding) {
            self.streams.remove(index);
            self.put_reset(id, ErrorCode::NoError, exchange.out);
            return PartialEnd::Reset;
        }
        PartialEnd::Request(self.take_request(index, None, exchange.scratch))
    }

    fn put_reset(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) {
        frame::put_reset(id, code, out);
        if self.reset_streams.len() >= self.reset_streams_max {
            self.reset_streams.pop_front();
        }
        self.reset_streams.push_back(id);
    }

    /// Resets a stream because of an error of the client.
    fn refuse(&mut self, id: u32, code: ErrorCode, out: &mut Vec<u8>) -> Outcome<()> {
        self.put_reset(id, code, out);
        Ok(self.budgets.take_reset()?)
    }

    fn take_preface(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Outcome<usize> {
        let limits = exchange.limits;
        let length_bytes = input.len().min(PREFACE.len());
        if input[..length_bytes] != PREFACE[..length_bytes] {
            return Err(ErrorCode::ProtocolError.into());
        }
        if length_bytes < PREFACE.len() {
            return Ok(0);
        }
        self.phase = Phase::FirstSettings;
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, limits.streams_max),
            (setting::INITIAL_WINDOW_SIZE, limits.content_window()),
            (setting::MAX_HEADER_LIST_SIZE, u32::try_from(limits.request.head_bytes_max).unwrap_or(u32::MAX)),
            (setting::NO_RFC7540_PRIORITIES, 1),
            (setting::ENABLE_CONNECT_PROTOCOL, 1),
        ];
        let setting_count = settings.len() - usize::from(!limits.accepts_websockets);
        frame::put_settings(&settings[..setting_count], exchange.out);
        Ok(length_bytes)
    }

    /// Takes one frame, if it has arrived whole; returns its length and the request that it completes.
    fn take_frame(&mut self, input: &[u8], exchange: &mut Exchange<'_>) -> Outcome<(usize, Option<Received>)> {
        let Some(header) = FrameHeader::parse(input) else { return Ok((0, None)) };
        if header.payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(ErrorCode::FrameSizeError.into());
        }
        let frame_bytes = HEADER_BYTES + header.payload_bytes;
        let Some(payload) = input.get(HEADER_BYTES..frame_bytes) else { return Ok((0, None)) };
        if self.phase == Phase::FirstSettings {
            if header.kind != kind::SETTINGS || header.has(flag::ACK) {
                return Err(ErrorCode::ProtocolError.into());
            }
            self.phase = Phase::Open;
        }
        if self.block.is_some() && header.kind != kind::CONTINUATION {
            return Err(ErrorCode::ProtocolError.into());
        }
        self.budgets.note_frame(header.payload_bytes, exchange.limits)?;
        let received = match header.kind {
            kind::HEADERS => self.take_headers(header, payload, exchange)?,
            kind::CONTINUATION => self.take_continuation(header, payload, exchange)?,
            kind::DATA => self.take_data(header, payload, exchange)?,
            _ => {
                self.take_control(header, payload, exchange.out)?;
                None
            }
        };
        Ok((frame_bytes, received))
    }
}

fn request_of<B>(stream: Stream<B>, error: Option<RequestError>) -> Request {
    let Stream { id, window, priority, client_side, passed, .. } = stream;
    Request { stream: id, window, priority, client_side, awaits_continue: false, is_connect: false, error, passed }
}
