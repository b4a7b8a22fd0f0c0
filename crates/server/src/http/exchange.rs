//! One exchange: the source of the answer to a request, its waits, and its response, whichever version of HTTP frames
//! them.

use crate::clock::Clock;
use crate::context::{Buffers, ConnectionInfo, Context, Inspection};
use crate::files::file_cache::Lookup;
use crate::http::asked::{Asked, Framing, Logged, Progress, WAITS_MAX, log_content};
use crate::http::backend_exchange;
use crate::http::dns_over_https::{self, DnsRequest};
use crate::http::file_hit::{FileHit, Found, content_of};
use crate::http::forward_auth;
use crate::http::site_rules::{Action, Applicant, Requester, ResponseFields, Ruling, has_rules};
use crate::log::access_log::WorkerLog;
use crate::metrics::Counter;
use crate::net::body_sink::BodySink;
use crate::net::body_source::{BodySource, Content};
use crate::options::Options;
use crate::site::sites::Site;
use sanderling_http::{Body, LookupError, Request, Response, SitePath, Status, has_dns_message, respond};
use sanderling_site_rules::ContentOf;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

/// Answers a request, unless something is missing. `progress` is over once it is answered.
#[inline(always)]
pub(crate) fn begin<'s, F: Framing<'s>>(
    asked: &Asked<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let site = context.files.site_for(&context.snapshot.sites, asked.request.host);
    let is_ruled = has_rules(asked.request, site, asked.connection.transport) || !progress.is_new();
    match (is_ruled, context.inspection) {
        (false, Inspection::None) => answer_with_file::<F, false>(asked, site, None, progress, framing, context),
        (false, Inspection::Log) => answer_with_logged_file(asked, site, progress, framing, context),
        _ => answer_by_rules(asked, site, progress, framing, context),
    }
}

/// Whether a backend may get the body of this request.
pub(crate) fn may_be_passed_on(request: &Request<'_>, context: &mut Context<'_, '_>) -> bool {
    let site = context.files.site_for(&context.snapshot.sites, request.host);
    site.and_then(|site| site.options.rules.as_deref()).is_some_and(|rules| !rules.routes.is_empty())
}

/// Refuses input that is not a request, or has not arrived in time.
#[cold]
pub(crate) fn refuse<'s, F: Framing<'s>>(
    status: Status,
    received: &[u8],
    progress: &Progress,
    framing: F,
    connection: &ConnectionInfo<'_>,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let response = Response::error(status, received);
    let ruling = Ruling::of_refusal(connection.transport, context.snapshot, context.files);
    let content = content_without_file(response.body(), &framing);
    let logged = Logged::Refused { received, since_ms: progress.since_ms(context.clock.now_ms()) };
    let parts = Parts { response, fields: Some(&ruling.fields), content_of: ContentOf::Path };
    let log = context.log.map(|log| (log, connection, logged));
    write(parts, content, framing, log, Output::new(context.clock, context.options, context.buffers))
}

/// Answers with the file that the request is for, and logs and counts the response.
#[cold]
#[inline(never)]
fn answer_with_logged_file<'s, F: Framing<'s>>(
    asked: &Asked<'_>,
    site: Option<&Arc<Site>>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    answer_with_file::<F, true>(asked, site, None, progress, framing, context)
}

/// Answers a request for which there may be rules.
#[cold]
#[inline(never)]
fn answer_by_rules<'s, F: Framing<'s>>(
    asked: &Asked<'_>,
    site: Option<&Arc<Site>>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let (request, snapshot) = (asked.request, context.snapshot);
    let mut ruling = Ruling::of(request, site, asked.connection, snapshot, context.options);
    let client = snapshot.http_clients.client_of(Some(request), *asked.connection.client);
    let asked = &Asked { connection: &ConnectionInfo { client: &client, ..*asked.connection }, ..*asked };
    if progress.answering_call().is_some() {
        ruling.note_admission();
        return backend_exchange::answer(asked, &ruling, progress, framing, context);
    }
    if asked.content.is_none() && matches!(ruling.action, Action::DnsQuery) && has_dns_message(request) {
        return framing.need_body(BodySink::message(), progress, context);
    }
    // A request that has waited was counted before.
    if progress.wait_count == 0 {
        let requester = Requester { request, site, address: client.ip() };
        ruling.limit(context.request_budget, &requester, (snapshot, context.clock, context.metrics));
    }
    let applicant = Applicant {
        request,
        site: site.filter(|_| !progress.has_failed()),
        address: client.ip(),
        authenticator: context.authenticator,
        waiter: (asked.waiter, progress.wait_count > 0),
        may_wait: progress.wait_count < WAITS_MAX && framing.can_wait(context.options),
    };
    if ruling.has_to_wait(&applicant, context.files, context.clock) {
        return progress.wait(framing, context.clock);
    }
    let framing = match forward_auth::admit(asked, &mut ruling, progress, framing, context) {
        ControlFlow::Continue(framing) => framing,
        ControlFlow::Break(step) => return step,
    };
    if matches!(ruling.action, Action::DnsQuery) {
        return answer_dns(asked, &ruling.fields, progress, framing, context);
    }
    if matches!(ruling.action, Action::Route(_)) {
        return backend_exchange::answer(asked, &ruling, progress, framing, context);
    }
    let Some(response) = ruling.action.response(request) else {
        let step = answer_with_file::<F, true>(asked, site, Some(&ruling), progress, framing, context);
        progress.end_admission();
        return step;
    };
    context.metrics.add(Counter::HttpRequests, 1);
    let content = content_without_file(response.body(), &framing);
    let logged = Logged::Request { request, origin: std::mem::take(progress).origin(context) };
    let parts = Parts { response, fields: Some(&ruling.fields), content_of: ContentOf::Path };
    let log = context.log.map(|log| (log, asked.connection, logged));
    write(parts, content, framing, log, Output::new(context.clock, context.options, context.buffers))
}

/// Answers a request at the path for DNS queries.
#[cold]
#[inline(never)]
fn answer_dns<'s, F: Framing<'s>>(
    asked: &Asked<'_>,
    fields: &ResponseFields<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let query = DnsRequest {
        request: asked.request,
        content: asked.content.unwrap_or_default(),
        client: *asked.connection.client,
        now_unix_ms: context.clock.unix_ms(),
        query_log: context.query_log,
    };
    // Moved out and back: the response is written into the other buffers.
    let mut room = std::mem::take(&mut context.buffers.scratch);
    let (response, reply) = dns_over_https::answer(&query, context.snapshot, context.metrics, &mut room);
    let content = match response.body() {
        Body::DnsMessage => content_of_bytes(reply, &framing),
        body => content_without_file(body, &framing),
    };
    let logged = Logged::Request { request: asked.request, origin: std::mem::take(progress).origin(context) };
    let parts = Parts { response, fields: Some(fields), content_of: ContentOf::Path };
    let log = context.log.map(|log| (log, asked.connection, logged));
    let step = write(parts, content, framing, log, Output::new(context.clock, context.options, context.buffers));
    context.buffers.scratch = room;
    step
}

/// Answers with the requested file, or with the status for a missing one. `ruling`: if the site may have rules.
/// `MAY_LOG`: whether there may be a log or detailed counts; a constant, so that the path without them stays short.
#[inline(always)]
fn answer_with_file<'s, F: Framing<'s>, const MAY_LOG: bool>(
    asked: &Asked<'_>,
    site: Option<&Arc<Site>>,
    ruling: Option<&Ruling<'_>>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let request = asked.request;
    // Asked for before the file, which borrows the cache.
    let origin = if MAY_LOG { Some(progress.origin(context)) } else { None };
    let path = ruling.map_or_else(|| request.path(), |ruling| ruling.action.path(request)).map(SitePath::parse);
    let lookup;
    let mut is_substitute = ruling.is_some_and(|ruling| ruling.action.is_substitute());
    let (hit, page): Found<'_, 's> = match (site, &path) {
        (_, None) => (Err(LookupError::NotLookedUp), None),
        (_, Some(Err(error))) => (Err(LookupError::from(*error)), None),
        (None, _) => (Err(LookupError::MisdirectedRequest), None),
        (Some(site), Some(Ok(path))) => {
            let waiter = (asked.waiter, progress.wait_count > 0);
            let found = match progress.error {
                Some(error) => Lookup::Failed(error),
                None => match context.files.open(site, path, waiter, context.clock) {
                    Lookup::Failed(error) => {
                        let missing = (site, path, request);
                        context.files.open_instead(error, missing, is_substitute, waiter, context.clock)
                    }
                    found => found,
                },
            };
            lookup = Ruling::checked(ruling, found);
            if MAY_LOG {
                lookup.count(progress.wait_count, context.metrics);
            }
            is_substitute |= matches!(lookup, Lookup::Fallback(_));
            let may_transform = || ruling.is_none_or(|ruling| ruling.fields.may_transform());
            match FileHit::find(&lookup, request, path, may_transform) {
                Some(found) => found,
                None if progress.wait_count == WAITS_MAX || !framing.can_wait(context.options) => {
                    (Err(LookupError::ServiceUnavailable), None)
                }
                None => return progress.wait(framing, context.clock),
            }
        }
    };
    progress.end();
    context.metrics.add(Counter::HttpRequests, 1);
    let file = hit.as_ref().map(FileHit::representation).map_err(|error| *error);
    let response = respond(request, file, context.clock.unix_s());
    let response = ruling.map_or(response, |ruling| ruling.finish(response));
    let content_of = content_of(hit.as_ref().ok(), is_substitute);
    let parts = Parts { response, fields: ruling.map(|ruling| &ruling.fields), content_of };
    let log = context.log.zip(origin);
    let log = log.map(|(log, origin)| (log, asked.connection, Logged::Request { request, origin }));
    let output = Output::new(context.clock, context.options, context.buffers);
    let file = hit.as_ref().ok().or(page.as_ref());
    match file.and_then(|file| bytes_at_once(response.body(), file, &framing, &output)) {
        // The path of most responses stays short.
        Some(bytes) => write(parts, Content::Bytes(bytes), framing, log, output),
        None => write_other(parts, file, framing, log, output),
    }
}

/// Writes a response whose content is not in memory, or too long to be written with the head.
#[inline(never)]
fn write_other<'s, F: Framing<'s>>(
    parts: Parts<'_>,
    file: Option<&FileHit<'_, 's>>,
    framing: F,
    log: Log<'_>,
    output: Output<'_>,
) -> F::Step {
    let content = match (parts.response.body(), file) {
        (body @ (Body::File { .. } | Body::Multipart(_)), Some(file)) => content_of_file(body, file, &output),
        // Only a hit has the body of a file.
        (body, _) => content_without_file(body, &framing),
    };
    write(parts, content, framing, log, output)
}

/// A response, and the additional fields of its head.
struct Parts<'p> {
    response: Response<'p>,
    fields: Option<&'p ResponseFields<'p>>,
    content_of: ContentOf,
}

/// Where and how a response is logged, and its connection; `None` if there is no log.
type Log<'l> = Option<(&'l Rc<WorkerLog>, &'l ConnectionInfo<'l>, Logged<'l>)>;

/// The other inputs of writing a response.
struct Output<'w> {
    clock: &'w Clock,
    options: &'w Options,
    buffers: &'w mut Buffers,
}

/// Writes a response, and logs it.
#[inline(always)]
fn write<'s, F: Framing<'s>>(
    Parts { response, fields, content_of }: Parts<'_>,
    mut content: Content<'_, 's>,
    framing: F,
    log: Log<'_>,
    Output { clock, options, buffers }: Output<'_>,
) -> F::Step {
    let response = if framing.is_last() { response.with_connection_close() } else { response };
    let head = framing.head(buffers);
    let start = head.len();
    response.write_head(clock.date(), head);
    if let Some(fields) = fields {
        fields.apply(start, content_of, head);
    }
    if let Some((log, connection, logged)) = log {
        log_content(log, &connection.peer(F::VERSION), logged, response.status().code(), &mut content);
    }
    framing.respond(response.persistence(), content, buffers, options)
}

/// The content of a response with this file, if it is written with the head.
#[inline(always)]
fn bytes_at_once<'c, 's, F: Framing<'s>>(
    body: Body<'_>,
    file: &FileHit<'c, 's>,
    framing: &F,
    output: &Output<'_>,
) -> Option<&'c [u8]> {
    let Body::File { start_bytes, length_bytes } = body else { return None };
    let bytes = file.in_memory(start_bytes, length_bytes)?;
    let is_short = length_bytes <= output.buffers.limits.copied_bytes_max;
    (is_short && framing.takes_at_once(length_bytes)).then_some(bytes)
}

/// The content of a response with this file that is sent after the head.
fn content_of_file<'c, 's>(body: Body<'_>, file: &FileHit<'_, 's>, output: &Output<'_>) -> Content<'c, 's> {
    let may_use_sendfile = file.may_use_sendfile(output.options, output.clock);
    match body {
        Body::File { start_bytes, length_bytes } => {
            let source = BodySource::File(file.chunk(start_bytes, length_bytes, may_use_sendfile));
            Content::Later { source, length_bytes: Some(length_bytes) }
        }
        Body::Multipart(multipart) => {
            let source = file.multipart(&multipart, may_use_sendfile, output.buffers.limits.copied_bytes_max);
            Content::Later { source, length_bytes: Some(multipart.length_bytes()) }
        }
        Body::Empty | Body::StatusPage(_) | Body::DnsMessage | Body::Text(_) => Content::Empty,
    }
}

/// The content of a response without a file.
fn content_without_file<'c, 's, F: Framing<'s>>(body: Body<'c>, framing: &F) -> Content<'c, 's> {
    match body {
        Body::StatusPage(page) if !framing.takes_at_once(page.len() as u64) => {
            Content::Later { source: BodySource::Page(page), length_bytes: Some(page.len() as u64) }
        }
        Body::StatusPage(page) => Content::Bytes(page),
        Body::Text(text) => content_of_bytes(text, framing),
        Body::Empty | Body::File { .. } | Body::Multipart(_) | Body::DnsMessage => Content::Empty,
    }
}

fn content_of_bytes<'c, 's, F: Framing<'s>>(bytes: &'c [u8], framing: &F) -> Content<'c, 's> {
    let length_bytes = bytes.len() as u64;
    match framing.takes_at_once(length_bytes) {
        true => Content::Bytes(bytes),
        false => Content::Later { source: BodySource::bytes(bytes), length_bytes: Some(length_bytes) },
    }
}

impl<'w> Output<'w> {
    fn new(clock: &'w Clock, options: &'w Options, buffers: &'w mut Buffers) -> Output<'w> {
        Output { clock, options, buffers }
    }
}
