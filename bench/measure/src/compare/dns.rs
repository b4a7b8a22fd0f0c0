//! The DNS workloads: all servers with the same zone and the same queries.

use crate::compare::loads::dnsperf;
use crate::compare::peers::{self, Content};
use crate::compare::rounds::{Contestant, Outcome, Rounds};
use crate::compare::server::{Bench, Server};
use crate::compare::zone::{Asked, ZoneFile, write_queries, write_zone};
use domain::base::iana::{Rcode, Rtype};
use loadgen::client;
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum wait for a reply, during startup and afterwards.
const TIMEOUT: Duration = Duration::from_secs(2);
const START_TIMEOUT: Duration = Duration::from_millis(20);

/// The option of a client that has no cookie of the server yet (RFC 7873).
const COOKIE: &str = "10:0123456789abcdef";

struct Workload {
    title: &'static str,
    mode: &'static str,
    asked: Asked,
    name_count: usize,
    is_quick: bool,
    /// The lines of the settings that count.
    marks: &'static [&'static str],
    /// Further arguments of the load generator.
    options: &'static [&'static str],
}

const fn names(title: &'static str, name_count: usize) -> Workload {
    Workload { title, mode: "udp", asked: Asked::Names, name_count, is_quick: false, marks: &[], options: &[] }
}

/// Workloads with the same zone and settings are adjacent.
const WORKLOADS: &[Workload] = &[
    Workload { is_quick: true, ..names("100,000 names", 100_000) },
    Workload { asked: Asked::Missing, is_quick: true, ..names("name errors", 100_000) },
    Workload { asked: Asked::Referrals, ..names("referrals", 100_000) },
    Workload { asked: Asked::Wildcards, ..names("wildcards", 100_000) },
    Workload { mode: "tcp", ..names("over TCP", 100_000) },
    Workload { marks: &["cookies"], options: &["-E", COOKIE], ..names("with cookies", 100_000) },
    Workload { marks: &["limits"], ..names("with rate limits", 100_000) },
    names("1,000,000 names", 1_000_000),
];

pub(crate) fn run(rounds: &mut Rounds) -> anyhow::Result<Vec<Outcome>> {
    let chosen: Vec<&Workload> = WORKLOADS.iter().filter(|it| !rounds.is_quick || it.is_quick).collect();
    let mut outcomes = Vec::new();
    for same_zone in chosen.chunk_by(|a, b| (a.name_count, a.marks) == (b.name_count, b.marks)) {
        let name_count = same_zone[0].name_count;
        let folder = rounds.bench.folder.join(format!("zone-{name_count}"));
        let (zone, _) = write_zone(&folder, name_count)?;
        let marks = same_zone[0].marks;
        let bench = Bench { marks, ..rounds.bench.clone() };
        let servers = start_servers(&bench, &[zone], &format!("dns-{name_count}{}", marks.concat()), 1)?;
        for workload in same_zone {
            let queries = write_queries(&folder, workload.asked, name_count, rounds.random.u64(..))?;
            let mut contestants = Vec::new();
            for server in &servers {
                match check(workload.asked, server, &queries.first) {
                    Ok(()) => {
                        let load = dnsperf(server.address(), &queries.file, workload.mode, rounds.length);
                        let load = load.with_arguments(workload.options);
                        contestants.push(Contestant { server, load });
                    }
                    Err(error) => println!("{}: without {}: {error:#}", workload.title, server.name),
                }
            }
            outcomes.push(rounds.compare(workload.title, &contestants, true));
        }
    }
    Ok(outcomes)
}

/// Starts the floor and all servers on the same zones.
pub(crate) fn start_servers(
    bench: &Bench,
    zones: &[ZoneFile],
    name: &str,
    workers: usize,
) -> anyhow::Result<Vec<Server>> {
    let content = Content::Zones(zones.to_vec());
    bench.start_all(peers::DNS, name, workers, &content, |server| answers(server, &zones[0].apex))
}

/// Whether a DNS server is authoritative for a zone. The floor sends one address to every question.
pub(crate) fn answers(server: SocketAddr, apex: &str) -> bool {
    let reply = client::query_udp(server, apex, Rtype::SOA, START_TIMEOUT);
    reply.is_ok_and(|reply| {
        reply.header().rcode() == Rcode::NOERROR && reply.header().aa() && reply.header_counts().ancount() == 1
    })
}

fn check(asked: Asked, server: &Server, query: &str) -> anyhow::Result<()> {
    let (name, rtype) = query.split_once(' ').unwrap_or((query, "A"));
    let rtype = if rtype == "AAAA" { Rtype::AAAA } else { Rtype::A };
    let reply = client::query_udp(server.address(), name, rtype, TIMEOUT)?;
    let (header, counts) = (reply.header(), reply.header_counts());
    let (rcode, answer_count, has_authority) = (header.rcode(), counts.ancount(), counts.nscount() > 0);
    let is_correct = match asked {
        _ if server.name == "floor" => true,
        Asked::Names | Asked::Wildcards => rcode == Rcode::NOERROR && header.aa() && answer_count == 1,
        Asked::Missing => rcode == Rcode::NXDOMAIN && header.aa() && has_authority,
        Asked::Referrals => rcode == Rcode::NOERROR && answer_count == 0 && has_authority,
    };
    anyhow::ensure!(is_correct, "replies to `{query}` with {rcode} and {answer_count} answers");
    Ok(())
}
