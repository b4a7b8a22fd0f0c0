//! The client of an HTTP request where proxies are in front of the server, and the clients without a limit of requests.

use crate::limits::rate_limit_policy::{IpNetwork, RateLimitPolicy};
use sanderling_http::{ForwardedField, Request, forwarded_client};
use sanderling_site_rules::ClientFrom;
use std::net::{IpAddr, SocketAddr};

/// The configuration of HTTP clients, which a reload can change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpClients {
    /// Proxies in front of the server, which name their clients.
    pub trusted_proxies: Vec<IpNetwork>,
    /// How they name them; `None` if clients connect to the server.
    pub client_from: Option<ClientFrom>,
    /// Exemptions from the limit of requests.
    pub rate_limit: RateLimitPolicy,
}

impl HttpClients {
    pub(crate) fn is_trusted(&self, address: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(address))
    }

    /// Whether a proxy may name the client of a request in one of its fields.
    pub(crate) fn are_named_by_fields(&self) -> bool {
        self.field().is_some()
    }

    /// The field in which `peer` names its clients, if it is a trusted proxy that does.
    pub(crate) fn trusted_field(&self, peer: IpAddr) -> Option<ForwardedField> {
        self.field().filter(|_| self.is_trusted(peer))
    }

    fn field(&self) -> Option<ForwardedField> {
        match self.client_from? {
            ClientFrom::Forwarded => Some(ForwardedField::Forwarded),
            ClientFrom::XForwardedFor => Some(ForwardedField::XForwardedFor),
            ClientFrom::ProxyProtocol => None,
        }
    }

    /// Whether a connection from `address` begins with a header of the PROXY protocol.
    pub(crate) fn sends_proxy_header(&self, address: IpAddr) -> bool {
        self.client_from == Some(ClientFrom::ProxyProtocol) && self.is_trusted(address)
    }

    /// The client of `request`, which `peer` has sent; `None` if it is malformed.
    pub(crate) fn client_of(&self, request: Option<&Request<'_>>, peer: SocketAddr) -> SocketAddr {
        let Some(field) = self.field() else { return peer };
        match request {
            Some(request) if self.is_trusted(peer.ip()) => {
                forwarded_client(&request.fields, field, |address| self.is_trusted(address)).unwrap_or(peer)
            }
            _ => peer,
        }
    }
}
