//! Reads `options` and `logging` of named.conf.

use super::lists::{Client, after};
use super::{Shared, TABLE, allowed, zone};
use crate::ledger::Ledger;
use crate::model::Model;
use crate::settings::set_limit;
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::toml_text::Value;
use crate::zone_rules::zone_name;
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
        let value = statement.argument(0);
        match statement.name() {
            "directory" => ledger.keep(statement),
            "listen-on" | "listen-on-v6" => listen(statement, default_port, shared, model, ledger),
            "version" | "server-id" => text(statement, model, ledger),
            "rate-limit" => rate_limit(statement, shared, model, ledger),
            "catalog-zones" => catalogs(statement, shared, ledger),
            "querylog" => ledger.keep(statement),
            "tcp-clients" => set_limit(statement, value, "dns_tcp_connections_max", 1..=1_000_000, model, ledger),
            "transfers-in" => set_limit(statement, value, "zone_transfers_in_max", 1..=1_000, model, ledger),
            "transfers-out" => set_limit(statement, value, "dns_transfers_max", 0..=10_000, model, ledger),
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
        return ledger.miss(statement, "the host name of the machine is not looked up", "write it in `nsid`");
    }
    if !is_special {
        model.dns_keys.push((key, value.into()));
    }
}

fn rate_limit(statement: &Statement, shared: &Shared<'_>, model: &mut Model, ledger: &mut Ledger) {
    ledger.keep(statement);
    for option in statement.nested() {
        ledger.keep_all(option);
        let mut limit = |key, max| set_limit(option, option.argument(0), key, 0..=max, model, ledger);
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
            _ => ledger.miss(option, "no key corresponds to this option", "see the limits that begin with `dns_udp_`"),
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
        let rotate = after(file, "size").map(rotation);
        let keep = after(file, "versions").map(|text| text.parse().ok().filter(|count| (1..=1_000).contains(count)));
        match (rotate, keep) {
            (None, None) => {}
            (Some(Some(size)), None) => model.log.push(("rotate", size.into())),
            (Some(Some(size)), Some(Some(count))) => {
                model.log.extend([("rotate", size.into()), ("keep", Value::Number(count))]);
            }
            _ => ledger.differ(file, "the log is not rotated", "set `rotate` and `keep` in [log]"),
        }
    } else if channel.find("syslog").is_some() {
        model.log.push(("queries", "syslog".into()));
    }
}

/// A size of BIND, such as `10m`, in the form of the configuration.
fn rotation(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|next: char| next.is_ascii_alphabetic());
    let (unit, factor) = match &text[digits.len()..] {
        "k" | "kb" => ("KiB", 1 << 10),
        "m" | "mb" => ("MiB", 1 << 20),
        "g" | "gb" => ("GiB", 1 << 30),
        "" => ("B", 1),
        _ => return None,
    };
    let size: u64 = digits.parse().ok()?;
    (1 << 10..=1 << 40).contains(&size.checked_mul(factor)?).then(|| format!("{size}{unit}"))
}
