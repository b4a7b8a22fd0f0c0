//! A zone in the form in which it is served: immutable, with the RRsets packed for replies.
//!
//! One arena holds a node for each name of the zone and for each empty non-terminal (`layout.rs`). A hash table finds the
//! node of a name. For a name without a node, the closest encloser is usually the parent; otherwise a binary search
//! between the apex and the parent finds it, because every ancestor of a node has a node
//! (docs/decisions/0007-zone-store.md).

use crate::hash_slots::{HashSlots, Slot};
use crate::journal::ZoneJournal;
use crate::layout::{Node, NodeIndex, NodeRef};
use crate::name::{Name, NameBuf};
use crate::name_hash::{HashSeed, IndexedName, NameHash, NameHashes, eq_lowercase};
use crate::packed_rrset::{AnswerRecord, PackedRecord, PackedRrset};
use crate::rtype::Rtype;
use alloc::boxed::Box;

const CACHE_LINE_BYTES: usize = 64;

/// A zone, ready to be served.
#[derive(Debug)]
pub struct Zone {
    pub(crate) apex: NameBuf,
    /// Labels of the apex.
    pub(crate) apex_depth: usize,
    pub(crate) apex_hash: NameHash,
    /// Labels of the deepest name.
    pub(crate) depth_max: usize,
    pub(crate) serial: u32,
    pub(crate) record_count: usize,
    pub(crate) name_count: usize,
    pub(crate) seed: HashSeed,
    /// The node index of each name.
    pub(crate) slots: HashSlots,
    pub(crate) arena: Box<[u8]>,
    pub(crate) apex_node: NodeIndex,
    /// The offset of the SOA RRset for negative answers.
    pub(crate) negative_soa: usize,
    /// What has led to this version.
    pub(crate) journal: ZoneJournal,
}

/// The result of a lookup in a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lookup<'z> {
    /// The RRset of QTYPE or, for ANY, one of the RRsets (RFC 8482 §4.1).
    Answer(FoundRrset<'z>),
    /// The CNAME of the name.
    Cname(FoundRrset<'z>),
    /// The DNAME above the name.
    Dname(FoundRrset<'z>),
    /// The NS RRset of the delegation point that the name is at or below.
    Referral(FoundRrset<'z>),
    /// The name exists, the type does not.
    Nodata,
    /// The name does not exist.
    Nxdomain,
}

/// An RRset and its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRrset<'z> {
    /// The owner in the zone, in lower case: QNAME, a wildcard, a delegation point or the owner of a DNAME.
    pub(crate) owner: Name<'z>,
    pub(crate) rrset: PackedRrset<'z>,
    /// The offset of the owner's node, which identifies the owner.
    pub(crate) node: usize,
}

impl<'z> FoundRrset<'z> {
    /// Whether this is a DNAME with the owner `name`.
    pub(crate) fn is_dname_of(&self, name: Name<'_>) -> bool {
        self.rrset.rtype() == Rtype::DNAME && self.owner.eq_ignore_case(name)
    }

    /// The record of a CNAME or DNAME, and its target.
    pub(crate) fn alias_target(&self) -> (PackedRecord<'z>, NameBuf) {
        let records = self.rrset.records(self.owner);
        let record = records.clone().next().expect("an RRset has a record");
        let target = records.target(&record);
        (record, target)
    }
}

impl Zone {
    /// The name of the apex.
    pub fn apex(&self) -> Name<'_> {
        self.apex.as_name()
    }

    /// The serial number of the SOA.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// The number of records, without duplicates.
    pub fn record_count(&self) -> usize {
        self.record_count
    }

    /// The number of names, including empty non-terminals.
    pub fn name_count(&self) -> usize {
        self.name_count
    }

    /// Bytes of memory that the zone takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Zone>() + self.arena.len() + self.slots.memory_bytes()
    }

    /// The changes that have led to this version.
    pub fn journal(&self) -> &ZoneJournal {
        &self.journal
    }

    /// The SOA for the authority section of a negative answer, with the TTL of RFC 2308 §5.
    pub(crate) fn negative_soa(&self) -> FoundRrset<'_> {
        let apex = self.node(self.apex_node);
        FoundRrset { owner: apex.name(), rrset: PackedRrset::read(&self.arena[self.negative_soa..]), node: apex.at }
    }

    /// The SOA of the zone.
    pub(crate) fn soa(&self) -> (FoundRrset<'_>, AnswerRecord<'_>) {
        let apex = self.node(self.apex_node);
        let rrset = apex.rrset(Rtype::SOA).expect("a zone has a SOA");
        (found(&apex, rrset), rrset.answer_record(0).expect("an RRset has a record"))
    }

    /// Looks `name`, which is at or below the apex, up for `qtype` (RFC 1034 §4.3.2 step 3).
    // Inlined: the result has a dozen words, which a call would copy.
    #[inline(always)]
    pub(crate) fn lookup(&self, name: Name<'_>, hashes: NameHashes, qtype: Rtype) -> Lookup<'_> {
        let exact = self.exact(name.as_bytes(), hashes.name);
        let exists = exact.is_some();
        let mut node = exact.unwrap_or_else(|| self.closest_encloser(name, hashes.parent));
        if let Some(delegation) = node.node_ref(NodeRef::DelegationPoint) {
            let delegation = self.node(delegation);
            // RFC 4035 §3.1.4.1: the parent zone answers for the DS at the delegation point.
            return match exists && qtype == Rtype::DS && delegation.at == node.at {
                true => delegation
                    .rrset(Rtype::DS)
                    .map_or(Lookup::Nodata, |rrset| Lookup::Answer(found(&delegation, rrset))),
                false => Lookup::Referral(found(
                    &delegation,
                    delegation.rrset(Rtype::NS).expect("a delegation point has an NS RRset"),
                )),
            };
        }
        if let Some(owner) = node.node_ref(NodeRef::DnameAbove) {
            return dname_of(&self.node(owner));
        }
        if !exists {
            if node.has_dname() {
                return dname_of(&node);
            }
            // RFC 4592 §3.3.1: the wildcard child of the closest encloser is the source of synthesis.
            let Some(wildcard) = node.node_ref(NodeRef::WildcardChild) else { return Lookup::Nxdomain };
            node = self.node(wildcard);
            // RFC 4592 §4.2: an NS RRset delegates the names below its wildcard owner, and is not synthesized.
            if matches!(qtype, Rtype::NS | Rtype::ANY) && node.node_ref(NodeRef::DelegationPoint).is_some() {
                return Lookup::Nodata;
            }
        }
        if let Some(rrset) = node.rrset(qtype) {
            return Lookup::Answer(found(&node, rrset));
        }
        if qtype == Rtype::ANY {
            return node.first_rrset().map_or(Lookup::Nodata, |rrset| Lookup::Answer(found(&node, rrset)));
        }
        // RFC 4034 §3 and §4: a CNAME may have RRSIG and NSEC records beside it, so questions for these concern the alias.
        match node.rrset(Rtype::CNAME) {
            Some(rrset) if !matches!(qtype, Rtype::RRSIG | Rtype::NSEC) => Lookup::Cname(found(&node, rrset)),
            _ => Lookup::Nodata,
        }
    }

    /// Whether the zone has `name`, perhaps as an empty non-terminal.
    pub(crate) fn has_name(&self, name: Name<'_>, hashes: NameHashes) -> bool {
        self.exact(name.as_bytes(), hashes.name).is_some()
    }

    /// The slot at which the search for `hash` starts.
    #[inline]
    pub(crate) fn first_slot(&self, hash: NameHash) -> Slot {
        self.slots.first(hash)
    }

    /// Loads the start of the node that `slot` refers to, if it matches the name. Otherwise loads the slot and the node of
    /// the parent name, which most negative answers start from.
    #[inline]
    pub(crate) fn prefetch_node(&self, slot: Slot, hashes: NameHashes) {
        let mut slot = slot;
        if !slot.matches(hashes.name) {
            slot = self.first_slot(hashes.parent);
            if !slot.matches(hashes.parent) {
                return;
            }
        }
        // A node with one RRset has about 70 bytes: most nodes are in two cache lines.
        let start = NodeIndex(slot.number()).offset();
        let end = (start + CACHE_LINE_BYTES).min(self.arena.len() - 1);
        // The values are not used: black_box keeps the loads.
        core::hint::black_box(self.arena[start] ^ self.arena[end]);
    }

    /// The node of `name`.
    #[inline(always)]
    fn exact(&self, name: &[u8], hash: NameHash) -> Option<Node<'_>> {
        // The first slot of a name that does not exist is usually empty: that needs no call.
        if self.slots.first(hash) == Slot::EMPTY { None } else { self.find_node(name, hash) }
    }

    #[inline(never)]
    fn find_node(&self, name: &[u8], hash: NameHash) -> Option<Node<'_>> {
        let is_name = |number| eq_lowercase(self.node(NodeIndex(number)).name_bytes(), name);
        self.slots.find(hash, is_name).map(|number| self.node(NodeIndex(number)))
    }

    /// The closest encloser of `name`, which has no node and so is not the apex. `parent_hash` is the hash of its parent.
    #[inline]
    fn closest_encloser(&self, name: Name<'_>, parent_hash: NameHash) -> Node<'_> {
        let parent = name.parent().expect("a name below the apex has a parent");
        if parent.length_bytes() == self.apex.as_name().length_bytes() {
            return self.node(self.apex_node);
        }
        // Usually only the first label does not exist: it is random, or below a wildcard or a delegation point.
        self.exact(parent.as_bytes(), parent_hash).unwrap_or_else(|| self.closest_encloser_above(parent))
    }

    /// The closest encloser of `name`, which has no node.
    fn closest_encloser_above(&self, name: Name<'_>) -> Node<'_> {
        let name = IndexedName::of(name);
        let mut encloser = self.node(self.apex_node);
        let mut depth = self.apex_depth;
        // No name of the zone is deeper than depth_max.
        let mut upper = name.label_count().min(self.depth_max + 1);
        let mut hash = self.apex_hash;
        while upper - depth > 1 {
            let middle = depth + (upper - depth) / 2;
            // Each step hashes half of the labels in between: all steps together hash each label at most once.
            let middle_hash = name.extend_hash(hash, depth, middle);
            match self.exact(name.suffix(middle), middle_hash) {
                Some(node) => (encloser, depth, hash) = (node, middle, middle_hash),
                None => upper = middle,
            }
        }
        encloser
    }

    /// The node of `name`, which is at or below the apex.
    pub(crate) fn node_named(&self, name: Name<'_>) -> Option<Node<'_>> {
        self.exact(name.as_bytes(), IndexedName::of(name).hash(self.seed))
    }

    /// The node of the apex, which is the first one.
    pub(crate) fn first_node(&self) -> Node<'_> {
        self.node(self.apex_node)
    }

    /// The node after `node`, in the order in which the names came first.
    pub(crate) fn node_after(&self, node: &Node<'_>) -> Option<Node<'_>> {
        node.next(self.negative_soa).map(|index| self.node(index))
    }

    /// The node at `offset`, that of another node of this zone.
    pub(crate) fn node_at(&self, offset: usize) -> Node<'_> {
        Node::read_at(&self.arena, offset)
    }

    #[inline]
    fn node(&self, index: NodeIndex) -> Node<'_> {
        Node::read(&self.arena, index)
    }

    /// Asserts every invariant of the structure, for tests and fuzzing.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        let mut seen_count = 0;
        for number in self.slots.numbers() {
            seen_count += 1;
            let node = self.node(NodeIndex(number));
            let name = Name::parse(node.name_bytes()).expect("stored from a name");
            assert_eq!(name.to_lowercase().as_name(), node.name(), "stored in lower case");
            let name = IndexedName::of(name);
            let found = self.exact(node.name_bytes(), name.hash(self.seed)).expect("found by its own hash");
            assert_eq!(found.at, node.at, "each name has one node");
            assert!(node.name().is_at_or_below(self.apex()));
            assert!(name.label_count() <= self.depth_max);
            let types: alloc::vec::Vec<Rtype> = node.types().collect();
            assert!(types.is_sorted(), "types are ascending for the binary search");
            for rtype in types {
                let rrset = node.rrset(rtype).expect("listed");
                let count = usize::from(rrset.answer_count) + usize::from(rrset.additional_count);
                assert_eq!(rrset.records(node.name()).count(), count);
            }
            if name.label_count() > self.apex_depth {
                let parent = node.name().parent().expect("below the apex");
                let parent = IndexedName::of(parent);
                assert!(self.exact(parent.as_bytes(), parent.hash(self.seed)).is_some(), "every ancestor has a node");
            }
        }
        assert_eq!(seen_count, self.name_count);
        assert!(self.slots.has_room_for(seen_count));
    }
}

/// An RRset of `node`.
#[inline]
fn found<'z>(node: &Node<'z>, rrset: PackedRrset<'z>) -> FoundRrset<'z> {
    FoundRrset { owner: node.name(), rrset, node: node.at }
}

/// The DNAME of `node`.
fn dname_of<'z>(node: &Node<'z>) -> Lookup<'z> {
    Lookup::Dname(found(node, node.rrset(Rtype::DNAME).expect("the flag says that the node has a DNAME")))
}
