//! The media type of a file by the extension of its name (RFC 9110 §8.3).
//!
//! Each line of the data files is a media type and its extensions. The types are those of the IANA registry where one
//! is registered. Of two meanings of an extension it is the one that web sites use: `ts` is a video segment, as players
//! require it, since browsers never load TypeScript. Source code is plain text, so that browsers display it. XML
//! declares its own character set, and JSON has only one.

use memchr::{memmem, memrchr};

/// Types that a content coding may make smaller.
const COMPRESSIBLE: &str = include_str!("media_types/compressible.txt");
/// Types with a compressed format, and all audio and video: players seek by offsets of the file, so they are never
/// coded.
const COMPRESSED: &str = include_str!("media_types/compressed.txt");

/// Length of the longest extension in the data files.
const EXTENSION_BYTES_MAX: usize = 11;

/// For an unknown extension (RFC 9110 §8.3): browsers store such a file and never run it.
const UNKNOWN: &str = "application/octet-stream";

/// The media type of a file by the extension of its name, in any letter case, with the character set if the type has
/// one.
pub fn media_type(file_name: &[u8]) -> &'static str {
    let Some(dot) = memrchr(b'.', file_name) else { return UNKNOWN };
    let extension = &file_name[dot + 1..];
    let is_valid = !extension.is_empty() && extension.iter().all(u8::is_ascii_alphanumeric);
    // With the space before it in the data files.
    let mut buffer = [b' '; 1 + EXTENSION_BYTES_MAX];
    let Some(word) = buffer.get_mut(..=extension.len()).filter(|_| is_valid) else { return UNKNOWN };
    word[1..].copy_from_slice(extension);
    word.make_ascii_lowercase();
    find(COMPRESSIBLE, word).or_else(|| find(COMPRESSED, word)).unwrap_or(UNKNOWN)
}

/// Whether a content coding may make a file of this media type smaller: then a coded file is worth looking for. Unknown
/// types may be, because a useless look-up costs little.
pub fn is_compressible(media_type: &str) -> bool {
    !COMPRESSED.lines().any(|line| line.strip_prefix(media_type).is_some_and(|rest| rest.starts_with(": ")))
}

/// Whether the value of Content-Type is that of a text, or of another format that is not compressed.
pub fn is_text(content_type: &[u8]) -> bool {
    const OTHERS: [&[u8]; 9] = [
        b"application/javascript",
        b"application/json",
        b"application/wasm",
        b"application/x-javascript",
        b"application/x-ndjson",
        b"application/xml",
        b"font/ttf",
        b"font/otf",
        b"image/bmp",
    ];
    let name = content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
    let has_prefix = |prefix: &[u8]| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    let has_suffix =
        |suffix: &[u8]| name.len().checked_sub(suffix.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(suffix));
    // RFC 6838 §4.2.8.
    has_prefix(b"text/")
        || has_suffix(b"+json")
        || has_suffix(b"+xml")
        || OTHERS.iter().any(|other| name.eq_ignore_ascii_case(other))
}

/// The media type of the line that has `word`, a space and an extension.
fn find(lines: &'static str, word: &[u8]) -> Option<&'static str> {
    let bytes = lines.as_bytes();
    let is_whole = |at: &usize| matches!(bytes.get(at + word.len()), Some(b' ' | b'\n'));
    let at = memmem::find_iter(bytes, word).find(is_whole)?;
    let start = memrchr(b'\n', &bytes[..at]).map_or(0, |end| end + 1);
    lines[start..].split_once(": ").map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// All lines: the media type and its extensions.
    fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
        COMPRESSIBLE.lines().chain(COMPRESSED.lines()).map(|line| line.split_once(": ").expect("a media type"))
    }

    #[test]
    fn data_files_are_sorted_and_each_extension_is_unique() {
        let mut extensions: Vec<&str> = lines().flat_map(|(_, extensions)| extensions.split(' ')).collect();
        let count = extensions.len();
        extensions.sort_unstable();
        extensions.dedup();
        assert_eq!(extensions.len(), count);
        for file in [COMPRESSIBLE, COMPRESSED] {
            assert!(file.lines().is_sorted_by(|left, right| left.split_once(": ") < right.split_once(": ")));
        }
        for (media_type, extensions) in lines() {
            assert!(media_type.is_ascii() && media_type.contains('/'), "{media_type}");
            assert!(extensions.split(' ').is_sorted(), "{extensions}");
        }
        for extension in extensions {
            assert!(extension.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{extension}");
            assert!((1..=EXTENSION_BYTES_MAX).contains(&extension.len()), "{extension}");
        }
    }

    #[test]
    fn texts_are_known_by_their_content_type() {
        for text in
            ["text/html; charset=utf-8", "TEXT/event-stream", "application/JSON;x", "image/svg+xml", "a/b+json "]
        {
            assert!(is_text(text.as_bytes()), "{text}");
        }
        for other in ["", "image/png", "application/octet-stream", "video/mp4", "application/zip", "+xm", "texts/a"] {
            assert!(!is_text(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn every_extension_has_the_type_of_its_line() {
        for (expected, extensions) in lines() {
            for extension in extensions.split(' ') {
                let file_name = [b"a.", extension.as_bytes()].concat();
                assert_eq!(media_type(&file_name), expected, "{extension}");
            }
        }
    }

    #[test]
    fn text_types_have_charset_utf_8() {
        for (media_type, _) in lines() {
            assert_eq!(media_type.starts_with("text/"), media_type.ends_with("; charset=utf-8"), "{media_type}");
        }
    }

    #[test]
    fn compressed_formats_are_not_compressible() {
        for (file_name, expected) in [
            ("index.html", true),
            ("app.mjs", true),
            ("app.js.map", true),
            ("feed.atom", true),
            ("logo.svg", true),
            ("favicon.ico", true),
            ("code.wasm", true),
            ("font.ttf", true),
            ("map.geojson", true),
            ("paper.pdf", true),
            ("scene.gltf", true),
            ("source.tar", true),
            ("LICENSE", true),
            ("photo.JPG", false),
            ("photo.avif", false),
            ("font.woff2", false),
            ("film.mp4", false),
            ("sound.wav", false),
            ("scene.usdz", false),
            ("source.tar.gz", false),
            ("source.txz", false),
            ("app.js.zst", false),
            ("letter.docx", false),
            ("table.ods", false),
            ("app.apk", false),
            ("book.epub", false),
        ] {
            assert_eq!(is_compressible(media_type(file_name.as_bytes())), expected, "{file_name}");
        }
    }

    #[test]
    fn media_type_is_selected_by_last_extension() {
        for (file_name, expected) in [
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("site.webmanifest", "application/manifest+json"),
            ("photo.AVIF", "image/avif"),
            ("archive.tar.zst", "application/zstd"),
            ("segment.ts", "video/mp2t"),
            ("app.js.map", "application/json"),
            ("index.html", "text/html; charset=utf-8"),
            ("LICENSE", UNKNOWN),
            ("html", UNKNOWN),
            ("a.", UNKNOWN),
            ("", UNKNOWN),
            ("a.charset", UNKNOWN),
            ("a.ht", UNKNOWN),
            ("a.htm html", UNKNOWN),
            ("a.an-extension-that-is-longer-than-all", UNKNOWN),
            ("a.html\0", UNKNOWN),
        ] {
            assert_eq!(media_type(file_name.as_bytes()), expected, "{file_name}");
        }
    }
}
