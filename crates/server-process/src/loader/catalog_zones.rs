//! Serves the zones that catalogs have brought since the last load, and no longer those that they have removed.

use super::{Loader, Report, StoredParts};
use crate::load_status::ZoneState;
use sanderling_config::{Config, DomainName, ZoneOrigin};
use sanderling_dns::ZoneEntry;
use sanderling_zone_files::ZoneDerivation;
use std::collections::HashSet;
use std::sync::Arc;

/// What catalogs have changed.
#[derive(Debug, Default)]
pub(crate) struct MemberChanges {
    pub(crate) added: Vec<(ZoneEntry, Arc<ZoneState>)>,
    pub(crate) removed: Vec<DomainName>,
}

impl MemberChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

impl Loader {
    /// Reads which zones catalogs have brought, and loads those that are not served yet.
    pub(super) fn load_members(
        &mut self,
        config: &Config,
        stored: &StoredParts<'_>,
        report: &mut Report,
    ) -> MemberChanges {
        self.members.update(self.state.as_deref());
        let members = self.member_zones(config, self.served_zones_of_operator(), |_| true);
        let configured: HashSet<&DomainName> = config.secondary_zones.iter().map(|zone| &zone.apex).collect();
        let listed: HashSet<&DomainName> = members.iter().map(|member| &member.apex).collect();
        let is_removed = |apex: &DomainName, origin: ZoneOrigin| {
            origin == ZoneOrigin::Primaries && !configured.contains(apex) && !listed.contains(apex)
        };
        let gone = self.zones.extract_if(|apex, loaded| is_removed(apex, loaded.state.origin));
        let mut removed: Vec<DomainName> = gone.map(|(apex, _)| apex).collect();
        removed.sort();
        report.journals.extend(removed.iter().map(|apex| (apex.as_str().to_owned(), Vec::new())));
        let mut added = Vec::new();
        for member in &members {
            // A zone of the operator with the same name stays.
            if !self.zones.contains_key(&member.apex) {
                let derivation = Arc::<ZoneDerivation>::default();
                let entry = self.load_zone(member, derivation, &config.limits, &[], stored, report);
                added.extend(report.load_status.zones.pop().map(|state| (entry, state)));
            }
        }
        MemberChanges { added, removed }
    }
}
