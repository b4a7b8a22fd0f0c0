//! An open regular file: its facts by one call, its content into memory or into a socket.

use crate::counters::{Syscall, count};
use crate::fallback::{Feature, Variant};
use crate::tcp::{More, Stream};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

/// How the facts of an open file are asked for. `newfstatat` and `statx` with an empty path cost 10 to 20 % more than
/// `fstat`, since the kernel copies and examines the path.
pub static STAT: Feature = Feature::new(
    "stat",
    &[
        Variant { name: "fstat", is_supported: || true },
        Variant { name: "statx", is_supported: statx_without_path_is_there },
    ],
);

const BY_FSTAT: usize = 0;

/// How the content of an open file gets into a socket. `sendfile` passes the kernel's own pages on; where it is missing
/// or a file system does not know it, the content is read and sent.
pub static SENDFILE: Feature = Feature::new(
    "sendfile",
    &[Variant { name: "sendfile", is_supported: sendfile_is_there }, Variant { name: "copy", is_supported: || true }],
);

const BY_SENDFILE: usize = 0;
/// Octets that are read and sent at once without `sendfile`.
const COPIED_BYTES: usize = 32 * 1024;

/// Not blocking: a FIFO without a writer would hold the caller for ever, and a terminal might become ours.
pub(crate) const OPEN_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A moment of a file, in the clock of its file system: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: i64,
    /// Nanoseconds of that second.
    pub nanoseconds: u32,
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A folder.
    Directory,
    /// A FIFO, a socket, a device.
    Other,
}

/// What is known of a file without reading it. Equal facts mean that the content has not changed, as far as the file
/// system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub file_type: FileType,
    /// Octets.
    pub length_bytes: u64,
    /// The last change of its content (`st_mtime`).
    pub modified: Timestamp,
    /// The last change of its content or of its inode (`st_ctime`), which no program can set back.
    pub changed: Timestamp,
    /// The inode.
    pub inode: u64,
    /// The device of the inode, in the kernel's packed form.
    pub device: u64,
    /// Names that the inode has; 0: deleted, and alive only because somebody holds it open.
    pub link_count: u64,
}

/// An open file or folder.
#[derive(Debug)]
pub struct File(OwnedFd);

impl File {
    pub(crate) fn new(descriptor: OwnedFd) -> File {
        File(descriptor)
    }

    /// Its facts, from the descriptor itself: they belong to the content that a read will see.
    pub fn metadata(&self) -> io::Result<Metadata> {
        metadata(&self.0)
    }

    /// Reads at `offset` until `into` is full or the file ends; the octets read.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            count(Syscall::Pread64);
            match rustix::io::pread(&self.0, &mut into[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(filled)
    }

    /// As [`File::read_at`], from what the kernel has in memory alone: `Ok(None)` when it would have to ask a disk, or
    /// when it cannot tell.
    pub fn read_at_cached(&self, into: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let mut filled = 0;
        while filled < into.len() {
            count(Syscall::Preadv2);
            let room = &mut [io::IoSliceMut::new(&mut into[filled..])];
            match rustix::io::preadv2(&self.0, room, offset + filled as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                // EOPNOTSUPP: a file system that knows no such reading.
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Some(filled))
    }

    /// Where the file really is, every link on the way to it resolved; as far as this process can tell.
    pub fn real_path(&self) -> io::Result<std::path::PathBuf> {
        real_path(&self.0)
    }

    /// Sends up to `length_bytes` from `offset` on, which moves on by the octets sent; `Ok(0)` when the file ends
    /// before, `WouldBlock` when the stream takes no more for now.
    pub fn send_to(&self, stream: &Stream, offset: &mut u64, length_bytes: usize) -> io::Result<usize> {
        while SENDFILE.selected() == BY_SENDFILE {
            count(Syscall::Sendfile);
            match rustix::fs::sendfile(stream, &self.0, Some(offset), length_bytes) {
                Err(Errno::INTR) => {}
                // sendfile(2): this file system cannot be sent from.
                Err(Errno::INVAL | Errno::NOSYS) => break,
                result => return Ok(result?),
            }
        }
        let mut room = [0; COPIED_BYTES];
        let wanted_bytes = length_bytes.min(COPIED_BYTES);
        let read = self.read_at(&mut room[..wanted_bytes], *offset)?;
        if read == 0 {
            return Ok(0);
        }
        let more = if read < length_bytes { More::Yes } else { More::No };
        let sent = stream.send(&room[..read], more)?;
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

/// Opens the file at `path` for a whole reading, without waiting for a writer if it is a FIFO.
pub fn open_nonblocking(path: &std::path::Path) -> io::Result<std::fs::File> {
    count(Syscall::Openat);
    let file = rustix::fs::open(path, OPEN_FLAGS, Mode::empty())?;
    Ok(file.into())
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

/// Whether an open file or folder lies on a file system of the network, or of a program.
pub(crate) fn is_remote(descriptor: &OwnedFd) -> io::Result<bool> {
    count(Syscall::Fstatfs);
    let kind = rustix::fs::fstatfs(descriptor)?.f_type as u32;
    Ok(REMOTE_FILE_SYSTEMS.contains(&kind))
}

/// Where an open file or folder really is.
pub(crate) fn real_path(descriptor: &OwnedFd) -> io::Result<std::path::PathBuf> {
    count(Syscall::Readlinkat);
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok(std::ffi::OsString::from_vec(path.into_bytes()).into())
}

/// The facts of an open file or folder, by the way in use.
pub(crate) fn metadata(descriptor: &OwnedFd) -> io::Result<Metadata> {
    if STAT.selected() == BY_FSTAT { metadata_by_fstat(descriptor) } else { metadata_by_statx(descriptor) }
}

fn metadata_by_fstat(descriptor: &OwnedFd) -> io::Result<Metadata> {
    count(Syscall::Fstat);
    let stat = rustix::fs::fstat(descriptor)?;
    Ok(Metadata {
        file_type: FileType::of(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        length_bytes: stat.st_size as u64,
        modified: Timestamp { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
        changed: Timestamp { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 },
        inode: stat.st_ino,
        device: stat.st_dev,
        link_count: stat.st_nlink,
    })
}

/// The fields of [`Metadata`], and no other: a file system over the network may be spared a question.
const STATX_FIELDS: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::SIZE)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::INO)
    .union(StatxFlags::NLINK);

fn metadata_by_statx(descriptor: &OwnedFd) -> io::Result<Metadata> {
    count(Syscall::Statx);
    let stat = rustix::fs::statx(descriptor, "", AtFlags::EMPTY_PATH, STATX_FIELDS)?;
    let moment = |moment: rustix::fs::StatxTimestamp| Timestamp { seconds: moment.tv_sec, nanoseconds: moment.tv_nsec };
    Ok(Metadata {
        file_type: FileType::of(rustix::fs::FileType::from_raw_mode(u32::from(stat.stx_mode))),
        length_bytes: stat.stx_size,
        modified: moment(stat.stx_mtime),
        changed: moment(stat.stx_ctime),
        inode: stat.stx_ino,
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        link_count: u64::from(stat.stx_nlink),
    })
}

/// Asks to send nothing from nothing: ENOSYS tells that the call is missing.
fn sendfile_is_there() -> bool {
    let root = rustix::fs::open("/", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    root.is_ok_and(|root| rustix::fs::sendfile(&root, &root, None, 0) != Err(Errno::NOSYS))
}

fn statx_without_path_is_there() -> bool {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    root.is_ok_and(|root| metadata_by_statx(&root).is_ok())
}

impl FileType {
    fn of(raw: rustix::fs::FileType) -> FileType {
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
    fn both_ways_tell_the_same_facts() {
        let mut file = tempfile();
        file.write_all(b"sanderling").expect("written");
        let descriptor = OwnedFd::from(file);
        let facts = metadata_by_fstat(&descriptor).expect("fstat");
        assert_eq!(facts, metadata_by_statx(&descriptor).expect("statx"));
        assert_eq!(facts.length_bytes, 10);
        assert_eq!(facts.file_type, FileType::Regular);
        assert_eq!(facts.link_count, 0, "a file without a name");
    }

    #[test]
    fn reading_ends_with_the_file() {
        let mut file = tempfile();
        file.write_all(b"0123456789").expect("written");
        let file = File::new(OwnedFd::from(file));
        let mut into = [0; 16];
        assert_eq!(file.read_at(&mut into, 4).expect("read"), 6);
        assert_eq!(&into[..6], b"456789");
        assert_eq!(file.read_at(&mut into, 10).expect("read"), 0);
    }

    fn tempfile() -> std::fs::File {
        let options = OFlags::TMPFILE | OFlags::RDWR;
        let file = rustix::fs::open(std::env::temp_dir(), options, Mode::RUSR | Mode::WUSR);
        std::fs::File::from(file.expect("a file without a name"))
    }
}
