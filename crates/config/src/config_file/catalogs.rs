//! `[catalog."NAME"]`.

use super::ConfigBuilder;
use crate::catalogs::{Catalog, CatalogRole};
use crate::config_reader::Entry;
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::transfers::{Primary, ZoneTransfers};

const EXAMPLE: &str =
    "[catalog.\"catalog.example\"] with secondaries = [{ address = \"192.0.2.5\", key = \"transfer\" }]";
const GROUPS_EXAMPLE: &str = "groups.internal = [{ address = \"192.0.2.7\", key = \"transfer\" }]";
const PRODUCED_GROUPS_EXAMPLE: &str = "groups.internal = [\"example.com\"]";
/// Maximum length of a group name in bytes, which is one string of a TXT record.
const GROUP_BYTES_MAX: usize = 255;

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_catalogs(&mut self, section: Entry<'_, '_>) {
        for catalog in self.reader.entries(section) {
            let Some(keys) = self.reader.keys(catalog, Section::Catalog) else { continue };
            let primaries = keys.get("primaries").map(|entry| {
                let remedy = format!("write {}", entry.example);
                self.read_primary_list(entry, &remedy)
            });
            let groups = keys.get("groups");
            let members_below = keys.get("members_below").map(|entry| (entry.offset, self.read_names(entry)));
            let secondaries = keys.get("secondaries").map(|entry| (entry.offset, self.read_secondaries(entry)));
            let apex = match DomainName::parse(catalog.key) {
                Ok(apex) => apex,
                Err(problem) => {
                    self.reader.error(catalog.offset, problem);
                    continue;
                }
            };
            self.add_apex(&apex, catalog.offset);
            let role = match (primaries, groups, secondaries) {
                (Some(_), _, Some((offset, _))) => {
                    let message = format!("the catalog {apex} has both `primaries` and `secondaries`");
                    self.error(offset, message, "remove one of the two; `secondaries` in [dns] can transfer its zones");
                    continue;
                }
                (Some(primaries), groups, None) => CatalogRole::Consumer {
                    primaries,
                    groups: groups.map_or(Vec::new(), |entry| self.read_groups(entry)),
                    members_below: members_below.map(|(_, names)| names),
                },
                (None, ..) if let Some((offset, _)) = members_below => {
                    let message = format!("the catalog {apex} has `members_below`, but no `primaries`");
                    self.error(offset, message, "remove it: this server lists its own zones in the catalog");
                    continue;
                }
                (None, groups, secondaries) => CatalogRole::Producer {
                    secondaries: secondaries.map(|(_, secondaries)| secondaries).unwrap_or_default(),
                    groups: groups.map_or(Vec::new(), |entry| self.read_produced_groups(entry)),
                },
            };
            let location = self.reader.location(catalog.offset);
            self.catalog_uses.push(catalog.offset);
            self.config.catalogs.push(Catalog { apex, role, location });
        }
    }

    fn read_names(&mut self, entry: Entry<'_, '_>) -> Vec<DomainName> {
        let mut names = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            match DomainName::parse(text) {
                Ok(name) => names.push(name),
                Err(problem) => self.reader.error(offset, problem),
            }
        }
        names
    }

    /// The primaries of each group.
    fn read_groups(&mut self, section: Entry<'_, '_>) -> Vec<(String, Vec<Primary>)> {
        let groups = self.reader.entries(section.with_example(GROUPS_EXAMPLE));
        let remedy = format!("write {GROUPS_EXAMPLE}");
        groups.into_iter().map(|group| (group.key.to_owned(), self.read_primary_list(group, &remedy))).collect()
    }

    /// The zones of each group of a catalog that this server produces.
    fn read_produced_groups(&mut self, section: Entry<'_, '_>) -> Vec<(String, Vec<DomainName>)> {
        let mut groups = Vec::new();
        for group in self.reader.entries(section.with_example(PRODUCED_GROUPS_EXAMPLE)) {
            if group.key.is_empty() || group.key.len() > GROUP_BYTES_MAX {
                let message = format!("the name of a group has {} bytes", group.key.len());
                self.error(group.offset, message, format!("write 1 to {GROUP_BYTES_MAX} bytes"));
            }
            let zones = self.read_names(group);
            groups.push((group.key.to_owned(), zones));
        }
        groups
    }

    /// Allows a catalog's secondaries to transfer it, and the zones without their own rules.
    pub(super) fn add_catalog_transfers(&mut self) {
        let default = self.config.transfers.secondaries.clone();
        let offsets = std::mem::take(&mut self.catalog_uses);
        for (index, offset) in offsets.into_iter().enumerate() {
            let Catalog { apex, role: CatalogRole::Producer { secondaries, .. }, .. } =
                &mut self.config.catalogs[index]
            else {
                continue;
            };
            if secondaries.is_empty() {
                secondaries.clone_from(&default);
            }
            let transfers = ZoneTransfers { secondaries: secondaries.clone(), allow: Vec::new() };
            let of_zones = &mut self.config.transfers.secondaries;
            of_zones.extend(secondaries.iter().filter(|one| !default.contains(one)).cloned());
            let (apex, is_empty) = (apex.clone(), secondaries.is_empty());
            self.config.zone_transfers.push((apex.clone(), transfers));
            if is_empty {
                let message = format!("the catalog {apex} has no `secondaries`");
                self.error(offset, message, format!("write {EXAMPLE}, or `primaries` if another server produces it"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_before_domain, config};
    use super::*;
    use crate::transfers::Secondary;

    fn addresses(primaries: &[Primary]) -> Vec<String> {
        primaries.iter().map(|one| one.address.ip().to_string()).collect()
    }

    #[test]
    fn catalogs_are_read() {
        let config = config(
            r#"
            [dns]
            secondaries = [{ address = "192.0.2.1" }]
            [tsig.k]
            secret_file = "k"
            [catalog."of.dns"]
            [catalog."own.example"]
            secondaries = [{ address = "192.0.2.2", key = "k" }, { address = "192.0.2.1" }]
            groups.one = ["a.example", "b.example"]
            groups."t w o" = ["B.example."]
            [catalog."other.example"]
            primaries = [{ address = "192.0.2.7", key = "k" }]
            members_below = ["Customers.example."]
            groups.b = [{ address = "192.0.2.8" }]
            groups.a = [{ address = "192.0.2.9" }]
            [domain."a.example"]
            zone = "a.zone"
            [domain."b.example"]
            zone = "b.zone"
            secondaries = [{ address = "192.0.2.1" }]
            [domain."k.example"]
            zone = "a.zone"
            transfer_allow = [{ key = "k" }]
            [domain."n.example"]
            zone = "a.zone"
            transfer_allow = [{ network = "192.0.2.2/31", key = "k" }, { network = "192.0.2.0/31" }]
        "#,
        );
        let shown = |secondaries: &[Secondary]| -> Vec<String> {
            secondaries.iter().map(|one| one.address.ip().to_string()).collect()
        };
        let names: Vec<&str> = config.catalogs.iter().map(|catalog| catalog.apex.as_str()).collect();
        assert_eq!(names, ["of.dns", "own.example", "other.example"]);
        let transfers = config.transfers_by_zone();
        let of = |name: &str| shown(&transfers.of(&DomainName::parse(name).unwrap()).secondaries);
        assert_eq!(of("of.dns"), ["192.0.2.1"]);
        assert_eq!(of("own.example"), ["192.0.2.2", "192.0.2.1"]);
        // The catalog's zones are transferred to the same servers, unless they have their own rules.
        assert_eq!(of("a.example"), ["192.0.2.1", "192.0.2.2"]);
        assert_eq!(of("b.example"), ["192.0.2.1"]);
        let lists = |catalog: usize, zone: &str| {
            config.catalogs[catalog].lists(transfers.of(&DomainName::parse(zone).unwrap()))
        };
        assert_eq!([lists(0, "a.example"), lists(0, "b.example")], [true, true]);
        assert_eq!([lists(1, "a.example"), lists(1, "b.example")], [true, false]);
        // One of the two servers has no key.
        assert_eq!([lists(1, "k.example"), lists(1, "n.example")], [false, true]);
        assert_eq!([lists(2, "a.example"), config.consumes_catalogs()], [false, true]);
        let groups = |catalog: usize, zone: &str| -> Vec<String> {
            let zone = DomainName::parse(zone).unwrap();
            config.catalogs[catalog].groups_of(&zone).map(str::to_owned).collect()
        };
        assert_eq!(
            [groups(1, "a.example"), groups(0, "a.example"), groups(1, "c.example")],
            [vec!["one"], vec![], vec![]]
        );
        assert_eq!(groups(1, "b.example"), ["one", "t w o"]);
        let catalog = &config.catalogs[2];
        let CatalogRole::Consumer { members_below, .. } = &catalog.role else { panic!("{catalog:?}") };
        assert_eq!(members_below.as_deref(), Some(&[DomainName::parse("customers.example").unwrap()][..]));
        let member = |groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            addresses(&catalog.member(&DomainName::parse("m.example").unwrap(), &groups).unwrap().primaries)
        };
        assert_eq!(
            [member(&[]), member(&["c"]), member(&["c", "b"])].map(|all| all.join(" ")),
            ["192.0.2.7", "192.0.2.7", "192.0.2.8"]
        );
        assert_eq!(member(&["a", "b"]), ["192.0.2.8"], "the first one of the configuration");
        assert_eq!(catalog.member_primaries().count(), 3);
    }

    #[test]
    fn wrong_catalogs_are_errors() {
        for (lines, expected) in [
            (
                "[catalog.\"c.example\"]",
                "1:10: the catalog c.example has no `secondaries`; write [catalog.\"catalog.example\"] with \
                 secondaries = [{ address = \"192.0.2.5\", key = \"transfer\" }], or `primaries` if another server \
                 produces it",
            ),
            (
                "[catalog.\"c.example\"]\nprimaries = [{ address = \"192.0.2.7\" }]\nsecondaries = [{ address = \"192.0.2.5\" }]",
                "3:1: the catalog c.example has both `primaries` and `secondaries`; remove one of the two; \
                    `secondaries` in [dns] can transfer its zones",
            ),
            (
                "[catalog.\"c.example\"]\ngroups.a = [{ address = \"192.0.2.7\" }]",
                "2:13: `a` must be a list of strings, not a table; write groups.internal = [\"example.com\"]",
            ),
            (
                "[catalog.\"c.example\"]\nprimaries = [{ address = \"192.0.2.7\" }]\ngroups.a = []",
                "3:12: `a` is empty; write groups.internal = [{ address = \"192.0.2.7\", key = \"transfer\" }]",
            ),
            (
                "[catalog.\"c.example\"]\nprimaries = []",
                "2:13: `primaries` is empty; write primaries = [{ address = \"192.0.2.7\", key = \"transfer\" }]",
            ),
            (
                "[catalog.\"c.example\"]\nmembers_below = [\"a.test\"]\nsecondaries = [{ address = \"192.0.2.5\" }]",
                "2:1: the catalog c.example has `members_below`, but no `primaries`; remove it: this server lists its \
                 own zones in the catalog",
            ),
            (
                "[catalog.\"c.example\"]\nmembers_below = [\"a..test\"]\nprimaries = [{ address = \"192.0.2.7\" }]",
                "2:18: invalid domain name `a..test`: it has an empty label; remove the extra dot",
            ),
            (
                "[catalog.\"c.example\"]\nprimary = \"x\"\nsecondaries = [{ address = \"192.0.2.5\" }]",
                "2:1: unknown key `primary` in [catalog.\"c.example\"]; did you mean `primaries`?",
            ),
        ] {
            check_before_domain(lines, &[expected]);
        }
    }
}
