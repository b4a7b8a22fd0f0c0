//! The directories that are watched (inotify) for changes of the files in the cache: events become keys to invalidate.

use crate::files::open_file::{FileKey, KeySite, Purpose};
use crate::site::sites::{Root, Site, ancestors};
use sanderling_http::ContentCoding;
use sanderling_os::error::{ErrorClass, classify};
use sanderling_os::inotify::{Event, Inotify, WatchId};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Watched directories.
#[derive(Debug)]
pub(crate) struct WatchedDirectories {
    /// `None` where the kernel lacks inotify or refuses it: then every file is revalidated in time.
    inotify: Option<Inotify>,
    count_max: usize,
    watches: Mutex<Watches>,
    /// Incremented for each event before anything is invalidated, so that a thread that opened a file meanwhile sees
    /// that its result may be out of date.
    event_count: AtomicU64,
    /// The system's own limit of watches is reached.
    is_exhausted: AtomicBool,
}

#[derive(Debug, Default)]
struct Watches {
    by_path: HashMap<DirectoryKey, WatchId>,
    by_id: HashMap<WatchId, Vec<DirectoryKey>>,
}

/// A directory beneath the document root of a site.
type DirectoryKey = (u32, Vec<u8>);

/// The entries that an event makes out of date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Invalidation {
    /// The entries of this path, and that of the directory that the path is the index of.
    Path {
        /// The site that the path belongs to.
        site_id: u32,
        /// Relative to the document root.
        path: Vec<u8>,
        /// The path leads, or led, to a directory: the entries below it are out of date as well.
        is_directory: bool,
    },
    /// All entries: events were lost.
    Everything,
}

impl WatchedDirectories {
    pub(crate) fn new(count_max: usize) -> WatchedDirectories {
        WatchedDirectories {
            inotify: Inotify::new().ok(),
            count_max,
            watches: Mutex::default(),
            event_count: AtomicU64::new(0),
            is_exhausted: AtomicBool::new(false),
        }
    }

    /// The descriptor that becomes readable with the next event.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    /// Events so far.
    pub(crate) fn event_count(&self) -> u64 {
        self.event_count.load(Ordering::SeqCst)
    }

    /// Directories that are watched.
    pub(crate) fn count(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Whether the directory and all directories above it, up to the document root, are watched.
    pub(crate) fn is_watched(&self, site: &Site, directory: &[u8]) -> bool {
        let watches = self.lock();
        ancestors(directory).all(|path| watches.by_path.contains_key(&(site.id, path.to_vec())))
    }

    /// Watches the directory and all directories above it; whether that succeeded. May wait for the file system.
    pub(crate) fn watch(&self, site: &Site, directory: &[u8]) -> bool {
        let (Some(inotify), Root::Directory(root)) = (&self.inotify, &site.root) else { return false };
        ancestors(directory).all(|path| {
            let key = (site.id, path.to_vec());
            if self.lock().by_path.contains_key(&key) {
                return true;
            }
            let Ok(opened) = root.open_directory_beneath(path) else { return false };
            if opened.is_remote().unwrap_or(true) {
                return false;
            }
            // Locked over both steps: an event of the directory finds it registered.
            let mut watches = self.lock();
            if self.is_exhausted.load(Ordering::Relaxed) || watches.by_id.len() >= self.count_max {
                return false;
            }
            match inotify.add_watch(&opened) {
                Ok(id) => {
                    watches.insert(key, id);
                    true
                }
                Err(error) => {
                    let is_limit =
                        classify(&error) == ErrorClass::Exhausted || error.kind() == io::ErrorKind::StorageFull;
                    self.is_exhausted.fetch_or(is_limit, Ordering::Relaxed);
                    false
                }
            }
        })
    }

    /// Reads the events since the last call and reports outdated entries to `invalidate`.
    pub(crate) fn read_events(&self, mut invalidate: impl FnMut(Invalidation)) {
        let Some(inotify) = &self.inotify else { return };
        let read = inotify.read_events(|event| {
            // Counted before anything is invalidated. Both invalidating and publishing an entry take the lock of the
            // table's writers: a thread that has published an entry and then reads the old number has published it
            // before it is looked for here.
            self.event_count.fetch_add(1, Ordering::SeqCst);
            match event {
                Event::Overflow => {
                    // A lost event may have been that of a directory: no watch has a path that is still certain.
                    self.unwatch(inotify, |_| true);
                    invalidate(Invalidation::Everything);
                }
                Event::Changed { id, name, is_directory } => {
                    let keys = self.lock().by_id.get(&id).cloned().unwrap_or_default();
                    for (site_id, mut path) in keys {
                        if !path.is_empty() {
                            path.push(b'/');
                        }
                        path.extend_from_slice(name);
                        if is_directory {
                            self.unwatch_below(inotify, site_id, &path);
                        }
                        invalidate(Invalidation::Path { site_id, path, is_directory });
                    }
                }
                Event::WatchRemoved(id) => {
                    let keys = self.lock().by_id.get(&id).cloned().unwrap_or_default();
                    for (site_id, path) in keys {
                        self.unwatch_below(inotify, site_id, &path);
                        invalidate(Invalidation::Path { site_id, path, is_directory: true });
                    }
                }
            }
        });
        if read.is_err() {
            invalidate(Invalidation::Everything);
        }
    }

    /// Stops watching the directories without one of `keys` in them or below them.
    pub(crate) fn keep_only<'k>(&self, keys: impl Iterator<Item = &'k FileKey>) {
        let Some(inotify) = &self.inotify else { return };
        let mut used = HashSet::new();
        for FileKey { path, site } in keys {
            let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            used.extend(ancestors(&path[..end]).map(|directory| (site.id(), directory)));
        }
        self.unwatch(inotify, |(site_id, path)| !used.contains(&(*site_id, path.as_slice())));
        self.is_exhausted.store(false, Ordering::Relaxed);
    }

    /// Stops watching what may be another directory now: `path` and everything below it.
    fn unwatch_below(&self, inotify: &Inotify, site_id: u32, path: &[u8]) {
        let is_below = |directory: &[u8]| {
            path.is_empty()
                || directory.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.unwatch(inotify, |(id, directory)| *id == site_id && is_below(directory));
    }

    fn unwatch(&self, inotify: &Inotify, choose: impl Fn(&DirectoryKey) -> bool) {
        let mut watches = self.lock();
        let chosen: Vec<DirectoryKey> = watches.by_path.keys().filter(|key| choose(key)).cloned().collect();
        for key in chosen {
            if let Some(id) = watches.remove(&key) {
                inotify.remove_watch(id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watches {
    fn insert(&mut self, key: DirectoryKey, id: WatchId) {
        let keys = self.by_id.entry(id).or_default();
        if !keys.contains(&key) {
            keys.push(key.clone());
        }
        self.by_path.insert(key, id);
    }

    /// Removes a directory; returns its watch if no other path leads to the same directory.
    fn remove(&mut self, key: &DirectoryKey) -> Option<WatchId> {
        let id = self.by_path.remove(key)?;
        let keys = self.by_id.get_mut(&id)?;
        keys.retain(|other| other != key);
        let is_last = keys.is_empty();
        if is_last {
            self.by_id.remove(&id);
        }
        is_last.then_some(id)
    }
}

impl Invalidation {
    /// The keys of a changed file: with and without a final slash, that of the file itself, that of the directory that
    /// the file is the index of, and that without the extension.
    pub(crate) fn keys(&self) -> impl Iterator<Item = FileKey> {
        self.path().into_iter().flat_map(|(site_id, path)| keys_of(site_id, path))
    }

    /// The keys of the file that the changed one, by its name, is a precompressed form of.
    pub(crate) fn uncompressed_keys(&self) -> impl Iterator<Item = FileKey> {
        let uncompressed =
            self.path().and_then(|(site_id, path)| Some((site_id, ContentCoding::strip_file_extension(path)?)));
        uncompressed.into_iter().flat_map(|(site_id, path)| keys_of(site_id, path))
    }

    fn path(&self) -> Option<(u32, &[u8])> {
        match self {
            Invalidation::Path { site_id, path, .. } => Some((*site_id, path)),
            Invalidation::Everything => None,
        }
    }

    /// Whether more than [`Invalidation::keys`] is out of date, so that every entry must be checked.
    pub(crate) fn is_recursive(&self) -> bool {
        !matches!(self, Invalidation::Path { is_directory: false, .. })
    }

    /// Whether the entry of `key` is below an outdated path.
    pub(crate) fn contains(&self, key: &FileKey) -> bool {
        let Invalidation::Path { site_id, path, .. } = self else { return true };
        let is_below = || key.path.strip_prefix(path.as_slice()).is_some_and(|rest| rest.starts_with(b"/"));
        key.site.id() == *site_id && (path.is_empty() || is_below())
    }
}

fn keys_of(site_id: u32, path: &[u8]) -> impl Iterator<Item = FileKey> {
    let key = move |path: Vec<u8>| FileKey { path, site: KeySite::new(site_id, Purpose::Request) };
    let directory = path.strip_suffix(b"index.html").filter(|path| path.is_empty() || path.ends_with(b"/"));
    let without_extension = path.strip_suffix(b".html");
    let others = [directory, without_extension].into_iter().flatten().map(move |path| key(path.to_vec()));
    [key(path.to_vec()), key([path, b"/"].concat()), FileKey::exact(site_id, path.to_vec())].into_iter().chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::sites::SiteOptions;
    use sanderling_os::directory::Directory;
    use std::sync::Arc;

    fn key(site_id: u32, path: &str) -> FileKey {
        FileKey { path: path.as_bytes().to_vec(), site: KeySite::new(site_id, Purpose::Request) }
    }

    fn exact(path: &str) -> FileKey {
        FileKey::exact(7, path.as_bytes().to_vec())
    }

    #[test]
    fn a_directory_is_watched_with_all_directories_above_it() {
        let list = |directory: &'static [u8]| ancestors(directory).collect::<Vec<_>>();
        assert_eq!(list(b""), [b"".as_slice()]);
        assert_eq!(list(b"a"), [b"".as_slice(), b"a"]);
        assert_eq!(list(b"a/bc/d"), [b"".as_slice(), b"a", b"a/bc", b"a/bc/d"]);
    }

    #[test]
    fn an_event_invalidates_the_path_everything_below_it_and_its_directory_if_it_is_the_index() {
        let changed =
            |path: &str| Invalidation::Path { site_id: 7, path: path.as_bytes().to_vec(), is_directory: true };
        let keys = |path: &str| changed(path).keys().collect::<Vec<_>>();
        assert_eq!(keys("a/b"), [key(7, "a/b"), key(7, "a/b/"), exact("a/b")]);
        let index =
            [key(7, "a/index.html"), key(7, "a/index.html/"), exact("a/index.html"), key(7, "a/"), key(7, "a/index")];
        assert_eq!(keys("a/index.html"), index);
        assert_eq!(keys("index.html")[3], key(7, ""));
        let page = [key(7, "a/noindex.html"), key(7, "a/noindex.html/"), exact("a/noindex.html"), key(7, "a/noindex")];
        assert_eq!(keys("a/noindex.html"), page);
        assert!(changed("a").contains(&key(7, "a/b")));
        assert!(changed("a").contains(&key(7, "a/")));
        assert!(!changed("a").contains(&key(8, "a/b")));
        assert!(!changed("a").contains(&key(7, "ab/c")));
        assert!(changed("").contains(&key(7, "a")));
        assert!(Invalidation::Everything.contains(&key(7, "a")));
    }

    #[test]
    fn an_event_of_a_precompressed_file_invalidates_the_file_without_a_coding() {
        let changed =
            |path: &str| Invalidation::Path { site_id: 7, path: path.as_bytes().to_vec(), is_directory: false };
        for extension in ["br", "zst", "gz"] {
            for uncompressed in ["a/app.js", "index.html"] {
                let invalidation = changed(&format!("{uncompressed}.{extension}"));
                assert!(invalidation.uncompressed_keys().eq(changed(uncompressed).keys()), "{extension}");
            }
        }
        assert_eq!(changed("a/app.js").uncompressed_keys().count(), 0);
        assert_eq!(Invalidation::Everything.uncompressed_keys().count(), 0);
    }

    #[test]
    fn lost_events_invalidate_everything_and_end_all_watches() {
        let directory = tempfile::tempdir().expect("created");
        let root = Root::Directory(Arc::new(Directory::open(directory.path()).expect("opened")));
        let site = Site { id: 7, hosts: Vec::new(), root, options: SiteOptions::default() };
        let watched = WatchedDirectories::new(10);
        assert!(watched.watch(&site, b"") && watched.is_watched(&site, b""));
        let queue = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("read");
        let queue: usize = queue.trim().parse().expect("a number");
        let (mut from, mut to) = (directory.path().join("a"), directory.path().join("b"));
        std::fs::write(&from, b"").expect("written");
        // Two events each.
        for _ in 0..=queue / 2 {
            std::fs::rename(&from, &to).expect("renamed");
            std::mem::swap(&mut from, &mut to);
        }
        // Each call reads a bounded number of events.
        let (mut last, mut calls) = (None, 0);
        while watched.count() > 0 && calls <= queue {
            watched.read_events(|invalidation| last = Some(invalidation));
            calls += 1;
        }
        assert_eq!(last, Some(Invalidation::Everything));
        assert!(!watched.is_watched(&site, b""));
    }
}
