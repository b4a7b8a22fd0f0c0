//! Validates the field lines of a head and indexes the fields that a response depends on.

use crate::grammar::trim;
use crate::request_error::RequestError;
use crate::scan::{find_control, token_bytes};

/// A field that a response depends on; all others are only validated.
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
    const COUNT: usize = 12;

    /// The field with this name, in any letter case (RFC 9110 §5.1).
    #[inline]
    fn from_bytes(name: &[u8]) -> Option<FieldName> {
        // The length leaves one or two names; the first letter rules out most others without a comparison.
        match (name.len(), name.first()? | 0x20) {
            (4, b'h') => FieldName::Host.when_name_is(name, b"host"),
            (5, b'r') => FieldName::Range.when_name_is(name, b"range"),
            (6, b'e') => FieldName::Expect.when_name_is(name, b"expect"),
            (8, b'i') if name[3] | 0x20 == b'm' => FieldName::IfMatch.when_name_is(name, b"if-match"),
            (8, b'i') => FieldName::IfRange.when_name_is(name, b"if-range"),
            (10, b'c') => FieldName::Connection.when_name_is(name, b"connection"),
            (13, b'i') => FieldName::IfNoneMatch.when_name_is(name, b"if-none-match"),
            (14, b'c') => FieldName::ContentLength.when_name_is(name, b"content-length"),
            (15, b'a') => FieldName::AcceptEncoding.when_name_is(name, b"accept-encoding"),
            (17, b'i') => FieldName::IfModifiedSince.when_name_is(name, b"if-modified-since"),
            (17, b't') => FieldName::TransferEncoding.when_name_is(name, b"transfer-encoding"),
            (19, b'i') => FieldName::IfUnmodifiedSince.when_name_is(name, b"if-unmodified-since"),
            _ => None,
        }
    }

    /// This field if `name` is `expected`, in any letter case. The length is a constant and no byte branches, so a few
    /// words are compared.
    #[inline]
    fn when_name_is<const N: usize>(self, name: &[u8], expected: &[u8; N]) -> Option<FieldName> {
        let name: &[u8; N] = name.try_into().ok()?;
        // In a token this folds the case of letters and keeps the hyphen.
        let difference =
            name.iter().zip(expected).fold(0, |difference, (byte, expected)| difference | (byte | 0x20) ^ expected);
        (difference == 0).then_some(self)
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// The validated fields of a request.
#[derive(Clone, Debug)]
pub struct Fields<'b> {
    /// The request line and all field lines, each with its CRLF, without the empty line after them.
    head: &'b [u8],
    /// The value of the first line of each field in [`FieldName`], with the white space around it; empty if there is
    /// none.
    first: [Span; FieldName::COUNT],
    /// The fields that are present, by [`FieldName::bit`].
    present: u16,
    /// The fields that have more than one line.
    repeated: u16,
}

/// A range of `Fields::head`: half the size of a slice, since each request moves all of them.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

impl<'b> Fields<'b> {
    /// Bytes of a head, limited by [`Span`].
    pub(crate) const BYTES_MAX: usize = u32::MAX as usize;

    /// No fields.
    pub(crate) const EMPTY: Fields<'static> =
        Fields { head: &[], first: [Span { start: 0, end: 0 }; FieldName::COUNT], present: 0, repeated: 0 };

    /// Parses the fields of the head at the start of `bytes`, at most [`Fields::BYTES_MAX`] long, in which they begin
    /// at `start`. Returns the length of the head with the empty line at its end; `None` if it is incomplete.
    ///
    /// Always inlined: requests and responses call it, and the call would cost each request some instructions.
    #[inline(always)]
    pub(crate) fn parse(
        &mut self,
        bytes: &'b [u8],
        mut start: usize,
        count_max: usize,
    ) -> Result<Option<usize>, RequestError> {
        for _ in 0..=count_max {
            let rest = &bytes[start..];
            if rest.starts_with(b"\r\n") {
                self.head = &bytes[..start];
                return Ok(Some(start + 2));
            }
            let Some(line) = FieldLine::parse(rest)? else { return Ok(None) };
            let end = start + line.text.len();
            if let Some(name) = FieldName::from_bytes(line.name()) {
                self.record(name, Span { start: (start + line.value_start()) as u32, end: end as u32 });
            }
            start = end + b"\r\n".len();
        }
        Err(RequestError::TooManyFields)
    }

    fn record(&mut self, name: FieldName, value: Span) {
        if self.present & name.bit() == 0 {
            self.present |= name.bit();
            self.first[name as usize] = value;
        } else {
            self.repeated |= name.bit();
        }
    }

    /// The request line without its CRLF, and all field lines, each with its CRLF.
    pub fn lines(&self) -> (&'b [u8], &'b [u8]) {
        let (line, fields) = self.head.split_at(memchr::memchr(b'\n', self.head).map_or(0, |end| end + 1));
        (line.trim_ascii_end(), fields)
    }

    /// All field lines, in order.
    pub(crate) fn field_lines(&self) -> FieldLines<'b> {
        FieldLines(self.lines().1)
    }

    /// Whether the field is present.
    pub fn contains(&self, name: FieldName) -> bool {
        self.present & name.bit() != 0
    }

    /// Whether one of these fields is present.
    pub(crate) fn contains_any(&self, names: &[FieldName]) -> bool {
        let bits = names.iter().fold(0, |bits, name| bits | name.bit());
        self.present & bits != 0
    }

    /// Whether the field has more than one line.
    pub fn is_repeated(&self, name: FieldName) -> bool {
        self.repeated & name.bit() != 0
    }

    /// The value of a field that has exactly one line, else `None`.
    #[inline]
    pub fn single(&self, name: FieldName) -> Option<&'b [u8]> {
        let bits = (self.present & name.bit(), self.repeated & name.bit());
        let Span { start, end } = self.first[name as usize];
        (bits == (name.bit(), 0)).then(|| trim(&self.head[start as usize..end as usize]))
    }

    /// The value of a field that is not indexed and has exactly one line, else `None`. `name` is in lower case.
    #[cold]
    pub(crate) fn find_single(&self, name: &[u8]) -> Option<&'b [u8]> {
        let mut lines = FieldLines(self.lines().1).filter(|line| line.name().eq_ignore_ascii_case(name));
        let value = lines.next()?.value();
        lines.next().is_none().then_some(value)
    }

    /// The value of the first line of a field that is not indexed. `name` is in lower case.
    #[cold]
    pub(crate) fn find_first(&self, name: &[u8]) -> Option<&'b [u8]> {
        self.find_all(name).next()
    }

    /// The values of all lines of a field that is not indexed. `name` is in lower case.
    #[cold]
    pub fn find_all<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b, 'n> {
        FieldLines(self.lines().1).filter(|line| line.name().eq_ignore_ascii_case(name)).map(|line| line.value())
    }

    /// The values of all lines of a field, in order: together they are one list (RFC 9110 §5.3).
    pub fn values(&self, name: FieldName) -> FieldValues<'b> {
        if self.is_repeated(name) {
            FieldValues { name, first: None, lines: self.lines().1 }
        } else {
            FieldValues { name, first: self.single(name), lines: &[] }
        }
    }
}

/// The values of all lines of one field.
#[derive(Clone, Debug)]
pub struct FieldValues<'b> {
    name: FieldName,
    /// The value, if the field has one line.
    first: Option<&'b [u8]>,
    /// The remaining lines to search, if the field has several.
    lines: &'b [u8],
}

impl<'b> Iterator for FieldValues<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        if let Some(value) = self.first.take() {
            return Some(value);
        }
        let mut lines = FieldLines(self.lines);
        let found = lines.find(|line| FieldName::from_bytes(line.name()) == Some(self.name));
        self.lines = lines.0;
        found.map(|line| line.value())
    }
}

/// Iterates over lines that are already validated.
pub(crate) struct FieldLines<'b>(&'b [u8]);

impl<'b> Iterator for FieldLines<'b> {
    type Item = FieldLine<'b>;

    fn next(&mut self) -> Option<FieldLine<'b>> {
        let line = FieldLine::parse(self.0).ok()??;
        self.0 = &self.0[line.text.len() + b"\r\n".len()..];
        Some(line)
    }
}

/// `name ":" OWS value OWS CRLF` (RFC 9112 §5).
pub(crate) struct FieldLine<'b> {
    /// The line without its CRLF.
    text: &'b [u8],
    name_bytes: usize,
}

impl<'b> FieldLine<'b> {
    /// Parses the line at the start of `bytes`; `None` if it is incomplete.
    #[inline]
    fn parse(bytes: &'b [u8]) -> Result<Option<FieldLine<'b>>, RequestError> {
        let Some(name_bytes) = token_bytes(bytes) else { return Ok(None) };
        // This also refuses a space before the colon (§5.1), a folded line (§5.2) and a line without a colon.
        if name_bytes == 0 || bytes[name_bytes] != b':' {
            return if bytes == b"\r" { Ok(None) } else { Err(RequestError::InvalidField) };
        }
        let value_start = name_bytes + 1;
        let Some(value_bytes) = value_bytes(&bytes[value_start..])? else { return Ok(None) };
        Ok(Some(FieldLine { text: &bytes[..value_start + value_bytes], name_bytes }))
    }

    #[inline]
    pub(crate) fn name(&self) -> &'b [u8] {
        &self.text[..self.name_bytes]
    }

    /// Where the value starts, with the white space before it.
    #[inline]
    fn value_start(&self) -> usize {
        self.name_bytes + 1
    }

    pub(crate) fn value(&self) -> &'b [u8] {
        trim(&self.text[self.value_start()..])
    }
}

/// Length of the value before the CRLF; `None` if that is still missing.
///
/// RFC 9112 §2.2 permits a lone LF as line end, and RFC 9110 §5.5 to replace a control byte by a space. Both have
/// allowed request smuggling, so both are refused.
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
