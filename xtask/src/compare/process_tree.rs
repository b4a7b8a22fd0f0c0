//! A process with all of its descendants, as the processor time and the memory that they use together (proc(5)).

use std::fs;
use std::path::PathBuf;

/// Processes of one tree; a server that starts more is no server for this comparison.
const PROCESS_COUNT_MAX: usize = 1024;

/// The process `root` and its descendants, in no order but the root first.
pub(super) fn pids(root: u32) -> Vec<u32> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(stat) = Stat::read(pid) {
            parents.push((pid, stat.parent));
        }
    }
    descendants(root, &parents)
}

fn descendants(root: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() && found.len() < PROCESS_COUNT_MAX {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

/// Processor time that processes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessorTime {
    /// Of all threads that live, in nanoseconds of the scheduler's own clock: exact.
    pub(super) total_ns: u64,
    /// In ticks of 10 ms: good for shares only.
    pub(super) user_ticks: u64,
    pub(super) system_ticks: u64,
}

impl ProcessorTime {
    /// What the processes `pids` have used together.
    pub(super) fn of(pids: &[u32]) -> ProcessorTime {
        let mut sum = ProcessorTime::default();
        for &pid in pids {
            sum.total_ns += threads_ns(pid);
            if let Some(stat) = Stat::read(pid) {
                sum.user_ticks += stat.user_ticks;
                sum.system_ticks += stat.system_ticks;
            }
        }
        sum
    }

    /// What was used since `before`.
    pub(super) fn since(self, before: ProcessorTime) -> ProcessorTime {
        ProcessorTime {
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(before.system_ticks),
        }
    }
}

/// Memory of the processes `pids` in KiB: what is theirs alone, and their share of what several map (PSS).
pub(super) fn memory_kib(pids: &[u32]) -> u64 {
    let pss = |pid: &u32| pss_kib(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?);
    pids.iter().filter_map(pss).sum()
}

fn pss_kib(rollup: &str) -> Option<u64> {
    rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.split_whitespace().next()?.parse().ok()
}

/// The processor time of our own children that have ended, in nanoseconds; good to two ticks of 10 ms.
pub(super) fn ended_children_ns() -> u64 {
    const TICK_NS: u64 = 10_000_000;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Stat::parse(&stat).map_or(0, |stat| stat.children_ticks * TICK_NS)
}

/// The processor time of a process's threads in nanoseconds: `sum_exec_runtime` of each.
fn threads_ns(pid: u32) -> u64 {
    let threads = PathBuf::from(format!("/proc/{pid}/task"));
    let mut sum_ns = 0;
    for thread in fs::read_dir(threads).into_iter().flatten().flatten() {
        let schedstat = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        sum_ns += schedstat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    sum_ns
}

/// What is read of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    user_ticks: u64,
    system_ticks: u64,
    /// User and system time of children that have been waited for.
    children_ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Stat> {
        Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The second field is the program's name in brackets, in which anything may stand.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // `rest` starts with the third field.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Stat {
            parent: u32::try_from(number(4)?).ok()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            children_ticks: number(16)? + number(17)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_brackets_and_blanks() {
        let text = "812 (nginx: (worker) ) S 811 811 5 0 -1 4194624 250 7 0 0 120 340 5 6 20 0 1 0 99 1 2";
        let stat = Stat { parent: 811, user_ticks: 120, system_ticks: 340, children_ticks: 11 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("812 (nginx) S"), None);
    }

    #[test]
    fn descendants_are_found_in_any_order_of_their_numbers() {
        let parents = [(5, 9), (9, 3), (3, 1), (4, 1), (7, 5)];
        assert_eq!(descendants(3, &parents), [3, 9, 5, 7]);
        assert_eq!(descendants(8, &parents), [8]);
    }

    #[test]
    fn memory_is_the_proportional_share() {
        let rollup = "55d0-7ffc ---p 00000000 00:00 0 [rollup]\nRss:   9000 kB\nPss:   4321 kB\nPss_Dirty: 10 kB\n";
        assert_eq!(pss_kib(rollup), Some(4321));
    }

    #[test]
    fn our_own_time_passes() {
        let own = [std::process::id()];
        let before = ProcessorTime::of(&own);
        let mut sum = 0_u64;
        while ProcessorTime::of(&own).since(before).total_ns < 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(memory_kib(&own) > 0);
        assert!(pids(own[0]).contains(&own[0]));
    }
}
