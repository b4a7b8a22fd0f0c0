//! Makes domains of the servers of nginx and the sites of Caddy: servers for the same host become one, and servers that
//! only redirect become rules.

use crate::backends;
use crate::ledger::Ledger;
use crate::model::{Certificates, Domain, Listeners, Model, RedirectRule};
use crate::syntax::Statement;
use crate::toml_text::Value;
use sanderling_site_rules::ascii_form;
use std::collections::{BTreeMap, HashSet};

/// A server or a site.
pub(crate) struct Server<'s> {
    pub(crate) statement: &'s Statement,
    /// Its names, without those of any host.
    pub(crate) hosts: Vec<String>,
    /// Whether it answers requests for hosts without a server.
    pub(crate) is_default: bool,
    pub(crate) http: Listeners,
    pub(crate) https: Listeners,
    /// The rules, without the names.
    pub(crate) domain: Domain,
    /// All of its answers, if it only redirects.
    pub(crate) redirect: Option<Redirect>,
    /// Whether the other server answers over HTTP too, where it has a certificate.
    pub(crate) serves_http: bool,
    /// Whether it passes all requests on to another server.
    pub(crate) is_passed_on: bool,
}

/// A redirect of all paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    pub(crate) to: Target,
    pub(crate) status: u16,
}

/// The target of a redirect of all paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The same host with HTTPS.
    Https,
    /// A URL in the form of a rule.
    Url(String),
}

/// A name in the form of the configuration; `None` if it is not one.
pub(crate) fn host(text: &str) -> Option<String> {
    let text = text.trim_end_matches('.');
    let text = match text.strip_prefix('.') {
        Some(name) => format!("*.{name}"),
        None => text.to_owned(),
    };
    let name = text.strip_prefix("*.").unwrap_or(&text);
    let ascii = if name.is_ascii() { name.to_ascii_lowercase() } else { ascii_form(name)? };
    let is_host = |label: &str| {
        let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !label.is_empty() && label.len() < 64 && label.bytes().all(is_byte)
    };
    let is_address = ascii.parse::<std::net::IpAddr>().is_ok();
    let is_valid = ascii.len() < 254 && ascii.split('.').all(is_host) && !is_address;
    is_valid.then(|| if name.len() < text.len() { format!("*.{ascii}") } else { ascii })
}

/// Adds the domains and listeners of all servers to the model.
pub(crate) fn add(servers: Vec<Server<'_>>, model: &mut Model, ledger: &mut Ledger) {
    for server in &servers {
        server.http.iter().for_each(|address| model.http.add(*address));
        server.https.iter().for_each(|address| model.https.add(*address));
    }
    let (redirects, contents): (Vec<_>, Vec<_>) = servers.into_iter().partition(|server| server.redirect.is_some());
    contents.into_iter().for_each(|server| add_content(server, model, ledger));
    let mut rules = HostRules::default();
    redirects.into_iter().for_each(|server| add_redirect(server, &mut rules, model, ledger));
    rules.finish(model);
    finish(model);
}

/// Redirects of hosts, which precede the other rules of their domains; the last one is the first.
#[derive(Default)]
struct HostRules {
    /// By the index of the domain.
    rules: BTreeMap<usize, Vec<RedirectRule>>,
    known: HashSet<(usize, String)>,
}

impl HostRules {
    /// Adds a redirect of `host`, unless its domain at `index` has one.
    fn add(&mut self, index: usize, host: &str, url: &str, status: u16) {
        if self.known.insert((index, host.to_owned())) {
            let rule =
                RedirectRule { from: format!("https://{host}/*"), to: Some(url.to_owned()), status, force: None };
            self.rules.entry(index).or_default().push(rule);
        }
    }

    fn finish(self, model: &mut Model) {
        for (index, mut rules) in self.rules {
            rules.reverse();
            model.domains[index].redirects.splice(..0, rules);
        }
    }
}

fn add_content(server: Server<'_>, model: &mut Model, ledger: &mut Ledger) {
    let Server { statement, mut hosts, is_default, mut domain, serves_http, is_passed_on, .. } = server;
    if !domain.is_site() && hosts.is_empty() && !is_passed_on {
        return ledger.differ(statement, "requests for unknown hosts get status 421", "nothing is needed");
    }
    if !domain.is_site() {
        let reason = "the server has neither files nor an application that can be expressed";
        ledger.miss(statement, reason, "keep it on the other server, or add `site` or `route` to a domain");
        return;
    }
    if serves_http && domain.certificates != Certificates::None {
        domain.set("https_redirect", Value::Boolean(false));
    }
    if let Some(index) = hosts.iter().find_map(|host| model.site_of(host)) {
        merge(domain, &hosts, index, statement, model, ledger);
        return;
    }
    if hosts.is_empty() {
        if let Some(index) = model.site_of("*") {
            merge(domain, &["*".to_owned()], index, statement, model, ledger);
            return;
        }
        hosts.push("*".to_owned());
        if domain.certificates != Certificates::None {
            domain.certificates = Certificates::None;
            domain.keys.retain(|(key, _)| *key != "https_redirect" && *key != "hsts");
            let reason = "the site for any host cannot have a certificate";
            ledger.differ(statement, reason, "name the hosts, and give the certificate to their domain");
        }
    } else if is_default && model.default_host.is_none() {
        model.default_host = Some(hosts[0].clone());
    }
    domain.at = statement.name.at;
    domain.names = hosts;
    model.add_site(domain);
}

/// Adds a second server for hosts of the domain at `index`: one for HTTP and one for HTTPS, in most cases.
fn merge(
    mut other: Domain,
    hosts: &[String],
    index: usize,
    statement: &Statement,
    model: &mut Model,
    ledger: &mut Ledger,
) {
    let new: Vec<String> = hosts.iter().filter(|host| model.site_of(host).is_none()).cloned().collect();
    let domain = &mut model.domains[index];
    if other.site != domain.site || other.routes != domain.routes {
        let reason =
            format!("{} has other files or applications already: all addresses serve the same", domain.names[0]);
        ledger.miss(statement, reason, "give one of the two another host name, or run a second server");
        return;
    }
    new.into_iter().for_each(|host| model.add_host(host, index));
    let domain = &mut model.domains[index];
    if domain.certificates == Certificates::None && other.certificates != Certificates::None {
        std::mem::swap(domain, &mut other);
        domain.names.clone_from(&other.names);
        domain.at = other.at;
    }
    if domain.certificates != Certificates::None {
        domain.set("https_redirect", Value::Boolean(false));
    }
    let without_tls = |domain: &Domain| {
        let keys = domain.keys.iter().filter(|(key, _)| *key != "https_redirect" && *key != "hsts");
        (domain.redirects.clone(), domain.headers.clone(), keys.cloned().collect::<Vec<_>>())
    };
    if without_tls(domain) != without_tls(&other) {
        let reason = format!("{} has another server with other rules, which apply to both", domain.names[0]);
        ledger.differ(statement, reason, "add the rules that are missing");
    }
}

fn add_redirect(server: Server<'_>, rules: &mut HostRules, model: &mut Model, ledger: &mut Ledger) {
    let Server { statement, hosts, domain, .. } = server;
    let Some(Redirect { to, status }) = server.redirect else { return };
    let url = match to {
        Target::Https => {
            if hosts.iter().any(|host| model.site_of(host).is_none()) {
                let reason = "requests are redirected to HTTPS only for hosts that have a site with a certificate";
                ledger.differ(statement, reason, "nothing is needed if these are all hosts");
            }
            return;
        }
        Target::Url(url) => url,
    };
    let hosts = if hosts.is_empty() { vec!["*".to_owned()] } else { hosts };
    let target = url.split_once("://").map_or("", |(_, rest)| rest.split('/').next().unwrap_or(""));
    let mut others = Vec::new();
    for host in hosts {
        match (model.site_of(&host), model.site_of(target)) {
            // The redirect of HTTP to HTTPS, which a certificate brings with it.
            (Some(_), _) if host == target => {}
            (Some(_), _) if host == "*" => {
                ledger.miss(statement, "another site answers for any host already", "remove one of the two");
            }
            (Some(own), _) => rules.add(own, &host, &url, status),
            (None, Some(of_target)) if !host.starts_with('*') => {
                rules.add(of_target, &host, &url, status);
                model.add_host(host, of_target);
                add_certificates(&mut model.domains[of_target], &domain.certificates);
            }
            (None, _) => others.push(host),
        }
    }
    if !others.is_empty() {
        let rule = RedirectRule { from: "/*".to_owned(), to: Some(url), status, force: None };
        let at = statement.name.at;
        let mut domain = Domain { at, names: others, site: None, redirects: vec![rule], routes: Vec::new(), ..domain };
        domain.keys.retain(|(key, _)| matches!(*key, "hsts" | "https_redirect"));
        if domain.names[0] == "*" {
            domain.keys.clear();
            domain.certificates = Certificates::None;
        }
        // A domain needs files or a route, which no request gets here.
        backends::add_response(&mut domain, "/*", 404, "");
        model.add_site(domain);
    }
}

/// A host that only redirects can have its own certificate.
fn add_certificates(domain: &mut Domain, others: &Certificates) {
    if let (Certificates::Files(files), Certificates::Files(others)) = (&mut domain.certificates, others) {
        for pair in others {
            if !files.contains(pair) {
                files.push(pair.clone());
            }
        }
    }
}

/// Removes what no domain needs.
fn finish(model: &mut Model) {
    let has_site = model.domains.iter().any(Domain::is_site);
    if !has_site {
        model.http.clear();
    }
    if model.domains.iter().all(|domain| domain.certificates == Certificates::None) {
        model.https.clear();
    }
    // Without a domain that needs an authority, nobody has agreed to its terms.
    if model.domains.iter().all(|domain| domain.certificates != Certificates::Automatic) {
        model.acme = None;
    }
    if model.https.is_empty() {
        model.domains.iter_mut().for_each(|domain| domain.keys.retain(|(key, _)| *key != "hsts"));
    }
    let https = model.https.clone();
    model.http.remove_ports_of(&https);
}
