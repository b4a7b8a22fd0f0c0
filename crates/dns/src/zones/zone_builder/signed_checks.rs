//! Checks of a signed zone (RFC 4035 §2, RFC 5155 §7.1): each RRset has its signatures, and the chain of NSEC or NSEC3
//! records is complete. The signatures themselves are not verified.
//!
//! All problems except too many NSEC3 iterations are warnings: resolvers that do not validate can use the zone.

use super::names::NameId;
use super::signed::type_covered;
use super::{Authority, RrsetRange, StagedRecord, ZoneBuilder};
use crate::text::name::Name;
use crate::text::rdata::bitmap;
use crate::text::rtype::Rtype;
use crate::text::zonefile::{Diagnostic, Position};
use crate::zones::denial::{NSEC3_SHA1, Nsec3Parameters};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use data_encoding::BASE32_DNSSEC;

/// Warnings about the signatures of one zone. More are counted.
const WARNINGS_MAX: usize = 20;
/// RFC 9276 §3.2: resolvers treat zones with more iterations as unsigned, or do not answer. Such zones are refused.
const NSEC3_ITERATIONS_MAX: u16 = 50;
/// Signatures that expire within this time are reported: 3 days.
const EXPIRY_WARNING_S: i32 = 3 * 24 * 3600;
const SIGN_AGAIN: &str = "sign the zone again";

/// The fields of an RRSIG (RFC 4034 §3.1).
pub(crate) struct Signature<'z> {
    pub(crate) type_covered: Rtype,
    algorithm: u8,
    pub(crate) expiration: u32,
    inception: u32,
    key_tag: u16,
    signer: Name<'z>,
}

impl<'z> Signature<'z> {
    pub(crate) fn read(rdata: &'z [u8]) -> Option<Signature<'z>> {
        let (fixed, rest) = rdata.split_first_chunk::<18>()?;
        let number = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        Some(Signature {
            type_covered: Rtype(u16::from_be_bytes([fixed[0], fixed[1]])),
            algorithm: fixed[2],
            expiration: number(8),
            inception: number(12),
            key_tag: u16::from_be_bytes([fixed[16], fixed[17]]),
            signer: Name::parse(rest).ok()?,
        })
    }
}

/// A key of the zone, as signatures refer to it.
#[derive(Clone, Copy, Debug)]
struct Key {
    algorithm: u8,
    tag: u16,
}

impl Key {
    fn read(rdata: &[u8]) -> Key {
        // RFC 4034 appendix B.
        let sum: u32 = rdata
            .iter()
            .enumerate()
            .map(|(index, &byte)| if index % 2 == 0 { u32::from(byte) << 8 } else { u32::from(byte) })
            .sum();
        Key { algorithm: rdata[3], tag: (sum + (sum >> 16)) as u16 }
    }
}

/// The warnings about one zone.
struct Warnings<'d> {
    diagnostics: &'d mut Vec<Diagnostic>,
    count: usize,
    last: Position,
}

impl Warnings<'_> {
    fn add(&mut self, position: Position, problem: impl FnOnce() -> String, remedy: &str) {
        if self.count < WARNINGS_MAX {
            self.diagnostics.push(Diagnostic::warning(position, problem(), remedy));
        }
        self.count += 1;
        self.last = self.last.max(position);
    }
}

impl ZoneBuilder {
    /// Reports problems of signatures and proofs. A zone without keys and signatures has none.
    pub(super) fn check_signed(&self, end: Position, diagnostics: &mut Vec<Diagnostic>) {
        let keys: Vec<Key> = self.apex_records(Rtype::DNSKEY).map(|key| Key::read(self.rdata(key))).collect();
        if !self.is_signed() {
            if let Some(key) = self.apex_records(Rtype::DNSKEY).next().filter(|_| !self.awaits_signing()) {
                let problem = format!("the zone {} has a DNSKEY record, but its SOA is not signed", self.apex_name());
                diagnostics.push(Diagnostic::warning(key.position, problem, SIGN_AGAIN));
            }
            return;
        }
        let mut warnings = Warnings { diagnostics, count: 0, last: end };
        if keys.is_empty() {
            let problem = || format!("the zone {} has signatures, but no DNSKEY record", self.apex_name());
            warnings.add(end, problem, "add the DNSKEY records of the keys that made the signatures");
        }
        for id in self.names.ids() {
            self.check_signatures(id, &keys, &mut warnings);
        }
        match self.nsec3_parameters() {
            Some(parameters) => self.check_nsec3_chain(&parameters, &mut warnings),
            None => self.check_nsec_chain(end, &mut warnings),
        }
        self.check_nsec3_parameters(&mut warnings);
        let omitted_count = warnings.count.saturating_sub(WARNINGS_MAX);
        if omitted_count > 0 {
            let problem = format!("the signatures of {} have {omitted_count} more problems", self.apex_name());
            diagnostics.push(Diagnostic::warning(end, problem, "fix the first ones, and check again"));
        }
    }

    fn apex_name(&self) -> Name<'_> {
        self.names.name(self.apex)
    }

    fn apex_records(&self, rtype: Rtype) -> impl Iterator<Item = &StagedRecord> {
        self.rrset_of(self.apex, rtype).map_or(&[][..], |rrset| self.records_of(rrset)).iter()
    }

    /// Whether nothing in the zone is signed: keys were added before the zone is signed elsewhere.
    fn awaits_signing(&self) -> bool {
        !self.has_rrset(self.apex, Rtype::RRSIG)
    }

    /// Whether the zone signs `rrset` (RFC 4035 §2.2).
    fn is_to_be_signed(&self, id: NameId, rrset: &RrsetRange) -> bool {
        match self.authority(id) {
            _ if rrset.rtype == Rtype::RRSIG => false,
            _ if self.is_nsec3_owner(id) => true,
            Authority::Authoritative => true,
            Authority::Delegated(point) => point == id && matches!(rrset.rtype, Rtype::DS | Rtype::NSEC),
            Authority::BelowDname(_) | Authority::Unknown => false,
        }
    }

    /// RFC 4035 §2.2: a signature by a key of each algorithm for each RRset, that is valid now.
    fn check_signatures(&self, id: NameId, keys: &[Key], warnings: &mut Warnings<'_>) {
        let owner = self.names.name(id);
        for rrset in self.rrsets_of(id).iter().filter(|rrset| self.is_to_be_signed(id, rrset)) {
            let position = self.records_of(rrset)[0].position;
            let signatures = || {
                let records = self.signatures(id, rrset.rtype);
                records.filter_map(|record| Some((record.position, Signature::read(self.rdata(record))?)))
            };
            let mut missing: Vec<u8> = keys.iter().map(|key| key.algorithm).collect();
            missing.retain(|&algorithm| !signatures().any(|(_, signature)| signature.algorithm == algorithm));
            if signatures().next().is_none() {
                let problem = || format!("the {} records of {owner} are not signed", rrset.rtype);
                warnings.add(position, problem, SIGN_AGAIN);
            } else if let Some(algorithm) = missing.first() {
                let problem =
                    || format!("the {} records of {owner} have no signature with algorithm {algorithm}", rrset.rtype);
                warnings.add(position, problem, "sign the zone with a key of each algorithm of its DNSKEY records");
            }
            for (position, signature) in signatures() {
                self.check_signature(owner, rrset.rtype, position, &signature, keys, warnings);
            }
        }
    }

    fn check_signature(
        &self,
        owner: Name<'_>,
        rtype: Rtype,
        position: Position,
        signature: &Signature<'_>,
        keys: &[Key],
        warnings: &mut Warnings<'_>,
    ) {
        let tag = signature.key_tag;
        let is_of_key = keys.iter().any(|key| (key.algorithm, key.tag) == (signature.algorithm, tag));
        if !signature.signer.eq_ignore_case(self.apex_name()) {
            let problem = || format!("a signature of the {rtype} records of {owner} names another zone as its signer");
            return warnings.add(position, problem, SIGN_AGAIN);
        }
        if !is_of_key && !keys.is_empty() {
            let problem =
                || format!("there is no DNSKEY record for the key {tag}, which signed the {rtype} records of {owner}");
            warnings.add(position, problem, "add the DNSKEY record, or sign the zone again");
        }
        let Some(now_unix_s) = self.now_unix_s else { return };
        // RFC 4034 §3.1.5: serial number arithmetic.
        let seconds_left = signature.expiration.wrapping_sub(now_unix_s as u32).cast_signed();
        let seconds_since_start = (now_unix_s as u32).wrapping_sub(signature.inception).cast_signed();
        if seconds_left < 0 {
            let problem = || format!("a signature of the {rtype} records of {owner} has expired");
            warnings.add(position, problem, SIGN_AGAIN);
        } else if seconds_since_start < 0 {
            let problem = || format!("a signature of the {rtype} records of {owner} is not valid yet");
            warnings.add(position, problem, "check the clocks of the machine that signed the zone and of this one");
        } else if seconds_left < EXPIRY_WARNING_S {
            let problem =
                || format!("a signature of the {rtype} records of {owner} expires in {} hours", seconds_left / 3600);
            warnings.add(position, problem, SIGN_AGAIN);
        }
    }

    /// The types that the NSEC or NSEC3 record of a name lists (RFC 4034 §4.1.2, RFC 5155 §7.1), except for NSEC
    /// itself.
    fn listed_types(&self, id: NameId) -> Vec<Rtype> {
        let is_listed = |rtype: Rtype| match self.authority(id) {
            Authority::Delegated(_) => matches!(rtype, Rtype::NS | Rtype::DS | Rtype::RRSIG),
            _ => !matches!(rtype, Rtype::NSEC | Rtype::NSEC3),
        };
        self.rrsets_of(id).iter().map(|rrset| rrset.rtype).filter(|&rtype| is_listed(rtype)).collect()
    }

    fn check_listed_types(&self, id: NameId, record: &StagedRecord, bitmap: &[u8], warnings: &mut Warnings<'_>) {
        // RFC 5155 §7.1: whether a delegation without DS has the bit of RRSIG depends on the chain.
        let is_compared = |rtype: &Rtype| !matches!(*rtype, Rtype::NSEC | Rtype::RRSIG);
        let expected: Vec<Rtype> = self.listed_types(id).into_iter().filter(is_compared).collect();
        let found: Vec<Rtype> = bitmap::types(bitmap).filter(is_compared).collect();
        let difference = expected.iter().find(|rtype| !found.contains(rtype)).map(|rtype| (rtype, "lacks"));
        let difference =
            difference.or_else(|| found.iter().find(|rtype| !expected.contains(rtype)).map(|rtype| (rtype, "lists")));
        if let Some((rtype, verb)) = difference {
            let cause = if verb == "lacks" { "which the name has" } else { "which the name does not have" };
            let name = self.names.name(id);
            let problem = || format!("the {} record for {name} {verb} the type {rtype}, {cause}", record.rtype);
            warnings.add(record.position, problem, SIGN_AGAIN);
        }
    }

    /// RFC 4035 §2.3: an NSEC record at each name with data, each with the name of the next one.
    fn check_nsec_chain(&self, end: Position, warnings: &mut Warnings<'_>) {
        let owners = self.nsec_owners();
        if owners.is_empty() {
            let problem =
                || format!("the zone {} is signed, but has no chain of NSEC or NSEC3 records", self.apex_name());
            return warnings.add(end, problem, SIGN_AGAIN);
        }
        for (index, &id) in owners.iter().enumerate() {
            let records = self.rrset_of(id, Rtype::NSEC).map_or(&[][..], |rrset| self.records_of(rrset));
            let Some(record) = records.first() else { continue };
            let Ok(next) = Name::parse(self.rdata(record)) else { continue };
            let expected = self.names.name(owners[(index + 1) % owners.len()]);
            if !next.eq_ignore_case(expected) {
                let name = self.names.name(id);
                let problem = || format!("the NSEC record of {name} leads to {next}, but the next name is {expected}");
                warnings.add(record.position, problem, SIGN_AGAIN);
            }
            self.check_listed_types(id, record, &self.rdata(record)[next.length_bytes()..], warnings);
        }
        for id in self.names.ids().filter(|&id| self.is_in_order(id)) {
            if let Some(rrset) = self.rrsets_of(id).first().filter(|_| !self.has_rrset(id, Rtype::NSEC)) {
                let problem = || format!("{} has no NSEC record", self.names.name(id));
                warnings.add(self.records_of(rrset)[0].position, problem, SIGN_AGAIN);
            }
        }
    }

    /// Whether a chain has a record for `id`.
    fn is_in_order(&self, id: NameId) -> bool {
        let authority = self.authority(id);
        let is_shown = authority == Authority::Authoritative || authority == Authority::Delegated(id);
        is_shown && !self.is_nsec3_owner(id)
    }

    /// RFC 5155 §7.1: an NSEC3 record for each name, each with the hash of the next one.
    fn check_nsec3_chain(&self, parameters: &Nsec3Parameters, warnings: &mut Warnings<'_>) {
        let label = |id: NameId| self.names.name(id).labels().next().unwrap_or_default();
        let mut owners: Vec<NameId> = self.names.ids().filter(|&id| self.is_in_chain(id, parameters)).collect();
        owners.sort_by_key(|&id| label(id));
        let mut has_opt_out = false;
        for (index, &id) in owners.iter().enumerate() {
            let Some(record) = self.nsec3_record(id, parameters) else { continue };
            let (flags, next, _) = nsec3_fields(self.rdata(record));
            has_opt_out |= flags & 1 != 0;
            let expected = label(owners[(index + 1) % owners.len()]);
            let mut text = [0; 32];
            let is_hash = next.len() == 20;
            if is_hash {
                BASE32_DNSSEC.encode_mut(next, &mut text);
            }
            if !is_hash || text != expected {
                let name = self.names.name(id);
                let expected = String::from_utf8_lossy(expected).into_owned();
                let problem = || format!("the NSEC3 record of {name} does not lead to the next hash, {expected}");
                warnings.add(record.position, problem, SIGN_AGAIN);
            }
        }
        let mut found: Vec<bool> = Vec::new();
        found.resize(owners.len(), false);
        for id in self.names.ids().filter(|&id| self.is_in_order(id)) {
            let hash = parameters.hash_label(self.names.name(id));
            match owners.binary_search_by(|&owner| label(owner).cmp(&hash[..])) {
                Ok(index) => {
                    found[index] = true;
                    if let Some(record) = self.nsec3_record(owners[index], parameters) {
                        let (_, _, bitmap) = nsec3_fields(self.rdata(record));
                        self.check_listed_types(id, record, bitmap, warnings);
                    }
                }
                // RFC 5155 §6: without records are delegations to unsigned zones, and empty non-terminals above them.
                Err(_)
                    if has_opt_out
                        && (self.authority(id) == Authority::Delegated(id) || self.rrsets_of(id).is_empty()) => {}
                Err(_) => {
                    let rrset = self.rrsets_of(id).first();
                    let position = rrset.map_or(warnings.last, |rrset| self.records_of(rrset)[0].position);
                    let problem = || format!("{} has no NSEC3 record", self.names.name(id));
                    warnings.add(position, problem, SIGN_AGAIN);
                }
            }
        }
        for (&owner, _) in owners.iter().zip(&found).filter(|(_, is_found)| !**is_found) {
            let Some(record) = self.nsec3_record(owner, parameters) else { continue };
            let problem =
                || format!("the NSEC3 record of {} does not match any name in the zone", self.names.name(owner));
            warnings.add(record.position, problem, SIGN_AGAIN);
        }
    }

    fn nsec3_record(&self, owner: NameId, parameters: &Nsec3Parameters) -> Option<&StagedRecord> {
        let records = self.records_of(self.rrset_of(owner, Rtype::NSEC3)?);
        records.iter().find(|record| Nsec3Parameters::read(self.rdata(record)).as_ref() == Some(parameters))
    }

    /// RFC 9276 §3.1: no iterations.
    fn check_nsec3_parameters(&self, warnings: &mut Warnings<'_>) {
        for record in self.apex_records(Rtype::NSEC3PARAM) {
            let apex = self.apex_name();
            match Nsec3Parameters::read(self.rdata(record)) {
                Some(Nsec3Parameters { iterations, .. }) if iterations > NSEC3_ITERATIONS_MAX => {
                    let problem = format!(
                        "the NSEC3 records of {apex} have {iterations} iterations, more than {NSEC3_ITERATIONS_MAX}"
                    );
                    let remedy = "sign the zone with 0 iterations: resolvers treat such a zone as unsigned (RFC 9276)";
                    warnings.diagnostics.push(Diagnostic::error(record.position, problem, remedy));
                }
                Some(Nsec3Parameters { iterations, .. }) if iterations > 0 => {
                    let problem = || format!("the NSEC3 records of {apex} have {iterations} iterations");
                    warnings.add(record.position, problem, "sign the zone with 0 iterations (RFC 9276 section 3.1)");
                }
                Some(_) => {}
                None => {
                    let algorithm = self.rdata(record)[0];
                    let problem = || format!("the hash algorithm {algorithm} of NSEC3 records is unknown");
                    let remedy = format!("sign the zone with algorithm {NSEC3_SHA1}, SHA-1 (RFC 5155 section 11)");
                    warnings.add(record.position, problem, &remedy);
                }
            }
        }
    }

    /// When the first signature of the zone expires, in seconds since 1970; `None` without signatures.
    pub(super) fn first_expiration(&self) -> Option<u32> {
        let is_served = |record: &&StagedRecord| {
            let rtype = type_covered(self.rdata(record));
            let rrset = self.rrset_of(record.name, rtype);
            rrset.is_some_and(|rrset| self.is_to_be_signed(record.name, rrset))
        };
        let signatures = self.records.iter().filter(|record| record.rtype == Rtype::RRSIG).filter(is_served);
        let expirations = signatures.filter_map(|record| Some(Signature::read(self.rdata(record))?.expiration));
        expirations.min_by(|&left, &right| left.wrapping_sub(right).cast_signed().cmp(&0))
    }
}

/// The flags, the next hash and the bit map of an NSEC3 record (RFC 5155 §3.2).
fn nsec3_fields(rdata: &[u8]) -> (u8, &[u8], &[u8]) {
    let after_salt = 5 + usize::from(rdata[4]);
    let hash_start = after_salt + 1;
    let (next, bitmap) = rdata[hash_start..].split_at(usize::from(rdata[after_salt]));
    (rdata[1], next, bitmap)
}
