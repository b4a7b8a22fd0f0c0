//! Makes a model of knot.conf.

mod zone;
mod access;
mod table;

use crate::ledger::Ledger;
use crate::model::Model;
use crate::networks::socket_address;
use crate::settings::{listen_on_all_addresses, set_dns_text, set_idle_timeout, set_limit, set_user, set_workers};
use crate::sources::named::seconds;
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::zone_rules::{self, SourceKey};
use std::collections::HashMap;

pub(crate) use table::TABLE;

/// An item of a section: its attributes, the first of which is its name.
#[derive(Clone, Copy)]
pub(super) struct Item<'s>(&'s Statement);

impl<'s> Item<'s> {
    pub(super) fn id(self) -> &'s str {
        self.0.argument(0)
    }

    /// All attributes with this name.
    pub(super) fn all(self, name: &str) -> impl Iterator<Item = &'s Statement> {
        let is_it = move |it: &&Statement| it.name() == name;
        self.0.nested().filter(is_it)
    }

    pub(super) fn get(self, name: &str) -> Option<&'s Statement> {
        self.all(name).last()
    }

    /// The values of all attributes with this name.
    pub(super) fn values(self, name: &str) -> Vec<&'s str> {
        self.all(name).flat_map(Statement::texts).collect()
    }

    pub(super) fn is_on(self, name: &str) -> bool {
        self.get(name).is_some_and(|it| matches!(it.argument(0), "on" | "true"))
    }
}

/// The items that zones refer to, by section and name.
#[derive(Default)]
pub(super) struct Shared<'s> {
    items: HashMap<(&'s str, &'s str), Item<'s>>,
}

impl<'s> Shared<'s> {
    pub(super) fn get(&self, section: &'s str, id: &'s str) -> Option<Item<'s>> {
        self.items.get(&(section, id)).copied()
    }
}

/// Adds all zones to the model.
pub(crate) fn interpret(statements: &[Statement], model: &mut Model, ledger: &mut Ledger) {
    let mut shared = Shared::default();
    for section in statements {
        shared.items.extend(section.nested().map(|item| ((section.name(), item.argument(0)), Item(item))));
    }
    let is_automatic = statements.iter().filter(|it| it.name() == "server").any(|it| Item(it).is_on("automatic-acl"));
    let mut keys = Vec::new();
    for section in statements.iter().filter(|it| it.name() != "include") {
        ledger.keep(section);
        match section.name() {
            "server" => server(section, model, ledger),
            "zone" => section.nested().for_each(|it| zone::read(it, &shared, is_automatic, model, ledger)),
            "key" => keys.extend(section.nested().map(|it| {
                let algorithm = Item(it).get("algorithm").map_or("", |it| it.argument(0));
                SourceKey { name: it.argument(0), algorithm, statement: it }
            })),
            name if name.starts_with("mod-") => {
                let nearest = "cookies, rate limits and query logs have keys of [dns], [limits] and [log]";
                ledger.miss(section, "there are no modules", nearest);
            }
            name => section.nested().for_each(|item| {
                for attribute in std::iter::once(item).chain(item.nested()) {
                    // Those of an item that is used are reported where it is used.
                    if has_keys(TABLE, name, &without_blocks(attribute), ledger) {
                        ledger.keep(attribute);
                    }
                }
            }),
        }
    }
    statements.iter().filter(|it| it.name() == "include").for_each(|it| ledger.keep(it));
    let has_server = statements.iter().any(|it| it.name() == "server");
    if model.dns.is_empty() && has_server {
        listen_on_all_addresses(53, model);
    }
    zone_rules::add_keys(&keys, model, ledger);
    zone_rules::finish(model);
}

/// An attribute that begins an item, without the others.
pub(super) fn without_blocks(statement: &Statement) -> Statement {
    Statement { blocks: Vec::new(), ..statement.clone() }
}

fn server(section: &Statement, model: &mut Model, ledger: &mut Ledger) {
    for attribute in section.nested() {
        if !has_keys(TABLE, "server", attribute, ledger) {
            continue;
        }
        ledger.keep(attribute);
        let value = attribute.argument(0);
        match attribute.name() {
            "listen" => {
                for text in attribute.texts() {
                    match socket_address(text, '@', 53) {
                        Some(address) => model.dns.add(address),
                        None => {
                            ledger.miss(attribute, "this is not an IP address", "write an address with a port");
                        }
                    }
                }
            }
            "user" => {
                let (user, group) = value.split_once(':').unwrap_or((value, ""));
                set_user(attribute, (user, group), "zone files", model, ledger);
            }
            "nsid" => set_dns_text(model, "nsid", value),
            "identity" if model.dns_keys.iter().all(|(key, _)| *key != "nsid") => set_dns_text(model, "nsid", value),
            "version" => set_dns_text(model, "version", value),
            "udp-workers" => set_workers(attribute, model, ledger),
            "tcp-max-clients" => set_limit(attribute, value, "dns_tcp_connections_max", 1..=1_000_000, model, ledger),
            "tcp-idle-timeout" => {
                set_idle_timeout(attribute, seconds(value), "dns_tcp_idle_timeout", 10, model, ledger);
            }
            _ => {}
        }
    }
}
