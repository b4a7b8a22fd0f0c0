//! `[tsig."NAME"]`, and the keys `primaries`, `secondaries` and `transfer_allow` of zones.

use super::ConfigBuilder;
use super::http::parse_network;
use crate::config_reader::{Entry, Keys};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::transfers::{Primary, Secondary, TransferRule, TsigAlgorithm, TsigKeyFile, ZoneTransfers};
use crate::zones::SecondaryZone;
use std::net::{IpAddr, SocketAddr};
use toml::de::DeValue;

const PRIMARIES_EXAMPLE: &str = "primaries = [{ address = \"192.0.2.7\", key = \"transfer\" }]";
/// The port of DNS.
const DNS_PORT: u16 = 53;

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_tsig(&mut self, section: Entry<'_, '_>) {
        for key in self.reader.entries(section) {
            let Some(keys) = self.reader.keys(key, Section::Tsig) else { continue };
            let algorithm = keys.get("algorithm").and_then(|entry| self.read_tsig_algorithm(entry)).unwrap_or_default();
            match (DomainName::parse(key.key), self.read_path(keys.get("secret_file"))) {
                (Err(problem), _) => self.reader.error(key.offset, problem),
                (Ok(name), Some((path, location))) => {
                    self.config.tsig_keys.push(TsigKeyFile { name, algorithm, path, location });
                }
                (Ok(name), None) => {
                    let message = format!("the key {name} has no `secret_file`");
                    self.error(key.offset, message, format!("write {}", key.example));
                }
            }
        }
    }

    fn read_tsig_algorithm(&mut self, entry: Entry<'_, '_>) -> Option<TsigAlgorithm> {
        let (offset, text) = self.reader.string(entry)?;
        let algorithm = TsigAlgorithm::parse(text);
        if algorithm.is_none() {
            let remedy = "write hmac-sha256, hmac-sha384 or hmac-sha512; the others are obsolete";
            self.error(offset, format!("`{text}` is not a supported algorithm"), remedy);
        }
        algorithm
    }

    /// `secondaries` and `transfer_allow`.
    pub(super) fn read_transfers(&mut self, keys: &Keys<'_, '_>) -> ZoneTransfers {
        ZoneTransfers {
            secondaries: keys.get("secondaries").map(|entry| self.read_secondaries(entry)).unwrap_or_default(),
            allow: keys.get("transfer_allow").map(|entry| self.read_transfer_rules(entry)).unwrap_or_default(),
        }
    }

    /// Reads the transfers of the zone `name`; whether there are rules.
    pub(super) fn read_zone_transfers(&mut self, name: &DomainName, keys: &Keys<'_, '_>) -> bool {
        let transfers = self.read_transfers(keys);
        let uses = ["secondaries", "transfer_allow"].into_iter().filter_map(|key| keys.get(key));
        self.transfer_uses.extend(uses.map(|entry| (entry.offset, name.clone())));
        let has_rules = transfers != ZoneTransfers::default();
        if has_rules {
            self.config.zone_transfers.push((name.clone(), transfers));
        }
        has_rules
    }

    pub(super) fn read_secondaries(&mut self, list: Entry<'_, '_>) -> Vec<Secondary> {
        let mut secondaries = Vec::new();
        for item in self.tables_of(list) {
            let Some(keys) = self.reader.keys(item, Section::Secondary) else { continue };
            let key = keys.get("key").map(|entry| self.read_key_use(entry.with_example(item.example)));
            match (keys.get("address").map(|entry| self.read_address(entry.with_example(item.example))), key) {
                (Some(Some(address)), None) => secondaries.push(Secondary { address, key: None }),
                (Some(Some(address)), Some(Some(key))) => secondaries.push(Secondary { address, key: Some(key) }),
                (None, _) => self.missing(item, "`address` missing"),
                // The error was reported.
                _ => {}
            }
        }
        secondaries
    }

    fn read_transfer_rules(&mut self, list: Entry<'_, '_>) -> Vec<TransferRule> {
        let mut rules = Vec::new();
        for item in self.tables_of(list) {
            let Some(keys) = self.reader.keys(item, Section::Transfer) else { continue };
            let key = keys.get("key").map(|entry| self.read_key_use(entry.with_example(item.example)));
            match (keys.get("network").map(|entry| self.read_network(entry.with_example(item.example))), key) {
                // An omission would allow everyone.
                (None, None) => self.missing(item, "`network` and `key` missing"),
                // The error was reported.
                (Some(None), _) | (_, Some(None)) => {}
                (network, key) => rules.push(TransferRule { network: network.flatten(), key: key.flatten() }),
            }
        }
        rules
    }

    fn read_network(&mut self, entry: Entry<'_, '_>) -> Option<(IpAddr, u8)> {
        let (offset, text) = self.reader.string(entry)?;
        parse_network(text).map_err(|problem| self.reader.error(offset, problem)).ok()
    }

    /// The items of `list`, each of which must be a table.
    fn tables_of<'n, 't>(&mut self, list: Entry<'n, 't>) -> Vec<Entry<'n, 't>> {
        let DeValue::Array(items) = list.value.get_ref() else {
            let message = format!("`{}` must be a list of tables", list.key);
            self.error(list.value.span().start, message, format!("write {}", list.example));
            return Vec::new();
        };
        items.iter().map(|item| list.item(item)).collect()
    }

    /// Reports that `item` of a list lacks a key.
    pub(super) fn missing(&mut self, item: Entry<'_, '_>, what: &str) {
        let message = format!("{what} in `{}`", item.key);
        self.error(item.value.span().start, message, format!("write {}", item.example));
    }

    /// The zone `name`, which is transferred from the servers of `section`.
    pub(super) fn read_primaries(&mut self, name: &DomainName, offset: usize, section: Entry<'_, '_>) {
        self.add_apex(name, offset);
        let remedy = format!("write {PRIMARIES_EXAMPLE}, or zone = \"FILE\"");
        let primaries = self.read_primary_list(section, &remedy);
        let location = self.reader.location(section.offset);
        self.config.secondary_zones.push(SecondaryZone { apex: name.clone(), primaries, location });
    }

    /// The servers of `list`, `primaries` or a group of a catalog; `remedy` is for a missing one.
    pub(super) fn read_primary_list(&mut self, list: Entry<'_, '_>, remedy: &str) -> Vec<Primary> {
        let list = list.with_example(PRIMARIES_EXAMPLE);
        let mut primaries = Vec::new();
        for item in self.tables_of(list) {
            let Some(keys) = self.reader.keys(item, Section::Primary) else { continue };
            let key = keys.get("key").and_then(|entry| self.read_key_use(entry.with_example(item.example)));
            match keys.get("address").map(|entry| self.read_address(entry.with_example(item.example))) {
                Some(Some(address)) => primaries.push(Primary { address, key }),
                // The error was reported.
                Some(None) => {}
                None => self.missing(item, "`address` missing"),
            }
        }
        if matches!(list.value.get_ref(), DeValue::Array(items) if items.is_empty()) {
            self.error(list.value.span().start, format!("`{}` is empty", list.key), remedy);
        }
        primaries
    }

    /// An address; `None` after an error.
    fn read_address(&mut self, entry: Entry<'_, '_>) -> Option<SocketAddr> {
        let (offset, text) = self.reader.string(entry)?;
        let address = parse_address(text);
        if address.is_none() {
            self.error(offset, format!("`{text}` is not an address"), format!("write {}", entry.example));
        }
        address
    }

    /// A key's name, which must be defined; `None` after an error.
    pub(super) fn read_key_use(&mut self, entry: Entry<'_, '_>) -> Option<DomainName> {
        let (offset, text) = self.reader.string(entry)?;
        match DomainName::parse(text) {
            Ok(name) => {
                self.key_uses.push((offset, name.clone()));
                Some(name)
            }
            Err(problem) => {
                self.reader.error(offset, problem);
                None
            }
        }
    }

    /// Reports keys that are not defined, and rules for zones that do not exist.
    pub(super) fn check_transfers(&mut self) {
        for (offset, name) in std::mem::take(&mut self.key_uses) {
            if self.config.tsig_keys.iter().all(|key| key.name != name) {
                self.error(
                    offset,
                    format!("there is no key {name}"),
                    format!("add [tsig.\"{name}\"] with secret_file"),
                );
            }
        }
        for (offset, name) in std::mem::take(&mut self.transfer_uses) {
            if self.config.zone_folder.is_none() && !self.apexes.contains_key(&name) {
                self.error(offset, format!("{name} has transfers, but no zone"), "add zone = \"FILE\"");
            }
        }
    }
}

/// An address with a port, or with the port of DNS.
pub(super) fn parse_address(text: &str) -> Option<SocketAddr> {
    let with_port = text.parse().ok();
    with_port.or_else(|| text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, DNS_PORT)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_before_domain, config};
    use super::*;
    use std::path::Path;

    #[test]
    fn transfers_are_read() {
        let text = r#"
            [dns]
            zones = "*.zone"
            transfer_allow = [{ key = "k1" }]
            [tsig."k1"]
            algorithm = "hmac-sha512"
            secret_file = "k1.key"
            [tsig.k2]
            secret_file = "k2.key"
            [domain."example.com"]
            zone = "a.zone"
            secondaries = [{ address = "192.0.2.5:5300", key = "k2" }, { address = "2001:db8::1" }]
            transfer_allow = [{ network = "192.0.2.0/24", key = "K1" }, { network = "::1" }]
            [domain."0/25.2.0.192.in-addr.arpa"]
            primaries = [{ address = "192.0.2.7", key = "k2" }, { address = "[2001:db8::7]:5300" }]
            [domain."of.folder"]
            secondaries = [{ address = "192.0.2.6" }]
        "#;
        let config = config(text);
        let keys: Vec<_> = config.tsig_keys.iter().map(|key| (key.name.as_str(), key.algorithm)).collect();
        assert_eq!(keys, [("k1", TsigAlgorithm::HmacSha512), ("k2", TsigAlgorithm::HmacSha256)]);
        assert!(config.has_secrets());
        let shown = |transfers: &ZoneTransfers| {
            let rule = |rule: TransferRule| {
                let network = rule.network.map_or("any".to_owned(), |(address, bits)| format!("{address}/{bits}"));
                format!("{network} {}", rule.key.as_ref().map_or("-", DomainName::as_str))
            };
            transfers.rules().map(rule).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown(&config.transfers), "any k1");
        let zones: Vec<_> = config.zone_transfers.iter().map(|(name, own)| (name.as_str(), shown(own))).collect();
        let expected = "192.0.2.5/32 k2, 2001:db8::1/128 -, 192.0.2.0/24 k1, ::1/128 -".to_owned();
        assert_eq!(zones, [("example.com", expected), ("of.folder", "192.0.2.6/32 -".to_owned())]);
        assert_eq!(config.zone_transfers[0].1.secondaries[0].address, "192.0.2.5:5300".parse().unwrap());
        assert_eq!(config.zone_transfers[0].1.secondaries[1].address, "[2001:db8::1]:53".parse().unwrap());
        let secondary = &config.secondary_zones[0];
        let primaries: Vec<String> = secondary.primaries.iter().map(|one| one.address.to_string()).collect();
        assert_eq!(primaries, ["192.0.2.7:53", "[2001:db8::7]:5300"]);
        assert_eq!(secondary.primaries[0].key.as_ref().map(DomainName::as_str), Some("k2"));
        let zone = secondary.zone(Path::new("state"));
        assert_eq!(zone.file, Path::new("state/zones/0%2F25.2.0.192.in-addr.arpa.zone"));
    }

    #[test]
    fn wrong_transfers_are_errors() {
        for (lines, expected) in [
            ("[dns]\ntransfer_allow = [{ key = \"k\" }]", "2:27: there is no key k; add [tsig.\"k\"] with secret_file"),
            (
                "[tsig.k]\nalgorithm = \"hmac-md5\"\nsecret_file = \"s\"",
                "2:13: `hmac-md5` is not a supported algorithm; write hmac-sha256, hmac-sha384 or hmac-sha512; the \
                 others are obsolete",
            ),
            (
                "[tsig.k]",
                "1:7: the key k has no `secret_file`; write [tsig.\"transfer\"] with secret_file = \"transfer.key\"",
            ),
            (
                "[tsig.k]\nsecret = \"s\"\nsecret_file = \"s\"",
                "2:1: unknown key `secret` in [tsig.\"k\"]; the keys are `algorithm`, `secret_file`",
            ),
            (
                "[dns]\nsecondaries = [{ key = \"k\" }]\n[tsig.k]\nsecret_file = \"s\"",
                "2:16: `address` missing in `secondaries`; write secondaries = [{ address = \"192.0.2.5\", key = \"transfer\" }]",
            ),
            (
                "[dns]\ntransfer_allow = [{}]",
                "2:19: `network` and `key` missing in `transfer_allow`; write transfer_allow = [{ network = \"192.0.2.0/24\", key = \"transfer\" }]",
            ),
            (
                "[dns]\ntransfer_allow = [{ network = \"1.2.3.4/8\" }]",
                "2:31: `1.2.3.4/8` is an address with host bits, not a network; write 1.0.0.0/8, or 1.2.3.4 for this \
                 address only",
            ),
            (
                "[dns]\nsecondaries = [{ address = \"ns2\" }]",
                "2:28: `ns2` is not an address; write secondaries = [{ address = \"192.0.2.5\", key = \"transfer\" }]",
            ),
            (
                "[domain.\"a.example\"]\nprimaries = []",
                "2:13: `primaries` is empty; write primaries = [{ address = \"192.0.2.7\", key = \"transfer\" }], or zone = \"FILE\"",
            ),
            (
                "[domain.\"a.example\"]\nprimaries = [{ address = \"ns1\" }]",
                "2:26: `ns1` is not an address; write primaries = [{ address = \"192.0.2.7\", key = \"transfer\" }]",
            ),
            (
                "[domain.\"a.example\"]\nprimaries = [{}]",
                "2:14: `address` missing in `primaries`; write primaries = [{ address = \"192.0.2.7\", key = \"transfer\" }]",
            ),
            (
                "[domain.\"a.example\"]\nzone = \"a.zone\"\nprimaries = [{ address = \"192.0.2.7\" }]",
                "2:1: a.example has both a zone file and `primaries`; remove one of the two",
            ),
            (
                "[domain.\"a.example\"]\ncertificate = { chain = \"c\", key = \"k\" }\nsecondaries = [{ address = \"::1\" }]",
                "3:1: a.example has transfers, but no zone; add zone = \"FILE\"",
            ),
        ] {
            check_before_domain(lines, &[expected]);
        }
    }

    #[test]
    fn secret_is_one_line_of_base64() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("k");
        let location = crate::diagnostic::Location::Argument("test".to_owned()).into();
        let name = DomainName::parse("k").unwrap();
        let key = TsigKeyFile { name, algorithm: TsigAlgorithm::HmacSha256, path: path.clone(), location };
        let read = |content: &str| {
            std::fs::write(&path, content).unwrap();
            key.read().map(|secret| secret.to_vec()).map_err(|error| error.to_string())
        };
        assert_eq!(read("c2VjcmV0\n"), Ok(b"secret".to_vec()));
        assert_eq!(read("\u{feff}c2VjcmV0\r\n"), Ok(b"secret".to_vec()), "of an editor of Windows");
        for content in ["", "\n", "c2VjcmV", "c2Vj cmV0", "key c2VjcmV0"] {
            assert!(read(content).is_err_and(|error| error.contains("is not a single line of base64")), "{content}");
        }
        let problems = |content: &str| {
            std::fs::write(&path, content).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            key.problems().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        assert!(problems("c2VjcmV0\n").contains("has only 6 bytes, so it can be guessed"));
        assert_eq!(problems("c2VjcmV0IG9mIDE2IEI6KQ==\n"), "");
    }
}
