//! The key `dnssec` of a domain: whether and how its zone is signed.

use super::ConfigBuilder;
use super::transfers::parse_address;
use crate::config_reader::Entry;
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::signing::{SignedSerial, SignedZone, Signing, SigningAlgorithm, ZoneKeyLayout};
use std::net::SocketAddr;
use toml::de::DeValue;

const DAY_S: u64 = 24 * 3600;
/// Keys with a shorter lifetime would hardly ever be in use: a rollover takes days.
const LIFETIME_S: (u64, u64) = (DAY_S, 36_500 * DAY_S);

impl ConfigBuilder<'_, '_> {
    /// Reads `dnssec` of the domain `name`, which has a zone or not.
    pub(super) fn read_dnssec(&mut self, name: &DomainName, has_zone: bool, entry: Option<Entry<'_, '_>>) {
        let Some(entry) = entry else { return };
        let (signing, is_leaving) = match entry.value.get_ref() {
            // A domain without a zone was never signed here.
            DeValue::Boolean(false) if !has_zone => return,
            DeValue::Boolean(is_signed) => (Signing::default(), !is_signed),
            DeValue::Table(_) => self.read_signing(entry),
            _ => {
                let message = "`dnssec` must be true, false or a table";
                return self.error(entry.value.span().start, message, format!("write {}", entry.example));
            }
        };
        if !has_zone {
            let message = format!("{name} has `dnssec`, but no zone");
            return self.error(entry.offset, message, "add zone = \"FILE\" or `primaries`");
        }
        if is_leaving && !signing.other_signers.is_empty() {
            let message =
                format!("{name} has other signers, so it cannot become unsigned: resolvers expect signatures");
            let remedy = "remove the keys of the other signers and `other_signers` first; or remove this server from the NS records, and then \
                          the domain";
            return self.error(entry.offset, message, remedy);
        }
        let location = self.reader.location(entry.offset);
        self.config.signed_zones.push(SignedZone { apex: name.clone(), signing, is_leaving, location });
    }

    /// How the zone is signed, and whether it should become unsigned.
    fn read_signing(&mut self, section: Entry<'_, '_>) -> (Signing, bool) {
        let Some(keys) = self.reader.keys(section, Section::Dnssec) else { return (Signing::default(), false) };
        let algorithms = [
            ("ecdsap256sha256", SigningAlgorithm::EcdsaP256Sha256),
            ("ed25519", SigningAlgorithm::Ed25519),
            ("rsasha256", SigningAlgorithm::RsaSha256),
        ];
        let layouts = [("csk", ZoneKeyLayout::Csk), ("ksk-zsk", ZoneKeyLayout::KskZsk)];
        let serials = [
            ("keep", SignedSerial::Keep),
            ("increment", SignedSerial::Increment),
            ("date", SignedSerial::Date),
            ("unixtime", SignedSerial::UnixTime),
        ];
        let mut signing = Signing {
            algorithm: self.read_choice(keys.get("algorithm"), &algorithms),
            keys: self.read_choice(keys.get("keys"), &layouts),
            serial: self.read_choice(keys.get("serial"), &serials),
            nsec3: self.reader.boolean(&keys, "nsec3"),
            zonemd: self.reader.boolean(&keys, "zonemd"),
            ksk_lifetime_s: self.read_seconds(keys.get("ksk_lifetime"), LIFETIME_S),
            zsk_lifetime_s: self.read_seconds(keys.get("zsk_lifetime"), LIFETIME_S),
            ..Signing::default()
        };
        if let Some(ttl_s) = self.read_seconds(keys.get("dnskey_ttl"), (1, 7 * DAY_S)) {
            signing.dnskey_ttl_s = ttl_s as u32;
        }
        if let Some(time_s) = self.read_seconds(keys.get("rollover_safety"), (1, 30 * DAY_S)) {
            signing.rollover_safety_s = time_s as u32;
        }
        if let Some(entry) = keys.get("parent_servers") {
            signing.parent_servers = self.read_parent_servers(entry);
        }
        if let Some(entry) = keys.get("other_signers") {
            signing.other_signers = self.read_other_signers(entry);
        }
        if let (Some(entry), ZoneKeyLayout::Csk) = (keys.get("zsk_lifetime"), signing.keys) {
            let message = "`zsk_lifetime` has no effect: the zone has a CSK and no ZSK";
            self.error(
                entry.offset,
                message,
                "write `ksk_lifetime`, which also applies to a CSK, or keys = \"ksk-zsk\"",
            );
        }
        (signing, !self.reader.boolean(&keys, "signed"))
    }

    fn read_parent_servers(&mut self, entry: Entry<'_, '_>) -> Vec<SocketAddr> {
        if matches!(entry.value.get_ref(), DeValue::Array(items) if items.is_empty()) {
            let remedy = format!("remove it to use the resolvers, or write {}", entry.example);
            self.error(entry.offset, "`parent_servers` has no address", remedy);
        }
        let mut servers = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            match parse_address(text) {
                Some(address) => servers.push(address),
                None => {
                    let message = format!("`{text}` is not an address");
                    self.error(offset, message, format!("write {}", entry.example));
                }
            }
        }
        servers
    }

    fn read_other_signers(&mut self, entry: Entry<'_, '_>) -> Vec<DomainName> {
        let mut signers = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            match DomainName::parse(text) {
                Ok(host) => signers.push(host),
                Err(problem) => self.error(offset, problem.message, format!("write {}", entry.example)),
            }
        }
        signers
    }

    /// The value chosen from `names`; the default without the key, or after an error.
    fn read_choice<T: Copy + Default>(&mut self, entry: Option<Entry<'_, '_>>, names: &[(&str, T)]) -> T {
        let Some((entry, (offset, text))) = entry.and_then(|entry| Some((entry, self.reader.string(entry)?))) else {
            return T::default();
        };
        let known = names.iter().find(|(name, _)| *name == text);
        if known.is_none() {
            let all = names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("\", \"");
            self.error(offset, format!("`{}` cannot be `{text}`", entry.key), format!("write one of \"{all}\""));
        }
        known.map(|(_, value)| *value).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_before_domain, config};
    use super::*;

    #[test]
    fn zones_are_signed_by_one_line_or_a_table() {
        let signed = |line: &str| {
            let config = config(&format!("[domain.\"a.test\"]\nzone = \"a.zone\"\n{line}\n"));
            config.signed_zones.into_iter().map(|zone| zone.signing).collect::<Vec<_>>()
        };
        assert_eq!(signed("dnssec = true"), [Signing::default()]);
        assert_eq!(signed("dnssec = {}"), [Signing::default()]);
        let all = Signing {
            algorithm: SigningAlgorithm::Ed25519,
            keys: ZoneKeyLayout::KskZsk,
            nsec3: true,
            serial: SignedSerial::UnixTime,
            zonemd: true,
            ..Signing::default()
        };
        let line = "dnssec = { algorithm = \"ed25519\", keys = \"ksk-zsk\", nsec3 = true, serial = \"unixtime\", zonemd = true }";
        assert_eq!(signed(line), [all]);
        let line = "dnssec = { keys = \"ksk-zsk\", ksk_lifetime = \"365d\", zsk_lifetime = \"90d\", dnskey_ttl = \"10min\", rollover_safety = \"2h\", \
                    parent_servers = [\"192.0.2.53\", \"[2001:db8::1]:5353\"], other_signers = [\"NS1.example.net\"] }";
        let expected = Signing {
            keys: ZoneKeyLayout::KskZsk,
            ksk_lifetime_s: Some(365 * DAY_S),
            zsk_lifetime_s: Some(90 * DAY_S),
            dnskey_ttl_s: 600,
            rollover_safety_s: 7200,
            parent_servers: vec!["192.0.2.53:53".parse().unwrap(), "[2001:db8::1]:5353".parse().unwrap()],
            other_signers: vec![DomainName::parse("ns1.example.net").unwrap()],
            ..Signing::default()
        };
        assert_eq!(signed(line), [expected]);
        let secondary = "[domain.\"a.test\"]\nprimaries = [{ address = \"192.0.2.7\" }]\ndnssec = true\n";
        assert_eq!(config(secondary).signed_zones[0].file(), std::path::Path::new("signed/a.test.zone"));
    }

    #[test]
    fn zone_with_false_is_to_be_unsigned() {
        let of = |lines: &str| {
            let config = config(&format!("[domain.\"a.test\"]\n{lines}\n"));
            config.signed_zones.iter().map(|zone| zone.is_leaving).collect::<Vec<_>>()
        };
        assert_eq!(of("zone = \"a.zone\"\ndnssec = false"), [true]);
        assert_eq!(of("zone = \"a.zone\"\ndnssec = true"), [false]);
        assert_eq!(of("zone = \"a.zone\"\ndnssec = { signed = false, nsec3 = true }"), [true]);
        assert_eq!(of("zone = \"a.zone\"\ndnssec = { signed = true }"), [false]);
        assert_eq!(of("zone = \"a.zone\""), []);
        assert_eq!(of("site = \"a\"\ndnssec = false"), []);
    }

    #[test]
    fn kept_serial_is_a_risk() {
        let risk = |line: &str| {
            let config = config(&format!("[domain.\"a.test\"]\nzone = \"a.zone\"\n{line}\n"));
            config.signed_zones[0].risk_with_secondaries().map(|risk| risk.to_string()).unwrap_or_default()
        };
        assert!(risk("dnssec = { serial = \"keep\" }").contains("they would not notice new signatures"));
        assert_eq!(risk("dnssec = true"), "");
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let check = |line: &str, expected: &str| {
            check_before_domain(&format!("[domain.\"a.test\"]\nzone = \"a.zone\"\n{line}\n"), &[expected]);
        };
        check("dnssec = 1", "3:10: `dnssec` must be true, false or a table; write dnssec = true");
        check(
            "dnssec = { algorithm = \"rsasha1\" }",
            "3:24: `algorithm` cannot be `rsasha1`; write one of \"ecdsap256sha256\", \"ed25519\", \"rsasha256\"",
        );
        check(
            "dnssec = { ksk_lifetime = \"1h\" }",
            "3:27: `ksk_lifetime` is out of range: \"1h\"; write \"1d\" to \"36500d\"",
        );
        check(
            "dnssec = { signed = false, other_signers = [\"ns1.example.net\"] }",
            "3:1: a.test has other signers, so it cannot become unsigned: resolvers expect signatures; remove the \
             keys of the other signers and `other_signers` first; or remove this server from the NS records, and then \
             the domain",
        );
        check(
            "dnssec = { other_signers = [\"ns1..net\"] }",
            "3:29: invalid domain name `ns1..net`: it has an empty label; write other_signers = [\"ns1.example.net\"]",
        );
        check(
            "dnssec = { zsk_lifetime = \"90d\" }",
            "3:12: `zsk_lifetime` has no effect: the zone has a CSK and no ZSK; write `ksk_lifetime`, which also \
                applies to a CSK, or keys = \"ksk-zsk\"",
        );
        check(
            "dnssec = { dnskey_ttl = \"long\" }",
            "3:25: \"long\" is not an integer with one of the units ms, s, min, h or d; write \"1s\" to \"7d\"",
        );
        check(
            "dnssec = { parent_servers = [] }",
            "3:12: `parent_servers` has no address; remove it to use the resolvers, or write parent_servers = \
             [\"192.0.2.53\"]",
        );
        check(
            "dnssec = { parent_servers = [\"ns\"] }",
            "3:30: `ns` is not an address; write parent_servers = [\"192.0.2.53\"]",
        );
        check("dnssec = { key = \"csk\" }", "3:12: unknown key `key` in `dnssec`; did you mean `keys`?");
        check_before_domain(
            "[domain.\"a.test\"]\nsite = \"public\"\ndnssec = true\n",
            &["3:1: a.test has `dnssec`, but no zone; add zone = \"FILE\" or `primaries`"],
        );
    }
}
