//! Turns a header block into a request head in the form of HTTP/1.1, so that one parser decides what a valid request
//! is.
//!
//! This file checks what HTTP/1.1 text cannot express: pseudo-header fields, and bytes that would end a line.

use alloc::vec::Vec;
use core::ops::Range;

use memchr::memchr3;
use sanderling_http::{RequestError, Scheme};

use crate::hpack::{CompressionError, Decoder, Field};
use crate::limits::Limits;
use crate::priority::Priority;

/// The caller's buffers, which connections use one after another.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The head of the last request, for [`parse_request`](sanderling_http::parse_request).
    pub head: Vec<u8>,
    /// Decoded text of one field.
    pub(crate) strings: Vec<u8>,
    /// The values of the pseudo-header fields.
    pseudo: Vec<u8>,
}

/// The outcome for a header block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HeadState {
    /// The head is in [`Scratch::head`].
    #[default]
    Complete,
    /// The request breaks RFC 9113 §8.1.1, so that its stream is reset.
    Malformed,
    /// The request is refused by a response, and its head is incomplete.
    Refused(RequestError),
}

/// The facts in a header block other than the head.
#[derive(Debug, Default)]
pub(crate) struct DecodedHead {
    pub(crate) state: HeadState,
    /// The value of Content-Length.
    pub(crate) content_bytes: Option<u64>,
    /// The field Expect is present.
    pub(crate) has_expectation: bool,
    /// The method is CONNECT, with `:protocol` (RFC 8441 §4).
    pub(crate) is_connect: bool,
    pub(crate) priority: Priority,
}

/// The pseudo-header fields of a request (RFC 9113 §8.3.1).
#[derive(Clone, Copy)]
enum Pseudo {
    Method,
    Scheme,
    Authority,
    Path,
    /// RFC 8441 §4.
    Protocol,
}

impl Pseudo {
    /// The last one, `:protocol`, counts as a field of the request.
    const COUNT: usize = 5;

    fn from_bytes(name: &[u8]) -> Option<Pseudo> {
        match name {
            b":method" => Some(Pseudo::Method),
            b":scheme" => Some(Pseudo::Scheme),
            b":authority" => Some(Pseudo::Authority),
            b":path" => Some(Pseudo::Path),
            b":protocol" => Some(Pseudo::Protocol),
            _ => None,
        }
    }
}

/// The reason why a header block ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockError {
    Compression,
    /// The block decodes to more than [`Limits::decoded_bytes_max`].
    TooLong,
}

impl From<CompressionError> for BlockError {
    fn from(_: CompressionError) -> BlockError {
        BlockError::Compression
    }
}

/// Decodes the header block of a request on a connection of `scheme`. `Err` ends the connection; anything else wrong
/// ends the request only.
pub(crate) fn decode_request(
    decoder: &mut Decoder,
    bytes: &[u8],
    scratch: &mut Scratch,
    limits: &Limits,
    scheme: Scheme,
) -> Result<DecodedHead, BlockError> {
    let Scratch { head, strings, pseudo } = scratch;
    head.clear();
    pseudo.clear();
    let cookies = if limits.keeps_cookies { Cookies::After(None) } else { Cookies::Dropped };
    let found = [const { None }; Pseudo::COUNT];
    let accepts_protocol = limits.accepts_websockets;
    let mut writer = HeadWriter { head, pseudo, found, scheme, has_line: false, cookies, accepts_protocol };
    let mut decoded = DecodedHead::default();
    let (mut field_count, mut list_bytes) = (0, 0);
    let mut block = decoder.block(bytes);
    while let Some(field) = block.next(strings)? {
        field_count += 1;
        list_bytes += field.name.len() + field.value.len();
        // The rest is decoded nevertheless, because it changes the table.
        if decoded.state != HeadState::Complete {
            check_decoded(list_bytes, limits)?;
            continue;
        }
        if list_bytes > limits.request.head_bytes_max {
            check_decoded(list_bytes, limits)?;
            decoded.state = HeadState::Refused(RequestError::HeadTooLong);
        } else if field_count > limits.request.field_count_max + Pseudo::COUNT - 1 {
            decoded.state = HeadState::Refused(RequestError::TooManyFields);
        } else if writer.put(field, &mut decoded).is_none() {
            decoded.state = HeadState::Malformed;
        }
    }
    if decoded.state == HeadState::Complete && writer.finish().is_none() {
        decoded.state = HeadState::Malformed;
    }
    decoded.is_connect = writer.found[Pseudo::Protocol as usize].is_some();
    // The stream becomes a tunnel, which has no content (RFC 9110 §9.3.6).
    if decoded.is_connect && decoded.content_bytes.is_some() && decoded.state == HeadState::Complete {
        decoded.state = HeadState::Malformed;
    }
    Ok(decoded)
}

/// Decodes trailers, which no response depends on; whether they are well-formed and no longer than a head may be.
pub(crate) fn decode_trailers(
    decoder: &mut Decoder,
    bytes: &[u8],
    scratch: &mut Scratch,
    limits: &Limits,
) -> Result<bool, BlockError> {
    let mut block = decoder.block(bytes);
    let (mut is_valid, mut list_bytes) = (true, 0);
    while let Some(field) = block.next(&mut scratch.strings)? {
        list_bytes += field.name.len() + field.value.len();
        check_decoded(list_bytes, limits)?;
        // RFC 9113 §8.1: no pseudo-header fields.
        is_valid = is_valid
            && list_bytes <= limits.request.head_bytes_max
            && is_valid_name(field.name)
            && is_valid_value(field.value);
    }
    Ok(is_valid)
}

fn check_decoded(list_bytes: usize, limits: &Limits) -> Result<(), BlockError> {
    if list_bytes > limits.decoded_bytes_max() { Err(BlockError::TooLong) } else { Ok(()) }
}

struct HeadWriter<'s> {
    head: &'s mut Vec<u8>,
    pseudo: &'s mut Vec<u8>,
    found: [Option<Range<usize>>; Pseudo::COUNT],
    /// The connection's scheme.
    scheme: Scheme,
    /// The request line and Host are written.
    has_line: bool,
    cookies: Cookies,
    /// [`Limits::accepts_websockets`]
    accepts_protocol: bool,
}

/// The treatment of Cookie.
#[derive(Clone, Copy)]
enum Cookies {
    Dropped,
    /// Kept. The length of the head after the last line with cookies, if there is one.
    After(Option<usize>),
}

impl HeadWriter<'_> {
    /// Takes a field; `None` if the request is malformed.
    #[inline]
    fn put(&mut self, field: Field<'_>, decoded: &mut DecodedHead) -> Option<()> {
        let Field { name, value } = field;
        if name.first() == Some(&b':') {
            return self.put_pseudo(name, value);
        }
        if !is_valid_name(name) || !is_valid_value(value) {
            return None;
        }
        if !self.has_line {
            self.put_line()?;
        }
        match (name.len(), name) {
            // RFC 9113 §8.2.2: fields of one connection are malformed.
            (10, b"connection" | b"keep-alive") | (7, b"upgrade") => return None,
            (16, b"proxy-connection") | (17, b"transfer-encoding") => return None,
            (2, b"te") if value != b"trailers" => return None,
            (6, b"cookie") => {
                // No file depends on them, and browsers send many.
                if let Cookies::After(end) = self.cookies {
                    self.put_cookies(end, value);
                }
                return Some(());
            }
            (4, b"host") if self.is_authority(value) => return Some(()),
            (6, b"expect") => decoded.has_expectation = true,
            (8, b"priority") => decoded.priority = Priority::parse(value),
            (14, b"content-length") => decoded.content_bytes = Some(content_bytes(value, decoded.content_bytes)?),
            _ => {}
        }
        self.put_line_of_field(name, value);
        Some(())
    }

    fn put_line_of_field(&mut self, name: &[u8], value: &[u8]) {
        self.head.extend_from_slice(name);
        self.head.extend_from_slice(b": ");
        self.head.extend_from_slice(value);
        self.head.extend_from_slice(b"\r\n");
    }

    /// Adjacent cookies become one line, as in HTTP/1.1 (RFC 9113 §8.2.3). `end` is the length of the head after the
    /// last line with cookies.
    #[inline(never)]
    fn put_cookies(&mut self, end: Option<usize>, value: &[u8]) {
        if end == Some(self.head.len()) {
            self.head.truncate(self.head.len() - b"\r\n".len());
            self.head.extend_from_slice(b"; ");
        } else {
            self.head.extend_from_slice(b"cookie: ");
        }
        self.head.extend_from_slice(value);
        self.head.extend_from_slice(b"\r\n");
        self.cookies = Cookies::After(Some(self.head.len()));
    }

    fn put_pseudo(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        let pseudo = Pseudo::from_bytes(name)?;
        if matches!(pseudo, Pseudo::Protocol) && !self.accepts_protocol {
            return None;
        }
        let found = &mut self.found[pseudo as usize];
        // RFC 9113 §8.3: pseudo-header fields precede all other fields, and occur once. The parts of a request line
        // have no spaces.
        let is_visible = value.iter().all(|byte| byte.is_ascii_graphic() || !byte.is_ascii());
        if self.has_line || found.is_some() || !is_visible {
            return None;
        }
        let start = self.pseudo.len();
        self.pseudo.extend_from_slice(value);
        *found = Some(start..self.pseudo.len());
        Some(())
    }

    /// Writes the request line, and Host with the authority.
    fn put_line(&mut self) -> Option<()> {
        self.has_line = true;
        let HeadWriter { head, pseudo, found, scheme: of_connection, .. } = self;
        let found = |name: Pseudo| found[name as usize].clone().map(|range| &pseudo[range]);
        let method = found(Pseudo::Method)?;
        let (scheme, path) = (found(Pseudo::Scheme), found(Pseudo::Path));
        let (authority, protocol) = (found(Pseudo::Authority), found(Pseudo::Protocol));
        let is_valid = match method {
            // RFC 8441 §4.
            b"CONNECT" if protocol.is_some() => {
                scheme.is_some_and(is_valid_scheme)
                    && path.is_some_and(|path| path.starts_with(b"/"))
                    && authority.is_some()
            }
            _ if protocol.is_some() => false,
            // RFC 9113 §8.5.
            b"CONNECT" => scheme.is_none() && path.is_none() && authority.is_some(),
            b"OPTIONS" if path == Some(b"*") => scheme.is_some_and(is_valid_scheme),
            _ => scheme.is_some_and(is_valid_scheme) && path.is_some_and(|path| path.starts_with(b"/")),
        };
        if !is_valid || method.is_empty() {
            return None;
        }
        let target = path.or(authority)?;
        // A target in absolute form can name another scheme, which the caller handles.
        let origin: [&[u8]; 3] = [scheme.unwrap_or_default(), b"://", authority.unwrap_or_default()];
        let (origin, target) = match (scheme, target) {
            (None, _) => (&[][..], target),
            (Some(scheme), _) if scheme == of_connection.name().as_bytes() => (&[][..], target),
            // RFC 9112 §3.2.4.
            (_, b"*") => (&origin[..], &[][..]),
            _ => (&origin[..], target),
        };
        let host: [&[u8]; 3] = [b"host: ", authority.unwrap_or_default(), b"\r\n"];
        let host = if authority.is_some() { &host[..] } else { &[] };
        // In HTTP/1.1 it is a request to switch the protocol.
        let method = if protocol.is_some() { b"GET" } else { method };
        let upgrade: [&[u8]; 3] = [b"connection: upgrade\r\nupgrade: ", protocol.unwrap_or_default(), b"\r\n"];
        let upgrade = if protocol.is_some() { &upgrade[..] } else { &[] };
        let start: [&[u8]; 2] = [method, b" "];
        let end: [&[u8]; 2] = [target, b" HTTP/1.1\r\n"];
        start.iter().chain(origin).chain(&end).chain(host).chain(upgrade).for_each(|part| head.extend_from_slice(part));
        Some(())
    }

    /// Whether Host equals `:authority`. If they differ, both are written, and the parser refuses the request.
    fn is_authority(&self, value: &[u8]) -> bool {
        let range = self.found[Pseudo::Authority as usize].clone();
        range.is_some_and(|range| self.pseudo[range].eq_ignore_ascii_case(value))
    }

    fn finish(&mut self) -> Option<()> {
        if !self.has_line {
            self.put_line()?;
        }
        self.head.extend_from_slice(b"\r\n");
        Some(())
    }
}

/// RFC 3986 §3.1.
#[inline]
fn is_valid_scheme(scheme: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    matches!(scheme, b"http" | b"https")
        || (scheme.first().is_some_and(u8::is_ascii_alphabetic) && scheme.iter().all(is_valid))
}

/// RFC 9113 §8.2.1: names are in lower case, without bytes that would end a name in HTTP/1.1. The parser checks the
/// rest.
#[inline]
pub(crate) fn is_valid_name(name: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && *byte != b':';
    !name.is_empty() && name.iter().all(is_valid)
}

/// RFC 9113 §8.2.1. The parser refuses other control bytes.
#[inline]
pub(crate) fn is_valid_value(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    memchr3(0, b'\r', b'\n', value).is_none() && !is_space(value.first()) && !is_space(value.last())
}

/// A decimal number, which repeated fields must agree on.
pub(crate) fn content_bytes(digits: &[u8], before: Option<u64>) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let bytes = core::str::from_utf8(digits).ok()?.parse().ok()?;
    before.is_none_or(|before| before == bytes).then_some(bytes)
}
