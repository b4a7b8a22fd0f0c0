//! The key `dnssec` of a domain: whether and how its zone is signed.

use super::ConfigBuilder;
use crate::config_reader::{Entry, entries};
use crate::domain_name::DomainName;
use crate::signing::{SignedSerial, SignedZone, Signing, SigningAlgorithm, ZoneKeyLayout};
use crate::similar::most_similar;
use toml::de::DeValue;

const EXAMPLE: &str = "dnssec = true";
const KEYS: [&str; 5] = ["algorithm", "keys", "nsec3", "serial", "zonemd"];

impl ConfigBuilder<'_, '_> {
    /// Reads `dnssec` of the domain `name`, which has a zone or not, and dynamic updates or not.
    pub(super) fn read_dnssec(
        &mut self,
        name: &DomainName,
        has_zone: bool,
        has_update: bool,
        entry: Option<Entry<'_, '_>>,
    ) {
        let Some(entry) = entry else { return };
        let signing = match entry.value.get_ref() {
            DeValue::Boolean(false) => return,
            DeValue::Boolean(true) => Signing::default(),
            DeValue::Table(_) => self.read_signing(entry),
            _ => {
                let message = "`dnssec` must be true, false or a table";
                return self.error(entry.value.span().start, message, format!("write {EXAMPLE}"));
            }
        };
        if !has_zone {
            let message = format!("{name} has `dnssec`, but no zone");
            return self.error(entry.offset, message, "add zone = \"FILE\" or `primaries`");
        }
        if has_update {
            let message =
                format!("{name} has `dnssec` and `update`: a zone that is signed here takes no dynamic updates");
            return self.error(entry.offset, message, "remove one of both");
        }
        let location = self.reader.location(entry.offset);
        self.config.signed_zones.push(SignedZone { apex: name.clone(), signing, location });
    }

    fn read_signing(&mut self, section: Entry<'_, '_>) -> Signing {
        let mut signing = Signing::default();
        let Some(table) = self.reader.table(section, EXAMPLE) else { return signing };
        for entry in entries(table) {
            match entry.key {
                "algorithm" => {
                    let names = [
                        ("ecdsap256sha256", SigningAlgorithm::EcdsaP256Sha256),
                        ("ed25519", SigningAlgorithm::Ed25519),
                        ("rsasha256", SigningAlgorithm::RsaSha256),
                    ];
                    signing.algorithm = self.read_choice(entry, &names).unwrap_or_default();
                }
                "keys" => {
                    let names = [("csk", ZoneKeyLayout::Csk), ("ksk-zsk", ZoneKeyLayout::KskZsk)];
                    signing.keys = self.read_choice(entry, &names).unwrap_or_default();
                }
                "serial" => {
                    let names = [
                        ("keep", SignedSerial::Keep),
                        ("increment", SignedSerial::Increment),
                        ("date", SignedSerial::Date),
                        ("unixtime", SignedSerial::UnixTime),
                    ];
                    signing.serial = self.read_choice(entry, &names).unwrap_or_default();
                }
                "nsec3" => signing.nsec3 = self.reader.boolean(entry).unwrap_or(false),
                "zonemd" => signing.zonemd = self.reader.boolean(entry).unwrap_or(false),
                other => {
                    let remedy = match most_similar(other, KEYS.into_iter()) {
                        Some(similar) => format!("did you mean `{similar}`?"),
                        None => format!("the keys are `{}`", KEYS.join("`, `")),
                    };
                    self.error(entry.offset, format!("unknown key `{other}` in `dnssec`"), remedy);
                }
            }
        }
        signing
    }

    /// One of these values.
    fn read_choice<T: Copy>(&mut self, entry: Entry<'_, '_>, names: &[(&str, T)]) -> Option<T> {
        let (offset, text) = self.reader.string(entry, &format!("{} = \"{}\"", entry.key, names[0].0))?;
        let known = names.iter().find(|(name, _)| *name == text);
        if known.is_none() {
            let all = names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("\", \"");
            self.error(offset, format!("`{}` cannot be `{text}`", entry.key), format!("write one of \"{all}\""));
        }
        known.map(|(_, value)| *value)
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
        assert_eq!(signed("dnssec = false"), []);
        assert_eq!(signed("dnssec = true"), [Signing::default()]);
        assert_eq!(signed("dnssec = {}"), [Signing::default()]);
        let all = Signing {
            algorithm: SigningAlgorithm::Ed25519,
            keys: ZoneKeyLayout::KskZsk,
            nsec3: true,
            serial: SignedSerial::UnixTime,
            zonemd: true,
        };
        let line = "dnssec = { algorithm = \"ed25519\", keys = \"ksk-zsk\", nsec3 = true, serial = \"unixtime\", zonemd = true }";
        assert_eq!(signed(line), [all]);
        let secondary = "[domain.\"a.test\"]\nprimaries = [{ address = \"192.0.2.7\" }]\ndnssec = true\n";
        assert_eq!(config(secondary).signed_zones[0].file(), std::path::Path::new("signed/a.test.zone"));
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
        check("dnssec = { key = \"csk\" }", "3:12: unknown key `key` in `dnssec`; did you mean `keys`?");
        check_before_domain(
            "[domain.\"a.test\"]\nsite = \"public\"\ndnssec = true\n",
            &["3:1: a.test has `dnssec`, but no zone; add zone = \"FILE\" or `primaries`"],
        );
    }
}
