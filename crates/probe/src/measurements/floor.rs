//! The cost of a system call that does almost nothing.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::compare::Candidate;
use std::hint::black_box;
use std::io;
use std::time::Instant;

pub(crate) const NAME: &str = "floor";
const SYSTEM_CALL: &str = "getppid";
/// A higher cost has a cause outside the program.
const SLOW_NS: f64 = 250.0;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let candidates = vec![
        Candidate::of_calls(SYSTEM_CALL, CALLS_PER_SLICE, || {
            black_box(rustix::process::getppid());
            Ok(())
        }),
        Candidate::of_calls("clock, without a call", 10 * CALLS_PER_SLICE, || {
            black_box(Instant::now());
            Ok(())
        }),
    ];
    let group = bench.calls(Heading::new(NAME, "A minimal system call", "call"), candidates);
    let measured = group.row(SYSTEM_CALL).and_then(|row| row.measured);
    if measured.is_some_and(|measured| measured.cpu_ns.median > SLOW_NS) {
        group.notes.push(format!(
            "above {SLOW_NS:.0} ns: page-table isolation, a seccomp filter or a tracer makes each call slower"
        ));
    }
    Ok(())
}
