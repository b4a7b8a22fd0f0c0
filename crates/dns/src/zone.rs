//! A zone as it is served: an immutable snapshot that turns a name into what stands there, with its ready-made answers.
//!
//! One arena of octets holds a node for each name of the zone and for each empty non-terminal; one table of slots,
//! searched by the hash of a name, leads to the nodes. The closest encloser of a name that has none is most often the
//! name above. Else, since every ancestor of a name has a node, it is found by halving between the apex and that
//! (docs/decisions/0007-zone-store.md).
//!
//! ```text
//! slots  [tag 32 | node / 8 32] …                                   open addressing, no removal
//! node    flags 8 | name length 8 | type count 16 | link 32 | name | (type 16, answer 32) … | ready-made answers
//! ```

use crate::name::{Name, NameBuf};
use crate::name_hash::{HashSeed, IndexedName, NameHash, NameHashes, eq_stored};
use crate::packed_rrset::PackedRrset;
use crate::rtype::Rtype;
use alloc::boxed::Box;

pub(crate) const NODE_HEADER_BYTES: usize = 8;
pub(crate) const TYPE_ENTRY_BYTES: usize = 6;
/// Nodes start at multiples of this, so that 32 bits reach 32 GiB.
pub(crate) const NODE_ALIGNMENT: usize = 8;
/// Octets that come from memory together.
const CACHE_LINE_BYTES: usize = 64;
/// An empty slot of the table.
pub(crate) const EMPTY: u64 = u64::MAX;

/// At or below a cut: `link` leads to the cut's node.
pub(crate) const FLAG_DELEGATED: u8 = 1;
/// A child of the name `*` is there: `link` leads to it.
pub(crate) const FLAG_HAS_WILDCARD: u8 = 2;
/// A DNAME stands here: every name below is another name (RFC 6672).
pub(crate) const FLAG_DNAME: u8 = 4;
/// Below a DNAME: not there, for an answer.
pub(crate) const FLAG_BELOW_DNAME: u8 = 8;

/// A zone, ready to be asked.
#[derive(Debug)]
pub struct Zone {
    pub(crate) apex: NameBuf,
    pub(crate) apex_depth: usize,
    pub(crate) apex_hash: NameHash,
    /// Labels of the deepest name.
    pub(crate) depth_max: usize,
    pub(crate) serial: u32,
    pub(crate) record_count: usize,
    pub(crate) name_count: usize,
    pub(crate) seed: HashSeed,
    /// The table has 2^`slot_bits` slots, a quarter of them empty or more.
    pub(crate) slot_bits: u32,
    pub(crate) slots: Box<[u64]>,
    pub(crate) arena: Box<[u8]>,
    pub(crate) apex_node: u32,
    /// Where the SOA for negative answers is stored.
    pub(crate) negative_soa: usize,
}

/// What a zone says to a question.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'z> {
    /// The RRset that was asked for, or with ANY one of those that are there (RFC 8482 §4.1).
    Answer(Found<'z>),
    /// The name is an alias: its CNAME, and the question goes on with the target.
    Cname(Found<'z>),
    /// The name lies below a DNAME, which makes an alias of it.
    Dname(Found<'z>),
    /// The name lies at or below a cut: the NS of the cut, and their addresses.
    Referral(Found<'z>),
    /// The name is there, the type is not.
    Nodata,
    /// The name is not there.
    Nxdomain,
}

/// A ready-made answer and the name it was made for.
#[derive(Clone, Copy, Debug)]
pub struct Found<'z> {
    /// The owner in the zone, in lower case: the name asked for, a wildcard, a cut or a DNAME above it.
    pub owner: Name<'z>,
    /// Its records.
    pub ready: PackedRrset<'z>,
    /// Tells the owner from all other names of the zone.
    pub(crate) node: usize,
}

impl Found<'_> {
    /// Whether this is the DNAME that `name` owns.
    pub(crate) fn is_dname_of(&self, name: Name<'_>) -> bool {
        self.ready.rtype() == Rtype::DNAME && self.owner.eq_ignore_case(name)
    }
}

impl Zone {
    /// The name that the zone begins with.
    pub fn apex(&self) -> Name<'_> {
        self.apex.as_name()
    }

    /// The serial of its SOA.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// Records, duplicates not counted.
    pub fn record_count(&self) -> usize {
        self.record_count
    }

    /// Names, empty non-terminals among them.
    pub fn name_count(&self) -> usize {
        self.name_count
    }

    /// Octets that the zone takes in memory.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Zone>() + self.arena.len() + self.slots.len() * size_of::<u64>()
    }

    /// The SOA for the authority section of a negative answer, its TTL that of RFC 2308 §5.
    pub(crate) fn negative_soa(&self) -> Found<'_> {
        let apex = self.node(self.apex_node);
        Found { owner: apex.name(), ready: PackedRrset::read(&self.arena[self.negative_soa..]), node: apex.at }
    }

    /// What stands at `name`, which is the apex or below it, for a question of type `rtype` (RFC 1034 §4.3.2 step 3).
    // What is found has a dozen words: not to be copied from call to call.
    #[inline(always)]
    pub(crate) fn lookup(&self, name: Name<'_>, hashes: NameHashes, rtype: Rtype) -> Lookup<'_> {
        let own = self.exact(name.as_bytes(), hashes.name);
        let is_own = own.is_some();
        let mut node = own.unwrap_or_else(|| self.closest_encloser(name, hashes.parent));
        if node.has(FLAG_DELEGATED) {
            let cut = self.node(node.link());
            // RFC 4035 §3.1.4.1: the DS of a child is the parent's to answer, at the cut itself.
            return match is_own && rtype == Rtype::DS && cut.at == node.at {
                true => cut.ready(Rtype::DS).map_or(Lookup::Nodata, |ready| Lookup::Answer(cut.found(ready))),
                false => Lookup::Referral(cut.found(cut.ready(Rtype::NS).expect("a cut is where NS stand"))),
            };
        }
        if node.has(FLAG_BELOW_DNAME) {
            return self.node(node.link()).dname();
        }
        if !is_own {
            if node.has(FLAG_DNAME) {
                return node.dname();
            }
            if !node.has(FLAG_HAS_WILDCARD) {
                return Lookup::Nxdomain;
            }
            // RFC 4592 §3.3.1: the wildcard below the closest encloser answers for the name.
            node = self.node(node.link());
        }
        if let Some(ready) = node.ready(rtype) {
            return Lookup::Answer(node.found(ready));
        }
        if rtype == Rtype::ANY {
            return node.first_ready().map_or(Lookup::Nodata, |ready| Lookup::Answer(node.found(ready)));
        }
        node.ready(Rtype::CNAME).map_or(Lookup::Nodata, |ready| Lookup::Cname(node.found(ready)))
    }

    /// Loads the slot where `hash` is searched for first, and tells what it says.
    #[inline]
    pub(crate) fn prefetch_slot(&self, hash: NameHash) -> SlotEntry {
        SlotEntry(self.slots[hash.slot(self.slot_bits)])
    }

    /// Loads the start of the node that `entry` leads to, if it may be that of the name; else that of the name above, where
    /// most answers for a name that is not there begin: its slot, which costs a wait of its own, and its node.
    #[inline]
    pub(crate) fn prefetch_node(&self, entry: SlotEntry, hashes: NameHashes) {
        let mut entry = entry;
        if !entry.leads_to(hashes.name) {
            entry = self.prefetch_slot(hashes.parent);
            if !entry.leads_to(hashes.parent) {
                return;
            }
        }
        // A node with one RRset has about 70 octets, and few start at the start of a line.
        let start = entry.node_index() as usize * NODE_ALIGNMENT;
        let end = (start + CACHE_LINE_BYTES).min(self.arena.len() - 1);
        // What is loaded is of no use here; without this, nothing would be loaded.
        core::hint::black_box(self.arena[start] ^ self.arena[end]);
    }

    /// The node of `name`.
    #[inline(always)]
    fn exact(&self, name: &[u8], hash: NameHash) -> Option<Node<'_>> {
        let slot = hash.slot(self.slot_bits);
        // Where a name is not there, most often its first slot is empty: no call is needed to see that.
        match SlotEntry(self.slots[slot]) {
            SlotEntry(EMPTY) => None,
            entry => self.exact_from(slot, entry, name, hash),
        }
    }

    /// The node of `name`, searched for from `slot` on, whose `entry` is not empty.
    #[inline(never)]
    fn exact_from(&self, slot: usize, entry: SlotEntry, name: &[u8], hash: NameHash) -> Option<Node<'_>> {
        let mask = self.slots.len() - 1;
        let (mut slot, mut entry) = (slot, entry);
        // Ends at an empty slot: the builder leaves a quarter of them empty.
        loop {
            if entry.leads_to(hash) {
                let node = self.node(entry.node_index());
                if eq_stored(node.name_bytes(), name) {
                    return Some(node);
                }
            }
            slot = (slot + 1) & mask;
            entry = SlotEntry(self.slots[slot]);
            if entry.0 == EMPTY {
                return None;
            }
        }
    }

    /// The longest ancestor of `name` that has a node. `name` has none itself, and so is not the apex; `parent_hash` is
    /// the hash of the name above it.
    #[inline]
    fn closest_encloser(&self, name: Name<'_>, parent_hash: NameHash) -> Node<'_> {
        let parent = name.parent().expect("a name below the apex has a parent");
        if parent.length_bytes() == self.apex.as_name().length_bytes() {
            return self.node(self.apex_node);
        }
        // Most often only the first label is not there: it is random, or below a wildcard or a cut.
        self.exact(parent.as_bytes(), parent_hash).unwrap_or_else(|| self.closest_encloser_above(parent))
    }

    /// The longest ancestor of `name` that has a node, where neither `name` has one nor is it the apex.
    fn closest_encloser_above(&self, name: Name<'_>) -> Node<'_> {
        let name = IndexedName::of(name);
        let mut encloser = self.node(self.apex_node);
        let mut depth = self.apex_depth;
        // Names deeper than all of the zone's have no node: the encloser is no deeper than the deepest.
        let mut too_deep = name.label_count().min(self.depth_max + 1);
        let mut hash = self.apex_hash;
        while too_deep - depth > 1 {
            let middle = depth + (too_deep - depth) / 2;
            // Half of the labels between: all turns together hash no more labels than there are.
            let middle_hash = name.grown_hash(hash, depth, middle);
            match self.exact(name.suffix(middle), middle_hash) {
                Some(node) => (encloser, depth, hash) = (node, middle, middle_hash),
                None => too_deep = middle,
            }
        }
        encloser
    }

    #[inline]
    fn node(&self, index: u32) -> Node<'_> {
        let at = index as usize * NODE_ALIGNMENT;
        let stored = &self.arena[at..];
        Node { at, header: stored.first_chunk().expect("written by the builder"), stored }
    }

    /// Every invariant of the structure: for tests and for fuzzing.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        let mut seen_count = 0;
        for &entry in &self.slots {
            if entry == EMPTY {
                continue;
            }
            seen_count += 1;
            let node = self.node(entry as u32);
            let name = Name::parse(node.name_bytes()).expect("stored from a name");
            assert_eq!(name.to_lowercase().as_name(), node.name(), "stored in lower case");
            let name = IndexedName::of(name);
            assert_eq!((entry >> 32) as u32, name.hash(self.seed).tag());
            let found = self.exact(node.name_bytes(), name.hash(self.seed)).expect("found by its own hash");
            assert_eq!(found.at, node.at, "each name has one node");
            assert!(node.name().is_at_or_below(self.apex()));
            assert!(name.label_count() <= self.depth_max);
            let types: alloc::vec::Vec<Rtype> = node.types().collect();
            assert!(types.is_sorted(), "types are searched by halves");
            for rtype in types {
                let ready = node.ready(rtype).expect("listed");
                assert_eq!(
                    ready.records(node.name()).count(),
                    usize::from(ready.answer_count) + usize::from(ready.additional_count)
                );
            }
            if name.label_count() > self.apex_depth {
                let parent = node.name().parent().expect("below the apex");
                let parent = IndexedName::of(parent);
                assert!(self.exact(parent.as_bytes(), parent.hash(self.seed)).is_some(), "every ancestor has a node");
            }
        }
        assert_eq!(seen_count, self.name_count);
        assert!(self.slots.len() >= seen_count + seen_count / 3);
    }
}

/// An entry of the table of slots: the tag of a hash, and where the node of its name is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotEntry(u64);

impl SlotEntry {
    /// It leads nowhere.
    pub(crate) const NONE: SlotEntry = SlotEntry(EMPTY);

    /// Whether the node may be that of the name that has `hash`.
    #[inline]
    fn leads_to(self, hash: NameHash) -> bool {
        self.0 != EMPTY && (self.0 >> 32) as u32 == hash.tag()
    }

    #[inline]
    fn node_index(self) -> u32 {
        self.0 as u32
    }
}

/// What stands at one name.
#[derive(Clone, Copy, Debug)]
struct Node<'z> {
    at: usize,
    header: &'z [u8; NODE_HEADER_BYTES],
    /// All there is from the header on.
    stored: &'z [u8],
}

impl<'z> Node<'z> {
    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.header[0] & flag != 0
    }

    #[inline]
    fn name_bytes(&self) -> &'z [u8] {
        &self.stored[NODE_HEADER_BYTES..NODE_HEADER_BYTES + usize::from(self.header[1])]
    }

    #[inline]
    fn name(&self) -> Name<'z> {
        Name::of_stored(self.name_bytes())
    }

    fn type_count(&self) -> usize {
        usize::from(u16::from_le_bytes([self.header[2], self.header[3]]))
    }

    /// `ready`, which stands here.
    #[inline]
    fn found(&self, ready: PackedRrset<'z>) -> Found<'z> {
        Found { owner: self.name(), ready, node: self.at }
    }

    /// The DNAME that stands here.
    fn dname(&self) -> Lookup<'z> {
        Lookup::Dname(self.found(self.ready(Rtype::DNAME).expect("the flag says that it is there")))
    }

    fn link(&self) -> u32 {
        let &[_, _, _, _, link @ ..] = self.header;
        u32::from_le_bytes(link)
    }

    fn entries(&self) -> &'z [u8] {
        let start = NODE_HEADER_BYTES + usize::from(self.header[1]);
        &self.stored[start..start + self.type_count() * TYPE_ENTRY_BYTES]
    }

    fn types(&self) -> impl Iterator<Item = Rtype> + 'z {
        self.entries().chunks_exact(TYPE_ENTRY_BYTES).map(|entry| Rtype(u16::from_le_bytes([entry[0], entry[1]])))
    }

    /// The answer of one type.
    #[inline]
    fn ready(&self, rtype: Rtype) -> Option<PackedRrset<'z>> {
        let (entries, _) = self.entries().as_chunks::<TYPE_ENTRY_BYTES>();
        let key = |entry: &[u8; TYPE_ENTRY_BYTES]| u16::from_le_bytes([entry[0], entry[1]]);
        let index = match entries {
            // Few types are the common case: no halving is needed to find one of four.
            few if few.len() <= 4 => few.iter().position(|entry| key(entry) == rtype.0)?,
            many => many.binary_search_by_key(&rtype.0, key).ok()?,
        };
        Some(self.ready_of(&entries[index]))
    }

    fn first_ready(&self) -> Option<PackedRrset<'z>> {
        self.entries().first_chunk().map(|entry| self.ready_of(entry))
    }

    #[inline]
    fn ready_of(&self, entry: &[u8; TYPE_ENTRY_BYTES]) -> PackedRrset<'z> {
        let offset = u32::from_le_bytes([entry[2], entry[3], entry[4], entry[5]]);
        PackedRrset::read(&self.stored[offset as usize..])
    }
}
