//! The chain of NSEC or NSEC3 records of a signed zone: finds the record that proves that a name does not exist, or
//! that a type does not exist at a name (RFC 4035 §3.1.3, RFC 5155 §7.2).

use crate::text::name::{IndexedLabels, Name, NameBuf};
use crate::text::rtype::Rtype;
use crate::zones::delta::Nodes;
use crate::zones::layout::{Node, NodeIndex, NodeRef, Proof};
use crate::zones::sorted_pages::SortedPages;
use alloc::boxed::Box;
use alloc::vec::Vec;
use data_encoding::BASE32_DNSSEC;
use sha1::{Digest, Sha1};

/// The hash algorithm SHA-1, the only one of NSEC3 (RFC 5155 §11).
pub(crate) const NSEC3_SHA1: u8 = 1;
/// Bytes of a SHA-1 hash in base 32: the first label of an owner of NSEC3 records.
const HASH_LABEL_BYTES: usize = 32;

/// The record type that denies existence.
#[derive(Clone, Debug)]
pub(crate) enum DenialChain {
    /// There are none.
    None,
    /// The owners of NSEC records, in the canonical order of names. The first is the apex.
    Nsec(NsecChain),
    Nsec3(Nsec3Chain),
}

impl DenialChain {
    /// Bytes of memory in addition to the value itself.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            DenialChain::None => 0,
            DenialChain::Nsec(chain) => chain.owners.memory_bytes(),
            DenialChain::Nsec3(chain) => chain.owners.memory_bytes() + chain.parameters.salt.len(),
        }
    }
}

impl DenialChain {
    /// The node of the record for `proof` of `node`, which is not an owner of only NSEC3 records.
    pub(crate) fn proof_of(&self, nodes: Nodes<'_>, node: &Node<'_>, proof: Proof) -> Option<NodeIndex> {
        let name = node.name();
        let of_wildcard = || NameBuf::child(b"*", name).ok();
        let point = node.node_ref(NodeRef::DelegationPoint);
        let is_authoritative = point.is_none() && node.node_ref(NodeRef::DnameAbove).is_none();
        let is_shown = is_authoritative || point == Some(node.index);
        match (self, proof) {
            (DenialChain::None, _) => None,
            (DenialChain::Nsec(_), Proof::Types) if is_shown && node.rrset(Rtype::NSEC).is_some() => Some(node.index),
            (DenialChain::Nsec(chain), Proof::NoWildcard) if is_shown && node.rrset(Rtype::NSEC).is_some() => {
                chain.covering(nodes, of_wildcard()?.as_name())
            }
            (DenialChain::Nsec(chain), Proof::Types) if is_authoritative => chain.covering(nodes, name),
            (DenialChain::Nsec3(chain), Proof::Types) if is_shown => chain.matching(nodes, name),
            (DenialChain::Nsec(chain), Proof::NoWildcard) if is_authoritative => {
                chain.covering(nodes, of_wildcard()?.as_name())
            }
            (DenialChain::Nsec3(chain), Proof::NoWildcard) if is_authoritative => {
                chain.covering(nodes, of_wildcard()?.as_name())
            }
            _ => None,
        }
    }
}

/// The owners of NSEC records, in the canonical order of names.
#[derive(Clone, Debug)]
pub(crate) struct NsecChain {
    /// Bytes of the name of the apex.
    apex_bytes: usize,
    owners: SortedPages<NsecOwner>,
}

#[derive(Clone, Copy, Debug)]
struct NsecOwner {
    /// Mostly enough to tell two names apart, without reading the nodes.
    prefix: NamePrefix,
    node: NodeIndex,
}

impl NsecChain {
    /// The chain of `owners`, which are sorted. The first is the apex.
    pub(crate) fn new(nodes: Nodes<'_>, owners: &[NodeIndex]) -> NsecChain {
        let apex_bytes = owners.first().map_or(0, |&apex| nodes.get(apex).name_bytes().len());
        let owner = |&node: &NodeIndex| {
            let labels = nodes.get(node).name().labels_below(apex_bytes);
            NsecOwner { prefix: NamePrefix::of(&IndexedLabels::of(labels)), node }
        };
        let owners: Vec<NsecOwner> = owners.iter().map(owner).collect();
        NsecChain { apex_bytes, owners: SortedPages::new(&owners) }
    }

    pub(crate) fn first(&self) -> Option<NodeIndex> {
        self.owners.first().map(|owner| owner.node)
    }

    /// The owner of the NSEC record that covers `name`, which is in lower case and below the apex, or matches it.
    pub(crate) fn covering(&self, nodes: Nodes<'_>, name: Name<'_>) -> Option<NodeIndex> {
        self.owners.last_before(self.is_up_to(nodes, name)).map(|owner| owner.node)
    }

    pub(crate) fn insert(&mut self, nodes: Nodes<'_>, node: NodeIndex) {
        let name = nodes.get(node).name();
        let is_before = self.is_up_to(nodes, name);
        let prefix = NamePrefix::of(&IndexedLabels::of(name.labels_below(self.apex_bytes)));
        self.owners.insert_at(NsecOwner { prefix, node }, is_before);
    }

    /// Removes a node, if it exists.
    pub(crate) fn remove(&mut self, nodes: Nodes<'_>, node: NodeIndex) {
        let name = nodes.get(node).name();
        if self.covering(nodes, name) == Some(node) {
            let is_before = self.is_up_to(nodes, name);
            self.owners.remove_before(is_before);
        }
    }

    /// Whether an owner's name is `name` or precedes it.
    fn is_up_to<'n>(&self, nodes: Nodes<'n>, name: Name<'n>) -> impl Fn(&NsecOwner) -> bool + use<'n> {
        let apex_bytes = self.apex_bytes;
        let labels = IndexedLabels::of(name.labels_below(apex_bytes));
        let prefix = NamePrefix::of(&labels);
        move |owner| {
            let cmp_names = || labels.canonical_cmp(nodes.get(owner.node).name().labels_below(apex_bytes));
            prefix.cmp(&owner.prefix).then_with(cmp_names).is_ge()
        }
    }
}

/// The first bytes of the labels of a name from the apex down, with a zero after each label. The order of different
/// prefixes is the canonical order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NamePrefix([u32; 2]);

impl NamePrefix {
    fn of(labels: &IndexedLabels<'_>) -> NamePrefix {
        let mut prefix = [[0; size_of::<u32>()]; 2];
        let bytes = prefix.as_flattened_mut();
        let mut at = 0;
        for label in labels.iter_from_root() {
            for &byte in label {
                let Some(place) = bytes.get_mut(at) else { break };
                // A byte that is not above the end of a label and 1 ends the prefix.
                *place = byte.max(1);
                if byte <= 1 {
                    return NamePrefix(prefix.map(u32::from_be_bytes));
                }
                at += 1;
            }
            at += 1;
        }
        NamePrefix(prefix.map(u32::from_be_bytes))
    }
}

/// The owners of NSEC3 records with the same parameters, in the order of their hashes.
#[derive(Clone, Debug)]
pub(crate) struct Nsec3Chain {
    parameters: Nsec3Parameters,
    owners: SortedPages<Nsec3Owner>,
}

#[derive(Clone, Copy, Debug)]
struct Nsec3Owner {
    /// The first bytes of the hash in base 32: almost always enough to tell two hashes apart, without reading the
    /// nodes.
    prefix: u32,
    node: NodeIndex,
}

impl Nsec3Chain {
    /// The chain of `owners`.
    pub(crate) fn new(parameters: Nsec3Parameters, nodes: Nodes<'_>, owners: &[NodeIndex]) -> Nsec3Chain {
        let prefix = |node: NodeIndex| prefix_of(nodes.get(node).hash_label());
        let mut owners: Vec<Nsec3Owner> =
            owners.iter().map(|&node| Nsec3Owner { prefix: prefix(node), node }).collect();
        owners.sort_by_key(|owner| nodes.get(owner.node).hash_label());
        Nsec3Chain { parameters, owners: SortedPages::new(&owners) }
    }

    pub(crate) fn parameters(&self) -> &Nsec3Parameters {
        &self.parameters
    }

    /// The owner of the record that matches `name`, which is in lower case.
    pub(crate) fn matching(&self, nodes: Nodes<'_>, name: Name<'_>) -> Option<NodeIndex> {
        let label = self.parameters.hash_label(name);
        let owner = self.last_up_to(nodes, &label)?;
        (nodes.get(owner).hash_label() == label).then_some(owner)
    }

    /// The owner of the record that covers `name`, which is in lower case. If a record matches the name, this is its
    /// owner.
    pub(crate) fn covering(&self, nodes: Nodes<'_>, name: Name<'_>) -> Option<NodeIndex> {
        self.covering_label(nodes, &self.parameters.hash_label(name))
    }

    /// The owner of the record that covers the hash with this label, or matches it.
    pub(crate) fn covering_label(&self, nodes: Nodes<'_>, label: &[u8]) -> Option<NodeIndex> {
        // The last record of the chain also covers the hashes before the first one (RFC 5155 §3.1.7).
        self.last_up_to(nodes, label).or_else(|| self.owners.last().map(|owner| owner.node))
    }

    /// The owner with this name, in lower case.
    pub(crate) fn owner_named(&self, nodes: Nodes<'_>, name: Name<'_>) -> Option<NodeIndex> {
        let owner = self.last_up_to(nodes, name.labels().next()?)?;
        (nodes.get(owner).name() == name).then_some(owner)
    }

    pub(crate) fn insert(&mut self, nodes: Nodes<'_>, owner: NodeIndex) {
        let label = nodes.get(owner).hash_label();
        let owner = Nsec3Owner { prefix: prefix_of(label), node: owner };
        self.owners.insert_at(owner, |other| nodes.get(other.node).hash_label() < label);
    }

    /// Removes a node, if it exists.
    pub(crate) fn remove(&mut self, nodes: Nodes<'_>, owner: NodeIndex) {
        let label = nodes.get(owner).hash_label();
        if self.last_up_to(nodes, label) == Some(owner) {
            self.owners.remove_before(|other| nodes.get(other.node).hash_label() <= label);
        }
    }

    /// The last owner whose hash is at most the hash in `label`.
    fn last_up_to(&self, nodes: Nodes<'_>, label: &[u8]) -> Option<NodeIndex> {
        let prefix = prefix_of(label);
        let is_before = |owner: &Nsec3Owner| {
            owner.prefix < prefix || owner.prefix == prefix && nodes.get(owner.node).hash_label() <= label
        };
        self.owners.last_before(is_before).map(|owner| owner.node)
    }
}

/// The first four bytes of a label as a number, which has the order of the labels.
fn prefix_of(label: &[u8]) -> u32 {
    label.first_chunk().map_or(0, |&bytes| u32::from_be_bytes(bytes))
}

impl<'z> Node<'z> {
    /// The first label of an owner of NSEC3 records.
    fn hash_label(&self) -> &'z [u8] {
        self.name().labels().next().unwrap_or_default()
    }
}

/// The parameters for hashing names (RFC 5155 §3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nsec3Parameters {
    pub(crate) iterations: u16,
    pub(crate) salt: Box<[u8]>,
}

impl Nsec3Parameters {
    /// The parameters at the start of the RDATA of NSEC3 and NSEC3PARAM records. `None` for an unknown hash algorithm.
    pub(crate) fn read(rdata: &[u8]) -> Option<Nsec3Parameters> {
        let (&[algorithm, _, iterations_high, iterations_low, salt_length], rest) = rdata.split_first_chunk()?;
        let salt = rest.get(..usize::from(salt_length))?.into();
        let iterations = u16::from_be_bytes([iterations_high, iterations_low]);
        (algorithm == NSEC3_SHA1).then_some(Nsec3Parameters { iterations, salt })
    }

    /// The hash of `name`, which is in lower case, in base 32 (RFC 5155 §5).
    pub(crate) fn hash_label(&self, name: Name<'_>) -> [u8; HASH_LABEL_BYTES] {
        let salted = |bytes: &[u8]| Sha1::new().chain_update(bytes).chain_update(&self.salt).finalize();
        let mut hash = salted(name.as_bytes());
        for _ in 0..self.iterations {
            hash = salted(&hash);
        }
        let mut label = [0; HASH_LABEL_BYTES];
        BASE32_DNSSEC.encode_mut(&hash, &mut label);
        label
    }
}

/// Whether `name` can be an owner of NSEC3 records in the zone at `apex`: one label, a SHA-1 hash in base 32, below it.
pub(crate) fn is_nsec3_owner(name: Name<'_>, apex: Name<'_>) -> bool {
    let is_hash = |label: &[u8]| label.len() == HASH_LABEL_BYTES && BASE32_DNSSEC.decode_len(label.len()).is_ok();
    let is_base32 =
        |label: &[u8]| label.iter().all(|byte| matches!(byte.to_ascii_lowercase(), b'0'..=b'9' | b'a'..=b'v'));
    let label = name.labels().next().unwrap_or_default();
    is_hash(label) && is_base32(label) && name.parent() == Some(apex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_prefixes_have_the_order_of_their_names() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut name = || {
            let mut bytes = Vec::new();
            for _ in 0..random.usize(..4) {
                let length = random.u8(1..5);
                bytes.push(length);
                bytes.extend((0..length).map(|_| [0, 1, 2, b'a', 255][random.usize(..5)]));
            }
            bytes.push(0);
            bytes
        };
        let mut different_count = 0;
        for _ in 0..20_000 {
            let (one, other) = (name(), name());
            let [one_name, other_name] = [&one, &other].map(|bytes| Name::parse(bytes).expect("a name"));
            let prefixes = [one_name, other_name].map(|name| NamePrefix::of(&IndexedLabels::of(name.labels_below(1))));
            let order = prefixes[0].cmp(&prefixes[1]);
            different_count += usize::from(order.is_ne());
            assert!(order.is_eq() || order == one_name.canonical_cmp(other_name), "{one:?} {other:?}; seed {seed}");
        }
        assert!(different_count > 10_000, "{different_count}; seed {seed}");
    }

    /// RFC 5155 appendix A: 12 iterations, salt aabbccdd.
    #[test]
    fn hashes_are_those_of_rfc_5155_appendix_a() {
        let parameters = Nsec3Parameters { iterations: 12, salt: [0xaa, 0xbb, 0xcc, 0xdd].into() };
        let cases: [(&[u8], &[u8]); 4] = [
            (b"\x07example\0", b"0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"),
            (b"\x01a\x07example\0", b"35mthgpgcu1qg68fab165klnsnk3dpvl"),
            (b"\x01*\x01w\x07example\0", b"r53bq7cc2uvmubfu5ocmm6pers9tk9en"),
            (b"\x01y\x01w\x07example\0", b"ji6neoaepv8b5o6k4ev33abha8ht9fgc"),
        ];
        for (name, label) in cases {
            assert_eq!(parameters.hash_label(Name::parse(name).expect("a name")), label);
        }
    }
}
