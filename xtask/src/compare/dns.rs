//! The DNS workloads: every server asked the same questions about the same zone.

use std::path::Path;
use std::time::Duration;

use super::client;
use super::dns_peers::{self, PEERS, ZoneSource};
use super::launch::{Launch, Place};
use super::load::{Dialect, Expected, Load, SECONDS};
use super::programs::Programs;
use super::rounds::{Contestant, Counting, Outcome, Rounds};
use super::server::Server;
use super::zone::{APEX, Asked, Zone};

/// By what, and over what, queries are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Udp,
    Tcp,
    /// By dnsperf: a second opinion on our own load.
    Dnsperf,
}

struct Workload {
    title: &'static str,
    way: Way,
    asked: Asked,
    name_count: usize,
    /// Whether a quick run has it.
    is_quick: bool,
}

const fn names(title: &'static str, way: Way) -> Workload {
    Workload { title, way, asked: Asked::Names, name_count: 100_000, is_quick: false }
}

/// Those of one zone stand together.
const WORKLOADS: &[Workload] = &[
    Workload { is_quick: true, ..names("100,000 names", Way::Udp) },
    Workload { asked: Asked::Errors, is_quick: true, ..names("Name errors", Way::Udp) },
    Workload { asked: Asked::Referrals, ..names("Referrals", Way::Udp) },
    Workload { asked: Asked::Wildcards, ..names("Wildcards", Way::Udp) },
    names("100,000 names over TCP", Way::Tcp),
    names("100,000 names, asked by dnsperf", Way::Dnsperf),
    Workload { name_count: 1_000_000, ..names("1,000,000 names", Way::Udp) },
];

/// How long a load runs in each round, and what is counted before.
struct Pace {
    length: Duration,
    counting: Counting,
}

/// How long a load runs in each round of a quick run.
const LENGTH_QUICK: Duration = Duration::from_millis(500);

/// What the part leaves behind: its outcomes, and the settings of every server.
pub(super) struct Compared {
    pub(super) outcomes: Vec<Outcome>,
    pub(super) launches: Vec<Launch>,
}

/// Runs every workload, or those of a quick run.
///
/// # Errors
/// The zones cannot be written, or our own server does not start.
pub(super) fn run(rounds: &mut Rounds, programs: &Programs, is_quick: bool) -> Result<Compared, String> {
    let pace = if is_quick {
        Pace { length: LENGTH_QUICK, counting: Counting::CallsFromCold }
    } else {
        Pace { length: rounds.length, counting: Counting::Calls }
    };
    let workloads: Vec<&Workload> = WORKLOADS.iter().filter(|workload| !is_quick || workload.is_quick).collect();
    let mut compared = Compared { outcomes: Vec::new(), launches: Vec::new() };
    for same_zone in workloads.chunk_by(|a, b| a.name_count == b.name_count) {
        let folder = programs.folder.join(format!("dns-{}", same_zone[0].name_count));
        let zone = Zone::create(&folder, same_zone[0].name_count)?;
        let sources = [ZoneSource { apex: APEX.into(), file: zone.file.clone() }];
        let (servers, launches) = start_servers(programs, &folder, &sources, 1, &rounds.server_processors)?;
        for workload in same_zone {
            compared.outcomes.push(run_one(rounds, programs, workload, &zone, &servers, &pace)?);
        }
        if compared.launches.is_empty() {
            compared.launches = launches;
        }
    }
    Ok(compared)
}

fn run_one(
    rounds: &mut Rounds,
    programs: &Programs,
    workload: &Workload,
    zone: &Zone,
    servers: &[Server],
    pace: &Pace,
) -> Result<Outcome, String> {
    let folder = zone.file.parent().expect("a zone file lies in a folder");
    let queries = zone.write_queries(folder, workload.asked, &mut rounds.random)?;
    let mut contestants = Vec::new();
    for server in servers {
        let query = zone.query(workload.asked, 1, &mut rounds.random);
        if let Err(problem) = check(workload, server, &query) {
            println!("{}: left out: {} {problem}", workload.title, server.name);
            continue;
        }
        let load = load(workload, programs, server, &queries, pace.length);
        contestants.push(Contestant { server, load });
    }
    Ok(rounds.compare(workload.title, &describe(workload), &contestants, pace.counting))
}

/// Starts the floor, ours and every peer on the same zones. A peer that does not start is left out.
pub(super) fn start_servers(
    programs: &Programs,
    folder: &Path,
    zones: &[ZoneSource],
    workers: usize,
    processors: &str,
) -> Result<(Vec<Server>, Vec<Launch>), String> {
    let last = &zones.last().expect("there is a zone").apex;
    let place = Place::new(folder, "floor", workers)?;
    let floor = dns_peers::floor(&programs.floor, &place);
    let mut servers = vec![Server::start(&floor, &place, processors, |address| client::answers_dns(address, last))?];
    let place = Place::new(folder, "sanderling", workers)?;
    let launch = dns_peers::sanderling(&programs.sanderling, zones, &place);
    servers.push(Server::start(&launch, &place, processors, |address| client::answers_dns(address, last))?);
    let mut launches = vec![launch];
    for peer in PEERS {
        let place = Place::new(folder, peer.name, workers)?;
        let launch = (peer.launch)(zones, &place);
        match Server::start(&launch, &place, processors, |address| client::answers_dns(address, last)) {
            Ok(server) => {
                servers.push(server);
                launches.push(launch);
            }
            Err(problem) => println!("left out: {problem}"),
        }
    }
    Ok((servers, launches))
}

/// Sees that the server answers `query` as the workload expects.
fn check(workload: &Workload, server: &Server, query: &str) -> Result<(), String> {
    const A: u16 = 1;
    const AAAA: u16 = 28;
    let (name, type_word) = query.split_once(' ').expect("a query is a name and a type");
    let type_number = if type_word == "AAAA" { AAAA } else { A };
    let reply = client::ask_running(server.address, name, type_number).ok_or("does not answer")?;
    // The floor answers everything alike.
    let is_right = server.name == "floor"
        || match workload.asked {
            Asked::Names | Asked::Wildcards => reply.rcode == 0 && reply.is_authoritative && reply.answer_count == 1,
            Asked::Errors => reply.rcode == 3 && reply.is_authoritative && reply.authority_count >= 1,
            Asked::Referrals => reply.rcode == 0 && reply.answer_count == 0 && reply.authority_count >= 1,
        };
    if is_right { Ok(()) } else { Err(format!("answers `{query}` by {reply:?}")) }
}

fn load(workload: &Workload, programs: &Programs, server: &Server, queries: &Path, length: Duration) -> Load {
    let rcode = match workload.asked {
        Asked::Errors if server.name != "floor" => "NXDOMAIN",
        _ => "NOERROR",
    };
    match workload.way {
        Way::Udp => own(programs, server, "udp", queries, rcode, length),
        Way::Tcp => own(programs, server, "tcp", queries, rcode, length),
        Way::Dnsperf => dnsperf(server, queries, rcode, length),
    }
}

/// Our own load over `transport`.
pub(super) fn own(
    programs: &Programs,
    server: &Server,
    transport: &str,
    queries: &Path,
    rcode: &'static str,
    length: Duration,
) -> Load {
    let address = server.address.to_string();
    let queries = queries.display().to_string();
    Load {
        program: programs.load.clone(),
        arguments: vec![transport.into(), address, queries, SECONDS.into()],
        dialect: Dialect::Own,
        expected: Expected::Rcode(rcode),
        length,
    }
}

fn dnsperf(server: &Server, queries: &Path, rcode: &'static str, length: Duration) -> Load {
    let (ip, port) = (server.address.ip().to_string(), server.address.port().to_string());
    let words = ["-s", &ip, "-p", &port, "-l", SECONDS, "-c", "8", "-q", "200", "-T", "1", "-d"];
    let mut arguments: Vec<String> = words.into_iter().map(str::to_owned).collect();
    arguments.push(queries.display().to_string());
    Load { program: "dnsperf".into(), arguments, dialect: Dialect::Dnsperf, expected: Expected::Rcode(rcode), length }
}

fn describe(workload: &Workload) -> String {
    let by = match workload.way {
        Way::Udp => "`bench/load` over UDP, 8 sockets, 200 outstanding",
        Way::Tcp => "`bench/load` over TCP, 8 connections, 200 outstanding",
        Way::Dnsperf => "dnsperf, 8 sockets, 200 outstanding",
    };
    format!("{by}; zone of {} names.", workload.name_count)
}
