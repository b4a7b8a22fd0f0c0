//! What all threads of a server share: its content, its bounds, its cache, its permits, and how far it is.

use crate::clock::Clock;
use crate::content::Content;
use crate::open_files::OpenFiles;
use crate::options::Options;
use crate::permits::Permits;
use crate::stage::Course;
use crate::tally::Tallies;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) drain_timeout: Duration,
    pub(crate) open_files: OpenFiles,
    pub(crate) http_permits: Permits,
    pub(crate) dns_permits: Permits,
    pub(crate) tallies: Tallies,
    content: Mutex<Arc<Content>>,
    /// Raised by each replacement, so that a turn that finds it unchanged takes no lock.
    content_version: AtomicU64,
    pub(crate) course: Course,
    /// A worker holds a DNS stream for which there is no permit.
    is_room_wanted: AtomicBool,
    start: Instant,
}

impl Shared {
    pub(crate) fn new(content: Content, options: Options, drain_timeout: Duration) -> Shared {
        let start = Instant::now();
        Shared {
            open_files: OpenFiles::new(options.open_files, start),
            http_permits: Permits::new(options.http.connections_max),
            dns_permits: Permits::new(options.dns.tcp_connections_max),
            tallies: Tallies::default(),
            content: Mutex::new(Arc::new(content)),
            content_version: AtomicU64::new(0),
            course: Course::default(),
            is_room_wanted: AtomicBool::new(false),
            options,
            drain_timeout,
            start,
        }
    }

    /// What is served now, and its number.
    pub(crate) fn content(&self) -> (Arc<Content>, u64) {
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&content), self.content_version())
    }

    /// The number of what is served now.
    #[inline]
    pub(crate) fn content_version(&self) -> u64 {
        // Acquire pairs with the Release of `replace_content`.
        self.content_version.load(Ordering::Acquire)
    }

    pub(crate) fn replace_content(&self, content: Content) {
        *self.content.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(content);
        // Release pairs with the Acquire of `content_version`: who sees the new number finds the new content.
        self.content_version.fetch_add(1, Ordering::Release);
    }

    /// Asks whichever worker has an idle DNS stream to close one.
    pub(crate) fn ask_for_room(&self) {
        self.is_room_wanted.store(true, Ordering::Relaxed);
        self.open_files.wake_workers();
    }

    #[inline]
    pub(crate) fn is_room_wanted(&self) -> bool {
        self.is_room_wanted.load(Ordering::Relaxed)
    }

    /// One was closed. Should two workers have done so for one that asked, one permit more is free.
    pub(crate) fn note_room(&self) {
        self.is_room_wanted.store(false, Ordering::Relaxed);
    }

    /// A clock that tells the time since the server's start.
    pub(crate) fn clock(&self) -> Clock {
        Clock::new(self.start)
    }
    /// Makes every thread stop in its next turn until what is given back is dropped: new content is said to be there, and
    /// cannot be had.
    #[cfg(test)]
    pub(crate) fn stop_all_threads(&self) -> impl Drop + '_ {
        let held = self.content.lock().expect("no panic");
        self.content_version.fetch_add(1, Ordering::Release);
        held
    }
}
