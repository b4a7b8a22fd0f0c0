//! `cargo xtask load`: a load on any server.

use anyhow::{Context, ensure};
use clap::Args;
use loadgen::{DnsTarget, HttpTarget, IdleClose, Load, Rates, parse_questions};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Put a steady load on a server and count what happens to every request
///
/// The exit status is 0 if no request was lost and 1 otherwise.
#[derive(Args)]
pub(crate) struct Options {
    /// The web server
    #[arg(long, value_name = "ADDR:PORT", requires = "expect")]
    http: Option<SocketAddr>,
    /// The request target
    #[arg(long, default_value = "/")]
    path: String,
    /// The `Host` field; the address by default
    #[arg(long)]
    host: Option<String>,
    /// A file with the expected content; if repeated, each is correct
    #[arg(long, value_name = "FILE")]
    expect: Vec<PathBuf>,
    /// Requests a second over HTTP, each on a new connection
    #[arg(long, default_value_t = 2000)]
    new_per_s: u32,
    /// Requests a second over HTTP on persistent connections
    #[arg(long, default_value_t = 2000)]
    kept_per_s: u32,
    /// Notice that the server closed an idle connection only after the next request, as a distant client does
    #[arg(long)]
    distant: bool,
    /// The DNS server
    #[arg(long, value_name = "ADDR:PORT", requires = "questions")]
    dns: Option<SocketAddr>,
    /// A file with a name, a type and an optional response code per line
    #[arg(long, value_name = "FILE")]
    questions: Option<PathBuf>,
    /// Accept any records, not only those before the load
    #[arg(long)]
    any_records: bool,
    /// Queries a second over UDP
    #[arg(long, default_value_t = 5000)]
    udp_per_s: u32,
    /// Queries a second over TCP, each on a new connection
    #[arg(long, default_value_t = 500)]
    tcp_per_s: u32,
    /// Queries a second over TCP on persistent connections
    #[arg(long, default_value_t = 500)]
    tcp_kept_per_s: u32,
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Determines questions and IDs
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the load; whether no request was lost.
pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    ensure!(options.http.is_some() || options.dns.is_some(), "no server; use --http or --dns");
    let mut load = Load::new(Duration::try_from_secs_f64(options.seconds)?, options.seed);
    load.rates = Rates {
        http_new: options.new_per_s,
        http_kept: options.kept_per_s,
        dns_udp: options.udp_per_s,
        dns_tcp_new: options.tcp_per_s,
        dns_tcp_kept: options.tcp_kept_per_s,
    };
    let read = |path: &PathBuf| fs::read(path).with_context(|| path.display().to_string());
    if let Some(address) = options.http {
        let mut http = HttpTarget::new(address, &options.path, Vec::new());
        http.host = options.host.clone().unwrap_or(http.host);
        http.contents = options.expect.iter().map(read).collect::<Result<_, _>>()?;
        http.idle_close = if options.distant { IdleClose::AtNextRequest } else { IdleClose::Immediately };
        load.http = Some(http);
    }
    if let (Some(address), Some(path)) = (options.dns, &options.questions) {
        let questions = parse_questions(&String::from_utf8(read(path)?)?).map_err(anyhow::Error::msg)?;
        load.dns = Some(DnsTarget { checks_records: !options.any_records, ..DnsTarget::new(address, questions) });
    }
    let report = load.start()?.finish()?;
    println!("{report}");
    Ok(report.lost_count() == 0)
}
