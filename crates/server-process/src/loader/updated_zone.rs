//! Applies dynamic updates to a zone. The version that they make is served when the agent has stored them.

use super::catalog_zones::MemberChanges;
use super::{LoadedZone, Loader, OneZone, StoreRequest, StoredParts};
use crate::kept_zones::VersionInfo;
use crate::load_status::ZoneState;
use crate::zone_journals::ChangedJournals;
use crate::zone_updates::UpdateRules;
use sanderling_config::{Config, DomainName};
use sanderling_dns::update::{UpdateMessage, UpdateRefusal, UpdateResult, ZoneUpdate};
use sanderling_dns::{Name, Zone, ZoneEntry, ZoneLimits};
use sanderling_zone_files::{Denial, ZoneUpdates};
use std::sync::Arc;

/// What has become of updates.
#[derive(Debug)]
pub(crate) struct UpdatedZone {
    /// Of the first updates. The others are to be applied to the version that these make.
    pub(crate) results: Vec<UpdateResult>,
    /// The version that they make; `None` if nothing changes.
    pub(crate) version: Option<UpdatedVersion>,
}

/// A version that updates have made.
#[derive(Debug)]
pub(crate) struct UpdatedVersion {
    apex: DomainName,
    zone: Zone,
    updates: ZoneUpdates,
    /// What the agent must store before it is served.
    pub(crate) to_store: StoreRequest,
    journals: ChangedJournals,
}

impl Loader {
    /// Applies updates of the zone `apex`, all of them if a version can be made of all.
    pub(crate) fn apply_updates(
        &mut self,
        config: &Config,
        apex: &DomainName,
        messages: &[&UpdateMessage<'_>],
    ) -> UpdatedZone {
        let mut count = messages.len();
        loop {
            match self.try_apply(config, apex, &messages[..count]) {
                Some(updated) => return updated,
                // One of them makes a zone that cannot be served: it is found among fewer and fewer.
                None if count > 1 => count /= 2,
                None => {
                    let results = vec![UpdateResult::Refused(UpdateRefusal::Failed); count];
                    return UpdatedZone { results, version: None };
                }
            }
        }
    }

    /// `None` if no version can be made of them.
    fn try_apply(
        &mut self,
        config: &Config,
        apex: &DomainName,
        messages: &[&UpdateMessage<'_>],
    ) -> Option<UpdatedZone> {
        let loaded = self.zones.get(apex)?;
        let (served, updates) = (loaded.last_good.as_ref()?, loaded.updates.as_ref()?);
        let rules = UpdateRules::new(config, apex);
        let mut update = ZoneUpdate::new(served);
        let apply = |message: &&UpdateMessage<'_>| {
            let is_allowed = |owner: Name<'_>, rtype| message.key().is_some_and(|key| rules.allow(key, owner, rtype));
            match update.apply(message, is_allowed) {
                Ok(()) => UpdateResult::Done,
                Err(refusal) => UpdateResult::Refused(refusal),
            }
        };
        let results = messages.iter().map(apply).collect();
        let mut updates = updates.clone();
        updates.difference.add_changes(&update);
        let limits = ZoneLimits { records_per_rrset_max: config.limits.zone_records_per_rrset_max };
        let Some(built) = update.finish(limits) else { return Some(UpdatedZone { results, version: None }) };
        let mut zone = built.zone?;
        if updates.difference.encoded_bytes() > config.limits.zone_updates_bytes_max {
            return None;
        }
        let content = updates.encode(zone.apex());
        let to_store = StoreRequest { replaces: updates.stored, content };
        updates.stored = to_store.content.last_chunk().copied();
        let mut journals = Vec::new();
        let state_folder = self.state.clone();
        let stored = StoredParts::new(config, state_folder.as_deref());
        stored.journals.give(apex, Some(served), &mut zone, &mut journals);
        let version = UpdatedVersion { apex: apex.clone(), zone, updates, to_store, journals };
        Some(UpdatedZone { results, version: Some(version) })
    }

    /// Takes a version that is stored; `None` if there is no such zone any more.
    pub(crate) fn take_updated(&mut self, version: UpdatedVersion) -> Option<OneZone> {
        let UpdatedVersion { apex, zone, updates, journals, .. } = version;
        let loaded = self.zones.get_mut(&apex)?;
        let before = Some(Arc::clone(&loaded.state));
        let entry = loaded.take_version(zone, updates)?;
        let state = Arc::clone(&loaded.state);
        Some(OneZone {
            entry,
            state,
            before,
            is_unchanged: false,
            members: MemberChanges::default(),
            warnings: Vec::new(),
            errors: Vec::new(),
            denial: Denial::None,
            kept: None,
            journals,
            updates: Vec::new(),
        })
    }
}

impl LoadedZone {
    fn take_version(&mut self, zone: Zone, updates: ZoneUpdates) -> Option<ZoneEntry> {
        let (serial, record_count) = (zone.serial(), zone.record_count() as u64);
        let zone = Arc::new(zone);
        self.info = Some(VersionInfo { serial, record_count, ..self.info? });
        let (serial, updates_state) = (Some(serial), Some(updates.state()));
        // A problem of the file remains.
        self.state =
            Arc::new(ZoneState { serial, record_count, updates: updates_state, ..ZoneState::clone(&self.state) });
        self.last_good = Some(Arc::clone(&zone));
        self.updates = Some(updates);
        Some(ZoneEntry::Served(zone))
    }
}
