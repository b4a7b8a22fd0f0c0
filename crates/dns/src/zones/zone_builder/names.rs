//! The names of a zone under construction: each once, with its parent and the range of its RRsets.

use crate::text::name::{LABEL_COUNT_MAX, Name, NameBuf};
use crate::zones::hash_slots::HashSlots;
use crate::zones::layout::NodeIndex;
use crate::zones::name_hash::{HashSeed, IndexedName, NameHash, eq_lowercase};
use alloc::vec::Vec;
use core::ops::Range;

/// The index of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameId(u32);

impl NameId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The names, in the order in which they were added. The apex is the first.
#[derive(Debug)]
pub(super) struct NameTable {
    seed: HashSeed,
    apex_depth: usize,
    /// The names one after another, in lower case.
    bytes: Vec<u8>,
    entries: Vec<NameEntry>,
    /// The id of each name.
    slots: HashSlots,
    /// The name found last: most records have the same owner as the previous one.
    last: NameId,
}

#[derive(Clone, Copy, Debug)]
struct NameEntry {
    hash: NameHash,
    at: u32,
    parent: u32,
    rrsets_start: u32,
    rrset_count: u32,
    length: u8,
}

const NO_PARENT: u32 = u32::MAX;

impl NameTable {
    pub(super) fn new(apex: Name<'_>, seed: HashSeed) -> (NameTable, NameId) {
        let mut names = NameTable {
            seed,
            apex_depth: apex.labels().count(),
            bytes: Vec::new(),
            entries: Vec::new(),
            slots: HashSlots::for_count(0),
            last: NameId(0),
        };
        let indexed = IndexedName::of(apex);
        let apex = names.push(indexed.as_bytes(), indexed.hash(seed), NO_PARENT);
        (names, apex)
    }

    /// Bytes of all names.
    pub(super) fn byte_count(&self) -> usize {
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

    /// The id of `name`, which is at or below the apex. A new name is added with its ancestors, because empty
    /// non-terminals exist (RFC 4592 §2.2.2).
    pub(super) fn intern(&mut self, name: Name<'_>) -> NameId {
        if eq_lowercase(self.name_bytes(self.last), name.as_bytes()) {
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

    /// The id of `name`, if it was added.
    pub(super) fn find(&self, name: Name<'_>) -> Option<NameId> {
        let name = IndexedName::of(name);
        self.at(name.as_bytes(), name.hash(self.seed))
    }

    /// The parent of a name; `None` for the apex.
    pub(super) fn parent(&self, id: NameId) -> Option<NameId> {
        let parent = self.entries[id.index()].parent;
        (parent != NO_PARENT).then_some(NameId(parent))
    }

    /// The closest ancestor of `name` that was added (RFC 4592 §3.3.1); `None` for a name outside the zone.
    pub(super) fn closest_encloser(&self, name: Name<'_>) -> Option<NameId> {
        let mut ancestor = name.parent();
        while let Some(name) = ancestor.filter(|name| name.is_at_or_below(self.name(NameId(0)))) {
            if let Some(id) = self.find(name) {
                return Some(id);
            }
            ancestor = name.parent();
        }
        None
    }

    /// The child with the label `*`.
    pub(super) fn wildcard_child(&self, id: NameId) -> Option<NameId> {
        let child = NameBuf::child(b"*", self.name(id)).ok()?;
        self.find(child.as_name())
    }

    /// Sets the index of the first RRset of a name.
    pub(super) fn start_rrsets(&mut self, id: NameId, rrsets_start: usize) {
        self.entries[id.index()].rrsets_start = rrsets_start as u32;
    }

    /// Counts one more RRset of a name.
    pub(super) fn add_rrset(&mut self, id: NameId) {
        self.entries[id.index()].rrset_count += 1;
    }

    /// The indexes of the RRsets of a name.
    pub(super) fn rrsets(&self, id: NameId) -> Range<usize> {
        let entry = &self.entries[id.index()];
        entry.rrsets_start as usize..entry.rrsets_start as usize + entry.rrset_count as usize
    }

    /// The hash table of a zone, which maps each name for which `is_found` to the index of its node.
    pub(super) fn node_slots(&self, nodes: &[NodeIndex], is_found: impl Fn(NameId) -> bool) -> HashSlots {
        let mut slots = HashSlots::for_count(self.ids().filter(|&id| is_found(id)).count());
        for id in self.ids().filter(|&id| is_found(id)) {
            slots.insert(self.entries[id.index()].hash, nodes[id.index()].0);
        }
        slots
    }

    /// Adds a new name, after its new ancestors.
    fn push_with_ancestors(&mut self, name: &IndexedName<'_>, hash: NameHash) -> NameId {
        let parent_depth = name.label_count() - 1;
        if parent_depth == self.apex_depth {
            return self.push(name.as_bytes(), hash, NameId(0).0);
        }
        let mut hashes = [self.seed.of_root(); LABEL_COUNT_MAX + 1];
        for (depth, suffix) in name.suffixes_longer_than(0).enumerate() {
            hashes[depth + 1] = hashes[depth].with_label(suffix, name.as_bytes());
        }
        let mut depth = parent_depth;
        let mut parent = NameId(0);
        while depth > self.apex_depth {
            if let Some(ancestor) = self.at(name.suffix(depth), hashes[depth]) {
                parent = ancestor;
                break;
            }
            depth -= 1;
        }
        for (depth, &hash) in hashes.iter().enumerate().take(parent_depth + 2).skip(depth + 1) {
            parent = self.push(name.suffix(depth), hash, parent.0);
        }
        parent
    }

    fn push(&mut self, name: &[u8], hash: NameHash, parent: u32) -> NameId {
        let index = u32::try_from(self.entries.len()).expect("the builder bounds the bytes of all names");
        let at = u32::try_from(self.bytes.len()).expect("the builder bounds the bytes of all names");
        self.bytes.extend_from_slice(name);
        // Label lengths are below 64 and so not letters.
        self.bytes[at as usize..].make_ascii_lowercase();
        let length = name.len() as u8;
        self.entries.push(NameEntry { hash, at, parent, rrsets_start: 0, rrset_count: 0, length });
        if self.slots.has_room_for(self.entries.len()) {
            self.slots.insert(hash, index);
        } else {
            self.slots = HashSlots::for_count(self.entries.len());
            for (index, entry) in self.entries.iter().enumerate() {
                self.slots.insert(entry.hash, index as u32);
            }
        }
        NameId(index)
    }

    fn at(&self, name: &[u8], hash: NameHash) -> Option<NameId> {
        self.slots.find(hash, |id| eq_lowercase(self.name_bytes(NameId(id)), name)).map(NameId)
    }
}
