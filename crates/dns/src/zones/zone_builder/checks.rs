//! Checks of a whole zone (RFC 1034 §4.2, RFC 1912 §2, RFC 2181): errors for violated requirements, warnings for
//! violated recommendations.

use super::names::NameId;
use super::{Authority, RrsetRange, StagedRecord, ZoneBuilder};
use crate::text::name::Name;
use crate::text::rdata;
use crate::text::rtype::Rtype;
use crate::text::zonefile::{Diagnostic, Position};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

impl ZoneBuilder {
    pub(super) fn check(&self, end: Position, diagnostics: &mut Vec<Diagnostic>) {
        self.check_apex(end, diagnostics);
        self.check_signed(end, diagnostics);
        for name in self.names.ids() {
            self.check_owner(name, diagnostics);
            self.check_aliases(name, diagnostics);
            self.check_alias_loop(name, diagnostics);
            self.check_authority(name, diagnostics);
            for rrset in self.rrsets_of(name) {
                self.check_rrset(name, rrset, diagnostics);
                self.check_targets(name, rrset, diagnostics);
            }
        }
        self.check_glue(diagnostics);
    }

    /// RFC 1035 §5.2: one SOA, at the apex. RFC 1034 §4.2.1: NS at the apex.
    pub(super) fn check_apex(&self, end: Position, diagnostics: &mut Vec<Diagnostic>) {
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

    /// RFC 2181 §10.1: no other data with a CNAME. RFC 6672 §2.4: one DNAME.
    pub(super) fn check_aliases(&self, name: NameId, diagnostics: &mut Vec<Diagnostic>) {
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
        if let Some(other) = rrsets.iter().find(|rrset| !rrset.rtype.may_be_beside_cname()) {
            diagnostics.push(Diagnostic::error(
                self.records_of(alias)[0].position,
                format!("{owner} has both a CNAME record and another record, of type {}", other.rtype),
                "remove one of them: a name with a CNAME record has no other data (RFC 2181 section 10.1)",
            ));
        }
    }

    /// Reports records that no answer contains.
    pub(super) fn check_authority(&self, name: NameId, diagnostics: &mut Vec<Diagnostic>) {
        let authority = self.authority(name);
        if self.is_nsec3_owner(name) {
            return;
        }
        let (cause, remedy) = match authority {
            Authority::Delegated(point) => self.hidden_by_delegation(point),
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
                diagnostics.push(self.hidden(name, rrset, &cause, remedy));
            }
        }
    }

    /// Reports addresses at and below delegation points to which no record refers: they are not glue, and no reply
    /// contains them. Needs the whole zone.
    fn check_glue(&self, diagnostics: &mut Vec<Diagnostic>) {
        let mut is_target = vec![false; self.names.count()];
        for record in &self.records {
            let target = rdata::target(record.rtype, self.rdata(record));
            if let Some(id) = target.and_then(|target| self.names.find(target)) {
                is_target[id.index()] = true;
            }
        }
        for name in self.names.ids().filter(|name| !is_target[name.index()]) {
            let Authority::Delegated(point) = self.authority(name) else { continue };
            for rrset in self.rrsets_of(name).iter().filter(|rrset| matches!(rrset.rtype, Rtype::A | Rtype::AAAA)) {
                let (cause, remedy) = self.hidden_by_delegation(point);
                diagnostics.push(self.hidden(name, rrset, &cause, remedy));
            }
        }
    }

    /// The cause that hides names at and below a delegation point, and the remedy.
    fn hidden_by_delegation(&self, point: NameId) -> (String, &'static str) {
        let cause = format!("the delegation of {}", self.names.name(point));
        (cause, "move it into the delegated zone, or remove the NS records")
    }

    fn hidden(&self, name: NameId, rrset: &RrsetRange, cause: &str, remedy: &str) -> Diagnostic {
        let problem = format!("the {} record of {} is hidden by {cause}", rrset.rtype, self.names.name(name));
        Diagnostic::warning(self.records_of(rrset)[0].position, problem, remedy)
    }

    pub(super) fn check_rrset(&self, name: NameId, rrset: &RrsetRange, diagnostics: &mut Vec<Diagnostic>) {
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
                format!("{owner} has an SOA record, but the zone's apex is {}", self.names.name(self.apex)),
                "remove it, or move the name into a separate zone",
            ));
        }
        match rrset.rtype {
            Rtype::SOA => self.check_mailbox(&records[0], diagnostics),
            Rtype::DS => self.check_ds(name, &records[0], diagnostics),
            Rtype::DNSKEY if name != self.apex => self.check_zone_key(name, records, diagnostics),
            Rtype::CAA => records.iter().for_each(|record| self.check_caa(record, diagnostics)),
            _ => {}
        }
        if rrset.rtype == Rtype::NS && owner.is_wildcard() {
            diagnostics.push(Diagnostic::warning(
                records[0].position,
                format!("the NS record of the wildcard {owner} does not delegate any name (RFC 4592 section 4.2)"),
                "delegate each name separately",
            ));
        }
    }

    /// RFC 1035 §8: the mailbox is a name, with a dot instead of the `@`.
    fn check_mailbox(&self, soa: &StagedRecord, diagnostics: &mut Vec<Diagnostic>) {
        let mailbox = Name::parse(self.rdata(soa))
            .ok()
            .and_then(|host| Name::parse(&self.rdata(soa)[host.length_bytes()..]).ok());
        let Some(label) = mailbox.and_then(|mailbox| mailbox.labels().next()) else { return };
        if label.contains(&b'@') {
            diagnostics.push(Diagnostic::warning(
                soa.position,
                "the mailbox of the SOA record has an @",
                "write a dot instead of it, for example: hostmaster.example.com.",
            ));
        }
    }

    /// RFC 4035 §2.4: a DS record belongs to a delegation point, in the parent zone.
    fn check_ds(&self, name: NameId, ds: &StagedRecord, diagnostics: &mut Vec<Diagnostic>) {
        let owner = self.names.name(name);
        let (problem, remedy) = if name == self.apex {
            (format!("{owner} has a DS record, but is the apex of this zone"), "move it into the parent zone")
        } else if !self.has_rrset(name, Rtype::NS) {
            (format!("{owner} has a DS record, but no NS record"), "add the NS records, or remove the DS record")
        } else {
            return;
        };
        diagnostics.push(Diagnostic::warning(ds.position, problem, remedy));
    }

    /// RFC 4034 §2.1.1: a zone's key is at the apex of that zone.
    fn check_zone_key(&self, name: NameId, keys: &[StagedRecord], diagnostics: &mut Vec<Diagnostic>) {
        const ZONE_KEY: u8 = 1;
        let is_zone_key = |key: &&StagedRecord| self.rdata(key).first().is_some_and(|flags| flags & ZONE_KEY != 0);
        // A key that a delegation hides is reported as such.
        if self.authority(name) == Authority::Authoritative
            && let Some(key) = keys.iter().find(is_zone_key)
        {
            let problem =
                format!("the DNSKEY record of {} is a zone key, but no zone begins there", self.names.name(name));
            let remedy = "remove it: resolvers look for zone keys only at the apex";
            diagnostics.push(Diagnostic::warning(key.position, problem, remedy));
        }
    }

    /// Authorities ignore unknown properties, and issue certificates in spite of them (RFC 8659 §4.1).
    fn check_caa(&self, caa: &StagedRecord, diagnostics: &mut Vec<Diagnostic>) {
        const KNOWN: [&str; 7] =
            ["issue", "issuewild", "issuemail", "issuevmc", "iodef", "contactemail", "contactphone"];
        let [_, tag_bytes, rest @ ..] = self.rdata(caa) else { return };
        let Some(tag) = rest.get(..usize::from(*tag_bytes)).and_then(|tag| core::str::from_utf8(tag).ok()) else {
            return;
        };
        if !KNOWN.iter().any(|known| known.eq_ignore_ascii_case(tag)) {
            diagnostics.push(Diagnostic::warning(
                caa.position,
                format!("\"{tag}\" is not a known property of CAA"),
                format!("write one of {}", KNOWN.join(", ")),
            ));
        }
    }
}
