//! A temporary directory for the files of a measurement.

use std::io;
use std::path::{Path, PathBuf};

/// The directory; it is removed with its files when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> io::Result<Scratch> {
        let path = std::env::temp_dir().join(format!("sanderling-probe-{name}-{}", std::process::id()));
        // Fails if the path exists: another user may have put a link there.
        std::fs::create_dir(&path)?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, length_bytes: usize) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::write(&path, vec![b'x'; length_bytes])?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
