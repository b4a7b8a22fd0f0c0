//! Decides the response: by method, look-up, preconditions and range.

use crate::fields::FieldName;
use crate::multipart::Multipart;
use crate::preconditions::{Evaluation, allows_range, evaluate};
use crate::range::{RangeRequest, parse_range};
use crate::representation::Representation;
use crate::request::{Method, Persistence, Request};
use crate::response::{CanonicalUrl, Head, PageFormat, Response};
use crate::site_path::{MalformedPath, SitePath};
use crate::status::Status;
use crate::target::Target;

/// Why the look-up of the target resource gave no file.
#[derive(Clone, Copy, Debug)]
pub enum LookupError<'r> {
    /// The path names a directory, without a slash at its end: the client is redirected.
    Directory(&'r SitePath<'r>),
    /// The file has another URL, to which the client is redirected.
    Moved(&'r SitePath<'r>, CanonicalUrl),
    /// The file does not exist or is hidden, or its path has a slash at its end.
    NotFound,
    /// The same, and this file is the page that says so.
    NotFoundWithPage(&'r Representation),
    /// The file may not be read.
    Forbidden,
    /// The path is invalid.
    BadRequest,
    /// No site of this server has the host.
    MisdirectedRequest,
    /// A limit of this server is reached; the client should try again.
    ServiceUnavailable,
    /// The look-up failed.
    InternalServerError,
    /// The response does not depend on a file: [`Request::path`] is `None`.
    NotLookedUp,
}

impl From<MalformedPath> for LookupError<'_> {
    fn from(MalformedPath: MalformedPath) -> Self {
        LookupError::BadRequest
    }
}

/// The response to `request`, whose target resource is `file`. `now_unix_s` is the current time in seconds since 1970.
pub fn respond<'r>(
    request: &Request<'r>,
    file: Result<&'r Representation, LookupError<'r>>,
    now_unix_s: u64,
) -> Response<'r> {
    let head = match request.method {
        Method::Get | Method::Head => {
            file.map_or_else(|error| head_of_error(request, error), |file| head_of_file(request, file, now_unix_s))
        }
        Method::Options => Head::Options,
        // RFC 9110 §15.5.6 and §15.6.2.
        Method::Post | Method::NotAllowed => {
            Head::StatusPage(Status::MethodNotAllowed, PageFormat::accepted_by(request))
        }
        Method::Unknown => Head::StatusPage(Status::NotImplemented, PageFormat::accepted_by(request)),
    };
    // A client that sends a malformed path is not to be trusted with the framing of its next request either.
    let is_trusted = !matches!(head, Head::StatusPage(Status::BadRequest, _));
    let persistence = if is_trusted { request.persistence } else { Persistence::Close };
    Response { head, persistence, is_head_only: request.method == Method::Head }
}

fn head_of_error<'r>(request: &Request<'r>, error: LookupError<'r>) -> Head<'r> {
    let status = match error {
        LookupError::Directory(path) => {
            return Head::Redirect { path, url: CanonicalUrl::WithSlash, query: query(request) };
        }
        LookupError::Moved(path, url) => return Head::Redirect { path, url, query: query(request) },
        LookupError::NotFoundWithPage(page) => return Head::FilePage(Status::NotFound, page),
        LookupError::NotFound => Status::NotFound,
        LookupError::Forbidden => Status::Forbidden,
        LookupError::BadRequest => Status::BadRequest,
        // GET and HEAD always have a path.
        LookupError::MisdirectedRequest | LookupError::NotLookedUp => Status::MisdirectedRequest,
        LookupError::ServiceUnavailable => Status::ServiceUnavailable,
        LookupError::InternalServerError => Status::InternalServerError,
    };
    Head::StatusPage(status, PageFormat::accepted_by(request))
}

fn head_of_file<'r>(request: &Request<'r>, file: &'r Representation, now_unix_s: u64) -> Head<'r> {
    match evaluate(&request.fields, file) {
        Evaluation::Failed => {
            return Head::StatusPage(Status::PreconditionFailed, PageFormat::accepted_by(request));
        }
        Evaluation::NotModified => return Head::NotModified(file),
        Evaluation::NotModifiedAs(coding) => return Head::NotModifiedAs(coding, file),
        Evaluation::Proceed => {}
    }
    // RFC 9110 §14.2: a range applies to GET only, and after the preconditions.
    let is_range_allowed = request.method == Method::Get && allows_range(&request.fields, file, now_unix_s);
    let range = request.fields.single(FieldName::Range).filter(|_| is_range_allowed);
    match range.map_or(RangeRequest::Ignored, |value| parse_range(value, file.length_bytes())) {
        RangeRequest::Ignored => Head::Full(file),
        RangeRequest::Satisfiable(range) => Head::Partial(file, range),
        RangeRequest::Multiple(list) => Multipart::new(file, list).map_or(Head::Full(file), Head::Multipart),
        RangeRequest::Unsatisfiable => Head::RangeNotSatisfiable(file, PageFormat::accepted_by(request)),
    }
}

fn query<'r>(request: &Request<'r>) -> Option<&'r [u8]> {
    match request.target {
        Target::Path { query, .. } => query,
        Target::Asterisk | Target::Authority => None,
    }
}
