//! Reads the section `[http]`, and networks.

use super::ConfigBuilder;
use crate::config::{RateLimit, TrustedProxies};
use crate::config_reader::{Entry, Keys};
use crate::diagnostic::Problem;
use crate::keys::Section;
use crate::service::Service;
use sanderling_site_rules::ClientFrom;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl ConfigBuilder<'_, '_> {
    pub(super) fn read_http(&mut self, section: Entry<'_, '_>) {
        let Some(keys) = self.reader.keys(section, Section::Http) else { return };
        if let Some(entry) = keys.get("listen") {
            self.http_listen = Some(entry.offset);
            self.config.http_listen = self.read_listen(entry, Service::Http);
        }
        keys.get("default").into_iter().for_each(|entry| self.read_default(entry));
        self.config.http2 = self.reader.boolean(&keys, "http2");
        self.config.http_rate_limit = self.read_rate_limit(&keys);
        self.read_trusted_proxies(keys.get("trusted_proxies"), keys.get("client_from"));
    }

    /// `rate_limit_exempt` and `rate_limit_dry_run`.
    pub(super) fn read_rate_limit(&mut self, keys: &Keys<'_, '_>) -> RateLimit {
        let exempt = keys.get("rate_limit_exempt").map(|entry| self.read_networks(entry)).unwrap_or_default();
        RateLimit { exempt, dry_run: self.reader.boolean(keys, "rate_limit_dry_run") }
    }

    fn read_trusted_proxies(&mut self, proxies: Option<Entry<'_, '_>>, client_from: Option<Entry<'_, '_>>) {
        match (proxies, client_from) {
            (None, None) => {}
            (Some(proxies), None) => {
                let message = "`trusted_proxies` is set, but `client_from` is not";
                let remedy = "add client_from = \"proxy-protocol\", \"forwarded\" or \"x-forwarded-for\"";
                self.error(proxies.offset, message, remedy);
            }
            (None, Some(client_from)) => {
                let remedy = "add trusted_proxies = [\"192.0.2.0/24\"] with the addresses of the proxies";
                self.error(client_from.offset, "`client_from` is set, but `trusted_proxies` is not", remedy);
            }
            (Some(proxies), Some(client_from)) => {
                let networks = self.read_networks(proxies);
                let Some((offset, text)) = self.reader.string(client_from) else { return };
                let client_from = match text {
                    "proxy-protocol" => ClientFrom::ProxyProtocol,
                    "forwarded" => ClientFrom::Forwarded,
                    "x-forwarded-for" => ClientFrom::XForwardedFor,
                    _ => {
                        let message = format!("unknown method \"{text}\" for proxies to name the client");
                        return self.error(offset, message, format!("write {}", client_from.example));
                    }
                };
                if !networks.is_empty() {
                    let location = self.reader.location(proxies.offset);
                    self.config.trusted_proxies = Some(TrustedProxies { networks, client_from, location });
                }
            }
        }
    }

    /// A list of networks that is not empty.
    pub(super) fn read_networks(&mut self, entry: Entry<'_, '_>) -> Vec<(IpAddr, u8)> {
        let mut networks = Vec::new();
        for (offset, text) in self.reader.strings(entry) {
            match parse_network(text) {
                Ok(network) => networks.push(network),
                Err(problem) => self.reader.error(offset, problem),
            }
        }
        networks
    }
}

/// An address with the bits of its prefix, without host bits; without a prefix, all bits count.
pub(super) fn parse_network(text: &str) -> Result<(IpAddr, u8), Problem> {
    let no_network = |remedy: String| Problem::new(format!("`{text}` is not a network"), remedy);
    let malformed = || no_network("write an address and a prefix length, such as 192.0.2.0/24".to_owned());
    let (address, prefix_bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().map_err(|_| malformed())?;
    let all_bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix_bits = prefix_bits.map_or(Some(all_bits), |bits| bits.parse().ok()).ok_or_else(malformed)?;
    if prefix_bits > all_bits {
        return Err(no_network(format!("write at most /{all_bits}, the length of the address")));
    }
    let network = network_of(address, prefix_bits);
    if network != address {
        let message = format!("`{text}` is an address with host bits, not a network");
        return Err(Problem::new(
            message,
            format!("write {network}/{prefix_bits}, or {address} for this address only"),
        ));
    }
    Ok((address, prefix_bits))
}

/// The first address of the network with the first `prefix_bits` of `address`.
fn network_of(address: IpAddr, prefix_bits: u8) -> IpAddr {
    let prefix_bits = u32::from(prefix_bits);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - prefix_bits).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - prefix_bits).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_before_domain, config};
    use super::*;

    const DOMAIN: &str = "[domain.\"a.example\"]\nsite = \"public\"\n";

    #[test]
    fn trusted_proxies_have_networks_and_a_way_to_name_the_client() {
        for (text, expected) in [
            ("proxy-protocol", ClientFrom::ProxyProtocol),
            ("forwarded", ClientFrom::Forwarded),
            ("x-forwarded-for", ClientFrom::XForwardedFor),
        ] {
            let keys = format!("trusted_proxies = [\"192.0.2.0/24\", \"::1\"]\nclient_from = \"{text}\"\n");
            let proxies = config(&format!("[http]\n{keys}{DOMAIN}")).trusted_proxies.expect("proxies");
            let networks =
                [("192.0.2.0", 24), ("::1", 128)].map(|(text, bits)| (text.parse().expect("an address"), bits));
            assert_eq!((&proxies.networks[..], proxies.client_from), (&networks[..], expected));
            assert_eq!(proxies.risk(), None);
        }
        let keys = "trusted_proxies = [\"192.0.2.1\", \"::/0\"]\nclient_from = \"forwarded\"\n";
        let risk = config(&format!("[http]\n{keys}{DOMAIN}")).trusted_proxies.and_then(|proxies| proxies.risk());
        let text = risk.expect("a warning").to_string();
        assert!(text.contains(":2:1: ") && text.contains("`trusted_proxies` has all addresses (::/0)"), "{text}");
        for (keys, expected) in [
            (
                "client_from = \"forwarded\"",
                "2:1: `client_from` is set, but `trusted_proxies` is not; \
                 add trusted_proxies = [\"192.0.2.0/24\"] with the addresses of the proxies",
            ),
            (
                "trusted_proxies = [\"192.0.2.1\"]",
                "2:1: `trusted_proxies` is set, but `client_from` is not; \
                 add client_from = \"proxy-protocol\", \"forwarded\" or \"x-forwarded-for\"",
            ),
            (
                "trusted_proxies = [\"192.0.2.1\"]\nclient_from = \"x-real-ip\"",
                "3:15: unknown method \"x-real-ip\" for proxies to name the client; write client_from = \
                 \"proxy-protocol\", \"forwarded\" or \"x-forwarded-for\"",
            ),
        ] {
            check_before_domain(&format!("[http]\n{keys}"), &[expected]);
        }
    }

    #[test]
    fn what_is_not_a_network_has_a_remedy() {
        const MALFORMED: &str = "is not a network; write an address and a prefix length, such as 192.0.2.0/24";
        for (text, expected) in [
            ("192.0.2.0", ""),
            ("0.0.0.0/0", ""),
            ("2001:db8::/32", ""),
            (
                "192.0.2.1/24",
                "is an address with host bits, not a network; write 192.0.2.0/24, or 192.0.2.1 for this address only",
            ),
            (
                "10.0.0.1/0",
                "is an address with host bits, not a network; write 0.0.0.0/0, or 10.0.0.1 for this address only",
            ),
            ("2001:db8::1/32", "not a network; write 2001:db8::/32, or 2001:db8::1 for this address only"),
            ("192.0.2.0/33", "is not a network; write at most /32, the length of the address"),
            ("2001:db8::/129", "is not a network; write at most /128, the length of the address"),
            ("192.0.2.0/a", MALFORMED),
            ("192.0.2.0/255.255.255.0", MALFORMED),
            ("example.com", MALFORMED),
        ] {
            let problem = parse_network(text).err().map_or(String::new(), |problem| problem.to_string());
            assert!(problem.ends_with(expected) && problem.is_empty() == expected.is_empty(), "{text}: {problem}");
        }
    }

    #[test]
    fn exemptions_from_the_limit_of_requests_are_read() {
        let keys = "rate_limit_exempt = [\"192.0.2.0/24\"]\nrate_limit_dry_run = true\n";
        let limit = config(&format!("[http]\n{keys}{DOMAIN}")).http_rate_limit;
        assert_eq!((limit.exempt.len(), limit.dry_run), (1, true));
    }
}
