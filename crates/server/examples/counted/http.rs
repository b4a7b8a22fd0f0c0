//! The response to a request, without a server: parsed request, path, head and body.

use std::hint::black_box;

use sanderling_http::{
    Body, FileMetadata, FileTime, HttpDate, LookupError, Negotiation, Parsed, Representation, RequestLimits, SitePath,
    Status, Validator, media_type, parse_request, respond,
};

/// Size of the file.
pub(crate) const FILE_BYTES: usize = 512;
/// The request of curl.
pub(crate) const REQUEST: &str =
    "GET /512 HTTP/1.1\r\nHost: www.example\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n";

/// 2023-11-14, just before the date of the responses.
const FILE_UNIX_S: i64 = 1_700_000_000;
const NOW_UNIX_S: u64 = 1_700_000_200;

/// 200 with the file.
pub(crate) fn repeat_hit(count: usize) {
    repeat(REQUEST, Some(&file()), Status::Ok, count);
}

/// 304.
pub(crate) fn repeat_not_modified(count: usize) {
    let file = file();
    let validator = format!("If-None-Match: {}\r\n\r\n", String::from_utf8_lossy(file.etag()));
    let head = REQUEST.strip_suffix("\r\n").expect("a request ends with an empty line");
    repeat(&format!("{head}{validator}"), Some(&file), Status::NotModified, count);
}

/// 404.
pub(crate) fn repeat_missing(count: usize) {
    repeat(REQUEST, None, Status::NotFound, count);
}

fn file() -> Representation {
    let metadata = FileMetadata {
        length_bytes: FILE_BYTES as u64,
        modified: FileTime { unix_s: FILE_UNIX_S, nanos: 1 },
        changed: FileTime { unix_s: FILE_UNIX_S, nanos: 2 },
        device: 1,
        inode: 2,
    };
    Representation::new(
        &metadata,
        Validator::of_metadata(&metadata),
        media_type(b"512"),
        Negotiation::None,
        b"",
        NOW_UNIX_S,
    )
}

fn repeat(request: &str, file: Option<&Representation>, expected: Status, count: usize) {
    let date = HttpDate::from_unix_s(NOW_UNIX_S);
    let memory = [b'x'; FILE_BYTES];
    let mut out = Vec::with_capacity(4096);
    for _ in 0..count {
        out.clear();
        let status = answer(black_box(request.as_bytes()), black_box(file), &memory, &date, &mut out);
        assert_eq!(status, expected);
        black_box(&out);
    }
}

/// Writes the response, as a worker does.
fn answer(bytes: &[u8], file: Option<&Representation>, memory: &[u8], date: &HttpDate, out: &mut Vec<u8>) -> Status {
    let Ok(Parsed::Complete { request, .. }) = parse_request(bytes, 0, &RequestLimits::default()) else {
        panic!("not a request");
    };
    let path = SitePath::parse(request.path().expect("a GET has a path")).expect("the path of a file");
    black_box(path.as_bytes());
    let response = respond(&request, file.ok_or(LookupError::NotFound), NOW_UNIX_S);
    response.write_head(date, out);
    match response.body() {
        Body::Empty => {}
        Body::StatusPage(page) => out.extend_from_slice(page),
        Body::File { start_bytes, length_bytes } => {
            out.extend_from_slice(&memory[start_bytes as usize..(start_bytes + length_bytes) as usize]);
        }
        Body::Multipart(_) | Body::DnsMessage | Body::Text(_) => {
            unreachable!("no request has several ranges or asks for a DNS message")
        }
    }
    response.status()
}
