//! The key `derive` of a domain: which records are added to its zone.

use super::ConfigBuilder;
use super::https::CertificateChoice;
use crate::config_reader::Entry;
use crate::derive::{DerivedKind, DerivedRecords};
use crate::domain_name::DomainName;
use crate::similar::most_similar;

const EXAMPLE: &str = "derive = [\"https\", \"caa\"]";

impl ConfigBuilder<'_, '_> {
    /// Reads `derive` of a domain with these `names`, whose section is at `offset`. By default a domain with an automatic
    /// certificate has all kinds that tell nothing new.
    pub(super) fn read_derive(
        &mut self,
        entry: Option<Entry<'_, '_>>,
        names: Vec<DomainName>,
        certificate: CertificateChoice<'_, '_>,
        offset: usize,
    ) {
        let is_automatic = matches!(certificate, CertificateChoice::Automatic);
        let kinds = match entry {
            None if is_automatic => vec![DerivedKind::Https, DerivedKind::Caa],
            None => return,
            Some(entry) => self.read_kinds(entry, is_automatic),
        };
        let location = self.reader.location(entry.map_or(offset, |entry| entry.offset));
        self.derive_uses
            .extend(entry.filter(|_| !kinds.is_empty()).map(|entry| (entry.offset, self.config.derived.len())));
        self.config.derived.push(DerivedRecords { names, kinds, is_explicit: entry.is_some(), location });
    }

    fn read_kinds(&mut self, entry: Entry<'_, '_>, is_automatic: bool) -> Vec<DerivedKind> {
        let mut kinds = Vec::new();
        for (offset, text) in self.reader.strings(entry, EXAMPLE) {
            let Some(kind) = DerivedKind::ALL.into_iter().find(|kind| kind.name() == text) else {
                let names = DerivedKind::ALL.map(DerivedKind::name);
                let remedy = match most_similar(text, names.into_iter()) {
                    Some(similar) => format!("did you mean \"{similar}\"?"),
                    None => format!("write some of \"{}\"", names.join("\", \"")),
                };
                self.error(offset, format!("no records \"{text}\" can be derived"), remedy);
                continue;
            };
            let source = match kind {
                DerivedKind::Https | DerivedKind::Challenge => None,
                DerivedKind::Caa => Some("authorities"),
                DerivedKind::Tlsa => Some("keys"),
            };
            if let Some(source) = source.filter(|_| !is_automatic) {
                let message = format!(
                    "\"{text}\" is derived from the {source} of an automatic certificate, which the domain does not have"
                );
                self.error(offset, message, "remove it, or write certificate = \"auto\"");
            }
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Reports each `derive` that has no effect.
    pub(super) fn check_derive(&mut self) {
        let by_zone = self.config.derived_rrsets();
        let mut problems = Vec::new();
        for (offset, index) in &self.derive_uses {
            let derived = &self.config.derived[*index];
            let domain = derived.names.first().map_or("", DomainName::as_str);
            let has_rrset = |kind: &DerivedKind| {
                let mut rrsets = by_zone.values().flatten();
                rrsets.any(|rrset| rrset.kind == *kind && derived.names.contains(&rrset.host))
            };
            let is_in_zone = derived.kinds.iter().any(has_rrset);
            let unnamed = |kind: &DerivedKind| *kind == DerivedKind::Caa && self.config.caa_authorities().is_none();
            let of_listeners = |kind: &&DerivedKind| matches!(kind, DerivedKind::Https | DerivedKind::Tlsa);
            let without_listener =
                derived.kinds.iter().find(of_listeners).filter(|_| self.config.https_listen.is_empty());
            if let Some(kind) = without_listener {
                let name = kind.name();
                let message = format!("\"{name}\" is derived from the addresses of [https], which has no `listen`");
                let remedy = "add [https] with listen = [\"0.0.0.0:443\", \"[::]:443\"], or remove it from `derive`";
                problems.push((*offset, message, remedy));
            } else if !is_in_zone {
                let remedy = "add zone = \"FILE\", or remove `derive`";
                problems.push((*offset, format!("{domain} is in no zone of this file, and has `derive`"), remedy));
            } else if derived.kinds.iter().any(unnamed) {
                let message = "\"caa\" needs the name that each authority has in CAA records".to_owned();
                problems.push((*offset, message, "add caa = \"ca.example\" to the table of the authority"));
            }
        }
        for (offset, message, remedy) in problems {
            self.error(offset, message, remedy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, config};
    use crate::derive::DerivedKind;

    const HTTPS: &str = "[https]\nlisten = [\"127.0.0.1:443\"]\n";
    const ACME: &str = "[certificates]\nagree_to_terms = true\n";
    const DOMAIN: &str = "[domain.\"example.com\"]\nsite = \"public\"\nzone = \"a.zone\"\n";

    /// The derived records of all zones: kind, owner and host.
    fn derived(text: &str) -> Vec<String> {
        let config = config(text);
        let mut rrsets: Vec<String> = config
            .derived_rrsets()
            .into_iter()
            .flat_map(|(zone, rrsets)| {
                rrsets.into_iter().map(move |rrset| format!("{zone} {} {}", rrset.kind.name(), rrset.owner))
            })
            .collect();
        rrsets.sort();
        rrsets
    }

    #[test]
    fn domain_with_an_automatic_certificate_and_a_zone_has_https_and_caa_by_default() {
        let all =
            format!("{HTTPS}{ACME}{DOMAIN}aliases = [\"www.example.com\", \"*.example.com\", \"other.example\"]\n");
        assert_eq!(
            derived(&all),
            [
                "example.com caa example.com",
                "example.com caa www.example.com",
                "example.com https *.example.com",
                "example.com https example.com",
                "example.com https www.example.com"
            ]
        );
        assert!(derived(&format!("{all}derive = []\n")).is_empty());
        assert!(derived(&format!("{all}certificate = \"none\"\n").replace(HTTPS, "")).is_empty());
        assert!(derived(&all.replace("zone = \"a.zone\"\n", "")).is_empty());
        assert_eq!(derived(&format!("{ACME}{DOMAIN}")), ["example.com caa example.com"]);
    }

    #[test]
    fn owner_of_https_has_the_port_unless_it_is_the_default_one() {
        let text = format!("{HTTPS}{ACME}{DOMAIN}derive = [\"https\"]\n");
        assert_eq!(derived(&text.replace(":443", ":8443")), ["example.com https _8443._https.example.com"]);
        // The kernel chooses it, and nobody knows it beforehand.
        assert!(
            config(&text.replace(":443", ":0").replace("derive", "#"))
                .derived_rrsets()
                .values()
                .flatten()
                .all(|rrset| { rrset.kind == DerivedKind::Caa })
        );
    }

    #[test]
    fn tlsa_is_at_the_port_of_each_name_but_wildcards() {
        let text = format!("{HTTPS}{ACME}{DOMAIN}aliases = [\"*.example.com\"]\nderive = [\"tlsa\"]\n");
        assert_eq!(derived(&text), ["example.com tlsa _443._tcp.example.com"]);
    }

    #[test]
    fn name_is_in_the_zone_with_the_longest_apex() {
        let text = format!(
            "{HTTPS}{ACME}{DOMAIN}[domain.\"a.example.com\"]\nzone = \"b.zone\"\n\
             [domain.\"www.a.example.com\"]\nsite = \"w\"\nderive = [\"caa\"]\n"
        );
        assert!(derived(&text).contains(&"a.example.com caa www.a.example.com".to_owned()), "{:?}", derived(&text));
    }

    #[test]
    fn derive_without_effect_is_an_error() {
        let text = |rest: &str| format!("{HTTPS}{ACME}{DOMAIN}{rest}");
        check(&text("derive = [\"http\"]"), &["8:11: no records \"http\" can be derived; did you mean \"https\"?"]);
        check(
            &text("certificate = { chain = \"a\", key = \"b\" }\nderive = [\"caa\"]"),
            &[
                "9:11: \"caa\" is derived from the authorities of an automatic certificate, which the domain does not have; \
               remove it, or write certificate = \"auto\"",
            ],
        );
        check(
            &text("derive = [\"caa\"]").replace("zone = \"a.zone\"\n", ""),
            &["7:1: example.com is in no zone of this file, and has `derive`; add zone = \"FILE\", or remove `derive`"],
        );
        check(
            &text("derive = [\"https\"]").replace(HTTPS, ""),
            &["6:1: \"https\" is derived from the addresses of [https], which has no `listen`; \
               add [https] with listen = [\"0.0.0.0:443\", \"[::]:443\"], or remove it from `derive`"],
        );
        let other = "authorities = [{ directory = \"https://ca.example/dir\" }]\n";
        check(
            &text("derive = [\"caa\"]").replace(ACME, &format!("{ACME}{other}")),
            &["9:1: \"caa\" needs the name that each authority has in CAA records; \
               add caa = \"ca.example\" to the table of the authority"],
        );
    }
}
