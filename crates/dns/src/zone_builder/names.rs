//! The names of a zone that is being built: each once, with its parent and the run of its RRsets.

use super::Slots;
use crate::name::Name;
use crate::name_hash::{HashSeed, IndexedName, NameHash, eq_stored};
use crate::zone;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Which of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameId(u32);

impl NameId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The names, in the order in which they were first met.
#[derive(Debug)]
pub(super) struct Names {
    seed: HashSeed,
    apex_depth: usize,
    /// All names one after another, in lower case.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Open addressing, grown by doubling: the tag of the hash and the name's index.
    slots: Vec<u64>,
    slot_bits: u32,
    /// Most records have the owner of the one before.
    last: NameId,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: NameHash,
    at: u32,
    parent: u32,
    sets_start: u32,
    set_count: u32,
    length: u8,
}

const NONE: u32 = u32::MAX;

impl Names {
    pub(super) fn new(apex: Name<'_>, seed: HashSeed) -> (Names, NameId) {
        let mut names = Names {
            seed,
            apex_depth: apex.labels().count(),
            bytes: Vec::new(),
            entries: Vec::new(),
            slots: vec![zone::EMPTY; 1 << 6],
            slot_bits: 6,
            last: NameId(0),
        };
        let indexed = IndexedName::of(apex);
        let apex = names.push(indexed.as_bytes(), indexed.hash(seed), NONE);
        (names, apex)
    }

    /// Octets of all names together.
    pub(super) fn octet_count(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = NameId> + use<> {
        (0..self.entries.len() as u32).map(NameId)
    }

    pub(super) fn name(&self, id: NameId) -> Name<'_> {
        Name::of_stored(self.name_bytes(id))
    }

    fn name_bytes(&self, id: NameId) -> &[u8] {
        let entry = &self.entries[id.index()];
        &self.bytes[entry.at as usize..entry.at as usize + usize::from(entry.length)]
    }

    /// The id of `name`, which is the apex or below it. Its ancestors get theirs as well: an empty non-terminal is a
    /// name that is there (RFC 4592 §2.2.2).
    pub(super) fn intern(&mut self, name: Name<'_>) -> NameId {
        if eq_stored(self.name_bytes(self.last), name.as_bytes()) {
            return self.last;
        }
        let name = IndexedName::of(name);
        let hash = name.hash(self.seed);
        let id = match self.at(name.as_bytes(), hash) {
            Some(id) => id,
            None => self.push_with_ancestors(&name, hash),
        };
        self.last = id;
        id
    }

    /// The id of `name`, if it is one of these.
    pub(super) fn find(&self, name: Name<'_>) -> Option<NameId> {
        let name = IndexedName::of(name);
        self.at(name.as_bytes(), name.hash(self.seed))
    }

    /// The name one label above; `None` for the apex.
    pub(super) fn parent(&self, id: NameId) -> Option<NameId> {
        let parent = self.entries[id.index()].parent;
        (parent != NONE).then_some(NameId(parent))
    }

    /// `*` below `id`, if it is there.
    pub(super) fn wildcard_child(&self, id: NameId) -> Option<NameId> {
        let child = crate::name::NameBuf::child(b"*", self.name(id)).ok()?;
        self.find(child.as_name())
    }

    /// Remembers that the RRsets of `id` start at `sets_start`.
    pub(super) fn start_sets(&mut self, id: NameId, sets_start: usize) {
        self.entries[id.index()].sets_start = sets_start as u32;
    }

    /// Remembers one more RRset of `id`.
    pub(super) fn count_set(&mut self, id: NameId) {
        self.entries[id.index()].set_count += 1;
    }

    /// Which of all RRsets are those of `id`.
    pub(super) fn sets(&self, id: NameId) -> Range<usize> {
        let entry = &self.entries[id.index()];
        entry.sets_start as usize..entry.sets_start as usize + entry.set_count as usize
    }

    /// The table that [`zone::Zone`] is searched by: from the hash of each name to its node.
    pub(super) fn table(&self, node_offsets: &[u32]) -> Slots {
        let slot_bits = slot_bits_for(self.entries.len());
        let mut slots = vec![zone::EMPTY; 1 << slot_bits];
        for (entry, &node) in self.entries.iter().zip(node_offsets) {
            put(&mut slots, slot_bits, entry.hash, node);
        }
        (slots.into_boxed_slice(), slot_bits)
    }

    /// Pushes a name that is not there, and before it those of its ancestors that are not.
    fn push_with_ancestors(&mut self, name: &IndexedName<'_>, hash: NameHash) -> NameId {
        let last = name.label_count() - 1;
        if last == self.apex_depth {
            return self.push(name.as_bytes(), hash, NameId(0).0);
        }
        let mut hashes = [self.seed.of_root(); crate::name::LABEL_COUNT_MAX + 1];
        for (depth, suffix) in name.suffixes_beyond(0).enumerate() {
            hashes[depth + 1] = hashes[depth].with_label(suffix, name.as_bytes());
        }
        let mut depth = last;
        let mut parent = NameId(0);
        while depth > self.apex_depth {
            if let Some(ancestor) = self.at(name.suffix(depth), hashes[depth]) {
                parent = ancestor;
                break;
            }
            depth -= 1;
        }
        for (depth, &hash) in hashes.iter().enumerate().take(last + 2).skip(depth + 1) {
            parent = self.push(name.suffix(depth), hash, parent.0);
        }
        parent
    }

    fn push(&mut self, name: &[u8], hash: NameHash, parent: u32) -> NameId {
        let index = u32::try_from(self.entries.len()).expect("the builder bounds the octets of all names");
        let at = u32::try_from(self.bytes.len()).expect("the builder bounds the octets of all names");
        self.bytes.extend_from_slice(name);
        // Label lengths are below 64 and so no letters: the octets can be folded as they are.
        self.bytes[at as usize..].make_ascii_lowercase();
        let length = name.len() as u8;
        self.entries.push(Entry { hash, at, parent, sets_start: 0, set_count: 0, length });
        let slot_bits = slot_bits_for(self.entries.len());
        if slot_bits > self.slot_bits {
            self.slot_bits = slot_bits;
            self.slots = vec![zone::EMPTY; 1 << slot_bits];
            for (index, entry) in self.entries.iter().enumerate() {
                put(&mut self.slots, slot_bits, entry.hash, index as u32);
            }
        } else {
            put(&mut self.slots, self.slot_bits, hash, index);
        }
        NameId(index)
    }

    fn at(&self, name: &[u8], hash: NameHash) -> Option<NameId> {
        let mask = self.slots.len() - 1;
        let mut slot = hash.slot(self.slot_bits);
        // Ends at an empty slot: a quarter of them are empty or more.
        loop {
            let entry = self.slots[slot];
            if entry == zone::EMPTY {
                return None;
            }
            let id = NameId(entry as u32);
            if (entry >> 32) as u32 == hash.tag() && eq_stored(self.name_bytes(id), name) {
                return Some(id);
            }
            slot = (slot + 1) & mask;
        }
    }
}

/// Slots for `count` names, a quarter of them left empty, so that a search for a name that is not there ends soon.
fn slot_bits_for(count: usize) -> u32 {
    (count + count / 3 + 1).next_power_of_two().trailing_zeros().max(6)
}

fn put(slots: &mut [u64], slot_bits: u32, hash: NameHash, value: u32) {
    let mask = slots.len() - 1;
    let mut slot = hash.slot(slot_bits);
    while slots[slot] != zone::EMPTY {
        slot = (slot + 1) & mask;
    }
    slots[slot] = u64::from(hash.tag()) << 32 | u64::from(value);
}
