//! Upgrades under load, to programs that run and to programs that do not.

use std::time::Duration;

use super::domain::Config;
use super::load::{Load, Plan, Rates};
use super::network::Drops;
use super::options::Extent;
use super::outcome::Outcome;
use super::pace::at_pace;
use super::programs::Programs;
use super::service::{NewProgram, Service};

/// What each upgrade finds in the program's place.
const UPGRADES: [NewProgram; 10] = [
    NewProgram::Good,
    NewProgram::Good,
    NewProgram::Crashes,
    NewProgram::Good,
    NewProgram::Good,
    NewProgram::Refuses,
    NewProgram::Good,
    NewProgram::Good,
    NewProgram::Hangs,
    NewProgram::Good,
];
const UPGRADES_SHORT: [NewProgram; 4] = [NewProgram::Good, NewProgram::Crashes, NewProgram::Hangs, NewProgram::Good];
const EVERY: Duration = Duration::from_secs(3);
const EVERY_SHORT: Duration = Duration::from_secs(1);
/// How long a new server process may take to be ready.
const START_TIMEOUT_MS: u64 = 800;
/// How long it may take to tell that a program has failed at once.
const TOLD_LIMIT: Duration = Duration::from_secs(1);

/// Upgrades, three of ten to failing programs.
pub(super) fn upgrade(programs: &Programs, extent: Extent, outcome: &mut Outcome) -> Result<(), String> {
    let config = Config { start_timeout_ms: Some(START_TIMEOUT_MS), ..Config::new(2) };
    let service = Service::start(programs, outcome.name, &config)?;
    let upgrades: &[NewProgram] = extent.choose(&UPGRADES, &UPGRADES_SHORT);
    let before = Drops::so_far(Some(service.dns));
    let load = Load::on(&service, programs, &Plan::strict(Rates::FULL))?;
    let mut served_by = service.only_server_pid()?;
    at_pace(upgrades.len(), extent.choose(EVERY, EVERY_SHORT), |index| {
        served_by = one_upgrade(&service, upgrades[index], served_by, outcome)?;
        Ok(())
    })?;
    outcome.take_strict(load.finish()?);
    outcome.tell(Drops::so_far(Some(service.dns)).told_since(before));
    service.only_server_pid().map(drop)
}

/// Upgrades once; the server process that serves then.
fn one_upgrade(service: &Service, new: NewProgram, old_pid: u32, outcome: &mut Outcome) -> Result<u32, String> {
    service.replace_program(new)?;
    let told = service.command(&["upgrade"])?;
    let took_ms = told.took.as_secs_f64() * 1e3;
    let line = |text: &str| text.lines().last().unwrap_or_default().to_owned();
    let pid = newest(service)?;
    match new {
        NewProgram::Good => {
            outcome.tell(format!("Upgrade in {took_ms:.0} ms: “{}”", line(&told.output)));
            outcome.require(told.is_done, || format!("a good program was refused: {}", told.errors));
            outcome.require(pid != old_pid, || "the server process is the one of before the upgrade".to_owned());
        }
        NewProgram::Crashes | NewProgram::Refuses | NewProgram::Hangs => {
            outcome.tell(format!(
                "Upgrade to a program that fails ({new:?}), told in {took_ms:.0} ms: “{}”",
                line(&told.errors)
            ));
            outcome.require(!told.is_done, || format!("an upgrade to a program that fails ({new:?}) was called done"));
            outcome
                .require(pid == old_pid, || "the server process is not the one of before a failed upgrade".to_owned());
            let limit = TOLD_LIMIT + Duration::from_millis(if new == NewProgram::Hangs { START_TIMEOUT_MS } else { 0 });
            outcome.require(told.took <= limit, || {
                format!("it took {took_ms:.0} ms to tell that a program fails ({new:?})")
            });
        }
    }
    Ok(pid)
}

/// The server process that was started last.
fn newest(service: &Service) -> Result<u32, String> {
    service.server_pids().last().copied().ok_or_else(|| format!("no server process is left: {}", service.last_words()))
}
