//! An HTTP request with its response, for the access log.

use crate::variable::Record;
use std::net::SocketAddr;

/// A request with its response.
#[derive(Clone, Copy, Debug)]
pub struct HttpRecord<'r> {
    /// The client.
    pub client: SocketAddr,
    /// The request line without its end, or as much of it as was received. The line of an HTTP/2 request is in the form
    /// of HTTP/1.1.
    pub line: &'r [u8],
    /// The field lines.
    pub fields: FieldLines<'r>,
    /// The connection's protocol.
    pub version: HttpVersion,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// The response.
    pub outcome: Outcome,
    /// The server to which the request was passed on; `None` if to none.
    pub upstream: Option<Upstream<'r>>,
    /// The time of writing the line, in milliseconds since 1970.
    pub time_unix_ms: u64,
}

/// Field lines, divided once for all variables of a format.
#[derive(Clone, Copy, Debug)]
pub struct FieldLines<'r> {
    bytes: &'r [u8],
    /// The ends of the first lines.
    ends: [u32; DIVIDED_LINES_MAX],
    count: usize,
}

/// Lines that are divided once. More of them are divided again for each variable.
const DIVIDED_LINES_MAX: usize = 32;

/// A response.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The status code.
    pub status: u16,
    /// Bytes of content that were sent.
    pub content_bytes: u64,
    /// Milliseconds from the request to the end of the response.
    pub duration_ms: u64,
}

/// A server to which a request was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upstream<'r> {
    /// Its address.
    pub address: &'r str,
    /// Milliseconds until the head of its response arrived; `None` if it did not.
    pub header_ms: Option<u64>,
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

/// The longest logged part of a request line that is not HTTP.
const INVALID_LINE_BYTES_MAX: usize = 256;
/// The longest logged part of a target.
const TARGET_BYTES_MAX: usize = 4096;
/// The longest logged part of a field value.
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

    /// Whether the request line is logged as it was received, be it of the form of HTTP or not.
    pub(crate) fn is_short_line(&self) -> bool {
        self.version == HttpVersion::Http1 && self.line.len() <= INVALID_LINE_BYTES_MAX
    }

    /// The start of a request line without three parts.
    pub(crate) fn invalid_line(&self) -> &'r [u8] {
        cut(self.line, INVALID_LINE_BYTES_MAX)
    }

    /// The value of the first field with this name, which is in lower case.
    pub(crate) fn field(&self, name: &[u8]) -> Option<&'r [u8]> {
        let FieldLines { bytes, ends, count } = &self.fields;
        let mut start = 0;
        for end in &ends[..*count] {
            // Most lines are other fields, which one comparison shows.
            if bytes.get(start + name.len()) == Some(&b':')
                && let Some(value) = value_of(name, bytes.get(start..*end as usize)?)
            {
                return Some(value);
            }
            start = *end as usize + 1;
        }
        let rest = bytes[start..].split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        rest.flat_map(|line| value_of(name, line)).next()
    }
}

/// The value in a field line, if the field has this name.
#[inline]
fn value_of<'r>(name: &[u8], line: &'r [u8]) -> Option<&'r [u8]> {
    let has_name = line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name);
    has_name.then(|| cut(line[name.len() + 1..].trim_ascii(), FIELD_BYTES_MAX))
}

impl<'r> FieldLines<'r> {
    /// Divides `bytes`, in which each line ends with a line feed.
    pub fn new(bytes: &'r [u8]) -> FieldLines<'r> {
        let (mut ends, mut count) = ([0; DIVIDED_LINES_MAX], 0);
        for (end, place) in memchr::memchr_iter(b'\n', bytes).zip(&mut ends) {
            *place = end as u32;
            count += 1;
        }
        FieldLines { bytes, ends, count }
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
