//! The nodes that a change of a name affects: for each name of a zone, the nodes of the names below it, and of RRsets
//! that refer to it. Only zones that are changed while they are served have such links.

use crate::zones::layout::NodeIndex;
use crate::zones::name_hash::NameHash;
use crate::zones::sorted_pages::SortedPages;
use alloc::vec::Vec;

/// Nodes by the hash of a name, which is stored in part: a name may have another name's nodes as well.
#[derive(Clone, Debug)]
pub(crate) struct NodesByName(SortedPages<u64>);

impl NodesByName {
    pub(crate) fn new(entries: &[(NameHash, NodeIndex)]) -> NodesByName {
        let mut numbers: Vec<u64> = entries.iter().map(|&(hash, node)| number_of(hash, node)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        NodesByName(SortedPages::new(&numbers))
    }

    /// The nodes for the name with this hash, and perhaps others.
    pub(crate) fn of(&self, hash: NameHash) -> impl Iterator<Item = NodeIndex> {
        let from = number_of(hash, NodeIndex(0));
        self.0
            .range_from(from)
            .take_while(move |number| number >> 32 == from >> 32)
            .map(|number| NodeIndex(number as u32))
    }

    pub(crate) fn insert(&mut self, hash: NameHash, node: NodeIndex) {
        self.0.insert(number_of(hash, node));
    }

    pub(crate) fn remove(&mut self, hash: NameHash, node: NodeIndex) {
        self.0.remove(number_of(hash, node));
    }
}

fn number_of(hash: NameHash, node: NodeIndex) -> u64 {
    u64::from(hash.tag()) << 32 | u64::from(node.0)
}

/// The links between the names of one version.
#[derive(Clone, Debug)]
pub(crate) struct ZoneLinks {
    /// By parent, the nodes of its children.
    pub(crate) children: NodesByName,
    /// By target in the zone, the nodes of the RRsets whose additional section has its addresses. A target without a
    /// node is listed by its own name and by its ancestors' names.
    pub(crate) referrers: NodesByName,
    /// When the signatures expire that the first expiration of the zone is among: the time in the upper half, the node
    /// in the lower.
    pub(crate) expirations: SortedPages<u64>,
    /// Whether there are owners of NSEC3 records that are not in the chain: look-ups do not find them.
    pub(crate) has_other_nsec3: bool,
    /// The digest of the records.
    pub(crate) digest: u64,
}

impl ZoneLinks {
    /// Bytes of memory, with those that other versions share.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<ZoneLinks>()
            + self.children.0.memory_bytes()
            + self.referrers.0.memory_bytes()
            + self.expirations.memory_bytes()
    }
}
