//! Why a request cannot be served, and the status that says so.

use core::fmt;

use crate::status::Status;

/// A request that breaks the protocol or one of our limits. Where it ends is then unknown, or not worth reading to:
/// after the answer the connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestError {
    /// The request line is not `method SP target SP version CRLF` (RFC 9112 §3).
    InvalidRequestLine,
    /// The method is longer than any that exists.
    MethodTooLong,
    /// The target is none of the four forms of RFC 9112 §3.2, or not the one that its method needs.
    InvalidTarget,
    /// The target is longer than [`RequestLimits::target_bytes_max`](crate::RequestLimits::target_bytes_max).
    TargetTooLong,
    /// A major version other than 1.
    UnsupportedVersion,
    /// A line that does not end with CRLF, or that has a control byte in it (RFC 9112 §2.2, RFC 9110 §5.5).
    InvalidLine,
    /// A field line that is not `name: value`, or that is folded (RFC 9112 §5).
    InvalidField,
    /// More fields than [`RequestLimits::field_count_max`](crate::RequestLimits::field_count_max).
    TooManyFields,
    /// A head longer than [`RequestLimits::head_bytes_max`](crate::RequestLimits::head_bytes_max).
    HeadTooLong,
    /// HTTP/1.1 without Host, or Host more than once (RFC 9112 §3.2).
    MissingOrRepeatedHost,
    /// A Host or an authority that is not `host[:port]` (RFC 3986 §3.2.2).
    InvalidHost,
    /// The target names another authority than Host does.
    HostMismatch,
    /// A Content-Length that is not one plain decimal number (RFC 9112 §6.3).
    InvalidContentLength,
    /// Content-Length beside Transfer-Encoding, or Transfer-Encoding in HTTP/1.0 (RFC 9112 §6.1).
    AmbiguousFraming,
    /// A transfer coding other than chunked (RFC 9112 §6.1).
    UnsupportedTransferCoding,
    /// An expectation other than 100-continue (RFC 9110 §10.1.1).
    UnsupportedExpectation,
    /// Content longer than [`RequestLimits::body_bytes_max`](crate::RequestLimits::body_bytes_max).
    BodyTooLarge,
    /// A chunk whose size, extension, line end or trailer is wrong or beyond its bound (RFC 9112 §7.1).
    InvalidChunk,
}

impl RequestError {
    /// The status of the answer.
    pub fn status(self) -> Status {
        match self {
            RequestError::MethodTooLong | RequestError::UnsupportedTransferCoding => Status::NotImplemented,
            RequestError::TargetTooLong => Status::UriTooLong,
            RequestError::UnsupportedVersion => Status::HttpVersionNotSupported,
            RequestError::TooManyFields | RequestError::HeadTooLong => Status::RequestHeaderFieldsTooLarge,
            RequestError::UnsupportedExpectation => Status::ExpectationFailed,
            RequestError::BodyTooLarge => Status::ContentTooLarge,
            RequestError::InvalidRequestLine
            | RequestError::InvalidTarget
            | RequestError::InvalidLine
            | RequestError::InvalidField
            | RequestError::MissingOrRepeatedHost
            | RequestError::InvalidHost
            | RequestError::HostMismatch
            | RequestError::InvalidContentLength
            | RequestError::AmbiguousFraming
            | RequestError::InvalidChunk => Status::BadRequest,
        }
    }
}

/// For a log: what is wrong with the request.
impl fmt::Display for RequestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            RequestError::InvalidRequestLine => "the request line is malformed",
            RequestError::MethodTooLong => "the method is too long",
            RequestError::InvalidTarget => "the target is malformed",
            RequestError::TargetTooLong => "the target is too long",
            RequestError::UnsupportedVersion => "the major version is not 1",
            RequestError::InvalidLine => "a line has a control byte or does not end with CRLF",
            RequestError::InvalidField => "a field line is malformed",
            RequestError::TooManyFields => "there are too many fields",
            RequestError::HeadTooLong => "the head is too long",
            RequestError::MissingOrRepeatedHost => "Host is missing or repeated",
            RequestError::InvalidHost => "the host is malformed",
            RequestError::HostMismatch => "the target and Host name different hosts",
            RequestError::InvalidContentLength => "Content-Length is malformed or repeated",
            RequestError::AmbiguousFraming => {
                "Transfer-Encoding stands beside Content-Length, is repeated, or is in HTTP/1.0"
            }
            RequestError::UnsupportedTransferCoding => "the transfer coding is not chunked",
            RequestError::UnsupportedExpectation => "the expectation is not 100-continue",
            RequestError::BodyTooLarge => "the content is too large",
            RequestError::InvalidChunk => "a chunk is malformed",
        })
    }
}

impl core::error::Error for RequestError {}
