//! A breach of a rule: where it stands, what it is and what would mend it.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    /// Printed, and let pass.
    Warning,
    /// Fails the chore.
    Error,
}

#[derive(Debug)]
pub(super) struct Complaint {
    pub(super) severity: Severity,
    /// From the root of the tree, with `/`.
    pub(super) path: String,
    /// From 1; 0 when the file as a whole is meant.
    pub(super) line: usize,
    /// The problem; the remedy.
    pub(super) text: String,
}

impl Complaint {
    pub(super) fn error(path: &str, line: usize, text: String) -> Complaint {
        Complaint { severity: Severity::Error, path: path.to_owned(), line, text }
    }

    pub(super) fn warning(path: &str, line: usize, text: String) -> Complaint {
        Complaint { severity: Severity::Warning, path: path.to_owned(), line, text }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        match self.line {
            0 => write!(out, "{}: {severity}: {}", self.path, self.text),
            line => write!(out, "{}:{line}: {severity}: {}", self.path, self.text),
        }
    }
}
