//! Signs zones for tests: with a chain of NSEC or NSEC3 records, and with signatures that are not valid.

use super::reply::ReplyRecord;
use super::zone_text::records_of_zones;
use data_encoding::BASE32_DNSSEC;
use sanderling_dns::{Name, Rtype};
use sha1::{Digest, Sha1};
use std::collections::{BTreeMap, BTreeSet};

/// The salt and the iterations of the NSEC3 records, as in RFC 5155 appendix A.
const SALT: [u8; 4] = [0xaa, 0xbb, 0xcc, 0xdd];
const ITERATIONS: u16 = 12;

/// The record type with which a zone denies existence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    Nsec,
    Nsec3,
    /// NSEC3 without records for delegations to unsigned zones (RFC 5155 §6).
    OptOut,
}

/// The labels of a name from the root, in lower case: their order is the canonical one (RFC 4034 §6.1).
pub(crate) type Labels = Vec<Vec<u8>>;

pub(crate) fn labels_from_root(name: &[u8]) -> Labels {
    let name = Name::parse(name).expect("a name");
    let mut labels: Labels = name.labels().map(<[u8]>::to_ascii_lowercase).collect();
    labels.reverse();
    labels
}

/// The hash of a name in base 32 (RFC 5155 §5).
pub(crate) fn nsec3_label(labels: &Labels) -> String {
    let wire: Vec<u8> = labels.iter().rev().flat_map(|label| [&[label.len() as u8], &label[..]].concat()).collect();
    let mut hash = Sha1::digest([&wire[..], &[0], &SALT].concat());
    for _ in 0..ITERATIONS {
        hash = Sha1::digest([&hash[..], &SALT].concat());
    }
    let mut label = [0; 32];
    BASE32_DNSSEC.encode_mut(&hash, &mut label);
    String::from_utf8(label.to_vec()).expect("base 32")
}

/// The zones in `text` with signatures.
pub(crate) fn signed(text: &str, chain: Chain) -> String {
    records_of_zones(text).into_iter().map(|(apex, records)| signed_zone(&apex, &records, chain)).collect()
}

fn signed_zone(apex: &[u8], records: &[ReplyRecord], chain: Chain) -> String {
    let apex_text = Name::parse(apex).expect("an apex").to_string();
    let apex = labels_from_root(apex);
    let mut types: BTreeMap<Labels, BTreeSet<Rtype>> = BTreeMap::new();
    let mut texts: BTreeMap<Labels, String> = BTreeMap::new();
    let mut lines = String::new();
    for record in records {
        let labels = labels_from_root(&record.owner);
        types.entry(labels.clone()).or_default().insert(record.rtype);
        texts.insert(labels, Name::parse(&record.owner).expect("an owner").to_string());
        lines += &format!("{record}\n");
    }
    if chain != Chain::Nsec {
        types.get_mut(&apex).expect("the apex has a SOA").insert(Rtype::NSEC3PARAM);
    }
    let has = |name: &[Vec<u8>], rtype| types.get(name).is_some_and(|types| types.contains(&rtype));
    let is_cut = |name: &[Vec<u8>]| name.len() > apex.len() && has(name, Rtype::NS);
    let is_hidden = |name: &Labels| {
        (apex.len()..name.len()).any(|depth| is_cut(&name[..depth]) || has(&name[..depth], Rtype::DNAME))
    };
    let ttl_s = |name: &Labels, rtype| {
        let is_it = |record: &&ReplyRecord| record.rtype == rtype && labels_from_root(&record.owner) == *name;
        records.iter().find(is_it).map_or(60, |record| record.ttl_s)
    };
    let signature = |owner: &str, rtype: Rtype, ttl_s: u32| {
        // RFC 4034 §3.1.3: without the root, and without the `*` of a wildcard.
        let counted = owner.strip_prefix("*.").unwrap_or(owner);
        let count = counted.split('.').filter(|label| !label.is_empty()).count();
        format!("{owner} {ttl_s} RRSIG {rtype} 13 {count} {ttl_s} 20300101000000 20200101000000 1 {apex_text} AA==\n")
    };
    let mut shown: BTreeMap<Labels, BTreeSet<Rtype>> = BTreeMap::new();
    for (name, own) in types.iter().filter(|(name, _)| !is_hidden(name)) {
        let signed: BTreeSet<Rtype> =
            own.iter().copied().filter(|rtype| !is_cut(name) || *rtype == Rtype::DS).collect();
        for &rtype in &signed {
            lines += &signature(&texts[name], rtype, ttl_s(name, rtype));
        }
        // RFC 5155 §7.1: empty non-terminals have NSEC3 records, here also those above delegations without.
        for depth in apex.len()..name.len() {
            if chain != Chain::Nsec {
                shown.entry(name[..depth].to_vec()).or_default();
            }
        }
        if chain == Chain::OptOut && signed.is_empty() {
            continue;
        }
        let mut listed = if is_cut(name) { &signed | &BTreeSet::from([Rtype::NS]) } else { own.clone() };
        if chain == Chain::Nsec {
            listed.extend([Rtype::NSEC, Rtype::RRSIG]);
        } else if !signed.is_empty() {
            listed.insert(Rtype::RRSIG);
        }
        shown.insert(name.clone(), listed);
    }
    let list = |types: &BTreeSet<Rtype>| types.iter().map(|rtype| format!(" {rtype}")).collect::<String>();
    let names: Vec<(&Labels, &BTreeSet<Rtype>)> = shown.iter().collect();
    if chain == Chain::Nsec {
        for (index, (name, types)) in names.iter().enumerate() {
            let next = &texts[names[(index + 1) % names.len()].0];
            lines += &format!("{} 60 NSEC {next}{}\n", texts[*name], list(types));
            lines += &signature(&texts[*name], Rtype::NSEC, 60);
        }
    } else {
        let flags = u8::from(chain == Chain::OptOut);
        let salt: String = SALT.iter().map(|byte| format!("{byte:02x}")).collect();
        let hashes: BTreeMap<String, &BTreeSet<Rtype>> =
            names.iter().map(|(name, types)| (nsec3_label(name), *types)).collect();
        let hashes: Vec<_> = hashes.into_iter().collect();
        for (index, (label, types)) in hashes.iter().enumerate() {
            let owner = if apex_text == "." { format!("{label}.") } else { format!("{label}.{apex_text}") };
            let next = &hashes[(index + 1) % hashes.len()].0;
            lines += &format!("{owner} 60 NSEC3 1 {flags} {ITERATIONS} {salt} {next}{}\n", list(types));
            lines += &signature(&owner, Rtype::NSEC3, 60);
        }
        lines += &format!("{apex_text} 60 NSEC3PARAM 1 0 {ITERATIONS} {salt}\n");
    }
    format!("$ORIGIN {apex_text}\n$TTL 60\n{lines}")
}
