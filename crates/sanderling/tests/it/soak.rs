//! Reloads, upgrades and crashes under load: the scenarios of `soak`, with few events.

use std::path::Path;

use ::soak::{Extent, SCENARIOS};

#[track_caller]
fn check(name: &str) {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).expect("the scenario exists");
    let outcome = scenario.run(Path::new(env!("CARGO_BIN_EXE_sanderling")), Extent::Test);
    assert!(outcome.is_success(), "{}\n{outcome}", scenario.promise);
}

#[test]
fn reload_with_new_processes_loses_no_request() {
    check("reload-workers");
}

#[test]
fn reload_in_place_loses_no_request_and_closes_no_connection() {
    check("reload-in-place");
}

#[test]
fn upgrade_to_good_and_failing_programs_loses_no_request() {
    check("upgrade");
}

#[test]
fn killed_process_loses_only_what_it_had_accepted() {
    check("kill");
}

#[test]
fn death_of_the_supervisor_loses_no_request() {
    check("supervisor-death");
}
