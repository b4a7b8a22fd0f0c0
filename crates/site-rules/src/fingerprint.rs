//! Names of files that change with their content: `app.3f2a1b4c.js`, `index-BvZ1XKq2.css`.
//!
//! A name that is taken for one wrongly would be kept for a year by browsers, and one that is not recognized is only
//! asked for again. So a date (`report-20260131`), a number and a word with a number (`June2024`) are none.

/// Bytes of the shortest hash.
const HASH_BYTES_MIN: usize = 8;
/// Changes between upper case, lower case and digits in a hash of letters, at least.
const CHANGES_MIN: usize = 4;

/// Whether the name of a file, the last segment of a path, has a hash of the content, as build tools write it.
pub fn has_fingerprint(file_name: &[u8]) -> bool {
    let mut parts = file_name.split(|&byte| byte == b'.').peekable();
    while let Some(part) = parts.next() {
        // What follows the last dot is the extension; a name needs one.
        if parts.peek().is_none() {
            return false;
        }
        let is_separator = |byte: &u8| matches!(byte, b'-' | b'_');
        let pieces = part.split(is_separator);
        // A hash of the URL-safe alphabet may have separators itself; those of eight characters are usual.
        let last = part.len().checked_sub(HASH_BYTES_MIN).map(|start| part.split_at(start));
        let last = last.filter(|(before, _)| before.is_empty() || before.last().is_some_and(is_separator));
        if pieces.chain(last.map(|(_, last)| last)).any(is_hash) {
            return true;
        }
    }
    false
}

fn is_hash(text: &[u8]) -> bool {
    let count = |is_counted: fn(&u8) -> bool| text.iter().filter(|byte| is_counted(byte)).count();
    let digits = count(u8::is_ascii_digit);
    if text.len() < HASH_BYTES_MIN || digits == 0 || digits == text.len() {
        return false;
    }
    if text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return digits >= 2;
    }
    if !text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        return false;
    }
    let kind = |byte: &u8| (byte.is_ascii_digit(), byte.is_ascii_uppercase(), byte.is_ascii_lowercase());
    let changes = text.windows(2).filter(|pair| kind(&pair[0]) != kind(&pair[1])).count();
    // Base 32, as of esbuild, has no lower case.
    let is_base32 = text.len() == HASH_BYTES_MIN && text.iter().all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7'));
    if is_base32 {
        return digits >= 2 && changes >= 3;
    }
    // Longer texts of letters and digits are names as often as hashes.
    matches!(text.len(), HASH_BYTES_MIN | 16..)
        && count(u8::is_ascii_uppercase) > 0
        && count(u8::is_ascii_lowercase) > 0
        && changes >= CHANGES_MIN.max(text.len() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_a_build_tool_is_recognized() {
        for name in [
            "main.3f2a1b4c5d6e7f8091a2.js",
            "app.8f3b2c1d.min.css",
            "main.8f3b2c1d.chunk.js.map",
            "style-8f3b2c1d.css",
            "index-BvZ1XKq2.js",
            "index-B_Z1-Kq2.js",
            "chunk-5CJ3NDWA.js",
            "8f3b2c1d9e.woff2",
            "logo_0123456789abcdef0123456789abcdef.svg",
            "style.min.0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9.css",
        ] {
            assert!(has_fingerprint(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn word_date_and_number_are_no_hash() {
        for name in [
            "index.html",
            "",
            ".",
            "app.js",
            "jquery-3.6.0.min.js",
            "report-20260131.pdf",
            "photo_12345678.jpg",
            "Plan-June2024.pdf",
            "Photo123.jpg",
            "vacation2024.jpg",
            "IMG_20260131_123456.jpg",
            "deadbeef.txt",
            "decade-facade.txt",
            "README-FIRST.txt",
            "ABCDEFGH.txt",
            "summer-holidays-in-france.html",
            "MacBookPro16Review2024.html",
            "8f3b2c1d",
            "archive.8f3b2c1d",
            "8f3b2c1.js",
        ] {
            assert!(!has_fingerprint(name.as_bytes()), "{name}");
        }
    }
}
