//! What there is to measure: for each job of a descriptor the candidates that this kernel may have.

pub(crate) mod waiting;
pub(crate) mod listeners;
pub(crate) mod datagrams;
pub(crate) mod deferring;
pub(crate) mod accepting;
pub(crate) mod sending;
pub(crate) mod lookup;
pub(crate) mod serving;
pub(crate) mod opening;
pub(crate) mod facts;
pub(crate) mod close_on_exec;
pub(crate) mod floor;

use super::report::{Basis, Group};
use super::rounds::{Candidate, Effort, Shuffle, compare};
use std::io;
use std::time::Duration;

/// One job: what `--only` calls it, and how it is measured.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&mut Bench<'_>) -> io::Result<()>,
}

/// All jobs, from a single call to whole loops. Those that the server has ways for bear the names of `sanderling_os::features`.
pub(crate) const ALL: &[Job] = &[
    Job { name: floor::JOB, measure: floor::measure },
    Job { name: close_on_exec::JOB, measure: close_on_exec::measure },
    Job { name: close_on_exec::RANGE_JOB, measure: close_on_exec::measure_range },
    Job { name: facts::JOB, measure: facts::measure },
    Job { name: opening::JOB, measure: opening::measure },
    Job { name: serving::JOB, measure: serving::measure },
    Job { name: lookup::JOB, measure: lookup::measure },
    Job { name: sending::JOB, measure: sending::measure },
    Job { name: accepting::JOB, measure: accepting::measure },
    Job { name: deferring::JOB, measure: deferring::measure },
    Job { name: datagrams::JOB, measure: datagrams::measure },
    Job { name: listeners::JOB, measure: listeners::measure },
    Job { name: waiting::JOB, measure: waiting::measure },
];

/// Calls of a slice: some 10 to 100 microseconds, which seldom holds an interruption.
pub(crate) const CALLS_PER_SLICE: u32 = 100;

/// Where a job puts its candidates, and where what they measured is collected.
pub(crate) struct Bench<'b> {
    pub(crate) is_quick: bool,
    pub(crate) shuffle: &'b mut Shuffle,
    /// Is told the share of the job that is done.
    pub(crate) tick: &'b mut dyn FnMut(f64),
    pub(crate) groups: Vec<Group>,
}

impl Bench<'_> {
    /// Compares single calls, whose slices take some 10 to 100 microseconds.
    pub(crate) fn calls(&mut self, heading: Heading, candidates: Vec<Candidate<'_>>) -> &mut Group {
        let (round_count, time_max_ms) = if self.is_quick { (41, 300) } else { (501, 5_000) };
        self.compare(heading, candidates, Effort { round_count, time_max: Duration::from_millis(time_max_ms) })
    }

    /// Compares whole loops, whose slices take some 10 milliseconds.
    pub(crate) fn loops(&mut self, heading: Heading, candidates: Vec<Candidate<'_>>) -> &mut Group {
        let (round_count, time_max_ms) = if self.is_quick { (11, 800) } else { (61, 10_000) };
        self.compare(heading, candidates, Effort { round_count, time_max: Duration::from_millis(time_max_ms) })
    }

    fn compare(&mut self, heading: Heading, candidates: Vec<Candidate<'_>>, effort: Effort) -> &mut Group {
        let rows = compare(candidates, effort, self.shuffle, self.tick);
        let Heading { job, title, unit, basis } = heading;
        self.groups.push(Group { job, title, unit, basis, rows, choice: None, notes: Vec::new() });
        self.groups.last_mut().expect("one was pushed just now")
    }
}

/// What stands above a group.
pub(crate) struct Heading {
    pub(crate) job: &'static str,
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) basis: Basis,
}

impl Heading {
    /// A group that is compared by processor time.
    pub(crate) fn new(job: &'static str, title: impl Into<String>, unit: &'static str) -> Heading {
        Heading { job, title: title.into(), unit, basis: Basis::Cpu }
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn every_job_of_the_server_is_measured() {
        for job in sanderling_os::features::FEATURES {
            assert!(ALL.iter().any(|measured| measured.name == job.name()), "{} is not measured", job.name());
        }
    }
}
