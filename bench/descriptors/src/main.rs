//! Runs one way of a job a fixed number of times, for callgrind to count; without arguments it lists the ways.
//!
//! A line of the list is `JOB<TAB>WAY<TAB>OPERATIONS<TAB>THREADS`, with the operations of one run. `descriptors JOB WAY`
//! ends with a line `OPERATIONS<TAB>CALLS` of all runs together. Callgrind is told to count inside of [`counted`] alone
//! (`--toggle-collect=descriptors::counted`).
#![forbid(unsafe_code)]

use descriptors::{Candidate, JOBS, job};
use sanderling_os::counters::thread_counts;
use std::process::ExitCode;

/// Exit status of a command line that names no way.
const EXIT_USAGE: u8 = 2;
/// The first run is not counted: it makes what is made once.
const RUN_COUNT: usize = 4;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => list(),
        [job_name, row_name] => {
            let Some((job, row)) = job(job_name).and_then(|job| job.row(row_name).map(|row| (job, row))) else {
                eprintln!(
                    "descriptors: the job `{job_name}` has no way `{row_name}`; without arguments they are listed"
                );
                return ExitCode::from(EXIT_USAGE);
            };
            let operation_count = job.operations_per_run(row);
            let mut candidate = (row.prepare)();
            candidate.set_up();
            candidate.run(operation_count);
            let before = thread_counts();
            for _ in 0..RUN_COUNT {
                candidate.set_up();
                counted(&mut *candidate, operation_count);
            }
            println!("{}\t{}", RUN_COUNT * operation_count, thread_counts().since(&before).total());
        }
        _ => {
            eprintln!("usage: descriptors [JOB WAY]");
            return ExitCode::from(EXIT_USAGE);
        }
    }
    ExitCode::SUCCESS
}

fn list() {
    for job in JOBS {
        for row in job.rows {
            println!("{}\t{}\t{}\t{}", job.name, row.name, job.operations_per_run(row), row.threads);
        }
    }
}

/// A name for what is counted; inlined, there would be nothing of this name.
#[inline(never)]
fn counted(candidate: &mut dyn Candidate, operation_count: usize) {
    candidate.run(operation_count);
}
