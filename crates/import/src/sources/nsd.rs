//! Makes a model of nsd.conf.

mod zone;
mod table;

use crate::ledger::Ledger;
use crate::model::Model;
use crate::networks::socket_address;
use crate::settings::{listen_on_all_addresses, set_dns_text, set_idle_timeout, set_limit, set_user, set_workers};
use crate::syntax::{Statement, Word};
use crate::table::has_keys;
use crate::zone_rules::{self, SourceKey};
use std::collections::HashMap;

pub(crate) use table::TABLE;

/// The sections, with attributes that follow none: those of an included file belong to the section before it.
fn sections(statements: &[Statement]) -> Vec<Statement> {
    let mut sections: Vec<Statement> = Vec::new();
    for statement in statements {
        match sections.last_mut().and_then(|section| section.blocks.first_mut()) {
            Some(block) if statement.blocks.is_empty() => block.push(statement.clone()),
            _ => sections.push(statement.clone()),
        }
    }
    sections
}

/// Adds all zones to the model.
pub(crate) fn interpret(statements: &[Statement], model: &mut Model, ledger: &mut Ledger) {
    let sections = sections(statements);
    let mut directory = String::new();
    let mut patterns = HashMap::new();
    for section in &sections {
        match section.name() {
            "server" => {
                directory = section.find("zonesdir").map_or(directory, |it| it.argument(0).to_owned());
                server(section, model, ledger);
            }
            "pattern" => drop(patterns.insert(section.find("name").map_or("", |it| it.argument(0)), section)),
            _ => {}
        }
    }
    let mut keys = Vec::new();
    for section in &sections {
        match section.name() {
            "server" | "pattern" => {}
            "key" => {
                let argument = |name: &str| section.find(name).map_or("", |it| it.argument(0));
                keys.push(SourceKey { name: argument("name"), algorithm: argument("algorithm"), statement: section });
            }
            "zone" => zone::read(section, &patterns, &directory, model, ledger),
            "include" => ledger.keep(section),
            _ => {
                ledger.keep(section);
                for attribute in section.nested() {
                    has_keys(TABLE, section.name(), attribute, ledger);
                }
            }
        }
    }
    let has_server = sections.iter().any(|it| it.name() == "server");
    if model.dns.is_empty() && has_server {
        let port =
            sections.iter().filter_map(|it| it.find("port")).find_map(|it| it.argument(0).parse().ok()).unwrap_or(53);
        listen_on_all_addresses(port, model);
    }
    // A pattern that no zone includes has no effect, except for zones that nsd-control adds.
    patterns.values().for_each(|pattern| zone::unused(pattern, ledger));
    zone_rules::add_keys(&keys, model, ledger);
    zone_rules::finish(model);
}

fn server(section: &Statement, model: &mut Model, ledger: &mut Ledger) {
    ledger.keep(section);
    let port = section.find("port").and_then(|it| it.argument(0).parse().ok()).unwrap_or(53);
    for attribute in section.nested() {
        if !has_keys(TABLE, "server", attribute, ledger) {
            continue;
        }
        ledger.keep(attribute);
        let value = attribute.argument(0);
        match attribute.name() {
            "ip-address" | "interface" => match socket_address(value, '@', port) {
                Some(address) => model.dns.add(address),
                None => ledger.miss(attribute, "this is not an IP address", "write an address, not an interface"),
            },
            "username" if !value.is_empty() => {
                let (user, group) = value.split_once([':', '.']).unwrap_or((value, ""));
                set_user(attribute, (user, group), "zone files", model, ledger);
            }
            "server-count" => set_workers(attribute, model, ledger),
            "nsid" => match value.strip_prefix("ascii_") {
                Some(text) => set_dns_text(model, "nsid", text),
                None => ledger.miss(attribute, "the server identifier must be text", "write it in `nsid` of [dns]"),
            },
            "identity" if model.dns_keys.iter().all(|(key, _)| *key != "nsid") => set_dns_text(model, "nsid", value),
            "version" => set_dns_text(model, "version", value),
            "cookie-secret-file" => set_dns_text(model, "cookie_secret_file", value),
            "tcp-count" => set_limit(attribute, value, "dns_tcp_connections_max", 1..=1_000_000, model, ledger),
            "tcp-timeout" => set_idle_timeout(attribute, value.parse().ok(), "dns_tcp_idle_timeout", 10, model, ledger),
            "rrl-ratelimit" => {
                set_limit(attribute, value, "dns_udp_replies_per_second_max", 0..=1_000_000, model, ledger);
            }
            "rrl-slip" => set_limit(attribute, value, "dns_udp_slip", 0..=1_000, model, ledger),
            _ => {}
        }
    }
}

/// A statement of a section without a name, for reports.
pub(super) fn named(section: &Statement, name: &str) -> Statement {
    let arguments = vec![Word { text: name.to_owned(), at: section.name.at }];
    Statement { name: section.name.clone(), arguments, blocks: section.blocks.clone() }
}
