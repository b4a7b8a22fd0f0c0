//! Errors of the response of a backend that breaks the protocol or exceeds a limit.

use crate::request_error::RequestError;
use core::fmt;

/// Why the response of a backend is refused. The end of the response is unknown, so the connection to the backend
/// closes. The text is a sentence without its full stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseError {
    /// The first line is not `HTTP/1.x SP status [ SP reason ] CRLF` (RFC 9112 §4).
    InvalidStatusLine,
    /// The version is not 1.0 or 1.1.
    UnsupportedVersion,
    /// The status is below 100 or above 599 (RFC 9110 §15).
    InvalidStatus,
    /// A line does not end with CRLF, or has a control byte in it (RFC 9112 §2.2, RFC 9110 §5.5).
    InvalidLine,
    /// A field line is not `name: value`, or is folded (RFC 9112 §5).
    InvalidField,
    /// More fields than [`ResponseLimits::field_count_max`](crate::ResponseLimits::field_count_max).
    TooManyFields,
    /// The head is longer than [`ResponseLimits::head_bytes_max`](crate::ResponseLimits::head_bytes_max).
    HeadTooLong,
    /// Content-Length is not one plain decimal number (RFC 9112 §6.3).
    InvalidContentLength,
    /// Transfer-Encoding with Content-Length, or in HTTP/1.0 (RFC 9112 §6.1, §6.3).
    AmbiguousFraming,
    /// Transfer-Encoding is not `chunked` (RFC 9112 §6.1).
    UnsupportedTransferCoding,
    /// An interim response announces content (RFC 9110 §15.2).
    UnexpectedContent,
    /// More interim responses (1xx) than any backend needs before its final one.
    TooManyInterimResponses,
    /// A 101 does not name one protocol (RFC 9110 §15.2.2).
    MissingUpgrade,
    /// A 101 to a request that does not ask for another protocol (RFC 9110 §15.2.2).
    UnexpectedUpgrade,
    /// A chunk has an invalid size, extension, line end or trailer, or one that exceeds its bound (RFC 9112 §7.1).
    InvalidChunk,
}

impl From<RequestError> for ResponseError {
    /// The same error of field lines or chunks, which both kinds of message have.
    fn from(error: RequestError) -> ResponseError {
        match error {
            RequestError::InvalidLine => ResponseError::InvalidLine,
            RequestError::TooManyFields => ResponseError::TooManyFields,
            RequestError::HeadTooLong => ResponseError::HeadTooLong,
            RequestError::InvalidChunk | RequestError::BodyTooLarge => ResponseError::InvalidChunk,
            _ => ResponseError::InvalidField,
        }
    }
}

impl fmt::Display for ResponseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ResponseError::InvalidStatusLine => "the status line is invalid",
            ResponseError::UnsupportedVersion => "the HTTP version is neither 1.0 nor 1.1",
            ResponseError::InvalidStatus => "the status is not between 100 and 599",
            ResponseError::InvalidLine => "a line of the head has a control byte, or does not end with CRLF",
            ResponseError::InvalidField => "a field line is invalid",
            ResponseError::TooManyFields => "the head has too many fields",
            ResponseError::HeadTooLong => "the head is too long",
            ResponseError::InvalidContentLength => "Content-Length is repeated, or is not a number",
            ResponseError::AmbiguousFraming => "Transfer-Encoding is present with Content-Length, or in HTTP/1.0",
            ResponseError::UnsupportedTransferCoding => "Transfer-Encoding is not chunked",
            ResponseError::UnexpectedContent => "an interim response announces content",
            ResponseError::TooManyInterimResponses => "too many interim responses",
            ResponseError::MissingUpgrade => "the status is 101, but Upgrade does not name one protocol",
            ResponseError::UnexpectedUpgrade => "the status is 101, but the request does not ask for an upgrade",
            ResponseError::InvalidChunk => "a chunk is invalid",
        })
    }
}

impl core::error::Error for ResponseError {}
