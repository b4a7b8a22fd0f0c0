//! A zone in serving form: immutable, with the RRsets packed for replies.
//!
//! An arena holds a node for each name of the zone and for each empty non-terminal (`layout.rs`). A hash table finds
//! the node of a name. For a name without a node, the closest encloser is usually the parent; otherwise a binary search
//! between the apex and the parent finds it, because every ancestor of a node has a node
//! (docs/decisions/0007-zone-store.md). Arena and hash table form the store, which a version shares with versions that
//! small changes lead to; the differences are their delta.

use crate::text::name::{Name, NameBuf};
use crate::text::rtype::Rtype;
use crate::zones::delta::{Delta, Nodes};
use crate::zones::denial::DenialChain;
use crate::zones::hash_slots::{HashSlots, Slot};
use crate::zones::journal::ZoneJournal;
use crate::zones::layout::{Form, Node, NodeIndex, NodeRef, Proof};
use crate::zones::name_hash::{HashSeed, IndexedName, NameHash, NameHashes, eq_lowercase};
use crate::zones::packed_rrset::{AnswerRecord, HEADER_BYTES, OwnerLocation, PackedRecord, PackedRrset};
use crate::zones::zone_links::ZoneLinks;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

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
    pub(crate) store: Arc<ZoneStore>,
    /// The nodes of the version that replace nodes of the store, unless the version is the whole store.
    pub(crate) delta: Option<Box<Delta>>,
    pub(crate) apex_node: NodeIndex,
    /// The packed SOA RRset for negative answers.
    pub(crate) negative_soa: Box<[u8]>,
    /// The data for changes, if the zone is changed while it is served.
    pub(crate) links: Option<Box<ZoneLinks>>,
    /// The changes that led to this version.
    pub(crate) journal: ZoneJournal,
    /// The data for answers with signatures, if the zone is signed.
    pub(crate) signed: Option<SignedZone>,
}

/// The nodes of a zone that was built as a whole.
#[derive(Debug)]
pub(crate) struct ZoneStore {
    /// The index of the node of each name.
    pub(crate) slots: HashSlots,
    pub(crate) arena: Box<[u8]>,
}

/// The data for answers with signatures.
#[derive(Debug)]
pub(crate) struct SignedZone {
    /// The packed SOA RRset with its signatures for negative answers.
    pub(crate) negative_soa: Box<[u8]>,
    pub(crate) denial: DenialChain,
    /// The expiration of the first signature, as in the record: the low 32 bits of the seconds since 1970.
    pub(crate) first_expiration: u32,
}

/// The position of a name in a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'z> {
    /// The node of the name or, if it does not exist, of its closest encloser.
    pub(crate) node: Node<'z>,
    pub(crate) exists: bool,
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
    /// The owner's node, which identifies the owner.
    pub(crate) node: NodeIndex,
}

impl<'z> FoundRrset<'z> {
    /// Whether this is a DNAME with the owner `name`.
    pub(crate) fn is_dname_of(&self, name: Name<'_>) -> bool {
        self.rrset.rtype() == Rtype::DNAME && self.owner.eq_ignore_case(name)
    }

    /// Whether the RRset's records, in its signed form, include an NSEC record.
    pub(crate) fn has_nsec(&self) -> bool {
        let records = self.rrset.records(self.owner).take(usize::from(self.rrset.answer_count));
        records.into_iter().any(|record| record.rtype == Rtype::NSEC)
    }

    /// The owner as a suffix of QNAME. For a wildcard, this is the suffix of the same length.
    #[inline]
    pub(crate) fn owner_in_question(&self, qname_bytes: usize) -> OwnerLocation {
        let length_bytes = self.owner.length_bytes();
        OwnerLocation { offset: HEADER_BYTES + qname_bytes - length_bytes, length_bytes }
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
        let chain_bytes = self.signed.as_ref().map_or(0, |signed| signed.denial.memory_bytes());
        let delta_bytes = self.delta.as_ref().map_or(0, |delta| delta.memory_bytes());
        let links_bytes = self.links.as_ref().map_or(0, |links| links.memory_bytes());
        size_of::<Zone>() + self.store.memory_bytes() + chain_bytes + delta_bytes + links_bytes
    }

    /// Whether the zone has signatures (RFC 4035 §2).
    pub fn is_signed(&self) -> bool {
        self.signed.is_some()
    }

    /// When the first signature of the zone expires, in seconds since 1970; `None` if the zone is not signed. The
    /// result is at most 68 years from `now_unix_s` (RFC 4034 §3.1.5).
    pub fn signatures_expire_at(&self, now_unix_s: u64) -> Option<u64> {
        let expiration = self.signed.as_ref()?.first_expiration;
        let seconds_left = expiration.wrapping_sub(now_unix_s as u32).cast_signed();
        Some(now_unix_s.saturating_add_signed(seconds_left.into()))
    }

    /// The changes that have led to this version.
    pub fn journal(&self) -> &ZoneJournal {
        &self.journal
    }

    /// The SOA for the authority section of a negative answer, with the TTL of RFC 2308 §5.
    #[inline(always)]
    pub(crate) fn negative_soa(&self, form: Form) -> FoundRrset<'_> {
        let packed = match (&self.signed, form) {
            (Some(signed), Form::Signed) => &signed.negative_soa,
            _ => &self.negative_soa,
        };
        FoundRrset { owner: self.apex(), rrset: PackedRrset::read(packed), node: self.apex_node }
    }

    /// The records that deny existence.
    pub(crate) fn denial(&self) -> &DenialChain {
        self.signed.as_ref().map_or(&DenialChain::None, |signed| &signed.denial)
    }

    /// The node of the record for `proof` of `node`.
    pub(crate) fn proof(&self, node: &Node<'_>, proof: Proof) -> Option<NodeIndex> {
        let stored = node.proof(proof);
        match &self.delta {
            None => stored,
            Some(delta) if stored.is_some_and(|index| delta.has(index)) => stored,
            // The record differs in this version.
            Some(_) => self.denial().proof_of(self.nodes(), node, proof),
        }
    }

    /// The nodes of this version.
    pub(crate) fn nodes(&self) -> Nodes<'_> {
        Nodes { arena: &self.store.arena, delta: self.delta.as_deref() }
    }

    /// Whether the proof that `delegation` has no DS is an NSEC3 record, which is not in the signed form of its NS
    /// RRset.
    pub(crate) fn proves_delegation_apart(&self, delegation: &Node<'_>) -> bool {
        matches!(self.denial(), DenialChain::Nsec3(_)) && delegation.rrset(Rtype::DS).is_none()
    }

    /// The node of the parent name; `None` for the apex.
    pub(crate) fn parent(&self, node: &Node<'_>) -> Option<Node<'_>> {
        let parent = node.name().parent().filter(|_| node.index != self.apex_node)?;
        self.node_named(parent)
    }

    /// The node of the child with the label `*`, if names below `node` match it.
    pub(crate) fn wildcard_child(&self, node: &Node<'_>) -> Option<Node<'_>> {
        node.node_ref(NodeRef::WildcardChild).map(|index| self.node(index))
    }

    /// The zone's SOA.
    pub(crate) fn soa(&self) -> (FoundRrset<'_>, AnswerRecord<'_>) {
        let apex = self.apex_node();
        let rrset = apex.rrset(Rtype::SOA).expect("a zone has a SOA");
        (found(&apex, rrset), rrset.answer_record(0).expect("an RRset has a record"))
    }

    /// Looks `name`, which is at or below the apex, up for `qtype` (RFC 1034 §4.3.2 step 3).
    // This function is inlined: the result has a dozen words, which a call would copy.
    #[inline(always)]
    pub(crate) fn lookup(&self, name: Name<'_>, hashes: NameHashes, qtype: Rtype) -> Lookup<'_> {
        self.lookup_at(&self.place(name, hashes), qtype, Form::Plain)
    }

    /// The position of `name`, which is at or below the apex.
    #[inline(always)]
    pub(crate) fn place(&self, name: Name<'_>, hashes: NameHashes) -> Place<'_> {
        match &self.delta {
            None => {
                let store = &*self.store;
                self.place_by(name, hashes, |name, hash| store.find(name, hash))
            }
            Some(_) => self.place_in_delta(name, hashes),
        }
    }

    #[inline(never)]
    fn place_in_delta(&self, name: Name<'_>, hashes: NameHashes) -> Place<'_> {
        self.place_by(name, hashes, |name, hash| self.exact(name, hash))
    }

    /// The position of `name` in the zone; `find` returns the node of a name.
    #[inline(always)]
    fn place_by<'z>(
        &'z self,
        name: Name<'_>,
        hashes: NameHashes,
        find: impl Fn(&[u8], NameHash) -> Option<Node<'z>>,
    ) -> Place<'z> {
        match find(name.as_bytes(), hashes.name) {
            Some(node) => Place { node, exists: true },
            None => Place { node: self.closest_encloser(name, hashes.parent, find), exists: false },
        }
    }

    /// Looks `qtype` up for the name at `place`. RRsets of the result are in `form`.
    #[inline(always)]
    pub(crate) fn lookup_at<'z>(&'z self, place: &Place<'z>, qtype: Rtype, form: Form) -> Lookup<'z> {
        let Place { mut node, exists } = *place;
        if let Some(delegation) = node.node_ref(NodeRef::DelegationPoint) {
            let delegation = self.node(delegation);
            // RFC 4035 §3.1.4.1: the parent zone answers for the DS at the delegation point.
            return match exists && qtype == Rtype::DS && delegation.index == node.index {
                true => delegation
                    .rrset_in(Rtype::DS, form)
                    .map_or(Lookup::Nodata, |rrset| Lookup::Answer(found(&delegation, rrset))),
                false => Lookup::Referral(found(
                    &delegation,
                    delegation.rrset_in(Rtype::NS, form).expect("a delegation point has an NS RRset"),
                )),
            };
        }
        if let Some(owner) = node.node_ref(NodeRef::DnameAbove) {
            return dname_of(&self.node(owner), form);
        }
        if !exists {
            if node.has_dname() {
                return dname_of(&node, form);
            }
            // RFC 4592 §3.3.1: the wildcard child of the closest encloser is the source of synthesis.
            let Some(wildcard) = node.node_ref(NodeRef::WildcardChild) else { return Lookup::Nxdomain };
            node = self.node(wildcard);
            // RFC 4592 §4.2: an NS RRset delegates the names below its wildcard owner, and is not synthesized.
            if matches!(qtype, Rtype::NS | Rtype::ANY) && node.node_ref(NodeRef::DelegationPoint).is_some() {
                return Lookup::Nodata;
            }
        }
        if let Some(rrset) = node.rrset_in(qtype, form) {
            return Lookup::Answer(found(&node, rrset));
        }
        if qtype == Rtype::ANY {
            return node.first_rrset(form).map_or(Lookup::Nodata, |rrset| Lookup::Answer(found(&node, rrset)));
        }
        // RFC 4034 §3 and §4: a CNAME can coexist with RRSIG and NSEC records, so queries for these concern the alias.
        match node.rrset_in(Rtype::CNAME, form) {
            Some(rrset) if !matches!(qtype, Rtype::RRSIG | Rtype::NSEC) => Lookup::Cname(found(&node, rrset)),
            _ => Lookup::Nodata,
        }
    }

    /// Whether the zone has `name`, perhaps as an empty non-terminal.
    pub(crate) fn has_name(&self, name: Name<'_>, hashes: NameHashes) -> bool {
        self.exact(name.as_bytes(), hashes.name).is_some()
    }

    /// Whether queries for `name`, which is in lower case and at or below the apex, find its own node.
    pub(crate) fn has_exactly(&self, name: Name<'_>) -> bool {
        self.exact(name.as_bytes(), IndexedName::of(name).hash(self.seed)).is_some()
    }

    /// The slot at which the search for `hash` starts.
    #[inline]
    pub(crate) fn first_slot(&self, hash: NameHash) -> Slot {
        self.store.slots.first(hash)
    }

    /// Loads the start of the node that `slot` refers to, if it matches the name. Otherwise loads the slot and the node
    /// of the parent name, which most negative answers start from.
    #[inline]
    pub(crate) fn prefetch_node(&self, slot: Slot, hashes: NameHashes, with_signatures: bool) {
        let mut slot = slot;
        if !slot.matches(hashes.name) {
            slot = self.first_slot(hashes.parent);
            if !slot.matches(hashes.parent) {
                return;
            }
        }
        // A node with one RRset has about 70 bytes: most nodes are in two cache lines.
        let start = NodeIndex(slot.number()).offset();
        let arena = &self.store.arena;
        let end = (start + CACHE_LINE_BYTES).min(arena.len() - 1);
        // The values are not used: black_box keeps the loads.
        core::hint::black_box(arena[start] ^ arena[end]);
        if with_signatures && self.is_signed() {
            // The first signature ends in the third line or in the fourth.
            let [third, fourth] = [2, 3].map(|line| (start + line * CACHE_LINE_BYTES).min(arena.len() - 1));
            core::hint::black_box(arena[third] ^ arena[fourth]);
        }
    }

    /// The node of `name`.
    #[inline(always)]
    fn exact(&self, name: &[u8], hash: NameHash) -> Option<Node<'_>> {
        match &self.delta {
            Some(delta) if delta.may_have(hash) => self.exact_of_either(delta, name, hash),
            _ => self.store.find(name, hash),
        }
    }

    #[inline(never)]
    fn exact_of_either<'z>(&'z self, delta: &'z Delta, name: &[u8], hash: NameHash) -> Option<Node<'z>> {
        match delta.find(name, hash) {
            Some(node) => (!node.is_removed()).then_some(node),
            None => self.store.find(name, hash),
        }
    }

    /// The closest encloser of `name`, which has no node and so is not the apex. `parent_hash` is the hash of its
    /// parent.
    #[inline]
    fn closest_encloser<'z>(
        &'z self,
        name: Name<'_>,
        parent_hash: NameHash,
        find: impl Fn(&[u8], NameHash) -> Option<Node<'z>>,
    ) -> Node<'z> {
        let parent = name.parent().expect("a name below the apex has a parent");
        if parent.length_bytes() == self.apex.as_name().length_bytes() {
            return self.node(self.apex_node);
        }
        // Usually only the first label does not exist: the name is random, or below a wildcard or a delegation point.
        find(parent.as_bytes(), parent_hash).unwrap_or_else(|| self.closest_encloser_above(parent))
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

    /// The node of `name`, which is in lower case and at or below the apex, even if it owns only NSEC3 records.
    pub(crate) fn node_named(&self, name: Name<'_>) -> Option<Node<'_>> {
        self.exact(name.as_bytes(), IndexedName::of(name).hash(self.seed)).or_else(|| match self.denial() {
            DenialChain::Nsec3(chain) => chain.owner_named(self.nodes(), name).map(|index| self.node(index)),
            DenialChain::Nsec(_) | DenialChain::None => None,
        })
    }

    /// The node of the apex.
    pub(crate) fn apex_node(&self) -> Node<'_> {
        self.node(self.apex_node)
    }

    /// The first node of a walk over all nodes: the apex's node, unless the version has a delta.
    pub(crate) fn first_node(&self) -> Node<'_> {
        // The store begins with a node of the apex.
        let first = NodeIndex::default();
        match &self.delta {
            Some(delta) if !delta.has(first) => self.after_in_store(first),
            _ => Some(self.node(first)),
        }
        .expect("a zone has a node")
    }

    /// The node after `node`: first the store's nodes in the order in which the names first occurred, then the delta's
    /// nodes.
    pub(crate) fn node_after(&self, node: &Node<'_>) -> Option<Node<'_>> {
        match (node.index.chunk(), &self.delta) {
            (None, _) => self.after_in_store(node.index),
            (Some(_), delta) => {
                let from = NodeIndex(node.index.0 + 1);
                delta.as_ref()?.nodes_from(from).next().map(|index| self.node(index))
            }
        }
    }

    /// The node after the node at `index` of the store, which need not belong to the version.
    fn after_in_store(&self, index: NodeIndex) -> Option<Node<'_>> {
        let arena = &self.store.arena;
        let mut next = Node::read(arena, index).next(arena.len());
        let Some(delta) = &self.delta else { return next.map(|index| Node::read(arena, index)) };
        while let Some(index) = next {
            let node = Node::read(arena, index);
            if delta.has(index) {
                return Some(node);
            }
            next = node.next(arena.len());
        }
        delta.nodes().next().map(|index| self.node(index))
    }

    /// The nodes that `other`, a version before or after this one, does not have; `None` if edits have not led from one
    /// to the other.
    pub(crate) fn nodes_beside(&self, other: &Zone) -> Option<Vec<Node<'_>>> {
        let is_edited = match (&self.delta, &other.delta) {
            (Some(own), Some(other)) => own.extends(other) || other.extends(own),
            _ => true,
        };
        if !is_edited || !Arc::ptr_eq(&self.store, &other.store) {
            return None;
        }
        let is_in = |zone: &Zone, index: NodeIndex| match &zone.delta {
            Some(delta) => delta.has(index),
            None => index.chunk().is_none(),
        };
        let own = self.delta.iter().flat_map(|delta| delta.nodes());
        let hidden = other.delta.iter().flat_map(|delta| delta.hidden());
        let own = own.filter(|&index| !is_in(other, index));
        let hidden = hidden.filter(|&index| is_in(self, index));
        Some(own.chain(hidden).map(|index| self.node(index)).collect())
    }

    /// The node with this index.
    #[inline]
    pub(crate) fn node(&self, index: NodeIndex) -> Node<'_> {
        match index.chunk() {
            None => Node::read(&self.store.arena, index),
            Some(place) => self.node_of_delta(index, place),
        }
    }

    #[inline(never)]
    fn node_of_delta(&self, index: NodeIndex, place: (usize, usize)) -> Node<'_> {
        self.delta.as_ref().expect("only versions with a delta have such nodes").node(index, place)
    }

    /// Asserts every invariant of the structure, for tests and fuzzing.
    ///
    /// # Panics
    /// Panics if an invariant does not hold.
    pub fn check(&self) {
        let mut seen_count = 0;
        let of_store = self.store.slots.numbers().map(NodeIndex);
        let of_store = of_store.filter(|&index| self.delta.as_ref().is_none_or(|delta| delta.has(index)));
        // Queries do not find owners of NSEC3 records.
        let is_found = |&index: &NodeIndex| {
            let node = self.node(index);
            node.rrset(Rtype::NSEC3).is_none() || self.has_exactly(node.name())
        };
        let of_delta = self.delta.iter().flat_map(|delta| delta.nodes()).filter(is_found);
        for index in of_store.chain(of_delta) {
            seen_count += 1;
            let node = self.node(index);
            let name = Name::parse(node.name_bytes()).expect("stored from a name");
            assert_eq!(name.to_lowercase().as_name(), node.name(), "stored in lower case");
            let name = IndexedName::of(name);
            let found = self.exact(node.name_bytes(), name.hash(self.seed)).expect("found by its own hash");
            assert_eq!(found.index, node.index, "each name has one node");
            assert!(node.name().is_at_or_below(self.apex()));
            assert!(name.label_count() <= self.depth_max);
            let types: Vec<Rtype> = node.types().collect();
            assert!(types.is_sorted(), "types are ascending for the binary search");
            for rtype in types {
                for form in [Form::Plain, Form::Signed] {
                    let rrset = node.rrset_in(rtype, form).expect("listed");
                    let count = usize::from(rrset.answer_count) + usize::from(rrset.additional_count);
                    assert_eq!(rrset.records(node.name()).count(), count);
                }
            }
            if name.label_count() > self.apex_depth {
                let parent = node.name().parent().expect("below the apex");
                let parent = IndexedName::of(parent);
                assert!(self.exact(parent.as_bytes(), parent.hash(self.seed)).is_some(), "every ancestor has a node");
            }
        }
        assert_eq!(seen_count, self.name_count);
        assert!(self.delta.is_some() || self.store.slots.has_room_for(seen_count));
    }
}

impl ZoneStore {
    /// The node of `name`.
    #[inline(always)]
    fn find(&self, name: &[u8], hash: NameHash) -> Option<Node<'_>> {
        // The first slot of a name that does not exist is usually empty: that needs no call.
        if self.slots.first(hash) == Slot::EMPTY { None } else { self.find_used(name, hash) }
    }

    #[inline(never)]
    fn find_used(&self, name: &[u8], hash: NameHash) -> Option<Node<'_>> {
        let is_name = |number| eq_lowercase(Node::read(&self.arena, NodeIndex(number)).name_bytes(), name);
        self.slots.find(hash, is_name).map(|number| Node::read(&self.arena, NodeIndex(number)))
    }

    fn memory_bytes(&self) -> usize {
        self.arena.len() + self.slots.memory_bytes()
    }
}

/// An RRset of `node`.
#[inline]
fn found<'z>(node: &Node<'z>, rrset: PackedRrset<'z>) -> FoundRrset<'z> {
    FoundRrset { owner: node.name(), rrset, node: node.index }
}

/// The DNAME of `node`.
#[inline]
fn dname_of<'z>(node: &Node<'z>, form: Form) -> Lookup<'z> {
    Lookup::Dname(found(node, node.rrset_in(Rtype::DNAME, form).expect("the flag says that the node has a DNAME")))
}
