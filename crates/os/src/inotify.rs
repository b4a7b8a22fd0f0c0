//! Watches directories for names that are created, removed or changed (inotify(7)).
//!
//! Not reported: a file written through another of its names, through a memory mapping, or on another machine that
//! shares the file system.

use crate::counters::{Syscall, count};
use crate::directory::Directory;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The kernel's identifier of a watched directory.
pub type WatchId = i32;

/// Bytes of events read per call: several hundred events.
const EVENT_BYTES: usize = 16 * 1024;

/// Calls of one [`Inotify::read_events`], which returns then even if more events arrive.
const READS_MAX: usize = 16;

/// An inotify instance.
#[derive(Debug)]
pub struct Inotify(OwnedFd);

/// A change in a watched directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'e> {
    /// A name in the directory was created, removed or renamed, or its file changed.
    Changed {
        /// The directory.
        id: WatchId,
        /// The name.
        name: &'e [u8],
        /// Whether the name is or was a directory's.
        is_directory: bool,
    },
    /// The directory was removed, moved or unmounted and is no longer watched.
    WatchRemoved(WatchId),
    /// The kernel's queue overflowed: anything may have changed.
    Overflow,
}

/// Every change of a file or of its name. `MODIFY` reports each write, so that old content is not served for long.
const CHANGES: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF);

impl Inotify {
    /// An instance without watches.
    pub fn new() -> io::Result<Inotify> {
        count(Syscall::InotifyInit1);
        Ok(Inotify(inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?))
    }

    /// Watches `directory`; one directory has one id, whatever its path. The error `ENOSPC` means that the limit
    /// `fs.inotify.max_user_watches` is reached.
    pub fn add_watch(&self, directory: &Directory) -> io::Result<WatchId> {
        count(Syscall::InotifyAddWatch);
        // This link leads to the opened directory, wherever it has been moved since.
        let path = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        Ok(inotify::add_watch(&self.0, path, CHANGES | WatchFlags::ONLYDIR)?)
    }

    /// Removes a watch.
    pub fn remove_watch(&self, id: WatchId) {
        count(Syscall::InotifyRmWatch);
        // Fails only if the directory was removed, and its watch with it.
        let _ = inotify::remove_watch(&self.0, id);
    }

    /// Calls `handle` for each event since the last call, up to a limit: the descriptor stays readable for the rest.
    pub fn read_events(&self, mut handle: impl FnMut(Event<'_>)) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
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
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                handle(Event::Overflow);
            } else if flags
                .intersects(ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT | ReadFlags::IGNORED)
            {
                handle(Event::WatchRemoved(event.wd()));
            } else if let Some(name) = event.file_name() {
                let is_directory = flags.contains(ReadFlags::ISDIR);
                handle(Event::Changed { id: event.wd(), name: name.to_bytes(), is_directory });
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
    use std::io::Write;
    use std::time::Duration;

    /// Reads events until `wanted` is among them.
    fn events_until(inotify: &Inotify, wanted: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while !seen.iter().any(|line| line == wanted) {
            PollSet::new([inotify.as_fd()]).wait(Some(Duration::from_secs(5))).expect("no error");
            let before = seen.len();
            inotify
                .read_events(|event| {
                    seen.push(match event {
                        Event::Changed { name, .. } => format!("changed {}", String::from_utf8_lossy(name)),
                        Event::WatchRemoved(_) => "watch removed".into(),
                        Event::Overflow => "overflow".into(),
                    });
                })
                .expect("read");
            assert_ne!(seen.len(), before, "{wanted:?} was not seen, but {seen:?}");
        }
        seen
    }

    #[test]
    fn every_kind_of_change_is_reported() {
        let directory = tempfile::tempdir().expect("created");
        let path = directory.path();
        let inotify = Inotify::new().expect("created");
        let directory = Directory::open(path).expect("opened");
        let id = inotify.add_watch(&directory).expect("watched");
        assert_eq!(inotify.add_watch(&directory).expect("watched"), id);
        // An open directory is not reported as removed.
        drop(directory);
        fs::write(path.join("written"), "1").expect("written");
        events_until(&inotify, "changed written");
        fs::write(path.join("new"), "2").expect("written");
        fs::rename(path.join("new"), path.join("renamed")).expect("renamed");
        let seen = events_until(&inotify, "changed renamed");
        assert!(seen.contains(&"changed new".to_owned()), "{seen:?}");
        fs::remove_file(path.join("written")).expect("removed");
        events_until(&inotify, "changed written");
        fs::remove_dir_all(path).expect("removed");
        events_until(&inotify, "watch removed");
    }

    #[test]
    fn full_queue_is_reported() {
        let queued_max = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").expect("Linux has it");
        let queued_max: usize = queued_max.trim().parse().expect("a number");
        let directory = tempfile::tempdir().expect("created");
        let inotify = Inotify::new().expect("created");
        inotify.add_watch(&Directory::open(directory.path()).expect("opened")).expect("watched");
        // Only equal events in succession are merged.
        let files = ["a", "b"].map(|name| fs::File::create(directory.path().join(name)).expect("created"));
        for number in 0..=queued_max {
            (&files[number % 2]).write_all(b"x").expect("written");
        }
        events_until(&inotify, "overflow");
    }
}
