//! A response, octets as they come, turned into right or wrong: status, length and every octet of the content.

use crate::outcome::Cause;
use crate::protocol::{Protocol, Taken};
use std::sync::Arc;

/// Octets of the longest head that is read.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Contents of which any is right: each has a bit in [`Stage::Content`].
pub(crate) const CONTENT_COUNT_MAX: usize = 64;

/// One GET, over and over, and the contents of which each answer must be one.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    request: Vec<u8>,
    contents: Arc<[Vec<u8>]>,
}

impl HttpRequest {
    /// A GET of `path`. With `closes` it asks the server to close the connection after the answer (RFC 9112 §9.6).
    pub fn new(host: &str, path: &str, closes: bool, contents: Arc<[Vec<u8>]>) -> HttpRequest {
        let connection = if closes { "Connection: close\r\n" } else { "" };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: losscount\r\n{connection}\r\n");
        HttpRequest { request: request.into_bytes(), contents }
    }
}

/// A response so far.
#[derive(Clone, Debug)]
pub struct HttpAnswer(Stage);

#[derive(Clone, Debug)]
enum Stage {
    /// The octets of a head without its end.
    Head(Vec<u8>),
    Content {
        received_bytes: usize,
        length_bytes: usize,
        closes: bool,
        /// Bit *i* is set while all that has come is the beginning of content *i*.
        candidates: u64,
    },
}

impl Protocol for HttpRequest {
    type Answer = HttpAnswer;
    const SERVER_CLOSES: bool = true;

    fn ask(&mut self, out: &mut Vec<u8>) -> HttpAnswer {
        out.extend_from_slice(&self.request);
        HttpAnswer(Stage::Head(Vec::new()))
    }

    fn take(&mut self, answer: &mut HttpAnswer, bytes: &[u8]) -> Taken {
        let Stage::Head(head) = &mut answer.0 else {
            return take_content(&mut answer.0, &self.contents, bytes);
        };
        // The empty line may have begun with the last octets of the part before.
        let searched_bytes = head.len().saturating_sub(3);
        head.extend_from_slice(bytes);
        let Some(end) = find_empty_line(&head[searched_bytes..]).map(|at| searched_bytes + at + 4) else {
            if head.len() > HEAD_BYTES_MAX {
                return Taken::Wrong(Cause::WrongAnswer, format!("no end of the head in {HEAD_BYTES_MAX} octets"));
            }
            return Taken::More;
        };
        match parse_head(&head[..end]) {
            Err(why) => Taken::Wrong(Cause::WrongAnswer, why),
            Ok(facts) if facts.status != 200 => Taken::Wrong(Cause::WrongStatus, format!("status {}", facts.status)),
            Ok(facts) => {
                let behind = head[end..].to_vec();
                let candidates = candidates_of(&self.contents, facts.length_bytes);
                answer.0 = Stage::Content {
                    received_bytes: 0,
                    length_bytes: facts.length_bytes,
                    closes: facts.closes,
                    candidates,
                };
                take_content(&mut answer.0, &self.contents, &behind)
            }
        }
    }
}

fn candidates_of(contents: &[Vec<u8>], length_bytes: usize) -> u64 {
    let fits = |content: &Vec<u8>| u64::from(content.len() == length_bytes);
    contents.iter().enumerate().fold(0, |bits, (index, content)| bits | fits(content) << index)
}

fn take_content(stage: &mut Stage, contents: &[Vec<u8>], bytes: &[u8]) -> Taken {
    let Stage::Content { received_bytes, length_bytes, closes, candidates } = stage else {
        unreachable!("the caller has seen the end of the head");
    };
    if *candidates == 0 {
        return Taken::Wrong(Cause::WrongContent, format!("{length_bytes} octets, the length of no expected content"));
    }
    let end = *received_bytes + bytes.len();
    if end > *length_bytes {
        let behind_bytes = end - *length_bytes;
        return Taken::Wrong(Cause::WrongContent, format!("{behind_bytes} octets behind the end of the content"));
    }
    for (index, content) in contents.iter().enumerate() {
        if *candidates >> index & 1 == 1 && content[*received_bytes..end] != *bytes {
            *candidates &= !(1 << index);
        }
    }
    if *candidates == 0 {
        let what = format!("octets {received_bytes} to {end} of {length_bytes} are in no expected content");
        return Taken::Wrong(Cause::WrongContent, what);
    }
    *received_bytes = end;
    if end == *length_bytes { Taken::Whole { closes: *closes } } else { Taken::More }
}

fn find_empty_line(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n")
}

struct HeadFacts {
    status: u16,
    length_bytes: usize,
    closes: bool,
}

/// Reads a head with its empty line. It is stricter than a client should be: a static file has one length and no coding.
fn parse_head(head: &[u8]) -> Result<HeadFacts, String> {
    let text = std::str::from_utf8(head).map_err(|_| "the head is not UTF-8".to_owned())?;
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let (version, rest) = status_line.split_once(' ').ok_or_else(|| format!("status line {status_line:?}"))?;
    // RFC 9112 §4: three digits, then a space even when the reason is empty; many servers leave that space out.
    let status = rest.split(' ').next().unwrap_or_default();
    if !matches!(version, "HTTP/1.0" | "HTTP/1.1") || status.len() != 3 || !status.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("status line {status_line:?}"));
    }
    let status = status.parse().map_err(|_| format!("status line {status_line:?}"))?;

    let mut length_bytes = None;
    // RFC 9112 §9.3: a connection persists by default since HTTP/1.1.
    let mut closes = version == "HTTP/1.0";
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("field line {line:?}"))?;
        let value = value.trim_matches([' ', '\t']);
        if name.eq_ignore_ascii_case("content-length") {
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let length = value.parse::<usize>().ok().filter(|_| is_number);
            if length.is_none() || length_bytes.is_some() {
                return Err(format!("{line:?}: not one length"));
            }
            length_bytes = length;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(format!("{line:?}: a file was expected, with its length"));
        } else if name.eq_ignore_ascii_case("connection") {
            let has = |option: &str| value.split(',').any(|part| part.trim().eq_ignore_ascii_case(option));
            closes = has("close") || closes && !has("keep-alive");
        }
    }
    match length_bytes {
        Some(length_bytes) => Ok(HeadFacts { status, length_bytes, closes }),
        // The status tells more than the missing length does.
        None if status != 200 => Ok(HeadFacts { status, length_bytes: 0, closes }),
        None => Err("no Content-Length".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::HttpRequest;
    use crate::outcome::Cause;
    use crate::protocol::{Protocol, Taken};
    use std::sync::Arc;

    const WHOLE: &Taken = &Taken::Whole { closes: false };

    /// What becomes of a response when `abcd` and `abc` are right, octet by octet and all at once.
    #[track_caller]
    fn verdict(response: &str) -> Taken {
        let contents: Arc<[Vec<u8>]> = Arc::new([b"abcd".to_vec(), b"abc".to_vec()]);
        let mut request = HttpRequest::new("h", "/", false, contents);
        let mut answer = request.ask(&mut Vec::new());
        let at_once = request.take(&mut answer, response.as_bytes());

        let mut answer = request.ask(&mut Vec::new());
        let mut last = Taken::More;
        for byte in response.bytes() {
            last = request.take(&mut answer, &[byte]);
            if matches!(last, Taken::Wrong(..)) {
                break;
            }
        }
        let kind = |taken: &Taken| match taken {
            Taken::Wrong(cause, _) => Err(*cause),
            right => Ok(right.clone()),
        };
        assert_eq!(kind(&at_once), kind(&last), "at once and octet by octet");
        at_once
    }

    #[track_caller]
    fn check(response: &str, expected: &Taken) {
        assert_eq!(verdict(response), *expected);
    }

    #[track_caller]
    fn check_wrong(response: &str, expected: Cause) {
        assert!(matches!(verdict(response), Taken::Wrong(cause, _) if cause == expected), "{:?}", verdict(response));
    }

    #[test]
    fn a_content_is_right_when_it_is_one_of_those_expected() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd", WHOLE);
        check("HTTP/1.1 200 OK\r\ncontent-length:3\r\n\r\nabc", WHOLE);
        check("HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc", WHOLE);
    }

    #[test]
    fn a_part_is_more_to_come() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", &Taken::More);
        check("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r", &Taken::More);
    }

    #[test]
    fn a_server_says_close_by_field_or_by_version() {
        let closes = &Taken::Whole { closes: true };
        check("HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 3\r\n\r\nabc", closes);
        check("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", closes);
        check("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc", WHOLE);
    }

    #[test]
    fn wrong_contents() {
        check_wrong("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcx", Cause::WrongContent);
        check_wrong("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", Cause::WrongContent);
        check_wrong("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Cause::WrongContent);
        // The head is right and the first octets too: it is the version of another length that has been mixed in.
        check_wrong("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabx", Cause::WrongContent);
    }

    #[test]
    fn octets_behind_the_end_are_wrong_content() {
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd";
        let mut request = HttpRequest::new("h", "/", false, Arc::new([b"abc".to_vec()]));
        let mut answer = request.ask(&mut Vec::new());
        assert!(matches!(request.take(&mut answer, response), Taken::Wrong(Cause::WrongContent, _)));
    }

    #[test]
    fn wrong_statuses() {
        check_wrong("HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\nabc", Cause::WrongStatus);
        check_wrong("HTTP/1.1 404 No\r\n\r\n", Cause::WrongStatus);
    }

    #[test]
    fn heads_that_are_none() {
        check_wrong("HTTP/1.1 200 OK\r\n\r\nabc", Cause::WrongAnswer);
        check_wrong("HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc", Cause::WrongAnswer);
        check_wrong("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", Cause::WrongAnswer);
        check_wrong("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Cause::WrongAnswer);
        check_wrong("HTTP/2 200\r\nContent-Length: 3\r\n\r\nabc", Cause::WrongAnswer);
        check_wrong("abc\r\n\r\n", Cause::WrongAnswer);
        check_wrong(&"x".repeat(super::HEAD_BYTES_MAX + 1), Cause::WrongAnswer);
    }
}
