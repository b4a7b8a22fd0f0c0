//! `[tsig."NAME"]`, and the keys `primaries`, `secondaries` and `transfer_allow` of zones.

use super::ConfigBuilder;
use super::http::parse_network;
use crate::config_reader::{Entry, Node, entries};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::transfers::{Primary, Secondary, TransferRule, TsigAlgorithm, TsigKeyFile, ZoneTransfers};
use crate::zones::SecondaryZone;
use std::net::{IpAddr, SocketAddr};
use toml::de::DeValue;

const TSIG_EXAMPLE: &str = "[tsig.\"transfer\"] with secret_file = \"transfer.key\"";
const SECONDARIES_EXAMPLE: &str = "secondaries = [{ address = \"192.0.2.5\", key = \"transfer\" }]";
const PRIMARIES_EXAMPLE: &str = "primaries = [{ address = \"192.0.2.7\", key = \"transfer\" }]";
const ALLOW_EXAMPLE: &str = "transfer_allow = [{ network = \"192.0.2.0/24\", key = \"transfer\" }]";
/// The port of DNS.
const DNS_PORT: u16 = 53;

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_tsig(&mut self, section: Entry<'_, '_>) {
        let Some(table) = self.reader.table(section, TSIG_EXAMPLE) else { return };
        for key in entries(table) {
            let Some(table) = self.reader.table(key, TSIG_EXAMPLE) else { continue };
            let (mut file, mut algorithm) = (None, TsigAlgorithm::default());
            for entry in entries(table) {
                match entry.key {
                    "algorithm" => {
                        let Some((offset, text)) = self.reader.string(entry, "algorithm = \"hmac-sha256\"") else {
                            continue;
                        };
                        match TsigAlgorithm::parse(text) {
                            Some(known) => algorithm = known,
                            None => self.error(
                                offset,
                                format!("`{text}` is not an algorithm of keys"),
                                "write hmac-sha256, hmac-sha384 or hmac-sha512; the others are obsolete",
                            ),
                        }
                    }
                    "secret_file" => file = self.read_path(entry, "secret_file = \"transfer.key\""),
                    other => self.reader.error(entry.offset, Section::Tsig.unknown_key(other)),
                }
            }
            match (DomainName::parse(key.key), file) {
                (Err(problem), _) => self.reader.error(key.offset, problem),
                (Ok(name), Some((path, location))) => {
                    self.config.tsig_keys.push(TsigKeyFile { name, algorithm, path, location });
                }
                (Ok(name), None) => {
                    self.error(
                        key.offset,
                        format!("the key {name} has no `secret_file`"),
                        format!("write {TSIG_EXAMPLE}"),
                    );
                }
            }
        }
    }

    /// Adds what `entry`, `secondaries` or `transfer_allow`, allows to `transfers`.
    pub(super) fn read_transfers(&mut self, entry: Entry<'_, '_>, transfers: &mut ZoneTransfers) {
        let is_secondary = entry.key == "secondaries";
        let example = if is_secondary { SECONDARIES_EXAMPLE } else { ALLOW_EXAMPLE };
        let DeValue::Array(items) = entry.value.get_ref() else {
            let message = format!("`{}` must be a list of tables", entry.key);
            return self.error(entry.value.span().start, message, format!("write {example}"));
        };
        for item in items {
            self.read_transfer_rule(entry, item, is_secondary, transfers);
        }
    }

    fn read_transfer_rule<'n, 't>(
        &mut self,
        section: Entry<'n, 't>,
        item: &'n Node<'t>,
        is_secondary: bool,
        transfers: &mut ZoneTransfers,
    ) {
        let example = if is_secondary { SECONDARIES_EXAMPLE } else { ALLOW_EXAMPLE };
        let Some(table) = self.reader.table(Entry { value: item, ..section }, example) else { return };
        let (mut address, mut network, mut key) = (None, None, None);
        for entry in entries(table) {
            match entry.key {
                "address" if is_secondary => {
                    address = self.read_address(entry, example);
                    if address.is_none() {
                        return;
                    }
                }
                "network" if !is_secondary => {
                    let Some((offset, text)) = self.reader.string(entry, example) else { return };
                    match parse_network(text) {
                        Ok(parsed) => network = Some(parsed),
                        Err(problem) => return self.reader.error(offset, problem),
                    }
                }
                "key" => {
                    key = self.read_key_use(entry, example);
                    if key.is_none() {
                        return;
                    }
                }
                other => {
                    let message = format!("unknown key `{other}` in `{}`", section.key);
                    self.error(entry.offset, message, format!("write {example}"));
                }
            }
        }
        match (is_secondary, address) {
            (true, Some(address)) => transfers.secondaries.push(Secondary { address, key }),
            (false, _) if network.is_some() || key.is_some() => transfers.allow.push(TransferRule { network, key }),
            // Everyone would be allowed, by an omission.
            _ => {
                let missing = if is_secondary { "`address`" } else { "`network` and `key`" };
                self.error(
                    item.span().start,
                    format!("{missing} missing in `{}`", section.key),
                    format!("write {example}"),
                );
            }
        }
    }

    /// The zone `name`, which is transferred from the servers of `section`.
    pub(super) fn read_primaries(&mut self, name: &DomainName, offset: usize, section: Entry<'_, '_>) {
        self.add_apex(name, offset);
        let remedy = format!("write {PRIMARIES_EXAMPLE}, or zone = \"FILE\"");
        let primaries = self.read_primary_list(section, &remedy);
        let location = self.reader.location(section.offset);
        self.config.secondary_zones.push(SecondaryZone { apex: name.clone(), primaries, location });
    }

    /// The servers of `section`, `primaries` or a group of a catalog; `remedy` is what to do if there is none.
    pub(super) fn read_primary_list(&mut self, section: Entry<'_, '_>, remedy: &str) -> Vec<Primary> {
        let mut primaries = Vec::new();
        let DeValue::Array(items) = section.value.get_ref() else {
            let message = format!("`{}` must be a list of tables", section.key);
            self.error(section.value.span().start, message, format!("write {PRIMARIES_EXAMPLE}"));
            return primaries;
        };
        for item in items {
            let Some(table) = self.reader.table(Entry { value: item, ..section }, PRIMARIES_EXAMPLE) else { continue };
            let (mut address, mut key) = (None, None);
            for entry in entries(table) {
                match entry.key {
                    "address" => address = self.read_address(entry, PRIMARIES_EXAMPLE),
                    "key" => key = self.read_key_use(entry, PRIMARIES_EXAMPLE),
                    other => {
                        let message = format!("unknown key `{other}` in `{}`", section.key);
                        self.error(entry.offset, message, format!("write {PRIMARIES_EXAMPLE}"));
                    }
                }
            }
            let has_address = entries(table).iter().any(|entry| entry.key == "address");
            match address {
                Some(address) => primaries.push(Primary { address, key }),
                None if has_address => {}
                None => {
                    let message = format!("`address` missing in `{}`", section.key);
                    self.error(item.span().start, message, format!("write {PRIMARIES_EXAMPLE}"));
                }
            }
        }
        if items.is_empty() {
            self.error(section.value.span().start, format!("`{}` is empty", section.key), remedy);
        }
        primaries
    }

    /// An address; `None` after an error.
    fn read_address(&mut self, entry: Entry<'_, '_>, example: &str) -> Option<SocketAddr> {
        let (offset, text) = self.reader.string(entry, example)?;
        let address = parse_address(text);
        if address.is_none() {
            self.error(offset, format!("`{text}` is not an address"), format!("write {example}"));
        }
        address
    }

    /// The name of a key, which must be defined; `None` after an error.
    pub(super) fn read_key_use(&mut self, entry: Entry<'_, '_>, example: &str) -> Option<DomainName> {
        let (offset, text) = self.reader.string(entry, example)?;
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
                "2:13: `hmac-md5` is not an algorithm of keys; write hmac-sha256, hmac-sha384 or hmac-sha512; the others are obsolete",
            ),
            (
                "[tsig.k]",
                "1:7: the key k has no `secret_file`; write [tsig.\"transfer\"] with secret_file = \"transfer.key\"",
            ),
            (
                "[tsig.k]\nsecret = \"s\"\nsecret_file = \"s\"",
                "2:1: unknown key `secret` in [tsig.\"NAME\"]; the keys are `algorithm`, `secret_file`",
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
                "2:31: `1.2.3.4/8` is an address in a network, not the network; write 1.0.0.0/8, or 1.2.3.4 for this address alone",
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
                "2:1: a.example has a zone file, and primaries from which the zone is transferred; remove one of both",
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
            assert!(read(content).is_err_and(|error| error.contains("is not one line of base64")), "{content}");
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
