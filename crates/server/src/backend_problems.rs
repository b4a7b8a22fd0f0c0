//! Failures of backends, and what they write for the log: workers report them, and the control thread logs them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Problems that wait to be logged; further ones are left out.
const PROBLEMS_MAX: usize = 256;

/// The problems that were not logged.
#[derive(Debug, Default)]
pub(crate) struct BackendProblems(Mutex<Vec<BackendProblem>>);

/// A problem of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendProblem {
    /// The backend, by its addresses.
    pub backend: String,
    /// A line for the log.
    pub message: String,
}

impl BackendProblems {
    pub(crate) fn report(&self, problem: BackendProblem) {
        let mut problems = self.lock();
        if problems.len() < PROBLEMS_MAX {
            problems.push(problem);
        }
    }

    /// Takes all of them.
    pub(crate) fn take(&self) -> Vec<BackendProblem> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<BackendProblem>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
