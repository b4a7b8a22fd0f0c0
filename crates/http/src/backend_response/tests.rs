//! Tests of parsing and writing the heads of responses.

use super::*;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;

const LIMITS: ResponseLimits = ResponseLimits { head_bytes_max: 300, field_count_max: 5 };
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn head(lines: &str) -> String {
    format!("{lines}\n").replace('\n', "\r\n")
}

/// The response to a request, HEAD or not; each prefix is incomplete, or refused like the whole.
#[track_caller]
fn parse(bytes: &[u8], is_head_request: bool) -> Result<BackendResponse<'_>, ResponseError> {
    for end in 0..bytes.len() {
        match parse_response(&bytes[..end], is_head_request, &LIMITS) {
            Ok(ParsedResponse::Partial) => {}
            Ok(_) => panic!("complete at {end}: {}", bytes.escape_ascii()),
            Err(error) => {
                assert_eq!(parse_response(bytes, is_head_request, &LIMITS).err(), Some(error));
                return Err(error);
            }
        }
    }
    match parse_response(bytes, is_head_request, &LIMITS)? {
        ParsedResponse::Complete { response, head_bytes } => {
            assert_eq!(head_bytes, bytes.len());
            Ok(response)
        }
        ParsedResponse::Partial => panic!("incomplete: {}", bytes.escape_ascii()),
    }
}

/// The framing of the content, and whether the connection persists.
#[track_caller]
fn check(lines: &str, expected: (ResponseFraming, bool)) {
    let head = head(lines);
    let response = parse(head.as_bytes(), false).expect(lines);
    assert_eq!((response.framing(), response.persists()), expected, "{lines}");
}

#[track_caller]
fn check_refused(bytes: &[u8], expected: ResponseError) {
    assert_eq!(parse(bytes, false).map(|_| ()), Err(expected), "{}", bytes.escape_ascii());
}

#[test]
fn status_line_has_a_version_and_a_status() {
    for (line, status) in [
        ("HTTP/1.1 200 OK", 200),
        ("HTTP/1.0 404 ", 404),
        ("HTTP/1.1 503", 503),
        ("HTTP/1.1 599 r\u{e9}ason\t; x", 599),
        ("HTTP/1.1 100 Continue", 100),
    ] {
        assert_eq!(parse(head(&format!("{line}\n")).as_bytes(), false).expect(line).status(), status);
    }
    for (line, error) in [
        ("HTTP/1.1 099 x", ResponseError::InvalidStatus),
        ("HTTP/1.1 600 x", ResponseError::InvalidStatus),
        ("HTTP/1.1 999 x", ResponseError::InvalidStatus),
        ("HTTP/1.2 200 OK", ResponseError::UnsupportedVersion),
        ("HTTP/2.0 200 OK", ResponseError::UnsupportedVersion),
        ("HTTP/1.1 20 OK", ResponseError::InvalidStatusLine),
        ("HTTP/1.1 2000 OK", ResponseError::InvalidStatusLine),
        ("HTTP/1.1 +20 OK", ResponseError::InvalidStatusLine),
        ("HTTP/1.1  200 OK", ResponseError::InvalidStatusLine),
        ("HTTP/1.1 200\tOK", ResponseError::InvalidStatusLine),
        ("HTTP/1.1", ResponseError::InvalidStatusLine),
        ("HTTP/1.1 200 O\u{0}K", ResponseError::InvalidLine),
        ("HTTP/1.1 200 O\rK", ResponseError::InvalidLine),
    ] {
        check_refused(format!("{line}\r\n\r\n").as_bytes(), error);
    }
}

/// nginx passes them on as HTTP/0.9.
#[test]
fn other_text_than_http_is_refused_at_its_first_byte() {
    for bytes in [&b"2"[..], b"<html>", b"\r\nHTTP/1.1 200 OK\r\n\r\n", b"http/1.1 200 OK\r\n\r\n", b"\0"] {
        check_refused(bytes, ResponseError::InvalidStatusLine);
    }
}

#[test]
fn framing_is_by_status_then_by_fields() {
    check("HTTP/1.1 200 OK\nContent-Length: 3\n", (ResponseFraming::Length(3), true));
    check("HTTP/1.1 200 OK\nContent-Length: 0\n", (ResponseFraming::Length(0), true));
    check("HTTP/1.1 200 OK\nContent-Length: 18446744073709551615\n", (ResponseFraming::Length(u64::MAX), true));
    check("HTTP/1.1 200 OK\nTransfer-Encoding: Chunked\n", (ResponseFraming::Chunked, true));
    check("HTTP/1.1 200 OK\n", (ResponseFraming::UntilClose, false));
    check("HTTP/1.0 200 OK\nConnection: keep-alive\n", (ResponseFraming::UntilClose, false));
    check("HTTP/1.1 304 x\nContent-Length: 3\n", (ResponseFraming::None, true));
    check("HTTP/1.1 304 x\nTransfer-Encoding: chunked\n", (ResponseFraming::None, true));
    check("HTTP/1.1 204 x\n", (ResponseFraming::None, true));
    check("HTTP/1.1 204 x\nContent-Length: 0\n", (ResponseFraming::None, true));
    check("HTTP/1.1 103 x\n", (ResponseFraming::None, true));
    // The backend may send what it announces.
    check("HTTP/1.1 204 x\nContent-Length: 3\n", (ResponseFraming::None, false));
    check("HTTP/1.1 204 x\nTransfer-Encoding: chunked\n", (ResponseFraming::None, false));
}

#[test]
fn response_to_head_has_no_content_but_its_length() {
    for (fields, length) in [("Content-Length: 3\n", Some(3)), ("Transfer-Encoding: chunked\n", None), ("", None)] {
        let head = head(&format!("HTTP/1.1 200 OK\n{fields}"));
        let response = parse(head.as_bytes(), true).expect(fields);
        assert_eq!(response.framing(), ResponseFraming::None);
        assert_eq!(response.content_length(), length);
        assert!(response.persists());
    }
    let not_modified = head("HTTP/1.1 304 x\nContent-Length: 3\n");
    assert_eq!(parse(not_modified.as_bytes(), false).expect("valid").content_length(), Some(3));
}

#[test]
fn persistence_is_by_version_and_connection() {
    let length = ResponseFraming::Length(1);
    check("HTTP/1.1 200 OK\nContent-Length: 1\nConnection: x, CLOSE\n", (length, false));
    check("HTTP/1.0 200 OK\nContent-Length: 1\n", (length, false));
    check("HTTP/1.0 200 OK\nContent-Length: 1\nConnection: Keep-Alive\n", (length, true));
}

#[test]
fn ambiguous_framing_is_refused() {
    for (fields, error) in [
        ("Content-Length: 3\nTransfer-Encoding: chunked\n", ResponseError::AmbiguousFraming),
        ("Transfer-Encoding: chunked\nContent-Length: 3\n", ResponseError::AmbiguousFraming),
        ("Transfer-Encoding: gzip, chunked\n", ResponseError::UnsupportedTransferCoding),
        ("Transfer-Encoding: chunked, gzip\n", ResponseError::UnsupportedTransferCoding),
        ("Transfer-Encoding: identity\n", ResponseError::UnsupportedTransferCoding),
        ("Transfer-Encoding: \x0bchunked\n", ResponseError::InvalidLine),
        ("Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n", ResponseError::UnsupportedTransferCoding),
        ("Transfer-Encoding:\n", ResponseError::UnsupportedTransferCoding),
        ("Content-Length: 3\nContent-Length: 4\n", ResponseError::InvalidContentLength),
        ("Content-Length: 3\ncontent-length: 3\n", ResponseError::InvalidContentLength),
        ("Content-Length: 3, 3\n", ResponseError::InvalidContentLength),
        ("Content-Length: +3\n", ResponseError::InvalidContentLength),
        ("Content-Length: -1\n", ResponseError::InvalidContentLength),
        ("Content-Length: 0x3\n", ResponseError::InvalidContentLength),
        ("Content-Length: 1_0\n", ResponseError::InvalidContentLength),
        ("Content-Length:\n", ResponseError::InvalidContentLength),
        ("Content-Length: 18446744073709551616\n", ResponseError::InvalidContentLength),
    ] {
        check_refused(head(&format!("HTTP/1.1 200 OK\n{fields}")).as_bytes(), error);
        check_refused(head(&format!("HTTP/1.1 304 x\n{fields}")).as_bytes(), error);
    }
    let old = head("HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n");
    check_refused(old.as_bytes(), ResponseError::AmbiguousFraming);
    for fields in ["Content-Length: 3\n", "Transfer-Encoding: chunked\n"] {
        let interim = head(&format!("HTTP/1.1 100 Continue\n{fields}"));
        check_refused(interim.as_bytes(), ResponseError::UnexpectedContent);
    }
}

#[test]
fn invalid_lines_are_refused() {
    for (fields, error) in [
        (&b"A: 1\n\n"[..], ResponseError::InvalidLine),
        (b"A: 1\rB: 2\r\n\r\n", ResponseError::InvalidLine),
        (b"A: 1\0\r\n\r\n", ResponseError::InvalidLine),
        (b"A: 1\r\n folded\r\n\r\n", ResponseError::InvalidField),
        (b"A: 1\r\n\tfolded\r\n\r\n", ResponseError::InvalidField),
        (b" A: 1\r\n\r\n", ResponseError::InvalidField),
        (b"A : 1\r\n\r\n", ResponseError::InvalidField),
        (b": 1\r\n\r\n", ResponseError::InvalidField),
        (b"A\xe9: 1\r\n\r\n", ResponseError::InvalidField),
        (b"A\r\n\r\n", ResponseError::InvalidField),
        (b"\n", ResponseError::InvalidField),
        (b"A: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\nA: 1\r\n\r\n", ResponseError::TooManyFields),
    ] {
        check_refused(&[b"HTTP/1.1 200 OK\r\n", fields].concat(), error);
    }
    check_refused(b"HTTP/1.1 200 OK\nA: 1\r\n\r\n", ResponseError::InvalidLine);
}

#[test]
fn head_has_a_limit() {
    let head = |value_bytes| format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "a".repeat(value_bytes));
    let rest_bytes = LIMITS.head_bytes_max - head(0).len();
    assert!(parse(head(rest_bytes).as_bytes(), false).is_ok());
    check_refused(head(rest_bytes + 1).as_bytes(), ResponseError::HeadTooLong);
    let reason = format!("HTTP/1.1 200 {}", "a".repeat(LIMITS.head_bytes_max));
    check_refused(reason.as_bytes(), ResponseError::HeadTooLong);
}

#[test]
fn switch_of_protocols_names_one() {
    let upgrade = |fields: &str| {
        let head = head(&format!("HTTP/1.1 101 Switching Protocols\nConnection: upgrade\n{fields}"));
        let response = parse(head.as_bytes(), false)?;
        assert!(!response.persists());
        Ok(String::from_utf8(response.upgrade().expect("a protocol").to_vec()).expect("UTF-8"))
    };
    assert_eq!(upgrade("Upgrade: WebSocket\n").as_deref(), Ok("WebSocket"));
    for fields in ["", "Upgrade:\n", "Upgrade: websocket, h2c\n", "Upgrade: websocket\nUpgrade: h2c\n"] {
        assert_eq!(upgrade(fields), Err(ResponseError::MissingUpgrade), "{fields}");
    }
    let offer = head("HTTP/1.1 426 Upgrade Required\nUpgrade: h2c\nContent-Length: 0\n");
    assert_eq!(parse(offer.as_bytes(), false).expect("valid").upgrade(), None);
}

#[test]
fn keep_alive_says_how_long() {
    for (fields, expected) in [
        ("Keep-Alive: timeout=5, max=100\n", Some(5)),
        ("Keep-Alive: max=100\nKeep-Alive: Timeout=72\n", Some(72)),
        ("Keep-Alive: timeout=\n", None),
        ("Keep-Alive: timeout=4294967296\n", None),
        ("Keep-Alive: max=3\n", None),
        ("", None),
    ] {
        let head = head(&format!("HTTP/1.1 200 OK\n{fields}"));
        assert_eq!(parse(head.as_bytes(), false).expect("valid").keep_alive_timeout_s(), expected, "{fields}");
    }
}

#[test]
fn field_is_that_of_the_first_line() {
    let head = head("HTTP/1.1 200 OK\nX-A:  1 \nx-a: 2\n");
    let response = parse(head.as_bytes(), false).expect("valid");
    assert_eq!((response.field(b"x-a"), response.field(b"x-b")), (Some(&b"1"[..]), None));
    assert!(response.has_field(b"x-a") && !response.has_field(b"x-b"));
}

/// The head that a client of `version` gets.
#[track_caller]
fn written(lines: &str, edits: &[(&str, Option<&str>)], version: Version, persistence: Persistence) -> String {
    let head = head(lines);
    let limits = ResponseLimits::default();
    let Ok(ParsedResponse::Complete { response, .. }) = parse_response(head.as_bytes(), false, &limits) else {
        panic!("{head}");
    };
    let edit = |(name, value): &(&str, Option<&str>)| (name.to_string(), value.map(str::to_string));
    let edits: Vec<_> = edits.iter().map(edit).collect();
    let content = response.framing().for_client(version);
    let parts = ResponseHeadParts { edits: &edits, content, persistence, version, date: DATE.as_bytes() };
    let mut out = vec![];
    response.write_head(&parts, &mut out);
    let text = String::from_utf8(out).expect("UTF-8").replace("\r\n", "\n");
    text.strip_suffix('\n').expect("an empty line at the end").to_string()
}

/// A client of HTTP/1.1 gets `expected` for a response with `fields`, without the lines that all have.
#[track_caller]
fn check_passed(fields: &str, edits: &[(&str, Option<&str>)], expected: &str) {
    let lines = format!("HTTP/1.1 200 OK\nDate: x\n{fields}Content-Length: 1\n");
    let text = written(&lines, edits, Version::Http11, Persistence::Persist);
    let passed = text.strip_prefix("HTTP/1.1 200 OK\nDate: x\n").and_then(|text| {
        let end = text.strip_suffix("Content-Length: 1\n")?;
        Some(end.replacen("Via: 1.1 sanderling\n", "", 1))
    });
    assert_eq!(passed.as_deref(), Some(expected), "{text}");
}

#[test]
fn end_to_end_fields_are_passed_to_the_client_in_order() {
    check_passed(
        "Server: app\nSet-Cookie: a\nset-cookie: b\nX:\n",
        &[],
        "Server: app\nSet-Cookie: a\nset-cookie: b\nX: \n",
    );
    check_passed("ETag: \"a\"\nLast-Modified: x\nVary: Accept\n", &[], "ETag: \"a\"\nLast-Modified: x\nVary: Accept\n");
    check_passed("Via: 1.0 a\n", &[], "Via: 1.0 a\n");
}

#[test]
fn fields_of_the_backend_connection_are_removed() {
    check_passed("Connection: keep-alive\nKeep-Alive: timeout=5\nTrailer: x\nUpgrade: h2c\n", &[], "");
    check_passed("Proxy-Authenticate: Basic\nProxy-Connection: x\nTE: x\n", &[], "");
    check_passed("Connection: X-A, Set-Cookie, Content-Type\nX-A: 1\nSet-Cookie: a\n", &[], "Set-Cookie: a\n");
    check_passed("X-Accel-Redirect: /secret\nx-accel-buffering: no\nX-Sendfile: /etc/passwd\n", &[], "");
}

#[test]
fn edits_change_what_the_client_gets() {
    check_passed("X-A: 1\nServer: x\n", &[("x-a", Some("2")), ("server", None)], "x-a: 2\n");
    check_passed("", &[("Connection", Some("x")), ("transfer-encoding", Some("chunked")), ("X", None)], "");
    let text = written("HTTP/1.1 204 x\n", &[("Date", None), ("Via", None)], Version::Http11, Persistence::Persist);
    assert_eq!(text, "HTTP/1.1 204 x\n");
}

#[test]
fn framing_for_the_client_fits_its_version() {
    let check = |lines: &str, version, persistence, expected: &str| {
        let text = written(lines, &[("via", None)], version, persistence);
        assert_eq!(text, expected.replace("DATE", &format!("Date: {DATE}")), "{lines}");
    };
    let (persist, keep, close) = (Persistence::Persist, Persistence::KeepAlive, Persistence::Close);
    let chunked = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n";
    check(chunked, Version::Http11, persist, "HTTP/1.1 200 OK\nDATE\nTransfer-Encoding: chunked\n");
    check(chunked, Version::Http10, keep, "HTTP/1.1 200 OK\nDATE\nConnection: close\n");
    let until_close = "HTTP/1.0 200 OK\n";
    check(until_close, Version::Http11, persist, "HTTP/1.1 200 OK\nDATE\nTransfer-Encoding: chunked\n");
    check(until_close, Version::Http10, keep, "HTTP/1.1 200 OK\nDATE\nConnection: close\n");
    let length = "HTTP/1.1 200\nContent-Length: 007\nConnection: close\n";
    check(length, Version::Http11, persist, "HTTP/1.1 200 \nDATE\nContent-Length: 7\n");
    check(length, Version::Http10, keep, "HTTP/1.1 200 \nDATE\nContent-Length: 7\nConnection: keep-alive\n");
    check(length, Version::Http11, close, "HTTP/1.1 200 \nDATE\nContent-Length: 7\nConnection: close\n");
    check("HTTP/1.1 304 x\nContent-Length: 9\n", Version::Http11, persist, "HTTP/1.1 304 x\nDATE\n");
}

#[test]
fn interim_responses_have_neither_date_nor_framing() {
    let text = |lines| written(lines, &[], Version::Http11, Persistence::Close);
    assert_eq!(text("HTTP/1.1 103 x\nLink: a\n"), "HTTP/1.1 103 x\nLink: a\nVia: 1.1 sanderling\n");
    assert_eq!(
        text("HTTP/1.1 101 x\nConnection: Upgrade\nUpgrade: WebSocket\nSec-WebSocket-Accept: y\n"),
        "HTTP/1.1 101 x\nSec-WebSocket-Accept: y\nVia: 1.1 sanderling\nConnection: upgrade\nUpgrade: WebSocket\n"
    );
}
