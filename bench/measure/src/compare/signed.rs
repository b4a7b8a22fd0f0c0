//! Signed zones: answers with signatures and proofs, signing, changes of one record, and memory.

use crate::compare::changes;
use crate::compare::dns::{self, answers};
use crate::compare::loads::dnsperf;
use crate::compare::peers::{self, Content};
use crate::compare::rounds::{Contestant, Outcome, Rounds, Spread};
use crate::compare::server::{Bench, pinned};
use crate::compare::zone::{
    APEX, Asked, Chain, last_name, make_key, sign_zone, write_kzonesign_config, write_queries, write_zone,
};
use crate::page;
use crate::system;
use anyhow::{Context, ensure};
use domain::base::iana::Rtype;
use loadgen::client;
use procfs::process::Process;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum wait for an answer while a zone may be being signed.
const TIMEOUT: Duration = Duration::from_millis(20);
const NAME_COUNT: usize = 100_000;

/// A title, the zone's denial of existence, and the queries.
const WORKLOADS: &[(&str, Chain, Asked)] = &[
    ("signed answers", Chain::Nsec, Asked::Names),
    ("name errors, NSEC", Chain::Nsec, Asked::Missing),
    ("name errors, NSEC3", Chain::Nsec3, Asked::Missing),
];

pub(crate) struct Report {
    pub(crate) answers: Vec<Outcome>,
    /// The other tables, with the counted quantity.
    pub(crate) text: String,
}

pub(crate) fn run(rounds: &mut Rounds) -> anyhow::Result<Report> {
    let answers = answers_of_signed_zones(rounds)?;
    let memory = answers.iter().flat_map(|outcome| {
        outcome
            .rows
            .iter()
            .filter(|row| row.name != "floor")
            .map(|row| vec![row.name.to_owned(), outcome.title.clone(), format!("{:.1}", row.memory_mib)])
    });
    let mut text = format!(
        "Memory (PSS) of the server with the signed zone of {NAME_COUNT} names, in MiB:\n\n{}",
        page::table(&["server", "workload", "MiB"], &memory.collect::<Vec<_>>())
    );
    text += &signing(rounds)?;
    text += &changes_of_signed_zone(rounds)?;
    Ok(Report { answers, text })
}

/// Queries with the flag DO. The zones are signed by ldns-signzone, and all servers answer from the same files. The
/// floor sends as many bytes as Sanderling.
fn answers_of_signed_zones(rounds: &mut Rounds) -> anyhow::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for same_zone in WORKLOADS.chunk_by(|a, b| a.1 == b.1) {
        let chain = same_zone[0].1;
        let folder = rounds.bench.folder.join(format!("signed-{chain:?}"));
        let zone = sign_zone(&write_zone(&folder, NAME_COUNT)?.0, chain)?;
        let servers = dns::start_servers(&rounds.bench, &[zone], &format!("signed-{chain:?}"), 1)?;
        for (title, _, asked) in same_zone {
            let queries = write_queries(&folder, *asked, NAME_COUNT, rounds.random.u64(..))?;
            let ours =
                servers.iter().find(|server| server.name == "sanderling").context("Sanderling does not start")?;
            let reply_bytes = reply_bytes(ours.address(), &queries.first)?;
            let place = rounds.bench.place(&format!("{title}-floor"), 1)?;
            let content = Content::Response(vec![reply_bytes.to_string()]);
            let floor = rounds.bench.start(&peers::DNS[0], place, &content, |server| answers(server, APEX))?;
            let others = servers.iter().filter(|server| server.name != "floor");
            let contestants: Vec<Contestant<'_>> = std::iter::once(&floor)
                .chain(others)
                .map(|server| {
                    let load = dnsperf(server.address(), &queries.file, "udp", rounds.length);
                    Contestant { server, load: load.with_arguments(&["-D"]) }
                })
                .collect();
            outcomes.push(rounds.compare(&format!("{title}, {reply_bytes} bytes"), &contestants, true));
        }
    }
    Ok(outcomes)
}

/// The length of the reply to a query with DO, as `dig` reports it. The reply must have a signature.
fn reply_bytes(server: SocketAddr, query: &str) -> anyhow::Result<usize> {
    let (name, rtype) = query.split_once(' ').context("a name and a type")?;
    let (ip, port) = (format!("@{}", server.ip()), server.port().to_string());
    let text = system::output_of("dig", &["+dnssec", "+nocookie", &ip, "-p", &port, name, rtype]);
    ensure!(text.contains("RRSIG"), "no signature: {text}");
    let bytes = text.lines().find_map(|line| line.split_once("MSG SIZE  rcvd: "));
    bytes.and_then(|(_, bytes)| bytes.trim().parse().ok()).with_context(|| format!("unknown output of dig: {text}"))
}

/// The processor time of signing a zone by ECDSA P-256 with one key and NSEC. The others read and write a file.
/// Sanderling reads the file, signs, stores the signed version, loads it and answers from it; the time without `dnssec`
/// covers the same steps without signing.
fn signing(rounds: &Rounds) -> anyhow::Result<String> {
    let name_count = if rounds.is_quick { NAME_COUNT } else { 1_000_000 };
    let (zone, record_count) = write_zone(&rounds.bench.folder.join("signing"), name_count)?;
    let folder = zone.file.parent().context("a folder")?;
    let (last, mut rows) = (last_name(name_count), Vec::new());
    for (name, marks) in [("sanderling", &["changes", "signed"][..]), ("sanderling without `dnssec`", &["changes"])] {
        println!("signing: {name}");
        let is_signed = marks.contains(&"signed");
        let bench = Bench { marks, ..rounds.bench.clone() };
        let start = Instant::now();
        let is_ready = |server| if is_signed { is_signed_by(server, &last) } else { answers(server, APEX) };
        let server = changes::start(&bench, &peers::DNS[1], &zone, &format!("signing-{}", marks.len()), is_ready)?;
        let cpu_s = server.pids.iter().filter_map(|pid| cpu_s_of(&Process::new(*pid).ok()?, false)).sum::<f64>();
        rows.push(vec![name.to_owned(), format!("{cpu_s:.1}"), format!("{:.1}", start.elapsed().as_secs_f64())]);
    }
    let key = make_key(folder)?;
    let (file, cpus) = (zone.file.display().to_string(), &rounds.bench.server_cpus);
    write_kzonesign_config(folder, &zone)?;
    for (program, arguments) in [
        ("ldns-signzone", vec!["-o", APEX, "-f", "out.ldns", &file, &key]),
        ("dnssec-signzone", vec!["-q", "-S", "-P", "-z", "-n", "1", "-o", APEX, "-f", "out.bind", &file]),
        ("kzonesign", vec!["-c", "kzonesign.conf", "-o", "out.knot", APEX]),
    ] {
        println!("signing: {program}");
        match run_and_count(program, &arguments, folder, cpus) {
            Ok((cpu_s, wall_s)) => rows.push(vec![program.to_owned(), format!("{cpu_s:.1}"), format!("{wall_s:.1}")]),
            Err(error) => println!("  {program}: {error:#}"),
        }
    }
    Ok(format!(
        "\nSigning of {record_count} records by ECDSA P-256 with NSEC: processor time of all processes and threads, in seconds. ldns-signzone, \
         dnssec-signzone (one thread) and kzonesign read and write a file. Sanderling reads the zone file, signs, stores, loads and \
         answers, from its start to the first signed answer; the row below is its start without signing.\n\n{}",
        page::table(&["program", "processor s", "elapsed s"], &rows)
    ))
}

/// Whether the server has signed the last name of the zone: BIND signs some names after others, and answers meanwhile.
fn is_signed_by(server: SocketAddr, last: &str) -> bool {
    let reply = client::query_udp(server, last, Rtype::RRSIG, TIMEOUT);
    reply.is_ok_and(|reply| reply.header_counts().ancount() > 0)
}

/// Processor time of a process with its ended threads, or of the children that it has waited for.
fn cpu_s_of(process: &Process, is_of_children: bool) -> Option<f64> {
    let stat = process.stat().ok()?;
    let ticks = match is_of_children {
        true => u64::try_from(stat.cutime + stat.cstime).ok()?,
        false => stat.utime + stat.stime,
    };
    Some(ticks as f64 / procfs::ticks_per_second() as f64)
}

/// Processor time and elapsed time of a program.
fn run_and_count(program: &str, arguments: &[&str], folder: &Path, cpus: &str) -> anyhow::Result<(f64, f64)> {
    let myself = Process::myself()?;
    let before_s = cpu_s_of(&myself, true).context("no stat")?;
    let start = Instant::now();
    let output = pinned(OsStr::new(program), cpus).args(arguments).current_dir(folder).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let wall_s = start.elapsed().as_secs_f64();
    Ok((cpu_s_of(&myself, true).context("no stat")? - before_s, wall_s))
}

/// The time of one changed record of a zone that the server signs, from the line of `nsupdate` to the answer.
fn changes_of_signed_zone(rounds: &Rounds) -> anyhow::Result<String> {
    let (zone, record_count) = write_zone(&rounds.bench.folder.join("signed-changes"), NAME_COUNT)?;
    let bench = Bench { marks: &["changes", "signed"], ..rounds.bench.clone() };
    let (last, mut rows) = (last_name(NAME_COUNT), Vec::new());
    let is_ready = |server| is_signed_by(server, &last);
    for peer in peers::DNS[1..].iter().filter(|peer| peer.name != "nsd") {
        println!("changes of a signed zone: {}", peer.name);
        let measured = changes::start(&bench, peer, &zone, &format!("signed-changes-{}", peer.name), is_ready)
            .and_then(|server| {
                let times_ms = changes::update(server.address(), &bench.load_cpus)?;
                Ok((times_ms, server.memory_mib()))
            });
        match measured {
            Ok((times_ms, memory_mib)) => {
                let others = Spread::of(times_ms[1..].iter().copied()).context("no change")?;
                let first = format!("{:.1}", times_ms[0]);
                rows.push(vec![peer.name.to_owned(), first, others.to_string(), format!("{memory_mib:.1}")]);
            }
            Err(error) => println!("  {}: {error:#}", peer.name),
        }
    }
    Ok(format!(
        "\nChanges of one record of {record_count} that the server signs: the time from the line of `nsupdate` to the answer, and the \
         memory (PSS) of all its processes afterwards.\n\n{}",
        page::table(&["server", "first change ms", "change ms", "MiB"], &rows)
    ))
}
