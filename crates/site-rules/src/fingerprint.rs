//! Names of files that change with their content: `app.3f2a1b4c.js`, `index-BvZ1XKq2.css`.
//!
//! A name only looks like one: `INV-AB23CD45.pdf` and `user-64f1a2b3c4d5e6f7a8b9c0d1.json` look similar, and an
//! address, an identifier or a date may look like a hash. The effects of such a name cannot be undone: browsers cache a
//! file for a year, or a file of an earlier release is still served. So the hash is not enough: the extension or the
//! folder must also indicate a build tool. A date (`report-20260131`), a number and a word with a number (`June2024`)
//! are not hashes.

/// Extensions of files that pages load and users do not download: scripts, styles, fonts, programs. Source maps are
/// left out: no page needs them, and they may be removed on purpose.
const CODE: [&[u8]; 8] = [b"js", b"mjs", b"css", b"wasm", b"woff2", b"woff", b"ttf", b"otf"];
/// Folders that only build tools make.
const BUILD_FOLDERS: [&[u8]; 4] = [b"_next", b"_nuxt", b"_astro", b"_app"];

/// Bytes of the shortest hash.
const HASH_BYTES_MIN: usize = 8;
/// Changes between upper case, lower case and digits in a hash of letters, at least.
const CHANGES_MIN: usize = 4;

/// Whether the file at `path` is a script, a style, a font or a program whose name has a hash of its content.
pub fn is_build_file(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let extension = name.iter().rposition(|&byte| byte == b'.').map_or(&[][..], |dot| &name[dot + 1..]);
    CODE.contains(&extension) && has_fingerprint(name)
}

/// Whether the name of the file at `path` changes with its content: a build file, or any file with a hash in a build
/// tool's folder.
pub fn changes_with_content(path: &[u8]) -> bool {
    let mut segments = path.rsplit(|&byte| byte == b'/');
    let name = segments.next().unwrap_or_default();
    is_build_file(name) || has_fingerprint(name) && segments.any(|folder| BUILD_FOLDERS.contains(&folder))
}

/// Whether a file's name, the last segment of a path, contains a part that looks like a hash from a build tool.
fn has_fingerprint(file_name: &[u8]) -> bool {
    let mut parts = file_name.split(|&byte| byte == b'.').peekable();
    while let Some(part) = parts.next() {
        // The part after the last dot is the extension; a name needs one.
        if parts.peek().is_none() {
            return false;
        }
        let is_separator = |byte: &u8| matches!(byte, b'-' | b'_');
        let pieces = part.split(is_separator);
        // A hash in the URL-safe alphabet can contain separators; hashes of eight characters are common.
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
    fn file_of_a_build_tool_is_recognized() {
        let check = |path: &str, expected: (bool, bool)| {
            assert_eq!((is_build_file(path.as_bytes()), changes_with_content(path.as_bytes())), expected, "{path}");
        };
        for path in [
            "main.3f2a1b4c5d6e7f8091a2.js",
            "assets/index-BvZ1XKq2.css",
            "a/b/chunk-5CJ3NDWA.mjs",
            "_next/static/media/8f3b2c1d9e.woff2",
            "engine.8f3b2c1d.wasm",
        ] {
            check(path, (true, true));
        }
        for path in [
            "_next/static/media/logo.8f3b2c1d.png",
            "base/_astro/photo.BvZ1XKq2.webp",
            "_app/immutable/a-8f3b2c1d.json",
        ] {
            check(path, (false, true));
        }
        // Documents, downloads, identifiers and addresses.
        for path in [
            "report-Q3Final2.pdf",
            "setup-Win11x64.exe",
            "INV-AB23CD45.pdf",
            "song-Remix2K9.mp3",
            "iso-DIN476A4.pdf",
            "notes-Week42Mo.md",
            "backup-2024a1b2.zip",
            "opus-Op27No2c.pdf",
            "user-64f1a2b3c4d5e6f7a8b9c0d1.json",
            "post_5f3a2b1c.html",
            "avatar-0123456789abcdef0123456789abcdef.png",
            "assets/avatar-0123456789abcdef0123456789abcdef.png",
            "device-00a1b2c3d4e5.json",
            "yt_aB3dE5fG.jpg",
            "app.8f3b2c1d.js.map",
            "app.8f3b2c1d.js.gz",
            "app.js",
            "_next/static/app.js",
            "x_next/logo.8f3b2c1d.png",
            "logo.8f3b2c1d._next",
            "js",
            "",
        ] {
            check(path, (false, false));
        }
    }

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
