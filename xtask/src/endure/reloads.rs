//! Reloads of good configurations under load: those that need new server processes, and those that need none.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::client;
use super::domain::{Config, PAGE_PATH, alias, turn_text};
use super::load::{Load, Plan, Rates};
use super::network::Drops;
use super::options::Extent;
use super::outcome::Outcome;
use super::pace::{at_pace, median_and_max};
use super::programs::Programs;
use super::service::{END_LIMIT, Service, Told};

const RELOAD_COUNT: usize = 24;
const RELOAD_COUNT_SHORT: usize = 6;
/// Requests that a full run must have sent to say anything.
const SENT_COUNT_MIN: u64 = 100_000;
const EVERY: Duration = Duration::from_millis(500);
/// The numbers of workers, one after another.
const WORKER_COUNTS: [usize; 6] = [2, 3, 4, 3, 2, 1];

/// Workers from one to four and back.
pub(super) fn reload_workers(programs: &Programs, extent: Extent, outcome: &mut Outcome) -> Result<(), String> {
    let service = Service::start(programs, outcome.name, &Config::new(1))?;
    let before = Drops::so_far(Some(service.dns));
    let load = Load::on(&service, programs, &Plan::strict(Rates::FULL))?;
    let mut reloads = Reloads::default();
    at_pace(extent.choose(RELOAD_COUNT, RELOAD_COUNT_SHORT), EVERY, |index| {
        service.set_config(&Config::new(WORKER_COUNTS[index % WORKER_COUNTS.len()]))?;
        reloads.add(&service.reload()?);
        Ok(())
    })?;
    outcome.take_strict(load.finish()?);
    outcome.tell(Drops::so_far(Some(service.dns)).told_since(before));
    reloads.tell(outcome, "a new server process");
    let start = Instant::now();
    service.only_server_pid()?;
    outcome.tell(format!(
        "The server processes that were replaced were gone {:.0} ms after the load (at most {} s are allowed)",
        start.elapsed().as_secs_f64() * 1e3,
        END_LIMIT.as_secs()
    ));
    require_enough(extent, outcome);
    Ok(())
}

/// A record, the sites of the domains and an alias, in turn.
pub(super) fn reload_in_place(programs: &Programs, extent: Extent, outcome: &mut Outcome) -> Result<(), String> {
    let mut config = Config::new(2);
    let service = Service::start(programs, outcome.name, &config)?;
    let server_pid = service.only_server_pid()?;
    let before = Drops::so_far(Some(service.dns));
    let load = Load::on(&service, programs, &Plan::strict(Rates::FULL))?;
    let mut reloads = Reloads::default();
    at_pace(extent.choose(RELOAD_COUNT, RELOAD_COUNT_SHORT), EVERY, |index| {
        reloads.add(&change(&service, &mut config, index)?);
        Ok(())
    })?;
    let counts = load.finish()?;
    let closed_count: u64 = counts.iter().map(|kind| kind.closed_by_server_count).sum();
    outcome.require(closed_count == 0, || format!("{closed_count} kept connections were closed by the server"));
    outcome.take_strict(counts);
    outcome.tell(Drops::so_far(Some(service.dns)).told_since(before));
    reloads.tell(outcome, "in place");
    let is_same = service.only_server_pid()? == server_pid;
    outcome.require(is_same, || "the server process is not the one of before".to_owned());
    require_enough(extent, outcome);
    Ok(())
}

/// Changes one thing, reloads, and sees that the change is being served when the command has ended.
fn change(service: &Service, config: &mut Config, index: usize) -> Result<Told, String> {
    let turn = index / 3 + 1;
    match index % 3 {
        0 => service.domain.set_turn(turn)?,
        1 => config.is_swapped = !config.is_swapped,
        _ => config.alias_turn = turn,
    }
    service.set_config(config)?;
    let told = service.reload()?;
    let is_served = match index % 3 {
        0 => client::txt_holds(service.dns, "turn.example.com", &turn_text(turn))?,
        1 => client::get(service.http, "example.com", PAGE_PATH)? == service.domain.page(config.is_swapped)?,
        _ => client::get(service.http, &alias(turn), PAGE_PATH).is_ok(),
    };
    let what = ["the record", "the site", "the alias"][index % 3];
    if is_served { Ok(told) } else { Err(format!("reload {}: {what} is not the new one after it", index + 1)) }
}

/// What reloads said.
#[derive(Default)]
struct Reloads {
    times: Vec<Duration>,
    /// How often each way was taken, by its first words.
    ways: BTreeMap<String, usize>,
}

impl Reloads {
    fn add(&mut self, told: &Told) {
        self.times.push(told.took);
        *self.ways.entry(told.output.lines().last().unwrap_or_default().to_owned()).or_default() += 1;
    }

    /// Tells them, and requires that all took the way that begins with these words.
    fn tell(&self, outcome: &mut Outcome, way: &str) {
        let ways: Vec<String> = self.ways.iter().map(|(way, count)| format!("{count} × “{way}”")).collect();
        outcome.tell(format!("Reloads: {}", ways.join(", ")));
        if let Some((median_ms, max_ms)) = median_and_max(&self.times) {
            outcome.tell(format!("From the command to its end: median {median_ms:.0} ms, at most {max_ms:.0} ms"));
        }
        let other_count: usize = self.ways.iter().filter(|(told, _)| !told.contains(way)).map(|(_, count)| count).sum();
        outcome.require(other_count == 0, || format!("{other_count} reloads did not say `{way}`"));
    }
}

fn require_enough(extent: Extent, outcome: &mut Outcome) {
    let (sent_count, _) = outcome.sent_and_lost();
    let min_count = extent.choose(SENT_COUNT_MIN, 1);
    outcome.require(sent_count >= min_count, || format!("{sent_count} requests are less than {min_count}"));
}
