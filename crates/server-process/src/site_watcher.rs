//! Notices changes of the files `_redirects` and `_headers`, and reads them again; and notices that a site has another
//! release.
//!
//! A separate thread checks the sites once a second, or less often where that would take more than a hundredth of its
//! time. The thread may wait for a disk, and no other thread waits for it: it ends with the process.

use crate::rules_files::{self, LoadedRules, RulesVersion};
use sanderling_config::{Limits, ReleaseLink};
use sanderling_os::directory::Directory;
use sanderling_os::event_fd::EventFd;
use sanderling_os::panics;
use sanderling_server::{Root, Site, Sites};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two checks of the sites.
const INTERVAL: Duration = Duration::from_secs(1);
/// The pause of the thread, as a multiple of the time that it was busy.
const PAUSE_FACTOR: u32 = 100;

/// The watched paths of one site.
#[derive(Clone, Debug)]
pub(crate) struct WatchedSite {
    /// The index of the site in its [`Sites`].
    pub(crate) index: usize,
    pub(crate) site: Arc<Site>,
    pub(crate) document_root: PathBuf,
    /// The versions of its files of rules; `None` if it does not follow them.
    pub(crate) rules: Option<RulesVersion>,
    /// The last reported release of the site's link; `None` if its document root is not a link.
    pub(crate) release: Option<PathBuf>,
}

/// A change of a site.
#[derive(Debug)]
pub(crate) enum SiteChange {
    /// The versions of its rules files.
    Rules(Box<ChangedRules>),
    /// The site with this index has another release.
    Release(usize),
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
        Some((sites, WatchedSite { site, rules: Some(self.loaded.version), ..self.watched.clone() }))
    }

    pub(crate) fn document_root(&self) -> &PathBuf {
        &self.watched.document_root
    }
}

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct SiteWatcher {
    sites: Arc<Mutex<Vec<WatchedSite>>>,
    changes: Receiver<SiteChange>,
    has_changes: Arc<EventFd>,
    /// The thread starts when there is a site to watch.
    start: Option<(Sender<SiteChange>, Limits)>,
}

impl SiteWatcher {
    /// `has_changes` is signalled when there are changes.
    pub(crate) fn new(limits: &Limits, has_changes: Arc<EventFd>) -> SiteWatcher {
        let (sender, changes) = mpsc::channel();
        SiteWatcher { sites: Arc::default(), changes, has_changes, start: Some((sender, limits.clone())) }
    }

    /// Watches exactly these sites.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn watch(&mut self, sites: Vec<WatchedSite>) -> io::Result<()> {
        let is_needed = !sites.is_empty();
        *self.sites.lock().unwrap_or_else(PoisonError::into_inner) = sites;
        let Some((changes, limits)) = self.start.take_if(|_| is_needed) else { return Ok(()) };
        let thread =
            WatcherThread { sites: Arc::clone(&self.sites), changes, limits, wake: Arc::clone(&self.has_changes) };
        thread::Builder::new().name("sites".to_owned()).spawn(move || thread.run()).map(drop)
    }

    /// The next change.
    pub(crate) fn take(&self) -> Option<SiteChange> {
        self.changes.try_recv().ok()
    }

    /// Continues with the site of an applied change.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn update(&mut self, changed: WatchedSite) -> io::Result<()> {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner).clone();
        sites.retain(|watched| watched.index != changed.index);
        sites.push(changed);
        self.watch(sites)
    }
}

struct WatcherThread {
    sites: Arc<Mutex<Vec<WatchedSite>>>,
    changes: Sender<SiteChange>,
    limits: Limits,
    wake: Arc<EventFd>,
}

impl WatcherThread {
    fn run(&self) {
        panics::end_process(panics::Scope::Thread);
        loop {
            let start = Instant::now();
            if !self.look() {
                return;
            }
            thread::sleep(INTERVAL.max(start.elapsed() * PAUSE_FACTOR));
        }
    }

    /// Checks all sites; false if the control thread has ended.
    fn look(&self) -> bool {
        let sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for watched in sites {
            let change = match self.switched_release(&watched) {
                Some(index) => SiteChange::Release(index),
                None => match self.changed_rules(watched) {
                    Some(changed) => SiteChange::Rules(Box::new(changed)),
                    None => continue,
                },
            };
            if self.changes.send(change).is_err() {
                return false;
            }
            // The call fails only if the descriptor, which both ends own, is closed.
            let _ = self.wake.signal();
        }
        true
    }

    fn changed_rules(&self, watched: WatchedSite) -> Option<ChangedRules> {
        let (Root::Directory(root), Some(known)) = (&watched.site.root, &watched.rules) else { return None };
        let root: &Directory = root;
        let version = rules_files::version(root);
        // A file that is being written has another version at the next check.
        if version == *known || rules_files::version(root) != version {
            return None;
        }
        let loaded = rules_files::load(root, &watched.document_root, &self.limits);
        Some(ChangedRules { watched, loaded })
    }

    /// The site's index if its link now leads to another release. A release is reported once, even if it cannot be
    /// served.
    fn switched_release(&self, watched: &WatchedSite) -> Option<usize> {
        let known = watched.release.as_ref()?;
        let release = ReleaseLink::new(&watched.document_root).current().filter(|release| release != known)?;
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        let current = sites.iter_mut().find(|site| Arc::ptr_eq(&site.site, &watched.site))?;
        current.release = Some(release);
        Some(watched.index)
    }
}
