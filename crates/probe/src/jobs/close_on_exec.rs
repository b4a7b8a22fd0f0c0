//! Close-on-exec: set by three calls, through the C library or not, or at creation; for one descriptor or for a range.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::rounds::Candidate;
use sanderling_os::candidates::cloexec as candidates;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

pub(crate) const JOB: &str = "cloexec";
pub(crate) const RANGE_JOB: &str = "cloexec-range";

pub(crate) const FCNTL: &str = "fcntl";
pub(crate) const FIOCLEX: &str = "ioctl(FIOCLEX)";
pub(crate) const BARE_FIOCLEX: &str = "ioctl, no C library";
pub(crate) const LIBRARY_FCNTL: &str = "C library: fcntl";
pub(crate) const LIBRARY_FIOCLEX: &str = "C library: ioctl";
/// 5.373 s against 5.558 s for 100 million calls, nginx developers' list, 2012.
pub(crate) const CLAIMED_RATIO: f64 = 5.373 / 5.558;

const OPEN: &str = "open, close";
const OPEN_WITH_FLAG: &str = "open(O_CLOEXEC), close";

const LIBRARY_FCNTL_INDEX: usize = 5;
/// Descriptors of the range.
const RANGE_COUNT: i32 = 64;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let file = candidates::open_null(true)?;
    let number = file.as_raw_fd();
    let set = |name: &'static str| {
        Candidate::of_calls(name, CALLS_PER_SLICE, || sanderling_os::cloexec::set(&file, "/dev/null"))
    };
    let rows = vec![
        set(FCNTL).by_way(JOB, "fcntl"),
        set(FIOCLEX).by_way(JOB, "fioclex"),
        Candidate::of_calls(BARE_FIOCLEX, CALLS_PER_SLICE, || candidates::by_bare_ioctl(&file)),
        Candidate::of_calls("close_range of one", CALLS_PER_SLICE, || candidates::by_close_range(number, number)),
        Candidate::of_calls("F_GETFD, then F_SETFD", CALLS_PER_SLICE, || candidates::by_reading_first(&file)),
        Candidate::of_calls(LIBRARY_FCNTL, CALLS_PER_SLICE, || candidates::by_library_fcntl(&file))
            .against(LIBRARY_FCNTL_INDEX),
        Candidate::of_calls(LIBRARY_FIOCLEX, CALLS_PER_SLICE, || candidates::by_library_ioctl(&file))
            .against(LIBRARY_FCNTL_INDEX)
            .claimed(CLAIMED_RATIO),
    ];
    bench.calls(Heading::new(JOB, "Close-on-exec, set on an open descriptor", "call"), rows);
    measure_creation(bench);
    Ok(())
}

fn measure_creation(bench: &mut Bench<'_>) {
    let rows = vec![
        Candidate::of_calls(OPEN, CALLS_PER_SLICE, || candidates::open_null(false).map(drop)),
        Candidate::of_calls(OPEN_WITH_FLAG, CALLS_PER_SLICE, || candidates::open_null(true).map(drop)).used(true),
        Candidate::of_calls("open, set, close", CALLS_PER_SLICE, || {
            sanderling_os::cloexec::set(&candidates::open_null(false)?, "/dev/null")
        }),
    ];
    let group = bench.calls(Heading::new(JOB, "Close-on-exec, set at creation", "open and close"), rows);
    group.notes.push("the server asks for it when it opens; the call above is for inherited descriptors".to_owned());
}

pub(crate) fn measure_range(bench: &mut Bench<'_>) -> io::Result<()> {
    let file = candidates::open_null(true)?;
    let copies: Vec<OwnedFd> = (0..RANGE_COUNT).map(|_| file.try_clone()).collect::<io::Result<_>>()?;
    let first = copies.iter().map(AsRawFd::as_raw_fd).min().expect("the range is not empty");
    let set = |name: &'static str, call_count| {
        Candidate::of_calls(name, call_count, move || sanderling_os::cloexec::set_from(first)).by_way(RANGE_JOB, name)
    };
    // Each descriptor by itself takes some hundred calls: ten times are a slice.
    let rows = vec![set("close_range", CALLS_PER_SLICE), set("per-fd", CALLS_PER_SLICE / 10)];
    bench.calls(Heading::new(RANGE_JOB, format!("Close-on-exec, on {RANGE_COUNT} descriptors at once"), "range"), rows);
    Ok(())
}
