//! A worker's connections that may be closed for new ones, in the order of their last use.

use crate::slab::Key;

/// Index of no link.
const NONE: u32 = u32::MAX;

/// A doubly linked list over the slots of a slab: every operation takes constant time.
#[derive(Debug)]
pub(crate) struct IdleList {
    /// By the slot of the connection.
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    /// `None`: the connection of this slot is not in the list.
    key: Option<Key>,
    /// The number of its last use.
    used: u64,
    older: u32,
    newer: u32,
}

const UNLINKED: Link = Link { key: None, used: 0, older: NONE, newer: NONE };

impl IdleList {
    pub(crate) fn new() -> IdleList {
        IdleList { links: Vec::new(), oldest: NONE, newest: NONE }
    }

    /// The connection that has not been used for longest.
    pub(crate) fn oldest(&self) -> Option<Key> {
        self.links.get(self.oldest as usize).and_then(|link| link.key)
    }

    /// Puts `key` at the newest end, unless it is in the list with the same use.
    #[inline(always)]
    pub(crate) fn touch(&mut self, key: Key, used: u64) {
        let index = key.index();
        match self.links.get_mut(index) {
            // A closed connection was removed, so that a link in the slot is that of `key`.
            Some(link) if link.key.is_some() && (link.used == used || link.newer == NONE) => link.used = used,
            _ => self.push_newest(key, used),
        }
    }

    fn push_newest(&mut self, key: Key, used: u64) {
        let index = key.index();
        if index >= self.links.len() {
            self.links.resize(index + 1, UNLINKED);
        }
        self.unlink(index);
        self.links[index] = Link { key: Some(key), used, older: self.newest, newer: NONE };
        match self.newest {
            NONE => self.oldest = index as u32,
            newest => self.links[newest as usize].newer = index as u32,
        }
        self.newest = index as u32;
    }

    /// Takes `key` out of the list.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) {
        if self.links.get(key.index()).is_some_and(|link| link.key == Some(key)) {
            self.unlink(key.index());
        }
    }

    fn unlink(&mut self, index: usize) {
        let Link { key, older, newer, .. } = self.links[index];
        if key.is_none() {
            return;
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.links[index] = UNLINKED;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn the_least_recently_used_connection_is_the_oldest() {
        let (mut slab, mut list) = (Slab::new(), IdleList::new());
        let keys: Vec<Key> = (0..4).map(|number| slab.insert(number)).collect();
        assert_eq!(list.oldest(), None);
        keys.iter().zip(1..).for_each(|(key, used)| list.touch(*key, used));
        assert_eq!(list.oldest(), Some(keys[0]));
        list.touch(keys[0], 1);
        assert_eq!(list.oldest(), Some(keys[0]), "the same use again is no use");
        list.touch(keys[0], 5);
        assert_eq!(list.oldest(), Some(keys[1]));
        list.touch(keys[3], 6);
        list.remove(keys[1]);
        list.remove(keys[1]);
        assert_eq!(list.oldest(), Some(keys[2]));
        list.remove(keys[2]);
        assert_eq!(list.oldest(), Some(keys[0]));
        list.remove(keys[0]);
        assert_eq!(list.oldest(), Some(keys[3]));
        list.remove(keys[3]);
        assert_eq!(list.oldest(), None);
    }

    #[test]
    fn a_slot_that_is_used_again_has_only_its_new_connection_in_the_list() {
        let (mut slab, mut list) = (Slab::new(), IdleList::new());
        let first = slab.insert(());
        list.touch(first, 1);
        list.remove(first);
        slab.remove(first);
        let second = slab.insert(());
        list.touch(second, 2);
        list.remove(first);
        assert_eq!(list.oldest(), Some(second));
    }
}
