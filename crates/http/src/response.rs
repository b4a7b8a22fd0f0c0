//! Writes the head of a response, and describes its body.

use alloc::vec::Vec;

use crate::content_coding::ContentCoding;
use crate::date::HttpDate;
use crate::grammar::{URL_PATH, class};
use crate::multipart::{Multipart, put_content_range};
use crate::output::{put_fmt, put_number};
use crate::range::ByteRange;
use crate::representation::Representation;
use crate::request::{Method, Persistence, Request};
use crate::site_path::SitePath;
use crate::status::{ALLOW, ALLOW_OF_DNS, Status};
use crate::target::Target;

/// The response to one request.
#[derive(Clone, Copy, Debug)]
pub struct Response<'r> {
    pub(crate) head: Head<'r>,
    pub(crate) persistence: Persistence,
    /// Whether the body is omitted, as for HEAD (RFC 9110 §9.3.2).
    pub(crate) is_head_only: bool,
}

/// The status of a response with the data that its head needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head<'r> {
    /// 200
    Full(&'r Representation),
    /// 206
    Partial(&'r Representation, ByteRange),
    /// 206 with several ranges.
    Multipart(Multipart<'r>),
    /// 304
    NotModified(&'r Representation),
    /// 304 to a client that has the representation in this coding, which is made of the file.
    NotModifiedAs(ContentCoding, &'r Representation),
    /// 416
    RangeNotSatisfiable(&'r Representation, PageFormat),
    /// 301 or 308 to another URL of the same file.
    Redirect { path: &'r SitePath<'r>, url: CanonicalUrl, query: Option<&'r [u8]> },
    /// A redirect to this URL.
    Location(Status, &'r [u8]),
    /// An error with a file as its page.
    FilePage(Status, &'r Representation),
    /// 308 to the same host, path and query over HTTPS.
    HttpsRedirect { request: &'r Request<'r>, port: u16 },
    /// 204
    Options,
    /// 204, of a resource that answers DNS queries.
    DnsOptions,
    /// 200 with a DNS message.
    DnsMessage { length_bytes: usize, max_age_s: u32 },
    /// 200 with this text.
    Text(&'r [u8]),
    /// 405 of a resource that answers DNS queries.
    DnsMethodNotAllowed(PageFormat),
    /// 429
    TooManyRequests { retry_after_s: u64, format: PageFormat },
    /// Any other status, with its page.
    StatusPage(Status, PageFormat),
}

/// The URL of a file whose path was requested otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CanonicalUrl {
    /// With a slash at its end: it is a directory.
    WithSlash,
    /// Without the slash at its end: it is a file.
    WithoutSlash,
    /// Without its extension, what follows the last dot.
    WithoutExtension,
    /// The URL of the directory whose index the file is.
    OfDirectory,
}

/// The format of the page of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageFormat {
    Html,
    Text,
}

impl PageFormat {
    /// HTML for browsers, which name its type in Accept, and for clients without that field; text for programs.
    #[cold]
    pub(crate) fn accepted_by(request: &Request<'_>) -> PageFormat {
        PageFormat::accepted_in(request.fields.lines().1)
    }

    /// The same for the received part of a request, which may be malformed.
    #[cold]
    fn accepted_in(received: &[u8]) -> PageFormat {
        const ACCEPT: &[u8] = b"accept:";
        let mut format = PageFormat::Html;
        let mut rest = received;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end + 1);
            rest = after;
            // Few fields begin with this letter.
            if line[0] | 0x20 == b'a'
                && let Some((name, value)) = line.split_at_checked(ACCEPT.len())
                && name.eq_ignore_ascii_case(ACCEPT)
            {
                if names_html(value) {
                    return PageFormat::Html;
                }
                format = PageFormat::Text;
            }
        }
        format
    }

    fn page(self, status: Status) -> &'static [u8] {
        match self {
            PageFormat::Html => status.page(),
            PageFormat::Text => status.text().as_bytes(),
        }
    }

    fn media_type(self) -> &'static [u8] {
        match self {
            PageFormat::Html => b"text/html; charset=utf-8",
            PageFormat::Text => b"text/plain; charset=utf-8",
        }
    }
}

/// The body of a response.
#[derive(Clone, Copy, Debug)]
pub enum Body<'r> {
    /// No body.
    Empty,
    /// The HTML page of a status.
    StatusPage(&'static [u8]),
    /// These bytes of the file that [`respond`](crate::respond) was given; at least one.
    File {
        /// Offset of the first byte.
        start_bytes: u64,
        /// Number of bytes.
        length_bytes: u64,
    },
    /// Several parts of that file.
    Multipart(Multipart<'r>),
    /// The message of [`Response::dns_message`].
    DnsMessage,
    /// The text of [`Response::text`].
    Text(&'r [u8]),
}

impl<'r> Response<'r> {
    /// The page of `status`, after which the connection closes. For [`RequestError`](crate::RequestError)s, and for
    /// errors without a request such as [`Status::RequestTimeout`]. `received`: the received part of the request.
    pub fn error(status: Status, received: &[u8]) -> Response<'static> {
        let head = Head::StatusPage(status, PageFormat::accepted_in(received));
        Response { head, persistence: Persistence::Close, is_head_only: false }
    }

    /// The response to a DNS query in `request`: a message of `length_bytes`, which may be cached for `max_age_s` (RFC
    /// 8484 §5.1).
    pub fn dns_message(request: &Request<'r>, length_bytes: usize, max_age_s: u32) -> Response<'r> {
        Response::of(request, Head::DnsMessage { length_bytes, max_age_s })
    }

    /// The response with `text`, which is plain and must not be cached.
    pub fn text(request: &Request<'r>, text: &'r [u8]) -> Response<'r> {
        Response::of(request, Head::Text(text))
    }

    /// The response to a `request` without a DNS query, for which `status` is from [`dns_query`](crate::dns_query).
    pub fn dns_error(request: &Request<'r>, status: Status) -> Response<'r> {
        let head = match status {
            Status::NoContent => Head::DnsOptions,
            Status::MethodNotAllowed => Head::DnsMethodNotAllowed(PageFormat::accepted_by(request)),
            _ => Head::StatusPage(status, PageFormat::accepted_by(request)),
        };
        Response::of(request, head)
    }

    /// The redirection of `request`, of any method, to HTTPS at `port`; `None` if it has no host or no path.
    pub fn https_redirect(request: &'r Request<'r>, port: u16) -> Option<Response<'r>> {
        let is_possible = request.host.is_some() && matches!(request.target, Target::Path { .. });
        is_possible.then(|| Response::of(request, Head::HttpsRedirect { request, port }))
    }

    /// The redirection of `request`, of any method, to `location`, which has no byte that ends the line.
    pub fn redirect(request: &Request<'r>, status: Status, location: &'r [u8]) -> Response<'r> {
        debug_assert!(!location.iter().any(u8::is_ascii_control));
        Response::of(request, Head::Location(status, location))
    }

    /// The page of `status`, which does not depend on a file.
    pub fn status_page(request: &Request<'r>, status: Status) -> Response<'r> {
        Response::of(request, Head::StatusPage(status, PageFormat::accepted_by(request)))
    }

    /// The response with the whole file instead of several ranges, whose parts have the type of the file (RFC 9110
    /// §14.2 permits it).
    #[must_use]
    pub fn without_parts(self) -> Self {
        let head = match self.head {
            Head::Multipart(multipart) => Head::Full(multipart.file()),
            other => other,
        };
        Response { head, ..self }
    }

    /// The error `status` with the file of the response as its page, or with the built-in page if there is no file. A
    /// response that says that the server has failed stays.
    #[must_use]
    pub fn with_error(self, status: Status) -> Self {
        let head = match self.head {
            Head::Full(file)
            | Head::Partial(file, _)
            | Head::NotModified(file)
            | Head::NotModifiedAs(_, file)
            | Head::FilePage(_, file)
            | Head::RangeNotSatisfiable(file, _) => Head::FilePage(status, file),
            Head::Multipart(multipart) => Head::FilePage(status, multipart.file()),
            // The file is not there.
            Head::Redirect { .. } => Head::StatusPage(status, PageFormat::Html),
            Head::StatusPage(Status::NotFound | Status::Forbidden | Status::PreconditionFailed, format) => {
                Head::StatusPage(status, format)
            }
            other => other,
        };
        Response { head, ..self }
    }

    /// The response to a request for a host that the connection is not for (RFC 9110 §7.4), whatever its method.
    pub fn misdirected(request: &Request<'r>) -> Response<'r> {
        Response::of(request, Head::StatusPage(Status::MisdirectedRequest, PageFormat::accepted_by(request)))
    }

    /// The response to a client that makes too many requests, and may make another one after `retry_after_s` (RFC 6585
    /// §4).
    pub fn too_many_requests(request: &Request<'r>, retry_after_s: u64) -> Response<'r> {
        Response::of(request, Head::TooManyRequests { retry_after_s, format: PageFormat::accepted_by(request) })
    }

    fn of(request: &Request<'r>, head: Head<'r>) -> Response<'r> {
        Response { head, persistence: request.persistence, is_head_only: request.method == Method::Head }
    }

    /// The same response, after which the connection closes.
    #[must_use]
    pub fn with_connection_close(self) -> Self {
        Response { persistence: Persistence::Close, ..self }
    }

    /// The status.
    pub fn status(&self) -> Status {
        match self.head {
            Head::Full(_) | Head::DnsMessage { .. } | Head::Text(_) => Status::Ok,
            Head::Partial(..) | Head::Multipart(_) => Status::PartialContent,
            Head::NotModified(_) | Head::NotModifiedAs(..) => Status::NotModified,
            Head::RangeNotSatisfiable(..) => Status::RangeNotSatisfiable,
            Head::Redirect { url: CanonicalUrl::WithSlash, .. } => Status::MovedPermanently,
            Head::Redirect { .. } => Status::PermanentRedirect,
            Head::Location(status, _) | Head::FilePage(status, _) => status,
            Head::HttpsRedirect { .. } => Status::PermanentRedirect,
            Head::Options | Head::DnsOptions => Status::NoContent,
            Head::DnsMethodNotAllowed(_) => Status::MethodNotAllowed,
            Head::TooManyRequests { .. } => Status::TooManyRequests,
            Head::StatusPage(status, _) => status,
        }
    }

    /// Whether the connection persists after the response.
    pub fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// The content to send after the head.
    pub fn body(&self) -> Body<'r> {
        if self.is_head_only {
            return Body::Empty;
        }
        match self.head {
            Head::Full(file) | Head::FilePage(_, file) if file.length_bytes() == 0 => Body::Empty,
            Head::Full(file) | Head::FilePage(_, file) => {
                Body::File { start_bytes: 0, length_bytes: file.length_bytes() }
            }
            Head::Partial(_, ByteRange { start_bytes, length_bytes }) => Body::File { start_bytes, length_bytes },
            Head::Multipart(multipart) => Body::Multipart(multipart),
            Head::NotModified(_) | Head::NotModifiedAs(..) | Head::Options | Head::DnsOptions => Body::Empty,
            Head::DnsMessage { .. } => Body::DnsMessage,
            Head::Text(text) => Body::Text(text),
            Head::StatusPage(_, format)
            | Head::TooManyRequests { format, .. }
            | Head::RangeNotSatisfiable(_, format)
            | Head::DnsMethodNotAllowed(format) => Body::StatusPage(format.page(self.status())),
            Head::Redirect { .. } | Head::Location(..) | Head::HttpsRedirect { .. } => {
                Body::StatusPage(self.status().page())
            }
        }
    }

    /// Appends the head, including its last empty line, to `out`. Allocates only if `out` has too little capacity.
    pub fn write_head(&self, date: &HttpDate, out: &mut Vec<u8>) {
        match self.head {
            // Fast path: a copy of a head made when the file was opened or at compile time, with the current date.
            Head::Full(file) => put_dated(Status::Ok, file.head(), date, out),
            Head::StatusPage(status, PageFormat::Html) => put_dated(status, status.page_head(), date, out),
            Head::StatusPage(status, PageFormat::Text) => put_dated(status, status.text_page_head(), date, out),
            Head::NotModified(file) => {
                put_dated(Status::NotModified, Status::NotModified.start(), date, out);
                out.extend_from_slice(file.not_modified_fields());
            }
            Head::NotModifiedAs(coding, file) => {
                put_dated(Status::NotModified, Status::NotModified.start(), date, out);
                file.put_not_modified_fields(coding, out);
            }
            Head::Partial(file, range) => {
                put_dated(Status::PartialContent, Status::PartialContent.start(), date, out);
                put_number(b"Content-Length: ", range.length_bytes, out);
                out.extend_from_slice(CRLF);
                put_content_range(range, file, out);
                out.extend_from_slice(CRLF);
                out.extend_from_slice(file.content_fields());
                out.extend_from_slice(CRLF);
            }
            Head::Multipart(multipart) => {
                put_dated(Status::PartialContent, Status::PartialContent.start(), date, out);
                multipart.write_fields(out);
                out.extend_from_slice(CRLF);
            }
            Head::RangeNotSatisfiable(file, format) => {
                put_page_fields(Status::RangeNotSatisfiable, format, date, out);
                // RFC 9110 §14.4: the client learns the length of the file.
                put_number(b"Content-Range: bytes */", file.length_bytes(), out);
                out.extend_from_slice(b"\r\n\r\n");
            }
            Head::Redirect { path, url, query } => {
                put_page_fields(self.status(), PageFormat::Html, date, out);
                put_location(path, url, query, out);
                out.extend_from_slice(CRLF);
            }
            Head::Location(status, location) => {
                put_page_fields(status, PageFormat::Html, date, out);
                out.extend_from_slice(b"Location: ");
                out.extend_from_slice(location);
                out.extend_from_slice(b"\r\n\r\n");
            }
            Head::FilePage(status, file) => {
                put_dated(status, status.start(), date, out);
                put_number(b"Content-Length: ", file.length_bytes(), out);
                out.extend_from_slice(CRLF);
                file.put_page_fields(out);
                out.extend_from_slice(CRLF);
            }
            Head::HttpsRedirect { request, port } => {
                put_page_fields(Status::PermanentRedirect, PageFormat::Html, date, out);
                put_https_location(request, port, out);
                out.extend_from_slice(CRLF);
            }
            Head::Options => {
                put_dated(Status::NoContent, Status::NoContent.start(), date, out);
                out.extend_from_slice(ALLOW);
                out.extend_from_slice(CRLF);
            }
            Head::DnsOptions => {
                put_dated(Status::NoContent, Status::NoContent.start(), date, out);
                out.extend_from_slice(ALLOW_OF_DNS);
                out.extend_from_slice(CRLF);
            }
            Head::DnsMessage { length_bytes, max_age_s } => {
                put_dated(Status::Ok, Status::Ok.start(), date, out);
                put_number(b"Content-Length: ", length_bytes as u64, out);
                out.extend_from_slice(b"\r\nContent-Type: application/dns-message\r\n");
                put_number(b"Cache-Control: max-age=", u64::from(max_age_s), out);
                out.extend_from_slice(b"\r\n\r\n");
            }
            Head::TooManyRequests { retry_after_s, format } => {
                put_page_fields(Status::TooManyRequests, format, date, out);
                put_number(b"Retry-After: ", retry_after_s, out);
                out.extend_from_slice(b"\r\n\r\n");
            }
            Head::Text(text) => {
                put_dated(Status::Ok, Status::Ok.start(), date, out);
                put_number(b"Content-Length: ", text.len() as u64, out);
                out.extend_from_slice(
                    b"\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n\r\n",
                );
            }
            Head::DnsMethodNotAllowed(format) => {
                let status = Status::MethodNotAllowed;
                put_dated(status, status.start(), date, out);
                put_number(b"Content-Length: ", format.page(status).len() as u64, out);
                out.extend_from_slice(b"\r\nContent-Type: ");
                out.extend_from_slice(format.media_type());
                out.extend_from_slice(b"\r\nVary: Accept\r\n");
                out.extend_from_slice(ALLOW_OF_DNS);
                out.extend_from_slice(CRLF);
            }
        }
        self.put_connection_field(out);
    }

    /// Appends Connection where its default does not hold (RFC 9112 §9.3).
    #[inline]
    fn put_connection_field(&self, out: &mut Vec<u8>) {
        let field: &[u8] = match self.persistence {
            Persistence::Persist => return,
            Persistence::KeepAlive => b"Connection: keep-alive\r\n",
            Persistence::Close => b"Connection: close\r\n",
        };
        put_field_lines(field, out);
    }
}

/// Whether a value of Accept has the type `text/html`.
fn names_html(value: &[u8]) -> bool {
    memchr::memchr_iter(b'/', value).any(|at| {
        let (before, after) = (&value[..at], &value[at + 1..]);
        before.last_chunk::<4>().is_some_and(|text| text.eq_ignore_ascii_case(b"text"))
            && after.first_chunk::<4>().is_some_and(|html| html.eq_ignore_ascii_case(b"html"))
    })
}

/// Adds field lines, each with its CRLF, to the head at the end of `out`.
#[inline]
pub fn put_field_lines(lines: &[u8], out: &mut Vec<u8>) {
    out.truncate(out.len() - CRLF.len());
    out.extend_from_slice(lines);
    out.extend_from_slice(CRLF);
}

const CRLF: &[u8] = b"\r\n";
/// The port that a URL of HTTPS need not have.
const HTTPS_PORT: u16 = 443;

/// Appends the head of the page of `status`, without its last empty line.
fn put_page_fields(status: Status, format: PageFormat, date: &HttpDate, out: &mut Vec<u8>) {
    let head = match format {
        PageFormat::Html => status.page_head(),
        PageFormat::Text => status.text_page_head(),
    };
    put_dated(status, head, date, out);
    out.truncate(out.len() - CRLF.len());
}

/// Appends a prepared head of `status`, or the start of one, and overwrites its date.
#[inline]
fn put_dated(status: Status, head: &[u8], date: &HttpDate, out: &mut Vec<u8>) {
    let start = out.len() + status.date_start();
    out.extend_from_slice(head);
    let date = date.as_bytes();
    out[start..start + date.len()].copy_from_slice(date);
}

/// Appends Location with a path only, which is valid with any host, port and scheme, also behind a proxy.
fn put_location(path: &SitePath<'_>, url: CanonicalUrl, query: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Location: ");
    put_canonical_path(path, url, out);
    if let Some(query) = query {
        out.push(b'?');
        put_received(query, out);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a path or a query of a request. Bytes that no URL may have, but clients send anyway, are percent-encoded.
fn put_received(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'"' | b'#' | b'<' | b'>' | 0x80.. => put_fmt(out, format_args!("%{byte:02X}")),
            byte => out.push(byte),
        }
    }
}

/// Appends the path of the URL of a file that was requested as `path`. It is encoded from the decoded [`SitePath`]: it
/// never starts with two slashes, which would name a host, as no segment is empty, and cannot end the line.
pub fn put_canonical_path(path: &SitePath<'_>, url: CanonicalUrl, out: &mut Vec<u8>) {
    let path = path.as_bytes();
    let end_of = |byte: u8| memchr::memrchr(byte, path);
    let (path, ends_with_slash) = match url {
        CanonicalUrl::WithSlash => (path, true),
        CanonicalUrl::WithoutSlash => (path, false),
        CanonicalUrl::WithoutExtension => (&path[..end_of(b'.').unwrap_or(path.len())], false),
        CanonicalUrl::OfDirectory => (&path[..end_of(b'/').unwrap_or(0)], true),
    };
    for segment in path.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()) {
        out.push(b'/');
        put_path_segment(segment, out);
    }
    if ends_with_slash {
        out.push(b'/');
    }
}

/// Appends a decoded segment of a path with the percent-encoding that a URL needs (RFC 3986 §2.1).
pub fn put_path_segment(segment: &[u8], out: &mut Vec<u8>) {
    for &byte in segment {
        if class(byte) & URL_PATH != 0 && byte != b'/' {
            out.push(byte);
        } else {
            put_fmt(out, format_args!("%{byte:02X}"));
        }
    }
}

/// Appends Location with the host, path and query of `request`. As the host is followed by a slash, no path names
/// another one.
fn put_https_location(request: &Request<'_>, port: u16, out: &mut Vec<u8>) {
    let (Some(host), Target::Path { path, query }) = (request.host, request.target) else { return };
    out.extend_from_slice(b"Location: https://");
    out.extend_from_slice(host.name);
    if port != HTTPS_PORT {
        put_number(b":", u64::from(port), out);
    }
    put_received(path, out);
    if let Some(query) = query {
        out.push(b'?');
        put_received(query, out);
    }
    out.extend_from_slice(CRLF);
}
