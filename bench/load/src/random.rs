//! Numbers in no order, from a seed (Marsaglia's xorshift64*, 2003 and Vigna, 2016).

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // The state must not be zero; the odd constant spreads seeds that lie close together.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        // The upper half times the end: no division, and a bias that does not matter here.
        (((self.number() >> 32) * end as u64) >> 32) as usize
    }
}
