//! Loads what a configuration specifies: opens the sites' document roots, and reads the zones that have changed.
//!
//! A site or zone that cannot be loaded affects no other: its last good version stays in service; without one, it is
//! unavailable.

mod derived_zones;
mod one_site;
mod one_zone;
mod routes;
mod updated_zone;
mod refused_version;
mod catalog_zones;
mod site_directories;

use crate::catalog_members::CatalogMembers;
use crate::client_policy;
use crate::exposed_files::{self, PrivateState};
use crate::kept_zones::{KeptZones, NewSegment, VersionInfo};
use crate::load_status::{Changes, FolderState, LoadStatus, ReleaseState, SiteState, ZoneState};
use crate::open_directories::{DescriptorLimit, DirectoryId, OpenDirectories};
use crate::rules_files::{self, LoadedRules, RulesVersion};
use crate::site_watcher::WatchedSite;
use crate::users_files;
use crate::zone_journals::{self, ChangedJournals, ZoneJournals};
use crate::zone_updates::{self, UpdateFiles};
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, Severity, error_text};
use sanderling_config::log::log_error;
use sanderling_config::{
    Config, DefaultSite, DomainName, Hsts, Limits, ReleaseLink, SIGNED_ZONES, SecondaryZone, Zone as ZoneConfig,
    ZoneFolder, ZoneListing, ZoneOrigin,
};
use sanderling_dns::difference::LaterFile;
use sanderling_dns::{HashSeed, Zone, ZoneEntry, ZoneMap};
use sanderling_http::PathTraits;
use sanderling_ipc::derived::DerivedSet;
use sanderling_os::clock::{from_unix_seconds, unix_seconds};
use sanderling_os::directory::Directory;
use sanderling_os::error::with_second_try;
use sanderling_server::{EarlierFiles, ProtectionRules, Root, Site, SiteOptions, SiteRules, Sites, Snapshot};
use sanderling_site_rules::{FileOptions, ProtectedPaths, Routes, RuleSet};
use sanderling_zone_files::{
    self as zone_files, AddedRecords, Denial, Derivations, Failure, PriorUpdates, ReadZone, StoreRequest,
    ZoneDerivation, ZoneSources, ZoneUpdates,
};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use refused_version::Provenance;
use routes::Backends;
use site_directories::LeftOut;

pub(crate) use catalog_zones::MemberChanges;
pub(crate) use one_site::OneSite;
pub(crate) use one_zone::{OneZone, Reloaded, RemovedZone, unknown_zone};
pub(crate) use updated_zone::{DeniedChange, UpdatedVersion, UpdatedZone};

/// With fewer zones, starting a thread costs more than it saves.
const ZONES_PER_THREAD_MIN: usize = 1_000;

/// Loads successive configurations of a server.
#[derive(Debug)]
pub(crate) struct Loader {
    /// All zones of the process share one seed, so that a zone can be part of one snapshot after another.
    seed: HashSeed,
    /// The directories of all sites so far.
    directories: OpenDirectories,
    /// The document roots with their sites' options; the index is the site's ID. Both sites keep their IDs, and so
    /// their entries in the open-file cache.
    site_ids: Vec<SiteKey>,
    /// The last good directory of each site of the previous configuration, by its domain; `None` is the domain of
    /// `serve FOLDER`.
    roots: HashMap<Option<DomainName>, ServedRoot>,
    /// The applications of the previous configuration.
    backends: Backends,
    /// The zones of the previous configuration.
    zones: HashMap<DomainName, LoadedZone>,
    /// The zone folder.
    zone_folder: Option<PathBuf>,
    /// The state folder, if it holds zone data.
    state: Option<PathBuf>,
    /// The state folder, whatever its content. The configuration may use none.
    state_folder: Option<PathBuf>,
    /// The folders that no site may serve.
    private_states: Vec<PrivateState>,
    /// The zones that catalogs have brought.
    members: CatalogMembers,
    /// The user that the process has switched to.
    user: Option<String>,
    /// The records that the agent has derived for zones.
    derived: Arc<DerivedSet>,
    /// The good versions for the next server process; `None` if there is none.
    kept: Option<KeptZones>,
    /// The sandbox of this process allows few directories.
    is_restricted: bool,
    load_count: u64,
    parsed_count: u64,
}

/// A directory that a site serves.
#[derive(Clone, Debug)]
struct ServedRoot {
    /// The document root's path in the configuration for which it was opened.
    path: PathBuf,
    /// The document root's index in the loader's directories.
    index: usize,
    directory: Arc<Directory>,
}

/// A zone of the previous configuration.
#[derive(Debug)]
struct LoadedZone {
    /// The last good version.
    last_good: Option<Arc<Zone>>,
    /// The facts about the version, which an earlier process may have loaded.
    info: Option<VersionInfo>,
    /// The origin of that version.
    provenance: Provenance,
    /// The files of that version; `None` if the zone must be read anyway.
    sources: Option<ZoneSources>,
    /// The derived records of that version.
    derivation: Arc<ZoneDerivation>,
    /// The changes by dynamic updates to that version; `None` if the zone can have none.
    updates: Option<ZoneUpdates>,
    state: Arc<ZoneState>,
    /// The time of the last search for its first expiring signature while it has changed, in seconds since 1970.
    expiration_found_at: Option<u64>,
    /// The check of this load has found that the files have the content that they had.
    is_unchanged: bool,
    /// The load that has seen the zone last.
    load_count: u64,
}

/// The loaded state.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) snapshot: Snapshot,
    /// The state of each site and zone, in the order of the configuration.
    pub(crate) load_status: LoadStatus,
    /// The differences from the previous configuration.
    pub(crate) changes: Changes,
    pub(crate) warnings: Vec<Diagnostic>,
    /// The problems of sites and zones.
    pub(crate) errors: Vec<Diagnostic>,
    pub(crate) denial: Denial,
    /// The sites whose document root has or may get rules files, or is a link to a release.
    pub(crate) watched_sites: Vec<WatchedSite>,
    /// Good versions that the supervisor must keep.
    pub(crate) kept: Option<NewSegment>,
    /// The data that the agent must store.
    pub(crate) journals: ChangedJournals,
    /// The dynamic updates that the agent must store.
    pub(crate) updates: ChangedUpdates,
}

/// The dynamic updates that the agent must store, with the zones' names.
pub(crate) type ChangedUpdates = Vec<(DomainName, StoreRequest)>;

/// The state folder's zones.
struct StoredParts<'c> {
    journals: ZoneJournals<'c>,
    updates: UpdateFiles<'c>,
}

impl<'c> StoredParts<'c> {
    fn new(config: &'c Config, state: Option<&'c Path>) -> StoredParts<'c> {
        StoredParts { journals: ZoneJournals::new(config, state), updates: UpdateFiles::new(config, state) }
    }
}

/// How zones are read.
struct ZoneContext<'l> {
    limits: &'l Limits,
    seed: HashSeed,
    kept: Option<&'l mut KeptZones>,
    /// Zones that the guard does not refuse.
    forced_zones: &'l [DomainName],
    stored: &'l StoredParts<'l>,
    /// The zone's derived records.
    derivation: Arc<ZoneDerivation>,
}

impl Loader {
    /// A loader that keeps nothing for another process.
    pub(crate) fn new() -> Loader {
        Loader {
            seed: hash_seed(),
            directories: OpenDirectories::new(DescriptorLimit::of_process()),
            site_ids: Vec::new(),
            roots: HashMap::new(),
            backends: Backends::default(),
            zones: HashMap::new(),
            zone_folder: None,
            state: None,
            state_folder: None,
            private_states: Vec::new(),
            members: CatalogMembers::default(),
            user: None,
            derived: Arc::default(),
            kept: None,
            is_restricted: false,
            load_count: 0,
            parsed_count: 0,
        }
    }

    /// A loader that keeps good versions of zones for the next process, and starts with the versions of earlier
    /// processes and the transferred zones in the folder `state`.
    pub(crate) fn keeping(kept: KeptZones, state: Option<PathBuf>) -> Loader {
        Loader { kept: Some(kept), state, ..Loader::new() }
    }

    /// Names the user that the process has switched to in messages about sites that it cannot read.
    pub(crate) fn set_user(&mut self, user: Option<String>) {
        self.user = user;
    }

    /// From the next load on, no site in or around the state folder is served.
    pub(crate) fn set_state_folder(&mut self, state_folder: Option<PathBuf>) {
        self.state_folder = state_folder;
    }

    /// The state folder that is used.
    pub(crate) fn state_folder(&self) -> Option<&Path> {
        self.state_folder.as_deref()
    }

    /// Sets the agent's derived records, from the next load on.
    pub(crate) fn set_derived(&mut self, derived: Arc<DerivedSet>) {
        self.derived = derived;
    }

    /// The inputs for loading zones.
    pub(crate) fn derived(&self) -> &Arc<DerivedSet> {
        &self.derived
    }

    /// Opens the sites of `config` and reads those zones that are new or have changed. A zone that the guard refuses is
    /// read nevertheless if it is one of `forced_zones`.
    pub(crate) fn load(&mut self, config: &Config, forced_zones: &[DomainName]) -> Loaded {
        let mut report = Report::default();
        self.backends.forget_unused();
        self.private_states = PrivateState::all(config, self.state_folder.as_deref());
        let sites: Vec<Site> =
            config.sites.iter().map(|site| self.load_site(site, &config.limits, &mut report)).collect();
        let domains: BTreeSet<Option<&DomainName>> = config.sites.iter().map(|site| site.hosts.first()).collect();
        self.roots.retain(|domain, _| domains.contains(&domain.as_ref()));
        self.report_left_out(&mut report);
        report.warnings.extend(exposed_files::warnings(config, &sites));
        let default_site = match config.default_site {
            DefaultSite::None => sanderling_server::DefaultSite::None,
            DefaultSite::Addresses(index) => sanderling_server::DefaultSite::Addresses(index),
            DefaultSite::EveryHost(index) => sanderling_server::DefaultSite::EveryHost(index),
        };
        self.load_count += 1;
        check_sources(self.zones.values_mut().collect());
        let folder = config.zone_folder.as_ref();
        self.zone_folder = folder.map(|folder| folder.directory.clone());
        let of_files = config.zones.iter().map(|zone| self.in_service(config, zone));
        let own_zones: Vec<ZoneConfig> = of_files.chain(self.stored_zones(config)).collect();
        let of_folder = folder.map_or(Vec::new(), |folder| self.list_folder(folder, &own_zones, &mut report));
        self.members.update(self.state.as_deref());
        let members = self.member_zones(config, of_folder.iter().map(|zone| &zone.apex), |_| true);
        let zones = own_zones.iter().chain(&of_folder).chain(&members);
        let state = self.state.clone();
        let stored = StoredParts::new(config, state.as_deref());
        let derived = Arc::clone(&self.derived);
        let derivations = Derivations::new(config, &derived);
        let load = |zone: &ZoneConfig| {
            self.load_zone(zone, derivations.of(zone), &config.limits, forced_zones, &stored, &mut report)
        };
        let entries: Vec<ZoneEntry> = zones.map(load).collect();
        let removed = self.zones.extract_if(|_, loaded| loaded.load_count != self.load_count);
        report.changes.removed.extend(removed.map(|(apex, _)| apex));
        report.changes.removed.sort();
        for name in forced_zones.iter().filter(|name| !self.zones.contains_key(name)) {
            let problem = Problem::new(unknown_zone(name, self.zones.keys().map(DomainName::as_str)), "");
            report.errors.push(Diagnostic::error(Location::Argument(format!("--force-zone {name}")), problem));
            report.load_status.unknown_zone_count += 1;
        }
        let removed_journals = report.changes.removed.iter().map(|apex| (apex.as_str().to_owned(), Vec::new()));
        report.journals.extend(removed_journals);
        let kept = self.seal_kept(&report.changes.removed);
        self.parsed_count += report.changes.parsed_count;
        report.changes.parsed_count = self.parsed_count;
        let zones = ZoneMap::new(self.seed, entries).with_cname_chain_max(config.limits.dns_cname_chain_max);
        let snapshot = Snapshot::new(Sites::new(sites, default_site), zones);
        let Report { load_status, changes, warnings, errors, denial, watched, journals, updates, .. } = report;
        let watched_sites =
            watched.into_iter().map(|(index, watched)| watched.of_site(index, &snapshot.sites.all()[index])).collect();
        Loaded { snapshot, load_status, changes, warnings, errors, denial, watched_sites, kept, journals, updates }
    }

    /// The zone whose file the agent writes. Without a state folder, there is none.
    fn transferred(&self, config: &Config, zone: &SecondaryZone) -> ZoneConfig {
        let Some(state) = &self.state else {
            return ZoneConfig { file: PathBuf::new(), ..zone.zone(Path::new("")) };
        };
        let zone = zone.zone(state);
        match config.signed_zone(&zone.apex) {
            // Without signatures, it is not served. The previous version is kept, unless the transferred version has
            // expired.
            Some(signed) => {
                let file = state.join(signed.file());
                let is_awaited = zone.file.exists() && !file.exists();
                let origin = if is_awaited { ZoneOrigin::Signer } else { zone.origin };
                ZoneConfig { file, origin, ..zone }
            }
            None => zone,
        }
    }

    /// `zone`, or its signed version. Until there is a first signed version, the zone is served as the operator writes
    /// it; but not if the parent zone may have DS records: keys were imported, or the version in service has
    /// signatures.
    fn in_service(&self, config: &Config, zone: &ZoneConfig) -> ZoneConfig {
        let Some((signed, state)) = config.signed_zone(&zone.apex).zip(self.state.as_ref()) else {
            return zone.clone();
        };
        let file = state.join(signed.file());
        let served = self.zones.get(&zone.apex);
        let may_have_ds = !signed.is_leaving
            && (state.join(signed.keys_folder()).exists()
                || served.is_some_and(|served| served.state.signatures_expire_at.is_some()));
        // If this is unknown, the zone may be signed, and the operator's file would be bogus.
        match may_have_ds || file.try_exists().unwrap_or(true) {
            true => ZoneConfig { file, origin: ZoneOrigin::Signer, ..zone.clone() },
            false => zone.clone(),
        }
    }

    /// The zones of `config` whose files the agent writes. Without a state folder, there are no files.
    fn stored_zones<'c>(&'c self, config: &'c Config) -> impl Iterator<Item = ZoneConfig> {
        let secondary = config.secondary_zones.iter().map(|zone| self.transferred(config, zone));
        secondary.chain(config.catalogs.iter().map(|catalog| catalog.zone(self.state_path())))
    }

    fn state_path(&self) -> &Path {
        self.state.as_deref().unwrap_or(Path::new(""))
    }

    /// Completes the segment of good versions, without zones that are no longer served.
    fn seal_kept(&mut self, removed: &[DomainName]) -> Option<NewSegment> {
        let kept = self.kept.as_mut()?;
        let result = match self.load_count {
            // Versions of an earlier process may be for zones of another configuration.
            1 => kept.retain(|apex| self.zones.contains_key(apex)),
            _ => removed.iter().try_for_each(|apex| kept.remove(apex)),
        };
        result.and_then(|()| kept.seal()).unwrap_or_else(|error| {
            log_error(&format!("cannot keep zones for the next server process: {}", error_text(&error)));
            None
        })
    }

    fn load_site(&mut self, site: &sanderling_config::Site, limits: &Limits, report: &mut Report) -> Site {
        let hosts: Vec<String> = site.hosts.iter().map(|host| host.as_str().to_owned()).collect();
        let (error_count, left_out_count) = (report.errors.len(), report.left_out.root_count);
        let (root, service) = self.choose_root(site, report);
        // Empty for a site that has none: no link and no file of rules is looked for.
        let document_root = root.as_ref().map(|root| &root.path).or(site.document_root.as_ref());
        let document_root = document_root.cloned().unwrap_or_default();
        let (link_target_indexes, link_targets) = self.open_link_targets(site, report);
        let link = ReleaseLink::new(&document_root);
        let served = root.as_ref().map(|root| root.directory.real_path().to_owned());
        let release = served.filter(|served| link.exists() && link.is_release(served));
        let (previous_indexes, previous_roots) = match release.as_ref().filter(|_| site.options.files.earlier_releases)
        {
            Some(release) => self.open_previous(site, (&link, release), report),
            None => Default::default(),
        };
        let refused_paths = match (site.options.hidden_files, site.options.exact_paths) {
            (false, false) => PathTraits::HIDDEN,
            (false, true) => PathTraits::HIDDEN.union(PathTraits::NORMALIZED),
            (true, true) => PathTraits::NORMALIZED,
            (true, false) => PathTraits::NONE,
        }
        .union(PathTraits::TOO_LONG);
        let earlier_files = Arc::new(EarlierFiles::default());
        let routes = self.backends.routes(site, root.as_ref().map(|root| root.directory.real_path()));
        let options = SiteOptions {
            earlier_files: Arc::clone(&earlier_files),
            media_types: site.options.media_types.clone(),
            link_targets,
            previous_roots,
            files: site.options.files.clone(),
            refused_paths,
            hides_rules_files: site.options.rules.reads_files,
            rules: rules_of(&site.options, routes, report),
        };
        let (id, root) = match root {
            Some(root) => {
                let key = SiteKey {
                    root: root.index,
                    link_targets: link_target_indexes,
                    previous_roots: previous_indexes,
                    media_types: options.media_types.clone(),
                    files: options.files.clone(),
                    protected: options.protected_paths(),
                };
                (self.id_of(key), Root::Directory(root.directory))
            }
            None if site.document_root.is_none() => (Site::ID_MAX, Root::Builtin(&[])),
            None => (Site::ID_MAX, Root::Unavailable),
        };
        let problem = match report.left_out.root_count > left_out_count {
            true => Some("there are not enough file descriptors for its directory".to_owned()),
            false => report.errors.get(error_count).map(ToString::to_string),
        };
        report.load_status.sites.push(SiteState {
            release: release.clone().map(|path| ReleaseState { path, since: link.made_at(), earlier_files }),
            service,
            hosts: hosts.clone(),
            document_root: site.document_root.clone(),
            problem,
        });
        let loaded = Site { id, hosts, root, options };
        let Root::Directory(root) = &loaded.root else { return loaded };
        let LoadedRules { rules, version, mut warnings } = match site.options.rules.reads_files {
            true => rules_files::load(root, &document_root, limits),
            false => LoadedRules::default(),
        };
        report.warnings.append(&mut warnings);
        let rules_version = site.options.rules.reads_files.then_some(version);
        if rules_version.is_some() || release.is_some() {
            let watched = Watched { document_root, rules: rules_version, release };
            report.watched.push((report.load_status.sites.len() - 1, watched));
        }
        if rules.is_empty() { loaded } else { loaded.with_file_rules(rules) }
    }

    /// A folder's zones; if it cannot be listed, those that it had.
    fn list_folder(&self, folder: &ZoneFolder, own_zones: &[ZoneConfig], report: &mut Report) -> Vec<ZoneConfig> {
        let (listing, is_listed) = match folder.list(own_zones) {
            Ok(listing) => (listing, true),
            Err(error) => {
                let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied
                    && sanderling_os::file::is_permitted(&folder.directory);
                if is_forbidden {
                    report.denial = Denial::Sandbox(folder.directory.clone());
                }
                let zones = self.earlier_zones(folder, own_zones);
                (ZoneListing { zones, problems: vec![folder.unreadable(&error)] }, false)
            }
        };
        let (errors, warnings): (Vec<_>, Vec<_>) = listing.problems.into_iter().partition(Diagnostic::is_error);
        report.load_status.folder = Some(FolderState {
            files: folder.pattern(),
            is_listed,
            zone_count: listing.zones.len(),
            problem_count: errors.len(),
            problem: errors.first().map(ToString::to_string),
        });
        report.errors.extend(errors);
        report.warnings.extend(warnings);
        listing.zones
    }

    /// The zones of `folder` that this process serves or, before its first load, that an earlier process has kept.
    fn earlier_zones(&self, folder: &ZoneFolder, own_zones: &[ZoneConfig]) -> Vec<ZoneConfig> {
        let loaded = self.zones.iter().map(|(apex, zone)| (apex.clone(), zone.state.file.clone()));
        let kept = self.kept.iter().filter(|_| self.load_count == 1).flat_map(KeptZones::main_files);
        let in_folder = loaded.chain(kept).filter(|(_, file)| folder.has(file));
        let mut zones: Vec<ZoneConfig> = in_folder
            .filter(|(apex, _)| own_zones.iter().all(|own| own.apex != *apex))
            .map(|(apex, file)| {
                let (location, origin) = (Location::File(file.clone()), ZoneOrigin::Operator);
                ZoneConfig { apex, location: location.into(), file, origin }
            })
            .collect();
        zones.sort_by(|one, other| one.apex.cmp(&other.apex));
        zones
    }

    /// The directories of all files that the zones were read from, of the zone files that could not be read, and of
    /// journals.
    pub(crate) fn zone_directories(&self) -> BTreeSet<PathBuf> {
        let directory_of = |file: &Path| match file.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory.to_owned(),
            _ => PathBuf::from("."),
        };
        // Without a state folder, zones from elsewhere have no file.
        let zones = self.zones.values().filter(|zone| self.state.is_some() || !zone.state.origin.is_agent());
        let files = zones.flat_map(|zone| {
            let included = zone.sources.iter().flat_map(ZoneSources::paths);
            included.chain([zone.state.file.as_path()])
        });
        // A symbolic link is followed.
        let linked = |file: &Path| fs::read_link(file).ok().and_then(|_| fs::canonicalize(file).ok());
        let of_files = files.flat_map(|file| [Some(directory_of(file)), linked(file).as_deref().map(directory_of)]);
        let stored = self
            .state
            .as_deref()
            .map(|state| [zone_journals::folder(state), zone_updates::folder(state), state.join(SIGNED_ZONES)]);
        of_files.flatten().chain(self.zone_folder.clone()).chain(stored.into_iter().flatten()).collect()
    }

    /// Descriptors that the directories of sites have.
    pub(crate) fn open_directory_count(&self) -> usize {
        self.directories.open_count()
    }

    /// From now on, this process's sandbox allows only the directories loaded so far, and everything below the release
    /// directories.
    pub(crate) fn restrict_directories(&mut self) {
        self.is_restricted = true;
    }

    /// # Errors
    /// Returns an error if the sandbox allows opening the directory, but nothing in it.
    fn index_or_denial(
        &mut self,
        id: DirectoryId,
        directory: &Directory,
        path: &Path,
        report: &mut Report,
    ) -> io::Result<usize> {
        self.index_of(id, directory).ok_or_else(|| {
            report.denial = Denial::Sandbox(path.to_owned());
            let message = "the server process's sandbox does not allow this directory";
            io::Error::new(io::ErrorKind::PermissionDenied, message)
        })
    }

    /// A directory's index; `None` if the sandbox does not allow to read it.
    fn index_of(&mut self, id: DirectoryId, directory: &Directory) -> Option<usize> {
        if let Some(index) = self.directories.position(&id) {
            return Some(index);
        }
        // No other process can read a directory that the user cannot enter.
        if self.is_restricted
            && directory.open_beneath(b".").is_err()
            && sanderling_os::file::is_permitted(directory.real_path())
        {
            return None;
        }
        Some(self.directories.add(id))
    }

    /// A site's ID. Other options need other entries in the open-file cache.
    fn id_of(&mut self, key: SiteKey) -> u32 {
        let index = self.site_ids.iter().position(|other| *other == key);
        let index = index.unwrap_or_else(|| {
            self.site_ids.push(key);
            self.site_ids.len() - 1
        });
        index as u32
    }

    fn load_zone(
        &mut self,
        zone: &ZoneConfig,
        derivation: Arc<ZoneDerivation>,
        limits: &Limits,
        forced_zones: &[DomainName],
        stored: &StoredParts<'_>,
        report: &mut Report,
    ) -> ZoneEntry {
        let kept = self.kept.as_mut();
        let mut context = ZoneContext { limits, seed: self.seed, kept, forced_zones, stored, derivation };
        let loaded = match self.zones.get_mut(&zone.apex) {
            Some(loaded) => loaded,
            None => self.zones.entry(zone.apex.clone()).or_insert_with(|| LoadedZone::new(zone, &context)),
        };
        loaded.load_count = self.load_count;
        let is_unchanged = std::mem::take(&mut loaded.is_unchanged);
        if zone.origin.is_agent() && !zone.file.exists() {
            report.changes.zone_withdrawn(&zone.apex, loaded.state.serial);
            loaded.withdraw(zone, &mut context);
        } else if zone.origin == ZoneOrigin::Signer && !zone.file.exists() {
            loaded.await_signed(zone);
        } else if !is_unchanged
            || loaded.state.file.as_os_str() != zone.file.as_os_str()
            || loaded.derivation != context.derivation
            || loaded.updates.is_some() != stored.updates.has(&zone.apex)
        {
            loaded.read(zone, &mut context, report);
        }
        report.load_status.zones.push(Arc::clone(&loaded.state));
        loaded.entry(zone)
    }
}

/// The paths of a site with these options that only some clients may request.
fn protection_of(options: &sanderling_config::SiteOptions, report: &mut Report) -> ProtectionRules {
    let access = options.rules.access.iter().map(|rule| (rule.pattern.clone(), client_policy::access_rule(rule)));
    let Report { errors, warnings, .. } = report;
    let auth = options.rules.auth.iter().map(|rule| (rule.pattern.clone(), users_files::load(rule, errors, warnings)));
    ProtectionRules::new(access.collect(), auth.collect(), &options.files)
}

/// The other actions of a site with these options.
fn rules_of(
    options: &sanderling_config::SiteOptions,
    routes: Arc<Routes>,
    report: &mut Report,
) -> Option<Box<SiteRules>> {
    let rules = SiteRules {
        answers_challenges: options.has_automatic_certificate,
        redirects_to_https: options.https_redirect,
        https_field_lines: options.hsts.as_ref().map_or(String::new(), Hsts::field_line),
        doh_path: options.doh.as_ref().map(|doh| doh.path.clone()),
        default_fields: Arc::new(RuleSet::new(
            Vec::new(),
            options.rules.security_headers.iter().map(|(set, _)| set.rule()).collect(),
        )),
        cors: options.rules.cors.clone(),
        caches_fingerprinted: options.rules.caches_fingerprinted,
        protection: protection_of(options, report),
        own_rules: Arc::new(RuleSet::new(options.rules.redirects.clone(), options.rules.fields.clone())),
        routes,
        file_rules: Arc::default(),
    };
    (rules != SiteRules::default()).then(|| Box::new(rules))
}

impl LoadedZone {
    fn new(zone: &ZoneConfig, context: &ZoneContext<'_>) -> LoadedZone {
        let (name, file) = (zone.apex.as_str().to_owned(), zone.file.clone());
        let origin = zone.origin;
        let added = Arc::default();
        let state = ZoneState {
            name,
            file,
            origin,
            serial: None,
            record_count: 0,
            loaded_at: None,
            signatures_expire_at: None,
            problem: None,
            added,
            updates: None,
        };
        let info = context.kept.as_ref().and_then(|kept| kept.info(&zone.apex));
        let (state, is_unchanged, derivation) = (Arc::new(state), false, Arc::default());
        LoadedZone {
            last_good: None,
            info,
            provenance: Provenance::Kept,
            sources: None,
            derivation,
            updates: None,
            state,
            expiration_found_at: None,
            is_unchanged,
            load_count: 0,
        }
    }

    /// Stops serving the zone: nothing was transferred yet, or the transferred version has expired.
    fn withdraw(&mut self, zone: &ZoneConfig, context: &mut ZoneContext<'_>) {
        if let Some(Err(error)) = context.kept.as_mut().map(|kept| kept.remove(&zone.apex)) {
            log_error(&format!("cannot drop the kept version of zone {}: {}", zone.apex, error_text(&error)));
        }
        let load_count = self.load_count;
        *self = LoadedZone { load_count, ..LoadedZone::new(zone, context) };
    }

    /// The agent signs the zone: until then, the last good version stays.
    fn await_signed(&mut self, zone: &ZoneConfig) {
        self.state = Arc::new(ZoneState { origin: zone.origin, problem: None, ..ZoneState::clone(&self.state) });
    }

    /// Reads the zone's files. After an error the last good version stays.
    fn read(&mut self, zone: &ZoneConfig, context: &mut ZoneContext<'_>, report: &mut Report) {
        let mut warnings = Vec::new();
        let prior = zone.check_file().and_then(|()| self.prior_updates(&zone.apex, context.stored));
        let is_forced = context.forced_zones.contains(&zone.apex);
        let result = match prior {
            Ok(prior) => {
                let later_file = if is_forced { LaterFile::Replaces } else { LaterFile::ReplacesIfComplete };
                let prior = prior.map(|prior| PriorUpdates { later_file, ..prior });
                report.changes.parsed_count += 1;
                let text_bytes_max = if context.kept.is_some() { context.limits.kept_zones_bytes_max } else { 0 };
                let derivation = &context.derivation;
                zone_files::load(zone, derivation, prior, context.limits, context.seed, text_bytes_max, &mut warnings)
            }
            Err(diagnostic) => Err(Failure { diagnostics: vec![diagnostic], denial: Denial::None }),
        };
        if zone.origin != ZoneOrigin::Operator {
            // The primary's operator has them, or the agent reports them.
            warnings.clear();
        }
        if context.kept.is_some() {
            // A server reports on thousands of zones, and `check` on a zone that is being corrected.
            warnings.retain(|warning| warning.severity != Severity::Note);
            keep_first(&mut warnings);
        }
        report.warnings.append(&mut warnings);
        let result = match result {
            Ok(read) => {
                let info = VersionInfo::new(&read.zone, &read.text);
                match self.refusal(zone, &info, read.updates.as_ref(), context, report) {
                    Some(failure) => Err(failure),
                    None => Ok((read, info)),
                }
            }
            Err(failure) => {
                self.restore(zone, context);
                Err(failure)
            }
        };
        match result {
            Ok((ReadZone { zone: mut good, added, updates, sources, text }, info)) => {
                let held = updates.as_ref().and_then(|updates| updates.merged.held());
                self.take_updates(zone, updates, report);
                context.stored.journals.give(&zone.apex, self.last_good.as_deref(), &mut good, &mut report.journals);
                // The files of a version that came on another path are read as well.
                if !self.last_good.as_ref().is_some_and(|before| good.has_same_records(before)) {
                    report.changes.zone_loaded(&zone.apex, self.state.serial, good.serial());
                }
                if let Some(Err(error)) = context
                    .kept
                    .as_mut()
                    .map(|kept| kept.keep(&zone.apex, info, &text, context.limits.kept_zones_bytes_max))
                {
                    log_error(&format!("cannot keep zone {}: {}", zone.apex, error_text(&error)));
                }
                self.sources = Some(sources);
                self.derivation = Arc::clone(&context.derivation);
                self.provenance = Provenance::Files;
                self.serve(zone, good, added, info);
                if let Some(held) = held {
                    self.hold_updates(zone_files::held_updates(&zone.apex, &zone.file, held), report);
                }
            }
            Err(failure) => {
                report.denial = mem::take(&mut report.denial).max(failure.denial);
                let problem = failure.diagnostics.iter().find(|one| one.is_error()).map(ToString::to_string);
                report.errors.extend(failure.diagnostics);
                self.sources = None;
                self.state = Arc::new(ZoneState { problem, ..ZoneState::clone(&self.state) });
            }
        }
    }

    fn serve(&mut self, zone: &ZoneConfig, mut good: Zone, added: AddedRecords, info: VersionInfo) {
        if self.updates.is_some() || zone.origin == ZoneOrigin::Signer {
            // The first change is as quick as the others.
            good.prepare_edits();
        }
        let expiration = good.signatures_expire_at(unix_seconds());
        self.state = Arc::new(ZoneState {
            name: self.state.name.clone(),
            file: zone.file.clone(),
            origin: zone.origin,
            serial: Some(info.serial),
            record_count: info.record_count,
            loaded_at: Some(from_unix_seconds(info.loaded_at_unix_s)),
            signatures_expire_at: expiration.map(from_unix_seconds),
            problem: None,
            added: Arc::new(added),
            updates: self.updates.as_ref().map(ZoneUpdates::state),
        });
        (self.last_good, self.info) = (Some(Arc::new(good)), Some(info));
    }

    /// Serves the version that an earlier process has kept, unless there is a later one; whether there is a good
    /// version.
    fn restore(&mut self, zone: &ZoneConfig, context: &ZoneContext<'_>) -> bool {
        if self.last_good.is_some() {
            return true;
        }
        let (Some(kept), Some(info)) = (&context.kept, self.info) else { return false };
        let files = kept.files(&zone.apex).inspect_err(|error| {
            log_error(&format!("cannot read the kept version of zone {}: {}", zone.apex, error_text(error)));
        });
        let derivation = &context.derivation;
        let Ok(prior) = self.prior_updates(&zone.apex, context.stored) else { return false };
        let restore = |files| zone_files::restore(&zone.apex, derivation, prior, files, context.limits, context.seed);
        match files.map(restore) {
            Ok(Ok(ReadZone { zone: mut good, added, updates, .. })) => {
                // The stored updates belong to the file, and change with it.
                self.updates = updates.map(|updates| updates.finish(good.apex()).0);
                context.stored.journals.give(&zone.apex, None, &mut good, &mut Vec::new());
                // More may be derived for it now.
                let (serial, record_count) = (good.serial(), good.record_count() as u64);
                self.serve(zone, good, added, VersionInfo { serial, record_count, ..info });
            }
            Ok(Err(diagnostics)) => sanderling_config::log::report(&diagnostics),
            Err(_) => {}
        }
        self.last_good.is_some()
    }

    fn entry(&self, zone: &ZoneConfig) -> ZoneEntry {
        match &self.last_good {
            Some(good) if zone.origin.is_catalog() => ZoneEntry::Restricted(Arc::clone(good)),
            Some(good) => ZoneEntry::Served(Arc::clone(good)),
            None => ZoneEntry::Unavailable { apex: Box::new(zone_files::wire_name(&zone.apex)) },
        }
    }
}

/// Leaves the first warning of a zone, with the number of the others.
fn keep_first(warnings: &mut Vec<Diagnostic>) {
    let count = warnings.len();
    warnings.truncate(1);
    if let Some(first) = warnings.first_mut().filter(|_| count > 1) {
        let warnings = if count == 2 { "warning" } else { "warnings" };
        // `check` does not read dynamic updates.
        let more = format!("the zone has {} more {warnings}; `sanderling check` shows those of its files", count - 1);
        let remedy = &mut first.problem.remedy;
        *remedy = if remedy.is_empty() { more } else { format!("{remedy}; {more}") };
    }
}

/// Finds out which zones are unchanged, on all processors: a `stat` for each of 10,000 files takes 15 ms.
fn check_sources(mut zones: Vec<&mut LoadedZone>) {
    let check = |chunk: &mut [&mut LoadedZone]| {
        for zone in chunk {
            zone.is_unchanged = zone.sources.as_mut().is_some_and(ZoneSources::are_unchanged);
        }
    };
    let thread_count = thread::available_parallelism().map_or(1, usize::from);
    let chunk_len = zones.len().div_ceil(thread_count).max(ZONES_PER_THREAD_MIN).min(zones.len());
    let (own, others) = zones.split_at_mut(chunk_len);
    thread::scope(|scope| {
        for chunk in others.chunks_mut(chunk_len.max(1)) {
            // A zone that cannot be checked for lack of a thread is read.
            let _ = thread::Builder::new().name("loader".to_owned()).spawn_scoped(scope, move || check(chunk));
        }
        check(own);
    });
}

/// The results collected while a configuration is loaded.
#[derive(Default)]
struct Report {
    load_status: LoadStatus,
    changes: Changes,
    warnings: Vec<Diagnostic>,
    errors: Vec<Diagnostic>,
    denial: Denial,
    /// The watched paths of sites, with their indexes.
    watched: Vec<(usize, Watched)>,
    /// Site directories that lack a descriptor, which are reported as one problem.
    left_out: LeftOut,
    journals: ChangedJournals,
    updates: ChangedUpdates,
}

/// A [`WatchedSite`] without its site.
struct Watched {
    document_root: PathBuf,
    rules: Option<RulesVersion>,
    release: Option<PathBuf>,
}

impl Watched {
    fn of_site(self, index: usize, site: &Arc<Site>) -> WatchedSite {
        let Watched { document_root, rules, release } = self;
        WatchedSite { index, site: Arc::clone(site), document_root, rules, release }
    }
}

/// A site's identity. Directories are given by their indexes.
#[derive(Debug, PartialEq, Eq)]
struct SiteKey {
    root: usize,
    link_targets: Vec<usize>,
    previous_roots: Vec<usize>,
    media_types: Vec<(String, String)>,
    files: FileOptions,
    protected: [ProtectedPaths; 2],
}

fn open_directory(path: &Path) -> io::Result<(Directory, DirectoryId)> {
    let directory = with_second_try(|| Directory::open(path))?;
    let metadata = with_second_try(|| directory.metadata())?;
    let id = (directory.real_path().to_owned(), metadata.device, metadata.inode);
    Ok((directory, id))
}

/// A seed that a client cannot predict, from the keys of the standard library's hash tables.
pub(crate) fn hash_seed() -> HashSeed {
    HashSeed(RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests;
