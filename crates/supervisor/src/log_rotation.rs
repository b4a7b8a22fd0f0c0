//! Rotation of a log: `access.log` becomes `access.log.1`, and earlier ones `access.log.2.gz` and so on.
//!
//! The newest earlier file is compressed only by the next rotation: processes may still be writing to it.

use flate2::Compression;
use flate2::write::GzEncoder;
use sanderling_os::error::with_context;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The mode of a log: others may not read it.
pub(crate) const MODE: u32 = 0o640;
/// Of files that are compressed.
const SUFFIX: &str = ".gz";

/// Renames the log at `path` and the earlier ones, and removes those beyond `keep`. Nothing is renamed if somebody has
/// removed the log. The path of a file that is to be compressed.
///
/// # Errors
/// The log itself cannot be renamed.
pub(crate) fn rotate(path: &Path, keep: u32) -> io::Result<Option<PathBuf>> {
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(None);
    }
    for number in (1..=keep).rev() {
        for suffix in ["", SUFFIX] {
            let from = numbered(path, number, suffix);
            // Most of them do not exist.
            let _ = if number == keep {
                fs::remove_file(&from)
            } else {
                fs::rename(&from, numbered(path, number + 1, suffix))
            };
        }
    }
    fs::rename(path, numbered(path, 1, "")).map_err(|error| with_context("rename", path.display(), &error))?;
    let before = numbered(path, 2, "");
    Ok(before.exists().then_some(before))
}

/// Replaces the file at `path` by a compressed one.
///
/// # Errors
/// The file stays as it is.
pub(crate) fn compress(path: &Path) -> io::Result<()> {
    let compressed = with_suffix(path, SUFFIX);
    let result = write_compressed(path, &compressed);
    if result.is_err() {
        let _ = fs::remove_file(&compressed);
        return result;
    }
    fs::remove_file(path)
}

fn write_compressed(path: &Path, compressed: &Path) -> io::Result<()> {
    let mut source = File::open(path)?;
    let target = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(compressed)?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    io::copy(&mut source, &mut encoder)?;
    encoder.finish()?.sync_all()
}

fn numbered(path: &Path, number: u32, suffix: &str) -> PathBuf {
    with_suffix(path, &format!(".{number}{suffix}"))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;

    #[test]
    fn earlier_files_are_kept_and_compressed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        for text in ["first", "second", "third", "fourth"] {
            fs::write(&path, text).expect("a file");
            if let Some(before) = rotate(&path, 3).expect("renamed") {
                compress(&before).expect("compressed");
            }
        }
        let mut names: Vec<_> =
            fs::read_dir(&directory).expect("a directory").map(|it| it.expect("an entry").file_name()).collect();
        names.sort();
        assert_eq!(names, ["access.log.1", "access.log.2.gz", "access.log.3.gz"]);
        let unpacked = |name: &str| {
            let file = File::open(directory.path().join(name)).expect("a file");
            io::read_to_string(GzDecoder::new(file)).expect("gzip")
        };
        assert_eq!(fs::read_to_string(directory.path().join("access.log.1")).expect("a file"), "fourth");
        assert_eq!(unpacked("access.log.2.gz"), "third");
        assert_eq!(unpacked("access.log.3.gz"), "second");
    }

    #[test]
    fn one_file_is_kept_if_that_is_all() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        for text in ["first", "second"] {
            fs::write(&path, text).expect("a file");
            assert_eq!(rotate(&path, 1).expect("renamed"), None);
        }
        assert_eq!(fs::read_to_string(directory.path().join("access.log.1")).expect("a file"), "second");
        assert_eq!(rotate(&path, 1).expect("there is no log"), None);
        assert_eq!(fs::read_to_string(directory.path().join("access.log.1")).expect("a file"), "second");
    }
}
