//! Entity tags in a list, and how two of them compare (RFC 9110 §8.8.3).

use crate::grammar::trim;

/// An entity tag as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag<'b> {
    is_weak: bool,
    /// With its quotes.
    opaque: &'b [u8],
}

impl<'b> EntityTag<'b> {
    /// The tag that is all of `text`.
    pub(crate) fn parse(text: &'b [u8]) -> Option<EntityTag<'b>> {
        let mut tags = EntityTags(text);
        tags.next().filter(|_| tags.0.is_empty())
    }

    /// RFC 9110 §8.8.3.2: both strong, and the same. `own` is strong, with its quotes.
    pub(crate) fn is_strong_match(self, own: &[u8]) -> bool {
        !self.is_weak && self.opaque == own
    }

    /// RFC 9110 §8.8.3.2: the same, whether they are weak or not.
    pub(crate) fn is_weak_match(self, own: &[u8]) -> bool {
        self.opaque == own
    }
}

/// The tags of a list, up to its end or to the first member that is none.
pub(crate) struct EntityTags<'b>(pub(crate) &'b [u8]);

impl<'b> Iterator for EntityTags<'b> {
    type Item = EntityTag<'b>;

    fn next(&mut self) -> Option<EntityTag<'b>> {
        // RFC 9110 §5.6.1.2: empty members are passed over.
        let mut rest = trim(self.0);
        while let Some(behind) = rest.strip_prefix(b",") {
            rest = trim(behind);
        }
        self.0 = &[];
        let (is_weak, tag) = rest.strip_prefix(b"W/").map_or((false, rest), |tag| (true, tag));
        // A comma between the quotes belongs to the tag.
        let inner = tag.strip_prefix(b"\"")?;
        let length = inner.iter().position(|&byte| byte <= b'"' && byte != b'!' || byte == 0x7f)?;
        // What ends a tag without being its quote makes it none.
        if inner[length] != b'"' {
            return None;
        }
        let (opaque, behind) = tag.split_at(length + 2);
        self.0 = behind;
        matches!(trim(behind), [] | [b',', ..]).then_some(EntityTag { is_weak, opaque })
    }
}
