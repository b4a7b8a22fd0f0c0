//! Catalogs (RFC 9432): zones that list zones, so that secondary servers need no configuration for each.

use crate::diagnostic::ValueLocation;
use crate::domain_name::DomainName;
use crate::transfers::{Primary, Secondary, ZoneTransfers};
use crate::zones::{SecondaryZone, Zone, ZoneOrigin, stored_zone_file};
use sanderling_os::directory::Directory;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::Path;

/// A catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// The name of the catalog zone.
    pub apex: DomainName,
    /// The role of this server for it.
    pub role: CatalogRole,
    /// The position in the configuration, for messages.
    pub location: ValueLocation,
}

/// The role of a server for a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogRole {
    /// The server transfers the catalog, and the zones in it.
    Consumer {
        /// The servers that have the catalog, and the zones in it. There is at least one.
        primaries: Vec<Primary>,
        /// The primaries of each group's zones, instead of the catalog's primaries.
        groups: Vec<(String, Vec<Primary>)>,
        /// The names that its zones have, or are below; `None` for any that is not near a zone of the configuration.
        members_below: Option<Vec<DomainName>>,
    },
    /// The server lists its own zones in the catalog.
    Producer {
        /// The servers that transfer the catalog, and the zones in it. There is at least one.
        secondaries: Vec<Secondary>,
        /// The zones of each group, which the catalog assigns to them (RFC 9432 §4.3.2).
        groups: Vec<(String, Vec<DomainName>)>,
    },
}

/// The zones that the configuration defines, to distinguish them from names near them.
#[derive(Debug, Default)]
pub struct OwnZones {
    zones: HashSet<String>,
    /// The names above the zones, each with a zone below it.
    above: HashMap<String, String>,
}

impl OwnZones {
    /// The zones with these names.
    pub fn new<'z>(zones: impl IntoIterator<Item = &'z DomainName>) -> OwnZones {
        let mut own = OwnZones::default();
        for zone in zones {
            for name in names_above(zone) {
                own.above.entry(name.to_owned()).or_insert_with(|| zone.to_string());
            }
            own.zones.insert(zone.to_string());
        }
        own
    }

    /// Whether `name` is one of these zones.
    pub fn has(&self, name: &DomainName) -> bool {
        self.zones.contains(name.as_str())
    }

    /// The zone above `name`, or else a zone below it.
    fn near(&self, name: &DomainName) -> Option<MemberRefusal> {
        let above = names_above(name).find_map(|above| self.zones.get(above));
        let below = || self.above.get(name.as_str()).map(|zone| MemberRefusal::AboveOwn(zone.clone()));
        above.map(|zone| MemberRefusal::BelowOwn(zone.clone())).or_else(below)
    }
}

/// The names above `name`, from the nearest one to the root.
fn names_above(name: &DomainName) -> impl Iterator<Item = &str> {
    let is_root = name.labels().next().is_none();
    let parents = std::iter::successors(Some(name.as_str()), |name| name.split_once('.').map(|(_, parent)| parent));
    parents.skip(1).chain((!is_root).then_some(".")).filter(|name| !name.is_empty())
}

/// The reason why a zone that a catalog lists is not taken from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MemberRefusal {
    /// The member is the root, and `members_below` does not contain the root.
    Root,
    /// The member is below none of the names in `members_below`.
    Outside,
    /// The member is below this configured zone, whose names it would take.
    BelowOwn(String),
    /// The member is above this configured zone.
    AboveOwn(String),
}

impl fmt::Display for MemberRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self {
            MemberRefusal::Outside => return write!(out, "it is below no name in `members_below`"),
            MemberRefusal::Root => "the root".to_owned(),
            MemberRefusal::BelowOwn(zone) => format!("below {zone}, which is in the configuration"),
            MemberRefusal::AboveOwn(zone) => format!("above {zone}, which is in the configuration"),
        };
        write!(out, "it is {place}; to accept it from the catalog, add it to `members_below`")
    }
}

/// The file that lists the members of catalogs, below the state folder. No zone has a file of this name.
pub const CATALOG_MEMBERS: &str = "zones/members";
/// Maximum size of that file: enough for a million zones.
const CATALOG_MEMBERS_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The content of [`CATALOG_MEMBERS`] in the state folder. The agent writes this file, so it may have any length, or
/// not be a regular file.
pub fn read_catalog_members(state: &Path) -> io::Result<Vec<u8>> {
    let path = state.join(CATALOG_MEMBERS);
    let (folder, name) = path.parent().zip(path.file_name()).ok_or(io::ErrorKind::InvalidFilename)?;
    let file = Directory::open(folder)?.open_without_links(name.as_encoded_bytes())?;
    file.read_all(CATALOG_MEMBERS_BYTES_MAX)
}

impl Catalog {
    /// The catalog as a zone, whose file is below the state folder.
    pub fn zone(&self, state: &Path) -> Zone {
        let (apex, location) = (self.apex.clone(), self.location.clone());
        let origin = match self.role {
            CatalogRole::Consumer { .. } => ZoneOrigin::Catalog,
            CatalogRole::Producer { .. } => ZoneOrigin::ProducedCatalog,
        };
        Zone { file: state.join(stored_zone_file(&apex)), apex, location, origin }
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
        let CatalogRole::Consumer { primaries, groups: known, .. } = &self.role else { return None };
        // RFC 9432 §4.3.2: groups that are not understood are ignored.
        let of_group = known.iter().find(|(name, _)| groups.contains(name));
        let primaries = of_group.map_or(primaries, |(_, primaries)| primaries).clone();
        Some(SecondaryZone { apex: apex.clone(), primaries, location: self.location.clone() })
    }

    /// The reason why this server does not accept `zone` from the catalog, other than having a zone of this name;
    /// `None` if it does.
    pub fn refusal(&self, zone: &DomainName, own: &OwnZones) -> Option<MemberRefusal> {
        let CatalogRole::Consumer { members_below, .. } = &self.role else { return None };
        match members_below {
            Some(names) => {
                let is_below =
                    |name: &DomainName| zone == name || names_above(zone).any(|above| above == name.as_str());
                (!names.iter().any(is_below)).then_some(MemberRefusal::Outside)
            }
            None if zone.as_str() == "." => Some(MemberRefusal::Root),
            None => own.near(zone),
        }
    }

    /// Whether this server lists a zone with these transfers in the catalog: all servers that transfer the catalog may
    /// transfer the zone.
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
            CatalogRole::Consumer { primaries, groups, .. } => (&primaries[..], &groups[..]),
            CatalogRole::Producer { .. } => (&[][..], &[][..]),
        };
        primaries.iter().chain(groups.iter().flat_map(|(_, primaries)| primaries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).unwrap()
    }

    #[test]
    fn catalog_brings_no_zone_near_those_of_the_configuration_unless_that_is_allowed() {
        let own = [name("example.com"), name("a.b.example.net"), name("_acme-challenge.example.org")];
        let own = OwnZones::new(&own);
        let check = |members_below: Option<&[&str]>, zone: &str, expected: Option<MemberRefusal>| {
            let names = members_below.map(|names| names.iter().copied().map(name).collect());
            let role = CatalogRole::Consumer { primaries: Vec::new(), groups: Vec::new(), members_below: names };
            let location = crate::diagnostic::Location::Argument(String::new()).into();
            let catalog = Catalog { apex: name("c.example"), role, location };
            assert_eq!(catalog.refusal(&name(zone), &own), expected, "{members_below:?} {zone}");
        };
        let below = |zone: &str| Some(MemberRefusal::BelowOwn(zone.to_owned()));
        let above = |zone: &str| Some(MemberRefusal::AboveOwn(zone.to_owned()));
        check(None, "other.test", None);
        check(None, "badexample.com", None);
        check(None, "b.example.com", below("example.com"));
        check(None, "_acme-challenge.www.example.com", below("example.com"));
        check(None, "example.net", above("a.b.example.net"));
        check(None, "org", above("_acme-challenge.example.org"));
        check(None, ".", Some(MemberRefusal::Root));
        // The operator may allow all of this.
        check(Some(&["example.com", "other.test"]), "b.example.com", None);
        check(Some(&["other.test"]), "other.test", None);
        check(Some(&["other.test"]), "b.example.com", Some(MemberRefusal::Outside));
        check(Some(&["other.test"]), "mother.test", Some(MemberRefusal::Outside));
        check(Some(&["other.test"]), ".", Some(MemberRefusal::Outside));
        check(Some(&[]), "other.test", Some(MemberRefusal::Outside));
        check(Some(&["."]), "b.example.com", None);
        check(Some(&["."]), ".", None);
        // A server that has the root.
        assert_eq!(OwnZones::new(&[name(".")]).near(&name("test")), below("."));
    }
}
