//! The keys of a domain for its certificate and for HTTPS.

use super::ConfigBuilder;
use crate::config::CertificateFiles;
use crate::config_reader::{Entry, Keys, Node};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::site::{Hsts, SiteOptions};
use crate::units::Quantity;
use std::path::Path;
use toml::de::DeValue;

const CERTIFICATE_EXAMPLE: &str = "certificate = { chain = \"fullchain.pem\", key = \"privkey.pem\" }";
/// Ten years.
const MAX_AGE_S_MAX: u64 = 315_360_000;
/// The requirements of https://hstspreload.org.
const PRELOAD_MAX_AGE_S_MIN: u64 = 31_536_000;

/// The TLS settings of a domain.
#[derive(Clone, Copy)]
pub(super) enum CertificateChoice<'n, 't> {
    None,
    /// The server requests the certificate.
    Automatic,
    /// The operator supplies the files.
    Files(Entry<'n, 't>),
}

impl ConfigBuilder<'_, '_> {
    /// Reads `https_redirect` and `hsts` of the domain `name`.
    pub(super) fn read_https_options(
        &mut self,
        name: &DomainName,
        has_certificate: bool,
        keys: &Keys<'_, '_>,
        options: &mut SiteOptions,
    ) {
        let [https_redirect, hsts] = ["https_redirect", "hsts"].map(|key| keys.get(key));
        options.https_redirect = has_certificate && self.reader.boolean(keys, "https_redirect");
        if let (Some(entry), false) = (https_redirect.or(hsts), has_certificate) {
            let message = format!("{name} has `{}`, but no certificate", entry.key);
            self.error(entry.offset, message, format!("add {CERTIFICATE_EXAMPLE} or remove `{}`", entry.key));
        }
        if let Some(entry) = hsts {
            self.hsts.get_or_insert(entry.offset);
            options.hsts = self.read_hsts(entry);
        }
    }

    fn read_hsts(&mut self, section: Entry<'_, '_>) -> Option<Hsts> {
        let problem_count = self.reader.problem_count();
        let keys = self.reader.keys(section, Section::Hsts)?;
        let (subdomains, preload) = (self.reader.boolean(&keys, "subdomains"), self.reader.boolean(&keys, "preload"));
        let max_age_s = match (keys.get("max_age"), keys.get("max_age_s")) {
            (Some(_), Some(entry)) => {
                self.error(entry.offset, "`hsts` has both `max_age` and `max_age_s`", "remove one of the two");
                return None;
            }
            (Some(entry), None) => self.read_seconds(Some(entry), (0, MAX_AGE_S_MAX))?,
            (None, Some(_)) => self.reader.count(&keys, "max_age_s")?,
            // The key is probably misspelt.
            (None, None) if keys.has_unknown => return None,
            (None, None) => {
                self.error(section.offset, "`hsts` has no `max_age`", format!("write {}", section.example));
                return None;
            }
        };
        if preload && self.reader.problem_count() == problem_count && (!subdomains || max_age_s < PRELOAD_MAX_AGE_S_MIN)
        {
            let message = "`preload` needs `subdomains = true` and `max_age` of at least \"365d\"";
            self.error(section.offset, message, "change them, or remove `preload`");
        }
        Some(Hsts { max_age_s, subdomains, preload, location: self.reader.location(section.offset) })
    }

    /// A time with its unit, in seconds, from the first of `range` to the second.
    pub(super) fn read_seconds(&mut self, entry: Option<Entry<'_, '_>>, range: (u64, u64)) -> Option<u64> {
        let time_ms = self.read_quantity(entry?, Quantity::Duration, (range.0 * 1_000, range.1 * 1_000))?;
        Some(time_ms / 1_000)
    }

    /// A time in milliseconds or a size in bytes, with its unit, from the first of `range` to the second.
    pub(super) fn read_quantity(
        &mut self,
        entry: Entry<'_, '_>,
        quantity: Quantity,
        (min, max): (u64, u64),
    ) -> Option<u64> {
        let (offset, text) = self.reader.string(entry)?;
        let range = format!("write {:?} to {:?}", quantity.format(min), quantity.format(max));
        let Some(value) = quantity.parse(text) else {
            let units = quantity.unit_names();
            self.error(offset, format!("{text:?} is not an integer with one of the units {units}"), range);
            return None;
        };
        if !(min..=max).contains(&value) {
            self.error(offset, format!("`{}` is out of range: {text:?}", entry.key), range);
            return None;
        }
        Some(value)
    }

    /// The choice of `certificate`. By default, a domain with a site has an automatic certificate if there are
    /// authorities.
    pub(super) fn certificate_choice<'n, 't>(
        &mut self,
        certificate: Option<Entry<'n, 't>>,
        has_site: bool,
    ) -> CertificateChoice<'n, 't> {
        let Some(entry) = certificate else {
            return match (&self.config.acme, has_site) {
                (Some(_), true) => CertificateChoice::Automatic,
                _ => CertificateChoice::None,
            };
        };
        match entry.value.get_ref() {
            DeValue::String(choice) if choice == "none" => CertificateChoice::None,
            DeValue::String(choice) if choice == "auto" => {
                if self.config.acme.is_none() {
                    let remedy = "add [certificates] with agree_to_terms = true";
                    self.error(entry.offset, "an automatic certificate needs an authority that issues it", remedy);
                }
                CertificateChoice::Automatic
            }
            DeValue::String(choice) => {
                let message = format!("`certificate` must not be \"{choice}\"");
                let remedy = format!("write certificate = \"auto\", certificate = \"none\" or {CERTIFICATE_EXAMPLE}");
                self.error(entry.value.span().start, message, remedy);
                CertificateChoice::Automatic
            }
            _ => CertificateChoice::Files(entry),
        }
    }

    /// The command that runs after a certificate is issued.
    pub(super) fn read_on_renew(&mut self, entry: Entry<'_, '_>) -> Vec<String> {
        let strings = self.reader.strings(entry);
        match strings.first() {
            Some((_, program)) if program.starts_with('/') => {}
            Some((offset, program)) => {
                let message = format!("`{program}` is not an absolute path");
                self.error(*offset, message, format!("write {}", entry.example));
            }
            None => self.error(entry.offset, "`on_renew` has no command", format!("write {}", entry.example)),
        }
        if let Some((offset, _)) = strings.iter().find(|(_, text)| text.contains('\0')) {
            self.error(*offset, "an argument contains a NUL byte", "remove it");
        }
        strings.into_iter().map(|(_, text)| text.to_owned()).collect()
    }

    /// Adds the certificate that the server requests for `names`, of which the first is the domain itself.
    pub(super) fn add_automatic_certificate(&mut self, names: Vec<DomainName>, on_renew: Vec<String>, offset: usize) {
        let Some(first) = names.first() else { return };
        if let Some(name) = names.iter().find(|name| !name.can_be_host() || !name.as_str().contains('.')) {
            let message = format!("no authority issues a certificate for {name}");
            self.error(offset, message, "write certificate = \"none\" for this domain");
            return;
        }
        let folder = Path::new("certificates").join(first.as_str());
        self.config.certificates.push(CertificateFiles {
            chain: folder.join("fullchain.pem"),
            key: folder.join("privkey.pem"),
            names,
            is_automatic: true,
            on_renew,
            location: self.reader.location(offset),
        });
    }

    /// Reads one certificate, or a list of them.
    pub(super) fn read_certificates(&mut self, names: &[DomainName], section: Entry<'_, '_>) {
        const LIST_EXAMPLE: &str = "certificate = [{ chain = \"ecdsa.pem\", key = \"ecdsa.key\" }, \
                                    { chain = \"rsa.pem\", key = \"rsa.key\" }]";
        let DeValue::Array(items) = section.value.get_ref() else {
            return self.read_certificate(names, section, section.value);
        };
        if items.is_empty() {
            self.error(section.offset, "`certificate` is empty", format!("write {LIST_EXAMPLE} or remove the line"));
        }
        items.iter().for_each(|item| self.read_certificate(names, section, item));
    }

    /// Reads the certificate `value` of `section`.
    fn read_certificate<'n, 't>(&mut self, names: &[DomainName], section: Entry<'n, 't>, value: &'n Node<'t>) {
        let Some(keys) = self.reader.keys(section.item(value), Section::Certificate) else { return };
        match (self.read_path(keys.get("chain")), self.read_path(keys.get("key"))) {
            (Some((chain, location)), Some((key, _))) => {
                let names = names.to_vec();
                self.config.certificates.push(CertificateFiles {
                    names,
                    is_automatic: false,
                    chain,
                    key,
                    on_renew: Vec::new(),
                    location,
                });
            }
            _ if self.reader.has_problems() => {}
            (chain, _) => {
                let missing = if chain.is_none() { "chain" } else { "key" };
                let message = format!("`certificate` has no `{missing}`");
                self.error(section.offset, message, format!("write {}", section.example));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, config};
    use crate::site::Hsts;

    #[test]
    fn path_for_dns_queries_is_read() {
        let site = "[domain.\"a.example\"]\nsite = \"public\"\n";
        let read = config(&format!("{site}doh = \"/dns-query\""));
        assert_eq!(read.sites[0].options.doh.as_ref().map(|doh| doh.path.as_str()), Some("/dns-query"));
        for path in ["", "/", "dns-query", "/dns query", "/dns?a", "/d%20"] {
            let expected = format!(
                "3:7: \"{path}\" is not a valid path for DNS queries; write a path of letters, digits and /-._~ as in \
                    doh = \"/dns-query\""
            );
            check(&format!("{site}doh = \"{path}\"\n"), &[&expected]);
        }
        check(
            "[domain.\"a.example\"]\nzone = \"a.zone\"\ndoh = \"/dns-query\"",
            &["3:1: a.example has doh, but no site; add site = \"FOLDER\""],
        );
    }

    const HTTPS_SITE: &str = "[https]\nlisten = [\"127.0.0.1:8443\"]\n[domain.\"a.example\"]\nsite = \"public\"\n\
                              certificate = { chain = \"chain.pem\", key = \"key.pem\" }\n";

    #[test]
    fn path_for_dns_queries_without_encryption_is_warned_of() {
        let check = |text: &str, expected: &[&str]| {
            let warnings: Vec<String> = config(text).unencrypted_doh().map(|warning| warning.to_string()).collect();
            let after_path = |warning: &String| warning.split_once("sanderling.toml:").map(|(_, text)| text.to_owned());
            assert_eq!(warnings.iter().filter_map(after_path).collect::<Vec<_>>(), expected, "{text}");
        };
        let doh = "doh = \"/dns-query\"\n";
        let plain = format!("[domain.\"a.example\"]\nsite = \"public\"\n{doh}");
        let warning = "a.example answers DNS queries only without encryption, but clients of DNS over HTTPS need TLS; \
                       add a `certificate` to the domain and `listen` to [https], or add the proxy that terminates \
                       TLS to `trusted_proxies`";
        check(&plain, &[&format!("3:7: warning: {warning}")]);
        check(&format!("{HTTPS_SITE}{doh}"), &[]);
        // The certificate belongs to another domain.
        let two = format!("{HTTPS_SITE}[domain.\"b.example\"]\nsite = \"other\"\n{doh}");
        check(&two, &[&format!("8:7: warning: {}", warning.replacen("a.example", "b.example", 1))]);
        let proxy = "[http]\ntrusted_proxies = [\"192.0.2.1\"]\nclient_from = \"forwarded\"\n";
        check(&format!("{proxy}{plain}"), &[]);
    }

    #[test]
    fn site_with_a_certificate_is_redirected_to_https_by_default() {
        let is_redirected = |text: &str| config(text).sites[0].options.https_redirect;
        assert!(is_redirected(HTTPS_SITE));
        assert!(is_redirected(&format!("{HTTPS_SITE}https_redirect = true")));
        assert!(!is_redirected(&format!("{HTTPS_SITE}https_redirect = false")));
        assert!(!is_redirected("[domain.\"a.example\"]\nsite = \"public\"\n"));
        check(
            "[domain.\"a.example\"]\nsite = \"public\"\nhttps_redirect = true",
            &["3:1: a.example has `https_redirect`, but no certificate; \
               add certificate = { chain = \"fullchain.pem\", key = \"privkey.pem\" } or remove `https_redirect`"],
        );
        check(
            &format!("{HTTPS_SITE}https_redirect = 1"),
            &["6:18: `https_redirect` must be true or false, not the number 1; write https_redirect = true"],
        );
    }

    #[test]
    fn domain_may_have_several_certificates() {
        let domain = "[domain.\"a.example\"]\nsite = \"public\"\n";
        let pair = "{ chain = \"a.pem\", key = \"a.key\" }";
        let read = config(&format!("{domain}certificate = [{pair}, {{ chain = \"b.pem\", key = \"b.key\" }}]"));
        let names: Vec<_> = read.certificates.iter().map(|it| (it.names[0].as_str(), it.chain.file_name())).collect();
        assert_eq!(names, [("a.example", Some("a.pem".as_ref())), ("a.example", Some("b.pem".as_ref()))]);
        let example = "certificate = { chain = \"fullchain.pem\", key = \"privkey.pem\" }";
        check(
            &format!("{domain}certificate = []"),
            &["3:1: `certificate` is empty; write certificate = [{ chain = \"ecdsa.pem\", key = \"ecdsa.key\" }, \
               { chain = \"rsa.pem\", key = \"rsa.key\" }] or remove the line"],
        );
        check(
            &format!("{domain}certificate = [{pair}, \"b.pem\"]"),
            &[&format!("3:52: `certificate` must be a table, not the string \"b.pem\"; write {example}")],
        );
        check(
            &format!("{domain}certificate = [{pair}, {{ chain = \"b.pem\" }}]"),
            &[&format!("3:1: `certificate` has no `key`; write {example}")],
        );
    }

    #[test]
    fn unknown_names_are_refused_only_if_the_file_says_so() {
        assert!(!config(HTTPS_SITE).refuses_unknown_names);
        let refusing = HTTPS_SITE.replacen("[https]", "[https]\nrefuse_unknown_names = true", 1);
        assert!(config(&refusing).refuses_unknown_names);
        check(
            &HTTPS_SITE.replacen("[https]", "[https]\nrefuse_unknown_names = 1", 1),
            &[
                "2:24: `refuse_unknown_names` must be true or false, not the number 1; write refuse_unknown_names = true",
            ],
        );
    }

    #[test]
    fn hsts_is_read_and_its_risk_explained() {
        let read = |keys: &str| config(&format!("{HTTPS_SITE}hsts = {{ {keys} }}"));
        let lines = |keys: &str| read(keys).sites[0].options.hsts.as_ref().map(Hsts::field_line).unwrap();
        for (keys, seconds) in
            [("max_age_s = 0", 0), ("max_age = \"0s\"", 0), ("max_age = \"2d\"", 172_800), ("max_age = \"1500 ms\"", 1)]
        {
            assert_eq!(lines(keys), format!("Strict-Transport-Security: max-age={seconds}\r\n"));
        }
        assert_eq!(
            lines("max_age = \"365d\", subdomains = true, preload = true"),
            "Strict-Transport-Security: max-age=31536000; includeSubDomains; preload\r\n"
        );
        let risks = |keys: &str| read(keys).hsts_risks().map(|risk| risk.to_string()).collect::<Vec<_>>().join("\n");
        assert_eq!(risks("max_age_s = 0"), "");
        assert!(risks("max_age_s = 1").contains(": note: `hsts`"), "{}", risks("max_age_s = 1"));
        let (hour, days) = (risks("max_age_s = 3600"), risks("max_age_s = 864000, subdomains = true"));
        assert!(
            hour.contains(":6:1: note: `hsts`: browsers that have visited this site refuse it for 3600 s "),
            "{hour}"
        );
        assert!(days.contains("refuse it and all names below it for 10 days over HTTP"), "{days}");
        assert!(
            days.ends_with("to withdraw it, set `max_age = \"0s\"` for 10 days before you remove the key"),
            "{days}"
        );
        assert!(risks("max_age_s = 31536000, subdomains = true, preload = true").contains("https://hstspreload.org"));
    }

    #[test]
    fn wrong_hsts_is_an_error() {
        let check_hsts = |value: &str, expected: &str| check(&format!("{HTTPS_SITE}hsts = {value}"), &[expected]);
        check_hsts("3600", "6:8: `hsts` must be a table, not the number 3600; write hsts = { max_age = \"1d\" }");
        check_hsts("{}", "6:1: `hsts` has no `max_age`; write hsts = { max_age = \"1d\" }");
        check_hsts(
            "{ max_age = 86400 }",
            "6:20: `max_age` must be a string, not the number 86400; write max_age = \"1d\"",
        );
        for time in ["4000d", "999999999999999d"] {
            let expected = format!("6:20: `max_age` is out of range: {time:?}; write \"0s\" to \"3650d\"");
            check_hsts(&format!("{{ max_age = {time:?} }}"), &expected);
        }
        check_hsts(
            "{ max_age = \"1 day\" }",
            "6:20: \"1 day\" is not an integer with one of the units ms, s, min, h or d; write \"0s\" to \"3650d\"",
        );
        check_hsts(
            "{ max_age = \"1d\", max_age_s = 1 }",
            "6:26: `hsts` has both `max_age` and `max_age_s`; remove one of the two",
        );
        check_hsts("{ max_age_s = -1 }", "6:22: `max_age_s` is out of range: -1; write 0 to 315360000");
        check_hsts(
            "{ age = 1 }",
            "6:10: unknown key `age` in `hsts`; the keys are `max_age`, `max_age_s`, `subdomains`, `preload`",
        );
        check_hsts(
            "{ max_age_s = 86400, subdomains = true, preload = true }",
            "6:1: `preload` needs `subdomains = true` and `max_age` of at least \"365d\"; \
             change them, or remove `preload`",
        );
        let site = "[domain.\"a.example\"]\nsite = \"public\"\n";
        check(
            &format!("{site}hsts = {{ max_age_s = 1 }}"),
            &["3:1: a.example has `hsts`, but no certificate; \
               add certificate = { chain = \"fullchain.pem\", key = \"privkey.pem\" } or remove `hsts`"],
        );
        let without_listener = HTTPS_SITE.lines().skip(2).collect::<Vec<_>>().join("\n");
        check(
            &format!("{without_listener}\nhsts = {{ max_age_s = 1 }}"),
            &["4:1: `hsts` needs HTTPS, but [https] has no `listen`; \
               add [https] with listen = [\"0.0.0.0:443\", \"[::]:443\"], or remove `hsts`"],
        );
    }
}
