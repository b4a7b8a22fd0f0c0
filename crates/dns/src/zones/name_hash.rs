//! Hashes of names, and names with the offsets of their labels.
//!
//! A hash is extended label by label from the root, so that one pass over a name yields the hashes of all its
//! ancestors. Hashes and comparisons ignore case (RFC 4343): they fold letters eight bytes at a time, without a copy in
//! lower case.

use crate::text::name::{LABEL_COUNT_MAX, Name, NameError};

/// A random number that makes hashes unpredictable, so that no client can prepare names that collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed(pub u64);

/// The hash of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameHash(u64);

impl NameHash {
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// The hashes of a name and of its parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHashes {
    pub(crate) name: NameHash,
    /// Unspecified for the root and for an apex.
    pub(crate) parent: NameHash,
}

impl NameHashes {
    /// The hashes of `child`, a suffix of `name`, computed from its parent's hashes.
    #[inline]
    pub(crate) fn child(self, child: &[u8], name: &[u8]) -> NameHashes {
        NameHashes { name: self.name.with_label(child, name), parent: self.name }
    }
}

// An odd number with well mixed bits, from the digits of e.
const MULTIPLIER: u64 = 0xb7e1_5162_8aed_2a6b;
/// Bytes that are hashed and compared at a time.
const WORD_BYTES: usize = size_of::<u64>();
/// Masks of the lowest bytes of a word, by their number.
const LOW_BYTES: [u64; WORD_BYTES + 1] =
    [0, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff, 0xff_ffff_ffff, 0xffff_ffff_ffff, 0xff_ffff_ffff_ffff, u64::MAX];

impl HashSeed {
    /// The hash of the root.
    #[inline]
    pub(crate) fn of_root(self) -> NameHash {
        NameHash(self.0 ^ MULTIPLIER)
    }
}

impl NameHash {
    /// The hash of `suffix`, a suffix of `name`, from this hash of its parent. The last label is read as a word from
    /// the end of `name`.
    // Inlined: most labels take one round, as much as a call.
    #[inline(always)]
    pub(crate) fn with_label(self, suffix: &[u8], name: &[u8]) -> NameHash {
        let mut rest = suffix;
        // The length byte is hashed with its label, so that the boundaries of labels make a difference.
        let mut remaining_bytes = 1 + usize::from(rest[0]);
        let mut state = self.0;
        while remaining_bytes > WORD_BYTES {
            let (&word, tail) = rest.split_first_chunk().expect("a label ends before its name does");
            state = folded_product(state ^ to_lowercase(u64::from_le_bytes(word)), MULTIPLIER);
            (rest, remaining_bytes) = (tail, remaining_bytes - WORD_BYTES);
        }
        let last = first_word(rest, name) & LOW_BYTES[remaining_bytes];
        NameHash(folded_product(state ^ to_lowercase(last), MULTIPLIER))
    }

    /// The first slot to search in a table of 2^`bit_count` slots.
    #[inline]
    pub(crate) fn slot(self, bit_count: u32) -> usize {
        (self.0 >> (64 - bit_count)) as usize
    }

    /// Bits that a slot stores to distinguish names. In tables of up to 2^32 slots, these bits are independent of
    /// [`NameHash::slot`].
    #[inline]
    pub(crate) fn tag(self) -> u32 {
        self.0 as u32
    }
}

/// The halves of the 128-bit product combined: every bit of the operands affects every bit of the result.
#[inline]
fn folded_product(left: u64, right: u64) -> u64 {
    let product = u128::from(left).wrapping_mul(u128::from(right));
    (product as u64) ^ ((product >> 64) as u64)
}

/// Eight bytes with their ASCII letters in lower case.
#[inline]
fn to_lowercase(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP_BITS: u64 = 0x80 * EACH;
    // A byte without its top bit is at most 127, so the sums carry nothing into the next byte. The top bit of `from_a`
    // is set for a byte of at least "A", the top bit of `beyond_z` for a byte above "Z".
    let low = word & !TOP_BITS;
    let from_a = low.wrapping_add((0x80 - u64::from(b'A')) * EACH);
    let beyond_z = low.wrapping_add((0x7f - u64::from(b'Z')) * EACH);
    let upper = from_a & !beyond_z & !word & TOP_BITS;
    // 0x20 is the difference between a small letter and its capital.
    word | upper >> 2
}

/// The first eight bytes of `rest`, a non-empty suffix of `name`, in little endian. Missing bytes are 0.
#[inline]
fn first_word(rest: &[u8], name: &[u8]) -> u64 {
    match (rest.first_chunk(), name.last_chunk()) {
        (Some(&word), _) => u64::from_le_bytes(word),
        // Bytes before `rest` are shifted out.
        (None, Some(&word)) => u64::from_le_bytes(word) >> (u8::BITS as usize * (WORD_BYTES - rest.len())),
        (None, None) => rest.iter().rev().fold(0, |number, &byte| number << u8::BITS | u64::from(byte)),
    }
}

/// Whether `name` equals `stored`, which is in lower case, ignoring the case of `name`.
///
/// Label lengths are below 64 and so not letters. Most queries are in lower case and need no folding.
#[inline]
pub(crate) fn eq_lowercase(stored: &[u8], name: &[u8]) -> bool {
    if stored.len() != name.len() {
        return false;
    }
    let is_same = |stored: u64, name: u64| stored == name || stored == to_lowercase(name);
    let is_same_end = match (stored.last_chunk(), name.last_chunk()) {
        (Some(&stored), Some(&name)) => is_same(u64::from_le_bytes(stored), u64::from_le_bytes(name)),
        _ => return stored.eq_ignore_ascii_case(name),
    };
    // The last word may overlap the words before it.
    let mut words = stored.as_chunks().0.iter().zip(name.as_chunks().0);
    is_same_end && words.all(|(&stored, &name)| is_same(u64::from_le_bytes(stored), u64::from_le_bytes(name)))
}

/// A name with the offsets of its labels.
#[derive(Clone)]
pub(crate) struct IndexedName<'n> {
    name: Name<'n>,
    /// The offset of each label, from the leaf, and of the root label.
    starts: [u8; LABEL_COUNT_MAX + 1],
    label_count: usize,
}

impl<'n> IndexedName<'n> {
    #[inline]
    pub(crate) fn root() -> IndexedName<'n> {
        IndexedName { name: Name::ROOT, starts: [0; LABEL_COUNT_MAX + 1], label_count: 0 }
    }

    /// Becomes the name at the start of `bytes`. Bytes after it are ignored. After an error the value is unspecified.
    ///
    /// Computed in place, because the offsets are expensive to copy.
    #[inline]
    pub(crate) fn parse(&mut self, bytes: &'n [u8]) -> Result<(), NameError> {
        let mut start_count = 0;
        self.name = Name::parse_with(bytes, |start| {
            self.starts[start_count] = start as u8;
            start_count += 1;
        })?;
        self.label_count = start_count - 1;
        Ok(())
    }

    #[inline]
    pub(crate) fn of(name: Name<'n>) -> IndexedName<'n> {
        let mut indexed = IndexedName::root();
        indexed.parse(name.as_bytes()).expect("the bytes of a name are one");
        indexed
    }

    #[inline]
    pub(crate) fn name(&self) -> Name<'n> {
        self.name
    }

    /// The number of labels, without the root.
    #[inline]
    pub(crate) fn label_count(&self) -> usize {
        self.label_count
    }

    /// The bytes, including the root label.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &'n [u8] {
        self.name.as_bytes()
    }

    /// The bytes of the suffix with `depth` labels, including the root label.
    #[inline]
    pub(crate) fn suffix(&self, depth: usize) -> &'n [u8] {
        &self.as_bytes()[usize::from(self.starts[self.label_count - depth])..]
    }

    /// The suffixes with more than `depth` labels, shortest first.
    #[inline(always)]
    pub(crate) fn suffixes_longer_than(&self, depth: usize) -> impl Iterator<Item = &'n [u8]> {
        let bytes = self.as_bytes();
        self.starts[..self.label_count - depth].iter().rev().map(|&start| &bytes[usize::from(start)..])
    }

    /// The hash of the suffix with `to_depth` labels, from the hash of the suffix with `from_depth` labels.
    pub(crate) fn extend_hash(&self, hash: NameHash, from_depth: usize, to_depth: usize) -> NameHash {
        let mut hash = hash;
        for depth in from_depth..to_depth {
            hash = hash.with_label(self.suffix(depth + 1), self.as_bytes());
        }
        hash
    }

    /// The hash of the whole name.
    #[inline]
    pub(crate) fn hash(&self, seed: HashSeed) -> NameHash {
        self.extend_hash(seed.of_root(), 0, self.label_count)
    }
}

impl core::fmt::Debug for IndexedName<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "IndexedName({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SEED: HashSeed = HashSeed(7);

    fn indexed(bytes: &[u8]) -> IndexedName<'_> {
        IndexedName::of(Name::parse(bytes).expect("a name"))
    }

    #[test]
    fn to_lowercase_changes_only_ascii_capitals() {
        for byte in 0..=255_u8 {
            let word = [byte, b'A', b'Z', 0xff, byte, b'@', b'[', byte];
            assert_eq!(
                to_lowercase(u64::from_le_bytes(word)).to_le_bytes(),
                word.map(|byte| byte.to_ascii_lowercase())
            );
        }
    }

    #[test]
    fn eq_lowercase_compares_every_byte() {
        for length in 0..=40 {
            let stored: Vec<u8> = (b'a'..).take(25).cycle().take(length).collect();
            let name = stored.to_ascii_uppercase();
            assert!(eq_lowercase(&stored, &name), "{length}");
            for at in 0..length {
                let mut other = name.clone();
                other[at] = b'z';
                assert!(!eq_lowercase(&stored, &other), "{length} bytes differ at {at}");
                assert!(!eq_lowercase(&stored, &name[..at]), "{at} of {length}");
            }
        }
    }

    #[test]
    fn suffix_returns_the_last_labels() {
        let name = indexed(b"\x03WwW\x07eXample\x04TEST\0");
        assert_eq!(name.label_count(), 3);
        assert_eq!(name.suffix(0), b"\0");
        assert_eq!(name.suffix(2), b"\x07eXample\x04TEST\0");
        assert_eq!(name.suffix(3), name.as_bytes());
    }

    #[test]
    fn hash_of_a_suffix_equals_the_hash_of_the_name() {
        let long = indexed(b"\x0dthirteen-long\x07example\x04test\0");
        let of_two_labels = long.extend_hash(SEED.of_root(), 0, 2);
        assert_eq!(of_two_labels, indexed(b"\x07EXAMPLE\x04test\0").hash(SEED));
        assert_eq!(of_two_labels, indexed(long.suffix(2)).hash(SEED));
        assert_eq!(long.extend_hash(of_two_labels, 2, 3), long.hash(SEED));
    }

    #[test]
    fn first_word_reads_bytes_at_every_offset() {
        for length in 1..=20 {
            let bytes: Vec<u8> = (1..=length).collect();
            for rest in (0..bytes.len()).map(|at| &bytes[at..]) {
                let mut word = [0; WORD_BYTES];
                let count = rest.len().min(WORD_BYTES);
                word[..count].copy_from_slice(&rest[..count]);
                assert_eq!(first_word(rest, &bytes).to_le_bytes(), word, "{rest:?} of {length}");
            }
        }
    }

    #[test]
    fn hash_depends_on_every_byte_of_a_label() {
        for length in 1..=63_usize {
            let mut name = [&[length as u8][..], &[b'x'; 64]].concat();
            name[length + 1] = 0;
            let hash = indexed(&name).hash(SEED);
            for at in 1..=length {
                let mut other = name.clone();
                other[at] = b'y';
                assert_ne!(indexed(&other).hash(SEED), hash, "{length} bytes differ at {at}");
            }
        }
    }

    #[test]
    fn hash_depends_on_label_boundaries() {
        let names: [&[u8]; 7] =
            [b"\x01a\x01b\0", b"\x02ab\0", b"\x01a\0", b"\x01b\0", b"\0", b"\x03a\x01b\0", b"\x01a\x01a\0"];
        for (index, left) in names.iter().enumerate() {
            for right in &names[..index] {
                assert_ne!(indexed(left).hash(SEED), indexed(right).hash(SEED), "{left:?} {right:?}");
            }
        }
        assert_ne!(indexed(names[0]).hash(SEED), indexed(names[0]).hash(HashSeed(8)));
    }

    #[test]
    fn longest_name_is_indexed() {
        let mut bytes = [1; 255];
        bytes[254] = 0;
        let name = indexed(&bytes);
        assert_eq!(name.label_count(), 127);
        assert_eq!(name.suffix(127).len(), 255);
        let _ = name.hash(SEED);
    }
}
