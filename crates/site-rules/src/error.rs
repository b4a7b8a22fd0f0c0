//! The problem of a rule, and the problems of a rules file's lines.

/// Problems of one file that are reported; the others are counted. A report shows 100 of all files.
pub(crate) const PROBLEMS_MAX: usize = 40;

/// The reason why a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The problem.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

impl RuleError {
    pub(crate) fn new(message: impl Into<String>, remedy: impl Into<String>) -> RuleError {
        RuleError { message: message.into(), remedy: remedy.into() }
    }
}

/// The problem of a skipped line of a rules file, or of the lines from it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineProblem {
    /// The line, from 1.
    pub line: u32,
    /// The problem.
    pub error: RuleError,
}

/// Collects a file's problems.
#[derive(Debug, Default)]
pub(crate) struct LineProblems {
    first: Vec<LineProblem>,
    /// The line of the first problem that is not reported.
    more_from: u32,
    more_count: usize,
}

impl LineProblems {
    /// Adds the problem of the line with this number.
    pub(crate) fn push(&mut self, line: usize, error: RuleError) {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        if self.first.len() < PROBLEMS_MAX {
            let error = RuleError { message: format!("{}; the line is skipped", error.message), ..error };
            return self.first.push(LineProblem { line, error });
        }
        if self.more_count == 0 {
            self.more_from = line;
        }
        self.more_count += 1;
    }

    /// The first problems, and a last one with the number of the others.
    pub(crate) fn into_vec(self) -> Vec<LineProblem> {
        let LineProblems { first: mut problems, more_from: line, more_count } = self;
        if more_count > 0 {
            let message = format!("wrong lines from this one on: {more_count}; all of them are skipped");
            problems.push(LineProblem { line, error: RuleError::new(message, "correct those above, and check again") });
        }
        problems
    }
}
