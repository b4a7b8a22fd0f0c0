//! The section `[certificates]`: the authorities from which the server requests certificates.

use super::ConfigBuilder;
use crate::authorities::{Acme, Authority, ExternalAccount};
use crate::config_reader::{Entry, Node};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::similar::most_similar;
use toml::de::DeValue;

const AUTHORITY_EXAMPLE: &str = "authorities = [{ directory = \"https://ca.example/directory\", root = \"ca.pem\" }]";
const EXTERNAL_ACCOUNT_EXAMPLE: &str = "external_account = { id = \"KEY-ID\", key_file = \"account.key\" }";
const AGREE_REMEDY: &str = "read the terms of your authorities, for Let's Encrypt at \
                            https://letsencrypt.org/repository, and write agree_to_terms = true";

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_certificates_section(&mut self, section: Entry<'_, '_>) {
        let Some(keys) = self.reader.keys(section, Section::Certificates) else { return };
        let agrees = self.reader.boolean(&keys, "agree_to_terms");
        let mut acme = Acme {
            contacts: keys.get("contact").map(|entry| self.read_contacts(entry)).unwrap_or_default(),
            authorities: keys.get("authorities").map(|entry| self.read_authorities(entry)).unwrap_or_default(),
        };
        let is_wrong = keys.get("agree_to_terms").is_some_and(|entry| entry.value.get_ref().as_bool().is_none());
        if !agrees && !is_wrong {
            self.error(
                section.offset,
                "an authority issues certificates only to accounts that agree to its terms",
                AGREE_REMEDY,
            );
        }
        if acme.authorities.is_empty() {
            acme.authorities.extend(Authority::known("letsencrypt", self.reader.location(section.offset)));
        }
        self.config.acme = Some(acme);
    }

    fn read_contacts(&mut self, entry: Entry<'_, '_>) -> Vec<String> {
        let texts = match entry.value.get_ref() {
            DeValue::Array(_) => self.reader.strings(entry),
            _ => self.reader.string(entry).into_iter().collect(),
        };
        for (offset, text) in &texts {
            let address = text.strip_prefix("mailto:").unwrap_or_default();
            let is_address = address.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
            if !is_address || !address.bytes().all(|byte| byte.is_ascii_graphic()) {
                self.error(*offset, format!("`{text}` is not a contact"), format!("write {}", entry.example));
            }
        }
        texts.into_iter().map(|(_, text)| text.to_owned()).collect()
    }

    fn read_authorities(&mut self, entry: Entry<'_, '_>) -> Vec<Authority> {
        let DeValue::Array(items) = entry.value.get_ref() else {
            let remedy = format!("write {}", entry.example);
            self.error(entry.value.span().start, "`authorities` is not a list", remedy);
            return Vec::new();
        };
        if items.is_empty() {
            let remedy = format!("write {} or remove the line", entry.example);
            self.error(entry.offset, "`authorities` is empty", remedy);
        }
        items.iter().filter_map(|item| self.read_authority(entry, item)).collect()
    }

    fn read_authority<'n, 't>(&mut self, list: Entry<'n, 't>, item: &'n Node<'t>) -> Option<Authority> {
        let entry = list.item(item).with_example(AUTHORITY_EXAMPLE);
        let offset = item.span().start;
        let authority = match item.get_ref() {
            DeValue::String(name) => self.known_authority(offset, name)?,
            _ => self.read_authority_table(entry)?,
        };
        let has_account = item.get_ref().as_table().is_some_and(|table| table.contains_key("external_account"));
        if authority.needs_external_account() && !has_account {
            let message = format!("`{}` issues certificates only to registered accounts", authority.name);
            let remedy = format!("write {{ name = \"{}\", {EXTERNAL_ACCOUNT_EXAMPLE} }}", authority.name);
            self.error(offset, message, remedy);
        }
        Some(authority)
    }

    fn known_authority(&mut self, offset: usize, name: &str) -> Option<Authority> {
        let known = Authority::known(name, self.reader.location(offset));
        if known.is_none() {
            let similar = most_similar(name, Authority::known_names());
            let remedy = similar.map_or_else(
                || format!("give its directory: {AUTHORITY_EXAMPLE}"),
                |similar| format!("did you mean `{similar}`?"),
            );
            self.error(offset, format!("unknown authority `{name}`"), remedy);
        }
        known
    }

    fn read_authority_table(&mut self, entry: Entry<'_, '_>) -> Option<Authority> {
        let keys = self.reader.keys(entry, Section::Authority)?;
        let name = keys.get("name").and_then(|entry| self.reader.string(entry));
        let directory = keys.get("directory").and_then(|entry| self.reader.string(entry));
        let root = self.read_path(keys.get("root")).map(|(path, _)| path);
        let profile = keys.get("profile").and_then(|entry| self.reader.string(entry)).map(|(_, text)| text.to_owned());
        let caa = keys.get("caa").and_then(|entry| self.read_caa_name(entry));
        let account = keys.get("external_account").and_then(|entry| self.read_external_account(entry));
        let mut authority = match (name, directory) {
            (Some((offset, name)), None) => self.known_authority(offset, name)?,
            (None, Some((offset, directory))) => {
                let Some(host) = Authority::host_of(directory) else {
                    let message = format!("`{directory}` is not the URL of a directory");
                    self.error(offset, message, format!("write an https URL: {AUTHORITY_EXAMPLE}"));
                    return None;
                };
                Authority {
                    name: host.to_owned(),
                    directory: directory.to_owned(),
                    root: None,
                    profile: None,
                    caa: None,
                    external_account: None,
                    location: self.reader.location(offset),
                }
            }
            (Some(_), Some((offset, _))) => {
                self.error(offset, "an authority has a `name` and a `directory`", "remove one of them");
                return None;
            }
            // The error in the value was reported.
            (None, None) if keys.get("name").or(keys.get("directory")).is_some() => return None,
            (None, None) => {
                let remedy = format!("write {AUTHORITY_EXAMPLE}");
                self.error(entry.value.span().start, "an authority has no `directory` and no `name`", remedy);
                return None;
            }
        };
        (authority.root, authority.profile, authority.external_account) = (root, profile, account);
        authority.caa = caa.or(authority.caa);
        Some(authority)
    }

    /// An authority's name in CAA records.
    fn read_caa_name(&mut self, entry: Entry<'_, '_>) -> Option<String> {
        let (offset, text) = self.reader.string(entry)?;
        match DomainName::parse(text) {
            Ok(name) => Some(name.as_str().to_owned()),
            Err(problem) => {
                self.error(offset, problem.message, "write the name that the authority documents for CAA records");
                None
            }
        }
    }

    fn read_external_account(&mut self, entry: Entry<'_, '_>) -> Option<ExternalAccount> {
        let problem_count = self.reader.problem_count();
        let keys = self.reader.keys(entry, Section::ExternalAccount)?;
        let id = keys.get("id").and_then(|entry| self.reader.string(entry)).filter(|(_, id)| !id.is_empty());
        match (id, self.read_path(keys.get("key_file"))) {
            (Some((_, id)), Some((key_file, location))) => {
                Some(ExternalAccount { id: id.to_owned(), key_file, location })
            }
            _ if self.reader.problem_count() > problem_count => None,
            _ => {
                let remedy = format!("write {EXTERNAL_ACCOUNT_EXAMPLE}");
                self.error(entry.offset, "an external account needs `id` and `key_file`", remedy);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, config};
    use std::path::Path;

    const ACME: &str = "[certificates]\nagree_to_terms = true\n";
    const DOMAIN: &str = "[domain.\"example.com\"]\nsite = \"public\"\n";

    #[test]
    fn domain_with_a_site_has_an_automatic_certificate_by_default() {
        // The order of the sections does not matter.
        for text in
            [format!("{ACME}{DOMAIN}"), format!("{DOMAIN}{ACME}"), format!("{ACME}{DOMAIN}certificate = \"auto\"\n")]
        {
            let read = config(&text);
            let [certificate] = &read.certificates[..] else { panic!("{read:?}") };
            assert!(certificate.is_automatic);
            assert_eq!(certificate.chain, Path::new("certificates/example.com/fullchain.pem"));
            assert!(read.sites[0].options.https_redirect && read.sites[0].options.has_automatic_certificate);
        }
        let other = [
            format!("{ACME}{DOMAIN}certificate = \"none\"\n"),
            DOMAIN.to_owned(),
            format!("{ACME}[domain.\"example.com\"]\nzone = \"a.zone\"\n"),
        ];
        for text in other {
            assert!(config(&text).certificates.is_empty(), "{text}");
        }
        let of_zone = config(&format!("{ACME}[domain.\"example.com\"]\nzone = \"a.zone\"\ncertificate = \"auto\"\n"));
        assert!(of_zone.certificates[0].is_automatic);
        // For example, the certificate of a mail server.
        let alone = config(&format!("{ACME}{DOMAIN}[domain.\"mail.example.com\"]\ncertificate = \"auto\"\n"));
        assert!(alone.certificates[1].is_automatic && alone.sites.len() == 1);
    }

    #[test]
    fn authorities_have_names_or_directories() {
        let acme = |text: &str| config(&format!("{ACME}{text}\n{DOMAIN}")).acme.expect("the section");
        let names = |text: &str| acme(text).authorities.into_iter().map(|it| it.name).collect::<Vec<_>>();
        assert_eq!(names(""), ["letsencrypt"]);
        let other = "authorities = [\"letsencrypt-staging\", { directory = \"https://ca.example:14000/dir\", profile = \"x\" }]";
        assert_eq!(names(other), ["letsencrypt-staging", "ca.example:14000"]);
        let bound = "authorities = [{ name = \"zerossl\", caa = \"CA.example\", external_account = { id = \"x\", key_file = \"k\" } }]";
        let [authority] = &acme(bound).authorities[..] else { panic!("one") };
        assert_eq!((authority.name.as_str(), authority.caa.as_deref()), ("zerossl", Some("ca.example")));
        let account = authority.external_account.as_ref().expect("one");
        assert!(account.id == "x" && account.key_file.ends_with("k"), "{account:?}");
        assert_eq!(acme("").authorities[0].caa.as_deref(), Some("letsencrypt.org"));
        assert_eq!(acme("contact = \"mailto:a@b.example\"").contacts, ["mailto:a@b.example"]);
    }

    #[test]
    fn problems_have_a_remedy() {
        let of_section = |text: &str, expected: &[&str]| check(&format!("[certificates]\n{text}\n{DOMAIN}"), expected);
        of_section(
            "",
            &["1:2: an authority issues certificates only to accounts that agree to its terms; read the terms of \
                 your \
                    authorities, for Let's Encrypt at https://letsencrypt.org/repository, and write agree_to_terms = \
                    true"],
        );
        of_section(
            "agree_to_terms = true\nauthorities = [\"letsencript\"]",
            &["3:16: unknown authority `letsencript`; did you mean `letsencrypt`?"],
        );
        of_section(
            "agree_to_terms = true\nauthorities = [{ directory = \"http://ca.example\" }]",
            &["3:30: `http://ca.example` is not the URL of a directory; write an https URL: \
               authorities = [{ directory = \"https://ca.example/directory\", root = \"ca.pem\" }]"],
        );
        of_section(
            "agree_to_terms = true\nauthorities = [\"google\"]",
            &["3:16: `google` issues certificates only to registered accounts; write { name = \"google\", \
               external_account = { id = \"KEY-ID\", key_file = \"account.key\" } }"],
        );
        of_section(
            "agree_to_terms = true\nauthorities = [{ profile = \"x\" }]",
            &["3:16: an authority has no `directory` and no `name`; \
               write authorities = [{ directory = \"https://ca.example/directory\", root = \"ca.pem\" }]"],
        );
        of_section(
            "agree_to_terms = true\nauthorities = [{ name = \"letsencrypt\", external_account = { id = \"x\" } }]",
            &["3:40: an external account needs `id` and `key_file`; \
               write external_account = { id = \"KEY-ID\", key_file = \"account.key\" }"],
        );
        of_section(
            "agree_to_terms = true\ncontact = \"hostmaster\"",
            &["3:11: `hostmaster` is not a contact; write contact = \"mailto:hostmaster@example.com\""],
        );
        check(
            &format!("{DOMAIN}certificate = \"auto\"\n"),
            &[
                "3:1: an automatic certificate needs an authority that issues it; add [certificates] with agree_to_terms = true",
            ],
        );
        check(
            &format!("{ACME}[domain.\"localhost\"]\nsite = \"public\"\n"),
            &["3:9: no authority issues a certificate for localhost; write certificate = \"none\" for this domain"],
        );
    }

    #[test]
    fn what_follows_from_a_mistake_is_not_reported() {
        let of = |keys: &str| {
            let text = format!("[certificates]\n{keys}\n{DOMAIN}");
            crate::config_file::tests::read(text.as_bytes()).expect_err("refused")
        };
        for (keys, expected) in [
            ("agree_to_terms = \"yes\"", "`agree_to_terms` must be true or false"),
            (
                "agree_to_terms = true\nauthorities = [{ name = \"google\", external_account = { id = 5, key_file = \"k\" } }]",
                "`id` must be a string",
            ),
            (
                "agree_to_terms = true\nauthorities = [{ name = \"google\", external_account = { id = \"i\", keyfile = \"k\" } }]",
                "unknown key `keyfile`",
            ),
            ("agree_to_terms = true\nauthorities = [{ directory = 5 }]", "`directory` must be a string"),
        ] {
            let messages = of(keys);
            assert!(messages.len() == 1 && messages[0].contains(expected), "{keys}: {messages:?}");
        }
    }
}
