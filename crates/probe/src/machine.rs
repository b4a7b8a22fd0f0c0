//! What the figures were measured on: processor, kernel, mitigations, and who else is there.

use std::fs;

/// Said of what the kernel does not tell.
const UNKNOWN: &str = "unknown";
/// Octets of a value that are shown: the kernel's own texts are shorter.
const TEXT_CHARS_MAX: usize = 120;

/// One machine at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processor: String,
    /// Those that this process may use.
    pub(crate) processor_count: usize,
    /// The mitigations that make system calls dearer, as the kernel tells them.
    pub(crate) mitigations: Vec<(&'static str, String)>,
    /// Processes that want a processor: means of 1, 5 and 15 minutes.
    pub(crate) load_average: String,
    /// What stands between this process and the hardware.
    pub(crate) surroundings: Vec<&'static str>,
}

impl Machine {
    /// The one at hand.
    pub(crate) fn read() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            kernel: first_line("/proc/sys/kernel/osrelease"),
            processor: cpuinfo_value(&cpuinfo, "model name").unwrap_or(UNKNOWN).to_owned(),
            processor_count: processor_count(),
            mitigations: ["meltdown", "spectre_v2", "retbleed"]
                .into_iter()
                .map(|name| (name, first_line(&format!("/sys/devices/system/cpu/vulnerabilities/{name}"))))
                .filter(|(_, text)| text != UNKNOWN)
                .collect(),
            load_average: first_line("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            surroundings: surroundings(&cpuinfo),
        }
    }
}

/// The processors that this process may use.
pub(crate) fn processor_count() -> usize {
    sanderling_os::candidates::processors::allowed().map_or(1, |allowed| allowed.len().max(1))
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    match text.lines().next() {
        Some(line) if !line.is_empty() => line.chars().take(TEXT_CHARS_MAX).collect(),
        _ => UNKNOWN.to_owned(),
    }
}

fn cpuinfo_value<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

/// Hints, not proofs: a container need not tell that it is one.
fn surroundings(cpuinfo: &str) -> Vec<&'static str> {
    let flags = cpuinfo_value(cpuinfo, "flags").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_filtered = status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0"));
    let marks = ["/.dockerenv", "/run/.containerenv"];
    let is_container =
        marks.iter().any(|mark| fs::exists(mark).unwrap_or(false)) || std::env::var_os("container").is_some();
    [
        (flags.split(' ').any(|flag| flag == "hypervisor"), "virtual machine"),
        (is_container, "container"),
        (is_filtered, "seccomp filter"),
    ]
    .into_iter()
    .filter_map(|(is_so, name)| is_so.then_some(name))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_cpuinfo_are_found_by_their_keys() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.10GHz\nflags\t\t: fpu hypervisor\n";
        assert_eq!(cpuinfo_value(cpuinfo, "model name"), Some("Some CPU @ 2.10GHz"));
        assert_eq!(cpuinfo_value(cpuinfo, "bogus"), None);
        assert!(surroundings(cpuinfo).contains(&"virtual machine"));
    }

    #[test]
    fn a_file_that_is_missing_is_unknown() {
        assert_eq!(first_line("/proc/no/such/file"), UNKNOWN);
    }
}
