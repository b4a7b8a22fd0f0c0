//! Checks of the names in the zone that records refer to (RFC 1912 §2, RFC 2181 §10.3), and of the dots at the ends of
//! names. All are warnings: the zone can be served.

use super::names::NameId;
use super::{Authority, RrsetRange, StagedRecord, ZoneBuilder};
use crate::text::name::{LABEL_COUNT_MAX, Name, NameBuf};
use crate::text::rdata;
use crate::text::rtype::Rtype;
use crate::text::zonefile::Diagnostic;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Aliases of the longest loop that is reported: a reply follows fewer.
const LOOP_COUNT_MAX: usize = 64;

impl ZoneBuilder {
    /// Reports targets that are not in the zone, or have no address.
    pub(super) fn check_targets(&self, name: NameId, rrset: &RrsetRange, diagnostics: &mut Vec<Diagnostic>) {
        let is_alias = matches!(rrset.rtype, Rtype::CNAME | Rtype::DNAME);
        let is_checked = matches!(rrset.rtype, Rtype::NS | Rtype::MX | Rtype::SRV | Rtype::SVCB | Rtype::HTTPS);
        if !is_alias && !is_checked {
            return;
        }
        for record in self.records_of(rrset) {
            let Some(target) = self.target(record) else { continue };
            // RFC 9460 §2.4.2: in AliasMode the target need not have an address.
            let is_alias_mode = rdata::is_svcb_alias(rrset.rtype, self.rdata(record));
            let rtype = if is_alias_mode { Rtype::CNAME } else { rrset.rtype };
            let Some(problem) = self.target_problem(name, rtype, target) else { continue };
            let remedy = match self.without_second_apex(target) {
                Some(meant) => format!("did you mean {meant} with a final dot?"),
                None if is_alias => String::from("correct the name; an absolute name ends with a dot"),
                None => {
                    String::from("write the name of a host with an A or AAAA record; an absolute name ends with a dot")
                }
            };
            diagnostics.push(Diagnostic::warning(
                record.position,
                format!("the {} record of {} refers to {target}, which {problem}", rrset.rtype, self.names.name(name)),
                remedy,
            ));
        }
    }

    /// The name that a record refers to.
    fn target(&self, record: &StagedRecord) -> Option<Name<'_>> {
        match record.rtype {
            Rtype::CNAME | Rtype::DNAME => Name::parse(self.rdata(record)).ok(),
            rtype => rdata::target(rtype, self.rdata(record)),
        }
    }

    /// Reports an owner that contains the zone name twice, because its dot was forgotten.
    pub(super) fn check_owner(&self, name: NameId, diagnostics: &mut Vec<Diagnostic>) {
        let Some(meant) = self.without_second_apex(self.names.name(name)) else { return };
        let Some(rrset) = self.rrsets_of(name).first() else { return };
        diagnostics.push(Diagnostic::warning(
            self.records_of(rrset)[0].position,
            format!("{} contains the zone name twice", self.names.name(name)),
            format!("did you mean {meant} with a final dot?"),
        ));
    }

    /// The probably intended name, if `name` was completed with the zone name although it already contained it. A
    /// domain below a top-level domain may well have its name: com.com.
    fn without_second_apex(&self, name: Name<'_>) -> Option<NameBuf> {
        let apex = self.names.name(self.apex);
        let apex_depth = apex.labels().count();
        if apex_depth < 2 || name.length_bytes() < 2 * apex.length_bytes() - 1 || !name.is_at_or_below(apex) {
            return None;
        }
        let mut labels = [&[][..]; LABEL_COUNT_MAX];
        let depth = name.labels().count() - apex_depth;
        for (slot, label) in labels.iter_mut().zip(name.labels().take(depth)) {
            *slot = label;
        }
        let meant = NameBuf::joined(&labels[..depth], Name::ROOT).ok()?;
        meant.as_name().is_at_or_below(apex).then_some(meant)
    }

    /// Reports a loop of CNAME records, at the first of them in the zone, and a DNAME that leads to itself.
    pub(super) fn check_alias_loop(&self, name: NameId, diagnostics: &mut Vec<Diagnostic>) {
        const REMEDY: &str = "make one of them refer to a name with data";
        let owner = self.names.name(name);
        if let Some(dname) = self.rrset_of(name, Rtype::DNAME).map(|rrset| &self.records_of(rrset)[0])
            && self.target(dname).is_some_and(|target| target.is_at_or_below(owner))
        {
            let problem = format!("the DNAME record of {owner} refers to itself, or to a name below it");
            diagnostics.push(Diagnostic::warning(dname.position, problem, REMEDY));
        }
        let Some(cname) = self.rrset_of(name, Rtype::CNAME).map(|rrset| &self.records_of(rrset)[0]) else { return };
        let mut next = self.target(cname).and_then(|target| self.names.find(target));
        for _ in 0..LOOP_COUNT_MAX {
            match next {
                Some(at) if at == name => {
                    let problem = format!("the CNAME record of {owner} leads back to itself");
                    return diagnostics.push(Diagnostic::warning(cname.position, problem, REMEDY));
                }
                // The loop, if there is one, is reported there.
                Some(at) if at < name => return,
                Some(at) => {
                    let rrset = self.rrset_of(at, Rtype::CNAME);
                    let target = rrset.and_then(|rrset| self.target(&self.records_of(rrset)[0]));
                    next = target.and_then(|target| self.names.find(target));
                }
                None => return,
            }
        }
    }

    /// The end of the sentence `target`, which …
    fn target_problem(&self, owner: NameId, rtype: Rtype, target: Name<'_>) -> Option<&'static str> {
        if target.is_root() || !target.is_at_or_below(self.names.name(self.apex)) || self.has_alias_record(target) {
            return None;
        }
        if rtype == Rtype::CNAME || rtype == Rtype::DNAME {
            let is_known = self.names.find(target).is_some() || self.is_synthesized_or_delegated(target);
            return (!is_known).then_some("is not in the zone");
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
            _ if self.has_rrset(host, Rtype::CNAME) => {
                matches!(rtype, Rtype::NS | Rtype::MX | Rtype::SRV).then_some("is an alias")
            }
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
