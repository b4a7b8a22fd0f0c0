//! What must hold, and what should, for records to be a zone (RFC 1034 §4.2, RFC 1912 §2, RFC 2181).

use super::names::NameId;
use super::{RrSet, Visibility, ZoneBuilder};
use crate::rdata;
use crate::rtype::Rtype;
use crate::zonefile::{Diagnostic, Position, Severity};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl ZoneBuilder {
    pub(super) fn check(&self, sets: &[RrSet], cuts: &[Visibility], end: Position, diagnostics: &mut Vec<Diagnostic>) {
        self.check_apex(sets, end, diagnostics);
        for name in self.names.ids() {
            self.check_aliases(name, sets, diagnostics);
            self.check_place(name, sets, cuts, diagnostics);
            for set in self.sets_of(name, sets) {
                self.check_set(name, set, sets, cuts, diagnostics);
            }
        }
    }

    /// RFC 1035 §5.2: one SOA, at the apex; RFC 1034 §4.2.1: NS there.
    fn check_apex(&self, sets: &[RrSet], end: Position, diagnostics: &mut Vec<Diagnostic>) {
        let apex = self.names.name(self.apex);
        match self.set_of(self.apex, Rtype::SOA, sets) {
            None => diagnostics.push(error(
                end,
                format!("the zone {apex} has no SOA record"),
                format!(
                    "begin the zone with one, for example: {apex} 3600 IN SOA ns1.{apex} hostmaster.{apex} \
                     1 7200 900 1209600 300"
                ),
            )),
            Some(set) => {
                for second in &self.records_of(set)[1..] {
                    diagnostics.push(error(
                        second.position,
                        format!("the zone {apex} has a second SOA record"),
                        "remove one of the two".into(),
                    ));
                }
            }
        }
        if self.set_of(self.apex, Rtype::NS, sets).is_none() {
            diagnostics.push(error(
                end,
                format!("the zone {apex} has no NS record at its apex"),
                format!("name its servers, for example: {apex} 3600 IN NS ns1.{apex}"),
            ));
        }
    }

    /// RFC 2181 §10.1: beside a CNAME stands no other data; RFC 6672 §2.4: one DNAME.
    fn check_aliases(&self, name: NameId, sets: &[RrSet], diagnostics: &mut Vec<Diagnostic>) {
        let own = self.sets_of(name, sets);
        for set in own.iter().filter(|set| matches!(set.rtype, Rtype::CNAME | Rtype::DNAME)) {
            if let Some(second) = self.records_of(set).get(1) {
                diagnostics.push(error(
                    second.position,
                    format!("{} has a second {} record", self.names.name(name), set.rtype),
                    "keep one: a name can be an alias of one other name".into(),
                ));
            }
        }
        let Some(alias) = own.iter().find(|set| set.rtype == Rtype::CNAME) else { return };
        let may_stand_beside =
            |rtype| matches!(rtype, Rtype::CNAME | Rtype::RRSIG | Rtype::NSEC | Rtype::KEY | Rtype::SIG);
        if let Some(other) = own.iter().find(|set| !may_stand_beside(set.rtype)) {
            diagnostics.push(error(
                self.records_of(alias)[0].position,
                format!("{} has a CNAME record beside its {} record", self.names.name(name), other.rtype),
                "remove one of the two: an alias has no data of its own".into(),
            ));
        }
    }

    /// Data that no question can reach.
    fn check_place(&self, name: NameId, sets: &[RrSet], cuts: &[Visibility], diagnostics: &mut Vec<Diagnostic>) {
        let owner = self.names.name(name);
        let (why, remedy) = match cuts[name.index()] {
            Visibility::Delegated(cut) => (
                format!("the delegation of {}", self.names.name(cut)),
                "move it into the zone that is delegated to, or remove the NS records".into(),
            ),
            Visibility::BelowDname(dname) => (
                format!("the DNAME of {}", self.names.name(dname)),
                String::from("remove it: the DNAME answers for all names below"),
            ),
            Visibility::Plain | Visibility::Unknown => return,
        };
        for set in self.sets_of(name, sets) {
            let is_of_the_cut = cuts[name.index()] == Visibility::Delegated(name)
                && matches!(set.rtype, Rtype::NS | Rtype::DS | Rtype::NSEC | Rtype::RRSIG);
            let is_glue = matches!(cuts[name.index()], Visibility::Delegated(_))
                && matches!(set.rtype, Rtype::A | Rtype::AAAA | Rtype::RRSIG | Rtype::NSEC);
            if !is_of_the_cut && !is_glue {
                diagnostics.push(warning(
                    self.records_of(set)[0].position,
                    format!("the {} record of {owner} is hidden by {why}", set.rtype),
                    remedy.clone(),
                ));
            }
        }
    }

    fn check_set(
        &self,
        name: NameId,
        set: &RrSet,
        sets: &[RrSet],
        cuts: &[Visibility],
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let owner = self.names.name(name);
        let records = self.records_of(set);
        if records.len() > self.limits.records_per_rrset_max {
            diagnostics.push(error(
                records[self.limits.records_per_rrset_max].position,
                format!("{owner} has {} {} records", records.len(), set.rtype),
                format!("keep at most {}, or raise records_per_rrset_max", self.limits.records_per_rrset_max),
            ));
        }
        if set.rtype == Rtype::SOA && name != self.apex {
            diagnostics.push(error(
                records[0].position,
                format!("{owner} has an SOA record, but the zone begins at {}", self.names.name(self.apex)),
                "remove it, or make it a zone of its own".into(),
            ));
        }
        if set.rtype == Rtype::NS && owner.is_wildcard() {
            diagnostics.push(warning(
                records[0].position,
                format!("the NS record of the wildcard {owner} delegates nothing (RFC 4592 section 4.2)"),
                "delegate each name by itself".into(),
            ));
        }
        if !matches!(set.rtype, Rtype::NS | Rtype::MX | Rtype::SRV) {
            return;
        }
        for record in records {
            let Some(target) = rdata::target(set.rtype, self.rdata(record)) else { continue };
            let Some(problem) = self.trouble_with_host(name, set.rtype, target, sets, cuts) else { continue };
            diagnostics.push(warning(
                record.position,
                format!("the {} record of {owner} names {target}, {problem}", set.rtype),
                "name a host that has an A or AAAA record".into(),
            ));
        }
    }

    /// Why `target` cannot be reached as a host, as far as this zone knows (RFC 2181 §10.3).
    fn trouble_with_host(
        &self,
        owner: NameId,
        rtype: Rtype,
        target: crate::name::Name<'_>,
        sets: &[RrSet],
        cuts: &[Visibility],
    ) -> Option<&'static str> {
        if target.is_root() || !target.is_at_or_below(self.names.name(self.apex)) {
            return None;
        }
        let Some(host) = self.names.find(target) else {
            return (!self.is_answered_otherwise(target, sets, cuts)).then_some("which the zone does not have");
        };
        let has = |rtype| self.set_of(host, rtype, sets).is_some();
        if has(Rtype::A) || has(Rtype::AAAA) {
            return None;
        }
        match cuts[host.index()] {
            // Only the servers of the cut itself need their addresses here.
            Visibility::Delegated(cut) if !(rtype == Rtype::NS && cut == owner) => None,
            Visibility::Delegated(_) => Some("whose address (glue) the zone does not have"),
            Visibility::BelowDname(_) => None,
            _ if has(Rtype::CNAME) => Some("which is an alias"),
            _ => Some("which has no address"),
        }
    }

    /// Whether somebody answers for `target` though it is not in the zone: a wildcard, a DNAME, or a zone below a cut.
    fn is_answered_otherwise(&self, target: crate::name::Name<'_>, sets: &[RrSet], cuts: &[Visibility]) -> bool {
        let mut ancestor = target.parent();
        while let Some(name) = ancestor {
            if let Some(encloser) = self.names.find(name) {
                return self.names.wildcard_child(encloser).is_some()
                    || cuts[encloser.index()] != Visibility::Plain
                    || self.set_of(encloser, Rtype::DNAME, sets).is_some();
            }
            ancestor = name.parent();
        }
        false
    }
}

fn error(position: Position, problem: String, remedy: String) -> Diagnostic {
    Diagnostic { severity: Severity::Error, position, problem, remedy }
}

fn warning(position: Position, problem: String, remedy: String) -> Diagnostic {
    Diagnostic { severity: Severity::Warning, position, problem, remedy }
}
