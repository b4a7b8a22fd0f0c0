//! A name with the places of its labels, and a hash of each of its suffixes: what a store of names is searched by.
//!
//! The hash grows from the root towards the leaf, so that one pass over a name gives the hashes of all its ancestors.
//! Case does not count (RFC 4343): letters are folded eight octets at a time on their way into the hash, and when a name
//! is compared with a stored one, so that no copy in lower case is made of a question's name.

use crate::name::{LABEL_COUNT_MAX, Name, NameError};

/// Makes the hashes of one process differ from those of the next, so that nobody can prepare names that collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashSeed(pub u64);

/// The hash of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameHash(u64);

/// The hash of a name and that of the name above it, which is where most names that are not there end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHashes {
    pub(crate) name: NameHash,
    /// Of no use if the name is the root or an apex, whose own it may be.
    pub(crate) parent: NameHash,
}

impl NameHashes {
    /// Those of `suffix`, of which these are the name above.
    #[inline]
    pub(crate) fn below(self, suffix: &[u8], name: &[u8]) -> NameHashes {
        NameHashes { name: self.name.with_label(suffix, name), parent: self.name }
    }
}

// An odd number with its bits well mixed, from the digits of e.
const MULTIPLIER: u64 = 0xb7e1_5162_8aed_2a6b;
/// Octets that are folded, hashed and compared at a time.
const EIGHT: usize = size_of::<u64>();
/// Masks of so many octets, from the lowest.
const LOWEST_OCTETS: [u64; EIGHT + 1] =
    [0, 0xff, 0xffff, 0xff_ffff, 0xffff_ffff, 0xff_ffff_ffff, 0xffff_ffff_ffff, 0xff_ffff_ffff_ffff, u64::MAX];

impl HashSeed {
    /// The hash of the root.
    #[inline]
    pub(crate) fn of_root(self) -> NameHash {
        NameHash(self.0 ^ MULTIPLIER)
    }
}

impl NameHash {
    /// The hash of `suffix`, which `name` ends with, where this is the hash of the suffix one label shorter.
    // Most labels take one round: a call would cost as much again.
    #[inline(always)]
    pub(crate) fn with_label(self, suffix: &[u8], name: &[u8]) -> NameHash {
        let mut rest = suffix;
        // The octet of the length goes in with the label: so where labels end counts.
        let mut left_bytes = 1 + usize::from(rest[0]);
        let mut state = self.0;
        while left_bytes > EIGHT {
            let (&octets, behind) = rest.split_first_chunk().expect("a label ends before its name does");
            state = folded_product(state ^ folded(u64::from_le_bytes(octets)), MULTIPLIER);
            (rest, left_bytes) = (behind, left_bytes - EIGHT);
        }
        let last = first_eight(rest, name) & LOWEST_OCTETS[left_bytes];
        NameHash(folded_product(state ^ folded(last), MULTIPLIER))
    }

    /// Where to look first in a table of 2^`bit_count` places.
    #[inline]
    pub(crate) fn slot(self, bit_count: u32) -> usize {
        (self.0 >> (64 - bit_count)) as usize
    }

    /// What tells two names in neighbouring places apart without looking at them; none of its bits is one of
    /// [`NameHash::slot`] in tables of up to 2^32 places.
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

/// The first eight octets of `rest`, which `name` ends with and which is not empty, as one number, the first octet lowest;
/// zero where there are fewer.
#[inline]
fn first_eight(rest: &[u8], name: &[u8]) -> u64 {
    match (rest.first_chunk(), name.last_chunk()) {
        (Some(&octets), _) => u64::from_le_bytes(octets),
        // What stands before `rest` is shifted out.
        (None, Some(&octets)) => u64::from_le_bytes(octets) >> (u8::BITS as usize * (EIGHT - rest.len())),
        (None, None) => rest.iter().rev().fold(0, |number, &octet| number << u8::BITS | u64::from(octet)),
    }
}

/// Whether `name` is `stored`, which is in lower case; case does not count.
///
/// Label lengths are below 64 and so no letters: the octets can be folded as they are. Most names are asked for in lower
/// case, so that nothing needs to be folded at all.
#[inline]
pub(crate) fn eq_stored(stored: &[u8], name: &[u8]) -> bool {
    if stored.len() != name.len() {
        return false;
    }
    let is_same = |stored: u64, name: u64| stored == name || stored == folded(name);
    let is_same_end = match (stored.last_chunk(), name.last_chunk()) {
        (Some(&stored), Some(&name)) => is_same(u64::from_le_bytes(stored), u64::from_le_bytes(name)),
        _ => return stored.eq_ignore_ascii_case(name),
    };
    // The last eight octets may overlap those before them.
    let mut eights = stored.as_chunks().0.iter().zip(name.as_chunks().0);
    is_same_end && eights.all(|(&stored, &name)| is_same(u64::from_le_bytes(stored), u64::from_le_bytes(name)))
}

/// A name with the places of its labels.
#[derive(Clone)]
pub(crate) struct IndexedName<'n> {
    name: Name<'n>,
    /// Where each label starts, from the leaf; behind the last, where the root stands.
    starts: [u8; LABEL_COUNT_MAX + 1],
    label_count: usize,
}

impl<'n> IndexedName<'n> {
    /// The root.
    #[inline]
    pub(crate) fn root() -> IndexedName<'n> {
        IndexedName { name: Name::ROOT, starts: [0; LABEL_COUNT_MAX + 1], label_count: 0 }
    }

    /// Becomes the name at the start of `bytes`, which may go on behind it: in place, because a name with the places of
    /// its labels is dear to hand about. When it fails, it is no name any more.
    #[inline]
    pub(crate) fn parse(&mut self, bytes: &'n [u8]) -> Result<(), NameError> {
        let mut start_count = 0;
        self.name = Name::parse_with(bytes, |start| {
            self.starts[start_count] = start as u8;
            start_count += 1;
        })?;
        // The root is no label.
        self.label_count = start_count - 1;
        Ok(())
    }

    /// `name`, its labels found.
    #[inline]
    pub(crate) fn of(name: Name<'n>) -> IndexedName<'n> {
        let mut indexed = IndexedName::root();
        indexed.parse(name.as_bytes()).expect("a name has the shape of one");
        indexed
    }

    /// The name itself.
    #[inline]
    pub(crate) fn name(&self) -> Name<'n> {
        self.name
    }

    /// Labels, the root not counted.
    #[inline]
    pub(crate) fn label_count(&self) -> usize {
        self.label_count
    }

    /// The octets, root label included.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &'n [u8] {
        self.name.as_bytes()
    }

    /// The ancestor that has `depth` labels, or the name itself: octets, root label included.
    #[inline]
    pub(crate) fn suffix(&self, depth: usize) -> &'n [u8] {
        &self.as_bytes()[usize::from(self.starts[self.label_count - depth])..]
    }

    /// The suffixes with more than `depth` labels, from the shortest of them to the name itself.
    #[inline(always)]
    pub(crate) fn suffixes_beyond(&self, depth: usize) -> impl Iterator<Item = &'n [u8]> {
        let bytes = self.as_bytes();
        self.starts[..self.label_count - depth].iter().rev().map(|&start| &bytes[usize::from(start)..])
    }

    /// The hash of the suffix of `to_depth` labels, from the hash of that of `from_depth` labels.
    pub(crate) fn grown_hash(&self, hash: NameHash, from_depth: usize, to_depth: usize) -> NameHash {
        let mut hash = hash;
        for depth in from_depth..to_depth {
            hash = hash.with_label(self.suffix(depth + 1), self.as_bytes());
        }
        hash
    }

    /// The hash of the whole name.
    #[inline]
    pub(crate) fn hash(&self, seed: HashSeed) -> NameHash {
        self.grown_hash(seed.of_root(), 0, self.label_count)
    }

    /// The hash of the whole name and that of its parent.
    pub(crate) fn hashes(&self, seed: HashSeed) -> NameHashes {
        let parent_depth = self.label_count.saturating_sub(1);
        let parent = self.grown_hash(seed.of_root(), 0, parent_depth);
        NameHashes { name: self.grown_hash(parent, parent_depth, self.label_count), parent }
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
            assert!(eq_stored(&stored, &name), "{length}");
            for at in 0..length {
                let mut other = name.clone();
                other[at] = b'z';
                assert!(!eq_stored(&stored, &other), "{length} octets differ at {at}");
                assert!(!eq_stored(&stored, &name[..at]), "{at} of {length}");
            }
        }
    }

    #[test]
    fn labels_and_suffixes_are_found() {
        let name = indexed(b"\x03WwW\x07eXample\x04TEST\0");
        assert_eq!(name.label_count(), 3);
        assert_eq!(name.suffix(0), b"\0");
        assert_eq!(name.suffix(2), b"\x07eXample\x04TEST\0");
        assert_eq!(name.suffix(3), name.as_bytes());
    }

    #[test]
    fn a_name_hashes_as_the_same_name_within_a_longer_one() {
        let long = indexed(b"\x0dthirteen-long\x07example\x04test\0");
        let of_two_labels = long.grown_hash(SEED.of_root(), 0, 2);
        assert_eq!(of_two_labels, indexed(b"\x07EXAMPLE\x04test\0").hash(SEED));
        assert_eq!(of_two_labels, indexed(long.suffix(2)).hash(SEED));
        assert_eq!(long.grown_hash(of_two_labels, 2, 3), long.hash(SEED));
    }

    #[test]
    fn eight_octets_are_one_number_wherever_they_stand() {
        for length in 1..=20 {
            let octets: Vec<u8> = (1..=length).collect();
            for rest in (0..octets.len()).map(|at| &octets[at..]) {
                let mut eight = [0; EIGHT];
                let count = rest.len().min(EIGHT);
                eight[..count].copy_from_slice(&rest[..count]);
                assert_eq!(first_eight(rest, &octets).to_le_bytes(), eight, "{rest:?} of {length}");
            }
        }
    }

    #[test]
    fn every_octet_of_a_label_counts() {
        for length in 1..=63_usize {
            let mut name = [&[length as u8][..], &[b'x'; 64]].concat();
            name[length + 1] = 0;
            let hash = indexed(&name).hash(SEED);
            for at in 1..=length {
                let mut other = name.clone();
                other[at] = b'y';
                assert_ne!(indexed(&other).hash(SEED), hash, "{length} octets differ at {at}");
            }
        }
    }

    #[test]
    fn where_labels_end_counts() {
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
    fn the_longest_name_fits() {
        let mut bytes = [1; 255];
        bytes[254] = 0;
        let name = indexed(&bytes);
        assert_eq!(name.label_count(), 127);
        assert_eq!(name.suffix(127).len(), 255);
        let _ = name.hash(SEED);
    }
}
