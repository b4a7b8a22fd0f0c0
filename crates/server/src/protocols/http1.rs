//! HTTP/1.1 on a connection: received bytes become requests, and responses are written in their order.

use crate::context::{Buffers, CloseMode, ConnectionInfo, Context, Input, Step};
use crate::http::asked::{Asked, Framing, Progress};
use crate::http::exchange;
use crate::metrics::Counter;
use crate::net::body_sink::BodySink;
use crate::net::body_source::{BodySource, Content};
use crate::net::call::CallHandle;
use crate::options::Options;
use crate::waiter::Event;
use sanderling_http::{
    BodySkipper, Framing as BodyFraming, Parsed, Persistence, Request, RequestError, RequestLimits, Status,
    has_dns_message, parse_request,
};
use sanderling_log_format::HttpVersion;

/// Requests of one connection that are answered in one iteration.
pub(crate) const REQUESTS_PER_ITERATION_MAX: usize = 128;

/// The part of the preface of HTTP/2 that looks like a request (RFC 9113 §3.4).
const HTTP2_START: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

/// The HTTP side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Http1 {
    /// Bytes at the start of the next input that are part of an incomplete head.
    scanned_bytes: usize,
    /// A request whose body has not arrived whole.
    pending: Option<Box<Pending>>,
    /// The progress of the current request.
    progress: Progress,
}

/// A request whose body has not arrived whole.
#[derive(Debug)]
struct Pending {
    skipper: BodySkipper,
    /// `None` if it is answered already.
    unanswered: Option<Unanswered>,
    /// Bytes of head and body that have arrived.
    received_bytes: u64,
}

/// A request whose answer depends on its body.
#[derive(Debug)]
struct Unanswered {
    head: Vec<u8>,
    sink: BodySink,
}

impl Http1 {
    pub(crate) fn has_partial_request(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether a backend gets the body of the current request as it arrives.
    pub(crate) fn passes_body_on(&self) -> bool {
        self.pending.is_some() && self.progress.answering_call().is_some()
    }

    /// Whether a backend answers the current request.
    pub(crate) fn has_call(&self) -> bool {
        self.progress.call().is_some()
    }

    /// Bytes of the request whose body has not arrived whole, and of its call.
    pub(crate) fn held_bytes(&self) -> usize {
        let unanswered = self.pending.as_ref().and_then(|pending| pending.unanswered.as_ref());
        let of_request = unanswered.map_or(0, |unanswered| unanswered.head.capacity() + unanswered.sink.held_bytes());
        of_request + self.progress.call().map_or(0, CallHandle::held_bytes)
    }

    /// Bytes of that request.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.pending.as_ref().map_or(0, |pending| pending.received_bytes)
    }

    /// Takes the event that the current request waits for.
    pub(crate) fn note_event(&mut self, event: Event) {
        self.progress.note_event(event);
    }

    /// Writes the response to a client that did not send its request in time (RFC 9110 §15.5.9), unless it was answered
    /// before its body had arrived. `unprocessed`: the received part of it.
    pub(crate) fn write_timeout_response(
        &mut self,
        is_receiving: bool,
        unprocessed: &[u8],
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, '_>,
    ) -> bool {
        context.metrics.add(Counter::HttpTimeouts, 1);
        let unanswered = self.pending.as_ref().map(|pending| pending.unanswered.as_ref());
        let is_unanswered = is_receiving && unanswered.is_none_or(|unanswered| unanswered.is_some());
        if is_unanswered {
            let received = unanswered.flatten().map_or(unprocessed, |unanswered| &unanswered.head);
            let progress = std::mem::take(&mut self.progress);
            let framing = Http1Framing { is_last: true, sink: None };
            exchange::refuse(Status::RequestTimeout, received, &progress, framing, connection, context);
        }
        is_unanswered
    }

    /// Takes one request, or part of it, off the input and writes its response.
    pub(crate) fn step<'s>(
        &mut self,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        match self.pending.take() {
            Some(pending) => self.continue_body(pending, input, connection, context),
            None => self.step_head(input, connection, context),
        }
    }

    fn step_head<'s>(
        &mut self,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let (start, bytes) = (input.consumed(), input.rest());
        let scanned_bytes = std::mem::take(&mut self.scanned_bytes);
        // The request is large: it is borrowed from the result, not moved out of it.
        let step = match &parse_request(bytes, scanned_bytes, &context.options.http.request) {
            Ok(Parsed::Partial) => {
                self.scanned_bytes = bytes.len();
                self.progress.note_begin(context.clock.now_ms());
                Step::Partial
            }
            Ok(Parsed::Complete { request, head_bytes }) => {
                input.consume(*head_bytes);
                match request.framing {
                    BodyFraming::None => self.answer(request, input, connection, context),
                    _ => self.start_body(request, &bytes[..*head_bytes], input, connection, context),
                }
            }
            Err(error) if may_be_http2(connection, context) => match error {
                RequestError::UnsupportedVersion if bytes.starts_with(HTTP2_START) => Step::Http2,
                RequestError::UnsupportedVersion if HTTP2_START.starts_with(bytes) => {
                    self.progress.note_begin(context.clock.now_ms());
                    Step::Partial
                }
                // A response in the form of HTTP/1.1 would be none (RFC 9113 §3.4).
                RequestError::InvalidRequestLine if !bytes.windows(7).any(|bytes| bytes == b"HTTP/1.") => {
                    context.metrics.add(Counter::HttpRefused, 1);
                    Step::Invalid
                }
                error => self.refuse(*error, bytes, connection, context),
            },
            Err(error) => self.refuse(*error, bytes, connection, context),
        };
        // A request whose body is being received has left the input.
        if matches!(step, Step::WaitForEvent) && self.pending.is_none() {
            input.rewind(start);
        }
        step
    }

    /// A request with a body, which is skipped: before the request is answered if it has arrived, or if the response
    /// depends on it. A backend gets it as it arrives.
    fn start_body<'s>(
        &mut self,
        request: &Request<'_>,
        head: &[u8],
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let limits = &context.options.http.request;
        let mut skipper = BodySkipper::new(request.framing, limits);
        let mut sink = if has_dns_message(request) { BodySink::message() } else { BodySink::Nothing };
        let mut skipped_bytes = 0;
        if !exchange::may_be_passed_on(request, context) {
            if skipper.is_too_long() {
                return self.refuse(RequestError::BodyTooLarge, head, connection, context);
            }
            match skipper.advance_with(input.rest(), |piece| sink.put(piece, None)) {
                Err(error) => return self.refuse(error, head, connection, context),
                Ok(skipped) => skipped_bytes = skipped.consumed_bytes,
            }
            input.consume(skipped_bytes);
            if skipper.is_done() {
                let content = sink.message_content();
                return self.answer_with_body(request, Some(content), true, input, connection, context).0;
            }
        }
        match self.answer_with_body(request, None, false, input, connection, context) {
            (Step::Partial, BodySink::Backend(bytes_max)) => {
                skipper = BodySkipper::new(request.framing, &RequestLimits { body_bytes_max: bytes_max, ..*limits });
                sink = BodySink::Backend(bytes_max);
            }
            (Step::Partial, _) => {}
            (Step::Answered(source), _) if !request.awaits_continue() => {
                let received_bytes = (head.len() + skipped_bytes) as u64;
                self.pending = Some(Box::new(Pending { skipper, unanswered: None, received_bytes }));
                return Step::Answered(source);
            }
            // Whether the body of a client that waits for 100 (Continue) arrives is unknown, so the connection closes.
            (Step::Answered(source) | Step::Last(_, source), _) => return Step::Last(CloseMode::Linger, source),
            (step, _) => return step,
        }
        // RFC 9110 §10.1.1: if part of the body has arrived, the client does not wait.
        if request.awaits_continue() && skipped_bytes == 0 && input.is_empty() {
            context.buffers.output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.progress.note_begin(context.clock.now_ms());
        let unanswered = Some(Unanswered { head: head.to_vec(), sink });
        let received_bytes = (head.len() + skipped_bytes) as u64;
        self.continue_body(Box::new(Pending { skipper, unanswered, received_bytes }), input, connection, context)
    }

    /// Continues with the body, and answers its request at the end, or when a backend does, unless it is answered.
    fn continue_body<'s>(
        &mut self,
        mut pending: Box<Pending>,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let is_answered_early = self.progress.answering_call().is_some_and(CallHandle::has_response);
        if !is_answered_early && !pending.skipper.is_done() {
            match self.skip(&mut pending, input) {
                Ok(Skipping::Done) => {}
                Ok(Skipping::Partial) => {
                    self.pending = Some(pending);
                    return Step::Partial;
                }
                Ok(Skipping::Full) => {
                    self.pending = Some(pending);
                    return Step::WaitForEvent;
                }
                Err(error) => match &pending.unanswered {
                    Some(unanswered) => return self.refuse(error, &unanswered.head, connection, context),
                    None => {
                        context.metrics.add(Counter::HttpRefused, 1);
                        return Step::Invalid;
                    }
                },
            }
        }
        let is_whole = pending.skipper.is_done();
        let Some(Unanswered { head, sink }) = &pending.unanswered else { return Step::Skipped };
        let content = sink.message_content();
        let step = match parse_request(head, 0, &context.options.http.request) {
            Ok(Parsed::Complete { request, .. }) => {
                let request = request.with_received_body();
                self.answer_with_body(&request, Some(content), is_whole, input, connection, context).0
            }
            Ok(Parsed::Partial) => self.refuse(RequestError::InvalidRequestLine, head, connection, context),
            Err(error) => self.refuse(error, head, connection, context),
        };
        if matches!(step, Step::WaitForEvent) {
            self.pending = Some(pending);
        }
        step
    }

    /// Takes what has arrived of the body, as far as its sink has room for it.
    fn skip(&self, pending: &mut Pending, input: &mut Input<'_>) -> Result<Skipping, RequestError> {
        let Pending { skipper, unanswered, received_bytes } = pending;
        let call = self.progress.answering_call();
        let mut nothing = BodySink::Nothing;
        let sink = unanswered.as_mut().map_or(&mut nothing, |unanswered| &mut unanswered.sink);
        loop {
            let rest = input.rest();
            let room = sink.room(call).min(rest.len());
            let skipped = skipper.advance_with(&rest[..room], |piece| sink.put(piece, call))?;
            input.consume(skipped.consumed_bytes);
            *received_bytes += skipped.consumed_bytes as u64;
            if skipper.is_done() {
                if let Some(call) = call {
                    call.finish_request();
                }
                return Ok(Skipping::Done);
            }
            if input.is_empty() {
                return Ok(Skipping::Partial);
            }
            if room == 0 {
                return Ok(Skipping::Full);
            }
        }
    }

    /// Answers a request without a body, which ends where the rest of `input` begins.
    // Separate, so that the called functions are inlined into it.
    #[inline(never)]
    fn answer<'s>(
        &mut self,
        request: &Request<'_>,
        input: &Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let asked = Asked { request, content: Some(&[]), connection, peer: *connection.client, waiter: context.waiter };
        let is_last = self.is_last(input, connection, context);
        let framing = Http1Framing { is_last, sink: None };
        exchange::begin(&asked, &mut self.progress, framing, context)
    }

    /// Answers a request with a body, of which the rest `is_whole`, or has to be skipped. [`Step::Partial`]: the
    /// response depends on it, its `content` is not known, and it goes into the sink.
    #[cold]
    #[inline(never)]
    fn answer_with_body<'s>(
        &mut self,
        request: &Request<'_>,
        content: Option<&[u8]>,
        is_whole: bool,
        input: &Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> (Step<'s>, BodySink) {
        let asked = Asked { request, content, connection, peer: *connection.client, waiter: context.waiter };
        let mut sink = BodySink::Nothing;
        // The rest of a body that a backend has not waited for is not skipped: it may be of any length.
        let is_cut = !is_whole && content.is_some();
        let is_last = is_cut || self.is_last(input, connection, context);
        let step =
            exchange::begin(&asked, &mut self.progress, Http1Framing { is_last, sink: Some(&mut sink) }, context);
        (step, sink)
    }

    /// Whether no further request is answered. While the server drains, all requests that have certainly been sent
    /// still are: a client may not repeat requests that it sent after the response that says `Connection: close` (RFC
    /// 9112 §9.6). A look-up that has failed may still end, and no other request may take its event for its own.
    #[inline(always)]
    fn is_last(&self, input: &Input<'_>, connection: &ConnectionInfo<'_>, context: &Context<'_, '_>) -> bool {
        connection.answered_count + 1 >= context.options.http.requests_per_connection_max
            || (context.is_draining() && input.is_empty() && !connection.transport.is_readable())
            || self.progress.has_failed()
    }

    /// Writes the response to a malformed request. The connection closes after it, since the start of the next request
    /// is unknown.
    fn refuse<'s>(
        &mut self,
        error: RequestError,
        received: &[u8],
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        context.metrics.add(Counter::HttpRefused, 1);
        let progress = std::mem::take(&mut self.progress);
        let framing = Http1Framing { is_last: true, sink: None };
        exchange::refuse(error.status(), received, &progress, framing, connection, context)
    }
}

/// How far a body was taken.
enum Skipping {
    Done,
    /// The rest has not arrived.
    Partial,
    /// The sink has no room.
    Full,
}

/// Writes a response after those before it.
struct Http1Framing<'f> {
    /// No further request is answered.
    is_last: bool,
    /// Where the body goes, if the response depends on it; `None` without a body.
    sink: Option<&'f mut BodySink>,
}

impl<'s> Framing<'s> for Http1Framing<'_> {
    const VERSION: HttpVersion = HttpVersion::Http1;
    type Step = Step<'s>;

    fn can_wait(&self, _options: &Options) -> bool {
        true
    }

    fn takes_at_once(&self, _length_bytes: u64) -> bool {
        true
    }

    #[inline(always)]
    fn is_last(&self) -> bool {
        self.is_last
    }

    fn head<'b>(&self, buffers: &'b mut Buffers) -> &'b mut Vec<u8> {
        &mut buffers.output
    }

    fn put_interim(&mut self, head: &[u8], buffers: &mut Buffers) {
        buffers.output.extend_from_slice(head);
    }

    #[inline(always)]
    fn respond(
        self,
        persistence: Persistence,
        content: Content<'_, 's>,
        buffers: &mut Buffers,
        _options: &Options,
    ) -> Step<'s> {
        let source = match content {
            Content::Empty => None,
            Content::Bytes(bytes) => {
                buffers.output.extend_from_slice(bytes);
                None
            }
            Content::Later { mut source, .. } => {
                let is_taken = match &mut source {
                    BodySource::File(file) => {
                        buffers.output.extend_from_slice(&file.take_text());
                        false
                    }
                    BodySource::Backend(content) => content.take_arrived(&mut buffers.output),
                    BodySource::Page(_) | BodySource::Bytes { .. } => false,
                };
                (!is_taken).then_some(source)
            }
        };
        match persistence.is_close() {
            // The client did not ask for the close and may have sent more meanwhile.
            true if self.is_last => Step::Last(CloseMode::Linger, source),
            true => Step::Last(CloseMode::AtOnce, source),
            false => Step::Answered(source),
        }
    }

    fn wait(self, _progress: &mut Progress) -> Step<'s> {
        Step::WaitForEvent
    }

    fn need_body(self, sink: BodySink, _progress: &mut Progress, _context: &mut Context<'_, 's>) -> Step<'s> {
        if let Some(own) = self.sink {
            *own = sink;
        }
        Step::Partial
    }

    fn begin_tunnel(self, call: CallHandle, _buffers: &mut Buffers, _options: &Options) -> Step<'s> {
        Step::Tunnel(call)
    }
}

/// Whether invalid input may be the start of an HTTP/2 connection, by a client that knows that the server speaks it
/// (RFC 9113 §3.3). With encryption a client chooses it in the handshake.
#[cold]
fn may_be_http2(connection: &ConnectionInfo<'_>, context: &Context<'_, '_>) -> bool {
    context.options.http.accepts_http2 && connection.answered_count == 0 && !connection.transport.is_encrypted()
}
