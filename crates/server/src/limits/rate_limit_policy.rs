//! The exemptions from the limits of clients, which a reload can change.

use std::net::IpAddr;

/// Exemptions from a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitPolicy {
    /// Clients without a limit.
    pub exempt: Vec<IpNetwork>,
    /// Whether requests beyond the limit are answered as if there were none, and only counted.
    pub is_dry_run: bool,
}

/// The addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    prefix_bits: u8,
}

/// Bits of the prefix of IPv4-mapped addresses (RFC 4291 §2.5.5.2).
const MAPPED_BITS: u8 = 96;

impl IpNetwork {
    /// The network of `address` with a prefix of so many bits. A network of IPv4-mapped addresses is converted to IPv4,
    /// because clients never have such addresses.
    pub fn new(address: IpAddr, prefix_bits: u8) -> IpNetwork {
        match (address.to_canonical(), prefix_bits.checked_sub(MAPPED_BITS)) {
            (IpAddr::V4(of_v4), Some(bits)) if address.is_ipv6() => {
                IpNetwork { address: of_v4.into(), prefix_bits: bits }
            }
            _ => IpNetwork { address, prefix_bits },
        }
    }

    pub(crate) fn contains(&self, client: IpAddr) -> bool {
        let differing_bits = match (self.address, client) {
            (IpAddr::V4(network), IpAddr::V4(client)) => u128::from(network.to_bits() ^ client.to_bits()) << 96,
            (IpAddr::V6(network), IpAddr::V6(client)) => network.to_bits() ^ client.to_bits(),
            _ => return false,
        };
        differing_bits.leading_zeros() >= u32::from(self.prefix_bits)
    }
}

impl RateLimitPolicy {
    pub(crate) fn is_exempt(&self, client: IpAddr) -> bool {
        self.exempt.iter().any(|network| network.contains(client))
    }
}
