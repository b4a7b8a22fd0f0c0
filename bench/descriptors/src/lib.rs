//! The rival ways of each descriptor job, each prepared by its name and run as often as an instrument asks.
//!
//! They are those that `sanderling probe` measures on the machine of its user; here they stand bare, so that divan can
//! time them (`benches/time.rs`) and callgrind count their instructions (`src/main.rs`). `cargo xtask bench` does both.
#![forbid(unsafe_code)]

// The order is that of imports: a module uses those below it.
mod datagrams;
mod lookup;
mod serving;
mod facts;
mod cloexec;
mod scratch;
mod job;

pub use job::{Candidate, Job, Row};

/// All jobs, from a single call to whole loops.
pub const JOBS: &[&Job] = &[&cloexec::SET, &cloexec::CREATE, &facts::JOB, &serving::JOB, &lookup::JOB, &datagrams::JOB];

/// The job of this name.
pub fn job(name: &str) -> Option<&'static Job> {
    JOBS.iter().copied().find(|job| job.name == name)
}
