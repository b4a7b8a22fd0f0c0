//! Unnamed files that pass text to another process: written once, then sealed against change (memfd_create(2)).

use crate::counters::{Syscall, count};
use crate::error::with_context;
use crate::file;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

/// Neither the content of a file created here nor its seals can be changed.
const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// Creates a sealed file with `content`, close-on-exec. `name` shows in `/proc/PID/fd` and has no other purpose.
pub fn create(name: &'static str, content: &[u8]) -> io::Result<OwnedFd> {
    let mut writer = Writer::new(name)?;
    writer.write(content)?;
    writer.seal()
}

/// A file that is being written.
#[derive(Debug)]
pub struct Writer {
    file: std::fs::File,
    name: &'static str,
    length_bytes: u64,
}

impl Writer {
    /// An empty file, close-on-exec; `name` as in [`create`].
    pub fn new(name: &'static str) -> io::Result<Writer> {
        let file = create_empty(name).map_err(|errno| with_context("memfd_create", name, &errno.into()))?;
        Ok(Writer { file: file.into(), name, length_bytes: 0 })
    }

    /// Appends `content`.
    pub fn write(&mut self, content: &[u8]) -> io::Result<()> {
        count(Syscall::Write);
        self.file.write_all(content).map_err(|error| with_context("write", self.name, &error))?;
        self.length_bytes += content.len() as u64;
        Ok(())
    }

    /// Bytes written so far.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// The finished file.
    pub fn seal(self) -> io::Result<OwnedFd> {
        count(Syscall::Fcntl);
        fcntl_add_seals(&self.file, SEALS)
            .map_err(|errno| with_context("fcntl(F_ADD_SEALS)", self.name, &errno.into()))?;
        Ok(self.file.into())
    }
}

/// Whether a received file is sealed as those created here are, so that its sender can no longer change it.
pub fn is_sealed(descriptor: impl AsFd) -> bool {
    count(Syscall::Fcntl);
    fcntl_get_seals(descriptor).is_ok_and(|seals| seals.contains(SEALS))
}

/// A file's length.
pub fn length_bytes(descriptor: impl AsFd) -> io::Result<u64> {
    count(Syscall::Fstat);
    Ok(u64::try_from(fstat(&descriptor)?.st_size).unwrap_or(0))
}

/// Reads `length_bytes` from `offset` on.
///
/// # Errors
/// Returns an error if the file ends before the range does.
pub fn read_range(descriptor: impl AsFd, offset: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; length_bytes];
    match file::read_at(&descriptor, &mut content, offset)? {
        filled_bytes if filled_bytes == length_bytes => Ok(content),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Uses `NOEXEC_SEAL` (Linux 6.3), which `vm.memfd_noexec` may require, except on older kernels.
fn create_empty(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    count(Syscall::MemfdCreate);
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => {
            count(Syscall::MemfdCreate);
            memfd_create(name, flags)
        }
        result => result,
    }
}

/// Reads a whole file from its start, whatever its file offset. A file of more than `bytes_max` is refused
/// (`FileTooLarge`) before memory is allocated for it.
pub fn read(descriptor: impl AsFd, bytes_max: u64) -> io::Result<Vec<u8>> {
    let length_bytes = length_bytes(&descriptor)?;
    if length_bytes > bytes_max {
        let reason = format!("file of {length_bytes} bytes is too large, the limit is {bytes_max}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    let length_bytes = usize::try_from(length_bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut content = vec![0; length_bytes];
    // Fewer if it was truncated meanwhile by the sender: possible only if the file is not sealed.
    let filled_bytes = file::read_at(&descriptor, &mut content, 0)?;
    content.truncate(filled_bytes);
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{ftruncate, seek};
    use rustix::io::write;

    #[test]
    fn content_is_read_whatever_the_file_offset() {
        for content in [&b""[..], b"one line\n", &[7; 70_000]] {
            let file = create("test", content).expect("created");
            seek(&file, rustix::fs::SeekFrom::End(0)).expect("sought");
            assert_eq!(read(&file, content.len() as u64).expect("read"), content);
        }
    }

    #[test]
    fn sealed_file_cannot_be_changed() {
        let file = create("test", b"text").expect("created");
        assert_eq!(write(&file, b"more").expect_err("sealed"), Errno::PERM);
        assert_eq!(ftruncate(&file, 0).expect_err("sealed"), Errno::PERM);
        assert_eq!(ftruncate(&file, 10).expect_err("sealed"), Errno::PERM);
        assert_eq!(fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).expect_err("sealed"), Errno::PERM);
        assert_eq!(read(&file, 4).expect("read"), b"text");
        assert_eq!(read_range(&file, 1, 2).expect("read"), b"ex");
        assert_eq!(read_range(&file, 1, 4).expect_err("too short").kind(), io::ErrorKind::UnexpectedEof);
        assert!(is_sealed(&file) && !is_sealed(Writer::new("test").expect("created").file));
        assert!(rustix::io::fcntl_getfd(&file).expect("open").contains(rustix::io::FdFlags::CLOEXEC));
    }

    #[test]
    fn file_above_the_limit_is_refused() {
        let file = create("test", b"12345").expect("created");
        let error = read(&file, 4).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "file of 5 bytes is too large, the limit is 4");
    }

    #[test]
    fn reading_a_pipe_returns_nothing_and_does_not_block() {
        let (reader, writer) = std::io::pipe().expect("pipe");
        write(&writer, b"text").expect("written");
        assert_eq!(read(&reader, 100).expect("read"), b"");
    }
}
