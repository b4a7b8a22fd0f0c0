//! Turns reloads, upgrades and crashes under a steady load into the proof that nothing is lost, or the count of what is.
//!
//! The load is `bench/losscount`: it sends when requests are due, however the server fares, never sends again, and knows
//! the end of each request. All runs over the loopback interface, on ports that are free.

mod scenarios;
mod reloads;
mod broken;
mod upgrades;
mod storm;
mod crashes;
mod fairness;
mod nginx;
mod load;
mod service;
mod domain;
mod client;
mod page;
mod network;
mod processes;
mod programs;
mod pace;
mod outcome;
mod counts;
mod json;
mod options;

pub(crate) use options::Options;

use std::env;
use std::fs;
use std::path::Path;

use options::Extent;
use outcome::Outcome;
use programs::Programs;
use scenarios::{SCENARIOS, Scenario};

/// The page that a full run of all scenarios writes.
const PAGE: &str = "docs/performance/losses.md";
/// The same of a run that is no record, within the folder for what is built.
const PAGE_OF_PART: &str = "endure/losses.md";

/// Runs the scenarios and writes the page. Whether each of them held what it promises.
pub(crate) fn run(options: &Options) -> bool {
    match endure(options) {
        Ok(outcomes) => outcomes.iter().all(Outcome::holds),
        Err(problem) => {
            eprintln!("endure: {problem}");
            false
        }
    }
}

fn endure(options: &Options) -> Result<Vec<Outcome>, String> {
    let chosen = scenarios::select(&options.only)?;
    let root = env::current_dir().and_then(|root| root.canonicalize()).map_err(|error| error.to_string())?;
    let programs = Programs::build(&root, options.program.as_deref())?;
    let circumstances = page::circumstances(&options.command());
    println!("{}\n", circumstances.join("\n"));
    let mut outcomes = Vec::new();
    for scenario in &chosen {
        println!("== {}: {} ==", scenario.name, scenario.promise);
        let outcome = outcome_of(scenario, &programs, options.extent);
        println!("{}\n", page::table_for_terminal(&outcome));
        outcomes.push(outcome);
    }
    // What nobody can repeat from the tree alone is no record.
    let is_whole = options.extent == Extent::Full && chosen.len() == SCENARIOS.len();
    let is_record = is_whole && options.program.is_none();
    let path = if is_record { root.join(PAGE) } else { programs.target.join(PAGE_OF_PART) };
    write(&path, &page::markdown(&circumstances, &outcomes))?;
    println!("{}written to {}", page::summary(&outcomes), path.display());
    Ok(outcomes)
}

/// What cannot be run has not held.
fn outcome_of(scenario: &Scenario, programs: &Programs, extent: Extent) -> Outcome {
    let mut outcome = Outcome::new(scenario.name, scenario.promise);
    if let Err(problem) = (scenario.run)(programs, extent, &mut outcome) {
        outcome.fail(&problem);
    }
    outcome
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}
