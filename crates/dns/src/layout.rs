//! The layout of a node in the arena of a zone: `zone_builder` writes nodes, `zone` reads them.
//!
//! ```text
//! offset      bytes   field, numbers in little endian
//! 0           1       flags
//! 1           1       length of the name
//! 2           2       number of RRsets
//! 4           4       reference, a node index: by the flags, the delegation point, the DNAME owner or the wildcard child
//! 8           n       name, in lower case
//! 8 + n       6 × r   for each RRset, in the order of types: type (2), offset of the packed RRset from the node (4)
//! 8 + n + 6r          packed RRsets
//! ```

use crate::name::Name;
use crate::packed_rrset::PackedRrset;
use crate::rtype::Rtype;
use alloc::vec::Vec;

/// Nodes start at multiples of this, so that a [`NodeIndex`] reaches 32 GiB.
const ALIGNMENT_BYTES: usize = 8;
const HEADER_BYTES: usize = 8;
const FLAGS_OFFSET: usize = 0;
const NODE_REF_OFFSET: usize = 4;
const RRSET_ENTRY_BYTES: usize = 6;

/// A DNAME is here: names below are aliases (RFC 6672).
const FLAG_HAS_DNAME: u8 = 1;

/// The position of a node in the arena.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeIndex(pub(crate) u32);

impl NodeIndex {
    /// The offset of the node.
    #[inline]
    pub(crate) fn offset(self) -> usize {
        self.0 as usize * ALIGNMENT_BYTES
    }
}

/// What the reference of a node is to. A node has at most one: only a node without the others has a wildcard child.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum NodeRef {
    /// The delegation point that the node is at or below.
    DelegationPoint = 2,
    /// The owner of the DNAME that the node is below, and that hides it.
    DnameAbove = 4,
    /// The child with the label `*`.
    WildcardChild = 8,
}

/// A node, borrowed from an arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'z> {
    /// The offset of the node in the arena.
    pub(crate) at: usize,
    header: &'z [u8; HEADER_BYTES],
    /// The arena from the node on.
    bytes: &'z [u8],
}

impl<'z> Node<'z> {
    #[inline]
    pub(crate) fn read(arena: &'z [u8], index: NodeIndex) -> Node<'z> {
        Node::read_at(arena, index.offset())
    }

    #[inline]
    pub(crate) fn read_at(arena: &'z [u8], at: usize) -> Node<'z> {
        let bytes = &arena[at..];
        Node { at, header: bytes.first_chunk().expect("written by `NodeWriter`"), bytes }
    }

    #[inline]
    pub(crate) fn has_dname(&self) -> bool {
        self.header[FLAGS_OFFSET] & FLAG_HAS_DNAME != 0
    }

    /// The node that a reference of this kind is to.
    #[inline]
    pub(crate) fn node_ref(&self, kind: NodeRef) -> Option<NodeIndex> {
        let &[flags, _, _, _, ref index @ ..] = self.header;
        (flags & kind as u8 != 0).then(|| NodeIndex(u32::from_le_bytes(*index)))
    }

    #[inline]
    pub(crate) fn name_bytes(&self) -> &'z [u8] {
        &self.bytes[HEADER_BYTES..HEADER_BYTES + usize::from(self.header[1])]
    }

    #[inline]
    pub(crate) fn name(&self) -> Name<'z> {
        Name::of_stored(self.name_bytes())
    }

    fn entries(&self) -> &'z [[u8; RRSET_ENTRY_BYTES]] {
        let start = HEADER_BYTES + usize::from(self.header[1]);
        let count = usize::from(u16::from_le_bytes([self.header[2], self.header[3]]));
        self.bytes[start..start + count * RRSET_ENTRY_BYTES].as_chunks().0
    }

    /// The types of the RRsets, ascending.
    pub(crate) fn types(&self) -> impl Iterator<Item = Rtype> + 'z {
        self.entries().iter().map(|entry| Rtype(type_of(entry)))
    }

    /// The RRset of one type.
    #[inline]
    pub(crate) fn rrset(&self, rtype: Rtype) -> Option<PackedRrset<'z>> {
        let entries = self.entries();
        let index = match entries {
            // Most nodes have few RRsets: a linear search is faster.
            few if few.len() <= 4 => few.iter().position(|entry| type_of(entry) == rtype.0)?,
            many => many.binary_search_by_key(&rtype.0, type_of).ok()?,
        };
        Some(self.rrset_of(&entries[index]))
    }

    /// The RRset of the lowest type.
    pub(crate) fn first_rrset(&self) -> Option<PackedRrset<'z>> {
        self.entries().first().map(|entry| self.rrset_of(entry))
    }

    /// The RRset at `index`, in the order of types.
    pub(crate) fn rrset_at(&self, index: usize) -> Option<PackedRrset<'z>> {
        self.entries().get(index).map(|entry| self.rrset_of(entry))
    }

    /// The node that follows in the arena, which has nodes up to `end`.
    pub(crate) fn next(&self, end: usize) -> Option<NodeIndex> {
        let entries = self.entries();
        let entries_end = HEADER_BYTES + usize::from(self.header[1]) + size_of_val(entries);
        let length = entries.last().map_or(entries_end, |&[_, _, ref offset @ ..]| {
            let offset = u32::from_le_bytes(*offset) as usize;
            offset + PackedRrset::stored_bytes(&self.bytes[offset..])
        });
        let next = (self.at + length).next_multiple_of(ALIGNMENT_BYTES);
        (next < end).then_some(NodeIndex((next / ALIGNMENT_BYTES) as u32))
    }

    #[inline]
    fn rrset_of(&self, entry: &[u8; RRSET_ENTRY_BYTES]) -> PackedRrset<'z> {
        let &[_, _, ref offset @ ..] = entry;
        PackedRrset::read(&self.bytes[u32::from_le_bytes(*offset) as usize..])
    }
}

#[inline]
fn type_of(entry: &[u8; RRSET_ENTRY_BYTES]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

/// Appends one node to an arena: first its header, then its RRsets.
#[derive(Debug)]
pub(crate) struct NodeWriter {
    start: usize,
    next_entry: usize,
}

impl NodeWriter {
    /// Starts a node without reference. `None` when the arena is full.
    pub(crate) fn start(arena: &mut Vec<u8>, name: Name<'_>, rrset_count: usize) -> Option<(NodeIndex, NodeWriter)> {
        arena.resize(arena.len().next_multiple_of(ALIGNMENT_BYTES), 0);
        let start = arena.len();
        let index = NodeIndex(u32::try_from(start / ALIGNMENT_BYTES).ok()?);
        arena.extend_from_slice(&[0, name.length_bytes() as u8]);
        arena.extend_from_slice(&(rrset_count as u16).to_le_bytes());
        arena.extend_from_slice(&[0; HEADER_BYTES - NODE_REF_OFFSET]);
        arena.extend_from_slice(name.as_bytes());
        let next_entry = arena.len();
        arena.resize(next_entry + rrset_count * RRSET_ENTRY_BYTES, 0);
        Some((index, NodeWriter { start, next_entry }))
    }

    /// Writes the entry of the next RRset. The caller appends the packed RRset to the arena.
    pub(crate) fn start_rrset(&mut self, arena: &mut [u8], rtype: Rtype) {
        let offset = (arena.len() - self.start) as u32;
        let (number, offset_field) = arena[self.next_entry..][..RRSET_ENTRY_BYTES].split_at_mut(size_of::<u16>());
        number.copy_from_slice(&rtype.0.to_le_bytes());
        offset_field.copy_from_slice(&offset.to_le_bytes());
        self.next_entry += RRSET_ENTRY_BYTES;
    }
}

/// Sets the reference of `node` to `target`.
pub(crate) fn set_node_ref(arena: &mut [u8], node: NodeIndex, kind: NodeRef, target: NodeIndex) {
    let at = node.offset();
    debug_assert!(arena[at + FLAGS_OFFSET] & !FLAG_HAS_DNAME & !(kind as u8) == 0, "a node has at most one");
    arena[at + FLAGS_OFFSET] |= kind as u8;
    arena[at + NODE_REF_OFFSET..at + HEADER_BYTES].copy_from_slice(&target.0.to_le_bytes());
}

/// Marks `node` as the owner of a DNAME.
pub(crate) fn set_has_dname(arena: &mut [u8], node: NodeIndex) {
    arena[node.offset() + FLAGS_OFFSET] |= FLAG_HAS_DNAME;
}
