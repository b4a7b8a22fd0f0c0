//! The other name servers of this server's zones, asked directly whether they answer like this server. A resolver would
//! not suffice, because it caches answers.

use crate::clock::unix_s;
use crate::dns_exchange::{DNS_PORT, ExchangeError, RCODE_NXDOMAIN, REPLY_TIMEOUT, exchange};
use crate::host_addresses::look_up;
use crate::resolvers::address_of;
use sanderling_config::log::log_warning;
use sanderling_config::{Config, DomainName};
use sanderling_dns::client::{QueryKind, Reply, ReplyError};
use sanderling_dns::rdata::PresentationFormat;
use sanderling_dns::{Name, NameBuf, Rtype, is_later, rdata};
use sanderling_dnssec::zone_keys::{DnskeyRdatas, ServedSerial};
use sanderling_zone_files::wire_name;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The first pause between two questions to a server; the next ones are longer.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Time without any answer after which a server is no longer waited for: resolvers skip it too.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Maximum addresses of a zone's name servers that are queried.
const ADDRESSES_MAX: usize = 64;

/// Finds the name servers of zones.
pub(crate) struct NameServers {
    config: Rc<Config>,
}

/// A name server at one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameServer {
    host: String,
    address: SocketAddr,
}

/// Whether the records of a name have the expected RDATA.
pub(crate) type IsMet = dyn Fn(&[Vec<u8>]) -> bool;

/// The records with which all name servers of a zone must answer.
#[derive(Clone)]
pub(crate) struct Expectation {
    /// The zone.
    pub(crate) apex: DomainName,
    pub(crate) name: DomainName,
    pub(crate) rtype: Rtype,
    pub(crate) is_met: Rc<IsMet>,
}

/// The answer of a server to a query for records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The records' RDATA, which may be empty.
    Records(Vec<Vec<u8>>),
    /// The name is an alias (CNAME).
    Alias,
    /// The name is in a zone of other servers.
    Referral,
}

impl Answer {
    /// The RDATA of the records, if there are any.
    pub(crate) fn into_records(self) -> Vec<Vec<u8>> {
        match self {
            Answer::Records(records) => records,
            Answer::Alias | Answer::Referral => Vec::new(),
        }
    }
}

/// A server that does not answer as expected, and its behaviour.
#[derive(Debug)]
pub(crate) struct Lag {
    server: NameServer,
    name: DomainName,
    rtype: Rtype,
    problem: String,
    is_silent: bool,
}

/// The servers that are not known to answer as expected.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    /// The servers that do not answer as expected.
    pub(crate) lags: Vec<Lag>,
    /// The reasons why other servers, or their addresses, cannot be found.
    pub(crate) not_found: Vec<String>,
}

impl NameServer {
    /// Its name, in lower case, without a dot at the end.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl fmt::Display for NameServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address.port() {
            DNS_PORT => write!(out, "{} ({})", self.host, self.address.ip()),
            _ => write!(out, "{} ({})", self.host, self.address),
        }
    }
}

impl fmt::Display for Lag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lag { server, name, rtype, problem, .. } = self;
        write!(out, "the name server {server} does not serve the new {rtype} record at {name}: {problem}")
    }
}

impl Lag {
    /// The record's name.
    pub(crate) fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl NameServers {
    pub(crate) fn new(config: Rc<Config>) -> NameServers {
        NameServers { config }
    }

    /// Waits for `time_max`, or until each other name server of the zones, and this one if it signs, answers as
    /// expected. A server that does not answer at all is logged, and left out. A delegation of a name to other servers
    /// counts as well: the operator has made it.
    pub(crate) async fn wait_until_answered(&self, expectations: &[Expectation], time_max: Duration) -> Unanswered {
        let deadline = Instant::now() + time_max;
        let mut by_zone: BTreeMap<&DomainName, Vec<&Expectation>> = BTreeMap::new();
        for expectation in expectations {
            by_zone.entry(&expectation.apex).or_default().push(expectation);
        }
        let mut tasks = JoinSet::new();
        let Unanswered { mut lags, mut not_found } = Unanswered::default();
        for (apex, expectations) in by_zone {
            let mut servers = self.others_of(apex, &mut not_found).await.unwrap_or_else(|problem| {
                not_found.push(format!("cannot determine the name servers of zone {apex}: {problem}"));
                Vec::new()
            });
            servers.extend(self.signing_server(apex));
            for server in servers {
                let expectations: Vec<Expectation> = expectations.iter().copied().cloned().collect();
                tasks.spawn_local(async move { wait_for(server, &expectations, deadline).await });
            }
        }
        while let Some(ended) = tasks.join_next().await {
            for lag in ended.expect("a task that panics ends the agent, which is restarted") {
                match lag.is_silent {
                    true => log_warning(&format!("{lag}; continuing without it")),
                    false => lags.push(lag),
                }
            }
        }
        Unanswered { lags, not_found }
    }

    /// The oldest serial with which any name server of the zone answers, this one included. A server that is
    /// unreachable from this machine, for example for lack of IPv6, is left out. Servers of other signers have their
    /// own serials, and must have the DNSKEY records.
    ///
    /// # Errors
    /// Returns an error if a server does not answer or is not known, or if a server of another signer has other DNSKEY
    /// records.
    pub(crate) async fn oldest_version(
        &self,
        apex: &DomainName,
        dnskeys: &DnskeyRdatas,
    ) -> Result<ServedSerial, String> {
        let other_signers = self.config.signed_zone(apex).map_or(&[][..], |zone| &zone.signing.other_signers);
        let mut not_found = Vec::new();
        let mut servers = self.others_of(apex, &mut not_found).await?;
        if let Some(problem) = not_found.pop() {
            return Err(problem);
        }
        servers.extend(self.own_server());
        let mut tasks = JoinSet::new();
        for server in servers {
            let name = wire_name(apex);
            let is_of_other = other_signers.iter().any(|host| host.as_str() == server.host);
            let rtype = if is_of_other { Rtype::DNSKEY } else { Rtype::SOA };
            tasks.spawn_local(async move {
                let answer = ask_with_ttl(server.address, name.as_name(), rtype, name.as_name()).await;
                (server, is_of_other, answer)
            });
        }
        let (mut oldest, mut other_dnskey_ttl_s) = (None::<u32>, 0);
        while let Some(asked) = tasks.join_next().await {
            let (server, is_of_other, answer) = asked.expect("a task that panics ends the agent, which is restarted");
            let (records, ttl_s) = match answer {
                Ok((answer, ttl_s)) => (answer.into_records(), ttl_s),
                Err(error) if error.is_unreachable() => continue,
                Err(error) => return Err(format!("the name server {server}: {error}")),
            };
            if is_of_other {
                check_dnskeys(&records, dnskeys)
                    .map_err(|problem| format!("the name server {server}, of another signer, {problem}"))?;
                other_dnskey_ttl_s = other_dnskey_ttl_s.max(ttl_s.unwrap_or(0));
                continue;
            }
            let serial = records.first().and_then(|soa| rdata::serial_of(soa));
            let serial = serial.ok_or_else(|| format!("the name server {server} has no SOA record of the zone"))?;
            oldest = Some(oldest.filter(|oldest| is_later(serial, *oldest)).unwrap_or(serial));
        }
        let serial = oldest.ok_or_else(|| "no name server of the zone can be reached".to_owned())?;
        // Until the end of this second, servers may have answered from an older version.
        Ok(ServedSerial { serial, at_unix_s: unix_s() + 1, other_dnskey_ttl_s })
    }

    /// The name servers of the zone at `apex`, without this server. `not_found` receives the reasons why servers have
    /// no known address.
    ///
    /// # Errors
    /// Returns an error if this server does not answer for the zone.
    async fn others_of(&self, apex: &DomainName, not_found: &mut Vec<String>) -> Result<Vec<NameServer>, String> {
        let mut servers = self.all_of(apex, not_found).await?;
        servers.retain(|server| !self.is_own(server.address.ip()));
        Ok(servers)
    }

    /// The same with this server.
    ///
    /// # Errors
    /// This server does not answer for the zone.
    pub(crate) async fn all_of(
        &self,
        apex: &DomainName,
        not_found: &mut Vec<String>,
    ) -> Result<Vec<NameServer>, String> {
        let apex_name = wire_name(apex);
        let transfers = self.config.transfers_by_zone();
        let secondaries = &transfers.of(apex).secondaries;
        let mut servers = Vec::new();
        let targets = self.ask_self(apex_name.as_name(), Rtype::NS, apex_name.as_name()).await?;
        for target in targets.into_records() {
            let Ok(host) = Name::parse(&target) else { continue };
            let addresses = self.addresses_of(host, apex_name.as_name()).await.unwrap_or_else(|problem| {
                not_found.push(format!("the name server {host} has no known address: {problem}"));
                Vec::new()
            });
            for ip in addresses {
                let secondary = secondaries.iter().find(|secondary| secondary.address.ip() == ip);
                let own = self.own_port(ip).map(|port| SocketAddr::new(ip, port));
                let address =
                    secondary.map(|secondary| secondary.address).or(own).unwrap_or(SocketAddr::new(ip, DNS_PORT));
                let is_known = servers.iter().any(|server: &NameServer| server.address == address);
                if !is_known && servers.len() < ADDRESSES_MAX {
                    servers.push(NameServer { host: host_text(host), address });
                }
            }
        }
        Ok(servers)
    }

    /// This server, if it signs the zone: its answers change when the zone is re-signed.
    fn signing_server(&self, apex: &DomainName) -> Option<NameServer> {
        self.config.signed_zone(apex).and_then(|_| self.own_server())
    }

    /// This server, if it has a listener at a fixed port.
    fn own_server(&self) -> Option<NameServer> {
        let listen = self.config.dns_listen.iter().find(|address| address.port() != 0)?;
        let address = SocketAddr::new(reachable(listen.ip()), listen.port());
        Some(NameServer { host: "this server".to_owned(), address })
    }

    /// The addresses of a name server. This server knows the addresses in its own zones; others come from the system
    /// resolver.
    ///
    /// # Errors
    /// The name server has no addresses, or they cannot be resolved.
    pub(crate) async fn addresses_of(&self, host: Name<'_>, apex: Name<'_>) -> Result<Vec<IpAddr>, String> {
        if !host.is_at_or_below(apex) {
            let found = look_up(&host.to_string(), DNS_PORT).await?;
            return Ok(found.iter().map(SocketAddr::ip).collect());
        }
        let mut addresses = Vec::new();
        for rtype in [Rtype::A, Rtype::AAAA] {
            let records = self.ask_self(host, rtype, apex).await?.into_records();
            addresses.extend(records.iter().filter_map(|rdata| address_of(rdata)));
        }
        if addresses.is_empty() { Err("the zone has none".to_owned()) } else { Ok(addresses) }
    }

    /// Asks this server for the records at `name`, which is in its zone at `apex`.
    ///
    /// # Errors
    /// Returns an error if this server does not answer, or has no listener at a fixed port.
    pub(crate) async fn ask_self(&self, name: Name<'_>, rtype: Rtype, apex: Name<'_>) -> Result<Answer, String> {
        let mut problem = "no key `listen` in [dns] has a port".to_owned();
        for &address in self.config.dns_listen.iter().filter(|address| address.port() != 0) {
            let address = SocketAddr::new(reachable(address.ip()), address.port());
            match ask(address, name, rtype, apex).await {
                Ok(answer) => return Ok(answer),
                Err(ExchangeError::Reply(ReplyError::Refused(RCODE_NXDOMAIN))) => {
                    return Ok(Answer::Records(Vec::new()));
                }
                Err(error) => problem = format!("asking {address}: {error}"),
            }
        }
        Err(problem)
    }

    /// Whether this server listens at `address`.
    fn is_own(&self, address: IpAddr) -> bool {
        self.own_port(address).is_some()
    }

    /// The port at which this server listens at `address`, if it does.
    fn own_port(&self, address: IpAddr) -> Option<u16> {
        let is_at = |own: IpAddr| own == address || own.is_unspecified() && is_local(address);
        self.config.dns_listen.iter().find(|own| is_at(own.ip())).map(SocketAddr::port)
    }
}

/// An address by which this machine reaches a listener at `address`.
fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) if v4.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(v6) if v6.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        other => other,
    }
}

/// Whether `address` belongs to this machine: the kernel chooses it as its own source address.
fn is_local(address: IpAddr) -> bool {
    let socket = sanderling_os::udp::connect(SocketAddr::new(address, DNS_PORT));
    address.is_loopback() || socket.and_then(|socket| socket.local_addr()).is_ok_and(|local| local.ip() == address)
}

/// Whether a name server of another signer has the DNSKEY records of this one.
fn check_dnskeys(records: &[Vec<u8>], dnskeys: &DnskeyRdatas) -> Result<(), String> {
    if let Some(missing) = dnskeys.wanted.iter().find(|rdata| !records.contains(rdata)) {
        return Err(format!("lacks the record DNSKEY {}", PresentationFormat::new(Rtype::DNSKEY, missing)));
    }
    match dnskeys.unwanted.iter().find(|rdata| records.contains(rdata)) {
        Some(left) => {
            let text = PresentationFormat::new(Rtype::DNSKEY, left);
            Err(format!("has the record DNSKEY {text}, which must be removed there"))
        }
        None => Ok(()),
    }
}

/// Asks `server` once for the records at `name`, which is in the zone at `apex`.
pub(crate) async fn ask(
    server: SocketAddr,
    name: Name<'_>,
    rtype: Rtype,
    apex: Name<'_>,
) -> Result<Answer, ExchangeError> {
    ask_with_ttl(server, name, rtype, apex).await.map(|(answer, _)| answer)
}

/// Asks as [`ask`] does, and also returns how long the answer may be kept.
async fn ask_with_ttl(
    server: SocketAddr,
    name: Name<'_>,
    rtype: Rtype,
    apex: Name<'_>,
) -> Result<(Answer, Option<u32>), ExchangeError> {
    let read = |reply: &Reply<'_>| {
        if reply.is_referral(name, apex)? {
            return Ok((Answer::Referral, None));
        }
        if !reply.is_authoritative() {
            return Err(ReplyError::Malformed("the server is not authoritative for the zone"));
        }
        let records = reply.records(name, rtype)?;
        let is_alias = records.is_empty() && !reply.records(name, Rtype::CNAME)?.is_empty();
        Ok((if is_alias { Answer::Alias } else { Answer::Records(records) }, reply.ttl_s(name, rtype)?))
    };
    exchange(server, (QueryKind::Records(rtype), name), None, REPLY_TIMEOUT, read).await
}

/// A name in lower case, without the dot at its end.
pub(crate) fn host_text(host: Name<'_>) -> String {
    host.to_lowercase().to_string().trim_end_matches('.').to_owned()
}

/// Waits until `server` answers as expected; the difference if it does not.
async fn wait_for(server: NameServer, expectations: &[Expectation], deadline: Instant) -> Vec<Lag> {
    let mut lags = Vec::new();
    let silence_deadline = (Instant::now() + SILENCE_MAX).min(deadline);
    let mut is_silent = true;
    for expectation in expectations {
        let Expectation { apex, name, rtype, is_met } = expectation;
        let (name_bytes, apex_bytes): (NameBuf, NameBuf) = (wire_name(name), wire_name(apex));
        let mut pause = PAUSE_MIN;
        loop {
            let problem = match ask(server.address, name_bytes.as_name(), *rtype, apex_bytes.as_name()).await {
                Ok(Answer::Referral) => break,
                Ok(Answer::Records(records)) if is_met(&records) => break,
                Ok(other) => {
                    is_silent = false;
                    match other {
                        Answer::Alias => "it has an alias (CNAME) there",
                        Answer::Records(records) if records.is_empty() => "it has no such record",
                        Answer::Records(_) | Answer::Referral => "it has other records",
                    }
                    .to_owned()
                }
                Err(error @ ExchangeError::Reply(_)) => {
                    is_silent = false;
                    error.to_string()
                }
                Err(error) => error.to_string(),
            };
            let now = Instant::now();
            if now >= if is_silent { silence_deadline } else { deadline } {
                let lag = Lag { server: server.clone(), name: name.clone(), rtype: *rtype, problem, is_silent };
                lags.push(lag);
                if is_silent {
                    return lags;
                }
                // Whether it answers the others is known by one question each.
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(PAUSE_MAX);
        }
        is_silent = false;
    }
    lags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run, serve, serve_over_tcp};
    use sanderling_config::ConfigSource;
    use sanderling_dns::ZoneMap;
    use std::cell::RefCell;
    use tokio::net::UdpSocket;

    /// ns.example.com is the server under test.
    const ZONE: &str = "$TTL 60\n@ SOA ns host 1 1 1 1 1\n@ NS ns\n@ NS ns2\nns A 127.0.0.1\nns2 A 127.0.0.2\n";
    const RECORD: &str = "t TXT new\n";
    const SHORT: Duration = Duration::from_millis(300);

    fn zone_map(text: &str) -> ZoneMap {
        crate::testing::zone_map(&example(), text)
    }

    fn example() -> DomainName {
        DomainName::parse("example.com").expect("a name")
    }

    /// This server and another server, whose zone is in the cell.
    async fn servers(other_zone: &str) -> (NameServers, Rc<RefCell<ZoneMap>>, SocketAddr) {
        let own = serve([127, 0, 0, 1], Rc::new(RefCell::new(zone_map(ZONE)))).await;
        let zone = Rc::new(RefCell::new(zone_map(other_zone)));
        let other = serve([127, 0, 0, 2], Rc::clone(&zone)).await;
        (name_servers(own, other), zone, other)
    }

    fn name_servers(own: SocketAddr, other: SocketAddr) -> NameServers {
        name_servers_with(own, other, "")
    }

    fn name_servers_with(own: SocketAddr, other: SocketAddr, line: &str) -> NameServers {
        let text = format!(
            "[dns]\nlisten = [\"{own}\"]\n[domain.\"example.com\"]\nzone = \"a.zone\"\nsecondaries = [{{ address = \"{other}\" }}]\n{line}"
        );
        let source = ConfigSource::File("sanderling.toml".into());
        NameServers::new(Rc::new(source.parse(text.as_bytes()).expect("a configuration")))
    }

    fn expectation() -> Expectation {
        let is_met: Rc<IsMet> = Rc::new(|records| records.contains(&b"\x03new".to_vec()));
        let name = DomainName::parse("t.example.com").expect("a name");
        Expectation { apex: example(), name, rtype: Rtype::TXT, is_met }
    }

    #[track_caller]
    fn check_all_answered(found: &Unanswered) {
        assert!(found.lags.is_empty() && found.not_found.is_empty(), "{found:?}");
    }

    #[test]
    fn other_name_servers_are_those_of_the_zone_but_this_one() {
        run(async {
            let (name_servers, _, other) = servers(ZONE).await;
            let expected = [NameServer { host: "ns2.example.com".to_owned(), address: other }];
            let mut not_found = Vec::new();
            assert_eq!(name_servers.others_of(&example(), &mut not_found).await.as_deref(), Ok(&expected[..]));
            assert!(not_found.is_empty(), "{not_found:?}");
        });
        assert!(is_local([127, 0, 0, 2].into()) && !is_local([192, 0, 2, 1].into()));
    }

    #[test]
    fn oldest_serial_is_that_of_the_server_that_lags() {
        run(async {
            let (name_servers, zone, other) = servers(ZONE).await;
            let oldest = async || {
                let version = name_servers.oldest_version(&example(), &DnskeyRdatas::default()).await;
                version.map(|version| version.serial)
            };
            assert_eq!(oldest().await, Ok(1));
            for (serial, expected) in [(0, 0), (2, 1), (u32::MAX, u32::MAX)] {
                let text = ZONE.replace("host 1 ", &format!("host {serial} "));
                *zone.borrow_mut() = zone_map(&text);
                assert_eq!(oldest().await, Ok(expected));
            }
            let apex = DomainName::parse("example.net").expect("a name");
            *zone.borrow_mut() = crate::testing::zone_map(&apex, ZONE);
            let expected = format!("the name server ns2.example.com ({other}): it answers REFUSED");
            assert_eq!(oldest().await, Err(expected));
        });
    }

    /// The other signer's server has its own serials, and must have the DNSKEY records.
    #[test]
    fn server_of_another_signer_is_asked_for_dnskey_records() {
        run(async {
            let (own, zone) = (Rc::new(RefCell::new(zone_map(ZONE))), Rc::new(RefCell::new(zone_map(ZONE))));
            let (own, other) = (serve([127, 0, 0, 1], own).await, serve([127, 0, 0, 2], Rc::clone(&zone)).await);
            let name_servers = name_servers_with(own, other, "dnssec = { other_signers = [\"ns2.example.com\"] }\n");
            let [ours, theirs, old] = [b"\x01\x01\x03\x0fours", b"\x01\x01\x03\x0fthem", b"\x01\x01\x03\x0fold."];
            let dnskeys = DnskeyRdatas { wanted: vec![ours.to_vec()], unwanted: vec![old.to_vec()] };
            let text = |rdata: &[u8]| format!("DNSKEY {}", PresentationFormat::new(Rtype::DNSKEY, rdata));
            for (rdatas, expected) in [
                (vec![theirs], Err(format!("lacks the record {}", text(ours)))),
                (vec![ours, theirs, old], Err(format!("has the record {}, which must be removed there", text(old)))),
                (vec![ours, theirs], Ok((1, 700))),
            ] {
                let records = rdatas.into_iter().map(|rdata| format!("@ 700 {}\n", text(rdata))).collect::<String>();
                *zone.borrow_mut() = zone_map(&format!("{}{records}", ZONE.replace("host 1 ", "host 0 ")));
                let found = name_servers.oldest_version(&example(), &dnskeys).await;
                let server = format!("the name server ns2.example.com ({other}), of another signer, ");
                let expected = expected.map_err(|problem| server + &problem);
                assert_eq!(found.map(|version| (version.serial, version.other_dnskey_ttl_s)), expected);
            }
        });
    }

    #[test]
    fn server_that_lags_is_waited_for_and_named() {
        run(async {
            let (name_servers, zone, other) = servers(ZONE).await;
            let unanswered = name_servers.wait_until_answered(&[expectation()], SHORT).await;
            let [lag] = &unanswered.lags[..] else { panic!("{unanswered:?}") };
            let expected = format!(
                "the name server ns2.example.com ({other}) does not serve the new TXT record at t.example.com: it answers NXDOMAIN"
            );
            assert_eq!(lag.to_string(), expected);
            let expectations = [expectation()];
            let wait = name_servers.wait_until_answered(&expectations, REPLY_TIMEOUT * 10);
            tokio::pin!(wait);
            tokio::select! {
                biased;
                _ = &mut wait => panic!("it has no record"),
                () = tokio::time::sleep(SHORT) => {}
            }
            *zone.borrow_mut() = zone_map(&format!("{ZONE}t TXT old\n"));
            tokio::select! {
                biased;
                _ = &mut wait => panic!("it has another record"),
                () = tokio::time::sleep(SHORT) => {}
            }
            *zone.borrow_mut() = zone_map(&format!("{ZONE}t TXT old\n{RECORD}"));
            check_all_answered(&wait.await);
        });
    }

    #[test]
    fn server_whose_datagrams_are_truncated_is_asked_over_tcp() {
        run(async {
            let own = serve([127, 0, 0, 1], Rc::new(RefCell::new(zone_map(ZONE)))).await;
            let zone = Rc::new(RefCell::new(zone_map(ZONE)));
            let name_servers = name_servers(own, serve_over_tcp([127, 0, 0, 2], Rc::clone(&zone)).await);
            let unanswered = name_servers.wait_until_answered(&[expectation()], SHORT).await;
            assert!(unanswered.lags.len() == 1 && !unanswered.lags[0].is_silent, "{unanswered:?}");
            *zone.borrow_mut() = zone_map(&format!("{ZONE}{RECORD}"));
            check_all_answered(&name_servers.wait_until_answered(&[expectation()], REPLY_TIMEOUT * 10).await);
        });
    }

    #[test]
    fn silent_servers_and_delegations_are_not_waited_for() {
        run(async {
            let (name_servers, ..) = servers(&format!("{ZONE}t NS ns\n")).await;
            // The other server refers to this server.
            check_all_answered(&name_servers.wait_until_answered(&[expectation()], REPLY_TIMEOUT * 10).await);
            let own = serve([127, 0, 0, 1], Rc::new(RefCell::new(zone_map(ZONE)))).await;
            let unbound = UdpSocket::bind("127.0.0.2:0").await.and_then(|socket| socket.local_addr()).expect("bound");
            check_all_answered(&self::name_servers(own, unbound).wait_until_answered(&[expectation()], SHORT).await);
        });
    }

    #[test]
    fn servers_that_cannot_be_found_are_not_silent() {
        run(async {
            let zone = zone_map(&format!("{ZONE}@ NS ns3\n"));
            let own = serve([127, 0, 0, 1], Rc::new(RefCell::new(zone))).await;
            let other = serve([127, 0, 0, 2], Rc::new(RefCell::new(zone_map(&format!("{ZONE}{RECORD}"))))).await;
            let apex = DomainName::parse("example.net").expect("a name");
            let of_other_zone = Expectation { apex: apex.clone(), name: apex, ..expectation() };
            let found = name_servers(own, other).wait_until_answered(&[expectation(), of_other_zone], SHORT).await;
            let expected = [
                "the name server ns3.example.com. has no known address: the zone has none",
                &format!("cannot determine the name servers of zone example.net: asking {own}: it answers REFUSED"),
            ];
            assert_eq!(found.not_found, expected);
            assert!(found.lags.is_empty(), "{found:?}");
        });
    }
}
