//! Parses the head of the response of a backend (RFC 9112 §4), strictly, and writes the head for the client.
//!
//! As for requests, framing is never copied: a response whose end two recipients could determine differently is
//! refused.

use crate::fields::{FieldName, Fields};
use crate::grammar::{list_members, parse_decimal};
use crate::output::put_number;
use crate::passed_fields::{NamedFields, is_edited, is_hop_by_hop, put_edits, put_field, starts_with};
use crate::request::{Persistence, Version, persistence_of};
use crate::response_error::ResponseError;
use alloc::string::String;
use alloc::vec::Vec;

/// The bounds of the head of a response; one that exceeds them is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Status line, fields, and the empty line after them.
    pub head_bytes_max: usize,
    /// Field lines.
    pub field_count_max: usize,
}

impl Default for ResponseLimits {
    /// 64 KiB: more than backends and browsers send by their own limits, since applications with many cookies or long
    /// policies are trusted, and an answer that only a proxy refuses is hard to explain.
    fn default() -> ResponseLimits {
        ResponseLimits { head_bytes_max: 64 * 1024, field_count_max: 200 }
    }
}

/// The result of [`parse_response`].
#[derive(Clone, Debug)]
pub enum ParsedResponse<'b> {
    /// The head is incomplete: receive more and parse again.
    Partial,
    /// The head is complete.
    Complete {
        /// The response.
        response: BackendResponse<'b>,
        /// Length of the head; the content, the final response after an interim one, or the bytes of the other protocol
        /// after a 101 follow.
        head_bytes: usize,
    },
}

/// The head of a response, borrowed from the received bytes.
#[derive(Clone, Debug)]
pub struct BackendResponse<'b> {
    status: u16,
    version: Version,
    framing: ResponseFraming,
    content_length: Option<u64>,
    persists: bool,
    fields: Fields<'b>,
}

/// How the end of the content of a response is determined (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseFraming {
    /// There is no content: the response is interim, 204, 304, or to HEAD.
    None,
    /// By Content-Length.
    Length(u64),
    /// By the chunked transfer coding.
    Chunked,
    /// By the end of the connection, or of the output of a script.
    UntilClose,
}

impl ResponseFraming {
    /// The content of the response to a client of HTTP/1.x with this version.
    pub fn for_client(self, version: Version) -> ClientContent {
        match self {
            ResponseFraming::None => ClientContent::None,
            ResponseFraming::Length(length_bytes) => ClientContent::Length(length_bytes),
            // The chunked coding, so that the client notices when the content is cut.
            ResponseFraming::Chunked | ResponseFraming::UntilClose if version == Version::Http11 => {
                ClientContent::Chunked
            }
            ResponseFraming::Chunked | ResponseFraming::UntilClose => ClientContent::UntilClose,
        }
    }
}

/// Parses the head at the start of `bytes`, of the response to HEAD or to another request.
///
/// A prefix of a valid head is [`ParsedResponse::Partial`]; if a prefix is refused, the whole is refused too. Each call
/// begins at the start, which only a backend makes expensive that sends its head in many small pieces.
pub fn parse_response<'b>(
    bytes: &'b [u8],
    is_head_request: bool,
    limits: &ResponseLimits,
) -> Result<ParsedResponse<'b>, ResponseError> {
    let head_bytes_max = limits.head_bytes_max.min(Fields::BYTES_MAX);
    match parse_head(&bytes[..bytes.len().min(head_bytes_max)], is_head_request, limits) {
        Ok(ParsedResponse::Partial) if bytes.len() >= head_bytes_max => Err(ResponseError::HeadTooLong),
        parsed => parsed,
    }
}

/// Parses a head that is within its limit of bytes.
pub(crate) fn parse_head<'b>(
    head: &'b [u8],
    is_head_request: bool,
    limits: &ResponseLimits,
) -> Result<ParsedResponse<'b>, ResponseError> {
    let Some(StatusLine { length_bytes, version, status }) = StatusLine::parse(head)? else {
        return Ok(ParsedResponse::Partial);
    };
    let mut fields = Fields::EMPTY;
    let Some(head_bytes) = fields.parse(head, length_bytes, limits.field_count_max)? else {
        return Ok(ParsedResponse::Partial);
    };
    let content_length = content_length(&fields)?;
    let is_chunked = is_chunked(version, &fields)?;
    let announces_content = is_chunked || content_length.is_some_and(|length_bytes| length_bytes != 0);
    let framing = match (status, content_length) {
        (100..=199, _) if announces_content => return Err(ResponseError::UnexpectedContent),
        (100..=199 | 204 | 304, _) => ResponseFraming::None,
        _ if is_head_request => ResponseFraming::None,
        _ if is_chunked => ResponseFraming::Chunked,
        (_, Some(length_bytes)) => ResponseFraming::Length(length_bytes),
        (_, None) => ResponseFraming::UntilClose,
    };
    let persists = match (status, framing) {
        // It has none, but the backend may send what it announces.
        (204, _) if announces_content => false,
        (101, _) | (_, ResponseFraming::UntilClose) => false,
        _ => !persistence_of(version, &fields).is_close(),
    };
    let response = BackendResponse { status, version, framing, content_length, persists, fields };
    if status == 101 && response.upgrade().is_none() {
        return Err(ResponseError::MissingUpgrade);
    }
    Ok(ParsedResponse::Complete { response, head_bytes })
}

/// `HTTP-version SP status-code SP [ reason-phrase ] CRLF` (RFC 9112 §4).
struct StatusLine {
    /// Length of the line, CRLF included.
    length_bytes: usize,
    version: Version,
    status: u16,
}

/// Where the text after the status begins: a space and the reason, if there is one.
const REASON_START: usize = b"HTTP/1.1 200".len();

impl StatusLine {
    /// Parses the line at the start of `bytes`; `None` if it is incomplete. The space before an empty reason may be
    /// missing, as many servers omit it.
    fn parse(bytes: &[u8]) -> Result<Option<StatusLine>, ResponseError> {
        const NAME: &[u8] = b"HTTP/";
        // Refused at the first byte, so that the text of another protocol is not waited for.
        if !bytes.iter().zip(NAME).all(|(byte, expected)| byte == expected) {
            return Err(ResponseError::InvalidStatusLine);
        }
        let Some(end) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
        let line = bytes[..end].strip_suffix(b"\r").ok_or(ResponseError::InvalidLine)?;
        let (version, digits) = match line.get(NAME.len()..REASON_START) {
            Some([b'1', b'.', b'1', b' ', digits @ ..]) => (Version::Http11, digits),
            Some([b'1', b'.', b'0', b' ', digits @ ..]) => (Version::Http10, digits),
            Some([b'0'..=b'9', b'.', b'0'..=b'9', b' ', ..]) => return Err(ResponseError::UnsupportedVersion),
            _ => return Err(ResponseError::InvalidStatusLine),
        };
        let status = parse_decimal(digits).ok_or(ResponseError::InvalidStatusLine)? as u16;
        match &line[REASON_START..] {
            [] => {}
            [b' ', reason @ ..] if reason.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t') => {
                return Err(ResponseError::InvalidLine);
            }
            [b' ', ..] => {}
            _ => return Err(ResponseError::InvalidStatusLine),
        }
        if !(100..=599).contains(&status) {
            return Err(ResponseError::InvalidStatus);
        }
        Ok(Some(StatusLine { length_bytes: end + 1, version, status }))
    }
}

/// RFC 9112 §6.3, without the lenient recovery that it permits.
fn content_length(fields: &Fields<'_>) -> Result<Option<u64>, ResponseError> {
    if !fields.contains(FieldName::ContentLength) {
        return Ok(None);
    }
    let digits = fields.single(FieldName::ContentLength).and_then(parse_decimal);
    digits.map(Some).ok_or(ResponseError::InvalidContentLength)
}

fn is_chunked(version: Version, fields: &Fields<'_>) -> Result<bool, ResponseError> {
    if !fields.contains(FieldName::TransferEncoding) {
        return Ok(false);
    }
    if fields.contains(FieldName::ContentLength) || version == Version::Http10 {
        return Err(ResponseError::AmbiguousFraming);
    }
    match fields.single(FieldName::TransferEncoding) {
        Some(coding) if coding.eq_ignore_ascii_case(b"chunked") => Ok(true),
        _ => Err(ResponseError::UnsupportedTransferCoding),
    }
}

impl<'b> BackendResponse<'b> {
    /// The status, 100 to 599.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// How the end of the content is determined.
    pub fn framing(&self) -> ResponseFraming {
        self.framing
    }

    /// The announced length, also of a response to HEAD and of a 304, which have no content (RFC 9110 §8.6).
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Whether the connection may be used for another request after this response (RFC 9112 §9.3).
    pub fn persists(&self) -> bool {
        self.persists
    }

    /// How long the backend keeps the connection open without a request, if it says so: `Keep-Alive: timeout=5`.
    pub fn keep_alive_timeout_s(&self) -> Option<u32> {
        const NAME: &[u8] = b"timeout=";
        let mut parameters = self.fields.find_all(b"keep-alive").flat_map(list_members);
        let value = parameters.find(|parameter| starts_with(parameter, NAME))?;
        u32::try_from(parse_decimal(&value[NAME.len()..])?).ok()
    }

    /// The protocol that follows a 101, in the letter case of the backend. The caller compares it with the one that the
    /// client has asked for ([`Request::upgrade`](crate::Request::upgrade)): any other ends both connections.
    pub fn upgrade(&self) -> Option<&'b [u8]> {
        let protocol = self.fields.find_single(b"upgrade").filter(|_| self.status == 101)?;
        let mut protocols = list_members(protocol);
        protocols.next().filter(|only| only.len() == protocol.len())
    }

    /// The response of a script, after whose output the connection to the application can persist.
    pub(crate) fn of_script(self) -> BackendResponse<'b> {
        BackendResponse { persists: true, ..self }
    }

    /// The value of the first line of a field. `name` is in lower case.
    pub fn field(&self, name: &[u8]) -> Option<&'b [u8]> {
        self.fields.find_first(name)
    }

    /// The values of all lines of a field. `name` is in lower case.
    pub fn field_values<'n>(&self, name: &'n [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b, 'n> {
        self.fields.find_all(name)
    }

    /// Whether the field is present. `name` is in lower case.
    pub fn has_field(&self, name: &[u8]) -> bool {
        self.field(name).is_some()
    }

    /// Appends the head for the client in the form of HTTP/1.1, including its last empty line, to `out`.
    pub fn write_head(&self, parts: &ResponseHeadParts<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1");
        let line = self.fields.lines().0;
        out.extend_from_slice(&line[b"HTTP/1.1".len()..]);
        // The space is there even if no reason follows it.
        out.extend_from_slice(if line.len() == REASON_START { b" \r\n" } else { b"\r\n" });
        let has_date = self.put_passed(parts, out);
        let is_interim = self.status < 200;
        if !has_date && !is_interim && !is_edited(b"date", parts.edits) {
            put_field(b"Date", parts.date, out);
        }
        if !is_edited(b"via", parts.edits) {
            let via: &[u8] = match self.version {
                Version::Http10 => b"Via: 1.0 sanderling\r\n",
                Version::Http11 => b"Via: 1.1 sanderling\r\n",
            };
            out.extend_from_slice(via);
        }
        put_edits(parts.edits, is_own, out);
        if !is_interim {
            parts.put_framing(out);
        } else if let Some(protocol) = self.upgrade() {
            out.extend_from_slice(b"Connection: upgrade\r\n");
            put_field(b"Upgrade", protocol, out);
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the fields that are passed on. Returns whether Date is one of them.
    fn put_passed(&self, parts: &ResponseHeadParts<'_>, out: &mut Vec<u8>) -> bool {
        let named = NamedFields::of(&self.fields);
        let mut has_date = false;
        for line in self.fields.field_lines() {
            let name = line.name();
            if !is_own(name) && !named.contain(name) && !is_edited(name, parts.edits) {
                has_date |= name.eq_ignore_ascii_case(b"date");
                put_field(name, line.value(), out);
            }
        }
        has_date
    }
}

/// Whether a field of a backend is not for clients: it concerns the connection, or asks a proxy to do something.
#[inline]
fn is_own(name: &[u8]) -> bool {
    is_hop_by_hop(name) || starts_with(name, b"x-accel-") || name.eq_ignore_ascii_case(b"x-sendfile")
}

/// The parts of the head for the client that are not from the backend.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHeadParts<'p> {
    /// Fields that are set, or removed (`None`), with valid names and values. Those of the connection (Connection,
    /// Content-Length and so on) stay as they are.
    pub edits: &'p [(String, Option<String>)],
    /// The content that follows. An interim response has none, whatever this says.
    pub content: ClientContent,
    /// Whether the connection of the client persists.
    pub persistence: Persistence,
    /// The version of the client. One of HTTP/1.0 gets chunked content as content until the connection closes.
    pub version: Version,
    /// The current date, used if the backend sends none ([`HttpDate::as_bytes`](crate::HttpDate::as_bytes)).
    pub date: &'p [u8],
}

/// The framing of the content for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientContent {
    /// There is none, and no length is announced; or the content is framed by HTTP/2.
    None,
    /// This length. The content itself is missing in a response to HEAD and in a 304.
    Length(u64),
    /// The chunked transfer coding.
    Chunked,
    /// The end of the connection.
    UntilClose,
}

impl ResponseHeadParts<'_> {
    fn put_framing(&self, out: &mut Vec<u8>) {
        let mut persistence = self.persistence;
        match self.content {
            ClientContent::None => {}
            ClientContent::Length(length_bytes) => {
                put_number(b"Content-Length: ", length_bytes, out);
                out.extend_from_slice(b"\r\n");
            }
            ClientContent::Chunked if self.version == Version::Http11 => {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
            ClientContent::Chunked | ClientContent::UntilClose => persistence = Persistence::Close,
        }
        out.extend_from_slice(match persistence {
            Persistence::Persist => b"",
            Persistence::KeepAlive => b"Connection: keep-alive\r\n",
            Persistence::Close => b"Connection: close\r\n",
        });
    }
}

#[cfg(test)]
mod tests;
