//! The keys of a domain for its certificate and for HTTPS.

use super::ConfigBuilder;
use crate::config::{CertificateFiles, Hsts, SiteOptions};
use crate::config_reader::{Entry, Node, entries};
use crate::domain_name::DomainName;
use std::path::Path;
use toml::de::DeValue;

const CERTIFICATE_EXAMPLE: &str = "certificate = { chain = \"fullchain.pem\", key = \"privkey.pem\" }";
const HSTS_EXAMPLE: &str = "hsts = { max_age_s = 86400 }";
/// Ten years.
const MAX_AGE_S_MAX: u64 = 315_360_000;
/// What https://hstspreload.org demands.
const PRELOAD_MAX_AGE_S_MIN: u64 = 31_536_000;

/// What a domain has for TLS.
#[derive(Clone, Copy)]
pub(super) enum CertificateChoice<'n, 't> {
    None,
    /// The server requests it.
    Automatic,
    /// Files of the operator.
    Files(Entry<'n, 't>),
}

impl ConfigBuilder<'_, '_> {
    /// Reads `https_redirect` and `hsts` of the domain `name`.
    pub(super) fn read_https_options(
        &mut self,
        name: &DomainName,
        has_certificate: bool,
        [https_redirect, hsts]: [Option<Entry<'_, '_>>; 2],
        options: &mut SiteOptions,
    ) {
        options.https_redirect = has_certificate;
        if let (Some(entry), false) = (https_redirect.or(hsts), has_certificate) {
            let message = format!("{name} has `{}`, but no certificate", entry.key);
            self.error(entry.offset, message, format!("add {CERTIFICATE_EXAMPLE} or remove `{}`", entry.key));
        }
        if let Some(entry) = https_redirect {
            options.https_redirect &= self.reader.boolean(entry).unwrap_or(true);
        }
        if let Some(entry) = hsts {
            self.hsts.get_or_insert(entry.offset);
            options.hsts = self.read_hsts(entry);
        }
    }

    fn read_hsts(&mut self, section: Entry<'_, '_>) -> Option<Hsts> {
        let table = self.reader.table(section, HSTS_EXAMPLE)?;
        let (mut max_age_s, mut subdomains, mut preload) = (None, false, false);
        for entry in entries(table) {
            match entry.key {
                "max_age_s" => max_age_s = Some(self.reader.number(entry, 0, MAX_AGE_S_MAX, 86_400, "")?),
                "subdomains" => subdomains = self.reader.boolean(entry)?,
                "preload" => preload = self.reader.boolean(entry)?,
                other => {
                    let remedy = "the keys are `max_age_s`, `subdomains`, `preload`";
                    self.error(entry.offset, format!("unknown key `{other}` in `hsts`"), remedy);
                    return None;
                }
            }
        }
        let Some(max_age_s) = max_age_s else {
            self.error(section.offset, "`hsts` has no `max_age_s`", format!("write {HSTS_EXAMPLE}"));
            return None;
        };
        if preload && (!subdomains || max_age_s < PRELOAD_MAX_AGE_S_MIN) {
            let message = "`preload` needs `subdomains = true` and `max_age_s` of at least 31536000, a year";
            self.error(section.offset, message, "change them, or remove `preload`");
        }
        Some(Hsts { max_age_s, subdomains, preload, location: self.reader.location(section.offset) })
    }

    /// What `certificate` chooses. By default a domain with a site has an automatic one if there are authorities.
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

    /// Adds the certificate that the server requests for `names`, the first of which is that of the domain.
    pub(super) fn add_automatic_certificate(&mut self, names: Vec<DomainName>, offset: usize) {
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
        let entry = Entry { value, ..section };
        let Some(table) = self.reader.table(entry, CERTIFICATE_EXAMPLE) else { return };
        let (mut chain, mut key) = (None, None);
        for entry in entries(table) {
            match entry.key {
                "chain" => chain = self.read_path(entry, "chain = \"fullchain.pem\""),
                "key" => key = self.read_path(entry, "key = \"privkey.pem\""),
                other => {
                    let message = format!("unknown key `{other}` in `certificate`");
                    self.error(entry.offset, message, format!("write {CERTIFICATE_EXAMPLE}"));
                }
            }
        }
        match (chain, key) {
            (Some((chain, location)), Some((key, _))) => {
                let names = names.to_vec();
                self.config.certificates.push(CertificateFiles { names, is_automatic: false, chain, key, location });
            }
            _ if self.reader.has_problems() => {}
            (None, _) => {
                self.error(section.offset, "`certificate` has no `chain`", format!("write {CERTIFICATE_EXAMPLE}"));
            }
            (_, None) => {
                self.error(section.offset, "`certificate` has no `key`", format!("write {CERTIFICATE_EXAMPLE}"));
            }
        }
    }
}
