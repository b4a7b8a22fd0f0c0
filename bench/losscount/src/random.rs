//! A seed turned into numbers: SplitMix64 (Steele, Lea, Flood 2014), the same on every machine.

/// The numbers that one seed gives.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of `seed`; `stream` tells several users of one seed apart.
    pub(crate) fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed);
        random.0 = random.next().wrapping_add(stream);
        random
    }

    /// The next number: all 64 bits are used.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number, as 16 bits.
    pub(crate) fn next_u16(&mut self) -> u16 {
        (self.next() >> 48) as u16
    }

    /// An index below `count`, which is not zero. The bias of the remainder is below 1 in 2^40 for any real count.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_gives_the_same_numbers_and_a_stream_gives_others() {
        let draw = |seed, stream| {
            std::iter::repeat_with({
                let mut random = Random::new(seed, stream);
                move || random.next()
            })
            .take(4)
            .collect::<Vec<_>>()
        };
        assert_eq!(draw(7, 0), draw(7, 0));
        assert_ne!(draw(7, 0), draw(7, 1));
        assert_ne!(draw(7, 0), draw(8, 0));
    }
}
