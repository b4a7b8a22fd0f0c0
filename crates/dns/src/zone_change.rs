//! Compares two versions of a zone, and continues the journal by what has changed.

use crate::journal::{JournalError, ZoneChange, ZoneJournal, is_later, put_record};
use crate::layout::Node;
use crate::name::Name;
use crate::packed_rrset::{AnswerRecord, CLASS_IN, PackedRrset, RdataPart};
use crate::rtype::Rtype;
use crate::zone::Zone;
use crate::zone_walk::{Position, Visit};
use alloc::vec::Vec;
use core::convert::Infallible;

/// A journal may be as large as the zone: a larger one is never sent. Smaller zones have this much.
const JOURNAL_BYTES_MIN: usize = 16 * 1024;

impl Zone {
    /// Continues the journal of `before`, the version that this one replaces. It has at most `bytes_max` in encoded form, and is
    /// not larger than the zone; without changes if it cannot be continued.
    pub fn continue_journal(&mut self, before: &Zone, bytes_max: usize) {
        let bytes_max = bytes_max.min(self.memory_bytes().max(JOURNAL_BYTES_MIN));
        let change = || change_between(before, self, bytes_max);
        self.journal = match (before.journal.can_continue(), self.serial == before.serial) {
            (_, true) if has_same_records(before, self) => before.journal.clone(),
            // Secondaries do not notice this change: what follows is not for them.
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
        is_needed.then(|| self.journal.encode(digest(self)))
    }

    /// Takes the journal that [`Zone::encoded_journal`] of the same version has returned.
    ///
    /// # Errors
    /// It is damaged, or of another version. In the second case secondaries may have that version with the serial of this one, so the
    /// next change is not for them.
    pub fn restore_journal(&mut self, encoded: &[u8]) -> Result<(), JournalError> {
        let decoded = ZoneJournal::decode(encoded, self.apex(), self.serial, || digest(self));
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

/// What leads from `before` to `after`; `None` if it has more than `bytes_max`.
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
    put_rdata(found.owner, &found.rrset, &record, &mut rdata);
    put_record(&mut out, found.owner, Rtype::SOA, CLASS_IN, ttl_of(&record), &rdata);
    out
}

/// Appends the records of `zone`, besides its SOA, that `other` does not have; `None` if `out` has more than `bytes_max` then.
fn put_missing(zone: &Zone, other: &Zone, bytes_max: usize, out: &mut Vec<u8>) -> Option<()> {
    let mut next = Some(zone.first_node());
    // Most names have the same neighbours in both versions.
    let mut probable = Some(other.first_node());
    while let Some(node) = next {
        let has_name = |other: &Node<'_>| other.name_bytes() == node.name_bytes();
        let same_name = probable.take_if(|other| has_name(other)).or_else(|| other.node_named(node.name()));
        if let Some(found) = &same_name {
            probable = other.node_after(found);
        }
        let mut index = 0;
        while let Some(rrset) = node.rrset_at(index) {
            index += 1;
            let is_soa = rrset.rtype() == Rtype::SOA && node.at == zone.first_node().at;
            let same_type = same_name.as_ref().and_then(|node| node.rrset(rrset.rtype()));
            // The same records in the same order have the same bytes.
            let is_same = same_type.is_some_and(|other| other.answer_bytes() == rrset.answer_bytes());
            if !is_soa && !is_same {
                put_missing_of_rrset(&node, &rrset, same_type.as_ref(), out);
                if out.len() > bytes_max {
                    return None;
                }
            }
        }
        next = zone.node_after(&node);
    }
    Some(())
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
        put_rdata(owner, rrset, &record, &mut rdata);
        records.push((ttl_of(&record), rdata));
        at = record.end;
    }
    records
}

fn ttl_of(record: &AnswerRecord<'_>) -> [u8; 4] {
    *record.fixed[4..].first_chunk().expect("four bytes")
}

/// Appends the RDATA of a record, with names that are not compressed.
fn put_rdata(owner: Name<'_>, rrset: &PackedRrset<'_>, record: &AnswerRecord<'_>, out: &mut Vec<u8>) {
    let put = |part: RdataPart<'_>| {
        out.extend_from_slice(match part {
            RdataPart::Bytes(bytes) => bytes,
            RdataPart::Name(ref name) => name.as_bytes(),
        });
        Ok::<(), Infallible>(())
    };
    let Ok(()) = rrset.records(owner).each_part(record.rtype, record.rdata_start..record.end, put);
}

/// A number for the records of `zone`, in any order: the sum of a hash of each. It tells versions of an operator apart, and is no
/// protection against forged ones.
fn digest(zone: &Zone) -> u64 {
    let mut sum = 0_u64;
    let mut rdata = Vec::new();
    Position::Start.walk(zone, |found, record| {
        rdata.clear();
        put_rdata(found.owner, &found.rrset, record, &mut rdata);
        // FNV-1a.
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let bytes = found.owner.as_bytes().iter().chain(record.fixed).chain(&rdata);
        sum = sum.wrapping_add(bytes.fold(0xcbf2_9ce4_8422_2325, step));
        Visit::Next
    });
    sum
}
