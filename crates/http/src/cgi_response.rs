//! The response of a CGI script (RFC 3875 §6), which FastCGI applications send in the same form.

use crate::backend_response::{ParsedResponse, ResponseLimits, parse_head};
use crate::grammar::trim;
use crate::passed_fields::starts_with;
use crate::response_error::ResponseError;
use alloc::vec::Vec;

/// Parses the head at the start of `bytes`, the output of a script. Its lines may end with LF.
///
/// The head is written to `scratch` in the form of HTTP/1.1, so that one parser decides what is valid. The length of
/// the head is that in `bytes`. Content without Content-Length ends with the output: it is
/// [`ResponseFraming::UntilClose`](crate::ResponseFraming::UntilClose). Whether the connection to the application
/// persists is a matter of its protocol.
pub fn parse_cgi_response<'s>(
    bytes: &[u8],
    is_head_request: bool,
    limits: &ResponseLimits,
    scratch: &'s mut Vec<u8>,
) -> Result<ParsedResponse<'s>, ResponseError> {
    let limited = &bytes[..bytes.len().min(limits.head_bytes_max)];
    let Some(head) = Head::find(limited)? else {
        let is_too_long = bytes.len() >= limits.head_bytes_max;
        return if is_too_long { Err(ResponseError::HeadTooLong) } else { Ok(ParsedResponse::Partial) };
    };
    head.write(scratch);
    match parse_head(scratch, is_head_request, limits)? {
        // There are no interim responses, and the output of a script has no transfer coding.
        ParsedResponse::Complete { response, .. } if response.status() < 200 => Err(ResponseError::InvalidStatus),
        ParsedResponse::Complete { response, .. } if response.has_field(b"transfer-encoding") => {
            Err(ResponseError::UnsupportedTransferCoding)
        }
        ParsedResponse::Complete { response, .. } => {
            Ok(ParsedResponse::Complete { response: response.of_script(), head_bytes: head.length_bytes })
        }
        // The written head ends with an empty line.
        ParsedResponse::Partial => Err(ResponseError::InvalidField),
    }
}

/// The head of the output, of which each line ends with LF.
struct Head<'b> {
    /// The lines before the empty one.
    lines: &'b [u8],
    /// The length with the empty line.
    length_bytes: usize,
    /// The value of Status.
    status: Option<&'b [u8]>,
    /// Location is present.
    has_location: bool,
}

impl<'b> Head<'b> {
    /// Finds the head at the start of `bytes`; `None` if it is incomplete.
    fn find(bytes: &'b [u8]) -> Result<Option<Head<'b>>, ResponseError> {
        let mut head = Head { lines: &[], length_bytes: 0, status: None, has_location: false };
        while let Some(line) = next_line(&bytes[head.length_bytes..]) {
            let start = head.length_bytes;
            head.length_bytes += line.len();
            let text = text_of(line);
            if text.is_empty() {
                head.lines = &bytes[..start];
                // RFC 3875 §6.2: a script says at least what type its content has.
                return if start == 0 { Err(ResponseError::InvalidField) } else { Ok(Some(head)) };
            }
            if let Some(value) = status_of(text)
                && head.status.replace(value).is_some()
            {
                return Err(ResponseError::InvalidStatusLine);
            }
            head.has_location |= starts_with(text, b"location:");
        }
        Ok(None)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(b"HTTP/1.1 ");
        // RFC 3875 §6.3.3; a Location without it redirects (§6.2.3).
        let usual: &[u8] = if self.has_location { b"302 Found" } else { b"200 OK" };
        out.extend_from_slice(self.status.unwrap_or(usual));
        out.extend_from_slice(b"\r\n");
        let mut rest = self.lines;
        while let Some(line) = next_line(rest) {
            rest = &rest[line.len()..];
            if status_of(text_of(line)).is_none() {
                out.extend_from_slice(text_of(line));
                out.extend_from_slice(b"\r\n");
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The line at the start of `bytes`, with its LF.
fn next_line(bytes: &[u8]) -> Option<&[u8]> {
    memchr::memchr(b'\n', bytes).map(|end| &bytes[..=end])
}

/// A line without its end.
fn text_of(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The value of Status, if this is its line.
fn status_of(text: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"status:";
    starts_with(text, NAME).then(|| trim(&text[NAME.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend_response::ResponseFraming;
    use alloc::string::String;
    use alloc::vec;

    const LIMITS: ResponseLimits = ResponseLimits { head_bytes_max: 200, field_count_max: 4 };

    /// The status line and the fields in the form of HTTP/1.1, and the framing; each prefix is incomplete, or refused.
    #[track_caller]
    fn parse(text: &str) -> Result<(String, ResponseFraming), ResponseError> {
        let (bytes, mut scratch) = (text.as_bytes(), vec![]);
        for end in 0..bytes.len() {
            let parsed = parse_cgi_response(&bytes[..end], false, &LIMITS, &mut scratch);
            assert!(!matches!(parsed, Ok(ParsedResponse::Complete { .. })), "{end} of {text:?}");
        }
        let with_content = [bytes, b"Status: 500\n\n"].concat();
        let (response, head_bytes) = match parse_cgi_response(&with_content, false, &LIMITS, &mut scratch)? {
            ParsedResponse::Complete { response, head_bytes } => (response, head_bytes),
            ParsedResponse::Partial => panic!("incomplete: {text:?}"),
        };
        assert_eq!(head_bytes, bytes.len());
        assert!(response.persists());
        let framing = response.framing();
        let text = String::from_utf8(scratch).expect("UTF-8").replace("\r\n", "\n");
        Ok((text.strip_suffix("\n\n").expect("an empty line").into(), framing))
    }

    #[track_caller]
    fn check(text: &str, expected: &str, framing: ResponseFraming) {
        assert_eq!(parse(text), Ok((expected.into(), framing)));
    }

    #[test]
    fn status_is_that_of_the_script_or_follows_from_location() {
        let until_close = ResponseFraming::UntilClose;
        check("Content-Type: text/html\n\n", "HTTP/1.1 200 OK\nContent-Type: text/html", until_close);
        check("X: 1\r\nstatus:404 Not Found\r\nY: 2\r\n\r\n", "HTTP/1.1 404 Not Found\nX: 1\nY: 2", until_close);
        check("Status: 503\n\n", "HTTP/1.1 503", until_close);
        check("Location: /a\n\n", "HTTP/1.1 302 Found\nLocation: /a", until_close);
        check("Location: /a\nStatus: 201 Created\n\n", "HTTP/1.1 201 Created\nLocation: /a", until_close);
        check("Status: 304 x\n\r\n", "HTTP/1.1 304 x", ResponseFraming::None);
        let with_length = "HTTP/1.1 200 OK\nA: b\nContent-Length: 5";
        check("A: b\r\nContent-Length: 5\n\n", with_length, ResponseFraming::Length(5));
    }

    #[test]
    fn invalid_heads_are_refused() {
        for (text, error) in [
            ("\n", ResponseError::InvalidField),
            ("\r\n", ResponseError::InvalidField),
            ("<html>\n\n", ResponseError::InvalidField),
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\n", ResponseError::InvalidField),
            ("A: b\n folded\n\n", ResponseError::InvalidField),
            ("A : b\n\n", ResponseError::InvalidField),
            ("A: b\rC: d\n\n", ResponseError::InvalidLine),
            ("A: b\r\r\n\n", ResponseError::InvalidLine),
            ("A: b\0\n\n", ResponseError::InvalidLine),
            ("Status: 200 O\rK\n\n", ResponseError::InvalidLine),
            ("Status: 200\nStatus: 404\n\n", ResponseError::InvalidStatusLine),
            ("Status: OK\n\n", ResponseError::InvalidStatusLine),
            ("Status:\n\n", ResponseError::InvalidStatusLine),
            ("Status: 999\n\n", ResponseError::InvalidStatus),
            ("Status: 100 Continue\n\n", ResponseError::InvalidStatus),
            ("Status: 101 x\nUpgrade: websocket\n\n", ResponseError::InvalidStatus),
            ("Transfer-Encoding: chunked\n\n", ResponseError::UnsupportedTransferCoding),
            ("Status: 304\nTransfer-Encoding: chunked\n\n", ResponseError::UnsupportedTransferCoding),
            ("Content-Length: 1\nContent-Length: 1\n\n", ResponseError::InvalidContentLength),
            ("A: 1\nA: 1\nA: 1\nA: 1\nA: 1\n\n", ResponseError::TooManyFields),
        ] {
            assert_eq!(parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn head_has_the_limit_of_other_responses() {
        let head = |value_bytes| [&b"A: "[..], &vec![b'a'; value_bytes], b"\n\n"].concat();
        let check = |bytes: &[u8], is_ok| {
            let parsed = parse_cgi_response(bytes, false, &LIMITS, &mut vec![]).map(|_| ());
            assert_eq!(parsed, if is_ok { Ok(()) } else { Err(ResponseError::HeadTooLong) });
        };
        check(&head(LIMITS.head_bytes_max - 5), true);
        check(&head(LIMITS.head_bytes_max - 4), false);
    }
}
