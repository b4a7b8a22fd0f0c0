//! A root folder, kept open: opens what lies beneath it, whatever a path says and wherever a link points.

use crate::counters::{Syscall, count};
use crate::fallback::{Feature, Variant};
use crate::file::{File, OPEN_FLAGS};
use crate::path_walk;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How a path beneath a root is opened. `openat2` with `RESOLVE_BENEATH` (Linux 5.6) leaves it to the kernel, in one
/// call that is cheaper than an absolute path without it; with `RESOLVE_CACHED` (Linux 5.12) it can be told not to wait
/// for a disk. Where a kernel or a container has neither, the path is walked folder by folder.
pub static OPEN: Feature = Feature::new(
    "open",
    &[
        Variant { name: "openat2-cached", is_supported: || openat2_is_there(ResolveFlags::CACHED) },
        Variant { name: "openat2", is_supported: || openat2_is_there(ResolveFlags::empty()) },
        Variant { name: "walk", is_supported: || true },
    ],
);

const BY_OPENAT2_CACHED: usize = 0;
const BY_WALK: usize = 2;

/// `RESOLVE_BENEATH` answers EAGAIN when a rename elsewhere may have moved what it walks through (openat2(2)); that
/// often in a row means somebody does it on purpose.
const RACES_MAX: usize = 8;

/// A folder, open as a place to start from: nothing can be read through its descriptor itself.
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    real_path: PathBuf,
}

impl Directory {
    /// Opens the folder at `path`; a link there is followed, once, now.
    pub fn open(path: &Path) -> io::Result<Directory> {
        count(Syscall::Openat);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, path, flags, Mode::empty());
        let folder = folder.map_err(|errno| crate::error::with_context("openat", path.display(), &errno.into()))?;
        Directory::new(folder)
    }

    /// Opens `path`, relative to this folder, for reading. Links beneath the folder are followed; one that leads out of
    /// it, or through `/proc`'s links to open files, is an error (`EXDEV`, `ELOOP`).
    ///
    /// May wait for a disk; [`Directory::open_beneath_cached`] does not.
    pub fn open_beneath(&self, path: &[u8]) -> io::Result<File> {
        self.descriptor_beneath(path).map(File::new)
    }

    /// As [`Directory::open_beneath`], from what the kernel has in memory alone: `Ok(None)` when it would have to ask a
    /// disk, or when this kernel cannot tell.
    pub fn open_beneath_cached(&self, path: &[u8]) -> io::Result<Option<File>> {
        if OPEN.selected() != BY_OPENAT2_CACHED {
            return Ok(None);
        }
        match self.openat2(path, ResolveFlags::CACHED) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            result => Ok(Some(File::new(result?))),
        }
    }

    /// The folder at `path` beneath this one, as [`Directory::open_beneath`] would find it.
    pub fn open_directory_beneath(&self, path: &[u8]) -> io::Result<Directory> {
        if path.is_empty() {
            count(Syscall::Openat);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            return Directory::new(rustix::fs::openat(&self.descriptor, ".", flags, Mode::empty())?);
        }
        let mut folder = path.to_vec();
        folder.push(b'/');
        self.descriptor_beneath(&folder).and_then(Directory::new)
    }

    /// Where the folder really was when it was opened, every link on the way to it resolved.
    pub fn real_path(&self) -> &Path {
        &self.real_path
    }

    /// The facts of the folder itself.
    pub fn metadata(&self) -> io::Result<crate::file::Metadata> {
        crate::file::metadata(&self.descriptor)
    }

    /// Whether others than this machine may change what is in it without its kernel seeing it.
    pub fn is_remote(&self) -> io::Result<bool> {
        crate::file::is_remote(&self.descriptor)
    }

    fn new(descriptor: OwnedFd) -> io::Result<Directory> {
        let real_path = crate::file::real_path(&descriptor)?;
        Ok(Directory { descriptor, real_path })
    }

    fn descriptor_beneath(&self, path: &[u8]) -> io::Result<OwnedFd> {
        if OPEN.selected() == BY_WALK {
            return path_walk::open_beneath(self.as_fd(), path);
        }
        for _ in 0..RACES_MAX {
            match self.openat2(path, ResolveFlags::empty()) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
        Err(Errno::LOOP.into())
    }

    fn openat2(&self, path: &[u8], further: ResolveFlags) -> Result<OwnedFd, Errno> {
        count(Syscall::Openat2);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | further;
        rustix::fs::openat2(&self.descriptor, path, OPEN_FLAGS, Mode::empty(), resolve)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        count(Syscall::Close);
    }
}

fn openat2_is_there(further: ResolveFlags) -> bool {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | further;
    rustix::fs::openat2(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    type Open = fn(&Directory, &[u8]) -> io::Result<File>;

    const WAYS: [(&str, Open); 2] = [
        ("openat2", |root, path| root.openat2(path, ResolveFlags::empty()).map(File::new).map_err(io::Error::from)),
        ("walk", |root, path| path_walk::open_beneath(root.as_fd(), path).map(File::new)),
    ];

    /// A root with a file, a folder, links that stay inside and links that lead out.
    struct Tree(std::path::PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let path = std::env::temp_dir().join(format!("sanderling-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            let root = path.join("root");
            std::fs::create_dir_all(root.join("folder/deep")).expect("made");
            std::fs::write(path.join("secret"), "secret").expect("written");
            std::fs::write(root.join("file"), "file").expect("written");
            std::fs::write(root.join("folder/deep/leaf"), "leaf").expect("written");
            for (link, to) in [
                ("inside", "folder/deep/leaf"),
                ("folder/up", "../file"),
                ("folder/deep/far", "../../inside"),
                ("hop", "folder"),
                ("out", "../secret"),
                ("folder/out", "../../secret"),
                ("absolute", "/etc/passwd"),
                ("magic", "/proc/self/root/etc/passwd"),
                ("loop", "loop"),
                ("in-and-out", "folder/../../root/file"),
                ("dangling", "nowhere"),
            ] {
                symlink(to, root.join(link)).expect("linked");
            }
            Tree(path)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn both_ways_open_what_lies_beneath_and_nothing_else() {
        let tree = Tree::new("beneath");
        let root = Directory::open(&tree.0.join("root")).expect("open");
        for (way, open) in WAYS {
            let check = |path: &str, expected: &str| {
                let found = match open(&root, path.as_bytes()) {
                    Ok(file) if file.metadata().expect("facts").file_type == crate::file::FileType::Directory => {
                        "a folder".into()
                    }
                    Ok(file) => {
                        let mut content = [0; 64];
                        let length = file.read_at(&mut content, 0).expect("read");
                        String::from_utf8_lossy(&content[..length]).into_owned()
                    }
                    Err(error) => format!("{:?}", Errno::from_io_error(&error).expect("of the kernel")),
                };
                assert_eq!(found, expected, "{path} by {way}");
            };
            check("file", "file");
            check("folder/deep/leaf", "leaf");
            check("folder", "a folder");
            check("folder/", "a folder");
            check("inside", "leaf");
            check("folder/up", "file");
            check("folder/deep/far", "leaf");
            check("hop/deep/leaf", "leaf");
            check("hop", "a folder");
            check("nowhere", &format!("{:?}", Errno::NOENT));
            check("dangling", &format!("{:?}", Errno::NOENT));
            check("file/below", &format!("{:?}", Errno::NOTDIR));
            check("loop", &format!("{:?}", Errno::LOOP));
            for out in ["out", "folder/out", "absolute", "magic", "in-and-out", "../secret", "folder/../../secret"] {
                check(out, &format!("{:?}", Errno::XDEV));
            }
            check("/etc/passwd", &format!("{:?}", Errno::XDEV));
            check(&"x".repeat(300), &format!("{:?}", Errno::NAMETOOLONG));
        }
    }

    #[test]
    fn a_fifo_does_not_hold_the_caller() {
        let tree = Tree::new("fifo");
        let fifo = tree.0.join("root/fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).expect("made");
        let root = Directory::open(&tree.0.join("root")).expect("open");
        for (_, open) in WAYS {
            let file = open(&root, b"fifo").expect("opened at once");
            assert_eq!(file.metadata().expect("facts").file_type, crate::file::FileType::Other);
        }
    }

    #[test]
    fn the_cached_look_up_never_finds_what_the_whole_one_does_not() {
        let tree = Tree::new("cached");
        let root = Directory::open(&tree.0.join("root")).expect("open");
        root.open_beneath(b"file").expect("there, and in memory now");
        if OPEN.selected() == BY_OPENAT2_CACHED {
            assert!(root.open_beneath_cached(b"file").expect("there").is_some());
        }
        assert!(!matches!(root.open_beneath_cached(b"out"), Ok(Some(_))));
    }
}
