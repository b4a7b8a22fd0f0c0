//! Processes that are killed, or held, under load: the server process, and the supervisor above it.

use std::time::{Duration, Instant};

use super::client;
use super::counts::late_max_ms;
use super::domain::{Config, PAGE_PATH};
use super::load::{IdleNotice, Load, Plan, Rates};
use super::network::Drops;
use super::options::Extent;
use super::outcome::Outcome;
use super::pace::{at_pace, comes_true, median_and_max};
use super::processes;
use super::programs::Programs;
use super::service::{END_LIMIT, Service};
use crate::program::signal;

const KILL_COUNT: usize = 20;
const KILL_COUNT_SHORT: usize = 5;
const EVERY: Duration = Duration::from_millis(250);
/// From a kill to the first answer of the replacement.
const OUTAGE_LIMIT: Duration = Duration::from_millis(100);
/// How late the load's own sending may be on a machine that says something about short times.
const LATE_MAX_MS: f64 = 50.0;
/// How long a server process is held at most. The supervisor must have found out before, which takes it six seconds.
const HELD_MAX: Duration = Duration::from_secs(10);
/// What waits for a process that is held is answered after it has been replaced.
const HANG_DEADLINE_MS: u64 = 20_000;

/// Kills the server process again and again.
pub(super) fn kill(programs: &Programs, extent: Extent, outcome: &mut Outcome) -> Result<(), String> {
    let service = Service::start(programs, outcome.name, &Config::new(2))?;
    let before = Drops::so_far(Some(service.dns));
    let plan = Plan { idle_notice: IdleNotice::AtOnce, ..Plan::strict(Rates::FULL) };
    let load = Load::on(&service, programs, &plan)?;
    let mut outages = Vec::new();
    let kill_count = extent.choose(KILL_COUNT, KILL_COUNT_SHORT);
    at_pace(kill_count, EVERY, |_| {
        outages.push(kill_once(&service)?);
        Ok(())
    })?;
    let counts = load.finish()?;
    let late_max_ms = late_max_ms(&counts);
    outcome.take_with_cut_off(counts);
    outcome.tell(Drops::so_far(Some(service.dns)).told_since(before));
    judge_outages(&outages, late_max_ms, outcome);
    service.only_server_pid().map(drop)
}

/// The median is judged always; the longest only where the machine has let everybody else run in time.
fn judge_outages(outages: &[Duration], late_max_ms: f64, outcome: &mut Outcome) {
    let Some((median_ms, max_ms)) = median_and_max(outages) else { return };
    let limit_ms = OUTAGE_LIMIT.as_secs_f64() * 1e3;
    outcome.tell(format!(
        "{} kills; from a kill to the first answer of the replacement: median {median_ms:.1} ms, at most {max_ms:.1} ms",
        outages.len()
    ));
    outcome.require(median_ms <= limit_ms, || format!("half of the replacements took more than {limit_ms} ms"));
    if late_max_ms > LATE_MAX_MS {
        outcome.tell(format!(
            "The longest outage is not judged: this machine was so busy that the load itself was kept from its processor \
             for {late_max_ms:.0} ms"
        ));
    } else {
        outcome.require(max_ms <= limit_ms, || format!("a replacement took more than {limit_ms} ms"));
    }
}

/// From just before the signal until a connection that was opened after it is answered.
fn kill_once(service: &Service) -> Result<Duration, String> {
    let pid = service.only_server_pid()?;
    let start = Instant::now();
    if !signal(pid, "KILL") {
        return Err(format!("the server process {pid} could not be killed"));
    }
    // Before it is gone it might still take a connection.
    if !comes_true(END_LIMIT, || !processes::runs(pid)) {
        return Err(format!("the server process {pid} was killed and still runs"));
    }
    client::get(service.http, "example.com", PAGE_PATH)?;
    Ok(start.elapsed())
}

/// Kills the supervisor, starts another one, and sees that it is in charge.
pub(super) fn supervisor_death(programs: &Programs, extent: Extent, outcome: &mut Outcome) -> Result<(), String> {
    let mut service = Service::start(programs, outcome.name, &Config::new(2))?;
    let before = Drops::so_far(Some(service.dns));
    let old_pid = service.supervisor_pid();
    let load = Load::on(&service, programs, &Plan::strict(Rates::FULL))?;
    at_pace(1, extent.choose(Duration::from_secs(3), Duration::from_millis(300)), |_| match signal(old_pid, "KILL") {
        true => Ok(()),
        false => Err(format!("the supervisor {old_pid} could not be killed")),
    })?;
    service.start_supervisor_again()?;
    let start = Instant::now();
    let wanted_pid = u64::from(service.supervisor_pid());
    let mut told = Ok(None);
    let is_in_charge = comes_true(END_LIMIT, || {
        told = service.status().map(|status| status.count_at(SUPERVISOR_PID));
        told == Ok(Some(wanted_pid))
    });
    if !is_in_charge {
        return Err(format!(
            "supervisor {wanted_pid} was not in charge {} s after its start; the status told {told:?}, the service {}",
            END_LIMIT.as_secs(),
            service.last_words()
        ));
    }
    outcome.tell(format!(
        "The next supervisor was in charge {:.0} ms after its start",
        start.elapsed().as_secs_f64() * 1e3
    ));
    at_pace(1, Duration::ZERO, |_| {
        service.set_config(&Config::new(3))?;
        let told = service.reload()?;
        outcome.tell(format!("A reload after that: “{}”", told.output.lines().last().unwrap_or_default()));
        Ok(())
    })?;
    outcome.take_strict(load.finish()?);
    outcome.tell(Drops::so_far(Some(service.dns)).told_since(before));
    let told = service.command(&["stop"])?;
    outcome.require(told.is_done, || format!("`sanderling stop` failed: {}", told.errors));
    let is_gone = service.is_gone_soon();
    outcome.require(is_gone, || "processes are left after `sanderling stop`".to_owned());
    Ok(())
}

/// Where the status tells the number of the supervisor.
const SUPERVISOR_PID: &str = "supervisor.pid";

/// Holds the server process.
pub(super) fn hang(programs: &Programs, _: Extent, outcome: &mut Outcome) -> Result<(), String> {
    let service = Service::start(programs, outcome.name, &Config::new(2))?;
    let pid = service.only_server_pid()?;
    let (deadline_ms, udp_deadline_ms) = (HANG_DEADLINE_MS, HANG_DEADLINE_MS);
    let plan = Plan { rates: Rates::LIGHT, idle_notice: IdleNotice::AtOnce, deadline_ms, udp_deadline_ms };
    let load = Load::on(&service, programs, &plan)?;
    let mut outage = None;
    at_pace(1, Duration::ZERO, |_| {
        if !signal(pid, "STOP") {
            return Err(format!("the server process {pid} could not be held"));
        }
        let start = Instant::now();
        if comes_true(HELD_MAX, || !processes::runs(pid) || service.server_pids().iter().any(|other| *other != pid)) {
            outage = Some(start.elapsed());
        }
        // Without this, a process that nobody has replaced would hold its connections for ever.
        signal(pid, "CONT");
        Ok(())
    })?;
    outcome.take_with_cut_off(load.finish()?);
    match outage {
        Some(outage) => outcome.tell(format!("It was replaced after {:.1} s", outage.as_secs_f64())),
        None => outcome.fail(&format!("it was not replaced within {} s", HELD_MAX.as_secs())),
    }
    service.only_server_pid().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_outage_breaks_the_promise_where_the_machine_is_quiet() {
        let check = |outages_ms: &[u64], late_max_ms: f64, expected: bool| {
            let mut outcome = Outcome::new("kill", "");
            let outages: Vec<Duration> = outages_ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
            judge_outages(&outages, late_max_ms, &mut outcome);
            assert_eq!(outcome.holds(), expected, "{outages_ms:?} with the load {late_max_ms} ms late");
        };
        check(&[20, 30, 100], 5.0, true);
        check(&[20, 30, 101], 5.0, false);
        check(&[20, 30, 900], 400.0, true);
        check(&[20, 130, 900], 400.0, false);
    }
}
