//! Reads a zone of knot.conf with its template.

use super::access::{access, policy, remotes};
use super::{Item, Shared, TABLE, without_blocks};
use crate::ledger::Ledger;
use crate::model::{Catalog, Domain, Model, Peer};
use crate::networks::peer_text;
use crate::settings::in_directory;
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::toml_text::Value;
use crate::zone_rules::{Transfers, is_first, zone_name};

/// The storage of zones without their own.
const STORAGE: &str = "/var/lib/knot";

/// Adds the zone of this item to the model.
pub(super) fn read<'s>(
    item: &'s Statement,
    shared: &Shared<'s>,
    is_automatic: bool,
    model: &mut Model,
    ledger: &mut Ledger,
) {
    for attribute in std::iter::once(item).chain(item.nested()) {
        if has_keys(TABLE, "zone", &without_blocks(attribute), ledger) {
            ledger.keep(attribute);
        }
    }
    let item = Item(item);
    let Some(name) = zone_name(item.id()) else {
        return ledger.miss(item.0, "this is not the name of a zone", "write the name");
    };
    if !is_first(&name, item.0, model, ledger) {
        return;
    }
    let template = item.get("template").map_or("default", |it| it.argument(0));
    let zone = Zone { item, template: shared.get("template", template) };
    let mut transfers = Transfers::default();
    let mut domain = Domain { at: item.0.name.at, names: vec![name.clone()], ..Domain::default() };
    zone.primaries(shared, &mut domain, ledger);
    zone.notify(shared, &mut transfers, ledger);
    if is_automatic {
        let peer = |(address, key): &(std::net::SocketAddr, Option<String>)| Peer {
            address: Some(address.ip().to_string()),
            key: key.clone(),
        };
        transfers.allow.extend(transfers.notify.iter().map(peer));
    }
    zone.access(&name, shared, &mut domain, &mut transfers, ledger);
    (domain.secondaries, domain.transfer_allow) = transfers.split(&without_blocks(item.0), ledger);
    if matches!(zone.value("catalog-role"), Some("interpret" | "generate")) {
        let Domain { primaries, secondaries, .. } = domain;
        if primaries.is_empty() && secondaries.is_empty() {
            let reason = "the catalog has neither primaries nor secondaries";
            return ledger.miss(item.0, reason, "write them in [catalog]");
        }
        model.catalogs.push(Catalog { name, primaries, secondaries });
        return;
    }
    zone.signing(shared, &mut domain);
    if domain.primaries.is_empty() {
        let file = zone.value("file").unwrap_or("%s.zone");
        domain.zone = Some(path(file, &name, zone.value("storage").unwrap_or(STORAGE)));
    } else {
        domain.update.clear();
    }
    model.domains.push(domain);
}

/// The path of a zone file, in which `%s` is the name of the zone.
fn path(file: &str, name: &str, storage: &str) -> String {
    in_directory(storage, file.replace("%s", name).replace("%c[0]", &name.chars().take(1).collect::<String>()))
}

/// A zone with its template.
struct Zone<'s> {
    item: Item<'s>,
    template: Option<Item<'s>>,
}

impl<'s> Zone<'s> {
    /// The attribute of the zone, else that of its template.
    fn get(&self, name: &str) -> Option<&'s Statement> {
        self.item.get(name).or_else(|| self.template?.get(name))
    }

    fn value(&self, name: &str) -> Option<&'s str> {
        self.get(name).map(|it| it.argument(0))
    }

    /// The values of the zone, else those of its template.
    fn values(&self, name: &str) -> Vec<&'s str> {
        let own = self.item.values(name);
        if own.is_empty() { self.template.map(|it| it.values(name)).unwrap_or_default() } else { own }
    }

    fn primaries(&self, shared: &Shared<'s>, domain: &mut Domain, ledger: &mut Ledger) {
        match remotes(&self.values("master"), shared) {
            Ok(found) => {
                let peer = |(address, key)| Peer { address: Some(peer_text(address)), key };
                domain.primaries = found.into_iter().map(peer).collect();
            }
            Err(reason) => self.miss("master", reason, ledger),
        }
    }

    fn notify(&self, shared: &Shared<'s>, transfers: &mut Transfers, ledger: &mut Ledger) {
        match remotes(&self.values("notify"), shared) {
            Ok(found) => transfers.notify = found,
            Err(reason) => self.miss("notify", reason, ledger),
        }
    }

    fn miss(&self, name: &str, reason: String, ledger: &mut Ledger) {
        if let Some(statement) = self.get(name) {
            ledger.miss(statement, reason, "write addresses and keys in `primaries` or `secondaries`");
        }
    }

    fn access(
        &self,
        apex: &str,
        shared: &Shared<'s>,
        domain: &mut Domain,
        transfers: &mut Transfers,
        ledger: &mut Ledger,
    ) {
        let mut has_exception = false;
        for id in self.values("acl") {
            let found = access(id, apex, shared);
            has_exception |= found.is_exception;
            transfers.allow.extend(found.transfers);
            domain.update.extend(found.updates);
            if let (Some(reason), Some(statement)) =
                (found.problem, shared.get("acl", id).map(|it| it.0).or(self.get("acl")))
            {
                ledger.miss(&without_blocks(statement), reason, "write the rule in `transfer_allow` or `update`");
            }
        }
        if has_exception {
            transfers.allow.retain(|peer| peer.key.is_some());
        }
    }

    fn signing(&self, shared: &Shared<'s>, domain: &mut Domain) {
        if !matches!(self.value("dnssec-signing"), Some("on" | "true")) {
            return;
        }
        let mut entries = match self.value("dnssec-policy") {
            Some(id) => policy(id, shared),
            None => shared
                .get("policy", "default")
                .map(|_| policy("default", shared))
                .unwrap_or_else(|| vec![("keys".to_owned(), Value::from("ksk-zsk"))]),
        };
        let serial = match self.value("serial-policy") {
            Some("unixtime") => Some("unixtime"),
            Some("dateserial") => Some("date"),
            _ => None,
        };
        entries.extend(serial.map(|serial| ("serial".to_owned(), Value::from(serial))));
        if self.value("zonemd-generate").is_some_and(|value| value.starts_with("zonemd-")) {
            entries.push(("zonemd".to_owned(), Value::Boolean(true)));
        }
        domain.set("dnssec", if entries.is_empty() { Value::Boolean(true) } else { Value::Table(entries) });
    }
}
