//! Catalogs (RFC 9432) of other servers: starts a task for each zone that they list, ends the tasks of zones that they
//! have removed, and lists the zones for the server process.
//!
//! A task compares the actual with the desired state whenever a catalog or the served zones have changed. The state
//! that it needs after a restart is in the state folder: the list of the zones, with a separate list of zones whose
//! files must still be removed.

use crate::blocking::DISK;
use crate::catalog_members::{Clash, ClashCause, Listing, Listings, Member, Members, Outcome, reconcile};
use crate::journals::remove_journal;
use crate::secondary_zone::{SecondaryContext, SecondaryHandle, remove_state};
use crate::served_zones::ServedMap;
use sanderling_config::log::{log, log_error};
use sanderling_config::{
    CATALOG_MEMBERS, Catalog, Config, DomainName, OwnZones, SecondaryZone, read_catalog_members, stored_zone_file,
};
use sanderling_dns::Name;
use sanderling_dns::catalog::{CatalogMember, CatalogReader};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_ipc::agent::ServedZone;
use sanderling_ipc::catalog::{ListedMember, MemberList};
use sanderling_state::StateError;
use sanderling_zone_files::wire_name;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Changes within this time are handled together.
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// Time until failed work is retried, and until the server process is asked again to serve other zones.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The tasks of all zones with primaries.
pub(crate) type Secondaries = Rc<RefCell<BTreeMap<DomainName, SecondaryHandle>>>;

/// A catalog's state: the version, by its serial and the time of its transfer, its members, and its problem.
type KnownVersion = (Option<(u32, u64)>, Option<Vec<Listing>>, Option<String>);

/// The task for all catalogs.
pub(crate) struct Catalogs {
    config: Rc<Config>,
    context: Rc<SecondaryContext>,
    secondary: Secondaries,
    served: Rc<ServedMap>,
    changes: watch::Receiver<()>,
    members: Members,
    /// Zones whose state must be removed.
    dropped: BTreeSet<DomainName>,
    known: BTreeMap<DomainName, KnownVersion>,
    clashes: Vec<Clash>,
    handed_over_at: Option<tokio::time::Instant>,
    /// The zones that the configuration names.
    configured: HashSet<DomainName>,
}

impl Catalogs {
    /// Starts the tasks of the catalogs and of the zones that they have brought. Call this in a
    /// [`tokio::task::LocalSet`].
    pub(crate) fn load(
        config: Rc<Config>,
        context: Rc<SecondaryContext>,
        secondary: Secondaries,
        served: Rc<ServedMap>,
    ) -> Catalogs {
        let list = read_list(context.state.path()).unwrap_or_else(|error| {
            log_error(&format!("cannot read the list of catalog members: {error}; waiting for the catalogs"));
            MemberList::default()
        });
        let name = |text: &str| DomainName::parse(text).ok();
        let member = |one: ListedMember| {
            let ListedMember { zone, catalog, label, groups } = one;
            Some((name(&zone)?, Member { catalog: name(&catalog)?, label, groups }))
        };
        let changes = served.watch();
        let catalog_names = config.catalogs.iter().map(|catalog| &catalog.apex);
        let configured = config.apexes().chain(catalog_names).cloned().collect();
        let catalogs = Catalogs {
            members: list.members.into_iter().filter_map(member).collect(),
            dropped: list.removed.iter().filter_map(|zone| name(zone)).collect(),
            known: BTreeMap::new(),
            clashes: Vec::new(),
            handed_over_at: None,
            configured,
            config,
            context,
            secondary,
            served,
            changes,
        };
        for catalog in catalogs.config.catalogs.iter().filter_map(Catalog::secondary_zone) {
            let watched_by = Some(Rc::clone(&catalogs.served));
            let handle = SecondaryHandle::start(&catalog, None, Rc::clone(&catalogs.context), watched_by);
            catalogs.secondary.borrow_mut().insert(catalog.apex, handle);
        }
        for (zone, member) in &catalogs.members {
            // The stored state may belong to an earlier member.
            if !catalogs.dropped.contains(zone) && !catalogs.configured.contains(zone) {
                catalogs.start(zone, member);
            }
        }
        catalogs
    }

    pub(crate) async fn run(mut self) {
        loop {
            let result = self.update().await;
            let is_done = match result {
                Ok(()) => self.hand_over_if_needed().await,
                Err(error) => {
                    log_error(&format!("cannot store the list of catalog members: {error}"));
                    false
                }
            };
            let retry = tokio::time::sleep(RETRY_INTERVAL);
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() { return },
                () = retry, if !is_done => {}
            }
            tokio::time::sleep(SETTLE_TIME).await;
            self.changes.mark_unchanged();
        }
    }

    /// The catalogs' current zones.
    async fn update(&mut self) -> Result<(), StateError> {
        self.remove_dropped().await?;
        if !self.served.state().is_known {
            return Ok(());
        }
        let listings = self.read_catalogs().await;
        let outcome = {
            let served = self.served.state();
            let is_configured = |zone: &DomainName| {
                served.zones.get(zone).is_some_and(|served| served.is_of_operator) || self.configured.contains(zone)
            };
            let of_folder = served.zones.iter().filter(|(_, served)| served.is_of_operator).map(|(zone, _)| zone);
            let own = OwnZones::new(self.config.apexes().chain(of_folder));
            let refusal = |catalog: &DomainName, zone: &DomainName| match self.catalog(catalog) {
                _ if is_configured(zone) => Some(ClashCause::Configured),
                catalog => catalog.and_then(|catalog| catalog.refusal(zone, &own)).map(ClashCause::Refused),
            };
            reconcile(&self.members, &listings, refusal)
        };
        self.report_clashes(&outcome.clashes);
        if outcome.members == self.members {
            // The state of zones that were dropped with them may not have been removed yet.
            self.start_missing();
            return Ok(());
        }
        let Outcome { members, dropped, .. } = outcome;
        let before = std::mem::replace(&mut self.members, members);
        // A configured zone uses files of the same names.
        let is_secondary = |zone: &DomainName| {
            self.config.secondary_zones.iter().any(|one| one.apex == *zone)
                || self.config.catalogs.iter().any(|one| one.apex == *zone)
        };
        self.dropped.extend(dropped.into_iter().filter(|zone| !is_secondary(zone)));
        let result = self.store().await;
        if result.is_err() {
            // The next attempt begins where this one has.
            self.members = before;
            self.dropped.clear();
            return result;
        }
        let is_other = |zone: &DomainName, member: &Member| {
            self.dropped.contains(zone)
                || self.members.get(zone).is_none_or(|now| self.zone_of(zone, now) != self.zone_of(zone, member))
        };
        let ended: Vec<&DomainName> =
            before.iter().filter(|(zone, member)| is_other(zone, member)).map(|(zone, _)| zone).collect();
        for zone in &ended {
            let handle = if is_secondary(zone) { None } else { self.secondary.borrow_mut().remove(*zone) };
            if let Some(handle) = handle {
                handle.stop().await;
            }
        }
        // The catalogs of this server list these zones too. The server process may have removed them before.
        self.served.notify();
        // A new list does not wait for the retry of the previous list.
        self.handed_over_at = None;
        let added = self.members.keys().filter(|zone| !before.contains_key(*zone)).count();
        let removed = before.keys().filter(|zone| !self.members.contains_key(*zone)).count();
        log(&format!(
            "catalogs: {}; {added} added, {removed} removed, {} reset",
            if self.members.len() == 1 { "1 zone".to_owned() } else { format!("{} zones", self.members.len()) },
            self.dropped.iter().filter(|zone| self.members.contains_key(*zone)).count()
        ));
        self.remove_dropped().await?;
        self.start_missing();
        Ok(())
    }

    /// Starts tasks for members without a task.
    fn start_missing(&self) {
        for (zone, member) in &self.members {
            let has_task = self.secondary.borrow().contains_key(zone);
            if !has_task && !self.dropped.contains(zone) && !self.configured.contains(zone) {
                self.start(zone, member);
            }
        }
    }

    /// Removes the state of zones that are no longer members, or are new members (RFC 9432 §5.3, §5.4).
    async fn remove_dropped(&mut self) -> Result<(), StateError> {
        if self.dropped.is_empty() {
            return Ok(());
        }
        let state = Arc::clone(&self.context.state);
        let dropped: Vec<(DomainName, bool)> = {
            let served = self.served.state();
            let is_own = |zone: &DomainName| {
                self.configured.contains(zone) || served.zones.get(zone).is_some_and(|served| served.is_of_operator)
            };
            self.dropped.iter().map(|zone| (zone.clone(), is_own(zone))).collect()
        };
        let remove = move || {
            dropped.iter().try_for_each(|(zone, is_own)| {
                remove_state(&state, zone)?;
                // The journal already belongs to the operator's zone.
                if *is_own { Ok(()) } else { remove_journal(&state, zone) }
            })
        };
        DISK.run(remove).await?;
        let dropped = std::mem::take(&mut self.dropped);
        self.store().await?;
        for zone in &dropped {
            if let Some(member) = self.members.get(zone).filter(|_| !self.secondary.borrow().contains_key(zone)) {
                self.start(zone, member);
            }
        }
        Ok(())
    }

    /// Stores the list.
    async fn store(&self) -> Result<(), StateError> {
        let listed = |(zone, member): (&DomainName, &Member)| ListedMember {
            zone: zone.to_string(),
            catalog: member.catalog.to_string(),
            label: member.label.clone(),
            groups: member.groups.clone(),
        };
        let members = self.members.iter().map(listed).collect();
        let removed = self.dropped.iter().map(ToString::to_string).collect();
        let content = MemberList { members, removed }.encode();
        let state = Arc::clone(&self.context.state);
        DISK.run(move || state.write(CATALOG_MEMBERS, &content)).await
    }

    /// Starts a member's task.
    fn start(&self, zone: &DomainName, member: &Member) {
        let Some(secondary) = self.zone_of(zone, member) else { return };
        let handle = SecondaryHandle::start(&secondary, None, Rc::clone(&self.context), None);
        if let Some(served) = self.served.state().zones.get(zone) {
            handle.on_served(served.serial);
        }
        self.secondary.borrow_mut().insert(zone.clone(), handle);
    }

    /// A member's zone; `None` if its catalog is not configured.
    fn zone_of(&self, zone: &DomainName, member: &Member) -> Option<SecondaryZone> {
        self.catalog(&member.catalog)?.member(zone, &member.groups)
    }

    fn catalog(&self, apex: &DomainName) -> Option<&Catalog> {
        self.config.catalogs.iter().find(|catalog| catalog.apex == *apex)
    }

    /// The members in the catalogs' stored versions.
    async fn read_catalogs(&mut self) -> Listings {
        let mut listings = Listings::new();
        for catalog in self.config.catalogs.iter().filter_map(Catalog::secondary_zone) {
            let report = self.secondary.borrow().get(&catalog.apex).map(SecondaryHandle::report).unwrap_or_default();
            let version = report.serial.zip(report.transferred_at_unix_s);
            if self.known.get(&catalog.apex).is_none_or(|(known, ..)| *known != version) {
                let (listed, problem) = self.read_catalog(&catalog.apex, version.is_some()).await;
                if let Some(problem) = &problem {
                    log_error(&format!("catalog {}: {problem}", catalog.apex));
                }
                self.known.insert(catalog.apex.clone(), (version, listed, problem));
            }
            let listed = self.known.get(&catalog.apex).and_then(|(_, listed, _)| listed.clone());
            listings.insert(catalog.apex, listed);
        }
        listings
    }

    /// The members in a catalog's stored version; `None` if there is none, or it must not be used, and why.
    async fn read_catalog(&self, apex: &DomainName, is_stored: bool) -> (Option<Vec<Listing>>, Option<String>) {
        if !is_stored {
            return (None, None);
        }
        let path = self.context.state.path().join(stored_zone_file(apex));
        let (apex, members_max) = (wire_name(apex), self.context.workspace.limits.catalog_members_max);
        let read = move || {
            let members =
                read_catalog(&path, apex.as_name(), members_max)?.finish().map_err(|error| error.to_string())?;
            Ok::<_, String>(members.iter().map(listing_of).collect::<Vec<_>>())
        };
        match DISK.run(read).await {
            Ok(listings) => {
                let refused: Vec<String> = listings.iter().filter_map(|one| one.clone().err()).collect();
                let problem = refused
                    .first()
                    .map(|first| format!("{first}; {} zones are ignored for similar reasons", refused.len()));
                (Some(listings.into_iter().flatten().collect()), problem)
            }
            Err(error) => (None, Some(format!("not used: {error}; its zones do not change"))),
        }
    }

    /// Logs the clashes that are new, and reports of each catalog the first zone that it must not bring.
    fn report_clashes(&mut self, clashes: &[Clash]) {
        let known: HashSet<&Clash> = self.clashes.iter().collect();
        clashes.iter().filter(|clash| !known.contains(clash)).for_each(|clash| log_error(&clash.to_string()));
        self.clashes = clashes.to_vec();
        for (catalog, (_, _, problem)) in &self.known {
            let is_refused =
                |clash: &&Clash| clash.catalog == *catalog && matches!(clash.cause, ClashCause::Refused(_));
            let mut refused = self.clashes.iter().filter(is_refused);
            let of_refused = refused.next().map(|first| match refused.count() {
                0 => first.to_string(),
                more => format!("{first}; {more} more zones are ignored for similar reasons"),
            });
            if let Some(handle) = self.secondary.borrow().get(catalog) {
                handle.set_catalog_problem(problem.as_deref().or(of_refused.as_deref()));
            }
        }
    }

    /// Makes the server process serve the zones of the list, unless it does; whether nothing is left to do.
    async fn hand_over_if_needed(&mut self) -> bool {
        let is_needed = {
            let served = self.served.state();
            let is_member = |zone: &DomainName| self.members.contains_key(zone);
            let is_other = |(zone, served): (&DomainName, &ServedZone)| {
                !served.is_of_operator && !is_member(zone) && !self.configured.contains(zone)
            };
            served.is_known
                && (self.members.keys().any(|zone| !served.zones.contains_key(zone))
                    || served.zones.iter().any(is_other))
        };
        if !is_needed {
            return true;
        }
        let Some(catalog) = self.config.catalogs.iter().find(|catalog| catalog.secondary_zone().is_some()) else {
            return true;
        };
        if self.handed_over_at.is_none_or(|at| at.elapsed() >= RETRY_INTERVAL) {
            let _permit = self.context.hand_overs.acquire().await;
            self.handed_over_at = Some(tokio::time::Instant::now());
            if let Err(error) = self.context.link.zone_stored(catalog.apex.as_str(), false, &[]).await {
                log_error(&format!("catalogs: the server process does not load their zones: {error}"));
            }
        }
        false
    }
}

fn read_list(state: &Path) -> io::Result<MemberList> {
    match read_catalog_members(state) {
        Ok(content) => MemberList::decode(&content),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(MemberList::default()),
        Err(error) => Err(error),
    }
}

/// The records of the catalog in the file at `path`, which this process or the server process has written.
pub(crate) fn read_catalog(path: &Path, apex: Name<'_>, members_max: usize) -> Result<CatalogReader, String> {
    let text = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let mut parser = Parser::new(path.display().to_string(), text, apex, ParserLimits::default());
    let mut reader = CatalogReader::new(apex, members_max);
    while let Some(entry) = parser.next() {
        match entry {
            Ok(Entry::Record(record)) => reader.add(&record),
            Ok(_) => {}
            // Without one of its records, a catalog would remove a zone.
            Err(error) => return Err(format!("{} is damaged: {}", path.display(), error.problem)),
        }
    }
    Ok(reader)
}

/// # Errors
/// Returns an error if the zone's name has characters that no zone of this server may have.
fn listing_of(member: &CatalogMember) -> Result<Listing, String> {
    let zone = DomainName::parse(&member.zone.to_string()).map_err(|problem| problem.to_string())?;
    let new_owner = member.new_owner.as_ref().and_then(|owner| DomainName::parse(&owner.to_string()).ok());
    let groups = member.groups.iter().map(|group| group.escape_ascii().to_string()).collect();
    Ok(Listing { zone, label: member.label.escape_ascii().to_string(), new_owner, groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_with_a_damaged_record_is_not_used() {
        let folder = tempfile::tempdir().expect("created");
        let (path, apex) = (folder.path().join("catalog"), DomainName::parse("c.example").expect("a name"));
        let catalog = "@ 0 SOA invalid. invalid. 1 1 1 1 1\n@ 0 NS invalid.\nversion 0 TXT 2\na.zones 0 PTR a.test.\n";
        let read = |text: &str| {
            fs::write(&path, text).expect("written");
            let reader = read_catalog(&path, wire_name(&apex).as_name(), 10)?;
            Ok(reader.finish().expect("a catalog").len())
        };
        assert_eq!(read(catalog), Ok(1));
        let damaged = catalog.to_owned() + "b.zones 0 PT\u{0}R b.test.\n";
        assert_eq!(read(&damaged).map_err(|error: String| error.contains(" is damaged: ")), Err(true));
    }
}
