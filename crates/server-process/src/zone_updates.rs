//! Dynamic updates of zones: which keys may make them, and where they are stored
//! (docs/decisions/0041-dynamic-update.md).

use sanderling_config::diagnostic::Diagnostic;
use sanderling_config::{Config, DomainName, UPDATES, UpdateRule, update_file};
use sanderling_dns::difference::LaterFile;
use sanderling_dns::{Name, NameBuf, Rtype};
use sanderling_server::{UpdateInbox, UpdatePolicy};
use sanderling_zone_files::{PriorUpdates, ZoneUpdates, read_updates, wire_name};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The keys that may change each zone; `None` if no zone may be changed. Accepted messages are put into `inbox`.
pub(crate) fn update_policy(config: &Config, inbox: &Arc<UpdateInbox>) -> Option<Arc<UpdatePolicy>> {
    let zones = config.zone_updates.iter().map(|(apex, rules)| {
        let keys: Vec<NameBuf> = rules.iter().map(|rule| wire_name(&rule.key)).collect();
        (wire_name(apex), keys)
    });
    (!config.zone_updates.is_empty()).then(|| Arc::new(UpdatePolicy::new(zones, Arc::clone(inbox))))
}

/// The rules of one zone.
#[derive(Debug)]
pub(crate) struct UpdateRules<'c> {
    apex: NameBuf,
    rules: Vec<(NameBuf, &'c UpdateRule, Option<Vec<Rtype>>)>,
}

impl<'c> UpdateRules<'c> {
    pub(crate) fn new(config: &'c Config, apex: &DomainName) -> UpdateRules<'c> {
        let rules = config.zone_updates.iter().filter(|(zone, _)| zone == apex).flat_map(|(_, rules)| rules);
        let with_types = |rule: &'c UpdateRule| {
            let types = rule.types.as_ref();
            let types = types.map(|types| types.iter().flat_map(|name| Rtype::from_text(name.as_bytes())).collect());
            (wire_name(&rule.key), rule, types)
        };
        UpdateRules { apex: wire_name(apex), rules: rules.map(with_types).collect() }
    }

    /// Whether no key can change the zone.
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the owner of `key` may change the records of this name and type.
    pub(crate) fn allow(&self, key: Name<'_>, owner: Name<'_>, rtype: Rtype) -> bool {
        let labels: Vec<&[u8]> = owner.labels().filter(|label| !label.is_empty()).collect();
        let of_zone = self.apex.as_name().labels().filter(|label| !label.is_empty()).count();
        let labels = &labels[..labels.len().saturating_sub(of_zone)];
        self.rules.iter().any(|(known, rule, types)| {
            known.as_name().eq_ignore_case(key)
                && types.as_ref().is_none_or(|types| types.contains(&rtype))
                && rule.names.iter().any(|pattern| pattern.matches(labels))
        })
    }
}

/// The zones that may have updates, and the files with the updates.
pub(crate) struct UpdateFiles<'c> {
    zones: HashMap<&'c DomainName, PathBuf>,
}

impl<'c> UpdateFiles<'c> {
    /// Without a state folder, there are no updates.
    pub(crate) fn new(config: &'c Config, state: Option<&Path>) -> UpdateFiles<'c> {
        let file = |apex: &'c DomainName| Some((apex, state?.join(update_file(apex))));
        // A signed version has them.
        let is_signed = |apex: &DomainName| {
            let file = config.signed_zone(apex).zip(state).map(|(signed, state)| state.join(signed.file()));
            file.is_some_and(|file| file.exists())
        };
        let zones = config.zone_updates.iter().map(|(apex, _)| apex).filter(|apex| !is_signed(apex));
        UpdateFiles { zones: zones.filter_map(file).collect() }
    }

    /// Whether the zone at `apex` may have updates.
    pub(crate) fn has(&self, apex: &DomainName) -> bool {
        self.zones.contains_key(apex)
    }

    /// The updates of the zone at `apex` that are stored; `None` if it has none.
    ///
    /// # Errors
    /// Returns an error if the updates cannot be read. The zone must not be served without them.
    pub(crate) fn read(&self, apex: &DomainName) -> Result<Option<PriorUpdates>, Diagnostic> {
        self.zones.get(apex).map(|file| read_updates(apex, file)).transpose()
    }

    /// Like [`UpdateFiles::read`], for a zone whose updates are known.
    pub(crate) fn known(&self, apex: &DomainName, updates: &ZoneUpdates) -> Option<PriorUpdates> {
        let file = self.zones.get(apex)?.clone();
        Some(PriorUpdates { updates: updates.clone(), file, later_file: LaterFile::ReplacesIfComplete })
    }
}

/// The folder with the stored updates.
pub(crate) fn folder(state: &Path) -> PathBuf {
    state.join(UPDATES)
}
