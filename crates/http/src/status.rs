//! A status code into what its answers begin with, and into the page that tells a person about it.

use crate::date::DATE_BYTES;

/// One row a status: the variant, the code, the reason phrase of RFC 9110 §15, and what a person is told; a status
/// whose answer never carries a page is told nothing.
macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $reason:literal, $advice:literal;)*) => {
        /// A status that this program answers with (RFC 9110 §15).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Status {
            $($(#[$doc])* $variant = $code,)*
        }

        impl Status {
            /// All of them, by code.
            pub const ALL: &'static [Status] = &[$(Status::$variant,)*];

            /// The reason phrase.
            pub fn reason(self) -> &'static str {
                match self {
                    $(Status::$variant => $reason,)*
                }
            }

            /// The status line and the first fields of every head, with a date of 1970 as the last of them, whose place
            /// [`Status::date_start`] tells. The version is always our own (RFC 9110 §6.2).
            pub(crate) const fn start(self) -> &'static [u8] {
                match self {
                    $(Status::$variant => start!($code, $reason).as_bytes(),)*
                }
            }

            /// A page in HTML that needs no other file.
            pub(crate) const fn page(self) -> &'static [u8] {
                match self {
                    $(Status::$variant => page!($code, $reason, $advice).as_bytes(),)*
                }
            }

            /// The head of the answer that is this page, with a date of 1970, and with its last empty line. HEAD gets
            /// the length that GET would: the page's, not that of what is sent.
            pub(crate) fn page_head(self) -> &'static [u8] {
                match self {
                    $(Status::$variant => {
                        const PARTS: [&[u8]; PAGE_HEAD_PART_COUNT] = page_head_parts(
                            Status::$variant,
                            &three_digits(Status::$variant.page().len()),
                        );
                        static HEAD: [u8; total_bytes(&PARTS)] = joined(&PARTS);
                        &HEAD
                    })*
                }
            }
        }
    };
}

/// The first lines of every head.
macro_rules! start {
    ($code:literal, $reason:literal) => {
        concat!("HTTP/1.1 ", $code, " ", $reason, "\r\nServer: sanderling\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n")
    };
}

/// The one template of all pages.
macro_rules! page {
    ($code:literal, $reason:literal, $advice:literal) => {
        concat!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
            "<title>", $code, " ", $reason, "</title>\n<style>\n",
            ":root { color-scheme: light dark }\n",
            "body { font: 1.1rem/1.6 system-ui, sans-serif; max-width: 34rem; margin: 18vh auto 0; padding: 0 1.5rem }\n",
            "h1 { font-size: 1.6rem; font-weight: 600; margin: 0 }\n",
            "h1 b { font-weight: 200; font-size: 4rem; display: block; line-height: 1.1 }\n",
            "p { opacity: .8 }\n",
            "</style>\n</head>\n<body>\n<h1><b>", $code, "</b> ", $reason, "</h1>\n<p>", $advice,
            "</p>\n</body>\n</html>\n",
        )
    };
}

statuses! {
    /// The whole file.
    Ok = 200, "OK", "";
    /// There is nothing to send: the answer to OPTIONS.
    NoContent = 204, "No Content", "";
    /// The part of the file that was asked for.
    PartialContent = 206, "Partial Content", "";
    /// A folder was asked for without the slash at its end.
    MovedPermanently = 301, "Moved Permanently",
        "This is a folder: its address ends with a slash. Your browser should have gone there by itself.";
    /// What the client has is still right.
    NotModified = 304, "Not Modified", "";
    /// The request breaks a rule of the protocol.
    BadRequest = 400, "Bad Request",
        "The request could not be understood. If you typed the address, check it for stray characters.";
    /// The file is there and may not be read.
    Forbidden = 403, "Forbidden",
        "This file may not be read. If the site is yours, check the permissions of the file and of its folders.";
    /// There is no such file.
    NotFound = 404, "Not Found",
        "There is nothing at this address. Check its spelling, or start from <a href=\"/\">the front page</a>.";
    /// The method is known, but not for files.
    MethodNotAllowed = 405, "Method Not Allowed",
        "This address can only be read: use GET or HEAD.";
    /// The request did not come in time.
    RequestTimeout = 408, "Request Timeout",
        "The request took too long to arrive. Please try again.";
    /// A condition of the request does not hold.
    PreconditionFailed = 412, "Precondition Failed",
        "The file has changed since you last saw it. Load it again, then repeat what you did.";
    /// The content of the request is longer than we are ready to throw away.
    ContentTooLarge = 413, "Content Too Large",
        "The request carries more content than this server accepts. Send it without content.";
    /// The target of the request is longer than we are ready to read.
    UriTooLong = 414, "URI Too Long",
        "The address is too long. Shorten what follows the question mark, if there is one.";
    /// The part asked for lies outside the file.
    RangeNotSatisfiable = 416, "Range Not Satisfiable",
        "The part that was asked for lies beyond the end of the file. Ask for the whole file.";
    /// An expectation other than 100-continue.
    ExpectationFailed = 417, "Expectation Failed",
        "The request expects something that this server does not do. Send it without its Expect field.";
    /// The host is none of ours.
    MisdirectedRequest = 421, "Misdirected Request",
        "This server does not answer for the host name that was asked for. Check the name, or where it points to.";
    /// The head of the request is longer, or has more fields, than we are ready to read.
    RequestHeaderFieldsTooLarge = 431, "Request Header Fields Too Large",
        "The request's header is too large. Deleting the cookies of this site usually helps.";
    /// Something broke on our side.
    InternalServerError = 500, "Internal Server Error",
        "Something went wrong on the server. Please try again later; if the site is yours, look into its log.";
    /// A method that we do not know, or a transfer coding.
    NotImplemented = 501, "Not Implemented",
        "The request uses a method or a transfer coding that this server does not know. Use GET or HEAD.";
    /// We are at one of our limits.
    ServiceUnavailable = 503, "Service Unavailable",
        "The server is busy at the moment. Please try again in a few seconds.";
    /// Another major version than 1.
    HttpVersionNotSupported = 505, "HTTP Version Not Supported",
        "The request is in a version of HTTP that this address does not speak. Use HTTP/1.1.";
}

impl Status {
    /// The three digits.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// Where in [`Status::start`] the date stands.
    pub(crate) fn date_start(self) -> usize {
        self.start().len() - DATE_BYTES - b"\r\n".len()
    }

    /// The fields that a status needs besides those of its page.
    const fn own_fields(self) -> &'static [u8] {
        match self {
            // RFC 9110 §15.5.6.
            Status::MethodNotAllowed => ALLOW,
            // RFC 9110 §10.2.3: in seconds.
            Status::ServiceUnavailable => b"Retry-After: 5\r\n",
            _ => b"",
        }
    }
}

/// What may be done with a file.
pub(crate) const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";

const PAGE_HEAD_PART_COUNT: usize = 6;

const fn page_head_parts(status: Status, length_digits: &[u8]) -> [&[u8]; PAGE_HEAD_PART_COUNT] {
    [
        status.start(),
        b"Content-Length: ",
        length_digits,
        b"\r\nContent-Type: text/html; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n",
        status.own_fields(),
        b"\r\n",
    ]
}

/// The length of a page, which has as many digits as all of them.
const fn three_digits(number: usize) -> [u8; 3] {
    assert!(100 <= number && number <= 999, "a page has three digits of octets");
    [b'0' + (number / 100) as u8, b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8]
}

const fn total_bytes(parts: &[&[u8]]) -> usize {
    let (mut total, mut index) = (0, 0);
    while index < parts.len() {
        total += parts[index].len();
        index += 1;
    }
    total
}

/// All parts, one behind the other; `BYTES` is their total.
const fn joined<const BYTES: usize>(parts: &[&[u8]]) -> [u8; BYTES] {
    let mut whole = [0; BYTES];
    let mut rest: &mut [u8] = &mut whole;
    let mut index = 0;
    while index < parts.len() {
        let (place, behind) = rest.split_at_mut(parts[index].len());
        place.copy_from_slice(parts[index]);
        rest = behind;
        index += 1;
    }
    whole
}
