//! Parses request heads (RFC 9112), strictly: a head that two recipients could interpret differently is refused.

use crate::fields::{FieldName, Fields};
use crate::grammar::{list_members, parse_decimal, trim};
use crate::host::Host;
use crate::request_error::RequestError;
use crate::scan::{find_space, has_head_end, token_bytes};
use crate::target::{ParsedTarget, Scheme, Target};

/// The longest registered method has 17 bytes.
const METHOD_BYTES_MAX: usize = 32;
/// Empty lines allowed before a request line. RFC 9112 §2.2 requires at least one.
const EMPTY_LINES_MAX: usize = 2;

/// The bounds of a request; one that exceeds them is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Request line, fields, and the empty lines before and after them.
    pub head_bytes_max: usize,
    /// Field lines.
    pub field_count_max: usize,
    /// The target in the request line.
    pub target_bytes_max: usize,
    /// The body, which [`BodySkipper`](crate::BodySkipper) refuses beyond it: it is read whole, and discarded unless it
    /// is a DNS message.
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

/// The result of [`parse_request`].
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "it is built in place and destructured immediately")]
pub enum Parsed<'b> {
    /// The head is incomplete: receive more and parse again.
    Partial,
    /// The head is complete.
    Complete {
        /// The request.
        request: Request<'b>,
        /// Length of the head; the body or the next request follows.
        head_bytes: usize,
    },
}

impl<'b> Parsed<'b> {
    /// The request, if the head is complete.
    pub fn request(&self) -> Option<&Request<'b>> {
        match self {
            Parsed::Partial => None,
            Parsed::Complete { request, .. } => Some(request),
        }
    }
}

/// The head of a request, borrowed from the received bytes.
#[derive(Clone, Debug)]
pub struct Request<'b> {
    /// The method.
    pub method: Method,
    /// The target.
    pub target: Target<'b>,
    /// The scheme of an absolute-form target. The others have that of the connection.
    pub scheme: Option<Scheme>,
    /// The version.
    pub version: Version,
    /// The authority of the target, else the Host field. Only an HTTP/1.0 request may lack both.
    pub host: Option<Host<'b>>,
    /// Whether the connection may persist after the response.
    pub persistence: Persistence,
    /// How the body is framed.
    pub framing: Framing,
    /// The header fields.
    pub fields: Fields<'b>,
}

impl<'b> Request<'b> {
    /// The path to look up; `None` if the response does not depend on a file, which it does for GET and HEAD only.
    pub fn path(&self) -> Option<&'b [u8]> {
        match (self.method, self.target) {
            (Method::Get | Method::Head, Target::Path { path, .. }) => Some(path),
            _ => None,
        }
    }

    /// Whether the request is for a scheme that a connection of `scheme` answers for (RFC 9110 §7.4).
    pub fn fits(&self, scheme: Scheme) -> bool {
        self.scheme.is_none_or(|own| own == scheme)
    }

    /// The request after its body was received whole: a connection that would have closed because the client might omit
    /// the body persists.
    #[must_use]
    pub fn with_received_body(&self) -> Request<'b> {
        Request { persistence: persistence_of(self.version, &self.fields), ..self.clone() }
    }

    /// Whether the client may wait for 100 (Continue) before it sends the body (RFC 9110 §10.1.1). Not in HTTP/1.0.
    pub fn awaits_continue(&self) -> bool {
        awaits_continue(self.version, &self.fields)
    }
}

/// The method of a request (RFC 9110 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET
    Get,
    /// HEAD
    Head,
    /// OPTIONS
    Options,
    /// POST, which no file supports, but DNS over HTTPS does.
    Post,
    /// PUT, DELETE, CONNECT, TRACE or PATCH.
    NotAllowed,
    /// Any other method.
    Unknown,
}

impl Method {
    #[inline]
    fn from_name(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            b"POST" => Method::Post,
            b"PUT" | b"DELETE" | b"CONNECT" | b"TRACE" | b"PATCH" => Method::NotAllowed,
            _ => Method::Unknown,
        }
    }
}

/// The version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a later 1.x, which is processed as the highest supported version (RFC 9110 §6.2).
    Http11,
}

/// Whether the connection persists after a response (RFC 9112 §9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// It persists, as HTTP/1.1 clients expect by default.
    Persist,
    /// It persists, and the response to an HTTP/1.0 client says so by `keep-alive`.
    KeepAlive,
    /// It closes, and the response says so.
    Close,
}

impl Persistence {
    /// Whether the connection closes.
    pub fn is_close(self) -> bool {
        self == Persistence::Close
    }
}

/// How the end of a request body is determined (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// There is no body.
    None,
    /// By Content-Length: this many bytes, at least one.
    Length(u64),
    /// By the chunked transfer coding.
    Chunked,
}

/// Parses the request at the start of `bytes`.
///
/// `scanned_bytes` is the number of these bytes for which an earlier call returned [`Parsed::Partial`], else 0. A
/// request that arrives in many fragments then costs linear work: those bytes are not parsed again before the head ends
/// or reaches its limit, which also delays the refusal of an invalid head until then.
///
/// A prefix of a valid request is [`Parsed::Partial`]; if a prefix is refused, the whole is refused too.
pub fn parse_request<'b>(
    bytes: &'b [u8],
    scanned_bytes: usize,
    limits: &RequestLimits,
) -> Result<Parsed<'b>, RequestError> {
    let head_bytes_max = limits.head_bytes_max.min(Fields::BYTES_MAX);
    if scanned_bytes != 0 && bytes.len() < head_bytes_max && !has_head_end(bytes, scanned_bytes) {
        return Ok(Parsed::Partial);
    }
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
    let mut fields = Fields::EMPTY;
    let Some(head_bytes) = fields.parse(&head[line_start..], line.length_bytes, limits.field_count_max)? else {
        return Ok(Parsed::Partial);
    };
    let host = line.host(&fields)?;
    let framing = framing(line.version, &fields)?;
    let persistence = line.persistence(framing, &fields)?;
    let RequestLine { method, target: ParsedTarget { target, scheme, .. }, version, .. } = line;
    Ok(Parsed::Complete {
        request: Request { method, target, scheme, version, host, persistence, framing, fields },
        head_bytes: line_start + head_bytes,
    })
}

/// `method SP request-target SP HTTP-version CRLF` (RFC 9112 §3).
struct RequestLine<'b> {
    /// Length of the line, CRLF included.
    length_bytes: usize,
    method: Method,
    target: ParsedTarget<'b>,
    version: Version,
}

impl<'b> RequestLine<'b> {
    /// Parses the line at the start of `bytes`; `None` if it is incomplete.
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
        let target = parse_target(method, target).ok_or(RequestError::InvalidTarget)?;
        let length_bytes = method.len() + 1 + target_bytes + 1 + VERSION_BYTES;
        Ok(Some(RequestLine { length_bytes, method: Method::from_name(method), target, version }))
    }

    /// RFC 9112 §3.2: HTTP/1.1 requires exactly one valid Host.
    fn host(&self, fields: &Fields<'b>) -> Result<Option<Host<'b>>, RequestError> {
        let Some(mut host) = fields.single(FieldName::Host) else {
            let may_lack_host = self.version == Version::Http10 && !fields.contains(FieldName::Host);
            return match self.target.authority {
                _ if !may_lack_host => Err(RequestError::MissingOrRepeatedHost),
                None => Ok(None),
                Some(authority) => Ok(Host::parse(authority)),
            };
        };
        if let Some(authority) = self.target.authority {
            // §3.2.2: the host of an absolute-form target replaces that of Host, which must be valid nevertheless.
            Host::parse(host).ok_or(RequestError::InvalidHost)?;
            host = authority;
        }
        Ok(Some(Host::parse(host).ok_or(RequestError::InvalidHost)?))
    }

    /// RFC 9112 §9.3.
    #[inline]
    fn persistence(&self, framing: Framing, fields: &Fields<'b>) -> Result<Persistence, RequestError> {
        check_expectations(fields)?;
        // After a final response the client may send the body or omit it: the start of the next request is unknown.
        let may_omit_body = framing != Framing::None && awaits_continue(self.version, fields);
        if may_omit_body || self.target.target == Target::Authority {
            return Ok(Persistence::Close);
        }
        Ok(persistence_of(self.version, fields))
    }
}

/// The persistence by version and Connection (RFC 9112 §9.3).
#[inline(always)]
pub(crate) fn persistence_of(version: Version, fields: &Fields<'_>) -> Persistence {
    let has_option = |option: &[u8]| {
        fields.values(FieldName::Connection).flat_map(list_members).any(|own| own.eq_ignore_ascii_case(option))
    };
    match version {
        Version::Http11 if !fields.contains(FieldName::Connection) => Persistence::Persist,
        _ if has_option(b"close") => Persistence::Close,
        Version::Http11 => Persistence::Persist,
        Version::Http10 if has_option(b"keep-alive") => Persistence::KeepAlive,
        Version::Http10 => Persistence::Close,
    }
}

/// Length of the method at the start of `bytes`, which a space follows; `None` if it is incomplete.
#[inline]
fn method_bytes(bytes: &[u8]) -> Result<Option<usize>, RequestError> {
    // Fast path: nearly all requests.
    if bytes.starts_with(b"GET ") {
        return Ok(Some(b"GET".len()));
    }
    let Some(method_bytes) = token_bytes(&bytes[..bytes.len().min(METHOD_BYTES_MAX + 1)]) else {
        return if bytes.len() > METHOD_BYTES_MAX { Err(RequestError::MethodTooLong) } else { Ok(None) };
    };
    let is_valid = method_bytes > 0 && bytes[method_bytes] == b' ';
    if is_valid { Ok(Some(method_bytes)) } else { Err(RequestError::InvalidRequestLine) }
}

/// Parses the four forms of RFC 9112 §3.2; authority-form is for CONNECT only, asterisk-form for OPTIONS only.
#[inline]
fn parse_target<'b>(method: &[u8], target: &'b [u8]) -> Option<ParsedTarget<'b>> {
    match (method, target) {
        (b"CONNECT", authority) => {
            Host::parse(authority)?.port?;
            Some(ParsedTarget { target: Target::Authority, scheme: None, authority: Some(authority) })
        }
        (b"OPTIONS", b"*") => Some(ParsedTarget { target: Target::Asterisk, scheme: None, authority: None }),
        _ => ParsedTarget::parse(target),
    }
}

/// Length of a version and its CRLF.
const VERSION_BYTES: usize = b"HTTP/1.1\r\n".len();

/// Parses `HTTP/` digit `.` digit CRLF (RFC 9112 §2.3); `None` if it is incomplete.
fn parse_version(bytes: &[u8]) -> Result<Option<Version>, RequestError> {
    let Some(bytes) = bytes.get(..VERSION_BYTES) else {
        return if bytes.contains(&b'\n') { Err(RequestError::InvalidRequestLine) } else { Ok(None) };
    };
    // Fast path: one comparison of all bytes, where a pattern compares them one by one.
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

/// RFC 9112 §6.3, without the lenient recovery that it permits.
fn framing(version: Version, fields: &Fields<'_>) -> Result<Framing, RequestError> {
    let has_length = fields.contains(FieldName::ContentLength);
    if fields.contains(FieldName::TransferEncoding) {
        // §6.1: request smuggling uses both fields together, or a coding in HTTP/1.0, which has none.
        if has_length || version == Version::Http10 {
            return Err(RequestError::AmbiguousFraming);
        }
        let coding = fields.single(FieldName::TransferEncoding).ok_or(RequestError::AmbiguousFraming)?;
        return transfer_coding_framing(coding);
    }
    if !has_length {
        return Ok(Framing::None);
    }
    let digits = fields.single(FieldName::ContentLength).ok_or(RequestError::InvalidContentLength)?;
    match parse_decimal(digits).ok_or(RequestError::InvalidContentLength)? {
        0 => Ok(Framing::None),
        length_bytes => Ok(Framing::Length(length_bytes)),
    }
}

/// RFC 9112 §6.3: chunked must be the last coding, and only once (§7); §6.1: any coding before it is unsupported.
fn transfer_coding_framing(value: &[u8]) -> Result<Framing, RequestError> {
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    if is_chunked(value) {
        return Ok(Framing::Chunked);
    }
    let mut codings = value.rsplit(|&byte| byte == b',').map(trim);
    let is_last_chunked = codings.next().is_some_and(is_chunked);
    if !is_last_chunked || codings.any(|coding| coding.is_empty() || is_chunked(coding)) {
        return Err(RequestError::AmbiguousFraming);
    }
    Err(RequestError::UnsupportedTransferCoding)
}

/// RFC 9110 §10.1.1: a client of HTTP/1.0 does not wait.
#[inline]
fn awaits_continue(version: Version, fields: &Fields<'_>) -> bool {
    version > Version::Http10 && fields.contains(FieldName::Expect)
}

/// RFC 9110 §10.1.1: any other expectation than 100-continue is refused.
#[inline]
fn check_expectations(fields: &Fields<'_>) -> Result<(), RequestError> {
    if !fields.contains(FieldName::Expect) {
        return Ok(());
    }
    let mut expectations = fields.values(FieldName::Expect).flat_map(list_members);
    if expectations.all(|expectation| expectation.eq_ignore_ascii_case(b"100-continue")) {
        Ok(())
    } else {
        Err(RequestError::UnsupportedExpectation)
    }
}
