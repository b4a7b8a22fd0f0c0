//! The bytes of a connection to a request (RFC 9112), strictly: what two readers could read in two ways is refused.

use crate::fields::{FieldName, Fields};
use crate::grammar::{members, parse_decimal};
use crate::host::Host;
use crate::request_error::RequestError;
use crate::scan::{find_space, token_bytes};
use crate::target::Target;

/// Bytes of the longest method: the longest registered ones have 17.
const METHOD_BYTES_MAX: usize = 32;
/// Empty lines that may stand before a request line. RFC 9112 §2.2 asks for one at least.
const EMPTY_LINES_MAX: usize = 2;

/// How much of a request is read before it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The head: request line, fields, and the empty lines around them.
    pub head_bytes_max: usize,
    /// The field lines of the head.
    pub field_count_max: usize,
    /// The target, as it stands in the request line.
    pub target_bytes_max: usize,
    /// The content, which is read and thrown away.
    pub body_bytes_max: u64,
}

impl Default for RequestLimits {
    fn default() -> RequestLimits {
        RequestLimits {
            head_bytes_max: 16 * 1024,
            field_count_max: 100,
            target_bytes_max: 8 * 1024,
            body_bytes_max: 64 * 1024,
        }
    }
}

/// What stands at the start of a connection's bytes.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is built in place and taken apart at once")]
pub enum Parsed<'b> {
    /// The start of a head: read more, then parse again from the same byte.
    Partial,
    /// A whole head.
    Complete {
        /// What it asks for.
        request: Request<'b>,
        /// Where it ends: the request's content follows, or the next request.
        head_bytes: usize,
    },
}

/// A request, borrowed from the bytes it was read from.
#[derive(Clone, Debug)]
pub struct Request<'b> {
    /// What is to be done.
    pub method: Method,
    /// What it is to be done with.
    pub target: Target<'b>,
    /// The version of the sender.
    pub version: Version,
    /// Whose site is asked for: the authority of the target, or else the Host field. Only an HTTP/1.0 request lacks it.
    pub host: Option<Host<'b>>,
    /// Whether the sender, and the way its content is framed, let the connection go on.
    pub persistence: Persistence,
    /// What follows the head.
    pub framing: Framing,
    /// All fields, for conditions, ranges and logs.
    pub fields: Fields<'b>,
}

impl<'b> Request<'b> {
    /// The path to look up, when the answer depends on a file at all: for GET and HEAD.
    pub fn path(&self) -> Option<&'b [u8]> {
        match (self.method, self.target) {
            (Method::Get | Method::Head, Target::Path { path, .. }) => Some(path),
            _ => None,
        }
    }
}

/// The method of a request (RFC 9110 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// The file.
    Get,
    /// The head of the answer to GET.
    Head,
    /// What may be done.
    Options,
    /// A method that is registered, but not for files: POST, PUT, DELETE, CONNECT, TRACE, PATCH.
    NotAllowed,
    /// Any other.
    Unknown,
}

impl Method {
    #[inline]
    fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            b"POST" | b"PUT" | b"DELETE" | b"CONNECT" | b"TRACE" | b"PATCH" => Method::NotAllowed,
            _ => Method::Unknown,
        }
    }
}

/// The version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, and any later 1.x, which is to be read as the highest we know (RFC 9110 §6.2).
    Http11,
}

/// Whether a connection goes on behind an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// It does, and an HTTP/1.1 peer takes that for granted.
    Persist,
    /// It does, and the answer has to say so to a peer of HTTP/1.0, by `keep-alive`.
    KeepAlive,
    /// It closes, and the answer says so.
    Close,
}

impl Persistence {
    /// Whether it closes.
    pub fn is_close(self) -> bool {
        self == Persistence::Close
    }
}

/// How the content of a request is framed (RFC 9112 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is none.
    None,
    /// This many bytes, one at least.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// The request at the start of `bytes`.
///
/// A prefix of a valid request is [`Parsed::Partial`], and a prefix that is refused would be refused as a whole too.
pub fn parse_request<'b>(bytes: &'b [u8], limits: &RequestLimits) -> Result<Parsed<'b>, RequestError> {
    let head_bytes_max = limits.head_bytes_max.min(Fields::BYTES_MAX);
    match parse_head(&bytes[..bytes.len().min(head_bytes_max)], limits) {
        Ok(Parsed::Partial) if bytes.len() >= head_bytes_max => Err(RequestError::HeadTooLong),
        parsed => parsed,
    }
}

#[inline]
fn parse_head<'b>(head: &'b [u8], limits: &RequestLimits) -> Result<Parsed<'b>, RequestError> {
    let mut line_start = 0;
    for _ in 0..EMPTY_LINES_MAX {
        match &head[line_start..] {
            [] | [b'\r'] => return Ok(Parsed::Partial),
            [b'\r', b'\n', ..] => line_start += 2,
            _ => break,
        }
    }
    let Some(line) = RequestLine::parse(&head[line_start..], limits)? else { return Ok(Parsed::Partial) };
    let fields_start = line_start + line.length_bytes;
    let mut fields = Fields::NONE;
    let Some(fields_bytes) = fields.read(&head[fields_start..], limits.field_count_max)? else {
        return Ok(Parsed::Partial);
    };
    let host = line.host(&fields)?;
    let framing = framing(line.version, &fields, limits)?;
    let persistence = line.persistence(framing, &fields)?;
    let RequestLine { method, target, version, .. } = line;
    Ok(Parsed::Complete {
        request: Request { method, target, version, host, persistence, framing, fields },
        head_bytes: fields_start + fields_bytes,
    })
}

/// `method SP request-target SP HTTP-version CRLF` (RFC 9112 §3).
struct RequestLine<'b> {
    /// With the line end.
    length_bytes: usize,
    method: Method,
    target: Target<'b>,
    /// The authority of an absolute-form target.
    authority: Option<Host<'b>>,
    version: Version,
}

impl<'b> RequestLine<'b> {
    /// The line at the start of `bytes`; `None` when it is not all there.
    #[inline]
    fn parse(bytes: &'b [u8], limits: &RequestLimits) -> Result<Option<RequestLine<'b>>, RequestError> {
        let Some(method_bytes) = method_bytes(bytes)? else { return Ok(None) };
        let (method, rest) = (&bytes[..method_bytes], &bytes[method_bytes + b" ".len()..]);

        let target_start = &rest[..rest.len().min(limits.target_bytes_max + 1)];
        let Some(target_bytes) = find_space(target_start) else {
            return if rest.len() > limits.target_bytes_max { Err(RequestError::TargetTooLong) } else { Ok(None) };
        };
        let (target, rest) = rest.split_at(target_bytes);
        let rest = rest.strip_prefix(b" ").filter(|_| target_bytes > 0).ok_or(RequestError::InvalidRequestLine)?;

        let Some(version) = parse_version(rest)? else { return Ok(None) };
        let (target, authority) = parse_target(method, target).ok_or(RequestError::InvalidTarget)?;
        let length_bytes = method.len() + 1 + target_bytes + 1 + VERSION_BYTES;
        Ok(Some(RequestLine { length_bytes, method: Method::of(method), target, authority, version }))
    }

    /// RFC 9112 §3.2: exactly one Host, and a valid one, in HTTP/1.1.
    fn host(&self, fields: &Fields<'b>) -> Result<Option<Host<'b>>, RequestError> {
        if !fields.contains(FieldName::Host) {
            return if self.version == Version::Http10 {
                Ok(self.authority)
            } else {
                Err(RequestError::MissingOrRepeatedHost)
            };
        }
        let value = fields.single(FieldName::Host).ok_or(RequestError::MissingOrRepeatedHost)?;
        let host = Host::parse(value).ok_or(RequestError::InvalidHost)?;
        match self.authority {
            None => Ok(Some(host)),
            // RFC 9112 §3.2.2 has the target win. A sender makes both the same, so a difference is somebody's attempt
            // to have us and another reader see two sites.
            Some(authority) if authority.is_equivalent_to(&host) => Ok(Some(authority)),
            Some(_) => Err(RequestError::HostMismatch),
        }
    }

    /// RFC 9112 §9.3.
    #[inline]
    fn persistence(&self, framing: Framing, fields: &Fields<'b>) -> Result<Persistence, RequestError> {
        let awaits_continue = awaits_continue(fields)?;
        // RFC 9110 §10.1.1: HTTP/1.0 cannot await it. A peer that does may keep its content back when it sees our
        // answer, or send it: where the next request starts is then unknown.
        let is_content_doubtful = awaits_continue && self.version > Version::Http10 && framing != Framing::None;
        if is_content_doubtful || self.target == Target::Authority {
            return Ok(Persistence::Close);
        }
        let has_option = |option: &[u8]| {
            fields.values(FieldName::Connection).any(|value| members(value).any(|own| own.eq_ignore_ascii_case(option)))
        };
        Ok(match self.version {
            Version::Http11 if !fields.contains(FieldName::Connection) => Persistence::Persist,
            _ if has_option(b"close") => Persistence::Close,
            Version::Http11 => Persistence::Persist,
            Version::Http10 if has_option(b"keep-alive") => Persistence::KeepAlive,
            Version::Http10 => Persistence::Close,
        })
    }
}

/// How many bytes the method at the start of `bytes` has, behind which a space stands; `None` when it is not all there.
#[inline]
fn method_bytes(bytes: &[u8]) -> Result<Option<usize>, RequestError> {
    // Nearly all requests have it, and for files no other would do.
    if bytes.starts_with(b"GET ") {
        return Ok(Some(b"GET".len()));
    }
    let Some(method_bytes) = token_bytes(&bytes[..bytes.len().min(METHOD_BYTES_MAX + 1)]) else {
        return if bytes.len() > METHOD_BYTES_MAX { Err(RequestError::MethodTooLong) } else { Ok(None) };
    };
    let is_valid = method_bytes > 0 && bytes[method_bytes] == b' ';
    if is_valid { Ok(Some(method_bytes)) } else { Err(RequestError::InvalidRequestLine) }
}

/// The four forms of RFC 9112 §3.2, two of them for one method each.
#[inline]
fn parse_target<'b>(method: &[u8], target: &'b [u8]) -> Option<(Target<'b>, Option<Host<'b>>)> {
    match (method, target) {
        (b"CONNECT", _) => {
            let host = Host::parse(target)?;
            host.port.map(|_| (Target::Authority, Some(host)))
        }
        (b"OPTIONS", b"*") => Some((Target::Asterisk, None)),
        _ => Target::parse(target),
    }
}

/// Bytes of a version and the line end behind it.
const VERSION_BYTES: usize = b"HTTP/1.1\r\n".len();

/// `HTTP/` digit `.` digit CRLF (RFC 9112 §2.3); `None` when it is not all there.
fn parse_version(bytes: &[u8]) -> Result<Option<Version>, RequestError> {
    let Some(bytes) = bytes.get(..VERSION_BYTES) else {
        return if bytes.contains(&b'\n') { Err(RequestError::InvalidRequestLine) } else { Ok(None) };
    };
    // Nearly every request has it: one comparison of all bytes, where a pattern compares them one by one.
    if bytes == b"HTTP/1.1\r\n" {
        return Ok(Some(Version::Http11));
    }
    match bytes {
        b"HTTP/1.0\r\n" => Ok(Some(Version::Http10)),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', b'\r', b'\n'] => Ok(Some(Version::Http11)),
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9', b'\r', b'\n'] => {
            Err(RequestError::UnsupportedVersion)
        }
        _ => Err(RequestError::InvalidRequestLine),
    }
}

/// RFC 9112 §6.3, with everything refused that it lets a recipient mend.
fn framing(version: Version, fields: &Fields<'_>, limits: &RequestLimits) -> Result<Framing, RequestError> {
    let has_length = fields.contains(FieldName::ContentLength);
    if fields.contains(FieldName::TransferEncoding) {
        // §6.1: both at once, or a coding from a sender that cannot know it, is how requests are smuggled.
        if has_length || version == Version::Http10 {
            return Err(RequestError::AmbiguousFraming);
        }
        let coding = fields.single(FieldName::TransferEncoding).ok_or(RequestError::AmbiguousFraming)?;
        return if coding.eq_ignore_ascii_case(b"chunked") {
            Ok(Framing::Chunked)
        } else {
            Err(RequestError::UnsupportedTransferCoding)
        };
    }
    if !has_length {
        return Ok(Framing::None);
    }
    let digits = fields.single(FieldName::ContentLength).ok_or(RequestError::InvalidContentLength)?;
    match parse_decimal(digits).ok_or(RequestError::InvalidContentLength)? {
        0 => Ok(Framing::None),
        length_bytes if length_bytes > limits.body_bytes_max => Err(RequestError::BodyTooLarge),
        length_bytes => Ok(Framing::Length(length_bytes)),
    }
}

/// RFC 9110 §10.1.1; anything else that is expected is refused.
fn awaits_continue(fields: &Fields<'_>) -> Result<bool, RequestError> {
    if !fields.contains(FieldName::Expect) {
        return Ok(false);
    }
    let mut expectations = fields.values(FieldName::Expect).flat_map(members);
    if expectations.all(|expectation| expectation.eq_ignore_ascii_case(b"100-continue")) {
        Ok(true)
    } else {
        Err(RequestError::UnsupportedExpectation)
    }
}
