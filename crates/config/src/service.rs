//! The two services of the program, and which of its listeners belong to a service manager.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A service that the program offers on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Service {
    /// HTTP over TCP.
    Http,
    /// DNS over UDP and TCP.
    Dns,
}

impl Service {
    /// The name on standard output, in `status` and on a socket that is handed over: `http`, `dns`.
    pub fn name(self) -> &'static str {
        match self {
            Service::Http => "http",
            Service::Dns => "dns",
        }
    }

    /// The service with this name.
    pub fn from_name(name: &str) -> Option<Service> {
        [Service::Http, Service::Dns].into_iter().find(|service| service.name() == name)
    }
}

/// `HTTP`, `DNS`.
impl fmt::Display for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Service::Http => "HTTP",
            Service::Dns => "DNS",
        })
    }
}

/// The service of a listener, and whether a service manager owns it.
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
