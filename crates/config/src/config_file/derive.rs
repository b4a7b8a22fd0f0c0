//! The keys `derive` and `mta_sts` of a domain: the records that are added to its zone.

use super::ConfigBuilder;
use super::https::CertificateChoice;
use crate::config_reader::Entry;
use crate::derive::{DerivedKind, DerivedRecords};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::mail_policy::{MAX_AGE_S_DEFAULT, MAX_AGE_S_MAX, MailPolicy, MailPolicyMode};
use crate::similar::most_similar;

impl ConfigBuilder<'_, '_> {
    /// Reads `derive` and `mta_sts` of a domain with these `names`, whose section is at `offset`; returns the names
    /// that its certificate needs. By default, a domain with an automatic certificate has all kinds that reveal nothing
    /// new.
    pub(super) fn read_derive(
        &mut self,
        [entry, mta_sts]: [Option<Entry<'_, '_>>; 2],
        names: Vec<DomainName>,
        certificate: CertificateChoice<'_, '_>,
        offset: usize,
    ) -> Vec<DomainName> {
        let kinds = match (entry, certificate) {
            (Some(entry), _) => self.read_kinds(entry, certificate),
            (None, CertificateChoice::Automatic) => vec![DerivedKind::Https, DerivedKind::Caa],
            (None, _) => Vec::new(),
        };
        let mail_policy = match (kinds.contains(&DerivedKind::MtaSts), mta_sts) {
            (true, Some(entry)) => self.read_mail_policy(entry),
            (true, None) => Some(MailPolicy { max_age_s: MAX_AGE_S_DEFAULT, ..MailPolicy::default() }),
            (false, Some(entry)) => {
                let message = "`mta_sts` has no effect without \"mta-sts\" in `derive`";
                self.error(entry.offset, message, "write derive = [\"https\", \"caa\", \"mta-sts\"], or remove it");
                None
            }
            (false, None) => None,
        };
        let certificate_names = match mail_policy {
            Some(_) => self.with_policy_host(&names, offset),
            None => names.clone(),
        };
        if entry.is_none() && kinds.is_empty() {
            return certificate_names;
        }
        let location = self.reader.location(entry.map_or(offset, |entry| entry.offset));
        self.derive_uses
            .extend(entry.filter(|_| !kinds.is_empty()).map(|entry| (entry.offset, self.config.derived.len())));
        let is_explicit = entry.is_some();
        self.config.derived.push(DerivedRecords { names, kinds, mail_policy, is_explicit, location });
        certificate_names
    }

    /// `names` with the host that serves the policy for mail servers.
    fn with_policy_host(&mut self, names: &[DomainName], offset: usize) -> Vec<DomainName> {
        let mut names = names.to_vec();
        match DomainName::parse(&names.first().map(MailPolicy::host).unwrap_or_default()) {
            Ok(host) if names.contains(&host) => {}
            Ok(host) => names.push(host),
            Err(problem) => self.reader.error(offset, problem),
        }
        names
    }

    fn read_mail_policy(&mut self, section: Entry<'_, '_>) -> Option<MailPolicy> {
        let keys = self.reader.keys(section, Section::MtaSts)?;
        let mut policy = MailPolicy { max_age_s: MAX_AGE_S_DEFAULT, ..MailPolicy::default() };
        if let Some(entry) = keys.get("mode") {
            let (offset, text) = self.reader.string(entry)?;
            let Some(mode) = MailPolicyMode::ALL.into_iter().find(|mode| mode.name() == text) else {
                let names = MailPolicyMode::ALL.map(MailPolicyMode::name).join("\", \"");
                let remedy = format!("write one of \"{names}\"");
                self.error(offset, format!("`mode` must not be \"{text}\""), remedy);
                return None;
            };
            policy.mode = mode;
        }
        if let Some(entry) = keys.get("mx") {
            policy.mx = self.read_mx(entry);
        }
        if let Some(entry) = keys.get("max_age") {
            policy.max_age_s = self.read_seconds(Some(entry), (0, MAX_AGE_S_MAX))?;
        }
        Some(policy)
    }

    fn read_mx(&mut self, entry: Entry<'_, '_>) -> Vec<DomainName> {
        let mut mx = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            match DomainName::parse(text) {
                Ok(name) if name.can_be_host() => mx.push(name),
                Ok(name) => {
                    let message = format!("{name} is not the name of a mail server");
                    self.error(
                        offset,
                        message,
                        "write its host name, or *.NAME for all names with one label more than NAME",
                    );
                }
                Err(problem) => self.reader.error(offset, problem),
            }
        }
        if mx.is_empty() {
            let remedy = format!("write {}, or remove it to use the MX records of the zone", entry.example);
            self.error(entry.offset, "`mx` is empty", remedy);
        }
        mx
    }

    fn read_kinds(&mut self, entry: Entry<'_, '_>, certificate: CertificateChoice<'_, '_>) -> Vec<DerivedKind> {
        let is_automatic = matches!(certificate, CertificateChoice::Automatic);
        let mut kinds = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            let Some(kind) = DerivedKind::ALL.into_iter().find(|kind| kind.name() == text) else {
                let names = DerivedKind::ALL.map(DerivedKind::name);
                let remedy = match most_similar(text, names.into_iter()) {
                    Some(similar) => format!("did you mean \"{similar}\"?"),
                    None => format!("write one or more of \"{}\"", names.join("\", \"")),
                };
                self.error(offset, format!("no records \"{text}\" can be derived"), remedy);
                continue;
            };
            if kind == DerivedKind::MtaSts && matches!(certificate, CertificateChoice::None) {
                let message = "the policy of \"mta-sts\" is served over HTTPS, but the domain has no certificate";
                self.error(offset, message, "remove it, or write certificate = \"auto\"");
            }
            let source = match kind {
                DerivedKind::Caa => Some("authorities"),
                DerivedKind::Tlsa => Some("keys"),
                DerivedKind::Https
                | DerivedKind::Addresses
                | DerivedKind::MtaSts
                | DerivedKind::MtaStsHost
                | DerivedKind::Alias
                | DerivedKind::Challenge => None,
            };
            if let Some(source) = source.filter(|_| !is_automatic) {
                let message = format!(
                    "\"{text}\" is derived from the {source} of an automatic certificate, which the domain does not have"
                );
                self.error(offset, message, "remove it, or write certificate = \"auto\"");
            }
            if !kinds.contains(&kind) {
                kinds.push(kind);
                kinds.extend((kind == DerivedKind::MtaSts).then_some(DerivedKind::MtaStsHost));
            }
        }
        kinds
    }

    /// Reports each `derive` that has no effect.
    pub(super) fn check_derive(&mut self) {
        let by_zone = self.config.derived_rrsets();
        let is_updated = |derived: &DerivedRecords| {
            let mut updated = self.config.zone_updates.iter().filter_map(|(apex, _)| by_zone.get(apex)).flatten();
            updated.any(|rrset| rrset.kind == DerivedKind::MtaSts && derived.names.first() == Some(&rrset.host))
        };
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
            let of_listeners =
                |kind: &&DerivedKind| matches!(kind, DerivedKind::Https | DerivedKind::Tlsa | DerivedKind::MtaSts);
            let without_listener =
                derived.kinds.iter().find(of_listeners).filter(|_| self.config.https_listen.is_empty());
            let has_listener = !(self.config.http_listen.is_empty() && self.config.https_listen.is_empty());
            if derived.kinds.contains(&DerivedKind::Addresses) && !has_listener {
                let message =
                    "\"addresses\" are derived from [http] and [https], and neither has a `listen`".to_owned();
                problems.push((
                    *offset,
                    message,
                    "add [http] with listen = [\"0.0.0.0:80\", \"[::]:80\"], or remove it from `derive`",
                ));
            } else if let Some(kind) = without_listener {
                let name = kind.name();
                let message = format!("\"{name}\" is derived from the addresses of [https], which has no `listen`");
                let remedy = "add [https] with listen = [\"0.0.0.0:443\", \"[::]:443\"], or remove it from `derive`";
                problems.push((*offset, message, remedy));
            } else if !is_in_zone {
                let remedy = "add zone = \"FILE\", or remove `derive`";
                problems.push((*offset, format!("{domain} has `derive`, but is not in a zone of this file"), remedy));
            } else if derived.kinds.iter().any(unnamed) {
                let message = "\"caa\" needs the name that each authority has in CAA records".to_owned();
                problems.push((*offset, message, "add caa = \"ca.example\" to the table of the authority"));
            } else if derived.mail_policy.as_ref().is_some_and(MailPolicy::has_mx_of_zone) && is_updated(derived) {
                let message = format!("the zone of {domain} has `update`, so its MX records may change at any time");
                problems.push((*offset, message, "list the mail servers: mta_sts = { mx = [\"mail.example.com\"] }"));
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
    fn addresses_of_listeners_are_for_each_name_and_need_no_certificate() {
        const HTTP: &str = "[http]\nlisten = [\"0.0.0.0:80\"]\n";
        let text =
            format!("{HTTP}{DOMAIN}aliases = [\"www.example.com\", \"other.example\"]\nderive = [\"addresses\"]\n");
        assert_eq!(derived(&text), ["example.com addresses example.com", "example.com addresses www.example.com"]);
        check(
            "[domain.\"example.com\"]\nzone = \"a.zone\"\nderive = [\"addresses\"]\n",
            &["3:1: \"addresses\" are derived from [http] and [https], and neither has a `listen`; \
               add [http] with listen = [\"0.0.0.0:80\", \"[::]:80\"], or remove it from `derive`"],
        );
    }

    #[test]
    fn owner_of_https_has_the_port_unless_it_is_the_default_one() {
        let text = format!("{HTTPS}{ACME}{DOMAIN}derive = [\"https\"]\n");
        assert_eq!(derived(&text.replace(":443", ":8443")), ["example.com https _8443._https.example.com"]);
        // The kernel chooses the port, so it is not known beforehand.
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
    fn policy_for_mail_servers_is_that_of_the_domain_and_its_host_is_in_the_certificate() {
        let text = |rest: &str| format!("{HTTPS}{ACME}{DOMAIN}derive = [\"mta-sts\"]\n{rest}");
        let expected = ["example.com mta-sts _mta-sts.example.com", "example.com mta-sts-host mta-sts.example.com"];
        assert_eq!(derived(&text("aliases = [\"www.example.com\"]")), expected);
        let names = |rest: &str| {
            let names = config(&text(rest)).certificates.remove(0).names;
            names.into_iter().map(|name| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["example.com", "mta-sts.example.com"]);
        assert_eq!(names("aliases = [\"mta-sts.example.com\"]"), ["example.com", "mta-sts.example.com"]);
        let policy = |rest: &str| config(&text(rest)).derived[0].mail_policy.as_ref().expect("a policy").head();
        assert_eq!(policy(""), "version: STSv1\r\nmode: testing\r\nmax_age: 604800\r\n");
        assert_eq!(
            policy("mta_sts = { mode = \"enforce\", mx = [\"Mail.example.net.\"], max_age = \"1d\" }"),
            "version: STSv1\r\nmode: enforce\r\nmax_age: 86400\r\nmx: mail.example.net\r\n"
        );
    }

    #[test]
    fn wrong_policy_for_mail_servers_is_an_error() {
        let text = |rest: &str| format!("{HTTPS}{ACME}{DOMAIN}derive = [\"mta-sts\"]\n{rest}");
        check(
            &text("mta_sts = { mode = \"on\" }"),
            &["9:20: `mode` must not be \"on\"; write one of \"enforce\", \"testing\", \"none\""],
        );
        check(
            &text("mta_sts = { mx = [] }"),
            &["9:13: `mx` is empty; write mx = [\"mail.example.com\"], or remove it to use the MX records of the zone"],
        );
        check(
            &text("mta_sts = { id = \"1\" }"),
            &["9:13: unknown key `id` in `mta_sts`; the keys are `mode`, `mx`, `max_age`"],
        );
        check(
            &text("mta_sts = { max_age = \"2y\" }"),
            &["9:23: \"2y\" is not an integer with one of the units ms, s, min, h or d; write \"0s\" to \"8766h\""],
        );
        check(
            &text("mta_sts = {}").replace("\"mta-sts\"", "\"https\""),
            &["9:1: `mta_sts` has no effect without \"mta-sts\" in `derive`; \
               write derive = [\"https\", \"caa\", \"mta-sts\"], or remove it"],
        );
        check(
            &text("certificate = \"none\""),
            &["8:11: the policy of \"mta-sts\" is served over HTTPS, but the domain has no certificate; remove it, \
                 or \
               write certificate = \"auto\""],
        );
        let updated = "update = [{ key = \"k\", names = [\"www\"], types = [\"A\"] }]\n[tsig.\"k\"]\nalgorithm = \"hmac-sha256\"\nsecret_file = \"k\"\n";
        check(
            &text(updated),
            &["8:1: the zone of example.com has `update`, so its MX records may change at any time; \
               list the mail servers: mta_sts = { mx = [\"mail.example.com\"] }"],
        );
        assert_eq!(config(&text(&format!("mta_sts = {{ mx = [\"m.test\"] }}\n{updated}"))).derived.len(), 1);
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
            &["7:1: example.com has `derive`, but is not in a zone of this file; add zone = \"FILE\", or remove \
                 `derive`"],
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
