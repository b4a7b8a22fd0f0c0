//! Servers and their loads, run in turns: what each request cost each of them, round by round.

use std::time::Duration;

use super::load::{Counted, Load};
use super::process_tree::ProcessorTime;
use super::random::Random;
use super::server::Server;
use super::spread::Spread;
use super::strace;

/// How long the load runs before the rounds at most, so that caches fill, and how long under strace.
const WARM_UP_MAX: Duration = Duration::from_secs(1);

/// What all comparisons of one run share.
pub(super) struct Rounds {
    pub(super) round_count: usize,
    /// How long each load runs in each round.
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
    pub(super) samples: Vec<Sample>,
    /// Of the whole process tree, after the last round.
    pub(super) memory_kib: u64,
    /// For each request: all, and the most frequent by name.
    pub(super) calls: Option<(f64, String)>,
    /// Why something is missing.
    pub(super) trouble: Option<String>,
}

impl Row {
    /// Server time for each request in microseconds, round by round.
    pub(super) fn server_us(&self) -> Vec<f64> {
        self.samples.iter().map(Sample::server_us).collect()
    }

    pub(super) fn cost(&self) -> Option<Spread> {
        Spread::of(self.server_us())
    }

    pub(super) fn load_cost(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().map(Sample::load_us))
    }

    /// The share of user time in the whole, in percent; `None` when too little ran to tell.
    pub(super) fn user_percent(&self) -> Option<f64> {
        let user: u64 = self.samples.iter().map(|sample| sample.server.user_ticks).sum();
        let system: u64 = self.samples.iter().map(|sample| sample.server.system_ticks).sum();
        (user + system > 0).then(|| 100.0 * user as f64 / (user + system) as f64)
    }

    pub(super) fn answered_count(&self) -> u64 {
        self.samples.iter().map(|sample| sample.counted.answered_count).sum()
    }

    pub(super) fn error_count(&self) -> u64 {
        self.samples.iter().map(|sample| sample.counted.error_count).sum()
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

    /// How many times the row `name` each row costs, round by round.
    pub(super) fn ratio(&self, row: &Row, name: &str) -> Option<Spread> {
        let other = self.row(name)?.server_us();
        let own = row.server_us();
        // A round that failed is missing, and then rounds can't be paired.
        if own.len() != other.len() {
            return None;
        }
        Spread::of_ratios(&own, &other)
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
            for index in self.random.order(contestants.len()) {
                let (contestant, row) = (&contestants[index], &mut rows[index]);
                match self.sample(contestant) {
                    Ok(sample) => {
                        told += &format!("  {} {:.2} µs", row.name, sample.server_us());
                        row.samples.push(sample);
                    }
                    Err(trouble) => note(row, contestant.server, trouble),
                }
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

    fn sample(&self, contestant: &Contestant<'_>) -> Result<Sample, String> {
        let before = contestant.server.processor_time();
        let counted = contestant.load.run(&self.load_processors)?;
        let server = contestant.server.processor_time().since(before);
        if counted.answered_count == 0 {
            return Err("no request was answered".into());
        }
        Ok(Sample { counted, server })
    }
}

/// Keeps what went wrong; that the server is gone explains everything else.
fn note(row: &mut Row, server: &Server, trouble: String) {
    let trouble = server.ending().unwrap_or(trouble);
    println!("  {}: {trouble}", row.name);
    row.trouble = Some(trouble);
}
