//! Runs the measuring commands, which have a workspace and dependencies of their own.

use crate::program::{Outcome, Program};

const MANIFEST: &str = "bench/Cargo.toml";

/// Runs the program `measure` with these arguments; whether it succeeded.
pub(crate) fn run(arguments: &[String]) -> bool {
    let cargo = Program::cargo().args("run --quiet --release --package measure --manifest-path").args(MANIFEST);
    match cargo.args("--").args_of(arguments).run() {
        Outcome::Passed => true,
        Outcome::Skipped(reason) | Outcome::Failed(reason) => {
            eprintln!("xtask: {reason}");
            false
        }
    }
}
