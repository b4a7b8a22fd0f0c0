//! An open file: its metadata, and its content copied to memory or to a socket.

use crate::counters::{Syscall, count};
use crate::fallback::{Feature, Variant};
use crate::tcp::{More, Stream};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

/// The calls that read the metadata of an open file. `fstat` is cheaper than `newfstatat` and `statx` with an empty
/// path, which the kernel copies and examines.
pub static STAT: Feature = Feature::new(
    "stat",
    &[Variant { name: "fstat", is_supported: || true }, Variant { name: "statx", is_supported: statx_is_supported }],
);

const BY_FSTAT: usize = 0;

/// The calls that send file content to a socket. Where `sendfile` is missing or a file system does not support it, the
/// content is copied through user space.
pub static SENDFILE: Feature = Feature::new(
    "sendfile",
    &[
        Variant { name: "sendfile", is_supported: sendfile_is_supported },
        Variant { name: "copy", is_supported: || true },
    ],
);

const BY_SENDFILE: usize = 0;
/// Bytes read and sent in one step without `sendfile`.
const COPIED_BYTES: usize = 32 * 1024;

/// The calls that check whether file content is in the page cache. `cachestat` would be cheaper than a read, but
/// reports only on files that the process may write.
pub static PAGE_CACHE: Feature = Feature::new(
    "page-cache",
    &[Variant { name: "preadv2", is_supported: preadv2_is_supported }, Variant { name: "none", is_supported: || true }],
);

const BY_PREADV2: usize = 0;
/// Bytes that [`File::is_cached`] copies in one step: few enough to stay in the cache of the processor.
const CHECK_BYTES: usize = 64 * 1024;
/// Bytes that [`File::is_cached`] can check.
pub const CHECKED_BYTES_MAX: usize = 16 * CHECK_BYTES;

/// Opening must not block on a FIFO without a writer, nor acquire a controlling terminal.
pub(crate) const OPEN_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A time in a file's metadata, by the clock of its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// Nanoseconds of that second.
    pub nanoseconds: u32,
}

/// A file's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A FIFO, a socket, a device.
    Other,
}

/// A file's metadata. Equal metadata means unchanged content, if the file system shows each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The type.
    pub file_type: FileType,
    /// The length of its content.
    pub length_bytes: u64,
    /// The last change of its content (`st_mtime`).
    pub modified: Timestamp,
    /// The last change of its content or inode (`st_ctime`), which programs cannot set.
    pub changed: Timestamp,
    /// The inode number.
    pub inode: u64,
    /// The device of its file system, in the kernel's packed form.
    pub device: u64,
    /// Number of links to the inode; 0 if it is deleted and exists only while it is open.
    pub link_count: u64,
}

/// An open file or directory.
#[derive(Debug)]
pub struct File(OwnedFd);

impl File {
    pub(crate) fn new(descriptor: OwnedFd) -> File {
        File(descriptor)
    }

    /// The metadata of the open file, whatever its path leads to now.
    pub fn metadata(&self) -> io::Result<Metadata> {
        metadata(&self.0)
    }

    /// The whole content, of at most `bytes_max`.
    ///
    /// # Errors
    /// Returns an error if the file is longer, or cannot be read.
    pub fn read_all(&self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let length_bytes = self.metadata()?.length_bytes;
        if length_bytes > bytes_max {
            return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
        }
        let mut content = vec![0; length_bytes as usize];
        let length = self.read_at(&mut content, 0)?;
        content.truncate(length);
        Ok(content)
    }

    /// Reads at `offset` until `into` is full or the file ends, and returns the number of bytes.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        read_at(&self.0, into, offset)
    }

    /// As [`File::read_at`], but only from the page cache: `Ok(None)` if that needs a disk, or if the kernel cannot
    /// tell.
    pub fn read_at_cached(&self, into: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        if PAGE_CACHE.selected() != BY_PREADV2 {
            return Ok(None);
        }
        let mut filled = 0;
        while filled < into.len() {
            count(Syscall::Preadv2);
            let buffer = &mut [io::IoSliceMut::new(&mut into[filled..])];
            match rustix::io::preadv2(&self.0, buffer, offset + filled as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                // EOPNOTSUPP: a file system without support for RWF_NOWAIT.
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Some(filled))
    }

    /// Whether `length_bytes` from `offset` on, at most [`CHECKED_BYTES_MAX`], are in the page cache. `false` as well
    /// if the kernel cannot tell, as for file systems without support for `RWF_NOWAIT`.
    pub fn is_cached(&self, offset: u64, length_bytes: usize) -> bool {
        debug_assert!(length_bytes <= CHECKED_BYTES_MAX);
        if PAGE_CACHE.selected() != BY_PREADV2 {
            return false;
        }
        count(Syscall::Preadv2);
        let mut discarded = [const { MaybeUninit::<u8>::uninit() }; CHECK_BYTES];
        let mut parts = [libc::iovec { iov_base: discarded.as_mut_ptr().cast(), iov_len: CHECK_BYTES };
            CHECKED_BYTES_MAX / CHECK_BYTES];
        let part_count = length_bytes.div_ceil(CHECK_BYTES).min(parts.len());
        if let Some(last) = parts[..part_count].last_mut() {
            last.iov_len = length_bytes - (part_count - 1) * CHECK_BYTES;
        }
        // SAFETY: each part is `discarded`, which lives and is borrowed by nothing else during the call. The kernel
        // writes one part after the other, and nothing reads them.
        let read = unsafe {
            libc::preadv2(
                self.0.as_raw_fd(),
                parts.as_ptr(),
                part_count as libc::c_int,
                offset as libc::off_t,
                libc::RWF_NOWAIT,
            )
        };
        usize::try_from(read).is_ok_and(|read| read == length_bytes)
    }

    /// Waits until a write that is in progress has ended. A write changes the file's times when it begins, and has the
    /// lock of the inode until it ends; where a file system knows holes, the search for one takes that lock. XFS does
    /// not take it, but there a read waits for the write.
    pub fn wait_for_write(&self) {
        count(Syscall::Lseek);
        // ENXIO: the file is empty.
        let _ = rustix::fs::seek(&self.0, rustix::fs::SeekFrom::Hole(0));
    }

    /// Whether the file is on a network or user-space file system, where each call may have to wait. This one too.
    pub fn is_remote(&self) -> io::Result<bool> {
        is_remote(&self.0)
    }

    /// The path of the file without symbolic links, if this process can see it.
    pub fn real_path(&self) -> io::Result<std::path::PathBuf> {
        real_path(&self.0)
    }

    /// Sends up to `length_bytes` from `offset` on and advances `offset` by the bytes sent. `Ok(0)` means that the file
    /// ends at `offset`, `WouldBlock` that the socket's send buffer is full.
    pub fn send_to(&self, stream: &Stream, offset: &mut u64, length_bytes: usize) -> io::Result<usize> {
        while SENDFILE.selected() == BY_SENDFILE {
            count(Syscall::Sendfile);
            match rustix::fs::sendfile(stream, &self.0, Some(offset), length_bytes) {
                Err(Errno::INTR) => {}
                // EINVAL: a file system without support (sendfile(2)).
                Err(Errno::INVAL | Errno::NOSYS) => break,
                result => return Ok(result?),
            }
        }
        let mut buffer = [0; COPIED_BYTES];
        let wanted_bytes = length_bytes.min(COPIED_BYTES);
        let read = self.read_at(&mut buffer[..wanted_bytes], *offset)?;
        if read == 0 {
            return Ok(0);
        }
        let more = if read < length_bytes { More::Yes } else { More::No };
        let sent = stream.send(&buffer[..read], more)?;
        *offset += sent as u64;
        Ok(sent)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        count(Syscall::Close);
    }
}

/// [`File::read_at`]
pub(crate) fn read_at(descriptor: impl AsFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < into.len() {
        count(Syscall::Pread64);
        match rustix::io::pread(&descriptor, &mut into[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

/// Opens the file at `path` for reading, without blocking if it is a FIFO.
pub fn open_nonblocking(path: &std::path::Path) -> io::Result<std::fs::File> {
    count(Syscall::Openat);
    let file = rustix::fs::open(path, OPEN_FLAGS, Mode::empty())?;
    Ok(file.into())
}

/// Opens the regular file at `path` for reading. Anything else there is an error, and not waited for.
pub fn open_regular(path: &std::path::Path) -> io::Result<std::fs::File> {
    regular(open_nonblocking(path)?)
}

/// As [`open_regular`], but a link is an error too (`ELOOP`): for a folder that another user can write.
pub fn open_regular_without_link(path: &std::path::Path) -> io::Result<std::fs::File> {
    count(Syscall::Openat);
    let file = rustix::fs::open(path, OPEN_FLAGS | OFlags::NOFOLLOW, Mode::empty())?;
    regular(file.into())
}

fn regular(file: std::fs::File) -> io::Result<std::fs::File> {
    let is_regular = file.metadata()?.is_file();
    if is_regular { Ok(file) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")) }
}

/// Whether this process's user may read the file at `path`, or search and list the directory. Landlock is not asked:
/// outside its sandbox, the process could.
pub fn is_permitted(path: &std::path::Path) -> bool {
    count(Syscall::Faccessat);
    rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::READ_OK, AtFlags::empty()).is_ok()
}

/// Whether this process's user may write the file at `path`, or create files in the directory. Landlock is not asked.
pub fn is_writable(path: &std::path::Path) -> bool {
    count(Syscall::Faccessat);
    rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::WRITE_OK, AtFlags::empty()).is_ok()
}

/// Bytes that this process's user can still write to the file system with the file or directory at `path`.
pub fn free_bytes(path: &std::path::Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The magic numbers of NFS, SMB (two), FUSE, 9P, AFS, Ceph, Coda, OCFS2 and GFS2 (statfs(2)).
const REMOTE_FILE_SYSTEMS: [u32; 10] = [
    0x6969,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x0102_1997,
    0x5346_414f,
    0x00c3_6400,
    0x7375_7245,
    0x7461_636f,
    0x0116_1970,
];

/// Whether an open file or directory is on a network or user-space file system.
pub(crate) fn is_remote(descriptor: &OwnedFd) -> io::Result<bool> {
    count(Syscall::Fstatfs);
    let kind = rustix::fs::fstatfs(descriptor)?.f_type as u32;
    Ok(REMOTE_FILE_SYSTEMS.contains(&kind))
}

/// The path of an open file or directory without symbolic links.
pub(crate) fn real_path(descriptor: &OwnedFd) -> io::Result<std::path::PathBuf> {
    count(Syscall::Readlinkat);
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok(std::ffi::OsString::from_vec(path.into_bytes()).into())
}

/// The metadata of an open file or directory, by the selected variant.
pub(crate) fn metadata(descriptor: &OwnedFd) -> io::Result<Metadata> {
    if STAT.selected() == BY_FSTAT { metadata_by_fstat(descriptor) } else { metadata_by_statx(descriptor) }
}

fn metadata_by_fstat(descriptor: &OwnedFd) -> io::Result<Metadata> {
    count(Syscall::Fstat);
    let stat = rustix::fs::fstat(descriptor)?;
    Ok(Metadata {
        file_type: FileType::from_raw(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        length_bytes: stat.st_size as u64,
        modified: Timestamp { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
        changed: Timestamp { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 },
        inode: stat.st_ino,
        device: stat.st_dev,
        link_count: stat.st_nlink,
    })
}

/// Only the fields of [`Metadata`] are requested, which may save a network file system a request.
const STATX_FIELDS: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::SIZE)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::INO)
    .union(StatxFlags::NLINK);

fn metadata_by_statx(descriptor: &OwnedFd) -> io::Result<Metadata> {
    count(Syscall::Statx);
    let stat = rustix::fs::statx(descriptor, "", AtFlags::EMPTY_PATH, STATX_FIELDS)?;
    let timestamp = |time: rustix::fs::StatxTimestamp| Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    Ok(Metadata {
        file_type: FileType::from_raw(rustix::fs::FileType::from_raw_mode(u32::from(stat.stx_mode))),
        length_bytes: stat.stx_size,
        modified: timestamp(stat.stx_mtime),
        changed: timestamp(stat.stx_ctime),
        inode: stat.stx_ino,
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        link_count: u64::from(stat.stx_nlink),
    })
}

/// Sends nothing from a directory: only ENOSYS means that the call is missing.
fn sendfile_is_supported() -> bool {
    let root = rustix::fs::open("/", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    root.is_ok_and(|root| rustix::fs::sendfile(&root, &root, None, 0) != Err(Errno::NOSYS))
}

/// Reads from a directory: only ENOSYS means that the call is missing.
fn preadv2_is_supported() -> bool {
    let root = rustix::fs::open("/", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    root.is_ok_and(|root| {
        let buffer = &mut [io::IoSliceMut::new(&mut [])];
        rustix::io::preadv2(&root, buffer, 0, ReadWriteFlags::NOWAIT) != Err(Errno::NOSYS)
    })
}

fn statx_is_supported() -> bool {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    root.is_ok_and(|root| metadata_by_statx(&root).is_ok())
}

impl FileType {
    pub(crate) fn from_raw(raw: rustix::fs::FileType) -> FileType {
        match raw {
            rustix::fs::FileType::RegularFile => FileType::Regular,
            rustix::fs::FileType::Directory => FileType::Directory,
            _ => FileType::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn every_variant_reads_the_same_metadata() {
        let mut file = tempfile::tempfile().expect("created");
        file.write_all(b"sanderling").expect("written");
        let descriptor = OwnedFd::from(file);
        let metadata = metadata_by_fstat(&descriptor).expect("fstat");
        assert_eq!(metadata, metadata_by_statx(&descriptor).expect("statx"));
        assert_eq!(metadata.length_bytes, 10);
        assert_eq!(metadata.file_type, FileType::Regular);
        assert_eq!(metadata.link_count, 0, "an unnamed file");
    }

    #[test]
    fn content_is_cached_once_it_was_read() {
        const BYTES: usize = 3 * CHECK_BYTES / 2;
        let mut file = tempfile::tempfile().expect("created");
        file.write_all(&[b'x'; BYTES]).expect("written");
        file.sync_all().expect("synced");
        let file = File::new(OwnedFd::from(file));
        // The kernel keeps pages that are still in use.
        assert!((0..10_000).any(|_| {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped from the cache");
            !file.is_cached(0, BYTES)
        }));
        assert_eq!(file.read_at(&mut vec![0; BYTES], 0).expect("read"), BYTES);
        let can_tell = file.read_at_cached(&mut [0], 0).expect("read").is_some();
        assert_eq!(file.is_cached(0, BYTES), can_tell);
        assert_eq!(file.is_cached(7, BYTES - 7), can_tell);
        assert!(!file.is_cached(0, BYTES + 1), "beyond the end");
    }

    #[test]
    fn read_ends_at_the_end_of_the_file() {
        let mut file = tempfile::tempfile().expect("created");
        file.write_all(b"0123456789").expect("written");
        let file = File::new(OwnedFd::from(file));
        let mut into = [0; 16];
        assert_eq!(file.read_at(&mut into, 4).expect("read"), 6);
        assert_eq!(&into[..6], b"456789");
        assert_eq!(file.read_at(&mut into, 10).expect("read"), 0);
    }
}
