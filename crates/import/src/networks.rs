//! Addresses and networks, as the configuration writes them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A network without host bits; `None` if `text` is neither an address nor a network.
pub(crate) fn network(text: &str) -> Option<String> {
    let Some((address, bits)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(|address| address.to_string());
    };
    let bits: u32 = bits.parse().ok()?;
    // BIND also accepts 10/8.
    let dots = address.matches('.').count();
    let is_short = !address.contains(':') && dots < 3;
    let address = if is_short { format!("{address}{}", ".0".repeat(3 - dots)) } else { address.to_owned() };
    match address.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) if bits <= 32 => {
            let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
            Some(format!("{}/{bits}", Ipv4Addr::from_bits(address.to_bits() & mask)))
        }
        IpAddr::V6(address) if bits <= 128 => {
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            Some(format!("{}/{bits}", Ipv6Addr::from_bits(address.to_bits() & mask)))
        }
        _ => None,
    }
}

/// An address with a port, which is after `separator`; IPv6 addresses with `:` as the separator are in brackets.
pub(crate) fn socket_address(text: &str, separator: char, default_port: u16) -> Option<SocketAddr> {
    let bare = |text: &str| text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    if let Some(address) = bare(text) {
        return Some(SocketAddr::new(address, default_port));
    }
    let (address, port) = text.rsplit_once(separator)?;
    let address = if address == "*" { Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) } else { bare(address) };
    Some(SocketAddr::new(address?, port.parse().ok()?))
}

/// The address of another server, without the default port of DNS.
pub(crate) fn peer_text(address: SocketAddr) -> String {
    if address.port() == 53 { address.ip().to_string() } else { address.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_no_host_bits() {
        for (text, expected) in [
            ("192.0.2.7/24", Some("192.0.2.0/24")),
            ("192.0.2.7", Some("192.0.2.7")),
            ("10/8", Some("10.0.0.0/8")),
            ("2001:db8::1/32", Some("2001:db8::/32")),
            ("0.0.0.0/0", Some("0.0.0.0/0")),
            ("192.0.2.0/33", None),
            ("all", None),
        ] {
            assert_eq!(network(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn addresses_have_ports() {
        for (text, separator, expected) in [
            ("192.0.2.1", '@', Some("192.0.2.1:53")),
            ("192.0.2.1@5353", '@', Some("192.0.2.1:5353")),
            ("::1@5353", '@', Some("[::1]:5353")),
            ("[::]:80", ':', Some("[::]:80")),
            ("*:80", ':', Some("0.0.0.0:80")),
            ("localhost:80", ':', None),
        ] {
            let address = socket_address(text, separator, 53).map(|address| address.to_string());
            assert_eq!(address.as_deref(), expected, "{text}");
        }
    }
}
