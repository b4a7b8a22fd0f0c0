//! The metadata of an open file.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::compare::Candidate;
use crate::scratch::Scratch;
use rustix::fs::{AtFlags, StatxFlags};
use sanderling_os::directory::Directory;
use std::hint::black_box;
use std::io;

pub(crate) const NAME: &str = "stat";

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(NAME)?;
    let path = scratch.write("file", 512)?;
    let file = Directory::open(scratch.path())?.open_beneath(b"file")?;
    let of_std = std::fs::File::open(path)?;
    let metadata = |name: &'static str| Candidate::of_calls(name, CALLS_PER_SLICE, || file.metadata().map(drop));
    let rows = vec![
        metadata("fstat").variant(NAME, "fstat"),
        metadata("statx").variant(NAME, "statx"),
        Candidate::of_calls("newfstatat(fd, \"\")", CALLS_PER_SLICE, || {
            black_box(rustix::fs::statat(&file, c"", AtFlags::EMPTY_PATH)?);
            Ok(())
        }),
        Candidate::of_calls("statx of all fields", CALLS_PER_SLICE, || {
            let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
            black_box(rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, fields)?);
            Ok(())
        }),
        Candidate::of_calls("std::fs::File::metadata", CALLS_PER_SLICE, || of_std.metadata().map(drop)),
    ];
    bench.calls(Heading::new(NAME, "The metadata of an open file", "call"), rows);
    Ok(())
}
