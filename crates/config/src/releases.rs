//! Releases of a site: sibling directories, one of which a symbolic link makes the document root.
//!
//! The command `publish` switches the link; the server reads its target. Next to `current`, the links
//! `current.previous-1` and `current.previous-2` point to the previous releases, so that they are known after a
//! restart. This module changes nothing.

use sanderling_os::directory::Directory;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The number of earlier releases whose files with a hash in their name are still served.
pub const PREVIOUS_RELEASES_MAX: usize = 2;

/// The path of a document root, if it is or may become a link to a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseLink {
    path: PathBuf,
}

impl ReleaseLink {
    /// The link at the path of a document root.
    pub fn new(document_root: &Path) -> ReleaseLink {
        // Without a slash at its end, which would follow the link.
        ReleaseLink { path: document_root.components().collect() }
    }

    /// The path of the link.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the link to an earlier release: 1 is the last one.
    pub fn previous_path(&self, age: usize) -> PathBuf {
        let mut path = OsString::from(&self.path);
        path.push(format!(".previous-{age}"));
        path.into()
    }

    /// The directory that has the links and the releases, without symbolic links.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be reached.
    pub fn directory(&self) -> io::Result<PathBuf> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Directory::open(parent)?.real_path().to_owned())
    }

    /// The current release; `None` if the document root is not a link, or leads to a directory outside the link's
    /// directory.
    pub fn current(&self) -> Option<PathBuf> {
        self.release_at(&self.path)
    }

    /// The releases before `current`, the last one first.
    pub fn previous(&self, current: &Path) -> Vec<PathBuf> {
        let paths = (1..=PREVIOUS_RELEASES_MAX).map(|age| self.previous_path(age));
        let mut releases: Vec<PathBuf> = paths.filter_map(|path| self.release_at(&path)).collect();
        releases.retain(|release| release != current);
        releases.dedup();
        releases
    }

    fn release_at(&self, path: &Path) -> Option<PathBuf> {
        if !is_symlink(path) {
            return None;
        }
        let release = Directory::open(path).ok()?.real_path().to_owned();
        self.is_release(&release).then_some(release)
    }

    /// Whether a directory, by its path without symbolic links, can be a release: it is below the directory of the
    /// link.
    pub fn is_release(&self, real_path: &Path) -> bool {
        self.directory()
            .is_ok_and(|directory| real_path.strip_prefix(directory).is_ok_and(|rest| !rest.as_os_str().is_empty()))
    }

    /// When the symbolic link was made; `None` if there is none.
    pub fn made_at(&self) -> Option<SystemTime> {
        fs::symlink_metadata(&self.path).ok().filter(fs::Metadata::is_symlink)?.modified().ok()
    }

    /// Whether there is a symbolic link.
    pub fn exists(&self) -> bool {
        is_symlink(&self.path)
    }
}

fn is_symlink(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn release_is_a_directory_beside_the_link() {
        let folder = tempfile::tempdir().expect("created");
        let root = folder.path().canonicalize().expect("resolved");
        for directory in ["releases/1/deep", "releases/2", "outside", "plain"] {
            fs::create_dir_all(root.join(directory)).expect("created");
        }
        fs::write(root.join("releases/file"), "").expect("written");
        let current = |target: &str| {
            let path = root.join("releases/current");
            let _ = fs::remove_file(&path);
            symlink(target, &path).expect("linked");
            let link = ReleaseLink::new(&root.join("releases/current/"));
            link.current().map(|path| path.strip_prefix(&root).expect("below").display().to_string())
        };
        for (target, expected) in [
            ("1", Some("releases/1")),
            ("./1/deep/..", Some("releases/1")),
            ("1/deep", Some("releases/1/deep")),
            ("../releases/2", Some("releases/2")),
            ("../outside", None),
            (".", None),
            ("..", None),
            ("file", None),
            ("missing", None),
            ("current", None),
        ] {
            assert_eq!(current(target).as_deref(), expected, "{target}");
        }
        assert_eq!(ReleaseLink::new(&root.join("plain")).current(), None);
    }

    #[test]
    fn earlier_releases_are_those_of_the_links_beside() {
        let folder = tempfile::tempdir().expect("created");
        let root = folder.path().canonicalize().expect("resolved");
        ["1", "2", "3"].iter().for_each(|name| fs::create_dir(root.join(name)).expect("created"));
        let link = ReleaseLink::new(&root.join("current"));
        let previous = |targets: [(&str, &str); 3]| {
            for (name, target) in targets {
                let _ = fs::remove_file(root.join(name));
                symlink(target, root.join(name)).expect("linked");
            }
            let current = link.current().unwrap_or_default();
            let names = link.previous(&current).into_iter().map(|path| path.file_name().expect("a name").to_owned());
            names.map(|name| name.into_string().expect("text")).collect::<Vec<_>>().join(" ")
        };
        let [one, two] = ["current.previous-1", "current.previous-2"];
        assert_eq!(previous([("current", "3"), (one, "2"), (two, "1")]), "2 1");
        assert_eq!(previous([("current", "3"), (one, "3"), (two, "1")]), "1");
        assert_eq!(previous([("current", "3"), (one, "1"), (two, "1")]), "1");
        assert_eq!(previous([("current", "3"), (one, "missing"), (two, "1")]), "1");
        // The served release may differ from the target of a dangling link.
        assert_eq!(previous([("current", "missing"), (one, "2"), (two, "1")]), "2 1");
    }
}
