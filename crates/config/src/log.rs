//! Output for the operator: lines on standard output, messages and diagnostics on standard error.
//!
//! A closed standard output or standard error (EPIPE) is not an error.

use crate::diagnostic::{Diagnostic, Format, write_report};
use std::io::{self, Write};

/// Writes to standard output.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes diagnostics to standard error.
pub fn report(diagnostics: &[Diagnostic]) {
    let err = io::stderr();
    let _ = write_report(diagnostics, Format::for_output(&err), &mut err.lock());
}

/// Writes a message to standard error.
pub fn log(message: &str) {
    let _ = writeln!(io::stderr(), "sanderling: {message}");
}
