//! Reads a configuration file into a [`Config`], or reports all problems in it.

mod catalogs;
mod certificates_section;
mod derive;
mod every_host;
mod signing;
mod dns;
mod transfers;
mod files;
mod http;
mod https;
mod limits_section;
mod log_section;
mod metrics;
mod routes;
mod route_guards;
mod distribution;
mod backend_tls;
mod rules;
mod updates;

use crate::config::{Config, DefaultSite, KeyPlace, SocketsPerAddress, UserAndGroup, WORKER_COUNT_MAX};
use crate::config_reader::{BETWEEN_FILES, ConfigReader, Entry, Keys, entries};
use crate::config_text;
use crate::diagnostic::{Diagnostic, Problem, ValueLocation};
use crate::domain_name::DomainName;
use crate::keys::Section;
use crate::listen_address::{ListenAddresses, parse_listen_address};
use crate::service::Service;
use crate::site::{DohPath, Site, SiteOptions};
use crate::zones::{Zone, ZoneOrigin};
use https::CertificateChoice;
use sanderling_site_rules::FileOptions;
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Checks `content`, the text of the file at `path` and of the files that it includes; relative paths in all files are
/// relative to the directory of `path`.
///
/// # Errors
/// Returns all problems, in file order.
pub(super) fn parse(path: &Path, content: &[u8]) -> Result<Config, Vec<Diagnostic>> {
    let (files, variables) = config_text::split(path, content);
    let mut reader = ConfigReader::new(&files, &variables);
    let Some(text) = joined(&files, &mut reader) else { return Err(reader.into_diagnostics()) };
    let Some(root) = reader.parse(&text, 0) else { return Err(reader.into_diagnostics()) };
    let mut builder = ConfigBuilder::new(&mut reader, path.parent().unwrap_or(Path::new("")));
    builder.read_top(&root);
    let mut config = builder.into_config();
    config.files = files.iter().map(|(path, _)| path.clone()).collect();
    if !reader.has_problems() {
        return Ok(config);
    }
    // All errors, not only the first one.
    config.path_problems().into_iter().for_each(|problem| reader.add(problem));
    Err(reader.into_diagnostics())
}

/// The text of all files one after another; `None` if a file is not complete by itself.
pub(super) fn joined<'t>(files: &[(PathBuf, &'t [u8])], reader: &mut ConfigReader<'_>) -> Option<Cow<'t, str>> {
    let mut texts = Vec::with_capacity(files.len());
    let mut start = 0;
    for (index, (_, content)) in files.iter().enumerate() {
        match str::from_utf8(content) {
            Ok(text) if files.len() == 1 => return Some(Cow::Borrowed(text)),
            Ok(text) => {
                let table = reader.parse(text, start);
                let keys = table.iter().filter(|_| index > 0).flat_map(|table| entries(table, ""));
                for entry in keys.filter(|entry| !matches!(entry.value.get_ref(), DeValue::Table(_))) {
                    let message = format!("`{}` is in an included file, before the first [section]", entry.key);
                    let remedy = format!("move it to {}", files[0].0.display());
                    reader.error(start + entry.offset, Problem::new(message, remedy));
                }
                texts.push(text);
            }
            Err(error) => {
                reader.error(start + error.valid_up_to(), Problem::new("invalid UTF-8", "save the file as UTF-8"));
            }
        }
        start += content.len() + BETWEEN_FILES.len();
    }
    (!reader.has_problems()).then(|| Cow::Owned(texts.join(BETWEEN_FILES)))
}

/// The keys allowed in a domain without a site.
const WITHOUT_SITE: [&str; 10] = [
    "zone",
    "dnssec",
    "primaries",
    "secondaries",
    "transfer_allow",
    "update",
    "certificate",
    "on_renew",
    "derive",
    "mta_sts",
];
/// Those that are a site without files: applications and redirects answer.
const ANSWERS: [&str; 2] = ["route", "redirects"];
/// Those that such a site may also have: they do not concern files.
const WITHOUT_FILES: [&str; 12] = [
    "route",
    "aliases",
    "exact_paths",
    "doh",
    "https_redirect",
    "hsts",
    "redirects",
    "headers",
    "cors",
    "security_headers",
    "auth",
    "access",
];

/// Reads a section.
type ReadSection<B> = fn(&mut B, Entry<'_, '_>);

/// Builds the configuration from the file's sections.
struct ConfigBuilder<'e, 'a> {
    reader: &'e mut ConfigReader<'a>,
    directory: &'e Path,
    config: Config,
    /// `user` with its offset.
    user: Option<(usize, String)>,
    /// `group` with its offset.
    group: Option<(usize, String)>,
    /// The offsets of `listen` in `[http]` and `[dns]`, if the file has them.
    http_listen: Option<usize>,
    dns_listen: Option<usize>,
    /// The offset of the first list of addresses for TLS.
    tls_listen: Option<usize>,
    /// The offset of the first `hsts`.
    hsts: Option<usize>,
    listen_addresses: ListenAddresses,
    /// `default` in `[http]` with its offset.
    default_host: Option<(usize, DomainName)>,
    /// The site of `[domain."*"]`, by its index.
    site_for_every_host: Option<usize>,
    /// The hosts of all sites, each with the index of its site and its offset.
    hosts: HashMap<DomainName, (usize, usize)>,
    /// The zones with their offsets.
    apexes: HashMap<DomainName, usize>,
    /// The uses of TSIG keys with their offsets.
    key_uses: Vec<(usize, DomainName)>,
    /// The domains with rules of transfers, with their offsets.
    transfer_uses: Vec<(usize, DomainName)>,
    /// The domains with `update`, with their offsets.
    update_uses: Vec<(usize, DomainName)>,
    /// The catalogs' offsets, in their order.
    catalog_uses: Vec<usize>,
    /// The offset of each `derive`, with its index in the configuration.
    derive_uses: Vec<(usize, usize)>,
}

impl ConfigBuilder<'_, '_> {
    fn new<'e, 'a>(reader: &'e mut ConfigReader<'a>, directory: &'e Path) -> ConfigBuilder<'e, 'a> {
        ConfigBuilder {
            reader,
            directory,
            config: Config::default(),
            user: None,
            group: None,
            http_listen: None,
            dns_listen: None,
            tls_listen: None,
            hsts: None,
            listen_addresses: ListenAddresses::default(),
            default_host: None,
            site_for_every_host: None,
            hosts: HashMap::new(),
            apexes: HashMap::new(),
            key_uses: Vec::new(),
            transfer_uses: Vec::new(),
            update_uses: Vec::new(),
            catalog_uses: Vec::new(),
            derive_uses: Vec::new(),
        }
    }

    fn error(&mut self, offset: usize, message: impl Into<String>, remedy: impl Into<String>) {
        self.reader.error(offset, Problem::new(message, remedy));
    }

    fn read_top(&mut self, root: &DeTable<'_>) {
        let keys = self.reader.top(root);
        let sections: [(&str, ReadSection<Self>); 10] = [
            // Domains are read with their limits, and get an automatic certificate by default if one is possible.
            ("limits", Self::read_limits),
            ("certificates", Self::read_certificates_section),
            ("http", Self::read_http),
            ("https", Self::read_https),
            ("dns", Self::read_dns),
            ("domain", Self::read_domains),
            ("metrics", Self::read_metrics),
            ("tsig", Self::read_tsig),
            ("catalog", Self::read_catalogs),
            ("log", Self::read_log),
        ];
        for (name, read) in sections {
            keys.get(name).into_iter().for_each(|section| read(self, section));
        }
        self.config.backend_names = self.config.names_of_backends();
        if let Some(count) = self.reader.count(&keys, "workers") {
            self.config.worker_count = to_count(count);
        }
        if let Some(entry) = keys.get("listeners") {
            self.read_listeners(entry);
        }
        self.user = keys.get("user").and_then(|entry| self.read_account_name(entry));
        self.group = keys.get("group").and_then(|entry| self.read_account_name(entry));
        self.config.sandbox = self.reader.boolean(&keys, "sandbox");
        if let Some(entry) = keys.get("keys") {
            self.read_keys(entry);
        }
        // The files were read before.
        keys.get("include").into_iter().for_each(|entry| drop(self.reader.strings(entry)));
        (self.config.control, self.config.control_location) = self.read_path(keys.get("control")).unzip();
        (self.config.state, self.config.state_location) = self.read_path(keys.get("state")).unzip();
    }

    fn read_listeners(&mut self, entry: Entry<'_, '_>) {
        match entry.value.get_ref() {
            DeValue::String(text) if text == "auto" => {}
            DeValue::String(_) => {
                let message = "`listeners` must be \"auto\" or a number";
                self.error(entry.value.span().start, message, format!("write {}", entry.example));
            }
            _ => {
                let count = self.reader.number(entry.with_example("listeners = 4"), 1, WORKER_COUNT_MAX, "");
                self.config.sockets_per_address =
                    count.map_or(SocketsPerAddress::Auto, |count| SocketsPerAddress::Exactly(to_count(count)));
            }
        }
    }

    fn read_keys(&mut self, entry: Entry<'_, '_>) {
        match self.reader.string(entry) {
            Some((_, "keeper")) | None => {}
            Some((_, "in-process")) => self.config.keys = KeyPlace::InProcess,
            Some((offset, _)) => {
                let message = "`keys` must be \"keeper\" or \"in-process\"";
                self.error(offset, message, format!("write {}", entry.example));
            }
        }
    }

    /// The name of a user or group, with its offset. Whether it exists is checked on the machine that serves.
    fn read_account_name(&mut self, entry: Entry<'_, '_>) -> Option<(usize, String)> {
        let example = match entry.value.get_ref() {
            DeValue::Integer(number) => format!("{} = \"{number}\"", entry.key),
            _ => entry.example.to_owned(),
        };
        let (offset, text) = self.reader.string(entry.with_example(&example))?;
        if text.is_empty() || text.contains('\0') {
            self.error(offset, format!("`{}` is not a name", entry.key), format!("write {example}"));
            return None;
        }
        Some((offset, text.to_owned()))
    }

    fn read_https(&mut self, section: Entry<'_, '_>) {
        let Some(keys) = self.reader.keys(section, Section::Https) else { return };
        if let Some(entry) = keys.get("listen") {
            self.tls_listen.get_or_insert(entry.offset);
            self.config.https_listen = self.read_listen(entry, Service::Https);
        }
        self.config.refuses_unknown_names = self.reader.boolean(&keys, "refuse_unknown_names");
    }

    fn read_default(&mut self, entry: Entry<'_, '_>) {
        let Some((offset, text)) = self.reader.string(entry) else { return };
        match DomainName::parse(text) {
            Ok(host) => self.default_host = Some((offset, host)),
            Err(problem) => self.reader.error(offset, problem),
        }
    }

    fn read_listen(&mut self, entry: Entry<'_, '_>, service: Service) -> Vec<SocketAddr> {
        let mut addresses = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            let added = parse_listen_address(text)
                .and_then(|address| self.listen_addresses.add(address, service).map(|()| addresses.push(address)));
            if let Err(problem) = added {
                self.reader.error(offset, problem);
            }
        }
        if matches!(entry.value.get_ref(), DeValue::Array(items) if items.is_empty()) {
            let message = format!("`{}` is empty", entry.key);
            let remedy = format!("write {} or remove the line", entry.example);
            self.error(entry.value.span().start, message, remedy);
        }
        addresses
    }

    fn read_domains(&mut self, section: Entry<'_, '_>) {
        for entry in self.reader.entries(section) {
            self.read_domain(entry);
        }
    }

    fn read_domain(&mut self, entry: Entry<'_, '_>) {
        let Some(table) = self.reader.table(entry) else { return };
        if let Some(name) = unquoted_name(entry.key, table) {
            self.error(entry.offset, format!("the name {name} is not in quotes"), format!("write [domain.\"{name}\"]"));
            return;
        }
        match (DomainName::parse(entry.key), self.reader.keys(entry, Section::Domain)) {
            (Ok(name), Some(keys)) => self.read_domain_keys(&name, entry.offset, &keys),
            (Err(problem), _) => self.reader.error(entry.offset, problem),
            (Ok(_), None) => {}
        }
    }

    fn read_domain_keys(&mut self, name: &DomainName, offset: usize, keys: &Keys<'_, '_>) {
        if every_host::is_name(name) {
            return self.read_site_for_every_host(offset, keys);
        }
        let (zone, primaries) = (keys.get("zone"), keys.get("primaries"));
        let mut options = self.read_site_options(keys);
        let site = keys.get("site").or_else(|| ANSWERS.iter().find_map(|key| keys.get(key)));
        let certificate = self.certificate_choice(keys.get("certificate"), site.is_some());
        options.has_automatic_certificate = matches!(certificate, CertificateChoice::Automatic);
        let on_renew = keys.get("on_renew");
        if let (Some(entry), false) = (on_renew, options.has_automatic_certificate) {
            let message = format!("{name} has `on_renew`, but no automatic certificate");
            self.error(entry.offset, message, "remove it");
        }
        let has_certificate = !matches!(certificate, CertificateChoice::None);
        self.read_https_options(name, has_certificate, keys, &mut options);
        match (zone, primaries) {
            (Some(zone), Some(_)) => {
                self.error(
                    zone.offset,
                    format!("{name} has both a zone file and `primaries`"),
                    "remove one of the two",
                );
            }
            (Some(entry), None) => self.read_zone(name, offset, entry),
            (None, Some(entry)) => self.read_primaries(name, offset, entry),
            (None, None) => {}
        }
        self.read_dnssec(name, zone.is_some() || primaries.is_some(), keys.get("dnssec"));
        let has_update = keys.get("update").is_some_and(|entry| self.read_update(entry, name));
        let has_transfers = self.read_zone_transfers(name, keys);
        let is_zone = zone.is_some() || primaries.is_some() || has_update || has_transfers;
        let has_content = is_zone || site.is_some() || options.has_automatic_certificate;
        // An unknown key is probably the missing key, misspelt.
        if self.check_keys_without_site(name.as_str(), keys) && !has_content && !keys.has_unknown {
            let remedy = "add site = \"FOLDER\", zone = \"FILE\", a route to an application, or redirects";
            self.error(offset, format!("{name} has no site, no zone, no routes and no redirects"), remedy);
        }
        let names = match site {
            Some(entry) => self.read_site(name, offset, entry, keys.get("aliases"), options),
            None => vec![name.clone()],
        };
        let names = self.read_derive([keys.get("derive"), keys.get("mta_sts")], names, certificate, offset);
        match certificate {
            CertificateChoice::None => {}
            CertificateChoice::Automatic => {
                let on_renew = on_renew.map_or(Vec::new(), |entry| self.read_on_renew(entry));
                self.add_automatic_certificate(names, on_renew, offset);
            }
            CertificateChoice::Files(entry) => self.read_certificates(&names, entry),
        }
    }

    /// Reads the keys that only a domain with a site may have.
    fn read_site_options(&mut self, keys: &Keys<'_, '_>) -> SiteOptions {
        let mut options = SiteOptions {
            hidden_files: self.reader.boolean(keys, "hidden_files"),
            exact_paths: self.reader.boolean(keys, "exact_paths"),
            doh: keys.get("doh").and_then(|entry| self.read_doh(entry)),
            files: FileOptions {
                clean_urls: self.reader.boolean(keys, "clean_urls"),
                listing: self.reader.boolean(keys, "listing"),
                compress: self.reader.boolean(keys, "compress"),
                earlier_releases: self.reader.boolean(keys, "earlier_releases"),
                fallback: keys.get("fallback").and_then(|entry| self.read_fallback(entry)),
                ..FileOptions::default()
            },
            rules: self.read_rules(keys),
            ..SiteOptions::default()
        };
        if let Some(entry) = keys.get("index") {
            options.files.index = self.read_index(entry);
        }
        if let Some(entry) = keys.get("media_types") {
            options.media_types = self.read_media_types(entry);
        }
        if let Some(entry) = keys.get("link_targets") {
            options.link_targets = self.read_link_targets(entry);
        }
        self.check_fallback(&options);
        options
    }

    /// Whether the section of `name` has a site, or no key that needs one; otherwise it is an error.
    fn check_keys_without_site(&mut self, name: &str, keys: &Keys<'_, '_>) -> bool {
        if keys.get("site").is_some() {
            return true;
        }
        let has_answers = ANSWERS.iter().any(|key| keys.get(key).is_some());
        let others = if has_answers { &WITHOUT_FILES[..] } else { &[] };
        let is_of_site = |entry: &&Entry<'_, '_>| !WITHOUT_SITE.contains(&entry.key) && !others.contains(&entry.key);
        let Some(entry) = keys.entries.iter().find(is_of_site) else { return true };
        self.error(entry.offset, format!("{name} has {}, but no site", entry.key), "add site = \"FOLDER\"");
        false
    }

    /// Records that the section at `offset` defines the zone `name`.
    fn add_apex(&mut self, name: &DomainName, offset: usize) {
        if let Some(earlier) = self.apexes.insert(name.clone(), offset) {
            self.error_of_two(offset, format!("the zone {name} is defined twice"), earlier);
        }
    }

    fn read_zone(&mut self, name: &DomainName, offset: usize, entry: Entry<'_, '_>) {
        self.add_apex(name, offset);
        let example = format!("zone = \"{name}.zone\"");
        if let Some((file, location)) = self.read_path(Some(entry.with_example(&example))) {
            self.config.zones.push(Zone { apex: name.clone(), file, location, origin: ZoneOrigin::Operator });
        }
    }

    /// Media types by extension, each checked.
    fn read_media_types(&mut self, section: Entry<'_, '_>) -> Vec<(String, String)> {
        let mut media_types = Vec::new();
        for entry in self.reader.entries(section) {
            let Some((offset, media_type)) = self.reader.string(entry) else { continue };
            if !entry.key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.' && byte != b'/') {
                let message = format!("`{}` is not an extension", entry.key);
                self.error(entry.offset, message, format!("write it without a dot: {}", entry.example));
            } else if !is_media_type(media_type) {
                self.error(offset, format!("`{media_type}` is not a media type"), format!("write {}", entry.example));
            } else {
                media_types.push((entry.key.to_ascii_lowercase(), media_type.to_owned()));
            }
        }
        media_types
    }

    fn read_doh(&mut self, entry: Entry<'_, '_>) -> Option<DohPath> {
        let (offset, path) = self.reader.string(entry)?;
        // Requests contain such a path exactly as it is written here (RFC 3986 §3.3).
        let is_path_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
        if path.len() < 2 || !path.starts_with('/') || !path.bytes().all(is_path_byte) {
            let remedy = format!("write a path of letters, digits and /-._~ as in {}", entry.example);
            self.error(offset, format!("\"{path}\" is not a valid path for DNS queries"), remedy);
            return None;
        }
        Some(DohPath { path: path.to_owned(), location: self.reader.location(offset) })
    }

    fn read_link_targets(&mut self, entry: Entry<'_, '_>) -> Vec<(PathBuf, ValueLocation)> {
        let mut link_targets = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            if text.is_empty() {
                self.error(offset, "the link target is empty", format!("write {}", entry.example));
            } else {
                link_targets.push((self.directory.join(text), self.reader.location(offset)));
            }
        }
        link_targets
    }

    /// The hosts of the site, the first of which is `name`. `entry` is `site` or, if it has no files, `route`.
    fn read_site(
        &mut self,
        name: &DomainName,
        offset: usize,
        entry: Entry<'_, '_>,
        aliases: Option<Entry<'_, '_>>,
        options: SiteOptions,
    ) -> Vec<DomainName> {
        let document_root = match entry.key {
            "site" => self.read_path(Some(entry)).map(|(path, location)| (Some(path), location)),
            _ => Some((None, self.reader.location(entry.offset))),
        };
        let mut hosts = Vec::new();
        self.add_host(name.clone(), offset, &mut hosts);
        if let Some(aliases) = aliases {
            let example = format!("aliases = [\"www.{name}\"]");
            for (offset, text) in self.reader.strings(aliases.with_example(&example)) {
                match DomainName::parse(text) {
                    Ok(alias) => self.add_host(alias, offset, &mut hosts),
                    Err(problem) => self.reader.error(offset, problem),
                }
            }
        }
        if let Some((document_root, location)) = document_root {
            self.config.sites.push(Site { hosts: hosts.clone(), document_root, location, options });
        }
        hosts
    }

    /// Adds `host` to the site that is about to be added, unless another site has it or it cannot be a host.
    fn add_host(&mut self, host: DomainName, offset: usize, hosts: &mut Vec<DomainName>) {
        if !host.can_be_host() {
            let message = format!("{host} cannot have a site: no URL contains such a name");
            self.error(offset, message, "give it only a zone; for all names below a name, write *.NAME");
            return;
        }
        let site_index = self.config.sites.len();
        match self.hosts.insert(host.clone(), (site_index, offset)) {
            None => hosts.push(host),
            Some((earlier_site, earlier)) => {
                let owner = self.config.sites.get(earlier_site).and_then(|site| site.hosts.first());
                let message = match owner {
                    Some(owner) if *owner != host => format!("{host} is already a host of {owner}"),
                    Some(_) | None => format!("{host} is listed twice"),
                };
                self.error_of_two(offset, message, earlier);
            }
        }
    }

    /// Reports that the item at `offset` is a duplicate of the item at `earlier`.
    fn error_of_two(&mut self, offset: usize, message: String, earlier: usize) {
        let other = self.reader.line_beside(earlier, offset);
        self.error(offset, message, format!("remove one of the two; the other is {other}"));
    }

    /// The path of `entry`, relative to the file's directory, and its location.
    fn read_path(&mut self, entry: Option<Entry<'_, '_>>) -> Option<(PathBuf, ValueLocation)> {
        let entry = entry?;
        let (offset, text) = self.reader.string(entry)?;
        if text.is_empty() {
            self.error(offset, format!("`{}` is empty", entry.key), format!("write {}", entry.example));
            return None;
        }
        Some((self.directory.join(text), self.reader.location(offset)))
    }

    fn into_config(mut self) -> Config {
        self.config.default_site = self.default_site();
        self.config.user_and_group = self.user_and_group();
        self.check_completeness();
        self.config.set_default_addresses();
        self.config
    }

    fn user_and_group(&mut self) -> Option<UserAndGroup> {
        match (self.user.take(), self.group.take()) {
            (Some((offset, user)), group) => Some(UserAndGroup {
                user,
                user_location: self.reader.location(offset),
                group_location: self.reader.location(group.as_ref().map_or(offset, |(offset, _)| *offset)),
                group: group.map(|(_, name)| name),
            }),
            (None, Some((offset, _))) => {
                self.error(offset, "`group` is set, but `user` is not", "add user = \"NAME\" or remove `group`");
                None
            }
            (None, None) => None,
        }
    }

    fn default_site(&mut self) -> DefaultSite {
        if let Some(index) = self.site_for_every_host {
            if let Some((offset, _)) = self.default_host.take() {
                self.error(
                    offset,
                    "`default` has no effect: [domain.\"*\"] answers for all other hosts",
                    "remove one of the two",
                );
            }
            return DefaultSite::EveryHost(index);
        }
        let Some((offset, host)) = self.default_host.take() else {
            return if self.config.sites.is_empty() { DefaultSite::None } else { DefaultSite::Addresses(0) };
        };
        match self.hosts.get(&host) {
            Some(&(site_index, _)) => DefaultSite::Addresses(site_index),
            None => {
                self.error(
                    offset,
                    format!("{host} is not a host of any site"),
                    "write a domain that has a `site` or `route`",
                );
                DefaultSite::None
            }
        }
    }

    /// Reports listeners without content, and a file without domains, unless other problems in the file are the
    /// probable cause.
    fn check_completeness(&mut self) {
        if self.reader.has_problems() {
            return;
        }
        self.check_transfers();
        self.check_updates();
        self.add_catalog_transfers();
        self.check_derive();
        let (has_site, has_zone) = (!self.config.sites.is_empty(), self.config.has_zones());
        if !has_site && !has_zone {
            let remedy = "add [domain.\"example.com\"] with site = \"FOLDER\" or zone = \"FILE\"";
            self.error(0, "there is nothing to serve", remedy);
            return;
        }
        if let (Some(offset), false) = (self.http_listen, has_site) {
            self.error(
                offset,
                "[http] has `listen`, but no domain has a `site` or `route`",
                "add one or remove [http]",
            );
        }
        if let (Some(offset), true) = (self.tls_listen, self.config.certificates.is_empty()) {
            let remedy = "add certificate = { chain = \"fullchain.pem\", key = \"privkey.pem\" } to a domain";
            self.error(offset, "there are addresses for TLS, but no domain has a `certificate`", remedy);
        }
        if let (Some(offset), true) = (self.hsts, self.config.https_listen.is_empty()) {
            let remedy = "add [https] with listen = [\"0.0.0.0:443\", \"[::]:443\"], or remove `hsts`";
            self.error(offset, "`hsts` needs HTTPS, but [https] has no `listen`", remedy);
        }
        if let (Some(offset), false) = (self.dns_listen, has_zone) {
            self.error(offset, "[dns] has `listen`, but no domain has a `zone`", "add a zone or remove [dns]");
        }
    }
}

/// A number of workers, which is small.
fn to_count(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Whether `text` is a type and a subtype, and parameters, if any, that cannot end the line of a field (RFC 9110
/// §8.3.1).
fn is_media_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    let is_token = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    let is_printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    is_printable && essence.split_once('/').is_some_and(|(main, sub)| is_token(main) && is_token(sub))
}

/// The name that `[domain.example.com]` was meant to be: TOML reads it as nested tables. `None` if the table at `key`
/// is a domain's section.
fn unquoted_name(key: &str, table: &DeTable<'_>) -> Option<String> {
    /// Labels that are followed; TOML limits the depth as well.
    const LABEL_COUNT_MAX: usize = 16;
    // A key with a dot is a quoted name, and a table with domain keys is a domain: a table in it is an unknown key.
    if key.contains('.') || entries(table, "").iter().any(|entry| Section::Domain.key(entry.key).is_some()) {
        return None;
    }
    let mut name = key.to_owned();
    let mut table = table;
    for _ in 1..LABEL_COUNT_MAX {
        let inner = entries(table, "").into_iter().find_map(|entry| match entry.value.get_ref() {
            DeValue::Table(inner) if Section::Domain.key(entry.key).is_none() => Some((entry.key, inner)),
            _ => None,
        });
        let Some((label, inner)) = inner else { break };
        name = format!("{name}.{label}");
        table = inner;
    }
    (name.len() > key.len()).then_some(name)
}

#[cfg(test)]
mod tests;
