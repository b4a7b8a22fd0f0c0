//! The changes of an IXFR (RFC 1995) or of a [`crate::changes::change_log`], to be applied to the records of the stored
//! version. Each removed record must exist, and no added record may: otherwise primary and secondary had different
//! versions with the same serial.

use crate::text::name::Name;
use crate::text::rdata::put_canonical_rdata;
use crate::text::rtype::Rtype;
use crate::text::zonefile::{Position, Record};
use crate::zones::journal::RecordRole;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// The reason why changes cannot be applied: a record, with its owner and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchError {
    /// The change removes a record that does not exist.
    NotThere(String, Rtype),
    /// The change adds a record that already exists.
    AlreadyThere(String, Rtype),
}

impl fmt::Display for PatchError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatchError::NotThere(owner, rtype) => {
                write!(out, "its changes remove the record {owner} {rtype}, which is not in the stored version")
            }
            PatchError::AlreadyThere(owner, rtype) => {
                write!(out, "its changes add the record {owner} {rtype}, which is already in the stored version")
            }
        }
    }
}

/// The sum of changes.
#[derive(Debug, Default)]
pub struct ZonePatch {
    /// The records, by their key from [`put_key`].
    records: BTreeMap<Vec<u8>, Patched>,
    /// The first change that cannot be.
    error: Option<PatchError>,
    key: Vec<u8>,
}

/// A record that changes.
#[derive(Debug)]
struct Patched {
    owner: Vec<u8>,
    rtype: Rtype,
    rdata: Vec<u8>,
    /// Whether the stored version must have it.
    is_stored: bool,
    /// Whether the stored version has the record.
    was_found: bool,
    /// The record's TTL after the changes; `None` if it was removed.
    ttl_s: Option<u32>,
}

impl ZonePatch {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Adds a change.
    pub fn add(&mut self, role: RecordRole, record: &Record<'_>) {
        let ttl_s = match role {
            RecordRole::Removed => None,
            RecordRole::Added | RecordRole::OfZone => Some(record.ttl_s),
        };
        put_key(record, &mut self.key);
        let Some(known) = self.records.get_mut(&self.key) else {
            let patched = Patched {
                owner: record.owner.as_bytes().to_vec(),
                rtype: record.rtype,
                rdata: record.rdata.to_vec(),
                is_stored: ttl_s.is_none(),
                was_found: false,
                ttl_s,
            };
            self.records.insert(self.key.clone(), patched);
            return;
        };
        if known.ttl_s.is_some() == ttl_s.is_some() {
            let error = if ttl_s.is_some() { already_there(record) } else { not_there(record.owner, record.rtype) };
            self.error.get_or_insert(error);
        }
        known.ttl_s = ttl_s;
    }

    /// The TTL of a record of the stored version after the changes; `None` if the record was removed.
    ///
    /// # Errors
    /// Returns an error if the changes do not belong to this version.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<Option<u32>, PatchError> {
        put_key(record, &mut self.key);
        match self.records.get_mut(&self.key) {
            None => Ok(Some(record.ttl_s)),
            Some(patched) if !patched.is_stored => Err(already_there(record)),
            Some(patched) => {
                patched.was_found = true;
                Ok(patched.ttl_s)
            }
        }
    }

    /// Calls `add` with the records that the stored version, which was applied as a whole, did not have.
    ///
    /// # Errors
    /// Returns an error if the changes do not belong to this version.
    pub fn finish(self, mut add: impl FnMut(&Record<'_>)) -> Result<(), PatchError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        for patched in self.records.values() {
            let owner = Name::parse(&patched.owner).expect("of a record");
            match (patched.is_stored, patched.ttl_s) {
                (true, _) if !patched.was_found => return Err(not_there(owner, patched.rtype)),
                (false, Some(ttl_s)) => {
                    let position = Position { file_index: 0, line: 0, column: 1 };
                    add(&Record { position, owner, rtype: patched.rtype, ttl_s, rdata: &patched.rdata });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn not_there(owner: Name<'_>, rtype: Rtype) -> PatchError {
    PatchError::NotThere(owner.to_string(), rtype)
}

fn already_there(record: &Record<'_>) -> PatchError {
    PatchError::AlreadyThere(record.owner.to_string(), record.rtype)
}

/// Writes the key by which records are compared: owner, type and RDATA in canonical form, since compression may change
/// the case.
pub(crate) fn put_key(record: &Record<'_>, key: &mut Vec<u8>) {
    key.clear();
    key.extend(record.owner.as_bytes().iter().map(u8::to_ascii_lowercase));
    key.extend_from_slice(&record.rtype.0.to_be_bytes());
    put_canonical_rdata(record.rtype, record.rdata, key);
}
