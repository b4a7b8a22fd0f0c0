//! Values turned into tokens that a poller can carry and that outlive them safely.

/// The name of one use of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    index: u32,
    generation: u32,
}

impl Token {
    /// For the poller, which carries 64 bits.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Back from the poller.
    pub(crate) fn from_bits(bits: u64) -> Token {
        Token { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// Values under tokens.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    /// One more for each value that has left: a token of an earlier value finds nothing.
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new() }
    }

    /// How many values there are.
    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> Token {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Token { index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).expect("every value owns a descriptor, and those are fewer");
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Token { index, generation: 0 }
    }

    pub(crate) fn find(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation == token.generation { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.index as usize)?;
        if slot.generation != token.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(token.index);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::{Slots, Token};

    #[test]
    fn a_token_finds_its_value_and_no_later_one() {
        let mut slots = Slots::new();
        let first = slots.insert("first");
        assert_eq!(slots.find(first), Some(&mut "first"));
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second");
        assert_eq!(slots.find(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.find(Token::from_bits(second.to_bits())), Some(&mut "second"));
        assert_eq!(slots.count(), 1);
    }
}
