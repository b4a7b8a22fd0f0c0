//! Checks the signatures and proofs in a reply as a validating resolver does (RFC 4035 §5.4, RFC 5155 §8), apart from
//! cryptography.

use super::reply::{Reply, ReplyRecord};
use super::signer::{Labels, labels_from_root, nsec3_label};
use sanderling_dns::Rtype;
use std::collections::BTreeSet;

const ANSWER: usize = 0;
const AUTHORITY: usize = 1;

/// An error is what is missing from `reply` to a question for `rtype` at `qname`. All signed zones are at or below
/// `apexes`.
pub(crate) fn check(qname: &[u8], rtype: Rtype, reply: &Reply, apexes: &[Vec<u8>]) -> Result<(), String> {
    let apexes: Vec<Labels> = apexes.iter().map(|apex| labels_from_root(apex)).collect();
    check_signatures(reply)?;
    let authority = &reply.sections[AUTHORITY];
    let proofs = Proofs::of(authority, None);
    let mut name = labels_from_root(qname);
    let mut aliases = BTreeSet::new();
    let answer = &reply.sections[ANSWER];
    let at = |name: &Labels, rtype| {
        answer.iter().find(|record| record.rtype == rtype && labels_from_root(&record.owner) == *name)
    };
    // The last alias, whose target is denied or answered.
    while rtype != Rtype::CNAME
        && aliases.insert(name.clone())
        && let Some(alias) = at(&name, Rtype::CNAME)
    {
        check_expansion(&name, Rtype::CNAME, answer, &proofs)?;
        name = labels_from_root(&alias.rdata);
    }
    if answer.iter().any(|record| labels_from_root(&record.owner) == name && record.rtype != Rtype::RRSIG) {
        let types: BTreeSet<Rtype> = answer
            .iter()
            .filter(|record| labels_from_root(&record.owner) == name && record.rtype != Rtype::RRSIG)
            .map(|record| record.rtype)
            .collect();
        return types.into_iter().try_for_each(|rtype| check_expansion(&name, rtype, answer, &proofs));
    }
    let soa = reply.sections[AUTHORITY].iter().find(|record| record.rtype == Rtype::SOA);
    if let Some(soa) = soa {
        let apex = labels_from_root(&soa.owner);
        let proofs = Proofs::of(authority, Some(&apex));
        if reply.rcode == 3 {
            return proofs.deny_name(&name, &apex);
        }
        return proofs.deny_type(&name, rtype, &apex);
    }
    if let Some(ns) = reply.sections[AUTHORITY].iter().find(|record| record.rtype == Rtype::NS) {
        let point = labels_from_root(&ns.owner);
        let has_ds = reply.sections[AUTHORITY].iter().any(|record| record.rtype == Rtype::DS);
        let apex = apexes
            .iter()
            .filter(|apex| point.len() > apex.len() && point.starts_with(apex))
            .max_by_key(|apex| apex.len());
        let apex = apex.ok_or("a referral from no zone")?;
        return if has_ds { Ok(()) } else { proofs.deny_delegated_signer(&point, apex) };
    }
    Ok(())
}

/// RFC 4035 §3.1.1: each RRset of answer and authority section has a signature, except for referrals and for CNAMEs
/// that a DNAME has made.
fn check_signatures(reply: &Reply) -> Result<(), String> {
    for (index, section) in reply.sections.iter().enumerate().take(2) {
        let is_signed = |record: &ReplyRecord| {
            section.iter().any(|other| {
                other.rtype == Rtype::RRSIG && other.owner == record.owner && covered(other) == record.rtype
            })
        };
        for record in section.iter().filter(|record| record.rtype != Rtype::RRSIG) {
            let is_referral = index == AUTHORITY && record.rtype == Rtype::NS;
            let owner = labels_from_root(&record.owner);
            let is_synthesized = record.rtype == Rtype::CNAME
                && section.iter().any(|dname| {
                    let above = labels_from_root(&dname.owner);
                    dname.rtype == Rtype::DNAME && owner.len() > above.len() && owner.starts_with(&above)
                });
            if !is_signed(record) && !is_referral && !is_synthesized {
                return Err(format!("no signature of {record}"));
            }
        }
    }
    Ok(())
}

fn covered(signature: &ReplyRecord) -> Rtype {
    Rtype(u16::from_be_bytes([signature.rdata[0], signature.rdata[1]]))
}

/// RFC 4035 §5.3.4: an RRset that a wildcard has made is proven to have no closer match.
fn check_expansion(name: &Labels, rtype: Rtype, answer: &[ReplyRecord], proofs: &Proofs) -> Result<(), String> {
    let is_it = |record: &&ReplyRecord| {
        record.rtype == Rtype::RRSIG && covered(record) == rtype && labels_from_root(&record.owner) == *name
    };
    let Some(signature) = answer.iter().find(is_it) else { return Ok(()) };
    let label_count = usize::from(signature.rdata[3]);
    let own_count = name.len() - usize::from(name.last().is_some_and(|label| label == b"*"));
    if label_count >= own_count {
        return Ok(());
    }
    if proofs.nsec3.is_empty() {
        return if proofs.nsec.iter().any(|nsec| nsec.covers(name)) {
            Ok(())
        } else {
            Err("no NSEC for an expansion".into())
        };
    }
    let next_closer = &name[..=label_count];
    if proofs.nsec3.iter().any(|nsec3| nsec3.covers(&next_closer.to_vec())) {
        Ok(())
    } else {
        Err("no NSEC3 for an expansion".into())
    }
}

struct Nsec {
    owner: Labels,
    next: Labels,
    types: BTreeSet<Rtype>,
}

impl Nsec {
    fn covers(&self, name: &Labels) -> bool {
        let is_of_child_zone =
            self.types.contains(&Rtype::NS) && !self.types.contains(&Rtype::SOA) || self.types.contains(&Rtype::DNAME);
        if is_of_child_zone && name.len() > self.owner.len() && name.starts_with(&self.owner) {
            return false;
        }
        self.owner < *name && (*name < self.next || self.next <= self.owner)
    }
}

struct Nsec3 {
    label: String,
    next: String,
    is_opt_out: bool,
    types: BTreeSet<Rtype>,
}

impl Nsec3 {
    fn matches(&self, name: &Labels) -> bool {
        self.label == nsec3_label(name)
    }

    fn covers(&self, name: &Labels) -> bool {
        let label = nsec3_label(name);
        match self.label < self.next {
            true => self.label < label && label < self.next,
            false => self.label < label || label < self.next,
        }
    }
}

/// The NSEC and NSEC3 records of an authority section.
struct Proofs {
    nsec: Vec<Nsec>,
    nsec3: Vec<Nsec3>,
}

impl Proofs {
    /// The proofs that the zone at `apex` has signed, or all proofs.
    fn of(authority: &[ReplyRecord], apex: Option<&Labels>) -> Proofs {
        let (mut nsec, mut nsec3) = (vec![], vec![]);
        let is_of_zone = |(index, record): &(usize, &ReplyRecord)| {
            let is_signature = |other: &&ReplyRecord| {
                other.rtype == Rtype::RRSIG && other.owner == record.owner && covered(other) == record.rtype
            };
            // The next one: two zones may have the name.
            let signature = authority[*index..].iter().find(is_signature);
            apex.is_none_or(|apex| signature.is_some_and(|record| labels_from_root(&record.rdata[18..]) == *apex))
        };
        for (_, record) in authority.iter().enumerate().filter(is_of_zone) {
            let text = record.to_string();
            let words: Vec<&str> = text.split_whitespace().collect();
            let types = |from: usize| {
                words[from..].iter().filter_map(|word| Rtype::from_text(word.as_bytes())).collect::<BTreeSet<_>>()
            };
            if record.rtype == Rtype::NSEC {
                let (owner, next) = (labels_from_root(&record.owner), labels_from_root(&record.rdata));
                nsec.push(Nsec { owner, next, types: types(4) });
            } else if record.rtype == Rtype::NSEC3 {
                let label = words[0].split('.').next().expect("a label").to_owned();
                let next = words[7].to_ascii_lowercase();
                nsec3.push(Nsec3 { label, next, is_opt_out: words[4] == "1", types: types(8) });
            }
        }
        Proofs { nsec, nsec3 }
    }

    fn deny_name(&self, name: &Labels, apex: &Labels) -> Result<(), String> {
        if self.nsec3.is_empty() {
            let covering = self.nsec.iter().find(|nsec| nsec.covers(name)).ok_or("no NSEC covers the name")?;
            let wildcard = wildcard_of(&closest_encloser(covering, name));
            let is_denied = self.nsec.iter().any(|nsec| nsec.covers(&wildcard));
            return if is_denied { Ok(()) } else { Err("no NSEC covers the wildcard".into()) };
        }
        let encloser = self.closest_encloser_of(name, apex)?;
        let is_denied = self.nsec3.iter().any(|nsec3| nsec3.covers(&wildcard_of(&encloser)));
        if is_denied { Ok(()) } else { Err("no NSEC3 covers the wildcard".into()) }
    }

    fn deny_type(&self, name: &Labels, rtype: Rtype, apex: &Labels) -> Result<(), String> {
        let lacks = |types: &BTreeSet<Rtype>| !types.contains(&rtype) && !types.contains(&Rtype::CNAME);
        if self.nsec3.is_empty() {
            if let Some(nsec) = self.nsec.iter().find(|nsec| nsec.owner == *name) {
                return if lacks(&nsec.types) { Ok(()) } else { Err("the NSEC has the type".into()) };
            }
            let is_empty = |name: &Labels| {
                let is_above_next = |nsec: &Nsec| nsec.next.len() > name.len() && nsec.next.starts_with(name);
                self.nsec.iter().any(|nsec| nsec.covers(name) && is_above_next(nsec))
            };
            if is_empty(name) {
                return Ok(());
            }
            let covering = self.nsec.iter().find(|nsec| nsec.covers(name)).ok_or("no NSEC denies the type")?;
            let wildcard = wildcard_of(&closest_encloser(covering, name));
            let is_denied = |nsec: &Nsec| nsec.owner == wildcard && lacks(&nsec.types);
            let has_proof = self.nsec.iter().any(is_denied) || is_empty(&wildcard);
            return if has_proof { Ok(()) } else { Err("no NSEC of the wildcard".into()) };
        }
        if let Some(nsec3) = self.nsec3.iter().find(|nsec3| nsec3.matches(name)) {
            return if lacks(&nsec3.types) { Ok(()) } else { Err("the NSEC3 has the type".into()) };
        }
        let encloser = self.closest_encloser_of(name, apex)?;
        let wildcard = wildcard_of(&encloser);
        let has_wildcard = self.nsec3.iter().any(|nsec3| nsec3.matches(&wildcard) && lacks(&nsec3.types));
        let next_closer = name[..=encloser.len()].to_vec();
        let is_opt_out = self.nsec3.iter().any(|nsec3| nsec3.covers(&next_closer) && nsec3.is_opt_out);
        if has_wildcard || is_opt_out { Ok(()) } else { Err("no NSEC3 denies the type".into()) }
    }

    fn deny_delegated_signer(&self, point: &Labels, apex: &Labels) -> Result<(), String> {
        if self.nsec3.is_empty() {
            let is_denied = |nsec: &Nsec| nsec.owner == *point && !nsec.types.contains(&Rtype::DS);
            return if self.nsec.iter().any(is_denied) { Ok(()) } else { Err("no NSEC denies the DS".into()) };
        }
        if self.nsec3.iter().any(|nsec3| nsec3.matches(point) && !nsec3.types.contains(&Rtype::DS)) {
            return Ok(());
        }
        let encloser = self.closest_encloser_of(point, apex)?;
        let next_closer = point[..=encloser.len()].to_vec();
        let is_opt_out = self.nsec3.iter().any(|nsec3| nsec3.covers(&next_closer) && nsec3.is_opt_out);
        if is_opt_out { Ok(()) } else { Err("no NSEC3 denies the DS".into()) }
    }

    /// RFC 5155 §8.3.
    fn closest_encloser_of(&self, name: &Labels, apex: &Labels) -> Result<Labels, String> {
        for depth in (apex.len()..name.len()).rev() {
            let ancestor = name[..depth].to_vec();
            if self.nsec3.iter().any(|nsec3| nsec3.matches(&ancestor)) {
                let next_closer = name[..=depth].to_vec();
                let is_covered = self.nsec3.iter().any(|nsec3| nsec3.covers(&next_closer));
                return if is_covered { Ok(ancestor) } else { Err("no NSEC3 covers the next closer name".into()) };
            }
        }
        Err("no NSEC3 matches the closest encloser".into())
    }
}

fn wildcard_of(encloser: &Labels) -> Labels {
    [&encloser[..], &[b"*".to_vec()]].concat()
}

/// The longest ancestor that `name` has in common with the names of `nsec`.
fn closest_encloser(nsec: &Nsec, name: &Labels) -> Labels {
    let common = |other: &Labels| name.iter().zip(other).take_while(|(left, right)| left == right).count();
    name[..common(&nsec.owner).max(common(&nsec.next))].to_vec()
}
