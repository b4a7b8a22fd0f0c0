//! Checks of a whole zone (RFC 1034 §4.2, RFC 1912 §2, RFC 2181): errors for what it must be, warnings for what it should.

use super::names::NameId;
use super::{Authority, RrsetRange, ZoneBuilder};
use crate::name::Name;
use crate::rdata;
use crate::rtype::Rtype;
use crate::zonefile::{Diagnostic, Position};
use alloc::format;
use alloc::vec::Vec;

impl ZoneBuilder {
    pub(super) fn check(&self, end: Position, diagnostics: &mut Vec<Diagnostic>) {
        self.check_apex(end, diagnostics);
        self.check_signed(diagnostics);
        for name in self.names.ids() {
            self.check_aliases(name, diagnostics);
            self.check_authority(name, diagnostics);
            for rrset in self.rrsets_of(name) {
                self.check_rrset(name, rrset, diagnostics);
                if matches!(rrset.rtype, Rtype::NS | Rtype::MX | Rtype::SRV) {
                    self.check_targets(name, rrset, diagnostics);
                }
            }
        }
    }

    /// RFC 1035 §5.2: one SOA, at the apex. RFC 1034 §4.2.1: NS at the apex.
    fn check_apex(&self, end: Position, diagnostics: &mut Vec<Diagnostic>) {
        let apex = self.names.name(self.apex);
        match self.rrset_of(self.apex, Rtype::SOA) {
            None => diagnostics.push(Diagnostic::error(
                end,
                format!("the zone {apex} has no SOA record"),
                format!(
                    "begin the zone with one, for example: {apex} 3600 IN SOA ns1.{apex} hostmaster.{apex} \
                     1 7200 900 1209600 300"
                ),
            )),
            Some(rrset) => {
                for second in &self.records_of(rrset)[1..] {
                    let problem = format!("the zone {apex} has a second SOA record");
                    diagnostics.push(Diagnostic::error(second.position, problem, "remove one of them"));
                }
            }
        }
        if !self.has_rrset(self.apex, Rtype::NS) {
            diagnostics.push(Diagnostic::error(
                end,
                format!("the zone {apex} has no NS record at its apex"),
                format!("add its name servers, for example: {apex} 3600 IN NS ns1.{apex}"),
            ));
        }
    }

    /// RFC 4035 §3.1.1 demands signatures in answers from a signed zone. They are not served, so a validating resolver
    /// rejects the answers.
    fn check_signed(&self, diagnostics: &mut Vec<Diagnostic>) {
        let dnssec = self.records.iter().filter(|record| matches!(record.rtype, Rtype::DNSKEY | Rtype::RRSIG));
        if let Some(position) = dnssec.map(|record| record.position).min() {
            diagnostics.push(Diagnostic::warning(
                position,
                format!(
                    "the zone {} is signed, but signatures are not served yet: with a DS record in the parent zone, \
                     resolvers that validate treat the domain as bogus",
                    self.names.name(self.apex)
                ),
                "remove the DS record from the parent zone, or serve the zone with a server that supports DNSSEC",
            ));
        }
    }

    /// RFC 2181 §10.1: no other data beside a CNAME. RFC 6672 §2.4: one DNAME.
    fn check_aliases(&self, name: NameId, diagnostics: &mut Vec<Diagnostic>) {
        let rrsets = self.rrsets_of(name);
        let owner = self.names.name(name);
        for rrset in rrsets.iter().filter(|rrset| matches!(rrset.rtype, Rtype::CNAME | Rtype::DNAME)) {
            if let Some(second) = self.records_of(rrset).get(1) {
                let problem = format!("{owner} has a second {} record", rrset.rtype);
                let remedy = format!("keep one: a name has at most one {} record", rrset.rtype);
                diagnostics.push(Diagnostic::error(second.position, problem, remedy));
            }
        }
        let Some(alias) = self.rrset_of(name, Rtype::CNAME) else { return };
        let is_allowed = |rtype| matches!(rtype, Rtype::CNAME | Rtype::RRSIG | Rtype::NSEC | Rtype::KEY | Rtype::SIG);
        if let Some(other) = rrsets.iter().find(|rrset| !is_allowed(rrset.rtype)) {
            diagnostics.push(Diagnostic::error(
                self.records_of(alias)[0].position,
                format!("{owner} has both a CNAME record and another record, of type {}", other.rtype),
                "remove one of them: a name with a CNAME record has no other data (RFC 2181 section 10.1)",
            ));
        }
    }

    /// Reports records that no answer contains.
    fn check_authority(&self, name: NameId, diagnostics: &mut Vec<Diagnostic>) {
        let authority = self.authority(name);
        let (cause, remedy) = match authority {
            Authority::Delegated(point) => (
                format!("the delegation of {}", self.names.name(point)),
                "move it into the delegated zone, or remove the NS records",
            ),
            Authority::BelowDname(owner) => (
                format!("the DNAME record of {}", self.names.name(owner)),
                "remove it: the DNAME record redirects all names below its owner",
            ),
            Authority::Authoritative | Authority::Unknown => return,
        };
        for rrset in self.rrsets_of(name) {
            let is_delegation = authority == Authority::Delegated(name)
                && matches!(rrset.rtype, Rtype::NS | Rtype::DS | Rtype::NSEC | Rtype::RRSIG);
            let is_glue = matches!(authority, Authority::Delegated(_))
                && matches!(rrset.rtype, Rtype::A | Rtype::AAAA | Rtype::RRSIG | Rtype::NSEC);
            if !is_delegation && !is_glue {
                let problem = format!("the {} record of {} is hidden by {cause}", rrset.rtype, self.names.name(name));
                diagnostics.push(Diagnostic::warning(self.records_of(rrset)[0].position, problem, remedy));
            }
        }
    }

    fn check_rrset(&self, name: NameId, rrset: &RrsetRange, diagnostics: &mut Vec<Diagnostic>) {
        let owner = self.names.name(name);
        let records = self.records_of(rrset);
        let max = self.limits.records_per_rrset_max;
        if let Some(record) = records.get(max) {
            diagnostics.push(Diagnostic::error(
                record.position,
                format!("{owner} has {} {} records, more than {max}", records.len(), rrset.rtype),
                format!("keep at most {max}, or raise zone_records_per_rrset_max in [limits] of the configuration"),
            ));
        }
        if rrset.rtype == Rtype::SOA && name != self.apex {
            diagnostics.push(Diagnostic::error(
                records[0].position,
                format!("{owner} has an SOA record, but the apex of the zone is {}", self.names.name(self.apex)),
                "remove it, or move the name into a zone of its own",
            ));
        }
        if rrset.rtype == Rtype::NS && owner.is_wildcard() {
            diagnostics.push(Diagnostic::warning(
                records[0].position,
                format!("the NS record of the wildcard {owner} does not delegate any name (RFC 4592 section 4.2)"),
                "delegate each name separately",
            ));
        }
    }

    /// Reports targets without an address, as far as the zone has their names (RFC 2181 §10.3).
    fn check_targets(&self, name: NameId, rrset: &RrsetRange, diagnostics: &mut Vec<Diagnostic>) {
        for record in self.records_of(rrset) {
            let Some(target) = rdata::target(rrset.rtype, self.rdata(record)) else { continue };
            let Some(problem) = self.target_problem(name, rrset.rtype, target) else { continue };
            diagnostics.push(Diagnostic::warning(
                record.position,
                format!("the {} record of {} refers to {target}, which {problem}", rrset.rtype, self.names.name(name)),
                "write the name of a host that has an A or AAAA record; an absolute name ends with a dot",
            ));
        }
    }

    /// The end of the sentence `target`, which …
    fn target_problem(&self, owner: NameId, rtype: Rtype, target: Name<'_>) -> Option<&'static str> {
        if target.is_root() || !target.is_at_or_below(self.names.name(self.apex)) {
            return None;
        }
        // RFC 1034 §4.2.1: the address of a name server in the zone that it serves is needed to reach that zone.
        let needs_glue = rtype == Rtype::NS
            && self.authority(owner) == Authority::Delegated(owner)
            && target.is_at_or_below(self.names.name(owner));
        const NO_GLUE: Option<&str> = Some("has no address (glue) in the zone");
        let Some(host) = self.names.find(target) else {
            let is_elsewhere = self.is_synthesized_or_delegated(target);
            return if needs_glue { NO_GLUE } else { (!is_elsewhere).then_some("is not in the zone") };
        };
        if self.has_rrset(host, Rtype::A) || self.has_rrset(host, Rtype::AAAA) {
            return None;
        }
        match self.authority(host) {
            Authority::Delegated(_) if needs_glue => NO_GLUE,
            Authority::Delegated(_) | Authority::BelowDname(_) => None,
            _ if self.has_rrset(host, Rtype::CNAME) => Some("is an alias"),
            _ => Some("has no address"),
        }
    }

    /// Whether a wildcard, a DNAME or a delegated zone answers for `target`, which is not in the zone.
    fn is_synthesized_or_delegated(&self, target: Name<'_>) -> bool {
        self.names.closest_encloser(target).is_some_and(|encloser| {
            self.names.wildcard_child(encloser).is_some()
                || self.authority(encloser) != Authority::Authoritative
                || self.has_rrset(encloser, Rtype::DNAME)
        })
    }
}
