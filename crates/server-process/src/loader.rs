//! Loads what a configuration names: opens the folders of the sites, and reads the zones that have changed.
//!
//! A site or zone that cannot be loaded affects no other one: its last good version stays in service, and without one it is
//! unavailable.

use crate::domains::{Changes, Domains, SiteState, ZoneState};
use crate::zone_loader::{self, Failure};
use crate::zone_sources::ZoneSources;
use sanderling_config::diagnostic::{Diagnostic, Problem, reason};
use sanderling_config::{Config, DefaultSite, DomainName, Limits, Zone as ZoneConfig};
use sanderling_dns::{HashSeed, Zone, ZoneEntry, ZoneMap};
use sanderling_os::directory::Directory;
use sanderling_server::{Root, Site, Sites, Snapshot};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::SystemTime;

/// A thread is not worth its start for fewer zones.
const ZONES_PER_THREAD_MIN: usize = 1_000;

/// Loads one configuration after the other for the same server.
#[derive(Debug)]
pub(crate) struct Loader {
    /// One for all zones of the process, so that a zone can be part of one snapshot after another.
    seed: HashSeed,
    /// The folders of all sites so far; the index is the ID of the site. A folder keeps its ID, and with it its entries in
    /// the open-file cache.
    folders: Vec<FolderIdentity>,
    /// The last folder that could be opened at each path, with its ID.
    roots: HashMap<PathBuf, (u32, Arc<Directory>)>,
    /// The zones of the last configuration.
    zones: HashMap<DomainName, KnownZone>,
    /// The sandbox of this process allows only these folders.
    forbids_new_folders: bool,
    load_count: u64,
    parsed_count: u64,
}

/// The path, device and inode of a folder.
type FolderIdentity = (PathBuf, u64, u64);

/// A zone of the last configuration.
#[derive(Debug)]
struct KnownZone {
    /// The last good version.
    good: Option<Arc<Zone>>,
    /// The files of that version; `None` if the zone must be read anyway.
    sources: Option<ZoneSources>,
    state: Arc<ZoneState>,
    /// The files have the content that they had.
    is_unchanged: bool,
    /// The load that has seen the zone last.
    load_count: u64,
}

/// What was loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot,
    /// The state of each site and zone, in the order of the configuration.
    pub(crate) domains: Domains,
    /// What differs from the configuration before.
    pub(crate) changes: Changes,
    pub(crate) warnings: Vec<Diagnostic>,
    /// What is wrong with sites and zones.
    pub(crate) errors: Vec<Diagnostic>,
    /// Permission was denied: a process outside of the sandbox may be able to load more.
    pub(crate) is_denied: bool,
}

impl Loader {
    pub(crate) fn new() -> Loader {
        Loader {
            seed: hash_seed(),
            folders: Vec::new(),
            roots: HashMap::new(),
            zones: HashMap::new(),
            forbids_new_folders: false,
            load_count: 0,
            parsed_count: 0,
        }
    }

    /// Opens the sites of `config` and reads those zones that are new or have changed.
    pub(crate) fn load(&mut self, config: &Config) -> Loaded {
        let mut report = Report::default();
        let sites = config.sites.iter().map(|site| self.load_site(site, &mut report)).collect();
        let default_site = match config.default_site {
            DefaultSite::None => sanderling_server::DefaultSite::None,
            DefaultSite::Addresses(index) => sanderling_server::DefaultSite::Addresses(index),
            DefaultSite::EveryHost(index) => sanderling_server::DefaultSite::EveryHost(index),
        };
        self.load_count += 1;
        check_sources(self.zones.values_mut().collect());
        let entries: Vec<ZoneEntry> =
            config.zones.iter().map(|zone| self.load_zone(zone, &config.limits, &mut report)).collect();
        let removed = self.zones.extract_if(|_, known| known.load_count != self.load_count);
        report.changes.removed.extend(removed.map(|(apex, _)| apex));
        self.parsed_count += report.changes.parsed_count;
        report.changes.parsed_count = self.parsed_count;
        let zones = ZoneMap::new(self.seed, entries).with_cname_chain_max(config.limits.dns_cname_chain_max);
        let snapshot = Snapshot::new(Sites::new(sites, default_site), zones);
        let Report { domains, changes, warnings, errors, is_denied } = report;
        Loaded { snapshot, domains, changes, warnings, errors, is_denied }
    }

    fn load_site(&mut self, site: &sanderling_config::Site, report: &mut Report) -> Site {
        let hosts: Vec<String> = site.hosts.iter().map(|host| host.as_str().to_owned()).collect();
        let problem = match site.check_folder().and_then(|()| self.open_site(site, report)) {
            Ok(()) => None,
            Err(diagnostic) => Some(report.fail(diagnostic)),
        };
        let (id, root) = match self.roots.get(&site.folder) {
            Some((id, folder)) => (*id, Root::Directory(Arc::clone(folder))),
            None => (u32::MAX, Root::Unavailable),
        };
        report.domains.sites.push(SiteState { hosts: hosts.clone(), folder: site.folder.clone(), problem });
        Site { id, hosts, root }
    }

    fn open_site(&mut self, site: &sanderling_config::Site, report: &mut Report) -> Result<(), Diagnostic> {
        let opened = open_folder(&site.folder).and_then(|(folder, identity)| Ok((self.id_of(identity)?, folder)));
        let (id, folder) = opened.map_err(|error| {
            report.is_denied |= error.kind() == io::ErrorKind::PermissionDenied;
            let message = format!("cannot open the site `{}`: {}", site.folder.display(), reason(&error));
            let problem = Problem::new(message, "check the path of the folder and its permissions");
            Diagnostic::error(site.location.clone(), problem)
        })?;
        self.roots.insert(site.folder.clone(), (id, Arc::new(folder)));
        Ok(())
    }

    /// From now on the sandbox of this process allows only the folders loaded so far.
    pub(crate) fn forbid_new_folders(&mut self) {
        self.forbids_new_folders = true;
    }

    /// # Errors
    /// The sandbox allows to open the folder, but nothing in it.
    fn id_of(&mut self, identity: FolderIdentity) -> io::Result<u32> {
        let known = self.folders.iter().position(|known| *known == identity);
        if known.is_none() && self.forbids_new_folders {
            let message = "the sandbox of the server process does not allow this folder";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        let index = known.unwrap_or_else(|| {
            self.folders.push(identity);
            self.folders.len() - 1
        });
        Ok(index as u32)
    }

    fn load_zone(&mut self, zone: &ZoneConfig, limits: &Limits, report: &mut Report) -> ZoneEntry {
        let known = match self.zones.get_mut(&zone.apex) {
            Some(known) => known,
            None => self.zones.entry(zone.apex.clone()).or_insert_with(|| KnownZone::new(zone)),
        };
        known.load_count = self.load_count;
        if !known.is_unchanged || known.state.file.as_os_str() != zone.file.as_os_str() {
            known.read(zone, limits, self.seed, report);
        }
        report.domains.zones.push(Arc::clone(&known.state));
        known.entry(zone)
    }
}

impl KnownZone {
    fn new(zone: &ZoneConfig) -> KnownZone {
        let (name, file) = (zone.apex.as_str().to_owned(), zone.file.clone());
        let state = ZoneState { name, file, serial: None, record_count: 0, loaded_at: None, problem: None };
        KnownZone { good: None, sources: None, state: Arc::new(state), is_unchanged: false, load_count: 0 }
    }

    /// Reads the files of the zone. If they are not good, the version before stays.
    fn read(&mut self, zone: &ZoneConfig, limits: &Limits, seed: HashSeed, report: &mut Report) {
        let mut state = ZoneState::clone(&self.state);
        let result = match zone.check_file() {
            Ok(()) => {
                report.changes.parsed_count += 1;
                zone_loader::load(zone, limits, seed, &mut report.warnings)
            }
            Err(diagnostic) => Err(Failure { diagnostics: vec![diagnostic], is_denied: false }),
        };
        match result {
            Ok((good, sources)) => {
                report.changes.zone_loaded(&zone.apex, state.serial, good.serial());
                state = ZoneState {
                    file: zone.file.clone(),
                    serial: Some(good.serial()),
                    record_count: good.record_count() as u64,
                    loaded_at: Some(SystemTime::now()),
                    problem: None,
                    ..state
                };
                (self.good, self.sources) = (Some(Arc::new(good)), Some(sources));
            }
            Err(failure) => {
                report.is_denied |= failure.is_denied;
                state.problem = failure.diagnostics.iter().find(|one| one.is_error()).map(ToString::to_string);
                report.errors.extend(failure.diagnostics);
                self.sources = None;
            }
        }
        self.state = Arc::new(state);
    }

    fn entry(&self, zone: &ZoneConfig) -> ZoneEntry {
        match &self.good {
            Some(good) => ZoneEntry::Served(Arc::clone(good)),
            None => ZoneEntry::Unavailable { apex: Box::new(zone_loader::wire_name(&zone.apex)) },
        }
    }
}

/// Finds out which zones are unchanged, on all processors: a `stat` for each of 10,000 files takes 15 ms.
fn check_sources(mut zones: Vec<&mut KnownZone>) {
    let check = |chunk: &mut [&mut KnownZone]| {
        for zone in chunk {
            zone.is_unchanged = zone.sources.as_mut().is_some_and(ZoneSources::are_unchanged);
        }
    };
    // A zone that is not checked, for want of a thread, is read.
    zones.iter_mut().for_each(|zone| zone.is_unchanged = false);
    let thread_count = thread::available_parallelism().map_or(1, usize::from);
    let chunk_len = zones.len().div_ceil(thread_count).max(ZONES_PER_THREAD_MIN).min(zones.len());
    let (own, others) = zones.split_at_mut(chunk_len);
    thread::scope(|scope| {
        for chunk in others.chunks_mut(chunk_len.max(1)) {
            let _ = thread::Builder::new().name("loader".to_owned()).spawn_scoped(scope, move || check(chunk));
        }
        check(own);
    });
}

/// What is collected while a configuration is loaded.
#[derive(Default)]
struct Report {
    domains: Domains,
    changes: Changes,
    warnings: Vec<Diagnostic>,
    errors: Vec<Diagnostic>,
    is_denied: bool,
}

impl Report {
    /// Adds an error; its text.
    fn fail(&mut self, diagnostic: Diagnostic) -> String {
        let text = diagnostic.to_string();
        self.errors.push(diagnostic);
        text
    }
}

fn open_folder(path: &Path) -> io::Result<(Directory, FolderIdentity)> {
    let folder = Directory::open(path)?;
    let metadata = folder.metadata()?;
    let identity = (folder.real_path().to_owned(), metadata.device, metadata.inode);
    Ok((folder, identity))
}

/// A seed that a client cannot predict, from the keys of the standard library's hash tables.
pub(crate) fn hash_seed() -> HashSeed {
    HashSeed(RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests;
