//! Parses the Range field (RFC 9110 §14).

use crate::grammar::list_members;

/// Parts of one response: beyond these the whole file is sent. RFC 9110 §14.2 permits that, and §17.15 recommends a
/// limit.
pub(crate) const PARTS_MAX: usize = 16;
/// Ranges with a gap of up to this length become one: the head of a part is longer (RFC 9110 §15.3.7.2).
const GAP_BYTES_MAX: u64 = 80;

/// A range of bytes of a file; never empty, never beyond the end of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) start_bytes: u64,
    pub(crate) length_bytes: u64,
}

/// The meaning of a Range field for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeRequest<'b> {
    /// The field has another unit, is invalid, or has too many ranges: the whole file is sent.
    Ignored,
    /// One range, or several that are near each other.
    Satisfiable(ByteRange),
    /// Several ranges: the list of [`Ranges::parse`].
    Multiple(&'b [u8]),
    /// Ranges of which the file has no byte.
    Unsatisfiable,
}

/// Parses the value of a Range field for a file of `length_bytes`.
///
/// RFC 9110 §14.2 permits to ignore the field, which is done if it is invalid.
pub(crate) fn parse_range(value: &[u8], length_bytes: u64) -> RangeRequest<'_> {
    const UNIT: &[u8] = b"bytes=";
    let Some((unit, list)) = value.split_at_checked(UNIT.len()) else { return RangeRequest::Ignored };
    // §14.1: range units are case-insensitive.
    if !unit.eq_ignore_ascii_case(UNIT) || length_bytes == 0 {
        return RangeRequest::Ignored;
    }
    let mut specs = list_members(list);
    match (specs.next().map(|spec| parse_spec(spec, length_bytes)), specs.next()) {
        (None | Some(None), _) => RangeRequest::Ignored,
        (Some(Some(Spec::Satisfiable(range))), None) => RangeRequest::Satisfiable(range),
        (Some(Some(Spec::Unsatisfiable)), None) => RangeRequest::Unsatisfiable,
        (Some(Some(_)), Some(_)) => parse_list(list, length_bytes),
    }
}

#[cold]
fn parse_list(list: &[u8], length_bytes: u64) -> RangeRequest<'_> {
    match Ranges::parse(list, length_bytes).as_ref().map(Ranges::as_slice) {
        None => RangeRequest::Ignored,
        Some([]) => RangeRequest::Unsatisfiable,
        Some([range]) => RangeRequest::Satisfiable(*range),
        Some(_) => RangeRequest::Multiple(list),
    }
}

/// The ranges of one response, in the order in which the client has requested them (RFC 9110 §15.3.7.2). Neither
/// overlapping nor near each other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ranges {
    ranges: [ByteRange; PARTS_MAX],
    count: usize,
}

impl Ranges {
    /// Parses a list of ranges, and leaves out those of which the file has no byte. `None` if one is invalid, or if
    /// more than [`PARTS_MAX`] are left at any time: the work is bounded, however long the list is.
    pub(crate) fn parse(list: &[u8], length_bytes: u64) -> Option<Ranges> {
        let mut ranges = Ranges::default();
        for spec in list_members(list) {
            match parse_spec(spec, length_bytes)? {
                Spec::Satisfiable(range) => ranges.insert(range)?,
                Spec::Unsatisfiable => {}
            }
        }
        Some(ranges)
    }

    pub(crate) fn as_slice(&self) -> &[ByteRange] {
        &self.ranges[..self.count]
    }

    /// Joins `new` with all ranges near it, at the place of the first of them, or appends it.
    fn insert(&mut self, mut new: ByteRange) -> Option<()> {
        let mut place = None;
        while let Some(index) = self.as_slice().iter().position(|range| range.is_near(new)) {
            new = new.joined_with(self.ranges[index]);
            place = Some(place.map_or(index, |place: usize| place.min(index)));
            self.ranges.copy_within(index + 1..self.count, index);
            self.count -= 1;
        }
        if self.count == PARTS_MAX {
            return None;
        }
        let place = place.unwrap_or(self.count);
        self.ranges.copy_within(place..self.count, place + 1);
        self.ranges[place] = new;
        self.count += 1;
        Some(())
    }
}

impl ByteRange {
    pub(crate) fn end_bytes(self) -> u64 {
        self.start_bytes + self.length_bytes
    }

    fn is_near(self, other: ByteRange) -> bool {
        let last_start = self.start_bytes.max(other.start_bytes);
        last_start.saturating_sub(self.end_bytes().min(other.end_bytes())) <= GAP_BYTES_MAX
    }

    fn joined_with(self, other: ByteRange) -> ByteRange {
        let start_bytes = self.start_bytes.min(other.start_bytes);
        ByteRange { start_bytes, length_bytes: self.end_bytes().max(other.end_bytes()) - start_bytes }
    }
}

/// One member of the list.
enum Spec {
    Satisfiable(ByteRange),
    /// The file has no byte of it.
    Unsatisfiable,
}

/// Parses `first-last`, `first-` or `-suffix`; `None` if it is invalid.
fn parse_spec(spec: &[u8], length_bytes: u64) -> Option<Spec> {
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
        return Some(Spec::Unsatisfiable);
    }
    Some(Spec::Satisfiable(ByteRange { start_bytes, length_bytes: end_bytes - start_bytes }))
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
