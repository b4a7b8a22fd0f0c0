//! A domain name in uncompressed wire form (RFC 1035 §3.1): labels from the leaf to the root.

use core::cmp::Ordering;
use core::fmt;

/// Bytes of the longest name, root label included (RFC 1035 §2.3.4).
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes of the longest label (RFC 1035 §2.3.4).
pub const LABEL_BYTES_MAX: usize = 63;
/// The most labels of a name, without the root: 127 labels of one byte each.
pub const LABEL_COUNT_MAX: usize = 127;

/// The reason why bytes are not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The bytes end before the root label.
    UnexpectedEnd,
    /// A label has more than 63 bytes or a reserved type, or is a compression pointer (RFC 1035 §4.1.4).
    InvalidLabel,
    /// The name has more than 255 bytes.
    TooLong,
}

/// A borrowed name. The form of the name is checked when it is created.
///
/// `==` compares bytes; [`Name::eq_ignore_case`] compares as DNS does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// The root: one empty label.
    pub const ROOT: Name<'static> = Name(&[0]);

    /// The name at the start of `bytes`. Bytes after it are ignored.
    pub fn parse(bytes: &'a [u8]) -> Result<Name<'a>, NameError> {
        Name::parse_with(bytes, |_| {})
    }

    /// [`Name::parse`], which calls `label_at` with the offset of each label, the root's last.
    #[inline]
    pub(crate) fn parse_with(bytes: &'a [u8], mut label_at: impl FnMut(usize)) -> Result<Name<'a>, NameError> {
        let mut at = 0;
        while at < NAME_BYTES_MAX {
            label_at(at);
            match bytes.get(at) {
                None => return Err(NameError::UnexpectedEnd),
                Some(0) => return Ok(Name(&bytes[..=at])),
                Some(&length) if usize::from(length) <= LABEL_BYTES_MAX => at += 1 + usize::from(length),
                Some(_) => return Err(NameError::InvalidLabel),
            }
        }
        Err(NameError::TooLong)
    }

    /// A name from stored bytes, which are not checked again.
    #[inline]
    pub(crate) fn of_stored(bytes: &'a [u8]) -> Name<'a> {
        debug_assert!(Name::parse(bytes).is_ok_and(|name| name.0.len() == bytes.len()));
        Name(bytes)
    }

    /// The bytes, including the root label.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The number of bytes, including the root label: 1 to 255.
    #[inline]
    pub fn length_bytes(self) -> usize {
        self.0.len()
    }

    /// Whether this is the root.
    pub fn is_root(self) -> bool {
        self.0.len() == 1
    }

    /// The labels from the leaf, without the root.
    pub fn labels(self) -> Labels<'a> {
        Labels(self.0)
    }

    /// The name without its first label; `None` for the root.
    pub fn parent(self) -> Option<Name<'a>> {
        let first = usize::from(self.0[0]);
        (first != 0).then(|| Name(&self.0[1 + first..]))
    }

    /// Whether the first label is just `*` (RFC 4592 §2.1.1).
    pub fn is_wildcard(self) -> bool {
        self.0.starts_with(b"\x01*")
    }

    /// Whether both names are equal, ignoring case (RFC 4343).
    pub fn eq_ignore_case(self, other: Name<'_>) -> bool {
        // Label lengths are below 64 and so not letters.
        self.0.eq_ignore_ascii_case(other.0)
    }

    /// Whether this is `ancestor` or a name below it.
    pub fn is_at_or_below(self, ancestor: Name<'_>) -> bool {
        let mut name = self;
        while name.0.len() > ancestor.0.len() {
            match name.parent() {
                Some(parent) => name = parent,
                None => return false,
            }
        }
        name.eq_ignore_case(ancestor)
    }

    /// The order of names by their labels from the root (RFC 4034 §6.1). Both names are in lower case.
    pub(crate) fn canonical_cmp(self, other: Name<'_>) -> Ordering {
        IndexedLabels::of(self.0).canonical_cmp(other.0)
    }

    /// The bytes of the labels below an ancestor, whose name has `ancestor_bytes`.
    pub(crate) fn labels_below(self, ancestor_bytes: usize) -> &'a [u8] {
        &self.0[..self.0.len() - ancestor_bytes]
    }

    /// An owned copy.
    pub fn to_owned(self) -> NameBuf {
        let mut owned = NameBuf::root();
        owned.bytes[..self.0.len()].copy_from_slice(self.0);
        owned.length = self.0.len() as u8;
        owned
    }

    /// An owned copy, letters in lower case.
    pub fn to_lowercase(self) -> NameBuf {
        let mut owned = self.to_owned();
        owned.bytes[..self.0.len()].make_ascii_lowercase();
        owned
    }
}

/// Presentation format (RFC 1035 §5.1), with the final dot.
impl fmt::Display for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return out.write_str(".");
        }
        for label in self.labels() {
            for &byte in label {
                match byte {
                    b'.' | b'"' | b'(' | b')' | b';' | b'@' | b'$' | b'\\' => write!(out, "\\{}", char::from(byte))?,
                    0x21..=0x7e => write!(out, "{}", char::from(byte))?,
                    _ => write!(out, "\\{byte:03}")?,
                }
            }
            out.write_str(".")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Name({self})")
    }
}

/// The labels of a name, or of a name below an apex, to be compared with others.
pub(crate) struct IndexedLabels<'n> {
    bytes: &'n [u8],
    /// The offset of each label, from the leaf.
    starts: [u8; LABEL_COUNT_MAX],
    count: usize,
}

impl<'n> IndexedLabels<'n> {
    /// The labels of `bytes`, up to the root label or the end.
    pub(crate) fn of(bytes: &'n [u8]) -> IndexedLabels<'n> {
        let mut labels = IndexedLabels { bytes, starts: [0; LABEL_COUNT_MAX], count: 0 };
        let mut at = 0;
        while let Some(&length @ 1..) = bytes.get(at) {
            labels.starts[labels.count] = at as u8;
            labels.count += 1;
            at += 1 + usize::from(length);
        }
        labels
    }

    /// Compares these labels with the labels of `other` in canonical order (RFC 4034 §6.1), both in lower case.
    pub(crate) fn canonical_cmp(&self, other: &[u8]) -> Ordering {
        // Most names have one label below their apex: its offset is known.
        if let Some((&length, label)) = other.split_first()
            && usize::from(length) == label.len()
            && let Some(own) = self.iter_from_root().next()
        {
            return own.cmp(label).then(self.count.cmp(&1));
        }
        let other = IndexedLabels::of(other);
        let mut orders = self.iter_from_root().zip(other.iter_from_root()).map(|(own, other)| own.cmp(other));
        orders.find(|order| order.is_ne()).unwrap_or(self.count.cmp(&other.count))
    }

    /// The labels from the root on.
    pub(crate) fn iter_from_root(&self) -> impl Iterator<Item = &'n [u8]> {
        self.starts[..self.count].iter().rev().map(|&start| {
            let (length, rest) = self.bytes[usize::from(start)..].split_first().expect("a label is in the name");
            &rest[..usize::from(*length)]
        })
    }
}

/// Iterates over the labels of a name, from the leaf, without the root.
#[derive(Clone, Debug)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(self.0[0]);
        if length == 0 {
            return None;
        }
        let (label, rest) = self.0[1..].split_at(length);
        self.0 = rest;
        Some(label)
    }
}

/// An owned name. The name needs no allocation.
#[derive(Clone, Copy)]
pub struct NameBuf {
    length: u8,
    bytes: [u8; NAME_BYTES_MAX],
}

impl NameBuf {
    /// The root.
    pub fn root() -> NameBuf {
        NameBuf { length: 1, bytes: [0; NAME_BYTES_MAX] }
    }

    /// This name, borrowed.
    pub fn as_name(&self) -> Name<'_> {
        Name(&self.bytes[..usize::from(self.length)])
    }

    /// The name `label.parent`.
    pub fn child(label: &[u8], parent: Name<'_>) -> Result<NameBuf, NameError> {
        NameBuf::joined(&[label], parent)
    }

    /// The name of `labels`, from the leaf, followed by `suffix`.
    pub fn joined(labels: &[&[u8]], suffix: Name<'_>) -> Result<NameBuf, NameError> {
        let mut name = NameBuf::root();
        let mut at = 0;
        for label in labels {
            if label.is_empty() || label.len() > LABEL_BYTES_MAX {
                return Err(NameError::InvalidLabel);
            }
            let end = at + 1 + label.len();
            if end >= NAME_BYTES_MAX {
                return Err(NameError::TooLong);
            }
            name.bytes[at] = label.len() as u8;
            name.bytes[at + 1..end].copy_from_slice(label);
            at = end;
        }
        let end = at + suffix.length_bytes();
        if end > NAME_BYTES_MAX {
            return Err(NameError::TooLong);
        }
        name.bytes[at..end].copy_from_slice(suffix.as_bytes());
        name.length = end as u8;
        Ok(name)
    }
}

impl fmt::Display for NameBuf {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_name().fmt(out)
    }
}

impl fmt::Debug for NameBuf {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.as_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;

    #[track_caller]
    fn name(bytes: &[u8]) -> Name<'_> {
        Name::parse(bytes).expect("a name")
    }

    #[test]
    fn parse_returns_the_name_at_the_start_or_an_error() {
        assert_eq!(name(b"\x03www\x07example\0rest").length_bytes(), 13);
        assert_eq!(Name::parse(b"\x03ww"), Err(NameError::UnexpectedEnd));
        assert_eq!(Name::parse(b"\x03www"), Err(NameError::UnexpectedEnd));
        assert_eq!(Name::parse(b""), Err(NameError::UnexpectedEnd));
        assert_eq!(Name::parse(b"\xc0\x0c"), Err(NameError::InvalidLabel));
        assert_eq!(Name::parse(&[0x40; 80]), Err(NameError::InvalidLabel));
    }

    #[test]
    fn name_of_255_bytes_is_the_longest() {
        let mut bytes = b"\x01a".repeat(127);
        bytes.push(0);
        assert_eq!(name(&bytes).labels().count(), LABEL_COUNT_MAX);
        bytes.splice(..0, *b"\x01b");
        assert_eq!(Name::parse(&bytes), Err(NameError::TooLong));
        assert!(matches!(NameBuf::child(b"b", name(&bytes[2..])), Err(NameError::TooLong)));
    }

    #[test]
    fn comparison_ignores_case() {
        let upper = name(b"\x03WWW\x07eXample\0");
        assert!(upper.eq_ignore_case(name(b"\x03www\x07example\0")));
        assert_eq!(format!("{}", upper.to_lowercase()), "www.example.");
        assert!(upper.is_at_or_below(name(b"\x07EXAMPLE\0")));
        assert!(!upper.is_at_or_below(name(b"\x06xample\0")));
        assert!(upper.is_at_or_below(Name::ROOT));
    }

    /// The order of RFC 4034 §6.1.
    #[test]
    fn canonical_order_is_that_of_labels_from_the_root() {
        let names = [
            &b"\x07example\0"[..],
            b"\x01a\x07example\0",
            b"\x08yljkjljk\x01a\x07example\0",
            b"\x01Z\x01a\x07example\0",
            b"\x04zABC\x01a\x07EXAMPLE\0",
            b"\x01z\x07example\0",
            b"\x01\x01\x01z\x07example\0",
            b"\x01*\x01z\x07example\0",
            b"\x01\xc8\x01z\x07example\0",
        ];
        let names: Vec<NameBuf> = names.into_iter().map(|bytes| name(bytes).to_lowercase()).collect();
        for (index, left) in names.iter().enumerate() {
            for (other_index, right) in names.iter().enumerate() {
                let (left, right) = (left.as_name(), right.as_name());
                assert_eq!(left.canonical_cmp(right), index.cmp(&other_index), "{left} {right}");
                let apex = names[0].as_name();
                let below = IndexedLabels::of(left.labels_below(apex.length_bytes()))
                    .canonical_cmp(right.labels_below(apex.length_bytes()));
                assert_eq!(below, index.cmp(&other_index), "{left} {right}");
            }
        }
    }

    #[test]
    fn display_escapes_special_characters_of_zone_files() {
        assert_eq!(format!("{}", name(b"\x04a.\x07@\0")), "a\\.\\007\\@.");
        assert_eq!(format!("{}", Name::ROOT), ".");
    }
}
