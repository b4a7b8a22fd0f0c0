//! The HTTP protocol of the load: one GET, and the contents that are correct responses to it.

use crate::outcome::Cause;
use crate::streams::{Protocol, Verdict};
use std::sync::Arc;

/// Bytes of the longest accepted head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Fields of a head.
const FIELD_COUNT_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct HttpProtocol {
    request: Vec<u8>,
    contents: Arc<[Vec<u8>]>,
}

impl HttpProtocol {
    /// A GET of `path`, whose response must be one of `contents`. With `closes` the server is asked to close the
    /// connection after the response (RFC 9112 §9.6).
    pub(crate) fn new(host: &str, path: &str, closes: bool, contents: Arc<[Vec<u8>]>) -> HttpProtocol {
        let connection = if closes { "Connection: close\r\n" } else { "" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: loadgen\r\n{connection}\r\n");
        HttpProtocol { request: request.into_bytes(), contents }
    }
}

#[derive(Default)]
pub(crate) struct HttpResponse {
    received: Vec<u8>,
    /// The response ends as soon as it is complete.
    head: Option<Head>,
}

impl Protocol for HttpProtocol {
    type Response = HttpResponse;
    const SERVER_CLOSES: bool = true;

    fn request(&self) -> (Vec<u8>, HttpResponse) {
        (self.request.clone(), HttpResponse::default())
    }

    fn receive(&self, response: &mut HttpResponse, bytes: &[u8]) -> Verdict {
        let HttpResponse { received, head } = response;
        received.extend_from_slice(bytes);
        if head.is_none() {
            match parse_head(received) {
                Ok(parsed) => *head = parsed,
                Err(detail) => return Verdict::Lost(Cause::BadResponse, detail),
            }
        }
        match head {
            None => Verdict::Incomplete,
            Some(Head { status: 200, head_bytes, length_bytes, closes, .. }) => {
                self.check_content(&received[*head_bytes..], *length_bytes, *closes)
            }
            Some(Head { status, .. }) => Verdict::Lost(Cause::WrongStatus, format!("status {status}")),
        }
    }
}

impl HttpProtocol {
    fn check_content(&self, received: &[u8], length_bytes: usize, closes: bool) -> Verdict {
        let received_bytes = received.len();
        let is_expected = |content: &Vec<u8>| content.len() == length_bytes && content.starts_with(received);
        if !self.contents.iter().any(is_expected) {
            let detail = format!("{received_bytes} of {length_bytes} bytes differ from each expected content");
            Verdict::Lost(Cause::WrongContent, detail)
        } else if received_bytes == length_bytes {
            Verdict::Correct { closes }
        } else {
            Verdict::Incomplete
        }
    }
}

pub(crate) struct Head {
    pub(crate) head_bytes: usize,
    pub(crate) status: u16,
    pub(crate) length_bytes: usize,
    pub(crate) entity_tag: Option<String>,
    closes: bool,
}

/// Parses a head; `None` when it is incomplete. This is stricter than other clients: a static file has exactly one
/// length and no transfer coding.
pub(crate) fn parse_head(bytes: &[u8]) -> Result<Option<Head>, String> {
    let mut fields = [httparse::EMPTY_HEADER; FIELD_COUNT_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let head_bytes = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) if bytes.len() > HEAD_BYTES_MAX => {
            return Err(format!("no end of the head within {HEAD_BYTES_MAX} bytes"));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("malformed head: {error}")),
    };
    let status = response.code.expect("a complete head has a status");
    let (mut length_bytes, mut entity_tag) = (None, None);
    // RFC 9112 §9.3: connections persist by default since HTTP/1.1.
    let mut closes = response.version == Some(0);
    for field in response.headers.iter() {
        let value = std::str::from_utf8(field.value).map_err(|_| format!("{} is not UTF-8", field.name))?;
        if field.name.eq_ignore_ascii_case("content-length") {
            let length = value.parse().ok().filter(|_| value.bytes().all(|byte| byte.is_ascii_digit()));
            if length.is_none() || length_bytes.is_some() {
                return Err(format!("Content-Length {value:?} is malformed or repeated"));
            }
            length_bytes = length;
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(format!("Transfer-Encoding {value:?} instead of Content-Length"));
        } else if field.name.eq_ignore_ascii_case("etag") {
            entity_tag = Some(value.to_owned());
        } else if field.name.eq_ignore_ascii_case("connection") {
            let has = |option: &str| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(option));
            closes = has("close") || closes && !has("keep-alive");
        }
    }
    // A status other than 200 explains more than a missing length.
    match length_bytes.or((status != 200).then_some(0)) {
        Some(length_bytes) => Ok(Some(Head { head_bytes, status, length_bytes, entity_tag, closes })),
        None => Err("no Content-Length".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORRECT: Verdict = Verdict::Correct { closes: false };

    /// The verdict on a response when `abcd` and `abc` are correct; the same in one piece and byte by byte.
    #[track_caller]
    fn verdict(response: &str) -> Result<Verdict, Cause> {
        let contents: Arc<[Vec<u8>]> = Arc::new([b"abcd".to_vec(), b"abc".to_vec()]);
        let receive = |parts: &mut dyn Iterator<Item = &[u8]>| {
            let protocol = HttpProtocol::new("h", "/", false, Arc::clone(&contents));
            let (_, mut response) = protocol.request();
            let mut last = Ok(Verdict::Incomplete);
            for part in parts {
                last = match protocol.receive(&mut response, part) {
                    Verdict::Lost(cause, _) => return Err(cause),
                    verdict => Ok(verdict),
                };
            }
            last
        };
        let at_once = receive(&mut std::iter::once(response.as_bytes()));
        assert_eq!(at_once, receive(&mut response.as_bytes().chunks(1)), "in one piece and byte by byte");
        at_once
    }

    #[track_caller]
    fn check(response: &str, expected: &Result<Verdict, Cause>) {
        assert_eq!(verdict(response), *expected, "{response:?}");
    }

    #[test]
    fn each_expected_content_is_correct() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd", &Ok(CORRECT));
        check("HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nabc", &Ok(CORRECT));
        check("HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc", &Ok(CORRECT));
    }

    #[test]
    fn part_of_a_response_is_incomplete() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", &Ok(Verdict::Incomplete));
        check("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r", &Ok(Verdict::Incomplete));
    }

    #[test]
    fn connection_close_is_announced_by_field_or_version() {
        let closes = &Ok(Verdict::Correct { closes: true });
        check("HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 3\r\n\r\nabc", closes);
        check("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", closes);
        check("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc", &Ok(CORRECT));
    }

    #[test]
    fn other_content_or_length_is_wrong_content() {
        for (length, content) in [(4, "abcx"), (5, "abcde"), (0, ""), (3, "abx")] {
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{content}");
            check(&response, &Err(Cause::WrongContent));
        }
        let protocol = HttpProtocol::new("h", "/", false, Arc::new([b"abc".to_vec()]));
        let (_, mut response) = protocol.request();
        let verdict = protocol.receive(&mut response, b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd");
        assert!(matches!(verdict, Verdict::Lost(Cause::WrongContent, _)), "a byte after the end");
    }

    #[test]
    fn malformed_heads_are_bad_responses() {
        for fields in ["", "Content-Length: +3", "Content-Length: 3\r\nContent-Length: 3", "Transfer-Encoding: chunked"]
        {
            let separator = if fields.is_empty() { "" } else { "\r\n" };
            check(&format!("HTTP/1.1 200 OK\r\n{fields}{separator}\r\n"), &Err(Cause::BadResponse));
        }
        check("HTTP/1.1 404 No\r\n\r\n", &Err(Cause::WrongStatus));
        check("HTTP/2 200\r\nContent-Length: 3\r\n\r\nabc", &Err(Cause::BadResponse));
        check("abc\r\n\r\n", &Err(Cause::BadResponse));
        check(&format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(HEAD_BYTES_MAX)), &Err(Cause::BadResponse));
    }
}
