//! The program's services, and which of its listeners belong to a service manager.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A service that the program offers on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Service {
    /// HTTP over TCP.
    Http,
    /// HTTP over TLS.
    Https,
    /// DNS over UDP and TCP.
    Dns,
    /// DNS over TLS.
    Dot,
    /// Metrics over HTTP.
    Metrics,
}

impl Service {
    /// All services, in listener order.
    pub const ALL: [Service; 5] = [Service::Http, Service::Https, Service::Dns, Service::Dot, Service::Metrics];

    /// The names of the service: for [`Service::name`], and for messages.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Service::Http => ("http", "HTTP"),
            Service::Https => ("https", "HTTPS"),
            Service::Dns => ("dns", "DNS"),
            Service::Dot => ("dot", "DNS over TLS"),
            Service::Metrics => ("metrics", "metrics"),
        }
    }

    /// The name on standard output, in `status` and on a socket that is handed over: `http`, `https`, `dns`, `dot`,
    /// `metrics`.
    pub fn name(self) -> &'static str {
        self.names().0
    }

    /// The key of its addresses, for messages.
    pub fn listen_key(self) -> &'static str {
        match self {
            Service::Http => "`listen` in [http]",
            Service::Https => "`listen` in [https]",
            Service::Dns => "`listen` in [dns]",
            Service::Dot => "`tls` in [dns]",
            Service::Metrics => "`listen` in [metrics]",
        }
    }

    /// The service with this name.
    pub fn from_name(name: &str) -> Option<Service> {
        Service::ALL.into_iter().find(|service| service.name() == name)
    }

    /// Whether its connections are encrypted (TLS).
    pub fn is_encrypted(self) -> bool {
        matches!(self, Service::Https | Service::Dot)
    }

    /// Whether its clients send a request as soon as they are connected.
    pub fn begins_with_request(self) -> bool {
        matches!(self, Service::Http | Service::Https)
    }

    /// Whether it has both datagram and stream sockets.
    pub fn has_datagrams(self) -> bool {
        self == Service::Dns
    }
}

/// `HTTP`, `HTTPS`, `DNS`, `DNS over TLS`, `metrics`.
impl fmt::Display for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.names().1)
    }
}

/// A listener's service, and whether a service manager owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerRole {
    /// The service.
    pub service: Service,
    /// A service manager created the socket and keeps listening on it when this program stops.
    pub is_external: bool,
}

impl ListenerRole {
    /// A listener that this program created.
    pub fn internal(service: Service) -> ListenerRole {
        ListenerRole { service, is_external: false }
    }
}
