//! Applies dynamic updates to a zone, whose new version is served when the agent has stored them, and applies changes
//! that the agent has already stored.

use super::{LoadedZone, Loader, OneZone, Provenance, Report, StoreRequest, StoredParts};
use crate::kept_zones::VersionInfo;
use crate::load_status::ZoneState;
use crate::zone_guard;
use crate::zone_journals::ChangedJournals;
use crate::zone_updates::UpdateRules;
use sanderling_config::diagnostic::Diagnostic;
use sanderling_config::log::log;
use sanderling_config::{Config, DomainName, Zone as ZoneConfig, ZoneOrigin};
use sanderling_dns::change_log::{self, ChangeLog};
use sanderling_dns::difference::MergeOutcome;
use sanderling_dns::journal::ZoneChangeBuilder;
use sanderling_dns::update::{UpdateMessage, UpdateRefusal, UpdateResult, ZoneUpdate};
use sanderling_dns::zone_edit::ZoneEdit;
use sanderling_dns::zonefile::Severity;
use sanderling_dns::{Name, NameBuf, Rtype, Zone, ZoneEntry, ZoneLimits};
use sanderling_os::clock::{from_unix_seconds, unix_seconds};
use sanderling_zone_files::{MergedUpdates, PriorUpdates, UpdateState, ZoneUpdates, dropped_updates, wire_name};
use std::cell::RefCell;
use std::sync::Arc;

/// Seconds for which the expiry of the first signature counts as known while a zone changes.
const EXPIRATION_INTERVAL_S: u64 = 3600;

/// Minimum number of changed names before building the whole zone is worth it: fewer make no difference to answers.
const MERGED_NAMES_MIN: usize = 256;

/// The outcome for updates.
#[derive(Debug)]
pub(crate) struct UpdatedZone {
    /// The number of first updates that were applied. The others must be applied to the resulting version.
    pub(crate) results: Vec<UpdateResult>,
    /// The version that they make; `None` if nothing changes.
    pub(crate) version: Option<UpdatedVersion>,
    /// The reason why the first update results in no version, and is therefore refused.
    pub(crate) problem: Option<String>,
    /// The first change that no rule allows.
    pub(crate) denied: Option<DeniedChange>,
}

/// A change that no rule allows.
#[derive(Debug)]
pub(crate) struct DeniedChange {
    /// The index of the update.
    pub(crate) index: usize,
    pub(crate) owner: NameBuf,
    pub(crate) rtype: Rtype,
}

/// A version that updates have made.
#[derive(Debug)]
pub(crate) struct UpdatedVersion {
    apex: DomainName,
    /// The updates that the agent must store before it is served.
    pub(crate) to_store: StoreRequest,
    /// `None` if the agent signs the zone: it makes the version, and hands it over.
    made: Option<MadeVersion>,
}

#[derive(Debug)]
struct MadeVersion {
    zone: Zone,
    updates: ZoneUpdates,
    journals: ChangedJournals,
}

impl UpdatedZone {
    /// A refusal of all updates, with its cause.
    pub(crate) fn refused(count: usize, refusal: UpdateRefusal, problem: Option<String>) -> UpdatedZone {
        let results = vec![UpdateResult::Refused(refusal); count];
        UpdatedZone { results, version: None, problem, denied: None }
    }
}

impl Loader {
    /// Applies updates of the zone `apex`, all of them if all together result in a version.
    pub(crate) fn apply_updates(
        &mut self,
        config: &Config,
        apex: &DomainName,
        messages: &[&UpdateMessage<'_>],
    ) -> UpdatedZone {
        let mut count = messages.len();
        loop {
            match self.try_apply(config, apex, &messages[..count]) {
                Ok(updated) => return updated,
                // An update that results in a zone that cannot be served is found by halving.
                Err(_) if count > 1 => count /= 2,
                Err(problem) => return UpdatedZone::refused(count, UpdateRefusal::Failed, Some(problem)),
            }
        }
    }

    /// # Errors
    /// Returns the reason why the updates cannot be applied.
    fn try_apply(
        &mut self,
        config: &Config,
        apex: &DomainName,
        messages: &[&UpdateMessage<'_>],
    ) -> Result<UpdatedZone, String> {
        let rules = UpdateRules::new(config, apex);
        // Another configuration was loaded since the updates were received.
        if rules.is_empty() {
            return Ok(UpdatedZone::refused(messages.len(), UpdateRefusal::NotAllowed, None));
        }
        let loaded = self.zones.get(apex);
        let Some(served) = loaded.and_then(|loaded| loaded.last_good.as_ref()) else {
            return Err("the zone has no version that can be served".to_owned());
        };
        let signed = config.signed_zone(apex);
        let signed_file = signed.zip(self.state.as_ref()).map(|(signed, state)| state.join(signed.file()));
        let is_signed = loaded.is_some_and(|loaded| signed_file.as_ref() == Some(&loaded.state.file));
        if signed.is_some_and(|signed| !signed.is_leaving) && !is_signed {
            return Err("the zone is not signed yet".to_owned());
        }
        let updates = loaded.and_then(|loaded| loaded.updates.as_ref());
        let has_other_signers = signed.is_some_and(|signed| !signed.signing.other_signers.is_empty());
        let mut update =
            if is_signed { ZoneUpdate::of_unsigned(served, has_other_signers) } else { ZoneUpdate::new(served) };
        let denied = RefCell::new(None);
        let apply = |(index, message): (usize, &&UpdateMessage<'_>)| {
            let is_allowed = |owner: Name<'_>, rtype| {
                let is_allowed = message.key().is_some_and(|key| rules.allow(key, owner, rtype));
                if !is_allowed {
                    denied.borrow_mut().get_or_insert(DeniedChange { index, owner: owner.to_owned(), rtype });
                }
                is_allowed
            };
            match update.apply(message, is_allowed) {
                Ok(()) => UpdateResult::Done,
                Err(refusal) => UpdateResult::Refused(refusal),
            }
        };
        let results = messages.iter().enumerate().map(apply).collect();
        let denied = denied.into_inner();
        if is_signed {
            let updated = changes_to_sign(apex, served, update, results, config)?;
            return Ok(UpdatedZone { denied, ..updated });
        }
        let mut updates = updates.cloned().ok_or("the zone's stored updates are not loaded")?;
        updates.difference.add_changes(&update);
        let limits = ZoneLimits { records_per_rrset_max: config.limits.zone_records_per_rrset_max };
        let Some(built) = update.finish(limits) else {
            return Ok(UpdatedZone { results, version: None, problem: None, denied });
        };
        let Some(mut zone) = built.zone else {
            let error = built.diagnostics.into_iter().find(|diagnostic| diagnostic.severity == Severity::Error);
            return Err(error.map_or_else(String::new, |error| error.problem));
        };
        if updates.difference.encoded_bytes() > config.limits.zone_updates_bytes_max {
            return Err("dynamic updates would exceed `zone_updates_max`".to_owned());
        }
        let content = updates.encode(zone.apex());
        let to_store = StoreRequest { replaces: updates.stored, content };
        updates.stored = to_store.content.last_chunk().copied();
        let mut journals = Vec::new();
        let state_folder = self.state.clone();
        let stored = StoredParts::new(config, state_folder.as_deref());
        stored.journals.give(apex, Some(served), &mut zone, &mut journals);
        let made = Some(MadeVersion { zone, updates, journals });
        let version = UpdatedVersion { apex: apex.clone(), to_store, made };
        Ok(UpdatedZone { results, version: Some(version), problem: None, denied })
    }

    /// The version of the zone `apex` that is in service, if updates have changed so many names that building it as a
    /// whole is worth it.
    pub(crate) fn version_to_merge(&self, apex: &DomainName) -> Option<Arc<Zone>> {
        let served = self.zones.get(apex)?.last_good.as_ref();
        served.filter(|zone| zone.delta_name_count() >= MERGED_NAMES_MIN).map(Arc::clone)
    }

    /// Takes `merged`, the version `base` of the zone `apex` that was built as a whole, with the changes that have been
    /// made meanwhile; `None` if the version in service stays, because it does not continue from `base`.
    pub(crate) fn take_merged(
        &mut self,
        config: &Config,
        apex: &DomainName,
        base: &Zone,
        merged: Zone,
    ) -> Option<(ZoneEntry, Arc<ZoneState>)> {
        let loaded = self.zones.get_mut(apex)?;
        let served = loaded.last_good.as_ref()?;
        let limits = ZoneLimits { records_per_rrset_max: config.limits.zone_records_per_rrset_max };
        let merged = match std::ptr::eq(Arc::as_ptr(served), base) {
            true => merged,
            false => base.rebased(&merged, served, limits)?,
        };
        let merged = Arc::new(merged);
        loaded.last_good = Some(Arc::clone(&merged));
        Some((ZoneEntry::Served(merged), Arc::clone(&loaded.state)))
    }

    /// Applies changes of a log that continue from the version in service; `None` if they do not.
    pub(crate) fn apply_changes(&mut self, config: &Config, apex: &DomainName, changes: &[u8]) -> Option<OneZone> {
        let loaded = self.zones.get_mut(apex).filter(|loaded| loaded.state.problem.is_none())?;
        let served = Arc::clone(loaded.last_good.as_ref()?);
        let log = [&change_log::HEAD[..], changes].concat();
        let changes = ChangeLog::read(&log, served.apex(), served.serial());
        let mut edit = ZoneEdit::new(&served);
        let is_whole = !changes.changes.is_empty() && changes.whole_bytes == log.len();
        if !is_whole || !changes.changes.iter().all(|change| edit.apply(change)) {
            return None;
        }
        let limits = ZoneLimits { records_per_rrset_max: config.limits.zone_records_per_rrset_max };
        let mut zone = edit.finish(limits).zone?;
        let loaded = self.zones.get(apex)?;
        let (before, provenance) = (loaded.info?, loaded.provenance);
        let info = VersionInfo { serial: zone.serial(), record_count: zone.record_count() as u64, ..before };
        let zone_config = self.zone_named(config, apex)?;
        let is_loaded_whole = match zone_config.origin {
            // A catalog also defines zones.
            ZoneOrigin::Catalog => true,
            // A secondary follows its primary, and a catalog of this server follows its zones.
            ZoneOrigin::Primaries | ZoneOrigin::ProducedCatalog => false,
            // If the guard refuses the version, the zone is loaded as a whole, which reports the refusal.
            ZoneOrigin::Operator | ZoneOrigin::Signer => {
                provenance == Provenance::Files
                    && zone_guard::refusal(&zone_config, &before, &info, &config.limits).is_some()
            }
        };
        if is_loaded_whole {
            return None;
        }
        let mut journals = Vec::new();
        let state_folder = self.state.clone();
        let stored = StoredParts::new(config, state_folder.as_deref());
        stored.journals.give(apex, Some(&served), &mut zone, &mut journals);
        let loaded = self.zones.get_mut(apex)?;
        let before = Some(Arc::clone(&loaded.state));
        let entry = loaded.take_stored_version(zone)?;
        let state = Arc::clone(&loaded.state);
        Some(OneZone::changed(entry, state, before, journals))
    }

    /// Takes a stored version; `None` if the zone no longer exists.
    pub(crate) fn take_updated(&mut self, version: UpdatedVersion) -> Option<OneZone> {
        let UpdatedVersion { apex, made, .. } = version;
        let MadeVersion { zone, updates, journals } = made?;
        let loaded = self.zones.get_mut(&apex)?;
        let before = Some(Arc::clone(&loaded.state));
        let entry = loaded.take_version(zone, updates)?;
        let state = Arc::clone(&loaded.state);
        Some(OneZone::changed(entry, state, before, journals))
    }
}

impl UpdatedVersion {
    /// Whether the agent signs the zone, and hands over the version.
    pub(crate) fn is_signed_by_agent(&self) -> bool {
        self.made.is_none()
    }
}

/// The changes by `update` to a signed zone, for the agent to sign.
///
/// # Errors
/// Returns the reason why the changed zone cannot be served.
fn changes_to_sign(
    apex: &DomainName,
    served: &Zone,
    update: ZoneUpdate<'_>,
    results: Vec<UpdateResult>,
    config: &Config,
) -> Result<UpdatedZone, String> {
    let mut change = ZoneChangeBuilder::new(served.apex());
    update.each_change(|role, record| change.add(role, record));
    let limits = ZoneLimits { records_per_rrset_max: config.limits.zone_records_per_rrset_max };
    // The signatures are no longer correct, but the build shows whether the zone can be served.
    let Some(built) = update.finish(limits) else {
        return Ok(UpdatedZone { results, version: None, problem: None, denied: None });
    };
    if built.zone.is_none() {
        let error = built.diagnostics.into_iter().find(|diagnostic| diagnostic.severity == Severity::Error);
        return Err(error.map_or_else(String::new, |error| error.problem));
    }
    let change = change.finish().ok_or("the zone's serial would not increase")?;
    let mut content = Vec::new();
    change_log::put_change(&change, &mut content);
    let to_store = StoreRequest { replaces: None, content };
    let version = UpdatedVersion { apex: apex.clone(), to_store, made: None };
    Ok(UpdatedZone { results, version: Some(version), problem: None, denied: None })
}

impl OneZone {
    /// A changed zone, without its files.
    fn changed(
        entry: ZoneEntry,
        state: Arc<ZoneState>,
        before: Option<Arc<ZoneState>>,
        journals: ChangedJournals,
    ) -> OneZone {
        OneZone::new(entry, state, before, None, Report { journals, ..Report::default() })
    }
}

impl LoadedZone {
    /// Takes a version that the agent has stored. The version kept for another process remains the earlier one: that
    /// process reads the stored one.
    fn take_stored_version(&mut self, zone: Zone) -> Option<ZoneEntry> {
        let (serial, record_count) = (zone.serial(), zone.record_count() as u64);
        let now = unix_seconds();
        // The search takes time in proportion to the zone, and signatures are renewed long before they expire.
        let is_known = self.expiration_found_at.is_some_and(|at| now.saturating_sub(at) < EXPIRATION_INTERVAL_S);
        let signatures_expire_at = match is_known {
            true => self.state.signatures_expire_at,
            false => zone.signatures_expire_at(now).map(from_unix_seconds),
        };
        self.expiration_found_at = Some(if is_known { self.expiration_found_at? } else { now });
        self.info = Some(VersionInfo { serial, record_count, loaded_at_unix_s: now, ..self.info? });
        let (serial, loaded_at) = (Some(serial), Some(from_unix_seconds(now)));
        let state = ZoneState::clone(&self.state);
        self.state = Arc::new(ZoneState { serial, record_count, loaded_at, signatures_expire_at, ..state });
        let zone = Arc::new(zone);
        self.last_good = Some(Arc::clone(&zone));
        Some(ZoneEntry::Served(zone))
    }

    fn take_version(&mut self, zone: Zone, updates: ZoneUpdates) -> Option<ZoneEntry> {
        let (serial, record_count) = (zone.serial(), zone.record_count() as u64);
        let zone = Arc::new(zone);
        let now = unix_seconds();
        self.info = Some(VersionInfo { serial, record_count, loaded_at_unix_s: now, ..self.info? });
        let (serial, loaded_at) = (Some(serial), Some(from_unix_seconds(now)));
        // A problem of the file remains.
        let is_held = self.state.updates.is_some_and(|updates| updates.is_held);
        let updates_state = Some(UpdateState { is_held, ..updates.state() });
        let state = ZoneState::clone(&self.state);
        self.state = Arc::new(ZoneState { serial, record_count, loaded_at, updates: updates_state, ..state });
        self.last_good = Some(Arc::clone(&zone));
        self.updates = Some(updates);
        Some(ZoneEntry::Served(zone))
    }

    /// The zone's updates, from the version in service or, without one, from the state folder.
    ///
    /// # Errors
    /// Returns an error if the updates cannot be read.
    pub(super) fn prior_updates(
        &self,
        apex: &DomainName,
        stored: &StoredParts<'_>,
    ) -> Result<Option<PriorUpdates>, Diagnostic> {
        match &self.updates {
            Some(updates) => Ok(stored.updates.known(apex, updates)),
            None => stored.updates.read(apex),
        }
    }

    /// Takes the outcome for the updates after the file was read.
    pub(super) fn take_updates(&mut self, zone: &ZoneConfig, updates: Option<MergedUpdates>, report: &mut Report) {
        let outcome = updates.as_ref().map(|updates| (updates.merged.outcome, updates.merged.later));
        let (updates, to_store) = updates.map(|updates| updates.finish(wire_name(&zone.apex).as_name())).unzip();
        // Stored updates count only if this process has not applied its own.
        let stored = updates.as_ref().filter(|_| self.updates.is_none()).map(ZoneUpdates::state);
        if let Some(UpdateState { added, removed, is_none: false, .. }) = stored {
            log(&format!(
                "zone {}: applied stored dynamic updates: compared with the file, {added} records are added and {removed} removed",
                zone.apex
            ));
        }
        self.updates = updates;
        report.updates.extend(to_store.flatten().map(|to_store| (zone.apex.clone(), to_store)));
        let apex = &zone.apex;
        match outcome {
            Some((MergeOutcome::Superseded, Some(later))) if later.lost_count > 0 => {
                report.warnings.push(dropped_updates(apex, &zone.file, later));
            }
            Some((MergeOutcome::Superseded, _)) => {
                log(&format!("zone {apex}: the file has a later serial and includes all dynamic updates"));
            }
            Some((MergeOutcome::Applied, _)) => {
                log(&format!(
                    "zone {apex}: reapplied the dynamic updates to the changed zone file; conflicting records were \
                     skipped"
                ));
            }
            None | Some((MergeOutcome::Unchanged, _)) => {}
        }
    }

    /// The file has a later serial and lacks the changes by updates: they stay, and the operator is informed.
    pub(super) fn hold_updates(&mut self, diagnostic: Diagnostic, report: &mut Report) {
        let updates = self.state.updates.map(|updates| UpdateState { is_held: true, ..updates });
        let problem = Some(diagnostic.to_string());
        report.errors.push(diagnostic);
        // The zone is read again each time, until the operator has decided.
        self.sources = None;
        self.state = Arc::new(ZoneState { problem, updates, ..ZoneState::clone(&self.state) });
    }
}
