//! Property tests with valid and invalid requests.

use proptest::prelude::*;
use sanderling_http::{
    Body, BodySkipper, ContentCoding, FieldName, Framing, HttpDate, Negotiation, Parsed, PathTraits, Representation,
    RequestLimits, SitePath, Validator, parse_request, respond,
};

use crate::site::{NOW_UNIX_S, etag, metadata, response_to};

/// Mostly valid requests, composed of parts of real ones.
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
    fn parse_of_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Ok(Parsed::Complete { head_bytes, .. }) = parse_request(&bytes, 0, &RequestLimits::default()) {
            prop_assert!(head_bytes <= bytes.len());
        }
    }

    /// A request is incomplete up to its last byte, and no byte after it matters.
    #[test]
    fn prefix_is_consistent_with_whole(
        bytes in request_text(),
        after in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let limits = RequestLimits::default();
        match parse_request(&bytes, 0, &limits) {
            Ok(Parsed::Complete { request, head_bytes }) => {
                prop_assert!(head_bytes <= bytes.len());
                for end in 0..head_bytes {
                    let parse = parse_request(&bytes[..end], 0, &limits);
                    prop_assert!(matches!(parse, Ok(Parsed::Partial)), "{end}: {parse:?}");
                }
                let longer = [&bytes[..head_bytes], &after].concat();
                let again = parse_request(&longer, 0, &limits);
                let Ok(Parsed::Complete { request: again, head_bytes: other }) = again else {
                    return Err(TestCaseError::fail("refused with more bytes after it"));
                };
                prop_assert_eq!(head_bytes, other);
                prop_assert_eq!(format!("{request:?}"), format!("{again:?}"));
            }
            Ok(Parsed::Partial) => {
                for end in 0..bytes.len() {
                    prop_assert!(matches!(parse_request(&bytes[..end], 0, &limits), Ok(Parsed::Partial)));
                }
            }
            Err(_) => {
                let longer = [&bytes[..], &after].concat();
                prop_assert!(parse_request(&longer, 0, &limits).is_err());
            }
        }
    }

    /// Fragments of any size have the result of the whole, except that an error may be detected later.
    #[test]
    fn fragments_are_parsed_like_the_whole(bytes in request_text(), fragment_bytes in 1..40usize) {
        let limits = RequestLimits::default();
        let mut scanned_bytes = 0;
        let ends = (fragment_bytes..bytes.len()).step_by(fragment_bytes).chain([bytes.len()]);
        let mut results = ends.map(|end| {
            let result = parse_request(&bytes[..end], scanned_bytes, &limits);
            scanned_bytes = end;
            result
        });
        let last = results.find(|result| !matches!(result, Ok(Parsed::Partial)));
        match (parse_request(&bytes, 0, &limits), last) {
            (Ok(whole @ Parsed::Complete { .. }), Some(Ok(last))) => {
                prop_assert_eq!(format!("{whole:?}"), format!("{last:?}"));
            }
            (Ok(Parsed::Partial), None) | (Err(_), Some(Err(_)) | None) => {}
            (whole, last) => return Err(TestCaseError::fail(format!("{whole:?}, but in fragments {last:?}"))),
        }
    }

    /// Each accepted request is accepted by httparse too, with the same fields.
    #[test]
    fn httparse_agrees(bytes in request_text()) {
        let Ok(Parsed::Complete { request, head_bytes }) = parse_request(&bytes, 0, &RequestLimits::default()) else {
            return Ok(());
        };
        let mut fields = [httparse::EMPTY_HEADER; 100];
        let mut other = httparse::Request::new(&mut fields);
        match other.parse(&bytes) {
            Ok(status) => prop_assert_eq!(status, httparse::Status::Complete(head_bytes)),
            // httparse supports no later minor version.
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
            // httparse does not trim the end of a value.
            let values: Vec<_> = values.map(|field| field.value.trim_ascii()).collect();
            prop_assert_eq!(request.fields.values(field).collect::<Vec<_>>(), values.clone());
            prop_assert_eq!(request.fields.contains(field), !values.is_empty());
            prop_assert_eq!(request.fields.single(field).is_some(), values.len() == 1);
        }
    }

    /// Each field occurs once, and Content-Length is that of the body.
    #[test]
    fn every_response_is_valid_and_has_correct_length(bytes in request_text()) {
        let Some(response) = response_to(&bytes) else { return Ok(()) };
        let text = response.lines.join("\r\n") + "\r\n\r\n";
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut fields);
        prop_assert_eq!(head.parse(text.as_bytes()), Ok(httparse::Status::Complete(text.len())));
        prop_assert_eq!(head.code, Some(response.status()));
        let mut names: Vec<_> = head.headers.iter().map(|field| field.name.to_lowercase()).collect();
        names.sort();
        let name_count = names.len();
        names.dedup();
        prop_assert_eq!(names.len(), name_count, "{}", text);
        prop_assert_eq!(response.field("Connection") == Some("close"), response.is_close);
        let length = response.field("Content-Length").map(str::to_owned);
        match response.body.split_once(' ') {
            None if matches!(response.status(), 204 | 304) => prop_assert_eq!(length, None),
            None | Some(("parts", _)) => prop_assert!(length.is_some()),
            Some(("page", page_bytes)) => prop_assert_eq!(length.as_deref(), Some(page_bytes)),
            Some((_, part)) => prop_assert_eq!(length.as_deref(), part.split('+').nth(1)),
        }
    }

    #[test]
    fn reused_representation_responds_like_new(requests in prop::collection::vec(request_text(), 1..8)) {
        let negotiation = Negotiation::AcceptEncoding(ContentCoding::Gzip);
        let fields = b"Cache-Control: no-cache\r\n";
        let make = || Representation::new(&metadata(36), Validator::of_metadata(&metadata(36)), "text/html", negotiation, fields, NOW_UNIX_S);
        let kept = make();
        let mut kept_out = Vec::new();
        for (index, bytes) in requests.iter().enumerate() {
            let parsed = parse_request(bytes, 0, &RequestLimits::default());
            let Ok(Parsed::Complete { request, .. }) = parsed else { continue };
            let date = HttpDate::from_unix_s(NOW_UNIX_S + index as u64);
            let new = make();
            let mut new_out = Vec::new();
            let start = kept_out.len();
            respond(&request, Ok(&kept), NOW_UNIX_S).write_head(&date, &mut kept_out);
            respond(&request, Ok(&new), NOW_UNIX_S).write_head(&date, &mut new_out);
            prop_assert_eq!(&kept_out[start..], &new_out[..]);
        }
    }

    #[test]
    fn site_path_stays_below_root(
        segments in prop::collection::vec("(%2[eEfF]|%5[cC]|%00|%25|\\.|\\.well-known|[a-c]|%6[1-3]|/){0,4}", 0..6),
    ) {
        let path = format!("/{}", segments.join("/"));
        if let Ok(site_path) = SitePath::parse(path.as_bytes()) {
            let bytes = site_path.as_bytes();
            prop_assert!(!bytes.contains(&0) && !bytes.contains(&b'\\'));
            // RFC 3986 §5.2.4, literally.
            let mut expected: Vec<Vec<u8>> = Vec::new();
            for segment in decoded(&path).split(|&byte| byte == b'/') {
                match segment {
                    b"" | b"." => {}
                    b".." => drop(expected.pop().expect("never out of the root")),
                    _ => expected.push(segment.to_vec()),
                }
            }
            prop_assert_eq!(bytes, expected.join(&b'/'));
            let is_hidden = |(index, segment): (usize, &[u8])| {
                segment.starts_with(b".") && !(index == 0 && segment == b".well-known")
            };
            let has_hidden = bytes.split(|&byte| byte == b'/').enumerate().any(is_hidden);
            prop_assert_eq!(site_path.traits().intersects(PathTraits::HIDDEN), has_hidden, "{}", path);
        }
    }

    #[test]
    fn plain_path_is_unchanged(path in "[a-z]{1,9}(/[a-z.]{0,3}[a-z]{1,9}){0,4}") {
        if let Ok(site_path) = SitePath::parse(format!("/{path}").as_bytes()) {
            prop_assert_eq!(site_path.as_bytes(), path.as_bytes());
        }
    }

    #[test]
    fn range_is_within_file(
        length_bytes in prop_oneof![0..50u64, any::<u64>()],
        range in "bytes=([0-9]{0,3}|[0-9]{18,22})-([0-9]{0,3}|[0-9]{18,22})",
    ) {
        let file = Representation::new(&metadata(length_bytes), Validator::of_metadata(&metadata(length_bytes)), "text/html", Negotiation::None, b"", NOW_UNIX_S);
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\nRange: {range}\r\n\r\n");
        let Ok(Parsed::Complete { request, .. }) = parse_request(text.as_bytes(), 0, &RequestLimits::default()) else {
            return Err(TestCaseError::fail("refused"));
        };
        let response = respond(&request, Ok(&file), NOW_UNIX_S);
        response.write_head(&HttpDate::from_unix_s(NOW_UNIX_S), &mut Vec::new());
        if let Body::File { start_bytes, length_bytes: part_bytes } = response.body() {
            prop_assert!(part_bytes > 0);
            prop_assert!(start_bytes.checked_add(part_bytes).is_some_and(|end_bytes| end_bytes <= length_bytes));
        }
    }

    #[test]
    fn body_end_is_independent_of_fragments(
        chunks in prop::collection::vec((1..300usize, "(;[a-z]{1,9}(=([a-z]{1,9}|\"[ -~&&[^\"\\\\]]{0,9}\"))?)?"), 0..6),
        trailer in "([A-Z]{1,3}:[ a-z]{0,9}\r\n){0,2}",
        fragment_bytes in 1..64usize,
    ) {
        let chunk = |(size_bytes, extension): &(usize, String)| {
            format!("{size_bytes:x}{extension}\r\n{}\r\n", "y".repeat(*size_bytes))
        };
        let content = chunks.iter().map(chunk).collect::<String>() + "0\r\n" + &trailer + "\r\n";
        let mut skipper = BodySkipper::new(Framing::Chunked, &RequestLimits::default());
        let mut consumed_bytes = 0;
        for fragment in (content.clone() + "GET / HTTP/1.1\r\n").as_bytes().chunks(fragment_bytes) {
            let skipped = skipper.advance(fragment).expect("valid");
            consumed_bytes += skipped.consumed_bytes;
            if skipped.is_done {
                break;
            }
            prop_assert_eq!(skipped.consumed_bytes, fragment.len());
        }
        prop_assert!(skipper.is_done());
        prop_assert_eq!(consumed_bytes, content.len());
    }

    #[test]
    fn skip_of_any_body_does_not_panic(bytes in "[0-9a-f;\r\nx:]{0,200}", fragment_bytes in 1..20usize) {
        let mut skipper = BodySkipper::new(Framing::Chunked, &RequestLimits::default());
        for fragment in bytes.as_bytes().chunks(fragment_bytes) {
            match skipper.advance(fragment) {
                Ok(skipped) => prop_assert!(skipped.consumed_bytes <= fragment.len()),
                Err(_) => break,
            }
        }
    }

    #[test]
    fn date_round_trip(unix_s in 0..253_402_300_800u64) {
        prop_assert_eq!(HttpDate::parse_unix_s(HttpDate::from_unix_s(unix_s).as_bytes()), Some(unix_s));
    }

    #[test]
    fn parse_of_any_date_does_not_panic(text in "[A-Za-z]{0,9}[, ]{0,2}[0-9 :A-Za-z-]{0,30}( GMT)?") {
        HttpDate::parse_unix_s(text.as_bytes());
    }
}

/// Without percent-encodings.
fn decoded(path: &str) -> Vec<u8> {
    let mut parts = path.split('%');
    let mut bytes = parts.next().expect("a first part").as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).expect("two digits"));
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}
