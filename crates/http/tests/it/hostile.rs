//! Tests of invalid and malicious requests: each gets the right status, and the connection closes.

use std::time::{Duration, Instant};

use sanderling_http::{
    BodySkipper, Framing, Parsed, PathTraits, RequestError, RequestLimits, SEGMENT_BYTES_MAX, SITE_PATH_BYTES_MAX,
    SitePath, parse_request,
};

use crate::site::{check, check_refused, response_to};

/// Checks that each of these requests, with `\n` replaced by CRLF, is refused with 400.
#[track_caller]
fn check_bad_requests(requests: &[&str]) {
    for request in requests {
        check_refused(request.replace('\n', "\r\n").as_bytes(), 400);
    }
}

#[test]
fn path_out_of_the_root_is_refused_in_every_encoding() {
    for path in [
        "/..",
        "/../",
        "/../../etc/passwd",
        "/a/../../b",
        "/./../a",
        "/%2e%2e/a",
        "/%2E./a",
        "/.%2e",
        "/%2e./",
        "/..%2fa",
        "/a%2F..%2f..",
        "/a/%2e%2e%2f%2e%2e/b",
        "//..",
        "//evil.com/..//..",
    ] {
        check_refused(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 400);
        check_refused(format!("GET http://a{path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 400);
    }
}

/// As in nginx.
#[test]
fn path_is_normalized_within_the_root() {
    for (path, expected, ends_with_slash) in [
        ("/", "", true),
        ("//", "", true),
        ("/.", "", true),
        ("/a/..", "", true),
        ("/a/../", "", true),
        ("/%2F", "", true),
        ("//a//b///c", "a/b/c", false),
        ("/a//", "a", true),
        ("/a/.", "a", true),
        ("/a/./", "a", true),
        ("/a/b/..", "a", true),
        ("/a/b/../c", "a/c", false),
        ("/./a", "a", false),
        ("/.hidden/../a", "a", false),
        ("/x/../.well-known/a", ".well-known/a", false),
        ("//evil.com/%2f..", "", true),
        ("/a%2fb", "a/b", false),
        ("/a%2F", "a", true),
        ("/a%2F..%2fb", "b", false),
        ("/%61/%2e/b", "a/b", false),
        ("/%2e%2e%61", "..a", false),
    ] {
        let found = SitePath::parse(path.as_bytes()).expect("a path");
        assert_eq!(String::from_utf8_lossy(found.as_bytes()), expected, "{path}");
        assert_eq!(found.ends_with_slash(), ends_with_slash, "{path}");
        assert_eq!(found.traits().intersects(PathTraits::NORMALIZED), !["/", "/%2e%2e%61"].contains(&path), "{path}");
    }
    for path in ["/a", "/a/", "/%61", "/a%20b/", "/.well-known/a", "/%2ewell-known/a"] {
        assert_eq!(SitePath::parse(path.as_bytes()).map(|path| path.traits()), Ok(PathTraits::NONE), "{path}");
    }
}

#[test]
fn hidden_name_is_404_in_a_normalized_path() {
    for path in
        ["//.git/config", "/a/../.env", "/.%2fb/.c", "/%2egit%2fconfig", "/a/..//b.bak", "/x/../a/.well-known/b"]
    {
        check(&format!("GET {path} HTTP/1.1\nHost: a\n\n"), &["HTTP/1.1 404 Not Found"]);
    }
}

#[test]
fn encoded_control_byte_or_backslash_is_refused() {
    for path in ["/..%5c", "/%5cevil.com", "/a%00.html", "/dir%0d%0aSet-Cookie:x", "/%7f", "/%1b[2J", "/a/../%00"] {
        check_refused(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 400);
    }
    for path in ["/%252e%252e/", "/a%252fb", "/a%c0%af", "/..a", "/~", "/a%25"] {
        check(&format!("GET {path} HTTP/1.1\nHost: a\n\n"), &["HTTP/1.1 404 Not Found"]);
    }
    for path in ["/%", "/%2", "/%zz", "/%2g", "/%?a"] {
        check_refused(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 400);
    }
}

/// Every printable byte, alone and in pairs: a query is never decoded, so nothing in it is wrong.
#[test]
fn any_printable_byte_may_be_in_a_query() {
    for first in b'!'..=b'~' {
        for second in b'!'..=b'~' {
            for query in [&[first][..], &[first, second]] {
                let request = [b"GET /index.html?", query, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
                let response = response_to(&request).expect("a response");
                assert_eq!(response.status(), 200, "{}", request.escape_ascii());
            }
        }
    }
}

/// Every byte at the start, in the middle and at the end of a path and a query.
#[test]
fn byte_not_allowed_in_target_is_refused() {
    let in_path = b"-._~!$&'()*+,;=:@/[]^|`{}\"<>";
    for byte in 0..=u8::MAX {
        for (before, after) in [("/", "a"), ("/a", "a"), ("/a", ""), ("/?", "a"), ("/?a", "a"), ("/?a", "")] {
            let is_query = before.contains('?');
            let is_allowed = byte.is_ascii_alphanumeric()
                || (if is_query { byte.is_ascii_graphic() || !byte.is_ascii() } else { in_path.contains(&byte) })
                || byte == b'?';
            let target = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            let request = [b"GET ", &target[..], b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
            if is_allowed {
                let response = response_to(&request).expect("a response");
                assert_ne!(response.head_bytes, None, "{}", request.escape_ascii());
            } else {
                check_refused(&request, 400);
            }
        }
        // origin-form starts with a slash.
        let request = [b"GET ", &[byte][..], b"/a HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        if byte != b'/' {
            check_refused(&request, 400);
        }
    }
}

/// In Location, a path that starts with two slashes names another host.
#[test]
fn redirect_to_a_normalized_path_has_one_slash() {
    for path in ["//docs", "///docs", "/./docs", "/evil.com/../docs", "//evil.com/..//docs", "/%2fdocs"] {
        check(
            &format!("GET {path}?a=//b HTTP/1.1\nHost: a\n\n"),
            &["HTTP/1.1 301 Moved Permanently", "Location: /docs/?a=//b"],
        );
    }
    check("GET //evil.com/docs HTTP/1.1\nHost: a\n\n", &["HTTP/1.1 404 Not Found", "!Location"]);
}

#[test]
fn path_and_segment_have_length_limits() {
    let segment = |length| [b"/".to_vec(), vec![b'a'; length]].concat();
    let is_too_long = |path: &[u8]| SitePath::parse(path).expect("a path").traits().intersects(PathTraits::TOO_LONG);
    assert!(!is_too_long(&segment(SEGMENT_BYTES_MAX)) && is_too_long(&segment(SEGMENT_BYTES_MAX + 1)));
    let path = |length| [b"/", &b"abc/".repeat(2048)[..length - 1], b"d"].concat();
    assert!(!is_too_long(&path(SITE_PATH_BYTES_MAX)) && is_too_long(&path(SITE_PATH_BYTES_MAX + 1)));
    // What is removed does not count.
    assert!(!is_too_long(&[&b"/.".repeat(SITE_PATH_BYTES_MAX)[..], b"/a"].concat()));
    let request = format!("GET /{} HTTP/1.1\nHost: a\n\n", "a".repeat(SEGMENT_BYTES_MAX + 1));
    check(&request, &["HTTP/1.1 404 Not Found"]);
}

#[test]
fn ambiguous_framing_is_refused() {
    let head = "GET /index.html HTTP/1.1\nHost: a\n";
    for fields in [
        "Content-Length: 5\nTransfer-Encoding: chunked\n",
        "Transfer-Encoding: chunked\nContent-Length: 0\n",
        "Content-Length: 5\nContent-Length: 6\n",
        "Content-Length: 5\nContent-Length: 5\n",
        "Content-Length: 5, 5\n",
        "Content-Length: +5\n",
        "Content-Length: -5\n",
        "Content-Length: 0x5\n",
        "Content-Length: 5_0\n",
        "Content-Length: 5 5\n",
        "Content-Length:\n",
        "Content-Length: 18446744073709551616\n",
        "Content-Length: 99999999999999999999999999\n",
        "Content-Length: \u{660}\n",
        "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n",
        "Transfer-Encoding: gzip\nTransfer-Encoding: chunked\n",
        "Transfer-Encoding : chunked\n",
        " Transfer-Encoding: chunked\n",
        "Transfer-Encoding: \u{b}chunked\n",
        "Content-Length\n",
        "Content-Length 5\n",
        ": 5\n",
        "Host : a\n",
        "X: a\n folded\n",
        "X: a\n\tfolded\n",
    ] {
        check_bad_requests(&[&format!("{head}{fields}\n")]);
    }
    check_bad_requests(&["GET / HTTP/1.0\nTransfer-Encoding: chunked\n\n"]);
    for coding in [
        "gzip",
        "chunked, gzip",
        "chunked, chunked",
        "chunked, gzip, chunked",
        "chunked;a=b",
        "chunked,",
        ", chunked",
        "xchunked",
        "identity",
        "",
        "\"chunked\"",
    ] {
        check_bad_requests(&[&format!("{head}Transfer-Encoding: {coding}\n\n")]);
    }
}

#[test]
fn transfer_coding_before_chunked_is_501() {
    for coding in ["gzip, chunked", "gzip;q=1 ,deflate\t,Chunked", "identity, chunked"] {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\n\r\n");
        check_refused(request.as_bytes(), 501);
    }
}

#[test]
fn line_end_other_than_crlf_is_refused() {
    for request in [
        "GET / HTTP/1.1\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\rY: c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\r\n\r\n",
        "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /\r\n\r\n",
        "GET /\n",
    ] {
        check_refused(request.as_bytes(), 400);
    }
}

#[test]
fn control_byte_in_field_value_is_refused() {
    for byte in (0..=u8::MAX).filter(|byte| byte.is_ascii_control() && *byte != b'\t') {
        for length in 0..70 {
            let value = [vec![b'a'; length], vec![byte], vec![b'b'; 70 - length]].concat();
            let request = [b"GET / HTTP/1.1\r\nHost: a\r\nX:", &value[..], b"\r\n\r\n"].concat();
            check_refused(&request, 400);
        }
    }
    let request = b"GET /index.html HTTP/1.1\r\nHost: a\r\nX:\ta\tb\xff\x80 \r\n\r\n";
    assert_eq!(response_to(request).map(|response| response.status()), Some(200));
}

#[test]
fn non_token_byte_in_field_name_is_refused() {
    let others = b"!#$%&'*+-.^_`|~:";
    for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_alphanumeric() && !others.contains(byte)) {
        let request = [b"GET / HTTP/1.1\r\nHost: a\r\nX", &[byte][..], b"Y: a\r\n\r\n"].concat();
        check_refused(&request, 400);
    }
}

#[test]
fn invalid_request_line_is_refused() {
    check_bad_requests(&[
        "GET  / HTTP/1.1\nHost: a\n\n",
        "GET /  HTTP/1.1\nHost: a\n\n",
        " GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1 \nHost: a\n\n",
        "GET\t/ HTTP/1.1\nHost: a\n\n",
        "GET / http/1.1\nHost: a\n\n",
        "GET / HTTP/1.10\nHost: a\n\n",
        "GET / HTTP/11\nHost: a\n\n",
        "GET / HTTP/1.\n\n",
        "GET / HTTP/\n\n",
        "GET / \n\n",
        // HTTP/0.9.
        "GET /\n",
        "GET HTTP/1.1\nHost: a\n\n",
        "GET\n\n",
        "G\u{0}T / HTTP/1.1\nHost: a\n\n",
        "\n\n\nGET / HTTP/1.1\nHost: a\n\n",
        "GET * HTTP/1.1\nHost: a\n\n",
        "GET a HTTP/1.1\nHost: a\n\n",
        "GET example.com:80 HTTP/1.1\nHost: a\n\n",
        "GET ftp://a/ HTTP/1.1\nHost: a\n\n",
        "GET https:///a HTTP/1.1\nHost: a\n\n",
        "GET https://u@a/ HTTP/1.1\nHost: a\n\n",
        "GET http:///a HTTP/1.1\nHost: a\n\n",
        "GET http://u@a/ HTTP/1.1\nHost: a\n\n",
        "GET /a#b HTTP/1.1\nHost: a\n\n",
        "CONNECT / HTTP/1.1\nHost: a\n\n",
        "CONNECT a HTTP/1.1\nHost: a\n\n",
        "OPTIONS ** HTTP/1.1\nHost: a\n\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}",
        "SSH-2.0-OpenSSH\n",
        "<html>",
    ]);
}

#[test]
fn other_major_version_is_505() {
    for request in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET / HTTP/3.0\r\n\r\n",
    ] {
        check_refused(request, 505);
    }
}

#[test]
fn host_must_be_single_and_valid() {
    check_bad_requests(&["GET / HTTP/1.1\n\n", "GET http://a/ HTTP/1.1\n\n", "GET / HTTP/1.1\nHost: a\nHost: a\n\n"]);
    check_bad_requests(&["GET / HTTP/1.0\nHost: a\nHost: b\n\n", "GET / HTTP/1.0\nHost: a b\n\n"]);
    check_bad_requests(&["GET http://a/ HTTP/1.1\nHost: b c\n\n", "GET http://a/ HTTP/1.1\nHost: a\nHost: a\n\n"]);
    for host in [
        "",
        "a@b",
        "u:p@a",
        "a:99999",
        "a:65536",
        "a:+80",
        "a:80:80",
        "a:b",
        ":80",
        "a/b",
        "a?b",
        "a#b",
        "a b",
        "a\\b",
        "a%",
        "a%zz",
        "ä",
        "[::1",
        "::1",
        "[::1]a",
        "[::g]",
        "[]",
        "[::1]:99999",
        "[v1.a]",
        "[fe80::1%25eth0]",
    ] {
        check_bad_requests(&[&format!("GET /index.html HTTP/1.1\nHost: {host}\n\n")]);
    }
    for host in ["a", "A.b-c_d.", "a:", "a:0", "a:65535", "127.0.0.1:80", "[::1]", "[::ffff:1.2.3.4]:8080", "a%2Db"] {
        check(&format!("GET /index.html HTTP/1.1\nHost: {host}\n\n"), &["HTTP/1.1 200 OK"]);
    }
}

#[test]
fn unknown_expectation_is_417() {
    for expectation in ["foo", "100-continue, foo", "100-continue=1", "200-ok"] {
        check_refused(format!("GET / HTTP/1.1\r\nHost: a\r\nExpect: {expectation}\r\n\r\n").as_bytes(), 417);
    }
}

/// Each limit is tested at its value and one above.
#[test]
fn head_fields_and_target_have_limits() {
    let limits = RequestLimits::default();
    let with_fields = |count: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(count - 1));
    assert_eq!(parse(&with_fields(limits.field_count_max)), Ok(Some(with_fields(limits.field_count_max).len())));
    assert_eq!(parse(&with_fields(limits.field_count_max + 1)), Err(RequestError::TooManyFields));
    let without_end = with_fields(limits.field_count_max + 1);
    assert_eq!(parse(without_end.trim_end_matches("\r\n")), Ok(None), "the last line is incomplete");
    assert_eq!(parse(&without_end[..without_end.len() - 2]), Err(RequestError::TooManyFields));

    let frame = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n";
    let with_head = |length: usize| frame.replace("X: ", &format!("X: {}", "y".repeat(length - frame.len())));
    assert_eq!(parse(&with_head(limits.head_bytes_max)), Ok(Some(limits.head_bytes_max)));
    assert_eq!(parse(&with_head(limits.head_bytes_max + 1)), Err(RequestError::HeadTooLong));
    let endless = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(limits.head_bytes_max));
    assert_eq!(parse(&endless), Err(RequestError::HeadTooLong));
    // An incomplete head of the maximal length is refused.
    assert_eq!(parse(&endless[..limits.head_bytes_max]), Err(RequestError::HeadTooLong));
    assert_eq!(parse(&endless[..limits.head_bytes_max - 1]), Ok(None));

    let with_target = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "y".repeat(length - 1));
    assert!(matches!(parse(&with_target(limits.target_bytes_max)), Ok(Some(_))));
    assert_eq!(parse(&with_target(limits.target_bytes_max + 1)), Err(RequestError::TargetTooLong));
    // Refused before it is complete.
    assert_eq!(
        parse(&with_target(limits.target_bytes_max + 1)[..limits.target_bytes_max + 5]),
        Err(RequestError::TargetTooLong)
    );
    assert_eq!(parse(&with_target(limits.target_bytes_max)[..limits.target_bytes_max + 4]), Ok(None));

    check_refused(with_fields(1000).as_bytes(), 431);
    check_refused(with_head(20_000).as_bytes(), 431);
    check_refused(with_target(9_000).as_bytes(), 414);
    check_refused(&[b'A'; 33], 501);
    check_refused("\r\n".repeat(1_000_000).as_bytes(), 400);
}

/// Each call reads only the new byte and two before it: the others are overwritten with LFs, which would end the head.
#[test]
fn one_byte_fragments_of_a_head_cost_linear_work() {
    let limits = RequestLimits::default();
    let frame = "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n";
    let head = frame.replace("X: ", &format!("X: {}", "y".repeat(limits.head_bytes_max - frame.len())));
    let mut bytes = vec![b'\n'; head.len()];
    for end in 3..head.len() {
        bytes[end - 3..end].copy_from_slice(&head.as_bytes()[end - 3..end]);
        let parsed = parse_request(&bytes[..end], end - 1, &limits);
        assert!(matches!(parsed, Ok(Parsed::Partial)), "{end}: {parsed:?}");
        bytes[end - 3] = b'\n';
    }
    let parsed = parse_request(head.as_bytes(), head.len() - 1, &limits);
    assert!(matches!(parsed, Ok(Parsed::Complete { head_bytes, .. }) if head_bytes == head.len()), "{parsed:?}");
}

fn parse(text: &str) -> Result<Option<usize>, RequestError> {
    parse_request(text.as_bytes(), 0, &RequestLimits::default()).map(|parse| match parse {
        Parsed::Partial => None,
        Parsed::Complete { head_bytes, .. } => Some(head_bytes),
    })
}

/// The bound is 100 times the usual time. Another thread may take the processor during some attempts, but not during
/// all.
#[test]
fn lists_are_parsed_in_linear_time() {
    const TIME_MAX: Duration = Duration::from_millis(50);
    const ATTEMPTS_MAX: usize = 20;
    let limits = RequestLimits::default();
    for unit in [",", "TE,", " ,", "\"\",", "\",", "0-,", "W/", "close ", "%41"] {
        let list = unit.repeat(15_000 / unit.len());
        for name in ["Connection", "If-None-Match", "If-Match", "Range", "If-Range", "Expect", "Host"] {
            let request = format!("GET /index.html HTTP/1.1\r\nHost: a\r\n{name}: {list}\r\n\r\n");
            assert!(request.len() <= limits.head_bytes_max);
            let is_soon = |_| {
                let start = Instant::now();
                assert!(response_to(request.as_bytes()).is_some());
                start.elapsed() < TIME_MAX
            };
            assert!((0..ATTEMPTS_MAX).any(is_soon), "{name}: {unit} takes more than {TIME_MAX:?}");
        }
    }
    let lines = "If-None-Match: \"x\"\r\n".repeat(99);
    assert!(response_to(format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes()).is_some());
}

#[test]
fn content_length_above_limit_is_413() {
    let limits = RequestLimits::default();
    let check = |length: u64, expected: bool| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let parsed = parse_request(request.as_bytes(), 0, &limits).expect("the head is valid");
        let request = parsed.request().expect("it is complete");
        let mut skipper = BodySkipper::new(request.framing, &limits);
        assert_eq!(skipper.is_too_long(), expected, "{length}");
        assert_eq!(skipper.advance(b"x").is_err_and(|error| error.status().code() == 413), expected, "{length}");
    };
    check(limits.body_bytes_max, false);
    check(limits.body_bytes_max + 1, true);
    check(u64::MAX, true);
}

/// Length of the body at the start of `bytes`; `None` if it is incomplete.
fn body_bytes(framing: Framing, bytes: &[u8]) -> Result<Option<usize>, RequestError> {
    let skipped = BodySkipper::new(framing, &RequestLimits::default()).advance(bytes)?;
    Ok(skipped.is_done.then_some(skipped.consumed_bytes))
}

#[test]
fn body_end_is_found_by_framing() {
    for content in [
        "0\n\n",
        "5\nhello\n0\n\n",
        "5;a=b;c=\"d\"\nhello\n0;e\nTrailer: f\nG:\n\n",
        "5;a;b=\"\";c=\"\\\"\\\\;\t\u{e9}\";d=e\nhello\n0;e;f\n\n",
        "5 ; a = b ;\tc\t; d=\"e\" ;f\nhello\n0\n\n",
        "00005\nhello\n000\n\n",
        "A\n0123456789\na\n0123456789\n0\n\n",
    ] {
        let content = content.replace('\n', "\r\n");
        let whole = format!("{content}GET / HTTP/1.1");
        assert_eq!(body_bytes(Framing::Chunked, whole.as_bytes()), Ok(Some(content.len())), "{content}");
        for split in 0..content.len() {
            let mut skipper = BodySkipper::new(Framing::Chunked, &RequestLimits::default());
            let first = skipper.advance(&whole.as_bytes()[..split]).expect("valid so far");
            assert_eq!((first.consumed_bytes, first.is_done), (split, false), "{content} at {split}");
            let second = skipper.advance(&whole.as_bytes()[split..]).expect("valid");
            assert_eq!((second.consumed_bytes, second.is_done), (content.len() - split, true), "{content} at {split}");
        }
    }
    assert_eq!(body_bytes(Framing::Length(3), b"abcGET"), Ok(Some(3)));
    assert_eq!(body_bytes(Framing::Length(3), b"ab"), Ok(None));
    assert_eq!(body_bytes(Framing::None, b"GET"), Ok(Some(0)));
}

#[test]
fn invalid_chunk_is_refused() {
    for content in [
        "\r\n",
        "g\r\n",
        "-1\r\n",
        "+1\r\n",
        "0x5\r\n",
        " 5\r\n",
        "5 \r\n",
        "5\n",
        "5\r5",
        ";a\r\n",
        "00000000000000005\r\n",
        "5\r\nhello0\r\n",
        "5\r\nhello\n",
        "5\r\nhello\rX",
        "5;\r\n",
        "5;;a\r\n",
        "5;a;\r\n",
        "5; \r\n",
        "5;a \r\n",
        "5;a=b \r\n",
        "5;=b\r\n",
        "5;a=\r\n",
        "5;a=;b\r\n",
        "5;a==b\r\n",
        "5;a b\r\n",
        "5;a=b c\r\n",
        "5;bad[=x\r\n",
        "5;a=[\r\n",
        "5;a=\"b\r\n",
        "5;a=\"b\\\"\r\n",
        "5;a=\"b\"c\r\n",
        "5;a=b\"c\"\r\n",
        "5;\"a\"\r\n",
        "5 a\r\n",
        "5 \n",
        "5;a\nb\r\n",
        "5;\x00\r\n",
        "5;\x7f\r\n",
        "0\r\n\n",
        "0\r\nX\r\n",
        "0\r\n:a\r\n",
        "0\r\nX : a\r\n",
        "0\r\nX: a\n\r\n",
        "0\r\n X: a\r\n\r\n",
        "0\r\n\rX",
    ] {
        assert_eq!(body_bytes(Framing::Chunked, content.as_bytes()), Err(RequestError::InvalidChunk), "{content:?}");
    }
    let extension = |length| format!("1;{}\r\na\r\n", "x".repeat(length));
    assert_eq!(body_bytes(Framing::Chunked, extension(5000).as_bytes()), Err(RequestError::InvalidChunk));
    assert_eq!(body_bytes(Framing::Chunked, extension(50).repeat(100).as_bytes()), Err(RequestError::InvalidChunk));
    let trailer = format!("0\r\n{}", "X: y\r\n".repeat(2000));
    assert_eq!(body_bytes(Framing::Chunked, trailer.as_bytes()), Err(RequestError::InvalidChunk));
}

#[test]
fn chunk_size_above_limit_is_refused() {
    for size in ["7fffffffffffffff", "fffffffffffffffe", "ffffffffffffffff", "10001"] {
        let content = format!("{size}\r\na");
        assert_eq!(body_bytes(Framing::Chunked, content.as_bytes()), Err(RequestError::BodyTooLarge), "{size}");
    }
    let half = format!("8000\r\n{}\r\n", "a".repeat(0x8000));
    assert_eq!(body_bytes(Framing::Chunked, format!("{half}{half}0\r\n\r\n").as_bytes()), Ok(Some(2 * half.len() + 5)));
    let beyond = format!("{half}{half}1\r\na\r\n");
    assert_eq!(body_bytes(Framing::Chunked, beyond.as_bytes()), Err(RequestError::BodyTooLarge));
}

/// Except for the path and query in a redirect.
#[test]
fn answers_do_not_echo_the_request() {
    for request in [
        "GET /<script> HTTP/1.1\nHost: a\n\n",
        "GET /canary-in-path HTTP/1.1\nHost: canary-in-host\nX: canary-in-field\n\n",
        "CANARY /canary HTTP/1.1\nHost: canary\n\n",
    ] {
        let response = response_to(request.replace('\n', "\r\n").as_bytes()).expect("a response");
        let text = response.lines.concat().to_lowercase();
        assert!(!text.contains("canary") && !text.contains("script>"), "{text}");
    }
}
