//! Compares candidates: many short slices of each, in rounds whose order changes.
//!
//! A short slice is rarely interrupted, and its neighbours see the same load. This distinguishes candidates that differ
//! by 2 % on a machine with other load. The order changes because a candidate pays for the caches that its neighbour
//! leaves.

use crate::report::{Measured, Row};
use crate::sides::Side;
use crate::spread::Spread;
use crate::stopwatch::Stopwatch;
use sanderling_os::features::{self, FEATURES};
use std::io;
use std::time::{Duration, Instant};

/// Of the calls of a slice, this fraction is made before to warm up.
const WARM_UP_FRACTION: u32 = 10;
/// Rounds for a useful median.
const ROUND_COUNT_MIN: usize = 5;

/// The sums over the operations of a slice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) operation_count: u64,
    pub(crate) error_count: u64,
    pub(crate) cpu_ns: f64,
    pub(crate) wall_ns: f64,
    pub(crate) peer_cpu_ns: Option<f64>,
    pub(crate) busiest_share: Option<f64>,
}

impl Slice {
    /// The slice of a server and its clients.
    pub(crate) fn of_both<S, C>(
        served: &Side<S>,
        asked: &Side<C>,
        operation_count: usize,
        error_count: usize,
    ) -> Slice {
        Slice {
            operation_count: operation_count as u64,
            error_count: error_count as u64,
            cpu_ns: served.cpu_ns,
            wall_ns: asked.wall_ns,
            peer_cpu_ns: Some(asked.cpu_ns),
            busiest_share: None,
        }
    }

    /// The slice of one thread.
    pub(crate) fn of_one_thread(stopwatch: &Stopwatch, operation_count: u64, error_count: u64) -> Slice {
        let (cpu_ns, wall_ns) = (stopwatch.cpu_ns(), stopwatch.wall_ns());
        Slice { operation_count, error_count, cpu_ns, wall_ns, ..Slice::default() }
    }

    fn per_operation(&self, sum: f64) -> f64 {
        sum / self.operation_count.max(1) as f64
    }
}

pub(crate) struct Candidate<'c> {
    name: String,
    threads: usize,
    variant: Option<Variant>,
    /// Whether the server uses it; `None` if the variant decides.
    is_used: Option<bool>,
    baseline: usize,
    run_slice: Box<dyn FnMut() -> io::Result<Slice> + 'c>,
}

/// A variant of a feature, forced while its candidate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Variant {
    feature: &'static str,
    name: &'static str,
}

impl Variant {
    fn force(self) -> io::Result<()> {
        features::force(&format!("{}={}", self.feature, self.name)).map_err(io::Error::other)
    }
}

impl<'c> Candidate<'c> {
    /// A candidate that measures its slices itself.
    pub(crate) fn new(name: impl Into<String>, run_slice: impl FnMut() -> io::Result<Slice> + 'c) -> Candidate<'c> {
        let (name, run_slice) = (name.into(), Box::new(run_slice));
        Candidate { name, threads: 1, variant: None, is_used: None, baseline: 0, run_slice }
    }

    /// A candidate with `call_count` calls per slice.
    pub(crate) fn of_calls(
        name: impl Into<String>,
        call_count: u32,
        mut call: impl FnMut() -> io::Result<()> + 'c,
    ) -> Candidate<'c> {
        Candidate::new(name, move || {
            (0..call_count.div_ceil(WARM_UP_FRACTION)).try_for_each(|_| call())?;
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

    /// Forces this variant of a feature of the server.
    pub(crate) fn variant(mut self, feature: &'static str, name: &'static str) -> Self {
        self.variant = Some(Variant { feature, name });
        self
    }

    /// Whether the server uses it, whatever its variant.
    pub(crate) fn used(mut self, is_used: bool) -> Self {
        self.is_used = Some(is_used);
        self
    }

    /// Compared with the candidate at `index` instead of the first.
    pub(crate) fn against(mut self, index: usize) -> Self {
        self.baseline = index;
        self
    }

    pub(crate) fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    fn run(&mut self) -> io::Result<Slice> {
        self.variant.map_or(Ok(()), Variant::force)?;
        (self.run_slice)()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Slices of each candidate.
    pub(crate) round_count: usize,
    /// No round begins after this time, except the first [`ROUND_COUNT_MIN`].
    pub(crate) time_max: Duration,
}

pub(crate) fn compare(mut candidates: Vec<Candidate<'_>>, effort: Effort, random: &mut fastrand::Rng) -> Vec<Row> {
    let selected_before: Vec<Variant> =
        FEATURES.iter().map(|feature| Variant { feature: feature.name(), name: feature.selected_name() }).collect();
    // The first slice warms up, and shows whether the candidate can run.
    let mut errors: Vec<Option<String>> =
        candidates.iter_mut().map(|candidate| candidate.run().err().map(|error| error.to_string())).collect();
    let mut slices: Vec<Vec<Slice>> = vec![Vec::new(); candidates.len()];
    let mut order: Vec<usize> = (0..candidates.len()).filter(|&index| errors[index].is_none()).collect();
    let start = Instant::now();
    for round in 0..effort.round_count {
        if round >= ROUND_COUNT_MIN && start.elapsed() >= effort.time_max {
            break;
        }
        random.shuffle(&mut order);
        for &index in &order {
            match candidates[index].run() {
                Ok(slice) => slices[index].push(slice),
                Err(error) => errors[index] = Some(error.to_string()),
            }
        }
        order.retain(|&index| errors[index].is_none());
    }
    for variant in &selected_before {
        variant.force().expect("the feature has reported this name itself");
    }
    let measured = candidates.iter().zip(slices).zip(errors);
    measured.map(|((candidate, slices), error)| row(candidate, &selected_before, &slices, error)).collect()
}

fn row(candidate: &Candidate<'_>, selected: &[Variant], slices: &[Slice], error: Option<String>) -> Row {
    let spread = |of: fn(&Slice) -> f64| Spread::of(slices.iter().map(|slice| slice.per_operation(of(slice))));
    let median = |of: fn(&Slice) -> Option<f64>| {
        let values: Vec<f64> = slices.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| Spread::of(values).median)
    };
    let measured = Measured {
        cpu_ns: spread(|slice| slice.cpu_ns),
        wall_ns: spread(|slice| slice.wall_ns),
        both_cpu_ns: spread(|slice| slice.cpu_ns + slice.peer_cpu_ns.unwrap_or(0.0)),
        peer_cpu_ns: median(|slice| slice.peer_cpu_ns.map(|sum| slice.per_operation(sum))),
        busiest_share: median(|slice| slice.busiest_share),
        samples: slices.len(),
        errors: slices.iter().map(|slice| slice.error_count).sum(),
    };
    Row {
        name: candidate.name.clone(),
        threads: candidate.threads,
        variant: candidate.variant.map(|variant| variant.name),
        used: candidate.is_used.unwrap_or(candidate.variant.is_some_and(|variant| selected.contains(&variant))),
        baseline: candidate.baseline,
        ratio: None,
        measured: error.is_none().then_some(measured),
        error,
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
    fn every_round_runs_each_candidate_once_in_another_order() {
        let log = RefCell::new(String::new());
        let candidates = ["a", "b", "c"].map(|name| {
            let log = &log;
            Candidate::new(name, move || {
                log.borrow_mut().push_str(name);
                Ok(slice(100.0))
            })
        });
        let rows = compare(candidates.into(), EFFORT, &mut fastrand::Rng::with_seed(1));
        let log = log.into_inner();
        let rounds: Vec<&[u8]> = log.as_bytes().chunks(3).skip(1).collect();
        assert_eq!(rounds.len(), EFFORT.round_count);
        for round in &rounds {
            let mut sorted = round.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, b"abc");
        }
        assert!(rounds.iter().any(|round| round != &rounds[0]), "the order never changed: {log}");
        assert!(rows.iter().all(|row| row.measured.is_some_and(|measured| measured.samples == 20)));
    }

    #[test]
    fn failing_candidate_is_reported_and_the_others_measured() {
        let mut runs = 0;
        let candidates = vec![
            Candidate::new("never", || Err(io::Error::from_raw_os_error(38))),
            Candidate::new("no longer", move || {
                runs += 1;
                if runs < 3 { Ok(slice(1.0)) } else { Err(io::Error::other("used up")) }
            }),
            Candidate::new("good", || Ok(slice(1.0))),
        ];
        let rows = compare(candidates, EFFORT, &mut fastrand::Rng::with_seed(1));
        assert_eq!(rows[0].error.as_deref(), Some("Function not implemented (os error 38)"));
        assert_eq!(rows[1].error.as_deref(), Some("used up"));
        assert_eq!(rows[2].measured.expect("measured").samples, 20);
    }

    #[test]
    fn selected_variants_are_restored() {
        let before: Vec<_> = FEATURES.iter().map(|feature| feature.selected_name()).collect();
        let seen = RefCell::new(Vec::new());
        let stat = FEATURES.iter().find(|feature| feature.name() == "stat").expect("a feature");
        let candidates = ["fstat", "statx"].map(|name| {
            let seen = &seen;
            Candidate::new(name, move || {
                seen.borrow_mut().push((name, stat.selected_name()));
                Ok(slice(1.0))
            })
            .variant("stat", name)
        });
        compare(candidates.into(), EFFORT, &mut fastrand::Rng::with_seed(1));
        assert!(seen.borrow().iter().all(|(forced, selected)| forced == selected), "{seen:?}");
        assert_eq!(FEATURES.iter().map(|feature| feature.selected_name()).collect::<Vec<_>>(), before);
    }

    #[test]
    fn time_limit_ends_the_rounds_after_the_minimum() {
        let effort = Effort { round_count: 1_000, time_max: Duration::ZERO };
        let candidates = vec![Candidate::new("a", || Ok(slice(100.0)))];
        let rows = compare(candidates, effort, &mut fastrand::Rng::with_seed(1));
        assert_eq!(rows[0].measured.expect("measured").cpu_ns.median, 10.0, "the cost of one operation");
        assert_eq!(rows[0].measured.expect("measured").samples, ROUND_COUNT_MIN);
    }
}
