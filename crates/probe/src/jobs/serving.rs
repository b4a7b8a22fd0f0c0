//! The content of a small file for one request: opened for it, kept open, or kept in memory.

use super::{Bench, CALLS_PER_SLICE, Heading};
use crate::rounds::Candidate;
use crate::scratch::Scratch;
use sanderling_os::directory::Directory;
use std::hint::black_box;
use std::io::{self, Read};

pub(crate) const JOB: &str = "serving";
pub(crate) const OPENED: &str = "open, fstat, read, close";
pub(crate) const STANDARD: &str = "the same by Rust's std";
pub(crate) const KEPT: &str = "kept open: read";
pub(crate) const MEMORY: &str = "kept in memory: copy";

const FILE_BYTES: usize = 512;

pub(crate) fn measure(bench: &mut Bench<'_>) -> io::Result<()> {
    let scratch = Scratch::new(JOB)?;
    let absolute = scratch.write("file", FILE_BYTES)?;
    let root = Directory::open(scratch.path())?;
    let kept = root.open_beneath(b"file")?;
    let in_memory = vec![b'x'; FILE_BYTES];
    let rows = vec![
        Candidate::of_calls(OPENED, CALLS_PER_SLICE, || {
            let mut room = [0; FILE_BYTES];
            let file = root.open_beneath(b"file")?;
            black_box(file.metadata()?);
            file.read_at(&mut room, 0)?;
            black_box(&room);
            Ok(())
        }),
        Candidate::of_calls(STANDARD, CALLS_PER_SLICE, || {
            let mut room = [0; FILE_BYTES];
            let mut file = std::fs::File::open(&absolute)?;
            black_box(file.metadata()?);
            file.read_exact(&mut room)?;
            black_box(&room);
            Ok(())
        }),
        Candidate::of_calls("kept open: fstat, read", CALLS_PER_SLICE, || {
            let mut room = [0; FILE_BYTES];
            black_box(kept.metadata()?);
            kept.read_at(&mut room, 0)?;
            black_box(&room);
            Ok(())
        }),
        Candidate::of_calls(KEPT, CALLS_PER_SLICE, || {
            let mut room = [0; FILE_BYTES];
            kept.read_at(&mut room, 0)?;
            black_box(&room);
            Ok(())
        }),
        Candidate::of_calls(MEMORY, 10 * CALLS_PER_SLICE, || {
            let mut room = [0; FILE_BYTES];
            room.copy_from_slice(black_box(&in_memory));
            black_box(&room);
            Ok(())
        })
        .used(true),
    ];
    let title = format!("The content of a file of {FILE_BYTES} octets, for one request");
    let group = bench.calls(Heading::new(JOB, title, "request"), rows);
    group.notes.push("the server: small files from memory, larger ones from the kept descriptor".to_owned());
    Ok(())
}
