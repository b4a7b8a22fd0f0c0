//! Encodes the head of a request, which is written in the form of HTTP/1.1, as a header block.

use alloc::vec::Vec;

use sanderling_http::Scheme;

use crate::response_head::{NO_TABLE, next_line, put_field, put_integer, put_string};

/// Indices in the static table (RFC 7541 Appendix A).
const AUTHORITY: usize = 1;
const METHOD_GET: u8 = 2;
const METHOD_POST: u8 = 3;
const PATH: usize = 4;
const SCHEME_HTTP: u8 = 6;
const SCHEME_HTTPS: u8 = 7;
/// The first bit of an indexed field (RFC 7541 §6.1).
const INDEXED: u8 = 0x80;

/// Appends the header block of `head`: a request line, field lines and an empty line. `is_first`: of the connection.
pub(super) fn encode(head: &[u8], scheme: Scheme, is_first: bool, out: &mut Vec<u8>) {
    if is_first {
        out.push(NO_TABLE);
    }
    let mut rest = head;
    let line = next_line(&mut rest).unwrap_or_default();
    let mut parts = line.split(|&byte| byte == b' ');
    let (method, target) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match method {
        b"GET" => out.push(INDEXED | METHOD_GET),
        b"POST" => out.push(INDEXED | METHOD_POST),
        _ => put_pseudo(usize::from(METHOD_GET), method, out),
    }
    out.push(INDEXED | if scheme == Scheme::Https { SCHEME_HTTPS } else { SCHEME_HTTP });
    put_pseudo(PATH, target, out);
    let mut fields = rest;
    while let Some((name, value)) = next_field(&mut fields) {
        if name.eq_ignore_ascii_case(b"host") {
            put_pseudo(AUTHORITY, value, out);
        }
    }
    while let Some((name, value)) = next_field(&mut rest) {
        if !is_of_connection(name) {
            put_field(name, value, out);
        }
    }
}

/// Appends a pseudo-header field whose name has this index, and which enters no table.
fn put_pseudo(index: usize, value: &[u8], out: &mut Vec<u8>) {
    put_integer(0, 4, index, out);
    put_string(value, out);
}

/// Takes a field line off `rest`; `None` at the empty line.
fn next_field<'h>(rest: &mut &'h [u8]) -> Option<(&'h [u8], &'h [u8])> {
    let line = next_line(rest)?;
    let colon = memchr::memchr(b':', line)?;
    Some((&line[..colon], line[colon + 1..].trim_ascii_start()))
}

/// Whether HTTP/2 has no such field (RFC 9113 §8.2.2), or another one in its place.
fn is_of_connection(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 6] =
        [b"connection", b"host", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Decoder;
    use alloc::string::String;
    use alloc::vec;

    #[test]
    fn request_line_and_host_become_pseudo_header_fields_and_those_of_the_connection_are_left_out() {
        let check = |head: &str, scheme, expected: &[&str]| {
            let mut block = vec![];
            encode(head.replace('\n', "\r\n").as_bytes(), scheme, true, &mut block);
            let mut decoder = Decoder::new();
            let (mut block, mut strings, mut lines) = (decoder.block(&block), vec![], Vec::<String>::new());
            while let Some(field) = block.next(&mut strings).unwrap() {
                lines.push(alloc::format!("{}: {}", field.name.escape_ascii(), field.value.escape_ascii()));
            }
            assert_eq!(lines, expected, "{head}");
        };
        check(
            "POST /a?b HTTP/1.1\nHost: example.com:1\nTransfer-Encoding: chunked\nTE: trailers\nX-Y: z: 1\n\n",
            Scheme::Http,
            &[
                ":method: POST",
                ":scheme: http",
                ":path: /a?b",
                ":authority: example.com:1",
                "te: trailers",
                "x-y: z: 1",
            ],
        );
        check(
            "DELETE / HTTP/1.1\nConnection: upgrade\nUpgrade: websocket\nContent-Length: 0\n\n",
            Scheme::Https,
            &[":method: DELETE", ":scheme: https", ":path: /", "content-length: 0"],
        );
    }
}
