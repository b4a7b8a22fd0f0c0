//! Walks over the records of a zone, from any record on, for what shows or transfers all of them.

use crate::packed_rrset::{PackedRecord, PackedRecords};
use crate::rtype::Rtype;
use crate::zone::{FoundRrset, Zone};

/// A place between two records of a zone. The SOA comes first, then all others in the order of their names in the zone file,
/// and of the types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Before the SOA.
    Start,
    /// Before a record of the node at this offset.
    At { node: usize, rrset: usize, record: usize },
    /// After the last record.
    End,
}

/// What a visitor of records wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    Next,
    /// To stop before this record.
    Stop,
}

impl Position {
    /// Calls `visit` with the records from here on, until it stops; the new position is before the record for which it did.
    pub(crate) fn walk<'z>(
        &mut self,
        zone: &'z Zone,
        mut visit: impl FnMut(&FoundRrset<'z>, &PackedRecord<'z>, &PackedRecords<'z>) -> Visit,
    ) {
        let apex = zone.first_node();
        if *self == Position::Start {
            let soa = zone.soa();
            let records = soa.rrset.answer_records_from(soa.owner, 0);
            let record = records.clone().next().expect("an RRset has a record");
            if visit(&soa, &record, &records) == Visit::Stop {
                return;
            }
            *self = Position::At { node: apex.at, rrset: 0, record: 0 };
        }
        let Position::At { node, mut rrset, mut record } = *self else { return };
        let mut node = zone.node_at(node);
        loop {
            while let Some(packed) = node.rrset_at(rrset) {
                if node.at != apex.at || packed.rtype() != Rtype::SOA {
                    let found = FoundRrset { owner: node.name(), rrset: packed, node: node.at };
                    let mut records = packed.answer_records_from(found.owner, record);
                    let all = records.clone();
                    while let Some(next) = records.next() {
                        if visit(&found, &next, &all) == Visit::Stop {
                            *self = Position::At { node: node.at, rrset, record };
                            return;
                        }
                        record = records.offset();
                    }
                }
                (rrset, record) = (rrset + 1, 0);
            }
            match zone.node_after(&node) {
                Some(next) => (node, rrset) = (next, 0),
                None => break,
            }
        }
        *self = Position::End;
    }
}
