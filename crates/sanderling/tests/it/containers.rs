//! The program as process 1 of a container.

use sanderling_testkit::{
    ListenerCounts, TestDirectory, TestServer, children_of, run_program, send_signal, wait_until,
};
use std::fs;
use std::process::Command;

/// Namespaces of a container, in which `sh` starts a process, and then becomes the program.
const CONTAINER: &[&str] =
    &["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", "sleep 0 & exec \"$@\"", "sh"];

#[test]
fn process_one_waits_for_processes_that_others_have_left() {
    if !run_program("unshare", "util-linux", &["--pid", "--fork", "--mount-proc", "true"]).status.success() {
        println!("not run: this process may not make namespaces");
        return;
    }
    let directory = TestDirectory::with(&[("public/index.html", b"hi\n")]);
    let config = b"[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n";
    directory.write("sanderling.toml", config);
    let serve = directory.serve_command();
    let mut command = Command::new("unshare");
    command.args(CONTAINER).arg(serve.get_program()).args(serve.get_args());
    let server = TestServer::start_command(command, ListenerCounts { http: 1, dns: 0 });
    let supervisor = children_of(server.process_id()).expect("it runs")[0];
    let status = fs::read_to_string(format!("/proc/{supervisor}/status")).expect("it runs");
    assert!(status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1")), "{status}");
    let is_zombie = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
    };
    wait_until("no zombie is left", || {
        let children = children_of(supervisor).expect("it runs");
        assert!(!children.is_empty(), "the server process runs");
        !children.iter().any(is_zombie)
    });
    assert!(send_signal("TERM", &supervisor.to_string()));
    wait_until("it has ended", || children_of(supervisor).is_err());
}
