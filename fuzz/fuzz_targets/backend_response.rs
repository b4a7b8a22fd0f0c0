//! Any bytes as the response of a backend, or as the output of a script: a prefix of a valid head is incomplete, and
//! the head for the client is one valid response with the same framing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_http::{
    BackendResponse, BodySkipper, ClientContent, ParsedResponse, Persistence, ResponseFraming, ResponseHeadParts,
    ResponseLimits, Version, parse_cgi_response, parse_response,
};

const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // Random bytes are seldom a whole response.
    check(&[b"HTTP/1.1 200 ", bytes].concat());
    check(&[b"HTTP/1.1 200 OK\r\n", bytes, b"\r\n\r\n"].concat());
    check(&[b"HTTP/1.1 101 x\r\nUpgrade: ", bytes, b"\r\n\r\n"].concat());
    check_script(bytes);
    check_script(&[b"Content-Type: a\n", bytes, b"\n\n"].concat());
    check_content(bytes);
});

fn check(bytes: &[u8]) {
    let limits = ResponseLimits::default();
    for is_head_request in [false, true] {
        let Ok(ParsedResponse::Complete { response, head_bytes }) = parse_response(bytes, is_head_request, &limits)
        else {
            return;
        };
        for end in [0, head_bytes / 2, head_bytes - 1] {
            let prefix = parse_response(&bytes[..end], is_head_request, &limits);
            assert!(matches!(prefix, Ok(ParsedResponse::Partial)), "a prefix is incomplete");
        }
        let has_content = response.framing() != ResponseFraming::None;
        assert!(!has_content || !is_head_request && response.status() >= 200);
        assert!(response.framing() != ResponseFraming::UntilClose || !response.persists());
        check_written(&response);
    }
}

fn check_script(bytes: &[u8]) {
    let (limits, mut scratch) = (ResponseLimits::default(), Vec::new());
    let parsed = parse_cgi_response(bytes, false, &limits, &mut scratch);
    let Ok(ParsedResponse::Complete { response, head_bytes }) = parsed else { return };
    assert!(response.status() >= 200 && response.framing() != ResponseFraming::Chunked);
    check_written(&response);
    let prefix = parse_cgi_response(&bytes[..head_bytes - 1], false, &limits, &mut scratch);
    assert!(matches!(prefix, Ok(ParsedResponse::Partial)), "a prefix is incomplete");
}

fn check_written(response: &BackendResponse<'_>) {
    let edits = [("X-A".to_owned(), Some("b".to_owned())), ("Server".to_owned(), None)];
    for version in [Version::Http10, Version::Http11] {
        let content = response.framing().for_client(version);
        let parts =
            ResponseHeadParts { edits: &edits, content, persistence: Persistence::Persist, version, date: DATE };
        let mut out = Vec::new();
        response.write_head(&parts, &mut out);
        let limits = ResponseLimits { head_bytes_max: 2 * out.len(), field_count_max: 300 };
        let Ok(ParsedResponse::Complete { response: read, head_bytes }) = parse_response(&out, false, &limits) else {
            panic!("refused: {}", out.escape_ascii());
        };
        assert_eq!((head_bytes, read.status()), (out.len(), response.status()), "one response");
        match content {
            ClientContent::None => assert!(read.content_length().is_none() && !read.has_field(b"transfer-encoding")),
            ClientContent::Length(length_bytes) => assert_eq!(read.content_length(), Some(length_bytes)),
            ClientContent::Chunked => assert_eq!(read.framing(), ResponseFraming::Chunked),
            ClientContent::UntilClose => assert!(read.framing() == ResponseFraming::UntilClose && !read.persists()),
        }
        for name in [&b"keep-alive"[..], b"proxy-connection", b"te", b"trailer", b"x-accel-redirect", b"x-sendfile"] {
            assert!(!read.has_field(name), "{}", out.escape_ascii());
        }
        assert_eq!(read.upgrade(), response.upgrade());
    }
}

/// The content is the same whatever the pieces.
fn check_content(bytes: &[u8]) {
    let decode = |piece_bytes| {
        let mut skipper = BodySkipper::of_response(ResponseFraming::Chunked);
        let mut content = Vec::new();
        for piece in bytes.chunks(piece_bytes) {
            if let Err(error) = skipper.advance_with(piece, |part| content.extend_from_slice(part)) {
                return (content, Err(error));
            }
        }
        (content, Ok(skipper.is_done()))
    };
    assert_eq!(decode(3), decode(usize::MAX));
}
