//! What calling the kernel costs at all, below which no call can get.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::rounds::Candidate;
use std::hint::black_box;
use std::io;
use std::time::Instant;

pub(crate) const JOB: &str = "floor";
pub(crate) const SYSTEM_CALL: &str = "getppid";
/// Above this many nanoseconds something stands in the way of every call.
const SLOW_NS: f64 = 250.0;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let candidates = vec![
        Candidate::of_calls(SYSTEM_CALL, CALLS_PER_SLICE, || {
            black_box(sanderling_os::candidates::floor::parent_process());
            Ok(())
        }),
        Candidate::of_calls("clock, without a call", 10 * CALLS_PER_SLICE, || {
            black_box(Instant::now());
            Ok(())
        }),
    ];
    let group = bench.calls(Heading::new(JOB, "The floor: a call that does next to nothing", "call"), candidates);
    let cost = group.row(SYSTEM_CALL).and_then(|row| row.measured()).map(|measured| measured.cpu_ns.median);
    if cost.is_some_and(|cost_ns| cost_ns > SLOW_NS) {
        group.notes.push(format!(
            "above {SLOW_NS:.0} ns: page-table isolation, a filter (seccomp) or a tracer makes each call dearer"
        ));
    }
    Ok(())
}
