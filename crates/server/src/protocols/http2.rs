//! HTTP/2 on a connection: concurrent requests, whose responses are sent in turns.

use crate::clock::Milliseconds;
use crate::context::{Buffers, ConnectionInfo, Context, Input};
use crate::http::asked::{Asked, Framing, Progress};
use crate::http::exchange;
use crate::limits::buffer_budget::SCARCE_BYTES_MAX;
use crate::metrics::{Counter, ThreadMetrics};
use crate::net::backend_content::{BackendContent, Filled};
use crate::net::body_sink::BodySink;
use crate::net::body_source::{BodySource, Content};
use crate::net::call::CallHandle;
use crate::options::Options;
use crate::waiter::{Event, Waiter};
use sanderling_http::{Framing as BodyFraming, Parsed, Persistence, RequestError, Scheme, Status, parse_request};
use sanderling_http2::{
    Activity, DATA_BYTES_MAX, ErrorCode, ExceededLimit, Exchange, Limits, PartialEnd, Received, Request, Session,
};
use sanderling_log_format::HttpVersion;

/// Pieces of content of one connection in one iteration; a request counts as several.
pub(crate) const STEPS_PER_ITERATION_MAX: usize = 128;

/// The HTTP/2 side of a connection.
#[derive(Debug)]
pub(crate) struct Http2<'s> {
    session: Session<BodySource<'s>>,
    /// The streams that wait for an event, or have received one.
    waiting: Vec<WaitingStream>,
    /// Streams whose content a backend takes now.
    passing: Vec<u32>,
    /// Content that was written since [`Http2::take_progress`] was true.
    written_bytes: usize,
    incoming: Incoming,
    /// When it must have arrived.
    pub(crate) incoming_deadline_ms: Milliseconds,
    /// When the connection is closed unless content is sent. `None`: no response waits.
    pub(crate) send_deadline_ms: Option<Milliseconds>,
    /// When the connection is closed if nothing is incoming and nothing is sent.
    pub(crate) idle_deadline_ms: Milliseconds,
}

/// The request that has arrived in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Incoming {
    Nothing,
    /// A frame, while no request has arrived in part.
    Frame,
    /// The request on this stream, for longer than others.
    Request(u32),
    /// That request, whose deadline has passed.
    Overdue,
}

/// A request that waits for an event.
#[derive(Debug)]
struct WaitingStream {
    stream: u32,
    progress: Progress,
    /// The event has come.
    is_ready: bool,
}

/// The result of processing the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamStep {
    /// The rest of a frame is missing.
    Partial,
    /// Something was done, and the next step may do more.
    Progress {
        /// A request was answered, or the answer to one began.
        has_answered: bool,
    },
    /// The connection ends, once the output is sent.
    Closed,
}

impl<'s> Http2<'s> {
    /// `deadline_ms`: for the first request.
    pub(crate) fn new(limits: &Limits, scheme: Scheme, deadline_ms: Milliseconds) -> Http2<'s> {
        Http2 {
            session: Session::new(limits, scheme),
            waiting: Vec::new(),
            passing: Vec::new(),
            written_bytes: 0,
            incoming: Incoming::Nothing,
            incoming_deadline_ms: deadline_ms,
            send_deadline_ms: None,
            idle_deadline_ms: deadline_ms,
        }
    }

    /// Notes the incoming data after the input was processed; whether it has changed, so that it gets a deadline.
    pub(crate) fn note_incoming(&mut self, is_frame_partial: bool) -> bool {
        let incoming = match self.session.oldest_partial() {
            Some((stream, _)) => Incoming::Request(stream),
            None if is_frame_partial => Incoming::Frame,
            None => Incoming::Nothing,
        };
        std::mem::replace(&mut self.incoming, incoming) != incoming
    }

    /// The deadline of incoming data has passed, or it arrives too slowly; `false` if it cannot be refused separately.
    pub(crate) fn end_incoming(&mut self) -> bool {
        let is_request = matches!(self.incoming, Incoming::Request(_));
        if is_request {
            self.incoming = Incoming::Overdue;
        }
        is_request
    }

    /// Bytes of incoming data that have left the input; `None` if they are discarded.
    pub(crate) fn received_bytes(&self) -> Option<u64> {
        self.session.oldest_partial().map_or(Some(0), |(_, bytes)| bytes)
    }

    /// The reason for which the connection waits.
    #[inline(never)]
    pub(crate) fn activity(&self) -> Activity {
        self.session.activity()
    }

    /// Whether a stream can continue without further input.
    #[inline(never)]
    pub(crate) fn has_work(&self) -> bool {
        let has_event = self.waiting.iter().any(|waiting| waiting.is_ready);
        has_event
            || !self.passing.is_empty()
            || self.incoming == Incoming::Overdue
            || self.session.can_send()
            || self.session.is_finished()
    }

    /// Takes the event that `stream` waits for.
    pub(crate) fn note_event(&mut self, stream: u32, event: Event) {
        if matches!(event, Event::Read | Event::Backend) {
            self.session.wake(stream);
        }
        if event == Event::Backend {
            self.passing.push(stream);
        }
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.stream == stream) {
            waiting.progress.note_event(event);
            waiting.is_ready = waiting.progress.call().is_none_or(CallHandle::has_news);
        }
    }

    /// Responses that have begun and are not sent whole.
    pub(crate) fn unsent_response_count(&self) -> usize {
        self.session.unsent_response_count()
    }

    /// The last frame for a client whose connection is closed; empty if it knows already.
    pub(crate) fn last_frame(&mut self) -> Vec<u8> {
        let mut frame = Vec::new();
        self.session.finish_shutdown(&mut frame);
        frame
    }

    /// Bytes of memory that the connection holds.
    #[inline(never)]
    pub(crate) fn held_bytes(&self) -> usize {
        let of_calls = self.waiting.iter().filter_map(|waiting| waiting.progress.call()).map(CallHandle::held_bytes);
        self.session.held_bytes(BodySource::held_bytes)
            + self.waiting.capacity() * size_of::<WaitingStream>()
            + of_calls.sum::<usize>()
    }

    /// Whether a response waits for something other than a backend, which has its own deadline.
    pub(crate) fn has_deadline(&self) -> bool {
        let is_of_backend = |source: &BodySource<'_>| matches!(source, BodySource::Backend(_));
        self.session.waits_for_client(is_of_backend)
            || self.waiting.iter().any(|waiting| waiting.progress.call().is_none())
    }

    /// The bytes of incomplete requests.
    pub(crate) fn partial_bytes(&self) -> usize {
        self.session.partial_bytes()
    }

    /// Releases memory that an idle connection does not need.
    #[inline(never)]
    pub(crate) fn shrink(&mut self) {
        self.session.shrink();
        self.waiting.shrink_to_fit();
    }

    /// Whether at least `bytes_min` of content were written since the last call that was true.
    pub(crate) fn take_progress(&mut self, bytes_min: usize) -> bool {
        let has_progress = self.written_bytes >= bytes_min;
        if has_progress {
            self.written_bytes = 0;
        }
        has_progress
    }

    pub(crate) fn announce_shutdown(&mut self, context: &mut Context<'_, 's>) -> bool {
        context.buffers.output.clear();
        self.session.begin_shutdown(&mut context.buffers.output);
        !context.buffers.output.is_empty()
    }

    pub(crate) fn finish_shutdown(&mut self, context: &mut Context<'_, 's>) {
        self.session.finish_shutdown(&mut context.buffers.output);
    }

    /// Ends the connection with GOAWAY, if the client takes it.
    pub(crate) fn write_timeout_response(&mut self, is_sent: bool, context: &mut Context<'_, '_>) -> bool {
        context.metrics.add(Counter::HttpTimeouts, 1);
        if is_sent {
            self.session.close(ErrorCode::NoError, &mut context.buffers.output);
        }
        is_sent
    }

    /// Answers one request, or writes one piece of content.
    // Separate, so that the path of HTTP/1.1 through the connection stays short.
    #[inline(never)]
    pub(crate) fn step(
        &mut self,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> StreamStep {
        if self.incoming == Incoming::Overdue {
            return self.refuse_overdue(connection, context);
        }
        if let Some(stream) = self.passing.pop() {
            self.pass_on(stream, &mut context.buffers.output);
            return StreamStep::Progress { has_answered: false };
        }
        if let Some(index) = self.waiting.iter().position(|waiting| waiting.is_ready) {
            let WaitingStream { stream, progress, .. } = self.waiting.swap_remove(index);
            return match self.session.resume(stream, &mut context.buffers.http2) {
                Some(request) => self.answer(request, progress, connection, context),
                None => StreamStep::Progress { has_answered: false },
            };
        }
        let Context { options, buffers, metrics, .. } = &mut *context;
        let Buffers { output, http2: scratch, .. } = &mut **buffers;
        let limits = &options.http.http2;
        let mut exchange = Exchange { limits, scratch, out: output };
        let (taken_bytes, received) = self.session.receive(input.rest(), &mut exchange);
        input.consume(taken_bytes);
        match received {
            Received::Request(request) => {
                metrics.add(Counter::Http2Requests, 1);
                return self.answer(request, Progress::default(), connection, context);
            }
            Received::Content(request) => return self.answer(request, Progress::default(), connection, context),
            Received::Refused(limit) => return refused(limit, metrics),
            Received::Closed(limit) => return closed(limit, metrics),
            Received::Passed(stream) => {
                self.pass_on(stream, &mut context.buffers.output);
                return StreamStep::Progress { has_answered: false };
            }
            Received::Partial => self.give_up_abandoned(),
        }
        if self.write_content(context) {
            return StreamStep::Progress { has_answered: false };
        }
        if self.session.is_finished() {
            return StreamStep::Closed;
        }
        if input.is_empty() { StreamStep::Progress { has_answered: false } } else { StreamStep::Partial }
    }

    /// Gives a backend what has arrived of the content of a request, as far as it takes it.
    fn pass_on(&mut self, stream: u32, out: &mut Vec<u8>) {
        let Http2 { session, waiting, .. } = self;
        let waiting = waiting.iter().find(|waiting| waiting.stream == stream);
        let of_response = match session.body(stream) {
            Some(BodySource::Backend(content)) => Some(content.call().clone()),
            _ => None,
        };
        let call = waiting.and_then(|waiting| waiting.progress.answering_call().cloned()).or(of_response);
        let Some(call) = call else { return };
        let room = call.request_room();
        let Some((content, is_end)) = session.take_passed(stream, room, out) else { return };
        call.put_content(&content);
        if is_end {
            call.finish_request();
        } else if content.len() == room {
            // The rest waits for room, of which there is none now.
            call.request_room();
        }
    }

    /// Ends the calls whose streams the client has reset.
    fn give_up_abandoned(&mut self) {
        let Http2 { session, waiting, .. } = self;
        if waiting.iter().all(|waiting| waiting.progress.call().is_none()) {
            return;
        }
        waiting.retain(|waiting| {
            let is_over = waiting.progress.call().is_some() && session.is_abandoned(waiting.stream);
            if is_over {
                session.forget_abandoned(waiting.stream);
            }
            !is_over
        });
    }

    /// Writes a piece of the content of the stream that sends next; whether there is one.
    fn write_content(&mut self, context: &mut Context<'_, 's>) -> bool {
        let Context { options, buffers, files, metrics, reads, clock, waiter, .. } = &mut *context;
        let Buffers { output, limits, .. } = &mut **buffers;
        let content_bytes_max = if limits.is_scarce() { SCARCE_BYTES_MAX } else { DATA_BYTES_MAX };
        let Some(mut frame) = self.session.next_data(content_bytes_max, &options.http.http2, output) else {
            return false;
        };
        let waiter = Waiter { stream: frame.stream(), ..*waiter };
        let (source, room) = frame.parts();
        match metrics.heartbeat.during_file_call(|| source.fill(room, reads, waiter, clock.now_ms())) {
            Ok(Filled::Bytes(length_bytes)) => {
                frame.finish(length_bytes);
                self.written_bytes += length_bytes;
            }
            Ok(Filled::Last(length_bytes)) => {
                let trailers = source.take_trailers();
                match trailers.is_empty() {
                    true => frame.finish_last(length_bytes),
                    false => frame.finish_with_trailers(length_bytes, &trailers),
                }
                self.written_bytes += length_bytes;
            }
            Ok(Filled::Awaited) => frame.stall(),
            Ok(Filled::CutOff) | Err(_) => {
                metrics.add(Counter::HttpAborted, 1);
                if let Some(file) = source.file() {
                    files.invalidate(file);
                }
                frame.abort();
            }
        }
        true
    }

    /// Refuses the request that has been arriving for longest, or ends the connection, if the stream cannot be ended
    /// separately.
    #[cold]
    fn refuse_overdue(&mut self, connection: &ConnectionInfo<'_>, context: &mut Context<'_, 's>) -> StreamStep {
        self.incoming = Incoming::Nothing;
        let limits = &context.options.http.http2;
        let Buffers { output, http2: scratch, .. } = &mut *context.buffers;
        match self.session.end_oldest_partial(&mut Exchange { limits, scratch, out: output }) {
            PartialEnd::Reset => StreamStep::Progress { has_answered: false },
            PartialEnd::Request(request) => {
                context.metrics.add(Counter::HttpTimeouts, 1);
                let head = std::mem::take(&mut context.buffers.http2.head);
                let framing = Http2Framing { http: self, request, received: &head };
                // RFC 9110 §15.5.9.
                let (status, progress) = (Status::RequestTimeout, Progress::default());
                let step = exchange::refuse(status, &head, &progress, framing, connection, context);
                context.buffers.http2.head = head;
                step
            }
            PartialEnd::HasNone => {
                context.metrics.add(Counter::HttpTimeouts, 1);
                self.session.close(ErrorCode::NoError, output);
                StreamStep::Closed
            }
        }
    }

    /// Answers a request whose head is in the scratch buffer, or lets it wait.
    fn answer(
        &mut self,
        request: Request,
        progress: Progress,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> StreamStep {
        // Moved out and back: the response is written into the other buffers.
        let received = std::mem::take(&mut context.buffers.http2.head);
        let step = self.answer_received(request, &received, progress, connection, context);
        context.buffers.http2.head = received;
        step
    }

    /// Answers a request of which this was received.
    #[inline(always)]
    fn answer_received(
        &mut self,
        request: Request,
        received: &[u8],
        mut progress: Progress,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> StreamStep {
        let (stream, has_content, error) = (request.stream(), request.has_content(), request.error());
        let framing = Http2Framing { http: self, request, received };
        let parsed = match error {
            Some(error) => Err(error),
            None => parse_request(received, 0, &context.options.http.request),
        };
        let (parsed, head_bytes) = match &parsed {
            Ok(Parsed::Complete { request, head_bytes }) => (request, *head_bytes),
            refused => {
                context.metrics.add(Counter::HttpRefused, 1);
                // A head whose end is missing exceeds its limit.
                let error = refused.as_ref().err().copied().unwrap_or(RequestError::HeadTooLong);
                return exchange::refuse(error.status(), received, &progress, framing, connection, context);
            }
        };
        if matches!(parsed.framing, BodyFraming::Length(length_bytes) if length_bytes > context.options.http.request.body_bytes_max)
            && !exchange::may_be_passed_on(parsed, context)
        {
            let status = RequestError::BodyTooLarge.status();
            return exchange::refuse(status, received, &progress, framing, connection, context);
        }
        let content = (!has_content).then(|| &received[head_bytes..]);
        let waiter = Waiter { stream, ..context.waiter };
        exchange::begin(
            &Asked { request: parsed, content, connection, peer: *connection.client, waiter },
            &mut progress,
            framing,
            context,
        )
    }
}

/// Writes the response to a request as the frames of its stream.
struct Http2Framing<'h, 's> {
    http: &'h mut Http2<'s>,
    request: Request,
    /// The head of the request, and its content, if that is kept.
    received: &'h [u8],
}

impl<'s> Framing<'s> for Http2Framing<'_, 's> {
    const VERSION: HttpVersion = HttpVersion::Http2;
    type Step = StreamStep;

    fn can_wait(&self, options: &Options) -> bool {
        self.http.session.may_keep(self.received, &options.http.http2)
    }

    fn takes_at_once(&self, length_bytes: u64) -> bool {
        self.http.session.has_room_for(&self.request, length_bytes)
    }

    fn is_last(&self) -> bool {
        false
    }

    fn head<'b>(&self, buffers: &'b mut Buffers) -> &'b mut Vec<u8> {
        buffers.http2_head.clear();
        &mut buffers.http2_head
    }

    fn put_interim(&mut self, head: &[u8], buffers: &mut Buffers) {
        self.http.session.put_interim(&self.request, head, &mut buffers.output);
    }

    #[inline(always)]
    fn respond(
        self,
        _persistence: Persistence,
        content: Content<'_, 's>,
        buffers: &mut Buffers,
        options: &Options,
    ) -> StreamStep {
        let content = match content {
            Content::Empty => sanderling_http2::Content::Empty,
            Content::Bytes(bytes) => sanderling_http2::Content::Bytes(bytes),
            Content::Later { source, length_bytes } => sanderling_http2::Content::Later { body: source, length_bytes },
        };
        let Buffers { output, http2_head: head, .. } = buffers;
        let content = if self.request.is_connect() { answer_without_tunnel(head, content) } else { content };
        self.http.session.answer(self.request, head, content, &options.http.http2, output);
        StreamStep::Progress { has_answered: true }
    }

    fn wait(self, progress: &mut Progress) -> StreamStep {
        let Http2Framing { http, request, received } = self;
        http.push_waiting(request.stream(), progress);
        http.session.park(request, received);
        StreamStep::Progress { has_answered: false }
    }

    /// RFC 8441 §5: the stream is the connection of the WebSocket.
    fn begin_tunnel(self, call: CallHandle, buffers: &mut Buffers, options: &Options) -> StreamStep {
        if !self.request.has_content() {
            call.finish_request();
        }
        let Buffers { output, http2_head: head, .. } = buffers;
        let head = head_of_tunnel(head);
        let body = BodySource::Backend(Box::new(BackendContent::of_tunnel(call, Vec::new())));
        let content = sanderling_http2::Content::Later { body, length_bytes: None };
        self.http.session.answer(self.request, &head, content, &options.http.http2, output);
        StreamStep::Progress { has_answered: true }
    }

    fn need_body(self, sink: BodySink, progress: &mut Progress, context: &mut Context<'_, 's>) -> StreamStep {
        if let BodySink::Backend(_) = sink {
            let Http2Framing { http, request, received } = self;
            http.push_waiting(request.stream(), progress);
            // Content may have arrived while the request waited for something else.
            http.passing.push(request.stream());
            http.session.pass_content(request, received, &mut context.buffers.output);
            return StreamStep::Progress { has_answered: false };
        }
        let (limits, output) = (&context.options.http.http2, &mut context.buffers.output);
        match self.http.session.await_content(self.request, self.received, limits, output) {
            Err(Received::Closed(limit)) => closed(limit, context.metrics),
            Err(Received::Refused(limit)) => refused(limit, context.metrics),
            _ => StreamStep::Progress { has_answered: false },
        }
    }
}

impl Http2<'_> {
    fn push_waiting(&mut self, stream: u32, progress: &mut Progress) {
        self.waiting.push(WaitingStream { stream, progress: std::mem::take(progress), is_ready: false });
    }
}

/// A status of 2xx would begin a tunnel that nothing is behind: such a response becomes a 501.
#[cold]
fn answer_without_tunnel<'c, B>(
    head: &mut Vec<u8>,
    content: sanderling_http2::Content<'c, B>,
) -> sanderling_http2::Content<'c, B> {
    if head.get(b"HTTP/1.1 ".len()) != Some(&b'2') {
        return content;
    }
    head.clear();
    head.extend_from_slice(b"HTTP/1.1 501 Not Implemented\r\nServer: sanderling\r\nContent-Length: 0\r\n\r\n");
    sanderling_http2::Content::Empty
}

/// The head of a 101 as that of the response which begins a tunnel: without what HTTP/1.1 needs (RFC 8441 §5.1).
fn head_of_tunnel(head: &[u8]) -> Vec<u8> {
    const LEFT_OUT: [&[u8]; 3] = [b"connection", b"upgrade", b"sec-websocket-accept"];
    let mut out = b"HTTP/1.1 200 OK\r\n".to_vec();
    for line in head.split_inclusive(|&byte| byte == b'\n').skip(1) {
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        if !LEFT_OUT.iter().any(|left_out| left_out.eq_ignore_ascii_case(name)) {
            out.extend_from_slice(line);
        }
    }
    out
}

/// A request was refused because of this limit.
#[cold]
fn refused(limit: ExceededLimit, metrics: &ThreadMetrics) -> StreamStep {
    metrics.add(counter_of(limit), 1);
    StreamStep::Progress { has_answered: false }
}

/// The connection has ended because of this limit, or of another error of the client.
#[cold]
fn closed(limit: Option<ExceededLimit>, metrics: &ThreadMetrics) -> StreamStep {
    metrics.add(Counter::Http2Refused, 1);
    metrics.add(limit.map_or(Counter::Http2Errors, counter_of), 1);
    StreamStep::Closed
}

/// The counter of requests and connections that have exceeded a limit.
fn counter_of(limit: ExceededLimit) -> Counter {
    match limit {
        ExceededLimit::Streams => Counter::Http2OverStreams,
        ExceededLimit::KeptRequestBytes => Counter::Http2OverKeptRequestBytes,
        ExceededLimit::HeaderBlockBytes => Counter::Http2OverHeaderBlockBytes,
        ExceededLimit::Continuations => Counter::Http2OverContinuations,
        ExceededLimit::Resets => Counter::Http2OverResets,
        ExceededLimit::ControlFrames => Counter::Http2OverControlFrames,
        ExceededLimit::OverheadBytes => Counter::Http2OverOverheadBytes,
    }
}
