//! A request and what was found for it into the response: conditions, ranges, methods, redirects.

use crate::conditions::{Verdict, judge, may_send_part};
use crate::fields::FieldName;
use crate::range::{Wanted, parse_range};
use crate::representation::Representation;
use crate::request::{Method, Persistence, Request};
use crate::response::{Head, Response};
use crate::site_path::{SitePath, SitePathError};
use crate::status::Status;
use crate::target::Target;

/// Why the look-up of the target resource gave no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupError<'r> {
    /// The path is that of a directory and lacks the slash at its end: the client is redirected.
    Directory(&'r SitePath<'r>),
    /// There is no such file, or it is hidden; also a file whose path was sent with a slash at its end.
    NotFound,
    /// The file may not be read.
    Forbidden,
    /// No file can have this path.
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

impl From<SitePathError> for LookupError<'_> {
    fn from(error: SitePathError) -> Self {
        match error {
            SitePathError::Malformed => LookupError::BadRequest,
            SitePathError::Hidden | SitePathError::Empty | SitePathError::TooLong => LookupError::NotFound,
        }
    }
}

/// The response to `request`, whose target resource is `file`.
pub fn respond<'r>(request: &Request<'r>, file: Result<&'r Representation, LookupError<'r>>) -> Response<'r> {
    let head = match request.method {
        Method::Get | Method::Head => {
            file.map_or_else(|error| head_of_error(request, error), |file| head_of_file(request, file))
        }
        Method::Options => Head::Options,
        // RFC 9110 §15.5.6 and §15.6.2.
        Method::NotAllowed => Head::Page(Status::MethodNotAllowed),
        Method::Unknown => Head::Page(Status::NotImplemented),
    };
    // A client that sends a malformed path is not to be trusted with the framing of its next request either.
    let is_trusted = !matches!(head, Head::Page(Status::BadRequest));
    let persistence = if is_trusted { request.persistence } else { Persistence::Close };
    Response { head, persistence, is_head_only: request.method == Method::Head }
}

fn head_of_error<'r>(request: &Request<'r>, error: LookupError<'r>) -> Head<'r> {
    Head::Page(match error {
        LookupError::Directory(path) => return Head::Redirect { path, query: query(request) },
        LookupError::NotFound | LookupError::NotLookedUp => Status::NotFound,
        LookupError::Forbidden => Status::Forbidden,
        LookupError::BadRequest => Status::BadRequest,
        LookupError::MisdirectedRequest => Status::MisdirectedRequest,
        LookupError::ServiceUnavailable => Status::ServiceUnavailable,
        LookupError::InternalServerError => Status::InternalServerError,
    })
}

fn head_of_file<'r>(request: &Request<'r>, file: &'r Representation) -> Head<'r> {
    match judge(&request.fields, file) {
        Verdict::Failed => return Head::Page(Status::PreconditionFailed),
        Verdict::NotModified => return Head::NotModified(file),
        Verdict::Proceed => {}
    }
    // RFC 9110 §14.2: a range counts for GET only, and after the conditions.
    let counts = request.method == Method::Get && may_send_part(&request.fields, file);
    let range = request.fields.single(FieldName::Range).filter(|_| counts);
    match range.map_or(Wanted::Whole, |value| parse_range(value, file.length_bytes())) {
        Wanted::Whole => Head::Whole(file),
        Wanted::Part(part) => Head::Part(file, part),
        Wanted::Unsatisfiable => Head::Unsatisfiable(file),
    }
}

fn query<'r>(request: &Request<'r>) -> Option<&'r [u8]> {
    match request.target {
        Target::Path { query, .. } => query,
        Target::Asterisk | Target::Authority => None,
    }
}
