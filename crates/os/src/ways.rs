//! Chooses, for each job that the kernel offers several ways for, the first way that works here; any can be forced.
//!
//! A job names its ways in order of preference and tests each for being there. The choice is made once, when it is
//! first asked for, and does not change. [`force`] (the command line's `--force JOB=WAY`) and the environment's
//! `SANDERLING_FORCE=JOB=WAY,…` name a way by hand: for tests, which run with every fallback, and for diagnosis.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

/// Names the environment variable that forces ways, several of them parted by commas.
pub const FORCE_VARIABLE: &str = "SANDERLING_FORCE";

const NOT_CHOSEN: u8 = u8::MAX;

/// A job, its ways, and the one in use.
#[derive(Debug)]
pub struct Job {
    name: &'static str,
    ways: &'static [Way],
    chosen: AtomicU8,
}

/// One way of doing a job.
#[derive(Debug)]
pub struct Way {
    /// What `--force` calls it.
    pub name: &'static str,
    /// Whether this kernel, in this process, has it.
    pub is_there: fn() -> bool,
}

/// Every job that has more than one way.
pub static JOBS: &[&Job] = &[
    &crate::cloexec::JOB,
    &crate::cloexec::RANGE,
    &crate::file::FACTS,
    &crate::file::SENDING,
    &crate::directory::OPENING,
    &crate::tcp::ACCEPTING,
    &crate::udp::JOB,
];

impl Job {
    /// A job whose `ways` stand in order of preference; the last must be there on every kernel.
    pub(crate) const fn new(name: &'static str, ways: &'static [Way]) -> Job {
        Job { name, ways, chosen: AtomicU8::new(NOT_CHOSEN) }
    }

    /// What `--force` and `probe` call the job.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its ways, in order of preference.
    pub fn ways(&self) -> &'static [Way] {
        self.ways
    }

    /// The index of the way in use.
    #[inline]
    pub fn chosen(&self) -> usize {
        match self.chosen.load(Ordering::Relaxed) {
            NOT_CHOSEN => self.choose(),
            index => usize::from(index),
        }
    }

    /// The name of the way in use.
    pub fn chosen_name(&self) -> &'static str {
        self.ways[self.chosen()].name
    }

    #[cold]
    fn choose(&self) -> usize {
        let forced = std::env::var(FORCE_VARIABLE).ok().and_then(|list| {
            let by_job = list.split(',').filter_map(|item| item.split_once('='));
            let way = by_job.filter(|(job, _)| *job == self.name).map(|(_, way)| way.to_owned()).last()?;
            self.ways.iter().position(|candidate| candidate.name == way)
        });
        let index = forced
            .or_else(|| self.ways.iter().position(|way| (way.is_there)()))
            .unwrap_or(self.ways.len() - 1);
        self.chosen.store(index as u8, Ordering::Relaxed);
        index
    }

    fn force(&self, way: &str) -> Result<(), ForceError> {
        let Some(index) = self.ways.iter().position(|candidate| candidate.name == way) else {
            let known = self.ways.iter().map(|way| way.name).collect();
            return Err(ForceError::Way { job: self.name, way: way.to_owned(), known });
        };
        self.chosen.store(index as u8, Ordering::Relaxed);
        Ok(())
    }
}

/// Why a way could not be forced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceError {
    /// The words are not `JOB=WAY`.
    Form(String),
    /// No job of that name.
    Job(String),
    /// The job has no way of that name.
    Way {
        /// The job.
        job: &'static str,
        /// The unknown way.
        way: String,
        /// The ways that it has.
        known: Vec<&'static str>,
    },
}

impl fmt::Display for ForceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForceError::Form(words) => write!(out, "\"{words}\" is not JOB=WAY; for example cloexec=fcntl"),
            ForceError::Job(job) => {
                let known: Vec<_> = JOBS.iter().map(|job| job.name).collect();
                write!(out, "there is no job \"{job}\"; the jobs are {}", known.join(", "))
            }
            ForceError::Way { job, way, known } => {
                write!(out, "the job {job} has no way \"{way}\"; its ways are {}", known.join(", "))
            }
        }
    }
}

impl std::error::Error for ForceError {}

/// Forces one way by words: `cloexec=fcntl`. For the start of the program, before the job is first done.
pub fn force(words: &str) -> Result<(), ForceError> {
    let Some((job, way)) = words.split_once('=') else {
        return Err(ForceError::Form(words.to_owned()));
    };
    match JOBS.iter().find(|candidate| candidate.name == job) {
        Some(found) => found.force(way),
        None => Err(ForceError::Job(job.to_owned())),
    }
}

/// Chooses for every job now, so that no test of a feature is made in the middle of the work.
pub fn choose_all() {
    for job in JOBS {
        job.chosen();
    }
}

/// Checks the environment's list of forced ways, so that a misspelt one is an error and not a silence.
pub fn check_environment() -> Result<(), ForceError> {
    let list = std::env::var(FORCE_VARIABLE).unwrap_or_default();
    list.split(',').filter(|words| !words.is_empty()).try_for_each(force)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_way_that_is_there_is_chosen() {
        static JOB: Job = Job::new(
            "test",
            &[
                Way { name: "missing", is_there: || false },
                Way { name: "good", is_there: || true },
                Way { name: "last", is_there: || true },
            ],
        );
        assert_eq!(JOB.chosen_name(), "good");
        assert_eq!(JOB.force("last"), Ok(()));
        assert_eq!(JOB.chosen_name(), "last");
        let error = JOB.force("none").expect_err("unknown");
        assert_eq!(error.to_string(), "the job test has no way \"none\"; its ways are missing, good, last");
    }

    #[test]
    fn words_that_force_nothing_are_errors() {
        assert!(matches!(force("cloexec"), Err(ForceError::Form(_))));
        assert!(matches!(force("cloexek=fcntl"), Err(ForceError::Job(_))));
        assert!(matches!(force("cloexec=magic"), Err(ForceError::Way { .. })));
    }

    #[test]
    fn every_job_has_a_way_on_this_kernel() {
        for job in JOBS {
            assert!(job.ways.iter().any(|way| (way.is_there)()), "{}", job.name);
        }
    }
}
