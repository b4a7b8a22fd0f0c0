//! The delta of a version: nodes that replace some nodes of its store. The versions that follow from each other by
//! small changes share one store, and most of their deltas (docs/decisions/0045-zone-versions.md).

use crate::text::name::Name;
use crate::zones::hash_slots::HashSlots;
use crate::zones::layout::{CHUNK_BYTES, Node, NodeIndex, NodeWriter, set_is_removed};
use crate::zones::name_hash::{HashSeed, IndexedName, NameHash, eq_lowercase};
use crate::zones::sorted_pages::SortedPages;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// The nodes of a version, or of a zone that is being built.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes<'z> {
    /// The arena of the store.
    pub(crate) arena: &'z [u8],
    pub(crate) delta: Option<&'z Delta>,
}

impl<'z> Nodes<'z> {
    #[inline]
    pub(crate) fn get(self, index: NodeIndex) -> Node<'z> {
        match self.delta {
            None => Node::read(self.arena, index),
            Some(delta) => delta.node_of_either(self.arena, index),
        }
    }
}

/// The names that differ from the store.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    /// Nodes, including nodes of earlier versions. Only the last chunk is written to.
    chunks: Vec<Arc<Vec<u8>>>,
    /// The nodes by name.
    slots: HashSlots,
    slot_count: usize,
    /// A filter for the names that may have a slot.
    filter: NameFilter,
    /// The nodes here that the version has, without those that say that a name is removed.
    nodes: SortedPages<NodeIndex>,
    /// The nodes of the store that the version does not have.
    hidden: SortedPages<NodeIndex>,
}

impl Delta {
    pub(crate) fn new() -> Delta {
        Delta {
            chunks: Vec::new(),
            slots: HashSlots::for_count(0),
            slot_count: 0,
            filter: NameFilter::for_slots(&HashSlots::for_count(0)),
            nodes: SortedPages::new(&[]),
            hidden: SortedPages::new(&[]),
        }
    }

    /// The node with this index, which has this place.
    pub(crate) fn node(&self, index: NodeIndex, (chunk, offset): (usize, usize)) -> Node<'_> {
        Node::read_at(&self.chunks[chunk], offset, index)
    }

    #[inline(never)]
    fn node_of_either<'z>(&'z self, arena: &'z [u8], index: NodeIndex) -> Node<'z> {
        match index.chunk() {
            Some(place) => self.node(index, place),
            None => Node::read(arena, index),
        }
    }

    /// Whether there may be a node of the name with this hash: for nine in ten absent names there is none.
    #[inline(always)]
    pub(crate) fn may_have(&self, hash: NameHash) -> bool {
        self.filter.may_have(hash)
    }

    /// The node of `name`, which may mark the name as removed; `None` if its node, if any, is in the store.
    pub(crate) fn find(&self, name: &[u8], hash: NameHash) -> Option<Node<'_>> {
        let is_name = |number| eq_lowercase(self.node_of(number).name_bytes(), name);
        self.slots.find(hash, is_name).map(|number| self.node_of(number))
    }

    fn node_of(&self, number: u32) -> Node<'_> {
        let index = NodeIndex(number);
        self.node(index, index.chunk().expect("slots of a delta have nodes of it"))
    }

    /// Whether the version has this node of the delta or of its store.
    pub(crate) fn has(&self, index: NodeIndex) -> bool {
        match index.chunk() {
            Some(_) => self.nodes.contains(index),
            None => !self.hidden.contains(index),
        }
    }

    /// Whether edits of the version with the delta `other` have led to the version with this delta: nodes with equal
    /// indexes are equal.
    pub(crate) fn extends(&self, other: &Delta) -> bool {
        let is_same = |(own, other): (&Arc<Vec<u8>>, &Arc<Vec<u8>>)| Arc::ptr_eq(own, other) || own.starts_with(other);
        self.chunks.len() >= other.chunks.len() && self.chunks.iter().zip(&other.chunks).all(is_same)
    }

    /// The nodes of the delta from `index` on.
    pub(crate) fn nodes_from(&self, index: NodeIndex) -> impl Iterator<Item = NodeIndex> {
        self.nodes.range_from(index)
    }

    /// The nodes of the store that the version does not have.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = NodeIndex> {
        self.hidden.iter()
    }

    /// The nodes of the delta that the version has.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeIndex> {
        self.nodes.iter()
    }

    /// The number of names that differ from the store.
    pub(crate) fn name_count(&self) -> usize {
        self.slot_count
    }

    /// Bytes of memory, with those that other versions share.
    pub(crate) fn memory_bytes(&self) -> usize {
        let chunks_bytes: usize = self.chunks.iter().map(|chunk| chunk.capacity()).sum();
        let lists_bytes = self.nodes.memory_bytes() + self.hidden.memory_bytes();
        size_of::<Delta>() + chunks_bytes + lists_bytes + self.slots.memory_bytes() + size_of_val(&*self.filter.words)
    }

    /// Appends a node, which `write` writes to the end of the given bytes, and returns its index; `None` if there is no
    /// room.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>) -> usize) -> Option<NodeIndex> {
        // The node starts at the next multiple of 8.
        if self.chunks.last().is_none_or(|chunk| chunk.len() > CHUNK_BYTES - 8) {
            self.chunks.push(Arc::default());
        }
        let number = self.chunks.len() - 1;
        let offset = write(Arc::make_mut(&mut self.chunks[number]));
        NodeIndex::in_chunk(number, offset)
    }

    /// The chunk of a node that was appended to this version, and its offset.
    pub(crate) fn chunk_mut(&mut self, index: NodeIndex) -> (&mut [u8], usize) {
        let (chunk, offset) = index.chunk().expect("a node of the delta");
        let bytes: &mut Vec<u8> = Arc::make_mut(&mut self.chunks[chunk]);
        (bytes, offset)
    }

    /// Removes a node of the previous version.
    pub(crate) fn hide(&mut self, before: NodeIndex) {
        match before.chunk() {
            Some(_) => self.nodes.remove(before),
            None => self.hidden.insert(before),
        }
    }

    /// Adds an appended node, which becomes its name's node if queries find it.
    pub(crate) fn show(&mut self, seed: HashSeed, name: Name<'_>, after: NodeIndex, is_found: bool) {
        self.nodes.insert(after);
        if is_found {
            self.set_slot(seed, name, after.0);
        }
    }

    /// Queries no longer find `name`. `None` if there is no room.
    pub(crate) fn remove(&mut self, seed: HashSeed, name: Name<'_>) -> Option<()> {
        let removed = self.push(|chunk| NodeWriter::start(chunk, name, 0, false).0)?;
        let (chunk, offset) = self.chunk_mut(removed);
        set_is_removed(chunk, offset);
        self.set_slot(seed, name, removed.0);
        Some(())
    }

    fn set_slot(&mut self, seed: HashSeed, name: Name<'_>, number: u32) {
        let hash = IndexedName::of(name).hash(seed);
        if let Some(known) = self.find(name.as_bytes(), hash).map(|node| node.index.0) {
            self.slots.replace(hash, known, number);
            return;
        }
        self.slot_count += 1;
        if !self.slots.has_room_for(self.slot_count) {
            let mut slots = HashSlots::for_count(self.slot_count);
            let mut filter = NameFilter::for_slots(&slots);
            for number in self.slots.numbers() {
                let hash = IndexedName::of(self.node_of(number).name()).hash(seed);
                slots.insert(hash, number);
                filter.insert(hash);
            }
            (self.slots, self.filter) = (slots, filter);
        }
        self.slots.insert(hash, number);
        self.filter.insert(hash);
    }
}

/// A bit for each of several values of a hash. For most names that are not in the table, a bit is not set, which is
/// cheaper to find out than an empty slot, and in the cache.
#[derive(Clone, Debug)]
struct NameFilter {
    words: Box<[u64]>,
    /// The logarithm of the number of bits.
    bit_count_log: u32,
}

impl NameFilter {
    /// An empty filter for the names of `slots`, with eight bits for each slot.
    fn for_slots(slots: &HashSlots) -> NameFilter {
        let bit_count_log = slots.bits() + 3;
        NameFilter { words: vec![0; (1 << bit_count_log) / u64::BITS as usize].into_boxed_slice(), bit_count_log }
    }

    #[inline(always)]
    fn may_have(&self, hash: NameHash) -> bool {
        let bit = hash.slot(self.bit_count_log);
        self.words[bit / u64::BITS as usize] >> (bit % u64::BITS as usize) & 1 == 1
    }

    fn insert(&mut self, hash: NameHash) {
        let bit = hash.slot(self.bit_count_log);
        self.words[bit / u64::BITS as usize] |= 1 << (bit % u64::BITS as usize);
    }
}
