//! The directories that sites serve from. Each has one descriptor for all sites and configurations that use it, and
//! their number is limited by the process's descriptor limit.

use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_os::directory::Directory;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

/// Descriptors for listeners, pollers, folders, standard streams and opening files; at most half of the limit.
const DESCRIPTORS_RESERVED: usize = 128;
/// The share of the remaining descriptors, in quarters, that directories may use: clients need the rest.
const DIRECTORY_QUARTERS: usize = 3;

/// The path, device and inode of a directory.
pub(crate) type DirectoryId = (PathBuf, u64, u64);

/// All directories so far. The index of one stays.
#[derive(Debug)]
pub(crate) struct OpenDirectories {
    directories: Vec<(DirectoryId, Weak<Directory>)>,
    /// The limit of descriptors of this process.
    limit: DescriptorLimit,
}

/// A limit of open descriptors, and its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DescriptorLimit(pub(crate) usize);

impl DescriptorLimit {
    /// A value with this process's limit, raised as far as possible; without a limit if it cannot be read.
    pub(crate) fn of_process() -> DescriptorLimit {
        let limit = sanderling_os::rlimit::raise_nofile_limit().unwrap_or(u64::MAX);
        DescriptorLimit(usize::try_from(limit).unwrap_or(usize::MAX))
    }

    /// Descriptors for directories, connections and files.
    pub(crate) fn available(self) -> usize {
        self.0 - DESCRIPTORS_RESERVED.min(self.0 / 2)
    }

    fn directories_max(self) -> usize {
        self.available() / 4 * DIRECTORY_QUARTERS
    }

    /// The lowest descriptor limit for this many directories.
    fn needed_for(directory_count: usize) -> usize {
        DESCRIPTORS_RESERVED + directory_count.div_ceil(DIRECTORY_QUARTERS) * 4
    }
}

impl OpenDirectories {
    pub(crate) fn new(limit: DescriptorLimit) -> OpenDirectories {
        OpenDirectories { directories: Vec::new(), limit }
    }

    /// The index of a directory that was opened before.
    pub(crate) fn position(&self, id: &DirectoryId) -> Option<usize> {
        self.directories.iter().position(|(other, _)| other == id)
    }

    /// A new directory's index.
    pub(crate) fn add(&mut self, id: DirectoryId) -> usize {
        self.directories.push((id, Weak::new()));
        self.directories.len() - 1
    }

    /// The directory with this index, which was opened again, with its existing descriptor.
    ///
    /// # Errors
    /// Returns an error if too many directories are open.
    pub(crate) fn keep_open(&mut self, index: usize, opened: Directory) -> Result<Arc<Directory>, TooManyOpen> {
        if let Some(open) = self.directories[index].1.upgrade() {
            return Ok(open);
        }
        if self.open_count() >= self.limit.directories_max() {
            return Err(TooManyOpen);
        }
        let opened = Arc::new(opened);
        self.directories[index].1 = Arc::downgrade(&opened);
        Ok(opened)
    }

    /// Directories that are open.
    pub(crate) fn open_count(&self) -> usize {
        self.directories.iter().filter(|(_, directory)| directory.strong_count() > 0).count()
    }

    /// The problem that this many site directories were left out, of which `unserved_count` are document roots.
    /// `location` belongs to the first.
    pub(crate) fn problem(&self, (left_out_count, unserved_count): (usize, usize), location: Location) -> Diagnostic {
        let DescriptorLimit(limit) = self.limit;
        let open_count = self.open_count();
        let effect = match unserved_count {
            0 => format!("{left_out_count} earlier releases and link targets are not available"),
            1 => "requests for this site get status 503".to_owned(),
            _ => format!("requests for this site and {} more get status 503", unserved_count - 1),
        };
        let message = format!(
            "the limit of {limit} file descriptors allows only {open_count} site directories, because clients need \
                the others: {effect}"
        );
        let needed = DescriptorLimit::needed_for(open_count + left_out_count);
        let remedy = format!("raise it to {needed} or more with LimitNOFILE= or `ulimit -n`, and restart");
        Diagnostic::error(location, Problem::new(message, remedy))
    }
}

/// No more directories can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyOpen;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_leaves_descriptors_for_clients() {
        for (limit, available, directories) in
            [(0, 0, 0), (64, 32, 24), (1_024, 896, 672), (524_288, 524_160, 393_120), (usize::MAX, usize::MAX - 128, 0)]
        {
            let limit = DescriptorLimit(limit);
            assert_eq!(limit.available(), available);
            assert!(directories == 0 || limit.directories_max() == directories, "{limit:?}");
        }
        for directories in [1, 300, 2_000, 20_000] {
            let needed = DescriptorLimit::needed_for(directories);
            assert!(DescriptorLimit(needed).directories_max() >= directories, "{directories}");
        }
    }

    #[test]
    fn directory_has_one_descriptor_and_no_more_are_open_than_the_limit_allows() {
        let folder = tempfile::tempdir().expect("created");
        let open = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(&path).expect("created");
            Directory::open(&path).expect("opened")
        };
        let mut directories = OpenDirectories::new(DescriptorLimit(6));
        let add = |directories: &mut OpenDirectories, name: &str| {
            let id = (folder.path().join(name), 1, 1);
            let index = directories.position(&id).unwrap_or_else(|| directories.add(id));
            directories.keep_open(index, open(name))
        };
        // Three are available, and none for clients: less than four are not divided.
        assert_eq!(add(&mut directories, "a").err(), Some(TooManyOpen));
        directories.limit = DescriptorLimit(8);
        let opened = ["a", "b", "c"].map(|name| add(&mut directories, name).expect("opened"));
        assert!(Arc::ptr_eq(&opened[0], &add(&mut directories, "a").expect("open")));
        assert_eq!((add(&mut directories, "d").err(), directories.open_count()), (Some(TooManyOpen), 3));
        drop(opened);
        assert!(add(&mut directories, "d").is_ok());
        let problem = directories.problem((5, 2), Location::Argument("x".to_owned())).to_string();
        assert!(problem.contains("8 file descriptors") && problem.contains("this site and 1 more"), "{problem}");
    }
}
