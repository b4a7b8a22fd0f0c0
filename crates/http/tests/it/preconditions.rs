//! Tests of preconditions and ranges: cases that other servers get wrong, then all combinations.

use sanderling_http::{
    CompressorVersion, ContentCoding, FileMetadata, FileTime, HttpDate, Negotiation, Parsed, Representation,
    RequestLimits, Status, Validator, parse_request, respond,
};

use crate::site::{MODIFIED, MODIFIED_UNIX_S, NOW_UNIX_S, check, etag, metadata, response_to};

/// Checks the response to a GET of a file of 36 bytes with these field lines; `TAG` is a placeholder for its entity
/// tag.
#[track_caller]
fn check_get(fields: &str, expected: &[&str]) {
    let fields = fields.replace("TAG", &etag("index.html"));
    check(&format!("GET /index.html HTTP/1.1\nHost: a\n{fields}\n\n"), expected);
}

const OK: &[&str] = &["HTTP/1.1 200 OK", "Content-Length: 36", "> file 0+36"];
const NOT_MODIFIED: &[&str] = &[
    "HTTP/1.1 304 Not Modified",
    "Cache-Control: no-cache",
    "Date: Sun, 06 Nov 1994 08:49:37 GMT",
    "!Content-Length",
    "!Content-Type",
    "!Last-Modified",
    "> none",
];
const FAILED: &[&str] = &["HTTP/1.1 412 Precondition Failed", "!ETag", "!Connection"];
const UNSATISFIABLE: &[&str] = &["HTTP/1.1 416 Range Not Satisfiable", "Content-Range: bytes */36"];

#[test]
fn if_none_match_compares_weakly() {
    check_get("If-None-Match: TAG", NOT_MODIFIED);
    check_get("If-None-Match: W/TAG", NOT_MODIFIED);
    check_get("If-None-Match: *", NOT_MODIFIED);
    check_get("If-None-Match: \"a,b\" ,, W/\"\",TAG , \"z\"", NOT_MODIFIED);
    check_get("If-None-Match: \"x\"\nAccept: */*\nif-none-match: TAG", NOT_MODIFIED);
    check_get("If-None-Match: TAG, \"x\"", NOT_MODIFIED);
    check_get("If-None-Match: \"!~é\", TAG", NOT_MODIFIED);
    check_get("If-None-Match: \"a b\", TAG", OK);
    check_get("If-None-Match: \"x\"", OK);
    check_get("If-None-Match: ", OK);
    check_get("If-None-Match: w/TAG", OK);
    check_get("If-None-Match: \"x, TAG", OK);
    check_get("If-None-Match: TAGTAG", OK);
    check_get("If-None-Match: unquoted", OK);
}

#[test]
fn if_none_match_takes_precedence_over_if_modified_since() {
    check_get(&format!("If-Modified-Since: {MODIFIED}\nIf-None-Match: \"x\""), OK);
    check_get("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\nIf-None-Match: TAG", NOT_MODIFIED);
}

#[test]
fn if_modified_since_accepts_all_date_formats() {
    check_get(&format!("If-Modified-Since: {MODIFIED}"), NOT_MODIFIED);
    check_get("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT", NOT_MODIFIED);
    check_get("If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT", NOT_MODIFIED);
    check_get("If-Modified-Since: Sun Nov  6 08:49:37 1994", NOT_MODIFIED);
    check_get("If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT", NOT_MODIFIED);
    check_get("If-Modified-Since: Sat, 05 Nov 1994 08:49:36 GMT", OK);
    check_get("If-Modified-Since: yesterday", OK);
    check_get("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 CET", OK);
    check_get(&format!("If-Modified-Since: {MODIFIED}\nIf-Modified-Since: {MODIFIED}"), OK);
}

#[test]
fn if_match_compares_strongly_and_takes_precedence_over_if_unmodified_since() {
    check_get("If-Match: TAG", OK);
    check_get("If-Match: *", OK);
    check_get("If-Match: \"x\"\nIf-Match: \"y\", TAG", OK);
    check_get("If-Match: W/TAG", FAILED);
    check_get("If-Match: \"x\"", FAILED);
    check_get("If-Match: TAG\nIf-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", OK);
    check_get("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", FAILED);
    check_get(&format!("If-Unmodified-Since: {MODIFIED}"), OK);
    check_get("If-Unmodified-Since: never", OK);
    check_get("If-Match: \"x\"\nIf-None-Match: TAG", FAILED);
}

#[test]
fn single_range_is_206() {
    for (range, first, last) in [
        ("bytes=0-0", 0, 0),
        ("bytes=1-", 1, 35),
        ("BYTES= 4-8 ,", 4, 8),
        ("bytes=30-99", 30, 35),
        ("bytes=35-18446744073709551615", 35, 35),
        ("bytes=0-99999999999999999999999999", 0, 35),
        ("bytes=-1", 35, 35),
        ("bytes=-36", 0, 35),
        ("bytes=-37", 0, 35),
        ("bytes=-99999999999999999999999999", 0, 35),
    ] {
        let length = last - first + 1;
        let range = format!("Range: {range}");
        check_get(
            &range,
            &[
                "HTTP/1.1 206 Partial Content",
                &format!("Content-Length: {length}"),
                &format!("Content-Range: bytes {first}-{last}/36"),
                &format!("ETag: {}", etag("index.html")),
                "Content-Type: text/html; charset=utf-8",
                "Cache-Control: no-cache",
                &format!("> file {first}+{length}"),
            ],
        );
    }
}

#[test]
fn range_beyond_end_of_file_is_416() {
    for range in ["36-", "36-40", "-0", "-000", "99999999999999999999999999-", "18446744073709551615-"] {
        check_get(&format!("Range: bytes={range}"), UNSATISFIABLE);
    }
}

#[test]
fn invalid_range_is_ignored() {
    for range in [
        "foo=0-1",
        "bytes=",
        "bytes",
        "bytes=-",
        "bytes=a-b",
        "bytes=1",
        "bytes=2-1",
        "bytes=0x0-1",
        "bytes=+0-1",
        "bytes=0 - 1",
        "bytes=--1",
        "bytes=-9223372036854775808-",
        "bytes 0-1",
        "bytes =0-1",
        "",
    ] {
        check_get(&format!("Range: {range}"), OK);
    }
    check_get("Range: bytes=0-1\nRange: bytes=0-1", OK);
}

#[test]
fn range_applies_to_get_only() {
    check("HEAD /index.html HTTP/1.1\nHost: a\nRange: bytes=0-1\n\n", &["HTTP/1.1 200 OK", "Content-Length: 36"]);
    check("GET /missing HTTP/1.1\nHost: a\nRange: bytes=0-1\n\n", &["HTTP/1.1 404 Not Found", "!Content-Range"]);
}

#[test]
fn range_of_empty_file_is_ignored() {
    for range in ["0-", "-5", "-0", "5-"] {
        check(
            &format!("GET /empty.txt HTTP/1.1\nHost: a\nRange: bytes={range}\n\n"),
            &["HTTP/1.1 200 OK", "Content-Length: 0", "> none"],
        );
    }
}

#[test]
fn range_near_u64_max_does_not_overflow() {
    check(
        "GET /huge.bin HTTP/1.1\nHost: a\nRange: bytes=18446744073709551614-18446744073709551615\n\n",
        &["Content-Range: bytes 18446744073709551614-18446744073709551614/18446744073709551615", "Content-Length: 1"],
    );
    check(
        "GET /huge.bin HTTP/1.1\nHost: a\nRange: bytes=0-\n\n",
        &["Content-Range: bytes 0-18446744073709551614/18446744073709551615"],
    );
}

#[test]
fn if_range_matches_only_same_strong_tag() {
    let part = &["HTTP/1.1 206 Partial Content", "> file 0+2"];
    check_get("Range: bytes=0-1\nIf-Range: TAG", part);
    check_get("Range: bytes=0-1\nIf-Range: W/TAG", OK);
    check_get("Range: bytes=0-1\nIf-Range: \"old\"", OK);
    check_get("Range: bytes=0-1\nIf-Range: TAG, TAG", OK);
    check_get("Range: bytes=0-1\nIf-Range: *", OK);
    check_get("Range: bytes=0-1\nIf-Range: TAG\nIf-Range: TAG", OK);
    check_get("Range: bytes=99-\nIf-Range: \"old\"", OK);
    check_get("Range: bytes=99-\nIf-Range: TAG", UNSATISFIABLE);
    check_get("If-Range: \"old\"", OK);
}

#[test]
fn if_range_matches_the_date_of_last_modified() {
    check_get(&format!("Range: bytes=0-1\nIf-Range: {MODIFIED}"), &["HTTP/1.1 206 Partial Content", "> file 0+2"]);
    check_get(&format!("Range: bytes=99-\nIf-Range: {MODIFIED}"), UNSATISFIABLE);
    // RFC 9110 §13.1.5: an exact match, unlike If-Unmodified-Since.
    check_get("Range: bytes=0-1\nIf-Range: Sat, 05 Nov 1994 08:49:38 GMT", OK);
    check_get("Range: bytes=0-1\nIf-Range: Sat, 05 Nov 1994 08:49:36 GMT", OK);
    check_get("Range: bytes=0-1\nIf-Range: Sat, 05 Nov 1994", OK);
    check_get(&format!("Range: bytes=0-1\nIf-Range: {MODIFIED}\nIf-Range: {MODIFIED}"), OK);
}

/// RFC 9110 §8.8.2.2: the file may change again within the second of its date.
#[test]
fn if_range_date_is_weak_in_its_own_second() {
    let modified_unix_s = MODIFIED_UNIX_S.cast_unsigned();
    for (now_unix_s, expected) in [(modified_unix_s, Status::Ok), (modified_unix_s + 1, Status::PartialContent)] {
        let file = Representation::new(
            &metadata(36),
            Validator::of_metadata(&metadata(36)),
            "text/plain",
            Negotiation::None,
            b"",
            now_unix_s,
        );
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\nIf-Range: {MODIFIED}\r\n\r\n");
        let Ok(Parsed::Complete { request, .. }) = parse_request(request.as_bytes(), 0, &RequestLimits::default())
        else {
            panic!("refused");
        };
        assert_eq!(respond(&request, Ok(&file), now_unix_s).status(), expected, "{now_unix_s}");
    }
}

/// A build may give the same time to all versions of a file.
#[test]
fn if_range_date_is_weak_if_a_tool_may_have_set_it() {
    for (nanos, expected) in [(0, Status::Ok), (1, Status::PartialContent)] {
        let metadata = FileMetadata { modified: FileTime { unix_s: MODIFIED_UNIX_S, nanos }, ..metadata(36) };
        let validator = Validator::of_metadata(&metadata);
        let file = Representation::new(&metadata, validator, "text/plain", Negotiation::None, b"", NOW_UNIX_S);
        let fields = format!("Range: bytes=0-1\r\nIf-Range: {MODIFIED}\r\n");
        assert_eq!(status_and_tag(&file, &fields).0, expected, "{nanos}");
    }
}

/// The status and the entity tag of the response to a GET of `file`.
fn status_and_tag(file: &Representation, fields: &str) -> (Status, String) {
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let Ok(Parsed::Complete { request, .. }) = parse_request(request.as_bytes(), 0, &RequestLimits::default()) else {
        panic!("refused");
    };
    let response = respond(&request, Ok(file), NOW_UNIX_S);
    let mut head = Vec::new();
    response.write_head(&HttpDate::from_unix_s(NOW_UNIX_S), &mut head);
    let head = String::from_utf8(head).expect("text");
    let tag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap_or_default();
    (response.status(), tag.to_owned())
}

/// As after a restart, or on another machine.
#[test]
fn copy_in_a_coding_is_recognized_before_that_is_made() {
    const COMPRESSORS: CompressorVersion = CompressorVersion(1);
    let validator = Validator::of_content(b"the content");
    let make = |validator, negotiation| {
        Representation::new(&metadata(36), validator, "text/plain", negotiation, b"X: y\r\n", NOW_UNIX_S)
    };
    let plain = make(validator, Negotiation::OnDemand(COMPRESSORS));
    let tag_of = |coding, validator: Validator| {
        let made = make(validator.compressed_by(COMPRESSORS), Negotiation::AcceptEncoding(coding));
        String::from_utf8(made.etag().to_vec()).expect("ASCII")
    };
    let check = |fields: &str, expected: (Status, &str)| {
        let (status, tag) = status_and_tag(&plain, fields);
        assert_eq!((status, tag.as_str()), expected, "{fields}");
    };
    let own = String::from_utf8(plain.etag().to_vec()).expect("ASCII");
    for coding in ContentCoding::COMPRESSED {
        let (tag, name) = (tag_of(coding, validator), coding.name());
        let not_modified = (Status::NotModified, tag.as_str());
        check(&format!("Accept-Encoding: {name}\r\nIf-None-Match: {tag}\r\n"), not_modified);
        check(&format!("Accept-Encoding: gzip, br, zstd\r\nIf-None-Match: \"x\", W/{tag}\r\n"), not_modified);
        check(&format!("Accept-Encoding: {name}\r\nIf-None-Match: {tag}\r\nRange: bytes=0-1\r\n"), not_modified);
        // A cache that has several copies learns which one this client may get.
        check(&format!("Accept-Encoding: {name}\r\nIf-None-Match: {own}, {tag}\r\n"), (Status::NotModified, &own));
        for fields in ["", "Accept-Encoding: identity\r\n", &format!("Accept-Encoding: *, {name};q=0\r\n")] {
            check(&format!("{fields}If-None-Match: {tag}\r\n"), (Status::Ok, &own));
        }
        let old = tag_of(coding, Validator::of_content(b"old content"));
        check(&format!("Accept-Encoding: {name}\r\nIf-None-Match: {old}\r\n"), (Status::Ok, &own));
        check(&format!("Accept-Encoding: {name}\r\nIf-Range: {tag}\r\nRange: bytes=0-1\r\n"), (Status::Ok, &own));
    }
    let file = make(validator, Negotiation::AcceptEncoding(ContentCoding::Identity));
    let fields = format!("Accept-Encoding: br\r\nIf-None-Match: {}\r\n", tag_of(ContentCoding::Brotli, validator));
    assert_eq!(status_and_tag(&file, &fields).0, Status::Ok, "nothing is made of it");
}

#[test]
fn preconditions_take_precedence_over_range() {
    check_get("Range: bytes=99-\nIf-None-Match: TAG", NOT_MODIFIED);
    check_get("Range: bytes=0-1\nIf-Match: \"x\"", FAILED);
}

#[test]
fn preconditions_apply_only_to_files() {
    check("GET /missing HTTP/1.1\nHost: a\nIf-Match: *\n\n", &["HTTP/1.1 404 Not Found"]);
    check("GET /docs HTTP/1.1\nHost: a\nIf-None-Match: *\n\n", &["HTTP/1.1 301 Moved Permanently"]);
    check("OPTIONS / HTTP/1.1\nHost: a\nIf-None-Match: *\n\n", &["HTTP/1.1 204 No Content"]);
}

/// The expected status comes from a literal transcription of the steps.
#[test]
fn all_combinations_follow_rfc_9110_section_13_2_2() {
    /// A field line, and whether its condition is true or its range satisfiable; `None` if it is ignored.
    type Choice = (&'static str, Option<bool>);
    let if_match: [Choice; 4] = [
        ("", None),
        ("If-Match: TAG\n", Some(true)),
        ("If-Match: \"x\"\n", Some(false)),
        ("If-Match: W/TAG\n", Some(false)),
    ];
    let if_unmodified_since: [Choice; 4] = [
        ("", None),
        ("If-Unmodified-Since: Sat, 05 Nov 1994 08:49:37 GMT\n", Some(true)),
        ("If-Unmodified-Since: Sat, 05 Nov 1994 08:49:36 GMT\n", Some(false)),
        ("If-Unmodified-Since: now\n", None),
    ];
    let if_none_match: [Choice; 4] = [
        ("", None),
        ("If-None-Match: \"x\"\n", Some(true)),
        ("If-None-Match: TAG\n", Some(false)),
        ("If-None-Match: \"x\"\nIf-None-Match: W/TAG\n", Some(false)),
    ];
    let if_modified_since: [Choice; 4] = [
        ("", None),
        ("If-Modified-Since: Sat, 05 Nov 1994 08:49:36 GMT\n", Some(true)),
        ("If-Modified-Since: Sat, 05 Nov 1994 08:49:38 GMT\n", Some(false)),
        ("If-Modified-Since: now\n", None),
    ];
    let if_range: [Choice; 3] = [("", None), ("If-Range: TAG\n", Some(true)), ("If-Range: W/TAG\n", Some(false))];
    let range: [Choice; 4] = [
        ("", None),
        ("Range: bytes=1-2\n", Some(true)),
        ("Range: bytes=40-\n", Some(false)),
        ("Range: bytes=1-2,4-5\n", Some(true)),
    ];
    let tag = etag("index.html");
    let all = [&if_match[..], &if_unmodified_since, &if_none_match, &if_modified_since, &if_range, &range];
    let case_count: usize = all.iter().map(|choices| choices.len()).product();
    assert_eq!(case_count, 3072);
    for case in 0..case_count {
        let mut rest = case;
        let [im, ius, inm, ims, ir, r] = all.map(|choices| {
            let choice = choices[rest % choices.len()];
            rest /= choices.len();
            choice
        });
        let fields = [r.0, ir.0, ims.0, inm.0, ius.0, im.0].concat().replace("TAG", &tag).replace('\n', "\r\n");
        for method in ["GET", "HEAD"] {
            let step_1_or_2 = if im.0.is_empty() { ius.1 } else { im.1 };
            let step_3_or_4 = if inm.0.is_empty() { ims.1 } else { inm.1 };
            let step_5 = if method == "HEAD" || ir.1 == Some(false) { None } else { r.1 };
            let expected = match (step_1_or_2, step_3_or_4, step_5) {
                (Some(false), ..) => 412,
                (_, Some(false), _) => 304,
                (.., None) => 200,
                (.., Some(true)) => 206,
                (.., Some(false)) => 416,
            };
            let request = format!("{method} /index.html HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let response = response_to(request.as_bytes()).expect("a response");
            assert_eq!(response.status(), expected, "{request}");
        }
    }
}
