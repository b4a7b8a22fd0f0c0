//! The names that get the addresses of others by `ALIAS`: the other records that they must not have.

use super::ZoneBuilder;
use super::names::NameId;
use crate::text::name::Name;
use crate::text::rtype::Rtype;
use crate::text::zonefile::{AliasRecord, Diagnostic, Position};
use alloc::format;
use alloc::vec::Vec;

impl ZoneBuilder {
    /// Records that the owner of `alias` should have addresses, which the caller adds as records if it has them.
    pub fn add_alias_record(&mut self, alias: &AliasRecord<'_>) {
        self.alias_owners.push((alias.owner.to_lowercase(), alias.position));
    }

    /// Reports forbidden records of `ALIAS` owners among those added until now. Call this before the addresses are
    /// added.
    pub fn check_alias_records(&mut self) -> Vec<Diagnostic> {
        let mut diagnostics = Vec::new();
        self.alias_owners.sort_unstable_by(|(one, one_at), (other, other_at)| {
            (one.as_name().as_bytes(), one_at).cmp(&(other.as_name().as_bytes(), other_at))
        });
        for pair in self.alias_owners.windows(2).filter(|pair| pair[0].0.as_name() == pair[1].0.as_name()) {
            let problem = format!("{} has two ALIAS records", pair[1].0);
            diagnostics.push(Diagnostic::error(pair[1].1, problem, "remove one of them"));
        }
        let mut owners: Vec<(NameId, Position)> =
            self.alias_owners.iter().filter_map(|(owner, at)| Some((self.names.find(owner.as_name())?, *at))).collect();
        owners.sort_unstable();
        if let Some((_, alias_at)) = self.alias_owners.first() {
            let is_key = |record: &&super::StagedRecord| record.name == self.apex && record.rtype == Rtype::DNSKEY;
            if self.records.iter().any(|record| is_key(&record)) {
                let problem = "the zone file is already signed (DNSSEC): the ALIAS addresses would have no signatures";
                let remedy = "write A and AAAA records instead, or let this server sign the zone with `dnssec = true`";
                diagnostics.push(Diagnostic::error(*alias_at, problem, remedy));
            }
        }
        let is_other_address = |rtype| matches!(rtype, Rtype::A | Rtype::AAAA | Rtype::CNAME);
        for record in self.records.iter().filter(|record| is_other_address(record.rtype)) {
            if owners.binary_search_by_key(&record.name, |(owner, _)| *owner).is_ok() {
                let (owner, rtype) = (self.names.name(record.name), record.rtype);
                let problem = format!("{owner} has both ALIAS and {rtype}");
                let remedy = "remove one of them: by ALIAS, the name gets the A and AAAA records of the target";
                diagnostics.push(Diagnostic::error(record.position, problem, remedy));
            }
        }
        diagnostics
    }

    /// Whether `name` gets another name's addresses.
    pub(super) fn has_alias_record(&self, name: Name<'_>) -> bool {
        if self.alias_owners.is_empty() {
            return false;
        }
        let name = name.to_lowercase();
        self.alias_owners
            .binary_search_by_key(&name.as_name().as_bytes(), |(owner, _)| owner.as_name().as_bytes())
            .is_ok()
    }
}
