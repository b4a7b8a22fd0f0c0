//! What a server costs before and between requests: its start, a large zone and its reload, a connection that says
//! nothing.

use std::net::TcpStream;
use std::path::Path;

use super::client;
use super::dns_peers::{self, ZoneSource};
use super::http_peers;
use super::launch::{Launch, Place};
use super::process_tree::ProcessorTime;
use super::programs::Programs;
use super::reload::{self, Reloads};
use super::rounds::Rounds;
use super::server::Server;
use super::site::Site;
use super::spread::Spread;
use super::zone::{self, APEX, Zone};

/// Names of the large zone, a record each.
const NAME_COUNT: usize = 1_000_000;
const NAME_COUNT_QUICK: usize = 100_000;
/// Connections that say nothing; our own descriptors are the bound.
const IDLE_COUNT: usize = 5000;
const IDLE_COUNT_QUICK: usize = 500;

/// A server that was started again and again.
#[derive(Default)]
pub(super) struct Started {
    pub(super) name: &'static str,
    first_answer_ms: Vec<f64>,
    processor_ms: Vec<f64>,
    memory_mib: Vec<f64>,
    pub(super) trouble: Option<String>,
}

impl Started {
    /// From the start of the process to its first answer, by the clock.
    pub(super) fn first_answer_ms(&self) -> Option<Spread> {
        Spread::of(self.first_answer_ms.iter().copied())
    }

    /// Processor time of the whole tree until then.
    pub(super) fn processor_ms(&self) -> Option<Spread> {
        Spread::of(self.processor_ms.iter().copied())
    }

    /// Memory of the whole tree then.
    pub(super) fn memory_mib(&self) -> Option<Spread> {
        Spread::of(self.memory_mib.iter().copied())
    }
}

/// What the part leaves behind.
pub(super) struct Standing {
    /// HTTP servers on a small site.
    pub(super) http: Vec<Started>,
    /// DNS servers on a zone of 4 records.
    pub(super) dns: Vec<Started>,
    /// DNS servers on the large zone.
    pub(super) large: Vec<Started>,
    pub(super) large_record_count: usize,
    /// DNS servers that load the large zone again.
    pub(super) reloads: Vec<Reloads>,
    /// Octets of memory for each idle connection: of the process, not of the kernel.
    pub(super) idle_bytes: Vec<(&'static str, f64)>,
    pub(super) idle_count: usize,
}

/// Measures all of it.
///
/// # Errors
/// Files or zones cannot be written.
pub(super) fn run(rounds: &mut Rounds, programs: &Programs, is_quick: bool) -> Result<Standing, String> {
    let folder = programs.folder.join("standing");
    let site = Site::create(&folder.join("site"), 0)?;
    let small = [ZoneSource { apex: zone::small_apex(0), file: zone::write_small_zone(&folder)? }];
    let zone = Zone::create(&folder, if is_quick { NAME_COUNT_QUICK } else { NAME_COUNT })?;
    let large = [ZoneSource { apex: APEX.into(), file: zone.file.clone() }];
    let idle_count = if is_quick { IDLE_COUNT_QUICK } else { IDLE_COUNT };
    Ok(Standing {
        http: start_in_turns(
            rounds,
            "HTTP: start",
            &http_launches(programs, &site.root),
            &folder,
            client::answers_http,
        )?,
        dns: start_dns(rounds, programs, "DNS: start", &small, &folder)?,
        large: start_dns(rounds, programs, "DNS: start with a large zone", &large, &folder)?,
        large_record_count: zone.record_count(),
        reloads: reload::run(rounds, programs, &folder, &zone)?,
        idle_bytes: idle(rounds, programs, &site, &folder, idle_count)?,
        idle_count,
    })
}

/// Makes the launch of a server at a place.
type Launcher<'a> = Box<dyn Fn(&Place) -> Launch + 'a>;

fn http_launches<'a>(programs: &'a Programs, root: &'a Path) -> Vec<Launcher<'a>> {
    let floor: Launcher<'a> = Box::new(|place| http_peers::floor(&programs.floor, place, &["512"]));
    let ours: Launcher<'a> = Box::new(|place| http_peers::sanderling(&programs.sanderling, root, place));
    let peers = http_peers::PEERS.iter().map(|peer| -> Launcher<'a> { Box::new(|place| (peer.launch)(root, place)) });
    [floor, ours].into_iter().chain(peers).collect()
}

fn start_dns(
    rounds: &mut Rounds,
    programs: &Programs,
    title: &str,
    zones: &[ZoneSource],
    folder: &Path,
) -> Result<Vec<Started>, String> {
    let floor: Launcher<'_> = Box::new(|place| dns_peers::floor(&programs.floor, place));
    let ours: Launcher<'_> = Box::new(|place| dns_peers::sanderling(&programs.sanderling, zones, place));
    let peers = dns_peers::PEERS.iter().map(|peer| -> Launcher<'_> { Box::new(|place| (peer.launch)(zones, place)) });
    let launches: Vec<Launcher<'_>> = [floor, ours].into_iter().chain(peers).collect();
    let apex = &zones[0].apex;
    start_in_turns(rounds, title, &launches, folder, |address| client::answers_dns(address, apex))
}

/// Starts each server in each round, and ends it at once when it has answered.
fn start_in_turns(
    rounds: &mut Rounds,
    title: &str,
    launches: &[Launcher<'_>],
    folder: &Path,
    answers: impl Fn(std::net::SocketAddr) -> bool,
) -> Result<Vec<Started>, String> {
    println!("{title}");
    let mut all: Vec<Started> = launches.iter().map(|_| Started::default()).collect();
    for round in 1..=rounds.round_count {
        let mut told = String::new();
        for index in rounds.random.order(launches.len()) {
            let place = Place::new(folder, &format!("start-{index}"), 1)?;
            let launch = launches[index](&place);
            let started = &mut all[index];
            started.name = launch.name;
            match Server::start(&launch, &place, &rounds.server_processors, &answers) {
                Ok(server) => {
                    let first_answer_ms = server.start_time.as_secs_f64() * 1000.0;
                    told += &format!("  {} {first_answer_ms:.0} ms", launch.name);
                    started.first_answer_ms.push(first_answer_ms);
                    let used = server.processor_time().since(ProcessorTime::default());
                    started.processor_ms.push(used.total_ns as f64 / 1e6);
                    started.memory_mib.push(server.memory_kib() as f64 / 1024.0);
                }
                Err(problem) => {
                    println!("  {problem}");
                    started.trouble = Some(problem);
                }
            }
        }
        println!("  round {round}:{told}");
    }
    Ok(all)
}

/// Memory before and after `count` connections that have had one answer each and stay open.
fn idle(
    rounds: &Rounds,
    programs: &Programs,
    site: &Site,
    folder: &Path,
    count: usize,
) -> Result<Vec<(&'static str, f64)>, String> {
    println!("Idle connections");
    let mut found = Vec::new();
    for launcher in http_launches(programs, &site.root) {
        let place = Place::new(folder, "idle", 1)?;
        let launch = launcher(&place);
        let measured = Server::start(&launch, &place, &rounds.server_processors, client::answers_http)
            .and_then(|server| idle_bytes(&server, count));
        match measured {
            Ok(bytes) => {
                println!("  {}: {bytes:.0} octets a connection", launch.name);
                found.push((launch.name, bytes));
            }
            Err(problem) => println!("  left out: {} {problem}", launch.name),
        }
    }
    Ok(found)
}

fn idle_bytes(server: &Server, count: usize) -> Result<f64, String> {
    let before_kib = server.memory_kib();
    let open = |_| client::fetch_and_keep(server.address, "/small/512");
    let connections: Vec<TcpStream> = (0..count).map(open).collect::<Result<_, _>>()?;
    let after_kib = server.memory_kib();
    drop(connections);
    Ok(after_kib.saturating_sub(before_kib) as f64 * 1024.0 / count as f64)
}
