//! A file that is written piece by piece, and gets its name when it is complete.

use super::{StateError, failed, flush_folder, remove_file};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that has another name until it is finished. Dropping it before removes it; after a crash, that is done when
/// the folder is opened the next time ([`super::remove_unfinished`]). Only its owner may read it.
#[derive(Debug)]
pub struct UnfinishedFile {
    file: File,
    path: PathBuf,
    is_finished: bool,
}

impl UnfinishedFile {
    /// Creates the file at `path`, where none is.
    pub(crate) fn create(path: &Path) -> io::Result<UnfinishedFile> {
        let file = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)?;
        Ok(UnfinishedFile { file, path: path.to_owned(), is_finished: false })
    }

    /// Appends `content`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written, for example on a full disk.
    pub fn append(&mut self, content: &[u8]) -> Result<(), StateError> {
        self.file.write_all(content).map_err(|error| failed("write", &self.path, &error))
    }

    /// Goes back to the start, from which [`Read`] returns the written data.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read.
    pub fn rewind(&mut self) -> Result<(), StateError> {
        self.file.rewind().map_err(|error| failed("read", &self.path, &error))
    }

    pub(crate) fn write_all(&mut self, content: &[u8]) -> io::Result<()> {
        self.file.write_all(content)
    }

    /// Replaces the file at `path` in the same folder with this one, so that a crash leaves one or the other.
    pub(crate) fn finish(mut self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, path)?;
        self.is_finished = true;
        flush_folder(path.parent().unwrap_or(Path::new(".")))
    }
}

impl Read for UnfinishedFile {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.file.read(out)
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // On a full disk, an unfinished file takes space that others need.
        if !self.is_finished {
            let _ = remove_file(&self.path);
        }
    }
}
