//! The addresses of listeners: their text form, and the check that no two of them conflict.

use crate::diagnostic::Problem;
use crate::service::Service;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Parses `127.0.0.1:8080` or `[::1]:8080`. With port 0 the kernel chooses a port.
///
/// A port without an address is refused: it could mean every address or this machine only, IPv4 or both.
///
/// # Errors
/// Returns the reason why `text` is not an address with a port.
pub fn parse_listen_address(text: &str) -> Result<SocketAddr, Problem> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let problem = |remedy: String| Err(Problem::new(format!("invalid address `{text}`, expected ADDR:PORT"), remedy));
    if text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4()) {
        return problem(format!("add a port, for example {text}:8080"));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        // `::1:8080` is an address as well: the port is ambiguous.
        return problem("write an IPv6 address in brackets, for example [::1]:8080".to_owned());
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port_is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if port_is_number && port.parse::<u16>().is_err() {
        return problem("write a port from 0 to 65535".to_owned());
    }
    if port_is_number && matches!(host, "" | "*") {
        return problem(format!(
            "write 127.0.0.1:{port} for this machine only, 0.0.0.0:{port} and [::]:{port} for all addresses"
        ));
    }
    if port_is_number && host == "localhost" {
        return problem(format!("write the address: 127.0.0.1:{port} or [::1]:{port}"));
    }
    problem("for example 127.0.0.1:8080 or [::1]:8080".to_owned())
}

/// The remedy if a stub resolver, such as systemd-resolved at 127.0.0.53, has port 53, and `setting` has the addresses.
pub fn remedy_of_stub_resolver(setting: &str) -> String {
    format!(
        "set {setting} to the addresses of this machine instead of all of them, or set `DNSStubListener=no` in \
         /etc/systemd/resolved.conf and run `systemctl restart systemd-resolved`"
    )
}

/// The addresses of all listeners so far.
#[derive(Default)]
pub(super) struct ListenAddresses(Vec<(SocketAddr, Service)>);

impl ListenAddresses {
    /// Adds `address` unless it conflicts with an earlier one. Both services listen on TCP, so they conflict as well.
    pub(super) fn add(&mut self, address: SocketAddr, service: Service) -> Result<(), Problem> {
        let conflict = self.0.iter().find(|(earlier, _)| overlap(*earlier, address)).copied();
        self.0.push((address, service));
        let Some((earlier, earlier_service)) = conflict else { return Ok(()) };
        Err(if earlier_service != service {
            let remedy = match (earlier_service, service) {
                (Service::Dns, _) | (_, Service::Dns) => {
                    "DNS listens on TCP as well; choose another port for one of them"
                }
                _ => "choose another port for one of them",
            };
            match earlier == address {
                true if earlier_service as u8 > service as u8 => {
                    Problem::new(format!("{address} is listed for both {service} and {earlier_service}"), remedy)
                }
                true => Problem::new(format!("{address} is listed for both {earlier_service} and {service}"), remedy),
                false => {
                    Problem::new(format!("{address} overlaps {earlier}, which is listed for {earlier_service}"), remedy)
                }
            }
        } else if earlier == address {
            Problem::new(format!("{address} is listed twice for {service}"), "remove one of the two")
        } else {
            let (all, one) = if earlier.ip().is_unspecified() { (earlier, address) } else { (address, earlier) };
            Problem::new(format!("{all} already includes {one}"), format!("remove {one}"))
        })
    }
}

/// Whether two sockets cannot listen on both. With port 0 each gets its own port.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port()
        && one.port() != 0
        && one.is_ipv4() == other.is_ipv4()
        && (one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified())
}
