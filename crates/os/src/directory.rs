//! A root directory, kept open: opens files beneath it and never outside, whatever the path and the links on it.

use crate::counters::{Syscall, count};
use crate::fallback::{Feature, Variant};
use crate::file::{File, OPEN_FLAGS};
use crate::path_walk;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

pub use crate::directory_entries::{DirectoryEntry, EntryKind};

/// The calls that open a path beneath a root: `openat2` with `RESOLVE_BENEATH` (Linux 5.6), which with `RESOLVE_CACHED`
/// (Linux 5.12) also does not wait for a disk. Where a kernel or container has neither, the path is walked component by
/// component.
pub static OPEN: Feature = Feature::new(
    "open",
    &[
        Variant { name: "openat2-cached", is_supported: || openat2_is_supported(ResolveFlags::CACHED) },
        Variant { name: "openat2", is_supported: || openat2_is_supported(ResolveFlags::empty()) },
        Variant { name: "walk", is_supported: || true },
    ],
);

const BY_OPENAT2_CACHED: usize = 0;
const BY_WALK: usize = 2;

/// Tries of `openat2` with `RESOLVE_BENEATH`, which fails with EAGAIN if a rename elsewhere may have moved a directory
/// on the path (openat2(2)). This many in a row indicate an attack.
const TRIES_MAX: usize = 8;

const DIRECTORY_FLAGS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory opened as a starting point (`O_PATH`).
#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    real_path: PathBuf,
}

impl Directory {
    /// Opens the directory at `path`, following links.
    pub fn open(path: &Path) -> io::Result<Directory> {
        count(Syscall::Openat);
        let directory = rustix::fs::openat(CWD, path, DIRECTORY_FLAGS, Mode::empty());
        Directory::new(directory.map_err(|errno| crate::error::with_context("openat", path.display(), &errno.into()))?)
    }

    /// Opens the file at `path`, relative to this directory, for reading. Follows links beneath this directory; one
    /// that leads out of it, or through `/proc`'s links to open files, is an error (`EXDEV`, `ELOOP`).
    ///
    /// May wait for a disk; [`Directory::open_beneath_cached`] does not.
    pub fn open_beneath(&self, path: &[u8]) -> io::Result<File> {
        self.descriptor_beneath(path).map(File::new)
    }

    /// As [`Directory::open_beneath`], but only from the kernel's cache: `Ok(None)` if that needs a disk, or if this
    /// kernel cannot tell.
    pub fn open_beneath_cached(&self, path: &[u8]) -> io::Result<Option<File>> {
        if OPEN.selected() != BY_OPENAT2_CACHED {
            return Ok(None);
        }
        match self.openat2(path, ResolveFlags::CACHED) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            result => Ok(Some(File::new(result?))),
        }
    }

    /// The path without symbolic links of the file at `path`, relative to this directory, wherever its links lead. The
    /// file is not opened for reading (`O_PATH`), so that this has no effect on it. May wait for a disk.
    pub fn resolve(&self, path: &[u8]) -> io::Result<PathBuf> {
        count(Syscall::Openat);
        let found = rustix::fs::openat(&self.descriptor, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let real_path = crate::file::real_path(&found);
        count(Syscall::Close);
        real_path
    }

    /// Opens the directory at `path`, as [`Directory::open_beneath`] would.
    pub fn open_directory_beneath(&self, path: &[u8]) -> io::Result<Directory> {
        if path.is_empty() {
            count(Syscall::Openat);
            return Directory::new(rustix::fs::openat(&self.descriptor, ".", DIRECTORY_FLAGS, Mode::empty())?);
        }
        self.descriptor_beneath(&[path, b"/"].concat()).and_then(Directory::new)
    }

    /// Opens the file or directory at `path`, relative to this directory, for reading, where no part of it is a link
    /// (`ELOOP`, `ENOTDIR`): for directories that another user can write. Does not block on a FIFO.
    pub fn open_without_links(&self, path: &[u8]) -> io::Result<File> {
        self.descriptor_without_links(path, OPEN_FLAGS).map(File::new)
    }

    /// The metadata of the file at `path`, or of the link itself if it is one, where no directory of the path is a
    /// link.
    pub fn metadata_without_links(&self, path: &[u8]) -> io::Result<crate::file::Metadata> {
        let found = self.descriptor_without_links(path, OFlags::PATH | OFlags::CLOEXEC)?;
        let metadata = crate::file::metadata(&found);
        count(Syscall::Close);
        metadata
    }

    /// The target of the link at `path`, where no directory of the path is a link.
    pub fn read_link(&self, path: &[u8]) -> io::Result<PathBuf> {
        let (above, name) = self.parent_without_links(path)?;
        let parent = above.as_ref().map_or(self.as_fd(), AsFd::as_fd);
        count(Syscall::Readlinkat);
        let target = rustix::fs::readlinkat(parent, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn descriptor_without_links(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let (above, name) = self.parent_without_links(path)?;
        let parent = above.as_ref().map_or(self.as_fd(), AsFd::as_fd);
        count(Syscall::Openat);
        Ok(rustix::fs::openat(parent, name, flags | OFlags::NOFOLLOW, Mode::empty())?)
    }

    /// The parent directory of `path`, unless it is this one, and the last component; `.` for the empty path.
    fn parent_without_links<'p>(&self, path: &'p [u8]) -> io::Result<(Option<OwnedFd>, &'p [u8])> {
        if path.is_empty() {
            return Ok((None, b"."));
        }
        let mut components = path.split(|&byte| byte == b'/');
        let name = components.next_back().unwrap_or_default();
        let is_plain = |component: &[u8]| !matches!(component, b"" | b"." | b"..");
        if !path.split(|&byte| byte == b'/').all(is_plain) {
            return Err(Errno::INVAL.into());
        }
        let mut above: Option<OwnedFd> = None;
        for component in components {
            count(Syscall::Openat);
            let parent = above.as_ref().map_or(self.as_fd(), AsFd::as_fd);
            above = Some(rustix::fs::openat(parent, component, DIRECTORY_FLAGS | OFlags::NOFOLLOW, Mode::empty())?);
        }
        Ok((above, name))
    }

    /// The directory's path when it was opened, without symbolic links.
    pub fn real_path(&self) -> &Path {
        &self.real_path
    }

    /// The metadata of the directory itself.
    pub fn metadata(&self) -> io::Result<crate::file::Metadata> {
        crate::file::metadata(&self.descriptor)
    }

    /// Whether the directory is on a file system that other machines or programs may change unnoticed by the kernel.
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
        for _ in 0..TRIES_MAX {
            match self.openat2(path, ResolveFlags::empty()) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
        Err(Errno::LOOP.into())
    }

    fn openat2(&self, path: &[u8], flags: ResolveFlags) -> Result<OwnedFd, Errno> {
        count(Syscall::Openat2);
        rustix::fs::openat2(&self.descriptor, path, OPEN_FLAGS, Mode::empty(), RESOLVE_FLAGS | flags)
    }
}

/// Gives the directory at `path` to a user and group. A link there is an error (`ELOOP`, `ENOTDIR`): a user that can
/// write the directory above may have replaced the directory by it.
pub fn give_directory(path: &Path, user: u32, group: u32) -> io::Result<()> {
    count(Syscall::Openat);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A link with a slash at its end would be followed.
    let path: &Path = path.components().as_path();
    let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    std::os::unix::fs::fchown(&directory, Some(user), Some(group))
}

const RESOLVE_FLAGS: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

fn openat2_is_supported(flags: ResolveFlags) -> bool {
    rustix::fs::openat2(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), RESOLVE_FLAGS | flags).is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FileType;
    use std::os::unix::fs::symlink;

    #[test]
    fn directory_that_was_replaced_by_a_link_is_given_to_nobody() {
        let root = tempfile::tempdir().expect("created");
        let (directory, link) = (root.path().join("directory"), root.path().join("link"));
        std::fs::create_dir(&directory).expect("created");
        symlink(&directory, &link).expect("linked");
        let me = std::os::unix::fs::MetadataExt::uid(&directory.metadata().expect("it exists"));
        let group = std::os::unix::fs::MetadataExt::gid(&directory.metadata().expect("it exists"));
        give_directory(&directory, me, group).expect("its owner may");
        for path in [link.clone(), link.join("")] {
            let error = give_directory(&path, me, group).expect_err("a link");
            assert!(matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR)), "{error}");
        }
        std::fs::write(root.path().join("file"), "").expect("written");
        give_directory(&root.path().join("file"), me, group).expect_err("a file");
    }

    type Open = fn(&Directory, &[u8]) -> io::Result<File>;

    const VARIANTS: [(&str, Open); 2] = [
        ("openat2", |root, path| root.openat2(path, ResolveFlags::empty()).map(File::new).map_err(io::Error::from)),
        ("walk", |root, path| path_walk::open_beneath(root.as_fd(), path).map(File::new)),
    ];

    /// A root with a file, a directory, links that stay inside and links that lead out.
    fn tree() -> (tempfile::TempDir, Directory) {
        let tree = tempfile::tempdir().expect("created");
        let root = tree.path().join("root");
        std::fs::create_dir_all(root.join("directory/deep")).expect("created");
        std::fs::write(tree.path().join("secret"), "secret").expect("written");
        std::fs::write(root.join("file"), "file").expect("written");
        std::fs::write(root.join("directory/deep/leaf"), "leaf").expect("written");
        for (link, to) in [
            ("inside", "directory/deep/leaf"),
            ("directory/up", "../file"),
            ("directory/deep/far", "../../inside"),
            ("hop", "directory"),
            ("out", "../secret"),
            ("directory/out", "../../secret"),
            ("absolute", "/etc/passwd"),
            ("magic", "/proc/self/root/etc/passwd"),
            ("loop", "loop"),
            ("in-and-out", "directory/../../root/file"),
            ("dangling", "missing"),
        ] {
            symlink(to, root.join(link)).expect("linked");
        }
        let root = Directory::open(&root).expect("opened");
        (tree, root)
    }

    #[test]
    fn no_link_is_followed_where_none_may_be() {
        let (_tree, root) = tree();
        let open = |path: &str| {
            let opened = root.open_without_links(path.as_bytes());
            opened.map(drop).map_err(|error| Errno::from_io_error(&error).expect("an error of the kernel"))
        };
        for path in ["file", "directory", "directory/deep/leaf", ""] {
            assert_eq!(open(path), Ok(()), "{path}");
        }
        for path in ["inside", "out", "absolute", "magic", "dangling", "directory/up"] {
            assert_eq!(open(path), Err(Errno::LOOP), "{path}");
            assert_eq!(
                root.metadata_without_links(path.as_bytes()).expect("a link").file_type,
                FileType::Other,
                "{path}"
            );
        }
        assert_eq!((open("hop/deep/leaf"), open("missing")), (Err(Errno::NOTDIR), Err(Errno::NOENT)));
        for path in ["..", "../secret", "directory/../file", "/etc/passwd", "directory//deep", "directory/"] {
            assert_eq!(open(path), Err(Errno::INVAL), "{path}");
        }
        assert_eq!(root.read_link(b"directory/out").expect("a link"), Path::new("../../secret"));
        assert!(root.read_link(b"file").is_err() && root.read_link(b"hop/out").is_err());
        assert_eq!(root.metadata_without_links(b"file").expect("there").length_bytes, 4);
    }

    #[test]
    fn every_variant_opens_files_beneath_the_root_only() {
        let (_tree, root) = tree();
        for (variant, open) in VARIANTS {
            let check = |path: &str, expected: &str| {
                let found = match open(&root, path.as_bytes()) {
                    Ok(file) if file.metadata().expect("open").file_type == FileType::Directory => "a directory".into(),
                    Ok(file) => {
                        let mut content = [0; 64];
                        let length = file.read_at(&mut content, 0).expect("read");
                        String::from_utf8_lossy(&content[..length]).into_owned()
                    }
                    Err(error) => format!("{:?}", Errno::from_io_error(&error).expect("an error of the kernel")),
                };
                assert_eq!(found, expected, "{path} by {variant}");
            };
            check("file", "file");
            check("directory/deep/leaf", "leaf");
            check("directory", "a directory");
            check("directory/", "a directory");
            check("inside", "leaf");
            check("directory/up", "file");
            check("directory/deep/far", "leaf");
            check("hop/deep/leaf", "leaf");
            check("hop", "a directory");
            check("missing", &format!("{:?}", Errno::NOENT));
            check("dangling", &format!("{:?}", Errno::NOENT));
            check("file/below", &format!("{:?}", Errno::NOTDIR));
            check("loop", &format!("{:?}", Errno::LOOP));
            let outside = ["../secret", "directory/../../secret", "/etc/passwd"];
            for path in ["out", "directory/out", "absolute", "magic", "in-and-out"].into_iter().chain(outside) {
                check(path, &format!("{:?}", Errno::XDEV));
            }
            check(&"x".repeat(300), &format!("{:?}", Errno::NAMETOOLONG));
        }
    }

    #[test]
    fn links_are_resolved_wherever_they_lead() {
        let (tree, root) = tree();
        let real = tree.path().canonicalize().expect("resolved");
        for (path, expected) in [
            ("file", real.join("root/file")),
            ("out", real.join("secret")),
            ("absolute", "/etc/passwd".into()),
            ("hop/deep/far", real.join("root/directory/deep/leaf")),
        ] {
            assert_eq!(root.resolve(path.as_bytes()).expect("resolved"), expected, "{path}");
        }
        assert!(root.resolve(b"dangling").is_err() && root.resolve(b"loop").is_err());
    }

    #[test]
    fn opening_a_fifo_does_not_block() {
        let (tree, root) = tree();
        let fifo = tree.path().join("root/fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RWXU, 0).expect("created");
        for (_, open) in VARIANTS {
            let file = open(&root, b"fifo").expect("opened");
            assert_eq!(file.metadata().expect("open").file_type, FileType::Other);
        }
    }

    #[test]
    fn cached_open_finds_a_cached_file_and_nothing_outside_the_root() {
        let (_tree, root) = tree();
        root.open_beneath(b"file").expect("opened, and cached now");
        if OPEN.selected() == BY_OPENAT2_CACHED {
            assert!(root.open_beneath_cached(b"file").expect("opened").is_some());
        }
        assert!(!matches!(root.open_beneath_cached(b"out"), Ok(Some(_))));
    }
}
