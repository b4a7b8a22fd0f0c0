//! Places for the peers of a worker, each with a key that no later occupant of its place has.

/// Names an occupant: its place, and how many were there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Bits of a key in its packed form.
    pub(crate) const BITS: u32 = 56;
    const GENERATION_BITS: u32 = 24;

    /// The key in its lowest 56 bits: 32 of place, 24 of generation, which is enough to tell an event of this turn from
    /// one for an occupant that left in it.
    pub(crate) fn packed(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key of [`Key::packed`].
    pub(crate) fn unpacked(bits: u64) -> Key {
        Key { index: bits as u32, generation: (bits >> 32) as u32 & GENERATION_MASK }
    }
}

const GENERATION_MASK: u32 = (1 << Key::GENERATION_BITS) - 1;

/// Places with and without occupants.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    occupant: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    /// The key that the next occupant will have.
    pub(crate) fn next_key(&self) -> Key {
        match self.free.last() {
            Some(&index) => Key { index, generation: self.places[index as usize].generation },
            None => Key { index: self.places.len() as u32, generation: 0 },
        }
    }

    /// Lets `occupant` in, as [`Slab::next_key`] said.
    pub(crate) fn insert(&mut self, occupant: T) -> Key {
        let key = self.next_key();
        match self.free.pop() {
            Some(index) => self.places[index as usize].occupant = Some(occupant),
            None => self.places.push(Place { generation: 0, occupant: Some(occupant) }),
        }
        key
    }

    /// The occupant that has this very key.
    pub(crate) fn at(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.index as usize)?;
        place.occupant.as_mut().filter(|_| place.generation == key.generation)
    }

    /// Takes the occupant that has this very key out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let place = self.places.get_mut(key.index as usize)?;
        if place.generation != key.generation {
            return None;
        }
        let occupant = place.occupant.take()?;
        place.generation = (place.generation + 1) & GENERATION_MASK;
        self.free.push(key.index);
        Some(occupant)
    }

    /// All occupants, with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let key = Key { index: index as u32, generation: place.generation };
            place.occupant.as_ref().map(|occupant| (key, occupant))
        })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_outlives_nobody() {
        let mut slab = Slab::new();
        let first = slab.insert('a');
        assert_eq!(slab.at(first), Some(&mut 'a'));
        assert_eq!(slab.remove(first), Some('a'));
        assert_eq!(slab.remove(first), None);
        let promised = slab.next_key();
        let second = slab.insert('b');
        assert_eq!(promised, second);
        assert_eq!(slab.at(first), None, "same place, other occupant");
        assert_eq!(Key::unpacked(second.packed()), second);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(second, &'b')]);
    }
}
