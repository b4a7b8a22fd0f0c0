//! The folders that are watched for changes of the files in the cache: what the kernel saw becomes keys to retire.

use crate::content::{Root, Site};
use crate::open_file::FileKey;
use sanderling_http::ContentCoding;
use sanderling_os::error::{ErrorClass, classify};
use sanderling_os::inotify::{Event, Inotify, WatchId};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Watched folders.
#[derive(Debug)]
pub(crate) struct Watches {
    /// `None` where the kernel has no such thing, or refuses it: then every file is asked about again and again.
    watcher: Option<Inotify>,
    folders_max: usize,
    folders: Mutex<Folders>,
    /// Raised whenever something was seen, before it is acted on: who opened a file meanwhile learns that what he saw
    /// may be out of date.
    seen_count: AtomicU64,
    /// The system's own bound of watches was met: no use asking for more.
    is_exhausted: AtomicBool,
}

#[derive(Debug, Default)]
struct Folders {
    by_path: HashMap<FolderKey, WatchId>,
    by_id: HashMap<WatchId, Vec<FolderKey>>,
}

/// A folder beneath the root of a site.
type FolderKey = (u32, Vec<u8>);

/// What is to be retired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outdated {
    /// The entries of this path, and of the folder that it is the index of.
    Path {
        /// The site that the path belongs to.
        site_id: u32,
        /// The path, relative to the site's root.
        path: Vec<u8>,
        /// It leads, or led, to a folder: the entries of all that lies below it are out of date as well.
        is_folder: bool,
    },
    /// Nobody tells any longer: every entry has to be asked about again.
    Everything,
}

impl Watches {
    pub(crate) fn new(folders_max: usize) -> Watches {
        Watches {
            watcher: Inotify::new().ok(),
            folders_max,
            folders: Mutex::default(),
            seen_count: AtomicU64::new(0),
            is_exhausted: AtomicBool::new(false),
        }
    }

    /// What becomes readable when something was seen.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watcher.as_ref().map(AsFd::as_fd)
    }

    /// How often something was seen.
    pub(crate) fn seen_count(&self) -> u64 {
        self.seen_count.load(Ordering::SeqCst)
    }

    /// How many folders are watched.
    pub(crate) fn folder_count(&self) -> usize {
        self.lock().by_id.len()
    }

    /// Whether the folder, and all folders on the way to it from the root, are watched already.
    pub(crate) fn watches(&self, site: &Site, folder: &[u8]) -> bool {
        let folders = self.lock();
        ancestors(folder).all(|path| folders.by_path.contains_key(&(site.id, path.to_vec())))
    }

    /// Watches the folder and all folders on the way to it; whether they now are. May wait for the file system.
    pub(crate) fn watch(&self, site: &Site, folder: &[u8]) -> bool {
        let (Some(watcher), Root::Folder(root)) = (&self.watcher, &site.root) else { return false };
        ancestors(folder).all(|path| {
            let key = (site.id, path.to_vec());
            if self.lock().by_path.contains_key(&key) {
                return true;
            }
            let Ok(opened) = root.open_directory_beneath(path) else { return false };
            if opened.is_remote().unwrap_or(true) {
                return false;
            }
            // Held over both steps: what is told of the folder from now on finds it known.
            let mut folders = self.lock();
            if self.is_exhausted.load(Ordering::Relaxed) || folders.by_id.len() >= self.folders_max {
                return false;
            }
            match watcher.add_watch(&opened) {
                Ok(id) => {
                    folders.add(key, id);
                    true
                }
                Err(error) => {
                    let is_bound =
                        classify(&error) == ErrorClass::Exhausted || error.kind() == io::ErrorKind::StorageFull;
                    self.is_exhausted.fetch_or(is_bound, Ordering::Relaxed);
                    false
                }
            }
        })
    }

    /// Shows `tell` what is out of date since the last time.
    pub(crate) fn read(&self, mut tell: impl FnMut(Outdated)) {
        let Some(watcher) = &self.watcher else { return };
        let read = watcher.read_events(|seen| {
            // Before anything is retired: both that and the lending of an entry take the table's writers' lock, so who
            // has lent one and then reads the old number has lent it before it is looked for here.
            self.seen_count.fetch_add(1, Ordering::SeqCst);
            match seen {
                Event::Overflow => {
                    // What was missed may have been that a folder went: no name of one can be trusted any more.
                    self.forget(watcher, |_| true);
                    tell(Outdated::Everything);
                }
                Event::Changed { id, name, is_directory: is_folder } => {
                    let folders = self.lock().by_id.get(&id).cloned().unwrap_or_default();
                    for (site_id, mut path) in folders {
                        if !path.is_empty() {
                            path.push(b'/');
                        }
                        path.extend_from_slice(name);
                        if is_folder {
                            self.forget_below(watcher, site_id, &path);
                        }
                        tell(Outdated::Path { site_id, path, is_folder });
                    }
                }
                Event::WatchRemoved(id) => {
                    let folders = self.lock().by_id.get(&id).cloned().unwrap_or_default();
                    for (site_id, path) in folders {
                        self.forget_below(watcher, site_id, &path);
                        tell(Outdated::Path { site_id, path, is_folder: true });
                    }
                }
            }
        });
        if read.is_err() {
            tell(Outdated::Everything);
        }
    }

    /// Watches no longer those folders in which, and below which, there is none of `keys`.
    pub(crate) fn keep_only<'k>(&self, keys: impl Iterator<Item = &'k FileKey>) {
        let Some(watcher) = &self.watcher else { return };
        let mut used = HashSet::new();
        for key in keys {
            let Some((path, site_id)) = key.split_last_chunk::<4>() else { continue };
            let end = path.iter().rposition(|&octet| octet == b'/').unwrap_or(0);
            used.extend(ancestors(&path[..end]).map(|folder| (u32::from_le_bytes(*site_id), folder)));
        }
        self.forget(watcher, |(site_id, path)| !used.contains(&(*site_id, path.as_slice())));
        self.is_exhausted.store(false, Ordering::Relaxed);
    }

    /// A path leads to another folder now, and so do all that begin with it.
    fn forget_below(&self, watcher: &Inotify, site_id: u32, path: &[u8]) {
        let is_below = |folder: &[u8]| {
            path.is_empty() || folder.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.forget(watcher, |(id, folder)| *id == site_id && is_below(folder));
    }

    /// Watches no longer the folders that `choose` picks.
    fn forget(&self, watcher: &Inotify, choose: impl Fn(&FolderKey) -> bool) {
        let mut folders = self.lock();
        let chosen: Vec<FolderKey> = folders.by_path.keys().filter(|key| choose(key)).cloned().collect();
        for key in chosen {
            if let Some(id) = folders.remove(&key) {
                watcher.remove_watch(id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Folders> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Folders {
    fn add(&mut self, key: FolderKey, id: WatchId) {
        let keys = self.by_id.entry(id).or_default();
        if !keys.contains(&key) {
            keys.push(key.clone());
        }
        self.by_path.insert(key, id);
    }

    /// Takes a folder out; its id, if no other path leads to the same folder.
    fn remove(&mut self, key: &FolderKey) -> Option<WatchId> {
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

/// `a/b/c`: the root, `a`, `a/b` and `a/b/c`.
fn ancestors(folder: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = folder.iter().enumerate().filter(|(_, octet)| **octet == b'/').map(|(index, _)| index);
    let whole = (!folder.is_empty()).then_some(folder.len());
    [0].into_iter().chain(slashes).chain(whole).map(move |end| &folder[..end])
}

impl Outdated {
    /// The keys that a changed file has: its own, with and without a slash behind it, and that of the folder that it is
    /// the index of.
    pub(crate) fn keys(&self) -> impl Iterator<Item = FileKey> {
        self.path().into_iter().flat_map(|(site_id, path)| keys_of(site_id, path))
    }

    /// The keys of the file that the changed one, by its name, holds in a coding.
    pub(crate) fn plain_keys(&self) -> impl Iterator<Item = FileKey> {
        let plain = self.path().and_then(|(site_id, path)| Some((site_id, ContentCoding::strip_file_extension(path)?)));
        plain.into_iter().flat_map(|(site_id, path)| keys_of(site_id, path))
    }

    fn path(&self) -> Option<(u32, &[u8])> {
        match self {
            Outdated::Path { site_id, path, .. } => Some((*site_id, path)),
            Outdated::Everything => None,
        }
    }

    /// Whether more than [`Outdated::keys`] is out of date, so that every entry has to be looked at.
    pub(crate) fn is_wide(&self) -> bool {
        !matches!(self, Outdated::Path { is_folder: false, .. })
    }

    /// Whether the entry of `key` lies below what is out of date.
    pub(crate) fn is_above(&self, key: &FileKey) -> bool {
        let Outdated::Path { site_id, path, .. } = self else { return true };
        let Some((asked, id)) = key.split_last_chunk::<4>() else { return false };
        let is_below = || asked.strip_prefix(path.as_slice()).is_some_and(|rest| rest.starts_with(b"/"));
        u32::from_le_bytes(*id) == *site_id && (path.is_empty() || is_below())
    }
}

fn keys_of(site_id: u32, path: &[u8]) -> impl Iterator<Item = FileKey> {
    let key = move |parts: [&[u8]; 2]| [parts[0], parts[1], &site_id.to_le_bytes()].concat();
    let folder = path.strip_suffix(b"index.html").filter(|folder| folder.is_empty() || folder.ends_with(b"/"));
    [key([path, b""]), key([path, b"/"])].into_iter().chain(folder.map(move |folder| key([folder, b""])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_watched_with_all_on_the_way_to_it() {
        let list = |folder: &'static [u8]| ancestors(folder).collect::<Vec<_>>();
        assert_eq!(list(b""), [b"".as_slice()]);
        assert_eq!(list(b"a"), [b"".as_slice(), b"a"]);
        assert_eq!(list(b"a/bc/d"), [b"".as_slice(), b"a", b"a/bc", b"a/bc/d"]);
    }

    #[test]
    fn a_change_concerns_the_path_what_is_below_it_and_the_folder_that_it_stands_for() {
        let key = |site_id: u32, asked: &str| [asked.as_bytes(), &site_id.to_le_bytes()].concat();
        let changed = |path: &str| Outdated::Path { site_id: 7, path: path.as_bytes().to_vec(), is_folder: true };
        let keys = |path: &str| changed(path).keys().collect::<Vec<_>>();
        assert_eq!(keys("a/b"), [key(7, "a/b"), key(7, "a/b/")]);
        assert_eq!(keys("a/index.html"), [key(7, "a/index.html"), key(7, "a/index.html/"), key(7, "a/")]);
        assert_eq!(keys("index.html").last(), Some(&key(7, "")));
        assert_eq!(keys("a/noindex.html").len(), 2);
        let plain_keys = |path: &str| changed(path).plain_keys().collect::<Vec<_>>();
        for ending in ["br", "zst", "gz"] {
            for plain in ["a/app.js", "index.html"] {
                assert_eq!(plain_keys(&format!("{plain}.{ending}")), keys(plain), "{ending}");
            }
        }
        assert!(plain_keys("a/app.js").is_empty());
        assert_eq!(Outdated::Everything.plain_keys().count(), 0);
        assert!(changed("a").is_above(&key(7, "a/b")));
        assert!(changed("a").is_above(&key(7, "a/")));
        assert!(!changed("a").is_above(&key(8, "a/b")));
        assert!(!changed("a").is_above(&key(7, "ab/c")));
        assert!(changed("").is_above(&key(7, "a")));
        assert!(Outdated::Everything.is_above(&key(7, "a")));
    }
}
