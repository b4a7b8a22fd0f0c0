//! Reads the entries of an open directory.

use crate::counters::{Syscall, count};
use crate::file::{File, FileType, Timestamp};
use rustix::fs::{AtFlags, RawDir};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

/// Bytes of entries that one call returns.
const BUFFER_BYTES: usize = 32 * 1024;

/// A name in a directory, with its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The entry's type.
    pub kind: EntryKind,
}

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A symbolic link, which was not followed.
    Link,
    /// Anything else.
    File {
        /// The entry's type.
        file_type: FileType,
        /// The length of its content.
        length_bytes: u64,
        /// The last change of its content (`st_mtime`).
        modified: Timestamp,
    },
}

impl File {
    /// A directory's entries, in no order: at most `count_max` entries for whose names `is_included` holds, and whether
    /// there are more. `.` and `..` are none. May wait for a disk.
    pub fn entries(
        &self,
        count_max: usize,
        mut is_included: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<(Vec<DirectoryEntry>, bool)> {
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; BUFFER_BYTES];
        let mut entries = Vec::new();
        let mut reader = RawDir::new(self.as_fd(), &mut buffer);
        loop {
            if reader.is_buffer_empty() {
                count(Syscall::Getdents64);
            }
            let Some(entry) = reader.next() else { return Ok((entries, false)) };
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") || !is_included(name.to_bytes()) {
                continue;
            }
            count(Syscall::Newfstatat);
            let stat = match rustix::fs::statat(self.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // The entry was removed meanwhile.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if entries.len() == count_max {
                return Ok((entries, true));
            }
            let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
                rustix::fs::FileType::Symlink => EntryKind::Link,
                file_type => EntryKind::File {
                    file_type: FileType::from_raw(file_type),
                    length_bytes: stat.st_size as u64,
                    modified: Timestamp { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
                },
            };
            entries.push(DirectoryEntry { name: name.to_bytes().to_vec(), kind });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Directory;
    use std::os::unix::fs::symlink;

    #[test]
    fn entries_are_read_with_their_kind_and_up_to_a_number() {
        let tree = tempfile::tempdir().expect("created");
        std::fs::create_dir_all(tree.path().join("a/directory")).expect("created");
        std::fs::write(tree.path().join("a/file"), "1234567").expect("written");
        std::fs::write(tree.path().join("a/.hidden"), "").expect("written");
        symlink("file", tree.path().join("a/link")).expect("linked");
        let root = Directory::open(tree.path()).expect("opened");
        let directory = |path: &[u8]| root.open_beneath(path).expect("opened");
        let read = |count_max| directory(b"a").entries(count_max, |name| name != b".hidden").expect("read");
        let (mut entries, has_more) = read(3);
        entries.sort_by(|left, right| left.name.cmp(&right.name));
        let names: Vec<_> = entries.iter().map(|entry| str::from_utf8(&entry.name).expect("text")).collect();
        assert_eq!((names, has_more), (vec!["directory", "file", "link"], false));
        assert!(matches!(entries[0].kind, EntryKind::File { file_type: FileType::Directory, .. }));
        assert!(matches!(entries[1].kind, EntryKind::File { file_type: FileType::Regular, length_bytes: 7, .. }));
        assert_eq!(entries[2].kind, EntryKind::Link);
        let (entries, has_more) = read(2);
        assert_eq!((entries.len(), has_more), (2, true));
        assert_eq!(directory(b".").entries(10, |_| true).expect("read").0.len(), 1);
        directory(b"a/file").entries(10, |_| true).expect_err("not a directory");
    }

    #[test]
    fn a_directory_with_more_entries_than_the_buffer_holds_is_read_whole() {
        let tree = tempfile::tempdir().expect("created");
        for number in 0..2_000 {
            std::fs::write(tree.path().join(format!("a-name-of-some-length-{number}")), "").expect("written");
        }
        let root = Directory::open(tree.path()).expect("opened");
        let (entries, has_more) = root.open_beneath(b".").expect("opened").entries(2_000, |_| true).expect("read");
        assert_eq!((entries.len(), has_more), (2_000, false));
    }
}
