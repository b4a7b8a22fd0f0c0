//! Rotation of a log: `access.log` becomes `access.log.1`, and earlier ones `access.log.2.gz` and so on.
//!
//! The newest earlier file is compressed only by the next rotation: processes may still be writing to it. Another user
//! may be able to write the directory: no link is followed, and the compressed file is a new one.

use flate2::Compression;
use flate2::write::GzEncoder;
use sanderling_os::error::with_context;
use sanderling_os::log_directory::LogDirectory;
use std::ffi::{OsStr, OsString};
use std::io;

/// A log's mode: others may not read it.
pub(crate) const MODE: u32 = 0o640;
/// The suffix of compressed files.
const SUFFIX: &str = ".gz";

/// Renames the log `name` and the earlier ones, and removes those beyond `keep`. Nothing is renamed if the log was
/// removed. The name of a file to compress.
///
/// # Errors
/// Returns an error if the log itself cannot be renamed.
pub(crate) fn rotate(directory: &LogDirectory, name: &OsStr, keep: u32) -> io::Result<Option<OsString>> {
    if matches!(directory.has_file(name), Ok(false)) {
        return Ok(None);
    }
    for number in (1..=keep).rev() {
        for suffix in ["", SUFFIX] {
            let from = numbered(name, number, suffix);
            // Most of these files do not exist.
            let _ = if number == keep {
                directory.remove(&from)
            } else {
                directory.rename(&from, &numbered(name, number.saturating_add(1), suffix))
            };
        }
    }
    directory.rename(name, &numbered(name, 1, "")).map_err(|error| with_context("rename", name.display(), &error))?;
    let before = numbered(name, 2, "");
    Ok(directory.has_file(&before).unwrap_or(false).then_some(before))
}

/// Replaces a file by a compressed one.
///
/// # Errors
/// Returns an error if the file cannot be compressed; it is unchanged then.
pub(crate) fn compress(directory: &LogDirectory, name: &OsStr) -> io::Result<()> {
    let compressed = with_suffix(name, SUFFIX);
    let mut source = directory.open_to_read(name)?;
    // No existing file is overwritten.
    let target = directory.create_new(&compressed, MODE)?;
    let mut encoder = GzEncoder::new(target, Compression::default());
    let result = io::copy(&mut source, &mut encoder).and_then(|_| encoder.finish()?.sync_all());
    if result.is_err() {
        let _ = directory.remove(&compressed);
        return result;
    }
    directory.remove(name)
}

fn numbered(name: &OsStr, number: u32, suffix: &str) -> OsString {
    with_suffix(name, &format!(".{number}{suffix}"))
}

fn with_suffix(name: &OsStr, suffix: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(suffix);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn rotate_in(directory: &Path, keep: u32) -> io::Result<()> {
        let path = directory.join("access.log");
        let (directory, name) = LogDirectory::of(&path)?;
        match rotate(&directory, name, keep)? {
            Some(before) => compress(&directory, &before),
            None => Ok(()),
        }
    }

    /// The names of the files with their contents; targets of links are in parentheses.
    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
        let mut names: Vec<String> = entries
            .map(|entry| {
                let name = entry.file_name().into_string().expect("text");
                if entry.file_type().expect("known").is_symlink() { format!("({name})") } else { name }
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn links_in_the_directory_of_a_log_lead_nowhere() {
        let (directory, outside) =
            (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let (log, victim) = (directory.path().join("access.log"), outside.path().join("victim"));
        fs::write(&victim, "secret").expect("written");
        // An earlier file is a link: its target is not compressed.
        fs::write(&log, "first").expect("written");
        symlink(&victim, directory.path().join("access.log.1")).expect("linked");
        rotate_in(directory.path(), 3).expect("renamed");
        assert_eq!(names(directory.path()), ["(access.log.2)", "access.log.1"]);
        // The name of the compressed file is a link: its target is not overwritten.
        fs::write(&log, "second").expect("written");
        fs::remove_file(directory.path().join("access.log.2")).expect("ours");
        let (opened, name) = LogDirectory::of(&log).expect("opened");
        let before = rotate(&opened, name, 3).expect("renamed").expect("one to compress");
        symlink(&victim, directory.path().join("access.log.2.gz")).expect("linked");
        assert_eq!(compress(&opened, &before).expect_err("a link").kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(directory.path()), ["(access.log.2.gz)", "access.log.1", "access.log.2"]);
        // The log itself is a link: it stays.
        symlink(&victim, &log).expect("linked");
        rotate_in(directory.path(), 3).expect("nothing to rename");
        assert!(names(directory.path()).contains(&"(access.log)".to_owned()));
        assert_eq!(fs::read_to_string(&victim).expect("there"), "secret");
    }

    #[test]
    fn earlier_files_are_kept_and_compressed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        for text in ["first", "second", "third", "fourth"] {
            fs::write(&path, text).expect("a file");
            rotate_in(directory.path(), 3).expect("renamed");
        }
        assert_eq!(names(directory.path()), ["access.log.1", "access.log.2.gz", "access.log.3.gz"]);
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
            rotate_in(directory.path(), 1).expect("renamed");
        }
        assert_eq!(fs::read_to_string(directory.path().join("access.log.1")).expect("a file"), "second");
        rotate_in(directory.path(), 1).expect("there is no log");
        assert_eq!(fs::read_to_string(directory.path().join("access.log.1")).expect("a file"), "second");
    }
}
