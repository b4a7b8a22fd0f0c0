//! The system calls of a server while it is loaded, counted by `strace -c -f`.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::server::{Server, end};

/// How long strace may take to reach every process, and to write its table.
const LIMIT: Duration = Duration::from_secs(10);
/// Between two looks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Calls by name, most first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls(pub(super) Vec<(String, u64)>);

impl Calls {
    /// All calls for each of `answered_count` requests, and the most frequent by name: `2.02: recvfrom 1.00, sendto 1.00`.
    pub(super) fn per_request(&self, answered_count: u64) -> (f64, String) {
        let each = |count: u64| count as f64 / answered_count.max(1) as f64;
        let total = each(self.0.iter().map(|(_, count)| count).sum());
        // What makes less than a hundredth of a call a request is no part of its way.
        let named = self.0.iter().filter(|(_, count)| each(*count) >= 0.01);
        let names: Vec<String> = named.map(|(name, count)| format!("{name} {:.2}", each(*count))).collect();
        (total, names.join(", "))
    }

    /// Reads the table of `strace -c`.
    fn parse(table: &str) -> Calls {
        let mut calls = Vec::new();
        for line in table.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            // `% time, seconds, usecs/call, calls, [errors,] syscall`; the last line sums up.
            let (Some(count), Some(name)) = (words.get(3).and_then(|count| count.parse::<u64>().ok()), words.last())
            else {
                continue;
            };
            if *name != "total" {
                calls.push(((*name).to_owned(), count));
            }
        }
        calls.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Calls(calls)
    }
}

/// Counts the calls that `server` makes while `load` runs; what `load` returns comes back with them.
///
/// # Errors
/// strace is missing, may not trace, or does not end.
pub(super) fn count<T>(server: &Server, load: impl FnOnce() -> Result<T, String>) -> Result<(Calls, T), String> {
    let table = server.folder.join("strace");
    let mut command = Command::new("strace");
    command.args(["-c", "-f", "-qq", "-o"]).arg(&table);
    let pids = server.pids();
    for pid in pids {
        command.args(["-p", &pid.to_string()]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut strace = command.spawn().map_err(|error| format!("strace cannot be started: {error}"))?;
    let attached = wait_until(|| pids.iter().all(|pid| is_traced(*pid)));
    let loaded = if attached { load() } else { Err("strace could not attach; may this user trace?".into()) };
    // It writes its table when it is asked to end.
    end(&mut strace, "INT");
    let loaded = loaded?;
    let text = fs::read_to_string(&table).map_err(|error| format!("strace left no table: {error}"))?;
    Ok((Calls::parse(&text), loaded))
}

/// Whether somebody traces every thread of the process (proc_pid_status(5), `TracerPid`).
fn is_traced(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut statuses = threads.map(|thread| fs::read_to_string(thread.path().join("status")).unwrap_or_default());
    statuses.all(|status| !status.contains("TracerPid:\t0\n"))
}

fn wait_until(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 58.12    0.412000           4    100000           sendto
 41.70    0.295600           2    100640       640 recvfrom
  0.18    0.001300           1      1600           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.708900           3    202240       640 total
";

    #[test]
    fn calls_are_read_with_and_without_errors() {
        let calls = Calls::parse(TABLE);
        let expected = [("recvfrom", 100_640), ("sendto", 100_000), ("epoll_wait", 1600)];
        assert_eq!(calls.0, expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn calls_are_told_for_each_request() {
        let (total, names) = Calls::parse(TABLE).per_request(100_000);
        assert!((total - 2.0224).abs() < 1e-9, "{total}");
        assert_eq!(names, "recvfrom 1.01, sendto 1.00, epoll_wait 0.02");
    }

    #[test]
    fn an_empty_table_counts_nothing() {
        assert_eq!(Calls::parse("").per_request(0), (0.0, String::new()));
    }
}
