//! Parses requests, responds to them and skips their bodies.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_http::{
    Body, BodySkipper, CompressorVersion, ContentCoding, FileMetadata, FileTime, ForwardedField, HttpDate, LookupError, Negotiation,
    Parsed, Representation, RequestLimits, SitePath, Validator, forwarded_client, negotiate_coding, parse_request, respond,
};

/// Long enough for several parts.
const LENGTH_BYTES: u64 = 3_600;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Random bytes are seldom a whole request.
    check(&[b"GET /", bytes, b"\r\n\r\n"].concat());
    check(&[b"GET / HTTP/1.1\r\nHost: a\r\n", bytes, b"\r\n\r\n"].concat());
});

fn check(bytes: &[u8]) {
    let limits = RequestLimits::default();
    let time = FileTime { unix_s: 784_025_377, nanos: 0 };
    let metadata = FileMetadata { length_bytes: LENGTH_BYTES, modified: time, changed: time, device: 1, inode: 2 };
    let file = Representation::new(
        &metadata,
        Validator::of_metadata(&metadata),
        "text/plain",
        Negotiation::OnDemand(CompressorVersion(1)),
        b"",
        784_111_777,
    );
    let mut rest = bytes;
    // Each iteration consumes at least one byte.
    while let Ok(Parsed::Complete { request, head_bytes }) = parse_request(rest, 0, &limits) {
        assert!(head_bytes > 0 && head_bytes <= rest.len());
        for end in [head_bytes / 2, head_bytes - 1] {
            assert!(matches!(parse_request(&rest[..end], 0, &limits), Ok(Parsed::Partial)), "a prefix is incomplete");
            let again = parse_request(rest, end, &limits);
            assert!(matches!(again, Ok(Parsed::Complete { head_bytes: other, .. }) if other == head_bytes));
        }
        let coding = negotiate_coding(&request.fields, [ContentCoding::Zstd, ContentCoding::Gzip]);
        assert!(coding != ContentCoding::Brotli, "only an available coding is selected");
        for field in [ForwardedField::Forwarded, ForwardedField::XForwardedFor] {
            let _ = forwarded_client(&request.fields, field, |address| address.is_ipv4());
        }
        let site_path = request.path().map(SitePath::parse);
        for file_result in [Ok(&file), Err(LookupError::NotFound)] {
            check_response(&request, file_result);
        }
        if let Some(Ok(site_path)) = &site_path {
            check_response(&request, Err(LookupError::Directory(site_path)));
        }
        rest = &rest[head_bytes..];
        match BodySkipper::new(request.framing, &limits).advance(rest) {
            Ok(skipped) if skipped.is_done => rest = &rest[skipped.consumed_bytes..],
            _ => return,
        }
    }
}

fn check_response<'r>(
    request: &sanderling_http::Request<'r>,
    file_result: Result<&'r Representation, LookupError<'r>>,
) {
    let response = respond(request, file_result, 784_111_777);
    let mut head = Vec::new();
    response.write_head(&HttpDate::from_unix_s(784_111_777), &mut head);
    let text = core::str::from_utf8(&head).expect("a head is ASCII");
    assert!(text.is_ascii());
    let lines = text.strip_suffix("\r\n\r\n").expect("an empty line at the end");
    for line in lines.split("\r\n") {
        assert!(!line.is_empty() && !line.contains(['\r', '\n', '\0']), "{line:?}");
        if let Some(location) = line.strip_prefix("Location: ") {
            assert!(location.starts_with('/') && !location.starts_with("//"), "{location}");
        }
    }
    match response.body() {
        Body::File { start_bytes, length_bytes } => {
            assert!(length_bytes > 0 && start_bytes + length_bytes <= LENGTH_BYTES);
        }
        Body::Multipart(multipart) => {
            assert!(multipart.length_bytes() < LENGTH_BYTES && multipart.parts().count() <= 16);
            for part in multipart.parts() {
                assert!(part.length_bytes > 0 && part.start_bytes + part.length_bytes <= LENGTH_BYTES);
            }
        }
        Body::Empty | Body::StatusPage(_) | Body::Text(_) | Body::DnsMessage => {}
    }
}
