//! Reads `options` and `logging` of named.conf.

use super::lists::{Client, after};
use super::{Shared, TABLE, allowed, zone};
use crate::ledger::Ledger;
use crate::model::Model;
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::toml_text::Value;
use crate::zone_rules::{set_limit, zone_name};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Reads the options into `shared` and the model.
pub(super) fn read<'s>(options: &'s Statement, shared: &mut Shared<'s>, model: &mut Model, ledger: &mut Ledger) {
    if let Some(directory) = options.find("directory") {
        directory.argument(0).clone_into(&mut shared.directory);
    }
    let default_port = options.find("port").and_then(|it| it.argument(0).parse().ok()).unwrap_or(53);
    for statement in options.nested() {
        if is_recursive(statement) {
            let reason = "the server answers for its own zones only";
            ledger.miss(statement, reason, "run a resolver such as unbound on another address");
            continue;
        }
        if zone::is_limited_query(statement, shared) {
            let reason = "queries are answered for everyone, so they are NOT restricted";
            ledger.miss(statement, reason, "limit clients with a firewall");
            continue;
        }
        if !has_keys(TABLE, "options", statement, ledger) {
            continue;
        }
        match statement.name() {
            "directory" => ledger.keep(statement),
            "listen-on" | "listen-on-v6" => listen(statement, default_port, shared, model, ledger),
            "version" | "server-id" => text(statement, model, ledger),
            "rate-limit" => rate_limit(statement, shared, model, ledger),
            "catalog-zones" => catalogs(statement, shared, ledger),
            "querylog" => ledger.keep(statement),
            "tcp-clients" => set_limit(statement, "dns_tcp_connections_max", 1..=1_000_000, model, ledger),
            "transfers-in" => set_limit(statement, "zone_transfers_in_max", 1..=1_000, model, ledger),
            "transfers-out" => set_limit(statement, "dns_transfers_max", 0..=10_000, model, ledger),
            "allow-transfer" => match shared.lists.clients(statement.block()) {
                Ok(clients) => {
                    ledger.keep_all(statement);
                    shared.transfers.allow = allowed(clients);
                    model.transfer_allow.clone_from(&shared.transfers.allow);
                }
                Err(reason) => ledger.miss(statement, reason, "write the networks and keys in `transfer_allow`"),
            },
            "also-notify" => match shared.lists.servers(statement) {
                Ok(servers) => {
                    ledger.keep_all(statement);
                    shared.transfers.notify = servers;
                }
                Err(reason) => ledger.miss(statement, reason, "write the addresses in `secondaries`"),
            },
            _ => {
                ledger.keep(statement);
                shared.dnssec = zone::dnssec(statement, shared).or(shared.dnssec.take());
            }
        }
    }
}

/// Whether a statement asks for recursion.
fn is_recursive(statement: &Statement) -> bool {
    match statement.name() {
        "recursion" => statement.argument(0) == "yes",
        "allow-recursion" => statement.block().iter().any(|client| client.name() != "none"),
        _ => false,
    }
}

fn listen(statement: &Statement, default_port: u16, shared: &Shared<'_>, model: &mut Model, ledger: &mut Ledger) {
    if after(statement, "tls").is_some_and(|tls| tls != "none") || after(statement, "http").is_some() {
        let nearest = "add `certificate` to a domain, and `tls` to [dns] or `doh` to the domain";
        return ledger.miss(statement, "certificates belong to a domain", nearest);
    }
    let port = after(statement, "port").and_then(|text| text.parse().ok()).unwrap_or(default_port);
    let is_v6 = statement.name() == "listen-on-v6";
    match shared.lists.clients(statement.block()) {
        Ok(clients) => {
            ledger.keep_all(statement);
            let all = if is_v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
            for client in clients {
                let address = match client {
                    Client::Any => Some(all),
                    Client::Network(network) => network.parse::<IpAddr>().ok(),
                    Client::Key(_) => None,
                };
                match address {
                    Some(address) if address.is_ipv6() == is_v6 => model.dns.add(SocketAddr::new(address, port)),
                    Some(_) => {}
                    None => ledger.miss(
                        statement,
                        "the server listens on addresses, not on networks",
                        "write the addresses",
                    ),
                }
            }
        }
        Err(reason) => ledger.miss(statement, reason, "write the addresses in `listen` of [dns]"),
    }
}

fn text(statement: &Statement, model: &mut Model, ledger: &mut Ledger) {
    ledger.keep(statement);
    let key = if statement.name() == "version" { "version" } else { "nsid" };
    let value = statement.argument(0);
    let is_special = matches!(value, "none" | "hostname" | "") || value.len() > 128 || !value.is_ascii();
    if value == "hostname" {
        return ledger.miss(statement, "the name of the machine is not looked up", "write it in `nsid`");
    }
    if !is_special {
        model.dns_keys.push((key, value.into()));
    }
}

fn rate_limit(statement: &Statement, shared: &Shared<'_>, model: &mut Model, ledger: &mut Ledger) {
    ledger.keep(statement);
    for option in statement.nested() {
        ledger.keep_all(option);
        let mut limit = |key, max| set_limit(option, key, 0..=max, model, ledger);
        match option.name() {
            "responses-per-second" => limit("dns_udp_replies_per_second_max", 1_000_000),
            "errors-per-second" => limit("dns_udp_errors_per_second_max", 1_000_000),
            "slip" => limit("dns_udp_slip", 1_000),
            "log-only" => {
                let is_dry = Value::Boolean(option.argument(0) == "yes");
                model.dns_keys.push(("rate_limit_dry_run", is_dry));
            }
            "exempt-clients" => match shared.lists.clients(option.block()) {
                Ok(clients) => {
                    let networks: Vec<String> = clients
                        .into_iter()
                        .filter_map(|client| match client {
                            Client::Network(network) => Some(network),
                            _ => None,
                        })
                        .collect();
                    if !networks.is_empty() {
                        model.dns_keys.push(("rate_limit_exempt", Value::texts(networks)));
                    }
                }
                Err(reason) => ledger.miss(option, reason, "write the networks in `rate_limit_exempt`"),
            },
            "window" | "qps-scale" | "ipv4-prefix-length" | "ipv6-prefix-length" | "max-table-size"
            | "min-table-size" => {}
            "referrals-per-second" | "nodata-per-second" | "nxdomains-per-second" | "all-per-second" => {
                let reason = "one limit applies to all answers with data";
                ledger.differ(option, reason, "set `dns_udp_replies_per_second_max`");
            }
            _ => ledger.miss(option, "the option has no key", "see the limits that begin with `dns_udp_`"),
        }
    }
}

/// `catalog-zones { zone "NAME" default-primaries { … }; }`.
fn catalogs(statement: &Statement, shared: &mut Shared<'_>, ledger: &mut Ledger) {
    ledger.keep(statement);
    for zone in statement.nested() {
        ledger.keep_all(zone);
        let Some(name) = zone_name(zone.argument(0)) else { continue };
        let has_list = zone.arguments.iter().any(|word| matches!(&*word.text, "default-primaries" | "default-masters"));
        let list = Statement { name: zone.name.clone(), arguments: Vec::new(), blocks: zone.blocks.clone() };
        let primaries = if has_list { shared.lists.peers(&list) } else { Ok(Vec::new()) };
        match primaries {
            Ok(primaries) => drop(shared.catalogs.insert(name, primaries)),
            Err(reason) => ledger.miss(zone, reason, "write the addresses in `primaries` of [catalog]"),
        }
    }
}

/// `logging { … }`: only the log of queries.
pub(super) fn logging(statement: &Statement, shared: &Shared<'_>, model: &mut Model, ledger: &mut Ledger) {
    ledger.keep_all(statement);
    let is_queries = |it: &&Statement| it.name() == "category" && it.argument(0) == "queries";
    let Some(category) = statement.nested().find(is_queries) else { return };
    let is_channel =
        |it: &&Statement| it.name() == "channel" && category.block().iter().any(|name| name.name() == it.argument(0));
    let Some(channel) = statement.nested().find(is_channel) else { return };
    if let Some(file) = channel.find("file") {
        model.log.push(("queries", shared.path(file.argument(0)).into()));
        let size = after(file, "size").map(str::to_ascii_lowercase);
        let size = size.as_deref().and_then(|size| size.strip_suffix('m')).and_then(|size| size.parse::<u64>().ok());
        if let Some(size) = size.filter(|size| (1..=1_048_576).contains(size)) {
            model.log.push(("rotate", format!("{size}MiB").into()));
        }
        let versions = after(file, "versions").and_then(|text| text.parse().ok());
        model
            .log
            .extend(versions.filter(|count| (1..=1_000).contains(count)).map(|count| ("keep", Value::Number(count))));
    } else if channel.find("syslog").is_some() {
        model.log.push(("queries", "syslog".into()));
    }
}
