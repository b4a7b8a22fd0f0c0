//! A worker's connections that may be closed for new ones, in the order of their last use: of all clients, and of each
//! one.

use crate::limits::permits::ClientPrefix;
use crate::slab::Key;
use std::collections::HashMap;

/// Index of no link.
const NONE: u32 = u32::MAX;

/// A doubly linked list over the slots of a slab: every operation takes constant time.
#[derive(Debug)]
pub(crate) struct IdleList {
    links: Links,
    ends: Ends,
    count: usize,
}

/// Connections whose TLS handshake is not complete, in the order of their accepts.
#[derive(Debug)]
pub(crate) struct Handshakes {
    list: IdleList,
}

/// A list for each client.
#[derive(Debug, Default)]
pub(crate) struct ClientIdleLists {
    links: Links,
    /// Of the lists that are not empty.
    ends: HashMap<ClientPrefix, Ends>,
}

/// The links of all lists, by the slot of the connection.
#[derive(Debug, Default)]
struct Links(Vec<Link>);

#[derive(Clone, Copy, Debug)]
struct Ends {
    oldest: u32,
    newest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    /// `None`: the connection of this slot is in no list.
    key: Option<Key>,
    /// The number of its last use.
    used: u64,
    older: u32,
    newer: u32,
}

const UNLINKED: Link = Link { key: None, used: 0, older: NONE, newer: NONE };
const EMPTY: Ends = Ends { oldest: NONE, newest: NONE };

impl IdleList {
    pub(crate) fn new() -> IdleList {
        IdleList { links: Links::default(), ends: EMPTY, count: 0 }
    }

    /// The connection that has not been used for longest.
    pub(crate) fn oldest(&self) -> Option<Key> {
        self.links.oldest(self.ends)
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Puts `key` at the newest end, unless it is in the list with the same use. Whether it was not in the list.
    #[inline(always)]
    pub(crate) fn touch(&mut self, key: Key, used: u64) -> bool {
        let is_new = self.links.touch(&mut self.ends, key, used);
        if is_new {
            self.count += 1;
        }
        is_new
    }

    /// Puts `key` at the oldest end.
    pub(crate) fn put_oldest(&mut self, key: Key) {
        let was_linked = self.links.put_oldest(&mut self.ends, key);
        self.count += usize::from(!was_linked);
    }

    /// Takes `key` out of the list.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) {
        if self.links.remove(&mut self.ends, key) {
            self.count -= 1;
        }
    }
}

impl Handshakes {
    pub(crate) fn new() -> Handshakes {
        Handshakes { list: IdleList::new() }
    }

    /// The oldest of them, if there are `count_max`.
    pub(crate) fn oldest_of(&self, count_max: usize) -> Option<Key> {
        self.list.oldest().filter(|_| self.count() >= count_max)
    }

    /// The number of connections.
    pub(crate) fn count(&self) -> usize {
        self.list.count()
    }

    /// `key` begins its handshake.
    pub(crate) fn begin(&mut self, key: Key) {
        self.list.touch(key, 0);
    }

    /// The handshake of `key` is complete or was given up, if it had begun.
    pub(crate) fn end(&mut self, key: Key) {
        self.list.remove(key);
    }
}

impl ClientIdleLists {
    /// The connection of `client` that has not been used for longest.
    pub(crate) fn oldest(&self, client: ClientPrefix) -> Option<Key> {
        self.ends.get(&client).and_then(|ends| self.links.oldest(*ends))
    }

    /// As [`IdleList::touch`], or [`IdleList::remove`] without a use.
    pub(crate) fn update(&mut self, client: ClientPrefix, key: Key, used: Option<u64>) {
        let ends = self.ends.entry(client).or_insert(EMPTY);
        match used {
            Some(used) => drop(self.links.touch(ends, key, used)),
            None => drop(self.links.remove(ends, key)),
        }
        if ends.oldest == NONE {
            self.ends.remove(&client);
        }
    }
}

impl Links {
    fn oldest(&self, ends: Ends) -> Option<Key> {
        self.0.get(ends.oldest as usize).and_then(|link| link.key)
    }

    #[inline(always)]
    fn touch(&mut self, ends: &mut Ends, key: Key, used: u64) -> bool {
        match self.0.get_mut(key.index()) {
            // A closed connection was removed, so that a link in the slot belongs to `key`.
            Some(link) if link.key.is_some() && (link.used == used || link.newer == NONE) => {
                link.used = used;
                false
            }
            _ => self.put_newest(ends, key, used),
        }
    }

    fn put_newest(&mut self, ends: &mut Ends, key: Key, used: u64) -> bool {
        let was_linked = self.make_free(ends, key);
        self.0[key.index()] = Link { key: Some(key), used, older: ends.newest, newer: NONE };
        match ends.newest {
            NONE => ends.oldest = key.index() as u32,
            newest => self.0[newest as usize].newer = key.index() as u32,
        }
        ends.newest = key.index() as u32;
        !was_linked
    }

    /// Whether it was in the list.
    fn put_oldest(&mut self, ends: &mut Ends, key: Key) -> bool {
        let was_linked = self.make_free(ends, key);
        self.0[key.index()] = Link { key: Some(key), used: 0, older: NONE, newer: ends.oldest };
        match ends.oldest {
            NONE => ends.newest = key.index() as u32,
            oldest => self.0[oldest as usize].older = key.index() as u32,
        }
        ends.oldest = key.index() as u32;
        was_linked
    }

    /// Makes a link for `key` that is in no list; whether it was in one.
    fn make_free(&mut self, ends: &mut Ends, key: Key) -> bool {
        let index = key.index();
        if index >= self.0.len() {
            self.0.resize(index + 1, UNLINKED);
        }
        let was_linked = self.0[index].key.is_some();
        self.unlink(ends, index);
        was_linked
    }

    #[inline]
    fn has(&self, key: Key) -> bool {
        self.0.get(key.index()).is_some_and(|link| link.key == Some(key))
    }

    /// Whether it was in the list.
    #[inline]
    fn remove(&mut self, ends: &mut Ends, key: Key) -> bool {
        let was_linked = self.has(key);
        if was_linked {
            self.unlink(ends, key.index());
        }
        was_linked
    }

    fn unlink(&mut self, ends: &mut Ends, index: usize) {
        let Link { key, older, newer, .. } = self.0[index];
        if key.is_none() {
            return;
        }
        match older {
            NONE => ends.oldest = newer,
            older => self.0[older as usize].newer = newer,
        }
        match newer {
            NONE => ends.newest = older,
            newer => self.0[newer as usize].older = older,
        }
        self.0[index] = UNLINKED;
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
        assert!(keys.iter().zip(1..).all(|(key, used)| list.touch(*key, used)));
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

    #[test]
    fn a_connection_at_the_oldest_end_comes_before_all_others() {
        let (mut slab, mut list) = (Slab::new(), IdleList::new());
        let keys: Vec<Key> = (0..3).map(|number| slab.insert(number)).collect();
        list.put_oldest(keys[1]);
        assert!(list.touch(keys[0], 7) && list.touch(keys[2], 8) && !list.touch(keys[0], 9));
        list.put_oldest(keys[2]);
        for expected in [2, 1, 0] {
            assert_eq!(
                (list.oldest(), list.count()),
                (Some(keys[expected]), expected + 1),
                "the count goes down as well"
            );
            list.remove(keys[expected]);
            list.remove(keys[expected]);
        }
        assert_eq!((list.oldest(), list.count()), (None, 0));
    }

    #[test]
    fn each_client_has_its_own_oldest_connection() {
        let [one, other] =
            ["192.0.2.1", "192.0.2.2"].map(|client| ClientPrefix::of(client.parse().expect("an address")));
        let (mut slab, mut lists) = (Slab::new(), ClientIdleLists::default());
        let keys: Vec<Key> = (0..4).map(|number| slab.insert(number)).collect();
        lists.update(one, keys[0], Some(1));
        lists.update(other, keys[1], Some(2));
        lists.update(one, keys[2], Some(3));
        lists.update(other, keys[3], Some(4));
        lists.update(one, keys[0], Some(5));
        assert_eq!((lists.oldest(one), lists.oldest(other)), (Some(keys[2]), Some(keys[1])));
        lists.update(one, keys[2], None);
        lists.update(one, keys[0], None);
        assert_eq!((lists.oldest(one), lists.ends.len()), (None, 1));
    }
}
