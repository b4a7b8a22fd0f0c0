//! A file without a name, for text that is handed to another process: written once, then sealed against any change.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create};
use rustix::io::{Errno, pread, write};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What can no longer be done to a file that was created here, the lifting of these seals included.
const SEALS: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// A file that holds `content`. `name` shows in `/proc/PID/fd` and serves no other purpose; close-on-exec from birth.
pub fn create(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let file = create_empty(name).map_err(|errno| with_context("memfd_create", name, &errno.into()))?;
    let mut rest = content;
    while !rest.is_empty() {
        count(Syscall::Write);
        match write(&file, rest) {
            // The kernel takes at least one octet of a write that it accepts, so the rest gets shorter.
            Ok(written) => rest = &rest[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(with_context("write", name, &errno.into())),
        }
    }
    count(Syscall::Fcntl);
    fcntl_add_seals(&file, SEALS).map_err(|errno| with_context("fcntl(F_ADD_SEALS)", name, &errno.into()))?;
    Ok(file)
}

/// Where the kernel knows it (Linux 6.3), the file can also never be made executable, as `vm.memfd_noexec` may demand.
fn create_empty(name: &str) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    count(Syscall::MemfdCreate);
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => {
            count(Syscall::MemfdCreate);
            memfd_create(name, flags)
        }
        done => done,
    }
}

/// All that stands in a file, from its start, wherever others have read to. More than `bytes_max` octets are refused
/// (`FileTooLarge`), before any memory is taken for them.
pub fn read(descriptor: impl AsFd, bytes_max: u64) -> io::Result<Vec<u8>> {
    count(Syscall::Fstat);
    let length_bytes = u64::try_from(fstat(&descriptor)?.st_size).unwrap_or(0);
    if length_bytes > bytes_max {
        let reason = format!("a file of {length_bytes} octets: at most {bytes_max} are read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    let length_bytes = usize::try_from(length_bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut content = vec![0; length_bytes];
    let mut filled_bytes = 0;
    while filled_bytes < length_bytes {
        count(Syscall::Pread64);
        match pread(&descriptor, &mut content[filled_bytes..], filled_bytes as u64) {
            // Whoever handed it over has cut it meanwhile, which a sealed file does not allow.
            Ok(0) => break,
            Ok(read) => filled_bytes += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    content.truncate(filled_bytes);
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{ftruncate, seek};

    #[test]
    fn what_was_written_is_read_whatever_the_offset() {
        for content in [&b""[..], b"one line\n", &[7; 70_000]] {
            let file = create("test", content).expect("created");
            seek(&file, rustix::fs::SeekFrom::End(0)).expect("sought");
            assert_eq!(read(&file, content.len() as u64).expect("read"), content);
        }
    }

    #[test]
    fn nobody_changes_it_afterwards() {
        let file = create("test", b"text").expect("created");
        assert_eq!(write(&file, b"more").expect_err("sealed"), Errno::PERM);
        assert_eq!(ftruncate(&file, 0).expect_err("sealed"), Errno::PERM);
        assert_eq!(ftruncate(&file, 10).expect_err("sealed"), Errno::PERM);
        assert_eq!(fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).expect_err("sealed"), Errno::PERM);
        assert_eq!(read(&file, 4).expect("read"), b"text");
    }

    #[test]
    fn a_file_above_the_bound_is_refused() {
        let file = create("test", b"12345").expect("created");
        let error = read(&file, 4).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "a file of 5 octets: at most 4 are read");
    }

    #[test]
    fn a_pipe_has_no_start_to_read_from() {
        let (reader, writer) = std::io::pipe().expect("made");
        write(&writer, b"text").expect("written");
        // A pipe has no length: nothing of it is read, and nothing waits.
        assert_eq!(read(&reader, 100).expect("read"), b"");
    }

    #[test]
    fn it_is_closed_on_exec() {
        let file = create("test", b"").expect("created");
        let flags = rustix::io::fcntl_getfd(&file).expect("open");
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
}
