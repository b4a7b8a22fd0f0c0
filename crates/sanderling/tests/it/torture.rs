//! Single faults of system calls that once ended a process, or let two serve.

use ::soak::torture::zones;
use sanderling_testkit::seed;
use std::env;
use std::path::Path;

/// Faults of agent and keeper in one run of the tests.
const ZONE_FAULTS: usize = 16;

#[track_caller]
fn check(faults: &[&str]) {
    let parsed = faults.iter().map(|fault| fault.parse().expect("a fault")).collect();
    let program = Path::new(env!("CARGO_BIN_EXE_sanderling"));
    let summary = ::soak::torture::run(program, parsed, 0, 0, |line| println!("{line}")).expect("strace runs");
    assert_eq!(summary.failures, []);
    assert!(summary.total().fault_count > 0, "no call failed");
}

#[test]
fn unsent_command_to_drain_is_sent_before_an_upgrade() {
    check(&["upgrade/supervisor/sendmsg:ENOMEM:1"]);
}

#[test]
fn supervisor_that_cannot_take_over_adopts_the_server_process() {
    check(&["upgrade/supervisor/socketpair:ENOMEM:2", "upgrade/supervisor/getsockname:EINVAL:3"]);
}

#[test]
fn lack_of_memory_while_waiting_ends_no_process() {
    check(&["serve/server/ppoll:ENOMEM:1", "reload-process/new-server/ppoll:EAGAIN:1"]);
}

#[test]
fn other_errors_while_waiting_end_no_process() {
    check(&["serve/server/ppoll:ENOBUFS:1", "serve/server/ppoll:EPERM:2", "serve/server/ppoll:EIO:2"]);
}

#[test]
fn listener_that_cannot_be_registered_is_tried_again() {
    let faults = (3..=5).map(|occurrence| format!("kill-server/new-server/epoll_ctl:ENOMEM:{occurrence}"));
    let faults: Vec<String> = faults.collect();
    check(&faults.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn site_that_cannot_be_opened_once_is_served() {
    check(&["kill-server/new-server/readlinkat:EIO:1"]);
}

#[test]
fn process_that_cannot_count_its_threads_reports_it() {
    check(&["reload-process/new-server/getdents64:EIO:2"]);
}

/// Whether this process may trace the agent, which has no rights of the user that starts it.
fn may_trace() -> bool {
    let is_root = sanderling_os::process::effective_uid() == 0;
    if !is_root {
        println!("not run: only root may trace the agent and the keeper");
    }
    is_root
}

#[track_caller]
fn check_zones(faults: &[&str], fault_count: usize) {
    if !may_trace() {
        return;
    }
    let parsed = faults.iter().map(|fault| fault.parse().expect("a fault")).collect();
    let program = Path::new(env!("CARGO_BIN_EXE_sanderling"));
    let summary = zones::run(program, parsed, fault_count, seed(), |line| println!("{line}")).unwrap();
    println!(
        "{} faults: {} zones refuse updates, {} tasks are dead, {} other failures",
        summary.fault_count, summary.refusing_count, summary.dead_task_count, summary.other_count
    );
    assert_eq!(summary.failures, []);
    assert!(summary.fault_count > 0, "no call failed");
}

#[test]
fn zone_takes_updates_after_one_that_was_not_stored() {
    check_zones(
        &[
            "zones-update/agent/fsync:EIO:1",
            "zones-update/agent/fsync:ENOSPC:3",
            "zones-update/agent/write:ENOSPC:2",
            "zones-update/agent/openat:EIO:2",
            "zones-update/keeper/sendto:EAGAIN:1",
        ],
        0,
    );
}

#[test]
fn all_zones_take_changes_after_a_fault_of_the_agent_or_the_keeper() {
    let fault_count = env::var("SANDERLING_ZONE_FAULTS").ok().and_then(|text| text.parse().ok());
    check_zones(&[], fault_count.unwrap_or(ZONE_FAULTS));
}
