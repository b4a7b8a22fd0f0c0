//! Close-on-exec: set on an open descriptor by each of the calls there are, or asked for at creation.

use crate::job::{Candidate, Job, Row, calls};
use sanderling_os::candidates::cloexec::{
    by_bare_ioctl, by_close_range, by_library_fcntl, by_library_ioctl, by_reading_first, open_null,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Some 10 microseconds of calls.
const CALLS_PER_RUN: usize = 100;

pub const SET: Job = Job {
    name: "cloexec",
    operations_per_thread: CALLS_PER_RUN,
    rows: &[
        Row::new("the server's own", || set_by(|file| sanderling_os::cloexec::set(file, "/dev/null"))),
        Row::new("ioctl(FIOCLEX)", || set_by(|file| by_bare_ioctl(file))),
        Row::new("C library: fcntl", || set_by(|file| by_library_fcntl(file))),
        Row::new("C library: ioctl", || set_by(|file| by_library_ioctl(file))),
        Row::new("F_GETFD, then F_SETFD", || set_by(|file| by_reading_first(file))),
        Row::new("close_range of one", || set_by(|file| by_close_range(file.as_raw_fd(), file.as_raw_fd()))),
    ],
};

pub const CREATE: Job = Job {
    name: "cloexec-creation",
    operations_per_thread: CALLS_PER_RUN,
    rows: &[
        Row::new("open, close", || calls(|| open_null(false).map(drop))),
        Row::new("open(O_CLOEXEC), close", || calls(|| open_null(true).map(drop))),
        Row::new("open, set, close", || calls(|| sanderling_os::cloexec::set(&open_null(false)?, "/dev/null"))),
    ],
};

fn set_by(set: impl Fn(&OwnedFd) -> io::Result<()> + 'static) -> Box<dyn Candidate> {
    let file = open_null(true).expect("/dev/null is there");
    calls(move || set(&file))
}
