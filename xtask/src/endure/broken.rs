//! Reloads of configurations that are wrong, again and again, under load.

use std::time::Duration;

use super::domain::Config;
use super::load::{Load, Plan, Rates};
use super::options::Extent;
use super::outcome::Outcome;
use super::pace::{at_pace, comes_true, median_and_max};
use super::processes;
use super::programs::Programs;
use super::service::{END_LIMIT, Service};

const RELOAD_COUNT: usize = 1_000;
const RELOAD_COUNT_SHORT: usize = 50;

/// Every way of being wrong in turn: the form, a key, a file that is not there, a folder that is not there, a zone with
/// an error, an address that cannot be had.
pub(super) fn broken(programs: &Programs, extent: Extent, outcome: &mut Outcome) -> Result<(), String> {
    let config = Config::new(2);
    let service = Service::start(programs, outcome.name, &config)?;
    let good = config.text(service.http, service.dns);
    let broken = [
        good.replace("[http]", "[http"),
        good.replace("listen", "lissten"),
        good.replace("example.com.zone", "missing.zone"),
        good.replace("\"second\"", "\"missing\""),
        good.replace("example.com.zone", "sanderling.toml"),
        good.replace("127.0.0.1", "192.0.2.1"),
    ];
    // A load has come and gone before, so that whatever is kept from the first use is there.
    run_load(&service, programs, outcome)?;
    let pids = [service.supervisor_pid(), service.only_server_pid()?];
    let before = descriptors(&pids);
    let (mut refused_count, mut silent_count, mut times) = (0, 0, Vec::new());
    let load = Load::on(&service, programs, &Plan::strict(Rates::FULL))?;
    let reload_count = extent.choose(RELOAD_COUNT, RELOAD_COUNT_SHORT);
    at_pace(reload_count, Duration::ZERO, |index| {
        service.domain.set_config(&broken[index % broken.len()])?;
        let told = service.command(&["reload"])?;
        refused_count += usize::from(!told.is_done);
        silent_count += usize::from(!told.is_done && told.errors.is_empty());
        times.push(told.took);
        Ok(())
    })?;
    outcome.take_strict(load.finish()?);
    outcome
        .tell(format!("{refused_count} of {reload_count} reloads were refused, {silent_count} of them without a word"));
    outcome.require(refused_count == reload_count, || format!("{} were taken", reload_count - refused_count));
    outcome.require(silent_count == 0, || "an operator was not told what is wrong".to_owned());
    if let Some((median_ms, max_ms)) = median_and_max(&times) {
        outcome.tell(format!("From the command to its end: median {median_ms:.0} ms, at most {max_ms:.0} ms"));
    }
    let [supervisor_pid, server_pid] = pids;
    let is_same = service.supervisor_pid() == supervisor_pid && service.only_server_pid()? == server_pid;
    outcome.require(is_same, || "the server process is not the one of before".to_owned());
    // Connections of the load may still be on their way out.
    comes_true(END_LIMIT, || descriptors(&pids) == before);
    let after = descriptors(&pids);
    outcome.tell(format!("Descriptors of the supervisor and the server process: {before:?} before, {after:?} after"));
    outcome.require(after == before, || "descriptors were kept".to_owned());
    service.set_config(&config)?;
    service.reload().map(drop)
}

/// A short load with no event.
fn run_load(service: &Service, programs: &Programs, outcome: &mut Outcome) -> Result<(), String> {
    let load = Load::on(service, programs, &Plan::strict(Rates::FULL))?;
    at_pace(0, Duration::ZERO, |_| Ok(()))?;
    let lost_count: u64 = load.finish()?.iter().map(|kind| kind.lost_count).sum();
    outcome.require(lost_count == 0, || format!("{lost_count} requests were lost with nothing happening"));
    Ok(())
}

fn descriptors(pids: &[u32; 2]) -> [usize; 2] {
    pids.map(processes::descriptor_count)
}
