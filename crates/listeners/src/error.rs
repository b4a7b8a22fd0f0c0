//! The reason why an address cannot be bound, with the remedy for the operator.

use sanderling_config::diagnostic::{Problem, error_text};
use sanderling_config::{ConfigSource, Service, remedy_of_stub_resolver};
use std::io;
use std::net::SocketAddr;

/// The first port that every user may bind.
const UNPRIVILEGED_PORT_MIN: u16 = 1024;

/// The only port at which resolvers ask: another one is no remedy.
const DNS_PORT: u16 = 53;

/// An address cannot be bound.
#[derive(Debug)]
pub struct BindError {
    /// The service of the address.
    pub service: Service,
    /// The address.
    pub address: SocketAddr,
    /// The failed call.
    pub error: io::Error,
}

impl BindError {
    /// The problem and its remedy where `source` is the configuration.
    pub fn to_problem(&self, source: &ConfigSource) -> Problem {
        let BindError { service, address, error } = self;
        let name = service.name();
        let setting = match source {
            ConfigSource::Flags(_) => format!("--{name}"),
            ConfigSource::File(_) if *service == Service::Dot => "`tls` in [dns]".to_owned(),
            ConfigSource::File(_) => format!("`listen` in [{name}]"),
        };
        let (cause, remedy) = match error.kind() {
            io::ErrorKind::AddrInUse => (
                "address already in use".to_owned(),
                match *service == Service::Dns && address.port() == DNS_PORT {
                    true => format!(
                        "`sudo sanderling doctor` names the other program; if it is a stub resolver, {}",
                        remedy_of_stub_resolver(&setting)
                    ),
                    false => format!("stop the other program or choose another port with {setting}"),
                },
            ),
            io::ErrorKind::PermissionDenied if address.port() < UNPRIVILEGED_PORT_MIN => (
                "permission denied".to_owned(),
                format!(
                    "start as root or with the capability CAP_NET_BIND_SERVICE, or choose a port from \
                     {UNPRIVILEGED_PORT_MIN} with {setting}"
                ),
            ),
            io::ErrorKind::AddrNotAvailable => (
                "this machine does not have this address".to_owned(),
                format!("choose one of its addresses with {setting}; 0.0.0.0 and [::] are all addresses"),
            ),
            _ => (error_text(error), String::new()),
        };
        Problem::new(format!("cannot listen on {address}: {cause}"), remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::Flags;

    #[test]
    fn causes_have_a_remedy_for_the_source() {
        let of_service = |service, address: &str, error, source| {
            let address = address.parse().expect("an address");
            BindError { service, address, error }.to_problem(&source).to_string()
        };
        let message = |address: &str, error, source| of_service(Service::Http, address, error, source);
        let flags = || ConfigSource::Flags(Flags::default());
        let kind = |kind: io::ErrorKind| io::Error::from(kind);
        assert_eq!(
            message("127.0.0.1:8080", kind(io::ErrorKind::AddrInUse), flags()),
            "cannot listen on 127.0.0.1:8080: address already in use; stop the other program or choose another port with \
             --http"
        );
        let file = || ConfigSource::File("x.toml".into());
        let taken = of_service(Service::Dns, "0.0.0.0:53", kind(io::ErrorKind::AddrInUse), file());
        for part in ["set `listen` in [dns] to the addresses of this machine", "`DNSStubListener=no`"] {
            assert!(taken.contains(part) && !taken.contains("another port"), "{taken}");
        }
        assert_eq!(
            message("0.0.0.0:80", kind(io::ErrorKind::PermissionDenied), file()),
            "cannot listen on 0.0.0.0:80: permission denied; start as root or with the capability \
             CAP_NET_BIND_SERVICE, or choose a port from 1024 with `listen` in [http]"
        );
        assert_eq!(
            message("192.0.2.1:8080", kind(io::ErrorKind::AddrNotAvailable), flags()),
            "cannot listen on 192.0.2.1:8080: this machine does not have this address; choose one of its addresses \
                with --http; 0.0.0.0 and [::] are all addresses"
        );
        assert_eq!(
            message("127.0.0.1:80", io::Error::from_raw_os_error(24), flags()),
            "cannot listen on 127.0.0.1:80: Too many open files; raise the limit of open files (ulimit -n, LimitNOFILE= of \
             systemd)"
        );
    }
}
