//! Reloads and upgrades that are asked for by signals, faster than they can be done.

use std::time::Duration;

use super::domain::Config;
use super::load::{Load, Plan, Rates};
use super::network::Drops;
use super::options::Extent;
use super::outcome::Outcome;
use super::pace::{at_pace, comes_true};
use super::programs::Programs;
use super::service::Service;
use crate::program::signal;

const SIGNAL_COUNT: usize = 400;
const SIGNAL_COUNT_SHORT: usize = 60;
/// A reload that starts a process takes longer.
const EVERY: Duration = Duration::from_millis(5);
/// One signal of so many asks for an upgrade.
const UPGRADE_EVERY: usize = 5;
const WORKER_COUNTS: [usize; 3] = [1, 3, 2];
/// How long it may take until the last configuration is served.
const CALM_LIMIT: Duration = Duration::from_secs(30);
/// Where the status tells how many workers serve.
const WORKER_COUNT: &str = "process.worker_count";

/// SIGHUP and SIGUSR2 in a row, each with another number of workers in the configuration.
pub(super) fn storm(programs: &Programs, extent: Extent, outcome: &mut Outcome) -> Result<(), String> {
    let service = Service::start(programs, outcome.name, &Config::new(2))?;
    let before = Drops::so_far(Some(service.dns));
    let load = Load::on(&service, programs, &Plan::strict(Rates::FULL))?;
    let signal_count = extent.choose(SIGNAL_COUNT, SIGNAL_COUNT_SHORT);
    at_pace(signal_count, EVERY, |index| {
        service.set_config(&Config::new(WORKER_COUNTS[index % WORKER_COUNTS.len()]))?;
        let name = if index % UPGRADE_EVERY == 0 { "USR2" } else { "HUP" };
        match signal(service.supervisor_pid(), name) {
            true => Ok(()),
            false => Err(format!("SIG{name} number {index} met nobody: {}", service.last_words())),
        }
    })?;
    let last_count = WORKER_COUNTS[(signal_count - 1) % WORKER_COUNTS.len()] as u64;
    let mut told = Ok(None);
    let is_served = comes_true(CALM_LIMIT, || {
        told = service.status().map(|status| status.count_at(WORKER_COUNT));
        told == Ok(Some(last_count))
    });
    outcome.require(is_served, || format!("{last_count} workers were asked for last, the status tells {told:?}"));
    outcome.tell(format!(
        "{signal_count} signals, one of {UPGRADE_EVERY} for an upgrade; the last asked for {last_count} workers"
    ));
    outcome.take_strict(load.finish()?);
    outcome.tell(Drops::so_far(Some(service.dns)).told_since(before));
    service.only_server_pid().map(drop)
}
