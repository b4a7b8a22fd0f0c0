//! HTTP/1.1 on a connection: received bytes become requests, and responses are written in their order.

use crate::access_log::Origin;
use crate::clock::Milliseconds;
use crate::context::{Buffers, CloseMode, ConnectionInfo, Context, Input, Inspection, Step};
use crate::dns_over_https::{self, DnsRequest};
use crate::file_cache::Lookup;
use crate::file_hit::{FileHit, JOBS_PER_REQUEST_MAX, content_of};
use crate::metrics::Counter;
use crate::open_file::FileError;
use crate::send_queue::FileChunk;
use crate::site_rules::{Action, ResponseFields, Ruling, has_rules};
use crate::sites::Site;
use sanderling_http::{
    Body, BodySkipper, DNS_MESSAGE_BYTES_MAX, Framing, LookupError, Parsed, Request, RequestError, Response, SitePath,
    Skipped, Status, has_dns_message, parse_request, respond,
};
use sanderling_log_format::HttpVersion;
use sanderling_site_rules::ContentOf;
use std::sync::Arc;

/// Requests of one connection that are answered in one iteration.
pub(crate) const REQUESTS_PER_ITERATION_MAX: usize = 128;

/// The HTTP side of a connection.
#[derive(Debug, Default)]
pub(crate) struct Http1 {
    /// Bytes at the start of the next input that are part of an incomplete head.
    scanned_bytes: usize,
    /// A request whose body has not arrived whole.
    pending: Option<Box<Pending>>,
    /// Jobs that the current request has waited for.
    job_count: u8,
    /// When the first bytes of the current request were received, if that was in an earlier iteration; else 0.
    since_ms: u32,
    /// The error of the job that the current request has waited for.
    job_error: Option<FileError>,
}

/// How much of a body was skipped.
#[derive(Debug)]
struct Pending {
    skipper: BodySkipper,
    /// The request, whose response depends on its body; `None` if it is answered already.
    query: Option<PendingQuery>,
    /// Bytes of head and body that have arrived.
    received_bytes: u64,
}

/// A request with a DNS query, as far as it has arrived.
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

    /// Notes when the current request began, which goes on in a later iteration.
    #[cold]
    #[inline(never)]
    fn note_begin(&mut self, context: &Context<'_, '_>) {
        if self.since_ms == 0 {
            self.since_ms = context.clock.now_ms() as u32;
        }
    }

    /// When the current request began, which ends here.
    fn take_since_ms(&mut self, now_ms: Milliseconds) -> Milliseconds {
        match std::mem::take(&mut self.since_ms) {
            0 => now_ms,
            // A request does not take the 49 days after which the number begins again.
            since_ms => now_ms - Milliseconds::from((now_ms as u32).wrapping_sub(since_ms)),
        }
    }

    /// Of the current request, whose site was looked up last.
    fn take_origin(&mut self, context: &Context<'_, '_>) -> Origin {
        Origin { site_index: context.files.last_site_index(), since_ms: self.take_since_ms(context.clock.now_ms()) }
    }

    /// Takes the result of the job that the current request waits for.
    pub(crate) fn complete(&mut self, result: Result<(), FileError>) {
        self.job_error = result.err();
    }

    /// Writes the response to a client that did not send its request in time (RFC 9110 §15.5.9), unless it was answered
    /// before its body had arrived. `unprocessed`: what has been received of it.
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
            let since_ms = self.take_since_ms(context.clock.now_ms());
            let query = self.pending.as_ref().and_then(|pending| pending.query.as_ref());
            let received = query.map_or(unprocessed, |query| &query.head);
            let content_bytes = write_refusal(&Response::error(Status::RequestTimeout, received), connection, context);
            if let Some(log) = context.log {
                let peer = connection.peer(HttpVersion::Http1);
                log.log_refused(peer, since_ms, received, Status::RequestTimeout, content_bytes);
            }
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
                self.note_begin(context);
                Step::Partial
            }
            Ok(Parsed::Complete { request, head_bytes }) => {
                input.consume(*head_bytes);
                match request.framing {
                    Framing::None => self.answer_request(request, input, connection, context),
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
        if matches!(step, Step::WaitForJob) {
            input.rewind(start);
            self.note_begin(context);
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
        let site = context.files.site_for(&context.snapshot.sites, request.host);
        let ruling = || Ruling::of(request, site, connection, context.snapshot, context.options);
        let is_needed = has_dns_message(request) && matches!(ruling().action, Action::DnsQuery);
        let mut content = is_needed.then(Vec::new);
        let skipped = match skip(&mut skipper, input.rest(), content.as_mut()) {
            Err(error) => return self.refuse(error, head, connection, context),
            Ok(skipped) => skipped,
        };
        input.consume(skipped.consumed_bytes);
        if skipped.is_done {
            return match content {
                Some(content) => self.answer_by_rules(request, &content, input, connection, context),
                None => self.answer_request(request, input, connection, context),
            };
        }
        let received_bytes = (head.len() + skipped.consumed_bytes) as u64;
        let Some(content) = content else {
            return match self.answer_request(request, input, connection, context) {
                // Whether the body of a client that waits for 100 (Continue) arrives is unknown, so the connection
                // closes.
                Step::Answered(file) if !request.awaits_continue() => {
                    self.pending = Some(Box::new(Pending { skipper, query: None, received_bytes }));
                    Step::Answered(file)
                }
                Step::Answered(file) | Step::Last(_, file) => Step::Last(CloseMode::Linger, file),
                step => step,
            };
        };
        // RFC 9110 §10.1.1: if part of the body has arrived, the client does not wait.
        if request.awaits_continue() && skipped.consumed_bytes == 0 {
            context.buffers.output.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.note_begin(context);
        let query = Some(PendingQuery { head: head.to_vec(), content });
        self.pending = Some(Box::new(Pending { skipper, query, received_bytes }));
        Step::Partial
    }

    /// Goes on skipping the body, and answers its request at the end, unless it is answered.
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
                self.answer_by_rules(&request.with_received_body(), content, input, connection, context)
            }
            Ok(Parsed::Partial) => self.refuse(RequestError::InvalidRequestLine, head, connection, context),
            Err(error) => self.refuse(error, head, connection, context),
        };
        if matches!(step, Step::WaitForJob) {
            self.pending = Some(pending);
        }
        step
    }

    /// Writes the response to a whole request, which ends where `input` goes on.
    fn answer_request<'s>(
        &mut self,
        request: &Request<'_>,
        input: &Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let site = context.files.site_for(&context.snapshot.sites, request.host);
        match (has_rules(request, site, connection.transport), context.inspection) {
            (false, Inspection::None) => {
                self.answer_with_file::<false>(request, site, None, input, connection, context)
            }
            (false, Inspection::Log) => self.answer_with_logged_file(request, input, connection, context),
            _ => self.answer_by_rules(request, &[], input, connection, context),
        }
    }

    /// Answers with the file that the request is for, and logs and counts the response.
    #[cold]
    #[inline(never)]
    fn answer_with_logged_file<'s>(
        &mut self,
        request: &Request<'_>,
        input: &Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let site = context.files.site_for(&context.snapshot.sites, request.host);
        self.answer_with_file::<true>(request, site, None, input, connection, context)
    }

    /// The same for a request that may be answered otherwise than with a file. `content` is what was kept of its body.
    #[cold]
    #[inline(never)]
    fn answer_by_rules<'s>(
        &mut self,
        request: &Request<'_>,
        content: &[u8],
        input: &Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let is_last = is_last(input, connection, context);
        let site = context.files.site_for(&context.snapshot.sites, request.host);
        let mut ruling = Ruling::of(request, site, connection, context.snapshot, context.options);
        let client = context.snapshot.http_clients.client_of(Some(request), *connection.client);
        let connection = &ConnectionInfo { client: &client, ..*connection };
        let (has_failed, waiter) = (self.job_error.is_some(), (context.waiter, self.job_count > 0));
        // A request that has waited for a job was counted before.
        let budget = context.request_budget.filter(|_| self.job_count == 0 && !has_failed);
        ruling.limit(budget, request, client.ip(), (context.snapshot, context.clock, context.metrics));
        let may_wait = || self.job_count < JOBS_PER_REQUEST_MAX;
        let shared = (&mut *context.files, context.authenticator, connection.client.ip());
        if ruling.has_to_wait((request, site), has_failed, may_wait, shared, (waiter, context.clock)) {
            self.job_count += 1;
            return Step::WaitForJob;
        }
        if matches!(ruling.action, Action::DnsQuery) {
            let origin = self.take_origin(context);
            return answer_dns(request, content, &ruling.fields, is_last, origin, connection, context);
        }
        let Some(response) = ruling.action.response(request) else {
            return self.answer_with_file::<true>(request, site, Some(&ruling), input, connection, context);
        };
        self.job_count = 0;
        context.metrics.add(Counter::HttpRequests, 1);
        let response = if is_last { response.with_connection_close() } else { response };
        let head_start = context.buffers.output.len();
        response.write_head(context.clock.date(), &mut context.buffers.output);
        ruling.fields.apply(head_start, ContentOf::Path, &mut context.buffers.output);
        let content_bytes = put_status_page(&response, &mut context.buffers.output);
        if let Some(log) = context.log {
            let (peer, origin) = (connection.peer(HttpVersion::Http1), self.take_origin(context));
            log.log_response(peer, origin, request, response.status(), content_bytes, false);
        }
        end_of_response(&response, is_last, None)
    }

    /// Answers with the file that the request is for, or with the status that there is none. `ruling`: if the site may
    /// have rules. `MAY_LOG`: whether there may be a log or detailed counts; a constant, so that the path without them
    /// stays short.
    #[inline(always)]
    fn answer_with_file<'s, const MAY_LOG: bool>(
        &mut self,
        request: &Request<'_>,
        site: Option<&Arc<Site>>,
        ruling: Option<&Ruling<'_>>,
        input: &Input<'_>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> Step<'s> {
        let mut is_last = is_last(input, connection, context);
        // Asked for before the file, which borrows the cache.
        let site_index = if MAY_LOG { context.files.last_site_index() } else { None };
        let path = ruling.map_or_else(|| request.path(), |ruling| ruling.action.path(request));
        let path = path.map(SitePath::parse);
        let lookup;
        let mut is_substitute = ruling.is_some_and(|ruling| ruling.action.is_substitute());
        let (hit, page) = match (site, &path) {
            (_, None) => (Err(LookupError::NotLookedUp), None),
            (_, Some(Err(error))) => (Err(LookupError::from(*error)), None),
            (None, _) => (Err(LookupError::MisdirectedRequest), None),
            (Some(site), Some(Ok(path))) => {
                lookup = match self.job_error.take() {
                    Some(error) => {
                        // The job may still end, and no other request may take its completion for its own.
                        is_last = true;
                        Lookup::Failed(error)
                    }
                    None => {
                        let waiter = (context.waiter, self.job_count > 0);
                        let found = match context.files.open(site, path, waiter, context.clock) {
                            Lookup::Failed(error) => {
                                let asked = (site, path, request);
                                context.files.open_instead(error, asked, is_substitute, waiter, context.clock)
                            }
                            found => found,
                        };
                        Ruling::checked(ruling, found)
                    }
                };
                if MAY_LOG {
                    lookup.count(self.job_count, context.metrics);
                }
                is_substitute |= matches!(lookup, Lookup::Fallback(_));
                let may_transform = || ruling.is_none_or(|ruling| ruling.fields.may_transform());
                match FileHit::find(&lookup, request, path, may_transform) {
                    Some(found) => found,
                    None if self.job_count == JOBS_PER_REQUEST_MAX => (Err(LookupError::ServiceUnavailable), None),
                    None => {
                        self.job_count += 1;
                        return Step::WaitForJob;
                    }
                }
            }
        };
        self.job_count = 0;
        self.job_error = None;
        context.metrics.add(Counter::HttpRequests, 1);
        let mut response =
            respond(request, hit.as_ref().map(FileHit::representation).map_err(|error| *error), context.clock.unix_s());
        if let Some(ruling) = ruling {
            response = ruling.finish(response);
        }
        if is_last {
            response = response.with_connection_close();
        }
        let output = &mut context.buffers.output;
        let head_start = output.len();
        response.write_head(context.clock.date(), output);
        if let Some(ruling) = ruling {
            ruling.fields.apply(head_start, content_of(hit.as_ref().ok(), is_substitute), output);
        }
        let content_start = output.len();
        let mut file = match (response.body(), hit.as_ref().ok().or(page.as_ref())) {
            (Body::File { start_bytes, length_bytes }, Some(hit)) => {
                let may_use_sendfile = hit.may_use_sendfile(context.options, context.clock);
                hit.put(start_bytes, length_bytes, may_use_sendfile, context.buffers)
            }
            (Body::Multipart(multipart), Some(hit)) => {
                let may_use_sendfile = hit.may_use_sendfile(context.options, context.clock);
                let Buffers { output, limits, .. } = &mut *context.buffers;
                hit.put_multipart(&multipart, may_use_sendfile, limits.copied_bytes_max, output)
            }
            (Body::StatusPage(page), _) => {
                output.extend_from_slice(page);
                None
            }
            // Only a hit has the body of a file.
            (Body::Empty | Body::File { .. } | Body::Multipart(_) | Body::DnsMessage | Body::Text(_), _) => None,
        };
        if MAY_LOG && let Some(log) = context.log {
            let content_bytes = context.buffers.output.len() - content_start;
            let peer = connection.peer(HttpVersion::Http1);
            let origin = Origin { site_index, since_ms: self.take_since_ms(context.clock.now_ms()) };
            let line = log.log_response(peer, origin, request, response.status(), content_bytes, file.is_some());
            if let (Some(line), Some(file)) = (line, &mut file) {
                file.set_line(line);
            }
        }
        end_of_response(&response, is_last, file)
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
        let content_bytes = write_refusal(&Response::error(error.status(), received), connection, context);
        if let Some(log) = context.log {
            let (peer, since_ms) = (connection.peer(HttpVersion::Http1), self.take_since_ms(context.clock.now_ms()));
            log.log_refused(peer, since_ms, received, error.status(), content_bytes);
        }
        Step::Last(CloseMode::Linger, None)
    }
}

#[inline]
fn end_of_response<'s>(response: &Response<'_>, is_last: bool, file: Option<FileChunk<'s>>) -> Step<'s> {
    match response.persistence().is_close() {
        // The client did not ask for the close and may have sent more meanwhile.
        true if is_last => Step::Last(CloseMode::Linger, file),
        true => Step::Last(CloseMode::AtOnce, file),
        false => Step::Answered(file),
    }
}

/// Writes the response to a request at the path for DNS queries. `content` is what was kept of its body.
#[cold]
#[inline(never)]
fn answer_dns<'s>(
    request: &Request<'_>,
    content: &[u8],
    fields: &ResponseFields<'_>,
    is_last: bool,
    origin: Origin,
    connection: &ConnectionInfo<'_>,
    context: &mut Context<'_, 's>,
) -> Step<'s> {
    let query = DnsRequest {
        request,
        content,
        client: *connection.client,
        now_unix_ms: context.clock.unix_ms(),
        query_log: context.query_log,
    };
    let Buffers { output, scratch, .. } = &mut *context.buffers;
    let (mut response, reply) = dns_over_https::answer(&query, context.snapshot, context.metrics, scratch);
    if is_last {
        response = response.with_connection_close();
    }
    let head_start = output.len();
    response.write_head(context.clock.date(), output);
    fields.apply(head_start, ContentOf::Path, output);
    let content_start = output.len();
    match response.body() {
        Body::DnsMessage => output.extend_from_slice(reply),
        Body::StatusPage(page) => output.extend_from_slice(page),
        Body::Empty | Body::File { .. } | Body::Multipart(_) | Body::Text(_) => {}
    }
    if let Some(log) = context.log {
        let peer = connection.peer(HttpVersion::Http1);
        log.log_response(peer, origin, request, response.status(), output.len() - content_start, false);
    }
    end_of_response(&response, is_last, None)
}

/// Skips what has arrived of a body, and keeps its content as far as a DNS message may be long.
fn skip(skipper: &mut BodySkipper, bytes: &[u8], content: Option<&mut Vec<u8>>) -> Result<Skipped, RequestError> {
    let Some(content) = content else { return skipper.advance(bytes) };
    skipper.advance_with(bytes, |piece| {
        // One byte more than allowed shows that the message is too long.
        let left_bytes = (DNS_MESSAGE_BYTES_MAX + 1).saturating_sub(content.len());
        content.extend_from_slice(&piece[..piece.len().min(left_bytes)]);
    })
}

/// Whether no further request is answered. While the server drains, all requests that have certainly been sent still
/// are: a client may not repeat what it sent after the response that says `Connection: close` (RFC 9112 §9.6).
fn is_last(input: &Input<'_>, connection: &ConnectionInfo<'_>, context: &Context<'_, '_>) -> bool {
    connection.answered_count + 1 >= context.options.http.requests_per_connection_max
        || (context.is_draining() && input.is_empty() && !connection.transport.is_readable())
}

/// Whether what is no request may be the start of a connection of HTTP/2, by a client that knows that the server speaks
/// it (RFC 9113 §3.3). With encryption a client chooses it in the handshake.
#[cold]
fn may_be_http2(connection: &ConnectionInfo<'_>, context: &Context<'_, '_>) -> bool {
    context.options.http.accepts_http2 && connection.answered_count == 0 && !connection.transport.is_encrypted()
}

/// Writes the response to what is no request; the bytes of its content.
fn write_refusal(response: &Response<'_>, connection: &ConnectionInfo<'_>, context: &mut Context<'_, '_>) -> usize {
    let ruling = Ruling::of_refusal(connection.transport, context.snapshot, context.files);
    let output = &mut context.buffers.output;
    let head_start = output.len();
    response.write_head(context.clock.date(), output);
    ruling.fields.apply(head_start, ContentOf::Path, output);
    put_status_page(response, output)
}

/// Appends the page of a response without a file; its bytes.
fn put_status_page(response: &Response<'_>, output: &mut Vec<u8>) -> usize {
    let (Body::StatusPage(page) | Body::Text(page)) = response.body() else { return 0 };
    output.extend_from_slice(page);
    page.len()
}
