//! HTTP/2 on a connection: many requests at once, whose responses are sent in turns.

mod response_body;

use self::response_body::ResponseBody;
use crate::access_log::{Origin, WorkerLog};
use crate::buffer_budget::SCARCE_BYTES_MAX;
use crate::clock::Milliseconds;
use crate::context::{Buffers, ConnectionInfo, Context, Input};
use crate::dns_over_https::{self, DnsRequest};
use crate::file_cache::Lookup;
use crate::file_hit::{FileHit, JOBS_PER_REQUEST_MAX, content_of};
use crate::metrics::{Counter, ThreadMetrics};
use crate::open_file::FileError;
use crate::send_queue::{FileChunk, Piece};
use crate::site_rules::{Action, Ruling, has_rules};
use crate::snapshot::Snapshot;
use crate::waiter::Waiter;
use sanderling_http::{
    Body, HttpDate, LookupError, Parsed, RequestError, Response, Scheme, SitePath, Status, has_dns_message,
    parse_request, respond,
};
use sanderling_http2::{
    Activity, Content, DATA_BYTES_MAX, ErrorCode, ExceededLimit, Exchange, Limits, PartialEnd, Received, Request,
    Session,
};
use sanderling_log_format::HttpVersion;
use sanderling_site_rules::ContentOf;
use std::rc::Rc;

/// Pieces of content of one connection in one iteration; a request counts as several.
pub(crate) const STEPS_PER_ITERATION_MAX: usize = 128;

/// The HTTP/2 side of a connection.
#[derive(Debug)]
pub(crate) struct Http2<'s> {
    session: Session<ResponseBody<'s>>,
    /// The streams that wait for a job, or whose job has ended.
    waiting: Vec<WaitingStream>,
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

/// What has arrived in part.
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

/// A request that waits for a job.
#[derive(Clone, Copy, Debug)]
struct WaitingStream {
    stream: u32,
    /// Jobs that it has waited for.
    job_count: u8,
    /// When it began.
    since_ms: Milliseconds,
    /// The result of the last one, once it has ended.
    result: Option<Result<(), FileError>>,
}

/// What was made of the input.
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
            written_bytes: 0,
            incoming: Incoming::Nothing,
            incoming_deadline_ms: deadline_ms,
            send_deadline_ms: None,
            idle_deadline_ms: deadline_ms,
        }
    }

    /// Notes what is incoming after the input was processed, of which perhaps `is_frame_partial`; whether that is
    /// something else than before, so that it gets a deadline.
    pub(crate) fn note_incoming(&mut self, is_frame_partial: bool) -> bool {
        let incoming = match self.session.oldest_partial() {
            Some((stream, _)) => Incoming::Request(stream),
            None if is_frame_partial => Incoming::Frame,
            None => Incoming::Nothing,
        };
        std::mem::replace(&mut self.incoming, incoming) != incoming
    }

    /// The deadline of what is incoming has passed, or it arrives too slowly; `false` if it cannot be refused by
    /// itself.
    pub(crate) fn end_incoming(&mut self) -> bool {
        let is_request = matches!(self.incoming, Incoming::Request(_));
        if is_request {
            self.incoming = Incoming::Overdue;
        }
        is_request
    }

    /// Bytes of what is incoming that have left the input; `None` if they are discarded.
    pub(crate) fn received_bytes(&self) -> Option<u64> {
        self.session.oldest_partial().map_or(Some(0), |(_, bytes)| bytes)
    }

    /// What the connection waits for.
    #[inline(never)]
    pub(crate) fn activity(&self) -> Activity {
        self.session.activity()
    }

    /// Whether a stream can go on without further input.
    #[inline(never)]
    pub(crate) fn has_work(&self) -> bool {
        let has_completion = self.waiting.iter().any(|waiting| waiting.result.is_some());
        has_completion || self.incoming == Incoming::Overdue || self.session.can_send() || self.session.is_finished()
    }

    /// Takes the result of the job, or of the read, that `stream` waits for.
    pub(crate) fn complete(&mut self, stream: u32, result: Result<(), FileError>) {
        match self.waiting.iter_mut().find(|waiting| waiting.stream == stream) {
            Some(waiting) => waiting.result = Some(result),
            None => self.session.wake(stream),
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
        let of_body = |body: &ResponseBody<'_>| match body {
            ResponseBody::File(chunk) => chunk.held_bytes(),
            ResponseBody::Page(_) => 0,
            ResponseBody::Multipart(body) => {
                body.text.capacity() + body.chunk.as_ref().map_or(0, FileChunk::held_bytes)
            }
        };
        self.session.held_bytes(of_body) + self.waiting.capacity() * size_of::<WaitingStream>()
    }

    /// Those of requests that have not arrived whole.
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
    // By itself, so that the path of HTTP/1.1 through the connection stays short.
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
        if let Some(index) = self.waiting.iter().position(|waiting| waiting.result.is_some()) {
            let ended = self.waiting.swap_remove(index);
            return match self.session.resume(ended.stream, &mut context.buffers.http2) {
                Some(request) => self.answer(request, Some(ended), connection, context),
                None => StreamStep::Progress { has_answered: false },
            };
        }
        let Context { options, buffers, files, metrics, reads, clock, waiter, .. } = &mut *context;
        let Buffers { output, limits: piece_limits, http2: scratch, .. } = &mut **buffers;
        let limits = &options.http.http2;
        let mut exchange = Exchange { limits, scratch, out: output };
        let (taken_bytes, received) = self.session.receive(input.rest(), &mut exchange);
        input.consume(taken_bytes);
        match received {
            Received::Request(request) => {
                metrics.add(Counter::Http2Requests, 1);
                return self.answer(request, None, connection, context);
            }
            Received::Content(request) => return self.answer(request, None, connection, context),
            Received::Refused(limit) => return refused(limit, metrics),
            Received::Closed(limit) => return closed(limit, metrics),
            Received::Partial => {}
        }
        let content_bytes_max = if piece_limits.is_scarce() { SCARCE_BYTES_MAX } else { DATA_BYTES_MAX };
        if let Some(mut frame) = self.session.next_data(content_bytes_max, limits, output) {
            let waiter = Waiter { stream: frame.stream(), ..*waiter };
            let (body, room) = frame.parts();
            let piece = match body {
                ResponseBody::File(chunk) => {
                    metrics.heartbeat.during_file_call(|| chunk.fill(room, reads, waiter, clock.now_ms()))
                }
                ResponseBody::Multipart(body) => {
                    metrics.heartbeat.during_file_call(|| body.fill(room, reads, waiter, clock.now_ms()))
                }
                ResponseBody::Page(page) => {
                    let (now, later) = page.split_at(room.len());
                    room.copy_from_slice(now);
                    *page = later;
                    Ok(Piece::Sent(now.len()))
                }
            };
            match piece {
                Ok(Piece::Sent(length_bytes)) => {
                    frame.finish(length_bytes);
                    self.written_bytes += length_bytes;
                }
                Ok(Piece::WaitsForRead) => frame.stall(),
                Ok(Piece::FileChanged) | Err(_) => {
                    metrics.add(Counter::HttpAborted, 1);
                    if let Some(chunk) = body.file() {
                        files.invalidate(chunk.file());
                    }
                    frame.abort();
                }
            }
            return StreamStep::Progress { has_answered: false };
        }
        if self.session.is_finished() {
            return StreamStep::Closed;
        }
        if input.is_empty() { StreamStep::Progress { has_answered: false } } else { StreamStep::Partial }
    }

    /// Refuses the request that has been arriving for longest, or ends the connection, if the stream cannot be ended by
    /// itself.
    #[cold]
    fn refuse_overdue(&mut self, connection: &ConnectionInfo<'_>, context: &mut Context<'_, 's>) -> StreamStep {
        self.incoming = Incoming::Nothing;
        let limits = &context.options.http.http2;
        let Buffers { output, http2: scratch, http2_head: head, .. } = &mut *context.buffers;
        match self.session.end_oldest_partial(&mut Exchange { limits, scratch, out: output }) {
            PartialEnd::Reset => StreamStep::Progress { has_answered: false },
            PartialEnd::Request(request) => {
                context.metrics.add(Counter::HttpTimeouts, 1);
                // RFC 9110 §15.5.9.
                let response = Response::error(Status::RequestTimeout, &scratch.head);
                let ruling = Ruling::of_refusal(connection.transport, context.snapshot, context.files);
                write_head(&response, Some(&ruling), ContentOf::Path, context.clock.date(), head);
                let mut content = self.content_without_file(&request, response.body(), &[]);
                if let Some(log) = context.log {
                    let origin = Origin::new(context.clock.now_ms());
                    log_content(log, connection, origin, None, &scratch.head, response.status(), &mut content);
                }
                self.session.answer(request, head, content, limits, output);
                StreamStep::Progress { has_answered: true }
            }
            PartialEnd::HasNone => {
                context.metrics.add(Counter::HttpTimeouts, 1);
                self.session.close(ErrorCode::NoError, output);
                StreamStep::Closed
            }
        }
    }

    /// Answers a request whose head is in the scratch buffer, or lets it wait for a job.
    fn answer(
        &mut self,
        request: Request,
        ended: Option<WaitingStream>,
        connection: &ConnectionInfo<'_>,
        context: &mut Context<'_, 's>,
    ) -> StreamStep {
        let (waiter, query_log) = (Waiter { stream: request.stream(), ..context.waiter }, context.query_log);
        let Context { snapshot, files, authenticator, options, clock, buffers, metrics, log, request_budget, .. } =
            context;
        let Buffers { output, limits, http2: scratch, http2_head: head, scratch: reply_room, .. } = &mut **buffers;
        let parsed = match request.error() {
            Some(error) => Err(error),
            None => parse_request(&scratch.head, 0, &options.http.request),
        };
        let parsed_request = parsed.as_ref().ok().and_then(Parsed::request);
        let client = snapshot.http_clients.client_of(parsed_request, *connection.client);
        let (peer, connection) = (connection, &ConnectionInfo { client: &client, ..*connection });
        let mut origin = Origin::new(ended.map_or(clock.now_ms(), |ended| ended.since_ms));
        let (path, lookup);
        // The file, and the page of an error, if that is a file.
        let (mut hit, mut page) = (Err(LookupError::NotLookedUp), None);
        let (mut ruling, mut is_substitute) = (None, false);
        let response = match &parsed {
            Ok(Parsed::Complete { request: parsed, head_bytes }) => {
                let site = files.site_for(&snapshot.sites, parsed.host);
                origin.site_index = files.last_site_index();
                // A request that has waited for a job was counted before.
                let budget = request_budget.filter(|_| ended.is_none());
                let job @ (job_count, _) = (ended.map_or(0, |ended| ended.job_count), origin.since_ms);
                let waiter = (waiter, job_count > 0);
                let ended = ended.and_then(|ended| ended.result);
                let may_wait =
                    || job_count < JOBS_PER_REQUEST_MAX && self.session.may_keep(&scratch.head, &options.http.http2);
                if has_rules(parsed, site, connection.transport) || budget.is_some() {
                    let ruling = ruling.insert(Ruling::of(parsed, site, peer, snapshot, options));
                    if matches!(ruling.action, Action::DnsQuery) && request.has_content() && has_dns_message(parsed) {
                        return self.await_content(request, &scratch.head, &options.http.http2, output, metrics);
                    }
                    ruling.limit(budget, parsed, client.ip(), (*snapshot, *clock, *metrics));
                    let has_failed = matches!(ended, Some(Err(_)));
                    let shared = (&mut **files, *authenticator, client.ip());
                    if ruling.has_to_wait((parsed, site), has_failed, may_wait, shared, (waiter, clock)) {
                        return self.wait_for_job(request, &scratch.head, job);
                    }
                    let content = &scratch.head[*head_bytes..];
                    let query =
                        DnsRequest { request: parsed, content, client, now_unix_ms: clock.unix_ms(), query_log };
                    if let Some((response, reply)) =
                        response_by_rules(&ruling.action, &query, snapshot, metrics, reply_room)
                    {
                        write_head(&response, Some(ruling), ContentOf::Path, clock.date(), head);
                        let mut content = self.content_without_file(&request, response.body(), reply);
                        if let Some(log) = log {
                            log_content(log, connection, origin, Some(parsed), &[], response.status(), &mut content);
                        }
                        self.session.answer(request, head, content, &options.http.http2, output);
                        return StreamStep::Progress { has_answered: true };
                    }
                }
                path = ruling.as_ref().map_or_else(|| parsed.path(), |it| it.action.path(parsed)).map(SitePath::parse);
                is_substitute = ruling.as_ref().is_some_and(|ruling| ruling.action.is_substitute());
                (hit, page) = match (site, &path) {
                    (_, None) => (Err(LookupError::NotLookedUp), None),
                    (_, Some(Err(error))) => (Err(LookupError::from(*error)), None),
                    (None, _) => (Err(LookupError::MisdirectedRequest), None),
                    (Some(site), Some(Ok(path))) => {
                        let asked = (site, path, parsed);
                        let found = match ended {
                            Some(Err(error)) => Lookup::Failed(error),
                            _ => match files.open(site, path, waiter, clock) {
                                Lookup::Failed(error) => files.open_instead(error, asked, is_substitute, waiter, clock),
                                found => found,
                            },
                        };
                        lookup = Ruling::checked(ruling.as_ref(), found);
                        lookup.count(job_count, metrics);
                        is_substitute |= matches!(lookup, Lookup::Fallback(_));
                        let may_transform = || ruling.as_ref().is_none_or(|ruling| ruling.fields.may_transform());
                        match FileHit::find(&lookup, parsed, path, may_transform) {
                            Some(found) => found,
                            None if !may_wait() => (Err(LookupError::ServiceUnavailable), None),
                            None => return self.wait_for_job(request, &scratch.head, job),
                        }
                    }
                };
                metrics.add(Counter::HttpRequests, 1);
                respond(parsed, hit.as_ref().map(FileHit::representation).map_err(|error| *error), clock.unix_s())
            }
            refused => {
                ruling = Some(Ruling::of_refusal(connection.transport, snapshot, files));
                refusal(refused.as_ref().err().copied(), &scratch.head, metrics)
            }
        };
        let response = ruling.as_ref().map_or(response, |ruling| ruling.finish(response));
        write_head(&response, ruling.as_ref(), content_of(hit.as_ref().ok(), is_substitute), clock.date(), head);
        let mut content = match (response.body(), hit.as_ref().ok().or(page.as_ref())) {
            (Body::StatusPage(page), _) => self.page_content(&request, page),
            (body, Some(hit)) => {
                let may_use_sendfile = || hit.may_use_sendfile(options, clock);
                self.file_content(&request, body, hit, limits.copied_bytes_max, may_use_sendfile)
            }
            // Only a hit has the body of a file.
            (_, None) => Content::Empty,
        };
        if let Some(log) = log {
            log_content(log, connection, origin, parsed_request, &scratch.head, response.status(), &mut content);
        }
        self.session.answer(request, head, content, &options.http.http2, output);
        StreamStep::Progress { has_answered: true }
    }

    /// Receives the content on which the response to a request depends.
    #[cold]
    fn await_content(
        &mut self,
        request: Request,
        head: &[u8],
        limits: &Limits,
        output: &mut Vec<u8>,
        metrics: &ThreadMetrics,
    ) -> StreamStep {
        match self.session.await_content(request, head, limits, output) {
            Err(Received::Closed(limit)) => closed(limit, metrics),
            Err(Received::Refused(limit)) => refused(limit, metrics),
            _ => StreamStep::Progress { has_answered: false },
        }
    }

    /// Keeps a request until the job has ended that it waits for; `job_count` have ended before, and it began at
    /// `since_ms`.
    fn wait_for_job(&mut self, request: Request, head: &[u8], (job_count, since_ms): (u8, Milliseconds)) -> StreamStep {
        let stream = request.stream();
        self.session.park(request, head);
        self.waiting.push(WaitingStream { stream, job_count: job_count + 1, since_ms, result: None });
        StreamStep::Progress { has_answered: false }
    }
}

/// The response to what is no request, or none that may be answered.
#[cold]
fn refusal(error: Option<RequestError>, received: &[u8], metrics: &ThreadMetrics) -> Response<'static> {
    metrics.add(Counter::HttpRefused, 1);
    // A head whose end is cut off exceeds its limit.
    Response::error(error.unwrap_or(RequestError::HeadTooLong).status(), received)
}

/// Writes the head of a response, with the fields of the `ruling`.
#[inline(always)]
fn write_head(
    response: &Response<'_>,
    ruling: Option<&Ruling<'_>>,
    content_of: ContentOf,
    date: &HttpDate,
    head: &mut Vec<u8>,
) {
    head.clear();
    response.write_head(date, head);
    if let Some(ruling) = ruling {
        ruling.fields.apply(0, content_of, head);
    }
}

/// The response without a file, and the reply to a DNS query that is its content; `None` if a file is served.
fn response_by_rules<'r, 'b>(
    action: &'r Action<'r>,
    query: &DnsRequest<'r>,
    snapshot: &Snapshot,
    metrics: &ThreadMetrics,
    reply_room: &'b mut [u8],
) -> Option<(Response<'r>, &'b [u8])> {
    if matches!(action, Action::DnsQuery) {
        return Some(dns_over_https::answer(query, snapshot, metrics, reply_room));
    }
    let response = action.response(query.request)?;
    metrics.add(Counter::HttpRequests, 1);
    Some((response, &[]))
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

/// Logs a response with this content. The head that was received stands for a request that was refused.
fn log_content(
    log: &Rc<WorkerLog>,
    connection: &ConnectionInfo<'_>,
    origin: Origin,
    request: Option<&sanderling_http::Request<'_>>,
    received: &[u8],
    status: Status,
    content: &mut Content<'_, ResponseBody<'_>>,
) {
    // The bytes that are counted at once, and a part of a file, which is counted as it is sent.
    let (content_bytes, rest) = match content {
        Content::Empty => (0, None),
        Content::Bytes(bytes) => (bytes.len(), None),
        Content::Later { body: ResponseBody::File(chunk), .. } => (0, Some(chunk)),
        Content::Later { body: ResponseBody::Page(page), .. } => (page.len(), None),
        Content::Later { body: ResponseBody::Multipart(body), .. } => (body.text.len(), body.chunk.as_mut()),
    };
    let peer = connection.peer(HttpVersion::Http2);
    let Some(request) = request else { return log.log_refused(peer, origin.since_ms, received, status, content_bytes) };
    let line = log.log_response(peer, origin, request, status, content_bytes, rest.is_some());
    if let (Some(line), Some(rest)) = (line, rest) {
        rest.set_line(line);
    }
}
