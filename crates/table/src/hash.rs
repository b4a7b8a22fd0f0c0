//! A keyed hash, so that clients cannot predict collisions.

use core::hash::{BuildHasher, Hasher};

/// The random seed of one table's hash: clients choose keys (the paths of requests) and must not know which collide.
///
/// Each step multiplies two words to 128 bits and combines the halves, as wyhash and foldhash do: one multiplication
/// per 16 bytes. The hash is not cryptographic.
pub(crate) struct HashSeed([u64; 3]);

impl HashSeed {
    /// From the random keys of the standard library's maps.
    #[cfg(not(loom))]
    pub(crate) fn random() -> HashSeed {
        let random = std::collections::hash_map::RandomState::new();
        // Odd, so that no word is zero.
        HashSeed([1u64, 2, 3].map(|word| random.hash_one(word) | 1))
    }

    /// Loom requires that each run is the same.
    #[cfg(loom)]
    pub(crate) fn random() -> HashSeed {
        HashSeed([0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9])
    }
}

impl BuildHasher for HashSeed {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { state: self.0[0], seed: [self.0[1], self.0[2]] }
    }
}

pub(crate) struct KeyHasher {
    state: u64,
    seed: [u64; 2],
}

impl KeyHasher {
    /// Both factors contain a word of the seed, so that no choice of words makes one of them zero. The rotation
    /// by the number of bytes distinguishes inputs whose overlapping words are equal.
    #[inline]
    fn mix(&mut self, low: u64, high: u64, length_bytes: u32) {
        self.state = fold(self.state ^ low, self.seed[0].rotate_left(length_bytes) ^ high);
    }
}

impl Hasher for KeyHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((words, after)) = rest.split_first_chunk::<16>() {
            self.mix(word_at(words, 0), word_at(words, 8), 16);
            rest = after;
        }
        // The last 1 to 15 bytes as two words, which overlap where there are fewer than 16.
        let length = rest.len();
        let (low, high) = match length {
            0 => return,
            1..4 => (u64::from(rest[0]) << 8 | u64::from(rest[length / 2]), u64::from(rest[length - 1])),
            4..8 => (half_word_at(rest, 0), half_word_at(rest, length - 4)),
            _ => (word_at(rest, 0), word_at(rest, length - 8)),
        };
        self.mix(low, high, length as u32);
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.mix(number, 0, 0);
    }

    #[inline]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        fold(self.state, self.seed[1])
    }
}

#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ (product >> 64) as u64
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has eight bytes"))
}

#[inline]
fn half_word_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has four bytes")))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_bit_and_the_length_change_the_hash() {
        let seed = HashSeed::random();
        // Two words and a rest under Miri, which would take minutes for more.
        for length in 0..if cfg!(miri) { 20 } else { 70 } {
            let path = vec![b'a'; length];
            let mut hashes = HashSet::from([seed.hash_one(path.as_slice())]);
            for at in 0..length {
                for bit in 0..8 {
                    let mut other = path.clone();
                    other[at] ^= 1 << bit;
                    assert!(hashes.insert(seed.hash_one(other.as_slice())), "length {length}, byte {at}, bit {bit}");
                }
            }
        }
        let lengths: HashSet<u64> = (0..70).map(|length| seed.hash_one([0u8; 70][..length].as_ref())).collect();
        assert_eq!(lengths.len(), 70);
    }

    #[test]
    fn low_and_high_bits_are_uniformly_distributed() {
        let seed = HashSeed::random();
        let count = if cfg!(miri) { 1 << 8 } else { 1 << 12 };
        for shift in [0, 32] {
            let mut load = vec![0; count];
            for number in 0..count as u64 {
                load[(seed.hash_one(number) >> shift) as usize % count] += 1;
            }
            // With as many random balls as bins, 36.8 % of the bins are empty and none has more than a dozen.
            let empty = load.iter().filter(|&&balls| balls == 0).count();
            assert!((count * 30 / 100..count * 44 / 100).contains(&empty), "{empty} of {count} empty, shift {shift}");
            assert!(load.iter().all(|&balls| balls < 14), "shift {shift}");
        }
    }

    #[test]
    fn secrets_differ() {
        assert_ne!(HashSeed::random().hash_one(1u64), HashSeed::random().hash_one(1u64));
    }
}
