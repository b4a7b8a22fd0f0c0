//! `cargo xtask torture`: single faults of system calls by the crate `soak`, and their results as a table.

use crate::{page, system};
use clap::Args;
use soak::torture::{Counts, Fault, Summary, run as run_faults};
use std::path::PathBuf;
use std::time::Instant;

/// Fail system calls one by one while the server serves, reloads, upgrades, stops and crashes
///
/// After each fault the server must answer, report its status, reload and stop.
#[derive(Args)]
pub(crate) struct Options {
    /// The number of faults, chosen at random of those that are possible
    #[arg(long, default_value_t = 1_200)]
    faults: usize,
    /// Repeat this choice
    #[arg(long)]
    seed: Option<u64>,
    /// Only this fault, as it is printed; may be repeated
    #[arg(long, value_name = "SCENARIO/PROCESS/CALL:ERROR:OCCURRENCE")]
    only: Vec<Fault>,
    /// A server program to use instead of the one built from the sources
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let program = system::server_program(options.program.as_deref())?;
    println!("{}\n", system::description().join("\n"));
    let start = Instant::now();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let print = |line: &str| println!("{:4} s  {line}", start.elapsed().as_secs());
    let summary = run_faults(&program, options.only.clone(), options.faults, seed, print)?;
    println!();
    for (fault, what) in &summary.failures {
        println!("--only {fault}: {what}");
    }
    let duration_s = start.elapsed().as_secs();
    println!("{}\n{} failures; seed {seed}, {duration_s} s", table(&summary), summary.failures.len());
    Ok(summary.failures.is_empty() && summary.total().fault_count > 0)
}

fn table(summary: &Summary) -> String {
    let row = |name: &str, counts: &Counts| {
        let numbers = [counts.fault_count, counts.reported_count].into_iter().chain(counts.defect_counts);
        [name.to_owned()].into_iter().chain(numbers.map(|number| number.to_string())).collect::<Vec<_>>()
    };
    let mut rows: Vec<_> = summary.scenarios.iter().map(|(name, counts)| row(name, counts)).collect();
    rows.push(row("all", &summary.total()));
    let head: Vec<&str> = ["scenario", "faults", "reported"].into_iter().chain(Summary::DEFECTS).collect();
    page::table(&head, &rows)
}
