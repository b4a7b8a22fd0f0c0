//! The one part of a file that a Range field asks for (RFC 9110 §14).

use crate::grammar::members;

/// Bytes of a file from the first to before the last, never empty, never beyond the file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) start_bytes: u64,
    pub(crate) length_bytes: u64,
}

/// What a Range field asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The whole file: the field has another unit, is malformed, or asks for several parts.
    Whole,
    /// One part.
    Part(Part),
    /// A part of which the file has no byte.
    Unsatisfiable,
}

/// What the value of a Range field asks for of a file of `length_bytes`.
///
/// RFC 9110 §14.2 leaves a server free to ignore the field, and so all of it that is malformed is. Several parts are
/// ignored too: nobody who reads a static file needs them, and they are how one request asks for a file many times.
pub(crate) fn parse_range(value: &[u8], length_bytes: u64) -> Wanted {
    const UNIT: &[u8] = b"bytes=";
    let Some((unit, set)) = value.split_at_checked(UNIT.len()) else { return Wanted::Whole };
    // §14.1: the names of units are compared without case.
    if !unit.eq_ignore_ascii_case(UNIT) || length_bytes == 0 {
        return Wanted::Whole;
    }
    let mut members = members(set);
    match (members.next().map(|spec| parse_spec(spec, length_bytes)), members.next()) {
        (Some(Some(wanted)), None) => wanted,
        _ => Wanted::Whole,
    }
}

/// `first-last`, `first-` or `-suffix`; `None` when it is malformed.
fn parse_spec(spec: &[u8], length_bytes: u64) -> Option<Wanted> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    let (start_bytes, end_bytes) = if first.is_empty() {
        // §14.1.2: a suffix longer than the file is the whole file; one of no bytes cannot be satisfied.
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
        return Some(Wanted::Unsatisfiable);
    }
    Some(Wanted::Part(Part { start_bytes, length_bytes: end_bytes - start_bytes }))
}

/// A number of any length; those beyond 2^64 are beyond the end of any file, like the greatest.
fn parse_position(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(value.saturating_mul(10).saturating_add(digit))
    })
}
