//! Turns candidates into rows: many short slices of each, in rounds of another order every time.
//!
//! Short slices are seldom interrupted, and neighbours in time see the same machine: that tells candidates apart that
//! differ by 2 %, on a machine where other work runs. The order changes since each pays for what its neighbour left.

use super::numbers::Spread;
use super::report::{Measured, Outcome, Row};
use super::stopwatch::Stopwatch;
use std::io;
use std::time::{Duration, Instant};

/// What a slice measured: sums over its operations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) operation_count: u64,
    pub(crate) error_count: u64,
    pub(crate) cpu_ns: f64,
    pub(crate) wall_ns: f64,
    pub(crate) peer_cpu_ns: Option<f64>,
    pub(crate) busiest_share: Option<f64>,
}

/// Runs one slice.
type Work<'c> = Box<dyn FnMut() -> io::Result<Slice> + 'c>;

/// Something to be measured, under its name.
pub(crate) struct Candidate<'c> {
    name: String,
    thread_count: usize,
    way: Option<Forced>,
    /// Whether the server does it so; `None` leaves it to the way.
    is_used: Option<bool>,
    baseline: usize,
    claimed_ratio: Option<f64>,
    work: Work<'c>,
}

/// A way of a job, to be taken while its candidate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Forced {
    job: &'static str,
    way: &'static str,
}

impl<'c> Candidate<'c> {
    /// One that measures its slices itself.
    pub(crate) fn new(name: impl Into<String>, work: impl FnMut() -> io::Result<Slice> + 'c) -> Candidate<'c> {
        let work = Box::new(work);
        let name = name.into();
        Candidate { name, thread_count: 1, way: None, is_used: None, baseline: 0, claimed_ratio: None, work }
    }

    /// One that makes `call_count` calls a slice, a few more before it to warm up.
    pub(crate) fn of_calls(
        name: impl Into<String>,
        call_count: u32,
        mut call: impl FnMut() -> io::Result<()> + 'c,
    ) -> Candidate<'c> {
        Candidate::new(name, move || {
            (0..call_count.div_ceil(WARMING_SHARE)).try_for_each(|_| call())?;
            let mut stopwatch = Stopwatch::default();
            let mut error_count = 0;
            stopwatch.time(|| {
                for _ in 0..call_count {
                    error_count += u64::from(call().is_err());
                }
            });
            Ok(Slice::of_one_thread(&stopwatch, u64::from(call_count), error_count))
        })
    }

    /// The server's own way `way` of its job `job`, which is forced while the candidate runs.
    pub(crate) fn by_way(mut self, job: &'static str, way: &'static str) -> Self {
        self.way = Some(Forced { job, way });
        self
    }

    /// The server does it so, or does not, whatever its way is.
    pub(crate) fn used(mut self, is_used: bool) -> Self {
        self.is_used = Some(is_used);
        self
    }

    /// Compared with the candidate at `index` instead of the first.
    pub(crate) fn against(mut self, index: usize) -> Self {
        self.baseline = index;
        self
    }

    /// A founding document says that it costs this share of its baseline.
    pub(crate) fn claimed(mut self, ratio: f64) -> Self {
        self.claimed_ratio = Some(ratio);
        self
    }

    /// Runs on that many threads.
    pub(crate) fn threads(mut self, thread_count: usize) -> Self {
        self.thread_count = thread_count;
        self
    }

    fn run(&mut self) -> io::Result<Slice> {
        if let Some(Forced { job, way }) = self.way {
            sanderling_os::features::force(&format!("{job}={way}")).map_err(io::Error::other)?;
        }
        (self.work)()
    }
}

/// One call to warm up for so many that are measured.
const WARMING_SHARE: u32 = 10;

impl Slice {
    /// What one thread did by itself.
    pub(crate) fn of_one_thread(stopwatch: &Stopwatch, operation_count: u64, error_count: u64) -> Slice {
        let (cpu_ns, wall_ns) = (stopwatch.cpu_ns(), stopwatch.wall_ns());
        Slice { operation_count, error_count, cpu_ns, wall_ns, ..Slice::default() }
    }

    fn per_operation(&self, sum: f64) -> f64 {
        sum / self.operation_count.max(1) as f64
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Slices of each candidate.
    pub(crate) round_count: usize,
    /// After which no further round is begun, if [`ROUND_COUNT_MIN`] are done.
    pub(crate) time_max: Duration,
}

/// Rounds that are worth a median.
const ROUND_COUNT_MIN: usize = 5;

/// Orders, each time another one; the same ones for the same seed.
#[derive(Debug)]
pub(crate) struct Shuffle(u64);

impl Shuffle {
    pub(crate) fn new(seed: u64) -> Shuffle {
        // The generator stays at 0 for ever.
        Shuffle(seed | 1)
    }

    /// Marsaglia's xorshift with 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    fn shuffle(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            order.swap(last, self.next() as usize % (last + 1));
        }
    }
}

/// Measures the candidates against each other. `tick` is told the share of the work that is done.
pub(crate) fn compare(
    mut candidates: Vec<Candidate<'_>>,
    effort: Effort,
    shuffle: &mut Shuffle,
    tick: &mut dyn FnMut(f64),
) -> Vec<Row> {
    let is_forced = |job: &str| candidates.iter().any(|candidate| candidate.way.is_some_and(|way| way.job == job));
    let ways_before: Vec<Forced> = sanderling_os::features::FEATURES
        .iter()
        .filter(|job| is_forced(job.name()))
        .map(|job| Forced { job: job.name(), way: job.selected_name() })
        .collect();
    // The first slice of each warms it, and tells whether it can run at all.
    let mut failures: Vec<Option<String>> =
        candidates.iter_mut().map(|candidate| candidate.run().err().map(|error| error.to_string())).collect();
    let mut slices: Vec<Vec<Slice>> = vec![Vec::new(); candidates.len()];
    let mut order: Vec<usize> = (0..candidates.len()).filter(|&index| failures[index].is_none()).collect();
    let begin = Instant::now();
    for round in 0..effort.round_count {
        if round >= ROUND_COUNT_MIN && begin.elapsed() >= effort.time_max {
            break;
        }
        let by_rounds = round as f64 / effort.round_count as f64;
        tick(by_rounds.max(begin.elapsed().as_secs_f64() / effort.time_max.as_secs_f64()));
        shuffle.shuffle(&mut order);
        for &index in &order {
            match candidates[index].run() {
                Ok(slice) => slices[index].push(slice),
                Err(error) => failures[index] = Some(error.to_string()),
            }
        }
        order.retain(|&index| failures[index].is_none());
    }
    for Forced { job, way } in &ways_before {
        sanderling_os::features::force(&format!("{job}={way}")).expect("the job named this way itself");
    }
    let is_used = |candidate: &Candidate<'_>| {
        candidate.is_used.unwrap_or(candidate.way.is_some_and(|way| ways_before.contains(&way)))
    };
    let measured = candidates.iter().zip(slices).zip(failures);
    measured.map(|((candidate, slices), failure)| row(candidate, is_used(candidate), &slices, failure)).collect()
}

fn row(candidate: &Candidate<'_>, is_used: bool, slices: &[Slice], failure: Option<String>) -> Row {
    let spread = |of: fn(&Slice) -> f64| Spread::of(slices.iter().map(|slice| slice.per_operation(of(slice))));
    let optional = |of: fn(&Slice) -> Option<f64>| {
        let values: Vec<f64> = slices.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| Spread::of(values).median)
    };
    let outcome = match failure {
        Some(reason) => Outcome::CannotRun(reason),
        None => Outcome::Measured(Measured {
            cpu_ns: spread(|slice| slice.cpu_ns),
            wall_ns: spread(|slice| slice.wall_ns),
            both_cpu_ns: spread(|slice| slice.cpu_ns + slice.peer_cpu_ns.unwrap_or(0.0)),
            peer_cpu_ns: optional(|slice| slice.peer_cpu_ns.map(|sum| slice.per_operation(sum))),
            busiest_share: optional(|slice| slice.busiest_share),
            sample_count: slices.len(),
            error_count: slices.iter().map(|slice| slice.error_count).sum(),
        }),
    };
    Row {
        name: candidate.name.clone(),
        thread_count: candidate.thread_count,
        way: candidate.way.map(|forced| forced.way),
        is_used,
        baseline: candidate.baseline,
        claimed_ratio: candidate.claimed_ratio,
        outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const EFFORT: Effort = Effort { round_count: 20, time_max: Duration::from_secs(60) };

    fn slice(cpu_ns: f64) -> Slice {
        Slice { operation_count: 10, cpu_ns, wall_ns: 2.0 * cpu_ns, ..Slice::default() }
    }

    #[test]
    fn each_round_runs_every_candidate_once_in_an_order_of_its_own() {
        let log = RefCell::new(String::new());
        let candidates = ["a", "b", "c"].map(|name| {
            let log = &log;
            Candidate::new(name, move || {
                log.borrow_mut().push_str(name);
                Ok(slice(100.0))
            })
        });
        let rows = compare(candidates.into(), EFFORT, &mut Shuffle::new(1), &mut |_| ());
        let log = log.into_inner();
        let rounds: Vec<&[u8]> = log.as_bytes().chunks(3).skip(1).collect();
        assert_eq!(rounds.len(), EFFORT.round_count);
        for round in &rounds {
            let mut sorted = round.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, b"abc");
        }
        assert!(rounds.iter().any(|round| round != &rounds[0]), "the order never changed: {log}");
        assert!(rows.iter().all(|row| row.measured().is_some_and(|measured| measured.sample_count == 20)));
    }

    #[test]
    fn costs_are_those_of_one_operation() {
        let candidates = vec![Candidate::new("a", || Ok(slice(100.0))), Candidate::new("b", || Ok(slice(50.0)))];
        let rows = compare(candidates, EFFORT, &mut Shuffle::new(1), &mut |_| ());
        let costs = rows.iter().map(|row| row.measured().expect("measured").cpu_ns.median);
        assert_eq!(costs.collect::<Vec<_>>(), [10.0, 5.0]);
    }

    #[test]
    fn a_candidate_that_fails_says_why_and_holds_nobody() {
        let mut runs = 0;
        let candidates = vec![
            Candidate::new("never", || Err(io::Error::from_raw_os_error(38))),
            Candidate::new("no longer", move || {
                runs += 1;
                if runs < 3 { Ok(slice(1.0)) } else { Err(io::Error::other("used up")) }
            }),
            Candidate::new("good", || Ok(slice(1.0))),
        ];
        let rows = compare(candidates, EFFORT, &mut Shuffle::new(1), &mut |_| ());
        let outcome = |index: usize| match &rows[index].outcome {
            Outcome::CannotRun(why) => why.clone(),
            Outcome::Measured(measured) => format!("{} samples", measured.sample_count),
        };
        assert_eq!(outcome(0), "Function not implemented (os error 38)");
        assert_eq!(outcome(1), "used up");
        assert_eq!(outcome(2), "20 samples");
    }

    #[test]
    fn the_ways_are_afterwards_what_they_were() {
        let before: Vec<_> = sanderling_os::features::FEATURES.iter().map(|job| job.selected_name()).collect();
        let seen = RefCell::new(Vec::new());
        let facts = sanderling_os::features::FEATURES.iter().find(|job| job.name() == "stat").expect("a job");
        let candidates = ["fstat", "statx"].map(|way| {
            let seen = &seen;
            Candidate::new(way, move || {
                seen.borrow_mut().push((way, facts.selected_name()));
                Ok(slice(1.0))
            })
            .by_way("stat", way)
        });
        compare(candidates.into(), EFFORT, &mut Shuffle::new(1), &mut |_| ());
        assert!(seen.borrow().iter().all(|(asked, taken)| asked == taken), "{seen:?}");
        assert_eq!(sanderling_os::features::FEATURES.iter().map(|job| job.selected_name()).collect::<Vec<_>>(), before);
    }

    #[test]
    fn time_ends_the_rounds_but_not_before_a_median_is_worth_it() {
        let effort = Effort { round_count: 1_000, time_max: Duration::ZERO };
        let rows = compare(vec![Candidate::new("a", || Ok(slice(1.0)))], effort, &mut Shuffle::new(1), &mut |_| ());
        assert_eq!(rows[0].measured().expect("measured").sample_count, ROUND_COUNT_MIN);
    }
}
