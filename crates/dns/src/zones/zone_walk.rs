//! Walks over a zone's records, from any record on, to show or transfer all of them.

use crate::text::rtype::Rtype;
use crate::zones::layout::NodeIndex;
use crate::zones::packed_rrset::AnswerRecord;
use crate::zones::zone::{FoundRrset, Zone};

/// A place between two records of a zone. The SOA comes first, then all others in the order of nodes and of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// The position before the SOA.
    Start,
    /// The position before a record of this node.
    At { node: NodeIndex, rrset: usize, record: usize },
    /// The position after the last record.
    End,
}

/// The next step that a visitor of records requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    Next,
    /// To stop before this record.
    Stop,
}

impl Position {
    /// Calls `visit` with the records from here on, until it stops; the new position is before the record at which it
    /// stopped.
    #[inline]
    pub(crate) fn walk<'z>(
        &mut self,
        zone: &'z Zone,
        mut visit: impl FnMut(&FoundRrset<'z>, &AnswerRecord<'z>) -> Visit,
    ) {
        if *self == Position::Start {
            let (soa, record) = zone.soa();
            if visit(&soa, &record) == Visit::Stop {
                return;
            }
            *self = Position::At { node: zone.first_node().index, rrset: 0, record: 0 };
        }
        let Position::At { node, mut rrset, mut record } = *self else { return };
        let mut node = zone.node(node);
        loop {
            while let Some(packed) = node.rrset_at(rrset) {
                if node.index != zone.apex_node || packed.rtype() != Rtype::SOA {
                    let found = FoundRrset { owner: node.name(), rrset: packed, node: node.index };
                    while let Some(next) = packed.answer_record(record) {
                        if visit(&found, &next) == Visit::Stop {
                            *self = Position::At { node: node.index, rrset, record };
                            return;
                        }
                        record = next.end;
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
