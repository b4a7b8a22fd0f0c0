//! A zone's journal: the changes that have led to its version, oldest first, for secondary servers with an earlier one
//! (RFC 1995). A journal is immutable, and versions share its changes.
//!
//! A change has the records of RFC 1995 §4, in wire form without compression: the SOA before, the removed records, the
//! SOA after, the added records.

use crate::text::name::{Name, NameBuf};
use crate::text::rdata;
use crate::text::rtype::Rtype;
use crate::text::zonefile::{Position, Record};
use crate::zones::packed_rrset::{CLASS_IN, RECORD_FIXED_BYTES};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use sha2::{Digest, Sha256};

/// The start of the encoded form. A new format gets a new number.
const MAGIC: [u8; 8] = *b"SDLJ\0\0\0\x02";
/// Bytes of the length before each change.
const LENGTH_BYTES: usize = 4;
/// Bytes of the hash at the end.
const HASH_BYTES: usize = 32;
/// Bytes of the digest of the zone, after the magic.
const DIGEST_BYTES: usize = 8;
/// Bytes after the digest that say whether the end is ambiguous: 0 or 1.
const END_BYTES: usize = 1;

/// Whether `serial` is later than `other` (RFC 1982 §3.2).
pub fn is_later(serial: u32, other: u32) -> bool {
    serial.wrapping_sub(other).cast_signed() > 0
}

/// The serial after as many steps as this. Steps leave out 0, since some servers take it for no serial; a serial that
/// is written as 0 stays so without a step.
pub fn raised_serial(serial: u32, steps: u32) -> u32 {
    let raised = serial.wrapping_add(steps);
    // A lower number means that the counter has wrapped around.
    if raised < serial { raised.wrapping_add(1) } else { raised }
}

/// Whether records of this type can be in a zone: question types and meta types (RFC 6895 §3.1) cannot.
pub(crate) fn is_in_zones(rtype: Rtype) -> bool {
    rtype.0 != 0 && rtype != Rtype::OPT && !(128..=255).contains(&rtype.0)
}

/// A record in wire form without compression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireRecord<'b> {
    pub(crate) owner: Name<'b>,
    pub(crate) rtype: Rtype,
    /// Type, class, TTL and length.
    pub(crate) fixed: &'b [u8; RECORD_FIXED_BYTES],
    pub(crate) rdata: &'b [u8],
    /// Bytes of the whole journal.
    pub(crate) length_bytes: usize,
}

impl<'b> WireRecord<'b> {
    /// The record at the start of `bytes`.
    pub(crate) fn read(bytes: &'b [u8]) -> Option<WireRecord<'b>> {
        let owner = Name::parse(bytes).ok()?;
        let (fixed, rest) = bytes[owner.length_bytes()..].split_first_chunk::<RECORD_FIXED_BYTES>()?;
        let rdata = rest.get(..usize::from(u16::from_be_bytes([fixed[8], fixed[9]])))?;
        let rtype = Rtype(u16::from_be_bytes([fixed[0], fixed[1]]));
        let length_bytes = owner.length_bytes() + RECORD_FIXED_BYTES + rdata.len();
        Some(WireRecord { owner, rtype, fixed, rdata, length_bytes })
    }

    pub(crate) fn class(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    /// The record in the form of the zone file parser.
    pub(crate) fn record(&self) -> Record<'b> {
        let position = Position { file_index: 0, line: 0, column: 1 };
        let ttl_s = u32::from_be_bytes(*self.fixed[4..].first_chunk().expect("four bytes"));
        Record { position, owner: self.owner, rtype: self.rtype, ttl_s, rdata: self.rdata }
    }

    /// The serial, if this is the SOA of the zone at `apex`.
    fn serial(&self, apex: Name<'_>) -> Option<u32> {
        if self.rtype != Rtype::SOA || !self.owner.eq_ignore_case(apex) {
            return None;
        }
        rdata::serial_of(self.rdata)
    }
}

/// Appends a record.
pub(crate) fn put_record(out: &mut Vec<u8>, owner: Name<'_>, rtype: Rtype, class: u16, ttl: [u8; 4], rdata: &[u8]) {
    out.extend_from_slice(owner.as_bytes());
    out.extend_from_slice(&rtype.0.to_be_bytes());
    out.extend_from_slice(&class.to_be_bytes());
    out.extend_from_slice(&ttl);
    out.extend_from_slice(&(rdata.len() as u16).to_be_bytes());
    out.extend_from_slice(rdata);
}

/// The role of a record in a transfer or change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordRole {
    /// A record of the whole zone.
    OfZone,
    /// A record that a change removes.
    Removed,
    /// A record that a change adds.
    Added,
}

/// The changes from one version to the next.
#[derive(Debug, PartialEq, Eq)]
pub struct ZoneChange {
    from_serial: u32,
    to_serial: u32,
    records: Vec<u8>,
}

impl ZoneChange {
    /// The change of the zone at `apex` with these records; `None` if they are not in the form of this module.
    pub(crate) fn new(apex: Name<'_>, records: Vec<u8>) -> Option<ZoneChange> {
        let mut serials = [None; 2];
        let mut at = 0;
        while at < records.len() {
            let record = WireRecord::read(&records[at..])?;
            let is_first = at == 0;
            at += record.length_bytes;
            let serial = record.serial(apex);
            if is_first != (serials[0].is_none() && serial.is_some()) {
                return None;
            }
            if let Some(serial) = serial {
                *serials.iter_mut().find(|place| place.is_none())? = Some(serial);
            }
            let is_of_zone = record.owner.is_at_or_below(apex)
                && is_in_zones(record.rtype)
                && record.fixed[2..4] == CLASS_IN.to_be_bytes();
            if !is_of_zone || rdata::check(record.rtype, record.rdata).is_err() {
                return None;
            }
        }
        let [Some(from_serial), Some(to_serial)] = serials else { return None };
        is_later(to_serial, from_serial).then_some(ZoneChange { from_serial, to_serial, records })
    }

    /// The serial of the version from which the change continues.
    pub fn from_serial(&self) -> u32 {
        self.from_serial
    }

    /// The serial of the version that the change leads to.
    pub fn to_serial(&self) -> u32 {
        self.to_serial
    }

    /// Calls `take` with each removed record, and then with each that is added.
    pub fn each_record(&self, mut take: impl FnMut(RecordRole, &Record<'_>)) {
        let (mut at, mut soa_count) = (0, 0);
        while let Some(record) = self.record_at(at) {
            at += record.length_bytes;
            soa_count += usize::from(record.rtype == Rtype::SOA);
            take(if soa_count == 1 { RecordRole::Removed } else { RecordRole::Added }, &record.record());
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.records
    }

    /// The record at `at`: 0, or the end of another one; `None` at the end.
    pub(crate) fn record_at(&self, at: usize) -> Option<WireRecord<'_>> {
        WireRecord::read(self.records.get(at..).filter(|rest| !rest.is_empty())?)
    }

    fn encoded_bytes(&self) -> usize {
        LENGTH_BYTES + self.records.len()
    }
}

/// Collects the records of a change in any order.
#[derive(Debug)]
pub struct ZoneChangeBuilder {
    apex: NameBuf,
    /// The SOA before and after, each with the records that are removed or added.
    parts: [(Vec<u8>, Vec<u8>); 2],
}

impl ZoneChangeBuilder {
    /// No change of the zone at `apex` yet.
    pub fn new(apex: Name<'_>) -> ZoneChangeBuilder {
        ZoneChangeBuilder { apex: apex.to_owned(), parts: Default::default() }
    }

    /// Adds a record that is removed or added.
    pub fn add(&mut self, role: RecordRole, record: &Record<'_>) {
        let is_soa = record.rtype == Rtype::SOA && record.owner.eq_ignore_case(self.apex.as_name());
        let (soa, others) = &mut self.parts[usize::from(role != RecordRole::Removed)];
        let out = if is_soa { soa } else { others };
        put_record(out, record.owner, record.rtype, CLASS_IN, record.ttl_s.to_be_bytes(), record.rdata);
    }

    /// The change; `None` unless it has one old SOA and one later new SOA, and only records that can be in the zone.
    pub fn finish(self) -> Option<ZoneChange> {
        let [(soa_before, removed), (soa_after, added)] = self.parts;
        ZoneChange::new(self.apex.as_name(), [soa_before, removed, soa_after, added].concat())
    }
}

/// The reason why an encoded journal is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalError {
    /// The journal is truncated, or was changed.
    Damaged,
    /// The journal has led to another version of the zone.
    OtherVersion,
}

impl fmt::Display for JournalError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            JournalError::Damaged => "it is damaged",
            JournalError::OtherVersion => "it is for another version of the zone",
        })
    }
}

/// The changes that have led to a version of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneJournal {
    /// Each change leads to the version from which the next continues.
    changes: Vec<Arc<ZoneChange>>,
    /// Whether another version had the same serial. Secondaries may have that one, so the next change is not for them.
    has_ambiguous_end: bool,
}

impl ZoneJournal {
    /// A journal without changes, for a version whose serial another version had as well.
    pub(crate) fn ambiguous() -> ZoneJournal {
        ZoneJournal { changes: Vec::new(), has_ambiguous_end: true }
    }

    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The serial of the version from which the first change continues, and the number of changes.
    pub fn first_change(&self) -> Option<(u32, usize)> {
        self.changes.first().map(|change| (change.from_serial, self.changes.len()))
    }

    /// Whether the next change can be a part of the journal.
    pub(crate) fn can_continue(&self) -> bool {
        !self.has_ambiguous_end
    }

    /// This journal with a further change. The oldest changes are dropped so that the encoded journal fits into
    /// `bytes_max`.
    pub(crate) fn with(&self, change: ZoneChange, bytes_max: usize) -> ZoneJournal {
        let to_serial = change.to_serial;
        let mut changes = self.changes.clone();
        changes.push(Arc::new(change));
        let mut journal = ZoneJournal { changes, has_ambiguous_end: false };
        let mut rest_bytes = bytes_max.saturating_sub(MAGIC.len() + DIGEST_BYTES + END_BYTES + HASH_BYTES);
        let fits = |change: &&Arc<ZoneChange>| {
            let remaining = rest_bytes.checked_sub(change.encoded_bytes());
            rest_bytes = remaining.unwrap_or(0);
            // A serial does not occur twice either, after a wrap.
            remaining.is_some() && is_later(to_serial, change.from_serial)
        };
        let count = journal.changes.iter().rev().take_while(fits).count();
        journal.changes.drain(..journal.changes.len() - count);
        journal
    }

    /// The index of the change that continues from the version with `serial`.
    pub(crate) fn index_of(&self, serial: u32) -> Option<usize> {
        self.changes.iter().position(|change| change.from_serial == serial)
    }

    pub(crate) fn change(&self, index: usize) -> Option<&ZoneChange> {
        self.changes.get(index).map(|change| &**change)
    }

    /// Encodes the journal of the version with this digest.
    pub(crate) fn encode(&self, digest: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&digest.to_be_bytes());
        out.push(u8::from(self.has_ambiguous_end));
        for change in &self.changes {
            out.extend_from_slice(&(change.records.len() as u32).to_be_bytes());
            out.extend_from_slice(&change.records);
        }
        let hash = Sha256::digest(&out);
        out.extend_from_slice(&hash);
        out
    }

    /// The encoded journal of the version with this digest and serial of the zone at `apex`.
    ///
    /// # Errors
    /// Returns an error if `encoded` is not such a journal.
    pub(crate) fn decode(
        encoded: &[u8],
        apex: Name<'_>,
        serial: u32,
        digest: impl FnOnce() -> u64,
    ) -> Result<ZoneJournal, JournalError> {
        const DAMAGED: JournalError = JournalError::Damaged;
        let end = encoded.len().checked_sub(HASH_BYTES).ok_or(DAMAGED)?;
        let (content, hash) = encoded.split_at(end);
        if Sha256::digest(content)[..] != *hash {
            return Err(DAMAGED);
        }
        let rest = content.strip_prefix(&MAGIC).ok_or(DAMAGED)?;
        let (own_digest, rest) = rest.split_first_chunk::<DIGEST_BYTES>().ok_or(DAMAGED)?;
        let (&[end], mut rest) = rest.split_first_chunk::<END_BYTES>().ok_or(DAMAGED)?;
        let mut changes: Vec<Arc<ZoneChange>> = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<LENGTH_BYTES>() {
            let (records, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize).ok_or(DAMAGED)?;
            let change = ZoneChange::new(apex, records.to_vec()).ok_or(DAMAGED)?;
            let follows = changes.last().is_none_or(|last| last.to_serial == change.from_serial);
            if !follows || !is_later(serial, change.from_serial) {
                return Err(if follows { JournalError::OtherVersion } else { DAMAGED });
            }
            changes.push(Arc::new(change));
            rest = after;
        }
        if !rest.is_empty() {
            return Err(DAMAGED);
        }
        let leads_here = changes.last().is_none_or(|last| last.to_serial == serial);
        if !leads_here || digest().to_be_bytes() != *own_digest {
            return Err(JournalError::OtherVersion);
        }
        Ok(ZoneJournal { changes, has_ambiguous_end: end != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_serials_leave_out_0() {
        for (serial, steps, expected) in [
            (0, 0, 0),
            (0, 1, 1),
            (7, 1, 8),
            (u32::MAX - 1, 1, u32::MAX),
            (u32::MAX, 0, u32::MAX),
            (u32::MAX, 1, 1),
            (u32::MAX - 1, 3, 2),
        ] {
            assert_eq!(raised_serial(serial, steps), expected, "{serial} {steps}");
        }
    }

    #[test]
    fn serials_are_compared_as_rfc_1982_says() {
        for (serial, other, expected) in [(1, 0, true), (0, 0, false), (0, 1, false), (0, u32::MAX, true)] {
            assert_eq!(is_later(serial, other), expected, "{serial} {other}");
        }
        assert!(!is_later(1 << 31, 0) && is_later((1 << 31) - 1, 0));
    }
}
