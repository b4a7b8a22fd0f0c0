//! The facts of an open file: its length, its moments, its inode.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::rounds::Candidate;
use crate::scratch::Scratch;
use sanderling_os::candidates::facts as candidates;
use sanderling_os::directory::Directory;
use std::io;

pub(crate) const JOB: &str = "stat";
pub(crate) const FSTAT: &str = "fstat";
pub(crate) const NEWFSTATAT: &str = "newfstatat(fd, \"\")";
pub(crate) const STANDARD_LIBRARY: &str = "Rust's metadata()";
/// Twice the kernel's time, by the article of 2025.
pub(crate) const CLAIMED_RATIO: f64 = 2.0;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(JOB)?;
    let path = scratch.write("file", 512)?;
    let file = Directory::open(scratch.path())?.open_beneath(b"file")?;
    let standard = std::fs::File::open(path)?;
    let ask = |name: &'static str| Candidate::of_calls(name, CALLS_PER_SLICE, || file.metadata().map(drop));
    let rows = vec![
        ask(FSTAT).by_way(JOB, "fstat"),
        ask("statx").by_way(JOB, "statx"),
        Candidate::of_calls("newfstatat(fd, NULL)", CALLS_PER_SLICE, || {
            candidates::by_newfstatat_without_path(&file).map(drop)
        }),
        Candidate::of_calls(NEWFSTATAT, CALLS_PER_SLICE, || candidates::by_newfstatat_of_empty_path(&file).map(drop))
            .claimed(CLAIMED_RATIO),
        Candidate::of_calls("statx of everything", CALLS_PER_SLICE, || {
            candidates::by_statx_of_everything(&file).map(drop)
        }),
        Candidate::of_calls(STANDARD_LIBRARY, CALLS_PER_SLICE, || standard.metadata().map(drop)),
    ];
    bench.calls(Heading::new(JOB, "The facts of an open file", "call"), rows);
    Ok(())
}
