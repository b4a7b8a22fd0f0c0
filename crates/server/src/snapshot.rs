//! The data from which a server answers at one moment. Each part is immutable and replaced independently.

use crate::backend_tls::BackendTlsSettings;
use crate::dns::notify::NotifyPolicy;
use crate::dns::transfers::TransferPolicy;
use crate::dns::updates::UpdatePolicy;
use crate::limits::http_clients::HttpClients;
use crate::limits::rate_limit_policy::RateLimitPolicy;
use crate::log::access_log::AccessLog;
use crate::log::dnstap::Dnstap;
use crate::log::query_log::QueryLog;
use crate::site::challenges::Challenges;
use crate::site::mail_policies::MailPolicies;
use crate::site::sites::Sites;
use crate::statistics::Slots;
use crate::unix_connector::UnixConnector;
use sanderling_dns::{ReplyOptions, ZoneMap};
use sanderling_tls::ServerTls;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Sites, zones, certificates and reply options. A clone shares them.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The web sites.
    pub sites: Arc<Sites>,
    /// The zones.
    pub zones: Arc<ZoneMap>,
    /// The TLS settings of new connections; `None` if there is no certificate, and then they are closed immediately.
    pub tls: Option<Arc<Tls>>,
    /// The parts of DNS replies other than records.
    pub reply_options: Arc<ReplyOptions>,
    /// Exemptions from the limits of replies over UDP.
    pub rate_limit_policy: Arc<RateLimitPolicy>,
    /// Proxies in front of the server, and exemptions from the limit of HTTP requests.
    pub http_clients: Arc<HttpClients>,
    /// Which client may transfer which zone.
    pub transfers: Arc<TransferPolicy>,
    /// Which server may send NOTIFY for which zone; `None` if no zone has primaries.
    pub notify: Option<Arc<NotifyPolicy>>,
    /// Which keys may change which zone by dynamic update; `None` if no zone may be changed.
    pub updates: Option<Arc<UpdatePolicy>>,
    /// The settings for the encryption of connections to applications.
    pub backend_tls: Arc<BackendTlsSettings>,
    /// Where connections to the UNIX sockets of applications come from; `None` without a supervisor, such as in tests.
    pub unix_connector: Option<Arc<UnixConnector>>,
    /// The addresses of hosts with applications, by their names; none of a name that was not found. A name that was not
    /// looked up is not there.
    pub backend_addresses: Arc<BTreeMap<String, Vec<IpAddr>>>,
    /// The challenges, if an order is in progress.
    pub challenges: Option<Arc<Challenges>>,
    /// Policies for mail servers; `None` if no domain has one.
    pub mail_policies: Option<Arc<MailPolicies>>,
    /// The access log; `None` if there is none.
    pub access_log: Option<AccessLog>,
    /// The log of DNS queries; `None` if there is none.
    pub query_log: Option<QueryLog>,
    /// The dnstap messages to send; `None` if nothing is.
    pub dnstap: Option<Arc<Dnstap>>,
    /// Where its sites and zones are counted, which the server sets.
    pub slots: Arc<Slots>,
}

/// The TLS settings of encrypted connections of each protocol.
#[derive(Clone, Debug)]
pub struct Tls {
    /// HTTPS.
    pub https: ServerTls,
    /// DNS over TLS.
    pub dot: ServerTls,
}

impl Snapshot {
    /// A snapshot of these parts, without certificates and reply options.
    pub fn new(sites: Sites, zones: ZoneMap) -> Snapshot {
        let (sites, zones) = (Arc::new(sites), Arc::new(zones));
        Snapshot {
            sites,
            zones,
            tls: None,
            reply_options: Arc::default(),
            rate_limit_policy: Arc::default(),
            http_clients: Arc::default(),
            transfers: Arc::default(),
            notify: None,
            updates: None,
            backend_tls: Arc::default(),
            unix_connector: None,
            backend_addresses: Arc::default(),
            challenges: None,
            mail_policies: None,
            access_log: None,
            query_log: None,
            dnstap: None,
            slots: Arc::default(),
        }
    }
}
