//! Cost against size: the same request with more connections, files, names, zones or workers.

use crate::compare::loads::{Load, dnsperf, wrk};
use crate::compare::rounds::{Contestant, Outcome, Rounds};
use crate::compare::server::Server;
use crate::compare::zone::{Asked, Queries, write_queries, write_small_zones, write_zone};
use crate::compare::{dns, http};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Larger sizes take longer to prepare than to measure, and are left out of a quick run.
const QUICK_SIZE_MAX: usize = 10_000;
/// Memory that all servers together need per name and per zone. A size that does not fit is left out.
const NAME_BYTES: usize = 4 * 350;
const ZONE_BYTES: usize = 4 * 30_000;
/// Maximum time for requesting the files before the rounds.
const FILL_MAX: Duration = Duration::from_secs(60);

/// The results for each size, which is the title.
pub(crate) struct Growth {
    pub(crate) name: &'static str,
    pub(crate) sizes: Vec<Outcome>,
}

pub(crate) fn run(rounds: &mut Rounds) -> anyhow::Result<Vec<Growth>> {
    Ok(vec![
        connections(rounds)?,
        files(rounds)?,
        names(rounds)?,
        zones(rounds)?,
        workers(rounds, "workers-http")?,
        workers(rounds, "workers-dns")?,
    ])
}

/// The servers of one size, and the parameters of their load.
type Size<L> = (usize, Vec<Server>, L);

fn sizes(rounds: &Rounds, all: &[usize], bytes_each: usize) -> Vec<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available_kib = available.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok()).unwrap_or(0);
    let fits = |size: usize| size.saturating_mul(bytes_each) / 1024 <= available_kib;
    all.iter().copied().filter(|size| (!rounds.is_quick || *size <= QUICK_SIZE_MAX) && fits(*size)).collect()
}

fn http_size(rounds: &Rounds, site: &http::Site, name: &str, workers: usize) -> anyhow::Result<Vec<Server>> {
    let mut servers = vec![http::start_floor(&rounds.bench, &format!("{name}-floor"), vec!["512".into()])?];
    servers.extend(http::start_servers(&rounds.bench, site, name, workers)?);
    Ok(servers)
}

fn connections(rounds: &mut Rounds) -> anyhow::Result<Growth> {
    let site = http::Site::create(&rounds.bench.folder.join("connections"), 0)?;
    let mut all = Vec::new();
    for count in sizes(rounds, &[10, 100, 1000, 10_000], 0) {
        all.push((count, http_size(rounds, &site, &format!("connections-{count}"), 1)?, count));
    }
    // Opening the connections should not dominate.
    let length = rounds.length * 2;
    Ok(compare(rounds, "connections", &all, |server, count| wrk(server.address(), http::SMALL, *count, &[], length)))
}

fn files(rounds: &mut Rounds) -> anyhow::Result<Growth> {
    let counts = sizes(rounds, &[10, 100, 1000, 10_000, 100_000], 0);
    let site = http::Site::create(&rounds.bench.folder.join("files"), counts.last().copied().unwrap_or(0))?;
    let length = rounds.length;
    let load = |server: &Server, script: &PathBuf| {
        let arguments = ["-s", &script.display().to_string()];
        wrk(server.address(), http::SMALL, http::CONNECTION_COUNT, &arguments, length)
    };
    let mut all: Vec<Size<PathBuf>> = Vec::new();
    for count in counts {
        let script = rounds.bench.folder.join(format!("rotation-{count}.lua"));
        fs::write(&script, http::rotation_script(count))?;
        let servers = http_size(rounds, &site, &format!("files-{count}"), 1)?;
        for server in &servers[1..] {
            request_all(&load(server, &script), count, &rounds.bench.load_cpus);
        }
        all.push((count, servers, script));
    }
    Ok(compare(rounds, "files", &all, load))
}

/// Requests each file once, so that no round counts its first opening. Errors occur in the rounds again.
fn request_all(load: &Load, count: usize, cpus: &str) {
    let Ok(counted) = load.run(cpus) else { return };
    let missing = count as f64 / counted.response_count as f64;
    if missing > 1.0 {
        // wrk accepts whole seconds only.
        let seconds = (load.length.as_secs_f64() * missing * 1.5).ceil();
        let _ = load.for_time(Duration::from_secs_f64(seconds).min(FILL_MAX)).run(cpus);
    }
}

fn names(rounds: &mut Rounds) -> anyhow::Result<Growth> {
    let mut all = Vec::new();
    for count in sizes(rounds, &[1000, 10_000, 100_000, 1_000_000, 10_000_000], NAME_BYTES) {
        let folder = rounds.bench.folder.join(format!("zone-{count}"));
        let (zone, _) = write_zone(&folder, count)?;
        let queries = write_queries(&folder, Asked::Names, count, 1)?;
        all.push((count, dns::start_servers(&rounds.bench, &[zone], &format!("names-{count}"), 1)?, queries));
    }
    let length = rounds.length;
    let load = |server: &Server, queries: &Queries| dnsperf(server.address(), &queries.file, "udp", length);
    Ok(compare(rounds, "names", &all, load))
}

fn zones(rounds: &mut Rounds) -> anyhow::Result<Growth> {
    let mut all = Vec::new();
    for count in sizes(rounds, &[1, 100, 10_000, 100_000], ZONE_BYTES) {
        let (zones, queries) = write_small_zones(&rounds.bench.folder.join(format!("zones-{count}")), count)?;
        all.push((count, dns::start_servers(&rounds.bench, &zones, &format!("zones-{count}"), 1)?, queries));
    }
    let length = rounds.length;
    let load = |server: &Server, queries: &Queries| dnsperf(server.address(), &queries.file, "udp", length);
    Ok(compare(rounds, "zones", &all, load))
}

/// A server with one and with two workers, which share all processors with the load. The floor has one worker.
fn workers(rounds: &mut Rounds, name: &'static str) -> anyhow::Result<Growth> {
    let cpu_count = std::thread::available_parallelism().map_or(1, usize::from);
    let bench = rounds.bench.clone();
    rounds.bench.server_cpus = format!("0-{}", cpu_count - 1);
    rounds.bench.load_cpus.clone_from(&rounds.bench.server_cpus);
    let site = http::Site::create(&bench.folder.join("workers"), 0)?;
    let (zone, _) = write_zone(&bench.folder.join("workers-zone"), 100_000)?;
    let queries = write_queries(&bench.folder, Asked::Names, 100_000, 1)?;
    let length = rounds.length;
    let mut growth = Growth { name, sizes: Vec::new() };
    for count in [1, 2] {
        let place = format!("{name}-{count}");
        // The servers run one after another, since they would share the processors.
        let one = if name == "workers-http" {
            let all = [(count, http_size(rounds, &site, &place, count)?, ())];
            let load =
                |server: &Server, (): &()| wrk(server.address(), http::SMALL, http::CONNECTION_COUNT, &[], length);
            compare(rounds, name, &all, load)
        } else {
            let servers = dns::start_servers(&rounds.bench, std::slice::from_ref(&zone), &place, count)?;
            let load = |server: &Server, (): &()| dnsperf(server.address(), &queries.file, "udp", length);
            compare(rounds, name, &[(count, servers, ())], load)
        };
        growth.sizes.extend(one.sizes);
    }
    rounds.bench = bench;
    Ok(growth)
}

/// Compares the servers of all sizes in the same rounds, so that sizes can be compared as well.
fn compare<L>(rounds: &mut Rounds, name: &'static str, all: &[Size<L>], load: impl Fn(&Server, &L) -> Load) -> Growth {
    let contestants = all.iter().flat_map(|(_, servers, of)| servers.iter().map(move |server| (server, of)));
    let contestants: Vec<_> = contestants.map(|(server, of)| Contestant { server, load: load(server, of) }).collect();
    let mut rows = rounds.compare(name, &contestants, false).rows.into_iter();
    let outcome = |(size, servers, _): &Size<L>| {
        let rows = rows.by_ref().take(servers.len()).collect();
        Outcome { title: size.to_string(), rows }
    };
    Growth { name, sizes: all.iter().map(outcome).collect() }
}
