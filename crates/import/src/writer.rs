//! Writes the model as a configuration file, with a comment above each section that says where it comes from.

use crate::model::{Certificates, Domain, Model};
use crate::syntax::printable;
use crate::toml_text::{Value, key, last_of_each, quoted};
use std::path::PathBuf;

/// The configuration in TOML.
pub(crate) fn write(model: &Model, origin: &str, files: &[PathBuf]) -> String {
    let mut out = Writer { text: format!("# Written by `sanderling import {origin}`.\n") };
    if model.domains.is_empty() && model.catalogs.is_empty() {
        out.text.push_str("# Nothing in the imported files can be served: see the report.\n");
        return out.text;
    }
    out.keys(&model.top);
    out.services(model);
    for (name, tsig) in &model.tsig {
        out.heading(&format!("tsig.{}", quoted(name)));
        out.line("algorithm", &tsig.algorithm.as_str().into());
        out.line("secret_file", &tsig.secret_file.as_str().into());
    }
    for catalog in &model.catalogs {
        out.heading(&format!("catalog.{}", quoted(&catalog.name)));
        out.peers("primaries", "address", &catalog.primaries);
        out.peers("secondaries", "address", &catalog.secondaries);
    }
    for domain in &model.domains {
        out.domain(domain, files, model.acme.is_some());
    }
    out.text
}

struct Writer {
    text: String,
}

impl Writer {
    fn heading(&mut self, name: &str) {
        self.text.push_str(&format!("\n[{name}]\n"));
    }

    fn line(&mut self, name: &str, value: &Value) {
        self.text.push_str(&format!("{} = {value}\n", key(name)));
    }

    fn keys(&mut self, keys: &[(&'static str, Value)]) {
        last_of_each(keys.iter().map(|(name, value)| (*name, value))).for_each(|(name, value)| self.line(name, value));
    }

    /// A section, if it has keys.
    fn section(&mut self, name: &str, keys: &[(&'static str, Value)]) {
        if !keys.is_empty() {
            self.heading(name);
            self.keys(keys);
        }
    }

    fn services(&mut self, model: &Model) {
        let mut http = Vec::new();
        if !model.http.is_empty() {
            http.push(("listen", model.http.value()));
        }
        http.extend(model.default_host.iter().map(|host| ("default", host.as_str().into())));
        http.extend(model.http_keys.iter().cloned());
        self.section("http", &http);
        if !model.https.is_empty() {
            let listen = [("listen", model.https.value())];
            self.section("https", &[&listen, &model.https_keys[..]].concat());
        }
        let mut dns = Vec::new();
        if !model.dns.is_empty() {
            dns.push(("listen", model.dns.value()));
        }
        dns.extend(model.dns_keys.iter().cloned());
        if !model.transfer_allow.is_empty() {
            let rules = model.transfer_allow.iter().map(|peer| peer.value("network")).collect();
            dns.push(("transfer_allow", Value::List(rules)));
        }
        self.section("dns", &dns);
        if let Some(keys) = &model.acme {
            self.section("certificates", keys);
        }
        self.section("log", &model.log);
        self.section("limits", &model.limits);
    }

    fn peers(&mut self, name: &str, address_key: &str, peers: &[crate::model::Peer]) {
        if !peers.is_empty() {
            self.line(name, &Value::List(peers.iter().map(|peer| peer.value(address_key)).collect()));
        }
    }

    fn domain(&mut self, domain: &Domain, files: &[PathBuf], has_acme: bool) {
        let Some((name, aliases)) = domain.names.split_first() else { return };
        let file = files.get(domain.at.file).map(|path| path.display().to_string()).unwrap_or_default();
        let file = printable(&file);
        let section = format!("domain.{}", quoted(name));
        self.text.push_str(&format!("\n# From {file}:{}.\n[{section}]\n", domain.at.line));
        if let Some(site) = &domain.site {
            self.line("site", &site.as_str().into());
        }
        if !aliases.is_empty() {
            self.line("aliases", &Value::texts(aliases.iter().map(String::as_str)));
        }
        if let Some(zone) = &domain.zone {
            self.line("zone", &zone.as_str().into());
        }
        self.peers("primaries", "address", &domain.primaries);
        self.peers("secondaries", "address", &domain.secondaries);
        self.peers("transfer_allow", "network", &domain.transfer_allow);
        if !domain.update.is_empty() {
            self.line("update", &Value::List(domain.update.clone()));
        }
        self.certificates(&domain.certificates, has_acme && domain.is_site() && name != "*");
        self.keys(&domain.keys);
        self.rules(&section, domain);
        for route in &domain.routes {
            self.heading(&format!("{section}.route.{}", quoted(&route.path)));
            self.keys(&route.keys);
        }
    }

    fn certificates(&mut self, certificates: &Certificates, is_requested: bool) {
        let pair = |(chain, key): &(String, String)| {
            Value::table([("chain", chain.as_str().into()), ("key", key.as_str().into())])
        };
        match certificates {
            Certificates::None if is_requested => self.line("certificate", &"none".into()),
            Certificates::None | Certificates::Automatic => {}
            Certificates::Files(files) => match &files[..] {
                [one] => self.line("certificate", &pair(one)),
                several => self.line("certificate", &Value::List(several.iter().map(pair).collect())),
            },
        }
    }

    fn rules(&mut self, section: &str, domain: &Domain) {
        if !domain.redirects.is_empty() {
            self.heading(&format!("{section}.redirects"));
            for rule in &domain.redirects {
                let mut entries = Vec::new();
                entries.extend(rule.to.iter().map(|to| ("to".to_owned(), Value::from(to.as_str()))));
                entries.push(("status".to_owned(), Value::Number(rule.status.into())));
                entries.extend(rule.force.map(|force| ("force".to_owned(), Value::Boolean(force))));
                self.line(&rule.from, &Value::Table(entries));
            }
        }
        if !domain.headers.is_empty() {
            self.heading(&format!("{section}.headers"));
            for (pattern, fields) in &domain.headers {
                let field = |(name, value): &(String, Option<String>)| {
                    (name.clone(), value.as_ref().map_or(Value::Boolean(false), |value| value.as_str().into()))
                };
                self.line(pattern, &Value::Table(fields.iter().map(field).collect()));
            }
        }
        if !domain.auth.is_empty() {
            self.heading(&format!("{section}.auth"));
            for rule in &domain.auth {
                let (file, realm) = (rule.users_file.as_str().into(), rule.realm.as_str().into());
                self.line(&rule.pattern, &Value::table([("users_file", file), ("realm", realm)]));
            }
        }
        if !domain.access.is_empty() {
            self.heading(&format!("{section}.access"));
            for rule in &domain.access {
                let texts = |networks: &[String]| Value::texts(networks.iter().map(String::as_str));
                let allow = rule.allow.iter().map(|networks| ("allow".to_owned(), texts(networks)));
                let deny = (!rule.deny.is_empty()).then(|| ("deny".to_owned(), texts(&rule.deny)));
                self.line(&rule.pattern, &Value::Table(allow.chain(deny).collect()));
            }
        }
    }
}
