//! Opens a path beneath a root where the kernel has no `RESOLVE_BENEATH`: component by component, link by link.
//!
//! Keeps the descriptors of the directories on the way, so that `..` returns to the directory that the walk came from,
//! even if it has been moved meanwhile. No call follows a link (`O_NOFOLLOW`).

use crate::counters::{Syscall, count};
use crate::file::OPEN_FLAGS;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Links followed per path, as many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// Directories open concurrently during a walk: each takes a descriptor.
const DEPTH_MAX: usize = 128;

/// Opens `path` relative to `root`, never above it.
pub(crate) fn open_beneath(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    Walk { root, directories: Vec::new(), link_count: 0 }.open(path).map_err(io::Error::from)
}

struct Walk<'r> {
    root: BorrowedFd<'r>,
    /// The directories from below the root down to the current one.
    directories: Vec<OwnedFd>,
    link_count: usize,
}

impl Walk<'_> {
    fn open(mut self, path: &[u8]) -> Result<OwnedFd, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let mut pending = components_reversed(path)?;
        while let Some(component) = pending.pop() {
            match component.as_slice() {
                b"." => {}
                b".." => drop(self.directories.pop().ok_or(Errno::XDEV)?),
                name => {
                    if let Some(target) = self.link_target(name)? {
                        pending.extend(components_reversed(&target)?);
                    } else if pending.is_empty() {
                        return self.open_component(name, OPEN_FLAGS);
                    } else {
                        self.enter(name)?;
                    }
                }
            }
        }
        // The path ends in `.`, `..` or a slash: it is relative to the current directory.
        count(Syscall::Openat);
        rustix::fs::openat(self.current(), ".", OPEN_FLAGS | OFlags::DIRECTORY, Mode::empty())
    }

    fn current(&self) -> BorrowedFd<'_> {
        self.directories.last().map_or(self.root, AsFd::as_fd)
    }

    /// The target of `name` if it is a link; usually it is not, and the call fails with EINVAL.
    fn link_target(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        count(Syscall::Readlinkat);
        match rustix::fs::readlinkat(self.current(), name, Vec::new()) {
            Err(Errno::INVAL) => Ok(None),
            Err(errno) => Err(errno),
            Ok(_) if self.link_count == LINKS_MAX => Err(Errno::LOOP),
            Ok(target) => {
                self.link_count += 1;
                Ok(Some(target.into_bytes()))
            }
        }
    }

    fn enter(&mut self, name: &[u8]) -> Result<(), Errno> {
        if self.directories.len() == DEPTH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let directory = self.open_component(name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        self.directories.push(directory);
        Ok(())
    }

    fn open_component(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        count(Syscall::Openat);
        rustix::fs::openat(self.current(), name, flags | OFlags::NOFOLLOW, Mode::empty())
    }
}

/// The components of `path`, the last one first. A trailing slash, which requires a directory, becomes a last `.`.
fn components_reversed(path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let components = path.split(|&byte| byte == b'/').filter(|component| !component.is_empty());
    let mut components: Vec<Vec<u8>> = components.map(<[u8]>::to_vec).collect();
    if path.ends_with(b"/") {
        components.push(b".".to_vec());
    }
    components.reverse();
    Ok(components)
}
