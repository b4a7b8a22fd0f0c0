//! The resolvers that are asked for records of other zones.

use crate::dns_exchange::{DNS_PORT, ExchangeError, RCODE_NXDOMAIN, REPLY_TIMEOUT, exchange};
use sanderling_config::{Config, Resolver};
use sanderling_dns::client::{QueryKind, Reply, ReplyError};
use sanderling_dns::{Name, Rtype};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Names the resolvers of the system (resolv.conf(5)).
pub(crate) const RESOLVER_FILE: &str = "/etc/resolv.conf";
/// Resolvers of that file, as the C library.
const SYSTEM_RESOLVERS_MAX: usize = 3;

/// The resolvers, in the order in which they are asked.
#[derive(Debug)]
pub(crate) struct Resolvers {
    configured: Vec<Resolver>,
}

/// The records of a name, and how long they may be kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Records {
    pub(crate) rdatas: Vec<Vec<u8>>,
    pub(crate) ttl_s: Option<u32>,
}

impl Records {
    /// The records of a name that does not exist.
    pub(crate) const NONE: Records = Records { rdatas: Vec::new(), ttl_s: None };

    /// The records whose owner is `name`.
    ///
    /// # Errors
    /// Returns an error if a record is malformed.
    pub(crate) fn read(reply: &Reply<'_>, name: Name<'_>, rtype: Rtype) -> Result<Records, ReplyError> {
        Ok(Records { rdatas: reply.records(name, rtype)?, ttl_s: reply.ttl_s(name, rtype)? })
    }

    /// The records that `name` leads to, through CNAME records if any.
    fn read_resolved(reply: &Reply<'_>, name: Name<'_>, rtype: Rtype) -> Result<Records, ReplyError> {
        let (rdatas, ttl_s) = reply.resolved(name, rtype)?;
        Ok(Records { rdatas, ttl_s })
    }

    /// The addresses, of records A and AAAA.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.rdatas.iter().filter_map(|rdata| address_of(rdata))
    }
}

impl Resolvers {
    /// The configured resolvers, or the system's if the configuration has no list.
    pub(crate) fn new(config: &Config) -> Resolvers {
        let is_default = config.resolvers.is_empty() && !config.has_no_resolvers;
        if is_default { Resolvers::of_system() } else { Resolvers { configured: config.resolvers.clone() } }
    }

    /// The resolvers of the system.
    pub(crate) fn of_system() -> Resolvers {
        Resolvers { configured: vec![Resolver::System] }
    }

    /// The resolvers' addresses. The file of the system is read each time, since it changes with the network that a
    /// machine is in.
    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.configured.iter().flat_map(|resolver| match resolver {
            Resolver::System => system_resolvers(&std::fs::read_to_string(RESOLVER_FILE).unwrap_or_default()),
            Resolver::At(address) => vec![*address],
        })
    }

    #[cfg(test)]
    pub(crate) fn at(addresses: Vec<SocketAddr>) -> Resolvers {
        Resolvers { configured: addresses.into_iter().map(Resolver::At).collect() }
    }

    /// The records at `name` that the first resolver which answers has found.
    pub(crate) async fn records(&self, name: Name<'_>, rtype: Rtype) -> Result<Records, String> {
        self.ask(name, rtype, Records::read).await
    }

    /// Asks for the records that `name` leads to, through CNAME records if any.
    pub(crate) async fn resolve(&self, name: Name<'_>, rtype: Rtype) -> Result<Records, String> {
        self.ask(name, rtype, Records::read_resolved).await
    }

    async fn ask(
        &self,
        name: Name<'_>,
        rtype: Rtype,
        read: impl Fn(&Reply<'_>, Name<'_>, Rtype) -> Result<Records, ReplyError>,
    ) -> Result<Records, String> {
        let mut problem = match self.configured.is_empty() {
            true => "`resolvers` in [dns] is empty, so no resolver is queried".to_owned(),
            false => format!("{RESOLVER_FILE} names no resolver; write `resolvers` into [dns]"),
        };
        for resolver in self.addresses() {
            let read = |reply: &Reply<'_>| read(reply, name, rtype);
            match exchange(resolver, (QueryKind::Resolve(rtype), name), None, REPLY_TIMEOUT, read).await {
                Ok(records) => return Ok(records),
                Err(ExchangeError::Reply(ReplyError::Refused(RCODE_NXDOMAIN))) => return Ok(Records::NONE),
                Err(error) => problem = format!("asking the resolver {resolver} for {name} {rtype}: {error}"),
            }
        }
        Err(problem)
    }
}

/// The address of a record A or AAAA.
pub(crate) fn address_of(rdata: &[u8]) -> Option<IpAddr> {
    let of_v4 = <[u8; 4]>::try_from(rdata).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    of_v4.or_else(|_| <[u8; 16]>::try_from(rdata).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)))).ok()
}

/// The resolvers that the text of a file `resolv.conf` names.
fn system_resolvers(text: &str) -> Vec<SocketAddr> {
    let resolver = |line: &str| {
        let address = line.strip_prefix("nameserver")?.split_whitespace().next()?.parse().ok()?;
        Some(SocketAddr::new(address, DNS_PORT))
    };
    text.lines().filter_map(resolver).take(SYSTEM_RESOLVERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, serve, zone_map};
    use sanderling_config::DomainName;
    use sanderling_zone_files::wire_name;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn resolvers_are_those_of_resolv_conf() {
        let text =
            "# nameserver 192.0.2.1\nsearch a.test\nnameserver 192.0.2.2\nnameserver\t2001:db8::1 # x\nnameserver x\n";
        let expected: [SocketAddr; 2] = ["192.0.2.2:53".parse().unwrap(), "[2001:db8::1]:53".parse().unwrap()];
        assert_eq!(system_resolvers(text), expected);
        assert_eq!(system_resolvers(&"nameserver 192.0.2.1\n".repeat(9)).len(), SYSTEM_RESOLVERS_MAX);
    }

    #[test]
    fn addresses_behind_cname_records_have_the_lowest_ttl() {
        run(async {
            let zone = "$TTL 300\n@ SOA ns h 1 1 1 1 60\n@ NS ns\nns A 192.0.2.1\n\
                        a 40 CNAME b\nb 50 CNAME c\nc 70 A 192.0.2.2\nc 70 A 192.0.2.3\nloop CNAME loop2\nloop2 CNAME loop\n";
            let name = |text: &str| wire_name(&DomainName::parse(text).expect("a name"));
            let zone = zone_map(&DomainName::parse("test").expect("a name"), zone);
            let server = serve([127, 0, 0, 6], Rc::new(RefCell::new(zone))).await;
            // There is no server at the first address.
            let resolvers = Resolvers::at(vec!["127.0.0.6:1".parse().unwrap(), server]);
            let both = &["192.0.2.2", "192.0.2.3"][..];
            for (owner, rtype, expected, ttl_s) in [
                ("a.test", Rtype::A, both, Some(40)),
                ("c.test", Rtype::A, both, Some(70)),
                ("a.test", Rtype::AAAA, &[], Some(40)),
                ("c.test", Rtype::AAAA, &[], Some(60)),
                ("x.test", Rtype::A, &[], None),
            ] {
                let found = resolvers.resolve(name(owner).as_name(), rtype).await.expect("it answers");
                let addresses: Vec<String> = found.addresses().map(|address| address.to_string()).collect();
                assert_eq!((addresses, found.ttl_s), (expected.iter().map(ToString::to_string).collect(), ttl_s));
            }
            for (owner, expected) in [("loop.test", "it has too many CNAME records"), ("a.other", "it answers REFUSED")]
            {
                let error = resolvers.resolve(name(owner).as_name(), Rtype::A).await.expect_err(owner);
                assert!(error.ends_with(expected), "{error}");
            }
        });
    }
}
