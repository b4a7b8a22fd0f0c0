//! Tests of content negotiation by Accept-Encoding.

use proptest::prelude::*;
use sanderling_http::{
    ContentCoding, Fields, Parsed, RequestLimits, accepts_identity, negotiate_coding, parse_request,
};

use crate::site::{APP_BYTES, check, etag_of_app, response_to};

/// What `of` says of the fields of a request with these values of Accept-Encoding lines.
fn of_fields<T>(lines: &[&str], of: impl Fn(&Fields<'_>) -> T) -> T {
    let fields: String = lines.iter().map(|line| format!("Accept-Encoding:{line}\r\n")).collect();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}Accept: */*\r\n\r\n");
    let Ok(Parsed::Complete { request, .. }) = parse_request(request.as_bytes(), 0, &RequestLimits::default()) else {
        panic!("invalid request: {request:?}");
    };
    of(&request.fields)
}

/// The coding selected from `available`.
fn selected(lines: &[&str], available: &[ContentCoding]) -> ContentCoding {
    of_fields(lines, |fields| negotiate_coding(fields, available.iter().copied()))
}

#[test]
fn identity_is_accepted_unless_it_is_refused() {
    for (line, expected) in [
        ("br", true),
        ("br;q=0", true),
        ("br, *;q=0.1", true),
        ("identity, *;q=0", true),
        ("br, identity;q=0", false),
        ("br, *;q=0", false),
    ] {
        assert_eq!(of_fields(&[line], accepts_identity), expected, "{line}");
    }
}

/// Checks the coding selected for these lines if all codings are available, and if only gzip is.
#[track_caller]
fn check_selected(lines: &[&str], of_all: &str, of_gzip: &str) {
    assert_eq!(selected(lines, &ContentCoding::COMPRESSED).name(), of_all, "{lines:?}, all available");
    let mut from_the_least = ContentCoding::COMPRESSED;
    from_the_least.reverse();
    assert_eq!(selected(lines, &from_the_least).name(), of_all, "{lines:?}, all available, in reverse order");
    assert_eq!(selected(lines, &[ContentCoding::Gzip]).name(), of_gzip, "{lines:?}, gzip available");
    assert_eq!(selected(lines, &[]).name(), "identity", "{lines:?}, none available");
}

#[test]
fn identity_without_accept_encoding() {
    check_selected(&[], "identity", "identity");
    check_selected(&[""], "identity", "identity");
    check_selected(&[" \t"], "identity", "identity");
    check_selected(&[" ,, ,"], "identity", "identity");
    check_selected(&["", ""], "identity", "identity");
}

#[test]
fn equal_weights_are_decided_by_server_preference() {
    check_selected(&[" gzip, deflate, br, zstd"], "br", "gzip");
    check_selected(&[" gzip, deflate, zstd"], "zstd", "gzip");
    check_selected(&[" gzip, deflate"], "gzip", "gzip");
    check_selected(&[" zstd;q=0.5, br;q=0.5, gzip;q=0.5"], "br", "gzip");
    check_selected(&[" identity, gzip"], "gzip", "gzip");
    check_selected(&[" identity;q=0.5, gzip;q=0.5"], "gzip", "gzip");
}

#[test]
fn highest_weight_is_selected() {
    check_selected(&[" br;q=1, gzip;q=0.8"], "br", "gzip");
    check_selected(&[" br;q=0.8, gzip;q=1"], "gzip", "gzip");
    check_selected(&[" br;q=0.899, zstd;q=0.9, gzip;q=0.09"], "zstd", "gzip");
    check_selected(&[" br;q=0.001"], "br", "identity");
    check_selected(&[" gzip;q=0.5, identity;q=0.8"], "identity", "identity");
    check_selected(&[" gzip;q=0.8, identity;q=0.5"], "gzip", "gzip");
    check_selected(&[" gzip;q=0.1"], "gzip", "gzip");
    check_selected(&[" gzip;q=1.000 , br;q=0.999"], "gzip", "gzip");
}

#[test]
fn weight_zero_excludes_coding() {
    check_selected(&[" gzip;q=0"], "identity", "identity");
    check_selected(&[" gzip;q=0.000, br"], "br", "identity");
    check_selected(&[" br;q=0, zstd;q=0., gzip;q=0.0"], "identity", "identity");
    check_selected(&[" *;q=0"], "identity", "identity");
    check_selected(&[" gzip, *;q=0"], "gzip", "gzip");
    check_selected(&[" identity;q=1, *;q=0"], "identity", "identity");
}

#[test]
fn identity_is_the_last_resort() {
    check_selected(&[" identity;q=0"], "identity", "identity");
    check_selected(&[" identity;q=0, br"], "br", "identity");
    check_selected(&[" identity;q=0, deflate"], "identity", "identity");
    check_selected(&[" identity;q=0, gzip;q=0"], "identity", "identity");
    check_selected(&[" deflate, compress"], "identity", "identity");
}

#[test]
fn asterisk_matches_unlisted_codings() {
    check_selected(&[" *"], "br", "gzip");
    check_selected(&[" *;q=0.001"], "br", "gzip");
    check_selected(&[" gzip;q=0.5, *;q=0.9"], "br", "identity");
    check_selected(&[" gzip;q=0.9, *;q=0.5"], "gzip", "gzip");
    check_selected(&[" br;q=0, *"], "zstd", "gzip");
    check_selected(&[" identity, *;q=0.5"], "identity", "identity");
    check_selected(&[" identity;q=0, *"], "br", "gzip");
    check_selected(&[" *, *;q=0"], "identity", "identity");
}

#[test]
fn names_are_case_insensitive_and_white_space_is_allowed() {
    check_selected(&[" BR"], "br", "identity");
    check_selected(&["GZip;Q=0.9,\tZStd ; q=0.8"], "gzip", "gzip");
    check_selected(&[" gzip \t;\t q=0 , br;q=0"], "identity", "identity");
    check_selected(&[" x-gzip"], "gzip", "gzip");
    check_selected(&[" X-GZIP;q=0, *"], "br", "identity");
}

#[test]
fn repeated_lines_are_one_list() {
    check_selected(&[" gzip", " br"], "br", "gzip");
    check_selected(&[" gzip;q=0.5", "", " *;q=0"], "gzip", "gzip");
    check_selected(&[" br, zstd", " br;q=0"], "zstd", "identity");
}

#[test]
fn coding_refused_once_is_excluded() {
    check_selected(&[" br, br;q=0, gzip;q=0.1"], "gzip", "gzip");
    check_selected(&[" br;q=0, br, gzip;q=0.1"], "gzip", "gzip");
    check_selected(&[" gzip, x-gzip;q=0"], "identity", "identity");
}

#[test]
fn invalid_members_are_ignored() {
    for junk in [
        "br;q=2",
        "br;q=1.5",
        "br;q=0.1234",
        "br;q=",
        "br;q",
        "br;",
        "br;q=a",
        "br;q=-1",
        "br;q=\"1\"",
        "br;q =1",
        "br;q= 1",
        "br;q=1;q=1",
        "br;level=5",
        "br;level=5;q=1",
        ";q=1",
        "br q=1",
        "br=1",
        "\"br\"",
        "b r",
        "brotli",
        "br/",
        "\u{e9}",
    ] {
        check_selected(&[&format!(" {junk}")], "identity", "identity");
        check_selected(&[&format!(" {junk}, gzip;q=0.3")], "gzip", "gzip");
        check_selected(&[&format!(" gzip;q=0.3 ,{junk}")], "gzip", "gzip");
    }
}

#[test]
fn long_list_is_parsed_to_its_end() {
    let many = "x, ".repeat(3_000);
    check_selected(&[&format!(" {many} br")], "br", "identity");
    check_selected(&[&format!(" br {}", ", br;q=0.5".repeat(500))], "br", "identity");
}

/// Checks the response to a GET of `app.js`, which is available in br, gzip and identity. `BR`, `GZIP` and `PLAIN` are
/// placeholders for the entity tags.
#[track_caller]
fn check_app(fields: &str, expected: &[&str]) {
    let with_tags = |text: &str| {
        let tags = [("BR", ContentCoding::Brotli), ("GZIP", ContentCoding::Gzip), ("PLAIN", ContentCoding::Identity)];
        tags.iter().fold(text.to_owned(), |text, (name, coding)| text.replace(name, &etag_of_app(*coding)))
    };
    let expected: Vec<_> = expected.iter().map(|line| with_tags(line)).collect();
    let expected: Vec<_> = expected.iter().map(String::as_str).collect();
    check(&format!("GET /app.js HTTP/1.1\nHost: a\n{}\n\n", with_tags(fields)), &expected);
}

const BR_BYTES: u64 = APP_BYTES - 100 * ContentCoding::Brotli as u64;

#[test]
fn coded_response_has_own_validators_and_type_of_plain_file() {
    let lines =
        response_to(b"GET /app.js HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n").expect("a response").lines;
    assert_eq!(
        lines,
        [
            "HTTP/1.1 200 OK",
            "Server: sanderling",
            "Date: Sun, 06 Nov 1994 08:49:37 GMT",
            &format!("Content-Length: {BR_BYTES}"),
            "Content-Type: text/javascript; charset=utf-8",
            "Content-Encoding: br",
            "Last-Modified: Sat, 05 Nov 1994 08:49:40 GMT",
            "Accept-Ranges: bytes",
            "X-Content-Type-Options: nosniff",
            &format!("ETag: {}", etag_of_app(ContentCoding::Brotli)),
            "Vary: Accept-Encoding",
            "Cache-Control: no-cache",
        ]
    );
    let tags = [ContentCoding::Brotli, ContentCoding::Gzip, ContentCoding::Identity].map(etag_of_app);
    assert!(tags[0] != tags[1] && tags[1] != tags[2] && tags[0] != tags[2], "{tags:?}");
    check_app(
        "Accept-Encoding: gzip",
        &["Content-Length: 900", "Content-Encoding: gzip", "ETag: GZIP", "> file 0+900"],
    );
}

#[test]
fn identity_response_has_vary_but_no_content_encoding() {
    for fields in ["Accept: */*", "Accept-Encoding:", "Accept-Encoding: identity", "Accept-Encoding: zstd"] {
        let expected =
            ["HTTP/1.1 200 OK", "Content-Length: 1000", "ETag: PLAIN", "Vary: Accept-Encoding", "!Content-Encoding"];
        check_app(fields, &expected);
    }
}

#[test]
fn file_without_codings_has_no_vary() {
    check("GET /index.html HTTP/1.1\nHost: a\nAccept-Encoding: br\n\n", &["!Vary", "!Content-Encoding", "> file 0+36"]);
}

#[test]
fn head_describes_negotiated_representation() {
    let length = format!("Content-Length: {BR_BYTES}");
    let expected = ["HTTP/1.1 200 OK", &length, "Content-Encoding: br", "Vary: Accept-Encoding", "> none"];
    check("HEAD /app.js HTTP/1.1\nHost: a\nAccept-Encoding: br\n\n", &expected);
}

#[test]
fn if_none_match_compares_with_negotiated_representation() {
    let not_modified = ["HTTP/1.1 304 Not Modified", "Vary: Accept-Encoding", "!Content-Encoding", "!Content-Length"];
    for (accepted, tag) in [("br", "BR"), ("gzip", "GZIP"), ("identity", "PLAIN")] {
        let etag = format!("ETag: {tag}");
        let expected = [&not_modified[..], &[&etag]].concat();
        check_app(&format!("Accept-Encoding: {accepted}\nIf-None-Match: {tag}"), &expected);
        check_app(&format!("Accept-Encoding: {accepted}\nIf-None-Match: BR, GZIP, PLAIN"), &expected);
    }
    for (accepted, tag) in [("br", "GZIP"), ("br", "PLAIN"), ("gzip", "BR"), ("identity", "BR")] {
        check_app(&format!("Accept-Encoding: {accepted}\nIf-None-Match: {tag}"), &["HTTP/1.1 200 OK"]);
        check_app(&format!("Accept-Encoding: {accepted}\nIf-Match: {tag}"), &["HTTP/1.1 412 Precondition Failed"]);
    }
}

#[test]
fn if_modified_since_compares_with_negotiated_representation() {
    // Between the modification times of the plain and the coded file.
    let since = "If-Modified-Since: Sat, 05 Nov 1994 08:49:38 GMT";
    check_app(&format!("Accept-Encoding: identity\n{since}"), &["HTTP/1.1 304 Not Modified"]);
    check_app(&format!("Accept-Encoding: br\n{since}"), &["HTTP/1.1 200 OK", "Content-Encoding: br"]);
}

#[test]
fn range_applies_to_negotiated_representation() {
    let range = format!("Content-Range: bytes {}-{}/{BR_BYTES}", BR_BYTES - 5, BR_BYTES - 1);
    let part = ["HTTP/1.1 206 Partial Content", "Content-Encoding: br", "ETag: BR", "Vary: Accept-Encoding", &range];
    check_app("Accept-Encoding: br\nRange: bytes=-5", &part);
    check_app("Accept-Encoding: br\nRange: bytes=-5\nIf-Range: BR", &part);
    check_app("Accept-Encoding: br\nRange: bytes=-5\nIf-Range: PLAIN", &["HTTP/1.1 200 OK", "Content-Encoding: br"]);
    check_app("Range: bytes=-5\nIf-Range: BR", &["HTTP/1.1 200 OK", "Content-Length: 1000", "!Content-Encoding"]);
    let beyond = format!("Range: bytes={BR_BYTES}-");
    check_app(
        &format!("Accept-Encoding: br\n{beyond}"),
        &["HTTP/1.1 416 Range Not Satisfiable", &format!("Content-Range: bytes */{BR_BYTES}"), "!Content-Encoding"],
    );
    check_app(&beyond, &["HTTP/1.1 206 Partial Content", "!Content-Encoding"]);
}

/// A coding and its weight in thousandths.
fn member() -> impl Strategy<Value = (&'static str, Option<u16>)> {
    let name = prop::sample::select(vec!["br", "zstd", "gzip", "identity", "*", "deflate"]);
    (name, prop::option::of(prop_oneof![Just(0), 0..=1000u16]))
}

fn format_member((name, thousandths): &(&str, Option<u16>)) -> String {
    match thousandths {
        None => (*name).to_owned(),
        Some(1000) => format!("{name};q=1"),
        Some(thousandths) => format!("{name};q=0.{thousandths:03}"),
    }
}

proptest! {
    /// The expected coding comes from a second, simpler implementation.
    #[test]
    fn best_available_coding_is_selected(
        members in prop::collection::vec(member(), 0..6),
        available in prop::sample::subsequence(ContentCoding::COMPRESSED.to_vec(), 0..=3),
    ) {
        let weight = |name: &str| {
            let of = |name: &str| members.iter().filter(|member| member.0 == name).map(|m| m.1.unwrap_or(1000)).min();
            of(name).or(of("*"))
        };
        let mut expected = ContentCoding::Identity;
        let mut most = weight("identity").unwrap_or(0);
        for name in ["gzip", "zstd", "br"] {
            let Some(coding) = available.iter().find(|coding| coding.name() == name) else { continue };
            if weight(name).is_some_and(|weight| weight > 0 && weight >= most) {
                expected = *coding;
                most = weight(name).expect("checked above");
            }
        }
        let line = members.iter().map(format_member).collect::<Vec<_>>().join(", ");
        prop_assert_eq!(selected(&[&line], &available), expected, "{}", line);
        // The order of members and lines is irrelevant.
        let lines: Vec<_> = members.iter().rev().map(format_member).collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        prop_assert_eq!(selected(&lines, &available), expected, "{:?}", lines);
    }

    #[test]
    fn any_text_selects_an_available_coding(
        text in "([ -~\u{e9}]|br|gzip|zstd|;q=|[,;*=.01]){0,60}",
        available in prop::sample::subsequence(ContentCoding::COMPRESSED.to_vec(), 0..=3),
    ) {
        let coding = selected(&[&text], &available);
        prop_assert!(coding == ContentCoding::Identity || available.contains(&coding));
        let is_listed = text.contains('*') || text.to_lowercase().contains(coding.name());
        prop_assert!(coding == ContentCoding::Identity || is_listed);
    }
}
