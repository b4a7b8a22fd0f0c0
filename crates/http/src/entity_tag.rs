//! Parses and compares entity tags (RFC 9110 §8.8.3).

use crate::grammar::trim;
use alloc::format;
use alloc::string::{String, ToString};

/// An entity tag as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag<'b> {
    is_weak: bool,
    /// With its quotes.
    opaque: &'b [u8],
}

impl<'b> EntityTag<'b> {
    /// Parses `text` as one tag.
    pub(crate) fn parse(text: &'b [u8]) -> Option<EntityTag<'b>> {
        let mut tags = EntityTags(text);
        tags.next().filter(|_| tags.0.is_empty())
    }

    /// RFC 9110 §8.8.3.2: both are strong and equal. `etag` is strong, with its quotes.
    pub(crate) fn is_strong_match(self, etag: &[u8]) -> bool {
        !self.is_weak && self.opaque == etag
    }

    /// RFC 9110 §8.8.3.2: both are equal, weak or not.
    pub(crate) fn is_weak_match(self, etag: &[u8]) -> bool {
        self.opaque == etag
    }
}

/// Iterates over the tags of a list, up to the first invalid member.
pub(crate) struct EntityTags<'b>(pub(crate) &'b [u8]);

impl<'b> Iterator for EntityTags<'b> {
    type Item = EntityTag<'b>;

    fn next(&mut self) -> Option<EntityTag<'b>> {
        // RFC 9110 §5.6.1.2: empty members are ignored.
        let mut rest = trim(self.0);
        while let Some(after) = rest.strip_prefix(b",") {
            rest = trim(after);
        }
        self.0 = &[];
        let (is_weak, tag) = rest.strip_prefix(b"W/").map_or((false, rest), |tag| (true, tag));
        // A tag may contain a comma.
        let inner = tag.strip_prefix(b"\"")?;
        let length = inner.iter().position(|&byte| byte <= b'"' && byte != b'!' || byte == 0x7f)?;
        if inner[length] != b'"' {
            return None;
        }
        let (opaque, after) = tag.split_at(length + 2);
        self.0 = after;
        matches!(trim(after), [] | [b',', ..]).then_some(EntityTag { is_weak, opaque })
    }
}

/// The weak entity tag of this one (RFC 9110 §8.8.3); `None` if it is not text.
pub fn weak_etag(etag: &[u8]) -> Option<String> {
    let text = core::str::from_utf8(etag).ok()?;
    Some(if text.starts_with("W/") { text.to_string() } else { format!("W/{text}") })
}
