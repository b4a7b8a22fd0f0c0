//! Reads a `zone` of named.conf.

use super::lists::Client;
use super::{Shared, TABLE, allowed, signing};
use crate::ledger::Ledger;
use crate::model::{Catalog, Domain, Model};
use crate::syntax::Statement;
use crate::table::has_keys;
use crate::toml_text::Value;
use crate::zone_rules::{Transfers, is_first, zone_name};

/// Adds the zone to the model.
pub(super) fn read(statement: &Statement, shared: &Shared<'_>, model: &mut Model, ledger: &mut Ledger) {
    let kind = statement.find("type").map_or("", |it| it.argument(0)).to_ascii_lowercase();
    let Some(name) = zone_name(statement.argument(0)) else {
        return ledger.miss(statement, "this is not the name of a zone", "write the name");
    };
    match kind.as_str() {
        // The list of root servers is for recursion.
        "hint" => return ledger.keep_all(statement),
        "primary" | "master" | "secondary" | "slave" => ledger.keep(statement),
        "forward" | "stub" | "static-stub" | "mirror" | "redirect" | "delegation-only" => {
            let reason = "the server answers for its own zones only";
            return ledger.miss(statement, reason, "run a resolver such as unbound on another address");
        }
        "" if statement.find("in-view").is_some() => {
            return ledger.miss(statement, "all clients get the same zones", "write the zone once");
        }
        _ => return ledger.miss(statement, "the type of the zone is missing or unknown", "write `type primary`"),
    }
    if !is_first(&name, statement, model, ledger) {
        return;
    }
    let is_primary = matches!(kind.as_str(), "primary" | "master");
    let domain = Domain { at: statement.name.at, names: vec![name.clone()], ..Domain::default() };
    let transfers = shared.transfers.clone();
    let (has_own_allow, has_own_notify) =
        (statement.find("allow-transfer").is_some(), statement.find("also-notify").is_some());
    let mut reader = Reader { domain, transfers, shared, ledger, name: &name, is_primary };
    if has_own_allow {
        reader.transfers.allow.clear();
    }
    if has_own_notify {
        reader.transfers.notify.clear();
    }
    if let Some(dnssec) = shared.dnssec.clone().filter(|_| is_primary) {
        reader.domain.set("dnssec", dnssec);
    }
    statement.nested().for_each(|nested| reader.directive(nested));
    let Reader { mut domain, transfers, .. } = reader;
    // Zones without their own rules have those of [dns].
    let has_own = has_own_allow || has_own_notify || !shared.transfers.notify.is_empty();
    if has_own {
        let notify = statement.find("also-notify").unwrap_or(statement);
        (domain.secondaries, domain.transfer_allow) = transfers.split(notify, ledger);
    }
    if let Some(primaries) = shared.catalogs.get(&name) {
        let primaries = if primaries.is_empty() { domain.primaries } else { primaries.clone() };
        if primaries.is_empty() {
            return ledger.miss(statement, "the catalog has no primaries", "write them in [catalog]");
        }
        model.catalogs.push(Catalog { name, primaries, secondaries: domain.secondaries });
    } else if domain.zone.is_none() && domain.primaries.is_empty() {
        ledger.miss(statement, "the zone has neither a file nor primaries", "add `zone` or `primaries`");
    } else {
        model.domains.push(domain);
    }
}

struct Reader<'r> {
    domain: Domain,
    transfers: Transfers,
    shared: &'r Shared<'r>,
    ledger: &'r mut Ledger,
    name: &'r str,
    is_primary: bool,
}

impl Reader<'_> {
    fn directive(&mut self, statement: &Statement) {
        if is_limited_query(statement, self.shared) {
            let reason = "queries are answered for everyone, so they are NOT restricted";
            return self.ledger.miss(statement, reason, "limit clients with a firewall, or run a server for them");
        }
        if !has_keys(TABLE, "zone", statement, self.ledger) {
            return;
        }
        match statement.name() {
            "type" => self.ledger.keep(statement),
            "file" => {
                self.ledger.keep(statement);
                if self.is_primary && !statement.argument(0).is_empty() {
                    self.domain.zone = Some(self.shared.path(statement.argument(0)));
                }
            }
            "primaries" | "masters" => match self.shared.lists.peers(statement) {
                Ok(peers) => {
                    self.ledger.keep_all(statement);
                    self.domain.primaries = peers;
                }
                Err(reason) => self.ledger.miss(statement, reason, "write the addresses in `primaries`"),
            },
            "allow-transfer" => match self.shared.lists.clients(statement.block()) {
                Ok(clients) => {
                    self.ledger.keep_all(statement);
                    self.transfers.allow = allowed(clients);
                }
                Err(reason) => self.ledger.miss(statement, reason, "write the networks and keys in `transfer_allow`"),
            },
            "also-notify" => match self.shared.lists.servers(statement) {
                Ok(servers) => {
                    self.ledger.keep_all(statement);
                    self.transfers.notify = servers;
                }
                Err(reason) => self.ledger.miss(statement, reason, "write the addresses in `secondaries`"),
            },
            "allow-update" => self.allow_update(statement),
            "update-policy" => self.update_policy(statement),
            _ => self.dnssec(statement),
        }
    }

    fn allow_update(&mut self, statement: &Statement) {
        let nearest = "write `update` with a key for the names and types that it may change";
        match self.shared.lists.clients(statement.block()) {
            Ok(clients) => {
                self.ledger.keep_all(statement);
                for client in clients {
                    match client {
                        Client::Key(key) if self.is_primary => self.domain.update.push(signing::update_all(&key)),
                        Client::Key(_) => {}
                        _ => return self.ledger.miss(statement, "an update must be signed with a key", nearest),
                    }
                }
            }
            Err(reason) => self.ledger.miss(statement, reason, nearest),
        }
    }

    fn update_policy(&mut self, statement: &Statement) {
        self.ledger.keep(statement);
        if statement.blocks.is_empty() {
            let nearest = "make a key with `openssl rand -base64 32`, and write `update`";
            return self.ledger.miss(statement, "there is no session key", nearest);
        }
        for grant in statement.nested() {
            match signing::update_rule(grant, self.name) {
                Some(rule) => {
                    self.ledger.keep(grant);
                    self.domain.update.push(rule);
                }
                None => {
                    let reason = "a rule of `update` lists the names and types that a key may change";
                    self.ledger.miss(grant, reason, "write the names and types in `update`");
                }
            }
        }
    }

    fn dnssec(&mut self, statement: &Statement) {
        let value = dnssec(statement, self.shared);
        self.ledger.keep(statement);
        if statement.name() == "dnssec-policy" && !self.is_primary && value == Some(Value::Boolean(true)) {
            self.domain.set("dnssec", Value::Boolean(true));
        } else if let Some(value) = value.filter(|_| self.is_primary) {
            // `inline-signing` says less than the policy.
            if statement.name() == "dnssec-policy" || self.domain.get("dnssec").is_none() {
                self.domain.set("dnssec", value);
            }
        } else if statement.argument(0) == "none" {
            self.domain.keys.retain(|(key, _)| *key != "dnssec");
        }
    }
}

/// The value of `dnssec` for a statement that says how a zone is signed.
pub(super) fn dnssec(statement: &Statement, shared: &Shared<'_>) -> Option<Value> {
    match (statement.name(), statement.argument(0)) {
        ("dnssec-policy", "none") => None,
        ("dnssec-policy", "insecure") => Some(Value::Boolean(false)),
        ("dnssec-policy", name) => Some(shared.policies.get(name).cloned().unwrap_or(Value::Boolean(true))),
        ("inline-signing", "yes") | ("auto-dnssec", "maintain") => Some(Value::Boolean(true)),
        _ => None,
    }
}

/// Whether queries are allowed for some clients only.
pub(super) fn is_limited_query(statement: &Statement, shared: &Shared<'_>) -> bool {
    let is_open = || matches!(shared.lists.clients(statement.block()), Ok(clients) if clients.contains(&Client::Any));
    statement.name() == "allow-query" && !is_open()
}
