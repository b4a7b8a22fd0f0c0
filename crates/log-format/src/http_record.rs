//! One request of HTTP with its response, as the access log has it.

use crate::variable::Record;
use std::net::SocketAddr;

/// One request with its response.
#[derive(Clone, Copy, Debug)]
pub struct HttpRecord<'r> {
    /// The client.
    pub client: SocketAddr,
    /// The request line without its end, or as much of it as was received. That of a request of HTTP/2 is in the form of
    /// HTTP/1.1.
    pub line: &'r [u8],
    /// The field lines, each with its end.
    pub fields: &'r [u8],
    /// The protocol of the connection.
    pub version: HttpVersion,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// The response.
    pub outcome: Outcome,
    /// When the line is written, in milliseconds since 1970.
    pub time_unix_ms: u64,
}

/// A response.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The status code.
    pub status: u16,
    /// Bytes of content that were sent.
    pub content_bytes: u64,
    /// Milliseconds that sending the response has taken.
    pub duration_ms: u64,
}

/// The version of HTTP of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0 or HTTP/1.1, as the request line says.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The parts of a request line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestLine<'r> {
    pub(crate) method: &'r [u8],
    pub(crate) target: &'r [u8],
    pub(crate) version: &'r [u8],
}

/// Bytes of a request line that is not of the form of HTTP, as far as it is logged.
const INVALID_LINE_BYTES_MAX: usize = 256;
/// Bytes of a target, as far as it is logged.
const TARGET_BYTES_MAX: usize = 4096;
/// Bytes of the value of a field, as far as it is logged.
const FIELD_BYTES_MAX: usize = 1024;

impl<'r> HttpRecord<'r> {
    /// The parts of the request line; `None` if it has not three of them.
    pub(crate) fn request_parts(&self) -> Option<RequestLine<'r>> {
        let line = self.line;
        let (first, last) = (memchr::memchr(b' ', line)?, memchr::memrchr(b' ', line)?);
        let version = match self.version {
            HttpVersion::Http1 => &line[last + 1..],
            HttpVersion::Http2 => b"HTTP/2.0",
        };
        (first < last && version.starts_with(b"HTTP/")).then(|| RequestLine {
            method: &line[..first],
            target: cut(&line[first + 1..last], TARGET_BYTES_MAX),
            version,
        })
    }

    /// The start of a request line without three parts.
    pub(crate) fn invalid_line(&self) -> &'r [u8] {
        cut(self.line, INVALID_LINE_BYTES_MAX)
    }

    /// The value of the first field with this name, which is in lower case.
    pub(crate) fn field(&self, name: &[u8]) -> Option<&'r [u8]> {
        let mut rest = self.fields;
        loop {
            let line_end = memchr::memchr(b'\n', rest)?;
            if rest.len() > name.len() && rest[name.len()] == b':' && rest[..name.len()].eq_ignore_ascii_case(name) {
                return Some(cut(rest[name.len() + 1..line_end].trim_ascii(), FIELD_BYTES_MAX));
            }
            rest = &rest[line_end + 1..];
        }
    }
}

impl Record for HttpRecord<'_> {
    fn client(&self) -> SocketAddr {
        self.client
    }

    fn time_unix_ms(&self) -> u64 {
        self.time_unix_ms
    }
}

fn cut(bytes: &[u8], bytes_max: usize) -> &[u8] {
    &bytes[..bytes.len().min(bytes_max)]
}
