//! A folder for the files of a measurement, gone afterwards.

use std::io;
use std::path::{Path, PathBuf};

/// The folder; dropping it removes it with all that is in it.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A new folder where the system keeps such folders.
    pub(crate) fn new(job: &str) -> io::Result<Scratch> {
        let path = std::env::temp_dir().join(format!("sanderling-probe-{job}-{}", std::process::id()));
        // Not `create_dir_all`: a folder, or a link, that somebody has put there is not ours to use.
        std::fs::create_dir(&path)?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Puts a file of `length_bytes` there.
    pub(crate) fn write(&self, name: &str, length_bytes: usize) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::write(&path, vec![b'x'; length_bytes])?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
