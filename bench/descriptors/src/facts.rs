//! The facts of an open file, by each call that tells them.

use crate::job::{Candidate, Job, Row, calls};
use crate::scratch::{FILE_NAME, Scratch};
use sanderling_os::candidates::facts::{by_newfstatat_of_empty_path, by_newfstatat_without_path, by_statx_of_everything};
use sanderling_os::file::{Metadata, File};
use std::hint::black_box;
use std::io;

pub const JOB: Job = Job {
    name: "facts",
    operations_per_thread: 100,
    rows: &[
        Row::new("the server's own", || by(|file| file.metadata())),
        Row::new("newfstatat(fd, NULL)", || by(|file| by_newfstatat_without_path(file))),
        Row::new("newfstatat(fd, \"\")", || by(|file| by_newfstatat_of_empty_path(file))),
        Row::new("statx of everything", || by(|file| by_statx_of_everything(file))),
        Row::new("Rust's metadata()", || {
            let file = std::fs::File::open(Scratch::new().file()).expect("the file was made just now");
            calls(move || {
                black_box(file.metadata()?);
                Ok(())
            })
        }),
    ],
};

/// The file lives on behind its descriptor when its folder is gone.
fn by(ask: impl Fn(&File) -> io::Result<Metadata> + 'static) -> Box<dyn Candidate> {
    let file = Scratch::new().root().open_beneath(FILE_NAME.as_bytes()).expect("the file was made just now");
    calls(move || {
        black_box(ask(&file)?);
        Ok(())
    })
}
