//! The DS records of a zone, queried directly from all servers of its parent zone: a resolver would answer from its
//! cache.

use crate::clock::unix_s;
use crate::dns_exchange::{DNS_PORT, ExchangeError, RCODE_NXDOMAIN, REPLY_TIMEOUT, exchange};
use crate::resolvers::{Records, Resolvers};
use sanderling_dns::client::{QueryKind, Reply, ReplyError};
use sanderling_dns::{Name, NameBuf, Rtype};
use sanderling_dnssec::Ds;
use sanderling_dnssec::zone_keys::ParentDs;
use std::net::SocketAddr;
use tokio::task::JoinSet;

/// Maximum queried addresses of the parent zone's servers: top-level zones have up to 26.
const SERVERS_MAX: usize = 64;
/// Maximum servers that are asked one after another for a first answer.
const FIRST_ANSWER_SERVERS_MAX: usize = 8;
/// The assumed TTL of an answer without DS records that has no TTL.
const NO_DS_TTL_S: u32 = 24 * 3600;

/// Finds the servers of parent zones.
#[derive(Debug)]
pub(crate) struct ParentServers {
    resolvers: Resolvers,
    /// The port of the servers that are found.
    port: u16,
}

impl ParentServers {
    /// `resolvers` finds the servers.
    pub(crate) fn new(resolvers: Resolvers) -> ParentServers {
        ParentServers { resolvers, port: DNS_PORT }
    }

    /// The common answer of all servers of the parent zone of `apex`: the servers in `configured`, or all that are
    /// found if it is empty. A server that is unreachable from this machine, for example for lack of IPv6, is left out.
    ///
    /// # Errors
    /// Returns an error if a server does not answer, or if the servers disagree.
    pub(crate) async fn ds(&self, apex: &NameBuf, configured: &[SocketAddr]) -> Result<ParentDs, String> {
        let servers = if configured.is_empty() { self.find(apex.as_name()).await? } else { configured.to_vec() };
        let mut tasks = JoinSet::new();
        for server in servers {
            let apex = *apex;
            tasks.spawn_local(async move { (server, ask_for_ds(server, apex.as_name()).await) });
        }
        let mut common: Option<ParentDs> = None;
        while let Some(asked) = tasks.join_next().await {
            let (server, answer) = asked.expect("a task that panics ends the agent, which is restarted");
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) if error.is_unreachable() => continue,
                Err(error) => return Err(format!("the server {server} of the parent zone: {error}")),
            };
            common = match common {
                Some(before) if before.ds != answer.ds => {
                    return Err("the parent zone's servers have different DS records".to_owned());
                }
                Some(before) => Some(ParentDs { ttl_s: before.ttl_s.max(answer.ttl_s), ..answer }),
                None => Some(answer),
            };
        }
        let common = common.ok_or("no server of the parent zone can be reached")?;
        // Until the end of this second, servers may have answered differently.
        Ok(ParentDs { at_unix_s: unix_s() + 1, ..common })
    }

    /// The DS records from the first parent server that answers, among `configured` or the servers that are found. DS
    /// records that are not new are on all servers.
    ///
    /// # Errors
    /// Returns an error if no server answers.
    pub(crate) async fn first_answer(&self, apex: &NameBuf, configured: &[SocketAddr]) -> Result<Vec<Ds>, String> {
        if apex.as_name().parent().is_none() {
            return Ok(Vec::new());
        }
        let servers = if configured.is_empty() { self.find(apex.as_name()).await? } else { configured.to_vec() };
        let mut problem = "the parent zone has no name servers".to_owned();
        for server in servers.into_iter().take(FIRST_ANSWER_SERVERS_MAX) {
            match ask_for_ds(server, apex.as_name()).await {
                Ok(answer) => return Ok(answer.ds),
                Err(error) => problem = format!("the server {server} of the parent zone: {error}"),
            }
        }
        Err(problem)
    }

    /// The addresses of the servers of the parent zone.
    ///
    /// # Errors
    /// No resolver finds them.
    pub(crate) async fn find(&self, apex: Name<'_>) -> Result<Vec<SocketAddr>, String> {
        let mut parent = apex.parent().ok_or("the root has no parent zone")?;
        while self.resolvers.records(parent, Rtype::SOA).await?.rdatas.is_empty() {
            parent = parent.parent().ok_or("the parent zone is not found")?;
        }
        let mut servers = Vec::new();
        for target in self.resolvers.records(parent, Rtype::NS).await?.rdatas {
            let Ok(host) = Name::parse(&target) else { continue };
            for rtype in [Rtype::A, Rtype::AAAA] {
                for address in self.resolvers.records(host, rtype).await?.addresses() {
                    let server = SocketAddr::new(address, self.port);
                    if !servers.contains(&server) && servers.len() < SERVERS_MAX {
                        servers.push(server);
                    }
                }
            }
        }
        if servers.is_empty() {
            Err(format!("the parent zone {parent} has no servers with addresses"))
        } else {
            Ok(servers)
        }
    }
}

/// The DS records of one server of the parent zone.
///
/// # Errors
/// It does not answer, or is not authoritative for the parent zone.
pub(crate) async fn ask_for_ds(server: SocketAddr, apex: Name<'_>) -> Result<ParentDs, ExchangeError> {
    let read = |reply: &Reply<'_>| match reply.is_authoritative() {
        true => Records::read(reply, apex, Rtype::DS),
        false => Err(ReplyError::Malformed("the server is not authoritative for the parent zone")),
    };
    let answer = exchange(server, (QueryKind::Records(Rtype::DS), apex), None, REPLY_TIMEOUT, read).await;
    let Records { rdatas, ttl_s } = match answer {
        // The parent zone does not have the zone at all.
        Err(ExchangeError::Reply(ReplyError::Refused(RCODE_NXDOMAIN))) => Records::NONE,
        answer => answer?,
    };
    let mut ds: Vec<Ds> = rdatas.iter().filter_map(|rdata| Ds::from_rdata(rdata)).collect();
    ds.sort_unstable();
    Ok(ParentDs { ds, ttl_s: ttl_s.unwrap_or(NO_DS_TTL_S), at_unix_s: unix_s() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, serve, zone_map};
    use sanderling_config::DomainName;
    use sanderling_zone_files::wire_name;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text).expect("a name")
    }

    const PARENT: &str = "$TTL 300\n@ SOA ns h 1 1 1 1 60\n@ NS ns\n@ NS ns2\nns A 127.0.0.4\nns2 A 127.0.0.5\na NS ns.a\nns.a A 192.0.2.1\n";

    #[test]
    fn servers_of_the_parent_zone_are_found_by_a_resolver() {
        run(async {
            // A server of the parent zone answers for the records in that zone. There is no zone at b.test.
            let zone = Rc::new(RefCell::new(zone_map(&name("test"), PARENT)));
            let resolver = serve([127, 0, 0, 3], zone).await;
            let parents = ParentServers { resolvers: Resolvers::at(vec![resolver]), port: 5353 };
            let expected: [SocketAddr; 2] = [([127, 0, 0, 4], 5353).into(), ([127, 0, 0, 5], 5353).into()];
            for child in ["a.test", "x.b.test"] {
                let found = parents.find(wire_name(&name(child)).as_name()).await;
                assert_eq!(found.as_deref(), Ok(&expected[..]), "{child}");
            }
            let error = parents.find(wire_name(&name("a.other")).as_name()).await.expect_err("it has no such zone");
            assert!(error.ends_with("it answers REFUSED"), "{error}");
        });
    }

    #[test]
    fn first_answer_is_that_of_the_first_server_that_has_the_parent_zone() {
        run(async {
            let parents = ParentServers { resolvers: Resolvers::at(Vec::new()), port: DNS_PORT };
            let apex = wire_name(&name("a.test"));
            let other = "$TTL 300\n@ SOA ns h 1 1 1 1 60\n@ NS ns\nns A 192.0.2.1\n";
            let with_ds = format!("{PARENT}a 120 DS 7 13 2 {}\n", "ab".repeat(32));
            let mut servers = Vec::new();
            for (apex, text) in [("other", other), ("test", &with_ds), ("test", PARENT)] {
                let zone = Rc::new(RefCell::new(zone_map(&name(apex), text)));
                servers.push(serve([127, 0, 0, 1], zone).await);
            }
            let found = parents.first_answer(&apex, &servers).await.expect("the second one has it");
            assert_eq!(found.iter().map(|ds| ds.key_tag).collect::<Vec<_>>(), [7]);
            assert_eq!(parents.first_answer(&apex, &servers[2..]).await, Ok(Vec::new()));
            let error = parents.first_answer(&apex, &servers[..1]).await.expect_err("it does not have the zone");
            assert!(error.contains("it answers REFUSED"), "{error}");
            parents.first_answer(&apex, &[]).await.expect_err("no resolver");
            assert_eq!(parents.first_answer(&wire_name(&name(".")), &[]).await, Ok(Vec::new()));
        });
    }

    #[test]
    fn ds_records_are_those_on_which_all_servers_agree() {
        run(async {
            let parents = ParentServers { resolvers: Resolvers::at(Vec::new()), port: DNS_PORT };
            let zones = [0, 0].map(|_| Rc::new(RefCell::new(zone_map(&name("test"), PARENT))));
            let mut servers = Vec::new();
            for zone in &zones {
                servers.push(serve([127, 0, 0, 1], Rc::clone(zone)).await);
            }
            let apex = wire_name(&name("a.test"));
            let ask = async || parents.ds(&apex, &servers).await;
            let none = ask().await.expect("they agree");
            assert_eq!((none.ds.len(), none.ttl_s), (0, 60));
            let with_ds = format!("{PARENT}a 120 DS 7 13 2 {}\n", "ab".repeat(32));
            *zones[0].borrow_mut() = zone_map(&name("test"), &with_ds);
            assert_eq!(ask().await, Err("the parent zone's servers have different DS records".to_owned()));
            *zones[1].borrow_mut() = zone_map(&name("test"), &with_ds);
            let found = ask().await.expect("they agree");
            let expected = Ds { key_tag: 7, algorithm: 13, digest_type: 2, digest: vec![0xab; 32] };
            assert_eq!((&found.ds[..], found.ttl_s), (&[expected][..], 120));
            *zones[1].borrow_mut() =
                zone_map(&name("other"), "$TTL 300\n@ SOA ns h 1 1 1 1 60\n@ NS ns\nns A 192.0.2.1\n");
            let error = ask().await.expect_err("one is not responsible");
            assert!(error.contains("it answers REFUSED"), "{error}");
            let unknown = parents.ds(&apex, &[]).await;
            assert!(unknown.expect_err("no resolver").contains("no resolver is queried"));
        });
    }
}
