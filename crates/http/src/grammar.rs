//! The character classes and common rules of the HTTP and URI grammars.

use memchr::memchr;

/// A byte of a token (RFC 9110 §5.6.2).
pub(crate) const TOKEN: u8 = 1;
/// A byte allowed unescaped in the path of a request.
pub(crate) const PATH: u8 = 1 << 1;
/// A byte allowed in a query, which is never decoded: also a percent sign that begins no encoding.
pub(crate) const QUERY: u8 = 1 << 2;
/// A byte allowed unescaped in a host name (RFC 3986 §3.2.2).
pub(crate) const HOST: u8 = 1 << 3;
/// A byte that is sent unescaped in the path of a URL.
pub(crate) const URL_PATH: u8 = 1 << 4;

/// The classes of a byte, as a bit set.
#[inline]
pub(crate) fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

/// Paths and queries are those of RFC 3986 §3.3 and §3.4, plus the bytes that clients leave unescaped: browsers by the
/// URL standard, so that a link to `a[1].png` works, and tools such as curl, which send `"` and `<` as they are given,
/// and in a query UTF-8. None of these has a meaning in a path, a query or a field.
static CLASSES: [u8; 256] = {
    let rows: [(&[u8], u8); 8] = [
        (b"!$&'*+", TOKEN | PATH | QUERY | HOST | URL_PATH),
        (b"-._~", TOKEN | PATH | QUERY | HOST | URL_PATH),
        (b"(),;=", PATH | QUERY | HOST | URL_PATH),
        (b"/:@[]", PATH | QUERY | URL_PATH),
        (b"^|", TOKEN | PATH | QUERY | URL_PATH),
        (b"`", TOKEN | PATH | QUERY),
        (b"\"<>{}", PATH | QUERY),
        (b"?\\", QUERY),
    ];
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        if (byte as u8).is_ascii_alphanumeric() {
            classes[byte] = TOKEN | PATH | QUERY | HOST | URL_PATH;
        }
        if byte >= 0x80 {
            classes[byte] = QUERY;
        }
        byte += 1;
    }
    let mut row = 0;
    while row < rows.len() {
        let (bytes, class) = rows[row];
        let mut index = 0;
        while index < bytes.len() {
            classes[bytes[index] as usize] = class;
            index += 1;
        }
        row += 1;
    }
    classes[b'#' as usize] = TOKEN | QUERY;
    classes[b'%' as usize] = TOKEN | QUERY;
    classes
};

/// Whether `byte` may be part of a token.
#[inline]
pub(crate) fn is_token_byte(byte: u8) -> bool {
    class(byte) & TOKEN != 0
}

/// How many bytes at the start of `text` are allowed unescaped in `part`, one of the classes.
#[inline]
pub(crate) fn unescaped_bytes(text: &[u8], part: u8) -> usize {
    let mut start = 0;
    // Eight at a time, with one branch for all.
    while let Some(bytes) = text[start..].first_chunk::<8>() {
        if bytes.iter().fold(part, |common, &byte| common & class(byte)) == 0 {
            break;
        }
        start += bytes.len();
    }
    text[start..].iter().position(|&byte| class(byte) & part == 0).map_or(text.len(), |at| start + at)
}

/// Whether each byte of `text` is allowed unescaped in `part`, or belongs to a percent-encoding (RFC 3986 §2.1).
pub(crate) fn is_valid_part(text: &[u8], part: u8) -> bool {
    let mut rest = text;
    while let Some(at) = memchr(b'%', rest) {
        let is_encoded = rest.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        if !is_encoded || rest[..at].iter().any(|&byte| class(byte) & part == 0) {
            return false;
        }
        rest = &rest[at + 3..];
    }
    rest.iter().all(|&byte| class(byte) & part != 0)
}

/// Parses decimal digits; `None` for anything else and for a number of more than 64 bits.
pub(crate) fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// `text` without the optional white space around it (RFC 9110 §5.6.3).
#[inline]
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    // Nearly all values have one space before them and none after them.
    let text = text.strip_prefix(b" ").unwrap_or(text);
    match text {
        [first, .., last] if !is_space(first) && !is_space(last) => text,
        _ => {
            let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
            let end = text.iter().rposition(|byte| !is_space(byte)).map_or(start, |index| index + 1);
            &text[start..end]
        }
    }
}

/// The members of a list without the empty ones (RFC 9110 §5.6.1.2); not for lists whose members may hold a comma.
pub(crate) fn list_members(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|&byte| byte == b',').map(trim).filter(|member| !member.is_empty())
}
