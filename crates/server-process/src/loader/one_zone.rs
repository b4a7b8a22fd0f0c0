//! Loads one zone again, without the rest of the configuration.

use super::catalog_zones::MemberChanges;
use super::{ChangedUpdates, Loader, Report, StoredParts};
use crate::kept_zones::NewSegment;
use crate::load_status::ZoneState;
use crate::zone_journals::ChangedJournals;
use sanderling_config::diagnostic::{Diagnostic, Location};
use sanderling_config::{Config, DomainName, Zone as ZoneConfig, ZoneFolder, ZoneOrigin, most_similar};
use sanderling_dns::ZoneEntry;
use sanderling_zone_files::{Denial, Derivations, ZoneSources};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of reloading a zone.
#[derive(Debug)]
pub(crate) enum Reloaded {
    Loaded(Box<OneZone>),
    Removed(RemovedZone),
}

/// A zone whose file is no longer in the zone folder.
#[derive(Debug)]
pub(crate) struct RemovedZone {
    pub(crate) name: DomainName,
    /// Good versions that the supervisor must keep.
    pub(crate) kept: Option<NewSegment>,
    /// The data that the agent must store.
    pub(crate) journals: ChangedJournals,
}

/// A zone that was loaded again.
#[derive(Debug)]
pub(crate) struct OneZone {
    pub(crate) entry: ZoneEntry,
    pub(crate) state: Arc<ZoneState>,
    /// The state before; `None` if the zone is new.
    pub(crate) before: Option<Arc<ZoneState>>,
    /// The content of the zone's files is unchanged.
    pub(crate) is_unchanged: bool,
    /// The zone's records are unchanged.
    pub(crate) has_same_records: bool,
    pub(crate) warnings: Vec<Diagnostic>,
    pub(crate) errors: Vec<Diagnostic>,
    pub(crate) denial: Denial,
    /// Good versions that the supervisor must keep.
    pub(crate) kept: Option<NewSegment>,
    /// The data that the agent must store.
    pub(crate) journals: ChangedJournals,
    /// The dynamic updates that the agent must store.
    pub(crate) updates: ChangedUpdates,
    /// For a catalog, the zones that it has added or removed since.
    pub(crate) members: MemberChanges,
}

impl OneZone {
    /// A zone with changed content, which is not a catalog.
    pub(super) fn new(
        entry: ZoneEntry,
        state: Arc<ZoneState>,
        before: Option<Arc<ZoneState>>,
        kept: Option<NewSegment>,
        report: Report,
    ) -> OneZone {
        let Report { warnings, errors, denial, journals, updates, .. } = report;
        OneZone {
            entry,
            state,
            before,
            is_unchanged: false,
            has_same_records: false,
            warnings,
            errors,
            denial,
            kept,
            journals,
            updates,
            members: MemberChanges::default(),
        }
    }
}

impl Loader {
    /// Reloads the zone `name` of `config`, unless its files are unchanged; always if it is forced, even if it has lost
    /// records or its serial went back. A zone whose file is no longer in the zone folder is removed.
    ///
    /// # Errors
    /// Returns an error if the zone does not exist.
    pub(crate) fn load_one(&mut self, config: &Config, name: &DomainName, is_forced: bool) -> Result<Reloaded, String> {
        let Some(zone) = self.zone_named(config, name) else {
            return match self.remove_of_folder(config, name) {
                Some(removed) => Ok(Reloaded::Removed(removed)),
                None => {
                    let known = config.apexes().chain(self.zones.keys());
                    Err(unknown_zone(name, known.map(DomainName::as_str)))
                }
            };
        };
        let before = self.zones.get(name).map(|loaded| Arc::clone(&loaded.state));
        let served_before = self.zones.get(name).and_then(|loaded| loaded.last_good.clone());
        let derivation = Derivations::new(config, &self.derived).of(&zone);
        let mut is_unchanged = false;
        if let Some(loaded) = self.zones.get_mut(name)
            && !is_forced
            && loaded.state.file.as_os_str() == zone.file.as_os_str()
            && loaded.derivation == derivation
        {
            is_unchanged = loaded.sources.as_mut().is_some_and(ZoneSources::are_unchanged);
            loaded.is_unchanged = is_unchanged;
        }
        let mut report = Report::default();
        let forced_zones: &[DomainName] = if is_forced { std::slice::from_ref(name) } else { &[] };
        let state = self.state.clone();
        let stored = StoredParts::new(config, state.as_deref());
        let entry = self.load_zone(&zone, derivation, &config.limits, forced_zones, &stored, &mut report);
        let state = report.load_status.zones.pop().expect("that of this zone");
        let members = match zone.origin {
            ZoneOrigin::Catalog => self.load_members(config, &stored, &mut report),
            ZoneOrigin::Operator | ZoneOrigin::Primaries | ZoneOrigin::Signer | ZoneOrigin::ProducedCatalog => {
                MemberChanges::default()
            }
        };
        self.parsed_count += report.changes.parsed_count;
        let kept = self.seal_kept(&members.removed);
        let served = self.zones.get(name).and_then(|loaded| loaded.last_good.as_ref());
        let has_same_records = served_before
            .as_deref()
            .zip(served.map(|zone| &**zone))
            .is_some_and(|(old, new)| old.has_same_records(new));
        let one =
            OneZone { is_unchanged, has_same_records, members, ..OneZone::new(entry, state, before, kept, report) };
        Ok(Reloaded::Loaded(Box::new(one)))
    }

    /// The files of the zone `name`, if their versions are known.
    pub(crate) fn sources(&self, name: &DomainName) -> Option<&ZoneSources> {
        self.zones.get(name)?.sources.as_ref()
    }

    /// The zone of its own section, or of a file in the folder, which may be new, or of a catalog.
    pub(super) fn zone_named(&self, config: &Config, name: &DomainName) -> Option<ZoneConfig> {
        if let Some(zone) = config.zones.iter().find(|zone| zone.apex == *name) {
            return Some(self.in_service(config, zone));
        }
        if let Some(zone) = self.stored_zones(config).find(|zone| zone.apex == *name) {
            return Some(zone);
        }
        let of_catalog = || self.member_zones(config, self.served_zones_of_operator(), |member| member == name).pop();
        self.zone_of_folder(config, name).or_else(of_catalog)
    }

    /// The zone of a file in the folder.
    fn zone_of_folder(&self, config: &Config, name: &DomainName) -> Option<ZoneConfig> {
        let folder = config.zone_folder.as_ref()?;
        let loaded = self.loaded_of_folder(folder, name).filter(|file| !is_removed(file, folder)).cloned();
        let file = loaded.or_else(|| Some(folder.file_of(name)).filter(|file| file.exists()))?;
        let (location, origin) = (Location::File(file.clone()), ZoneOrigin::Operator);
        Some(ZoneConfig { apex: name.clone(), location: location.into(), file, origin })
    }

    /// The file of the zone `name`, if it was loaded from the folder.
    fn loaded_of_folder(&self, folder: &ZoneFolder, name: &DomainName) -> Option<&PathBuf> {
        self.zones.get(name).map(|loaded| &loaded.state.file).filter(|file| folder.has(file))
    }

    /// Removes the zone `name`, which was loaded from the folder and whose file no longer exists.
    fn remove_of_folder(&mut self, config: &Config, name: &DomainName) -> Option<RemovedZone> {
        self.loaded_of_folder(config.zone_folder.as_ref()?, name)?;
        self.zones.remove(name);
        let kept = self.seal_kept(std::slice::from_ref(name));
        Some(RemovedZone { name: name.clone(), kept, journals: vec![(name.as_str().to_owned(), Vec::new())] })
    }
}

/// Whether `file` is no longer in the folder, which can be listed.
fn is_removed(file: &Path, folder: &ZoneFolder) -> bool {
    let metadata = fs::symlink_metadata(file);
    metadata.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) && folder.check().is_ok()
}

/// The message that there is no zone `name`, with a suggestion from `known`.
pub(crate) fn unknown_zone<'k>(name: &DomainName, known: impl Iterator<Item = &'k str>) -> String {
    match most_similar(name.as_str(), known) {
        Some(similar) => format!("there is no zone {name}; did you mean {similar}?"),
        None => format!("there is no zone {name}; `sanderling zone list` lists all"),
    }
}
