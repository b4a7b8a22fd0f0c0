//! The files that a zone was read from, and whether they still have the same content.

use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long ago the last change of a file must be for an equal time to mean an unchanged file: file systems keep times in
/// steps, and two changes in one step have one time.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The files of a zone, in the order in which they were read.
#[derive(Debug, Default)]
pub(crate) struct ZoneSources {
    files: Vec<(PathBuf, Stamp)>,
    /// A hash of the content of all files.
    hash: u64,
}

/// What `stat` says about a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    length_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// The version was old enough for its times to be unique.
    is_settled: bool,
}

/// Collects the files of a zone while it is read.
#[derive(Debug, Default)]
pub(crate) struct ZoneSourcesBuilder {
    files: Vec<(PathBuf, Stamp)>,
    hasher: DefaultHasher,
}

impl ZoneSourcesBuilder {
    /// Adds a file, with its metadata from before it was read.
    pub(crate) fn add(&mut self, path: &Path, metadata: &Metadata, text: &[u8]) {
        self.files.push((path.to_owned(), Stamp::new(metadata)));
        self.hasher.write(text);
        self.hasher.write_usize(text.len());
    }

    pub(crate) fn build(self) -> ZoneSources {
        ZoneSources { files: self.files, hash: self.hasher.finish() }
    }
}

impl ZoneSources {
    /// Whether all files have the content that they had. They are read only if `stat` does not show it.
    pub(crate) fn are_unchanged(&mut self) -> bool {
        let is_same = |(path, stamp): &(PathBuf, Stamp)| {
            stamp.is_settled && fs::metadata(path).is_ok_and(|metadata| Stamp::new(&metadata) == *stamp)
        };
        self.files.iter().all(is_same) || self.have_same_content()
    }

    fn have_same_content(&mut self) -> bool {
        let mut builder = ZoneSourcesBuilder::default();
        for (path, stamp) in &self.files {
            let Ok(metadata) = fs::metadata(path) else { return false };
            // Reading another length, or something that is not a file, would be in vain.
            if !metadata.is_file() || metadata.len() != stamp.length_bytes {
                return false;
            }
            let read: io::Result<Vec<u8>> = fs::read(path);
            let Ok(text) = read else { return false };
            builder.add(path, &metadata, &text);
        }
        let now = builder.build();
        let is_same = now.hash == self.hash;
        if is_same {
            *self = now;
        }
        is_same
    }
}

impl Stamp {
    fn new(metadata: &Metadata) -> Stamp {
        let is_old =
            |time: io::Result<SystemTime>| time.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > SETTLED_AFTER));
        let changed = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(metadata.ctime().max(0).cast_unsigned()));
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            length_bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            is_settled: is_old(metadata.modified()) && is_old(changed.ok_or(io::ErrorKind::InvalidData.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(path: &Path) -> ZoneSources {
        let mut builder = ZoneSourcesBuilder::default();
        builder.add(path, &fs::metadata(path).unwrap(), &fs::read(path).unwrap());
        builder.build()
    }

    #[test]
    fn a_file_is_unchanged_as_long_as_its_content_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zone");
        fs::write(&path, "first").unwrap();
        let mut sources = sources(&path);
        assert!(sources.are_unchanged());
        // The same content in another file.
        fs::write(folder.path().join("b.zone"), "first").unwrap();
        fs::rename(folder.path().join("b.zone"), &path).unwrap();
        assert!(sources.are_unchanged());
        // Another content of the same length.
        fs::write(&path, "other").unwrap();
        assert!(!sources.are_unchanged());
        fs::write(&path, "first").unwrap();
        assert!(sources.are_unchanged());
        fs::remove_file(&path).unwrap();
        assert!(!sources.are_unchanged());
    }

    #[test]
    fn an_old_file_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zone");
        fs::write(&path, "first").unwrap();
        let mut sources = sources(&path);
        // As if the times were old: then equal metadata suffices, whatever the hash.
        let stamp = Stamp { is_settled: true, ..Stamp::new(&fs::metadata(&path).unwrap()) };
        sources.files[0].1 = stamp;
        sources.hash = 0;
        assert!(Stamp::new(&fs::metadata(&path).unwrap()) != stamp, "a new file is not settled");
        assert!(!sources.are_unchanged(), "and its content is compared");
    }
}
