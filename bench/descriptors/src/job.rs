//! What a way must offer to be measured: a name, its preparation, and runs of many operations.

use std::io;

/// What the rows of a table do, each its own way.
pub struct Job {
    pub name: &'static str,
    /// Operations that each thread does in one run.
    pub operations_per_thread: usize,
    pub rows: &'static [Row],
}

/// One way.
pub struct Row {
    pub name: &'static str,
    /// Threads that do the operations of a run together. What several do is not the same in every run.
    pub threads: usize,
    pub prepare: fn() -> Box<dyn Candidate>,
}

impl Row {
    /// A way that is one thread's.
    pub const fn new(name: &'static str, prepare: fn() -> Box<dyn Candidate>) -> Row {
        Row { name, threads: 1, prepare }
    }
}

impl Job {
    /// Operations of one run of `row`, by all its threads together.
    pub fn operations_per_run(&self, row: &Row) -> usize {
        self.operations_per_thread * row.threads
    }

    /// The row of this name.
    pub fn row(&self, name: &str) -> Option<&'static Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// A way that is ready.
pub trait Candidate {
    /// What has to come before each run and is not measured.
    fn set_up(&mut self) {}

    /// Does its operation so often.
    fn run(&mut self, operation_count: usize);
}

/// A way whose operation is a call, or a few.
struct Calls<F>(F);

impl<F: FnMut() -> io::Result<()>> Candidate for Calls<F> {
    fn run(&mut self, operation_count: usize) {
        for _ in 0..operation_count {
            (self.0)().expect("the kernel has this call");
        }
    }
}

/// A way whose operation is `call`.
pub fn calls(call: impl FnMut() -> io::Result<()> + 'static) -> Box<dyn Candidate> {
    Box::new(Calls(call))
}
