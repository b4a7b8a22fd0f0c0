//! Percent-encoding (RFC 3986 §2.1) of text that a rule inserts into a URL or a field.

use std::borrow::Cow;
use std::fmt::Write;

/// The place where text is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path, or a field: slashes stay.
    Path,
    /// A segment of a path.
    Segment,
    /// A value in a query or a fragment.
    Query,
}

/// Appends `text`, with all bytes encoded that could end or divide the surrounding URL or field.
pub(crate) fn put_encoded(text: &[u8], place: Place, out: &mut Vec<u8>) {
    for &byte in text {
        let is_plain = match byte {
            b'-' | b'.' | b'_' | b'~' => true,
            b'/' => place == Place::Path,
            b'!' | b'$' | b'\'' | b'*' | b'(' | b')' | b',' | b':' | b'@' | b'&' | b'+' | b';' | b'=' => {
                place != Place::Query
            }
            _ => byte.is_ascii_alphanumeric(),
        };
        if is_plain { out.push(byte) } else { put_byte(byte, out) }
    }
}

/// Appends text of the operator as a part of a URL: bytes that no URL may have are encoded.
pub(crate) fn put_url_text(text: &str, out: &mut Vec<u8>) {
    for &byte in text.as_bytes() {
        let is_plain = byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        if is_plain { out.push(byte) } else { put_byte(byte, out) }
    }
}

/// Appends a request's query. Bytes that a URL cannot have, but clients send, are encoded.
pub(crate) fn put_query(query: &[u8], out: &mut Vec<u8>) {
    for &byte in query {
        if byte.is_ascii_graphic() && !b"#\"<>".contains(&byte) { out.push(byte) } else { put_byte(byte, out) }
    }
}

fn put_byte(byte: u8, out: &mut Vec<u8>) {
    let mut text = String::with_capacity(3);
    write!(text, "%{byte:02X}").expect("writing to a string cannot fail");
    out.extend_from_slice(text.as_bytes());
}

/// Decodes each percent-encoding once; `None` if one is invalid.
pub(crate) fn decode(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if memchr::memchr(b'%', text).is_none() {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        let hex = |digit: u8| char::from(digit).to_digit(16);
        decoded.push((hex(digits[0])? << 4 | hex(digits[1])?) as u8);
        rest = after;
    }
    Some(Cow::Owned(decoded))
}

/// Decodes a name or a value in a query, in which `+` is a space; unchanged if an encoding is invalid.
pub(crate) fn decode_query(text: &[u8]) -> Cow<'_, [u8]> {
    let decoded = decode(text).unwrap_or(Cow::Borrowed(text));
    if memchr::memchr(b'+', text).is_none() {
        return decoded;
    }
    let spaced: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    Cow::Owned(decode(&spaced).map_or_else(|| spaced.clone(), Cow::into_owned))
}
