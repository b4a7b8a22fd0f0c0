//! Status codes, with the start of their heads and their HTML pages.

use crate::date::DATE_BYTES;

/// One row per status: the variant, the code, the reason phrase of RFC 9110 §15, and the text of its page, which is
/// empty for a status without a page.
macro_rules! statuses {
    ($($(#[$doc:meta])* $variant:ident = $code:literal, $reason:literal, $text:literal;)*) => {
        /// A status code (RFC 9110 §15).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Status {
            $($(#[$doc])* $variant = $code,)*
        }

        impl Status {
            /// The status line and the first fields of each head, with a date of 1970 at [`Status::date_start`]. The
            /// version of the server, not of the request (RFC 9110 §6.2).
            pub(crate) const fn start(self) -> &'static [u8] {
                match self {
                    $(Status::$variant => start!($code, $reason).as_bytes(),)*
                }
            }

            /// The reason phrase of its status line (RFC 9110 §15).
            pub fn reason(self) -> &'static str {
                match self {
                    $(Status::$variant => $reason,)*
                }
            }

            /// The code with its reason phrase, on a line: the page for a terminal.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Status::$variant => concat!($code, " ", $reason, "\n"),)*
                }
            }

            /// An HTML page without other resources.
            pub(crate) const fn page(self) -> &'static [u8] {
                match self {
                    $(Status::$variant => page!($code, $reason, $text).as_bytes(),)*
                }
            }

            /// The head of a response with the HTML page, with a date of 1970, including its last empty line.
            pub(crate) fn page_head(self) -> &'static [u8] {
                match self {
                    $(Status::$variant => {
                        const PARTS: [&[u8]; PAGE_HEAD_PART_COUNT] = page_head_parts(
                            Status::$variant,
                            &digits(Status::$variant.page().len()),
                            b"\r\nContent-Type: text/html; charset=utf-8\r\n",
                        );
                        static HEAD: [u8; total_bytes(&PARTS)] = concatenated(&PARTS);
                        &HEAD
                    })*
                }
            }

            /// The same with the text page.
            pub(crate) fn text_page_head(self) -> &'static [u8] {
                match self {
                    $(Status::$variant => {
                        const PARTS: [&[u8]; PAGE_HEAD_PART_COUNT] = page_head_parts(
                            Status::$variant,
                            &digits(Status::$variant.text().len()),
                            b"\r\nContent-Type: text/plain; charset=utf-8\r\n",
                        );
                        static HEAD: [u8; total_bytes(&PARTS)] = concatenated(&PARTS);
                        &HEAD
                    })*
                }
            }
        }
    };
}

/// The first lines of each head.
macro_rules! start {
    ($code:literal, $reason:literal) => {
        concat!("HTTP/1.1 ", $code, " ", $reason, "\r\nServer: sanderling\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n")
    };
}

/// The template of all pages.
macro_rules! page {
    ($code:literal, $reason:literal, $text:literal) => {
        concat!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
            "<title>", $code, " ", $reason, "</title>\n<style>\n",
            ":root { color-scheme: light dark }\n",
            "body { font: 1.1rem/1.6 system-ui, sans-serif; max-width: 34rem; margin: 18vh auto 0; padding: 0 1.5rem }\n",
            "h1 { font-size: 1.6rem; font-weight: 600; margin: 0 }\n",
            "h1 b { font-weight: 200; font-size: 4rem; display: block; line-height: 1.1 }\n",
            "p { opacity: .8 }\n",
            "</style>\n</head>\n<body>\n<h1><b>", $code, "</b> ", $reason, "</h1>\n<p>", $text,
            "</p>\n</body>\n</html>\n",
        )
    };
}

statuses! {
    /// The file.
    Ok = 200, "OK", "";
    /// For OPTIONS.
    NoContent = 204, "No Content", "";
    /// A range of the file.
    PartialContent = 206, "Partial Content", "";
    /// The path of a directory lacks the slash at its end, or a rule redirects.
    MovedPermanently = 301, "Moved Permanently",
        "This page has another address. Your browser should have been redirected.";
    /// A rule redirects.
    Found = 302, "Found",
        "This page has another address at the moment. Your browser should have been redirected.";
    /// A rule redirects; the client must use GET.
    SeeOther = 303, "See Other",
        "The answer has another address. Your browser should have been redirected.";
    /// The client's copy is valid.
    NotModified = 304, "Not Modified", "";
    /// A rule redirects, and the method stays.
    TemporaryRedirect = 307, "Temporary Redirect",
        "This page has another address at the moment. Your browser should have been redirected.";
    /// The resource has another URL, or is served over HTTPS only.
    PermanentRedirect = 308, "Permanent Redirect",
        "This page has another address. Your browser should have been redirected.";
    /// The request is invalid.
    BadRequest = 400, "Bad Request",
        "The server could not understand the request. If you typed the address, check it for typing errors.";
    /// A name and a password are missing or wrong.
    Unauthorized = 401, "Unauthorized",
        "This page needs a name and a password. If you have them, load the page again.";
    /// The file may not be read.
    Forbidden = 403, "Forbidden",
        "The server cannot read this file. If you run this site, check the permissions of the file and its \
            directories.";
    /// The file does not exist.
    NotFound = 404, "Not Found",
        "There is no page at this address. Check the address, or go to the <a href=\"/\">front page</a>.";
    /// Files do not support the method.
    MethodNotAllowed = 405, "Method Not Allowed",
        "This page does not support the request method. Use GET or HEAD.";
    /// A rule says that the resource was removed.
    Gone = 410, "Gone",
        "This page was removed. Go to the <a href=\"/\">front page</a>.";
    /// A rule says that the resource may not be shown.
    UnavailableForLegalReasons = 451, "Unavailable For Legal Reasons",
        "This page cannot be shown for legal reasons.";
    /// The request was not complete in time.
    RequestTimeout = 408, "Request Timeout",
        "The request took too long to arrive. Please try again.";
    /// The length of the request body is not known before its end.
    LengthRequired = 411, "Length Required",
        "The request does not say how long its body is, which the application behind this page has to know.";
    /// A precondition is false.
    PreconditionFailed = 412, "Precondition Failed",
        "The file has changed since you loaded it. Reload it and try again.";
    /// The request body exceeds its limit.
    ContentTooLarge = 413, "Content Too Large",
        "The request body is larger than this server accepts.";
    /// The request target exceeds its limit.
    UriTooLong = 414, "URI Too Long",
        "The address is too long. Shorten the part after the question mark, if there is one.";
    /// The content of the request has another type than the resource takes.
    UnsupportedMediaType = 415, "Unsupported Media Type",
        "The content of the request has a type that this server does not support here.";
    /// The range is beyond the end of the file.
    RangeNotSatisfiable = 416, "Range Not Satisfiable",
        "The requested range is beyond the end of the file. Request the whole file.";
    /// Expect is not 100-continue.
    ExpectationFailed = 417, "Expectation Failed",
        "This server does not support the expectation of the request. Send it without the Expect field.";
    /// No site has the host, or the certificate of the connection is not valid for it.
    MisdirectedRequest = 421, "Misdirected Request",
        "This server has no site, or no certificate, for this host name. Check it, or the address that DNS returns for it.";
    /// The client makes too many requests.
    TooManyRequests = 429, "Too Many Requests",
        "There were too many requests from your network. Please wait a moment, and try again.";
    /// The request head exceeds its limits.
    RequestHeaderFieldsTooLarge = 431, "Request Header Fields Too Large",
        "The request header is too large. Deleting the cookies of this site usually helps.";
    /// An error of the server.
    InternalServerError = 500, "Internal Server Error",
        "An error occurred on the server. Please try again later. If you run this site, check the log.";
    /// Unknown method or transfer coding.
    NotImplemented = 501, "Not Implemented",
        "This server does not support the method or the transfer coding of the request. Use GET or HEAD.";
    /// A backend cannot be reached, or its response is invalid.
    BadGateway = 502, "Bad Gateway", "";
    /// A limit of the server is reached.
    ServiceUnavailable = 503, "Service Unavailable",
        "This site is unavailable at the moment. Please try again in a few seconds.";
    /// A backend does not respond in time.
    GatewayTimeout = 504, "Gateway Timeout", "";
    /// The major version is not 1.
    HttpVersionNotSupported = 505, "HTTP Version Not Supported",
        "This server does not support the HTTP version of the request. Use HTTP/1.1.";
}

impl Status {
    /// The code as a number.
    pub fn code(self) -> u16 {
        self as u16
    }

    /// Offset of the date in [`Status::start`].
    pub(crate) fn date_start(self) -> usize {
        self.start().len() - DATE_BYTES - b"\r\n".len()
    }

    /// The fields that the status requires.
    const fn extra_fields(self) -> &'static [u8] {
        match self {
            // RFC 9110 §15.5.6.
            Status::MethodNotAllowed => ALLOW,
            Status::ServiceUnavailable => b"Retry-After: 5\r\n",
            _ => b"",
        }
    }
}

/// Of a resource that answers DNS queries (RFC 8484 §4.1).
pub(crate) const ALLOW_OF_DNS: &[u8] = b"Allow: GET, HEAD, POST\r\n";
pub(crate) const ALLOW: &[u8] = b"Allow: GET, HEAD, OPTIONS\r\n";

const PAGE_HEAD_PART_COUNT: usize = 7;

const fn page_head_parts<'a>(
    status: Status,
    length_digits: &'a (usize, [u8; 3]),
    content_type: &'static [u8],
) -> [&'a [u8]; PAGE_HEAD_PART_COUNT] {
    let (leading_zeros, digits) = length_digits;
    [
        status.start(),
        b"Content-Length: ",
        digits.split_at(*leading_zeros).1,
        content_type,
        // RFC 9110 §12.5.5: the format of the page depends on Accept.
        b"X-Content-Type-Options: nosniff\r\nVary: Accept\r\n",
        status.extra_fields(),
        b"\r\n",
    ]
}

/// Formats the length of a page: three digits, and how many of them are leading zeros.
const fn digits(number: usize) -> (usize, [u8; 3]) {
    assert!(number <= 999, "a page has less than 1000 bytes");
    let leading_zeros = (number < 100) as usize + (number < 10) as usize;
    (leading_zeros, [b'0' + (number / 100) as u8, b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8])
}

const fn total_bytes(parts: &[&[u8]]) -> usize {
    let (mut total, mut index) = (0, 0);
    while index < parts.len() {
        total += parts[index].len();
        index += 1;
    }
    total
}

/// Concatenates the parts; `BYTES` is their total length.
const fn concatenated<const BYTES: usize>(parts: &[&[u8]]) -> [u8; BYTES] {
    let mut whole = [0; BYTES];
    let mut rest: &mut [u8] = &mut whole;
    let mut index = 0;
    while index < parts.len() {
        let (start, after) = rest.split_at_mut(parts[index].len());
        start.copy_from_slice(parts[index]);
        rest = after;
        index += 1;
    }
    whole
}
