//! Makes a model of named.conf.

mod options;
mod zone;
mod signing;
mod lists;
mod table;

use crate::ledger::Ledger;
use crate::model::{Model, Peer};
use crate::settings::in_directory;
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::toml_text::Value;
use crate::zone_rules::{self, SourceKey, Transfers};
use lists::{Client, Lists};
use std::collections::HashMap;

pub(crate) use signing::seconds;
pub(crate) use table::TABLE;

/// The lists and policies that zones refer to, and the values that they have unless they have their own.
pub(super) struct Shared<'s> {
    lists: Lists<'s>,
    /// The values of `dnssec` by the names of their policies.
    policies: HashMap<&'s str, Value>,
    directory: String,
    transfers: Transfers,
    dnssec: Option<Value>,
    /// The catalogs that this server reads, with their primaries if `catalog-zones` names them.
    catalogs: HashMap<String, Vec<Peer>>,
}

impl Shared<'_> {
    /// The path of a file, with the directory that it is relative to.
    fn path(&self, file: &str) -> String {
        in_directory(&self.directory, file.to_owned())
    }
}

/// Adds all zones to the model.
pub(crate) fn interpret(statements: &[Statement], model: &mut Model, ledger: &mut Ledger) {
    let statements = &without_view(statements, ledger);
    let policies = statements.iter().filter(|it| it.name() == "dnssec-policy" && !it.blocks.is_empty());
    let mut shared = Shared {
        lists: Lists::new(statements.iter().copied()),
        policies: policies.map(|it| (it.argument(0), signing::policy(it))).collect(),
        directory: String::new(),
        transfers: Transfers::default(),
        dnssec: None,
        catalogs: HashMap::new(),
    };
    for statement in statements.iter().filter(|it| it.name() == "options") {
        ledger.keep(statement);
        options::read(statement, &mut shared, model, ledger);
    }
    let has_options = statements.iter().any(|it| it.name() == "options");
    let mut keys = Vec::new();
    for &statement in statements {
        match statement.name() {
            "options" => {}
            "acl" | "primaries" | "masters" | "remote-servers" | "parental-agents" => ledger.keep_all(statement),
            "zone" => zone::read(statement, &shared, model, ledger),
            "key" => {
                let argument = |name: &str| statement.find(name).map_or("", |it| it.argument(0));
                keys.push(SourceKey { name: statement.argument(0), algorithm: argument("algorithm"), statement });
            }
            "server" => {
                ledger.keep(statement);
                for option in statement.nested() {
                    match option.name() {
                        "keys" => ledger.keep_all(option),
                        _ => ledger.miss(option, "other servers have only a key and an address", "nothing is needed"),
                    }
                }
            }
            "logging" => options::logging(statement, &shared, model, ledger),
            "dnssec-policy" => ledger.keep_all(statement),
            _ => {
                has_keys(TABLE, "top", statement, ledger);
            }
        }
    }
    for (name, address) in [("listen-on", "0.0.0.0:53"), ("listen-on-v6", "[::]:53")] {
        let is_set = statements.iter().filter(|it| it.name() == "options").any(|it| it.find(name).is_some());
        if let Some(address) = address.parse().ok().filter(|_| has_options && !is_set) {
            model.dns.add(address);
        }
    }
    zone_rules::add_keys(&keys, model, ledger);
    zone_rules::finish(model);
}

/// The statements of a single view for everyone in place of it. Several views are reported.
fn without_view<'s>(statements: &'s [Statement], ledger: &mut Ledger) -> Vec<&'s Statement> {
    let mut views = statements.iter().filter(|it| it.name() == "view");
    let is_open = |view: &Statement| {
        view.find("match-clients").is_none_or(|it| it.block().iter().any(|client| client.name() == "any"))
            && view.find("match-destinations").is_none()
    };
    let single = views.next().filter(|view| is_open(view)).filter(|_| views.next().is_none());
    let mut all = Vec::new();
    for statement in statements {
        if statement.name() != "view" {
            all.push(statement);
        } else if single.is_some() {
            ledger.keep(statement);
            for nested in statement.nested() {
                match nested.name() {
                    "match-clients" | "match-destinations" | "match-recursive-only" => ledger.keep_all(nested),
                    "zone" | "key" | "acl" => all.push(nested),
                    // Other statements of a view are those of options.
                    _ if has_keys(TABLE, "options", nested, ledger) => {
                        ledger.miss(nested, "a view cannot have its own options", "move the statement into `options`");
                    }
                    _ => {}
                }
            }
        } else {
            let reason = "all clients get the same zones";
            ledger.miss(statement, reason, "run a server for each view, on other addresses");
        }
    }
    all
}

/// Clients as rules of `transfer_allow`.
fn allowed(clients: Vec<Client>) -> Vec<Peer> {
    let mut peers = Vec::new();
    for client in clients {
        match client {
            Client::Any => peers.extend(Peer::any()),
            Client::Network(network) => peers.push(Peer { address: Some(network), key: None }),
            Client::Key(key) => peers.push(Peer { address: None, key: Some(key) }),
        }
    }
    peers
}
