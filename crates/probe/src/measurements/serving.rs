//! The content of a small file for a request: the file is opened, kept open, or kept in memory.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::compare::Candidate;
use crate::scratch::Scratch;
use sanderling_os::directory::Directory;
use std::hint::black_box;
use std::io::{self, Read};

pub(crate) const JOB: &str = "serving";

const FILE_BYTES: usize = 512;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(JOB)?;
    let absolute = scratch.write("file", FILE_BYTES)?;
    let root = Directory::open(scratch.path())?;
    let kept_open = root.open_beneath(b"file")?;
    let in_memory = vec![b'x'; FILE_BYTES];
    let rows = vec![
        Candidate::of_calls("open, fstat, read, close", CALLS_PER_SLICE, || {
            let mut buffer = [0; FILE_BYTES];
            let file = root.open_beneath(b"file")?;
            black_box(file.metadata()?);
            file.read_at(&mut buffer, 0)?;
            black_box(&buffer);
            Ok(())
        }),
        Candidate::of_calls("the same with std::fs", CALLS_PER_SLICE, || {
            let mut buffer = [0; FILE_BYTES];
            let mut file = std::fs::File::open(&absolute)?;
            black_box(file.metadata()?);
            file.read_exact(&mut buffer)?;
            black_box(&buffer);
            Ok(())
        }),
        Candidate::of_calls("kept open: fstat, read", CALLS_PER_SLICE, || {
            let mut buffer = [0; FILE_BYTES];
            black_box(kept_open.metadata()?);
            kept_open.read_at(&mut buffer, 0)?;
            black_box(&buffer);
            Ok(())
        }),
        Candidate::of_calls("kept open: read", CALLS_PER_SLICE, || {
            let mut buffer = [0; FILE_BYTES];
            kept_open.read_at(&mut buffer, 0)?;
            black_box(&buffer);
            Ok(())
        }),
        Candidate::of_calls("in memory: copy", 10 * CALLS_PER_SLICE, || {
            let mut buffer = [0; FILE_BYTES];
            buffer.copy_from_slice(black_box(&in_memory));
            black_box(&buffer);
            Ok(())
        })
        .used(true),
    ];
    let title = format!("The content of a file of {FILE_BYTES} bytes for a request");
    let group = bench.calls(Heading::new(JOB, title, "request"), rows);
    group.note_gain();
    Ok(())
}
