//! Storage for a worker's connections, each under a key that no later value in the same slot shares.

/// Names a value: its slot, and the slot's generation when the value was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Bits of a packed key.
    pub(crate) const BITS: u32 = 56;
    const GENERATION_BITS: u32 = 24;

    /// The key in the lowest 56 bits: 32 bits of slot, 24 bits of generation. That many generations suffice to tell an
    /// event of this iteration from one for a connection that was closed in it.
    pub(crate) fn packed(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key of [`Key::packed`].
    pub(crate) fn unpacked(bits: u64) -> Key {
        Key { index: bits as u32, generation: (bits >> 32) as u32 & GENERATION_MASK }
    }

    /// The slot, counted from zero.
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }
}

const GENERATION_MASK: u32 = (1 << Key::GENERATION_BITS) - 1;

/// Slots, full and free.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        match self.free.pop() {
            Some(index) => {
                let slot = &mut self.slots[index as usize];
                slot.value = Some(value);
                Key { index, generation: slot.generation }
            }
            None => {
                self.slots.push(Slot { generation: 0, value: Some(value) });
                Key { index: self.slots.len() as u32 - 1, generation: 0 }
            }
        }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index())?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index())?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push(key.index);
        Some(value)
    }

    /// The keys of all values.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        let full = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        full.map(|(index, slot)| Key { index: index as u32, generation: slot.generation })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_does_not_find_a_later_value_in_its_slot() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.get_mut(first), Some(&mut 'a'));
        assert_eq!(slab.remove(first), Some('a'));
        assert_eq!(slab.remove(first), None);
        assert!(slab.is_empty());
        let second = slab.insert('b');
        assert_eq!(first.index(), second.index());
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(Key::unpacked(second.packed()), second);
        assert_eq!(slab.keys().collect::<Vec<_>>(), [second]);
    }
}
