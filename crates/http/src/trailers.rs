//! Trailers: the fields after the content that are passed on (RFC 9110 §6.5).

use crate::grammar::{is_token_byte, list_members, trim};
use crate::passed_fields::{Edit, is_edited, is_hop_by_hop, put_field, starts_with};
use crate::request::Request;
use alloc::vec::Vec;

/// Appends the fields of `lines`, field lines of a trailer section, that may be passed on. Left out are those that
/// frame or route a message, or that say how its content is processed (§6.5.1), since a recipient may merge them with
/// the head; those that an edit sets or removes; and invalid ones.
pub fn put_passed_trailers(lines: &[u8], edits: &[Edit], out: &mut Vec<u8>) {
    for line in lines.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        if is_valid(name, value) && is_trailer(name) && !is_edited(name, edits) {
            put_field(name, value, out);
        }
    }
}

/// RFC 9110 §5.1, §5.5. No parser of heads has seen the trailers of HTTP/2.
fn is_valid(name: &[u8], value: &[u8]) -> bool {
    let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    !name.is_empty() && name.iter().all(|&byte| is_token_byte(byte)) && !value.iter().any(is_control)
}

/// Whether the field has a meaning after the content.
fn is_trailer(name: &[u8]) -> bool {
    const NEVER: [&[u8]; 17] = [
        b"age",
        b"authorization",
        b"cache-control",
        b"cookie",
        b"date",
        b"expect",
        b"expires",
        b"host",
        b"location",
        b"max-forwards",
        b"pragma",
        b"range",
        b"retry-after",
        b"set-cookie",
        b"vary",
        b"warning",
        b"www-authenticate",
    ];
    const PREFIXES: [&[u8]; 5] = [b"access-control-", b"content-", b"if-", b"x-accel-", b"x-forwarded-"];
    !is_hop_by_hop(name)
        && !NEVER.iter().any(|known| known.eq_ignore_ascii_case(name))
        && !PREFIXES.iter().any(|prefix| starts_with(name, prefix))
}

impl Request<'_> {
    /// Whether the client takes trailers: `TE: trailers` (RFC 9110 §10.1.4).
    pub fn takes_trailers(&self) -> bool {
        self.fields.find_all(b"te").flat_map(list_members).any(|member| member.eq_ignore_ascii_case(b"trailers"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;

    #[test]
    fn trailers_are_passed_on_without_those_that_belong_into_the_head() {
        let check = |lines: &str, expected: &str| {
            let edits = [(String::from("X-Removed"), None)];
            let mut out = vec![];
            put_passed_trailers(lines.replace('\n', "\r\n").as_bytes(), &edits, &mut out);
            assert_eq!(String::from_utf8(out).expect("text"), expected.replace('\n', "\r\n"), "{lines}");
        };
        check("grpc-status: 0\ngrpc-message:\tok \n", "grpc-status: 0\ngrpc-message: ok\n");
        check("Digest: a:b\nX-Removed: 1\nContent-Length: 5\nTransfer-Encoding: chunked\n", "Digest: a:b\n");
        check(
            "Set-Cookie: a=b\nContent-Type: text/html\nConnection: x\nHost: a\nServer-Timing: b\n",
            "Server-Timing: b\n",
        );
        check("x)y: 1\n: 2\na b: 3\nx: a\x1bb\nx: a\0\nx: \u{7f}\ny: \u{e4}\n", "y: \u{e4}\n");
        check("", "");
    }
}
