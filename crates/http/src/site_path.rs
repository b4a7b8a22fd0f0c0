//! The path of a target, decoded once into the path of a file below a site's root (RFC 3986 §3.3).

use alloc::borrow::Cow;
use alloc::vec::Vec;

use memchr::memchr;

use crate::grammar::{PATH, class};

/// Bytes of the longest site path: one less than Linux's PATH_MAX, which counts a NUL.
pub const SITE_PATH_BYTES_MAX: usize = 4095;
/// Bytes of the longest segment: Linux's NAME_MAX.
pub const SEGMENT_BYTES_MAX: usize = 255;

/// Why the path of a target is the path of no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SitePathError {
    /// No absolute path, a malformed escape, an escaped slash, backslash or control byte, a segment `.` or `..`.
    Malformed,
    /// A segment that starts with a dot: never shown, but for `.well-known` at the root (RFC 8615 §3).
    Hidden,
    /// An empty segment: two addresses of one file would be two entries in every cache.
    Empty,
    /// Longer, as a whole or in a segment, than any path on a disk.
    TooLong,
}

/// The path of a file or folder below a site's root.
///
/// It has no slash at its start or end, no segment that is empty or starts with a dot (but for a first one of
/// `.well-known`), no NUL, no control byte, and nothing left to decode: it may be opened beneath the root as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SitePath<'b> {
    path: Cow<'b, [u8]>,
    ends_with_slash: bool,
}

impl<'b> SitePath<'b> {
    /// The site path of `path`, which starts with a slash as in [`Target::Path`](crate::Target::Path). Allocates only
    /// when there is an escape to decode.
    pub fn parse(path: &'b [u8]) -> Result<SitePath<'b>, SitePathError> {
        let relative = path.strip_prefix(b"/").ok_or(SitePathError::Malformed)?;
        let (path, ends_with_slash) = match relative.strip_suffix(b"/") {
            None => (relative, relative.is_empty()),
            Some([]) => return Err(SitePathError::Empty),
            Some(folder) => (folder, true),
        };
        if is_usual(path) {
            return Ok(SitePath { path: Cow::Borrowed(path), ends_with_slash });
        }
        let path = match memchr(b'%', path) {
            None => Cow::Borrowed(path),
            Some(_) => Cow::Owned(decode(path)?),
        };
        check_segments(&path)?;
        Ok(SitePath { path, ends_with_slash })
    }

    /// The path relative to the root, without a slash at either end; empty for the root itself.
    pub fn as_bytes(&self) -> &[u8] {
        &self.path
    }

    /// Whether the target asked for a folder: it ends with a slash, as the root's always does.
    pub fn ends_with_slash(&self) -> bool {
        self.ends_with_slash
    }

    /// The last segment; empty for the root.
    pub fn file_name(&self) -> &[u8] {
        self.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&[])
    }
}

/// Whether nothing in `path`, which follows a slash, needs a second look: each byte stands for itself, no segment is
/// empty or starts with a dot, and none can be too long, as the whole is not. One pass, without a branch on each byte.
#[inline]
fn is_usual(path: &[u8]) -> bool {
    let (mut common, mut has_odd_segment, mut before) = (PATH, false, b'/');
    for &byte in path {
        common &= class(byte);
        has_odd_segment |= (before == b'/') & matches!(byte, b'/' | b'.');
        before = byte;
    }
    let is_ended = before == b'/' && !path.is_empty();
    common != 0 && !has_odd_segment && !is_ended && path.len() <= SEGMENT_BYTES_MAX
}

/// Each escape decoded, once: what comes out is never decoded again, so `%252e` is the three characters `%2e`.
fn decode(path: &[u8]) -> Result<Vec<u8>, SitePathError> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (digits, behind) = rest.split_at_checked(2).ok_or(SitePathError::Malformed)?;
        rest = behind;
        match hex(digits[0]).zip(hex(digits[1])).map(|(high, low)| high << 4 | low) {
            // An escaped slash is no separator (RFC 3986 §2.2), and no file name can hold one.
            None | Some(b'/' | b'\\') => return Err(SitePathError::Malformed),
            Some(byte) => decoded.push(byte),
        }
    }
    Ok(decoded)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

fn check_segments(path: &[u8]) -> Result<(), SitePathError> {
    if path.len() > SITE_PATH_BYTES_MAX {
        return Err(SitePathError::TooLong);
    }
    if path.iter().any(|&byte| byte.is_ascii_control() || byte == b'\\') {
        return Err(SitePathError::Malformed);
    }
    if path.is_empty() {
        return Ok(());
    }
    // A dot segment is refused wherever it stands, even behind a segment that is refused for less: clients take them
    // out before they send (RFC 3986 §5.2.4), so whoever sends one is up to something.
    let mut verdict = Ok(());
    for (index, segment) in path.split(|&byte| byte == b'/').enumerate() {
        match segment {
            b"." | b".." => return Err(SitePathError::Malformed),
            b".well-known" if index == 0 => {}
            [b'.', ..] => verdict = verdict.and(Err(SitePathError::Hidden)),
            [] => verdict = verdict.and(Err(SitePathError::Empty)),
            _ if segment.len() > SEGMENT_BYTES_MAX => verdict = verdict.and(Err(SitePathError::TooLong)),
            _ => {}
        }
    }
    verdict
}
