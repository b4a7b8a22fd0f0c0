//! Reads a zone of nsd.conf with its patterns.

use super::{TABLE, named};
use crate::ledger::Ledger;
use crate::model::{Catalog, Domain, Model, Peer};
use crate::networks::{network, peer_text, socket_address};
use crate::settings::in_directory;
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::zone_rules::{Transfers, is_first, key_name, zone_name};
use std::collections::HashMap;

/// Patterns within patterns.
const DEPTH_MAX: usize = 16;

/// The parts of a zone.
#[derive(Default)]
struct Parts {
    file: Option<String>,
    primaries: Vec<Peer>,
    transfers: Transfers,
    catalog: Option<String>,
    /// Whether a network is excluded from what others allow.
    has_exception: bool,
}

/// Adds the zone to the model.
pub(super) fn read(
    section: &Statement,
    patterns: &HashMap<&str, &Statement>,
    directory: &str,
    model: &mut Model,
    ledger: &mut Ledger,
) {
    ledger.keep(section);
    let text = section.find("name").map_or("", |it| it.argument(0));
    let section = &named(section, text);
    let Some(name) = zone_name(text) else {
        return ledger.miss(section, "this is not the name of a zone", "write the name");
    };
    if !is_first(&name, section, model, ledger) {
        return;
    }
    let mut parts = Parts::default();
    add(section, patterns, &mut parts, 0, ledger);
    if parts.has_exception {
        parts.transfers.allow.retain(|peer| peer.key.is_some());
    }
    let (secondaries, transfer_allow) = parts.transfers.split(section, ledger);
    let is_catalog = matches!(parts.catalog.as_deref(), Some("consumer" | "producer"));
    let is_producer = parts.catalog.as_deref() == Some("producer");
    if is_catalog && (if is_producer { secondaries.is_empty() } else { parts.primaries.is_empty() }) {
        let reason = "the catalog has neither primaries nor secondaries";
        return ledger.miss(section, reason, "write them in [catalog]");
    }
    match parts.catalog.as_deref() {
        Some("consumer") => return model.catalogs.push(Catalog { name, primaries: parts.primaries, secondaries }),
        Some("producer") => {
            let reason = "the catalog lists all zones without their own rules of transfers";
            ledger.differ(section, reason, "remove `secondaries` and `transfer_allow` from its members");
            return model.catalogs.push(Catalog { name, primaries: Vec::new(), secondaries });
        }
        _ => {}
    }
    let zone = parts.file.filter(|_| parts.primaries.is_empty()).map(|file| path(&file, &name, directory));
    if zone.is_none() && parts.primaries.is_empty() {
        return ledger.miss(section, "the zone has neither a file nor primaries", "add `zone` or `primaries`");
    }
    let (at, names, primaries) = (section.name.at, vec![name], parts.primaries);
    model.domains.push(Domain { at, names, zone, primaries, secondaries, transfer_allow, ..Domain::default() });
}

/// A pattern is expressed by the zones that include it.
pub(super) fn unused(pattern: &Statement, ledger: &mut Ledger) {
    ledger.keep(pattern);
    for attribute in pattern.nested() {
        if has_keys(TABLE, "pattern", attribute, ledger) {
            ledger.keep(attribute);
        }
    }
}

/// The path of a zone file, in which `%s` is the name of the zone.
fn path(file: &str, name: &str, directory: &str) -> String {
    let character = |at: usize| name.chars().nth(at).unwrap_or('.').to_string();
    let file =
        file.replace("%s", name).replace("%1", &character(0)).replace("%2", &character(1)).replace("%3", &character(2));
    let labels: Vec<&str> = name.rsplit('.').collect();
    let label = |at: usize| labels.get(at).copied().unwrap_or(".");
    in_directory(directory, file.replace("%z", label(0)).replace("%y", label(1)).replace("%x", label(2)))
}

fn add(
    section: &Statement,
    patterns: &HashMap<&str, &Statement>,
    parts: &mut Parts,
    depth: usize,
    ledger: &mut Ledger,
) {
    for attribute in section.nested() {
        if !has_keys(TABLE, "zone", attribute, ledger) {
            continue;
        }
        ledger.keep(attribute);
        let value = attribute.argument(0);
        match attribute.name() {
            "zonefile" => parts.file = Some(value.to_owned()).filter(|file| !file.is_empty()),
            "include-pattern" => match patterns.get(value).filter(|_| depth < DEPTH_MAX) {
                Some(pattern) => add(pattern, patterns, parts, depth + 1, ledger),
                None => ledger.miss(attribute, "there is no such pattern", "correct the name"),
            },
            "catalog" => parts.catalog = Some(value.to_owned()),
            "catalog-producer-zone" => {
                ledger.differ(attribute, "the catalog lists all zones", "remove the zones that it must not list");
            }
            "request-xfr" => request(attribute, parts, ledger),
            "provide-xfr" => provide(attribute, parts, ledger),
            "notify" => match socket_address(value, '@', 53) {
                Some(address) => parts.transfers.notify.push((address, key(attribute.argument(1)))),
                None => ledger.miss(attribute, "this is not an IP address", "write the address"),
            },
            _ => {}
        }
    }
}

fn key(text: &str) -> Option<String> {
    (!matches!(text, "" | "NOKEY" | "BLOCKED")).then(|| key_name(text))
}

/// `request-xfr: [AXFR|UDP] ADDRESS KEY [TLS-AUTH]`.
fn request(attribute: &Statement, parts: &mut Parts, ledger: &mut Ledger) {
    let texts = attribute.texts();
    let texts = texts.strip_prefix(&["AXFR"]).or(texts.strip_prefix(&["UDP"])).unwrap_or(&texts);
    let first = texts.first().copied().unwrap_or_default();
    match socket_address(first, '@', 53) {
        Some(_) if texts.len() > 2 => {
            ledger.miss(attribute, "zones are transferred over TCP without TLS", "transfer them with a key");
        }
        Some(address) => {
            let key = key(texts.get(1).copied().unwrap_or_default());
            parts.primaries.push(Peer { address: Some(peer_text(address)), key });
        }
        None => ledger.miss(attribute, "this is not an IP address", "write the address"),
    }
}

/// `provide-xfr: NETWORK KEY`.
fn provide(attribute: &Statement, parts: &mut Parts, ledger: &mut Ledger) {
    let (text, secret) = (attribute.argument(0), attribute.argument(1));
    let plain = text.split('@').next().unwrap_or(text);
    match network(plain) {
        _ if secret == "BLOCKED" => {
            parts.has_exception = true;
            let reason = "`transfer_allow` has no rules that deny, so networks without a key are not allowed";
            ledger.miss(attribute, reason, "list the networks in `transfer_allow`");
        }
        _ if attribute.arguments.len() > 2 => {
            ledger.miss(attribute, "zones are transferred over TCP and TLS alike", "transfer them with a key");
        }
        Some(network) => parts.transfers.allow.push(Peer { address: Some(network), key: key(secret) }),
        None => ledger.miss(attribute, "this is not an IP address or network", "write it in CIDR notation"),
    }
}
