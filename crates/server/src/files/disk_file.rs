//! A file on disk that is sent from its descriptor: which version of it was opened, and which parts are in the page
//! cache.

use crate::clock::Milliseconds;
use sanderling_os::file::{CHECKED_BYTES_MAX, File, Metadata};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Parts of a file for which it is recorded whether they are in the page cache.
const WINDOW_BYTES: u64 = CHECKED_BYTES_MAX as u64;
/// How long content that was found in the page cache is taken to be there still.
const CACHED_FOR_MS: Milliseconds = 5_000;
/// Bytes at the end of a file that are compared when it has grown. A rewritten file differs there: insertions or
/// removals before them move them.
const TAIL_BYTES_MAX: usize = 1024;
/// Bytes that are read in one step to bring them into the page cache.
const READ_BYTES: usize = 64 * 1024;

/// An open file. Workers touch only content that [`DiskFile::cached_bytes`] reports; the rest is read by a thread that
/// may wait.
#[derive(Debug)]
pub(crate) struct DiskFile {
    file: File,
    /// When it was opened.
    metadata: Metadata,
    /// Its last bytes then, by which an append is told from another change; empty if they were not in the page cache.
    tail: Box<[u8]>,
    /// Until when each window is taken to be in the page cache.
    cached_until_ms: Box<[AtomicU64]>,
    /// It is on a network or user-space file system: each call may have to wait, whatever is in the page cache.
    is_remote: bool,
}

/// The result of a read by a thread that may wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadResult {
    /// The window is in the page cache now.
    Cached,
    /// The content itself: the page cache of this file system does not prevent a wait.
    Bytes(Vec<u8>),
    /// The file has changed.
    FileChanged,
}

#[cfg(any(test, feature = "simulation"))]
std::thread_local! {
    /// Whether the page cache of a simulation is empty: the content of the machine's page cache depends on everything
    /// that runs there.
    pub(crate) static HAS_EMPTY_PAGE_CACHE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl DiskFile {
    pub(crate) fn new(file: File, metadata: Metadata) -> DiskFile {
        let is_remote = file.is_remote().unwrap_or(true);
        let window_count = metadata.length_bytes.div_ceil(WINDOW_BYTES);
        let cached_until_ms = (0..window_count).map(|_| AtomicU64::new(0)).collect();
        let tail = if is_remote { None } else { cached_tail(&file, metadata.length_bytes) };
        // Only the tail of this version.
        let tail = tail.filter(|_| file.metadata().is_ok_and(|now| now == metadata)).unwrap_or_default();
        DiskFile { file, metadata, tail, cached_until_ms, is_remote }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Identifies the file beyond this descriptor: device and inode.
    pub(crate) fn id(&self) -> (u64, u64) {
        (self.metadata.device, self.metadata.inode)
    }

    /// How many bytes from `offset` on, up to `length_bytes`, can be read without a wait for a disk: they were in the
    /// page cache a moment ago.
    pub(crate) fn cached_bytes(&self, offset: u64, length_bytes: u64, now_ms: Milliseconds) -> u64 {
        if self.is_remote {
            return 0;
        }
        #[cfg(any(test, feature = "simulation"))]
        if HAS_EMPTY_PAGE_CACHE.get() {
            return 0;
        }
        let mut end = offset;
        while end < offset + length_bytes {
            let index = window_index(end);
            if self.cached_until_ms[index].load(Ordering::Relaxed) <= now_ms {
                let (start, window_bytes) = self.window(index);
                if end > offset || !self.file.is_cached(start, window_bytes) {
                    break;
                }
                self.set_cached(offset, now_ms);
            }
            end = (index as u64 + 1) * WINDOW_BYTES;
        }
        end.min(offset + length_bytes) - offset
    }

    /// Records that the window of `offset` is in the page cache.
    pub(crate) fn set_cached(&self, offset: u64, now_ms: Milliseconds) {
        self.cached_until_ms[window_index(offset)].store(now_ms + CACHED_FOR_MS, Ordering::Relaxed);
    }

    /// Brings the window of `offset` into the page cache, or returns the next `length_bytes` where that does not
    /// prevent a wait; `is_end`: the response ends with them. May wait for a disk.
    pub(crate) fn read(&self, offset: u64, length_bytes: usize, is_end: bool) -> io::Result<ReadResult> {
        if self.is_remote {
            let mut bytes = vec![0; length_bytes];
            let is_whole = self.file.read_at(&mut bytes, offset)? == length_bytes;
            let is_changed = !is_whole || (is_end && !self.is_unchanged());
            return Ok(if is_changed { ReadResult::FileChanged } else { ReadResult::Bytes(bytes) });
        }
        let (mut start, mut remaining_bytes) = self.window(window_index(offset));
        let mut buffer = vec![0; READ_BYTES.min(remaining_bytes)];
        while remaining_bytes > 0 {
            let part = READ_BYTES.min(remaining_bytes);
            if self.file.read_at(&mut buffer[..part], start)? != part {
                return Ok(ReadResult::FileChanged);
            }
            start += part as u64;
            remaining_bytes -= part;
        }
        Ok(ReadResult::Cached)
    }

    /// Whether the bytes up to the announced length are still those of the version that the head was made for. A file
    /// that was unlinked, got another hard link, or was only appended to still has them; one that was renamed or got
    /// another mode counts as changed, since that looks like a write whose time was set back.
    pub(crate) fn is_unchanged(&self) -> bool {
        let before = &self.metadata;
        self.file.metadata().is_ok_and(|now| {
            if now.length_bytes > before.length_bytes {
                return self.has_same_tail();
            }
            // The number of links changes the inode's time too, and not the content.
            let has_other_links = now.link_count != before.link_count;
            (now.length_bytes, now.modified) == (before.length_bytes, before.modified)
                && (now.changed == before.changed || has_other_links)
        })
    }

    /// Whether the file, which has grown, has the same bytes before its former end.
    #[cold]
    fn has_same_tail(&self) -> bool {
        !self.tail.is_empty() && cached_tail(&self.file, self.metadata.length_bytes).is_some_and(|now| now == self.tail)
    }

    /// Whether the file was unlinked, if that is known without a wait.
    pub(crate) fn is_deleted(&self) -> bool {
        !self.is_remote && self.file.metadata().is_ok_and(|now| now.link_count == 0)
    }

    /// Start and length of a window.
    fn window(&self, index: usize) -> (u64, usize) {
        let start = index as u64 * WINDOW_BYTES;
        (start, (self.metadata.length_bytes - start).min(WINDOW_BYTES) as usize)
    }
}

/// The last bytes before `length_bytes`; `None` if they are not in the page cache, or the file is shorter.
pub(crate) fn cached_tail(file: &File, length_bytes: u64) -> Option<Box<[u8]>> {
    let count = length_bytes.min(TAIL_BYTES_MAX as u64);
    let mut tail = vec![0; count as usize];
    let read = file.read_at_cached(&mut tail, length_bytes - count).ok()??;
    (read == tail.len()).then(|| tail.into_boxed_slice())
}

fn window_index(offset: u64) -> usize {
    (offset / WINDOW_BYTES) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_os::directory::Directory;

    const BYTES: usize = 2 * CHECKED_BYTES_MAX + 100;

    fn with_file(act: impl FnOnce(DiskFile, &std::path::Path)) {
        let directory = tempfile::tempdir().expect("made");
        let path = directory.path().join("file");
        std::fs::write(&path, vec![b'x'; BYTES]).expect("written");
        let file = Directory::open(directory.path()).expect("opened").open_beneath(b"file").expect("opened");
        let metadata = file.metadata().expect("fstat");
        act(DiskFile::new(file, metadata), &path);
    }

    #[test]
    fn content_is_cached_for_a_time_after_it_was_read() {
        with_file(|file, _| {
            let (last, all) = (BYTES as u64 - 1, BYTES as u64);
            for offset in [0, WINDOW_BYTES, last] {
                assert_eq!(file.read(offset, 1, true).expect("read"), ReadResult::Cached);
                file.set_cached(offset, 10);
            }
            assert_eq!(file.cached_bytes(0, all, 10), all);
            assert_eq!(file.cached_bytes(5, 7, 9 + CACHED_FOR_MS), 7);
            assert_eq!(file.cached_bytes(last, 1, 9 + CACHED_FOR_MS), 1);
            // One window is checked at a time.
            let found = file.cached_bytes(1, all - 1, 10 + CACHED_FOR_MS);
            assert!(found == 0 || found == WINDOW_BYTES - 1, "{found}");
        });
    }

    #[test]
    fn content_of_a_remote_file_is_never_cached_and_its_version_is_checked_at_the_end() {
        with_file(|file, path| {
            let file = DiskFile { is_remote: true, ..file };
            assert_eq!(file.cached_bytes(0, 1, 0), 0);
            assert_eq!(file.read(0, 3, true).expect("read"), ReadResult::Bytes(b"xxx".to_vec()));
            std::fs::write(path, vec![b'y'; BYTES]).expect("written");
            assert_eq!(file.read(0, 3, false).expect("read"), ReadResult::Bytes(b"yyy".to_vec()));
            assert_eq!(file.read(0, 3, true).expect("read"), ReadResult::FileChanged);
            std::fs::write(path, "y").expect("written");
            assert_eq!(file.read(0, 3, false).expect("read"), ReadResult::FileChanged);
        });
    }
}
