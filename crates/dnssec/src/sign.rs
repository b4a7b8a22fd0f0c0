//! Makes a signed version of a zone from its records and the previous signed version.

mod change;
mod version;
mod signatures;
mod serial;

use crate::key::{KeyId, PublicKey};
use crate::records::Records;
use crate::signing_input::{RrsigHead, VALIDITY_S_MAX};
use crate::zone_version::ZoneVersion;
use sanderling_dns::{Name, NameBuf, Rtype};

/// Has the private keys, or asks the process that has them.
pub trait ZoneSigner {
    /// Signs each input with its key. The signatures have the order of the inputs, and the form of the RRSIG record
    /// (RFC 3110, RFC 6605 §4, RFC 8080 §4).
    ///
    /// # Errors
    /// Returns the reason why something cannot be signed, for a message. The zone is then not signed.
    fn sign(&mut self, inputs: &[SigningInput<'_>]) -> Result<Vec<Vec<u8>>, String>;
}

/// Bytes to be signed.
#[derive(Clone, Copy, Debug)]
pub struct SigningInput<'i> {
    /// The key to sign with.
    pub key: KeyId,
    /// The inputs that [`crate::signing_input::check`] accepts.
    pub bytes: &'i [u8],
}

/// Seconds by which signatures are valid earlier, since resolvers' clocks may be behind.
pub const INCEPTION_OFFSET_S: u32 = 3600;
/// Inputs of one call of [`ZoneSigner::sign`] at most.
pub const BATCH_COUNT_MAX: usize = 256;

/// A DNSKEY record of the zone with its current role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInUse {
    /// The key.
    pub key: PublicKey,
    /// Whether the DNSKEY record is in the zone. A key of a new algorithm signs before.
    pub is_published: bool,
    /// Whether it signs the DNSKEY, CDS and CDNSKEY records.
    pub signs_keys: bool,
    /// Whether it signs the other records.
    pub signs_zone: bool,
}

/// The keys of a zone at one time. Without keys, the zone is not signed, and has no NSEC or NSEC3 records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysInUse {
    /// The keys.
    pub keys: Vec<KeyInUse>,
    /// The RDATA of the CDS records: for the DS records that the parent zone should have, or the deletion record of RFC
    /// 8078 §4.
    pub cds: Vec<Vec<u8>>,
    /// The RDATA of the CDNSKEY records.
    pub cdnskey: Vec<Vec<u8>>,
}

impl KeysInUse {
    /// The RDATA of the records of this type that the zone has with the keys.
    fn records(&self, rtype: Rtype) -> Vec<Vec<u8>> {
        match rtype {
            Rtype::DNSKEY => self.keys.iter().filter(|key| key.is_published).map(|key| key.key.rdata()).collect(),
            Rtype::CDS => self.cds.clone(),
            Rtype::CDNSKEY => self.cdnskey.clone(),
            _ => Vec::new(),
        }
    }
}

/// The record type that proves that a name does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// NSEC (RFC 4034 §4).
    Nsec,
    /// NSEC3 with no iterations and no salt (RFC 9276), without opt-out.
    Nsec3,
}

/// The serial of the signed version. Each serial is later than the previous version's, except with `Keep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SerialPolicy {
    /// The unsigned records' serial. Secondaries do not notice new signatures of the same records.
    Keep,
    /// The unsigned records' serial if it is later; otherwise the last serial plus one.
    Increment,
    /// `YYYYMMDD00`, if that is later; otherwise the last one plus one.
    Date,
    /// Seconds since 1970, if that is later; otherwise one more than before.
    UnixTime,
}

/// How a zone is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningParameters {
    /// The record type that proves that a name does not exist.
    pub denial: Denial,
    /// The validity of a signature in seconds.
    pub validity_s: u32,
    /// The time before its expiry at which a signature is replaced.
    pub refresh_s: u32,
    /// Maximum seconds by which signatures expire earlier, so that they are not all replaced at the same time.
    /// Signatures that would be replaced within the next 24th part of this are replaced together.
    pub jitter_s: u32,
    /// The TTL of the DNSKEY, CDS and CDNSKEY records.
    pub dnskey_ttl_s: u32,
    /// The serial.
    pub serial_policy: SerialPolicy,
    /// Whether the zone has a ZONEMD record (RFC 8976).
    pub has_zonemd: bool,
}

impl SigningParameters {
    /// The time before its expiry at which a signature is replaced together with others.
    fn replaced_before_s(&self) -> u32 {
        self.refresh_s.saturating_add(self.jitter_s / 24)
    }

    /// # Errors
    /// Returns an error if new signatures would be replaced immediately, or would be valid for longer than the process
    /// with the keys allows.
    pub fn check(&self) -> Result<(), SignError> {
        let validity_s_min = self.replaced_before_s().saturating_add(self.jitter_s);
        let is_valid = validity_s_min < self.validity_s && self.validity_s <= VALIDITY_S_MAX - INCEPTION_OFFSET_S;
        if is_valid { Ok(()) } else { Err(SignError::Parameters) }
    }
}

impl Default for SigningParameters {
    fn default() -> SigningParameters {
        const DAY_S: u32 = 24 * 3600;
        SigningParameters {
            denial: Denial::Nsec,
            validity_s: 14 * DAY_S,
            refresh_s: 7 * DAY_S,
            jitter_s: DAY_S,
            dnskey_ttl_s: 3600,
            serial_policy: SerialPolicy::Increment,
            has_zonemd: false,
        }
    }
}

/// The input of [`sign`].
#[derive(Clone, Copy, Debug)]
pub struct SigningJob<'j> {
    /// The zone's apex.
    pub apex: Name<'j>,
    /// The records as the operator or the primary has them. RRSIG, NSEC, NSEC3, NSEC3PARAM and ZONEMD records are
    /// ignored; DNSKEY, CDS and CDNSKEY records are kept, in addition to the records of `keys`.
    pub unsigned: &'j Records,
    /// The previous signed version, whose signatures are kept if they are still correct.
    pub previous: Option<&'j Records>,
    /// The keys.
    pub keys: &'j KeysInUse,
    /// The signing parameters.
    pub parameters: &'j SigningParameters,
    /// Now, in seconds since 1970.
    pub now_unix_s: u64,
}

/// A version of a zone.
#[derive(Clone, Debug)]
pub struct SignedZone {
    /// All records in canonical order.
    pub records: Records,
    /// The serial.
    pub serial: u32,
    /// Whether it differs from the previous version. If not, the version keeps its serial.
    pub is_changed: bool,
    /// The time when the zone must be re-signed; `None` without signatures.
    pub sign_again_at_unix_s: Option<u64>,
    /// The times for which resolvers keep parts of the zone.
    pub ttls: ZoneTtls,
    /// Signatures that were made.
    pub made_count: usize,
    /// Kept signatures of the previous version.
    pub kept_count: usize,
}

/// Changes of a zone's unsigned records. A record with another TTL is removed and added.
#[derive(Clone, Debug, Default)]
pub struct RecordChanges {
    /// The records that the zone no longer has.
    pub removed: Records,
    /// The records that the change adds. An SOA replaces the previous one.
    pub added: Records,
}

impl RecordChanges {
    /// The changes from the records for which `version` was signed, with `keys`, to `unsigned`; `None` if the whole
    /// zone must be signed, because the records of keys have changed. The time is proportional to the size of the zone.
    pub fn between(
        version: &ZoneVersion,
        unsigned: &Records,
        apex: Name<'_>,
        policy: SerialPolicy,
        keys: &KeysInUse,
    ) -> Option<RecordChanges> {
        change::difference(version, unsigned, apex, policy, keys)
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.removed.count() == 0 && self.added.count() == 0
    }
}

/// The input of [`sign_change`].
#[derive(Clone, Copy, Debug)]
pub struct ChangeJob<'j> {
    /// The zone's apex.
    pub apex: Name<'j>,
    /// The changes. RRSIG, NSEC, NSEC3, NSEC3PARAM and ZONEMD records are ignored.
    pub changes: &'j RecordChanges,
    /// Names whose signatures must be renewed if they expire soon: the names from [`due_signatures`], or some of them.
    pub renewed: &'j [NameBuf],
    /// The keys that the version was signed with.
    pub keys: &'j KeysInUse,
    /// The parameters with which the version was signed.
    pub parameters: &'j SigningParameters,
    /// Now, in seconds since 1970.
    pub now_unix_s: u64,
}

/// The changes from a signed version to the next.
#[derive(Clone, Debug)]
pub struct SignedChange {
    /// The records that the next version no longer has.
    pub removed: Records,
    /// The records that the change adds.
    pub added: Records,
    /// The serial of the previous version.
    pub serial_before: u32,
    /// The serial of the next version, which is later.
    pub serial: u32,
    /// The time when the first examined signature must be renewed.
    pub sign_again_at_unix_s: Option<u64>,
    /// The longest TTL of the examined RRsets.
    pub longest_ttl_s: u32,
    /// Signatures that were made.
    pub made_count: usize,
    /// Signatures of the changed names that were kept.
    pub kept_count: usize,
}

/// The signatures of a version that must be renewed.
#[derive(Clone, Debug)]
pub struct DueSignatures {
    /// The names that have them.
    pub names: Vec<NameBuf>,
    /// The time when the first of all other signatures must be renewed.
    pub sign_again_at_unix_s: Option<u64>,
}

/// The times for which resolvers keep parts of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ZoneTtls {
    /// The DNSKEY records, or that there are none.
    pub dnskey_s: u32,
    /// The longest TTL of all signed records, and of negative answers.
    pub longest_s: u32,
}

/// The reason why a zone is not signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// Signatures would be replaced as soon as they are made, or would be valid for too long.
    #[error("signatures must be valid for longer than refresh and jitter together, and for at most 30 days")]
    Parameters,
    /// The apex has no SOA record, or several.
    #[error("the zone has no SOA record at its apex, or several")]
    NoSoa,
    /// A record is not in the zone.
    #[error("the record {0} {1} is not in the zone")]
    OutOfZone(String, Rtype),
    /// A record to remove does not exist.
    #[error("the zone does not have the record {0} {1} to remove")]
    OtherVersion(String, Rtype),
    /// The owners of NSEC3 records would have more than 255 bytes.
    #[error("the zone name is too long for NSEC3; use NSEC")]
    LongName,
    /// The signer has refused or failed.
    #[error("{0}")]
    Signer(String),
}

/// Signs a zone.
///
/// # Errors
/// Returns the reason why the zone is not signed.
pub fn sign(job: &SigningJob<'_>, signer: &mut impl ZoneSigner) -> Result<SignedZone, SignError> {
    job.parameters.check()?;
    let apex = job.apex.to_lowercase();
    let job = SigningJob { apex: apex.as_name(), ..*job };
    version::make(&job, signer)
}

/// Changes a signed version into the next one. The time is proportional to the size of the change; with a ZONEMD
/// record, which is a digest of all records, to the size of the zone. `None` if [`sign`] must make the next version,
/// since the change concerns most of the zone or records of keys, or the policy gives it no later serial; `version` is
/// then unchanged, as after an error.
///
/// # Errors
/// Returns the reason why the zone is not signed.
pub fn sign_change(
    version: &mut ZoneVersion,
    job: &ChangeJob<'_>,
    signer: &mut impl ZoneSigner,
) -> Result<Option<SignedChange>, SignError> {
    job.parameters.check()?;
    let apex = job.apex.to_lowercase();
    let job = ChangeJob { apex: apex.as_name(), ..*job };
    change::make(version, &job, signer)
}

/// Finds the signatures of `version` that must be renewed. The time is proportional to the size of the zone.
pub fn due_signatures(version: &ZoneVersion, parameters: &SigningParameters, now_unix_s: u64) -> DueSignatures {
    let mut due = DueSignatures { names: Vec::new(), sign_again_at_unix_s: None };
    for node in version.nodes() {
        let rdatas = node.rrset(Rtype::RRSIG).into_iter().flat_map(|rrset| rrset.rdatas());
        let seconds_left = |rdata| {
            let (head, _) = RrsigHead::read(rdata)?;
            Some(u32::try_from(head.expiration.wrapping_sub(now_unix_s as u32).cast_signed()).unwrap_or(0))
        };
        let Some(seconds_left) = rdatas.filter_map(seconds_left).min() else { continue };
        if seconds_left <= parameters.replaced_before_s() {
            due.names.push(node.owner().to_lowercase());
        } else {
            let at = now_unix_s + u64::from(seconds_left - parameters.refresh_s);
            due.sign_again_at_unix_s = Some(due.sign_again_at_unix_s.map_or(at, |first| first.min(at)));
        }
    }
    due
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod validator_tests;
