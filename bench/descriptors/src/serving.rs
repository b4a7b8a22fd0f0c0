//! The content of a small file for one request: opened for it, kept open, or kept in memory.

use crate::job::{Job, Row, calls};
use crate::scratch::{FILE_BYTES, FILE_NAME, Scratch};
use std::hint::black_box;
use std::io::Read;

pub const JOB: Job = Job {
    name: "serving",
    operations_per_thread: 100,
    rows: &[
        Row::new("open, fstat, read, close", || {
            let scratch = Scratch::new();
            let root = scratch.root();
            calls(move || {
                // Kept for as long as the way is.
                let _ = &scratch;
                let mut room = [0; FILE_BYTES];
                let file = root.open_beneath(FILE_NAME.as_bytes())?;
                black_box(file.facts()?);
                black_box(file.read_at(&mut room, 0)?);
                black_box(&room);
                Ok(())
            })
        }),
        Row::new("the same by Rust's std", || {
            let scratch = Scratch::new();
            let path = scratch.file();
            calls(move || {
                let _ = &scratch;
                let mut room = [0; FILE_BYTES];
                let mut file = std::fs::File::open(&path)?;
                black_box(file.metadata()?);
                file.read_exact(&mut room)?;
                black_box(&room);
                Ok(())
            })
        }),
        Row::new("kept open: pread", || {
            let file = Scratch::new().root().open_beneath(FILE_NAME.as_bytes()).expect("the file was made just now");
            calls(move || {
                let mut room = [0; FILE_BYTES];
                black_box(file.read_at(&mut room, 0)?);
                black_box(&room);
                Ok(())
            })
        }),
        Row::new("kept in memory: copy", || {
            let memory = [b'x'; FILE_BYTES];
            calls(move || {
                let mut room = [0; FILE_BYTES];
                room.copy_from_slice(black_box(&memory));
                black_box(&room);
                Ok(())
            })
        }),
    ],
};
