//! The delegation and the DS records of a zone at each server of its parent zone. A server that has missed a change of
//! the parent zone sends some resolvers astray.

use crate::dns_exchange::{ExchangeError, RCODE_NXDOMAIN, REPLY_TIMEOUT, exchange};
use crate::name_servers::host_text;
use crate::parent_servers::ask_for_ds;
use crate::resolvers::address_of;
use sanderling_dns::client::{QueryKind, Referral, Reply, ReplyError};
use sanderling_dns::rdata::PresentationFormat;
use sanderling_dns::{Name, NameBuf, Rtype};
use sanderling_dnssec::Ds;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Maximum queried addresses of the parent zone's servers: top-level zones have up to 26.
const SERVERS_MAX: usize = 32;

/// The delegation of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delegation {
    /// The parent zone does not have the zone.
    None,
    /// The servers of the parent zone serve this zone too, so that they do not refer.
    Hidden,
    /// As in the zone.
    Servers {
        /// The name servers, in the form of those of the zone itself.
        servers: Vec<String>,
        /// Their addresses.
        glue: Vec<(String, IpAddr)>,
    },
}

/// A DS record of the parent zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DsView {
    /// `12345 13 2 ABCD…`.
    pub text: String,
    /// Whether it belongs to a DNSKEY record of this server.
    pub has_key: bool,
}

/// The answers of a server of the parent zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentView {
    /// Its address.
    pub server: SocketAddr,
    /// Its delegation, or why it is not known.
    pub delegation: Result<Delegation, String>,
    /// Its DS records, or why they are not known.
    pub ds: Result<Vec<DsView>, String>,
}

/// Asks all of `servers` at the same time, as far as there are permits in `queries`. The answers have the order of
/// `servers`; `keys` are the DNSKEY records of this server.
pub(super) async fn ask_parents(
    servers: Vec<SocketAddr>,
    apex: &NameBuf,
    keys: &[Vec<u8>],
    queries: &Rc<Semaphore>,
) -> Vec<ParentView> {
    let mut tasks = JoinSet::new();
    for (index, server) in servers.into_iter().take(SERVERS_MAX).enumerate() {
        let (apex, queries) = (*apex, Rc::clone(queries));
        tasks.spawn_local(async move {
            let _permit = queries.acquire().await.expect("the semaphore is never closed");
            let problem = |error: ExchangeError| format!("the server {server} of the parent zone: {error}");
            let delegation = ask_for_delegation(server, apex.as_name()).await.map_err(problem);
            let ds = ask_for_ds(server, apex.as_name()).await.map_err(problem);
            (index, (server, delegation, ds.map(|answer| answer.ds)))
        });
    }
    let view =
        |ds: &Ds| DsView { text: ds_text(&ds.rdata()), has_key: keys.iter().any(|key| ds.is_of(key, apex.as_name())) };
    let answers = super::in_order(tasks).await.into_iter();
    answers
        .map(|(server, delegation, ds)| ParentView {
            server,
            delegation,
            ds: ds.map(|records| records.iter().map(view).collect()),
        })
        .collect()
}

/// The delegation that the first server which shows one has.
pub(super) fn common_delegation(parents: &[ParentView]) -> Option<Result<Delegation, String>> {
    let all = || parents.iter().map(|parent| &parent.delegation);
    let shown = all().find(|delegation| matches!(delegation, Ok(Delegation::None | Delegation::Servers { .. })));
    shown.cloned().or_else(|| first_known(all()))
}

/// The first answer; the last problem if there is none.
pub(super) fn first_known<'a, T: Clone + 'a>(
    answers: impl Iterator<Item = &'a Result<T, String>> + Clone,
) -> Option<Result<T, String>> {
    answers.clone().find(|answer| answer.is_ok()).or_else(|| answers.last()).cloned()
}

async fn ask_for_delegation(server: SocketAddr, apex: Name<'_>) -> Result<Delegation, ExchangeError> {
    let read = |reply: &Reply<'_>| match reply.referral(apex)? {
        Some(referral) => Ok(delegation_of(&referral, apex)),
        None if !reply.is_authoritative() => {
            Err(ReplyError::Malformed("the server is not authoritative for the parent zone"))
        }
        None if reply.records(apex, Rtype::NS)?.is_empty() => Ok(Delegation::None),
        None => Ok(Delegation::Hidden),
    };
    match exchange(server, (QueryKind::Records(Rtype::NS), apex), None, REPLY_TIMEOUT, read).await {
        Err(ExchangeError::Reply(ReplyError::Refused(RCODE_NXDOMAIN))) => Ok(Delegation::None),
        answer => answer,
    }
}

/// Addresses of name servers in other zones are left out: servers may add them or not.
fn delegation_of(referral: &Referral, apex: Name<'_>) -> Delegation {
    let in_zone = referral.glue.iter().filter(|(host, _)| host.as_name().is_at_or_below(apex));
    let glue = in_zone.filter_map(|(host, rdata)| Some((host_text(host.as_name()), address_of(rdata)?)));
    Delegation::Servers {
        servers: referral.servers.iter().map(|host| host_text(host.as_name())).collect(),
        glue: glue.collect(),
    }
}

pub(super) fn ds_text(rdata: &[u8]) -> String {
    PresentationFormat::new(Rtype::DS, rdata).to_string()
}
