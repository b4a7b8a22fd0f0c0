//! Property tests of messages that a proxy passes on: a parser that knows nothing of ours reads what is written.

use std::net::IpAddr;

use proptest::prelude::*;
use sanderling_http::{
    BackendRequest, BackendResponse, BodySkipper, ClientContent, ForwardedField, Framing, Parsed, ParsedResponse,
    Persistence, RequestError, RequestLimits, ResponseError, ResponseFraming, ResponseHeadParts, ResponseLimits,
    Scheme, Version, parse_request, parse_response,
};

/// The fields that never cross a proxy, in either direction.
const HOP_BY_HOP: [&str; 6] =
    ["keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer"];

fn fields() -> impl Strategy<Value = String> {
    let field = prop::sample::select(vec![
        "Connection: close, x-a, Host, x-forwarded-for\r\n",
        "Connection: Upgrade\r\n",
        "connection: keep-alive\r\n",
        "Upgrade: websocket\r\n",
        "Upgrade: h2c\r\n",
        "Keep-Alive: timeout=5\r\n",
        "Proxy-Connection: x\r\n",
        "Proxy-Authorization: x\r\n",
        "proxy-authenticate: x\r\n",
        "TE: trailers\r\n",
        "Trailer: x\r\n",
        "Content-Length: 7\r\n",
        "content-length: 0\r\n",
        "Content_Length: 9\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer_Encoding: chunked\r\n",
        "Expect: 100-continue\r\n",
        "Proxy: x\r\n",
        "Cookie: a=1\r\n",
        "X-Forwarded-For: 6.6.6.6\r\n",
        "Forwarded: for=6.6.6.6\r\n",
        "Via: 1.1 a\r\n",
        "Date: x\r\n",
        "X-A: \t1 \r\n",
        "X-Accel-Redirect: /a\r\n",
        " folded\r\n",
        "bare: a\nb: c\r\n",
    ]);
    prop::collection::vec(field, 0..6).prop_map(|fields| fields.concat())
}

/// A head with at most one byte changed.
fn head(line: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    (prop::sample::select(line), fields(), noise).prop_map(|(line, fields, noise)| {
        let mut bytes = format!("{line}{fields}\r\n").into_bytes();
        if let Some((index, byte)) = noise {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes
    })
}

fn edits() -> impl Strategy<Value = Vec<(String, Option<String>)>> {
    let name = prop::sample::select(vec!["Content-Length", "transfer-encoding", "Connection", "Host", "X-A", "Via"]);
    prop::collection::vec((name.prop_map(str::to_owned), prop::option::of(Just("5".to_owned()))), 0..3)
}

fn values<'h>(fields: &'h [httparse::Header<'_>], name: &str) -> Vec<&'h [u8]> {
    fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value).collect()
}

fn check_fields(fields: &[httparse::Header<'_>]) -> Result<(), TestCaseError> {
    for name in HOP_BY_HOP {
        prop_assert!(values(fields, name).is_empty(), "{}", name);
    }
    let framing = ["content-length", "transfer-encoding"].map(|name| values(fields, name).len());
    prop_assert!(framing[0] + framing[1] <= 1);
    for value in values(fields, "connection") {
        prop_assert!(value == b"close" || value == b"keep-alive" || value == b"upgrade");
    }
    prop_assert_eq!(values(fields, "upgrade").is_empty(), !values(fields, "connection").contains(&&b"upgrade"[..]));
    Ok(())
}

proptest! {
    #[test]
    fn written_request_is_read_as_it_was_meant(
        bytes in head(&[
            "GET /a HTTP/1.1\r\nHost: a\r\n",
            "POST /a?b HTTP/1.1\r\nhost: a:80\r\n",
            "DELETE http://b/a HTTP/1.1\r\nHost: a\r\n",
            "GET / HTTP/1.0\r\n",
        ]),
        framing in prop::sample::select(vec![Framing::None, Framing::Length(5), Framing::Chunked]),
        trusted in prop::sample::select(vec![None, Some(ForwardedField::Forwarded), Some(ForwardedField::XForwardedFor)]),
        edits in edits(),
    ) {
        let limits = RequestLimits::default();
        let Ok(Parsed::Complete { request, .. }) = parse_request(&bytes, 0, &limits) else { return Ok(()) };
        let client: IpAddr = [192, 0, 2, 1].into();
        let passed = BackendRequest {
            request: &request, target: b"/t", host: None, framing, client, scheme: Scheme::Http, trusted, edits: &edits,
            passes_trailers: false,
        };
        let mut out = Vec::new();
        passed.write_head(&mut out);

        let mut fields = [httparse::EMPTY_HEADER; 40];
        let mut other = httparse::Request::new(&mut fields);
        prop_assert_eq!(other.parse(&out), Ok(httparse::Status::Complete(out.len())));
        prop_assert_eq!(other.method.map(str::as_bytes), Some(request.method_name()));
        prop_assert_eq!((other.path, other.version), (Some("/t"), Some(1)));
        check_fields(other.headers)?;
        prop_assert_eq!(values(other.headers, "host").len(), 1);
        for name in ["proxy", "expect", "content_length", "transfer_encoding"] {
            prop_assert!(values(other.headers, name).is_empty(), "{}", name);
        }
        if trusted.is_none() {
            let list = values(other.headers, "x-forwarded-for");
            prop_assert_eq!(list, [&b"192.0.2.1"[..]]);
        }
        // A request without a host is valid in HTTP/1.0 only, and is passed on as HTTP/1.1.
        if request.host.is_some() {
            let again = parse_request(&out, 0, &limits);
            let Ok(Parsed::Complete { request: again, head_bytes }) = again else {
                return Err(TestCaseError::fail(format!("refused: {}", out.escape_ascii())));
            };
            prop_assert_eq!(head_bytes, out.len());
            prop_assert_eq!(again.framing, framing);
            prop_assert_eq!(again.host, request.host);
            prop_assert_eq!(again.upgrade(), request.upgrade().filter(|_| framing == Framing::None));
        }
    }

    #[test]
    fn response_is_read_like_httparse_and_written_as_it_was_meant(
        bytes in head(&[
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 404\r\n",
            "HTTP/1.0 200 \r\n",
            "HTTP/1.1 304 Not Modified\r\n",
            "HTTP/1.1 204 No Content\r\n",
            "HTTP/1.1 103 Early Hints\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n",
        ]),
        version in prop::sample::select(vec![Version::Http10, Version::Http11]),
        persistence in prop::sample::select(vec![Persistence::Persist, Persistence::Close]),
        is_head_request in any::<bool>(),
        edits in edits(),
    ) {
        let limits = ResponseLimits::default();
        let Ok(parsed) = parse_response(&bytes, is_head_request, &limits) else { return Ok(()) };
        let ParsedResponse::Complete { response, head_bytes } = parsed else { return Ok(()) };
        for end in 0..head_bytes {
            let parsed = parse_response(&bytes[..end], is_head_request, &limits);
            prop_assert!(matches!(parsed, Ok(ParsedResponse::Partial)), "{}", end);
        }
        let mut fields = [httparse::EMPTY_HEADER; 40];
        let mut other = httparse::Response::new(&mut fields);
        prop_assert_eq!(other.parse(&bytes), Ok(httparse::Status::Complete(head_bytes)));
        prop_assert_eq!(other.code, Some(response.status()));
        check_written(&response, &ResponseHeadParts {
            edits: &edits,
            content: response.framing().for_client(version),
            persistence,
            version,
            date: b"Sun, 06 Nov 1994 08:49:37 GMT",
        })?;
    }

    #[test]
    fn parse_of_any_response_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let bytes = [b"HTTP/1.1 200 ", &bytes[..]].concat();
        if let Ok(ParsedResponse::Complete { head_bytes, .. }) = parse_response(&bytes, false, &ResponseLimits::default()) {
            prop_assert!(head_bytes <= bytes.len());
        }
    }
}

fn check_written(response: &BackendResponse<'_>, parts: &ResponseHeadParts<'_>) -> Result<(), TestCaseError> {
    let mut out = Vec::new();
    response.write_head(parts, &mut out);
    let mut fields = [httparse::EMPTY_HEADER; 40];
    let mut other = httparse::Response::new(&mut fields);
    prop_assert_eq!(other.parse(&out), Ok(httparse::Status::Complete(out.len())));
    prop_assert_eq!(other.code, Some(response.status()));
    check_fields(other.headers)?;
    prop_assert!(values(other.headers, "x-accel-redirect").is_empty());
    let status = response.status();
    if status >= 200 {
        prop_assert!(!values(other.headers, "date").is_empty());
        let is_close = values(other.headers, "connection") == [b"close"];
        prop_assert_eq!(is_close, parts.persistence.is_close() || parts.content == ClientContent::UntilClose);
    }
    let again = parse_response(&out, false, &ResponseLimits::default());
    let Ok(ParsedResponse::Complete { response: again, .. }) = again else {
        return Err(TestCaseError::fail(format!("refused: {}", out.escape_ascii())));
    };
    let expected = match (parts.content, status) {
        (ClientContent::None, 100..=199 | 204 | 304) => ResponseFraming::None,
        (ClientContent::Length(length_bytes), _) => ResponseFraming::Length(length_bytes),
        (ClientContent::Chunked, _) => ResponseFraming::Chunked,
        // Of a response to HEAD, which is parsed as that to another request.
        (ClientContent::None | ClientContent::UntilClose, _) => ResponseFraming::UntilClose,
    };
    prop_assert_eq!(again.framing(), expected);
    Ok(())
}

/// The content of a response that arrives byte by byte, and how many bytes follow it.
#[track_caller]
fn check_content(framing: ResponseFraming, bytes: &str, expected: Result<(&str, bool, usize), ResponseError>) {
    let mut skipper = BodySkipper::of_response(framing);
    let mut content = Vec::new();
    let mut left = bytes.as_bytes();
    let result = loop {
        if skipper.is_done() || left.is_empty() {
            let content = str::from_utf8(&content).expect("UTF-8");
            break Ok((content, skipper.is_done(), left.len()));
        }
        match skipper.advance_with(&left[..1], |piece| content.extend_from_slice(piece)) {
            Ok(skipped) => left = &left[skipped.consumed_bytes..],
            Err(error) => break Err(ResponseError::from(error)),
        }
    };
    assert_eq!(result, expected, "{bytes:?}");
}

#[test]
fn content_of_a_response_ends_by_its_framing() {
    check_content(ResponseFraming::None, "abc", Ok(("", true, 3)));
    check_content(ResponseFraming::Length(0), "abc", Ok(("", true, 3)));
    check_content(ResponseFraming::Length(2), "abc", Ok(("ab", true, 1)));
    check_content(ResponseFraming::Length(4), "abc", Ok(("abc", false, 0)));
    check_content(ResponseFraming::UntilClose, "abc", Ok(("abc", false, 0)));
    check_content(ResponseFraming::Chunked, "2\r\nab\r\n1\r\nc\r\n0\r\n\r\nHTTP", Ok(("abc", true, 4)));
    check_content(ResponseFraming::Chunked, "2\r\nab\r\n0\r\n", Ok(("ab", false, 0)));
}

/// The longest sizes overflow nothing (RUSTSEC-2026-0181, CVE-2013-2028).
#[test]
fn largest_chunks_of_a_response_are_counted() {
    for size in ["7fffffffffffffff", "fffffffffffffffe", "FFFFFFFFFFFFFFFF"] {
        check_content(ResponseFraming::Chunked, &format!("{size}\r\nab"), Ok(("ab", false, 0)));
    }
    let too_many = "2\r\nab\r\nffffffffffffffff\r\n";
    check_content(ResponseFraming::Chunked, too_many, Err(ResponseError::InvalidChunk));
    check_content(ResponseFraming::Length(u64::MAX), "ab", Ok(("ab", false, 0)));
}

#[test]
fn extensions_and_trailers_of_a_response_are_dropped() {
    check_content(ResponseFraming::Chunked, "1;a=b;c=\"d\"\r\nx\r\n0;e\r\nX-A: 1\r\n\r\n", Ok(("x", true, 0)));
}

/// CVE-2025-55315 among others: a line feed that one recipient takes for the end of a line, and another does not.
#[test]
fn invalid_chunks_of_a_response_are_refused() {
    for bytes in [
        "1;a\nx\r\n0\r\n\r\n",
        "1;\n\r\nx\r\n",
        "1;a\rb\r\nx\r\n",
        "1;a=\"\n\"\r\nx\r\n",
        "1\nx\n0\n\n",
        "1\r\nx\n",
        "1\r\nxy\r\n",
        "0\r\nX-A: 1\n\n",
        "+1\r\n",
        "0x1\r\n",
        "-1\r\n",
        "\r\n",
        "1 1\r\n",
        "11111111111111111\r\n",
    ] {
        check_content(ResponseFraming::Chunked, bytes, Err(ResponseError::InvalidChunk));
    }
    let endless = format!("1;{}", "a".repeat(5000));
    check_content(ResponseFraming::Chunked, &endless, Err(ResponseError::InvalidChunk));
    assert_eq!(ResponseError::from(RequestError::BodyTooLarge), ResponseError::InvalidChunk);
}
