//! The client of a request that a proxy has forwarded: Forwarded (RFC 7239) and X-Forwarded-For.
//!
//! Each proxy appends the address from which it has received the request. So the list is read from its end, as long as
//! the proxies that have written it are trusted: text that a client has put in front of it is never examined.

use crate::fields::Fields;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The field in which proxies name the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedField {
    /// Forwarded (RFC 7239 §4).
    Forwarded,
    /// X-Forwarded-For.
    XForwardedFor,
}

/// The client that `field` names: the last address that is not one of a trusted proxy, or the first one of all if each
/// is. `None` if the proxy says nothing that is an address. The port is 0 if there is none.
pub fn forwarded_client(
    fields: &Fields<'_>,
    field: ForwardedField,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Option<SocketAddr> {
    let mut found = None;
    // Several lines are one list (RFC 9110 §5.3). They are few, since the fields of a request are.
    let line_count = fields.find_all(field.name()).count();
    for line_index in (0..line_count).rev() {
        let mut rest = fields.find_all(field.name()).nth(line_index)?;
        while !rest.is_empty() {
            let (before, element) = split_last(rest, b',');
            match field.address(element) {
                Some(address) if is_trusted(address.ip()) => found = Some(address),
                Some(address) => return Some(address),
                // Empty elements count for nothing (RFC 9110 §5.6.1). Anything else may hide an address: the text
                // before it is not trusted.
                None if element.is_empty() => {}
                None => return found,
            }
            rest = before;
        }
    }
    found
}

impl ForwardedField {
    fn name(self) -> &'static [u8] {
        match self {
            ForwardedField::Forwarded => b"forwarded",
            ForwardedField::XForwardedFor => b"x-forwarded-for",
        }
    }

    /// The address in an element of the list.
    fn address(self, element: &[u8]) -> Option<SocketAddr> {
        match self {
            ForwardedField::XForwardedFor => parse_address(element),
            // A quote that is escaped would shift where elements begin. No address needs one.
            ForwardedField::Forwarded if element.contains(&b'\\') => None,
            ForwardedField::Forwarded => {
                let mut rest = element;
                while !rest.is_empty() {
                    let (before, pair) = split_last(rest, b';');
                    if let Some((name, value)) = pair.split_at_checked(4)
                        && name.eq_ignore_ascii_case(b"for=")
                    {
                        let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
                        return parse_address(unquoted.unwrap_or(value));
                    }
                    rest = before;
                }
                None
            }
        }
    }
}

/// The parts before and after the last `separator` outside quotes, without white space around them.
fn split_last(list: &[u8], separator: u8) -> (&[u8], &[u8]) {
    let mut is_quoted = false;
    let at = list.iter().rposition(|&byte| {
        is_quoted ^= byte == b'"';
        byte == separator && !is_quoted
    });
    at.map_or((&[][..], list.trim_ascii()), |at| (&list[..at], list[at + 1..].trim_ascii()))
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80` (RFC 7239 §6). A proxy with a
/// socket of both families names a client of IPv4 by an IPv4-mapped address, which becomes that of IPv4 (RFC 4291
/// §2.5.5.2).
fn parse_address(text: &[u8]) -> Option<SocketAddr> {
    let address = parse_any_address(text)?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

fn parse_any_address(text: &[u8]) -> Option<SocketAddr> {
    let text = str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = match bracketed {
        Some(text) => text.parse::<Ipv6Addr>().ok()?.into(),
        None => text.parse::<IpAddr>().ok()?,
    };
    Some(SocketAddr::new(address, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Parsed, RequestLimits, parse_request};
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    /// The client of a request with these field lines; 10.0.0.0/8 is the network of the trusted proxies.
    #[track_caller]
    fn check(lines: &[&str], expected: Option<&str>) {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines.concat());
        let Ok(Parsed::Complete { request, .. }) = parse_request(head.as_bytes(), 0, &RequestLimits::default()) else {
            panic!("{head}");
        };
        let field = match lines[0].starts_with("X-") {
            true => ForwardedField::XForwardedFor,
            false => ForwardedField::Forwarded,
        };
        let is_trusted = |address: IpAddr| matches!(address, IpAddr::V4(address) if address.octets()[0] == 10);
        let expected = expected.map(|text| parse_any_address(text.as_bytes()).expect("an address"));
        assert_eq!(forwarded_client(&request.fields, field, is_trusted), expected, "{head}");
    }

    #[test]
    fn client_is_the_last_address_that_is_not_a_trusted_proxy() {
        check(&["X-Forwarded-For: 192.0.2.1"], Some("192.0.2.1"));
        check(&["X-Forwarded-For: 6.6.6.6, 192.0.2.1"], Some("192.0.2.1"));
        check(&["X-Forwarded-For: 6.6.6.6, 192.0.2.1, 10.0.0.1 ,10.0.0.2"], Some("192.0.2.1"));
        check(
            &["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 192.0.2.1", "x-forwarded-for: 10.0.0.1"],
            Some("192.0.2.1"),
        );
        check(&["X-Forwarded-For: 10.0.0.3, 10.0.0.1"], Some("10.0.0.3"));
        check(&["X-Forwarded-For: 2001:db8::1, 10.0.0.1"], Some("2001:db8::1"));
        check(&["X-Forwarded-For: [2001:db8::1]:80"], Some("[2001:db8::1]:80"));
        check(&["X-Forwarded-For: 192.0.2.1:56324,, "], Some("192.0.2.1:56324"));
    }

    #[test]
    fn mapped_address_is_that_of_ipv4() {
        check(&["X-Forwarded-For: ::ffff:192.0.2.1"], Some("192.0.2.1"));
        check(&["X-Forwarded-For: [::FFFF:c000:201]:80"], Some("192.0.2.1:80"));
        check(&["X-Forwarded-For: 192.0.2.1, ::ffff:10.0.0.1"], Some("192.0.2.1"));
        check(&["Forwarded: for=\"[::ffff:192.0.2.1]:80\", for=\"[::ffff:10.0.0.1]\""], Some("192.0.2.1:80"));
    }

    #[test]
    fn what_is_not_an_address_ends_the_list() {
        check(&["X-Forwarded-For: 192.0.2.1, unknown"], None);
        check(&["X-Forwarded-For: 192.0.2.1, unknown, 10.0.0.1"], Some("10.0.0.1"));
        check(&["X-Forwarded-For: "], None);
        check(&["X-Other: 192.0.2.1"], None);
        check(&["Forwarded: for=192.0.2.1, by=10.0.0.1"], None);
        check(&["Forwarded: for=192.0.2.1, for=_hidden, for=10.0.0.1"], Some("10.0.0.1"));
        check(&["Forwarded: for=\"192.0.2.1, for=10.0.0.1"], Some("10.0.0.1"));
        check(&["Forwarded: for=6.6.6.6;host=\"a\\\", for=10.0.0.1;host=\"b\\\"\""], None);
    }

    /// The examples of RFC 7239 §4, among others.
    #[test]
    fn forwarded_has_pairs_and_quotes() {
        check(&["Forwarded: For=\"[2001:db8:cafe::17]:4711\""], Some("[2001:db8:cafe::17]:4711"));
        check(&["Forwarded: for=192.0.2.60;proto=http;by=203.0.113.43"], Some("192.0.2.60"));
        check(&["Forwarded: for=192.0.2.43, for=198.51.100.17"], Some("198.51.100.17"));
        check(&["Forwarded: for=192.0.2.43", "Forwarded: for=10.0.0.1;host=\"a,b;c\""], Some("192.0.2.43"));
        check(&["Forwarded: host=\"for=6.6.6.6\"; FOR=192.0.2.1"], Some("192.0.2.1"));
    }
}
