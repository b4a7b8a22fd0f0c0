//! Ten thousand short connections, and the share of them that each worker had.

use std::time::Duration;

use super::domain::Config;
use super::json::Value;
use super::load::{Load, Plan, Rates};
use super::options::Extent;
use super::outcome::Outcome;
use super::pace::comes_true;
use super::programs::Programs;
use super::service::Service;

const WORKER_COUNT: usize = 4;
const CONNECTION_COUNT: u64 = 10_000;
const CONNECTION_COUNT_SHORT: u64 = 1_000;
/// The least share that a worker may have of what it would have if all were alike.
const SHARE_MIN: f64 = 0.25;
/// How long the load may take to open its connections.
const LOAD_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at the status: each starts a process, which is not to be what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Where the status lists the threads of the server process, what the names of workers begin with, and what it tells of
/// each.
const THREADS: &str = "process.threads";
const WORKER: &str = "worker";
const ACCEPTED: &str = "accepted";

/// One listener for all workers, and then a sibling for each.
pub(super) fn fairness(programs: &Programs, extent: Extent, outcome: &mut Outcome) -> Result<(), String> {
    for listener_count in [1, WORKER_COUNT] {
        let config = Config { listener_count: Some(listener_count), ..Config::new(WORKER_COUNT) };
        let service = Service::start(programs, &format!("{}-{listener_count}", outcome.name), &config)?;
        let before = accepted(&service.status()?)?;
        let rates = Rates { http_new: Rates::FULL.http_new, http_kept: 0, udp: 0, tcp_new: 0, tcp_kept: 0 };
        let load = Load::on(&service, programs, &Plan::strict(rates))?;
        let wanted_count = extent.choose(CONNECTION_COUNT, CONNECTION_COUNT_SHORT);
        let mut after = before.clone();
        let mut trouble = None;
        let are_open = comes_true(LOAD_LIMIT, || {
            std::thread::sleep(LOOK_EVERY);
            match service.status().and_then(|status| accepted(&status)) {
                Ok(counts) => after = counts,
                Err(error) => trouble = Some(error),
            }
            trouble.is_some() || sum(&after) >= sum(&before) + wanted_count
        });
        outcome.take_strict(load.finish()?);
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        outcome.require(are_open, || format!("not even {wanted_count} connections were told by the status"));
        tell_shares(listener_count, &before, &after, outcome);
    }
    Ok(())
}

fn tell_shares(listener_count: usize, before: &[u64], after: &[u64], outcome: &mut Outcome) {
    let mut shares: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    shares.sort_unstable_by(|a, b| b.cmp(a));
    let total: u64 = shares.iter().sum();
    let listeners = if listener_count == 1 { "1 listener".to_owned() } else { format!("{listener_count} listeners") };
    let percents: Vec<String> =
        shares.iter().map(|share| format!("{:.1} %", *share as f64 / total.max(1) as f64 * 100.0)).collect();
    outcome.tell(format!("{listeners}, {WORKER_COUNT} workers, {total} connections: {}", percents.join(", ")));
    outcome.require(shares.len() == WORKER_COUNT, || format!("the status tells {} workers", shares.len()));
    let even = total as f64 / WORKER_COUNT as f64;
    let least = shares.last().copied().unwrap_or(0);
    outcome.require(least as f64 >= even * SHARE_MIN, || {
        format!("with {listeners} a worker had {least} of {total} connections")
    });
}

/// What each worker has accepted so far.
fn accepted(status: &Value) -> Result<Vec<u64>, String> {
    let threads = status.at(THREADS).ok_or_else(|| format!("the status has no `{THREADS}`: {status:?}"))?.items();
    let is_worker = |thread: &&Value| thread.text_at("name").is_some_and(|name| name.starts_with(WORKER));
    let counts = threads.iter().filter(is_worker).map(|worker| worker.count_at(ACCEPTED));
    counts.collect::<Option<Vec<u64>>>().ok_or_else(|| format!("the status tells no `{ACCEPTED}` of a worker"))
}

fn sum(counts: &[u64]) -> u64 {
    counts.iter().sum()
}
