//! The configuration between the formats: what the other server serves, in the terms of this one.

use crate::syntax::Position;
use crate::toml_text::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

/// The whole configuration.
#[derive(Default)]
pub(crate) struct Model {
    /// Keys before the first section.
    pub(crate) top: Vec<(&'static str, Value)>,
    pub(crate) http: Listeners,
    pub(crate) https: Listeners,
    pub(crate) dns: Listeners,
    /// The host of the site for requests without a known name.
    pub(crate) default_host: Option<String>,
    /// Other keys of `[http]`, `[https]`, `[dns]`, `[log]` and `[limits]`.
    pub(crate) http_keys: Vec<(&'static str, Value)>,
    pub(crate) https_keys: Vec<(&'static str, Value)>,
    pub(crate) dns_keys: Vec<(&'static str, Value)>,
    pub(crate) log: Vec<(&'static str, Value)>,
    pub(crate) limits: Vec<(&'static str, Value)>,
    /// The keys of `[certificates]`, if certificates are requested.
    pub(crate) acme: Option<Vec<(&'static str, Value)>>,
    /// The clients that can transfer zones without their own rules.
    pub(crate) transfer_allow: Vec<Peer>,
    /// TSIG keys by their names.
    pub(crate) tsig: BTreeMap<String, Tsig>,
    pub(crate) catalogs: Vec<Catalog>,
    pub(crate) domains: Vec<Domain>,
    /// The names of the zones, those that are catalogs too.
    zone_names: HashSet<String>,
    /// The indexes of the domains with sites, by host.
    sites: HashMap<String, usize>,
}

impl Model {
    /// Takes the name of a zone. Whether no other zone has it.
    pub(crate) fn claim(&mut self, name: &str) -> bool {
        self.zone_names.insert(name.to_owned())
    }

    /// The index of the domain whose site has this host.
    pub(crate) fn site_of(&self, host: &str) -> Option<usize> {
        self.sites.get(host).copied()
    }

    /// Adds a domain with a site, whose hosts no other one has.
    pub(crate) fn add_site(&mut self, domain: Domain) {
        self.sites.extend(domain.names.iter().map(|name| (name.clone(), self.domains.len())));
        self.domains.push(domain);
    }

    /// Adds a host, which no other site has, to the domain at `index`.
    pub(crate) fn add_host(&mut self, host: String, index: usize) {
        self.sites.insert(host.clone(), index);
        self.domains[index].names.push(host);
    }

    /// Sets a limit, unless it has another value already. Whether it has this value now.
    pub(crate) fn set_limit(&mut self, key: &'static str, value: Value) -> bool {
        match self.limits.iter().find(|(known, _)| *known == key) {
            Some((_, known)) => *known == value,
            None => {
                self.limits.push((key, value));
                true
            }
        }
    }
}

/// Addresses, none of which includes another one.
#[derive(Clone, Default)]
pub(crate) struct Listeners(Vec<SocketAddr>);

impl Listeners {
    /// Adds an address, unless another one includes it.
    pub(crate) fn add(&mut self, address: SocketAddr) {
        let includes = |one: &SocketAddr, other: &SocketAddr| {
            let is_same_kind = one.port() == other.port() && one.is_ipv4() == other.is_ipv4();
            is_same_kind && (one.ip() == other.ip() || one.ip().is_unspecified())
        };
        if !self.0.iter().any(|known| includes(known, &address)) {
            self.0.retain(|known| !includes(&address, known));
            self.0.push(address);
        }
    }

    /// Removes addresses with which those of `others` would conflict.
    pub(crate) fn remove_ports_of(&mut self, others: &Listeners) {
        self.0.retain(|address| !others.0.iter().any(|other| other.port() == address.port()));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SocketAddr> {
        self.0.iter()
    }

    pub(crate) fn value(&self) -> Value {
        Value::texts(self.0.iter().map(ToString::to_string))
    }
}

/// A key of TSIG.
pub(crate) struct Tsig {
    pub(crate) algorithm: String,
    pub(crate) secret_file: String,
}

/// A catalog of zones.
#[derive(Default)]
pub(crate) struct Catalog {
    pub(crate) name: String,
    pub(crate) primaries: Vec<Peer>,
    pub(crate) secondaries: Vec<Peer>,
}

/// Another server: an address or a network, a key, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) address: Option<String>,
    pub(crate) key: Option<String>,
}

impl Peer {
    /// All clients.
    pub(crate) fn any() -> [Peer; 2] {
        ["0.0.0.0/0", "::/0"].map(|network| Peer { address: Some(network.to_owned()), key: None })
    }

    /// The table, in which the address has this key.
    pub(crate) fn value(&self, address_key: &str) -> Value {
        let address = self.address.iter().map(|address| (address_key.to_owned(), Value::from(address.as_str())));
        let key = self.key.iter().map(|key| ("key".to_owned(), Value::from(key.as_str())));
        Value::Table(address.chain(key).collect())
    }
}

/// Fields of responses; those without a value are removed.
pub(crate) type Fields = Vec<(String, Option<String>)>;

/// A section `[domain."NAME"]`.
#[derive(Clone, Default)]
pub(crate) struct Domain {
    /// The place of the server or zone that it comes from.
    pub(crate) at: Position,
    /// The name of the section, then other hosts.
    pub(crate) names: Vec<String>,
    pub(crate) site: Option<String>,
    /// Keys with a value other than their default, in the order of the file.
    pub(crate) keys: Vec<(&'static str, Value)>,
    pub(crate) certificates: Certificates,
    pub(crate) redirects: Vec<RedirectRule>,
    /// Fields by pattern; without a value they are removed.
    pub(crate) headers: Vec<(String, Fields)>,
    pub(crate) auth: Vec<AuthRule>,
    pub(crate) access: Vec<AccessRule>,
    pub(crate) routes: Vec<Route>,
    pub(crate) zone: Option<String>,
    pub(crate) primaries: Vec<Peer>,
    pub(crate) secondaries: Vec<Peer>,
    pub(crate) transfer_allow: Vec<Peer>,
    pub(crate) update: Vec<Value>,
}

impl Domain {
    /// Sets a key that has one value.
    pub(crate) fn set(&mut self, key: &'static str, value: Value) {
        match self.keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => self.keys.push((key, value)),
        }
    }

    /// Whether it has files or routes.
    pub(crate) fn is_site(&self) -> bool {
        self.site.is_some() || !self.routes.is_empty()
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.keys.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// The value of a field in the rule of this pattern.
    pub(crate) fn field(&self, pattern: &str, name: &str) -> Option<&str> {
        let (_, fields) = self.headers.iter().find(|(known, _)| known == pattern)?;
        fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).and_then(|(_, value)| value.as_deref())
    }

    /// Adds a field to the rule of this pattern; a later value replaces an earlier one.
    pub(crate) fn add_field(&mut self, pattern: &str, name: &str, value: Option<String>) {
        let fields = match self.headers.iter_mut().find(|(known, _)| known == pattern) {
            Some((_, fields)) => fields,
            None => {
                self.headers.push((pattern.to_owned(), Vec::new()));
                &mut self.headers.last_mut().expect("a rule was pushed").1
            }
        };
        match fields.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, known)) => *known = value,
            None => fields.push((name.to_owned(), value)),
        }
    }
}

/// A section `[domain."NAME".route."PATH"]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) keys: Vec<(&'static str, Value)>,
}

/// The certificates of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Certificates {
    #[default]
    None,
    Automatic,
    /// Pairs of a chain and a key.
    Files(Vec<(String, String)>),
}

/// A rule of `redirects`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RedirectRule {
    pub(crate) from: String,
    pub(crate) to: Option<String>,
    pub(crate) status: u16,
    pub(crate) force: Option<bool>,
}

/// A rule of `auth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthRule {
    pub(crate) pattern: String,
    pub(crate) users_file: String,
    pub(crate) realm: String,
}

/// A rule of `access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessRule {
    pub(crate) pattern: String,
    /// `None` for all.
    pub(crate) allow: Option<Vec<String>>,
    pub(crate) deny: Vec<String>,
}
