//! Opening a file beneath a root, two folders deep, and closing it again.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::rounds::Candidate;
use crate::scratch::Scratch;
use sanderling_os::directory::Directory;
use std::io;

pub(crate) const JOB: &str = "open";

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(JOB)?;
    std::fs::create_dir_all(scratch.path().join("one/two"))?;
    let absolute = scratch.write("one/two/file", 512)?;
    let root = Directory::open(scratch.path())?;
    let path = b"one/two/file";
    let open = |name: &'static str, way: &'static str| {
        Candidate::of_calls(name, CALLS_PER_SLICE, || root.open_beneath(path).map(drop)).by_way(JOB, way)
    };
    let rows = vec![
        Candidate::of_calls("openat2, cached", CALLS_PER_SLICE, || match root.open_beneath_cached(path)? {
            Some(_) => Ok(()),
            None => Err(io::Error::other("the kernel had it no longer in memory")),
        })
        .by_way(JOB, "openat2-cached"),
        open("openat2", "openat2"),
        open("walk, folder by folder", "walk"),
        Candidate::of_calls("open, absolute path", CALLS_PER_SLICE, || {
            sanderling_os::file::open_nonblocking(&absolute).map(drop)
        }),
    ];
    let group = bench.calls(Heading::new(JOB, "Opening a file beneath a root", "open and close"), rows);
    group.notes.push("an absolute path is no candidate: it does not stay beneath the root".to_owned());
    Ok(())
}
