//! Single faults of system calls that once ended a process, or let two serve.

use std::path::Path;

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
