//! Writes bytes of a request so that they cannot end a line or a quotation, nor control a terminal.

const HEXADECIMAL: &[u8; 16] = b"0123456789ABCDEF";

/// The escaping of bytes from a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// `"`, `\`, control characters and bytes beyond ASCII as `\xHH`, as nginx does.
    Text,
    /// As in a string of JSON (RFC 8259 §7). Bytes that are not UTF-8 become U+FFFD.
    Json,
}

impl Escape {
    /// Appends `bytes` to `out`.
    pub(crate) fn write(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Escape::Text => write_text(bytes, out),
            Escape::Json => write_json(bytes, out),
        }
    }

    /// Appends `bytes` to `out` as one word: in text a space is escaped too, so that programs that split lines at
    /// spaces find the next value in its place.
    pub(crate) fn write_word(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Escape::Text => bytes.split_inclusive(|&byte| byte == b' ').for_each(|part| {
                let (word, space) = part.strip_suffix(b" ").map_or((part, &b""[..]), |word| (word, &br"\x20"[..]));
                write_text(word, out);
                out.extend_from_slice(space);
            }),
            Escape::Json => write_json(bytes, out),
        }
    }

    /// The text for a missing value.
    pub(crate) fn missing(self) -> &'static [u8] {
        match self {
            Escape::Text => b"-",
            Escape::Json => b"",
        }
    }
}

fn write_text(mut bytes: &[u8], out: &mut Vec<u8>) {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\');
    // Without a branch for each byte, so that the compiler tests many together: usually all are plain.
    if bytes.iter().fold(true, |are_plain, byte| are_plain & is_plain(*byte)) {
        return out.extend_from_slice(bytes);
    }
    while let Some(index) = bytes.iter().position(|byte| !is_plain(*byte)) {
        let byte = bytes[index];
        out.extend_from_slice(&bytes[..index]);
        let digit = |number: u8| HEXADECIMAL[usize::from(number)];
        out.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
        bytes = &bytes[index + 1..];
    }
    out.extend_from_slice(bytes);
}

fn write_json(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        let mut text = chunk.valid().as_bytes();
        while let Some(index) = text.iter().position(|byte| matches!(byte, 0..=0x1F | b'"' | b'\\' | 0x7F)) {
            let byte = text[index];
            out.extend_from_slice(&text[..index]);
            let digit = |number: u8| HEXADECIMAL[usize::from(number)];
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                _ => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]),
            }
            text = &text[index + 1..];
        }
        out.extend_from_slice(text);
        if !chunk.invalid().is_empty() {
            out.extend_from_slice("\u{FFFD}".as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn escaped(escape: Escape, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        escape.write(bytes, &mut out);
        out
    }

    #[test]
    fn text_keeps_only_printable_ascii() {
        for (bytes, expected) in [
            (&b"curl/8.5 (x86)"[..], &br"curl/8.5 (x86)"[..]),
            (b"a\"b\\c", br"a\x22b\x5Cc"),
            (b"\r\n\x1b[2J\x7f", br"\x0D\x0A\x1B[2J\x7F"),
            ("\u{e9}".as_bytes(), br"\xC3\xA9"),
        ] {
            assert_eq!(escaped(Escape::Text, bytes), expected);
        }
    }

    proptest! {
        #[test]
        fn text_is_printable_and_has_no_quotation_mark(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let text = escaped(Escape::Text, &bytes);
            prop_assert!(text.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'"'));
        }

        #[test]
        fn json_reads_back_as_the_same_text(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut quoted = vec![b'"'];
            quoted.extend(escaped(Escape::Json, &bytes));
            quoted.push(b'"');
            prop_assert!(!quoted.contains(&b'\n'));
            let text: String = serde_json::from_slice(&quoted).expect("valid JSON");
            prop_assert_eq!(text, String::from_utf8_lossy(&bytes));
        }
    }
}
