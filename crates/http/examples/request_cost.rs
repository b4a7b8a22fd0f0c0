//! Measures the time of one request in this crate: parsing, decoding the path, deciding and writing the head; and of
//! the negotiation of a coding.
//!
//! `cargo run --release -p sanderling-http --example request_cost`

use std::hint::black_box;
use std::time::Instant;

use sanderling_http::{
    ContentCoding, FileMetadata, FileTime, HttpDate, Negotiation, Parsed, Representation, RequestLimits, SitePath,
    Validator, media_type, negotiate_coding, parse_request, respond,
};

const PLAIN: &str = "GET /index.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";

const CURL: &str = "GET /index.html HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n\r\n";

/// The fields of a browser.
const BROWSER: &str = "GET /assets/app-4f3a9c1d.js HTTP/1.1\r\n\
    Host: www.example.com\r\n\
    Connection: keep-alive\r\n\
    Pragma: no-cache\r\n\
    Cache-Control: no-cache\r\n\
    sec-ch-ua: \"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\", \"Google Chrome\";v=\"140\"\r\n\
    sec-ch-ua-mobile: ?0\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36\r\n\
    sec-ch-ua-platform: \"Linux\"\r\n\
    Accept: */*\r\n\
    Sec-Fetch-Site: same-origin\r\n\
    Sec-Fetch-Mode: no-cors\r\n\
    Sec-Fetch-Dest: script\r\n\
    Referer: https://www.example.com/\r\n\
    Accept-Encoding: gzip, deflate, br, zstd\r\n\
    Accept-Language: en-GB,en;q=0.9\r\n\r\n";

/// The result is the fastest of these rounds. Each is far shorter than a time slice, so that other processes do not
/// slow down all of them.
const ROUND_COUNT: usize = 4_000;
const REQUESTS_PER_ROUND: u32 = 250;

fn main() {
    let metadata = FileMetadata {
        length_bytes: 512,
        modified: FileTime { unix_s: 1_700_000_000, nanos: 1 },
        changed: FileTime { unix_s: 1_700_000_000, nanos: 2 },
        device: 1,
        inode: 2,
    };
    let extra_fields = b"Cache-Control: no-cache\r\n";
    let validator = Validator::of_metadata(&metadata);
    let media_type = media_type(b"index.html");
    let file = Representation::new(&metadata, validator, media_type, Negotiation::None, extra_fields, 1_700_000_100);
    let not_modified = BROWSER.replace(
        "Accept-Language",
        &format!("If-None-Match: {}\r\nAccept-Language", String::from_utf8_lossy(file.etag())),
    );
    let partial = CURL.replace("Accept:", "Range: bytes=100-199\r\nAccept:");

    println!("{:24} {:>6} {:>9} {:>9} {:>9}", "request", "bytes", "parse ns", "whole ns", "httparse");
    for (name, text) in [
        ("plain", PLAIN),
        ("curl", CURL),
        ("curl, range", &partial),
        ("browser", BROWSER),
        ("browser, not modified", &not_modified),
    ] {
        let parse_ns = time_ns(|| parse_only(black_box(text.as_bytes())));
        let mut out = Vec::with_capacity(4096);
        let date = HttpDate::from_unix_s(1_700_000_200);
        let whole_ns = time_ns(|| {
            out.clear();
            serve(black_box(text.as_bytes()), &file, &date, &mut out);
            black_box(out.len())
        });
        let httparse_ns = time_ns(|| httparse_only(black_box(text.as_bytes())));
        println!("{name:24} {:6} {parse_ns:9.0} {whole_ns:9.0} {httparse_ns:9.0}", text.len());
    }
    println!("negotiation among three codings, browser: {:.0} ns", negotiation_ns(BROWSER));
}

fn negotiation_ns(text: &str) -> f64 {
    let Ok(Parsed::Complete { request, .. }) = parse_request(text.as_bytes(), 0, &RequestLimits::default()) else {
        panic!("invalid request");
    };
    time_ns(|| negotiate_coding(black_box(&request.fields), black_box(ContentCoding::COMPRESSED)) as usize)
}

fn time_ns(mut step: impl FnMut() -> usize) -> f64 {
    let round_ns = || {
        let start = Instant::now();
        for _ in 0..REQUESTS_PER_ROUND {
            black_box(step());
        }
        start.elapsed().as_nanos() as f64 / f64::from(REQUESTS_PER_ROUND)
    };
    std::iter::repeat_with(round_ns).take(ROUND_COUNT).fold(f64::INFINITY, f64::min)
}

fn parse_only(bytes: &[u8]) -> usize {
    match parse_request(bytes, 0, &RequestLimits::default()) {
        Ok(Parsed::Complete { request, head_bytes }) => {
            black_box(&request);
            head_bytes
        }
        other => panic!("{other:?}"),
    }
}

fn serve(bytes: &[u8], file: &Representation, date: &HttpDate, out: &mut Vec<u8>) {
    let Ok(Parsed::Complete { request, .. }) = parse_request(bytes, 0, &RequestLimits::default()) else {
        panic!("invalid request")
    };
    let path = request.path().expect("a GET has a path");
    black_box(SitePath::parse(path).expect("a site path").as_bytes());
    let response = respond(&request, Ok(black_box(file)), 1_700_000_200);
    response.write_head(date, out);
    black_box(response.body());
}

/// Parsing by httparse, for comparison.
fn httparse_only(bytes: &[u8]) -> usize {
    let mut fields = [const { std::mem::MaybeUninit::uninit() }; 100];
    let mut request = httparse::Request::new(&mut []);
    let status = request.parse_with_uninit_headers(bytes, &mut fields).expect("a valid request");
    black_box(&request);
    status.unwrap()
}
