//! The layout of a node in the arena of a store, or in a chunk of a delta: `zone_builder` writes nodes, `zone` reads
//! them.
//!
//! ```text
//! offset      bytes   field, numbers in little endian
//! 0           1       flags
//! 1           1       length of the name
//! 2           2       number of RRsets
//! 4           4       reference, a node index: by the flags, the delegation point, the DNAME owner or the wildcard child
//! 8           n       name, in lower case
//! 8 + n       6 × r   for each RRset, in the order of types: type (2), offset of the packed RRset from the node (4)
//! 8 + n + 6r  8       in a signed zone, for each `Proof` a node index
//!             4 × r   in a signed zone, for each RRset: offset from the node of its packed form with signatures
//!                     packed RRsets
//! ```
//!
//! Node numbers belong to one version of a zone and to all versions that share its store.

use crate::text::name::Name;
use crate::text::rtype::Rtype;
use crate::zones::packed_rrset::{AnswerRecord, PackedRrset};
use alloc::vec::Vec;

/// Nodes start at multiples of this, so that a [`NodeIndex`] reaches 32 GiB.
const ALIGNMENT_BYTES: usize = 8;
const HEADER_BYTES: usize = 8;
const FLAGS_OFFSET: usize = 0;
const NODE_REF_OFFSET: usize = 4;
const RRSET_ENTRY_BYTES: usize = 6;

/// A DNAME is here: names below are aliases (RFC 6672).
const FLAG_HAS_DNAME: u8 = 1;
/// The zone is signed: the node has the fields for it.
const FLAG_IS_SIGNED: u8 = 16;
/// The name does not exist.
const FLAG_IS_REMOVED: u8 = 32;

const PROOFS_BYTES: usize = 2 * PROOF_BYTES;
const PROOF_BYTES: usize = size_of::<u32>();
const SIGNED_OFFSET_BYTES: usize = size_of::<u32>();
/// No node has this index.
const NO_NODE: u32 = u32::MAX;

/// The bit of the index of a node of a delta. The index's other bits are the number of the chunk and the offset in it.
const IN_DELTA: u32 = 1 << 31;
/// Bits of the offset, in units of the alignment.
const CHUNK_OFFSET_BITS: u32 = 13;
/// No node starts at a later offset of a chunk.
pub(crate) const CHUNK_BYTES: usize = ALIGNMENT_BYTES << CHUNK_OFFSET_BITS;
/// Chunks that a delta can have.
const CHUNK_COUNT_MAX: usize = (1 << (31 - CHUNK_OFFSET_BITS)) - 1;

/// The position of a node: in the arena of the store or, with the highest bit, in a delta.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeIndex(pub(crate) u32);

impl NodeIndex {
    /// The index of the node at `offset` of the arena of a store; `None` if that is too far.
    pub(crate) fn in_store(offset: usize) -> Option<NodeIndex> {
        let index = u32::try_from(offset / ALIGNMENT_BYTES).ok()?;
        (index & IN_DELTA == 0).then_some(NodeIndex(index))
    }

    /// The index of the node at `offset` of a chunk; `None` if there are too many chunks.
    pub(crate) fn in_chunk(chunk: usize, offset: usize) -> Option<NodeIndex> {
        let units = (offset / ALIGNMENT_BYTES) as u32;
        (chunk < CHUNK_COUNT_MAX).then_some(NodeIndex(IN_DELTA | (chunk as u32) << CHUNK_OFFSET_BITS | units))
    }

    /// The chunk of a node of a delta, and the offset in it; `None` for a node of a store.
    #[inline]
    pub(crate) fn chunk(self) -> Option<(usize, usize)> {
        let offset = (self.0 & ((1 << CHUNK_OFFSET_BITS) - 1)) as usize * ALIGNMENT_BYTES;
        let chunk = (self.0 & !IN_DELTA) >> CHUNK_OFFSET_BITS;
        (self.0 & IN_DELTA != 0).then_some((chunk as usize, offset))
    }

    /// The offset of a node of a store.
    #[inline]
    pub(crate) fn offset(self) -> usize {
        self.0 as usize * ALIGNMENT_BYTES
    }
}

/// The target of a node's reference. A node has at most one: only a node without the others has a wildcard child.
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

/// The statement of an NSEC or NSEC3 record about a node, which refers to the record's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// The types that the name has.
    Types = 0,
    /// The name has no child with the label `*`.
    NoWildcard = 1,
}

/// The packed form in which an RRset is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The records without signatures.
    Plain,
    /// The records and their signatures. The form of a delegation point's NS RRset includes DS or NSEC records.
    Signed,
}

/// A node, borrowed from an arena or a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'z> {
    pub(crate) index: NodeIndex,
    header: &'z [u8; HEADER_BYTES],
    /// The arena from the node on.
    bytes: &'z [u8],
}

impl<'z> Node<'z> {
    #[inline]
    pub(crate) fn read(arena: &'z [u8], index: NodeIndex) -> Node<'z> {
        Node::read_at(arena, index.offset(), index)
    }

    /// The node at `offset` of `arena`, which has the number `index`.
    #[inline]
    pub(crate) fn read_at(arena: &'z [u8], offset: usize, index: NodeIndex) -> Node<'z> {
        let bytes = &arena[offset..];
        Node { index, header: bytes.first_chunk().expect("written by `NodeWriter`"), bytes }
    }

    /// Whether the version lacks this name: the node hides a node of the store.
    #[inline]
    pub(crate) fn is_removed(&self) -> bool {
        self.header[FLAGS_OFFSET] & FLAG_IS_REMOVED != 0
    }

    #[inline]
    pub(crate) fn has_dname(&self) -> bool {
        self.header[FLAGS_OFFSET] & FLAG_HAS_DNAME != 0
    }

    /// The target node of a reference of this kind.
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

    /// The RRsets' types, ascending.
    pub(crate) fn types(&self) -> impl Iterator<Item = Rtype> + 'z {
        self.entries().iter().map(|entry| Rtype(type_of(entry)))
    }

    /// The RRset of one type.
    #[inline]
    pub(crate) fn rrset(&self, rtype: Rtype) -> Option<PackedRrset<'z>> {
        self.rrset_in(rtype, Form::Plain)
    }

    /// The RRset of one type, in this form.
    #[inline(always)]
    pub(crate) fn rrset_in(&self, rtype: Rtype, form: Form) -> Option<PackedRrset<'z>> {
        let entries = self.entries();
        let index = match entries {
            // Most nodes have few RRsets: a linear search is faster.
            few if few.len() <= 4 => few.iter().position(|entry| type_of(entry) == rtype.0)?,
            many => many.binary_search_by_key(&rtype.0, type_of).ok()?,
        };
        Some(self.packed(entries, index, form))
    }

    /// The RRset of the lowest type.
    pub(crate) fn first_rrset(&self, form: Form) -> Option<PackedRrset<'z>> {
        let entries = self.entries();
        (!entries.is_empty()).then(|| self.packed(entries, 0, form))
    }

    /// The RRset of the entry at `index` in `entries`, the entries of this node.
    #[inline(always)]
    fn packed(&self, entries: &[[u8; RRSET_ENTRY_BYTES]], index: usize, form: Form) -> PackedRrset<'z> {
        match form {
            Form::Plain => self.rrset_of(&entries[index]),
            Form::Signed => PackedRrset::read(&self.bytes[self.signed_offset(entries, index)..]),
        }
    }

    /// The offset of the signed form of an RRset.
    fn signed_offset(&self, entries: &[[u8; RRSET_ENTRY_BYTES]], index: usize) -> usize {
        let &[_, _, ref plain @ ..] = &entries[index];
        let plain = u32::from_le_bytes(*plain);
        match self.signed_fields(entries) {
            None => plain as usize,
            Some(fields) => number_at(fields, PROOFS_BYTES + index * SIGNED_OFFSET_BYTES) as usize,
        }
    }

    /// The node of the record for `proof`.
    pub(crate) fn proof(&self, proof: Proof) -> Option<NodeIndex> {
        let fields = self.signed_fields(self.entries())?;
        let index = number_at(fields, proof as usize * PROOF_BYTES);
        (index != NO_NODE).then_some(NodeIndex(index))
    }

    /// The bytes from the fields for signed zones on, if there are such fields.
    fn signed_fields(&self, entries: &[[u8; RRSET_ENTRY_BYTES]]) -> Option<&'z [u8]> {
        let entries_end = HEADER_BYTES + usize::from(self.header[1]) + size_of_val(entries);
        (self.header[FLAGS_OFFSET] & FLAG_IS_SIGNED != 0).then(|| &self.bytes[entries_end..])
    }

    /// The RRset at `index`, in the order of types.
    pub(crate) fn rrset_at(&self, index: usize) -> Option<PackedRrset<'z>> {
        self.entries().get(index).map(|entry| self.rrset_of(entry))
    }

    /// Calls `visit` with the records of all RRsets.
    pub(crate) fn each_record(&self, mut visit: impl FnMut(&PackedRrset<'z>, &AnswerRecord<'z>)) {
        for entry in self.entries() {
            let rrset = self.rrset_of(entry);
            let mut at = 0;
            while let Some(record) = rrset.answer_record(at) {
                visit(&rrset, &record);
                at = record.end;
            }
        }
    }

    /// The node that follows in the arena of the store, which has `end` bytes.
    pub(crate) fn next(&self, end: usize) -> Option<NodeIndex> {
        let entries = self.entries();
        let length = match entries.len().checked_sub(1) {
            // The signed form of an RRset follows its plain form, or equals it.
            Some(last) => {
                let offset = self.signed_offset(entries, last);
                offset + PackedRrset::stored_bytes(&self.bytes[offset..])
            }
            None => {
                let fields_bytes = if self.signed_fields(entries).is_some() { PROOFS_BYTES } else { 0 };
                HEADER_BYTES + usize::from(self.header[1]) + fields_bytes
            }
        };
        let next = (self.index.offset() + length).next_multiple_of(ALIGNMENT_BYTES);
        NodeIndex::in_store(next).filter(|_| next < end)
    }

    #[inline]
    fn rrset_of(&self, entry: &[u8; RRSET_ENTRY_BYTES]) -> PackedRrset<'z> {
        let &[_, _, ref offset @ ..] = entry;
        PackedRrset::read(&self.bytes[u32::from_le_bytes(*offset) as usize..])
    }
}

fn number_at(fields: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*fields[at..].first_chunk().expect("written by `NodeWriter`"))
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
    /// The offset of the field for the signed form of the next RRset.
    next_signed: Option<usize>,
}

impl NodeWriter {
    /// Starts a node without references. Returns its offset too.
    pub(crate) fn start(
        arena: &mut Vec<u8>,
        name: Name<'_>,
        rrset_count: usize,
        is_signed: bool,
    ) -> (usize, NodeWriter) {
        arena.resize(arena.len().next_multiple_of(ALIGNMENT_BYTES), 0);
        let start = arena.len();
        let flags = if is_signed { FLAG_IS_SIGNED } else { 0 };
        arena.extend_from_slice(&[flags, name.length_bytes() as u8]);
        arena.extend_from_slice(&(rrset_count as u16).to_le_bytes());
        arena.extend_from_slice(&[0; HEADER_BYTES - NODE_REF_OFFSET]);
        arena.extend_from_slice(name.as_bytes());
        let next_entry = arena.len();
        arena.resize(next_entry + rrset_count * RRSET_ENTRY_BYTES, 0);
        let mut next_signed = None;
        if is_signed {
            arena.extend_from_slice(&[u8::MAX; PROOFS_BYTES]);
            next_signed = Some(arena.len());
            arena.resize(arena.len() + rrset_count * SIGNED_OFFSET_BYTES, 0);
        }
        (start, NodeWriter { start, next_entry, next_signed })
    }

    /// Writes the next RRset's entry. The caller appends the packed RRset to the arena.
    pub(crate) fn start_rrset(&mut self, arena: &mut [u8], rtype: Rtype) {
        let offset = ((arena.len() - self.start) as u32).to_le_bytes();
        let (number, offset_field) = arena[self.next_entry..][..RRSET_ENTRY_BYTES].split_at_mut(size_of::<u16>());
        number.copy_from_slice(&rtype.0.to_le_bytes());
        offset_field.copy_from_slice(&offset);
        self.next_entry += RRSET_ENTRY_BYTES;
        if let Some(at) = &mut self.next_signed {
            arena[*at..*at + SIGNED_OFFSET_BYTES].copy_from_slice(&offset);
            *at += SIGNED_OFFSET_BYTES;
        }
    }

    /// Writes that the RRset has a signed form. The caller appends it to the arena, after the plain form.
    pub(crate) fn start_signed_form(&self, arena: &mut [u8]) {
        let offset = ((arena.len() - self.start) as u32).to_le_bytes();
        let end = self.next_signed.expect("the zone is signed");
        arena[end - SIGNED_OFFSET_BYTES..end].copy_from_slice(&offset);
    }
}

/// Sets a proof of the node at `node`, in a signed zone, to the record of `target`.
pub(crate) fn set_proof(arena: &mut [u8], node: usize, proof: Proof, target: NodeIndex) {
    let entries = Node::read_at(arena, node, target).entries();
    let fields = HEADER_BYTES + usize::from(arena[node + 1]) + size_of_val(entries);
    let at = node + fields + proof as usize * PROOF_BYTES;
    arena[at..at + PROOF_BYTES].copy_from_slice(&target.0.to_le_bytes());
}

/// Sets the reference of the node at `at` to `target`.
pub(crate) fn set_node_ref(arena: &mut [u8], at: usize, kind: NodeRef, target: NodeIndex) {
    let other_refs = arena[at + FLAGS_OFFSET] & !FLAG_HAS_DNAME & !FLAG_IS_SIGNED & !(kind as u8);
    debug_assert!(other_refs == 0, "a node has at most one");
    arena[at + FLAGS_OFFSET] |= kind as u8;
    arena[at + NODE_REF_OFFSET..at + HEADER_BYTES].copy_from_slice(&target.0.to_le_bytes());
}

/// Marks the node at `at` as the owner of a DNAME.
pub(crate) fn set_has_dname(arena: &mut [u8], at: usize) {
    arena[at + FLAGS_OFFSET] |= FLAG_HAS_DNAME;
}

/// Marks the node at `at` as the node of a name that does not exist.
pub(crate) fn set_is_removed(arena: &mut [u8], at: usize) {
    arena[at + FLAGS_OFFSET] |= FLAG_IS_REMOVED;
}
