//! The zones with primary or secondary servers: routes what the server process reports about them.

use crate::journals::Journals;
use crate::link::Link;
use crate::notifier::Notifier;
use crate::secondary_zone::{SecondaryContext, SecondaryHandle};
use crate::tsig_keys::TsigSecrets;
use crate::updates::Updates;
use sanderling_config::log::log_warning;
use sanderling_config::{Config, DomainName, SecondaryZone};
use sanderling_ipc::agent::{
    ScheduledTask, ServedZone, TransferReport, UpdatesToStore, ZoneNotify, ZoneReport, served_zones_from_memfd,
};
use sanderling_ipc::handover::Descriptors;
use sanderling_state::StateFolder;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore};

/// Questions to primary servers at once.
const QUESTIONS_MAX: usize = 64;
/// Zones that the server process is asked to load at once; it loads them one after the other.
const HAND_OVERS_MAX: usize = 4;

/// The zones of the configuration that have primary or secondary servers.
pub(crate) struct Zones {
    config: Rc<Config>,
    keys: Rc<RefCell<TsigSecrets>>,
    notifier: Notifier,
    secondary: BTreeMap<DomainName, SecondaryHandle>,
    journals: Journals,
    updates: Updates,
    changed: Rc<Notify>,
}

impl Zones {
    /// To be called in a [`tokio::task::LocalSet`].
    pub(crate) fn new(config: Rc<Config>, keys: TsigSecrets, state: Arc<StateFolder>, link: Rc<Link>) -> Zones {
        let (keys, changed) = (Rc::new(RefCell::new(keys)), Rc::new(Notify::new()));
        let notifier = Notifier::new(Rc::clone(&keys), Rc::clone(&changed));
        let journals = Journals::new(Arc::clone(&state));
        let updates = Updates::new(Arc::clone(&state), Rc::clone(&link));
        let context = Rc::new(SecondaryContext {
            state,
            link,
            keys: Rc::clone(&keys),
            limits: config.limits.clone(),
            questions: Semaphore::new(QUESTIONS_MAX),
            transfers: Semaphore::new(config.limits.zone_transfers_in_max),
            hand_overs: Semaphore::new(HAND_OVERS_MAX),
            changed: Rc::clone(&changed),
        });
        let start = |zone: &SecondaryZone| (zone.apex.clone(), SecondaryHandle::start(zone, Rc::clone(&context)));
        let secondary = config.secondary_zones.iter().map(start).collect();
        Zones { config, keys, notifier, secondary, journals, updates, changed }
    }

    /// Returns when the report may have changed.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        let changed = Rc::clone(&self.changed);
        async move { changed.notified().await }
    }

    /// Takes new secrets of keys.
    pub(crate) fn update_secrets(&mut self, descriptors: Descriptors) {
        if let Some(secrets) = descriptors.tsig_secrets {
            self.keys.borrow_mut().update_or_log(&self.config.tsig_keys, secrets);
        }
    }

    /// These zones are served, and no others.
    pub(crate) fn on_all_served(&mut self, zones: Option<OwnedFd>) {
        let zones = match zones.map(served_zones_from_memfd) {
            Some(Ok(zones)) => zones,
            Some(Err(error)) => return log_warning(&format!("ignoring a malformed list of zones: {error}")),
            None => return,
        };
        let named: Vec<(DomainName, &ServedZone)> =
            zones.iter().filter_map(|zone| Some((DomainName::parse(&zone.name).ok()?, zone))).collect();
        let names: HashSet<&DomainName> = named.iter().map(|(name, _)| name).collect();
        self.notifier.retain(|name| names.contains(name));
        let transfers = self.config.transfers_by_zone();
        for (name, zone) in &named {
            self.notifier.on_served(name, zone, &transfers.of(name).secondaries);
            if let Some(secondary) = self.secondary.get(name) {
                secondary.on_served(zone.serial);
            }
        }
    }

    /// Another version of a zone is served.
    pub(crate) fn on_served(&mut self, zone: &ServedZone) {
        if let Ok(name) = DomainName::parse(&zone.name) {
            let transfers = self.config.transfers_by_zone();
            self.notifier.on_served(&name, zone, &transfers.of(&name).secondaries);
            if let Some(secondary) = self.secondary.get(&name) {
                secondary.on_served(zone.serial);
            }
        }
    }

    /// Stores journals of zones.
    pub(crate) fn store_journals(&self, journals: Option<OwnedFd>) {
        self.journals.store(journals);
    }

    /// Stores what dynamic updates have made of a zone.
    pub(crate) fn store_updates(&self, updates: UpdatesToStore, content: Option<OwnedFd>) {
        self.updates.store(updates, content);
    }

    /// A primary says that a zone has changed.
    pub(crate) fn on_notified(&self, notify: &ZoneNotify) {
        let name = DomainName::parse(&notify.name).ok();
        if let Some(secondary) = name.and_then(|name| self.secondary.get(&name)) {
            secondary.on_notified(notify);
        }
    }

    /// What happens when.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = ScheduledTask> {
        self.secondary.iter().flat_map(|(name, secondary)| {
            let TransferReport { next_at_unix_s, expires_at_unix_s, failure_count, .. } = secondary.report();
            let why = if failure_count > 0 { "they have not answered as they should" } else { "refresh of the SOA" };
            let task = |at_unix_s, what, why: &str| ScheduledTask { at_unix_s, what, why: why.to_owned() };
            let refresh = task(next_at_unix_s, format!("ask the primaries of zone {name}"), why);
            let expiry = expires_at_unix_s.map(|at| task(at, format!("stop serving zone {name}"), "expire of the SOA"));
            [Some(refresh), expiry].into_iter().flatten()
        })
    }

    pub(crate) fn report(&self) -> Vec<ZoneReport> {
        let mut reports: BTreeMap<String, ZoneReport> =
            self.notifier.report().map(|zone| (zone.name.clone(), zone)).collect();
        for (name, secondary) in &self.secondary {
            let report = reports.entry(name.to_string()).or_default();
            report.name = name.to_string();
            report.transfer = Some(secondary.report());
        }
        reports.into_values().collect()
    }
}
