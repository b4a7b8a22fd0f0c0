//! The table of scenarios, and those in which no process is killed.

use crate::crashes;
use crate::extent::{Extent, becomes_true};
use crate::nginx;
use crate::outcome::{Outcome, median_and_max};
use crate::service::{LIMIT, NewProgram, Service, fd_count, send_signal};
use crate::site::{Config, PAGE_PATH, alias, version_text};
use anyhow::ensure;
use domain::base::iana::Rtype;
use loadgen::client;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Events that happen to a server under load, and what must hold.
pub struct Scenario {
    /// As chosen by `--only`.
    pub name: &'static str,
    /// The property that must hold, as a sentence.
    pub promise: &'static str,
    run: fn(&Path, Extent, &mut Outcome) -> anyhow::Result<()>,
}

impl Scenario {
    /// Runs the scenario with a server program.
    pub fn run(&self, program: &Path, extent: Extent) -> Outcome {
        let mut outcome = Outcome::default();
        if let Err(error) = (self.run)(program, extent, &mut outcome) {
            outcome.failures.push(format!("{error:#}"));
        }
        outcome
    }
}

/// All scenarios in the order in which they run.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "reload-workers",
        promise: "Reloads with another certificate and number of workers start new server processes and lose no request.",
        run: reload_workers,
    },
    Scenario {
        name: "reload-in-place",
        promise: "Reloads that change records, sites, aliases and certificates lose no request and close no connection.",
        run: reload_in_place,
    },
    Scenario {
        name: "upgrade",
        promise: "Upgrades, also to failing programs, lose no request, and failures are reported within a second.",
        run: upgrade,
    },
    Scenario {
        name: "storm",
        promise: "Reloads and upgrades in faster succession than they complete lose no request, and the last one wins.",
        run: storm,
    },
    Scenario {
        name: "kill",
        promise: "Connections opened after a server process was killed are served by its replacement within 100 ms.",
        run: crashes::kill,
    },
    Scenario {
        name: "broken",
        promise: "Reloads of invalid configurations are refused, lose no request and leak no file descriptor.",
        run: broken,
    },
    Scenario {
        name: "fairness",
        promise: "Short connections are distributed over all workers, with a shared listener and with reuseport sockets.",
        run: fairness,
    },
    Scenario {
        name: "supervisor-death",
        promise: "The death of the supervisor loses no request, and its successor takes over the server processes.",
        run: crashes::supervisor_death,
    },
    Scenario {
        name: "hang",
        promise: "A server process that hangs is replaced, and the connections waiting for it are served.",
        run: crashes::hang,
    },
    Scenario {
        name: "nginx",
        promise: "What reloads of nginx lose under the same load, with a shared listener and with `reuseport`.",
        run: nginx::reload,
    },
];

/// Numbers of workers in turn.
const WORKER_COUNTS: [usize; 6] = [2, 3, 4, 3, 2, 1];
const RELOAD_EVERY: Duration = Duration::from_millis(500);
/// Requests without which a full run proves little.
const SENT_COUNT_MIN: u64 = 100_000;

fn reload_workers(program: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    let service = Service::start(program, extent, &Config::new(1))?;
    let load = service.load()?;
    let (mut times, mut kept_count) = (Vec::new(), 0);
    extent.repeat(&load, extent.pick(3, 6, 24), extent.pick(Duration::ZERO, RELOAD_EVERY, RELOAD_EVERY), |index| {
        let old_pid = service.newest_server_pid()?;
        let certificate = service.site.renew_certificate()?;
        service.set_config(&Config::new(WORKER_COUNTS[index % WORKER_COUNTS.len()]))?;
        times.push(service.reload()?.took);
        kept_count += usize::from(service.newest_server_pid()? == old_pid);
        // The old process may have accepted a connection when it is told to finish.
        let is_new = || client::certificate(service.site.https, "example.com").is_ok_and(|shown| shown == certificate);
        ensure!(becomes_true(LIMIT, is_new), "reload {}: the new certificate is not in effect", index + 1);
        Ok(())
    })?;
    outcome.add_strict(load.finish_now()?);
    outcome.fact(median_and_max("Reloads", &times));
    outcome.require(kept_count == 0, || format!("{kept_count} reloads started no server process"));
    let start = Instant::now();
    service.only_server_pid()?;
    outcome.fact(format!("The replaced server processes ended within {} ms", start.elapsed().as_millis()));
    require_requests(extent, outcome);
    Ok(())
}

/// Changes a record, the domains' sites, an alias and the certificate in turn.
fn reload_in_place(program: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    let mut config = Config::new(2);
    let service = Service::start(program, extent, &config)?;
    let server_pid = service.only_server_pid()?;
    let load = service.load()?;
    let mut times = Vec::new();
    extent.repeat(&load, extent.pick(4, 8, 24), extent.pick(Duration::ZERO, RELOAD_EVERY, RELOAD_EVERY), |index| {
        times.push(change_and_reload(&service, &mut config, index)?);
        Ok(())
    })?;
    let report = load.finish_now()?;
    let closed_count = report.closed_by_server_count();
    outcome.require(closed_count == 0, || format!("the server closed {closed_count} persistent connections"));
    outcome.add_strict(report);
    outcome.fact(median_and_max("Reloads", &times));
    let is_same = service.only_server_pid()? == server_pid;
    outcome.require(is_same, || "the server process was replaced".to_owned());
    require_requests(extent, outcome);
    Ok(())
}

/// Changes one thing, reloads, and checks that the change is in effect when the command ends.
fn change_and_reload(service: &Service, config: &mut Config, index: usize) -> anyhow::Result<Duration> {
    let (version, site) = (index / 4 + 1, &service.site);
    let mut certificate = Vec::new();
    match index % 4 {
        0 => site.set_version(version)?,
        1 => config.site_index = 1 - config.site_index,
        2 => config.alias_version = version,
        _ => certificate = site.renew_certificate()?,
    }
    service.set_config(config)?;
    let took = service.reload()?.took;
    let get = |host: &str| client::get(site.http, host, PAGE_PATH, "Connection: close\r\n");
    let is_in_effect = match index % 4 {
        0 => {
            let reply = client::query_tcp(site.dns, "version.example.com", Rtype::TXT)?;
            let text = version_text(version);
            reply.as_slice().windows(text.len()).any(|window| window == text.as_bytes())
        }
        1 => get("example.com")?.0.content == site.page(config.site_index)?,
        2 => get(&alias(version))?.0.status == 200,
        _ => client::certificate(site.https, "example.com")? == certificate,
    };
    let what = ["record", "site", "alias", "certificate"][index % 4];
    ensure!(is_in_effect, "reload {}: the new {what} is not in effect", index + 1);
    Ok(took)
}

/// Upgrades in turn to a good program and to ones that fail.
fn upgrade(program: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    use NewProgram::{Execs, Exits, Good, Hangs};
    // Maximum time for a new server process to become ready, and for a failure to be reported.
    const START_TIMEOUT_MS: u64 = 800;
    const REPORT_LIMIT: Duration = Duration::from_secs(1);
    let upgrades: &[NewProgram] = extent.pick(
        &[Good, Exits, Execs, Good],
        &[Good, Exits, Hangs, Good],
        &[Good, Good, Exits, Good, Good, Execs, Good, Good, Hangs, Good],
    );
    let mut config = Config::new(2);
    config.start_timeout_ms = extent.pick(config.start_timeout_ms, START_TIMEOUT_MS, START_TIMEOUT_MS);
    let service = Service::start(program, extent, &config)?;
    let load = service.load()?;
    let every = Duration::from_secs(extent.pick(0, 1, 3));
    extent.repeat(&load, upgrades.len(), every, |index| {
        let new = upgrades[index];
        let old_pid = service.newest_server_pid()?;
        service.replace_program(new)?;
        let ended = service.command(&["upgrade"])?;
        let is_replaced = service.newest_server_pid()? != old_pid;
        let message = if ended.is_success { &ended.output } else { &ended.errors };
        let message = message.lines().last().unwrap_or_default();
        outcome.fact(format!("Upgrade ({new:?}) in {} ms: “{message}”", ended.took.as_millis()));
        let is_good = new == NewProgram::Good;
        outcome.require(ended.is_success == is_good, || format!("upgrade ({new:?}) exited with the wrong status"));
        outcome
            .require(is_replaced == is_good, || format!("upgrade ({new:?}): server process replaced: {is_replaced}"));
        let timeout = Duration::from_millis(if new == Hangs { config.start_timeout_ms } else { 0 });
        let is_in_time = is_good || extent == Extent::Test || ended.took <= REPORT_LIMIT + timeout;
        outcome.require(is_in_time, || format!("the failed upgrade ({new:?}) was reported after {:?}", ended.took));
        Ok(())
    })?;
    outcome.add_strict(load.finish_now()?);
    service.only_server_pid().map(drop)
}

/// SIGHUP and SIGUSR2 in fast succession, each with another number of workers in the configuration.
fn storm(program: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    /// Shorter than a reload that starts a process.
    const EVERY: Duration = Duration::from_millis(5);
    const UPGRADE_EVERY: usize = 5;
    let service = Service::start(program, extent, &Config::new(2))?;
    let load = service.load()?;
    let signal_count = extent.pick(20, 60, 400);
    extent.repeat(&load, signal_count, EVERY, |index| {
        service.set_config(&Config::new(WORKER_COUNTS[index % WORKER_COUNTS.len()]))?;
        let signal = if index % UPGRADE_EVERY == 0 { Signal::USR2 } else { Signal::HUP };
        send_signal(service.supervisor_pid(), signal)
    })?;
    let last_count = WORKER_COUNTS[(signal_count - 1) % WORKER_COUNTS.len()] as u64;
    let is_served = becomes_true(LIMIT, || service.worker_count().is_ok_and(|count| count == last_count));
    outcome.require(is_served, || format!("the last configuration, with {last_count} workers, is not in effect"));
    outcome.fact(format!("{signal_count} signals, one in {UPGRADE_EVERY} for an upgrade"));
    outcome.add_strict(load.finish_now()?);
    service.only_server_pid().map(drop)
}

/// Reloads of configurations that are invalid in different ways: syntax, a key, a file, a folder, a zone, an address.
fn broken(program: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    let config = Config::new(2);
    let service = Service::start(program, extent, &config)?;
    let valid = config.text(&service.site);
    let ip = service.site.http.ip().to_string();
    let invalid = [
        ("[http]", "[http"),
        ("listen", "lissten"),
        ("example.com.zone", "missing.zone"),
        ("\"second\"", "\"missing\""),
        ("example.com.zone", "sanderling.toml"),
        (&ip, "192.0.2.1"),
    ];
    // A first load opens everything that stays open.
    let load = service.load()?;
    extent.repeat(&load, 0, Duration::ZERO, |_| Ok(()))?;
    outcome.add_strict(load.finish_now()?);
    let pids = [service.supervisor_pid(), service.only_server_pid()?];
    let fd_counts = || pids.map(fd_count);
    let before = fd_counts();
    let (mut refused_count, mut times) = (0, Vec::new());
    let load = service.load()?;
    let reload_count = extent.pick(6, 50, 1_000);
    extent.repeat(&load, reload_count, Duration::ZERO, |index| {
        let (from, to) = invalid[index % invalid.len()];
        service.site.replace(crate::site::CONFIG, &valid.replace(from, to))?;
        let ended = service.command(&["reload"])?;
        refused_count += usize::from(!ended.is_success && !ended.errors.is_empty());
        times.push(ended.took);
        Ok(())
    })?;
    outcome.add_strict(load.finish_now()?);
    outcome.fact(format!("{refused_count} of {reload_count} reloads were refused with a message"));
    outcome.require(refused_count == reload_count, || "an invalid configuration was not refused".to_owned());
    outcome.fact(median_and_max("Reloads", &times));
    let is_same = service.only_server_pid()? == pids[1];
    outcome.require(is_same, || "the server process was replaced".to_owned());
    // Connections of the load may still be closing.
    becomes_true(LIMIT, || fd_counts() == before);
    let after = fd_counts();
    outcome.fact(format!("File descriptors of supervisor and server process: {before:?} before, {after:?} after"));
    outcome.require(after == before, || "file descriptors were leaked".to_owned());
    service.set_config(&config)?;
    service.reload().map(drop)
}

/// Short connections, and the share of each worker.
fn fairness(program: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    const WORKER_COUNT: usize = 4;
    /// The percentage of an even share.
    const SHARE_MIN: f64 = 0.25;
    const POLL_EVERY: Duration = Duration::from_millis(100);
    let wanted_count = extent.pick(500, 1_000, 10_000);
    for listener_count in [1, WORKER_COUNT] {
        let config = Config { listener_count: Some(listener_count), ..Config::new(WORKER_COUNT) };
        let service = Service::start(program, extent, &config)?;
        let before = service.accepted_counts()?;
        let mut load = service.site.target(extent.load())?;
        load.rates[1..].fill(0);
        let load = service.start_load(&load)?;
        let mut accepted = Vec::new();
        let are_accepted = becomes_true(2 * LIMIT, || {
            std::thread::sleep(POLL_EVERY);
            let after = service.accepted_counts().unwrap_or_default();
            accepted = after.iter().zip(&before).map(|(after, before)| after - before).collect();
            accepted.iter().sum::<u64>() >= wanted_count
        });
        outcome.add_strict(load.finish_now()?);
        outcome.require(are_accepted, || format!("fewer than {wanted_count} connections were accepted"));
        outcome.fact(format!("{listener_count} sockets, {WORKER_COUNT} workers, connections of each: {accepted:?}"));
        outcome.require(accepted.len() == WORKER_COUNT, || format!("the status has {} workers", accepted.len()));
        let even_share = accepted.iter().sum::<u64>() as f64 / WORKER_COUNT as f64;
        let least = accepted.iter().min().copied().unwrap_or(0);
        outcome.require(least as f64 >= even_share * SHARE_MIN, || format!("a worker had {least} connections only"));
    }
    Ok(())
}

fn require_requests(extent: Extent, outcome: &mut Outcome) {
    let (sent_count, _) = outcome.sent_and_lost();
    let is_enough = extent != Extent::Full || sent_count >= SENT_COUNT_MIN;
    outcome.require(is_enough, || format!("{sent_count} requests are fewer than {SENT_COUNT_MIN}"));
}
