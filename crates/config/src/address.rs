//! Turns the text `ADDR:PORT` into the address of a listener.

use crate::diagnostic::Fault;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Reads `127.0.0.1:8080` or `[::1]:8080`; port 0 lets the kernel choose.
///
/// A bare port is refused rather than guessed at: it would mean every address or this machine alone, IPv4 or both.
///
/// # Errors
///
/// What keeps `text` from being an address and a port, with one that would do.
pub fn parse_listen_address(text: &str) -> Result<SocketAddr, Fault> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    let problem = format!("`{text}` is no address and port");
    if text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4()) {
        return Err(Fault::new(problem, format!("add a port, as in {text}:8080")));
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        // `::1:8080` is an address too, so that nobody can tell which octets were meant as the port.
        return Err(Fault::new(problem, "IPv6 addresses stand in brackets, as in [::1]:8080"));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port_is_number = !port.is_empty() && port.bytes().all(|octet| octet.is_ascii_digit());
    if port_is_number && port.parse::<u16>().is_err() {
        return Err(Fault::new(problem, "a port is a number from 0 to 65535"));
    }
    if port_is_number && matches!(host, "" | "*") {
        return Err(Fault::new(
            problem,
            format!("write 127.0.0.1:{port} for this machine alone, 0.0.0.0:{port} and [::]:{port} for every address"),
        ));
    }
    if port_is_number && host == "localhost" {
        return Err(Fault::new(problem, format!("write the address itself: 127.0.0.1:{port} or [::1]:{port}")));
    }
    Err(Fault::new(problem, "write one such as 127.0.0.1:8080 or [::1]:8080"))
}

/// What is spoken at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Dns,
}

impl Protocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            Protocol::Http => "HTTP",
            Protocol::Dns => "DNS",
        }
    }
}

/// The addresses that listeners have already, so that none is given out twice.
#[derive(Default)]
pub(super) struct TakenAddresses(HashMap<SocketAddr, Protocol>);

impl TakenAddresses {
    /// Takes `address`, unless it is taken. Both protocols listen on TCP, so that they can't share one either.
    pub(super) fn take(&mut self, address: SocketAddr, protocol: Protocol) -> Result<(), Fault> {
        if address.port() == 0 {
            // The kernel chooses another port each time.
            return Ok(());
        }
        match self.0.insert(address, protocol) {
            None => Ok(()),
            Some(earlier) if earlier == protocol => {
                Err(Fault::new(format!("{address} is listed twice for {}", protocol.name()), "remove one of the two"))
            }
            Some(_) => Err(Fault::new(
                format!("{address} is listed for both HTTP and DNS"),
                "DNS listens on TCP too; give one of them another port",
            )),
        }
    }
}
