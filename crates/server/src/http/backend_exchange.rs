//! Requests that a route answers: by a fixed response, or by passing them on to a backend, and its response back.

use crate::context::Context;
use crate::http::asked::{Asked, Framing, Logged, Progress, Stage, WAITS_MAX, log_content};
use crate::http::grpc::{grpc_status, put_grpc_fields};
use crate::http::recoding::Recoding;
use crate::http::script::{self, Script};
use crate::http::server_choice;
use crate::http::site_rules::{Action, Ruling};
use crate::metrics::Counter;
use crate::net::backend_content::{BackendContent, ContentFraming as BackendFraming};
use crate::net::body_sink::BodySink;
use crate::net::body_source::{BodySource, Content};
use crate::net::call::{CallError, CallHandle, CallRequest, ContentFraming, TakenContent};
use crate::waiter::Waiter;
use sanderling_fastcgi::{ProtocolStatus, ScriptRequest, put_begin, put_stdin_end};
use sanderling_http::{
    BackendRequest, BackendResponse, ClientContent, FieldName, Framing as BodyFraming, Method, ParsedResponse,
    Persistence, Request, ResponseFraming, ResponseHeadParts, ResponseLimits, SitePath, Status, Target, Version,
    parse_response, put_path_segment,
};
use sanderling_log_format::HttpVersion;
use sanderling_site_rules::{BackendProtocol, BackendRoute, ContentOf, FastCgiOptions, Route, RouteAction};
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// A response without a backend, or instead of its response.
pub(super) struct OwnResponse<'o> {
    pub(super) status: u16,
    pub(super) reason: &'o str,
    pub(super) text: &'o str,
    pub(super) location: Option<&'o str>,
    /// The status of gRPC, of which `text` is then the message.
    pub(super) grpc_status: Option<u8>,
}

/// Bytes that the head of a request gets in addition to its fields, usually.
const HEAD_BYTES_ADDED: usize = 512;

/// Answers a request by its route, or continues with the call that answers it.
pub(super) fn answer<'s, F: Framing<'s>>(
    asked: &Asked<'_>,
    ruling: &Ruling<'_>,
    progress: &mut Progress,
    mut framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    if let Some(call) = progress.answering_call() {
        put_interim(call, asked, &mut framing, context);
        if call.has_response() {
            return respond(asked, ruling, progress, framing, context);
        }
        call.await_response();
        return progress.wait(framing, context.clock);
    }
    let no_call = match &ruling.action {
        Action::Route(route) => match &route.action {
            RouteAction::Respond { status, text } => {
                let response = OwnResponse { status: *status, reason: "", text, location: None, grpc_status: None };
                return respond_with(&response, asked, ruling, progress, framing, context);
            }
            RouteAction::Pass(_) if context.backends.is_none() || !framing.can_wait(context.options) => {
                NoCall::Refused(Status::ServiceUnavailable)
            }
            RouteAction::Pass(backend_route) => {
                let waiter = (asked.waiter, progress.wait_count > 0);
                let inputs = CallInputs { asked, route, backend_route, edits: &edits_of(backend_route, progress) };
                match call_request(&inputs, F::VERSION, waiter, context) {
                    Ok(request) => return begin(route, request, asked, progress, framing, context),
                    Err(no_call) => no_call,
                }
            }
            RouteAction::File => NoCall::Refused(Status::ServiceUnavailable),
        },
        _ => NoCall::Refused(Status::ServiceUnavailable),
    };
    let location;
    let response = match no_call {
        NoCall::Pending if progress.wait_count < WAITS_MAX => return progress.wait(framing, context.clock),
        NoCall::Pending => OwnResponse::of(Status::ServiceUnavailable),
        NoCall::Refused(status) => OwnResponse::of(status),
        NoCall::LacksSlash => {
            location = location_with_slash(asked.request);
            OwnResponse { location: Some(&location), ..OwnResponse::of(Status::MovedPermanently) }
        }
    };
    respond_with(&response, asked, ruling, progress, framing, context)
}

/// Sends the interim responses that have arrived. Clients of HTTP/1.1 get them only if the route says so: old ones take
/// them for the response.
fn put_interim<'s, F: Framing<'s>>(
    call: &CallHandle,
    asked: &Asked<'_>,
    framing: &mut F,
    context: &mut Context<'_, 's>,
) {
    for received in call.take_interim() {
        let state = call.state();
        let route = state.backend_route();
        let is_understood = match F::VERSION {
            HttpVersion::Http1 => route.sends_hints_by_http1 && asked.request.version == Version::Http11,
            HttpVersion::Http2 => true,
        };
        if !is_understood {
            continue;
        }
        let parsed = parse_response(&received, false, &ResponseLimits::default());
        if let Ok(ParsedResponse::Complete { response, .. }) = parsed {
            let parts = ResponseHeadParts {
                edits: &route.response_fields,
                content: ClientContent::None,
                persistence: Persistence::Persist,
                version: asked.request.version,
                date: context.clock.date().as_bytes(),
            };
            let mut head = Vec::new();
            response.write_head(&parts, &mut head);
            framing.put_interim(&head, context.buffers);
        }
    }
}

/// Why a request is not passed on.
pub(super) enum NoCall {
    /// With this status.
    Refused(Status),
    /// A file is looked up: the waiter receives an event.
    Pending,
    /// The path of a directory lacks the slash at its end.
    LacksSlash,
}

/// The path with a slash at its end, and the query. A path that begins with two slashes would be a host.
fn location_with_slash(request: &Request<'_>) -> String {
    let Target::Path { path, query } = request.target else { return "/".to_owned() };
    let path = String::from_utf8_lossy(path);
    let query = query.map_or(String::new(), |query| format!("?{}", String::from_utf8_lossy(query)));
    format!("/{}/{query}", path.trim_start_matches('/'))
}

/// Passes the request on.
fn begin<'s, F: Framing<'s>>(
    route: &Arc<Route>,
    request: CallRequest,
    asked: &Asked<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let is_open = request.is_open();
    context.metrics.add(Counter::BackendRequests, 1);
    let Some(backends) = &mut context.backends else { unreachable!("asked before") };
    let call = backends.begin(route, request, asked.waiter, context.clock);
    if is_open && let Some(content) = asked.content {
        call.put_content(content);
        call.finish_request();
    }
    let sink = match &route.action {
        RouteAction::Pass(backend_route) if asked.content.is_none() => BodySink::Backend(backend_route.body_bytes_max),
        _ => BodySink::Nothing,
    };
    progress.set_stage(Stage::Passed(call));
    match sink {
        BodySink::Nothing => progress.wait(framing, context.clock),
        sink => framing.need_body(sink, progress, context),
    }
}

/// A request that is passed on.
struct CallInputs<'c> {
    asked: &'c Asked<'c>,
    route: &'c Route,
    backend_route: &'c BackendRoute,
    /// Fields of the request to the backend: `None` removes one.
    edits: &'c [Edit],
}

type Edit = (String, Option<String>);

/// The fields that the route sets and removes, with those of the authenticator that has admitted the request.
fn edits_of<'e>(backend_route: &'e BackendRoute, progress: &Progress) -> Cow<'e, [Edit]> {
    match progress.admitted_fields() {
        [] => Cow::Borrowed(&backend_route.request_fields),
        fields => Cow::Owned(fields.iter().chain(&backend_route.request_fields).cloned().collect()),
    }
}

/// The request to the backend.
fn call_request(
    inputs: &CallInputs<'_>,
    version: HttpVersion,
    waiter: (Waiter, bool),
    context: &mut Context<'_, '_>,
) -> Result<CallRequest, NoCall> {
    let CallInputs { asked, backend_route, .. } = *inputs;
    let request = asked.request;
    let framing = match (asked.content, request.framing) {
        (Some([]), _) => BodyFraming::None,
        (Some(content), _) => BodyFraming::Length(content.len() as u64),
        (None, BodyFraming::None)
            if version == HttpVersion::Http2
                && !request.fields.contains(FieldName::ContentLength)
                && request.upgrade().is_none() =>
        {
            BodyFraming::Chunked
        }
        (None, framing) => framing,
    };
    if matches!(framing, BodyFraming::Length(length_bytes) if length_bytes > backend_route.body_bytes_max) {
        return Err(NoCall::Refused(Status::ContentTooLarge));
    }
    let (has_content, bytes_max) = (framing != BodyFraming::None, backend_route.body_bytes_max);
    let mut passed = match &backend_route.backend.protocol {
        protocol @ (BackendProtocol::Http1 | BackendProtocol::Http2) => {
            let content_framing = match (framing, protocol) {
                (BodyFraming::Chunked, BackendProtocol::Http1) => ContentFraming::Chunked,
                _ => ContentFraming::Plain,
            };
            let head = match (version, request.upgrade()) {
                (HttpVersion::Http2, Some(_)) => {
                    let edits = inputs.edits.iter().cloned().chain([web_socket_key()]).collect::<Vec<_>>();
                    http_head(&CallInputs { edits: &edits, ..*inputs }, framing, context)?
                }
                _ => http_head(inputs, framing, context)?,
            };
            let mut passed = CallRequest::new(head, content_framing, has_content, bytes_max);
            passed.is_upgrade = *protocol == BackendProtocol::Http1 && request.upgrade().is_some();
            passed
        }
        // Applications read as many bytes as the length says.
        BackendProtocol::FastCgi(_) if framing == BodyFraming::Chunked => {
            return Err(NoCall::Refused(Status::LengthRequired));
        }
        BackendProtocol::FastCgi(options) => {
            let head = script_head(inputs, options, framing, version, waiter, context)?;
            CallRequest::new(head, ContentFraming::Records, has_content, bytes_max)
        }
    };
    let method = request.method_name();
    passed.is_head = method == b"HEAD";
    passed.affinity = server_choice::affinity_of(asked, &backend_route.backend);
    // RFC 9110 §9.2.2.
    passed.is_idempotent = matches!(method, b"GET" | b"HEAD" | b"OPTIONS" | b"PUT" | b"DELETE" | b"TRACE");
    Ok(passed)
}

/// The field by which a client of HTTP/1.1 recognizes the answer to its handshake, and which one of HTTP/2 does not
/// send (RFC 8441 §5.1).
fn web_socket_key() -> Edit {
    let random = || RandomState::new().hash_one(0).to_ne_bytes();
    let key = data_encoding::BASE64.encode(&[random(), random()].concat());
    ("Sec-WebSocket-Key".to_owned(), Some(key))
}

/// The head of the request to a backend that speaks HTTP.
fn http_head(
    &CallInputs { asked, route, backend_route, edits }: &CallInputs<'_>,
    framing: BodyFraming,
    context: &Context<'_, '_>,
) -> Result<Vec<u8>, NoCall> {
    let request = asked.request;
    let target = target_of(route, backend_route, request)?;
    let mut head = Vec::with_capacity(request.fields.lines().1.len() + target.len() + HEAD_BYTES_ADDED);
    server_choice::put_client_header(asked, &backend_route.backend, &mut head);
    let backend_request = BackendRequest {
        request,
        target: &target,
        host: backend_route.host.as_deref(),
        framing,
        client: asked.peer.ip(),
        scheme: asked.scheme(),
        passes_trailers: backend_route.backend.protocol == BackendProtocol::Http2,
        trusted: context.snapshot.http_clients.trusted_field(asked.peer.ip()),
        edits,
    };
    backend_request.write_head(&mut head);
    Ok(head)
}

/// The records before the content of a request to a FastCGI application.
fn script_head(
    &CallInputs { asked, backend_route, edits, .. }: &CallInputs<'_>,
    options: &FastCgiOptions,
    framing: BodyFraming,
    version: HttpVersion,
    waiter: (Waiter, bool),
    context: &mut Context<'_, '_>,
) -> Result<Vec<u8>, NoCall> {
    let request = asked.request;
    let PassedPath { path, .. } = PassedPath::of(request)?;
    let site = context.files.site_for(&context.snapshot.sites, request.host).cloned();
    let site = site.ok_or(NoCall::Refused(Status::NotFound))?;
    let (name, path_info) = match script::find(options, &site, &path, waiter, context) {
        Script::Found { name, path_info } => (name, path_info),
        Script::Pending => return Err(NoCall::Pending),
        Script::LacksSlash if matches!(request.method, Method::Get | Method::Head) => return Err(NoCall::LacksSlash),
        Script::LacksSlash | Script::Missing => return Err(NoCall::Refused(Status::NotFound)),
    };
    let root = options.root.as_os_str().as_encoded_bytes();
    let mut head = Vec::with_capacity(request.fields.lines().1.len() * 2 + HEAD_BYTES_ADDED);
    put_begin(true, &mut head);
    let script_request = ScriptRequest {
        request,
        script: sanderling_fastcgi::Script {
            root,
            file: &[root, b"/", &name].concat(),
            name: &[b"/", &name[..]].concat(),
            path_info: &path_info,
        },
        framing,
        host: backend_route.host.as_deref(),
        client: *asked.connection.client,
        local: asked.connection.transport.local_address(),
        scheme: asked.scheme(),
        protocol: match version {
            HttpVersion::Http1 => "HTTP/1.1",
            HttpVersion::Http2 => "HTTP/2.0",
        },
        server_name: site.hosts.first().map_or("", String::as_str),
        trusted: context.snapshot.http_clients.trusted_field(asked.peer.ip()),
        edits,
    };
    script_request.put_params(&mut head);
    if framing == BodyFraming::None {
        put_stdin_end(&mut head);
    }
    Ok(head)
}

/// A path that a backend may get.
pub(super) struct PassedPath<'r> {
    raw: &'r [u8],
    path: SitePath<'r>,
    query: Option<&'r [u8]>,
}

impl<'r> PassedPath<'r> {
    /// A path with a segment `.` or `..`, encoded or not, is refused: the backend might see another path than the
    /// rules.
    pub(super) fn of(request: &Request<'r>) -> Result<PassedPath<'r>, NoCall> {
        const REFUSED: NoCall = NoCall::Refused(Status::BadRequest);
        let Target::Path { path: raw, query } = request.target else { return Err(REFUSED) };
        let path = SitePath::parse(raw).map_err(|_| REFUSED)?;
        if path.has_dot_segments(raw) { Err(REFUSED) } else { Ok(PassedPath { raw, path, query }) }
    }

    /// Path and query as they were received.
    pub(super) fn target(&self) -> Vec<u8> {
        match self.query {
            None => self.raw.to_vec(),
            Some(query) => [self.raw, b"?", query].concat(),
        }
    }
}

/// The target that the backend gets: as it was received, without the prefix if the route says so.
fn target_of<'r>(route: &Route, backend_route: &BackendRoute, request: &Request<'r>) -> Result<Cow<'r, [u8]>, NoCall> {
    let PassedPath { raw, path, query } = PassedPath::of(request)?;
    if !backend_route.strip_prefix && query.is_none() {
        return Ok(Cow::Borrowed(raw));
    }
    let mut target = match backend_route.strip_prefix {
        false => raw.to_vec(),
        true => stripped(route.fixed_prefix(), raw, &path),
    };
    if let Some(query) = query {
        target.push(b'?');
        target.extend_from_slice(query);
    }
    Ok(Cow::Owned(target))
}

/// The path without `prefix`, which begins and does not end with a slash.
fn stripped(prefix: &str, raw_path: &[u8], path: &SitePath<'_>) -> Vec<u8> {
    match raw_path.strip_prefix(prefix.as_bytes()) {
        Some([]) => b"/".to_vec(),
        Some(rest) if rest.starts_with(b"/") => rest.to_vec(),
        // The prefix was matched in its decoded form.
        _ => {
            let rest = path.as_bytes().get(prefix.len().saturating_sub(1)..).unwrap_or_default();
            let mut out = Vec::new();
            for segment in rest.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()) {
                out.push(b'/');
                put_path_segment(segment, &mut out);
            }
            if path.ends_with_slash() || out.is_empty() {
                out.push(b'/');
            }
            out
        }
    }
}

/// Passes the response of the backend back, or says why there is none.
fn respond<'s, F: Framing<'s>>(
    asked: &Asked<'_>,
    ruling: &Ruling<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let Stage::Passed(call) = progress.take_stage() else { unreachable!("asked before") };
    if let Some(log) = context.log {
        log.set_upstream(server_choice::logged(&call));
    }
    let taken = call.take_head();
    match taken.as_ref().map(|(head, is_complete)| (response_of(head, asked), *is_complete)) {
        Ok((Some(response), is_complete)) => {
            pass_back(&response, call, is_complete, asked, ruling, progress, framing, context)
        }
        Ok(_) => respond_with(&OwnResponse::of(Status::ServiceUnavailable), asked, ruling, progress, framing, context),
        Err(error) => {
            if *error != CallError::ContentTooLarge {
                context.metrics.add(Counter::BackendErrors, 1);
            }
            // The log and the status have its addresses, which are of no concern to visitors.
            let text = format!("The application {error}.\n");
            let response = match grpc_status(asked.request, error) {
                Some(grpc_status) => {
                    OwnResponse { text: &text, grpc_status: Some(grpc_status), ..OwnResponse::of(Status::Ok) }
                }
                None => OwnResponse { text: &text, ..OwnResponse::of(status_of(error)) },
            };
            respond_with(&response, asked, ruling, progress, framing, context)
        }
    }
}

/// The response that a call has received, whose head was checked then.
pub(super) fn response_of<'h>(head: &'h [u8], asked: &Asked<'_>) -> Option<BackendResponse<'h>> {
    match parse_response(head, asked.request.method == Method::Head, &ResponseLimits::default()) {
        Ok(ParsedResponse::Complete { response, .. }) => Some(response),
        Ok(ParsedResponse::Partial) | Err(_) => None,
    }
}

/// The status of the response if a backend has none.
pub(super) fn status_of(error: &CallError) -> Status {
    match error {
        CallError::Busy(_) | CallError::Refused(ProtocolStatus::Overloaded) => Status::ServiceUnavailable,
        CallError::ConnectTimeout(_) | CallError::Timeout(_) => Status::GatewayTimeout,
        CallError::ContentTooLarge => Status::ContentTooLarge,
        CallError::Connect(_)
        | CallError::NameNotFound(_)
        | CallError::Closed
        | CallError::Invalid(_)
        | CallError::InvalidRecord(_)
        | CallError::Http2(_)
        | CallError::Tls(_)
        | CallError::Refused(_) => Status::BadGateway,
    }
}

/// Writes the response of a backend.
#[expect(clippy::too_many_arguments, reason = "the parts of an exchange, and the response with its source")]
pub(super) fn pass_back<'s, F: Framing<'s>>(
    response: &BackendResponse<'_>,
    call: CallHandle,
    is_complete: bool,
    asked: &Asked<'_>,
    ruling: &Ruling<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let request = asked.request;
    let takes_trailers = F::VERSION == HttpVersion::Http2 || request.takes_trailers();
    let has_trailers = is_complete && takes_trailers && call.has_trailers();
    let has_content = has_trailers || !matches!(response.framing(), ResponseFraming::None | ResponseFraming::Length(0));
    // Trailers follow content that is sent as if it was not complete.
    let is_complete = is_complete && !has_trailers;
    let mut bytes = Vec::new();
    if is_complete && has_content {
        while let TakenContent::Bytes(more) = call.take_content(usize::MAX) {
            bytes.extend_from_slice(&more);
        }
    }
    // A complete response has a length, however the backend frames it.
    let length_bytes = match response.framing() {
        ResponseFraming::Length(length_bytes) => Some(length_bytes),
        ResponseFraming::Chunked | ResponseFraming::UntilClose => is_complete.then_some(bytes.len() as u64),
        // RFC 9110 §8.6: a 204 has none.
        ResponseFraming::None => response.content_length().filter(|_| response.status() != 204),
    };
    let (compresses, mut edits) = {
        let state = call.state();
        let route = state.backend_route();
        (route.compresses && ruling.fields.may_transform(), route.response_fields.clone())
    };
    let mut recoding = match compresses {
        true => Recoding::of(response, request, length_bytes, &edits),
        false => Recoding::default(),
    };
    let is_recoded = recoding.encoder.is_some();
    if is_complete {
        recoding.encode_whole(&mut bytes);
    }
    edits.append(&mut recoding.edits);
    let length_bytes = if is_recoded { is_complete.then_some(bytes.len() as u64) } else { length_bytes };
    let content_framing = match (length_bytes, F::VERSION) {
        (Some(length_bytes), _) => ClientContent::Length(length_bytes),
        (None, _) if !has_content => ClientContent::None,
        (None, HttpVersion::Http1) if is_recoded => ResponseFraming::Chunked.for_client(request.version),
        (None, HttpVersion::Http1) => response.framing().for_client(request.version),
        (None, HttpVersion::Http2) => ClientContent::None,
    };
    let is_last = framing.is_last() || content_framing == ClientContent::UntilClose;
    let persistence = if is_last { Persistence::Close } else { request.persistence };
    let is_tunnel = response.status() == 101;
    let cookie = server_choice::cookie_line(&call, asked);
    let head = framing.head(context.buffers);
    let start = head.len();
    let parts = ResponseHeadParts {
        edits: &edits,
        content: content_framing,
        persistence,
        version: request.version,
        date: context.clock.date().as_bytes(),
    };
    response.write_head(&parts, head);
    if let Some(line) = cookie {
        // Before the empty line.
        let end = head.len() - 2;
        head.splice(end..end, line.into_bytes());
    }
    if !is_tunnel {
        ruling.fields.apply(start, ContentOf::Path, head);
    }
    let mut content = if !has_content {
        Content::Empty
    } else if is_complete && framing.takes_at_once(bytes.len() as u64) {
        Content::Bytes(&bytes)
    } else if is_complete {
        Content::Later { length_bytes: Some(bytes.len() as u64), source: BodySource::bytes(&bytes) }
    } else {
        let framed = match content_framing {
            ClientContent::Chunked if takes_trailers => BackendFraming::ChunkedWithTrailers,
            ClientContent::Chunked => BackendFraming::Chunked,
            _ => BackendFraming::Plain,
        };
        // After content of HTTP/2, trailers may follow, whether its length was announced or not.
        let may_have_trailers = call.state().backend_route().backend.protocol == BackendProtocol::Http2;
        let length_bytes = length_bytes.filter(|_| !may_have_trailers);
        let source = BackendContent::new(call, framed).encoded(recoding.encoder);
        return finish(
            response.status(),
            persistence,
            Content::Later { source: BodySource::Backend(Box::new(source)), length_bytes },
            asked,
            progress,
            framing,
            context,
        );
    };
    if matches!(content, Content::Bytes([])) {
        content = Content::Empty;
    }
    if is_tunnel {
        log(response.status(), &mut content, asked, progress, F::VERSION, context);
        return framing.begin_tunnel(call, context.buffers, context.options);
    }
    finish(response.status(), persistence, content, asked, progress, framing, context)
}

/// Writes a response that is not from a backend.
pub(super) fn respond_with<'s, F: Framing<'s>>(
    response: &OwnResponse<'_>,
    asked: &Asked<'_>,
    ruling: &Ruling<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let persistence = if framing.is_last() { Persistence::Close } else { asked.request.persistence };
    let has_content = !matches!(response.status, 204 | 304) && response.grpc_status.is_none();
    let head = framing.head(context.buffers);
    let start = head.len();
    response.write_head(has_content, persistence, context.clock.date().as_bytes(), head);
    ruling.fields.apply(start, ContentOf::Path, head);
    let text = response.text.as_bytes();
    let content = if text.is_empty() || !has_content || asked.request.method == Method::Head {
        Content::Empty
    } else if framing.takes_at_once(text.len() as u64) {
        Content::Bytes(text)
    } else {
        Content::Later { source: BodySource::bytes(text), length_bytes: Some(text.len() as u64) }
    };
    finish(response.status, persistence, content, asked, progress, framing, context)
}

/// Logs and sends the response whose head is written.
fn finish<'s, F: Framing<'s>>(
    status: u16,
    persistence: Persistence,
    mut content: Content<'_, 's>,
    asked: &Asked<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    log(status, &mut content, asked, progress, F::VERSION, context);
    framing.respond(persistence, content, context.buffers, context.options)
}

fn log(
    status: u16,
    content: &mut Content<'_, '_>,
    asked: &Asked<'_>,
    progress: &mut Progress,
    version: HttpVersion,
    context: &Context<'_, '_>,
) {
    context.metrics.add(Counter::HttpRequests, 1);
    let origin = std::mem::take(progress).origin(context);
    if let Some(log) = context.log {
        let logged = Logged::Request { request: asked.request, origin };
        log_content(log, &asked.connection.peer(version), logged, status, content);
    }
}

impl OwnResponse<'_> {
    /// The status alone.
    pub(super) fn of(status: Status) -> OwnResponse<'static> {
        let (status, reason, text) = (status.code(), status.reason(), status.text());
        OwnResponse { status, reason, text, location: None, grpc_status: None }
    }

    fn write_head(&self, has_content: bool, persistence: Persistence, date: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(
            format!("HTTP/1.1 {} {}\r\nServer: sanderling\r\nDate: ", self.status, self.reason).as_bytes(),
        );
        out.extend_from_slice(date);
        out.extend_from_slice(b"\r\n");
        if let Some(location) = self.location {
            out.extend_from_slice(format!("Location: {location}\r\n").as_bytes());
        }
        if let Some(status) = self.grpc_status {
            put_grpc_fields(status, self.text, out);
        }
        if has_content {
            let length_bytes = self.text.len();
            let fields = format!("Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length_bytes}\r\n");
            out.extend_from_slice(fields.as_bytes());
        }
        out.extend_from_slice(match persistence {
            Persistence::Persist => b"\r\n",
            Persistence::KeepAlive => b"Connection: keep-alive\r\n\r\n",
            Persistence::Close => b"Connection: close\r\n\r\n",
        });
    }
}
