//! Watches folders: tells which name in which folder has come, gone or changed (inotify(7)).
//!
//! It does not tell of a file that is written through another of its names, or through a memory mapping, or on another
//! machine that shares the file system; nor in which order things happened beyond its own queue.

use crate::counters::{Syscall, count};
use crate::directory::Directory;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Names one watched folder, as the kernel does.
pub type WatchId = i32;

/// Octets of events that are read at once: some hundred of them.
const EVENT_BYTES: usize = 16 * 1024;

/// Reads after which the caller has its turn again, however much is seen meanwhile.
const READS_MAX: usize = 16;

/// The folders that are watched.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'e> {
    /// A name in a folder was made, removed, renamed, or what it names was changed.
    Changed {
        /// The folder.
        id: WatchId,
        /// The name.
        name: &'e [u8],
        /// It names, or named, a folder.
        is_directory: bool,
    },
    /// The folder itself is gone, or is no longer where it was; it is watched no more.
    WatchRemoved(WatchId),
    /// More happened than the kernel could remember: anything may have changed.
    Overflow,
}

/// What makes a file another file, or another version of itself. Writing is told by each write, so that nobody serves
/// what was there before it for long.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

impl Inotify {
    /// A watcher of nothing yet.
    pub fn new() -> io::Result<Inotify> {
        count(Syscall::InotifyInit1);
        Ok(Inotify(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches `folder`. Two ways to one folder give one id. `Exhausted` as a cause means that the system lets nobody
    /// watch more (`fs.inotify.max_user_watches`).
    pub fn add_watch(&self, folder: &Directory) -> io::Result<WatchId> {
        count(Syscall::InotifyAddWatch);
        // The descriptor's own link leads to the very folder that was opened, whatever its path leads to by now.
        let path = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
        Ok(inotify::add_watch(&self.0, path, CHANGES | WatchFlags::ONLYDIR)?)
    }

    /// Watches the folder no more.
    pub fn remove_watch(&self, id: WatchId) {
        count(Syscall::InotifyRmWatch);
        // Fails only when the folder is gone, and its watch with it.
        let _ = inotify::remove_watch(&self.0, id);
    }

    /// Shows `tell` what was seen since the last time, or the first of it: the descriptor stays readable for the rest.
    pub fn read_events(&self, mut tell: impl FnMut(Event<'_>)) -> io::Result<()> {
        let mut room = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = inotify::Reader::new(&self.0, &mut room);
        let mut read_count = 0;
        loop {
            if events.is_buffer_empty() {
                if read_count == READS_MAX {
                    return Ok(());
                }
                read_count += 1;
                count(Syscall::InotifyRead);
            }
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let what = event.events();
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                tell(Event::Overflow);
            } else if what
                .intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED)
            {
                tell(Event::WatchRemoved(event.wd()));
            } else if let Some(name) = event.file_name() {
                let is_directory = what.contains(ReadFlags::ISDIR);
                tell(Event::Changed { id: event.wd(), name: name.to_bytes(), is_directory });
            }
        }
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll_set::PollSet;
    use std::fs;
    use std::time::Duration;

    /// What is seen until `wanted` is.
    fn see(watcher: &Inotify, wanted: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while !seen.iter().any(|line| line == wanted) {
            PollSet::new([watcher.as_fd()]).wait(Some(Duration::from_secs(5))).expect("waited");
            let before = seen.len();
            watcher
                .read_events(|event| {
                    seen.push(match event {
                        Event::Changed { name, .. } => format!("changed {}", String::from_utf8_lossy(name)),
                        Event::WatchRemoved(_) => "gone".into(),
                        Event::Overflow => "overflow".into(),
                    });
                })
                .expect("read");
            assert_ne!(seen.len(), before, "{wanted:?} was not seen, but {seen:?}");
        }
        seen
    }

    #[test]
    fn every_way_to_change_a_file_is_seen() {
        let path = std::env::temp_dir().join(format!("sanderling-watch-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("made");
        let watcher = Inotify::new().expect("made");
        let folder = Directory::open(&path).expect("opened");
        let id = watcher.add_watch(&folder).expect("watched");
        assert_eq!(watcher.add_watch(&folder).expect("watched"), id);
        // A folder that somebody holds open is not gone, whatever its path says.
        drop(folder);
        fs::write(path.join("written"), "1").expect("written");
        see(&watcher, "changed written");
        fs::write(path.join("new"), "2").expect("written");
        fs::rename(path.join("new"), path.join("renamed")).expect("renamed");
        let seen = see(&watcher, "changed renamed");
        assert!(seen.contains(&"changed new".to_owned()), "{seen:?}");
        fs::remove_file(path.join("written")).expect("removed");
        see(&watcher, "changed written");
        fs::remove_dir_all(&path).expect("removed");
        see(&watcher, "gone");
    }
}
