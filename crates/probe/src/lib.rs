//! Turns the machine at hand into figures: what each way of each job costs here, which one is used, and why.
//!
//! The founding claims of the program stand beside what is left of them. How to read it is told in docs/probe.md, why
//! it measures so in docs/decisions/0009-probe.md.
#![forbid(unsafe_code)]

mod table;
mod json;
mod json_values;
mod plot;
#[cfg(test)]
mod sample;
mod claims;
mod jobs;
mod choices;
mod conversation;
mod rounds;
mod sides;
mod scratch;
mod progress;
mod report;
mod features;
mod stopwatch;
mod numbers;
mod machine;

use jobs::{Bench, Job};
use machine::Machine;
use progress::Progress;
use report::{Basis, Group, Report};
use rounds::Shuffle;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What to measure, and how to show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// As JSON instead of a table.
    pub json: bool,
    /// Where to put the picture.
    pub plot: Option<PathBuf>,
    /// Fewer rounds, in about five seconds.
    pub is_quick: bool,
    /// Names of [`job_names`]; all of them if empty.
    pub only: Vec<String>,
}

/// What `--only` may name.
pub fn job_names() -> impl Iterator<Item = &'static str> {
    jobs::ALL.iter().map(|job| job.name)
}

/// Why there is no report.
#[derive(Debug)]
pub enum ProbeError {
    /// The picture cannot be written there.
    Plot(PathBuf, io::Error),
    /// Standard output takes no more.
    Output(io::Error),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProbeError::Plot(path, error) => {
                write!(
                    out,
                    "the picture cannot be written to {}: {error}; name a file in another folder",
                    path.display()
                )
            }
            ProbeError::Output(error) => write!(out, "the report cannot be written: {error}"),
        }
    }
}

impl std::error::Error for ProbeError {}

/// Measures and shows.
///
/// # Errors
///
/// Only of showing. What cannot be measured is part of the report.
pub fn run(options: &Options) -> Result<(), ProbeError> {
    let plot_error = |path: &Path, error| ProbeError::Plot(path.to_owned(), error);
    if let Some(path) = &options.plot {
        // Known before the measuring, not after it.
        OpenOptions::new().create(true).append(true).open(path).map_err(|error| plot_error(path, error))?;
    }
    let report = measure(options);
    if let Some(path) = &options.plot {
        std::fs::write(path, plot::svg(&report)).map_err(|error| plot_error(path, error))?;
    }
    let mut shown = String::new();
    if options.json {
        shown.push_str(&json::report(&report));
        shown.push('\n');
    } else {
        table::write(&mut shown, &report).expect("a text takes everything");
    }
    match io::stdout().lock().write_all(shown.as_bytes()) {
        // A reader who has read enough is no fault.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ProbeError::Output(error)),
        _ => Ok(()),
    }
}

fn measure(options: &Options) -> Report {
    let begin = Instant::now();
    let machine = Machine::read();
    let (features, features_cpu_us) = features::test_all();
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let mut shuffle = Shuffle::new(seed);
    let mut progress = Progress::new();
    let wanted: Vec<&Job> = jobs::ALL.iter().filter(|job| is_wanted(&options.only, job)).collect();
    let mut groups = Vec::new();
    for (index, job) in wanted.iter().enumerate() {
        let mut tick = |share: f64| progress.show((index as f64 + share.min(1.0)) / wanted.len() as f64, job.name);
        let bench = Bench { is_quick: options.is_quick, shuffle: &mut shuffle, tick: &mut tick, groups: Vec::new() };
        groups.extend(measure_job(job, bench));
    }
    progress.clear();
    let answers = claims::answer_all(&groups, machine.processor_count);
    let took_s = begin.elapsed().as_secs_f64();
    Report { machine, features, features_cpu_us, is_quick: options.is_quick, seed, groups, answers, took_s }
}

fn is_wanted(only: &[String], job: &Job) -> bool {
    only.is_empty() || only.iter().any(|name| name == job.name)
}

fn measure_job(job: &Job, mut bench: Bench<'_>) -> Vec<Group> {
    let choice = choices::of_job(job.name);
    if let Err(error) = (job.measure)(&mut bench) {
        bench.groups.push(Group {
            job: job.name,
            title: "Cannot be measured here".to_owned(),
            unit: "call",
            basis: Basis::Cpu,
            rows: Vec::new(),
            choice: None,
            notes: vec![error.to_string()],
        });
    }
    // The first group of a job is that of its ways; others show what stands around it.
    if let Some(first) = bench.groups.first_mut() {
        first.choice = choice.map(|choice| choice.weigh(first));
    }
    bench.groups
}
