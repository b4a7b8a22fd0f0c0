//! Keys and rules of zone transfers, which all DNS servers have.

use crate::ledger::Ledger;
use crate::model::{Model, Peer, Tsig};
use crate::syntax::Statement;
use crate::toml_text::Value;
use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;

/// Algorithms of TSIG that are not obsolete.
const ALGORITHMS: [&str; 3] = ["hmac-sha256", "hmac-sha384", "hmac-sha512"];

/// Rules of transfers of a zone, as other servers write them: clients, and servers to notify.
#[derive(Clone, Default)]
pub(crate) struct Transfers {
    pub(crate) allow: Vec<Peer>,
    pub(crate) notify: Vec<(SocketAddr, Option<String>)>,
}

/// The name of a key in the form of the configuration. One that is not a domain name cannot be a key in the protocol.
pub(crate) fn key_name(text: &str) -> String {
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    zone_name(&name).filter(|name| name != ".").unwrap_or_else(|| {
        let is_byte = |next: char| next.is_ascii_alphanumeric() || next == '-' || next == '_';
        let name: String = name.chars().filter(|next| is_byte(*next)).take(63).collect();
        if name.is_empty() || name.bytes().all(|byte| byte.is_ascii_digit()) { format!("key{name}") } else { name }
    })
}

/// The name of a zone in the form of the configuration; `None` if it is not one.
pub(crate) fn zone_name(text: &str) -> Option<String> {
    if text == "." {
        return Some(text.to_owned());
    }
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_/*".contains(&byte);
    let is_label = |label: &str| !label.is_empty() && label.len() < 64 && label.bytes().all(is_byte);
    let is_name = name.len() < 254 && name.split('.').all(is_label) && name.parse::<std::net::IpAddr>().is_err();
    is_name.then_some(name)
}

/// Whether a zone is the first with its name; another one is reported.
pub(crate) fn is_first(name: &str, statement: &Statement, model: &mut Model, ledger: &mut Ledger) -> bool {
    let is_first = model.claim(name);
    if !is_first {
        ledger.miss(statement, format!("zone {name} is defined twice"), "remove one of the two");
    }
    is_first
}

/// Removes what no zone needs.
pub(crate) fn finish(model: &mut Model) {
    if model.domains.is_empty() && model.catalogs.is_empty() {
        model.dns.clear();
        model.transfer_allow.clear();
    }
}

/// A key of another server.
pub(crate) struct SourceKey<'s> {
    pub(crate) name: &'s str,
    pub(crate) algorithm: &'s str,
    pub(crate) statement: &'s Statement,
}

/// Adds the keys that zones use, whether they are defined or in a file that was not read. Others control the server.
pub(crate) fn add_keys(keys: &[SourceKey<'_>], model: &mut Model, ledger: &mut Ledger) {
    let used = used_keys(model);
    for key in keys {
        let name = key_name(key.name);
        ledger.keep_all(key.statement);
        if used.contains(&name) {
            add_key(name, key, model, ledger);
        }
    }
    for name in used {
        let secret_file = secret_file(&name);
        model.tsig.entry(name).or_insert(Tsig { algorithm: "hmac-sha256".to_owned(), secret_file });
    }
}

fn secret_file(name: &str) -> String {
    format!("keys/{}.key", name.replace(['/', '*'], "_"))
}

fn add_key(name: String, key: &SourceKey<'_>, model: &mut Model, ledger: &mut Ledger) {
    let plain = key.algorithm.trim_end_matches('.').to_ascii_lowercase();
    let is_known = ALGORITHMS.contains(&plain.as_str());
    if !is_known {
        let reason = format!("`{plain}` is obsolete: the imported key uses hmac-sha256");
        let nearest = "give the key this algorithm on the other servers too, with a new secret";
        ledger.differ(key.statement, reason, nearest);
    }
    let secret_file = secret_file(&name);
    let nearest =
        format!("write it into `{secret_file}`, for root and the server alone: `chgrp sanderling`, `chmod 640`");
    ledger.by_hand(key.statement, "the secret of the key is in a file", nearest);
    let algorithm = if is_known { plain } else { "hmac-sha256".to_owned() };
    model.tsig.entry(name).or_insert(Tsig { algorithm, secret_file });
}

/// The names of the keys that zones and catalogs use.
fn used_keys(model: &Model) -> BTreeSet<String> {
    let mut peers: Vec<&Peer> = Vec::new();
    let mut used = BTreeSet::new();
    for domain in &model.domains {
        peers.extend([&domain.primaries, &domain.secondaries, &domain.transfer_allow].into_iter().flatten());
        for rule in &domain.update {
            if let Value::Table(entries) = rule {
                used.extend(entries.iter().filter(|(key, _)| key == "key").map(|(_, value)| value.text().to_owned()));
            }
        }
    }
    for catalog in &model.catalogs {
        peers.extend([&catalog.primaries, &catalog.secondaries].into_iter().flatten());
    }
    peers.extend(&model.transfer_allow);
    used.extend(peers.into_iter().filter_map(|peer| peer.key.clone()));
    used
}

impl Transfers {
    /// The `secondaries`, which are notified and can transfer the zone, and `transfer_allow`. That some of the servers
    /// to notify could not transfer the zone before is noted at `statement`.
    pub(crate) fn split(mut self, statement: &Statement, ledger: &mut Ledger) -> (Vec<Peer>, Vec<Peer>) {
        let (mut secondaries, mut known, mut is_wider) = (Vec::new(), HashSet::new(), false);
        for (address, key) in self.notify {
            let ip = address.ip().to_string();
            let is_own = |peer: &Peer| peer.address.as_deref() == Some(&*ip);
            let own = self.allow.iter().position(is_own);
            let key = match own {
                Some(index) => self.allow.remove(index).key.or(key),
                None => {
                    let by_key =
                        self.allow.iter().find(|peer| peer.address.is_none()).and_then(|peer| peer.key.clone());
                    is_wider |= key.is_none() && by_key.is_none() && self.allow.iter().all(|peer| peer.key.is_some());
                    key.or(by_key)
                }
            };
            let peer = Peer { address: Some(crate::networks::peer_text(address)), key };
            if known.insert(peer.clone()) {
                secondaries.push(peer);
            }
        }
        known.clear();
        let allow = self.allow.into_iter().filter(|peer| known.insert(peer.clone())).collect();
        if is_wider {
            let reason = "servers that are notified can transfer the zone, too";
            ledger.differ(statement, reason, "add a `key` to `secondaries`");
        }
        (secondaries, allow)
    }
}
