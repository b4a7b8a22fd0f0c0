//! The measurements: for each operation of the server the candidates that this kernel may have.

mod waiting;
mod listeners;
mod udp_io;
mod defer_accept;
mod sendfile;
mod page_cache;
mod lookup;
mod serving;
mod open;
mod stat;
mod cloexec;
mod floor;

use crate::compare::{Candidate, Effort, compare};
use crate::report::{Basis, Group};
use std::io;
use std::time::Duration;

pub(crate) struct Measurement {
    /// The value for `--only`; for a kernel feature, the feature's name.
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Bench<'_>) -> io::Result<()>,
}

/// All measurements, from a single call to whole event loops.
pub(crate) const ALL: &[Measurement] = &[
    Measurement { name: floor::NAME, run: floor::measure },
    Measurement { name: cloexec::NAME, run: cloexec::measure },
    Measurement { name: cloexec::RANGE_NAME, run: cloexec::measure_range },
    Measurement { name: stat::NAME, run: stat::measure },
    Measurement { name: open::NAME, run: open::measure },
    Measurement { name: serving::NAME, run: serving::measure },
    Measurement { name: lookup::NAME, run: lookup::measure },
    Measurement { name: sendfile::NAME, run: sendfile::measure },
    Measurement { name: page_cache::NAME, run: page_cache::measure },
    Measurement { name: defer_accept::NAME, run: defer_accept::measure },
    Measurement { name: udp_io::NAME, run: udp_io::measure },
    Measurement { name: listeners::NAME, run: listeners::measure },
    Measurement { name: waiting::NAME, run: waiting::measure },
];

/// Calls per slice: 10 to 100 microseconds, which are rarely interrupted.
const CALLS_PER_SLICE: u32 = 100;
/// Time for which a server waits before it checks whether the slice is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Runs the candidates of a measurement, and collects the results.
pub(crate) struct Bench<'b> {
    pub(crate) is_quick: bool,
    pub(crate) random: &'b mut fastrand::Rng,
    pub(crate) groups: Vec<Group>,
}

struct Heading {
    name: &'static str,
    title: String,
    unit: &'static str,
    basis: Basis,
}

impl Heading {
    /// A group that is compared by CPU time.
    fn new(name: &'static str, title: impl Into<String>, unit: &'static str) -> Heading {
        Heading { name, title: title.into(), unit, basis: Basis::Cpu }
    }
}

impl Bench<'_> {
    /// Compares single calls, with slices of 10 to 100 microseconds.
    fn calls(&mut self, heading: Heading, candidates: Vec<Candidate<'_>>) -> &mut Group {
        let (round_count, time_max_ms) = if self.is_quick { (41, 300) } else { (501, 5_000) };
        self.compare(heading, candidates, Effort { round_count, time_max: Duration::from_millis(time_max_ms) })
    }

    /// Compares event loops, with slices of about 10 milliseconds.
    fn loops(&mut self, heading: Heading, candidates: Vec<Candidate<'_>>) -> &mut Group {
        let (round_count, time_max_ms) = if self.is_quick { (11, 800) } else { (61, 10_000) };
        self.compare(heading, candidates, Effort { round_count, time_max: Duration::from_millis(time_max_ms) })
    }

    fn compare(&mut self, heading: Heading, candidates: Vec<Candidate<'_>>, effort: Effort) -> &mut Group {
        let rows = compare(candidates, effort, self.random);
        let Heading { name, title, unit, basis } = heading;
        self.groups.push(Group::new(name, title, unit, basis, rows));
        self.groups.last_mut().expect("pushed above")
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn every_kernel_feature_is_measured() {
        for feature in sanderling_os::features::FEATURES {
            assert!(ALL.iter().any(|measured| measured.name == feature.name()), "{} is not measured", feature.name());
        }
    }
}
