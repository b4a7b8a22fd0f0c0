//! The preferences of a client in Accept, Sec-Fetch-Mode and Accept-Encoding: the answers do not contradict each other.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_http::{ContentCoding, Parsed, RequestLimits, negotiate_coding, parse_request};

fuzz_target!(|input: (&str, &str, &str, &str)| {
    let (path, accept, mode, coding) = input;
    let head = format!(
        "GET /{path} HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nSec-Fetch-Mode: {mode}\r\nAccept-Encoding: {coding}\r\n\r\n"
    );
    let Ok(Parsed::Complete { request, .. }) = parse_request(head.as_bytes(), 0, &RequestLimits::default()) else {
        return;
    };
    let names = |media_type: &str| head.to_ascii_lowercase().contains(media_type);
    assert!(!request.accepts_html() || names("text/html"));
    assert!(!request.prefers_json() || names("application/json"));
    assert!(!request.is_navigation() || request.accepts_html());
    let chosen = negotiate_coding(&request.fields, [ContentCoding::Gzip]);
    assert!(chosen == ContentCoding::Identity || (chosen == ContentCoding::Gzip && (names("gzip") || names("*"))));
});
