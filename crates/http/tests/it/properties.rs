//! What holds for all requests, valid or not.

use proptest::prelude::*;
use sanderling_http::{
    Body, BodySkipper, ContentCoding, FieldName, Framing, HttpDate, Negotiation, Parsed, Representation, RequestLimits,
    SitePath, parse_request, respond,
};

use crate::site::{NOW_UNIX_S, answer, etag, facts};

/// Mostly valid requests: pieces that come from real ones, in any order and number.
fn request_text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "GET /index.html HTTP/1.1\r\n",
        "HEAD /a%20b.txt?q HTTP/1.1\r\n",
        "GET /app.js HTTP/1.1\r\n",
        "GET http://a/docs HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "POST / HTTP/1.0\r\n",
        "GET /x HTTP/2.0\r\n",
        "\r\nGET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\n",
    ]);
    let tag = etag("index.html");
    let field = prop::sample::select(vec![
        "Host: a\r\n".to_owned(),
        "host:b:80\r\n".to_owned(),
        "Connection: close, x\r\n".to_owned(),
        "Content-Length: 7\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\n".to_owned(),
        "Expect: 100-continue\r\n".to_owned(),
        format!("If-None-Match: \"x\", {tag}\r\n"),
        format!("If-Match: {tag}\r\n"),
        format!("If-Range: {tag}\r\n"),
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned(),
        "Range: bytes=3-9\r\n".to_owned(),
        "Range: bytes=-5\r\n".to_owned(),
        "Accept-Encoding: br\r\n".to_owned(),
        "Accept-Encoding: gzip;q=0.9, *;q=0.1\r\n".to_owned(),
        "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"
            .to_owned(),
        " folded\r\n".to_owned(),
        "no colon\r\n".to_owned(),
    ]);
    let fields = prop::collection::vec(field, 0..6).prop_map(|fields| fields.concat());
    let noise = prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<u8>()));
    (line, "(Host: a\r\n)?", fields, "(\r\n)?", noise).prop_map(|(line, host, fields, end, noise)| {
        let mut bytes = [line, &host, &fields, &end].concat().into_bytes();
        if let Some((index, byte)) = noise {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        bytes
    })
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(Parsed::Complete { head_bytes, .. }) = parse_request(&bytes, &RequestLimits::default()) {
            prop_assert!(head_bytes <= bytes.len());
        }
    }

    /// However a request is split, it is incomplete up to its last byte, and no byte behind it matters.
    #[test]
    fn a_prefix_never_says_more_than_the_whole(bytes in request_text(), behind in prop::collection::vec(any::<u8>(), 0..40)) {
        let limits = RequestLimits::default();
        match parse_request(&bytes, &limits) {
            Ok(Parsed::Complete { request, head_bytes }) => {
                prop_assert!(head_bytes <= bytes.len());
                for end in 0..head_bytes {
                    let parse = parse_request(&bytes[..end], &limits);
                    prop_assert!(matches!(parse, Ok(Parsed::Partial)), "{end}: {parse:?}");
                }
                let longer = [&bytes[..head_bytes], &behind].concat();
                let Ok(Parsed::Complete { request: again, head_bytes: other }) = parse_request(&longer, &limits) else {
                    return Err(TestCaseError::fail("no request with more behind it"));
                };
                prop_assert_eq!(head_bytes, other);
                prop_assert_eq!(format!("{request:?}"), format!("{again:?}"));
            }
            Ok(Parsed::Partial) => {
                for end in 0..bytes.len() {
                    prop_assert!(matches!(parse_request(&bytes[..end], &limits), Ok(Parsed::Partial)));
                }
            }
            Err(_) => {
                let longer = [&bytes[..], &behind].concat();
                prop_assert!(parse_request(&longer, &limits).is_err());
            }
        }
    }

    /// We take nothing that a well-known parser refuses, and read what we take as it does.
    #[test]
    fn another_parser_reads_the_same(bytes in request_text()) {
        let Ok(Parsed::Complete { request, head_bytes }) = parse_request(&bytes, &RequestLimits::default()) else {
            return Ok(());
        };
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut other = httparse::Request::new(&mut fields);
        match other.parse(&bytes) {
            Ok(status) => prop_assert_eq!(status, httparse::Status::Complete(head_bytes)),
            // It knows no later minor version.
            Err(httparse::Error::Version) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(format!("{error} in {}", bytes.escape_ascii()))),
        }
        for (name, field) in [
            ("Host", FieldName::Host),
            ("Range", FieldName::Range),
            ("If-None-Match", FieldName::IfNoneMatch),
            ("Content-Length", FieldName::ContentLength),
            ("Connection", FieldName::Connection),
        ] {
            let values = other.headers.iter().filter(|other| other.name.eq_ignore_ascii_case(name));
            // It leaves white space at the end of a value.
            let values: Vec<_> = values.map(|field| field.value.trim_ascii()).collect();
            prop_assert_eq!(request.fields.values(field).collect::<Vec<_>>(), values.clone());
            prop_assert_eq!(request.fields.contains(field), !values.is_empty());
            prop_assert_eq!(request.fields.single(field).is_some(), values.len() == 1);
        }
    }

    /// What we write is a head that another parser takes, with each field once and the length of what follows.
    #[test]
    fn every_answer_is_a_head_and_says_how_long_its_content_is(bytes in request_text()) {
        let Some(answer) = answer(&bytes) else { return Ok(()) };
        let text = answer.lines.join("\r\n") + "\r\n\r\n";
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut fields);
        prop_assert_eq!(head.parse(text.as_bytes()), Ok(httparse::Status::Complete(text.len())));
        prop_assert_eq!(head.code, Some(answer.status()));
        let mut names: Vec<_> = head.headers.iter().map(|field| field.name.to_lowercase()).collect();
        names.sort();
        let name_count = names.len();
        names.dedup();
        prop_assert_eq!(names.len(), name_count, "{}", text);
        prop_assert_eq!(answer.field("Connection") == Some("close"), answer.is_close);
        let length = answer.field("Content-Length").map(str::to_owned);
        match answer.content.split_once(' ') {
            None if matches!(answer.status(), 204 | 304) => prop_assert_eq!(length, None),
            None => prop_assert!(length.is_some()),
            Some(("page", page_bytes)) => prop_assert_eq!(length.as_deref(), Some(page_bytes)),
            Some((_, part)) => prop_assert_eq!(length.as_deref(), part.split('+').nth(1)),
        }
    }

    /// H20: nothing of one answer stays behind for the next.
    #[test]
    fn a_kept_representation_answers_like_a_new_one(requests in prop::collection::vec(request_text(), 1..8)) {
        let make = || Representation::new(&facts(36), "text/html", Negotiation::AcceptEncoding(ContentCoding::Gzip), b"Cache-Control: no-cache\r\n", NOW_UNIX_S);
        let kept = make();
        let mut kept_out = Vec::new();
        for (index, bytes) in requests.iter().enumerate() {
            let Ok(Parsed::Complete { request, .. }) = parse_request(bytes, &RequestLimits::default()) else { continue };
            let date = HttpDate::from_unix_s(NOW_UNIX_S + index as u64);
            let new = make();
            let mut new_out = Vec::new();
            let start = kept_out.len();
            respond(&request, Ok(&kept)).write_head(&date, &mut kept_out);
            respond(&request, Ok(&new)).write_head(&date, &mut new_out);
            prop_assert_eq!(&kept_out[start..], &new_out[..]);
        }
    }

    #[test]
    fn a_site_path_has_no_segment_that_leads_elsewhere(
        segments in prop::collection::vec("(%2[eEfF]|%5[cC]|%00|%25|\\.|\\.well-known|[a-c]|%6[1-3]|/){0,4}", 0..6),
    ) {
        let path = format!("/{}", segments.join("/"));
        if let Ok(site_path) = SitePath::parse(path.as_bytes()) {
            let bytes = site_path.as_bytes();
            prop_assert!(!bytes.contains(&0) && !bytes.contains(&b'\\'));
            prop_assert_eq!(site_path.ends_with_slash(), path.ends_with('/'));
            // No segment was made or lost: decoding never gives a slash.
            let end = usize::from(path.len() > 1 && path.ends_with('/'));
            let count = path.matches('/').count() - end;
            prop_assert_eq!(bytes.split(|&byte| byte == b'/').count(), count);
            for (index, segment) in bytes.split(|&byte| byte == b'/').enumerate() {
                let is_shown = !segment.starts_with(b".") || (index == 0 && segment == b".well-known");
                prop_assert!(is_shown, "{}", path);
                prop_assert!(!segment.is_empty() || bytes.is_empty(), "{}", path);
            }
        }
    }

    #[test]
    fn a_path_without_escapes_is_its_own_site_path(path in "[a-z]{1,9}(/[a-z.]{0,3}[a-z]{1,9}){0,4}") {
        if let Ok(site_path) = SitePath::parse(format!("/{path}").as_bytes()) {
            prop_assert_eq!(site_path.as_bytes(), path.as_bytes());
        }
    }

    #[test]
    fn a_part_lies_in_the_file(
        length_bytes in prop_oneof![0..50u64, any::<u64>()],
        range in "bytes=([0-9]{0,3}|[0-9]{18,22})-([0-9]{0,3}|[0-9]{18,22})",
    ) {
        let file = Representation::new(&facts(length_bytes), "text/html", Negotiation::None, b"", NOW_UNIX_S);
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n");
        let Ok(Parsed::Complete { request, .. }) = parse_request(text.as_bytes(), &RequestLimits::default()) else {
            return Err(TestCaseError::fail("no request"));
        };
        let response = respond(&request, Ok(&file));
        response.write_head(&HttpDate::from_unix_s(NOW_UNIX_S), &mut Vec::new());
        if let Body::File { start_bytes, length_bytes: part_bytes } = response.body() {
            prop_assert!(part_bytes > 0);
            prop_assert!(start_bytes.checked_add(part_bytes).is_some_and(|end_bytes| end_bytes <= length_bytes));
        }
    }

    /// Steps of any size find the same end, and never go beyond it.
    #[test]
    fn content_ends_at_the_same_byte_in_any_steps(
        chunks in prop::collection::vec((1..300usize, "(;[a-z]{0,9})?"), 0..6),
        trailer in "([A-Z]{1,3}:[ a-z]{0,9}\r\n){0,2}",
        step_bytes in 1..64usize,
    ) {
        let chunk = |(size_bytes, extension): &(usize, String)| {
            format!("{size_bytes:x}{extension}\r\n{}\r\n", "y".repeat(*size_bytes))
        };
        let content = chunks.iter().map(chunk).collect::<String>() + "0\r\n" + &trailer + "\r\n";
        let mut discard = BodySkipper::new(Framing::Chunked, &RequestLimits::default());
        let mut consumed_bytes = 0;
        for step in (content.clone() + "GET / HTTP/1.1\r\n").as_bytes().chunks(step_bytes) {
            let discarded = discard.advance(step).expect("valid");
            consumed_bytes += discarded.consumed_bytes;
            if discarded.is_done {
                break;
            }
            prop_assert_eq!(discarded.consumed_bytes, step.len());
        }
        prop_assert!(discard.is_done());
        prop_assert_eq!(consumed_bytes, content.len());
    }

    #[test]
    fn any_content_is_discarded_without_a_panic(bytes in "[0-9a-f;\r\nx:]{0,200}", step_bytes in 1..20usize) {
        let mut discard = BodySkipper::new(Framing::Chunked, &RequestLimits::default());
        for step in bytes.as_bytes().chunks(step_bytes) {
            match discard.advance(step) {
                Ok(discarded) => prop_assert!(discarded.consumed_bytes <= step.len()),
                Err(_) => break,
            }
        }
    }

    #[test]
    fn a_date_is_read_back_as_it_was_written(unix_s in 0..253_402_300_800u64) {
        prop_assert_eq!(HttpDate::parse_unix_s(HttpDate::from_unix_s(unix_s).as_bytes()), Some(unix_s));
    }

    #[test]
    fn any_text_is_read_as_a_date_without_a_panic(text in "[A-Za-z]{0,9}[, ]{0,2}[0-9 :A-Za-z-]{0,30}( GMT)?") {
        HttpDate::parse_unix_s(text.as_bytes());
    }
}
