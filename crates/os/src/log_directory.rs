//! A log's directory, kept open: its files are opened, renamed and removed by their names in it, and no symbolic link
//! is followed. Another user may be able to create links there.

use crate::counters::{Syscall, count};
use crate::error::with_context;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

const DIRECTORY_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Opening must not block on a FIFO without a reader, nor acquire a controlling terminal.
const FILE_FLAGS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// An open directory, whatever its path currently leads to.
#[derive(Debug)]
pub struct LogDirectory(OwnedFd);

impl LogDirectory {
    /// Opens the directory that has `file`, and the name of the file in it.
    ///
    /// # Errors
    /// Returns an error if the directory does not exist, or `file` is not a file's path.
    pub fn of(file: &Path) -> io::Result<(LogDirectory, &OsStr)> {
        let no_name = || io::Error::new(io::ErrorKind::InvalidInput, format!("{} names no file", file.display()));
        let name = file.file_name().ok_or_else(no_name)?;
        let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        count(Syscall::Openat);
        let descriptor = rustix::fs::openat(CWD, directory, DIRECTORY_FLAGS, Mode::empty())
            .map_err(|errno| with_context("open", directory.display(), &errno.into()))?;
        Ok((LogDirectory(descriptor), name))
    }

    /// Opens a file for appending, and creates it with `mode` if it does not exist.
    pub fn open_for_append(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.open(name, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE, mode)
    }

    /// Opens a regular file for reading.
    pub fn open_to_read(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open(name, OFlags::RDONLY, 0)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        }
    }

    /// Creates a file for writing.
    ///
    /// # Errors
    /// Returns an error if the file exists.
    pub fn create_new(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        self.open(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// Renames a file, or a link itself, replacing one with the other name.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        count(Syscall::Renameat);
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Removes a file, or a link itself.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        count(Syscall::Unlinkat);
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Whether there is a regular file, and no link to one.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be examined.
    pub fn has_file(&self, name: &OsStr) -> io::Result<bool> {
        count(Syscall::Newfstatat);
        match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(FileType::from_raw_mode(found.st_mode) == FileType::RegularFile),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn open(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        count(Syscall::Openat);
        match rustix::fs::openat(&self.0, name, flags | FILE_FLAGS, Mode::from_raw_mode(mode)) {
            Ok(descriptor) => Ok(descriptor.into()),
            Err(Errno::LOOP) => {
                let message = "it is a symbolic link, which is not followed: specify its target";
                Err(io::Error::new(io::ErrorKind::InvalidInput, message))
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_not_followed_and_can_be_renamed_and_removed() {
        let directory = tempfile::tempdir().expect("created");
        let path = |name: &str| directory.path().join(name);
        fs::write(path("victim"), "victim").expect("written");
        symlink("victim", path("link")).expect("linked");
        symlink("missing", path("dangling")).expect("linked");
        let (log_directory, name) =
            LogDirectory::of(&path("a.log")).map(|(it, name)| (it, name.to_owned())).expect("opened");
        assert_eq!(name, "a.log");
        let [victim, link, dangling] = ["victim", "link", "dangling"].map(OsStr::new);
        for name in [link, dangling] {
            for result in [
                log_directory.open_for_append(name, 0o640),
                log_directory.open_to_read(name),
                log_directory.create_new(name, 0o640),
            ] {
                result.expect_err("a link");
            }
            assert!(!log_directory.has_file(name).expect("known"));
        }
        log_directory.create_new(victim, 0o640).expect_err("it exists");
        assert!(log_directory.has_file(victim).expect("known") && !log_directory.has_file(&name).expect("known"));
        log_directory.open_for_append(&name, 0o640).and_then(|mut file| file.write_all(b"line\n")).expect("written");
        log_directory.rename(link, OsStr::new("moved")).expect("renamed");
        assert!(fs::symlink_metadata(path("moved")).expect("there").is_symlink());
        log_directory.rename(&name, OsStr::new("moved")).expect("renamed over the link");
        let mut text = String::new();
        log_directory.open_to_read(OsStr::new("moved")).expect("opened").read_to_string(&mut text).expect("read");
        log_directory.remove(dangling).expect("removed");
        assert_eq!((text.as_str(), fs::read_to_string(path("victim")).expect("there").as_str()), ("line\n", "victim"));
        LogDirectory::of(Path::new("/")).expect_err("no file");
        LogDirectory::of(&path("missing/a.log")).expect_err("no directory");
    }
}
