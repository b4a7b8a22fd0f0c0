//! The key `update` of a domain: the TSIG keys that may change records of its zone.

use super::ConfigBuilder;
use crate::config_reader::{Entry, Node};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::updates::{NamePattern, UPDATE_TYPES, UpdateRule};
use toml::de::DeValue;

impl ConfigBuilder<'_, '_> {
    /// Reads the rules of `section` for the zone `apex`; whether there are some.
    pub(super) fn read_update(&mut self, section: Entry<'_, '_>, apex: &DomainName) -> bool {
        let DeValue::Array(items) = section.value.get_ref() else {
            let offset = section.value.span().start;
            self.error(offset, "`update` must be a list of tables", format!("write {}", section.example));
            return true;
        };
        let rules: Vec<UpdateRule> =
            items.iter().filter_map(|item| self.read_update_rule(section, item, apex)).collect();
        if !rules.is_empty() {
            self.update_uses.push((section.offset, apex.clone()));
            self.config.zone_updates.push((apex.clone(), rules));
        }
        !items.is_empty()
    }

    /// `None` after an error.
    fn read_update_rule<'n, 't>(
        &mut self,
        section: Entry<'n, 't>,
        item: &'n Node<'t>,
        apex: &DomainName,
    ) -> Option<UpdateRule> {
        let item = section.item(item);
        let keys = self.reader.keys(item, Section::UpdateRule)?;
        let is_empty = |entry: &Entry<'_, '_>| entry.value.get_ref().as_array().is_some_and(|list| list.is_empty());
        if let Some(entry) = ["names", "types"].into_iter().filter_map(|name| keys.get(name)).find(is_empty) {
            let message = format!("`{}` in `update` is empty, so the rule allows nothing", entry.key);
            self.error(entry.offset, message, format!("write {}, or remove the rule", section.example));
            return None;
        }
        let [key, names, types] =
            ["key", "names", "types"].map(|name| keys.get(name).map(|entry| entry.with_example(section.example)));
        let key = key.map(|entry| self.read_key_use(entry));
        let names = names.map(|entry| self.read_update_names(entry, apex));
        let types = types.map(|entry| self.read_update_types(entry));
        // An omission would allow more than the operator intends.
        let missing = [("key", key.is_none()), ("names", names.is_none()), ("types", types.is_none())];
        for (name, _) in missing.into_iter().filter(|(_, is_missing)| *is_missing) {
            self.missing(item, &format!("`{name}` missing"));
        }
        Some(UpdateRule { key: key??, names: names?, types: types? })
    }

    fn read_update_names(&mut self, entry: Entry<'_, '_>, apex: &DomainName) -> Vec<NamePattern> {
        let mut patterns = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            let below = text.to_ascii_lowercase();
            let below = below.strip_suffix('.').unwrap_or(&below);
            let below = below
                .strip_suffix(apex.as_str())
                .and_then(|below| below.strip_suffix('.').or(below.is_empty().then_some("@")));
            match (below, NamePattern::parse(text)) {
                (Some(below), _) => {
                    let message = format!("`{text}` ends with the zone name, which is appended anyway");
                    self.error(offset, message, format!("write \"{below}\""));
                }
                (None, Ok(pattern)) => patterns.push(pattern),
                (None, Err(problem)) => {
                    let message = format!("`{text}` is not a name pattern: {problem}");
                    self.error(
                        offset,
                        message,
                        "write for example \"www\", \"*.dyn\", \"_acme-challenge.**\", or \"@\" for the apex",
                    );
                }
            }
        }
        patterns
    }

    /// The types; `None` for all.
    fn read_update_types(&mut self, entry: Entry<'_, '_>) -> Option<Vec<String>> {
        let mut types = Vec::new();
        let mut has_all = false;
        for (offset, text) in self.reader.strings(entry) {
            let name = text.to_ascii_uppercase();
            let is_number = |digits: &str| digits.parse::<u16>().is_ok();
            if name == "ANY" {
                has_all = true;
            } else if UPDATE_TYPES.contains(&name.as_str()) || name.strip_prefix("TYPE").is_some_and(is_number) {
                types.push(name);
            } else {
                let remedy = "write for example \"TXT\", \"TYPE65280\", or \"ANY\" for all";
                self.error(offset, format!("`{text}` is not a record type that an update can change"), remedy);
            }
        }
        (!has_all).then_some(types)
    }

    /// Reports rules for zones that are not read from a file.
    pub(super) fn check_updates(&mut self) {
        for (offset, name) in std::mem::take(&mut self.update_uses) {
            let is_secondary = self.config.secondary_zones.iter().any(|zone| zone.apex == name);
            if is_secondary {
                let message = format!("{name} has `update`, but is transferred from its primaries");
                self.error(offset, message, "configure updates at the primary server");
            } else if self.config.zone_folder.is_none() && !self.apexes.contains_key(&name) {
                self.error(offset, format!("{name} has `update`, but no zone"), "add zone = \"FILE\"");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, config};

    const KEY: &str = "[tsig.acme]\nsecret_file = \"a.key\"\n";

    #[test]
    fn rules_are_read() {
        let text = "zone = \"a.zone\"\nupdate = [{ key = \"Acme\", names = [\"@\", \"_acme-challenge.**\"], types = [\"txt\", \"TYPE65280\"] }, \
                    { key = \"acme\", names = [\"**\"], types = [\"ANY\"] }]\n";
        let config = config(&format!("{KEY}[domain.\"example.com\"]\n{text}"));
        let [(apex, rules)] = &config.zone_updates[..] else { panic!("{:?}", config.zone_updates) };
        assert_eq!((apex.as_str(), rules[0].key.as_str(), rules.len()), ("example.com", "acme", 2));
        assert_eq!(rules[0].types.as_deref(), Some(&["TXT".to_owned(), "TYPE65280".to_owned()][..]));
        assert_eq!((rules[0].names.len(), &rules[1].types), (2, &None));
        assert!(config.has_stored_zones());
    }

    #[test]
    fn wrong_rules_are_errors() {
        let write = "write update = [{ key = \"acme\", names = [\"_acme-challenge.**\"], types = [\"TXT\"] }]";
        for (update, expected) in [
            ("true", format!("5:10: `update` must be a list of tables; {write}")),
            ("[{ names = [\"a\"], types = [\"A\"] }]", format!("5:11: `key` missing in `update`; {write}")),
            ("[{ key = \"acme\", types = [\"A\"] }]", format!("5:11: `names` missing in `update`; {write}")),
            ("[{ key = \"acme\", names = [\"a\"] }]", format!("5:11: `types` missing in `update`; {write}")),
            (
                "[{ key = \"acme\", names = [], types = [\"A\"] }]",
                format!("5:27: `names` in `update` is empty, so the rule allows nothing; {write}, or remove the rule"),
            ),
            (
                "[{ key = \"acme\", names = [\"a\"], types = [] }]",
                format!("5:42: `types` in `update` is empty, so the rule allows nothing; {write}, or remove the rule"),
            ),
            (
                "[{ key = \"other\", names = [\"a\"], types = [\"A\"] }]",
                "5:19: there is no key other; add [tsig.\"other\"] with secret_file".to_owned(),
            ),
            (
                "[{ key = \"acme\", names = [\"_a.Example.com.\"], types = [\"A\"] }]",
                "5:36: `_a.Example.com.` ends with the zone name, which is appended anyway; write \"_a\"".to_owned(),
            ),
            (
                "[{ key = \"acme\", names = [\"a..b\"], types = [\"A\"] }]",
                "5:36: `a..b` is not a name pattern: it has an empty label; write for example \"www\", \"*.dyn\", \
                    \"_acme-challenge.**\", or \"@\" for the apex"
                    .to_owned(),
            ),
            (
                "[{ key = \"acme\", names = [\"a\"], types = [\"OPENPGPKEYS\"] }]",
                "5:51: `OPENPGPKEYS` is not a record type that an update can change; write for example \"TXT\", \
                 \"TYPE65280\", or \"ANY\" for all"
                    .to_owned(),
            ),
        ] {
            let text = format!("{KEY}[domain.\"example.com\"]\nzone = \"a.zone\"\nupdate = {update}\n");
            check(&text, &[&expected]);
        }
        let rule = "update = [{ key = \"acme\", names = [\"a\"], types = [\"A\"] }]\n";
        check(
            &format!("{KEY}[domain.\"example.com\"]\nprimaries = [{{ address = \"192.0.2.7\" }}]\n{rule}"),
            &["5:1: example.com has `update`, but is transferred from its primaries; configure updates at the \
                 primary \
                    server"],
        );
        check(
            &format!("{KEY}[domain.\"example.com\"]\nsite = \"public\"\n{rule}"),
            &["5:1: example.com has `update`, but no zone; add zone = \"FILE\""],
        );
    }
}
