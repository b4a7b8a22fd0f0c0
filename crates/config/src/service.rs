//! The services that this program answers, and whose a socket is.

/// What is answered on an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// HTTP, over TCP.
    Http,
    /// DNS, over UDP and TCP.
    Dns,
}

impl Service {
    /// Its name for people, for scripts, and for sockets that are handed over.
    pub fn name(self) -> &'static str {
        match self {
            Service::Http => "http",
            Service::Dns => "dns",
        }
    }

    /// The service of that name.
    pub fn named(name: &str) -> Option<Service> {
        [Service::Http, Service::Dns].into_iter().find(|service| service.name() == name)
    }
}

/// What a socket is for, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// What is answered on it.
    pub service: Service,
    /// It is a service manager's, which listens on it when this program does not.
    pub is_given: bool,
}

impl Role {
    /// A socket of this program's own.
    pub fn own(service: Service) -> Role {
        Role { service, is_given: false }
    }
}
