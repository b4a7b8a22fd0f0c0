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
use std::time::SystemTime;

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
    parsed_count: u64,
}

/// The path, device and inode of a folder.
type FolderIdentity = (PathBuf, u64, u64);

/// A zone of the last configuration.
#[derive(Debug)]
struct KnownZone {
    file: PathBuf,
    /// The last good version, and when it was loaded.
    good: Option<(Arc<Zone>, SystemTime)>,
    /// The files of that version; `None` if the zone must be read anyway.
    sources: Option<ZoneSources>,
    /// Why the current files gave no zone.
    problem: Option<String>,
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

/// A zone that was looked at.
enum Outcome {
    Unchanged,
    Loaded(Arc<Zone>, ZoneSources),
    Failed(Failure),
}

impl Loader {
    pub(crate) fn new() -> Loader {
        Loader {
            seed: hash_seed(),
            folders: Vec::new(),
            roots: HashMap::new(),
            zones: HashMap::new(),
            forbids_new_folders: false,
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
        let mut before = std::mem::take(&mut self.zones);
        let mut entries = Vec::with_capacity(config.zones.len());
        for zone in &config.zones {
            let known = self.load_zone(zone, before.remove(&zone.apex), &config.limits, &mut report);
            report.domains.zones.push(known.state(&zone.apex));
            entries.push(known.entry(&zone.apex));
            self.zones.insert(zone.apex.clone(), known);
        }
        report.changes.removed.extend(before.into_keys());
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
            Some((id, folder)) => (*id, Root::Folder(Arc::clone(folder))),
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

    fn load_zone(
        &mut self,
        zone: &ZoneConfig,
        before: Option<KnownZone>,
        limits: &Limits,
        report: &mut Report,
    ) -> KnownZone {
        let mut known = before.unwrap_or_else(|| KnownZone::new(zone));
        match self.read_zone(zone, &mut known, limits, &mut report.warnings) {
            Outcome::Unchanged => {}
            Outcome::Loaded(built, sources) => {
                let old_serial = known.good.as_ref().map(|(old, _)| old.serial());
                report.changes.zone_loaded(&zone.apex, old_serial, built.serial());
                let good = Some((built, SystemTime::now()));
                known = KnownZone { file: zone.file.clone(), good, sources: Some(sources), problem: None };
            }
            Outcome::Failed(failure) => {
                report.is_denied |= failure.is_denied;
                known.sources = None;
                known.problem = failure.diagnostics.iter().find(|one| one.is_error()).map(ToString::to_string);
                report.errors.extend(failure.diagnostics);
            }
        }
        known
    }

    fn read_zone(
        &mut self,
        zone: &ZoneConfig,
        known: &mut KnownZone,
        limits: &Limits,
        warnings: &mut Vec<Diagnostic>,
    ) -> Outcome {
        if known.file == zone.file && known.sources.as_mut().is_some_and(ZoneSources::are_unchanged) {
            return Outcome::Unchanged;
        }
        if let Err(diagnostic) = zone.check_file() {
            return Outcome::Failed(Failure { diagnostics: vec![diagnostic], is_denied: false });
        }
        self.parsed_count += 1;
        match zone_loader::load(zone, limits, self.seed, warnings) {
            Ok((built, sources)) => Outcome::Loaded(Arc::new(built), sources),
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

impl KnownZone {
    fn new(zone: &ZoneConfig) -> KnownZone {
        KnownZone { file: zone.file.clone(), good: None, sources: None, problem: None }
    }

    fn entry(&self, apex: &DomainName) -> ZoneEntry {
        match &self.good {
            Some((zone, _)) => ZoneEntry::Served(Arc::clone(zone)),
            None => ZoneEntry::Unavailable { apex: Box::new(zone_loader::wire_name(apex)) },
        }
    }

    fn state(&self, apex: &DomainName) -> ZoneState {
        let good = self.good.as_ref();
        ZoneState {
            name: apex.as_str().to_owned(),
            file: self.file.clone(),
            serial: good.map(|(zone, _)| zone.serial()),
            record_count: good.map_or(0, |(zone, _)| zone.record_count() as u64),
            loaded_at: good.map(|(_, loaded_at)| *loaded_at),
            problem: self.problem.clone(),
        }
    }
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
