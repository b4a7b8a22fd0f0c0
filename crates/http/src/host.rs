//! The host and port of a request (RFC 9110 §7.2, RFC 3986 §3.2).

use core::net::Ipv6Addr;

use crate::grammar::{HOST, is_valid_part, parse_decimal, unescaped_bytes};

/// The authority of a request, which selects the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'b> {
    /// A name or address as received: in any letter case, never empty, an IPv6 address with its brackets.
    pub name: &'b [u8],
    /// The port, if there is one.
    pub port: Option<u16>,
}

impl<'b> Host<'b> {
    /// Parses `host [ ":" port ]`. `None` for anything else, such as user information, an empty host or a port above
    /// 65535.
    pub fn parse(authority: &'b [u8]) -> Option<Host<'b>> {
        let unescaped = unescaped_bytes(authority, HOST);
        let name_bytes = match (authority.first()?, &authority[unescaped..]) {
            (b'[', _) => 1 + authority.iter().position(|&byte| byte == b']')?,
            // Fast path: no percent-encoding.
            (_, [] | [b':', ..]) => unescaped,
            (_, rest) => unescaped + rest.iter().position(|&byte| byte == b':').unwrap_or(rest.len()),
        };
        let (name, port) = authority.split_at(name_bytes);
        let is_valid = match name {
            [b'[', address @ .., b']'] => is_ipv6(address),
            // `reg-name`, which includes `IPv4address`; never empty (RFC 9110 §4.2.1).
            _ => !name.is_empty() && is_valid_part(&name[unescaped..], HOST),
        };
        // RFC 3986 §3.2.3: the port may be empty after its colon.
        let port = match port {
            [] | [b':'] => None,
            [b':', digits @ ..] => Some(u16::try_from(parse_decimal(digits)?).ok()?),
            _ => return None,
        };
        is_valid.then_some(Host { name, port })
    }
}

/// Whether `address` is valid between the brackets of an `IP-literal`. Of `IPvFuture`, the grammar's alternative, no
/// version exists.
fn is_ipv6(address: &[u8]) -> bool {
    core::str::from_utf8(address).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}
