//! Encodes the head of a response, which is written in the form of HTTP/1.1, as a header block.
//!
//! Fields refer to the static table only. The dynamic table would save bytes on the wire, but cost a table and look-ups
//! on each connection.

use alloc::vec::Vec;

/// Sets the size of the dynamic table to 0 (RFC 7541 §6.3): whatever the client allows, the table is not used.
pub(crate) const NO_TABLE: u8 = 0x20;

/// Appends the header block of `head`: a status line, field lines and an empty line. `is_first`: of the connection.
pub(crate) fn encode(head: &[u8], is_first: bool, out: &mut Vec<u8>) {
    if is_first {
        out.push(NO_TABLE);
    }
    let mut rest = head;
    let status_line = next_line(&mut rest).unwrap_or_default();
    put_status(status_line.get(STATUS_START..STATUS_START + 3).unwrap_or(b"500"), out);
    encode_fields(rest, out);
}

/// Appends field lines, which this program has written as `Name: value`: those of a head, or trailers, which are never
/// the first block of a connection.
#[inline(always)]
pub(crate) fn encode_fields(lines: &[u8], out: &mut Vec<u8>) {
    let mut rest = lines;
    while let Some(line) = next_line(&mut rest) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        put_field(&line[..colon], line[colon + 1..].trim_ascii_start(), out);
    }
}

/// Takes a line off `rest`; `None` at its end.
#[inline]
pub(crate) fn next_line<'h>(rest: &mut &'h [u8]) -> Option<&'h [u8]> {
    let end = memchr::memchr(b'\n', rest)?;
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}

const STATUS_START: usize = b"HTTP/1.1 ".len();

fn put_status(code: &[u8], out: &mut Vec<u8>) {
    let index = match code {
        b"200" => 8,
        b"204" => 9,
        b"206" => 10,
        b"304" => 11,
        b"400" => 12,
        b"404" => 13,
        b"500" => 14,
        _ => {
            const STATUS_INDEX: usize = 8;
            put_integer(0, 4, STATUS_INDEX, out);
            return put_string(code, out);
        }
    };
    out.push(0x80 | index);
}

/// Names are compared as the server writes them; other spellings are correct as well, but encoded longer.
#[inline(always)]
pub(crate) fn put_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let index = match name {
        b"Accept-Ranges" => 18,
        b"Allow" => 22,
        b"Cache-Control" => 24,
        b"Content-Encoding" => 26,
        b"Content-Length" => 28,
        b"Content-Range" => 30,
        b"Content-Type" => 31,
        b"Date" => 33,
        b"ETag" => 34,
        b"Last-Modified" => 44,
        b"Location" => 46,
        b"Retry-After" => 53,
        b"Server" => 54,
        b"Strict-Transport-Security" => 56,
        b"Vary" => 59,
        // RFC 9113 §8.2.2: there is no such field in HTTP/2.
        _ if name.eq_ignore_ascii_case(b"connection") => return,
        _ => 0,
    };
    // A literal that enters no table (RFC 7541 §6.2.2).
    put_integer(0, 4, index, out);
    if index == 0 {
        put_string(name, out);
        // RFC 9113 §8.2: names are in lower case.
        let name_start = out.len() - name.len();
        out[name_start..].make_ascii_lowercase();
    }
    put_string(value, out);
}

#[inline]
pub(crate) fn put_string(text: &[u8], out: &mut Vec<u8>) {
    put_integer(0, 7, text.len(), out);
    out.extend_from_slice(text);
}

/// Appends an integer with a prefix of `prefix_bits` bits, after the bits of `first` (RFC 7541 §5.1).
#[inline]
pub(crate) fn put_integer(first: u8, prefix_bits: u32, value: usize, out: &mut Vec<u8>) {
    let prefix_max = (1 << prefix_bits) - 1;
    if value < prefix_max {
        return out.push(first | value as u8);
    }
    out.push(first | prefix_max as u8);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Decoder;
    use alloc::string::String;
    use alloc::vec;

    fn fields(block: &[u8]) -> Vec<String> {
        let mut decoder = Decoder::new();
        let (mut block, mut strings, mut lines) = (decoder.block(block), vec![], vec![]);
        while let Some(field) = block.next(&mut strings).unwrap() {
            lines.push(alloc::format!("{}: {}", field.name.escape_ascii(), field.value.escape_ascii()));
        }
        lines
    }

    fn check(head: &str, expected: &[&str]) {
        for is_first in [true, false] {
            let mut block = vec![];
            encode(head.as_bytes(), is_first, &mut block);
            assert_eq!(fields(&block), expected, "{head}");
        }
    }

    #[test]
    fn fields_keep_their_order_and_get_lower_case_names() {
        check(
            "HTTP/1.1 200 OK\r\nServer: sanderling\r\nContent-Length: 5\r\nX-Content-Type-Options: nosniff\r\n\r\n",
            &[":status: 200", "server: sanderling", "content-length: 5", "x-content-type-options: nosniff"],
        );
        check(
            "HTTP/1.1 421 Misdirected Request\r\nConnection: close\r\nLocation: /a:b?c=d\r\n\r\n",
            &[":status: 421", "location: /a:b?c=d"],
        );
        check(
            "HTTP/1.1 200 OK\r\nDATE: now\r\nconnection: close\r\nx-y: z\r\n\r\n",
            &[":status: 200", "date: now", "x-y: z"],
        );
    }

    #[test]
    fn long_values_are_encoded() {
        for length in [126, 127, 128, 254, 255, 256, 20_000] {
            let value = "x".repeat(length);
            let line = alloc::format!("etag: {value}");
            check(&alloc::format!("HTTP/1.1 304 Not Modified\r\nETag: {value}\r\n\r\n"), &[":status: 304", &line]);
        }
    }
}
