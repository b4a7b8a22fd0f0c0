//! The codings that clients accept: which one is chosen, and what the answer then says.

use proptest::prelude::*;
use sanderling_http::{ContentCoding, Parsed, RequestLimits, negotiate_coding, parse_request};

use crate::site::{APP_BYTES, answer, check, etag_of_app};

/// The coding that is chosen of `there` for these Accept-Encoding lines.
fn chosen(lines: &[&str], there: &[ContentCoding]) -> ContentCoding {
    let fields: String = lines.iter().map(|line| format!("Accept-Encoding:{line}\r\n")).collect();
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}Accept: */*\r\n\r\n");
    let Ok(Parsed::Complete { request, .. }) = parse_request(request.as_bytes(), &RequestLimits::default()) else {
        panic!("no request: {request:?}");
    };
    negotiate_coding(&request.fields, there.iter().copied())
}

/// Checks what a client gets that sends these lines, when all codings are there and when gzip is the only one.
#[track_caller]
fn check_chosen(lines: &[&str], of_all: &str, of_gzip: &str) {
    assert_eq!(chosen(lines, &ContentCoding::COMPRESSIONS).name(), of_all, "{lines:?}, all are there");
    let mut from_the_least = ContentCoding::COMPRESSIONS;
    from_the_least.reverse();
    assert_eq!(chosen(lines, &from_the_least).name(), of_all, "{lines:?}, the order in which they are there");
    assert_eq!(chosen(lines, &[ContentCoding::Gzip]).name(), of_gzip, "{lines:?}, gzip is there");
    assert_eq!(chosen(lines, &[]).name(), "identity", "{lines:?}, none is there");
}

#[test]
fn who_says_nothing_gets_the_file_as_it_is() {
    check_chosen(&[], "identity", "identity");
    check_chosen(&[""], "identity", "identity");
    check_chosen(&[" \t"], "identity", "identity");
    check_chosen(&[" ,, ,"], "identity", "identity");
    check_chosen(&["", ""], "identity", "identity");
}

#[test]
fn what_clients_like_equally_is_decided_by_our_preference() {
    check_chosen(&[" gzip, deflate, br, zstd"], "br", "gzip");
    check_chosen(&[" gzip, deflate, zstd"], "zstd", "gzip");
    check_chosen(&[" gzip, deflate"], "gzip", "gzip");
    check_chosen(&[" zstd;q=0.5, br;q=0.5, gzip;q=0.5"], "br", "gzip");
    check_chosen(&[" identity, gzip"], "gzip", "gzip");
    check_chosen(&[" identity;q=0.5, gzip;q=0.5"], "gzip", "gzip");
}

#[test]
fn the_highest_weight_wins() {
    check_chosen(&[" br;q=1, gzip;q=0.8"], "br", "gzip");
    check_chosen(&[" br;q=0.8, gzip;q=1"], "gzip", "gzip");
    check_chosen(&[" br;q=0.899, zstd;q=0.9, gzip;q=0.09"], "zstd", "gzip");
    check_chosen(&[" br;q=0.001"], "br", "identity");
    check_chosen(&[" gzip;q=0.5, identity;q=0.8"], "identity", "identity");
    check_chosen(&[" gzip;q=0.8, identity;q=0.5"], "gzip", "gzip");
    check_chosen(&[" gzip;q=0.1"], "gzip", "gzip");
    check_chosen(&[" gzip;q=1.000 , br;q=0.999"], "gzip", "gzip");
}

#[test]
fn a_weight_of_zero_refuses() {
    check_chosen(&[" gzip;q=0"], "identity", "identity");
    check_chosen(&[" gzip;q=0.000, br"], "br", "identity");
    check_chosen(&[" br;q=0, zstd;q=0., gzip;q=0.0"], "identity", "identity");
    check_chosen(&[" *;q=0"], "identity", "identity");
    check_chosen(&[" gzip, *;q=0"], "gzip", "gzip");
    check_chosen(&[" identity;q=1, *;q=0"], "identity", "identity");
}

#[test]
fn nobody_is_sent_away() {
    check_chosen(&[" identity;q=0"], "identity", "identity");
    check_chosen(&[" identity;q=0, br"], "br", "identity");
    check_chosen(&[" identity;q=0, deflate"], "identity", "identity");
    check_chosen(&[" identity;q=0, gzip;q=0"], "identity", "identity");
    check_chosen(&[" deflate, compress"], "identity", "identity");
}

#[test]
fn a_star_stands_for_what_is_not_named() {
    check_chosen(&[" *"], "br", "gzip");
    check_chosen(&[" *;q=0.001"], "br", "gzip");
    check_chosen(&[" gzip;q=0.5, *;q=0.9"], "br", "identity");
    check_chosen(&[" gzip;q=0.9, *;q=0.5"], "gzip", "gzip");
    check_chosen(&[" br;q=0, *"], "zstd", "gzip");
    check_chosen(&[" identity, *;q=0.5"], "identity", "identity");
    check_chosen(&[" identity;q=0, *"], "br", "gzip");
    check_chosen(&[" *, *;q=0"], "identity", "identity");
}

#[test]
fn names_and_weights_have_no_case_and_may_have_white_space() {
    check_chosen(&[" BR"], "br", "identity");
    check_chosen(&["GZip;Q=0.9,\tZStd ; q=0.8"], "gzip", "gzip");
    check_chosen(&[" gzip \t;\t q=0 , br;q=0"], "identity", "identity");
    check_chosen(&[" x-gzip"], "gzip", "gzip");
    check_chosen(&[" X-GZIP;q=0, *"], "br", "identity");
}

#[test]
fn lines_are_one_list() {
    check_chosen(&[" gzip", " br"], "br", "gzip");
    check_chosen(&[" gzip;q=0.5", "", " *;q=0"], "gzip", "gzip");
    check_chosen(&[" br, zstd", " br;q=0"], "zstd", "identity");
}

#[test]
fn who_refuses_a_coding_once_does_not_get_it() {
    check_chosen(&[" br, br;q=0, gzip;q=0.1"], "gzip", "gzip");
    check_chosen(&[" br;q=0, br, gzip;q=0.1"], "gzip", "gzip");
    check_chosen(&[" gzip, x-gzip;q=0"], "identity", "identity");
}

#[test]
fn members_that_do_not_follow_the_grammar_are_passed_over() {
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
        check_chosen(&[&format!(" {junk}")], "identity", "identity");
        check_chosen(&[&format!(" {junk}, gzip;q=0.3")], "gzip", "gzip");
        check_chosen(&[&format!(" gzip;q=0.3 ,{junk}")], "gzip", "gzip");
    }
}

#[test]
fn a_list_of_any_length_is_read_to_its_end() {
    let many = "x, ".repeat(3_000);
    check_chosen(&[&format!(" {many} br")], "br", "identity");
    check_chosen(&[&format!(" br {}", ", br;q=0.5".repeat(500))], "br", "identity");
}

/// The answer to a GET of `app.js`, which is there in br, gzip and plain; `BR`, `GZIP` and `PLAIN` stand for the entity
/// tags.
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
fn each_variant_has_its_own_length_time_and_tag_and_the_type_of_the_file() {
    let lines = answer(b"GET /app.js HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n").expect("an answer").lines;
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
fn the_plain_variant_varies_too_but_names_no_coding() {
    for fields in ["Accept: */*", "Accept-Encoding:", "Accept-Encoding: identity", "Accept-Encoding: zstd"] {
        let expected =
            ["HTTP/1.1 200 OK", "Content-Length: 1000", "ETag: PLAIN", "Vary: Accept-Encoding", "!Content-Encoding"];
        check_app(fields, &expected);
    }
}

#[test]
fn a_file_without_variants_does_not_vary() {
    check("GET /index.html HTTP/1.1\nHost: a\nAccept-Encoding: br\n\n", &["!Vary", "!Content-Encoding", "> file 0+36"]);
}

#[test]
fn head_tells_of_the_variant_that_get_would_send() {
    let length = format!("Content-Length: {BR_BYTES}");
    let expected = ["HTTP/1.1 200 OK", &length, "Content-Encoding: br", "Vary: Accept-Encoding", "> none"];
    check("HEAD /app.js HTTP/1.1\nHost: a\nAccept-Encoding: br\n\n", &expected);
}

#[test]
fn a_variant_is_not_modified_for_who_has_that_variant() {
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
fn dates_are_compared_with_that_of_the_variant() {
    // Between the change of the plain file and that of the variant.
    let since = "If-Modified-Since: Sat, 05 Nov 1994 08:49:38 GMT";
    check_app(&format!("Accept-Encoding: identity\n{since}"), &["HTTP/1.1 304 Not Modified"]);
    check_app(&format!("Accept-Encoding: br\n{since}"), &["HTTP/1.1 200 OK", "Content-Encoding: br"]);
}

/// H23: two variants are never mixed.
#[test]
fn a_range_is_one_of_the_variant() {
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

/// Members as clients send them, and their like.
fn member() -> impl Strategy<Value = (&'static str, Option<u16>)> {
    let name = prop::sample::select(vec!["br", "zstd", "gzip", "identity", "*", "deflate"]);
    (name, prop::option::of(prop_oneof![Just(0), 0..=1000u16]))
}

fn written((name, thousandths): &(&str, Option<u16>)) -> String {
    match thousandths {
        None => (*name).to_owned(),
        Some(1000) => format!("{name};q=1"),
        Some(thousandths) => format!("{name};q=0.{thousandths:03}"),
    }
}

proptest! {
    /// Told once more in the plainest words: look up each coding, and take the one with the most.
    #[test]
    fn the_best_of_those_that_are_there_is_chosen(
        members in prop::collection::vec(member(), 0..6),
        there in prop::sample::subsequence(ContentCoding::COMPRESSIONS.to_vec(), 0..=3),
    ) {
        let weight = |name: &str| {
            let of = |name: &str| members.iter().filter(|member| member.0 == name).map(|m| m.1.unwrap_or(1000)).min();
            of(name).or(of("*"))
        };
        let mut expected = ContentCoding::Identity;
        let mut most = weight("identity").unwrap_or(0);
        for name in ["gzip", "zstd", "br"] {
            let Some(coding) = there.iter().find(|coding| coding.name() == name) else { continue };
            if weight(name).is_some_and(|weight| weight > 0 && weight >= most) {
                expected = *coding;
                most = weight(name).expect("just seen");
            }
        }
        let line = members.iter().map(written).collect::<Vec<_>>().join(", ");
        prop_assert_eq!(chosen(&[&line], &there), expected, "{}", line);
        // In which order they stand, and in how many lines, says nothing.
        let lines: Vec<_> = members.iter().rev().map(written).collect();
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        prop_assert_eq!(chosen(&lines, &there), expected, "{:?}", lines);
    }

    #[test]
    fn any_text_chooses_one_that_is_there(
        text in "([ -~\u{e9}]|br|gzip|zstd|;q=|[,;*=.01]){0,60}",
        there in prop::sample::subsequence(ContentCoding::COMPRESSIONS.to_vec(), 0..=3),
    ) {
        let coding = chosen(&[&text], &there);
        prop_assert!(coding == ContentCoding::Identity || there.contains(&coding));
        prop_assert!(coding == ContentCoding::Identity || text.contains('*') || text.to_lowercase().contains(coding.name()));
    }
}
