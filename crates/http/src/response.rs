//! A decided response into the bytes of its head, and what follows them.

use alloc::vec::Vec;

use crate::date::HttpDate;
use crate::grammar::{PATH, class};
use crate::range::Part;
use crate::representation::{Representation, put_fmt};
use crate::request::Persistence;
use crate::site_path::SitePath;
use crate::status::{ALLOW, Status};

/// The answer to one request.
#[derive(Clone, Copy, Debug)]
pub struct Response<'r> {
    pub(crate) head: Head<'r>,
    pub(crate) persistence: Persistence,
    /// Whether the content is kept back, as HEAD asks (RFC 9110 §9.3.2).
    pub(crate) is_head_only: bool,
}

/// The kinds of head that there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Head<'r> {
    /// 200
    Whole(&'r Representation),
    /// 206
    Part(&'r Representation, Part),
    /// 304
    NotModified(&'r Representation),
    /// 416
    Unsatisfiable(&'r Representation),
    /// 301 to the same path with a slash behind it.
    Redirect { path: &'r SitePath<'r>, query: Option<&'r [u8]> },
    /// 204
    Options,
    /// Any status that is told by its page.
    Page(Status),
}

/// What follows the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing.
    Empty,
    /// A page of ours.
    Page(&'static [u8]),
    /// These bytes of the file, at least one.
    File {
        /// Where in the file they start.
        start_bytes: u64,
        /// How many they are.
        length_bytes: u64,
    },
}

impl Response<'_> {
    /// A page about `status`, behind which the connection closes: for bytes that are no request (with
    /// [`RequestError::status`](crate::RequestError::status)) and for what goes wrong outside of any, such as
    /// [`Status::RequestTimeout`].
    pub fn error(status: Status) -> Response<'static> {
        Response { head: Head::Page(status), persistence: Persistence::Close, is_head_only: false }
    }

    /// The same response, with the connection closing behind it: when the server drains, or had enough of the peer.
    #[must_use]
    pub fn with_connection_close(self) -> Self {
        Response { persistence: Persistence::Close, ..self }
    }

    /// Its status.
    pub fn status(&self) -> Status {
        match self.head {
            Head::Whole(_) => Status::Ok,
            Head::Part(..) => Status::PartialContent,
            Head::NotModified(_) => Status::NotModified,
            Head::Unsatisfiable(_) => Status::RangeNotSatisfiable,
            Head::Redirect { .. } => Status::MovedPermanently,
            Head::Options => Status::NoContent,
            Head::Page(status) => status,
        }
    }

    /// Whether the connection goes on behind it.
    pub fn persistence(&self) -> Persistence {
        self.persistence
    }

    /// What is to be sent behind the head.
    pub fn body(&self) -> Body {
        if self.is_head_only {
            return Body::Empty;
        }
        match self.head {
            Head::Whole(file) if file.length_bytes() == 0 => Body::Empty,
            Head::Whole(file) => Body::File { start_bytes: 0, length_bytes: file.length_bytes() },
            Head::Part(_, Part { start_bytes, length_bytes }) => Body::File { start_bytes, length_bytes },
            Head::NotModified(_) | Head::Options => Body::Empty,
            Head::Unsatisfiable(_) | Head::Redirect { .. } | Head::Page(_) => Body::Page(self.status().page()),
        }
    }

    /// Appends the head, its last empty line included. Allocates only when `out` has no room left.
    pub fn write_head(&self, date: &HttpDate, out: &mut Vec<u8>) {
        match self.head {
            // The usual answers are copies of what was made before, when the file was opened or the program built, with
            // the date put in its place.
            Head::Whole(file) => put_dated(Status::Ok, file.head(), date, out),
            Head::Page(status) => put_dated(status, status.page_head(), date, out),
            Head::NotModified(file) => {
                put_dated(Status::NotModified, Status::NotModified.start(), date, out);
                out.extend_from_slice(file.validator());
            }
            Head::Part(file, part) => {
                put_dated(Status::PartialContent, Status::PartialContent.start(), date, out);
                let (first, behind) = (part.start_bytes, part.start_bytes + part.length_bytes);
                put_number(b"Content-Length: ", part.length_bytes, out);
                put_number(b"\r\nContent-Range: bytes ", first, out);
                put_number(b"-", behind - 1, out);
                put_number(b"/", file.length_bytes(), out);
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(file.description());
                out.extend_from_slice(END);
            }
            Head::Unsatisfiable(file) => {
                put_page_fields(Status::RangeNotSatisfiable, date, out);
                // RFC 9110 §14.4: so that the client learns how long the file is.
                put_number(b"Content-Range: bytes */", file.length_bytes(), out);
                out.extend_from_slice(b"\r\n\r\n");
            }
            Head::Redirect { path, query } => {
                put_page_fields(Status::MovedPermanently, date, out);
                put_location(path, query, out);
                out.extend_from_slice(END);
            }
            Head::Options => {
                put_dated(Status::NoContent, Status::NoContent.start(), date, out);
                out.extend_from_slice(ALLOW);
                out.extend_from_slice(END);
            }
        }
        self.tell_persistence(out);
    }

    /// Puts a field behind the others where the peer cannot know whether the connection goes on.
    #[inline]
    fn tell_persistence(&self, out: &mut Vec<u8>) {
        let field: &[u8] = match self.persistence {
            Persistence::Persist => return,
            Persistence::KeepAlive => b"Connection: keep-alive\r\n",
            Persistence::Close => b"Connection: close\r\n",
        };
        out.truncate(out.len() - END.len());
        out.extend_from_slice(field);
        out.extend_from_slice(END);
    }
}

/// The empty line behind the fields.
const END: &[u8] = b"\r\n";

/// The head of the page about `status`, for more fields to follow.
fn put_page_fields(status: Status, date: &HttpDate, out: &mut Vec<u8>) {
    put_dated(status, status.page_head(), date, out);
    out.truncate(out.len() - END.len());
}

/// A ready-made head of `status`, or the start of one, with `date` in the place of the one that it has.
#[inline]
fn put_dated(status: Status, head: &[u8], date: &HttpDate, out: &mut Vec<u8>) {
    let start = out.len() + status.date_start();
    out.extend_from_slice(head);
    let date = date.as_bytes();
    out[start..start + date.len()].copy_from_slice(date);
}

/// `before` and a number behind it; several times as fast as the formatting of `core`, which a ranged answer needs four
/// times.
fn put_number(before: &[u8], number: u64, out: &mut Vec<u8>) {
    const DIGIT_COUNT_MAX: usize = 20;
    let mut digits = [0; DIGIT_COUNT_MAX];
    let mut start = DIGIT_COUNT_MAX;
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(before);
    out.extend_from_slice(&digits[start..]);
}

/// A path only, so that the answer is right behind any name, port and scheme.
///
/// It is built from the path that was found, encoded anew: it never starts with two slashes, as no segment is empty,
/// and holds nothing that could end the line or name another host. The query was checked when the target was parsed.
fn put_location(path: &SitePath<'_>, query: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"Location: ");
    for segment in path.as_bytes().split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()) {
        out.push(b'/');
        for &byte in segment {
            if class(byte) & PATH != 0 {
                out.push(byte);
            } else {
                put_fmt(out, format_args!("%{byte:02X}"));
            }
        }
    }
    out.push(b'/');
    if let Some(query) = query {
        out.push(b'?');
        out.extend_from_slice(query);
    }
    out.extend_from_slice(b"\r\n");
}
