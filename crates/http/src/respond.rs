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

/// What stands where a request points.
#[derive(Clone, Copy, Debug)]
pub enum Found<'r> {
    /// A file.
    File(&'r Representation),
    /// A folder that was asked for without the slash at its end; the path that was asked for.
    Folder(&'r SitePath<'r>),
    /// Nothing, or nothing that is to be shown; a file that was asked for with a slash at its end is missing too.
    Missing,
    /// Something that we may not read.
    Forbidden,
    /// A path that no file can have.
    Malformed,
    /// No site of ours has the host.
    Misdirected,
    /// The client is beyond its share.
    Throttled,
    /// We could not look: a limit of ours is reached, and the client should come again.
    Busy,
    /// We could not look: something broke.
    Failed,
    /// Nobody looked, as [`Request::path`] says that the answer does not depend on it.
    NotSought,
}

impl From<SitePathError> for Found<'_> {
    fn from(error: SitePathError) -> Self {
        match error {
            SitePathError::Malformed => Found::Malformed,
            SitePathError::Hidden | SitePathError::Empty | SitePathError::TooLong => Found::Missing,
        }
    }
}

/// Decides what the answer to `request` is.
pub fn respond<'r>(request: &Request<'r>, found: Found<'r>) -> Response<'r> {
    let head = match request.method {
        Method::Get | Method::Head => head_of_found(request, found),
        Method::Options => Head::Options,
        // RFC 9110 §15.5.6 and §15.6.2.
        Method::Unsuited => Head::Page(Status::MethodNotAllowed),
        Method::Unknown => Head::Page(Status::NotImplemented),
    };
    // A client that sends what no client sends is not to be trusted with the framing of its next request either.
    let is_trusted = !matches!(head, Head::Page(Status::BadRequest));
    let persistence = if is_trusted { request.persistence } else { Persistence::Close };
    Response { head, persistence, is_head_only: request.method == Method::Head }
}

fn head_of_found<'r>(request: &Request<'r>, found: Found<'r>) -> Head<'r> {
    Head::Page(match found {
        Found::File(file) => return head_of_file(request, file),
        Found::Folder(path) => return Head::Redirect { path, query: query(request) },
        Found::Missing | Found::NotSought => Status::NotFound,
        Found::Forbidden => Status::Forbidden,
        Found::Malformed => Status::BadRequest,
        Found::Misdirected => Status::MisdirectedRequest,
        Found::Throttled => Status::TooManyRequests,
        Found::Busy => Status::ServiceUnavailable,
        Found::Failed => Status::InternalServerError,
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
    let range = request.fields.only(FieldName::Range).filter(|_| counts);
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
