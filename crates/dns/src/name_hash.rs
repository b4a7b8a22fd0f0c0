//! A name folded to lower case, with a hash of each of its suffixes: what a store of names is searched by.
//!
//! The hash grows from the root towards the leaf, so that one pass over a name gives the hashes of all its ancestors.

use crate::name::{LABEL_COUNT_MAX, NAME_BYTES_MAX, Name};

/// Octets read beyond a label's end, so that it can be hashed eight at a time.
const PADDING_BYTES: usize = 8;

/// Makes the hashes of one process differ from those of the next, so that nobody can prepare names that collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed(pub u64);

/// The hash of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameHash(u64);

// Two odd numbers with their bits well mixed, from the digits of e and of √2.
const MULTIPLIER: u64 = 0xb7e1_5162_8aed_2a6b;
const LENGTH_MULTIPLIER: u64 = 0x6a09_e667_f3bc_c909;

impl HashSeed {
    /// The hash of the root.
    pub(crate) fn of_root(self) -> NameHash {
        NameHash(self.0 ^ MULTIPLIER)
    }
}

impl NameHash {
    /// The hash of `label.name`, where this is the hash of `name`. `padded` starts with the label's own octets and goes
    /// on for at least eight more.
    #[inline]
    fn with_label(self, padded: &[u8], length_bytes: usize) -> NameHash {
        let mut state = self.0 ^ (length_bytes as u64).wrapping_mul(LENGTH_MULTIPLIER);
        let mut at = 0;
        while at < length_bytes {
            let mut chunk = [0; 8];
            chunk.copy_from_slice(&padded[at..at + 8]);
            let mut octets = u64::from_le_bytes(chunk);
            let left_bytes = length_bytes - at;
            if left_bytes < 8 {
                octets &= (1 << (8 * left_bytes)) - 1;
            }
            state = folded_product(state ^ octets, MULTIPLIER);
            at += 8;
        }
        NameHash(state)
    }

    /// Where to look first in a table of 2^`bit_count` places.
    #[inline]
    pub(crate) fn place(self, bit_count: u32) -> usize {
        (self.0 >> (64 - bit_count)) as usize
    }

    /// What tells two names in neighbouring places apart without looking at them; none of its bits is one of
    /// [`NameHash::place`] in tables of up to 2^32 places.
    #[inline]
    pub(crate) fn tag(self) -> u32 {
        self.0 as u32
    }
}

/// Both halves of the 128-bit product, folded: every bit of the operands reaches every bit of the result.
#[inline]
fn folded_product(left: u64, right: u64) -> u64 {
    let product = u128::from(left).wrapping_mul(u128::from(right));
    (product as u64) ^ ((product >> 64) as u64)
}

/// A name in lower case, with the places of its labels.
#[derive(Clone)]
pub struct LowerName {
    bytes: [u8; NAME_BYTES_MAX + PADDING_BYTES],
    length: u8,
    /// Where each label starts, from the leaf; behind the last, where the root stands.
    starts: [u8; LABEL_COUNT_MAX + 1],
    label_count: u8,
}

impl LowerName {
    /// `name`, folded.
    pub fn of(name: Name<'_>) -> LowerName {
        let mut lower = LowerName {
            bytes: [0; NAME_BYTES_MAX + PADDING_BYTES],
            length: name.length_bytes() as u8,
            starts: [0; LABEL_COUNT_MAX + 1],
            label_count: 0,
        };
        // Label lengths are below 64 and so no letters: the octets can be folded as they are.
        for (to, from) in lower.bytes.iter_mut().zip(name.as_bytes()) {
            *to = from.to_ascii_lowercase();
        }
        let mut at = 0;
        while lower.bytes[at] != 0 {
            lower.starts[usize::from(lower.label_count)] = at as u8;
            lower.label_count += 1;
            at += 1 + usize::from(lower.bytes[at]);
        }
        lower.starts[usize::from(lower.label_count)] = at as u8;
        lower
    }

    /// Labels, the root not counted.
    pub fn label_count(&self) -> usize {
        usize::from(self.label_count)
    }

    /// The octets, root label included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The ancestor that has `depth` labels, or the name itself: octets, root label included.
    #[inline]
    pub fn suffix(&self, depth: usize) -> &[u8] {
        let start = usize::from(self.starts[self.label_count() - depth]);
        &self.bytes[start..usize::from(self.length)]
    }

    /// The hash of the suffix of `depth` + 1 labels, from that of the suffix of `depth`.
    #[inline]
    pub(crate) fn deeper(&self, hash: NameHash, depth: usize) -> NameHash {
        let start = usize::from(self.starts[self.label_count() - depth - 1]);
        hash.with_label(&self.bytes[start + 1..], usize::from(self.bytes[start]))
    }

    /// The hash of the whole name.
    pub(crate) fn hash(&self, seed: HashSeed) -> NameHash {
        (0..self.label_count()).fold(seed.of_root(), |hash, depth| self.deeper(hash, depth))
    }
}

impl core::fmt::Debug for LowerName {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "LowerName({:?})", Name::parse(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: HashSeed = HashSeed(7);

    fn lower(bytes: &[u8]) -> LowerName {
        LowerName::of(Name::parse(bytes).expect("a name"))
    }

    #[test]
    fn case_is_folded_and_suffixes_are_found() {
        let name = lower(b"\x03WwW\x07eXample\x04TEST\0");
        assert_eq!(name.as_bytes(), b"\x03www\x07example\x04test\0");
        assert_eq!(name.label_count(), 3);
        assert_eq!(name.suffix(0), b"\0");
        assert_eq!(name.suffix(2), b"\x07example\x04test\0");
        assert_eq!(name.suffix(3), name.as_bytes());
    }

    #[test]
    fn a_name_hashes_as_the_same_name_within_a_longer_one() {
        let long = lower(b"\x0dthirteen-long\x07example\x04test\0");
        let hash = (0..2).fold(SEED.of_root(), |hash, depth| long.deeper(hash, depth));
        assert_eq!(hash, lower(b"\x07EXAMPLE\x04test\0").hash(SEED));
    }

    #[test]
    fn where_labels_end_counts() {
        let names: [&[u8]; 7] =
            [b"\x01a\x01b\0", b"\x02ab\0", b"\x01a\0", b"\x01b\0", b"\0", b"\x03a\x01b\0", b"\x01a\x01a\0"];
        for (index, left) in names.iter().enumerate() {
            for right in &names[..index] {
                assert_ne!(lower(left).hash(SEED), lower(right).hash(SEED), "{left:?} {right:?}");
            }
        }
        assert_ne!(lower(names[0]).hash(SEED), lower(names[0]).hash(HashSeed(8)));
    }

    #[test]
    fn the_longest_name_fits() {
        let mut bytes = [1; 255];
        bytes[254] = 0;
        let name = lower(&bytes);
        assert_eq!(name.label_count(), 127);
        assert_eq!(name.suffix(127).len(), 255);
        let _ = name.hash(SEED);
    }
}
