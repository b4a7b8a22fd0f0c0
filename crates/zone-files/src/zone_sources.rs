//! The files that a zone was read from, and whether they still have the same content.

use sanderling_dns::change_log;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Minimum age in seconds of a file's last change for an equal time to mean an unchanged file: file systems round
/// times, so two changes in quick succession can have the same time.
const TIMESTAMP_GRANULARITY_S: i64 = 2;

/// A zone's files, in the order in which they were read.
#[derive(Clone, Debug, Default)]
pub struct ZoneSources {
    files: Vec<SourceFile>,
    /// Files that would have been read, but did not exist.
    absent: Vec<PathBuf>,
    /// A hash of the content of all files.
    hash: u64,
}

/// The metadata by `stat` of a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStat {
    device: u64,
    inode: u64,
    length_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A file of a zone, as it was read.
#[derive(Clone, Debug)]
struct SourceFile {
    path: PathBuf,
    stat: FileStat,
    /// No other version can have the same times: the last change was long enough ago.
    has_unique_times: bool,
}

/// The text of all files of a zone.
#[derive(Debug)]
pub struct ZoneText {
    /// A hash of the content.
    pub hash: u64,
    /// Path and length of each file, in the order in which they were read.
    pub files: Vec<(String, u64)>,
    /// The texts of the files in order; `None` if they are too long.
    pub content: Option<Vec<u8>>,
    /// Whether each file ends with a newline.
    pub ends_with_newline: bool,
}

/// Collects a zone's files while it is read.
#[derive(Debug)]
pub(crate) struct ZoneSourcesBuilder {
    files: Vec<SourceFile>,
    absent: Vec<PathBuf>,
    hasher: DefaultHasher,
    text: ZoneText,
    /// Bytes of `text` that are collected at most.
    content_bytes_max: u64,
}

impl ZoneSourcesBuilder {
    /// A builder that collects the text if it has at most `content_bytes_max`.
    pub(crate) fn new(content_bytes_max: u64) -> ZoneSourcesBuilder {
        let text = ZoneText { hash: 0, files: Vec::new(), content: Some(Vec::new()), ends_with_newline: true };
        ZoneSourcesBuilder {
            files: Vec::new(),
            absent: Vec::new(),
            hasher: DefaultHasher::new(),
            text,
            content_bytes_max,
        }
    }

    /// Adds a file, with its metadata from before it was read.
    pub(crate) fn add(&mut self, path: &Path, metadata: &Metadata, text: &[u8]) {
        let stat = FileStat::new(metadata);
        self.files.push(SourceFile {
            path: path.to_owned(),
            stat,
            has_unique_times: stat.has_unique_times(SystemTime::now()),
        });
        self.hasher.write(text);
        self.hasher.write_usize(text.len());
        self.text.files.push((path.to_string_lossy().into_owned(), text.len() as u64));
        let is_text = !text.starts_with(&change_log::HEAD);
        self.text.ends_with_newline &= !is_text || text.last().is_none_or(|last| *last == b'\n');
        let max = self.content_bytes_max;
        self.text.content = self.text.content.take().filter(|content| (content.len() + text.len()) as u64 <= max);
        if let Some(content) = &mut self.text.content {
            content.extend_from_slice(text);
        }
    }

    /// Adds a file that would have been read, but does not exist.
    pub(crate) fn add_absent(&mut self, path: PathBuf) {
        self.absent.push(path);
    }

    pub(crate) fn build(self) -> (ZoneSources, ZoneText) {
        let hash = self.hasher.finish();
        (ZoneSources { files: self.files, absent: self.absent, hash }, ZoneText { hash, ..self.text })
    }
}

impl ZoneSources {
    /// The paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Whether all files have the content that they had. The files are read only if `stat` does not show this.
    pub fn are_unchanged(&mut self) -> bool {
        let is_same = |file: &SourceFile| {
            file.has_unique_times
                && fs::metadata(&file.path).is_ok_and(|metadata| FileStat::new(&metadata) == file.stat)
        };
        let are_absent = self.absent.iter().all(|path| !path.exists());
        are_absent && (self.files.iter().all(is_same) || self.have_same_content())
    }

    fn have_same_content(&mut self) -> bool {
        let mut builder = ZoneSourcesBuilder::new(0);
        for SourceFile { path, stat, .. } in &self.files {
            let Ok(metadata) = fs::metadata(path) else { return false };
            // A different length means different content; only a regular file is read.
            if !metadata.is_file() || metadata.len() != stat.length_bytes {
                return false;
            }
            let read: io::Result<Vec<u8>> = fs::read(path);
            let Ok(text) = read else { return false };
            builder.add(path, &metadata, &text);
        }
        let (now, _) = builder.build();
        let is_same = now.hash == self.hash;
        if is_same {
            *self = ZoneSources { absent: std::mem::take(&mut self.absent), ..now };
        }
        is_same
    }
}

impl FileStat {
    fn new(metadata: &Metadata) -> FileStat {
        FileStat {
            device: metadata.dev(),
            inode: metadata.ino(),
            length_bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether the last change is old enough at `now` that a later change has a different time.
    fn has_unique_times(&self, now: SystemTime) -> bool {
        let newest_s = self.modified.0.max(self.changed.0);
        now.duration_since(SystemTime::UNIX_EPOCH)
            .is_ok_and(|since| since.as_secs().cast_signed() > newest_s.saturating_add(TIMESTAMP_GRANULARITY_S))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(path: &Path) -> ZoneSources {
        let mut builder = ZoneSourcesBuilder::new(0);
        builder.add(path, &fs::metadata(path).unwrap(), &fs::read(path).unwrap());
        builder.build().0
    }

    #[test]
    fn a_file_is_unchanged_as_long_as_its_content_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zone");
        fs::write(&path, "first").unwrap();
        let mut sources = sources(&path);
        assert!(sources.are_unchanged());
        // Another file has the same content.
        fs::write(folder.path().join("b.zone"), "first").unwrap();
        fs::rename(folder.path().join("b.zone"), &path).unwrap();
        assert!(sources.are_unchanged());
        // The file has different content of the same length.
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
        assert!(!sources.files[0].has_unique_times, "a file of this second");
        sources.hash = 0;
        assert!(!sources.are_unchanged(), "the content is compared");
        // The file is treated as old: its metadata suffices, whatever the hash.
        sources.files[0].has_unique_times = true;
        assert!(sources.are_unchanged());
    }
}
