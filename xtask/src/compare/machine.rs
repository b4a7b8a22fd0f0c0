//! What a measurement must tell about where it was made: machine, kernel, versions, and what else was going on.

use std::fs;
use std::path::Path;

use crate::program::Program;

/// How new TCP connections pace themselves.
const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Lines for the head of a report.
pub(super) fn description(packages: &[&str]) -> Vec<String> {
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("");
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = read("/proc/sys/kernel/osrelease");
    let memory_gib = memory_kib("MemTotal:") as f64 / (1024.0 * 1024.0);
    let mut lines = vec![
        format!("Machine: {processors} × {}, {memory_gib:.0} GiB", model.trim_start_matches([' ', '\t', ':'])),
        format!("Kernel: Linux {}; TCP congestion control {}", kernel.trim(), read(CONGESTION_CONTROL).trim()),
        format!("Sanderling: {}", revision()),
    ];
    let format = "${Package} ${Version}\\n";
    let versions = Program::new("dpkg-query").args("-W").args_of(&[format!("-f={format}")]).args(&packages.join(" "));
    let versions = versions.output().unwrap_or_default();
    lines.push(format!("Debian's packages: {}", versions.lines().collect::<Vec<_>>().join(", ")));
    lines
}

/// The load averages of now: what else the machine was doing.
pub(super) fn load_average() -> String {
    read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// KiB that can be had without swapping.
pub(super) fn memory_available_kib() -> u64 {
    memory_kib("MemAvailable:")
}

fn memory_kib(key: &str) -> u64 {
    let line = read("/proc/meminfo").lines().find_map(|line| line.strip_prefix(key).map(str::to_owned));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn revision() -> String {
    let revision = Program::new("git").args("rev-parse --short HEAD").output();
    let is_changed =
        Program::new("git").args("status --porcelain crates").output().is_some_and(|text| !text.is_empty());
    match revision {
        Some(revision) => format!("{}{}", revision.trim(), if is_changed { " with changes" } else { "" }),
        None => "of an unknown revision".into(),
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Keeps new TCP connections on `cubic` and gives back what was there before: `bbr` paces large responses by a clock,
/// and then its timers are measured too.
pub(super) struct Cubic {
    before: String,
}

impl Cubic {
    /// Without the right to set it everything stays as it is; the report tells what it was.
    pub(super) fn set() -> Cubic {
        let before = read(CONGESTION_CONTROL);
        // Not being allowed to is an ordinary outcome.
        let _ = fs::write(CONGESTION_CONTROL, "cubic");
        Cubic { before }
    }
}

impl Drop for Cubic {
    fn drop(&mut self) {
        // As in `set`.
        let _ = fs::write(CONGESTION_CONTROL, &self.before);
    }
}
