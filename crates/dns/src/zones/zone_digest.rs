//! A number for a zone's records, in any order: the sum of a hash of each. The number distinguishes an operator's
//! versions, and does not protect against forged ones.

use crate::text::name::Name;
use crate::zones::layout::Node;
use crate::zones::packed_rrset::AnswerRecord;
use crate::zones::zone::Zone;
use crate::zones::zone_walk::{Position, Visit};
use alloc::vec::Vec;

impl Zone {
    /// The number for the records of this version.
    pub(crate) fn digest(&self) -> u64 {
        self.links.as_ref().map_or_else(|| self.computed_digest(), |links| links.digest)
    }

    /// Whether this version has the records of `other`, in any order.
    pub fn has_same_records(&self, other: &Zone) -> bool {
        self.serial() == other.serial()
            && self.record_count() == other.record_count()
            && self.digest() == other.digest()
    }

    pub(crate) fn computed_digest(&self) -> u64 {
        let mut sum = 0_u64;
        let mut rdata = Vec::new();
        Position::Start.walk(self, |found, record| {
            rdata.clear();
            found.rrset.put_rdata(found.owner, record, &mut rdata);
            sum = sum.wrapping_add(hash_of(found.owner, record, &rdata));
            Visit::Next
        });
        sum
    }
}

/// The part of the digest that the records of `node` have.
pub(crate) fn digest_of_node(node: &Node<'_>) -> u64 {
    let mut sum = 0_u64;
    let mut rdata = Vec::new();
    node.each_record(|rrset, record| {
        rdata.clear();
        rrset.put_rdata(node.name(), record, &mut rdata);
        sum = sum.wrapping_add(hash_of(node.name(), record, &rdata));
    });
    sum
}

/// FNV-1a.
fn hash_of(owner: Name<'_>, record: &AnswerRecord<'_>, rdata: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    owner.as_bytes().iter().chain(record.fixed).chain(rdata).fold(0xcbf2_9ce4_8422_2325, step)
}
