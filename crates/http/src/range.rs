//! Parses the Range field (RFC 9110 §14).

use crate::grammar::list_members;

/// A range of bytes of a file; never empty, never beyond the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start_bytes: u64,
    pub(crate) length_bytes: u64,
}

/// The meaning of a Range field for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeRequest {
    /// The field has another unit, is invalid, or has several ranges: the whole file is sent.
    Ignored,
    /// One range.
    Satisfiable(ByteRange),
    /// One range of which the file has no byte.
    Unsatisfiable,
}

/// Parses the value of a Range field for a file of `length_bytes`.
///
/// RFC 9110 §14.2 permits to ignore the field, which is done if it is invalid or has several ranges: by these one
/// request could ask for a file many times.
pub(crate) fn parse_range(value: &[u8], length_bytes: u64) -> RangeRequest {
    const UNIT: &[u8] = b"bytes=";
    let Some((unit, set)) = value.split_at_checked(UNIT.len()) else { return RangeRequest::Ignored };
    // §14.1: range units are case-insensitive.
    if !unit.eq_ignore_ascii_case(UNIT) || length_bytes == 0 {
        return RangeRequest::Ignored;
    }
    let mut specs = list_members(set);
    match (specs.next().map(|spec| parse_spec(spec, length_bytes)), specs.next()) {
        (Some(Some(range)), None) => range,
        _ => RangeRequest::Ignored,
    }
}

/// Parses `first-last`, `first-` or `-suffix`; `None` if it is invalid.
fn parse_spec(spec: &[u8], length_bytes: u64) -> Option<RangeRequest> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    let (start_bytes, end_bytes) = if first.is_empty() {
        // §14.1.2: a suffix longer than the file is the whole file; a suffix of 0 bytes is unsatisfiable.
        (length_bytes.saturating_sub(parse_position(last)?), length_bytes)
    } else {
        let first = parse_position(first)?;
        let last = if last.is_empty() { u64::MAX } else { parse_position(last)? };
        if last < first {
            return None;
        }
        (first, last.saturating_add(1).min(length_bytes))
    };
    if start_bytes >= end_bytes {
        return Some(RangeRequest::Unsatisfiable);
    }
    Some(RangeRequest::Satisfiable(ByteRange { start_bytes, length_bytes: end_bytes - start_bytes }))
}

/// Parses decimal digits; more than 64 bits saturate, which is beyond the end of any file too.
fn parse_position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(value.saturating_mul(10).saturating_add(digit))
    })
}
