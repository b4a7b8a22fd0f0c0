//! The field lines of a head, checked, with those that an answer depends on picked out on the way.

use crate::grammar::trim;
use crate::request_error::RequestError;
use crate::scan::{find_control, token_bytes};

/// A field that an answer depends on; the others are checked and passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldName {
    /// RFC 9110 §12.5.3.
    AcceptEncoding,
    /// RFC 9110 §7.6.1.
    Connection,
    /// RFC 9110 §8.6.
    ContentLength,
    /// RFC 9110 §10.1.1.
    Expect,
    /// RFC 9110 §7.2.
    Host,
    /// RFC 9110 §13.1.1.
    IfMatch,
    /// RFC 9110 §13.1.3.
    IfModifiedSince,
    /// RFC 9110 §13.1.2.
    IfNoneMatch,
    /// RFC 9110 §13.1.5.
    IfRange,
    /// RFC 9110 §13.1.4.
    IfUnmodifiedSince,
    /// RFC 9110 §14.2.
    Range,
    /// RFC 9112 §6.1.
    TransferEncoding,
}

impl FieldName {
    /// How many there are.
    const COUNT: usize = 12;

    /// The field of this name, in whatever case (RFC 9110 §5.1), if it is one of ours.
    #[inline]
    fn of(name: &[u8]) -> Option<FieldName> {
        // The length leaves one or two names, and their first letters tell whether it is worth comparing at all.
        match (name.len(), name.first()? | 0x20) {
            (4, b'h') => FieldName::Host.if_named(name, b"host"),
            (5, b'r') => FieldName::Range.if_named(name, b"range"),
            (6, b'e') => FieldName::Expect.if_named(name, b"expect"),
            (8, b'i') if name[3] | 0x20 == b'm' => FieldName::IfMatch.if_named(name, b"if-match"),
            (8, b'i') => FieldName::IfRange.if_named(name, b"if-range"),
            (10, b'c') => FieldName::Connection.if_named(name, b"connection"),
            (13, b'i') => FieldName::IfNoneMatch.if_named(name, b"if-none-match"),
            (14, b'c') => FieldName::ContentLength.if_named(name, b"content-length"),
            (15, b'a') => FieldName::AcceptEncoding.if_named(name, b"accept-encoding"),
            (17, b'i') => FieldName::IfModifiedSince.if_named(name, b"if-modified-since"),
            (17, b't') => FieldName::TransferEncoding.if_named(name, b"transfer-encoding"),
            (19, b'i') => FieldName::IfUnmodifiedSince.if_named(name, b"if-unmodified-since"),
            _ => None,
        }
    }

    /// This one if `name` is `known`. A length known to the compiler and no branch on each byte: a few words are compared.
    #[inline]
    fn if_named<const N: usize>(self, name: &[u8], known: &[u8; N]) -> Option<FieldName> {
        let name: &[u8; N] = name.try_into().ok()?;
        // In a token this folds letters and leaves the hyphen alone.
        let difference = name.iter().zip(known).fold(0, |difference, (byte, known)| difference | (byte | 0x20) ^ known);
        (difference == 0).then_some(self)
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// The checked fields of a request.
#[derive(Clone, Debug)]
pub struct Fields<'b> {
    /// All field lines, each with its CRLF, without the empty line at their end.
    lines: &'b [u8],
    /// Where the value of the first line of each known field stands in `lines`, with the white space around it; empty
    /// where there is none.
    first: [Span; FieldName::COUNT],
    /// The known fields that are there, by [`FieldName::bit`].
    present: u16,
    /// The known fields that have more than one line.
    repeated: u16,
}

/// A value by its place: half as large as a slice, in a structure that is made for each request and moved.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

impl<'b> Fields<'b> {
    /// Bytes of all field lines together, so that a [`Span`] can tell each place in them.
    pub(crate) const BYTES_MAX: usize = u32::MAX as usize;

    /// No fields.
    pub(crate) const NONE: Fields<'static> =
        Fields { lines: &[], first: [Span { start: 0, end: 0 }; FieldName::COUNT], present: 0, repeated: 0 };

    /// Takes in the fields at the start of `bytes`, which are [`Fields::BYTES_MAX`] at most; how many bytes they and the
    /// empty line behind them take, or `None` when that line has not come yet.
    pub(crate) fn read(&mut self, bytes: &'b [u8], count_max: usize) -> Result<Option<usize>, RequestError> {
        let mut start = 0;
        for _ in 0..=count_max {
            let rest = &bytes[start..];
            if rest.starts_with(b"\r\n") {
                self.lines = &bytes[..start];
                return Ok(Some(start + 2));
            }
            let Some(line) = Line::parse(rest)? else { return Ok(None) };
            let end = start + line.text.len();
            if let Some(name) = FieldName::of(line.name()) {
                self.note(name, Span { start: (start + line.value_start()) as u32, end: end as u32 });
            }
            start = end + b"\r\n".len();
        }
        Err(RequestError::TooManyFields)
    }

    fn note(&mut self, name: FieldName, value: Span) {
        if self.present & name.bit() == 0 {
            self.present |= name.bit();
            self.first[name as usize] = value;
        } else {
            self.repeated |= name.bit();
        }
    }

    /// Whether there is such a field.
    pub fn contains(&self, name: FieldName) -> bool {
        self.present & name.bit() != 0
    }

    /// Whether there is one of these fields.
    pub(crate) fn contains_any(&self, names: &[FieldName]) -> bool {
        let bits = names.iter().fold(0, |bits, name| bits | name.bit());
        self.present & bits != 0
    }

    /// Whether such a field has more than one line.
    pub fn is_repeated(&self, name: FieldName) -> bool {
        self.repeated & name.bit() != 0
    }

    /// The value of a field that has exactly one line.
    #[inline]
    pub fn single(&self, name: FieldName) -> Option<&'b [u8]> {
        let bits = (self.present & name.bit(), self.repeated & name.bit());
        let Span { start, end } = self.first[name as usize];
        (bits == (name.bit(), 0)).then(|| trim(&self.lines[start as usize..end as usize]))
    }

    /// The values of all lines of a field, in their order: together they are one list (RFC 9110 §5.3).
    pub fn values(&self, name: FieldName) -> Values<'b> {
        if self.is_repeated(name) {
            Values { name, first: None, lines: self.lines }
        } else {
            Values { name, first: self.single(name), lines: &[] }
        }
    }
}

/// The values of all lines of one field.
#[derive(Clone, Debug)]
pub struct Values<'b> {
    name: FieldName,
    /// The value, when there is one line only.
    first: Option<&'b [u8]>,
    /// The lines still to be searched, when there are several.
    lines: &'b [u8],
}

impl<'b> Iterator for Values<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        if let Some(value) = self.first.take() {
            return Some(value);
        }
        let mut lines = Lines(self.lines);
        let found = lines.find(|line| FieldName::of(line.name()) == Some(self.name));
        self.lines = lines.0;
        found.map(|line| line.value())
    }
}

/// Lines that are known to be well-formed.
struct Lines<'b>(&'b [u8]);

impl<'b> Iterator for Lines<'b> {
    type Item = Line<'b>;

    fn next(&mut self) -> Option<Line<'b>> {
        let line = Line::parse(self.0).ok()??;
        self.0 = &self.0[line.text.len() + b"\r\n".len()..];
        Some(line)
    }
}

/// `name ":" OWS value OWS CRLF` (RFC 9112 §5).
struct Line<'b> {
    /// All of it but the CRLF.
    text: &'b [u8],
    name_bytes: usize,
}

impl<'b> Line<'b> {
    /// The line at the start of `bytes`; `None` when it is not all there.
    #[inline]
    fn parse(bytes: &'b [u8]) -> Result<Option<Line<'b>>, RequestError> {
        let Some(name_bytes) = token_bytes(bytes) else { return Ok(None) };
        // Whatever else ends the name is refused: a space before the colon (§5.1), the space at the start of a folded
        // line (§5.2), the end of a line without a colon.
        if name_bytes == 0 || bytes[name_bytes] != b':' {
            return if bytes == b"\r" { Ok(None) } else { Err(RequestError::InvalidField) };
        }
        let value_start = name_bytes + 1;
        let Some(value_bytes) = value_bytes(&bytes[value_start..])? else { return Ok(None) };
        Ok(Some(Line { text: &bytes[..value_start + value_bytes], name_bytes }))
    }

    #[inline]
    fn name(&self) -> &'b [u8] {
        &self.text[..self.name_bytes]
    }

    /// Where in the line the value starts, the white space before it included.
    #[inline]
    fn value_start(&self) -> usize {
        self.name_bytes + 1
    }

    fn value(&self) -> &'b [u8] {
        trim(&self.text[self.value_start()..])
    }
}

/// How many bytes stand before the CRLF; `None` when it is not there yet.
///
/// RFC 9112 §2.2 lets a recipient take a lone LF as a line end, and RFC 9110 §5.5 have it replace a control byte by a
/// space; those who did were smuggled past. Both are refused.
#[inline]
fn value_bytes(bytes: &[u8]) -> Result<Option<usize>, RequestError> {
    let mut start = 0;
    while let Some(length) = find_control(&bytes[start..]) {
        let end = start + length;
        match &bytes[end..] {
            [b'\t', ..] => start = end + 1,
            [b'\r', b'\n', ..] => return Ok(Some(end)),
            [b'\r'] => return Ok(None),
            _ => return Err(RequestError::InvalidLine),
        }
    }
    Ok(None)
}
