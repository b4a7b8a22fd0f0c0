//! The conditions of a request, judged in their order against a file (RFC 9110 §13.2.2).

use crate::date::HttpDate;
use crate::entity_tag::{EntityTag, EntityTags};
use crate::fields::{FieldName, Fields};
use crate::representation::Representation;

/// What the conditions of a GET or HEAD say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answer as if there were none.
    Proceed,
    /// The client has it already.
    NotModified,
    /// Do not.
    Failed,
}

const CONDITIONS: &[FieldName] =
    &[FieldName::IfMatch, FieldName::IfNoneMatch, FieldName::IfModifiedSince, FieldName::IfUnmodifiedSince];

/// Judges the conditions of `fields`, If-Range excepted.
pub(crate) fn judge(fields: &Fields<'_>, file: &Representation) -> Verdict {
    if !fields.contains_any(CONDITIONS) {
        return Verdict::Proceed;
    }
    // Steps 1 and 2: If-Unmodified-Since counts only without If-Match.
    let may_proceed = if fields.contains(FieldName::IfMatch) {
        has_match(fields, FieldName::IfMatch, file.etag(), |tag, own| tag.is_strong_match(own))
    } else {
        date(fields, FieldName::IfUnmodifiedSince, file).is_none_or(|(modified, date)| modified <= date)
    };
    if !may_proceed {
        return Verdict::Failed;
    }
    // Steps 3 and 4: If-Modified-Since counts only without If-None-Match.
    let is_known = if fields.contains(FieldName::IfNoneMatch) {
        has_match(fields, FieldName::IfNoneMatch, file.etag(), |tag, own| tag.is_weak_match(own))
    } else {
        date(fields, FieldName::IfModifiedSince, file).is_some_and(|(modified, date)| modified <= date)
    };
    if is_known { Verdict::NotModified } else { Verdict::Proceed }
}

/// Whether a part may be sent in place of the whole (RFC 9110 §13.1.5, and step 5 of §13.2.2).
///
/// A date never suffices: it would have to be a strong validator, and a file can change twice in a second. Whoever has
/// our answer has our entity tag, and §13.1.5 has such a client send that.
pub(crate) fn may_send_part(fields: &Fields<'_>, file: &Representation) -> bool {
    if !fields.contains(FieldName::IfRange) {
        return true;
    }
    let tag = fields.single(FieldName::IfRange).and_then(EntityTag::parse);
    tag.is_some_and(|tag| tag.is_strong_match(file.etag()))
}

/// Whether a list of tags, maybe in several lines, is `*` or has one that matches `own`. The file exists, so `*` always
/// holds.
fn has_match(fields: &Fields<'_>, name: FieldName, own: &[u8], is_match: fn(EntityTag<'_>, &[u8]) -> bool) -> bool {
    // Nearly all lists are the one tag that came with our answer: a strong one, which matches itself in both ways.
    fields.single(name) == Some(own)
        || fields.values(name).any(|value| value == b"*" || EntityTags(value).any(|tag| is_match(tag, own)))
}

/// When the file was modified, and the date of a field, in seconds; `None` when one of them is missing or no date.
/// §13.1.3 and §13.1.4 have such a condition ignored, and one with more than one line too.
fn date(fields: &Fields<'_>, name: FieldName, file: &Representation) -> Option<(u64, u64)> {
    let date_unix_s = HttpDate::parse_unix_s(fields.single(name)?)?;
    Some((file.modified_unix_s()?, date_unix_s))
}
