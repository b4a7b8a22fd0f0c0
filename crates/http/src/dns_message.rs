//! DNS over HTTPS (RFC 8484): the query in a request.

use alloc::borrow::Cow;
use alloc::vec::Vec;

use memchr::memchr;

use crate::request::{Method, Request};
use crate::status::Status;
use crate::target::Target;

/// Bytes of the longest DNS message.
pub const DNS_MESSAGE_BYTES_MAX: usize = 65_535;

const MEDIA_TYPE: &[u8] = b"application/dns-message";

/// Whether the content of `request` is a DNS message, which [`dns_query`] needs whole.
pub fn has_dns_message(request: &Request<'_>) -> bool {
    let fields = &request.fields;
    // Parameters that are not defined for a media type are ignored (RFC 2045 §5).
    let is_message = |value: &[u8]| {
        let essence = value.split(|&byte| byte == b';').next().unwrap_or_default();
        essence.trim_ascii_end().eq_ignore_ascii_case(MEDIA_TYPE)
    };
    request.method == Method::Post
        && fields.find_single(b"content-type").is_some_and(is_message)
        // A coding that is not supported gets 415 (RFC 9110 §8.4).
        && fields.find_all(b"content-encoding").all(|value| value.eq_ignore_ascii_case(b"identity"))
}

/// The DNS message of a request for a resource that answers DNS queries: `content`, or the decoded parameter `dns` of
/// the target, which is written into `room`.
///
/// # Errors
/// The status of the response to a request without a message.
pub fn dns_query<'q>(request: &Request<'_>, content: &'q [u8], room: &'q mut Vec<u8>) -> Result<&'q [u8], Status> {
    match request.method {
        Method::Get | Method::Head => {
            let text = parameter(request.target).ok_or(Status::BadRequest)?;
            let text = decode_letters(text);
            decode_base64url(&text, room).ok_or(Status::BadRequest)?;
            Ok(room)
        }
        Method::Post if !has_dns_message(request) => Err(Status::UnsupportedMediaType),
        Method::Post if content.len() > DNS_MESSAGE_BYTES_MAX => Err(Status::ContentTooLarge),
        Method::Post => Ok(content),
        Method::Options => Err(Status::NoContent),
        Method::NotAllowed | Method::Unknown => Err(Status::MethodNotAllowed),
    }
}

/// The value of the parameter `dns`, if there is one.
fn parameter<'r>(target: Target<'r>) -> Option<&'r [u8]> {
    let Target::Path { query: Some(query), .. } = target else { return None };
    let mut values = query.split(|&byte| byte == b'&').filter_map(|parameter| parameter.strip_prefix(b"dns="));
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// `text` with its percent-encodings decoded: an encoded letter is the same as the letter (RFC 3986 §6.2.2.2). An
/// invalid encoding is kept, and is not base64.
fn decode_letters(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr(b'%', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |digit: u8| char::from(digit).to_digit(16);
        let digits = after.split_first_chunk().filter(|_| byte == b'%');
        let encoded = digits.and_then(|(&[high, low], after)| Some((hex(high)? << 4 | hex(low)?, after)));
        let (byte, after) = encoded.map_or((byte, after), |(value, after)| (value as u8, after));
        decoded.push(byte);
        rest = after;
    }
    Cow::Owned(decoded)
}

/// Decodes base64url (RFC 4648 §5) without padding (RFC 8484 §4.1.1); `None` if `text` is not in its one valid form.
fn decode_base64url(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    out.reserve(text.len() / 4 * 3 + 2);
    for digits in text.chunks(4) {
        let mut bits = 0;
        for &digit in digits {
            bits = bits << 6 | u32::from(value_of(digit)?);
        }
        bits <<= 32 - 6 * digits.len();
        let byte_count = digits.len() * 6 / 8;
        // RFC 4648 §3.5: bits that belong to no byte are 0.
        if byte_count == 0 || bits << (8 * byte_count) != 0 {
            return None;
        }
        out.extend_from_slice(&bits.to_be_bytes()[..byte_count]);
    }
    Some(())
}

fn value_of(digit: u8) -> Option<u8> {
    Some(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::date::HttpDate;
    use crate::request::{Parsed, RequestLimits, parse_request};
    use crate::response::{Body, Response};
    use alloc::format;
    use alloc::string::String;

    #[track_caller]
    fn with_request(line: &str, fields: &str, act: impl FnOnce(&Request<'_>)) {
        let text = format!("{line} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n");
        match parse_request(text.as_bytes(), 0, &RequestLimits::default()) {
            Ok(Parsed::Complete { request, .. }) => act(&request),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn check(line: &str, fields: &str, content: &[u8], expected: Result<&[u8], Status>) {
        with_request(line, fields, |request| {
            assert_eq!(dns_query(request, content, &mut Vec::new()), expected, "{line}");
        });
    }

    #[test]
    fn query_of_get_is_decoded() {
        // RFC 8484 §4.1.1.
        let text = "AAABAAABAAAAAAAAAWE-NjJjaGFyYWN0ZXJsYWJlbC1tYWtlcy1iYXNlNjR1cmwtZGlzdGluY3QtZnJvbS1zdGFuZGFyZC1iYXNlNjQHZXhhbXBsZQNjb20AAAEAAQ";
        with_request(&format!("GET /q?dns={text}"), "", |request| {
            let mut room = Vec::new();
            let query = dns_query(request, b"", &mut room).expect("a query");
            assert_eq!((query.len(), &query[12..16]), (94, &b"\x01a>6"[..]));
        });
        check("GET /q?dns=AAAB", "", b"", Ok(&[0, 0, 1]));
        check("HEAD /q?a=b&dns=_-8&c", "", b"", Ok(&[0xFF, 0xEF]));
        check("GET /q?dns=_w", "", b"", Ok(&[0xFF]));
        check("GET /q?dns=", "", b"", Ok(&[]));
        check("GET /q?dns=%41AA%42", "", b"", Ok(&[0, 0, 1]));
        check("GET /q?dns=%5fw", "", b"", Ok(&[0xFF]));
    }

    #[test]
    fn get_without_one_valid_parameter_is_a_bad_request() {
        for query in [
            "",
            "?",
            "?name=a",
            "?dns=A",
            "?dns=AB=",
            "?dns=AB%3D",
            "?dns=AB+/",
            "?dns=AAA%",
            "?dns=AA%4",
            "?dns=%zzAA",
            "?dns=_x",
            "?dns=AA&dns=AA",
        ] {
            check(&format!("GET /q{query}"), "", b"", Err(Status::BadRequest));
        }
    }

    #[test]
    fn query_of_post_is_its_content() {
        let dns = "Content-Type: Application/DNS-message\r\n";
        check("POST /q", dns, b"query", Ok(b"query"));
        check("POST /q", dns, &[0; DNS_MESSAGE_BYTES_MAX + 1], Err(Status::ContentTooLarge));
        check("POST /q", "Content-Type: application/dns-message; x=y\r\n", b"query", Ok(b"query"));
        check("POST /q", &format!("{dns}Content-Encoding: Identity\r\n"), b"query", Ok(b"query"));
        check("POST /q", &format!("{dns}Content-Encoding: gzip\r\n"), b"query", Err(Status::UnsupportedMediaType));
        let repeated = format!("{dns}{dns}");
        for fields in ["", "Content-Type: application/dns-json\r\n", &repeated] {
            check("POST /q", fields, b"query", Err(Status::UnsupportedMediaType));
        }
        for method in ["PUT", "QUERY"] {
            check(&format!("{method} /q"), dns, b"query", Err(Status::MethodNotAllowed));
        }
        check("OPTIONS /q", "", b"", Err(Status::NoContent));
    }

    #[test]
    fn response_may_be_cached_for_the_ttl() {
        with_request("GET /q", "", |request| {
            let written = |response: Response<'_>| {
                let mut head = Vec::new();
                response.write_head(&HttpDate::from_unix_s(0), &mut head);
                String::from_utf8(head).expect("text")
            };
            let response = Response::dns_message(request, 40, 300);
            assert!(matches!(response.body(), Body::DnsMessage));
            let fields =
                "Content-Length: 40\r\nContent-Type: application/dns-message\r\nCache-Control: max-age=300\r\n\r\n";
            assert!(written(response).ends_with(fields), "{}", written(response));
            let refused = written(Response::dns_error(request, Status::MethodNotAllowed));
            assert!(refused.contains("405") && refused.ends_with("Allow: GET, HEAD, POST\r\n\r\n"), "{refused}");
        });
    }
}
