//! Opening a file beneath a root, two directories deep.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::compare::Candidate;
use crate::scratch::Scratch;
use sanderling_os::directory::Directory;
use std::io;

pub(crate) const NAME: &str = "open";

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(NAME)?;
    std::fs::create_dir_all(scratch.path().join("one/two"))?;
    let absolute = scratch.write("one/two/file", 512)?;
    let root = Directory::open(scratch.path())?;
    let path = b"one/two/file";
    let open = |name: &'static str, variant: &'static str| {
        Candidate::of_calls(name, CALLS_PER_SLICE, || root.open_beneath(path).map(drop)).variant(NAME, variant)
    };
    let rows = vec![
        Candidate::of_calls("openat2, cached", CALLS_PER_SLICE, || match root.open_beneath_cached(path)? {
            Some(_) => Ok(()),
            None => Err(io::Error::other("the path is not in the kernel's cache")),
        })
        .variant(NAME, "openat2-cached"),
        open("openat2", "openat2"),
        open("walk, directory by directory", "walk"),
        Candidate::of_calls("open, absolute path", CALLS_PER_SLICE, || {
            sanderling_os::file::open_nonblocking(&absolute).map(drop)
        }),
    ];
    let group = bench.calls(Heading::new(NAME, "Opening a file beneath a root", "open and close"), rows);
    group.notes.push("the server cannot use an absolute path: it does not stay beneath the root".to_owned());
    Ok(())
}
