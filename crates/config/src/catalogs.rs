//! Catalogs (RFC 9432): zones that list zones, so that secondary servers need no configuration for each.

use crate::diagnostic::Location;
use crate::domain_name::DomainName;
use crate::transfers::{Primary, Secondary, ZoneTransfers};
use crate::zones::{SecondaryZone, Zone, ZoneOrigin, stored_zone_file};
use std::path::Path;

/// A catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// The name of its zone.
    pub apex: DomainName,
    /// What this server does with it.
    pub role: CatalogRole,
    /// Where the configuration has it.
    pub location: Location,
}

/// What a server does with a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogRole {
    /// It transfers the catalog, and the zones in it.
    Consumer {
        /// The servers that have the catalog, and the zones in it. There is one at least.
        primaries: Vec<Primary>,
        /// The servers that have the zones of a group instead.
        groups: Vec<(String, Vec<Primary>)>,
    },
    /// It lists its own zones in the catalog.
    Producer {
        /// The servers that transfer the catalog, and the zones in it. There is one at least.
        secondaries: Vec<Secondary>,
        /// The zones of each group, which the catalog says of them (RFC 9432 §4.3.2).
        groups: Vec<(String, Vec<DomainName>)>,
    },
}

/// The file with the zones that catalogs have brought, below the state folder. No zone has a file of this name.
pub const CATALOG_MEMBERS: &str = "zones/members";

impl Catalog {
    /// The catalog as a zone, whose file is below the state folder.
    pub fn zone(&self, state: &Path) -> Zone {
        let (apex, location) = (self.apex.clone(), self.location.clone());
        Zone { file: state.join(stored_zone_file(&apex)), apex, location, origin: ZoneOrigin::Catalog }
    }

    /// The catalog as a zone with primaries; `None` if this server produces it.
    pub fn secondary_zone(&self) -> Option<SecondaryZone> {
        match &self.role {
            CatalogRole::Consumer { primaries, .. } => {
                let (apex, location) = (self.apex.clone(), self.location.clone());
                Some(SecondaryZone { apex, primaries: primaries.clone(), location })
            }
            CatalogRole::Producer { .. } => None,
        }
    }

    /// A member of the catalog with these groups; `None` if this server produces the catalog.
    pub fn member(&self, apex: &DomainName, groups: &[String]) -> Option<SecondaryZone> {
        let CatalogRole::Consumer { primaries, groups: known } = &self.role else { return None };
        // RFC 9432 §4.3.2: groups that are not understood are ignored.
        let of_group = known.iter().find(|(name, _)| groups.contains(name));
        let primaries = of_group.map_or(primaries, |(_, primaries)| primaries).clone();
        Some(SecondaryZone { apex: apex.clone(), primaries, location: self.location.clone() })
    }

    /// Whether this server lists a zone with these transfers in the catalog: all that the catalog is for may transfer
    /// it.
    pub fn lists(&self, transfers: &ZoneTransfers) -> bool {
        match &self.role {
            CatalogRole::Producer { secondaries, .. } => {
                secondaries.iter().all(|one| transfers.rules().any(|rule| rule.is_for(one)))
            }
            CatalogRole::Consumer { .. } => false,
        }
    }

    /// The groups of a zone that this server lists in the catalog, in the order of the file.
    pub fn groups_of<'c>(&'c self, zone: &'c DomainName) -> impl Iterator<Item = &'c str> {
        let groups = match &self.role {
            CatalogRole::Producer { groups, .. } => &groups[..],
            CatalogRole::Consumer { .. } => &[],
        };
        groups.iter().filter(|(_, zones)| zones.contains(zone)).map(|(group, _)| group.as_str())
    }

    /// All servers that may be the primary of a member.
    pub fn member_primaries(&self) -> impl Iterator<Item = &Primary> {
        let (primaries, groups) = match &self.role {
            CatalogRole::Consumer { primaries, groups } => (&primaries[..], &groups[..]),
            CatalogRole::Producer { .. } => (&[][..], &[][..]),
        };
        primaries.iter().chain(groups.iter().flat_map(|(_, primaries)| primaries))
    }
}
