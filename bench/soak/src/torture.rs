//! Single faults of system calls, in each scenario and process, and the conditions that must hold after each.
//!
//! A fault is injected by strace. Each trial has its own service; several trials run at the same time.

pub mod zones;
mod trial;
mod fault;
mod strace;

pub use fault::Fault;

use anyhow::{Context, bail};
use fault::{Role, count_calls, faults_of, has_fault, mix};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use trial::{Defect, SCENARIOS, Scenario, Trial};

/// The results of a trial without a fault, for a scenario and process.
struct Traced {
    scenario: &'static Scenario,
    role: Role,
    calls: BTreeMap<String, u32>,
    fd_counts: [usize; 2],
}

/// The counts of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Faults that have occurred.
    pub fault_count: usize,
    /// The number of these of which the operator was informed.
    pub reported_count: usize,
    /// By kind, in the order of [`Summary::DEFECTS`].
    pub defect_counts: [usize; 7],
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Summary {
    /// By the name of the scenario.
    pub scenarios: Vec<(&'static str, Counts)>,
    /// Each fault after which a condition did not hold, with that condition.
    pub failures: Vec<(Fault, String)>,
}

impl Summary {
    /// The kinds of defects.
    pub const DEFECTS: [&str; 7] = [
        "supervisor deaths",
        "server process deaths",
        "hangs",
        "leaks",
        "double services",
        "failed requests and commands",
        "deaths for memory or in the loader",
    ];

    fn add(&mut self, fault: &Fault, trial: &Trial) {
        let counts = self.scenarios.iter_mut().find(|(name, _)| *name == fault.scenario);
        let (_, counts) = counts.expect("it is one of the scenarios");
        counts.fault_count += 1;
        counts.reported_count += usize::from(trial.is_reported && trial.defects.is_empty());
        for (defect, what) in &trial.defects {
            counts.defect_counts[*defect as usize] += 1;
            if *defect != Defect::ExcusedDeath {
                self.failures.push((fault.clone(), format!("{defect:?}: {what}")));
            }
        }
    }

    /// The counts of all scenarios together.
    pub fn total(&self) -> Counts {
        self.scenarios.iter().fold(Counts::default(), |mut sum, (_, counts)| {
            sum.fault_count += counts.fault_count;
            sum.reported_count += counts.reported_count;
            sum.defect_counts.iter_mut().zip(counts.defect_counts).for_each(|(sum, count)| *sum += count);
            sum
        })
    }
}

/// Traces all scenarios, and runs them with `fault_count` faults of those that are possible, or with `faults` only.
///
/// # Errors
/// Returns an error if strace cannot be run, or a scenario fails without a fault.
pub fn run(
    program: &Path,
    faults: Vec<Fault>,
    fault_count: usize,
    seed: u64,
    progress: impl Fn(&str) + Sync,
) -> anyhow::Result<Summary> {
    let is_chosen = |name: &str| faults.is_empty() || faults.iter().any(|fault| fault.scenario == name);
    let pairs = SCENARIOS.iter().flat_map(|scenario| scenario.roles.iter().map(move |role| (scenario, *role)));
    let pairs: VecDeque<_> = pairs.filter(|(scenario, _)| is_chosen(scenario.name)).collect();
    let traced = in_parallel(pairs, |(scenario, role)| trace(program, scenario, role))?;
    let traced = traced.into_iter().collect::<anyhow::Result<Vec<Traced>>>()?;
    let groups: Vec<Vec<Fault>> =
        traced.iter().flat_map(|traced| faults_of(traced.scenario.name, traced.role, &traced.calls)).collect();
    let call_count = groups.len();
    let mut queue = mix(groups, &mut fastrand::Rng::with_seed(seed));
    progress(&format!("{} possible faults of {call_count} calls; seed {seed}", queue.len()));
    let wanted_count = if faults.is_empty() { fault_count } else { faults.len() };
    if !faults.is_empty() {
        queue = faults;
    }
    let names = SCENARIOS.iter().map(|scenario| (scenario.name, Counts::default())).collect();
    let summary = Mutex::new(Summary { scenarios: names, failures: Vec::new() });
    let results = in_parallel(queue.into(), |fault| {
        if summary.lock().expect("no panic").total().fault_count >= wanted_count {
            return Ok(());
        }
        let is_of_fault = |it: &&Traced| it.scenario.name == fault.scenario && it.role == fault.role;
        let Some(traced) = traced.iter().find(is_of_fault) else { bail!("{fault}: no such scenario and process") };
        let run = || {
            trial::run(program, traced.scenario, traced.role, Some(&fault), Some(traced.fd_counts))
                .with_context(|| fault.to_string())
        };
        let mut trial = run()?;
        if !has_fault(&trial.trace) {
            return Ok(());
        }
        let has_failed = |trial: &Trial| trial.defects.iter().any(|(defect, _)| *defect != Defect::ExcusedDeath);
        if has_failed(&trial) {
            for (defect, what) in &trial.defects {
                progress(&format!("{fault}: {defect:?}: {what}"));
            }
            // strace itself ends a process now and then when it detaches in the middle of a call.
            let again = run()?;
            if has_fault(&again.trace) && !has_failed(&again) {
                progress(&format!("{fault}: did not fail again"));
                trial = again;
            }
        }
        let mut summary = summary.lock().expect("no panic");
        summary.add(&fault, &trial);
        let done_count = summary.total().fault_count;
        if done_count.is_multiple_of(100) {
            progress(&format!("{done_count} of {wanted_count} faults, {} failures", summary.failures.len()));
        }
        Ok(())
    })?;
    results.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(summary.into_inner().expect("no panic"))
}

/// Runs a scenario without a fault.
fn trace(program: &Path, scenario: &'static Scenario, role: Role) -> anyhow::Result<Traced> {
    let trial = trial::run(program, scenario, role, None, None)?;
    if let Some((defect, what)) = trial.defects.first() {
        bail!("{} without a fault: {defect:?}: {what}", scenario.name);
    }
    Ok(Traced { scenario, role, calls: count_calls(&trial.trace), fd_counts: trial.fd_counts })
}

/// Calls `run` with each item, on several threads since trials mostly wait; the results in any order.
fn in_parallel<T: Send, R: Send>(items: VecDeque<T>, run: impl Fn(T) -> R + Sync) -> anyhow::Result<Vec<R>> {
    const TRIALS_PER_CPU: usize = 4;
    let thread_count = TRIALS_PER_CPU * thread::available_parallelism()?.get();
    let (items, results) = (Mutex::new(items), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread_count {
            scope.spawn(|| {
                loop {
                    let item = items.lock().expect("no panic").pop_front();
                    let Some(item) = item else { return };
                    let result = run(item);
                    results.lock().expect("no panic").push(result);
                }
            });
        }
    });
    Ok(results.into_inner().expect("no panic"))
}
