//! The host and port that a request names (RFC 9110 §7.2, RFC 3986 §3.2).

use core::net::Ipv6Addr;

use crate::grammar::{HOST, is_part, parse_decimal, plain_bytes};

/// The authority of a request: whose site it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'b> {
    /// A name or an address, as it was sent: in any case, an IPv6 address in its brackets, never empty.
    pub name: &'b [u8],
    /// The port, when one was sent.
    pub port: Option<u16>,
}

impl<'b> Host<'b> {
    /// `host [ ":" port ]`; `None` for everything else: user information, an empty host, a port beyond 65535.
    pub fn parse(authority: &'b [u8]) -> Option<Host<'b>> {
        let plain_bytes = plain_bytes(authority, HOST);
        let name_bytes = match (authority.first()?, &authority[plain_bytes..]) {
            (b'[', _) => 1 + authority.iter().position(|&byte| byte == b']')?,
            // The usual name has no escape: its plain bytes are all of it.
            (_, [] | [b':', ..]) => plain_bytes,
            (_, rest) => plain_bytes + rest.iter().position(|&byte| byte == b':').unwrap_or(rest.len()),
        };
        let (name, port) = authority.split_at(name_bytes);
        let is_valid = match name {
            [b'[', address @ .., b']'] => is_ipv6(address),
            // `reg-name` or `IPv4address`, which is a `reg-name` too; not an empty one (RFC 9110 §4.2.1).
            _ => !name.is_empty() && is_part(&name[plain_bytes..], HOST),
        };
        // RFC 3986 §3.2.3: the port may be empty even where its colon stands.
        let port = match port {
            [] | [b':'] => None,
            [b':', digits @ ..] => Some(u16::try_from(parse_decimal(digits)?).ok()?),
            _ => return None,
        };
        is_valid.then_some(Host { name, port })
    }

    /// Whether both name the same host and port of the scheme http (RFC 9110 §4.2.3).
    pub fn is_equivalent_to(&self, other: &Host<'_>) -> bool {
        const PORT_OF_HTTP: u16 = 80;
        self.name.eq_ignore_ascii_case(other.name)
            && self.port.unwrap_or(PORT_OF_HTTP) == other.port.unwrap_or(PORT_OF_HTTP)
    }
}

/// What stands between the brackets of an `IP-literal`. The grammar's other kind, addresses of versions to come, has
/// no member yet.
fn is_ipv6(address: &[u8]) -> bool {
    core::str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}
