//! Other calls that ask for the facts of an open file: `newfstatat` and `statx` with an empty path or none.

use crate::counters::{Syscall, count};
use crate::file::{FileType, Metadata, Timestamp};
use rustix::fs::{AtFlags, Stat, StatxFlags};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// `newfstatat(fd, "", AT_EMPTY_PATH)`: what `fstat` of glibc 2.33 to 2.38 really was.
#[inline]
pub fn by_newfstatat_of_empty_path(descriptor: impl AsFd) -> io::Result<Metadata> {
    count(Syscall::Fstat);
    Ok(metadata(&rustix::fs::statat(descriptor, c"", AtFlags::EMPTY_PATH)?))
}

/// `newfstatat(fd, NULL, AT_EMPTY_PATH)` (Linux 6.11): no path to copy.
#[inline]
pub fn by_newfstatat_without_path(descriptor: impl AsFd) -> io::Result<Metadata> {
    count(Syscall::Fstat);
    let mut stat = MaybeUninit::<Stat>::uninit();
    // SAFETY: the kernel writes a whole `stat` into room of its size, or gives an error; a null path is no memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_newfstatat,
            descriptor.as_fd().as_raw_fd(),
            std::ptr::null::<libc::c_char>(),
            stat.as_mut_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so that every octet was written.
    Ok(metadata(unsafe { stat.assume_init_ref() }))
}

/// `statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME)`: what the standard library's `metadata` does.
#[inline]
pub fn by_statx_of_everything(descriptor: impl AsFd) -> io::Result<Metadata> {
    count(Syscall::Statx);
    let fields = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = rustix::fs::statx(descriptor, c"", AtFlags::EMPTY_PATH, fields)?;
    let moment = |moment: rustix::fs::StatxTimestamp| Timestamp { seconds: moment.tv_sec, nanoseconds: moment.tv_nsec };
    Ok(Metadata {
        file_type: kind(rustix::fs::FileType::from_raw_mode(u32::from(stat.stx_mode))),
        length_bytes: stat.stx_size,
        modified: moment(stat.stx_mtime),
        changed: moment(stat.stx_ctime),
        inode: stat.stx_ino,
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        link_count: u64::from(stat.stx_nlink),
    })
}

fn metadata(stat: &Stat) -> Metadata {
    Metadata {
        file_type: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        length_bytes: stat.st_size as u64,
        modified: Timestamp { seconds: stat.st_mtime, nanoseconds: stat.st_mtime_nsec as u32 },
        changed: Timestamp { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as u32 },
        inode: stat.st_ino,
        device: stat.st_dev,
        link_count: stat.st_nlink,
    }
}

fn kind(raw: rustix::fs::FileType) -> FileType {
    match raw {
        rustix::fs::FileType::RegularFile => FileType::Regular,
        rustix::fs::FileType::Directory => FileType::Directory,
        _ => FileType::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_tells_what_fstat_tells() {
        let folder =
            crate::directory::Directory::open(std::path::Path::new(env!("CARGO_MANIFEST_DIR"))).expect("there");
        let file = folder.open_beneath(b"Cargo.toml").expect("there");
        let expected = file.metadata().expect("open");
        assert_eq!(by_newfstatat_of_empty_path(&file).expect("open"), expected);
        assert_eq!(by_statx_of_everything(&file).expect("open"), expected);
        match by_newfstatat_without_path(&file) {
            Ok(facts) => assert_eq!(facts, expected),
            // Before Linux 6.11.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EFAULT)),
        }
    }
}
