//! A folder with the one file that is asked about, gone afterwards.

use sanderling_os::directory::Directory;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The file's octets.
pub const FILE_BYTES: usize = 512;
/// The file's name.
pub const FILE_NAME: &str = "file";

/// The folder; dropping it removes it with all that is in it.
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new folder where the system keeps such folders, with the file in it.
    pub fn new() -> Scratch {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sanderling-bench-{}-{number}", std::process::id()));
        // Not `create_dir_all`: a folder, or a link, that somebody has put there is not ours to use.
        std::fs::create_dir(&path).expect("the folder for temporary files can be written");
        let scratch = Scratch { path };
        std::fs::write(scratch.file(), [b'x'; FILE_BYTES]).expect("a folder of ours can be written");
        scratch
    }

    /// The path of the file.
    pub fn file(&self) -> PathBuf {
        self.path.join(FILE_NAME)
    }

    /// The folder, open.
    pub fn root(&self) -> Directory {
        Directory::open(&self.path).expect("the folder was made just now")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is the system's to clean up.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
