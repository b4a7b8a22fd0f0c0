//! `cargo xtask compare`: the cost of a request for Sanderling, its peers, and a program without any protocol.
//!
//! The unit is the processor time of the server's processes divided by the requests answered. The servers take turns in
//! random order, so that a disturbance affects all of them, and ratios are taken within a round.

mod signed;
mod changes;
mod starts;
mod logs;
mod keeper;
mod chart;
mod growth;
mod tls;
mod http;
mod dns;
mod rounds;
mod loads;
mod tls_client;
mod server;
mod peers;
mod zone;

use crate::page;
use crate::system;
use anyhow::Context;
use clap::{Args, ValueEnum};
use fastrand::Rng;
use growth::Growth;
use peers::AccessLog;
use rounds::{Outcome, Rounds, Row};
use server::Bench;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;
pub(crate) use tls_client::Handshakes;

/// Measure what a request costs this server, its peers and the floor
///
/// A run with the default options takes more than an hour and replaces the sections of docs/performance/README.md.
#[derive(Args)]
pub(crate) struct Options {
    /// A few minutes: the main workloads of HTTP, DNS and TLS in short rounds
    #[arg(long)]
    quick: bool,
    /// Run only this part; may be repeated
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// An earlier build of `sanderling` to compare with as well
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// The number of rounds [default: 5, or 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: Option<u16>,
    /// The seed of the orders and queries
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Http,
    Dns,
    /// HTTPS with HTTP/1.1 and HTTP/2, and DNS over TLS
    Tls,
    /// Cost against the number of connections, files, names, zones and workers
    Growth,
    /// Starts, memory, idle connections and the reload of a large zone
    Starts,
    /// HTTP with and without an access log
    Logs,
    /// Full handshakes whose private key is in the keeper, and in the server process
    Keeper,
    /// Transfers of a large zone, and changes of one of its records
    Changes,
    /// Signed zones: answers, signing, changes and memory
    Signed,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let is_quick = options.quick;
    let default: &[Part] = if is_quick { &Part::value_variants()[..3] } else { Part::value_variants() };
    let parts = if options.only.is_empty() { default } else { &options.only };
    // Root serves as another user, which must reach it; the target folder may be in root's home.
    let folder = tempfile::Builder::new().prefix("compare-").tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let cpu_count = std::thread::available_parallelism().map_or(1, usize::from);
    let mut rounds = Rounds {
        bench: Bench {
            sanderling: system::build("sanderling")?,
            before: options.before.as_ref().map(fs::canonicalize).transpose()?,
            floor: system::build("floor")?,
            folder: folder.path().canonicalize()?,
            certificate: None,
            access_log: AccessLog::Off,
            marks: &[],
            server_cpus: "0".to_owned(),
            load_cpus: if cpu_count > 1 { "1" } else { "0" }.to_owned(),
        },
        round_count: options.rounds.map_or(if is_quick { 3 } else { 5 }, usize::from),
        length: Duration::from_secs(if is_quick { 1 } else { 2 }),
        random: Rng::with_seed(options.seed),
        is_quick,
    };
    let _cubic = Cubic::set();
    let description = system::description().join("; ");
    println!("{description}");
    let is_record = !is_quick && options.rounds.is_none();
    for part in parts {
        let (name, text) = match part {
            Part::Http => ("http", comparison("http", &http::run(&mut rounds)?, is_record)?),
            Part::Dns => ("dns", comparison("dns", &dns::run(&mut rounds)?, is_record)?),
            Part::Tls => ("tls", tls_report(&tls::run(&mut rounds)?, is_record)?),
            Part::Growth => ("growth", growth_report(&growth::run(&mut rounds)?, is_record)?),
            Part::Starts => ("starts", starts::run(&mut rounds)?),
            Part::Logs => ("logs", logs::run(&mut rounds)?),
            Part::Keeper => ("keeper", keeper::run(&mut rounds)?),
            Part::Changes => ("changes", changes::run(&rounds)?),
            Part::Signed => ("signed", signed_report(&signed::run(&mut rounds)?, is_record)?),
        };
        let text = format!("{description}, after {}; {}.\n\n{text}", system::load_average(), packages());
        println!("\n{text}");
        page::write(name, &text, is_record)?;
    }
    Ok(true)
}

fn packages() -> String {
    let names = [
        "nginx",
        "h2o",
        "lighttpd",
        "caddy",
        "nsd",
        "knot",
        "bind9",
        "libssl3",
        "wrk",
        "nghttp2-client",
        "dnsperf",
        "strace",
    ];
    let arguments = [&["-W", "-f=${Package} ${Version} "], names.as_slice()].concat();
    system::output_of("dpkg-query", &arguments)
}

fn comparison(name: &str, outcomes: &[Outcome], is_record: bool) -> anyhow::Result<String> {
    let chart = page::chart_folder(is_record)?.join(format!("{name}.svg"));
    chart::bars(&chart, outcomes)?;
    let image = format!("![Processor time per request as a multiple of Sanderling's]({name}.svg)\n\n");
    Ok(image + &tables(outcomes, is_record))
}

fn tables(outcomes: &[Outcome], is_record: bool) -> String {
    let mut text =
        "Processor time of the server per request in µs: median of the rounds, and the range.\n\n".to_owned();
    text += &table("workload", outcomes, |_, row| Some(row.cost_us()?.to_string()));
    text += "\nAs a multiple of Sanderling's, round by round.\n\n";
    text += &table("workload", outcomes, |outcome, row| Some(outcome.ratio_to_ours(row)?.to_string()));
    text += "\nSystem calls per request.\n\n";
    text += &table("workload", outcomes, |_, row| row.calls.as_ref().map(|(total, _)| format!("{total:.2}")));
    if !is_record {
        text += &outcomes.iter().map(details).collect::<String>();
    }
    text + &errors(outcomes)
}

fn tls_report(report: &tls::Report, is_record: bool) -> anyhow::Result<String> {
    let mut text = format!("{}\n\n", report.settings);
    text += &comparison("tls", &report.https, is_record)?;
    text += "\nDNS over TLS, by dnsperf.\n\n";
    text += &tables(&report.dns, is_record);
    text += "\nMemory of the server for each idle connection after one response, in bytes:\n\n";
    Ok(text + &page::table(&["protocol", "server", "bytes"], &report.idle))
}

fn signed_report(report: &signed::Report, is_record: bool) -> anyhow::Result<String> {
    Ok(comparison("signed", &report.answers, is_record)? + "\n" + &report.text)
}

fn table(first: &str, outcomes: &[Outcome], cell: impl Fn(&Outcome, &Row) -> Option<String>) -> String {
    let head: Vec<&str> = std::iter::once(first).chain(rounds::names(outcomes)).collect();
    page::table(&head, &rounds::cells(outcomes, cell))
}

/// Everything that is known about one workload.
fn details(outcome: &Outcome) -> String {
    let row = |row: &Row| {
        let (response_count, _) = row.counts();
        vec![
            row.name.to_owned(),
            format!("{:.1}", row.memory_mib),
            response_count.to_string(),
            row.calls.as_ref().map_or_else(String::new, |(_, names)| names.clone()),
        ]
    };
    let head = ["server", "PSS MiB", "responses", "system calls per request"];
    let rows: Vec<Vec<String>> = outcome.rows.iter().map(row).collect();
    format!("\n{}:\n\n{}", outcome.title, page::table(&head, &rows))
}

/// Failures, and errors that are more than one in a thousand responses.
fn errors(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        for row in &outcome.rows {
            let (response_count, error_count) = row.counts();
            if let Some(error) = &row.error {
                text += &format!("- {}, {}: {}\n", outcome.title, row.name, error.lines().next().unwrap_or_default());
            } else if error_count * 1000 > response_count {
                text += &format!("- {}, {}: {error_count} errors in {response_count}\n", outcome.title, row.name);
            }
        }
    }
    if text.is_empty() { text } else { format!("\nErrors:\n\n{text}") }
}

fn growth_report(all: &[Growth], is_record: bool) -> anyhow::Result<String> {
    chart::lines(&page::chart_folder(is_record)?.join("growth.svg"), all)?;
    let mut text = String::from("![Processor time per request in µs against size](growth.svg)\n\n");
    text += "Processor time of the server per request in µs, and its memory (PSS) in MiB.\n";
    for growth in all {
        let cell = |_: &Outcome, row: &Row| Some(format!("{}, {:.1} MiB", row.cost_us()?, row.memory_mib));
        text += &format!("\n{}", table(growth.name, &growth.sizes, cell));
        text += &errors(&growth.sizes);
    }
    Ok(text)
}

/// Sets the congestion control of new TCP connections to `cubic` until it is dropped: `bbr` paces large responses by
/// timers, which would be measured as well.
struct Cubic {
    before: String,
}

const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

impl Cubic {
    fn set() -> anyhow::Result<Cubic> {
        let before = fs::read_to_string(CONGESTION_CONTROL).context("congestion control")?;
        fs::write(CONGESTION_CONTROL, "cubic").context("congestion control")?;
        Ok(Cubic { before })
    }
}

impl Drop for Cubic {
    fn drop(&mut self) {
        // The setting could be changed, so it can be restored.
        let _ = fs::write(CONGESTION_CONTROL, &self.before);
    }
}
