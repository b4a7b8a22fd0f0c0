//! Errors of a request that break the protocol or exceed a limit.

use core::fmt;

use crate::status::Status;

/// Why a request is refused. The end of the request is unknown or not worth reading to, so the connection closes after
/// the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestError {
    /// The request line is not `method SP target SP version CRLF` (RFC 9112 §3).
    InvalidRequestLine,
    /// The method is longer than any registered one.
    MethodTooLong,
    /// The target has none of the four forms of RFC 9112 §3.2, or not the form that its method requires.
    InvalidTarget,
    /// The target is longer than [`RequestLimits::target_bytes_max`](crate::RequestLimits::target_bytes_max).
    TargetTooLong,
    /// The major version is not 1.
    UnsupportedVersion,
    /// A line does not end with CRLF, or has a control byte in it (RFC 9112 §2.2, RFC 9110 §5.5).
    InvalidLine,
    /// A field line is not `name: value`, or is folded (RFC 9112 §5).
    InvalidField,
    /// More fields than [`RequestLimits::field_count_max`](crate::RequestLimits::field_count_max).
    TooManyFields,
    /// The head is longer than [`RequestLimits::head_bytes_max`](crate::RequestLimits::head_bytes_max).
    HeadTooLong,
    /// Host is missing in HTTP/1.1, or repeated (RFC 9112 §3.2).
    MissingOrRepeatedHost,
    /// A Host or an authority is not `host[:port]` (RFC 3986 §3.2.2).
    InvalidHost,
    /// Content-Length is not one plain decimal number (RFC 9112 §6.3).
    InvalidContentLength,
    /// The end of the body is ambiguous: Transfer-Encoding with Content-Length, repeated, in HTTP/1.0, or without
    /// chunked as its last coding (RFC 9112 §6.1, §6.3).
    AmbiguousFraming,
    /// Transfer-Encoding has a coding before chunked (RFC 9112 §6.1).
    UnsupportedTransferCoding,
    /// Expect is not 100-continue (RFC 9110 §10.1.1).
    UnsupportedExpectation,
    /// The body is longer than [`RequestLimits::body_bytes_max`](crate::RequestLimits::body_bytes_max).
    BodyTooLarge,
    /// A chunk has an invalid size, extension, line end or trailer, or one that exceeds its bound (RFC 9112 §7.1).
    InvalidChunk,
}

impl RequestError {
    /// The status of the response.
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
            | RequestError::InvalidContentLength
            | RequestError::AmbiguousFraming
            | RequestError::InvalidChunk => Status::BadRequest,
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            RequestError::InvalidRequestLine => "invalid request line",
            RequestError::MethodTooLong => "method too long",
            RequestError::InvalidTarget => "invalid request target",
            RequestError::TargetTooLong => "request target too long",
            RequestError::UnsupportedVersion => "unsupported HTTP version",
            RequestError::InvalidLine => "control byte in a line, or line ending other than CRLF",
            RequestError::InvalidField => "invalid field line",
            RequestError::TooManyFields => "too many fields",
            RequestError::HeadTooLong => "request head too long",
            RequestError::MissingOrRepeatedHost => "Host missing or repeated",
            RequestError::InvalidHost => "invalid host",
            RequestError::InvalidContentLength => "invalid or repeated Content-Length",
            RequestError::AmbiguousFraming => {
                "Transfer-Encoding with Content-Length, repeated, in HTTP/1.0, or without chunked as its last coding"
            }
            RequestError::UnsupportedTransferCoding => "transfer coding other than chunked",
            RequestError::UnsupportedExpectation => "expectation other than 100-continue",
            RequestError::BodyTooLarge => "request body too large",
            RequestError::InvalidChunk => "invalid chunk",
        })
    }
}

impl core::error::Error for RequestError {}
