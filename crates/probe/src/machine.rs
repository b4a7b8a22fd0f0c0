//! The measured machine: kernel, processor and load.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sanderling_os::features::FEATURES;
use serde::Serialize;
use std::fs;
use std::io;

const UNKNOWN: &str = "unknown";

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processor: String,
    /// The number of processors that this process may use.
    pub(crate) processor_count: usize,
    /// Over 1, 5 and 15 minutes.
    pub(crate) load_average: String,
    /// The variants of kernel features that are not supported here: `stat=statx`.
    pub(crate) unsupported: Vec<String>,
}

impl Machine {
    pub(crate) fn read() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model_name = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let model_name = model_name.and_then(|line| line.split_once(':'));
        let unsupported = FEATURES.iter().flat_map(|feature| {
            let missing = feature.variants().iter().filter(|variant| !(variant.is_supported)());
            missing.map(|variant| format!("{}={}", feature.name(), variant.name))
        });
        Machine {
            kernel: first_line("/proc/sys/kernel/osrelease"),
            processor: model_name.map_or(UNKNOWN, |(_, value)| value.trim()).to_owned(),
            processor_count: allowed_processors().map_or(1, |allowed| allowed.len().max(1)),
            load_average: first_line("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            unsupported: unsupported.collect(),
        }
    }
}

/// The numbers of the processors that this process may use.
pub(crate) fn allowed_processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&number| set.is_set(number)).collect())
}

/// Keeps the calling thread on a processor.
pub(crate) fn pin_to_processor(number: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(number);
    Ok(sched_setaffinity(None, &set)?)
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().filter(|line| !line.is_empty()).unwrap_or(UNKNOWN).to_owned()
}
