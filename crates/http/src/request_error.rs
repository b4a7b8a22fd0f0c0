//! Why a request cannot be served, and the status that says so.

use core::fmt;

use crate::status::Status;

/// A request that breaks the protocol or one of our limits. Where it ends is then unknown, or not worth reading to:
/// after the answer the connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestError {
    /// The request line is not `method SP target SP version CRLF` (RFC 9112 §3).
    RequestLine,
    /// The method is longer than any that exists.
    MethodTooLong,
    /// The target is none of the four forms of RFC 9112 §3.2, or not the one that its method needs.
    Target,
    /// The target is longer than [`Limits::target_bytes_max`](crate::Limits::target_bytes_max).
    TargetTooLong,
    /// A major version other than 1.
    Version,
    /// A line that does not end with CRLF, or that has a control byte in it (RFC 9112 §2.2, RFC 9110 §5.5).
    Line,
    /// A field line that is not `name: value`, or that is folded (RFC 9112 §5).
    Field,
    /// More fields than [`Limits::field_count_max`](crate::Limits::field_count_max).
    FieldCount,
    /// A head longer than [`Limits::head_bytes_max`](crate::Limits::head_bytes_max).
    HeadTooLong,
    /// HTTP/1.1 without Host, or Host more than once (RFC 9112 §3.2).
    HostCount,
    /// A Host or an authority that is not `host[:port]` (RFC 3986 §3.2.2).
    Host,
    /// The target names another authority than Host does.
    HostMismatch,
    /// A Content-Length that is not one plain decimal number (RFC 9112 §6.3).
    ContentLength,
    /// Content-Length beside Transfer-Encoding, or Transfer-Encoding in HTTP/1.0 (RFC 9112 §6.1).
    Framing,
    /// A transfer coding other than chunked (RFC 9112 §6.1).
    TransferCoding,
    /// An expectation other than 100-continue (RFC 9110 §10.1.1).
    Expectation,
    /// Content longer than [`Limits::content_bytes_max`](crate::Limits::content_bytes_max).
    ContentTooLarge,
    /// A chunk whose size, extension, line end or trailer is wrong or beyond its bound (RFC 9112 §7.1).
    Chunk,
}

impl RequestError {
    /// The status of the answer.
    pub fn status(self) -> Status {
        match self {
            RequestError::MethodTooLong | RequestError::TransferCoding => Status::NotImplemented,
            RequestError::TargetTooLong => Status::UriTooLong,
            RequestError::Version => Status::HttpVersionNotSupported,
            RequestError::FieldCount | RequestError::HeadTooLong => Status::RequestHeaderFieldsTooLarge,
            RequestError::Expectation => Status::ExpectationFailed,
            RequestError::ContentTooLarge => Status::ContentTooLarge,
            RequestError::RequestLine
            | RequestError::Target
            | RequestError::Line
            | RequestError::Field
            | RequestError::HostCount
            | RequestError::Host
            | RequestError::HostMismatch
            | RequestError::ContentLength
            | RequestError::Framing
            | RequestError::Chunk => Status::BadRequest,
        }
    }
}

/// For a log: what is wrong with the request.
impl fmt::Display for RequestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            RequestError::RequestLine => "the request line is malformed",
            RequestError::MethodTooLong => "the method is too long",
            RequestError::Target => "the target is malformed",
            RequestError::TargetTooLong => "the target is too long",
            RequestError::Version => "the major version is not 1",
            RequestError::Line => "a line has a control byte or does not end with CRLF",
            RequestError::Field => "a field line is malformed",
            RequestError::FieldCount => "there are too many fields",
            RequestError::HeadTooLong => "the head is too long",
            RequestError::HostCount => "Host is missing or repeated",
            RequestError::Host => "the host is malformed",
            RequestError::HostMismatch => "the target and Host name different hosts",
            RequestError::ContentLength => "Content-Length is malformed or repeated",
            RequestError::Framing => "Transfer-Encoding stands beside Content-Length, is repeated, or is in HTTP/1.0",
            RequestError::TransferCoding => "the transfer coding is not chunked",
            RequestError::Expectation => "the expectation is not 100-continue",
            RequestError::ContentTooLarge => "the content is too large",
            RequestError::Chunk => "a chunk is malformed",
        })
    }
}

impl core::error::Error for RequestError {}
