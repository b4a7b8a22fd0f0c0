//! Rules of access, remote servers and policies of knot.conf.

use super::{Item, Shared};
use crate::model::Peer;
use crate::networks::{network, socket_address};
use crate::sources::named::seconds;
use crate::toml_text::Value;
use crate::zone_rules::{key_name, zone_name};
use std::net::SocketAddr;

/// The servers with these names, or of these lists.
///
/// # Errors
/// The name that is not defined.
pub(super) fn remotes<'s>(ids: &[&'s str], shared: &Shared<'s>) -> Result<Vec<(SocketAddr, Option<String>)>, String> {
    let mut found = Vec::new();
    for id in ids {
        let listed = shared.get("remotes", id).map(|list| list.values("remote"));
        for id in listed.unwrap_or_else(|| vec![id]) {
            let remote = shared.get("remote", id).ok_or_else(|| format!("the remote server `{id}` is not defined"))?;
            let key = remote.get("key").map(|it| key_name(it.argument(0)));
            if remote.is_on("tls") || remote.is_on("quic") {
                return Err("zones are transferred over TCP without TLS".to_owned());
            }
            for text in remote.values("address") {
                let address = socket_address(text, '@', 53).ok_or_else(|| format!("`{text}` is not an IP address"))?;
                found.push((address, key.clone()));
            }
        }
    }
    Ok(found)
}

/// The effect of a rule of access.
#[derive(Default)]
pub(super) struct Access {
    pub(super) transfers: Vec<Peer>,
    pub(super) updates: Vec<Value>,
    /// The reason for a part that cannot be expressed.
    pub(super) problem: Option<String>,
    /// Whether the rule denies what others allow.
    pub(super) is_exception: bool,
}

/// The rules of `acl` with this name, for the zone `apex`.
pub(super) fn access<'s>(id: &'s str, apex: &str, shared: &Shared<'s>) -> Access {
    let mut access = Access::default();
    let Some(rule) = shared.get("acl", id) else {
        access.problem = Some(format!("the rule `{id}` is not defined"));
        return access;
    };
    if rule.is_on("deny") {
        access.problem =
            Some("`transfer_allow` has no rules that deny, so networks without a key are not allowed".to_owned());
        access.is_exception = true;
        return access;
    }
    let mut peers = Vec::new();
    let keys: Vec<Option<String>> = match rule.values("key") {
        keys if keys.is_empty() => vec![None],
        keys => keys.into_iter().map(|key| Some(key_name(key))).collect(),
    };
    let addresses: Vec<Option<String>> = match rule.values("address") {
        texts if texts.is_empty() => vec![None],
        texts => {
            let networks: Vec<Option<String>> =
                texts.iter().map(|text| network(text)).filter(Option::is_some).collect();
            if networks.len() < texts.len() {
                access.problem = Some("this is not an IP address or network".to_owned());
            }
            networks
        }
    };
    match remotes(&rule.values("remote"), shared) {
        Ok(remotes) if !remotes.is_empty() => {
            peers.extend(
                remotes.into_iter().map(|(address, key)| Peer { address: Some(address.ip().to_string()), key }),
            );
        }
        Ok(_) => {
            for key in &keys {
                peers.extend(addresses.iter().map(|address| Peer { address: address.clone(), key: key.clone() }));
            }
        }
        Err(problem) => access.problem = Some(problem),
    }
    let actions = rule.values("action");
    if actions.contains(&"transfer") {
        let is_rule = |peer: &&Peer| peer.address.is_some() || peer.key.is_some();
        access.transfers = peers.iter().filter(is_rule).cloned().collect();
        if access.transfers.len() < peers.len() {
            access.transfers.extend(Peer::any());
        }
    }
    if actions.contains(&"update") {
        add_updates(rule, &peers, apex, &mut access);
    }
    access
}

fn add_updates(rule: Item<'_>, peers: &[Peer], apex: &str, access: &mut Access) {
    let types = rule.values("update-type");
    let types = if types.is_empty() { vec!["ANY"] } else { types };
    for peer in peers {
        let Some(key) = &peer.key else {
            access.problem = Some("an update must be signed with a key".to_owned());
            continue;
        };
        match names(rule, key, apex) {
            Some(names) => access.updates.push(Value::table([
                ("key", key.as_str().into()),
                ("names", Value::texts(names)),
                ("types", Value::texts(types.iter().copied())),
            ])),
            None => {
                access.problem = Some("a rule of `update` lists the names and types that a key may change".to_owned());
            }
        }
    }
}

/// The names that an update may change, relative to the zone.
fn names(rule: Item<'_>, key: &str, apex: &str) -> Option<Vec<String>> {
    let owners: Vec<String> = match rule.get("update-owner").map(|it| it.argument(0)) {
        None => return Some(vec!["**".to_owned()]),
        Some("zone") => vec![String::new()],
        Some("key") => vec![below(key, apex)?],
        Some("name") => rule.values("update-owner-name").iter().map(|name| below(name, apex)).collect::<Option<_>>()?,
        Some(_) => return None,
    };
    let how = rule.get("update-owner-match").map_or("sub-or-equal", |it| it.argument(0));
    let pattern = |owner: &String| match (how, owner.as_str()) {
        ("equal", "") => Some("@".to_owned()),
        ("equal" | "pattern", owner) => Some(owner.to_owned()),
        ("sub-or-equal", "") => Some("**".to_owned()),
        ("sub-or-equal", owner) => Some(format!("**.{owner}")),
        ("sub", "") => Some("*.**".to_owned()),
        ("sub", owner) => Some(format!("*.**.{owner}")),
        _ => None,
    };
    owners.iter().map(pattern).collect()
}

/// A name relative to the zone; empty for its apex. A name without a dot at its end is relative already.
fn below(name: &str, apex: &str) -> Option<String> {
    let plain = zone_name(name)?;
    if plain == apex {
        return Some(String::new());
    }
    match plain.strip_suffix(apex).and_then(|below| below.strip_suffix('.')) {
        Some(below) => Some(below.to_owned()),
        None => (!name.ends_with('.')).then_some(plain),
    }
}

/// The value of `dnssec` for the policy with this name.
pub(super) fn policy<'s>(id: &'s str, shared: &Shared<'s>) -> Vec<(String, Value)> {
    let Some(policy) = shared.get("policy", id) else { return Vec::new() };
    let mut entries = Vec::new();
    match policy.get("algorithm").map(|it| it.argument(0).to_ascii_lowercase()).as_deref() {
        Some(name @ ("ed25519" | "rsasha256")) => entries.push(("algorithm".to_owned(), name.into())),
        Some("15") => entries.push(("algorithm".to_owned(), "ed25519".into())),
        _ => {}
    }
    let is_single = policy.is_on("single-type-signing");
    if !is_single {
        entries.push(("keys".to_owned(), "ksk-zsk".into()));
    }
    if policy.is_on("nsec3") {
        entries.push(("nsec3".to_owned(), Value::Boolean(true)));
    }
    for (name, key) in [("ksk-lifetime", "ksk_lifetime"), ("zsk-lifetime", "zsk_lifetime")] {
        let lifetime = policy.get(name).and_then(|it| seconds(it.argument(0))).map(|time| time / 86_400);
        let is_used = !(is_single && key == "zsk_lifetime");
        if let Some(days) = lifetime.filter(|days| is_used && (1..=36_500).contains(days)) {
            entries.push((key.to_owned(), format!("{days}d").into()));
        }
    }
    let ttl = policy.get("dnskey-ttl").and_then(|it| seconds(it.argument(0)));
    if let Some(ttl) = ttl.filter(|ttl| (1..=604_800).contains(ttl)) {
        entries.push(("dnskey_ttl".to_owned(), format!("{ttl}s").into()));
    }
    entries
}
