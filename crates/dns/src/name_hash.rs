//! A name with the places of its labels, and a hash of each of its suffixes: what a store of names is searched by.
//!
//! The hash grows from the root towards the leaf, so that one pass over a name gives the hashes of all its ancestors.
//! Case does not count (RFC 4343): letters are folded eight octets at a time on their way into the hash, and when a name
//! is compared with a stored one, so that no copy in lower case is made of a question's name.

use crate::name::{LABEL_COUNT_MAX, Name};

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
    #[inline]
    pub(crate) fn of_root(self) -> NameHash {
        NameHash(self.0 ^ MULTIPLIER)
    }
}

impl NameHash {
    /// The hash of `label.name`, where this is the hash of `name`.
    #[inline]
    fn with_label(self, label: &[u8]) -> NameHash {
        let mut state = self.0 ^ (label.len() as u64).wrapping_mul(LENGTH_MULTIPLIER);
        let (eights, rest) = label.as_chunks();
        for &octets in eights {
            state = folded_product(state ^ folded(u64::from_le_bytes(octets)), MULTIPLIER);
        }
        if !rest.is_empty() {
            state = folded_product(state ^ folded(number_of_few(rest)), MULTIPLIER);
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

/// Eight octets, their letters in lower case.
#[inline]
fn folded(octets: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP_BITS: u64 = 0x80 * EACH;
    // Without its top bit an octet is at most 127, so that these sums carry nothing into the next octet. The top bit of
    // one says that the octet is at least "A", that of the other that it is beyond "Z".
    let low = octets & !TOP_BITS;
    let from_a = low.wrapping_add((0x80 - u64::from(b'A')) * EACH);
    let beyond_z = low.wrapping_add((0x7f - u64::from(b'Z')) * EACH);
    let upper = from_a & !beyond_z & !octets & TOP_BITS;
    // 0x20 tells a small letter from its capital.
    octets | upper >> 2
}

/// Less than eight octets as one number, which tells them from all others of the same count.
#[inline]
fn number_of_few(octets: &[u8]) -> u64 {
    match (octets.first_chunk(), octets.last_chunk()) {
        // The two halves may overlap.
        (Some(&first), Some(&last)) => {
            u64::from(u32::from_le_bytes(first)) | u64::from(u32::from_le_bytes(last)) << u32::BITS
        }
        _ => match (octets.first(), octets.get(octets.len() / 2), octets.last()) {
            (Some(&first), Some(&middle), Some(&last)) => u64::from(u32::from_le_bytes([first, middle, last, 0])),
            _ => 0,
        },
    }
}

/// Whether `name` is `stored`, which is in lower case; case does not count.
///
/// Label lengths are below 64 and so no letters: the octets can be folded as they are. Most names are asked for in lower
/// case, so that nothing needs to be folded at all.
#[inline]
pub(crate) fn is_stored_name(stored: &[u8], name: &[u8]) -> bool {
    if stored.len() != name.len() {
        return false;
    }
    let is_same = |stored: u64, name: u64| stored == name || stored == folded(name);
    let is_same_end = match (stored.last_chunk(), name.last_chunk()) {
        (Some(&stored), Some(&name)) => is_same(u64::from_le_bytes(stored), u64::from_le_bytes(name)),
        _ => is_same(number_of_few(stored), number_of_few(name)),
    };
    // The last eight octets may overlap those before them.
    let mut eights = stored.as_chunks().0.iter().zip(name.as_chunks().0);
    is_same_end && eights.all(|(&stored, &name)| is_same(u64::from_le_bytes(stored), u64::from_le_bytes(name)))
}

/// A name with the places of its labels.
#[derive(Clone)]
pub struct LabelledName<'n> {
    bytes: &'n [u8],
    /// Where each label starts, from the leaf; behind the last, where the root stands.
    starts: [u8; LABEL_COUNT_MAX + 1],
    label_count: u8,
}

impl<'n> LabelledName<'n> {
    /// `name`, its labels found.
    #[inline]
    pub fn of(name: Name<'n>) -> LabelledName<'n> {
        let bytes = name.as_bytes();
        let mut starts = [0; LABEL_COUNT_MAX + 1];
        let (mut at, mut label_count) = (0, 0);
        while bytes[at] != 0 {
            starts[label_count] = at as u8;
            label_count += 1;
            at += 1 + usize::from(bytes[at]);
        }
        starts[label_count] = at as u8;
        LabelledName { bytes, starts, label_count: label_count as u8 }
    }

    /// Labels, the root not counted.
    #[inline]
    pub fn label_count(&self) -> usize {
        usize::from(self.label_count)
    }

    /// The octets, root label included.
    #[inline]
    pub fn as_bytes(&self) -> &'n [u8] {
        self.bytes
    }

    /// The ancestor that has `depth` labels, or the name itself: octets, root label included.
    #[inline]
    pub fn suffix(&self, depth: usize) -> &'n [u8] {
        &self.bytes[usize::from(self.starts[self.label_count() - depth])..]
    }

    /// The root, then each longer suffix up to the whole name: its octets, and its hash.
    #[inline]
    pub(crate) fn suffixes(&self, seed: HashSeed) -> impl Iterator<Item = (&'n [u8], NameHash)> {
        let mut hash = seed.of_root();
        self.starts[..=self.label_count()].iter().rev().map(move |&start| {
            let suffix = &self.bytes[usize::from(start)..];
            if let Some((&length, behind)) = suffix.split_first()
                && length != 0
            {
                hash = hash.with_label(&behind[..usize::from(length)]);
            }
            (suffix, hash)
        })
    }

    /// The hash of the whole name.
    #[inline]
    pub(crate) fn hash(&self, seed: HashSeed) -> NameHash {
        self.suffixes(seed).last().map_or(seed.of_root(), |(_, hash)| hash)
    }
}

impl core::fmt::Debug for LabelledName<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "LabelledName({:?})", Name::parse(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const SEED: HashSeed = HashSeed(7);

    fn labelled(bytes: &[u8]) -> LabelledName<'_> {
        LabelledName::of(Name::parse(bytes).expect("a name"))
    }

    #[test]
    fn every_octet_folds_as_an_ascii_character_does() {
        for octet in 0..=255_u8 {
            let octets = [octet, b'A', b'Z', 0xff, octet, b'@', b'[', octet];
            assert_eq!(
                folded(u64::from_le_bytes(octets)).to_le_bytes(),
                octets.map(|octet| octet.to_ascii_lowercase())
            );
        }
    }

    #[test]
    fn names_of_every_length_are_compared_to_their_last_octet() {
        for length in 0..=40 {
            let stored: Vec<u8> = (b'a'..).take(25).cycle().take(length).collect();
            let name = stored.to_ascii_uppercase();
            assert!(is_stored_name(&stored, &name), "{length}");
            for at in 0..length {
                let mut other = name.clone();
                other[at] = b'z';
                assert!(!is_stored_name(&stored, &other), "{length} octets differ at {at}");
                assert!(!is_stored_name(&stored, &name[..at]), "{at} of {length}");
            }
        }
    }

    #[test]
    fn labels_and_suffixes_are_found() {
        let name = labelled(b"\x03WwW\x07eXample\x04TEST\0");
        assert_eq!(name.label_count(), 3);
        assert_eq!(name.suffix(0), b"\0");
        assert_eq!(name.suffix(2), b"\x07eXample\x04TEST\0");
        assert_eq!(name.suffix(3), name.as_bytes());
    }

    #[test]
    fn a_name_hashes_as_the_same_name_within_a_longer_one() {
        let long = labelled(b"\x0dthirteen-long\x07example\x04test\0");
        let (suffix, hash) = long.suffixes(SEED).nth(2).expect("a suffix of two labels");
        assert_eq!(suffix, long.suffix(2));
        assert_eq!(hash, labelled(b"\x07EXAMPLE\x04test\0").hash(SEED));
    }

    #[test]
    fn every_octet_of_a_label_counts() {
        for length in 1..=63_usize {
            let mut name = [&[length as u8][..], &[b'x'; 64]].concat();
            name[length + 1] = 0;
            let hash = labelled(&name).hash(SEED);
            for at in 1..=length {
                let mut other = name.clone();
                other[at] = b'y';
                assert_ne!(labelled(&other).hash(SEED), hash, "{length} octets differ at {at}");
            }
        }
    }

    #[test]
    fn where_labels_end_counts() {
        let names: [&[u8]; 7] =
            [b"\x01a\x01b\0", b"\x02ab\0", b"\x01a\0", b"\x01b\0", b"\0", b"\x03a\x01b\0", b"\x01a\x01a\0"];
        for (index, left) in names.iter().enumerate() {
            for right in &names[..index] {
                assert_ne!(labelled(left).hash(SEED), labelled(right).hash(SEED), "{left:?} {right:?}");
            }
        }
        assert_ne!(labelled(names[0]).hash(SEED), labelled(names[0]).hash(HashSeed(8)));
    }

    #[test]
    fn the_longest_name_fits() {
        let mut bytes = [1; 255];
        bytes[254] = 0;
        let name = labelled(&bytes);
        assert_eq!(name.label_count(), 127);
        assert_eq!(name.suffix(127).len(), 255);
        let _ = name.hash(SEED);
    }
}
