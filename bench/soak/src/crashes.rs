//! Scenarios in which processes are killed or stopped: the server process and the supervisor.

use crate::extent::{Extent, becomes_true, near};
use crate::outcome::{Outcome, median_and_max};
use crate::service::{LIMIT, Service, is_running, send_signal};
use crate::site::{Config, PAGE_PATH};
use anyhow::ensure;
use loadgen::client;
use rustix::process::Signal;
use std::path::Path;
use std::time::{Duration, Instant};

/// The time from a kill to the first response of the replacement.
const OUTAGE_LIMIT: Duration = Duration::from_millis(100);
/// The longest outage is judged only if sending was never delayed longer than this.
const LATE_MAX: Duration = Duration::from_millis(50);

pub(crate) fn kill(program: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    const EVERY: Duration = Duration::from_millis(250);
    let service = Service::start(program, extent, &Config::new(2))?;
    let mut load = near(service.site.target(extent.load())?);
    // Queries that a killed process had received are not answered.
    load.udp_deadline = Duration::from_secs(extent.pick(3, 2, 2));
    let load = service.start_load(&load)?;
    let mut outages = Vec::new();
    extent.repeat(&load, extent.pick(3, 5, 20), extent.pick(Duration::ZERO, EVERY, EVERY), |_| {
        let pid = service.only_server_pid()?;
        let start = Instant::now();
        send_signal(pid, Signal::KILL)?;
        // Until then it might accept another connection.
        ensure!(becomes_true(LIMIT, || !is_running(pid)), "process {pid} still runs after SIGKILL");
        client::get(service.site.http, "example.com", PAGE_PATH, "Connection: close\r\n")?;
        outages.push(start.elapsed());
        Ok(())
    })?;
    let report = load.finish_now()?;
    let late_max = report.late_max();
    outcome.add_with_kills(report);
    outcome.fact(median_and_max("Outages, from the kill to the first response of the replacement", &outages));
    if extent != Extent::Test {
        judge_outages(&mut outages, late_max, outcome);
    }
    service.only_server_pid().map(drop)
}

fn judge_outages(outages: &mut [Duration], late_max: Duration, outcome: &mut Outcome) {
    outages.sort();
    let (median, max) = (outages[outages.len() / 2], outages[outages.len() - 1]);
    outcome.require(median <= OUTAGE_LIMIT, || format!("the median outage is longer than {OUTAGE_LIMIT:?}"));
    if late_max > LATE_MAX {
        outcome.fact(format!("The longest outage is not judged: the machine delayed the load by {late_max:?}"));
    } else {
        outcome.require(max <= OUTAGE_LIMIT, || format!("an outage was longer than {OUTAGE_LIMIT:?}"));
    }
}

pub(crate) fn supervisor_death(program: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    let mut service = Service::start(program, extent, &Config::new(2))?;
    let old_pid = service.supervisor_pid();
    let load = service.load()?;
    extent.repeat(&load, 1, Duration::from_secs(extent.pick(0, 1, 3)), |_| send_signal(old_pid, Signal::KILL))?;
    service.restart_supervisor(&[])?;
    let start = Instant::now();
    ensure!(becomes_true(LIMIT, || service.is_supervised()), "no supervisor: {}", service.last_output());
    outcome.fact(format!("The new supervisor was in control {} ms after its start", start.elapsed().as_millis()));
    extent.repeat(&load, 1, Duration::ZERO, |_| {
        service.set_config(&Config::new(3))?;
        service.reload().map(drop)
    })?;
    outcome.add_strict(load.finish_now()?);
    let ended = service.command(&["stop"])?;
    outcome.require(ended.is_success, || format!("`sanderling stop` failed: {}", ended.errors));
    outcome.require(service.has_ended(), || "processes are left after `sanderling stop`".to_owned());
    Ok(())
}

/// Stops the server process by SIGSTOP until it is replaced.
pub(crate) fn hang(program: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    /// The supervisor detects a hanging process within six seconds.
    const HANG_MAX: Duration = Duration::from_secs(10);
    /// Connections that wait for the hanging process are answered after it was replaced.
    const DEADLINE: Duration = Duration::from_secs(20);
    let service = Service::start(program, extent, &Config::new(2))?;
    let pid = service.only_server_pid()?;
    let mut load = near(service.site.target(extent.load())?);
    // Few enough to wait in the server's queues.
    load.rates = [100, 100, 50, 50, 50, 20, 20, 20];
    (load.tcp_deadline, load.udp_deadline) = (DEADLINE, DEADLINE);
    let load = service.start_load(&load)?;
    let mut outage = None;
    extent.repeat(&load, 1, Duration::ZERO, |_| {
        send_signal(pid, Signal::STOP)?;
        let start = Instant::now();
        let is_replaced =
            || !is_running(pid) || service.server_pids().is_ok_and(|pids| pids.iter().any(|it| *it != pid));
        outage = becomes_true(HANG_MAX, is_replaced).then(|| start.elapsed());
        // Otherwise a process that was not replaced would hold its connections; a replaced process has exited.
        let _ = send_signal(pid, Signal::CONT);
        Ok(())
    })?;
    outcome.add_with_kills(load.finish_now()?);
    match outage {
        Some(outage) => outcome.fact(format!("The process was replaced after {:.1} s", outage.as_secs_f64())),
        None => outcome.failures.push(format!("the process was not replaced within {HANG_MAX:?}")),
    }
    service.only_server_pid().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_outage_is_judged_on_an_idle_machine_only() {
        let check = |outages_ms: &[u64], late_max_ms: u64, expected: bool| {
            let mut outcome = Outcome::default();
            let mut outages: Vec<Duration> = outages_ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
            judge_outages(&mut outages, Duration::from_millis(late_max_ms), &mut outcome);
            assert_eq!(outcome.is_success(), expected, "{outages_ms:?} with the load {late_max_ms} ms late");
        };
        check(&[20, 30, 100], 5, true);
        check(&[20, 30, 101], 5, false);
        check(&[20, 30, 900], 400, true);
        check(&[20, 130, 900], 400, false);
    }
}
