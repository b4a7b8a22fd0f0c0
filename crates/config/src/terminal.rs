//! What the program tells whoever has started it: lines on standard output, diagnostics and remarks on standard error.

use crate::diagnostic::{Diagnostic, Form, report};
use std::io::{self, Write};

/// Writes to standard output. Nobody reading it is no reason to stop serving.
pub fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes diagnostics to standard error, in the form that suits it.
pub fn tell(diagnostics: &[Diagnostic]) {
    let err = io::stderr();
    let _ = report(diagnostics, Form::for_output(&err), &mut err.lock());
}

/// Writes a line for the operator to standard error.
pub fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "sanderling: {text}");
}
