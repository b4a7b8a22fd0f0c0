//! Tests of requests for several ranges.

use proptest::prelude::*;
use sanderling_http::{
    Body, ContentCoding, HttpDate, Multipart, Negotiation, Parsed, Representation, Request, RequestLimits, Validator,
    parse_request, respond,
};

use crate::site::{NOW_UNIX_S, check, metadata};

/// Checks the response to a GET of `ranges` of a file of 10,000 bytes.
#[track_caller]
fn check_ranges(ranges: &str, expected: &[&str]) {
    check(&format!("GET /ten-thousand.txt HTTP/1.1\nHost: a\nRange: bytes={ranges}\n\n"), expected);
}

const WHOLE: &[&str] = &["HTTP/1.1 200 OK", "Content-Length: 10000", "> file 0+10000", "!Content-Range"];
const UNSATISFIABLE: &[&str] = &["HTTP/1.1 416 Range Not Satisfiable", "Content-Range: bytes */10000"];

#[test]
fn parts_are_in_the_order_of_the_request() {
    let several = ["HTTP/1.1 206 Partial Content", "!Content-Range", "Accept-Ranges: bytes", "Cache-Control: no-cache"];
    let check_parts = |ranges: &str, parts: &str| check_ranges(ranges, &[&several[..], &[parts]].concat());
    check_parts("0-9,500-509", "> parts 0+10,500+10");
    check_parts("500-509, ,0-9", "> parts 500+10,0+10");
    check_parts("-1,0-0", "> parts 9999+1,0+1");
    check_parts("9000-,100-199", "> parts 9000+1000,100+100");
    // Those of which the file has no byte are left out.
    check_parts("10000-,0-0,-0,5000-5000", "> parts 0+1,5000+1");
}

#[test]
fn near_and_overlapping_ranges_become_one() {
    let check_one = |ranges: &str, first: u64, length: u64| {
        let (length_line, body) = (format!("Content-Length: {length}"), format!("> file {first}+{length}"));
        let range = format!("Content-Range: bytes {first}-{}/10000", first + length - 1);
        check_ranges(ranges, &["HTTP/1.1 206 Partial Content", &length_line, &range, &body]);
    };
    check_one("0-1,4-5", 0, 6);
    check_one("4-5,0-1", 0, 6);
    check_one("0-9,90-99", 0, 100);
    check_one("0-99,50-149", 0, 150);
    check_one("0-99,10-20", 0, 100);
    check_one("0-0,10000-", 0, 1);
    // The third is near both.
    check_one("0-9,150-159,80-89", 0, 160);
    check_one(&["0-"; 1300].join(","), 0, 10_000);
    check_ranges("0-9,91-99", &["HTTP/1.1 206 Partial Content", "> parts 0+10,91+9"]);
    check_ranges("5000-5009,0-9,5020-5029", &["> parts 5000+30,0+10"]);
    check_ranges("0-9,5000-5009,20-29", &["> parts 0+30,5000+10"]);
}

#[test]
fn more_parts_than_the_limit_are_the_whole_file() {
    let ranges = |count: u64| (0..count).map(|index| format!("{0}-{0}", 200 * index)).collect::<Vec<_>>().join(",");
    let parts: Vec<_> = (0..16).map(|index| format!("{}+1", 200 * index)).collect();
    check_ranges(&ranges(16), &["HTTP/1.1 206 Partial Content", &format!("> parts {}", parts.join(","))]);
    check_ranges(&ranges(17), WHOLE);
}

#[test]
fn a_response_with_parts_is_shorter_than_the_whole_file() {
    check_ranges("0-4999,5081-9999", WHOLE);
    check(
        "GET /index.html HTTP/1.1\nHost: a\nRange: bytes=0-0,-1\n\n",
        &["HTTP/1.1 206 Partial Content", "> file 0+36"],
    );
}

#[test]
fn an_invalid_range_makes_the_whole_list_invalid() {
    for ranges in ["0-0,5000-4999", "0-0,x", "0-0,5000", "x,0-0,5000-5000", "0-0;5000-5000", "0-0,-"] {
        check_ranges(ranges, WHOLE);
    }
    check_ranges("10000-,-0", UNSATISFIABLE);
}

#[test]
fn several_ranges_of_a_compressed_file_are_ignored() {
    check(
        "GET /app.js HTTP/1.1\nHost: a\nAccept-Encoding: br\nRange: bytes=0-0,600-600\n\n",
        &["HTTP/1.1 200 OK", "Content-Encoding: br"],
    );
    check(
        "GET /app.js HTTP/1.1\nHost: a\nRange: bytes=0-0,600-600\n\n",
        &["HTTP/1.1 206 Partial Content", "> parts 0+1,600+1", "Vary: Accept-Encoding"],
    );
}

#[test]
fn a_multipart_body_is_that_of_rfc_9110_section_14_6() {
    let content: Vec<u8> = (b'a'..=b'z').cycle().take(10_000).collect();
    let (head, body) = send("bytes=0-1,-3", &content);
    let boundary = head.split("boundary=").nth(1).and_then(|rest| rest.split("\r\n").next()).expect("a boundary");
    assert_eq!(boundary.len(), 32);
    let expected = format!(
        "\r\n--{boundary}\r\nContent-Type: text/html\r\nContent-Range: bytes 0-1/10000\r\n\r\nab\
         \r\n--{boundary}\r\nContent-Type: text/html\r\nContent-Range: bytes 9997-9999/10000\r\n\r\n\
         {}\r\n--{boundary}--\r\n",
        std::str::from_utf8(&content[9_997..]).expect("ASCII"),
    );
    assert_eq!(String::from_utf8(body).expect("ASCII"), expected);
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", expected.len())), "{head}");
    assert!(head.contains("\r\nContent-Type: multipart/byteranges; boundary="), "{head}");
    assert_eq!(head.matches("\r\nContent-Type").count(), 1, "{head}");
}

/// The response to a GET of `ranges` of a file with this content: its head and its body.
fn send(ranges: &str, content: &[u8]) -> (String, Vec<u8>) {
    let negotiation = Negotiation::AcceptEncoding(ContentCoding::Identity);
    let metadata = metadata(content.len() as u64);
    let file =
        Representation::new(&metadata, Validator::of_content(content), "text/html", negotiation, b"", NOW_UNIX_S);
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\nRange: {ranges}\r\n\r\n");
    let request = parse(&text);
    let response = respond(&request, Ok(&file), NOW_UNIX_S);
    let mut head = Vec::new();
    response.write_head(&HttpDate::from_unix_s(NOW_UNIX_S), &mut head);
    let body = match response.body() {
        Body::Empty | Body::DnsMessage => Vec::new(),
        Body::StatusPage(page) | Body::Text(page) => page.to_vec(),
        Body::File { start_bytes, length_bytes } => {
            content[start_bytes as usize..(start_bytes + length_bytes) as usize].to_vec()
        }
        Body::Multipart(multipart) => body_of(&multipart, content),
    };
    (String::from_utf8(head).expect("ASCII"), body)
}

fn parse(text: &str) -> Request<'_> {
    match parse_request(text.as_bytes(), 0, &RequestLimits::default()) {
        Ok(Parsed::Complete { request, .. }) => request,
        other => panic!("{other:?}"),
    }
}

fn body_of(multipart: &Multipart<'_>, content: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for part in multipart.parts() {
        multipart.write_part_head(part, &mut body);
        let start = part.start_bytes as usize;
        body.extend_from_slice(&content[start..start + part.length_bytes as usize]);
    }
    multipart.write_end(&mut body);
    assert_eq!(body.len() as u64, multipart.length_bytes());
    body
}

proptest! {
    /// What the client receives is, at each offset, the byte of the file, and all that it has requested.
    #[test]
    fn received_ranges_are_those_of_the_file(
        length in 1..6_000usize,
        ranges in prop::collection::vec((0..7_000usize, prop::option::of(0..300usize), any::<bool>()), 1..24),
    ) {
        let content: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let mut requested = vec![false; length];
        let texts: Vec<_> = ranges.iter().map(|&(start, count, is_suffix)| {
            let (range, text) = match count {
                _ if is_suffix => (length.saturating_sub(start)..length, format!("-{start}")),
                None => (start..length, format!("{start}-")),
                Some(count) => (start..(start + count + 1).min(length), format!("{start}-{}", start + count)),
            };
            if !range.is_empty() {
                requested[range].fill(true);
            }
            text
        }).collect();
        let (head, body) = send(&format!("bytes={}", texts.join(",")), &content);
        prop_assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{}", head);
        if head.starts_with("HTTP/1.1 416") {
            prop_assert!(!requested.contains(&true));
            return Ok(());
        }
        prop_assert!(body.len() <= length);
        let mut received = vec![false; length];
        let mut receive = |range: &str, bytes: &[u8]| {
            let (first, last) = range.split_once('/').expect("a length").0.split_once('-').expect("a range");
            let (first, last) = (first.parse::<usize>().expect("digits"), last.parse::<usize>().expect("digits"));
            assert_eq!(&content[first..=last], bytes);
            received[first..=last].fill(true);
        };
        if let Some(boundary) = head.split("boundary=").nth(1) {
            let boundary = boundary.split("\r\n").next().expect("a line");
            let delimiter = format!("\r\n--{boundary}");
            let starts: Vec<_> = memchr::memmem::find_iter(&body, &delimiter).collect();
            prop_assert!((3..=17).contains(&starts.len()), "{}", starts.len());
            prop_assert_eq!(&body[starts[starts.len() - 1] + delimiter.len()..], b"--\r\n");
            for pair in starts.windows(2) {
                let part = &body[pair[0] + delimiter.len()..pair[1]];
                let end = memchr::memmem::find(part, b"\r\n\r\n").expect("an empty line") + 4;
                let part_head = std::str::from_utf8(&part[..end]).expect("ASCII");
                let range = part_head.split("Content-Range: bytes ").nth(1).expect("a range");
                receive(range.trim_end(), &part[end..]);
            }
        } else if let Some(range) = head.split("Content-Range: bytes ").nth(1) {
            receive(range.split("\r\n").next().expect("a line"), &body);
        } else {
            prop_assert_eq!(&body, &content);
            received.fill(true);
        }
        let is_missing = |(requested, received): (&bool, &bool)| *requested && !received;
        prop_assert!(!requested.iter().zip(&received).any(is_missing));
    }
}
