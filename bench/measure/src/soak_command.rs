//! `cargo xtask soak`: the scenarios of the crate `soak`, and their results as a table.

use crate::{page, system};
use anyhow::ensure;
use clap::Args;
use soak::{Extent, Outcome, SCENARIOS, Scenario};
use std::fs;
use std::path::PathBuf;

/// Reload, upgrade and crash the server under load, and count the lost requests
///
/// A complete run replaces its section of docs/performance/README.md.
#[derive(Args)]
pub(crate) struct Options {
    /// A few events per scenario
    #[arg(long)]
    short: bool,
    /// Run only this scenario; may be repeated
    #[arg(long, value_name = "SCENARIO", value_parser = SCENARIOS.iter().map(|it| it.name).collect::<Vec<_>>())]
    only: Vec<String>,
    /// A server program to use instead of the one built from the sources
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<bool> {
    let program = system::server_program(options.program.as_deref())?;
    let extent = if options.short { Extent::Short } else { Extent::Full };
    let mut description = system::description();
    // Without this setting, connections in the accept queue of a closed reuseport socket are lost.
    let migrate_req = fs::read_to_string("/proc/sys/net/ipv4/tcp_migrate_req").unwrap_or_default();
    description.push(format!("net.ipv4.tcp_migrate_req = {}", migrate_req.trim()));
    println!("{}\n", description.join("\n"));
    let mut outcomes = Vec::new();
    let is_chosen = |scenario: &&Scenario| options.only.is_empty() || options.only.iter().any(|it| it == scenario.name);
    for scenario in SCENARIOS.iter().filter(is_chosen) {
        println!("== {}: {}", scenario.name, scenario.promise);
        let outcome = scenario.run(&program, extent);
        println!("{outcome}\n");
        outcomes.push((scenario, outcome));
    }
    ensure!(!outcomes.is_empty(), "no scenario was run");
    let is_record = !options.short && options.only.is_empty() && options.program.is_none();
    page::write("soak", &report(&description, &outcomes), is_record)?;
    Ok(outcomes.iter().all(|(_, outcome)| outcome.is_success()))
}

fn report(description: &[String], outcomes: &[(&Scenario, Outcome)]) -> String {
    let row = |(scenario, outcome): &(&Scenario, Outcome)| {
        vec![scenario.name.to_owned(), scenario.promise.to_owned(), outcome.verdict()]
    };
    let rows: Vec<Vec<String>> = outcomes.iter().map(row).collect();
    let head = ["scenario", "promise", "result"];
    format!("{}\n\n{}", description.join("; "), page::table(&head, &rows))
}
