//! The zones that catalogs have brought: serves those that they have brought since the last load, and no longer those
//! that they have removed.

use super::{Loader, Report, StoredParts};
use crate::load_status::ZoneState;
use sanderling_config::diagnostic::Location;
use sanderling_config::{
    CATALOG_MEMBERS, Catalog, CatalogRole, Config, DomainName, OwnZones, Zone as ZoneConfig, ZoneOrigin,
    stored_zone_file,
};
use sanderling_dns::ZoneEntry;
use sanderling_zone_files::ZoneDerivation;
use std::cell::LazyCell;
use std::collections::HashSet;
use std::sync::Arc;

/// The changes by catalogs.
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
            // The operator's zone of the same name stays.
            if !self.zones.contains_key(&member.apex) {
                let derivation = Arc::<ZoneDerivation>::default();
                let entry = self.load_zone(member, derivation, &config.limits, &[], stored, report);
                added.extend(report.load_status.zones.pop().map(|state| (entry, state)));
            }
        }
        MemberChanges { added, removed }
    }

    /// The zones from catalogs of `config` that are permitted together with the folder's zones, `of_folder`, and for
    /// which `is_wanted`. The agent has listed them, which is not believed.
    pub(super) fn member_zones<'z>(
        &'z self,
        config: &'z Config,
        of_folder: impl Iterator<Item = &'z DomainName>,
        is_wanted: impl Fn(&DomainName) -> bool,
    ) -> Vec<ZoneConfig> {
        let own = LazyCell::new(|| OwnZones::new(config.apexes().chain(of_folder)));
        let is_catalog = |apex: &DomainName| config.catalogs.iter().any(|one| one.apex == *apex);
        let may_bring = |catalog: &Catalog, apex: &DomainName| {
            matches!(catalog.role, CatalogRole::Consumer { .. }) && catalog.refusal(apex, &own).is_none()
        };
        let is_member = |(apex, catalog): &(&DomainName, &DomainName)| {
            let catalog = config.catalogs.iter().find(|one| one.apex == **catalog);
            is_wanted(apex)
                && catalog.is_some_and(|catalog| may_bring(catalog, apex))
                && !own.has(apex)
                && !is_catalog(apex)
        };
        self.members.zones().filter(is_member).map(|(apex, _)| self.member_zone(apex)).collect()
    }

    /// The operator's served zones, including zones from the folder.
    pub(super) fn served_zones_of_operator(&self) -> impl Iterator<Item = &DomainName> {
        let of_operator = self.zones.iter().filter(|(_, loaded)| loaded.state.origin == ZoneOrigin::Operator);
        of_operator.map(|(apex, _)| apex)
    }

    fn member_zone(&self, apex: &DomainName) -> ZoneConfig {
        let location = Location::File(self.state_path().join(CATALOG_MEMBERS));
        let file = self.state_path().join(stored_zone_file(apex));
        ZoneConfig { apex: apex.clone(), file, location: location.into(), origin: ZoneOrigin::Primaries }
    }
}
