//! The addresses at which clients reach the listeners of HTTP and HTTPS.

use sanderling_config::Config;
use sanderling_os::interfaces::source_address;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Time between two checks of the machine's addresses.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Internet addresses for which the kernel is asked for a route. No packets are sent to them.
const ELSEWHERE: [&str; 2] = ["198.41.0.4", "2001:503:ba3e::2:30"];

/// The machine's known addresses.
#[derive(Debug, Default)]
pub(crate) struct ListenerAddresses {
    /// IPv4 and IPv6. Each is kept while there is no route to the Internet.
    of_machine: [Option<IpAddr>; 2],
    looked_at: Option<Instant>,
}

impl ListenerAddresses {
    /// Reads the machine's addresses, unless it was done just now; whether they have changed.
    pub(crate) fn look(&mut self) -> bool {
        if self.looked_at.is_some_and(|at| at.elapsed() < LOOK_INTERVAL) {
            return false;
        }
        self.looked_at = Some(Instant::now());
        let found = ELSEWHERE.map(|text| source_address(text.parse().expect("an address")).filter(|it| is_global(*it)));
        let mut has_changed = false;
        for (known, found) in self.of_machine.iter_mut().zip(found) {
            if found.is_some() && *known != found {
                *known = found;
                has_changed = true;
            }
        }
        has_changed
    }

    /// The addresses of the listeners of `config`, sorted. A listener on all addresses has the machine's addresses.
    pub(crate) fn of(&self, config: &Config) -> Vec<IpAddr> {
        let listeners = config.http_listen.iter().chain(&config.https_listen).map(SocketAddr::ip);
        let mut addresses: Vec<IpAddr> = listeners
            .flat_map(|address| match (address.is_unspecified(), address.is_ipv6()) {
                (false, _) => [Some(address), None],
                (true, is_ipv6) => [self.of_machine[usize::from(is_ipv6)], None],
            })
            .flatten()
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        // Loopback addresses are for a proxy on this machine, or for tests.
        if addresses.iter().any(|address| !address.is_loopback()) {
            addresses.retain(|address| !address.is_loopback());
        }
        addresses
    }
}

/// Whether there is a listener of all addresses.
pub(crate) fn listens_on_all_addresses(config: &Config) -> bool {
    config.http_listen.iter().chain(&config.https_listen).any(|address| address.ip().is_unspecified())
}

/// Whether clients of the Internet may reach the address.
fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            // RFC 6598.
            let is_shared = first == 100 && second & 0xc0 == 64;
            let is_local = address.is_private() || address.is_loopback() || address.is_link_local();
            !(is_local || is_shared || address.is_unspecified())
        }
        // RFC 4291 §2.4: all others are link-local, site-local or unassigned.
        IpAddr::V6(address) => address.octets()[0] & 0xe0 == 0x20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::ConfigSource;

    #[track_caller]
    fn check(http: &str, https: &str, expected: &[&str]) {
        let text = format!(
            "[http]\nlisten = [{http}]\n[https]\nlisten = [{https}]\n[certificates]\nagree_to_terms = true\n\
             [domain.\"a.test\"]\nsite = \".\"\n"
        );
        let config = ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes()).expect("a configuration");
        let of_machine = ["192.0.2.9", "2001:db8::9"].map(|text| text.parse().ok());
        let addresses = ListenerAddresses { of_machine, looked_at: None };
        let found: Vec<String> = addresses.of(&config).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected, "{http} {https}");
    }

    #[test]
    fn listeners_of_all_addresses_have_those_of_the_machine() {
        check("\"192.0.2.2:80\"", "\"192.0.2.2:443\", \"[2001:db8::1]:443\"", &["192.0.2.2", "2001:db8::1"]);
        check("\"0.0.0.0:80\"", "\"0.0.0.0:443\", \"[::]:443\"", &["192.0.2.9", "2001:db8::9"]);
        check("\"127.0.0.1:8080\"", "\"192.0.2.2:443\"", &["192.0.2.2"]);
        check("\"127.0.0.1:8080\"", "\"[::1]:443\"", &["127.0.0.1", "::1"]);
        check("\"10.0.0.1:80\"", "\"0.0.0.0:443\"", &["10.0.0.1", "192.0.2.9"]);
    }

    #[test]
    fn addresses_of_private_networks_are_not_those_of_the_internet() {
        for text in ["10.0.0.1", "172.16.0.1", "192.168.1.1", "127.0.0.1", "169.254.1.1", "100.64.0.1", "0.0.0.0"] {
            assert!(!is_global(text.parse().expect("an address")), "{text}");
        }
        for text in ["::", "::1", "fe80::1", "fd00::1"] {
            assert!(!is_global(text.parse().expect("an address")), "{text}");
        }
        for text in ["198.41.0.4", "100.63.0.1", "2001:503:ba3e::2:30"] {
            assert!(is_global(text.parse().expect("an address")), "{text}");
        }
    }
}
