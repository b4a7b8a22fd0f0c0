//! Notices changes of the files `_redirects` and `_headers`, and reads them again.
//!
//! A thread of its own looks at the files once a second, or less often where that would take more than a hundredth of its time. It
//! may wait for a disk, and nothing waits for it: it ends with the process.

use crate::rules_files::{self, LoadedRules, RulesVersion};
use sanderling_config::Limits;
use sanderling_os::directory::Directory;
use sanderling_os::event_fd::EventFd;
use sanderling_server::{Root, Site, Sites};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_secs(1);
/// The thread pauses for so many times the time that it was busy.
const PAUSE_FACTOR: u32 = 100;

/// The files of one site.
#[derive(Clone, Debug)]
pub(crate) struct WatchedSite {
    /// The index of the site in its [`Sites`].
    pub(crate) index: usize,
    pub(crate) site: Arc<Site>,
    pub(crate) document_root: PathBuf,
    pub(crate) version: RulesVersion,
}

/// Rules that have changed.
#[derive(Debug)]
pub(crate) struct ChangedRules {
    /// The site that had the rules before.
    watched: WatchedSite,
    pub(crate) loaded: LoadedRules,
}

impl ChangedRules {
    /// `sites` with these rules; `None` if the site was replaced meanwhile.
    pub(crate) fn apply(&mut self, sites: &Sites) -> Option<(Sites, WatchedSite)> {
        let WatchedSite { index, site, .. } = &self.watched;
        if !sites.all().get(*index).is_some_and(|current| Arc::ptr_eq(current, site)) {
            return None;
        }
        let sites = sites.with_site(*index, site.with_file_rules(std::mem::take(&mut self.loaded.rules)));
        let site = Arc::clone(&sites.all()[*index]);
        Some((sites, WatchedSite { site, version: self.loaded.version, ..self.watched.clone() }))
    }

    pub(crate) fn document_root(&self) -> &PathBuf {
        &self.watched.document_root
    }
}

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct RulesWatcher {
    sites: Arc<Mutex<Vec<WatchedSite>>>,
    changes: Receiver<ChangedRules>,
    has_changes: Arc<EventFd>,
    /// Until there is a site with such files, there is no thread.
    start: Option<(Sender<ChangedRules>, Limits)>,
}

impl RulesWatcher {
    /// `has_changes` is signalled when there are changes.
    pub(crate) fn new(limits: &Limits, has_changes: Arc<EventFd>) -> RulesWatcher {
        let (sender, changes) = mpsc::channel();
        RulesWatcher { sites: Arc::default(), changes, has_changes, start: Some((sender, limits.clone())) }
    }

    /// Watches the files of these sites, and no others.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn watch(&mut self, sites: Vec<WatchedSite>) -> io::Result<()> {
        let is_needed = !sites.is_empty();
        *self.sites.lock().unwrap_or_else(PoisonError::into_inner) = sites;
        let Some((changes, limits)) = self.start.take_if(|_| is_needed) else { return Ok(()) };
        let thread =
            WatcherThread { sites: Arc::clone(&self.sites), changes, limits, wake: Arc::clone(&self.has_changes) };
        thread::Builder::new().name("rules".to_owned()).spawn(move || thread.run()).map(drop)
    }

    /// The next change.
    pub(crate) fn take(&self) -> Option<ChangedRules> {
        self.changes.try_recv().ok()
    }

    /// Goes on with the site of an applied change.
    pub(crate) fn update(&self, changed: WatchedSite) {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watched) = sites.iter_mut().find(|watched| watched.index == changed.index) {
            *watched = changed;
        }
    }
}

struct WatcherThread {
    sites: Arc<Mutex<Vec<WatchedSite>>>,
    changes: Sender<ChangedRules>,
    limits: Limits,
    wake: Arc<EventFd>,
}

impl WatcherThread {
    fn run(&self) {
        loop {
            let start = Instant::now();
            if !self.look() {
                return;
            }
            thread::sleep(INTERVAL.max(start.elapsed() * PAUSE_FACTOR));
        }
    }

    /// Looks at all files; false if the control thread has ended.
    fn look(&self) -> bool {
        let sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for watched in sites {
            let Root::Directory(root) = &watched.site.root else { continue };
            let root: &Directory = root;
            let version = rules_files::version(root);
            // A file that is being written has another version at the next look.
            if version == watched.version || rules_files::version(root) != version {
                continue;
            }
            let loaded = rules_files::load(root, &watched.document_root, &self.limits);
            if self.changes.send(ChangedRules { watched, loaded }).is_err() {
                return false;
            }
            // It fails only if the descriptor is closed, which both ends own.
            let _ = self.wake.signal();
        }
        true
    }
}
