//! Lists of addresses and of servers in named.conf.

use crate::model::Peer;
use crate::networks::{network, peer_text};
use crate::syntax::Statement;
use crate::zone_rules::key_name;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// Lists within lists.
const DEPTH_MAX: usize = 16;
/// Entries of all lists that a list names.
const ENTRIES_MAX: usize = 10_000;

/// The lists with a name.
#[derive(Default)]
pub(super) struct Lists<'s> {
    acls: HashMap<&'s str, &'s Statement>,
    servers: HashMap<&'s str, &'s Statement>,
    /// The keys of `server`, by the address.
    keys: HashMap<IpAddr, String>,
}

/// A client of an address match list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Client {
    Any,
    Network(String),
    Key(String),
}

impl<'s> Lists<'s> {
    /// Those among these statements.
    pub(super) fn new(statements: impl Iterator<Item = &'s Statement>) -> Lists<'s> {
        let mut lists = Lists::default();
        for statement in statements {
            match statement.name() {
                "acl" => drop(lists.acls.insert(statement.argument(0), statement)),
                "primaries" | "masters" | "remote-servers" | "parental-agents" => {
                    lists.servers.insert(statement.argument(0), statement);
                }
                "server" => {
                    let key =
                        statement.find("keys").map(|it| it.block().first().map_or(it.argument(0), |it| it.name()));
                    if let (Ok(address), Some(key)) = (statement.argument(0).parse(), key) {
                        lists.keys.insert(address, key_name(key));
                    }
                }
                _ => {}
            }
        }
        lists
    }

    /// The clients of the list in a block.
    ///
    /// # Errors
    /// The entry that cannot be expressed.
    pub(super) fn clients(&self, block: &[Statement]) -> Result<Vec<Client>, String> {
        let mut clients = Vec::new();
        self.add_clients(block, &mut clients, 0)?;
        Ok(clients)
    }

    fn add_clients(&self, block: &[Statement], clients: &mut Vec<Client>, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX || clients.len() > ENTRIES_MAX {
            return Err("the lists are too large".to_owned());
        }
        for entry in block {
            match entry.name() {
                "!" => {
                    let what = entry.argument(0);
                    return Err(format!("a list has no exceptions, such as `! {what}`"));
                }
                "any" => clients.push(Client::Any),
                "none" => {}
                "localhost" => clients.extend(["127.0.0.1", "::1"].map(|it| Client::Network(it.to_owned()))),
                "localnets" => return Err("the networks of this machine have no name".to_owned()),
                "key" => clients.push(Client::Key(key_name(entry.argument(0)))),
                "" => self.add_clients(entry.block(), clients, depth + 1)?,
                name => match (network(name), self.acls.get(name)) {
                    (Some(network), _) => clients.push(Client::Network(network)),
                    (None, Some(acl)) => self.add_clients(acl.block(), clients, depth + 1)?,
                    (None, None) => return Err(format!("`{name}` is neither an IP address or network nor a list")),
                },
            }
        }
        Ok(())
    }

    /// The servers of a list, which has these arguments before its block.
    ///
    /// # Errors
    /// The entry that cannot be expressed.
    pub(super) fn servers(&self, list: &Statement) -> Result<Vec<(SocketAddr, Option<String>)>, String> {
        let mut servers = Vec::new();
        self.add_servers(list, 53, &mut servers, 0)?;
        Ok(servers)
    }

    fn add_servers(
        &self,
        list: &Statement,
        port: u16,
        servers: &mut Vec<(SocketAddr, Option<String>)>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > DEPTH_MAX || servers.len() > ENTRIES_MAX {
            return Err("the lists are too large".to_owned());
        }
        let port = after(list, "port").and_then(|text| text.parse().ok()).unwrap_or(port);
        for entry in list.block() {
            if after(entry, "tls").is_some_and(|tls| tls != "none") {
                return Err("zones are transferred over TCP without TLS".to_owned());
            }
            let key = after(entry, "key").map(key_name);
            match (entry.name().parse::<IpAddr>(), self.servers.get(entry.name())) {
                (Ok(address), _) => {
                    let port = after(entry, "port").and_then(|text| text.parse().ok()).unwrap_or(port);
                    let key = key.or_else(|| self.keys.get(&address).cloned());
                    servers.push((SocketAddr::new(address, port), key));
                }
                (Err(_), Some(list)) => self.add_servers(list, port, servers, depth + 1)?,
                (Err(_), None) => return Err(format!("`{}` is neither an IP address nor a list", entry.name())),
            }
        }
        Ok(())
    }

    /// The servers of a list as peers.
    ///
    /// # Errors
    /// The entry that cannot be expressed.
    pub(super) fn peers(&self, list: &Statement) -> Result<Vec<Peer>, String> {
        let servers = self.servers(list)?;
        Ok(servers.into_iter().map(|(address, key)| Peer { address: Some(peer_text(address)), key }).collect())
    }
}

/// The argument after `word`.
pub(super) fn after<'t>(statement: &'t Statement, word: &str) -> Option<&'t str> {
    let at = statement.arguments.iter().position(|it| it.text == word)?;
    statement.arguments.get(at + 1).map(|it| it.text.as_str())
}
