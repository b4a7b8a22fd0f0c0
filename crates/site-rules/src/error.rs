//! What is wrong with a rule.

/// Why a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The problem.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl RuleError {
    pub(crate) fn new(message: impl Into<String>, remedy: impl Into<String>) -> RuleError {
        RuleError { message: message.into(), remedy: remedy.into() }
    }

    pub(crate) fn at(self, line: usize) -> LineProblem {
        LineProblem { line: u32::try_from(line).unwrap_or(u32::MAX), error: self }
    }
}

/// What is wrong with a line of a file of rules, which is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineProblem {
    /// The line, from 1.
    pub line: u32,
    /// The problem.
    pub error: RuleError,
}
