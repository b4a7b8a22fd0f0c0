//! The PROXY protocol, versions 1 and 2 (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>): a proxy says
//! in front of the bytes of a connection from which client they are.
//!
//! Of version 2 only the addresses are read. Data after them, up to 64 KiB, is skipped and not stored: proxies may add
//! the certificate of the client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Bytes at the start of a header in which the client is, at most: a line of version 1.
pub(crate) const PARSED_BYTES_MAX: usize = LINE_BYTES_MAX;

/// The first bytes of version 2 (section 2.2).
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before the addresses.
const FIXED_BYTES: usize = 16;
/// Bytes of the longest header of version 1, with its CRLF (section 2.1).
const LINE_BYTES_MAX: usize = 107;

/// A header, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The rest is missing.
    Partial,
    /// The client is known. The rest of the header may be missing, and must be skipped.
    Client {
        /// `None` if the proxy itself speaks, for example to see whether the server is alive.
        client: Option<SocketAddr>,
        /// Bytes of the whole header.
        header_bytes: usize,
    },
    /// It is not such a header.
    Invalid,
}

/// Parses the header at the start of `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let parsed = if bytes.first() == Some(&b'P') { parse_line(bytes) } else { parse_binary(bytes) };
    parsed.unwrap_or(Parsed::Invalid)
}

/// Version 1: `PROXY TCP4 192.0.2.1 198.51.100.1 56324 443`. `None` if it is invalid.
fn parse_line(bytes: &[u8]) -> Option<Parsed> {
    const START: &[u8] = b"PROXY ";
    let line_bytes = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = line_bytes.windows(2).position(|pair| pair == b"\r\n") else {
        let may_be_one = line_bytes.starts_with(START) || START.starts_with(line_bytes);
        return (may_be_one && bytes.len() < LINE_BYTES_MAX).then_some(Parsed::Partial);
    };
    let line = str::from_utf8(line_bytes[..end].strip_prefix(START)?).ok()?;
    let mut words = line.split(' ');
    let client = match words.next()? {
        // Whatever follows is ignored.
        "UNKNOWN" => None,
        "TCP4" => Some(client_of_line::<Ipv4Addr>(words)?),
        "TCP6" => Some(client_of_line::<Ipv6Addr>(words)?),
        _ => return None,
    };
    Some(Parsed::Client { client, header_bytes: end + 2 })
}

/// The source of `source destination source-port destination-port`.
fn client_of_line<'l, A: FromStr + Into<IpAddr>>(mut words: impl Iterator<Item = &'l str>) -> Option<SocketAddr> {
    let mut address = || words.next()?.parse::<A>().ok();
    let (source, _) = (address()?, address()?);
    let mut port = || words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?.parse::<u16>().ok();
    let (source_port, _) = (port()?, port()?);
    words.next().is_none().then(|| SocketAddr::new(source.into().to_canonical(), source_port))
}

/// Version 2. `None` if it is invalid.
fn parse_binary(bytes: &[u8]) -> Option<Parsed> {
    let Some((&fixed, _)) = bytes.split_first_chunk::<FIXED_BYTES>() else {
        let compared = bytes.len().min(SIGNATURE.len());
        return (bytes[..compared] == SIGNATURE[..compared]).then_some(Parsed::Partial);
    };
    let [version_and_command, family_and_protocol, high, low] = *fixed.last_chunk::<4>()?;
    if !fixed.starts_with(SIGNATURE) || version_and_command >> 4 != 2 {
        return None;
    }
    let rest_bytes = usize::from(u16::from_be_bytes([high, low]));
    // The family determines the lengths of the addresses; the rest is for other uses.
    let address_bytes = match (version_and_command & 0xf, family_and_protocol) {
        (1, 0x11) => 12,
        (1, 0x21) => 36,
        // Section 2.2: other families come from a proxy that hides its client.
        (0, _) | (1, 0x00 | 0x31) => 0,
        _ => return None,
    };
    if rest_bytes < address_bytes {
        return None;
    }
    let Some(addresses) = bytes.get(FIXED_BYTES..FIXED_BYTES + address_bytes) else { return Some(Parsed::Partial) };
    let port = |offset: usize| addresses.get(offset..offset + 2).map(|port| u16::from_be_bytes([port[0], port[1]]));
    let client = match address_bytes {
        12 => Some(SocketAddr::new(Ipv4Addr::from(*addresses.first_chunk::<4>()?).into(), port(8)?)),
        36 => Some(SocketAddr::new(Ipv6Addr::from(*addresses.first_chunk::<16>()?).to_canonical(), port(32)?)),
        _ => None,
    };
    Some(Parsed::Client { client, header_bytes: FIXED_BYTES + rest_bytes })
}

/// Appends a header of version 2 that names `client`, which has connected to `local`.
pub(crate) fn put(client: SocketAddr, local: SocketAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    // Section 2.2: both addresses are of one family.
    match (client.ip().to_canonical(), local.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(local)) => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            out.extend_from_slice(&client.octets());
            out.extend_from_slice(&local.octets());
        }
        (client, local) => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            for ip in [client, local] {
                out.extend_from_slice(&match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                });
            }
        }
    }
    out.extend_from_slice(&client.port().to_be_bytes());
    out.extend_from_slice(&local.port().to_be_bytes());
}

/// Appends a header of version 2 that says that this server itself speaks (section 2.2: LOCAL).
pub(crate) fn put_local(out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    out.extend_from_slice(&[0x20, 0, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &[u8], client: Option<&str>) {
        let client = client.map(|client| client.parse().expect("an address"));
        let with_more = [header, b"GET / HTTP/1.1\r\n\r\n"].concat();
        let whole = Parsed::Client { client, header_bytes: header.len() };
        assert_eq!(parse(&with_more), whole);
        for end in 0..header.len() {
            let parsed = parse(&header[..end]);
            assert!(parsed == Parsed::Partial || (parsed == whole && end >= FIXED_BYTES), "{end} bytes: {parsed:?}");
        }
        assert_eq!(parse(&header[..header.len().min(PARSED_BYTES_MAX)]), whole);
    }

    fn binary(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[version_and_command, family], &length, rest].concat()
    }

    #[test]
    fn written_header_names_the_client() {
        for (client, local, written_bytes) in [
            ("192.0.2.1:56324", "198.51.100.1:443", 28),
            ("[2001:db8::1]:56324", "[2001:db8::2]:443", 52),
            // A proxy before this server has named the client.
            ("192.0.2.1:0", "[2001:db8::2]:443", 52),
            ("[2001:db8::1]:56324", "198.51.100.1:443", 52),
        ] {
            let mut header = Vec::new();
            put(client.parse().expect("an address"), local.parse().expect("an address"), &mut header);
            assert_eq!(header.len(), written_bytes, "{client} {local}");
            check(&header, Some(client));
        }
        let mut header = Vec::new();
        put(SocketAddr::from(([192, 0, 2, 1], 56324)), SocketAddr::from(([198, 51, 100, 1], 443)), &mut header);
        assert_eq!(header, binary(0x21, 0x11, &IPV4));
        header.clear();
        put_local(&mut header);
        check(&header, None);
    }

    const IPV4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 0x04, 0x01, 0xbb];

    #[test]
    fn client_of_version_1_is_the_source() {
        check(b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n", Some("192.0.2.1:56324"));
        check(b"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", Some("[2001:db8::1]:56324"));
        check(b"PROXY UNKNOWN\r\n", None);
        let longest = format!("PROXY UNKNOWN {0} {0} 65535 65535\r\n", "ffff:".repeat(7) + "ffff");
        assert_eq!(longest.len(), LINE_BYTES_MAX);
        check(longest.as_bytes(), None);
    }

    #[test]
    fn client_of_version_2_is_the_source() {
        check(&binary(0x21, 0x11, &IPV4), Some("192.0.2.1:56324"));
        check(&binary(0x21, 0x11, &[&IPV4[..], &[3, 0, 4, 1, 2, 3, 4]].concat()), Some("192.0.2.1:56324"));
        let mut ipv6 = [0; 36];
        ipv6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        (ipv6[15], ipv6[33]) = (1, 80);
        check(&binary(0x21, 0x21, &ipv6), Some("[2001:db8::1]:80"));
        check(&binary(0x20, 0x00, &[]), None);
        check(&binary(0x20, 0x11, &IPV4), None);
        check(&binary(0x21, 0x00, &[9; 5]), None);
        check(&binary(0x21, 0x31, &[0; 216]), None);
    }

    #[test]
    fn header_of_version_2_may_have_any_length() {
        for length in [2_032, 2_033, 4_096, 65_535 - 12] {
            check(&binary(0x21, 0x11, &[&IPV4[..], &vec![9; length]].concat()), Some("192.0.2.1:56324"));
            check(&binary(0x20, 0x00, &vec![9; length]), None);
        }
    }

    #[test]
    fn mapped_client_is_one_of_ipv4() {
        check(b"PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 56324 443\r\n", Some("192.0.2.1:56324"));
        let mut ipv6 = [0; 36];
        ipv6[10..16].copy_from_slice(&[0xff, 0xff, 192, 0, 2, 1]);
        ipv6[33] = 80;
        check(&binary(0x21, 0x21, &ipv6), Some("192.0.2.1:80"));
    }

    #[test]
    fn anything_else_is_invalid() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 1\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 65536\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.1 +6324 443\r\n",
            b"PROXY TCP4 192.0.2.1  198.51.100.1 56324 443\r\n",
            b"PROXY TCP4 2001:db8::1 2001:db8::2 56324 443\r\n",
            b"PROXY TCP6 192.0.2.1 198.51.100.1 56324 443\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.1 56324 443\r\n",
            b"PROXYTCP4",
            b"POST / HTTP/1.1\r\n",
            &[b'P'; 200],
            &[&b"PROXY UNKNOWN "[..], &[b'a'; 100]].concat(),
            b"\r\n\r\n\0\r\nQUIT\r",
            &binary(0x11, 0x11, &IPV4),
            &binary(0x22, 0x11, &IPV4),
            &binary(0x21, 0x12, &IPV4),
            &binary(0x21, 0x11, &IPV4[..11]),
            &binary(0x21, 0x21, &[0; 35]),
        ] {
            assert_eq!(parse(bytes), Parsed::Invalid, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    /// A complete header was not an error before its last byte arrived, and the data after it changes nothing.
    #[test]
    fn any_bytes_are_parsed_alike_in_pieces() {
        let seed = sanderling_testkit::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let headers = [b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET".to_vec(), binary(0x21, 0x11, &IPV4)];
        for _ in 0..20_000 {
            let mut bytes = random.choice(&headers).expect("a header").clone();
            for _ in 0..random.usize(..3) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            let whole = parse(&bytes);
            if whole != Parsed::Invalid {
                let is_possible = |end: usize| [whole, Parsed::Partial].contains(&parse(&bytes[..end]));
                assert!((0..bytes.len()).all(is_possible), "seed {seed}: {bytes:?}");
            }
        }
    }
}
