//! Evaluates the preconditions of a request for a file (RFC 9110 §13.2.2).

use crate::content_coding::{ContentCoding, accepted_codings};
use crate::date::HttpDate;
use crate::entity_tag::{EntityTag, EntityTags};
use crate::fields::{FieldName, Fields};
use crate::representation::Representation;

/// The result of the preconditions of a GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evaluation {
    /// Respond as without preconditions.
    Proceed,
    /// Respond with 304: the client's copy is valid.
    NotModified,
    /// The same; the copy is the representation in this coding, which is made of the file.
    NotModifiedAs(ContentCoding),
    /// Respond with 412.
    Failed,
}

const PRECONDITIONS: &[FieldName] =
    &[FieldName::IfMatch, FieldName::IfNoneMatch, FieldName::IfModifiedSince, FieldName::IfUnmodifiedSince];

/// Evaluates all preconditions except If-Range.
pub(crate) fn evaluate(fields: &Fields<'_>, file: &Representation) -> Evaluation {
    if !fields.contains_any(PRECONDITIONS) {
        return Evaluation::Proceed;
    }
    // Steps 1 and 2: If-Match takes precedence over If-Unmodified-Since.
    let may_proceed = if fields.contains(FieldName::IfMatch) {
        has_match(fields, FieldName::IfMatch, file.etag(), |tag, etag| tag.is_strong_match(etag))
    } else {
        dates(fields, FieldName::IfUnmodifiedSince, file).is_none_or(|(modified, date)| modified <= date)
    };
    if !may_proceed {
        return Evaluation::Failed;
    }
    // Steps 3 and 4: If-None-Match takes precedence over If-Modified-Since.
    if fields.contains(FieldName::IfNoneMatch) {
        return evaluate_none_match(fields, file);
    }
    let is_not_modified =
        dates(fields, FieldName::IfModifiedSince, file).is_some_and(|(modified, date)| modified <= date);
    if is_not_modified { Evaluation::NotModified } else { Evaluation::Proceed }
}

/// Whether the client of a request with If-None-Match has a valid copy: of the file itself, or of a representation in a
/// coding that is made of it. Whether that is made at this moment does not matter: its tag follows from the file.
fn evaluate_none_match(fields: &Fields<'_>, file: &Representation) -> Evaluation {
    let is_named = |etag: &[u8]| has_match(fields, FieldName::IfNoneMatch, etag, |tag, etag| tag.is_weak_match(etag));
    if is_named(file.etag()) {
        return Evaluation::NotModified;
    }
    if !file.makes_codings() {
        return Evaluation::Proceed;
    }
    let named =
        accepted_codings(fields).find(|&coding| file.compressed_etag(coding).is_some_and(|etag| is_named(&etag)));
    named.map_or(Evaluation::Proceed, Evaluation::NotModifiedAs)
}

/// Whether the preconditions of a request for `file` alone lead to a 304, so that no content is needed.
pub fn is_not_modified(fields: &Fields<'_>, file: &Representation) -> bool {
    fields.contains(FieldName::IfNoneMatch)
        && matches!(evaluate(fields, file), Evaluation::NotModified | Evaluation::NotModifiedAs(_))
}

/// Whether If-Range allows a partial response (RFC 9110 §13.1.5, and step 5 of §13.2.2).
///
/// `now_unix_s` is the current time in seconds since 1970.
pub(crate) fn allows_range(fields: &Fields<'_>, file: &Representation, now_unix_s: u64) -> bool {
    if !fields.contains(FieldName::IfRange) {
        return true;
    }
    let Some(value) = fields.single(FieldName::IfRange) else { return false };
    match EntityTag::parse(value) {
        Some(tag) => tag.is_strong_match(file.etag()),
        None => {
            let date_unix_s = HttpDate::parse_unix_s(value);
            date_unix_s.is_some() && date_unix_s == file.modified_unix_s() && is_strong_date(file, now_unix_s)
        }
    }
}

/// Whether Last-Modified is a strong validator (RFC 9110 §8.8.2.2): its second is over, so the file has not changed
/// again in it, and no tool has set the time. A client that has its date from a response in that second must not send
/// it.
fn is_strong_date(file: &Representation, now_unix_s: u64) -> bool {
    file.is_time_of_version() && file.modified_unix_s().is_some_and(|modified_unix_s| modified_unix_s < now_unix_s)
}

/// Whether the field is `*`, which matches any file that exists, or a list with a tag that matches `etag`.
fn has_match(fields: &Fields<'_>, name: FieldName, etag: &[u8], is_match: fn(EntityTag<'_>, &[u8]) -> bool) -> bool {
    // Fast path: nearly all lists are the one tag of an earlier response, which is strong and matches in both ways.
    fields.single(name) == Some(etag)
        || fields.values(name).any(|value| value == b"*" || EntityTags(value).any(|tag| is_match(tag, etag)))
}

/// The modification time of the file and the date of a field. `None` if one is missing or invalid, or if the field is
/// repeated: §13.1.3 and §13.1.4 require that the condition is then ignored.
fn dates(fields: &Fields<'_>, name: FieldName, file: &Representation) -> Option<(u64, u64)> {
    let date_unix_s = HttpDate::parse_unix_s(fields.single(name)?)?;
    Some((file.modified_unix_s()?, date_unix_s))
}
