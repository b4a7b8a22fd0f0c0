//! The command `probe`: measures what each variant of a kernel feature costs on this machine, and shows which one the
//! server uses. docs/probe.md explains the report, docs/decisions/0009-probe.md the method.
#![forbid(unsafe_code)]

mod text;
mod measurements;
mod clients;
mod compare;
mod report;
mod sides;
mod scratch;
mod stopwatch;
mod spread;
mod machine;

use measurements::{Bench, Measurement};
use report::{Group, Report};
use sanderling_os::features::FEATURES;
use std::io::{self, IsTerminal, Write};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The measurements to make, and the form of the report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// JSON instead of a table.
    pub json: bool,
    /// Fewer rounds: about five seconds.
    pub is_quick: bool,
    /// Names of [`measurement_names`]; all if empty.
    pub only: Vec<String>,
}

/// The values of `--only`.
pub fn measurement_names() -> impl Iterator<Item = &'static str> {
    measurements::ALL.iter().map(|measurement| measurement.name)
}

/// Measures, and writes the report.
///
/// # Errors
/// Returns an error if the report cannot be written. The report also lists failed measurements.
pub fn run(options: &Options) -> io::Result<()> {
    let report = measure(options);
    let output = if options.json {
        serde_json::to_string(&report).expect("a report has no map") + "\n"
    } else {
        text::table(&report)
    };
    match io::stdout().lock().write_all(output.as_bytes()) {
        // A closed standard output is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

fn measure(options: &Options) -> Report {
    let start = Instant::now();
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let mut random = fastrand::Rng::with_seed(seed);
    let is_wanted = |measurement: &&Measurement| {
        options.only.is_empty() || options.only.iter().any(|name| name == measurement.name)
    };
    let wanted: Vec<&Measurement> = measurements::ALL.iter().filter(is_wanted).collect();
    let mut groups = Vec::new();
    for (index, measurement) in wanted.iter().enumerate() {
        if io::stderr().is_terminal() {
            eprintln!("measuring {} ({} of {})", measurement.name, index + 1, wanted.len());
        }
        let bench = Bench { is_quick: options.is_quick, random: &mut random, groups: Vec::new() };
        groups.extend(run_measurement(measurement, bench));
    }
    let took_s = start.elapsed().as_secs_f64();
    Report::new(options.is_quick, seed, groups, took_s)
}

fn run_measurement(measurement: &Measurement, mut bench: Bench<'_>) -> Vec<Group> {
    if let Err(error) = (measurement.run)(&mut bench) {
        bench.groups.push(Group::failed(measurement.name, &error));
    }
    let feature = FEATURES.iter().find(|feature| feature.name() == measurement.name);
    // The first group compares the variants; others show what surrounds them.
    if let (Some(first), Some(feature)) = (bench.groups.first_mut(), feature) {
        first.compare_variants(feature.selected_name());
    }
    bench.groups
}
