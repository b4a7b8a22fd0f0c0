//! The changes that have led from a stored version of a zone to the current one: a file that grows by one change at a
//! time. A part of a change at its end, which a crash has left, is ignored. Each change has the form of
//! [`crate::zones::journal`], preceded by its length and followed by its SHA-256.

use crate::changes::zone_patch::ZonePatch;
use crate::text::name::{Name, NameBuf};
use crate::text::zonefile::Record;
use crate::zones::journal::{RecordRole, ZoneChange, ZoneChangeBuilder};
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// The start of the file. A new format gets a new number.
pub const HEAD: [u8; 8] = *b"SDLC\0\0\0\x01";
const LENGTH_BYTES: usize = 4;
const HASH_BYTES: usize = 32;

/// The changes of a log that continue from a version.
#[derive(Debug, Default)]
pub struct ChangeLog {
    /// Each change leads to the version from which the next continues.
    pub changes: Vec<ZoneChange>,
    /// Bytes of the log without a part of a change at its end.
    pub whole_bytes: usize,
}

impl ChangeLog {
    /// The changes in `log` that continue from the version of the zone at `apex` with this serial. Changes before are
    /// left out: the version may be stored and the log not be shortened yet.
    pub fn read(log: &[u8], apex: Name<'_>, serial: u32) -> ChangeLog {
        let mut read = ChangeLog::default();
        let Some(mut rest) = log.strip_prefix(&HEAD) else { return read };
        let mut next_serial = serial;
        while let Some((change, after)) = read_change(rest, apex) {
            if change.from_serial() == next_serial {
                next_serial = change.to_serial();
                read.changes.push(change);
            } else if !read.changes.is_empty() {
                break;
            }
            rest = after;
        }
        read.whole_bytes = log.len() - rest.len();
        read
    }

    /// The combined effect of the changes.
    pub fn patch(&self) -> ZonePatch {
        let mut patch = ZonePatch::default();
        self.changes.iter().for_each(|change| change.each_record(|role, record| patch.add(role, record)));
        patch
    }

    /// The serial to which the last change leads.
    pub fn serial(&self) -> Option<u32> {
        self.changes.last().map(ZoneChange::to_serial)
    }
}

/// Collects changes for a log from their records, in the order of IXFR (RFC 1995 §4): of each change those that are
/// removed, the SOA first, and then those that are added.
#[derive(Debug)]
pub struct ChangeCollector {
    apex: NameBuf,
    /// The change that is not complete.
    change: ZoneChangeBuilder,
    last_role: RecordRole,
    /// The complete ones, in the form of a log; `None` if one is malformed.
    log: Option<Vec<u8>>,
}

impl ChangeCollector {
    /// No changes of the zone at `apex` yet.
    pub fn new(apex: Name<'_>) -> ChangeCollector {
        ChangeCollector {
            apex: apex.to_owned(),
            change: ZoneChangeBuilder::new(apex),
            last_role: RecordRole::Removed,
            log: Some(Vec::new()),
        }
    }

    /// Adds a record that is removed or added.
    pub fn add(&mut self, role: RecordRole, record: &Record<'_>) {
        if (self.last_role, role) == (RecordRole::Added, RecordRole::Removed) {
            self.end_change();
        }
        self.last_role = role;
        self.change.add(role, record);
    }

    fn end_change(&mut self) {
        let change = core::mem::replace(&mut self.change, ZoneChangeBuilder::new(self.apex.as_name()));
        self.log = change.finish().zip(self.log.take()).map(|(change, mut log)| {
            put_change(&change, &mut log);
            log
        });
    }

    /// The changes, without [`HEAD`]; `None` if the records do not form changes.
    pub fn finish(mut self) -> Option<Vec<u8>> {
        self.end_change();
        self.log
    }
}

/// Appends a change to a log.
pub fn put_change(change: &ZoneChange, log: &mut Vec<u8>) {
    let records = change.as_bytes();
    log.extend_from_slice(&(records.len() as u32).to_be_bytes());
    log.extend_from_slice(records);
    log.extend_from_slice(&Sha256::digest(records));
}

/// The change at the start of `bytes`, and the rest.
fn read_change<'b>(bytes: &'b [u8], apex: Name<'_>) -> Option<(ZoneChange, &'b [u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>()?;
    let (records, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (hash, rest) = rest.split_first_chunk::<HASH_BYTES>()?;
    if Sha256::digest(records)[..] != *hash {
        return None;
    }
    Some((ZoneChange::new(apex, records.to_vec())?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::rtype::Rtype;
    use crate::text::zonefile::{Position, Record};

    fn change(from: u32, to: u32) -> ZoneChange {
        let soa = |serial: u32| [&[0, 0][..], &serial.to_be_bytes(), &[0; 16]].concat();
        let (before, after) = (soa(from), soa(to));
        fn record(rtype: Rtype, rdata: &[u8]) -> Record<'_> {
            let position = Position { file_index: 0, line: 0, column: 1 };
            Record { position, owner: Name::ROOT, rtype, ttl_s: 60, rdata }
        }
        let address = [192, 0, 2, to as u8];
        let mut change = ZoneChangeBuilder::new(Name::ROOT);
        change.add(RecordRole::Added, &record(Rtype::A, &address));
        change.add(RecordRole::Added, &record(Rtype::SOA, &after));
        change.add(RecordRole::Removed, &record(Rtype::SOA, &before));
        change.finish().expect("a change")
    }

    #[test]
    fn records_in_the_order_of_ixfr_are_collected() {
        let changes = [change(1, 2), change(2, 5)];
        let mut log = Vec::new();
        changes.iter().for_each(|change| put_change(change, &mut log));
        let mut collector = ChangeCollector::new(Name::ROOT);
        changes.iter().for_each(|change| change.each_record(|role, record| collector.add(role, record)));
        assert_eq!(collector.finish(), Some(log));
        // The SOA after the change is missing.
        let mut collector = ChangeCollector::new(Name::ROOT);
        changes[0].each_record(|role, record| {
            if (role, record.rtype) != (RecordRole::Added, Rtype::SOA) {
                collector.add(role, record);
            }
        });
        assert_eq!(collector.finish(), None);
    }

    #[test]
    fn part_of_a_change_is_ignored() {
        let mut log = HEAD.to_vec();
        put_change(&change(1, 2), &mut log);
        let first_bytes = log.len();
        put_change(&change(2, 5), &mut log);
        let serials = |log: &[u8], serial| {
            let read = ChangeLog::read(log, Name::ROOT, serial);
            (read.changes.len(), read.serial(), read.whole_bytes)
        };
        assert_eq!(serials(&log, 1), (2, Some(5), log.len()));
        assert_eq!(serials(&log, 2), (1, Some(5), log.len()));
        // A version that was stored as a whole after these changes.
        assert_eq!(serials(&log, 5), (0, None, log.len()));
        for end in HEAD.len()..log.len() {
            let (count, bytes) = if end < first_bytes { (0, HEAD.len()) } else { (1, first_bytes) };
            assert_eq!(serials(&log[..end], 1), (count, (count > 0).then_some(2), bytes));
        }
        assert_eq!(serials(&log[..HEAD.len() - 1], 1), (0, None, 0));
        let mut damaged = log.clone();
        damaged[first_bytes + 20] ^= 1;
        assert_eq!(serials(&damaged, 1), (1, Some(2), first_bytes));
        let mut text = Vec::new();
        let patch = ChangeLog::read(&log, Name::ROOT, 1).patch();
        patch.finish(|record| text.push(record.rtype)).expect_err("the SOA before is not there");
    }
}
