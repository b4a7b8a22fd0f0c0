//! Servers and their loads, run in turns: what each request cost each of them, round by round.

use std::time::{Duration, Instant};

use super::load::{Counted, Load, OVERTIME, Running};
use super::process_tree::ProcessorTime;
use super::random::Random;
use super::server::Server;
use super::spread::Spread;
use super::strace;

/// How long the load runs before the rounds at most, so that caches fill, and how long under strace.
const WARM_UP_MAX: Duration = Duration::from_secs(1);

/// How long a load runs until it is another's turn: long beside what a change of turns costs, short beside the seconds for
/// which a machine that is shared with others gets slower.
const TURN: Duration = Duration::from_millis(50);

/// What all comparisons of one run share.
pub(super) struct Rounds {
    pub(super) round_count: usize,
    /// How long each load runs in each round, all its turns together.
    pub(super) length: Duration,
    pub(super) random: Random,
    /// As for `taskset -c`.
    pub(super) server_processors: String,
    pub(super) load_processors: String,
}

/// A server and what it is asked by.
pub(super) struct Contestant<'a> {
    pub(super) server: &'a Server,
    pub(super) load: Load,
}

/// One run of one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) counted: Counted,
    pub(super) server: ProcessorTime,
}

impl Sample {
    fn server_us(&self) -> f64 {
        self.server.total_ns as f64 / 1000.0 / self.counted.answered_count.max(1) as f64
    }

    fn load_us(&self) -> f64 {
        self.counted.load_ns as f64 / 1000.0 / self.counted.answered_count.max(1) as f64
    }
}

/// What came of one contestant.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    /// One for each round; `None` where it failed.
    pub(super) samples: Vec<Option<Sample>>,
    /// Of the whole process tree, after the last round.
    pub(super) memory_kib: u64,
    /// For each request: all, and the most frequent by name.
    pub(super) calls: Option<(f64, String)>,
    /// Why something is missing.
    pub(super) trouble: Option<String>,
}

impl Row {
    /// The rounds that came to an end.
    fn good(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().flatten()
    }

    /// Server time for each request in microseconds.
    pub(super) fn cost(&self) -> Option<Spread> {
        Spread::of(self.good().map(Sample::server_us))
    }

    /// How many times what `other` costs, by the rounds in which both came to an end.
    pub(super) fn times(&self, other: &Row) -> Option<Spread> {
        let pairs = self.samples.iter().zip(&other.samples);
        Spread::of(pairs.filter_map(|(own, other)| Some(own.as_ref()?.server_us() / other.as_ref()?.server_us())))
    }

    pub(super) fn load_cost(&self) -> Option<Spread> {
        Spread::of(self.good().map(Sample::load_us))
    }

    /// The share of user time in the whole, in percent; `None` when too little ran to tell.
    pub(super) fn user_percent(&self) -> Option<f64> {
        let user: u64 = self.good().map(|sample| sample.server.user_ticks).sum();
        let system: u64 = self.good().map(|sample| sample.server.system_ticks).sum();
        (user + system > 0).then(|| 100.0 * user as f64 / (user + system) as f64)
    }

    pub(super) fn answered_count(&self) -> u64 {
        self.good().map(|sample| sample.counted.answered_count).sum()
    }

    pub(super) fn error_count(&self) -> u64 {
        self.good().map(|sample| sample.counted.error_count).sum()
    }
}

/// What came of one workload.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) title: String,
    /// What was asked, and by what.
    pub(super) description: String,
    pub(super) rows: Vec<Row>,
}

impl Outcome {
    pub(super) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// Whether calls are counted before the rounds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    Calls,
    /// In the same run by which caches fill: quicker, and it counts their filling too.
    CallsFromCold,
    Nothing,
}

impl Rounds {
    /// Lets the contestants run in turns, in another order each round.
    pub(super) fn compare(
        &mut self,
        title: &str,
        description: &str,
        contestants: &[Contestant<'_>],
        counting: Counting,
    ) -> Outcome {
        println!("{title}");
        let mut rows: Vec<Row> = contestants
            .iter()
            .map(|contestant| Row { name: contestant.server.name.into(), ..Row::default() })
            .collect();
        for (contestant, row) in contestants.iter().zip(&mut rows) {
            self.warm_up(contestant, row, counting);
        }
        for round in 1..=self.round_count {
            let mut told = String::new();
            let order = self.random.order(contestants.len());
            for (index, sample) in order.iter().zip(self.take_turns(&order, contestants)) {
                let (contestant, row) = (&contestants[*index], &mut rows[*index]);
                let sample = sample.map_err(|trouble| note(row, contestant.server, trouble)).ok();
                if let Some(sample) = &sample {
                    told += &format!("  {} {:.2} µs", row.name, sample.server_us());
                }
                row.samples.push(sample);
            }
            println!("  round {round}:{told}");
        }
        for (contestant, row) in contestants.iter().zip(&mut rows) {
            row.memory_kib = contestant.server.memory_kib();
        }
        Outcome { title: title.into(), description: description.into(), rows }
    }

    fn warm_up(&self, contestant: &Contestant<'_>, row: &mut Row, counting: Counting) {
        let length = contestant.load.length.min(WARM_UP_MAX);
        let load = || contestant.load.lasting(length).run(&self.load_processors);
        let count = || {
            let (calls, counted) = strace::count(contestant.server, load)?;
            Ok(Some(calls.per_request(counted.answered_count)))
        };
        let counted = match counting {
            Counting::Calls => load().and_then(|_| count()),
            Counting::CallsFromCold => count(),
            Counting::Nothing => load().map(|_| None),
        };
        match counted {
            Ok(calls) => row.calls = calls,
            Err(trouble) => note(row, contestant.server, trouble),
        }
    }

    /// Lets the loads of one round run in short turns, each for `length` in all. Whoever else uses the machine slows it
    /// down for seconds at a time; this way he slows all contestants down alike.
    fn take_turns(&self, order: &[usize], contestants: &[Contestant<'_>]) -> Vec<Result<Sample, String>> {
        let contestants: Vec<&Contestant<'_>> = order.iter().map(|&index| &contestants[index]).collect();
        let together = |length: Duration| length * contestants.len() as u32;
        let loads: Vec<Load> = contestants.iter().map(|it| it.load.lasting(together(it.load.length))).collect();
        let limit = Instant::now() + loads.iter().map(|load| load.length).max().unwrap_or_default() + OVERTIME;
        let before: Vec<ProcessorTime> = contestants.iter().map(|it| it.server.processor_time()).collect();
        let mut all: Vec<Result<Running<'_>, String>> = Vec::new();
        for load in &loads {
            let running = load.start(&self.load_processors);
            all.push(running.and_then(|mut running| turn(&mut running).map(|_| running)));
        }
        let mut is_one_left = true;
        while is_one_left && Instant::now() < limit {
            is_one_left = false;
            for running in &mut all {
                let Ok(at_work) = running else { continue };
                match at_work.go_on().and_then(|()| turn(at_work)) {
                    Ok(has_ended) => is_one_left |= !has_ended,
                    Err(problem) => *running = Err(problem),
                }
            }
        }
        let counted = all.into_iter().map(|running| running.and_then(Running::counted));
        let used = contestants.iter().zip(before).map(|(it, before)| it.server.processor_time().since(before));
        counted.zip(used).map(|(counted, used)| sample(counted?, used)).collect()
    }
}

/// Lets a load run for one turn; whether it has ended by then.
fn turn(running: &mut Running<'_>) -> Result<bool, String> {
    let has_ended = running.wait(TURN);
    if !has_ended {
        running.pause()?;
    }
    Ok(has_ended)
}

fn sample(counted: Counted, server: ProcessorTime) -> Result<Sample, String> {
    if counted.answered_count == 0 {
        return Err("no request was answered".into());
    }
    Ok(Sample { counted, server })
}

/// Keeps what went wrong; that the server is gone explains everything else.
fn note(row: &mut Row, server: &Server, trouble: String) {
    let trouble = server.ending().unwrap_or(trouble);
    println!("  {}: {trouble}", row.name);
    row.trouble = Some(trouble);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(costs_us: &[Option<u64>]) -> Row {
        let counted = Counted { answered_count: 1000, error_count: 0, load_ns: 0 };
        let sample = |cost_us| Sample {
            counted,
            server: ProcessorTime { total_ns: cost_us * 1_000_000, ..ProcessorTime::default() },
        };
        Row { samples: costs_us.iter().map(|cost_us| cost_us.map(sample)).collect(), ..Row::default() }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // Each round is twice as slow as the one before, for both alike, and one failed for either.
        let own = row(&[Some(2), Some(4), None, Some(8), Some(100)]);
        let ratios = own.times(&row(&[Some(1), Some(2), Some(1), Some(4), None])).expect("three rounds");
        assert_eq!((ratios.least, ratios.median, ratios.most), (2.0, 2.0, 2.0));
        assert_eq!(own.cost().expect("four rounds").median, 6.0);
    }
}
