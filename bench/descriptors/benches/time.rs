//! Times each way of each job by divan: `cargo bench [-- FILTER]`. An iteration is one run of many operations.
//!
//! `cargo xtask bench` divides by their number, and puts the instructions and the calls beside it.

use descriptors::{Candidate, job};
use divan::Bencher;
use std::cell::RefCell;

fn main() {
    divan::main();
}

#[divan::bench(args = names("cloexec"))]
fn cloexec(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, "cloexec", name);
}

#[divan::bench(name = "cloexec-creation", args = names("cloexec-creation"))]
fn cloexec_creation(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, "cloexec-creation", name);
}

#[divan::bench(args = names("facts"))]
fn facts(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, "facts", name);
}

#[divan::bench(args = names("serving"))]
fn serving(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, "serving", name);
}

#[divan::bench(args = names("lookup"), sample_size = 1)]
fn lookup(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, "lookup", name);
}

#[divan::bench(args = names("datagrams"), sample_size = 1)]
fn datagrams(bencher: Bencher<'_, '_>, name: &str) {
    time(bencher, "datagrams", name);
}

fn names(job_name: &str) -> impl Iterator<Item = &'static str> {
    job(job_name).expect("a job is listed by its name").rows.iter().map(|row| row.name)
}

/// The set-up of a run is no part of its time; with one run a sample, it comes right before its run.
fn time(bencher: Bencher<'_, '_>, job_name: &str, name: &str) {
    let job = job(job_name).expect("a job is listed by its name");
    let row = job.row(name).expect("a row is listed by its name");
    let operation_count = job.operations_per_run(row);
    let candidate: RefCell<Box<dyn Candidate>> = RefCell::new((row.prepare)());
    bencher
        .with_inputs(|| candidate.borrow_mut().set_up())
        .bench_local_values(|()| candidate.borrow_mut().run(operation_count));
}
