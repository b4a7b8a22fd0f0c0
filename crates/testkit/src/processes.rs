//! Processes by their IDs.

use std::fs;
use std::io;
use std::process::Command;

/// The children of a process, the oldest first, as the kernel lists them.
///
/// # Errors
/// There is no such process.
pub fn children_of(parent: u32) -> io::Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    Ok(children.split_whitespace().map(|pid| pid.parse().expect("a number")).collect())
}

/// The server processes of a supervisor, the oldest first; none if it has exited.
pub fn server_pids(supervisor: u32) -> Vec<u32> {
    let is_server = |pid: &u32| {
        let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command_line.split(|byte| *byte == 0).skip(1).any(|word| word.ends_with(b"server-process"))
    };
    children_of(supervisor).unwrap_or_default().into_iter().filter(is_server).collect()
}

/// Sends a signal to a process, or to a process group if its ID has a minus before it. Returns whether it existed.
pub fn send_signal(name: &str, id: &str) -> bool {
    // The `kill` of the shell: this crate has no unsafe code, and the program may not be installed.
    let output = Command::new("sh").args(["-c", "kill -s \"$1\" -- \"$2\"", "sh", name, id]).output();
    output.is_ok_and(|output| output.status.success())
}
