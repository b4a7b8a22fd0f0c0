//! Single faults of system calls that once ended a process, or let two serve.

use ::soak::torture::zones;
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, children_with, seed, wait_until};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

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
    check_zones(&[], sanderling_testkit::number_or("SANDERLING_ZONE_FAULTS", ZONE_FAULTS));
}

const SIGNED_ZONE: &str = "$TTL 300\n@ SOA ns1 host 7 3600 600 86400 60\n@ NS ns1\nns1 A 192.0.2.1\n";

/// A thread whose work is done wakes the one that waits for it by an eventfd; that it cannot is a panic.
#[test]
fn panic_of_any_thread_of_the_agent_ends_it() {
    if !may_trace() {
        return;
    }
    let config = "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\nresolvers = []\n\
                  [domain.\"signed.test\"]\nzone = \"signed.zone\"\ndnssec = true\n";
    let directory =
        TestDirectory::with(&[("sanderling.toml", config.as_bytes()), ("signed.zone", SIGNED_ZONE.as_bytes())]);
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    server.wait_for_error("zone signed.test: serial ");
    let [agent] = children_with(server.process_id(), "internal-agent")[..] else { panic!("no agent") };
    let of_thread = |thread: &str, file: &str| {
        fs::read_to_string(format!("/proc/{agent}/task/{thread}/{file}")).unwrap_or_default()
    };
    let threads = fs::read_dir(format!("/proc/{agent}/task")).unwrap();
    let threads: Vec<String> = threads
        .map(|thread| thread.unwrap().file_name().into_string().unwrap())
        .filter(|thread| ["disk\n", "zones\n", "keeper\n"].contains(&of_thread(thread, "comm").as_str()))
        .collect();
    let mut strace = Command::new("strace");
    strace.args(["-P", "anon_inode:[eventfd]", "-e", "inject=write:error=EIO", "-o", &directory.argument("strace")]);
    strace.args(threads.iter().flat_map(|thread| ["-p", thread])).stderr(Stdio::null());
    let mut strace = strace.spawn().expect("strace runs");
    wait_until("the threads are traced", || {
        threads.iter().all(|thread| !of_thread(thread, "status").contains("TracerPid:\t0\n"))
    });
    directory.replace("signed.zone", SIGNED_ZONE.replace("192.0.2.1", "192.0.2.2").as_bytes());
    let _ = directory.control_with("reload", &["signed.test"]);
    server.wait_for_error(&format!("agent {agent} exited with status 101; restarting"));
    assert!(server.errors().contains("failed to wake I/O driver"), "{}", server.errors());
    strace.wait().expect("it ends with what it traces");
}
