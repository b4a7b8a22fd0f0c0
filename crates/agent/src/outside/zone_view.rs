//! A zone as other machines see it: its delegation, its DS records, and the answers of its name servers.

use super::parent_view::{Delegation, DsView, ParentView, ask_parents, common_delegation, ds_text, first_known};
use crate::caa::{self, Issuance};
use crate::dns_exchange::{ExchangeError, REPLY_TIMEOUT, can_connect, exchange};
use crate::name_servers::{Answer, NameServer, NameServers, host_text};
use crate::parent_servers::ParentServers;
use sanderling_config::diagnostic::error_text;
use sanderling_config::{Config, DomainName, NameValidation, ValidationMethod};
use sanderling_dns::client::{QueryKind, Reply};
use sanderling_dns::rdata;
use sanderling_dns::{Name, NameBuf, Rtype};
use sanderling_dnssec::zone_keys::CDS_DELETE;
use sanderling_zone_files::wire_name;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Why nothing is known if no server is found.
const NO_PARENTS: &str = "the parent zone has no servers";
/// Queries to a server that does not answer: a datagram may be lost.
const ATTEMPTS: usize = 2;
/// Where the expiration is in a RRSIG record (RFC 4034 §3.1).
const EXPIRATION_START: usize = 8;

/// A zone.
#[derive(Debug)]
pub struct ZoneView {
    /// Its name.
    pub apex: DomainName,
    /// The answers of this server, or why there are none.
    pub own: Result<OwnAnswers, String>,
    /// The delegation in the parent zone, or why it is not known: that of the first server which shows one.
    pub delegation: Result<Delegation, String>,
    /// The DS records of the parent zone, or why they are not known: those of the first server which answers.
    pub parent_ds: Result<Vec<DsView>, String>,
    /// The answers of all servers of the parent zone.
    pub parents: Vec<ParentView>,
    /// The name servers, each at each of its addresses.
    pub servers: Vec<ServerView>,
    /// Name servers without a known address, and why.
    pub without_address: Vec<String>,
    /// The authorities that CAA records forbid.
    pub forbidden: Vec<CaaView>,
}

/// The answers of this server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnAnswers {
    /// The version.
    pub serial: u32,
    /// The name servers of its NS records, in lower case, without a dot at the end.
    pub servers: Vec<String>,
    /// The addresses of those that are in the zone.
    pub addresses: Vec<(String, IpAddr)>,
    /// Whether it has DNSKEY records.
    pub has_keys: bool,
    /// The DS records that the parent zone should have (CDS, RFC 7344), as text for the registrar. None while the keys
    /// are not ready.
    pub wanted_ds: Vec<String>,
}

/// A name server at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// Its name.
    pub host: String,
    /// Its address.
    pub address: SocketAddr,
    /// Its answer over UDP.
    pub answer: ServerAnswer,
    /// Why it accepts no connection over TCP.
    pub tcp_problem: Option<String>,
}

/// The answer of a name server to a query for the SOA record of the zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAnswer {
    /// The version, and when the signature that expires first expires, in seconds since 1970; `None` without one.
    Soa {
        /// The version.
        serial: u32,
        /// When.
        expires_unix_s: Option<u32>,
    },
    /// None, or the network reports an error.
    Silent(String),
    /// No way leads from this machine to the address.
    NoRoute,
    /// It does not serve the zone.
    Lame(String),
}

/// An authority that may not issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaaView {
    /// The authority.
    pub authority: String,
    /// Why.
    pub problem: String,
    /// The remedy.
    pub remedy: &'static str,
}

/// The means to look at zones.
pub(super) struct ZoneLook {
    pub(super) name_servers: NameServers,
    pub(super) parent_servers: ParentServers,
    /// The servers of the parent zone, if they were given.
    pub(super) parents: Vec<SocketAddr>,
    /// Permits to ask servers of parent zones.
    pub(super) parent_queries: Rc<Semaphore>,
    pub(super) config: Rc<Config>,
}

impl ZoneLook {
    pub(super) async fn at(&self, apex: DomainName) -> ZoneView {
        let name = wire_name(&apex);
        let keys = self.own_records(name.as_name(), Rtype::DNSKEY).await.unwrap_or_default();
        let mut without_address = Vec::new();
        let servers = self.name_servers.all_of(&apex, &mut without_address).await.unwrap_or_default();
        let mut tasks = JoinSet::new();
        for (index, server) in servers.into_iter().enumerate() {
            tasks.spawn_local(async move { (index, look_at_server(server, name).await) });
        }
        let servers = super::in_order(tasks).await;
        let (parents, no_answer) = match self.parents_of(&apex).await {
            Ok(servers) => (ask_parents(servers, &name, &keys, &self.parent_queries).await, NO_PARENTS.to_owned()),
            Err(problem) => (Vec::new(), problem),
        };
        let delegation = common_delegation(&parents).unwrap_or_else(|| Err(no_answer.clone()));
        let parent_ds = first_known(parents.iter().map(|parent| &parent.ds)).unwrap_or(Err(no_answer));
        let own = self.own_answers(name.as_name(), !keys.is_empty()).await;
        let forbidden = self.forbidden(&apex).await;
        ZoneView { own, delegation, parent_ds, parents, servers, without_address, forbidden, apex }
    }

    /// The servers of the parent zone.
    async fn parents_of(&self, apex: &DomainName) -> Result<Vec<SocketAddr>, String> {
        let configured = self.config.signed_zone(apex).map_or(&[][..], |zone| &zone.signing.parent_servers);
        match (self.parents.as_slice(), configured) {
            ([], []) => self.parent_servers.find(wire_name(apex).as_name()).await,
            ([], configured) => Ok(configured.to_vec()),
            (given, _) => Ok(given.to_vec()),
        }
    }

    async fn own_records(&self, name: Name<'_>, rtype: Rtype) -> Result<Vec<Vec<u8>>, String> {
        self.name_servers.ask_self(name, rtype, name).await.map(Answer::into_records)
    }

    async fn own_answers(&self, apex: Name<'_>, has_keys: bool) -> Result<OwnAnswers, String> {
        let soa = self.own_records(apex, Rtype::SOA).await?;
        let serial = soa.first().and_then(|soa| rdata::serial_of(soa)).ok_or("it has no SOA record of the zone")?;
        let mut own = OwnAnswers { serial, has_keys, ..OwnAnswers::default() };
        for target in self.own_records(apex, Rtype::NS).await? {
            let Ok(host) = Name::parse(&target) else { continue };
            own.servers.push(host_text(host));
            if host.is_at_or_below(apex) {
                let addresses = self.name_servers.addresses_of(host, apex).await.unwrap_or_default();
                own.addresses.extend(addresses.into_iter().map(|address| (host_text(host), address)));
            }
        }
        let wanted = self.own_records(apex, Rtype::CDS).await?;
        let wanted = wanted.iter().filter(|rdata| **rdata != CDS_DELETE);
        own.wanted_ds = wanted.map(|rdata| ds_text(rdata)).collect();
        Ok(own)
    }

    /// The authorities of the configuration that CAA records of the zone forbid.
    async fn forbidden(&self, apex: &DomainName) -> Vec<CaaView> {
        let mut forbidden = Vec::new();
        let Some(acme) = &self.config.acme else { return forbidden };
        let validation = NameValidation::new(&self.config);
        let names = self.config.automatic_certificates().flat_map(|certificate| &certificate.names);
        let in_zone = names.filter(|name| wire_name(name).as_name().is_at_or_below(wire_name(apex).as_name()));
        for name in in_zone {
            for authority in &acme.authorities {
                let (Some(caa), Ok(method)) = (&authority.caa, validation.of(name.as_str(), false)) else { continue };
                let method = if method == ValidationMethod::Dns { "dns-01" } else { "http-01" };
                // The account is in the state folder, which this process may not read.
                let issuance = Issuance { authority: caa, account: None, method };
                let found = caa::problem(&self.name_servers, name.as_str(), apex, issuance).await;
                forbidden.extend(found.map(|(problem, remedy)| CaaView {
                    authority: authority.name.clone(),
                    problem,
                    remedy,
                }));
            }
        }
        forbidden
    }
}

async fn look_at_server(server: NameServer, apex: NameBuf) -> ServerView {
    let mut answer = ServerAnswer::NoRoute;
    for _ in 0..ATTEMPTS {
        answer = ask_for_soa(server.address(), apex.as_name()).await;
        if !matches!(answer, ServerAnswer::Silent(_)) {
            break;
        }
    }
    let tcp_problem = match answer {
        ServerAnswer::NoRoute => None,
        _ => can_connect(server.address()).await.err().map(|error| error_text(&error)),
    };
    ServerView { host: server.host().to_owned(), address: server.address(), answer, tcp_problem }
}

async fn ask_for_soa(server: SocketAddr, apex: Name<'_>) -> ServerAnswer {
    let read = |reply: &Reply<'_>| {
        let serial = reply.soa(apex)?.serial;
        let expiration = |rrsig: &Vec<u8>| {
            let covered = rrsig.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
            let expiration = rrsig.get(EXPIRATION_START..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
            expiration.filter(|_| covered == Some(Rtype::SOA.0))
        };
        let expires_unix_s = reply.records(apex, Rtype::RRSIG)?.iter().filter_map(expiration).min();
        Ok(ServerAnswer::Soa { serial, expires_unix_s })
    };
    let answer = exchange(server, (QueryKind::SignedRecords(Rtype::SOA), apex), None, REPLY_TIMEOUT, read).await;
    answer.unwrap_or_else(|error| match error {
        error if error.is_unreachable() => ServerAnswer::NoRoute,
        ExchangeError::Reply(error) => ServerAnswer::Lame(error.to_string()),
        ExchangeError::Network(error) => ServerAnswer::Silent(error_text(&error)),
        ExchangeError::NoAnswer => ServerAnswer::Silent(format!("nothing arrives in {} s", REPLY_TIMEOUT.as_secs())),
    })
}
