//! The difference between a served zone and its zone file, due to dynamic updates: stored, and applied again when the
//! file is read.
//!
//! ```text
//! ZoneUpdate → ZoneDifference::add_changes → encode                                   for each version
//! records of the file, decode → DifferenceMerge → records of the version               when the zone is loaded
//! ```

use crate::changes::update::{CLASS_NONE, ZoneUpdate};
use crate::changes::zone_patch::put_key;
use crate::text::name::{Name, NameBuf};
use crate::text::rdata::{self, SOA_NUMBERS_BYTES, serial_of};
use crate::text::rtype::Rtype;
use crate::text::zonefile::{Position, Record};
use crate::transfers::transfer_in::RecordRole;
use crate::zones::journal::{WireRecord, is_in_zones, is_later, put_record, raised_serial};
use crate::zones::packed_rrset::CLASS_IN;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// The start of the encoded form. A new format gets a new number.
const MAGIC: [u8; 8] = *b"SDLU\0\0\0\x01";
/// Bytes of the digest of the file's records, after the magic.
const DIGEST_BYTES: usize = 8;
/// Bytes of the hash at the end.
pub const HASH_BYTES: usize = 32;

/// An encoded difference is damaged, or of another zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedDifference;

/// The records by which a version differs from its zone file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneDifference {
    /// TTL and RDATA of the SOA of the version; `None` if it is the file's version.
    soa: Option<(u32, Vec<u8>)>,
    /// The records, by their key from [`put_key`].
    records: BTreeMap<Vec<u8>, Differing>,
    /// Bytes of the records, encoded.
    records_bytes: usize,
}

/// A record that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Differing {
    owner: Vec<u8>,
    rtype: Rtype,
    rdata: Vec<u8>,
    /// The record's TTL in the file; `None` if the file does not have it.
    file_ttl_s: Option<u32>,
    /// The record's TTL in the version; `None` if the version does not have it.
    ttl_s: Option<u32>,
}

impl Differing {
    fn encoded_bytes(&self) -> usize {
        let record_bytes = self.owner.len() + crate::zones::packed_rrset::RECORD_FIXED_BYTES + self.rdata.len();
        record_bytes * (usize::from(self.file_ttl_s.is_some()) + usize::from(self.ttl_s.is_some()))
    }

    fn put(&self, out: &mut Vec<u8>) {
        let owner = Name::parse(&self.owner).expect("of a record");
        // In the form of an update (RFC 2136 §2.5): removed records have the class NONE.
        for (class, ttl_s) in [(CLASS_NONE, self.file_ttl_s), (CLASS_IN, self.ttl_s)] {
            if let Some(ttl_s) = ttl_s {
                put_record(out, owner, self.rtype, class, ttl_s.to_be_bytes(), &self.rdata);
            }
        }
    }
}

impl ZoneDifference {
    /// Whether the version equals the file.
    pub fn is_empty(&self) -> bool {
        self.soa.is_none()
    }

    /// The serial of the version; `None` if it is the file's version.
    pub fn serial(&self) -> Option<u32> {
        serial_of(&self.soa.as_ref()?.1)
    }

    /// The numbers of records that only the version has, and that only the file has, without the SOA. A record with
    /// another TTL counts as both.
    pub fn counts(&self) -> [usize; 2] {
        let count = |has: fn(&Differing) -> bool| self.records.values().filter(|record| has(record)).count();
        [count(|record| record.ttl_s.is_some()), count(|record| record.file_ttl_s.is_some())]
    }

    /// Adds what `update` has changed in the version.
    pub fn add_changes(&mut self, update: &ZoneUpdate<'_>) {
        update.each_change(|role, record| self.add(role, record));
    }

    /// Adds a record that differs from the previous version.
    pub fn add(&mut self, role: RecordRole, record: &Record<'_>) {
        let ttl_s = (role != RecordRole::Removed).then_some(record.ttl_s);
        if record.rtype == Rtype::SOA {
            // A new value replaces the old one.
            self.soa = ttl_s.map(|ttl_s| (ttl_s, record.rdata.to_vec())).or(self.soa.take());
            return;
        }
        let mut key = Vec::new();
        put_key(record, &mut key);
        match self.records.entry(key) {
            Entry::Vacant(place) => {
                let file_ttl_s = ttl_s.is_none().then_some(record.ttl_s);
                let (owner, rdata) = (record.owner.as_bytes().to_vec(), record.rdata.to_vec());
                let differing = Differing { owner, rtype: record.rtype, rdata, file_ttl_s, ttl_s };
                self.records_bytes += place.insert(differing).encoded_bytes();
            }
            Entry::Occupied(mut place) => {
                self.records_bytes -= place.get().encoded_bytes();
                place.get_mut().ttl_s = ttl_s;
                if place.get().file_ttl_s == ttl_s {
                    place.remove();
                } else {
                    self.records_bytes += place.get().encoded_bytes();
                }
            }
        }
    }

    /// Bytes of the encoded form, without the SOA.
    pub fn encoded_bytes(&self) -> usize {
        MAGIC.len() + DIGEST_BYTES + self.records_bytes + HASH_BYTES
    }

    /// Encodes the difference to the zone file at `apex` whose records have this digest. Empty if there is none.
    pub fn encode(&self, apex: Name<'_>, digest: u64) -> Vec<u8> {
        let Some((ttl_s, soa)) = &self.soa else { return Vec::new() };
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&digest.to_be_bytes());
        put_record(&mut out, apex, Rtype::SOA, CLASS_IN, ttl_s.to_be_bytes(), soa);
        self.records.values().for_each(|record| record.put(&mut out));
        let hash = Sha256::digest(&out);
        out.extend_from_slice(&hash);
        out
    }

    /// The output of [`ZoneDifference::encode`] for the zone at `apex`, and the digest.
    ///
    /// # Errors
    /// Returns an error if `encoded` is damaged.
    pub fn decode(encoded: &[u8], apex: Name<'_>) -> Result<(ZoneDifference, u64), DamagedDifference> {
        if encoded.is_empty() {
            return Ok((ZoneDifference::default(), 0));
        }
        let end = encoded.len().checked_sub(HASH_BYTES).ok_or(DamagedDifference)?;
        let (content, hash) = encoded.split_at(end);
        if Sha256::digest(content)[..] != *hash {
            return Err(DamagedDifference);
        }
        let rest = content.strip_prefix(&MAGIC).ok_or(DamagedDifference)?;
        let (digest, mut rest) = rest.split_first_chunk::<DIGEST_BYTES>().ok_or(DamagedDifference)?;
        let mut difference = ZoneDifference::default();
        while !rest.is_empty() {
            let record = WireRecord::read(rest).ok_or(DamagedDifference)?;
            rest = &rest[record.length_bytes..];
            let is_of_zone = record.owner.is_at_or_below(apex) && is_in_zones(record.rtype);
            let is_soa = record.rtype == Rtype::SOA;
            let role = match record.class() {
                CLASS_NONE if !is_soa => RecordRole::Removed,
                CLASS_IN if is_soa == difference.is_empty() => RecordRole::Added,
                _ => return Err(DamagedDifference),
            };
            if !is_of_zone || rdata::check(record.rtype, record.rdata).is_err() {
                return Err(DamagedDifference);
            }
            difference.add(role, &record.record());
        }
        if difference.is_empty() { Err(DamagedDifference) } else { Ok((difference, u64::from_be_bytes(*digest))) }
    }
}

/// A sum of a zone file's records, in any order. The sum distinguishes an operator's versions, and does not protect
/// against forged ones.
#[derive(Debug, Default)]
struct RecordsDigest {
    sum: u64,
    record: Vec<u8>,
}

impl RecordsDigest {
    fn add(&mut self, record: &Record<'_>) {
        self.record.clear();
        let owner = record.owner.to_lowercase();
        put_record(&mut self.record, owner.as_name(), record.rtype, CLASS_IN, record.ttl_s.to_be_bytes(), record.rdata);
        // FNV-1a.
        let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        self.sum = self.sum.wrapping_add(self.record.iter().fold(0xcbf2_9ce4_8422_2325, step));
    }
}

/// The effect of a file with a later serial than the version with the updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterFile {
    /// The file replaces the version, and the updates are dropped.
    Replaces,
    /// The file replaces the version, but only if it contains all changes by updates. Otherwise the difference is
    /// applied to the file as to any other.
    ReplacesIfComplete,
}

/// A file has a later serial than the version with the updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaterSerial {
    /// The file's serial.
    pub of_file: u32,
    /// The serial of the version.
    pub of_version: u32,
    /// Records that the file has otherwise than the version.
    pub lost_count: usize,
}

/// The outcome for a stored difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// There is no difference, or it was made for this file.
    Unchanged,
    /// The file has changed: the parts of the difference that fit were applied, and the version has a later serial than
    /// the previous one.
    Applied,
    /// The file takes the place of the version: nothing was applied.
    Superseded,
}

/// Applies a difference to a file's records while they are read.
#[derive(Debug)]
pub struct DifferenceMerge {
    apex: NameBuf,
    difference: ZoneDifference,
    /// The digest of the file that the difference was made for.
    made_for: u64,
    later_file: LaterFile,
    digest: RecordsDigest,
    /// Position, TTL and RDATA of the file's SOA.
    soa: Option<(Position, u32, Vec<u8>)>,
    /// The TTLs in the file of the records that differ.
    found: BTreeMap<Vec<u8>, u32>,
    key: Vec<u8>,
}

/// The result of a [`DifferenceMerge`].
#[derive(Debug)]
pub struct Merged {
    /// The difference to the file that was read.
    pub difference: ZoneDifference,
    /// The digest of its records.
    pub digest: u64,
    /// The outcome for the previous difference.
    pub outcome: MergeOutcome,
    /// The file's serial, if it is later than the previous version's. If that is not superseded, the difference was
    /// applied although the operator has raised the serial.
    pub later: Option<LaterSerial>,
}

impl Merged {
    /// The difference was applied to a file with a later serial, since the file lacks the changes by updates.
    pub fn held(&self) -> Option<LaterSerial> {
        self.later.filter(|_| self.outcome != MergeOutcome::Superseded)
    }
}

impl DifferenceMerge {
    /// Applies `difference`, which was made for the file of the zone at `apex` with this digest.
    pub fn new(apex: Name<'_>, difference: ZoneDifference, made_for: u64, later_file: LaterFile) -> DifferenceMerge {
        let (digest, found, key) = (RecordsDigest::default(), BTreeMap::new(), Vec::new());
        DifferenceMerge { apex: apex.to_owned(), difference, made_for, later_file, digest, soa: None, found, key }
    }

    /// Sees a record of the file; whether it must be left out for now.
    pub fn holds_back(&mut self, record: &Record<'_>) -> bool {
        self.digest.add(record);
        if record.rtype == Rtype::SOA && self.soa.is_none() && record.owner.eq_ignore_case(self.apex.as_name()) {
            self.soa = Some((record.position, record.ttl_s, record.rdata.to_vec()));
            return true;
        }
        if self.difference.records.is_empty() {
            return false;
        }
        put_key(record, &mut self.key);
        let differs = self.difference.records.contains_key(&self.key);
        if differs {
            self.found.insert(self.key.clone(), record.ttl_s);
        }
        differs
    }

    /// Calls `add` with the omitted records, as they are in the version, and with records that the file lacks, whose
    /// position is `of_updates`. `file_serial` is the serial that the operator has written, if it was raised since.
    pub fn finish(self, file_serial: Option<u32>, of_updates: Position, mut add: impl FnMut(&Record<'_>)) -> Merged {
        let DifferenceMerge { apex, mut difference, made_for, later_file, digest, soa, found, .. } = self;
        let digest = digest.sum;
        let owner = apex.as_name();
        let add_soa = |add: &mut dyn FnMut(&Record<'_>), position, ttl_s, rdata: &[u8]| {
            add(&Record { position, owner, rtype: Rtype::SOA, ttl_s, rdata });
        };
        let of_file = soa.as_ref().and_then(|(_, _, rdata)| serial_of(rdata));
        let (Some((position, ttl_s, mut rdata)), Some(of_file)) = (soa, of_file) else {
            // The zone cannot be built without a SOA.
            return Merged { difference, digest, outcome: MergeOutcome::Unchanged, later: None };
        };
        let Some(served) = difference.serial() else {
            add_soa(&mut add, position, ttl_s, &rdata);
            return Merged { difference, digest, outcome: MergeOutcome::Unchanged, later: None };
        };
        let of_file = file_serial.unwrap_or(of_file);
        let later = is_later(of_file, served).then(|| {
            let is_lost = |(key, record): &(&Vec<u8>, &Differing)| found.get(*key).copied() != record.ttl_s;
            let lost_count = difference.records.iter().filter(is_lost).count();
            LaterSerial { of_file, of_version: served, lost_count }
        });
        let outcome = match later {
            Some(later) if later_file == LaterFile::Replaces || later.lost_count == 0 => MergeOutcome::Superseded,
            _ if digest == made_for => MergeOutcome::Unchanged,
            _ => MergeOutcome::Applied,
        };
        match (outcome, &mut difference.soa) {
            (MergeOutcome::Unchanged, Some((ttl_s, rdata))) => add_soa(&mut add, position, *ttl_s, rdata),
            (MergeOutcome::Applied, soa) => {
                let at = rdata.len() - SOA_NUMBERS_BYTES;
                rdata[at..at + 4].copy_from_slice(&raised_serial(served, 1).to_be_bytes());
                add_soa(&mut add, position, ttl_s, &rdata);
                *soa = Some((ttl_s, rdata));
            }
            _ => add_soa(&mut add, position, ttl_s, &rdata),
        }
        let records = core::mem::take(&mut difference.records);
        difference.records_bytes = 0;
        for (key, mut record) in records {
            record.file_ttl_s = match record.file_ttl_s {
                // The file contained the record when it was changed, and no longer does.
                Some(_) if !found.contains_key(&key) && outcome == MergeOutcome::Applied => continue,
                _ => found.get(&key).copied(),
            };
            let ttl_s = if outcome == MergeOutcome::Superseded { record.file_ttl_s } else { record.ttl_s };
            if let Some(ttl_s) = ttl_s {
                let owner = Name::parse(&record.owner).expect("of a record");
                add(&Record { position: of_updates, owner, rtype: record.rtype, ttl_s, rdata: &record.rdata });
            }
            if record.file_ttl_s != record.ttl_s {
                difference.records_bytes += record.encoded_bytes();
                difference.records.insert(key, record);
            }
        }
        if outcome == MergeOutcome::Superseded {
            difference = ZoneDifference::default();
        }
        Merged { difference, digest, outcome, later }
    }
}
