//! All jobs that have several ways: forces a way by its name, and chooses for all of them at once.

use crate::ways::{FORCE_VARIABLE, Job};
use std::fmt;

/// Every job that has more than one way.
pub static JOBS: &[&Job] = &[
    &crate::cloexec::JOB,
    &crate::cloexec::RANGE,
    &crate::file::FACTS,
    &crate::file::SENDING,
    &crate::directory::OPENING,
    &crate::tcp::ACCEPTING,
    &crate::tcp::DEFERRING,
    &crate::udp::JOB,
];

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
                let known: Vec<_> = JOBS.iter().map(|job| job.name()).collect();
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
    match JOBS.iter().find(|candidate| candidate.name() == job) {
        None => Err(ForceError::Job(job.to_owned())),
        Some(found) => {
            found.force(way).map_err(|known| ForceError::Way { job: found.name(), way: way.to_owned(), known })
        }
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
    fn words_that_force_nothing_are_errors() {
        assert!(matches!(force("cloexec"), Err(ForceError::Form(_))));
        assert!(matches!(force("cloexek=fcntl"), Err(ForceError::Job(_))));
        assert!(matches!(force("cloexec=magic"), Err(ForceError::Way { .. })));
    }

    #[test]
    fn every_job_has_a_way_on_this_kernel() {
        for job in JOBS {
            assert!(job.ways().iter().any(|way| (way.is_there)()), "{}", job.name());
        }
    }
}
