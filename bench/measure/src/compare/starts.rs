//! Starts, memory, idle connections, and the reload of a large zone.

use crate::compare::peers::{self, CONTROL, Content, Peer};
use crate::compare::rounds::{Rounds, Spread};
use crate::compare::server::{Server, send_signal};
use crate::compare::zone::{
    ADDRESS_AFTER, APEX, Asked, CHANGED_NAME, ZoneFile, write_changed, write_queries, write_small_zones, write_zone,
};
use crate::compare::{dns, http};
use crate::page;
use anyhow::ensure;
use domain::base::iana::Rtype;
use loadgen::{DnsTarget, Kind, Load, client, parse_questions};
use rustix::process::Signal;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RELOAD_COUNT: usize = 3;
/// The time for which queries are sent before a reload, and after the new data has appeared.
const MARGIN: Duration = Duration::from_secs(1);
const RELOAD_LIMIT: Duration = Duration::from_secs(60);
const MEMORY_POLL_EVERY: Duration = Duration::from_millis(20);
const QUERIES_PER_S: u32 = 1000;
/// A server's zone file, which is replaced before a reload.
pub(crate) const SERVED: &str = "served.zone";

pub(crate) fn run(rounds: &mut Rounds) -> anyhow::Result<String> {
    let (name_count, idle_count) = if rounds.is_quick { (100_000, 500) } else { (1_000_000, 5_000) };
    let folder = rounds.bench.folder.clone();
    let site = http::Site::create(&folder.join("starts"), 0)?;
    let (small, _) = write_small_zones(&folder.join("starts-small"), 1)?;
    let (large, record_count) = write_zone(&folder.join("starts-large"), name_count)?;
    let mut text = String::new();
    let site = Content::Site(site.root.clone());
    let mut starts = start(rounds, "HTTP", peers::HTTP, &site, http::answers)?;
    let answers = |server| dns::answers(server, &small[0].apex);
    starts.extend(start(rounds, "DNS", peers::DNS, &Content::Zones(small.clone()), answers)?);
    let title = format!("DNS, {record_count} records");
    let content = Content::Zones(vec![large.clone()]);
    starts.extend(start(rounds, &title, peers::DNS, &content, |server| dns::answers(server, APEX))?);
    text += "Starts: from the start of the process to the first answer.\n\n";
    text += &page::table(&["server", "first answer ms", "processor ms", "PSS MiB"], &starts);
    text += &format!("\nMemory of the server for each of {idle_count} idle HTTP connections after one response:\n\n");
    text += &page::table(&["server", "bytes"], &idle(rounds, &site, idle_count)?);
    text += &format!(
        "\nReload of {record_count} records, one of them changed, under {QUERIES_PER_S} queries a second, with one \
         processor for the server. `late` is the longest delay of sending: if it is long, the machine was busy.\n\n"
    );
    let head = [
        "server",
        "wait before ms",
        "wait during ms",
        "late ms",
        "lost",
        "new data after ms",
        "PSS MiB",
        "peak",
        "after",
    ];
    text += &page::table(&head, &reloads(rounds, &large, name_count)?);
    Ok(text)
}

fn cell(values: &[f64]) -> String {
    Spread::of(values.iter().copied()).map_or_else(|| "–".to_owned(), |spread| spread.to_string())
}

fn start(
    rounds: &mut Rounds,
    title: &str,
    peers: &[Peer],
    content: &Content,
    answers: impl Fn(SocketAddr) -> bool,
) -> anyhow::Result<Vec<Vec<String>>> {
    println!("starts: {title}");
    let mut all = vec![[const { Vec::new() }; 3]; peers.len()];
    for round in 1..=rounds.round_count {
        let mut order: Vec<usize> = (0..peers.len()).collect();
        rounds.random.shuffle(&mut order);
        for index in order {
            let peer = &peers[index];
            let place = rounds.bench.place(&format!("start-{title}-{round}-{}", peer.name), 1)?;
            let floor = Content::Response(vec!["512".into()]);
            let is_http_floor = peer.name == "floor" && matches!(content, Content::Site(_));
            match rounds.bench.start(peer, place, if is_http_floor { &floor } else { content }, &answers) {
                Ok(server) => {
                    let cpu_ms = server.cpu_ns() as f64 / 1e6;
                    let values = [server.start_time.as_secs_f64() * 1e3, cpu_ms, server.memory_mib()];
                    all[index].iter_mut().zip(values).for_each(|(column, value)| column.push(value));
                }
                Err(error) => println!("  without {}: {error:#}", peer.name),
            }
        }
    }
    let row = |(peer, columns): (&Peer, &[Vec<f64>; 3])| {
        std::iter::once(format!("{title}: {}", peer.name)).chain(columns.iter().map(|it| cell(it))).collect()
    };
    Ok(peers.iter().zip(&all).map(row).collect())
}

fn idle(rounds: &Rounds, site: &Content, count: usize) -> anyhow::Result<Vec<Vec<String>>> {
    println!("idle connections");
    let mut rows = Vec::new();
    for peer in &peers::HTTP[1..] {
        let server =
            rounds.bench.start(peer, rounds.bench.place(&format!("idle-{}", peer.name), 1)?, site, http::answers);
        let bytes = server.and_then(|server| {
            let before_mib = server.memory_mib();
            let open = |_| Ok(http::get(server.address(), http::SMALL, "")?.1);
            let connections: Vec<TcpStream> = (0..count).map(open).collect::<anyhow::Result<_>>()?;
            let grown_mib = server.memory_mib() - before_mib;
            drop(connections);
            Ok(format!("{:.0}", grown_mib * 1024.0 * 1024.0 / count as f64))
        });
        rows.push(vec![peer.name.to_owned(), bytes.unwrap_or_else(|error| format!("{error:#}"))]);
    }
    Ok(rows)
}

/// A reload: durations in ms, memory in MiB, in column order.
type Reload = [f64; 8];

fn reloads(rounds: &mut Rounds, zone: &ZoneFile, name_count: usize) -> anyhow::Result<Vec<Vec<String>>> {
    println!("reloads");
    let changed = write_changed(zone)?;
    let queries = write_queries(&rounds.bench.folder, Asked::Names, name_count.min(8192), 1)?;
    let queries = fs::read_to_string(queries.file)?;
    let mut rows = Vec::new();
    for peer in &peers::DNS[1..] {
        let mut all: Vec<Reload> = Vec::new();
        for number in 0..RELOAD_COUNT {
            let place = rounds.bench.place(&format!("reload-{}-{number}", peer.name), 1)?;
            let served = place.folder.join(SERVED);
            fs::hard_link(&zone.file, &served)?;
            let content = Content::Zones(vec![ZoneFile { apex: APEX.to_owned(), file: served }]);
            let server = rounds.bench.start(peer, place, &content, |server| dns::answers(server, APEX));
            match server.and_then(|server| reload(&server, &rounds.bench.sanderling, &changed, &queries)) {
                Ok(reload) => all.push(reload),
                Err(error) => println!("  {}: {error:#}", peer.name),
            }
        }
        let columns = (0..8).map(|index| match index {
            3 => format!("{:.0}", all.iter().map(|reload| reload[index]).sum::<f64>()),
            _ => cell(&all.iter().map(|reload| reload[index]).collect::<Vec<_>>()),
        });
        let row: Vec<String> = std::iter::once(peer.name.to_owned()).chain(columns).collect();
        println!("  {}", row.join("  "));
        rows.push(row);
    }
    Ok(rows)
}

fn reload(server: &Server, sanderling: &Path, changed: &Path, queries: &str) -> anyhow::Result<Reload> {
    let mut load = Load::new(RELOAD_LIMIT, 1);
    load.rates[Kind::DnsUdp as usize] = QUERIES_PER_S;
    let questions = parse_questions(queries).map_err(anyhow::Error::msg)?;
    load.dns = Some(DnsTarget { checks_records: false, ..DnsTarget::new(server.address(), questions) });
    let before = Load { length: MARGIN, ..load.clone() }.start()?.finish()?;
    let memory_before_mib = server.memory_mib();
    replace_zone(server, changed)?;
    let is_over = AtomicBool::new(false);
    let running = load.start()?;
    let start = Instant::now();
    let (new_data, memory_peak_mib) = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| peak_mib(server, &is_over));
        let acted = request_reload(server, sanderling).and_then(|()| wait_for_new_data(server.address()));
        let new_data = acted.map(|()| start.elapsed());
        std::thread::sleep(MARGIN);
        is_over.store(true, Ordering::Relaxed);
        (new_data, sampler.join().expect("reading /proc does not panic"))
    });
    let during = running.finish_now()?;
    let (before, during) = (before.counts(Kind::DnsUdp), during.counts(Kind::DnsUdp));
    let (Some(before), Some(during)) = (before, during) else { anyhow::bail!("no query was sent") };
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    Ok([
        ms(before.latency(1.0)),
        ms(during.latency(1.0)),
        ms(during.late_max),
        during.lost_count() as f64,
        ms(new_data?),
        memory_before_mib,
        memory_peak_mib,
        server.memory_mib(),
    ])
}

/// Replaces the zone file by `changed` as an editor does. Some servers reload files only if they are newer than the
/// last load.
fn replace_zone(server: &Server, changed: &Path) -> anyhow::Result<()> {
    let new = server.place.folder.join("new.zone");
    fs::copy(changed, &new)?;
    Ok(fs::rename(&new, server.place.folder.join(SERVED))?)
}

/// The time from the signal to reload to an answer with the new data, of a server that is reloaded by SIGHUP.
pub(crate) fn change_by_reload(server: &Server, changed: &Path) -> anyhow::Result<Duration> {
    replace_zone(server, changed)?;
    let start = Instant::now();
    ensure!(send_signal(server.pids[0], Signal::HUP), "{} has ended", server.name);
    wait_for_new_data(server.address())?;
    Ok(start.elapsed())
}

/// Sanderling is reloaded by its command, the others by SIGHUP.
fn request_reload(server: &Server, sanderling: &Path) -> anyhow::Result<()> {
    if server.name != "sanderling" {
        ensure!(send_signal(server.pids[0], Signal::HUP), "{} has ended", server.name);
        return Ok(());
    }
    let mut command = Command::new(sanderling);
    let output = command.args(["reload", "--control", CONTROL]).current_dir(&server.place.folder).output()?;
    ensure!(output.status.success(), "reload: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn wait_for_new_data(server: SocketAddr) -> anyhow::Result<()> {
    let start = Instant::now();
    while start.elapsed() < RELOAD_LIMIT {
        let reply = client::query_udp(server, CHANGED_NAME, Rtype::A, Duration::from_millis(100));
        // Without EDNS and with minimal responses, the address ends the message.
        if reply.is_ok_and(|reply| reply.as_slice().ends_with(&ADDRESS_AFTER)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    anyhow::bail!("no new data within {RELOAD_LIMIT:?}")
}

/// The maximum of the memory until `is_over`, at the lowest priority, so that queries are not delayed.
fn peak_mib(server: &Server, is_over: &AtomicBool) -> f64 {
    // Without the right to do so, queries may be delayed, which `late` shows.
    let _ = rustix::process::setpriority_process(None, 19);
    let mut peak = server.memory_mib();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(MEMORY_POLL_EVERY);
        peak = peak.max(server.memory_mib());
    }
    peak
}
