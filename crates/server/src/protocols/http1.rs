//! HTTP/1.1 on a connection: received bytes become requests, and responses are written in their order.

use crate::context::{Buffers, CloseMode, ConnectionInfo, Context, Input, Step};
use crate::http::exchange::{self, Asked, Framing, Progress};
use crate::metrics::Counter;
use crate::net::body_source::{BodySource, Content};
use crate::options::Options;
use crate::waiter::Event;
use sanderling_http::{
    BodySkipper, DNS_MESSAGE_BYTES_MAX, Framing as BodyFraming, Parsed, Request, RequestError, Response, Skipped,
    Status, has_dns_message, parse_request,
};
use sanderling_log_format::HttpVersion;

/// Requests of one connection that are answered in one iteration.
pub(crate) const REQUESTS_PER_ITERATION_MAX: usize = 128;

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

/// The progress of skipping a body.
#[derive(Debug)]
struct Pending {
    skipper: BodySkipper,
    /// The request, whose response depends on its body; `None` if it is answered already.
    query: Option<PendingQuery>,
    /// Bytes of head and body that have arrived.
    received_bytes: u64,
}

/// The received part of a request with a DNS query.
#[derive(Debug)]
struct PendingQuery {
    head: Vec<u8>,
    content: Vec<u8>,
}

impl Http1 {
    pub(crate) fn has_partial_request(&self) -> bool {
        self.pending.is_some()
    }

    /// Bytes of the request whose body has not arrived whole.
    pub(crate) fn held_bytes(&self) -> usize {
        let query = self.pending.as_ref().and_then(|pending| pending.query.as_ref());
        query.map_or(0, |query| query.head.capacity() + query.content.capacity())
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
        let is_unanswered = is_receiving && self.pending.as_ref().is_none_or(|pending| pending.query.is_some());
        if is_unanswered {
            let query = self.pending.as_ref().and_then(|pending| pending.query.as_ref());
            let received = query.map_or(unprocessed, |query| &query.head);
            let framing = Http1Framing { is_last: true };
            exchange::refuse(Status::RequestTimeout, received, &self.progress, framing, connection, context);
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
                RequestError::UnsupportedVersion if bytes.starts_with(b"PRI * HTTP/2.0\r\n\r\n") => Step::Http2,
                // A response in the form of HTTP/1.1 would be none (RFC 9113 §3.4).
                RequestError::InvalidRequestLine if !bytes.windows(7).any(|bytes| bytes == b"HTTP/1.") => {
                    context.metrics.add(Counter::HttpRefused, 1);
                    Step::Invalid
                }
                error => self.refuse(*error, bytes, connection, context),
            },
            Err(error) => self.refuse(*error, bytes, connection, context),
        };
        if matches!(step, Step::WaitForEvent) {
            input.rewind(start);
        }
        step
    }

    /// A request with a body, which is skipped: before the request is answered if it has arrived, or if the response
    /// depends on it.
    fn start_body<'s>(
        &mut self,
        request: &Request<'_>,
        head: &[u8],
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let mut skipper = BodySkipper::new(request.framing, &context.options.http.request);
        let mut content = has_dns_message(request).then(Vec::new);
        let skipped = match skip(&mut skipper, input.rest(), content.as_mut()) {
            Err(error) => return self.refuse(error, head, connection, context),
            Ok(skipped) => skipped,
        };
        input.consume(skipped.consumed_bytes);
        if skipped.is_done {
            return self.answer_with_body(request, Some(&content.unwrap_or_default()), input, connection, context);
        }
        let received_bytes = (head.len() + skipped.consumed_bytes) as u64;
        match self.answer_with_body(request, None, input, connection, context) {
            Step::Partial => {}
            Step::Answered(source) if !request.awaits_continue() => {
                self.pending = Some(Box::new(Pending { skipper, query: None, received_bytes }));
                return Step::Answered(source);
            }
            // Whether the body of a client that waits for 100 (Continue) arrives is unknown, so the connection closes.
            Step::Answered(source) | Step::Last(_, source) => return Step::Last(CloseMode::Linger, source),
            step => return step,
        }
        let query = PendingQuery { head: head.to_vec(), content: content.unwrap_or_default() };
        // RFC 9110 §10.1.1: if part of the body has arrived, the client does not wait.
        if request.awaits_continue() && skipped.consumed_bytes == 0 {
            context.buffers.output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.progress.note_begin(context.clock.now_ms());
        self.pending = Some(Box::new(Pending { skipper, query: Some(query), received_bytes }));
        Step::Partial
    }

    /// Continues skipping the body, and answers its request at the end, unless it is answered.
    fn continue_body<'s>(
        &mut self,
        mut pending: Box<Pending>,
        input: &mut Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let content = pending.query.as_mut().map(|query| &mut query.content);
        let skipped = match (skip(&mut pending.skipper, input.rest(), content), &pending.query) {
            (Err(error), Some(query)) => return self.refuse(error, &query.head, connection, context),
            (Err(_), None) => {
                context.metrics.add(Counter::HttpRefused, 1);
                return Step::Invalid;
            }
            (Ok(skipped), _) => skipped,
        };
        input.consume(skipped.consumed_bytes);
        pending.received_bytes += skipped.consumed_bytes as u64;
        if !skipped.is_done {
            self.pending = Some(pending);
            return Step::Partial;
        }
        let Some(PendingQuery { head, content }) = &pending.query else { return Step::Skipped };
        let step = match parse_request(head, 0, &context.options.http.request) {
            Ok(Parsed::Complete { request, .. }) => {
                self.answer_with_body(&request.with_received_body(), Some(content), input, connection, context)
            }
            Ok(Parsed::Partial) => self.refuse(RequestError::InvalidRequestLine, head, connection, context),
            Err(error) => self.refuse(error, head, connection, context),
        };
        if matches!(step, Step::WaitForEvent) {
            self.pending = Some(pending);
        }
        step
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
        let asked = Asked { request, content: Some(&[]), connection, waiter: context.waiter };
        let framing = Http1Framing { is_last: self.is_last(input, connection, context) };
        exchange::begin(&asked, &mut self.progress, framing, context)
    }

    /// Answers a request with a body; [`Step::Partial`] if the response depends on it and its `content` is not known.
    #[cold]
    #[inline(never)]
    fn answer_with_body<'s>(
        &mut self,
        request: &Request<'_>,
        content: Option<&[u8]>,
        input: &Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let asked = Asked { request, content, connection, waiter: context.waiter };
        let framing = Http1Framing { is_last: self.is_last(input, connection, context) };
        exchange::begin(&asked, &mut self.progress, framing, context)
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
        let (progress, framing) = (std::mem::take(&mut self.progress), Http1Framing { is_last: true });
        exchange::refuse(error.status(), received, &progress, framing, connection, context)
    }
}

/// Writes a response after those before it.
struct Http1Framing {
    /// No further request is answered.
    is_last: bool,
}

impl<'s> Framing<'s> for Http1Framing {
    const VERSION: HttpVersion = HttpVersion::Http1;
    type Step = Step<'s>;

    fn can_wait(&self, _options: &Options) -> bool {
        true
    }

    fn takes_at_once(&self, _length_bytes: u64) -> bool {
        true
    }

    #[inline(always)]
    fn adjust<'r>(&self, response: Response<'r>) -> Response<'r> {
        if self.is_last { response.with_connection_close() } else { response }
    }

    fn head<'b>(&self, buffers: &'b mut Buffers) -> &'b mut Vec<u8> {
        &mut buffers.output
    }

    #[inline(always)]
    fn respond(
        self,
        response: &Response<'_>,
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
                if let BodySource::File(file) = &mut source {
                    buffers.output.extend_from_slice(&file.take_text());
                }
                Some(source)
            }
        };
        match response.persistence().is_close() {
            // The client did not ask for the close and may have sent more meanwhile.
            true if self.is_last => Step::Last(CloseMode::Linger, source),
            true => Step::Last(CloseMode::AtOnce, source),
            false => Step::Answered(source),
        }
    }

    fn wait(self, _progress: &Progress) -> Step<'s> {
        Step::WaitForEvent
    }

    fn need_body(self, _context: &mut Context<'_, 's>) -> Step<'s> {
        Step::Partial
    }
}

/// Skips the arrived part of a body, and keeps its content up to the length of a DNS message.
fn skip(skipper: &mut BodySkipper, bytes: &[u8], content: Option<&mut Vec<u8>>) -> Result<Skipped, RequestError> {
    let Some(content) = content else { return skipper.advance(bytes) };
    skipper.advance_with(bytes, |piece| {
        // One byte more than allowed shows that the message is too long.
        let left_bytes = (DNS_MESSAGE_BYTES_MAX + 1).saturating_sub(content.len());
        content.extend_from_slice(&piece[..piece.len().min(left_bytes)]);
    })
}

/// Whether invalid input may be the start of an HTTP/2 connection, by a client that knows that the server speaks it
/// (RFC 9113 §3.3). With encryption a client chooses it in the handshake.
#[cold]
fn may_be_http2(connection: &ConnectionInfo<'_>, context: &Context<'_, '_>) -> bool {
    context.options.http.accepts_http2 && connection.answered_count == 0 && !connection.transport.is_encrypted()
}
