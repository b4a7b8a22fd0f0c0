//! Catalogs (RFC 9432) of this server's zones: writes each as a zone file, which the server process loads as those from
//! primaries, and its secondaries transfer like any zone.

use crate::blocking::DISK;
use crate::catalogs::{Secondaries, read_catalog};
use crate::clock::unix_s;
use crate::link::Link;
use crate::served_zones::{ServedMap, ServedState};
use sanderling_config::log::{log, log_error, log_warning};
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{Catalog, CatalogRole, Config, DomainName, stored_zone_file};
use sanderling_dns::catalog::{CatalogMember, catalog_text};
use sanderling_dns::{NameBuf, is_later, raised_serial};
use sanderling_ipc::agent::ServedZone;
use sanderling_state::StateFolder;
use sanderling_zone_files::wire_name;
use std::cell::RefCell;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Changes within this time become one version.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// Time until failed work is retried, and until the server process is asked again to load a version.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The task for all catalogs that this server produces.
pub(crate) struct ProducedCatalogs {
    config: Rc<Config>,
    state: Arc<StateFolder>,
    link: Rc<Link>,
    secondary: Secondaries,
    served: Rc<ServedMap>,
    changes: watch::Receiver<()>,
    stored: BTreeMap<DomainName, StoredCatalog>,
    problems: CatalogProblems,
    failures: LimitedLog,
}

/// The reasons why catalogs are not up to date, by catalog name.
pub(crate) type CatalogProblems = Rc<RefCell<BTreeMap<DomainName, String>>>;

/// Zones by their names in the DNS, with their groups.
type ListedZones = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// The desired content of a catalog.
#[derive(Debug)]
struct WantedCatalog {
    zones: ListedZones,
    /// The listed zones that this server no longer has.
    held_back: Vec<Vec<u8>>,
}

/// The version in the state folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StoredCatalog {
    /// `None` if there is no version.
    serial: Option<u32>,
    zones: ListedZones,
    handed_over_at: Option<tokio::time::Instant>,
}

impl ProducedCatalogs {
    /// Reads the versions in the state folder.
    pub(crate) fn load(
        config: Rc<Config>,
        state: Arc<StateFolder>,
        link: Rc<Link>,
        secondary: Secondaries,
        served: Rc<ServedMap>,
    ) -> ProducedCatalogs {
        let is_produced = |catalog: &&Catalog| matches!(catalog.role, CatalogRole::Producer { .. });
        let read = |catalog: &Catalog| {
            let stored = read_stored(&state, &catalog.apex).unwrap_or_default();
            (catalog.apex.clone(), stored)
        };
        let stored = config.catalogs.iter().filter(is_produced).map(read).collect();
        let changes = served.watch();
        let (problems, failures) = (CatalogProblems::default(), LimitedLog::default());
        ProducedCatalogs { config, state, link, secondary, served, changes, stored, problems, failures }
    }

    /// The current reasons why catalogs are not up to date; the returned map is kept current.
    pub(crate) fn problems(&self) -> CatalogProblems {
        Rc::clone(&self.problems)
    }

    /// Keeps the catalogs up to date; wakes `report_changed` when the problems may have changed.
    pub(crate) async fn run(mut self, report_changed: Rc<Notify>) {
        let catalogs: Vec<Catalog> =
            self.config.catalogs.iter().filter(|catalog| self.stored.contains_key(&catalog.apex)).cloned().collect();
        while !catalogs.is_empty() {
            let mut is_done = true;
            for catalog in &catalogs {
                is_done &= self.update(catalog).await;
            }
            report_changed.notify_one();
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(RETRY_INTERVAL), if !is_done => {}
            }
            tokio::time::sleep(SETTLE_TIME).await;
            self.changes.mark_unchanged();
        }
    }

    /// Stores another version of a catalog if its zones have changed, and makes the server process load it; whether
    /// nothing is left to do.
    async fn update(&mut self, catalog: &Catalog) -> bool {
        let stored = self.stored.get(&catalog.apex).cloned().unwrap_or_default();
        let (zones, served_serial, held_back) = {
            let served = self.served.state();
            if !served.is_known {
                return true;
            }
            let served_serial = served.zones.get(&catalog.apex).and_then(|zone| zone.serial);
            let secondary = self.secondary.borrow();
            let wanted = zones_of(&self.config, secondary.keys(), catalog, &served, &stored);
            let held_back = held_back_text(&wanted.held_back, &served);
            (wanted.zones, served_serial, held_back)
        };
        if stored.serial.is_none() || zones != stored.zones {
            let failure = self.store(catalog, &stored, zones).await.err();
            self.note_problem(&catalog.apex, failure.or(held_back));
            return false;
        }
        self.note_problem(&catalog.apex, held_back);
        if served_serial == stored.serial {
            return true;
        }
        if stored.handed_over_at.is_none_or(|at| at.elapsed() >= RETRY_INTERVAL) {
            let handed_over_at = Some(tokio::time::Instant::now());
            self.stored.insert(catalog.apex.clone(), StoredCatalog { handed_over_at, ..stored });
            if let Err(error) = self.link.zone_stored(catalog.apex.as_str(), false, &[]).await {
                let message = format!("catalog {}: the server process cannot load it: {error}", catalog.apex);
                self.failures.error(catalog.apex.as_str(), &message);
            }
        }
        false
    }

    /// Records that the catalog is not up to date because of `problem`, which is logged if it has changed.
    fn note_problem(&self, apex: &DomainName, problem: Option<String>) {
        let mut problems = self.problems.borrow_mut();
        match problem {
            Some(problem) if problems.get(apex) == Some(&problem) => {}
            Some(problem) => {
                log_warning(&format!("catalog {apex}: {problem}"));
                problems.insert(apex.clone(), problem);
            }
            None => drop(problems.remove(apex)),
        }
    }

    /// # Errors
    /// Returns the reason why the catalog cannot be written.
    async fn store(&mut self, catalog: &Catalog, stored: &StoredCatalog, zones: ListedZones) -> Result<(), String> {
        let serial = next_serial(stored.serial, unix_s());
        let written = zones.clone();
        let (apex, state) = (wire_name(&catalog.apex), Arc::clone(&self.state));
        let file = stored_zone_file(&catalog.apex).display().to_string();
        let write = move || {
            let zones = written.iter().filter_map(|(zone, groups)| Some((name_of(zone)?, &groups[..])));
            state.write(&file, catalog_text(apex.as_name(), serial, zones).as_bytes())
        };
        DISK.run(write).await.map_err(|error| error.to_string())?;
        log(&format!("catalog {}: serial {serial}, {} zones", catalog.apex, zones.len()));
        let version = StoredCatalog { serial: Some(serial), zones, handed_over_at: None };
        self.stored.insert(catalog.apex.clone(), version);
        // The stored version is handed over immediately.
        self.changes.mark_changed();
        Ok(())
    }
}

/// The zones that all secondaries of the catalog may transfer: configured zones and zones from primaries, `secondary`,
/// whatever the server process reports, and the served zones of the folder. While the zone folder cannot be listed, or
/// the file of a zone has errors, none is removed.
fn zones_of<'z>(
    config: &'z Config,
    secondary: impl Iterator<Item = &'z DomainName>,
    catalog: &Catalog,
    served: &'z ServedState,
    stored: &StoredCatalog,
) -> WantedCatalog {
    let transfers = config.transfers_by_zone();
    let is_catalog = |name: &DomainName| config.catalogs.iter().any(|one| one.apex == *name);
    let listed = |name: &&DomainName| catalog.lists(transfers.of(name)) && !is_catalog(name);
    let with_groups = |name: &DomainName| {
        let groups: BTreeSet<&str> = catalog.groups_of(name).collect();
        let groups = groups.into_iter().map(|group| group.as_bytes().to_vec()).collect();
        (wire_name(name).as_name().as_bytes().to_vec(), groups)
    };
    let is_of_folder = |zone: &ServedZone| config.zone_folder.is_some() && zone.is_of_operator;
    let of_folder = served.zones.iter().filter(|(_, zone)| is_of_folder(zone)).map(|(name, _)| name);
    let own = config.zones.iter().map(|zone| &zone.apex).chain(secondary);
    let mut zones: ListedZones = own.chain(of_folder).filter(listed).map(with_groups).collect();
    let has_error = served.zones.values().any(|zone| is_of_folder(zone) && zone.has_error);
    let mut held_back = Vec::new();
    if config.zone_folder.is_some() && (!served.is_complete || has_error) {
        for (zone, groups) in &stored.zones {
            if let Entry::Vacant(place) = zones.entry(zone.clone()) {
                held_back.push(zone.clone());
                place.insert(groups.clone());
            }
        }
    }
    WantedCatalog { zones, held_back }
}

/// The problem that a catalog lists zones which this server no longer has; `None` if it does not.
fn held_back_text(held_back: &[Vec<u8>], served: &ServedState) -> Option<String> {
    let gone = listed_text(held_back.iter().filter_map(|zone| Some(name_of(zone)?.to_string())))?;
    let broken = served.zones.iter().filter(|(_, zone)| zone.is_of_operator && zone.has_error);
    let cause = match listed_text(broken.map(|(name, _)| name.to_string())) {
        Some(broken) if served.is_complete => format!("the errors in the zone files are corrected ({broken})"),
        _ => "the zone folder can be listed".to_owned(),
    };
    Some(format!("it still lists zones that this server no longer has ({gone}), until {cause}"))
}

/// `a.test, b.test and 3 more`; `None` for no name.
fn listed_text(names: impl Iterator<Item = String>) -> Option<String> {
    const SHOWN_MAX: usize = 3;
    let names: Vec<String> = names.map(|name| name.trim_end_matches('.').to_owned()).collect();
    let shown = names.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN_MAX) {
        _ if names.is_empty() => None,
        0 => Some(shown),
        more => Some(format!("{shown} and {more} more")),
    }
}

/// A serial after `before`: the time, so that a server which has lost its state does not go back.
fn next_serial(before: Option<u32>, now_unix_s: u64) -> u32 {
    let now = now_unix_s as u32;
    match before {
        Some(before) if !is_later(now, before) => raised_serial(before, 1),
        _ => now,
    }
}

fn name_of(bytes: &[u8]) -> Option<NameBuf> {
    sanderling_dns::Name::parse(bytes).ok().map(|name| name.to_owned())
}

/// A catalog's stored version; `None` if there is none.
fn read_stored(state: &StateFolder, apex: &DomainName) -> Option<StoredCatalog> {
    let file = stored_zone_file(apex);
    if !state.has(&file.display().to_string()) {
        return None;
    }
    let read = read_catalog(&state.path().join(file), wire_name(apex).as_name(), usize::MAX);
    let read = read.and_then(|reader| {
        let serial = reader.serial();
        let members = reader.finish().map_err(|error| error.to_string())?;
        let listed = |member: CatalogMember| {
            let mut groups = member.groups;
            groups.sort_unstable();
            (member.zone.as_name().as_bytes().to_vec(), groups)
        };
        let zones = members.into_iter().map(listed).collect();
        Ok(StoredCatalog { serial, zones, handed_over_at: None })
    });
    read.inspect_err(|error| log_error(&format!("catalog {apex}: not using the stored version: {error}"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::diagnostic::Location;
    use sanderling_config::{Zone, ZoneFolder, ZoneOrigin};

    #[test]
    fn serial_is_the_time_and_never_goes_back() {
        for (before, now, expected) in [
            (None, 1_000, 1_000),
            (Some(999), 1_000, 1_000),
            (Some(1_000), 1_000, 1_001),
            (Some(2_000), 1_000, 2_001),
            (Some(u32::MAX), u64::from(u32::MAX), 1),
            (Some(u32::MAX), (1 << 32) + 5, 5),
        ] {
            assert_eq!(next_serial(before, now), expected, "{before:?} {now}");
        }
    }

    #[test]
    fn zones_that_are_held_back_are_named_with_the_cause() {
        let served = |broken: &[&str], is_complete| {
            let zone = |apex: &&str| {
                let zone = ServedZone {
                    name: (*apex).to_owned(),
                    serial: Some(1),
                    is_of_operator: true,
                    has_error: true,
                    alias_targets: Vec::new(),
                };
                (DomainName::parse(apex).expect("a name"), zone)
            };
            ServedState { is_known: true, is_complete, zones: broken.iter().map(zone).collect() }
        };
        let wire = |name: &str| wire_name(&DomainName::parse(name).expect("a name")).as_name().as_bytes().to_vec();
        let text = |gone: &[&str], served: ServedState| {
            held_back_text(&gone.iter().map(|name| wire(name)).collect::<Vec<_>>(), &served)
        };
        assert_eq!(text(&[], served(&["one.test"], true)), None);
        assert_eq!(
            text(&["six.test"], served(&["one.test"], true)).as_deref(),
            Some(
                "it still lists zones that this server no longer has (six.test), until the errors in the zone files \
                 are corrected (one.test)"
            )
        );
        assert_eq!(
            text(&["a.test", "b.test", "c.test", "d.test"], served(&[], false)).as_deref(),
            Some(
                "it still lists zones that this server no longer has (a.test, b.test, c.test and 1 more), until the \
                    zone folder can be listed"
            )
        );
    }

    #[test]
    fn server_process_decides_only_on_the_zones_of_the_folder() {
        let name = |text: &str| DomainName::parse(text).expect("a name");
        let catalog = Catalog {
            apex: name("c.test"),
            role: CatalogRole::Producer { secondaries: Vec::new(), groups: Vec::new() },
            location: Location::Argument("test".to_owned()).into(),
        };
        let zone = |apex: &str| {
            let location = Location::Argument("test".to_owned()).into();
            Zone { apex: name(apex), file: apex.into(), location, origin: ZoneOrigin::Operator }
        };
        let location = Location::Argument("test".to_owned()).into();
        let folder = ZoneFolder { directory: "zones".into(), extension: ".zone".to_owned(), location };
        let secondary = [name("secondary.test"), name("c.test")];
        let check = |zone_folder: Option<ZoneFolder>, served: &[(&str, bool)], expected: &[&str]| {
            let config = Config {
                zones: vec![zone("own.test")],
                catalogs: vec![catalog.clone()],
                zone_folder,
                ..Config::default()
            };
            let served = served.iter().map(|(apex, is_of_operator)| {
                let (is_of_operator, alias_targets) = (*is_of_operator, Vec::new());
                let (serial, has_error) = (Some(1), false);
                (name(apex), ServedZone { name: (*apex).to_owned(), serial, is_of_operator, has_error, alias_targets })
            });
            let served = ServedState { is_known: true, is_complete: true, zones: served.collect() };
            let found = zones_of(&config, secondary.iter(), &catalog, &served, &StoredCatalog::default()).zones;
            let expected = expected.iter().map(|zone| wire_name(&name(zone)).as_name().as_bytes().to_vec());
            assert_eq!(found.into_keys().collect::<BTreeSet<_>>(), expected.collect());
        };
        check(None, &[], &["own.test", "secondary.test"]);
        check(None, &[("evil.test", true)], &["own.test", "secondary.test"]);
        let served = [("of-folder.test", true), ("evil.test", false)];
        check(Some(folder), &served, &["own.test", "secondary.test", "of-folder.test"]);
    }
}
