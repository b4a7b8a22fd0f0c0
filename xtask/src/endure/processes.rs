//! Processes by their numbers, as what the kernel tells of them (proc(5)), and the signals that are sent to them.

use std::fs;
use std::path::Path;

/// The children of a process, the oldest first.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    found.sort_unstable();
    found
}

/// Whether the process runs: it is there, and is not one that has ended and waits to be collected.
pub(super) fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in brackets, in which anything may stand; behind them stands the state.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The words of its command line; none when it has ended.
pub(super) fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Descriptors that it has open.
pub(super) fn descriptor_count(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// The processes that work in this folder.
pub(super) fn working_in(folder: &Path) -> Vec<u32> {
    let Ok(folder) = folder.canonicalize() else { return Vec::new() };
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::signal;
    use std::process::Command;

    #[test]
    fn a_child_is_found_and_ended_by_its_number() {
        let folder = std::env::temp_dir().join(format!("xtask-processes-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for temporary files can be written");
        let mut child = Command::new("sleep").arg("600").current_dir(&folder).spawn().expect("sleep is everywhere");
        let pid = child.id();
        // Between its start and that of its program it looks like ourselves.
        while command_line(pid).first().is_none_or(|name| name != "sleep") {
            std::thread::yield_now();
        }
        assert!(children(std::process::id()).contains(&pid) && runs(pid) && descriptor_count(pid) > 0);
        assert_eq!((command_line(pid), working_in(&folder)), (vec!["sleep".into(), "600".into()], vec![pid]));
        assert!(signal(pid, "KILL"));
        child.wait().expect("a child that nobody else waits for");
        assert!(!runs(pid) && command_line(pid).is_empty());
        fs::remove_dir(&folder).expect("it is empty");
    }
}
