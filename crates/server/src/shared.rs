//! What all threads of a server share: its content, its bounds, its cache, its permits, and whether it still serves.

use crate::clock::Clock;
use crate::content::Content;
use crate::open_files::OpenFiles;
use crate::options::Options;
use crate::permits::Permits;
use crate::tally::Tallies;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
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
    stage: AtomicU8,
    /// A worker holds a DNS stream for which there is no permit.
    is_room_wanted: AtomicBool,
    start: Instant,
}

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stage {
    Serving,
    /// No new connections; those that are there finish.
    Draining,
    /// All workers have left.
    Ended,
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
            stage: AtomicU8::new(Stage::Serving as u8),
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

    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        // Acquire pairs with the Release of `advance_to`.
        match self.stage.load(Ordering::Acquire) {
            stage if stage == Stage::Serving as u8 => Stage::Serving,
            stage if stage == Stage::Draining as u8 => Stage::Draining,
            _ => Stage::Ended,
        }
    }

    /// Goes on to `stage`, never back.
    pub(crate) fn advance_to(&self, stage: Stage) {
        self.stage.fetch_max(stage as u8, Ordering::AcqRel);
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
}
