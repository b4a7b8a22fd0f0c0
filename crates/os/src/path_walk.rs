//! Opens a path beneath a folder where the kernel cannot be told to stay beneath it: folder by folder, link by link.
//!
//! The descriptors of the folders walked through are kept, so that `..` goes back to the very folder the walk came from
//! and never to wherever that folder may have been moved meanwhile. No step follows a link by itself (`O_NOFOLLOW`).

use crate::counters::{Syscall, count};
use crate::file::OPEN_FLAGS;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Links followed for one path, as many as the kernel follows (path_resolution(7)).
const LINKS_MAX: usize = 40;
/// Folders walked through at once: each costs a descriptor for the time of the walk.
const DEPTH_MAX: usize = 128;

/// Opens `path` relative to `root`, never above it.
pub(crate) fn open_beneath(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    Walk { root, folders: Vec::new(), link_count: 0 }.open(path).map_err(io::Error::from)
}

struct Walk<'r> {
    root: BorrowedFd<'r>,
    /// The folders from below the root to where the walk stands.
    folders: Vec<OwnedFd>,
    link_count: usize,
}

impl Walk<'_> {
    fn open(mut self, path: &[u8]) -> Result<OwnedFd, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let mut pending = segments_reversed(path)?;
        while let Some(segment) = pending.pop() {
            match segment.as_slice() {
                b"." => {}
                b".." => drop(self.folders.pop().ok_or(Errno::XDEV)?),
                name => {
                    let wants_folder = !pending.is_empty();
                    if let Some(target) = self.link_target(name)? {
                        pending.extend(segments_reversed(&target)?);
                    } else if wants_folder {
                        self.enter(name)?;
                    } else {
                        return self.open_last(name, OPEN_FLAGS);
                    }
                }
            }
        }
        // The path ended in a dot segment or a slash: the folder where the walk stands.
        count(Syscall::Openat);
        rustix::fs::openat(self.here(), ".", OPEN_FLAGS | OFlags::DIRECTORY, Mode::empty())
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.folders.last().map_or(self.root, AsFd::as_fd)
    }

    /// Where `name` points if it is a link. Not being one is the common case, and an error of the call.
    fn link_target(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        count(Syscall::Readlinkat);
        match rustix::fs::readlinkat(self.here(), name, Vec::new()) {
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
        if self.folders.len() == DEPTH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let folder = self.open_last(name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)?;
        self.folders.push(folder);
        Ok(())
    }

    fn open_last(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        count(Syscall::Openat);
        rustix::fs::openat(self.here(), name, flags | OFlags::NOFOLLOW, Mode::empty())
    }
}

/// The segments of `path`, the last first. A slash at the end asks for a folder: it becomes a last segment `.`.
fn segments_reversed(path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let mut segments: Vec<Vec<u8>> =
        path.split(|&octet| octet == b'/').filter(|segment| !segment.is_empty()).map(<[u8]>::to_vec).collect();
    if path.ends_with(b"/") {
        segments.push(b".".to_vec());
    }
    segments.reverse();
    Ok(segments)
}
