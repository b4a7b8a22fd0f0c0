//! Turns a configuration file into a configuration, or into everything that is wrong with it.

use super::address::{Protocol, TakenAddresses, parse_listen_address};
use super::domain_name::DomainName;
use super::keys::Section;
use super::limits::{LIMITS, Limits};
use super::paths::{check_site_folder, check_zone_file};
use super::settings::{
    Account, Config, DNS_LISTEN_DEFAULT, DefaultSite, HTTP_LISTEN_DEFAULT, ListenerCount, Site, WORKER_COUNT_MAX, Zone,
    processor_count,
};
use super::tree::{Entry, Examination, entries};
use crate::diagnostic::{Diagnostic, Fault, Place};
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Octets of the largest configuration file: tens of thousands of domains.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Reads the file at `path`.
///
/// # Errors
///
/// Why it can't be read.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Vec<Diagnostic>> {
    read_bounded(path).map_err(|fault| vec![Diagnostic::error(Place::File(path.into()), fault)])
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, Fault> {
    let fault = |error: &io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => "create it or name another with --config",
            io::ErrorKind::PermissionDenied => "let this user read it",
            _ => "name a readable file with --config",
        };
        Fault::new(format!("the configuration file can't be read: {error}"), remedy)
    };
    let mut octets = Vec::new();
    // Not blocking: a FIFO in the place of the file would hold a reload for ever.
    let file = sanderling_os::file::open_nonblocking(path).map_err(|error| fault(&error))?;
    if !file.metadata().map_err(|error| fault(&error))?.is_file() {
        return Err(Fault::new("the configuration file is no regular file", "name a file with --config"));
    }
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut octets).map_err(|error| fault(&error))?;
    if octets.len() as u64 > FILE_BYTES_MAX {
        let problem = format!("the configuration file has more than {FILE_BYTES_MAX} bytes");
        return Err(Fault::new(problem, "name a configuration file with --config"));
    }
    Ok(octets)
}

/// Checks the text of the file at `path`; relative paths in it start at its folder.
///
/// # Errors
///
/// Every fault of the text, in its order.
pub(super) fn parse(path: &Path, octets: &[u8]) -> Result<Config, Vec<Diagnostic>> {
    let mut examination = Examination::new(path, octets);
    let text = match str::from_utf8(octets) {
        Ok(text) => text,
        Err(error) => {
            let fault = Fault::new("this is not UTF-8", "save the file as UTF-8");
            examination.refuse(error.valid_up_to(), fault);
            return Err(examination.into_diagnostics());
        }
    };
    let Some(root) = examination.parse(text) else { return Err(examination.into_diagnostics()) };
    let mut reader = Reader::new(&mut examination, path.parent().unwrap_or(Path::new("")));
    reader.read_top(&root);
    let config = reader.into_config();
    match examination.into_diagnostics() {
        none if none.is_empty() => Ok(config),
        diagnostics => Err(diagnostics),
    }
}

/// What has been read so far.
struct Reader<'e, 'a> {
    examination: &'e mut Examination<'a>,
    folder: &'e Path,
    worker_count: Option<usize>,
    listeners: ListenerCount,
    user: Option<String>,
    /// Where `group` stands, and what it says.
    group: Option<(usize, String)>,
    sandbox: bool,
    control: Option<PathBuf>,
    http_listen: Listen,
    dns_listen: Listen,
    taken_addresses: TakenAddresses,
    /// Where `default` in `[http]` stands, and what it says.
    default_host: Option<(usize, DomainName)>,
    sites: Vec<Site>,
    /// The hosts of all sites, each with the index of its site.
    hosts: HashMap<DomainName, usize>,
    zones: Vec<Zone>,
    apexes: HashSet<DomainName>,
    limits: Limits,
}

/// The `listen` of a section.
#[derive(Default)]
struct Listen {
    /// Where the key stands, if it's there.
    offset: Option<usize>,
    addresses: Vec<SocketAddr>,
}

impl Reader<'_, '_> {
    fn new<'e, 'a>(examination: &'e mut Examination<'a>, folder: &'e Path) -> Reader<'e, 'a> {
        Reader {
            examination,
            folder,
            worker_count: None,
            listeners: ListenerCount::Auto,
            user: None,
            group: None,
            sandbox: true,
            control: None,
            http_listen: Listen::default(),
            dns_listen: Listen::default(),
            taken_addresses: TakenAddresses::default(),
            default_host: None,
            sites: Vec::new(),
            hosts: HashMap::new(),
            zones: Vec::new(),
            apexes: HashSet::new(),
            limits: Limits::default(),
        }
    }

    fn read_top(&mut self, root: &DeTable<'_>) {
        for entry in entries(root) {
            match entry.key {
                "workers" => self.read_workers(entry),
                "listeners" => self.read_listeners(entry),
                "user" => self.user = self.read_name(entry, "user = \"sanderling\"").map(|(_, name)| name),
                "group" => self.group = self.read_name(entry, "group = \"sanderling\""),
                "sandbox" => self.sandbox = self.examination.truth(entry).unwrap_or(true),
                "control" => self.control = self.read_path(entry, "control = \"control.sock\"", |_| Ok(())),
                "http" => self.read_http(entry),
                "dns" => self.read_dns(entry),
                "domain" => self.read_domains(entry),
                "limits" => self.read_limits(entry),
                key => self.examination.refuse(entry.offset, Section::Top.unknown(key)),
            }
        }
    }

    fn read_workers(&mut self, entry: Entry<'_, '_>) {
        if let Some(count) = self.examination.number(entry, 1, WORKER_COUNT_MAX, 4) {
            self.worker_count = usize::try_from(count).ok();
        }
    }

    fn read_listeners(&mut self, entry: Entry<'_, '_>) {
        match entry.value.get_ref() {
            DeValue::String(text) if text == "auto" => self.listeners = ListenerCount::Auto,
            DeValue::String(_) => {
                let fault = Fault::new("`listeners` is neither \"auto\" nor a number", "write listeners = \"auto\"");
                self.examination.refuse(entry.value.span().start, fault);
            }
            _ => {
                if let Some(count) = self.examination.number(entry, 1, WORKER_COUNT_MAX, 4) {
                    self.listeners = usize::try_from(count).map_or(ListenerCount::Auto, ListenerCount::Exactly);
                }
            }
        }
    }

    /// The name of an account, with its offset. Whether there is such an account is for the machine to say that serves.
    fn read_name(&mut self, entry: Entry<'_, '_>, example: &str) -> Option<(usize, String)> {
        let (offset, text) = self.examination.string(entry, example)?;
        if text.is_empty() || text.contains('\0') {
            let fault = Fault::new(format!("`{}` names nobody", entry.key), format!("write {example}"));
            self.examination.refuse(offset, fault);
            return None;
        }
        Some((offset, text.to_owned()))
    }

    fn read_http(&mut self, section: Entry<'_, '_>) {
        let Some(table) = self.examination.table(section, "[http] on a line of its own") else { return };
        for entry in entries(table) {
            match entry.key {
                "listen" => self.http_listen = self.read_listen(entry, Protocol::Http),
                "default" => self.read_default(entry),
                key => self.examination.refuse(entry.offset, Section::Http.unknown(key)),
            }
        }
    }

    fn read_default(&mut self, entry: Entry<'_, '_>) {
        let Some((offset, text)) = self.examination.string(entry, "default = \"example.com\"") else { return };
        match DomainName::parse(text) {
            Ok(host) => self.default_host = Some((offset, host)),
            Err(fault) => self.examination.refuse(offset, fault),
        }
    }

    fn read_dns(&mut self, section: Entry<'_, '_>) {
        let Some(table) = self.examination.table(section, "[dns] on a line of its own") else { return };
        for entry in entries(table) {
            match entry.key {
                "listen" => self.dns_listen = self.read_listen(entry, Protocol::Dns),
                key => self.examination.refuse(entry.offset, Section::Dns.unknown(key)),
            }
        }
    }

    fn read_listen(&mut self, entry: Entry<'_, '_>, protocol: Protocol) -> Listen {
        let example = match protocol {
            Protocol::Http => "listen = [\"127.0.0.1:8080\"]",
            Protocol::Dns => "listen = [\"127.0.0.1:5353\"]",
        };
        let mut addresses = Vec::new();
        for (offset, text) in self.examination.strings(entry, example) {
            let taken = parse_listen_address(text)
                .and_then(|address| self.taken_addresses.take(address, protocol).map(|()| addresses.push(address)));
            if let Err(fault) = taken {
                self.examination.refuse(offset, fault);
            }
        }
        if matches!(entry.value.get_ref(), DeValue::Array(items) if items.is_empty()) {
            let fault = Fault::new("`listen` is empty", format!("write {example} or remove the line"));
            self.examination.refuse(entry.value.span().start, fault);
        }
        Listen { offset: Some(entry.offset), addresses }
    }

    fn read_domains(&mut self, section: Entry<'_, '_>) {
        let example = "[domain.\"example.com\"] on a line of its own";
        let Some(table) = self.examination.table(section, example) else { return };
        for entry in entries(table) {
            self.read_domain(entry, example);
        }
    }

    fn read_domain(&mut self, entry: Entry<'_, '_>, example: &str) {
        let Some(table) = self.examination.table(entry, example) else { return };
        if let Some(name) = unquoted_name(entry.key, table) {
            let problem = format!("the name {name} is not in quotes");
            self.examination.refuse(entry.offset, Fault::new(problem, format!("write [domain.\"{name}\"]")));
            return;
        }
        match DomainName::parse(entry.key) {
            Ok(name) => self.read_domain_keys(&name, entry.offset, table),
            Err(fault) => self.examination.refuse(entry.offset, fault),
        }
    }

    fn read_domain_keys(&mut self, name: &DomainName, offset: usize, table: &DeTable<'_>) {
        let (mut site, mut zone, mut aliases) = (None, None, None);
        let mut has_unknown = false;
        for entry in entries(table) {
            match entry.key {
                "site" => site = Some(entry),
                "zone" => zone = Some(entry),
                "aliases" => aliases = Some(entry),
                key => {
                    has_unknown = true;
                    self.examination.refuse(entry.offset, Section::Domain.unknown(key));
                }
            }
        }
        if let Some(entry) = zone {
            self.read_zone(name, offset, entry);
        }
        match (site, aliases) {
            (Some(entry), aliases) => self.read_site(name, offset, entry, aliases),
            (None, Some(aliases)) => {
                let fault = Fault::new(format!("{name} has aliases, but no site"), "add site = \"FOLDER\"");
                self.examination.refuse(aliases.offset, fault);
            }
            // A key that was misspelt is most likely the one that is missed here.
            (None, None) if zone.is_none() && !has_unknown => {
                let problem = format!("{name} has neither a site nor a zone");
                self.examination.refuse(offset, Fault::new(problem, "add site = \"FOLDER\" or zone = \"FILE\""));
            }
            (None, None) => {}
        }
    }

    fn read_zone(&mut self, name: &DomainName, offset: usize, entry: Entry<'_, '_>) {
        if !self.apexes.insert(name.clone()) {
            let fault = Fault::new(format!("the zone {name} is there twice"), "remove one of the two");
            self.examination.refuse(offset, fault);
        }
        if let Some(file) = self.read_path(entry, &format!("zone = \"{name}.zone\""), check_zone_file) {
            self.zones.push(Zone { apex: name.clone(), file });
        }
    }

    fn read_site(&mut self, name: &DomainName, offset: usize, entry: Entry<'_, '_>, aliases: Option<Entry<'_, '_>>) {
        let folder = self.read_path(entry, "site = \"public\"", check_site_folder).unwrap_or_default();
        let mut hosts = Vec::new();
        self.take_host(name.clone(), offset, &mut hosts);
        if let Some(aliases) = aliases {
            for (offset, text) in self.examination.strings(aliases, &format!("aliases = [\"www.{name}\"]")) {
                match DomainName::parse(text) {
                    Ok(alias) => self.take_host(alias, offset, &mut hosts),
                    Err(fault) => self.examination.refuse(offset, fault),
                }
            }
        }
        self.sites.push(Site { hosts, folder });
    }

    /// Gives `host` to the site that is about to be pushed, unless it is another's or can't be one.
    fn take_host(&mut self, host: DomainName, offset: usize, hosts: &mut Vec<DomainName>) {
        if !host.can_be_host() {
            let fault = Fault::new(format!("{host} can't have a site: no URL can name it"), "give it a zone only");
            self.examination.refuse(offset, fault);
            return;
        }
        let site_index = self.sites.len();
        match self.hosts.insert(host.clone(), site_index) {
            None => hosts.push(host),
            Some(earlier) => {
                let owner = self.sites.get(earlier).and_then(|site| site.hosts.first());
                let problem = match owner {
                    Some(owner) if *owner != host => format!("{host} is a host of {owner} already"),
                    Some(_) | None => format!("{host} is there twice"),
                };
                self.examination.refuse(offset, Fault::new(problem, "remove one of the two"));
            }
        }
    }

    /// The path behind `entry` from the file's folder on, checked by `check`. It is there even if the check failed, so
    /// that what refers to its domain is no fault as well.
    fn read_path(
        &mut self,
        entry: Entry<'_, '_>,
        example: &str,
        check: fn(&Path) -> Result<(), Fault>,
    ) -> Option<PathBuf> {
        let (offset, text) = self.examination.string(entry, example)?;
        let path = self.folder.join(text);
        let checked = match text {
            "" => Err(Fault::new(format!("`{}` is empty", entry.key), format!("write {example}"))),
            _ => check(&path),
        };
        if let Err(fault) = checked {
            self.examination.refuse(offset, fault);
        }
        Some(path)
    }

    fn read_limits(&mut self, section: Entry<'_, '_>) {
        let Some(table) = self.examination.table(section, "[limits] on a line of its own") else { return };
        for entry in entries(table) {
            let Some(limit) = LIMITS.iter().find(|limit| limit.key == entry.key) else {
                self.examination.refuse(entry.offset, Section::Limits.unknown(entry.key));
                continue;
            };
            if let Some(value) = self.examination.number(entry, limit.min, limit.max, limit.default) {
                limit.put(&mut self.limits, value);
            }
        }
        if self.limits.http_target_bytes_max >= self.limits.http_head_bytes_max {
            let problem = "`http_target_bytes_max` is not below `http_head_bytes_max`";
            let fault = Fault::new(problem, "the target is a part of the head; raise the head's or lower the target's");
            self.examination.refuse(section.offset, fault);
        }
    }

    fn into_config(mut self) -> Config {
        let default_site = self.default_site();
        let account = self.account();
        self.refuse_what_is_missing();
        let http_listen = listen_or_default(self.http_listen, HTTP_LISTEN_DEFAULT, !self.sites.is_empty());
        let dns_listen = listen_or_default(self.dns_listen, DNS_LISTEN_DEFAULT, !self.zones.is_empty());
        Config {
            worker_count: self.worker_count.unwrap_or_else(processor_count),
            listeners: self.listeners,
            account,
            sandbox: self.sandbox,
            control: self.control,
            http_listen,
            dns_listen,
            sites: self.sites,
            default_site,
            zones: self.zones,
            limits: self.limits,
        }
    }

    fn account(&mut self) -> Option<Account> {
        match (self.user.take(), self.group.take()) {
            (Some(user), group) => Some(Account { user, group: group.map(|(_, name)| name) }),
            (None, Some((offset, _))) => {
                let fault = Fault::new("there is a `group`, but no `user`", "add user = \"NAME\" or remove the line");
                self.examination.refuse(offset, fault);
                None
            }
            (None, None) => None,
        }
    }

    fn default_site(&mut self) -> DefaultSite {
        let Some((offset, host)) = self.default_host.take() else {
            return if self.sites.is_empty() { DefaultSite::None } else { DefaultSite::Addresses(0) };
        };
        match self.hosts.get(&host) {
            Some(&site_index) => DefaultSite::Addresses(site_index),
            None => {
                let fault = Fault::new(format!("no site has the host {host}"), "name a domain that has a `site`");
                self.examination.refuse(offset, fault);
                DefaultSite::None
            }
        }
    }

    /// Refuses listeners without content, and a file without any domain; not if the file has other faults, which are
    /// then the likely cause.
    fn refuse_what_is_missing(&mut self) {
        if !self.examination.is_clean() {
            return;
        }
        if self.sites.is_empty() && self.zones.is_empty() {
            let remedy = "add [domain.\"example.com\"] and below it site = \"FOLDER\" or zone = \"FILE\"";
            self.examination.refuse(0, Fault::new("there is nothing to serve", remedy));
            return;
        }
        if let (Some(offset), true) = (self.http_listen.offset, self.sites.is_empty()) {
            let fault = Fault::new("[http] listens, but no domain has a `site`", "add one or remove [http]");
            self.examination.refuse(offset, fault);
        }
        if let (Some(offset), true) = (self.dns_listen.offset, self.zones.is_empty()) {
            let fault = Fault::new("[dns] listens, but no domain has a `zone`", "add one or remove [dns]");
            self.examination.refuse(offset, fault);
        }
    }
}

fn listen_or_default(listen: Listen, default: SocketAddr, has_content: bool) -> Vec<SocketAddr> {
    match (has_content, listen.offset) {
        (false, _) => Vec::new(),
        (true, None) => vec![default],
        (true, Some(_)) => listen.addresses,
    }
}

/// The name that `[domain.example.com]` was meant to be: TOML takes it for tables in tables. `None` if the table at
/// `key` is a domain's own.
fn unquoted_name(key: &str, table: &DeTable<'_>) -> Option<String> {
    /// Labels that are followed; TOML bounds the depth too.
    const LABEL_COUNT_MAX: usize = 16;
    let mut name = key.to_owned();
    let mut table = table;
    for _ in 1..LABEL_COUNT_MAX {
        let inner = entries(table).into_iter().find_map(|entry| match entry.value.get_ref() {
            DeValue::Table(inner) if !Section::Domain.knows(entry.key) => Some((entry.key, inner)),
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
