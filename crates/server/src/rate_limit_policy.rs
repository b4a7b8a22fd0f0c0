//! What the operator exempts from the limits of clients, which a reload may change.

use std::net::IpAddr;

/// Exemptions from a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RateLimitPolicy {
    /// Clients without a limit.
    pub exempt: Vec<IpNetwork>,
    /// Whether what is beyond the limit is answered as if there were none, and only counted.
    pub is_dry_run: bool,
}

/// The addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpNetwork {
    /// An address of it.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub prefix_bits: u8,
}

impl IpNetwork {
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
