//! Interleaved rounds: the cost of a request for each server, round by round.

use crate::compare::loads::{Counted, Load, OVERTIME, Running};
use crate::compare::server::{Bench, Calls, Server, count_calls};
use fastrand::Rng;
use std::fmt;
use std::time::{Duration, Instant};

/// Maximum time for which a load warms up the server, and runs under strace.
const WARM_UP_MAX: Duration = Duration::from_secs(1);
/// The time that a load runs before the next: long compared with the switch, short compared with the seconds for which
/// a shared machine becomes slower.
const TURN: Duration = Duration::from_millis(50);

pub(crate) struct Rounds {
    pub(crate) bench: Bench,
    pub(crate) round_count: usize,
    /// The total time of each load in each round, the sum of its turns.
    pub(crate) length: Duration,
    pub(crate) random: Rng,
    pub(crate) is_quick: bool,
}

pub(crate) struct Contestant<'a> {
    pub(crate) server: &'a Server,
    pub(crate) load: Load,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    counted: Counted,
    server_ns: u64,
}

impl Sample {
    fn cost_us(&self) -> f64 {
        self.server_ns as f64 / 1e3 / self.counted.response_count as f64
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// A sample per round; `None` where the load failed.
    samples: Vec<Option<Sample>>,
    pub(crate) memory_mib: f64,
    /// System calls per request: all, and by name.
    pub(crate) calls: Option<(f64, String)>,
    pub(crate) error: Option<String>,
}

impl Row {
    /// Processor time of the server per request in µs.
    pub(crate) fn cost_us(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().flatten().map(Sample::cost_us))
    }

    /// The cost as a multiple of another row's, round by round.
    pub(crate) fn ratio_to(&self, other: &Row) -> Option<Spread> {
        let pairs = self.samples.iter().zip(&other.samples);
        Spread::of(pairs.filter_map(|(own, other)| Some(own.as_ref()?.cost_us() / other.as_ref()?.cost_us())))
    }

    pub(crate) fn counts(&self) -> (u64, u64) {
        let counted = self.samples.iter().flatten().map(|sample| sample.counted);
        counted.fold((0, 0), |(responses, errors), it| (responses + it.response_count, errors + it.error_count))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) title: String,
    pub(crate) rows: Vec<Row>,
}

impl Outcome {
    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The cost of a row as a multiple of Sanderling's.
    pub(crate) fn ratio_to_ours(&self, row: &Row) -> Option<Spread> {
        row.ratio_to(self.row("sanderling")?)
    }
}

/// The names of all servers, which may be missing in some outcomes.
pub(crate) fn names(outcomes: &[Outcome]) -> Vec<&'static str> {
    let rows = outcomes.iter().map(|outcome| &outcome.rows).max_by_key(|rows| rows.len());
    rows.into_iter().flatten().map(|row| row.name).collect()
}

/// A line per outcome: its title, and a cell of each server.
pub(crate) fn cells(outcomes: &[Outcome], cell: impl Fn(&Outcome, &Row) -> Option<String>) -> Vec<Vec<String>> {
    let names = names(outcomes);
    let line = |outcome: &Outcome| {
        let cells = names.iter().map(|name| outcome.row(name).and_then(|row| cell(outcome, row)));
        std::iter::once(outcome.title.clone()).chain(cells.map(|cell| cell.unwrap_or_else(|| "–".into()))).collect()
    };
    outcomes.iter().map(line).collect()
}

/// The median of several rounds, and their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        Some(Spread { median, min, max })
    }
}

/// `4.38 (4.21–4.60)`.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { median, min, max } = self;
        let digits = match median {
            ..10.0 => 2,
            ..100.0 => 1,
            _ => 0,
        };
        write!(f, "{median:.digits$} ({min:.digits$}–{max:.digits$})")
    }
}

impl Rounds {
    /// Runs the loads in turns, in another order in each round.
    pub(crate) fn compare(&mut self, title: &str, contestants: &[Contestant<'_>], counts_calls: bool) -> Outcome {
        println!("{title}");
        let new_row = |it: &Contestant<'_>| Row { name: it.server.name, ..Row::default() };
        let mut rows: Vec<Row> = contestants.iter().map(new_row).collect();
        for (contestant, row) in contestants.iter().zip(&mut rows) {
            match self.warm_up(contestant, counts_calls) {
                Ok(calls) => row.calls = calls,
                Err(error) => set_error(row, contestant, &error),
            }
        }
        for round in 1..=self.round_count {
            let mut order: Vec<usize> = (0..contestants.len()).collect();
            self.random.shuffle(&mut order);
            let mut line = format!("  round {round}:");
            for (&index, sample) in order.iter().zip(self.run_round(&order, contestants)) {
                let row = &mut rows[index];
                match sample {
                    Ok(sample) => {
                        line += &format!("  {} {:.2} µs", row.name, sample.cost_us());
                        row.samples.push(Some(sample));
                    }
                    Err(error) => {
                        row.samples.push(None);
                        set_error(row, &contestants[index], &error);
                    }
                }
            }
            println!("{line}");
        }
        for (contestant, row) in contestants.iter().zip(&mut rows) {
            row.memory_mib = contestant.server.memory_mib();
        }
        Outcome { title: title.to_owned(), rows }
    }

    /// Fills the caches, and counts system calls per request.
    fn warm_up(&self, contestant: &Contestant<'_>, counts_calls: bool) -> anyhow::Result<Option<(f64, String)>> {
        let load = contestant.load.for_time(contestant.load.length.min(WARM_UP_MAX));
        let run = || load.run(&self.bench.load_cpus);
        // A quick run counts the calls that fill the caches as well.
        if !counts_calls || !self.is_quick {
            run()?;
        }
        if !counts_calls {
            return Ok(None);
        }
        let (calls, counted) = count_calls(contestant.server, run)?;
        Ok(Some(calls_per_request(&calls, counted.response_count)))
    }

    /// Runs the loads in short turns, each for its length in all. If another program slows the machine down for
    /// seconds, it slows down all servers alike.
    fn run_round(&self, order: &[usize], contestants: &[Contestant<'_>]) -> Vec<anyhow::Result<Sample>> {
        let contestants: Vec<&Contestant<'_>> = order.iter().map(|&index| &contestants[index]).collect();
        let whole = |load: &Load| load.for_time(load.length * contestants.len() as u32);
        let loads: Vec<Load> = contestants.iter().map(|it| whole(&it.load)).collect();
        let limit = Instant::now() + loads.iter().map(|load| load.length).max().unwrap_or_default() + OVERTIME;
        let before_ns: Vec<u64> = contestants.iter().map(|it| it.server.cpu_ns()).collect();
        let mut all: Vec<anyhow::Result<Running<'_>>> = Vec::new();
        for load in &loads {
            all.push(load.start(&self.bench.load_cpus).inspect(Running::pause));
        }
        let mut are_running = true;
        while are_running && Instant::now() < limit {
            are_running = false;
            for running in all.iter_mut().flatten() {
                are_running |= !running.run_for(TURN);
            }
        }
        let counted = all.into_iter().map(|running| running?.counted());
        let used =
            contestants.iter().zip(before_ns).map(|(it, before_ns)| it.server.cpu_ns().saturating_sub(before_ns));
        counted.zip(used).map(|(counted, server_ns)| Ok(Sample { counted: counted?, server_ns })).collect()
    }
}

/// All calls per request, and the calls by name that occur at least once in a hundred requests.
fn calls_per_request(calls: &Calls, response_count: u64) -> (f64, String) {
    let per_request = |count: u64| count as f64 / response_count as f64;
    let total = per_request(calls.iter().map(|(_, count)| count).sum());
    let frequent = calls.iter().filter(|(_, count)| per_request(*count) >= 0.01);
    let names: Vec<String> = frequent.map(|(name, count)| format!("{name} {:.2}", per_request(*count))).collect();
    (total, names.join(", "))
}

/// Keeps an error. If the server has ended, that explains everything else.
fn set_error(row: &mut Row, contestant: &Contestant<'_>, error: &anyhow::Error) {
    let error = contestant.server.ended().unwrap_or_else(|| format!("{error:#}"));
    println!("  {}: {error}", row.name);
    row.error = Some(error);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(costs_us: &[Option<u64>]) -> Row {
        let counted = Counted { response_count: 1000, ..Counted::default() };
        let sample = |cost_us: u64| Sample { counted, server_ns: cost_us * 1_000_000 };
        Row { samples: costs_us.iter().map(|cost| cost.map(sample)).collect(), ..Row::default() }
    }

    #[test]
    fn ratios_are_those_of_the_same_rounds() {
        // Each round is twice as slow as the previous one, and one of each row has failed.
        let own = row(&[Some(2), Some(4), None, Some(8), Some(100)]);
        let ratio = own.ratio_to(&row(&[Some(1), Some(2), Some(1), Some(4), None])).expect("three rounds");
        assert_eq!(ratio, Spread { median: 2.0, min: 2.0, max: 2.0 });
        assert_eq!(own.cost_us().expect("four rounds").to_string(), "6.00 (2.00–100.00)");
    }
}
