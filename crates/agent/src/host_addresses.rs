//! The addresses of a host by its name, as getaddrinfo(3) finds them by the files hosts(5) and resolv.conf(5).
//!
//! The C library would load modules for this at run time (nsswitch.conf(5)), which a static program cannot do, and
//! would block a thread while it waits. Names that only such a module knows, for example those of mDNS, are not found.

use crate::resolvers::{RESOLVER_FILE, Resolvers};
use sanderling_config::{Config, DomainName};
use sanderling_dns::Rtype;
use sanderling_zone_files::wire_name;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const HOSTS_FILE: &str = "/etc/hosts";
/// Domains of the search list that are tried (resolv.conf(5)).
const SEARCH_DOMAINS_MAX: usize = 6;
/// Questions to all resolvers before a name counts as not resolved: a datagram may be lost.
const ATTEMPTS: u32 = 2;

/// The addresses of `host`, which is a name or an address, at `port`. A name that ends with a dot is not looked for in
/// the search list.
///
/// # Errors
/// The name has no address, or no resolver answers.
pub(crate) async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let addresses = HostNames::of_system().look_up(host).await?;
    Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
}

/// The addresses of a host, and how long they may be kept: `None` if a file has them.
pub(crate) struct HostAddresses {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) ttl_s: Option<u32>,
}

/// The addresses of `host`, by the resolvers of `config`.
///
/// # Errors
/// As [`look_up`].
pub(crate) async fn look_up_with(host: &str, config: &Config) -> Result<HostAddresses, String> {
    let names = HostNames { resolvers: Resolvers::new(config), ..HostNames::of_system() };
    names.find(host).await
}

/// The files and resolvers by which the name of a host is looked up.
struct HostNames {
    /// The content of a file hosts(5).
    hosts: String,
    search: SearchList,
    resolvers: Resolvers,
}

impl HostNames {
    /// The files are read for each name, since they change with the network that a machine is in.
    fn of_system() -> HostNames {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let search = SearchList::parse(&read(RESOLVER_FILE));
        HostNames { hosts: read(HOSTS_FILE), search, resolvers: Resolvers::of_system() }
    }

    async fn look_up(&self, host: &str) -> Result<Vec<IpAddr>, String> {
        Ok(self.find(host).await?.addresses)
    }

    async fn find(&self, host: &str) -> Result<HostAddresses, String> {
        let without_ttl = |addresses| Ok(HostAddresses { addresses, ttl_s: None });
        if let Ok(address) = host.parse() {
            return without_ttl(vec![address]);
        }
        let in_file = addresses_in(&self.hosts, host.trim_end_matches('.'));
        if !in_file.is_empty() {
            return without_ttl(in_file);
        }
        if is_local(host) {
            return without_ttl(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        let mut problem = None;
        for name in self.search.candidates(host) {
            let Ok(name) = DomainName::parse(&name) else { continue };
            match self.resolve(&name).await {
                Ok(found) if found.addresses.is_empty() => {}
                Ok(found) => return Ok(found),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        Err(problem.unwrap_or_else(|| "the name has no address".to_owned()))
    }

    /// Those of IPv6 first (RFC 6724 §2.1). Without an answer for one family, those of the other have to suffice.
    async fn resolve(&self, name: &DomainName) -> Result<HostAddresses, String> {
        let (v6, v4) = tokio::join!(self.ask(name, Rtype::AAAA), self.ask(name, Rtype::A));
        match (v6, v4) {
            (Ok(v6), Ok(v4)) => {
                let with_addresses = [&v6, &v4].into_iter().filter(|found| !found.addresses.is_empty());
                let ttl_s = with_addresses.filter_map(|found| found.ttl_s).min();
                Ok(HostAddresses { addresses: [v6.addresses, v4.addresses].concat(), ttl_s })
            }
            (Ok(found), Err(error)) | (Err(error), Ok(found)) => {
                if found.addresses.is_empty() {
                    Err(error)
                } else {
                    Ok(found)
                }
            }
            (Err(error), Err(_)) => Err(error),
        }
    }

    async fn ask(&self, name: &DomainName, rtype: Rtype) -> Result<HostAddresses, String> {
        let name = wire_name(name);
        let mut answer = self.resolvers.resolve(name.as_name(), rtype).await;
        for _ in 1..ATTEMPTS {
            if answer.is_err() {
                answer = self.resolvers.resolve(name.as_name(), rtype).await;
            }
        }
        let records = answer?;
        Ok(HostAddresses { addresses: records.addresses().collect(), ttl_s: records.ttl_s })
    }
}

/// Which names a short one may stand for.
#[derive(Debug, PartialEq, Eq)]
struct SearchList {
    domains: Vec<String>,
    /// A name with so many dots is tried alone first.
    ndots: usize,
}

impl SearchList {
    /// Reads the text of a file resolv.conf(5), of which the last `search` or `domain` counts.
    fn parse(text: &str) -> SearchList {
        let mut list = SearchList { domains: Vec::new(), ndots: 1 };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("search") => list.domains = words.take(SEARCH_DOMAINS_MAX).map(str::to_owned).collect(),
                Some("domain") => list.domains = words.take(1).map(str::to_owned).collect(),
                Some("options") => {
                    let ndots = words.find_map(|word| word.strip_prefix("ndots:")?.parse().ok());
                    list.ndots = ndots.unwrap_or(list.ndots);
                }
                _ => {}
            }
        }
        list
    }

    fn candidates(&self, host: &str) -> Vec<String> {
        let below = self.domains.iter().map(|domain| format!("{host}.{}", domain.trim_matches('.')));
        if host.ends_with('.') {
            return vec![host.to_owned()];
        }
        let mut names: Vec<String> = below.collect();
        let place = if host.matches('.').count() >= self.ndots { 0 } else { names.len() };
        names.insert(place, host.to_owned());
        names
    }
}

/// The addresses that the text of a file hosts(5) has for `name`.
fn addresses_in(text: &str, name: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
    };
    text.lines().filter_map(address).collect()
}

/// Names of this machine that are not asked for in the DNS (RFC 6761 §6.3).
fn is_local(host: &str) -> bool {
    let last_label = host.trim_end_matches('.').rsplit('.').next();
    last_label.is_some_and(|label| label.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, serve, zone_map};
    use std::cell::RefCell;
    use std::rc::Rc;

    const HOSTS: &str =
        "127.0.0.1 localhost\n192.0.2.1\tca.test ca # other.test\n#192.0.2.2 ca\n2001:db8::1 CA\nx ca\n";

    async fn host_names(resolv_conf: &str) -> HostNames {
        let zone = "$TTL 60\n@ SOA ns h 1 1 1 1 60\n@ NS ns\nns A 192.0.2.9\na A 192.0.2.3\na AAAA 2001:db8::3\nb CNAME a\n\
                    a.b A 192.0.2.4\nempty TXT t\n";
        let zone = zone_map(&DomainName::parse("test").expect("a name"), zone);
        let server = serve([127, 0, 0, 7], Rc::new(RefCell::new(zone))).await;
        let search = SearchList::parse(resolv_conf);
        HostNames { hosts: HOSTS.to_owned(), search, resolvers: Resolvers::at(vec![server]) }
    }

    #[test]
    fn names_are_those_of_the_file_then_those_of_the_dns() {
        run(async {
            let names = host_names("search other.test test\n").await;
            let check = async |host: &str, expected: &[&str]| {
                let found = names.look_up(host).await.unwrap_or_else(|error| panic!("{host}: {error}"));
                assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{host}");
            };
            check("192.0.2.7", &["192.0.2.7"]).await;
            check("::1", &["::1"]).await;
            check("localhost", &["127.0.0.1"]).await;
            check("www.LOCALHOST.", &["127.0.0.1", "::1"]).await;
            check("Ca", &["192.0.2.1", "2001:db8::1"]).await;
            check("ca.test.", &["192.0.2.1"]).await;
            check("b.test", &["2001:db8::3", "192.0.2.3"]).await;
            check("b", &["2001:db8::3", "192.0.2.3"]).await;
            // It has a dot, so that it is first tried alone, which the server refuses.
            check("a.b", &["192.0.2.4"]).await;
        });
    }

    #[test]
    fn name_without_an_address_is_an_error() {
        run(async {
            let names = host_names("search test\n").await;
            for (host, expected) in [
                ("none.test", "the name has no address"),
                ("empty.test.", "the name has no address"),
                ("bad name", "the name has no address"),
                ("b.", "it answers REFUSED"),
            ] {
                let error = names.look_up(host).await.expect_err(host);
                assert!(error.ends_with(expected), "{host}: {error}");
            }
        });
    }

    #[test]
    fn short_names_are_tried_with_the_search_list() {
        let check = |text: &str, host: &str, expected: &[&str]| {
            assert_eq!(SearchList::parse(text).candidates(host), expected, "{text}");
        };
        check("", "ca", &["ca"]);
        check("nameserver 192.0.2.1\nsearch a.test. b.test\n", "ca", &["ca.a.test", "ca.b.test", "ca"]);
        check("search a.test\n", "ca.example", &["ca.example", "ca.example.a.test"]);
        check("search a.test\n", "ca.example.", &["ca.example."]);
        check("search a.test\ndomain b.test\noptions rotate ndots:2\n", "c.d", &["c.d.b.test", "c.d"]);
        check("options ndots:x\nsearch a b c d e f g\n", "h", &["h.a", "h.b", "h.c", "h.d", "h.e", "h.f", "h"]);
    }
}
