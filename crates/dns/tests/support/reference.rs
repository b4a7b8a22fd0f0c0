//! A slow reference implementation of RFC 1034 §4.3.2, RFC 4592 and RFC 6672 over a list of records.

use super::question::Question;
use super::reply::{Reply, ReplyRecord};
use super::zone_text::records_of_zones;
use sanderling_dns::{Name, Rtype};

/// Aliases that one answer follows: the default of the server.
const CNAME_CHAIN_MAX: usize = 16;
/// Hosts of an answer with addresses in the additional section, as in the server. A referral has no limit.
const ADDITIONAL_NAMES_MAX: usize = 13;
const NOERROR: u16 = 0;
const NXDOMAIN: u16 = 3;
const REFUSED: u16 = 5;
const YXDOMAIN: u16 = 6;

/// A name as its labels, from the leaf, in lower case.
type Labels = Vec<Vec<u8>>;

/// Zones as lists of records.
pub(crate) struct Reference {
    zones: Vec<ReferenceZone>,
}

struct ReferenceZone {
    apex: Labels,
    records: Vec<OwnedRecord>,
}

struct OwnedRecord {
    owner: Labels,
    record: ReplyRecord,
}

/// The expected reply. Records are sorted lines in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) rcode: u16,
    pub(crate) is_authoritative: bool,
    pub(crate) sections: [Vec<String>; 3],
}

impl Expected {
    /// The contents of `reply`.
    pub(crate) fn of(reply: &Reply) -> Expected {
        Expected {
            rcode: reply.rcode,
            is_authoritative: reply.is_authoritative(),
            sections: [0, 1, 2].map(|section| reply.set_of(section)),
        }
    }
}

/// The end of the search from the apex to a name.
enum End {
    /// RFC 1034 §4.3.2 step 3a: the name exists.
    Exact(Labels),
    /// Step 3b: the name is at or below a delegation point.
    Delegation(Labels),
    /// RFC 6672 §3.2 step 3c: the name is below a DNAME.
    Dname(Labels),
    /// Step 3c with a wildcard (RFC 4592 §3.3.1).
    Wildcard(Labels),
    /// Step 3c without a wildcard.
    None,
}

impl Reference {
    pub(crate) fn new(text: &str) -> Reference {
        let entry = |record: ReplyRecord| OwnedRecord { owner: labels(&record.owner), record };
        let zone = |(apex, records): (Vec<u8>, Vec<ReplyRecord>)| ReferenceZone {
            apex: labels(&apex),
            records: records.into_iter().map(entry).collect(),
        };
        Reference { zones: records_of_zones(text).into_iter().map(zone).collect() }
    }

    /// The complete reply to `question`.
    pub(crate) fn answer(&self, question: &Question) -> Expected {
        let name = labels(&question.name);
        let Some(zone) = self.zone_for(&name, question.rtype) else {
            return Expected { rcode: REFUSED, is_authoritative: false, sections: Default::default() };
        };
        let mut answering = Answer { reference: self, zone, rtype: question.rtype, sections: Default::default() };
        let is_referral = matches!(zone.walk(&name, question.rtype), End::Delegation(_));
        let rcode = answering.answer(name);
        let sections = answering.sections.map(|records| {
            let mut lines: Vec<String> = records.iter().map(|record| record.to_string().to_ascii_lowercase()).collect();
            lines.sort();
            lines.dedup();
            lines
        });
        Expected { rcode, is_authoritative: !is_referral, sections }
    }

    /// Step 2: the zone with the longest apex. RFC 4035 §3.1.4.1: for the DS of an apex, the parent zone, if it is
    /// here.
    fn zone_for(&self, name: &Labels, rtype: Rtype) -> Option<&ReferenceZone> {
        let mut around: Vec<&ReferenceZone> = self.zones.iter().filter(|zone| name.ends_with(&zone.apex)).collect();
        around.sort_by_key(|zone| std::cmp::Reverse(zone.apex.len()));
        let &nearest = around.first()?;
        match around.get(1) {
            Some(&above)
                if rtype == Rtype::DS
                    && nearest.apex == *name
                    && !matches!(above.walk(name, rtype), End::Delegation(_)) =>
            {
                Some(above)
            }
            _ => Some(nearest),
        }
    }
}

impl ReferenceZone {
    /// Step 3: from the apex label by label.
    fn walk(&self, name: &Labels, rtype: Rtype) -> End {
        for depth in self.apex.len()..=name.len() {
            let node = name[name.len() - depth..].to_vec();
            if !self.exists(&node) {
                let wildcard = [vec![b"*".to_vec()], node[1..].to_vec()].concat();
                return if self.exists(&wildcard) { End::Wildcard(wildcard) } else { End::None };
            }
            let is_delegation = node != self.apex && !self.rrset(&node, Rtype::NS).is_empty();
            if is_delegation && !(node == *name && rtype == Rtype::DS) {
                return End::Delegation(node);
            }
            if !is_delegation && node != *name && !self.rrset(&node, Rtype::DNAME).is_empty() {
                return End::Dname(node);
            }
        }
        End::Exact(name.clone())
    }

    /// RFC 4592 §2.2.2: a name exists if it, or a name below it, owns a record.
    fn exists(&self, name: &Labels) -> bool {
        self.records.iter().any(|entry| entry.owner.ends_with(name))
    }

    /// The owner of the glue for `name`, which is at or below a delegation point: the name, or a wildcard that it
    /// matches.
    fn glue_node(&self, name: &Labels) -> Option<Labels> {
        if self.exists(name) {
            return Some(name.clone());
        }
        let encloser = (1..name.len()).map(|depth| &name[depth..]).find(|name| self.exists(&name.to_vec()))?;
        let wildcard = [&[b"*".to_vec()], encloser].concat();
        let is_hidden = !self.rrset(&encloser.to_vec(), Rtype::DNAME).is_empty();
        (!is_hidden && self.exists(&wildcard)).then_some(wildcard)
    }

    fn rrset(&self, owner: &Labels, rtype: Rtype) -> Vec<&ReplyRecord> {
        let is_of = |entry: &&OwnedRecord| entry.owner == *owner && entry.record.rtype == rtype;
        self.records.iter().filter(is_of).map(|entry| &entry.record).collect()
    }

    /// RFC 8482 §4.1: one of the RRsets at a name. The server selects the lowest type.
    fn lowest_type(&self, owner: &Labels) -> Option<Rtype> {
        self.records.iter().filter(|entry| entry.owner == *owner).map(|entry| entry.record.rtype).min()
    }
}

struct Answer<'r> {
    reference: &'r Reference,
    zone: &'r ReferenceZone,
    rtype: Rtype,
    sections: [Vec<ReplyRecord>; 3],
}

impl Answer<'_> {
    fn answer(&mut self, mut name: Labels) -> u16 {
        let mut names_passed: Vec<Labels> = vec![];
        for alias_count in 0..=CNAME_CHAIN_MAX {
            // Step 3a: the target of an alias is looked up from step 2 on.
            match self.reference.zone_for(&name, self.rtype) {
                Some(zone) => self.zone = zone,
                None => return NOERROR,
            }
            if names_passed.contains(&name) {
                return NOERROR;
            }
            names_passed.push(name.clone());
            let owner = match self.zone.walk(&name, self.rtype) {
                End::Delegation(point) => return self.refer(&point),
                End::None => return self.deny(NXDOMAIN),
                End::Dname(owner) => {
                    if alias_count == CNAME_CHAIN_MAX {
                        return NOERROR;
                    }
                    match self.substitute(&owner, &name) {
                        None => return YXDOMAIN,
                        // Not in RFC 6672 §3.2, but in all servers: the answer is complete.
                        Some(_) if self.rtype == Rtype::CNAME => return NOERROR,
                        // As NSD: the DNAME would apply repeatedly.
                        Some(target) if target[name.len() - owner.len()..].ends_with(&owner) => return NOERROR,
                        Some(target) => name = target,
                    }
                    continue;
                }
                // RFC 4592 §4.2 leaves open what names that match get.
                End::Wildcard(owner)
                    if matches!(self.rtype, Rtype::NS | Rtype::ANY)
                        && !self.zone.rrset(&owner, Rtype::NS).is_empty() =>
                {
                    return self.deny(NOERROR);
                }
                End::Exact(owner) | End::Wildcard(owner) => owner,
            };
            let rtype = match self.rtype {
                Rtype::ANY => self.zone.lowest_type(&owner).unwrap_or(Rtype::ANY),
                other => other,
            };
            let rrset = self.zone.rrset(&owner, rtype);
            if !rrset.is_empty() {
                self.put(0, &name, &rrset);
                self.put_addresses(&rrset, false);
                return NOERROR;
            }
            let alias = self.zone.rrset(&owner, Rtype::CNAME);
            let Some(cname) = alias.first() else { return self.deny(NOERROR) };
            if alias_count == CNAME_CHAIN_MAX {
                return NOERROR;
            }
            let target = labels(&cname.rdata);
            self.put(0, &name, &alias);
            name = target;
        }
        NOERROR
    }

    fn put(&mut self, section: usize, owner: &Labels, rrset: &[&ReplyRecord]) {
        let owner = bytes(owner);
        let renamed = rrset.iter().map(|record| ReplyRecord { owner: owner.clone(), ..(*record).clone() });
        self.sections[section].extend(renamed);
    }

    /// RFC 2308 §3 and §5.
    fn deny(&mut self, rcode: u16) -> u16 {
        let apex = self.zone.apex.clone();
        let mut soa = self.zone.rrset(&apex, Rtype::SOA)[0].clone();
        let minimum = soa.rdata.last_chunk().expect("an SOA ends with its minimum");
        soa.ttl_s = soa.ttl_s.min(u32::from_be_bytes(*minimum));
        self.put(1, &apex, &[&soa]);
        rcode
    }

    fn refer(&mut self, cut: &Labels) -> u16 {
        let rrset = self.zone.rrset(cut, Rtype::NS);
        self.put(1, cut, &rrset);
        self.put_addresses(&rrset, true);
        NOERROR
    }

    /// RFC 6672 §3.2 step 3c: adds the DNAME and the synthesized CNAME. Returns its target; `None` if it is too long.
    fn substitute(&mut self, owner: &Labels, name: &Labels) -> Option<Labels> {
        let rrset = self.zone.rrset(owner, Rtype::DNAME);
        self.put(0, owner, &rrset);
        let kept = &name[..name.len() - owner.len()];
        let target = [kept.to_vec(), labels(&rrset[0].rdata)].concat();
        let rdata = bytes(&target);
        if rdata.len() > 255 {
            return None;
        }
        let cname = ReplyRecord { owner: vec![], rtype: Rtype::CNAME, ttl_s: rrset[0].ttl_s, rdata };
        self.put(0, name, &[&cname]);
        Some(target)
    }

    /// RFC 1034 §4.3.2 step 6 and RFC 9471: addresses of hosts in the zone; for a referral, glue too.
    fn put_addresses(&mut self, rrset: &[&ReplyRecord], is_referral: bool) {
        let mut hosts: Vec<(Labels, Labels, Option<Rtype>)> = vec![];
        for record in rrset {
            let Some(target) = host(record).filter(|name| name.ends_with(&self.zone.apex)) else { continue };
            // RFC 9460 §4.1: AliasMode.
            let is_service = matches!(record.rtype, Rtype::SVCB | Rtype::HTTPS);
            let is_alias = is_service && record.rdata.starts_with(&[0, 0]);
            let node = match self.zone.walk(&target, Rtype::A) {
                // As above.
                End::Wildcard(node) if !is_referral && !self.zone.rrset(&node, Rtype::NS).is_empty() => None,
                End::Exact(node) | End::Wildcard(node) => Some(node),
                End::Delegation(_) if is_referral => self.zone.glue_node(&target),
                End::Delegation(_) | End::Dname(_) | End::None => None,
            };
            let Some(node) = node else { continue };
            let is_known = hosts.iter().any(|(known, ..)| *known == target);
            if !is_known && (is_referral || hosts.len() < ADDITIONAL_NAMES_MAX) {
                let leads_to = (is_alias && node != labels(&record.owner)).then_some(record.rtype);
                hosts.push((target, node, leads_to));
            }
        }
        for (host, node, leads_to) in hosts {
            for rtype in [Rtype::A, Rtype::AAAA].into_iter().chain(leads_to) {
                self.put(2, &host, &self.zone.rrset(&node, rtype));
            }
        }
    }
}

/// The host whose addresses are in the additional section for `record`.
fn host(record: &ReplyRecord) -> Option<Labels> {
    let at = match record.rtype {
        Rtype::NS => 0,
        Rtype::MX | Rtype::SVCB | Rtype::HTTPS | Rtype::AFSDB => 2,
        Rtype::SRV => 6,
        _ => return None,
    };
    Some(labels(&record.rdata[at..]))
}

/// The labels of the name at the start of `bytes`.
fn labels(bytes: &[u8]) -> Labels {
    let name = Name::parse(bytes).expect("a name");
    name.labels().map(<[u8]>::to_ascii_lowercase).collect()
}

fn bytes(labels: &Labels) -> Vec<u8> {
    let with_length = |label: &Vec<u8>| [&[label.len() as u8], &label[..]].concat();
    labels.iter().map(with_length).chain([vec![0]]).collect::<Vec<_>>().concat()
}
