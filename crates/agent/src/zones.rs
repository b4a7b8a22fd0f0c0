//! The zones that other servers are concerned with: routes what the server process reports about them.

use crate::notifier::Notifier;
use crate::tsig_keys::TsigSecrets;
use sanderling_config::log::log;
use sanderling_config::{Config, DomainName};
use sanderling_ipc::agent::{ZoneReport, served_zones_from_memfd};
use sanderling_ipc::{ServedZone, handover::Descriptors};
use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::sync::Notify;

/// The zones of the configuration that have secondary servers.
pub(crate) struct Zones {
    config: Rc<Config>,
    keys: Rc<RefCell<TsigSecrets>>,
    notifier: Notifier,
    changed: Rc<Notify>,
}

impl Zones {
    /// To be called in a [`tokio::task::LocalSet`].
    pub(crate) fn new(config: Rc<Config>, keys: TsigSecrets) -> Zones {
        let (keys, changed) = (Rc::new(RefCell::new(keys)), Rc::new(Notify::new()));
        let notifier = Notifier::new(Rc::clone(&keys), Rc::clone(&changed));
        Zones { config, keys, notifier, changed }
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
            Some(Err(error)) => return log(&format!("ignoring a malformed list of zones: {error}")),
            None => return,
        };
        let named: Vec<(DomainName, &ServedZone)> =
            zones.iter().filter_map(|zone| Some((DomainName::parse(&zone.name).ok()?, zone))).collect();
        let names: HashSet<&DomainName> = named.iter().map(|(name, _)| name).collect();
        self.notifier.retain(|name| names.contains(name));
        let transfers = self.config.transfers_by_zone();
        for (name, zone) in &named {
            self.notifier.on_served(name, zone, &transfers.of(name).secondaries);
        }
    }

    /// Another version of a zone is served.
    pub(crate) fn on_served(&mut self, zone: &ServedZone) {
        if let Ok(name) = DomainName::parse(&zone.name) {
            let transfers = self.config.transfers_by_zone();
            self.notifier.on_served(&name, zone, &transfers.of(&name).secondaries);
        }
    }

    pub(crate) fn report(&self) -> Vec<ZoneReport> {
        self.notifier.report().collect()
    }
}
