//! The files by which names of hosts are looked up. The sandbox lets the agent read the files that existed when it
//! started: if one of them is replaced, the agent must be restarted.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PATHS: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// The files, or their folders, as they were at startup.
#[derive(Debug)]
pub(crate) struct ResolverFiles(Vec<ResolverFile>);

#[derive(Debug)]
struct ResolverFile {
    path: PathBuf,
    identity: Option<Identity>,
    /// The file stays open, so that no other file gets its inode.
    opened: Option<File>,
}

/// Device and inode.
type Identity = (u64, u64);

impl ResolverFiles {
    /// Opens the system's resolver files.
    pub(crate) fn of_system() -> ResolverFiles {
        ResolverFiles::open(PATHS.into_iter().map(PathBuf::from))
    }

    fn open(paths: impl Iterator<Item = PathBuf>) -> ResolverFiles {
        let open = |path: PathBuf| {
            let opened = readable_path(&path).and_then(File::open).ok();
            ResolverFile { identity: identity(&path), path, opened }
        };
        ResolverFiles(paths.map(open).collect())
    }

    /// The files that could be opened.
    pub(crate) fn opened(&self) -> impl Iterator<Item = &File> {
        self.0.iter().filter_map(|file| file.opened.as_ref())
    }

    /// The first file that was replaced. A removed file is not waited for: it may never be replaced.
    pub(crate) fn replaced(&self) -> Option<&Path> {
        let is_replaced = |file: &&ResolverFile| {
            let now = identity(&file.path);
            now.is_some() && now != file.identity
        };
        self.0.iter().find(is_replaced).map(|file| file.path.as_path())
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let metadata = readable_path(path).and_then(fs::metadata).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The file itself or, for a link, the folder of its target: another program replaces the file there.
fn readable_path(path: &Path) -> io::Result<PathBuf> {
    let real = fs::canonicalize(path)?;
    Ok(match real.parent() {
        Some(folder) if real != path && folder != Path::new("/etc") && folder != Path::new("/") => folder.to_owned(),
        _ => real,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn file_in_the_place_of_another_one_is_noticed() {
        let directory = tempfile::tempdir().expect("created");
        let root = fs::canonicalize(directory.path()).expect("a folder");
        let path = |name: &str| root.join(name);
        let open = || ResolverFiles::open([path("resolv.conf"), path("linked.conf")].into_iter());
        let put = |name: &str| {
            fs::write(path("new"), "nameserver 192.0.2.1\n").expect("written");
            fs::rename(path("new"), path(name)).expect("renamed");
        };
        let link = |folder: &str| {
            let _ = fs::remove_file(path("linked.conf"));
            symlink(path(folder).join("stub.conf"), path("linked.conf")).expect("linked");
        };
        let files = open();
        assert_eq!(files.replaced(), None);
        put("resolv.conf");
        assert_eq!(files.replaced(), Some(path("resolv.conf").as_path()), "there was none");
        for folder in ["one", "other"] {
            fs::create_dir(path(folder)).expect("created");
            put(&format!("{folder}/stub.conf"));
        }
        link("one");
        let files = open();
        // Changes within the same file, or in a readable folder, are visible.
        fs::write(path("resolv.conf"), "nameserver 192.0.2.2\n").expect("written");
        put("one/stub.conf");
        assert_eq!(files.replaced(), None);
        fs::remove_file(path("resolv.conf")).expect("removed");
        assert_eq!(files.replaced(), None);
        put("resolv.conf");
        assert_eq!(files.replaced(), Some(path("resolv.conf").as_path()));
        let files = open();
        link("other");
        assert_eq!(files.replaced(), Some(path("linked.conf").as_path()));
        assert_eq!(open().opened().count(), 2);
    }
}
