//! Close-on-exec: set on a descriptor, at its creation, or on a range of descriptors.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::compare::Candidate;
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

pub(crate) const NAME: &str = "cloexec";
pub(crate) const RANGE_NAME: &str = "cloexec-range";

/// Descriptors of the range.
const RANGE_COUNT: i32 = 64;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let file = open_null(OFlags::CLOEXEC)?;
    let set = |name: &'static str| {
        Candidate::of_calls(name, CALLS_PER_SLICE, || sanderling_os::cloexec::set(&file, "/dev/null"))
    };
    let rows = vec![
        set("fcntl").variant(NAME, "fcntl"),
        set("ioctl(FIOCLEX)").variant(NAME, "fioclex"),
        Candidate::of_calls("F_GETFD, then F_SETFD", CALLS_PER_SLICE, || {
            Ok(fcntl_setfd(&file, fcntl_getfd(&file)? | FdFlags::CLOEXEC)?)
        }),
    ];
    bench.calls(Heading::new(NAME, "Setting close-on-exec on an open descriptor", "call"), rows);
    let rows = vec![
        Candidate::of_calls("open, close", CALLS_PER_SLICE, || open_null(OFlags::empty()).map(drop)),
        Candidate::of_calls("open(O_CLOEXEC), close", CALLS_PER_SLICE, || open_null(OFlags::CLOEXEC).map(drop))
            .used(true),
        Candidate::of_calls("open, set, close", CALLS_PER_SLICE, || {
            sanderling_os::cloexec::set(&open_null(OFlags::empty())?, "/dev/null")
        }),
    ];
    let group = bench.calls(Heading::new(NAME, "Setting close-on-exec at creation", "open and close"), rows);
    group.notes.push("the server sets it at creation, and by a separate call only on inherited descriptors".to_owned());
    Ok(())
}

pub(crate) fn measure_range(bench: &mut Bench<'_>) -> io::Result<()> {
    let file = open_null(OFlags::CLOEXEC)?;
    let copies: Vec<OwnedFd> = (0..RANGE_COUNT).map(|_| file.try_clone()).collect::<io::Result<_>>()?;
    let first = copies.iter().map(AsRawFd::as_raw_fd).min().expect("the range is not empty");
    let set = |name: &'static str, call_count| {
        Candidate::of_calls(name, call_count, move || sanderling_os::cloexec::set_from(first)).variant(RANGE_NAME, name)
    };
    // A call per descriptor makes a hundred calls each time.
    let rows = vec![set("close_range", CALLS_PER_SLICE), set("per-fd", CALLS_PER_SLICE / 10)];
    let title = format!("Setting close-on-exec on {RANGE_COUNT} descriptors");
    bench.calls(Heading::new(RANGE_NAME, title, "range"), rows);
    Ok(())
}

fn open_null(flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(c"/dev/null", OFlags::RDONLY | flags, Mode::empty())?)
}
