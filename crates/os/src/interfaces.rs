//! The addresses of the network interfaces of this machine (getifaddrs(3)), and the one that the kernel sends from.

use crate::counters::{Syscall, count};
use crate::udp;
use nix::ifaddrs::getifaddrs;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// IPv6 addresses with their flags; absent without IPv6.
const IPV6_ADDRESSES: &str = "/proc/net/if_inet6";
/// Flags of `linux/if_addr.h`: the address is used for some hours or days (RFC 8981); it will be removed soon.
const IFA_F_TEMPORARY: u32 = 0x01;
const IFA_F_DEPRECATED: u32 = 0x20;
/// The port of a destination to which nothing is sent.
const UNUSED_PORT: u16 = 9;

/// The addresses of all interfaces, each once, in the order of the kernel. Temporary addresses are left out: no record
/// of a zone can follow them.
///
/// # Errors
/// The kernel does not list them.
pub fn addresses() -> io::Result<Vec<IpAddr>> {
    let passing = fs::read_to_string(IPV6_ADDRESSES).map(|text| passing_addresses(&text)).unwrap_or_default();
    let mut found = Vec::new();
    for interface in getifaddrs()? {
        let Some(address) = interface.address else { continue };
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        let v6 = || address.as_sockaddr_in6().map(|v6| v6.ip()).filter(|v6| !passing.contains(v6)).map(IpAddr::V6);
        found.extend(v4.or_else(v6).filter(|address| !found.contains(address)));
    }
    Ok(found)
}

/// The source address of datagrams to `destination`; `None` without a route. Nothing is sent.
pub fn source_address(destination: IpAddr) -> Option<IpAddr> {
    let socket = udp::connect(SocketAddr::new(destination, UNUSED_PORT)).ok()?;
    count(Syscall::Getsockname);
    socket.local_addr().ok().map(|source| source.ip())
}

/// Whether routers of the Internet forward packets to `address` (IANA's registries of special-purpose addresses).
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let is_shared = a == 100 && b & 0xc0 == 64;
            let is_benchmark = a == 198 && b & 0xfe == 18;
            !(v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_documentation()
                || is_shared
                || is_benchmark
                || a == 0
                || a >= 224)
        }
        IpAddr::V6(v6) => {
            let [first, second, ..] = v6.segments();
            let is_documentation = first == 0x2001 && second == 0xdb8 || first == 0x3fff && second < 0x1000;
            first & 0xe000 == 0x2000 && !is_documentation
        }
    }
}

/// The addresses of `/proc/net/if_inet6` that are temporary or deprecated. A line has the address, then in hexadecimal
/// the interface, the length of the prefix, the scope and the flags, and its name.
fn passing_addresses(text: &str) -> HashSet<Ipv6Addr> {
    let address = |line: &str| {
        let mut fields = line.split_whitespace();
        let address = u128::from_str_radix(fields.next()?, 16).ok()?;
        let flags = u32::from_str_radix(fields.nth(3)?, 16).ok()?;
        (flags & (IFA_F_TEMPORARY | IFA_F_DEPRECATED) != 0).then(|| Ipv6Addr::from(address))
    };
    text.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_address_is_listed_once_and_is_its_own_source() {
        let localhost = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let found = addresses().expect("listed");
        assert_eq!(found.iter().filter(|address| **address == localhost).count(), 1, "{found:?}");
        assert_eq!(source_address(localhost), Some(localhost));
    }

    #[test]
    fn temporary_and_deprecated_addresses_are_recognized_by_their_flags() {
        let text = "00000000000000000000000000000001 01 80 10 80       lo\n\
                    20010db8000000000000000000000005 02 40 00 00     eth0\n\
                    20010db8000000000123456789abcdef 02 40 00 01     eth0\n\
                    20010db8000000000000000000000007 02 40 00 20     eth0\ndamaged\n";
        let expected: [Ipv6Addr; 2] = ["2001:db8::123:4567:89ab:cdef".parse().unwrap(), "2001:db8::7".parse().unwrap()];
        assert_eq!(passing_addresses(text), HashSet::from(expected));
    }

    #[test]
    fn public_addresses_are_those_that_routers_forward_to() {
        for text in ["8.8.8.8", "100.63.0.1", "198.17.0.1", "172.15.0.1", "2a01:4f8::1", "2001:db7::1"] {
            assert!(is_public(text.parse().expect("an address")), "{text}");
        }
        for text in [
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "127.0.0.1",
            "169.254.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "0.0.0.0",
            "192.0.2.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "fe80::1",
            "fd00::1",
            "2001:db8::1",
            "3fff::1",
        ] {
            assert!(!is_public(text.parse().expect("an address")), "{text}");
        }
    }
}
