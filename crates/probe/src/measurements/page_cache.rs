//! Whether file content is in the page cache.

use super::{Bench, Heading};
use crate::compare::Candidate;
use crate::scratch::Scratch;
use sanderling_os::directory::Directory;
use std::hint::black_box;
use std::io;

pub(crate) const NAME: &str = "page-cache";

/// Calls per slice: each copies the file.
const CALLS_PER_SLICE: u32 = 10;
const FILE_BYTES: usize = 100 * 1024;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(NAME)?;
    scratch.write("file", FILE_BYTES)?;
    let file = Directory::open(scratch.path())?.open_beneath(b"file")?;
    let mut buffer = vec![0; FILE_BYTES];
    let rows = vec![
        Candidate::of_calls("preadv2(RWF_NOWAIT) into one small buffer", CALLS_PER_SLICE, || {
            black_box(file.is_cached(0, FILE_BYTES));
            Ok(())
        })
        .variant(NAME, "preadv2"),
        Candidate::of_calls("pread", CALLS_PER_SLICE, || file.read_at(&mut buffer, 0).map(drop)).variant(NAME, "none"),
    ];
    bench.calls(Heading::new(NAME, "Whether 100 KiB of a file are in the page cache", "call"), rows);
    Ok(())
}
