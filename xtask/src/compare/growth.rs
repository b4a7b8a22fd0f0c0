//! Cost against size: the same request while connections, files, names, zones or workers become more.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::chart::{Series, grouped};
use super::dns;
use super::dns_peers::ZoneSource;
use super::http;
use super::load::Load;
use super::machine;
use super::programs::Programs;
use super::rounds::{Contestant, Counting, Outcome, Rounds, Row};
use super::server::Server;
use super::site::{self, Site};
use super::zone::{self, APEX, Asked, Zone};

const CONNECTION_COUNTS: &[usize] = &[10, 100, 1000, 10_000];
const FILE_COUNTS: &[usize] = &[10, 100, 1000, 10_000, 100_000];
const NAME_COUNTS: &[usize] = &[1000, 10_000, 100_000, 1_000_000, 10_000_000];
const ZONE_COUNTS: &[usize] = &[1, 100, 10_000, 100_000];
const WORKER_COUNTS: &[usize] = &[1, 2];
/// What a quick run leaves out, since it takes longer to prepare than to measure.
const QUICK_COUNT_MAX: usize = 10_000;
/// Octets that all servers together need for a name, or a zone, at most; less memory than that, and the size is left out.
const NAME_BYTES: u64 = 4 * 350;
const ZONE_BYTES: u64 = 4 * 30_000;
/// Connections where they do not grow.
const CONNECTION_COUNT: usize = 64;
/// Where there are so many connections, loads run longer by this factor, since opening them is not what is measured.
const MANY_CONNECTIONS: usize = 10_000;
const MANY_CONNECTIONS_FACTOR: u32 = 2;
/// The run that asks for all files is longer by this factor than it would have to be by what the run before it did.
const LONGER_FACTOR: f64 = 1.5;
/// How long one server is asked at most.
const ASKING_MAX_S: f64 = 60.0;

/// One thing that grows, and what came of each size.
pub(super) struct Growth {
    pub(super) title: &'static str,
    /// What stands on the axis.
    pub(super) axis: &'static str,
    /// The file of its picture.
    pub(super) file: &'static str,
    pub(super) description: String,
    pub(super) sizes: Vec<(usize, Outcome)>,
    /// All sizes took turns, so that they can be compared with each other.
    pub(super) in_same_rounds: bool,
}

impl Growth {
    /// The names of the servers, in the order of the tables.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for row in self.sizes.iter().flat_map(|(_, outcome)| &outcome.rows) {
            if !names.contains(&row.name) {
                names.push(row.name.clone());
            }
        }
        names
    }

    /// For the picture.
    pub(super) fn series(&self) -> Vec<Series> {
        let points = |name: &String| {
            let point = |(size, outcome): &(usize, Outcome)| Some((*size as f64, outcome.row(name)?.cost()?));
            self.sizes.iter().filter_map(point).collect()
        };
        self.names().into_iter().map(|name| Series { points: points(&name), name }).collect()
    }

    /// As [`Growth::table`]: how many times what the smallest size costs, round by round.
    pub(super) fn times_smallest(&self) -> Vec<Vec<String>> {
        self.table(|row| {
            let (_, smallest) = self.sizes.first()?;
            row.times(smallest.row(&row.name)?).map(|ratio| ratio.to_string())
        })
    }

    /// A line for each size, a column for each server: `of` of the row, or a dash.
    pub(super) fn table(&self, of: impl Fn(&Row) -> Option<String>) -> Vec<Vec<String>> {
        let names = self.names();
        let line = |(size, outcome): &(usize, Outcome)| {
            let cell = |name: &String| outcome.row(name).and_then(&of).unwrap_or_else(|| "–".into());
            std::iter::once(grouped(*size as u64)).chain(names.iter().map(cell)).collect()
        };
        self.sizes.iter().map(line).collect()
    }
}

/// Runs all of it, or what is small enough for a quick run.
///
/// # Errors
/// Files or zones cannot be written, or our own server does not start.
pub(super) fn run(rounds: &mut Rounds, programs: &Programs, is_quick: bool) -> Result<Vec<Growth>, String> {
    Ok(vec![
        connections(rounds, programs, &sizes(CONNECTION_COUNTS, is_quick))?,
        files(rounds, programs, &sizes(FILE_COUNTS, is_quick))?,
        names(rounds, programs, &sizes(NAME_COUNTS, is_quick))?,
        zones(rounds, programs, &sizes(ZONE_COUNTS, is_quick))?,
        http_workers(rounds, programs)?,
        dns_workers(rounds, programs)?,
    ])
}

fn sizes(all: &[usize], is_quick: bool) -> Vec<usize> {
    all.iter().copied().filter(|size| !is_quick || *size <= QUICK_COUNT_MAX).collect()
}

fn connections(rounds: &mut Rounds, programs: &Programs, counts: &[usize]) -> Result<Growth, String> {
    let folder = programs.folder.join("connections");
    let site = Site::create(&folder.join("site"), 0)?;
    let length = rounds.length * if counts.contains(&MANY_CONNECTIONS) { MANY_CONNECTIONS_FACTOR } else { 1 };
    let servers = http_servers_for_each(rounds, programs, &folder, &site, counts)?;
    let load = |server: &Server, count: &usize| http::wrk(server, "/small/512", *count, &[], length);
    let sizes = compare_together(rounds, "connections", &servers, load);
    let description = "512 B, wrk, kept alive.".into();
    let (title, file) = ("Connections", "growth-connections.svg");
    Ok(Growth { title, axis: "connections", file, description, sizes, in_same_rounds: true })
}

fn files(rounds: &mut Rounds, programs: &Programs, counts: &[usize]) -> Result<Growth, String> {
    let folder = programs.folder.join("files");
    let site = Site::create(&folder.join("site"), counts.iter().copied().max().unwrap_or(0))?;
    let servers = http_servers_for_each(rounds, programs, &folder, &site, counts)?;
    for &count in counts {
        http::write_script(&folder, &rotation_name(count), &site::rotation_script(count, 1))?;
    }
    let length = rounds.length;
    let load = |server: &Server, count: &usize| {
        let script = http::script_arguments(&folder.join(rotation_name(*count)));
        http::wrk(server, "/small/512", CONNECTION_COUNT, &script, length)
    };
    for (count, servers, _) in &servers {
        println!("asking servers for {count} files");
        for server in servers.iter().filter(|server| server.name != "floor") {
            ask_for_all(server.name, &load(server, count), *count, &rounds.load_processors);
        }
    }
    let sizes = compare_together(rounds, "files", &servers, load);
    let description = format!(
        "Files of 512 B in random order, each asked for before, wrk, {CONNECTION_COUNT} connections, kept alive."
    );
    let (title, file) = ("Files", "growth-files.svg");
    Ok(Growth { title, axis: "files", file, description, sizes, in_same_rounds: true })
}

/// Has each of `count` files asked for, so that the first opening of a file counts in no round: by a run that tells how
/// fast they are answered, and one that is long enough by that. What fails here fails in the rounds again, and is told
/// there.
fn ask_for_all(name: &str, load: &Load, count: usize, processors: &str) {
    let Ok(counted) = load.run(processors) else { return };
    let missing_times = count as f64 / counted.answered_count.max(1) as f64;
    if missing_times > 1.0 {
        // wrk takes whole seconds only.
        let length_s = (load.length.as_secs_f64() * missing_times * LONGER_FACTOR).ceil().min(ASKING_MAX_S);
        let counted = load.lasting(Duration::from_secs_f64(length_s)).run(processors);
        if counted.is_ok_and(|counted| counted.answered_count < count as u64) {
            println!("  {name} was not asked for all files: they take longer than {length_s} s");
        }
    }
}

fn rotation_name(count: usize) -> String {
    format!("rotation-{count}.lua")
}

fn names(rounds: &mut Rounds, programs: &Programs, counts: &[usize]) -> Result<Growth, String> {
    let mut all = Vec::new();
    for &count in counts.iter().filter(|count| fits("names", **count, NAME_BYTES)) {
        let folder = programs.folder.join(format!("names-{count}"));
        let zone = Zone::create(&folder, count)?;
        let queries = zone.write_queries(&folder, Asked::Names, &mut rounds.random)?;
        let sources = [ZoneSource { apex: APEX.into(), file: zone.file.clone() }];
        println!("starting servers with {count} names");
        let (servers, _) = dns::start_servers(programs, &folder, &sources, 1, &rounds.server_processors)?;
        all.push((count, servers, queries));
    }
    let length = rounds.length;
    let load = |server: &Server, queries: &PathBuf| dns::own(programs, server, "udp", queries, "NOERROR", length);
    let sizes = compare_together(rounds, "names", &all, load);
    let description = "One zone, one address a name, `bench/load` over UDP, 200 outstanding.".into();
    Ok(Growth { title: "Names", axis: "names", file: "growth-names.svg", description, sizes, in_same_rounds: true })
}

fn zones(rounds: &mut Rounds, programs: &Programs, counts: &[usize]) -> Result<Growth, String> {
    let mut all = Vec::new();
    for &count in counts.iter().filter(|count| fits("zones", **count, ZONE_BYTES)) {
        let folder = programs.folder.join(format!("zones-{count}"));
        let file = zone::write_small_zone(&folder)?;
        let queries = zone::write_small_queries(&folder, count)?;
        let source = |number| ZoneSource { apex: zone::small_apex(number), file: file.clone() };
        let sources: Vec<ZoneSource> = (0..count).map(source).collect();
        println!("starting servers with {count} zones");
        let (servers, _) = dns::start_servers(programs, &folder, &sources, 1, &rounds.server_processors)?;
        all.push((count, servers, queries));
    }
    let length = rounds.length;
    let load = |server: &Server, queries: &PathBuf| dns::own(programs, server, "udp", queries, "NOERROR", length);
    let sizes = compare_together(rounds, "zones", &all, load);
    let description = "Zones of 4 records, all from one file, `bench/load` over UDP, 200 outstanding.".into();
    Ok(Growth { title: "Zones", axis: "zones", file: "growth-zones.svg", description, sizes, in_same_rounds: true })
}

fn http_workers(rounds: &mut Rounds, programs: &Programs) -> Result<Growth, String> {
    let mut sizes = Vec::new();
    for &count in WORKER_COUNTS {
        let folder = programs.folder.join(format!("http-workers-{count}"));
        let site = Site::create(&folder.join("site"), 0)?;
        let outcome = on_all_processors(rounds, |rounds| {
            let servers = http_servers(rounds, programs, &folder, &site, count)?;
            let length = rounds.length;
            let load = |server: &Server| http::wrk(server, "/small/512", CONNECTION_COUNT, &[], length);
            Ok(compare(rounds, &format!("HTTP, {count} workers"), &servers, load))
        })?;
        sizes.push((count, outcome));
    }
    let description = "512 B, wrk; servers and load share both processors. The floor has one worker.".into();
    Ok(Growth {
        title: "Workers, HTTP",
        axis: "workers",
        file: "growth-http-workers.svg",
        description,
        sizes,
        in_same_rounds: false,
    })
}

fn dns_workers(rounds: &mut Rounds, programs: &Programs) -> Result<Growth, String> {
    let mut sizes = Vec::new();
    for &count in WORKER_COUNTS {
        let folder = programs.folder.join(format!("dns-workers-{count}"));
        let zone = Zone::create(&folder, 100_000)?;
        let queries = zone.write_queries(&folder, Asked::Names, &mut rounds.random)?;
        let outcome = on_all_processors(rounds, |rounds| {
            let sources = [ZoneSource { apex: APEX.into(), file: zone.file.clone() }];
            let (servers, _) = dns::start_servers(programs, &folder, &sources, count, &rounds.server_processors)?;
            Ok(compare_dns(rounds, programs, &format!("DNS, {count} workers"), &servers, &queries))
        })?;
        sizes.push((count, outcome));
    }
    let description =
        "100,000 names over UDP; servers and load share both processors. The floor has one worker.".into();
    Ok(Growth {
        title: "Workers, DNS",
        axis: "workers",
        file: "growth-dns-workers.svg",
        description,
        sizes,
        in_same_rounds: false,
    })
}

/// Lets servers and loads run wherever they like.
fn on_all_processors<T>(
    rounds: &mut Rounds,
    measure: impl FnOnce(&mut Rounds) -> Result<T, String>,
) -> Result<T, String> {
    let all = format!("0-{}", std::thread::available_parallelism().map_or(1, |count| count.get()) - 1);
    let before = (rounds.server_processors.clone(), rounds.load_processors.clone());
    (rounds.server_processors, rounds.load_processors) = (all.clone(), all);
    let measured = measure(rounds);
    (rounds.server_processors, rounds.load_processors) = before;
    measured
}

/// The floor and all HTTP servers for each of `counts`, all of them on one site: what one of them keeps is not driven out
/// by what is asked of another.
fn http_servers_for_each(
    rounds: &Rounds,
    programs: &Programs,
    folder: &Path,
    site: &Site,
    counts: &[usize],
) -> Result<Vec<(usize, Vec<Server>, usize)>, String> {
    let servers_for = |&count: &usize| {
        let servers = http_servers(rounds, programs, &folder.join(count.to_string()), site, 1)?;
        Ok((count, servers, count))
    };
    counts.iter().map(servers_for).collect()
}

/// The floor and all HTTP servers, their files old enough.
fn http_servers(
    rounds: &Rounds,
    programs: &Programs,
    folder: &Path,
    site: &Site,
    workers: usize,
) -> Result<Vec<Server>, String> {
    let processors = &rounds.server_processors;
    let mut servers = vec![http::start_floor(programs, folder, &["512".into()], processors)?];
    servers.extend(http::start_servers(programs, folder, site, workers, processors)?.0);
    site.wait_until_settled();
    Ok(servers)
}

/// One comparison of servers for all sizes, so that sizes can be compared as well; an outcome for each. Behind the servers
/// of a size stands what its load is made of.
fn compare_together<L>(
    rounds: &mut Rounds,
    what: &str,
    all: &[(usize, Vec<Server>, L)],
    load: impl Fn(&Server, &L) -> Load,
) -> Vec<(usize, Outcome)> {
    let mut of_all_sizes = Vec::new();
    for (_, servers, of) in all {
        of_all_sizes.extend(contestants(servers, |server| load(server, of)));
    }
    let mut rows = rounds.compare(&format!("Growing {what}"), "", &of_all_sizes, Counting::Nothing).rows.into_iter();
    let outcome = |(count, servers, _): &(usize, Vec<Server>, L)| {
        let rows = rows.by_ref().take(servers.len()).collect();
        (*count, Outcome { title: format!("{count} {what}"), description: String::new(), rows })
    };
    all.iter().map(outcome).collect()
}

fn compare_dns(rounds: &mut Rounds, programs: &Programs, title: &str, servers: &[Server], queries: &Path) -> Outcome {
    let length = rounds.length;
    compare(rounds, title, servers, |server| dns::own(programs, server, "udp", queries, "NOERROR", length))
}

fn compare(rounds: &mut Rounds, title: &str, servers: &[Server], load: impl Fn(&Server) -> Load) -> Outcome {
    rounds.compare(title, "", &contestants(servers, load), Counting::Nothing)
}

fn contestants(servers: &[Server], load: impl Fn(&Server) -> Load) -> Vec<Contestant<'_>> {
    servers.iter().map(|server| Contestant { server, load: load(server) }).collect()
}

/// Whether the machine has room for `count` of something; says so when it has not.
fn fits(what: &str, count: usize, bytes_each: u64) -> bool {
    let needed_kib = count as u64 * bytes_each / 1024;
    let available_kib = machine::memory_available_kib();
    let fits = needed_kib <= available_kib;
    if !fits {
        println!("{count} {what} are left out: they need {needed_kib} KiB, and {available_kib} KiB are free");
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::load::Counted;
    use crate::compare::process_tree::ProcessorTime;
    use crate::compare::rounds::Sample;

    fn row(name: &str, cost_us: u64) -> Row {
        let counted = Counted { answered_count: 1000, error_count: 0, load_ns: 0 };
        let server = ProcessorTime { total_ns: cost_us * 1_000_000, ..ProcessorTime::default() };
        Row { name: name.into(), samples: vec![Some(Sample { counted, server })], ..Row::default() }
    }

    #[test]
    fn a_server_that_is_missing_at_one_size_keeps_its_column() {
        let outcome = |rows| Outcome { title: String::new(), description: String::new(), rows };
        let sizes = vec![(10, outcome(vec![row("ours", 4), row("nsd", 5)])), (1000, outcome(vec![row("ours", 6)]))];
        let growth = Growth {
            title: "Names",
            axis: "names",
            file: "names.svg",
            description: String::new(),
            sizes,
            in_same_rounds: true,
        };
        assert_eq!(growth.names(), ["ours", "nsd"]);
        let table = growth.table(|row| row.cost().map(|cost| cost.median.to_string()));
        assert_eq!(table, [["10", "4", "5"], ["1,000", "6", "–"]]);
        assert_eq!(growth.times_smallest()[1][1], "1.50 (1.50–1.50)");
        let series = growth.series();
        assert_eq!((series[0].points.len(), series[1].points.len()), (2, 1));
    }

    #[test]
    fn a_quick_run_leaves_out_what_is_long_in_preparing() {
        assert_eq!(sizes(NAME_COUNTS, true), [1000, 10_000]);
        assert_eq!(sizes(NAME_COUNTS, false).len(), NAME_COUNTS.len());
    }
}
