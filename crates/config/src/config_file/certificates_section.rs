//! The section `[certificates]`: from which authorities the server requests certificates.

use super::ConfigBuilder;
use crate::authorities::{Acme, Authority};
use crate::config_reader::{Entry, Node, entries};
use crate::keys::Section;
use crate::similar::most_similar;
use toml::de::DeValue;

const AUTHORITIES_EXAMPLE: &str = "authorities = [\"letsencrypt\"]";
const AUTHORITY_EXAMPLE: &str = "authorities = [{ directory = \"https://ca.example/directory\", root = \"ca.pem\" }]";
const AGREE_REMEDY: &str = "read the terms of your authorities, for Let's Encrypt at \
                            https://letsencrypt.org/repository, and write agree_to_terms = true";

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_certificates_section(&mut self, section: Entry<'_, '_>) {
        let Some(table) = self.reader.table(section, "[certificates] on a line of its own") else { return };
        let mut acme = Acme { contacts: Vec::new(), authorities: Vec::new() };
        let mut agrees = false;
        for entry in entries(table) {
            match entry.key {
                "agree_to_terms" => agrees = self.reader.boolean(entry).unwrap_or(true),
                "contact" => acme.contacts = self.read_contacts(entry),
                "authorities" => acme.authorities = self.read_authorities(entry),
                key => self.reader.error(entry.offset, Section::Certificates.unknown_key(key)),
            }
        }
        if !agrees {
            self.error(
                section.offset,
                "an authority issues certificates only to those that agree to its terms",
                AGREE_REMEDY,
            );
        }
        if acme.authorities.is_empty() {
            acme.authorities.extend(Authority::known("letsencrypt"));
        }
        self.config.acme = Some(acme);
    }

    fn read_contacts(&mut self, entry: Entry<'_, '_>) -> Vec<String> {
        const EXAMPLE: &str = "contact = \"mailto:hostmaster@example.com\"";
        let texts = match entry.value.get_ref() {
            DeValue::Array(_) => self.reader.strings(entry, EXAMPLE),
            _ => self.reader.string(entry, EXAMPLE).into_iter().collect(),
        };
        for (offset, text) in &texts {
            let address = text.strip_prefix("mailto:").unwrap_or_default();
            let is_address = address.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
            if !is_address || !address.bytes().all(|byte| byte.is_ascii_graphic()) {
                self.error(*offset, format!("`{text}` is not a contact"), format!("write {EXAMPLE}"));
            }
        }
        texts.into_iter().map(|(_, text)| text.to_owned()).collect()
    }

    fn read_authorities(&mut self, entry: Entry<'_, '_>) -> Vec<Authority> {
        let DeValue::Array(items) = entry.value.get_ref() else {
            self.error(entry.value.span().start, "`authorities` is not a list", format!("write {AUTHORITIES_EXAMPLE}"));
            return Vec::new();
        };
        if items.is_empty() {
            self.error(
                entry.offset,
                "`authorities` is empty",
                format!("write {AUTHORITIES_EXAMPLE} or remove the line"),
            );
        }
        items.iter().filter_map(|item| self.read_authority(entry, item)).collect()
    }

    fn read_authority<'n, 't>(&mut self, list: Entry<'n, 't>, item: &'n Node<'t>) -> Option<Authority> {
        let entry = Entry { value: item, ..list };
        if let DeValue::String(name) = item.get_ref() {
            let known = Authority::known(name);
            if known.is_none() {
                let similar = most_similar(name, Authority::known_names());
                let remedy = similar.map_or_else(
                    || format!("give its directory: {AUTHORITY_EXAMPLE}"),
                    |similar| format!("did you mean `{similar}`?"),
                );
                self.error(item.span().start, format!("the authority `{name}` is not known"), remedy);
            }
            return known;
        }
        let table = self.reader.table(entry, AUTHORITY_EXAMPLE)?;
        let (mut directory, mut root, mut profile) = (None, None, None);
        for entry in entries(table) {
            match entry.key {
                "directory" => directory = self.reader.string(entry, AUTHORITY_EXAMPLE),
                "root" => root = Some(self.read_path(entry, "root = \"ca.pem\"")?.0),
                "profile" => profile = Some(self.reader.string(entry, "profile = \"shortlived\"")?.1.to_owned()),
                other => {
                    let remedy = "the keys are `directory`, `root`, `profile`";
                    self.error(entry.offset, format!("unknown key `{other}` of an authority"), remedy);
                }
            }
        }
        let Some((offset, directory)) = directory else {
            self.error(item.span().start, "an authority has no `directory`", format!("write {AUTHORITY_EXAMPLE}"));
            return None;
        };
        let Some(host) = Authority::host_of(directory) else {
            let message = format!("`{directory}` is not the URL of a directory");
            self.error(offset, message, format!("write an https URL: {AUTHORITY_EXAMPLE}"));
            return None;
        };
        Some(Authority { name: host.to_owned(), directory: directory.to_owned(), root, profile })
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
        // Whatever the order of the sections.
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
    }

    #[test]
    fn authorities_have_names_or_directories() {
        let acme = |text: &str| config(&format!("{ACME}{text}\n{DOMAIN}")).acme.expect("the section");
        let names = |text: &str| acme(text).authorities.into_iter().map(|it| it.name).collect::<Vec<_>>();
        assert_eq!(names(""), ["letsencrypt"]);
        let other = "authorities = [\"letsencrypt-staging\", { directory = \"https://ca.example:14000/dir\", profile = \"x\" }]";
        assert_eq!(names(other), ["letsencrypt-staging", "ca.example:14000"]);
        assert_eq!(acme("contact = \"mailto:a@b.example\"").contacts, ["mailto:a@b.example"]);
    }

    #[test]
    fn problems_have_a_remedy() {
        let of_section = |text: &str, expected: &[&str]| check(&format!("[certificates]\n{text}\n{DOMAIN}"), expected);
        of_section(
            "",
            &[
                "1:2: an authority issues certificates only to those that agree to its terms; read the terms of your authorities, \
               for Let's Encrypt at https://letsencrypt.org/repository, and write agree_to_terms = true",
            ],
        );
        of_section(
            "agree_to_terms = true\nauthorities = [\"letsencript\"]",
            &["3:16: the authority `letsencript` is not known; did you mean `letsencrypt`?"],
        );
        of_section(
            "agree_to_terms = true\nauthorities = [{ directory = \"http://ca.example\" }]",
            &["3:30: `http://ca.example` is not the URL of a directory; write an https URL: \
               authorities = [{ directory = \"https://ca.example/directory\", root = \"ca.pem\" }]"],
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
}
