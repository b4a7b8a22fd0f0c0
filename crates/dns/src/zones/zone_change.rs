//! Compares two versions of a zone, and adds the changes to the journal.

use crate::text::name::Name;
use crate::text::rtype::Rtype;
use crate::zones::journal::{JournalError, ZoneChange, ZoneJournal, is_later, put_record};
use crate::zones::layout::Node;
use crate::zones::packed_rrset::{CLASS_IN, PackedRrset};
use crate::zones::zone::Zone;
use alloc::vec::Vec;

/// A journal may be as large as the zone: a larger one is never sent. Smaller zones have this much.
const JOURNAL_BYTES_MIN: usize = 16 * 1024;

impl Zone {
    /// Continues the journal of `before`, the version that this one replaces. The journal has at most `bytes_max` in
    /// encoded form, and is not larger than the zone; it has no changes if it cannot be continued.
    pub fn continue_journal(&mut self, before: &Zone, bytes_max: usize) {
        let bytes_max = bytes_max.min(self.memory_bytes().max(JOURNAL_BYTES_MIN));
        let change = || change_between(before, self, bytes_max);
        self.journal = match (before.journal.can_continue(), self.serial == before.serial) {
            (_, true) if has_same_records(before, self) => before.journal.clone(),
            // Secondaries do not notice this change, so the journal is not continued.
            (_, true) => ZoneJournal::ambiguous(),
            (true, false) if is_later(self.serial, before.serial) => {
                change().map_or_else(ZoneJournal::default, |change| before.journal.with(change, bytes_max))
            }
            _ => ZoneJournal::default(),
        };
    }

    /// The encoded journal, if it has changes, or if the next change cannot be a part of it.
    pub fn encoded_journal(&self) -> Option<Vec<u8>> {
        let is_needed = !self.journal.is_empty() || !self.journal.can_continue();
        is_needed.then(|| self.journal.encode(self.digest()))
    }

    /// Takes the journal that [`Zone::encoded_journal`] of the same version has returned.
    ///
    /// # Errors
    /// Returns an error if the journal is damaged, or belongs to another version. In the second case secondaries may
    /// have that version with the serial of this one, so the next change is not for them.
    pub fn restore_journal(&mut self, encoded: &[u8]) -> Result<(), JournalError> {
        let decoded = ZoneJournal::decode(encoded, self.apex(), self.serial, || self.digest());
        if matches!(decoded, Err(JournalError::OtherVersion)) {
            self.journal = ZoneJournal::ambiguous();
        }
        self.journal = decoded?;
        Ok(())
    }
}

/// Whether both versions have the same records.
fn has_same_records(before: &Zone, after: &Zone) -> bool {
    let mut none = Vec::new();
    before.record_count == after.record_count && put_soa(before) == put_soa(after) && {
        put_missing(before, after, 0, &mut none).is_some() && none.is_empty()
    }
}

/// The changes from `before` to `after`; `None` if they have more than `bytes_max`.
fn change_between(before: &Zone, after: &Zone, bytes_max: usize) -> Option<ZoneChange> {
    let mut records = put_soa(before);
    put_missing(before, after, bytes_max, &mut records)?;
    records.extend(put_soa(after));
    put_missing(after, before, bytes_max, &mut records)?;
    ZoneChange::new(after.apex(), records)
}

/// The SOA record of `zone`.
fn put_soa(zone: &Zone) -> Vec<u8> {
    let (found, record) = zone.soa();
    let (mut rdata, mut out) = (Vec::new(), Vec::new());
    found.rrset.put_rdata(found.owner, &record, &mut rdata);
    put_record(&mut out, found.owner, Rtype::SOA, CLASS_IN, record.ttl(), &rdata);
    out
}

/// Appends the records of `zone`, except its SOA, that `other` lacks; `None` if `out` has more than `bytes_max` then.
fn put_missing(zone: &Zone, other: &Zone, bytes_max: usize, out: &mut Vec<u8>) -> Option<()> {
    if let Some(nodes) = zone.nodes_beside(other) {
        return nodes.iter().try_for_each(|node| {
            put_missing_of_node(zone, node, other.node_named(node.name()).as_ref(), out);
            (out.len() <= bytes_max).then_some(())
        });
    }
    let mut next = Some(zone.first_node());
    // Most names have the same neighbours in both versions.
    let mut probable = Some(other.first_node());
    while let Some(node) = next {
        let has_name = |other: &Node<'_>| other.name_bytes() == node.name_bytes();
        let same_name = probable.take_if(|other| has_name(other)).or_else(|| other.node_named(node.name()));
        if let Some(found) = &same_name {
            probable = other.node_after(found);
        }
        put_missing_of_node(zone, &node, same_name.as_ref(), out);
        if out.len() > bytes_max {
            return None;
        }
        next = zone.node_after(&node);
    }
    Some(())
}

/// Appends the records of `node` in `zone` that the other version's node of the same name lacks.
fn put_missing_of_node(zone: &Zone, node: &Node<'_>, same_name: Option<&Node<'_>>, out: &mut Vec<u8>) {
    let mut index = 0;
    while let Some(rrset) = node.rrset_at(index) {
        index += 1;
        let is_soa = rrset.rtype() == Rtype::SOA && node.index == zone.apex_node;
        let same_type = same_name.and_then(|node| node.rrset(rrset.rtype()));
        // Equal records in the same order have the same bytes.
        let is_same = same_type.is_some_and(|other| other.answer_bytes() == rrset.answer_bytes());
        if !is_soa && !is_same {
            put_missing_of_rrset(node, &rrset, same_type.as_ref(), out);
        }
    }
}

fn put_missing_of_rrset(node: &Node<'_>, rrset: &PackedRrset<'_>, other: Option<&PackedRrset<'_>>, out: &mut Vec<u8>) {
    let mut others = other.map_or_else(Vec::new, |other| records_of(node.name(), other));
    others.sort_unstable();
    for (ttl, rdata) in records_of(node.name(), rrset) {
        let record = (ttl, rdata);
        if others.binary_search(&record).is_err() {
            put_record(out, node.name(), rrset.rtype(), CLASS_IN, record.0, &record.1);
        }
    }
}

/// TTL and RDATA of the records.
fn records_of(owner: Name<'_>, rrset: &PackedRrset<'_>) -> Vec<([u8; 4], Vec<u8>)> {
    let mut records = Vec::with_capacity(usize::from(rrset.answer_count));
    let mut at = 0;
    while let Some(record) = rrset.answer_record(at) {
        let mut rdata = Vec::new();
        rrset.put_rdata(owner, &record, &mut rdata);
        records.push((record.ttl(), rdata));
        at = record.end;
    }
    records
}
