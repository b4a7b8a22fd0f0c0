//! Decodes the path of a request target to a file path below the document root (RFC 3986 §3.3).

use alloc::borrow::Cow;
use alloc::vec::Vec;

use memchr::memchr;

use crate::grammar::{PATH, class};

/// Length of the longest site path: PATH_MAX without its NUL.
pub const SITE_PATH_BYTES_MAX: usize = 4095;
/// Length of the longest segment: NAME_MAX.
pub const SEGMENT_BYTES_MAX: usize = 255;

/// A target's path is not absolute, has an invalid percent-encoding, a backslash or a control byte, or a segment `..`
/// that leads out of the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MalformedPath;

/// The traits of a path that a site refuses, or can refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathTraits(u8);

impl PathTraits {
    /// Nothing.
    pub const NONE: PathTraits = PathTraits(0);
    /// A segment starts with a dot, except `.well-known` at the root (RFC 8615 §3), or the file is a backup.
    pub const HIDDEN: PathTraits = PathTraits(1);
    /// Segments were removed or an encoded slash was decoded, so that the file has another URL.
    pub const NORMALIZED: PathTraits = PathTraits(1 << 1);
    /// The path exceeds [`SITE_PATH_BYTES_MAX`], or a segment [`SEGMENT_BYTES_MAX`]. No file has it, and each site must
    /// refuse it.
    pub const TOO_LONG: PathTraits = PathTraits(1 << 2);

    /// The traits of a decoded path, as of [`SitePath::as_bytes`]; also [`PathTraits::HIDDEN`] if no request can have
    /// the path.
    pub fn of(path: &[u8]) -> PathTraits {
        check_segments(path).unwrap_or(PathTraits::HIDDEN)
    }

    /// The traits of both.
    #[must_use]
    pub const fn union(self, other: PathTraits) -> PathTraits {
        PathTraits(self.0 | other.0)
    }

    /// Whether both have one in common.
    pub const fn intersects(self, other: PathTraits) -> bool {
        self.0 & other.0 != 0
    }
}

/// The path of a file or directory below a document root.
///
/// It has no slash at its start or end, no empty segment, no segment `.` or `..`, no control byte or backslash, and is
/// fully decoded: it can be opened beneath the root unchanged, unless it is [`PathTraits::TOO_LONG`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SitePath<'b> {
    path: Cow<'b, [u8]>,
    ends_with_slash: bool,
    traits: PathTraits,
}

impl<'b> SitePath<'b> {
    /// Decodes and normalizes `path`, which starts with a slash as in [`Target::Path`](crate::Target::Path). Allocates
    /// only if it has percent-encodings, or segments that are removed.
    ///
    /// As in nginx, `%2F` is a separator, empty segments and `.` are removed, and `..` removes the segment before it
    /// (RFC 3986 §5.2.4).
    pub fn parse(path: &'b [u8]) -> Result<SitePath<'b>, MalformedPath> {
        let relative = path.strip_prefix(b"/").ok_or(MalformedPath)?;
        let (path, ends_with_slash) = match relative.strip_suffix(b"/") {
            None => (relative, relative.is_empty()),
            Some([]) => return SitePath::normalize(relative),
            Some(directory) => (directory, true),
        };
        if is_plain(path) {
            return Ok(SitePath { path: Cow::Borrowed(path), ends_with_slash, traits: PathTraits::NONE });
        }
        SitePath::normalize(relative)
    }

    #[cold]
    #[inline(never)]
    fn normalize(relative: &'b [u8]) -> Result<SitePath<'b>, MalformedPath> {
        let mut has_encoded_slash = false;
        let path = match memchr(b'%', relative) {
            None => Cow::Borrowed(relative),
            Some(_) => Cow::Owned(decode(relative, &mut has_encoded_slash)?),
        };
        let (directory, mut ends_with_slash) = match path.strip_suffix(b"/") {
            None => (&path[..], path.is_empty()),
            Some(directory) => (directory, true),
        };
        let is_removed = |segment: &[u8]| matches!(segment, b"" | b"." | b"..");
        if path.is_empty() || !directory.split(|&byte| byte == b'/').any(is_removed) {
            let path = match path {
                Cow::Borrowed(path) => Cow::Borrowed(&path[..directory.len()]),
                Cow::Owned(_) => Cow::Owned(directory.to_vec()),
            };
            let traits = if has_encoded_slash { PathTraits::NORMALIZED } else { PathTraits::NONE };
            let traits = traits.union(check_segments(&path)?);
            return Ok(SitePath { path, ends_with_slash, traits });
        }
        let mut kept = Vec::with_capacity(path.len());
        for segment in path.split(|&byte| byte == b'/') {
            ends_with_slash = is_removed(segment);
            match segment {
                b"" | b"." => {}
                b".." => {
                    kept.pop().ok_or(MalformedPath)?;
                }
                _ => kept.push(segment),
            }
        }
        let path = kept.join(&b'/');
        let traits = PathTraits::NORMALIZED.union(check_segments(&path)?);
        Ok(SitePath { path: Cow::Owned(path), ends_with_slash, traits })
    }

    /// The path relative to the root, without a slash at either end; empty for the root.
    pub fn as_bytes(&self) -> &[u8] {
        &self.path
    }

    /// Whether the target's path ends with a slash, as a directory's does; always for the root.
    pub fn ends_with_slash(&self) -> bool {
        self.ends_with_slash
    }

    /// Whether `raw`, of which this was made, has a segment `.` or `..`, in any encoding.
    pub fn has_dot_segments(&self, raw: &[u8]) -> bool {
        if !self.traits.intersects(PathTraits::NORMALIZED) {
            return false;
        }
        let decoded = decode(raw, &mut false).unwrap_or_default();
        decoded.split(|&byte| byte == b'/').any(|segment| matches!(segment, b"." | b".."))
    }

    /// The traits that a site can refuse.
    pub fn traits(&self) -> PathTraits {
        self.traits
    }
}

/// Fast path: whether `path`, which follows a slash, needs no decoding and no other check. No segment is empty, starts
/// with a dot, or can be too long, as the whole is not. One pass without a branch per byte.
#[inline]
fn is_plain(path: &[u8]) -> bool {
    let (mut common, mut has_special_segment, mut before) = (PATH, false, b'/');
    for &byte in path {
        common &= class(byte);
        has_special_segment |= (before == b'/') & matches!(byte, b'/' | b'.');
        before = byte;
    }
    let ends_with_slash = before == b'/' && !path.is_empty();
    common != 0 && !has_special_segment && !ends_with_slash && path.len() <= SEGMENT_BYTES_MAX && !is_backup(path)
}

// The last bytes of the names of backups.
const BAK: u32 = u32::from_le_bytes(*b".bak");
const ORIG: u32 = u32::from_le_bytes(*b"orig");
const PART: u32 = u32::from_le_bytes(*b"part");
const SAVE: u32 = u32::from_le_bytes(*b"save");
const SQL: u32 = u32::from_le_bytes(*b".sql");
const SWO: u32 = u32::from_le_bytes(*b".swo");
const SWP: u32 = u32::from_le_bytes(*b".swp");

/// Whether a path ends in the name of a file that an editor, a database or an interrupted upload has left: `a~`,
/// `a.bak`.
#[inline]
fn is_backup(path: &[u8]) -> bool {
    // Compared as words: this is on the way of every request.
    match path.last_chunk().map(|last| u32::from_le_bytes(*last)) {
        Some(BAK | SQL | SWO | SWP) => true,
        Some(ORIG | PART | SAVE) => path.len() > 4 && path[path.len() - 5] == b'.',
        _ => match path.last() {
            Some(b'~') => true,
            Some(b'#') => path.rsplit(|&byte| byte == b'/').next().is_some_and(|name| name.starts_with(b"#")),
            _ => false,
        },
    }
}

/// Decodes each percent-encoding once: `%252e` becomes the three characters `%2e`. `has_slash` becomes true if one is a
/// slash.
fn decode(path: &[u8], has_slash: &mut bool) -> Result<Vec<u8>, MalformedPath> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or(MalformedPath)?;
        rest = after;
        match hex(digits[0]).zip(hex(digits[1])).map(|(high, low)| high << 4 | low) {
            None => return Err(MalformedPath),
            Some(byte) => {
                *has_slash |= byte == b'/';
                decoded.push(byte);
            }
        }
    }
    Ok(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Checks a decoded and normalized path.
fn check_segments(path: &[u8]) -> Result<PathTraits, MalformedPath> {
    if path.iter().any(|&byte| byte.is_ascii_control() || byte == b'\\') {
        return Err(MalformedPath);
    }
    let (mut is_hidden, mut is_too_long) = (is_backup(path), path.len() > SITE_PATH_BYTES_MAX);
    for (index, segment) in path.split(|&byte| byte == b'/').enumerate() {
        is_too_long |= segment.len() > SEGMENT_BYTES_MAX;
        is_hidden |= segment.starts_with(b".") && (index > 0 || segment != b".well-known");
    }
    let hidden = if is_hidden { PathTraits::HIDDEN } else { PathTraits::NONE };
    let too_long = if is_too_long { PathTraits::TOO_LONG } else { PathTraits::NONE };
    Ok(hidden.union(too_long))
}
