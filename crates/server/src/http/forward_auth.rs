//! Asks the authenticator of a route whether a request goes on: `auth_request` of nginx, `forward_auth` of Caddy.
//!
//! The question is a separate call, whose request has no content. Until its answer the request waits as for a
//! password, so that nothing of it reaches the backend. Whatever is not a 2xx admits nobody.

use crate::context::Context;
use crate::http::asked::{Admission, Asked, Framing, Progress, Stage};
use crate::http::backend_exchange::{OwnResponse, PassedPath, pass_back, respond_with, response_of, status_of};
use crate::http::site_rules::Ruling;
use crate::metrics::Counter;
use crate::net::call::{CallHandle, CallRequest, ContentFraming};
use sanderling_http::{
    BackendRequest, BackendResponse, ForwardedField, Framing as BodyFraming, Request, Scheme, Status,
};
use sanderling_site_rules::{ForwardAuth, Route};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Bytes that the head of a question has in addition to the fields of the request, usually.
const HEAD_BYTES_ADDED: usize = 1024;

/// Continues with a request that no authenticator has to admit, or that was admitted. Any other one waits, or is
/// refused.
pub(super) fn admit<'s, F: Framing<'s>>(
    asked: &Asked<'_>,
    ruling: &mut Ruling<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> ControlFlow<F::Step, F> {
    let route = ruling.guarding_route().map(Arc::clone);
    let Some((route, auth)) = route.as_ref().and_then(|route| Some((route, route.forward_auth.as_deref()?))) else {
        // The request may have been asked about before a reload, or before it was refused.
        progress.end_question();
        return ControlFlow::Continue(framing);
    };
    ruling.set_private();
    // After a reload, another authenticator may be the one to ask.
    match progress.take_stage() {
        Stage::Admitted(admission) if admission.route == *route => {
            progress.set_stage(Stage::Admitted(admission));
            ControlFlow::Continue(framing)
        }
        Stage::Asked(question) if question.0 == *route => {
            if question.1.has_response() {
                return conclude(route, auth, question.1, asked, ruling, progress, framing, context);
            }
            // Hints of the authenticator are about another page.
            question.1.take_interim();
            question.1.await_response();
            progress.set_stage(Stage::Asked(question));
            ControlFlow::Break(progress.wait(framing, context.clock))
        }
        _ => ControlFlow::Break(ask(route, auth, asked, ruling, progress, framing, context)),
    }
}

/// Asks about a request, which waits.
fn ask<'s, F: Framing<'s>>(
    route: &Arc<Route>,
    auth: &ForwardAuth,
    asked: &Asked<'_>,
    ruling: &Ruling<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> F::Step {
    let head = match question_head(auth, asked, context) {
        Ok(_) if !framing.can_wait(context.options) => Err(Status::ServiceUnavailable),
        head => head,
    };
    match (head, &mut context.backends) {
        (Ok(head), Some(backends)) => {
            let mut request = CallRequest::new(head, ContentFraming::Plain, false, 0);
            request.is_idempotent = true;
            context.metrics.add(Counter::BackendRequests, 1);
            let call = backends.begin(&auth.route, request, asked.waiter, context.clock);
            progress.set_stage(Stage::Asked(Box::new((Arc::clone(route), call))));
            progress.wait(framing, context.clock)
        }
        (head, _) => {
            let response = OwnResponse::of(head.err().unwrap_or(Status::ServiceUnavailable));
            respond_with(&response, asked, ruling, progress, framing, context)
        }
    }
}

/// The request to the authenticator, with what nginx and Caddy let it know of the original one.
fn question_head(auth: &ForwardAuth, asked: &Asked<'_>, context: &Context<'_, '_>) -> Result<Vec<u8>, Status> {
    let request = asked.request;
    let path = PassedPath::of(request).map_err(|_| Status::BadRequest)?;
    let (Ok(uri), Ok(method)) = (String::from_utf8(path.target()), str::from_utf8(request.method_name())) else {
        return Err(Status::BadRequest);
    };
    // An authenticator reads X-Forwarded-*, which a proxy that writes Forwarded does not extend.
    let trusted = context.snapshot.http_clients.trusted_field(asked.peer.ip());
    let trusted = trusted.filter(|field| *field == ForwardedField::XForwardedFor);
    let client = if trusted.is_some() { asked.peer.ip() } else { asked.connection.client.ip() };
    let scheme = asked.scheme();
    let url = original_url(request, scheme, trusted, &uri);
    let edit = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    let edits = [
        edit("X-Forwarded-Method", method),
        edit("X-Forwarded-Uri", &uri),
        edit("X-Original-Method", method),
        edit("X-Original-URL", &url),
    ];
    let mut head = Vec::with_capacity(request.fields.lines().1.len() + 2 * uri.len() + HEAD_BYTES_ADDED);
    let question = BackendRequest {
        request,
        target: auth.target.as_bytes(),
        host: None,
        framing: BodyFraming::None,
        client,
        scheme,
        passes_trailers: false,
        trusted,
        edits: &edits,
    };
    question.write_question_head(&mut head);
    Ok(head)
}

/// The URL of the request as the client sees it.
fn original_url(request: &Request<'_>, scheme: Scheme, trusted: Option<ForwardedField>, uri: &str) -> String {
    let named = |name: &[u8]| {
        let value = trusted.and_then(|_| request.field(name));
        value.and_then(|value| str::from_utf8(value).ok()).map(str::to_owned)
    };
    let own_host = || {
        let host = request.host?;
        let name = String::from_utf8_lossy(host.name).into_owned();
        Some(host.port.map_or(name.clone(), |port| format!("{name}:{port}")))
    };
    let scheme = named(b"x-forwarded-proto").unwrap_or_else(|| scheme.name().to_owned());
    let host = named(b"x-forwarded-host").or_else(own_host).unwrap_or_default();
    format!("{scheme}://{host}{uri}")
}

/// The authenticator has answered, or cannot.
#[expect(clippy::too_many_arguments, reason = "the parts of an exchange, and the call with its route")]
fn conclude<'s, F: Framing<'s>>(
    route: &Arc<Route>,
    auth: &ForwardAuth,
    call: CallHandle,
    asked: &Asked<'_>,
    ruling: &Ruling<'_>,
    progress: &mut Progress,
    framing: F,
    context: &mut Context<'_, 's>,
) -> ControlFlow<F::Step, F> {
    let taken = call.take_head();
    let answer = taken.as_ref().map(|(head, is_complete)| (response_of(head, asked), *is_complete));
    let (status, problem) = match answer {
        Ok((Some(response), is_complete)) => match response.status() {
            200..300 => match fields_of(auth, &response) {
                Ok(fields) => {
                    progress.set_stage(Stage::Admitted(Box::new(Admission { route: Arc::clone(route), fields })));
                    return ControlFlow::Continue(framing);
                }
                Err(name) => (Status::BadGateway, format!("sent a value of `{name}` that is not UTF-8")),
            },
            status @ 500.. => (Status::BadGateway, format!("answered with status {status}")),
            _ => {
                let step = pass_back(&response, call, is_complete, asked, ruling, progress, framing, context);
                return ControlFlow::Break(step);
            }
        },
        Ok(_) => (Status::BadGateway, "sent an invalid response".to_owned()),
        Err(error) => (status_of(error), error.to_string()),
    };
    context.metrics.add(Counter::BackendErrors, 1);
    let text = format!("The authenticator {} {problem}.\n", call.state().backend_name());
    let response = OwnResponse { text: &text, ..OwnResponse::of(status) };
    ControlFlow::Break(respond_with(&response, asked, ruling, progress, framing, context))
}

/// The fields of the response that the backend gets. Where it has none, those of the client are removed.
///
/// # Errors
/// The name of one that cannot be passed on unchanged.
fn fields_of<'a>(
    auth: &'a ForwardAuth,
    response: &BackendResponse<'_>,
) -> Result<Vec<(String, Option<String>)>, &'a str> {
    let value = |name: &'a String| {
        let lower = name.to_ascii_lowercase();
        let values: Vec<&[u8]> = response.field_values(lower.as_bytes()).collect();
        match (values.is_empty(), String::from_utf8(values.join(&b", "[..]))) {
            (true, _) => Ok((name.clone(), None)),
            (false, Ok(value)) => Ok((name.clone(), Some(value))),
            (false, Err(_)) => Err(name.as_str()),
        }
    };
    auth.fields.iter().map(value).collect()
}
