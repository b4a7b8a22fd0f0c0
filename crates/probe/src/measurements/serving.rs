//! The content of a small file for a request: the file is opened, kept open, or kept in memory.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::compare::Candidate;
use crate::scratch::Scratch;
use sanderling_os::directory::Directory;
use std::hint::black_box;
use std::io::{self, Read};

pub(crate) const NAME: &str = "serving";

const FILE_BYTES: usize = 512;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(NAME)?;
    let absolute = scratch.write("file", FILE_BYTES)?;
    let root = Directory::open(scratch.path())?;
    let kept_open = root.open_beneath(b"file")?;
    let in_memory = vec![b'x'; FILE_BYTES];
    let rows = vec![
        candidate("open, fstat, read, close", CALLS_PER_SLICE, |buffer| {
            let file = root.open_beneath(b"file")?;
            black_box(file.metadata()?);
            file.read_at(buffer, 0).map(drop)
        }),
        candidate("the same with std::fs", CALLS_PER_SLICE, |buffer| {
            let mut file = std::fs::File::open(&absolute)?;
            black_box(file.metadata()?);
            file.read_exact(buffer)
        }),
        candidate("kept open: fstat, read", CALLS_PER_SLICE, |buffer| {
            black_box(kept_open.metadata()?);
            kept_open.read_at(buffer, 0).map(drop)
        }),
        candidate("kept open: read", CALLS_PER_SLICE, |buffer| kept_open.read_at(buffer, 0).map(drop)),
        candidate("in memory: copy", 10 * CALLS_PER_SLICE, |buffer| {
            buffer.copy_from_slice(black_box(&in_memory));
            Ok(())
        })
        .used(true),
    ];
    let title = format!("The content of a file of {FILE_BYTES} bytes for a request");
    let group = bench.calls(Heading::new(NAME, title, "request"), rows);
    group.note_gain();
    Ok(())
}

/// Each call reads into its own buffer.
fn candidate<'c>(
    name: &'static str,
    call_count: u32,
    read: impl Fn(&mut [u8]) -> io::Result<()> + 'c,
) -> Candidate<'c> {
    Candidate::of_calls(name, call_count, move || {
        let mut buffer = [0; FILE_BYTES];
        read(&mut buffer)?;
        black_box(&buffer);
        Ok(())
    })
}
