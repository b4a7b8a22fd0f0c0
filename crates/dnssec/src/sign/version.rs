//! A version of a zone: its records, and the records that are signed (RFC 4035 §2).

use super::signatures::Signatures;
use super::{Denial, SignError, SignedZone, SigningJob, ZoneSigner, ZoneTtls, serial};
use crate::canonical::{is_below, put_order_key};
use crate::denial::{self, NSEC3PARAM};
use crate::records::{Cursor, Node, Record, Records, RecordsBuilder, Rrset};
use crate::signing_input::RrsigHead;
use crate::zonemd;
use sanderling_dns::rdata::SOA_NUMBERS_BYTES;
use sanderling_dns::{Name, NameBuf, RecordSource, Rtype};
use std::ops::Range;

/// The unsigned records' SOA.
pub(super) struct Soa {
    pub(super) rdata: Vec<u8>,
    pub(super) ttl_s: u32,
}

impl Soa {
    fn of(records: &Records, apex: Name<'_>) -> Result<Soa, SignError> {
        Soa::of_node(records.node(apex).ok_or(SignError::NoSoa)?)
    }

    pub(super) fn of_node(apex: Node<'_>) -> Result<Soa, SignError> {
        let rrset = apex.rrset(Rtype::SOA).ok_or(SignError::NoSoa)?;
        let mut rdatas = rrset.rdatas();
        match (rdatas.next(), rdatas.next()) {
            (Some(rdata), None) if rdata.len() > SOA_NUMBERS_BYTES => {
                Ok(Soa { rdata: rdata.to_vec(), ttl_s: rrset.ttl_s() })
            }
            _ => Err(SignError::NoSoa),
        }
    }

    fn number(&self, index: usize) -> u32 {
        let at = self.rdata.len() - SOA_NUMBERS_BYTES + 4 * index;
        u32::from_be_bytes(*self.rdata[at..].first_chunk().expect("a SOA ends with five numbers"))
    }

    pub(super) fn serial(&self) -> u32 {
        self.number(0)
    }

    /// The TTL of negative answers, and of the records in them (RFC 9077).
    pub(super) fn negative_ttl_s(&self) -> u32 {
        self.ttl_s.min(self.number(4))
    }

    /// Whether both are equal, except for their serials.
    pub(super) fn is_same_version(&self, other: &Soa) -> bool {
        let without_serial = |soa: &Soa| {
            let at = soa.rdata.len() - SOA_NUMBERS_BYTES;
            (soa.rdata[..at].to_vec(), soa.rdata[at + 4..].to_vec(), soa.ttl_s)
        };
        without_serial(self) == without_serial(other)
    }

    pub(super) fn set_serial(&mut self, serial: u32) {
        let at = self.rdata.len() - SOA_NUMBERS_BYTES;
        self.rdata[at..][..4].copy_from_slice(&serial.to_be_bytes());
    }
}

/// Whether the records of a name are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authority {
    /// All records are authoritative.
    Authoritative,
    /// The name is a delegation point: only DS records are authoritative.
    Delegation,
    /// No records are authoritative: the name is below a delegation point or a DNAME.
    Hidden,
}

impl Authority {
    pub(super) fn signs(self, rtype: Rtype) -> bool {
        match self {
            Authority::Authoritative => true,
            Authority::Delegation => rtype == Rtype::DS,
            Authority::Hidden => false,
        }
    }

    /// Whether a record of the chain lists the type.
    fn lists(self, rtype: Rtype) -> bool {
        self.signs(rtype) || self == Authority::Delegation && rtype == Rtype::NS
    }
}

/// Record types of the apex that come with the keys, including the keys of other signers.
pub(super) const KEY_RECORDS: [Rtype; 3] = [Rtype::DNSKEY, Rtype::CDS, Rtype::CDNSKEY];

/// Whether a signed version has records of this type at the apex, or at another name, of its own making: such records
/// in the unsigned zone are left out.
pub(super) fn is_made(rtype: Rtype, is_apex: bool) -> bool {
    RecordSource::of(rtype, is_apex) == RecordSource::Version
}

/// Makes the next version. The apex of `job` is in lower case.
pub(super) fn make(job: &SigningJob<'_>, signer: &mut impl ZoneSigner) -> Result<SignedZone, SignError> {
    let mut soa = Soa::of(job.unsigned, job.apex)?;
    let negative_ttl_s = soa.negative_ttl_s();
    let content = Content::new(job)?;
    let mut signatures = Signatures::new(job.apex, job.keys, job.parameters, job.now_unix_s, signer);
    let mut records = content.signed(negative_ttl_s, &mut signatures)?;
    let before = job.previous.and_then(|records| Before::new(records, job.apex));
    let is_same = before.as_ref().is_some_and(|before| {
        let is_same = before.soa.is_same_version(&soa) && before.has_zonemd() == job.parameters.has_zonemd;
        is_same && signatures.made_count == 0 && records.iter().eq(before.other_records())
    });
    let serial_before = before.as_ref().map(|before| before.soa.serial());
    let next_serial = |is_changed| {
        let policy = job.parameters.serial_policy;
        serial::next(policy, soa.serial(), serial_before, is_changed, job.now_unix_s)
    };
    let mut serial = next_serial(!is_same);
    let is_due = |before: &Before<'_>| [Rtype::SOA, Rtype::ZONEMD].iter().any(|&it| signatures.is_due(before.apex, it));
    let is_changed = !is_same || serial_before != Some(serial) || before.as_ref().is_some_and(is_due);
    if is_changed {
        serial = next_serial(true);
    }
    soa.set_serial(serial);
    let apex_before = before.as_ref().map(|before| before.apex);
    let mut put = |rtype, rdata: &[u8], records: &mut Records| {
        let mut last = RecordsBuilder::default();
        let name = last.put_name(job.apex);
        last.put(name, rtype, soa.ttl_s, rdata);
        signatures.put(name, (rtype, soa.ttl_s), &[rdata].into_iter(), apex_before, &mut last)?;
        signatures.flush(&mut last)?;
        last.finish().iter().for_each(|it| records.insert(it.owner, it.rtype, it.ttl_s, it.rdata));
        Ok(())
    };
    put(Rtype::SOA, &soa.rdata, &mut records)?;
    if job.parameters.has_zonemd {
        let rdata = zonemd::rdata(records.iter(), job.apex, serial);
        put(Rtype::ZONEMD, &rdata, &mut records)?;
    }
    let dnskey_ttl_s = content.records.rrset(job.apex, Rtype::DNSKEY).map_or(0, |rrset| rrset.ttl_s());
    Ok(SignedZone {
        serial,
        is_changed,
        sign_again_at_unix_s: signatures.sign_again_at_unix_s(),
        ttls: ZoneTtls {
            dnskey_s: dnskey_ttl_s.max(negative_ttl_s),
            longest_s: signatures.ttl_s_max.max(negative_ttl_s),
        },
        made_count: signatures.made_count,
        kept_count: signatures.kept_count,
        records,
    })
}

/// The previous version.
struct Before<'j> {
    records: &'j Records,
    apex: Node<'j>,
    soa: Soa,
}

impl<'j> Before<'j> {
    fn new(records: &'j Records, apex: Name<'_>) -> Option<Before<'j>> {
        Some(Before { records, apex: records.node(apex)?, soa: Soa::of(records, apex).ok()? })
    }

    fn has_zonemd(&self) -> bool {
        self.apex.rrset(Rtype::ZONEMD).is_some()
    }

    /// The records that do not depend on the serial.
    fn other_records(&self) -> impl Iterator<Item = Record<'j>> {
        let apex = self.apex.owner();
        let is_other = move |rtype| !matches!(rtype, Rtype::SOA | Rtype::ZONEMD);
        self.records.iter().filter(move |record| {
            let covered = RrsigHead::read(record.rdata).map(|(head, _)| head.type_covered);
            let covered = covered.filter(|_| record.rtype == Rtype::RRSIG);
            record.owner != apex || is_other(record.rtype) && covered.is_none_or(is_other)
        })
    }
}

/// The records without the chain and the signatures.
struct Content<'j> {
    job: &'j SigningJob<'j>,
    records: Records,
    /// The authority of each name of `records`.
    authorities: Vec<Authority>,
}

impl<'j> Content<'j> {
    fn new(job: &'j SigningJob<'j>) -> Result<Content<'j>, SignError> {
        let mut builder = RecordsBuilder::default();
        for node in job.unsigned.nodes() {
            let owner = node.owner();
            let is_apex = owner.eq_ignore_case(job.apex);
            for rrset in node.rrsets().filter(|rrset| !is_made(rrset.rtype(), is_apex)) {
                let rtype = rrset.rtype();
                if !owner.is_at_or_below(job.apex) {
                    return Err(SignError::OutOfZone(owner.to_string(), rtype));
                }
                let is_of_keys = RecordSource::of(rtype, is_apex) == RecordSource::Keys;
                let ttl_s = if is_of_keys { job.parameters.dnskey_ttl_s } else { rrset.ttl_s() };
                let name = builder.put_name(owner);
                rrset.rdatas().for_each(|rdata| builder.put(name, rtype, ttl_s, rdata));
            }
            if is_apex {
                put_keys(job, &mut builder);
            }
        }
        let records = builder.finish();
        let authorities = authorities(&records);
        Ok(Content { job, records, authorities })
    }

    /// The records with their signatures and the chain, without the SOA, which has the serial.
    fn signed<S: ZoneSigner>(
        &self,
        negative_ttl_s: u32,
        signatures: &mut Signatures<'_, '_, S>,
    ) -> Result<Records, SignError> {
        let is_signed = !self.job.keys.keys.is_empty();
        let mut out = RecordsBuilder::default();
        let mut hashed = HashedNames::default();
        let mut previous = Cursor::new(self.job.previous);
        let mut rdata_buffer = Vec::new();
        for (index, node) in self.records.nodes().enumerate() {
            let authority = self.authorities[index];
            let name = out.put_name(node.owner());
            let before = previous.seek(node.key());
            for rrset in node.rrsets().filter(|rrset| rrset.rtype() != Rtype::SOA) {
                rrset.rdatas().for_each(|rdata| out.put(name, rrset.rtype(), rrset.ttl_s(), rdata));
                if authority.signs(rrset.rtype()) {
                    signatures.put(name, (rrset.rtype(), rrset.ttl_s()), &rrset.rdatas(), before, &mut out)?;
                }
            }
            // The chain does not show names that the zone has no authority for.
            if !is_signed || authority == Authority::Hidden {
                continue;
            }
            match self.job.parameters.denial {
                Denial::Nsec => {
                    rdata_buffer.clear();
                    let types = self.listed_types(node, authority, Rtype::NSEC);
                    denial::put_nsec(self.next_shown(index).to_lowercase().as_name(), &types, &mut rdata_buffer);
                    out.put(name, Rtype::NSEC, negative_ttl_s, &rdata_buffer);
                    let rdatas = &[&rdata_buffer[..]].into_iter();
                    signatures.put(name, (Rtype::NSEC, negative_ttl_s), rdatas, before, &mut out)?;
                }
                Denial::Nsec3 => {
                    hashed.add(node.owner(), self.job.apex, &self.listed_types(node, authority, Rtype::NSEC3));
                }
            }
        }
        hashed.put(self.job, negative_ttl_s, signatures, &mut out)?;
        signatures.flush(&mut out)?;
        Ok(out.finish())
    }

    /// The types that the record of the chain for a name lists. `chain` is its own type.
    fn listed_types(&self, node: Node<'_>, authority: Authority, chain: Rtype) -> Vec<Rtype> {
        let has_zonemd = self.job.parameters.has_zonemd && node.owner().eq_ignore_case(self.job.apex);
        let zonemd = has_zonemd.then_some(Rtype::ZONEMD);
        listed_types(node.rrsets().map(Rrset::rtype).chain(zonemd), authority, chain)
    }

    /// The next name in the chain; after the last name, the apex.
    fn next_shown(&self, index: usize) -> Name<'_> {
        let next = self.authorities[index + 1..].iter().position(|it| *it != Authority::Hidden);
        self.records.node_at(next.map_or(0, |next| index + 1 + next)).owner()
    }
}

/// The types in `present`, the types of a name, that the chain's record lists. `chain` is its own type.
pub(super) fn listed_types(present: impl Iterator<Item = Rtype>, authority: Authority, chain: Rtype) -> Vec<Rtype> {
    let mut types: Vec<Rtype> = present.filter(|&it| authority.lists(it)).collect();
    if chain == Rtype::NSEC {
        // The record lists itself and its signature.
        types.extend([Rtype::RRSIG, Rtype::NSEC]);
    } else if types.iter().any(|&rtype| authority.signs(rtype)) {
        types.push(Rtype::RRSIG);
    }
    types.sort_unstable();
    types
}

/// Adds the records of the apex that come with the keys.
fn put_keys(job: &SigningJob<'_>, out: &mut RecordsBuilder) {
    let name = out.put_name(job.apex);
    let ttl_s = job.parameters.dnskey_ttl_s;
    for rtype in KEY_RECORDS {
        job.keys.records(rtype).iter().for_each(|rdata| out.put(name, rtype, ttl_s, rdata));
    }
    if job.parameters.denial == Denial::Nsec3 && !job.keys.keys.is_empty() {
        // Only the zone's servers use the record, so its TTL does not matter.
        out.put(name, Rtype::NSEC3PARAM, 0, &NSEC3PARAM);
    }
}

/// Whether the records of each name are signed. In canonical order, a name is followed by those below it.
fn authorities(records: &Records) -> Vec<Authority> {
    let mut authorities = Vec::new();
    // The last delegation point or owner of a DNAME.
    let mut above: Option<Node<'_>> = None;
    for (index, node) in records.nodes().enumerate() {
        if above.is_some_and(|above| is_below(node.key(), above.key())) {
            authorities.push(Authority::Hidden);
            continue;
        }
        // The first name is the apex.
        let is_delegation = index > 0 && node.rrset(Rtype::NS).is_some();
        let has_dname = node.rrset(Rtype::DNAME).is_some();
        above = (is_delegation || has_dname).then_some(node);
        authorities.push(if is_delegation { Authority::Delegation } else { Authority::Authoritative });
    }
    authorities
}

/// The names of a zone by their hashes, for NSEC3.
#[derive(Default)]
struct HashedNames {
    names: Vec<(denial::Hash, Range<usize>)>,
    /// The types of all names, one name after another.
    types: Vec<Rtype>,
    /// The last name that was added.
    last: Option<NameBuf>,
}

impl HashedNames {
    /// Adds a name, and the empty non-terminals between it and the previous names. Names are added in canonical order.
    fn add(&mut self, owner: Name<'_>, apex: Name<'_>, types: &[Rtype]) {
        let mut ancestor = owner.parent();
        while let Some(name) = ancestor.filter(|name| name.length_bytes() > apex.length_bytes())
            && !self.last.is_some_and(|last| last.as_name().is_at_or_below(name))
        {
            self.names.push((denial::hash(name), 0..0));
            ancestor = name.parent();
        }
        let start = self.types.len();
        self.types.extend_from_slice(types);
        self.names.push((denial::hash(owner), start..self.types.len()));
        self.last = Some(owner.to_owned());
    }

    /// Adds the NSEC3 records to `out`.
    fn put<S: ZoneSigner>(
        mut self,
        job: &SigningJob<'_>,
        ttl_s: u32,
        signatures: &mut Signatures<'_, '_, S>,
        out: &mut RecordsBuilder,
    ) -> Result<(), SignError> {
        self.names.sort_unstable_by_key(|&(hash, _)| hash);
        let mut previous = Cursor::new(job.previous);
        let (mut rdata, mut bitmap) = (Vec::new(), Vec::new());
        let mut key = Vec::new();
        for (index, (hash, types)) in self.names.iter().enumerate() {
            let (next, _) = &self.names[(index + 1) % self.names.len()];
            let owner = denial::nsec3_owner(hash, job.apex).ok_or(SignError::LongName)?;
            rdata.clear();
            bitmap.clear();
            denial::put_bitmap(&self.types[types.clone()], &mut bitmap);
            denial::put_nsec3(next, &bitmap, &mut rdata);
            key.clear();
            put_order_key(owner.as_name(), &mut key);
            let name = out.put_name(owner.as_name());
            out.put(name, Rtype::NSEC3, ttl_s, &rdata);
            let before = previous.seek(&key);
            signatures.put(name, (Rtype::NSEC3, ttl_s), &[&rdata[..]].into_iter(), before, out)?;
        }
        Ok(())
    }
}
