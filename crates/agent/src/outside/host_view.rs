//! A host of a site as other machines see it: its addresses, and the connections that they accept.

use super::presented_chain::{ChainReader, Presented};
use crate::name_servers::{Answer, NameServers};
use crate::resolvers::{Records, Resolvers};
use sanderling_config::diagnostic::error_text;
use sanderling_config::{Config, DomainName, Service, zone_of};
use sanderling_dns::Rtype;
use sanderling_zone_files::wire_name;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time for a connection, and for its handshake.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(3);
/// Addresses of a host that are looked at.
const ADDRESSES_MAX: usize = 16;
/// Connections at the same time, of all hosts.
const CONNECTIONS_MAX: usize = 128;

/// A host.
#[derive(Debug)]
pub struct HostView {
    /// Its name.
    pub host: DomainName,
    /// Whether the server requests its certificate.
    pub is_automatic: bool,
    /// Its addresses, or why they are not known.
    pub addresses: Result<Vec<IpAddr>, String>,
    /// Those that a resolver finds, if its addresses are those in a zone of this server.
    pub resolved: Option<Result<Vec<IpAddr>, String>>,
    /// Further addresses, which were left out.
    pub left_out_count: usize,
    /// The connections to them.
    pub connections: Vec<ConnectionView>,
}

/// A connection to an address of a host.
#[derive(Debug)]
pub struct ConnectionView {
    /// HTTP or HTTPS.
    pub service: Service,
    /// The address.
    pub address: SocketAddr,
    /// The result.
    pub connection: Connection,
}

/// The result of a connection.
#[derive(Debug)]
pub enum Connection {
    /// It was accepted, without TLS.
    Accepted,
    /// It was accepted, and the server has presented its certificate.
    Encrypted(Presented),
    /// It was accepted, and there is no TLS: why.
    NotEncrypted(String),
    /// It was not accepted: why.
    Failed(String),
    /// No way leads from this machine to the address.
    NoRoute,
}

/// The means to look at hosts.
pub(super) struct HostLook {
    name_servers: NameServers,
    resolvers: Resolvers,
    reader: ChainReader,
    connections: Semaphore,
    config: Rc<Config>,
}

impl HostLook {
    pub(super) fn new(config: Rc<Config>) -> HostLook {
        let authorities = config.acme.iter().flat_map(|acme| &acme.authorities);
        let roots: Vec<_> = authorities.filter_map(|authority| authority.root.as_deref()).collect();
        HostLook {
            name_servers: NameServers::new(Rc::clone(&config)),
            resolvers: Resolvers::new(&config),
            reader: ChainReader::new(&roots),
            connections: Semaphore::new(CONNECTIONS_MAX),
            config,
        }
    }

    pub(super) async fn at(self: Rc<Self>, host: DomainName) -> HostView {
        let (own, mut found) = tokio::join!(self.own_addresses(&host), self.resolve(&host));
        if let Ok(found) = &mut found
            && own.is_some()
        {
            found.truncate(ADDRESSES_MAX);
        }
        let (mut addresses, resolved) = match own {
            Some(own) => (own, Some(found)),
            None => (found, None),
        };
        let left_out_count = addresses.as_ref().map_or(0, |found| found.len().saturating_sub(ADDRESSES_MAX));
        if let Ok(found) = &mut addresses {
            found.truncate(ADDRESSES_MAX);
        }
        let mut tasks = JoinSet::new();
        let services = [Service::Http, Service::Https];
        let places = addresses.iter().flatten().flat_map(|address| services.map(|service| (*address, service)));
        for (index, (ip, service)) in places.enumerate() {
            let Some(port) = self.config.listen(service).iter().map(SocketAddr::port).find(|port| *port != 0) else {
                continue;
            };
            let (look, host, address) = (Rc::clone(&self), host.clone(), SocketAddr::new(ip, port));
            tasks.spawn_local(async move {
                let _permit = look.connections.acquire().await.expect("the semaphore is never closed");
                let connection = look.connect(address, service, &host).await;
                (index, ConnectionView { service, address, connection })
            });
        }
        let is_automatic = self.config.automatic_certificates().any(|certificate| certificate.names.contains(&host));
        let connections = super::in_order(tasks).await;
        HostView { host, is_automatic, addresses, resolved, left_out_count, connections }
    }

    /// The addresses in a zone of this server; `None` if they are in none.
    async fn own_addresses(&self, host: &DomainName) -> Option<Result<Vec<IpAddr>, String>> {
        let (name, apex) = (wire_name(host), wire_name(zone_of(host.as_str(), self.config.apexes())?));
        let mut addresses = Vec::new();
        for rtype in [Rtype::A, Rtype::AAAA] {
            match self.name_servers.ask_self(name.as_name(), rtype, apex.as_name()).await {
                Ok(Answer::Records(rdatas)) => addresses.extend(Records { rdatas, ttl_s: None }.addresses()),
                Ok(Answer::Alias | Answer::Referral) => return None,
                Err(problem) => return Some(Err(problem)),
            }
        }
        Some(Ok(addresses))
    }

    /// The addresses that a resolver finds, as other machines do.
    async fn resolve(&self, host: &DomainName) -> Result<Vec<IpAddr>, String> {
        let (name, mut addresses) = (wire_name(host), Vec::new());
        for rtype in [Rtype::A, Rtype::AAAA] {
            addresses.extend(self.resolvers.resolve(name.as_name(), rtype).await?.addresses());
        }
        Ok(addresses)
    }

    async fn connect(&self, address: SocketAddr, service: Service, host: &DomainName) -> Connection {
        let stream = match timeout(CONNECTION_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if error.kind() == io::ErrorKind::NetworkUnreachable => return Connection::NoRoute,
            Ok(Err(error)) => return Connection::Failed(error_text(&error)),
            Err(_) => {
                return Connection::Failed(format!("it does not answer within {} s", CONNECTION_TIMEOUT.as_secs()));
            }
        };
        if !service.is_encrypted() {
            return Connection::Accepted;
        }
        match timeout(CONNECTION_TIMEOUT, self.reader.read(stream, host.as_str())).await {
            Ok(Ok(presented)) => Connection::Encrypted(presented),
            Ok(Err(problem)) => Connection::NotEncrypted(problem),
            Err(_) => Connection::NotEncrypted("the handshake takes too long".to_owned()),
        }
    }
}
