//! Tells secondary servers that a zone has changed (RFC 1996): at once, and again after growing pauses until they
//! confirm it, a bounded number of times. A later version takes the place of the one before. A server that learns of
//! its zones by a catalog may not have a new zone yet: its errors do not end the attempts for the first version.
//!
//! Each secondary of each zone has its own task while it has not confirmed the last version.

use crate::dns_exchange::{ExchangeError, exchange};
use crate::tsig_keys::TsigSecrets;
use sanderling_config::log::log_warning;
use sanderling_config::{Catalog, CatalogRole, Config, DomainName, Secondary};
use sanderling_dns::client::QueryKind;
use sanderling_ipc::agent::{NotifyOutcome, NotifyReport, ServedZone, ZoneReport};
use sanderling_zone_files::wire_name;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;

/// Messages to one server about one version.
const ATTEMPTS_MAX: u32 = 6;
/// Time for the first reply; it doubles with each attempt, so that a server that restarts has two minutes.
const FIRST_TIMEOUT: Duration = Duration::from_secs(2);
/// Messages that wait for a reply at once.
const UNANSWERED_MAX: usize = 64;

/// The zones with secondary servers.
pub(crate) struct Notifier {
    shared: Rc<Shared>,
    zones: BTreeMap<DomainName, NotifiedZone>,
    /// The servers that learn of zones by a catalog.
    catalog_secondaries: Vec<Secondary>,
}

/// What the tasks need.
struct Shared {
    keys: Rc<RefCell<TsigSecrets>>,
    changed: Rc<Notify>,
    unanswered: Semaphore,
}

struct NotifiedZone {
    serial: u32,
    targets: Vec<Target>,
}

/// A secondary server, which is told of the version.
struct Target {
    secondary: Secondary,
    outcome: Rc<RefCell<NotifyOutcome>>,
    task: AbortHandle,
}

impl Drop for Target {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Notifier {
    /// `changed` is notified when the report has changed.
    pub(crate) fn new(config: &Config, keys: Rc<RefCell<TsigSecrets>>, changed: Rc<Notify>) -> Notifier {
        let unanswered = Semaphore::new(UNANSWERED_MAX);
        let of_catalog = |catalog: &Catalog| match &catalog.role {
            CatalogRole::Producer { secondaries, .. } => secondaries.clone(),
            CatalogRole::Consumer { .. } => Vec::new(),
        };
        let catalog_secondaries = config.catalogs.iter().flat_map(of_catalog).collect();
        Notifier { shared: Rc::new(Shared { keys, changed, unanswered }), zones: BTreeMap::new(), catalog_secondaries }
    }

    /// Forgets zones that are not served any more.
    pub(crate) fn retain(&mut self, is_served: impl Fn(&DomainName) -> bool) {
        self.zones.retain(|name, _| is_served(name));
    }

    /// A version of a zone is served: its secondaries are told unless they have been.
    pub(crate) fn on_served(&mut self, name: &DomainName, zone: &ServedZone, secondaries: &[Secondary]) {
        // Without a good version there is nothing to transfer.
        let Some(serial) = zone.serial.filter(|_| !secondaries.is_empty()) else { return };
        if self.zones.get(name).is_some_and(|notified| notified.serial == serial) {
            return;
        }
        let is_first = !self.zones.contains_key(name);
        let start = |secondary: &Secondary| {
            let may_lack_zone = is_first && self.catalog_secondaries.contains(secondary);
            let outcome = Rc::new(RefCell::new(NotifyOutcome::InProgress));
            let (shared, for_task) = (Rc::clone(&self.shared), Rc::clone(&outcome));
            let (name, target) = (name.clone(), secondary.clone());
            let task = tokio::task::spawn_local(async move {
                let result = shared.tell(&name, serial, &target, may_lack_zone).await;
                *for_task.borrow_mut() = result;
                shared.changed.notify_one();
            });
            Target { secondary: secondary.clone(), outcome, task: task.abort_handle() }
        };
        let targets = secondaries.iter().map(start).collect();
        self.zones.insert(name.clone(), NotifiedZone { serial, targets });
    }

    /// What each secondary has been told.
    pub(crate) fn report(&self) -> impl Iterator<Item = ZoneReport> {
        self.zones.iter().map(|(name, zone)| {
            let report = |target: &Target| NotifyReport {
                address: target.secondary.address,
                serial: zone.serial,
                outcome: target.outcome.borrow().clone(),
            };
            let secondaries = zone.targets.iter().map(report).collect();
            ZoneReport { name: name.to_string(), secondaries, ..ZoneReport::default() }
        })
    }
}

impl Shared {
    /// Sends NOTIFY until the server answers. Any answer ends the attempts (RFC 1996 §3.6), but an error does not if
    /// the server may not have the zone yet.
    async fn tell(&self, name: &DomainName, serial: u32, secondary: &Secondary, may_lack_zone: bool) -> NotifyOutcome {
        let apex = wire_name(name);
        let mut time_max = FIRST_TIMEOUT;
        let mut problem = String::new();
        for _ in 0..ATTEMPTS_MAX {
            // Not locked while waiting: a secret may change.
            let key = self.keys.borrow().find(secondary.key.as_ref());
            let started_at = tokio::time::Instant::now();
            match key {
                Ok(key) => {
                    let _permit = self.unanswered.acquire().await;
                    let query = (QueryKind::Notify, apex.as_name());
                    match exchange(secondary.address, query, key.as_ref(), time_max, |_| Ok(())).await {
                        Ok(()) => return NotifyOutcome::Confirmed,
                        Err(error @ ExchangeError::Reply(_)) if !may_lack_zone => {
                            return given_up(name, serial, secondary, &error);
                        }
                        Err(error) => problem = error.to_string(),
                    }
                }
                Err(error) => problem = error,
            }
            // An ICMP message may be forged, and a restarting server sends one.
            tokio::time::sleep_until(started_at + time_max).await;
            time_max *= 2;
        }
        given_up(name, serial, secondary, &format!("{problem} ({ATTEMPTS_MAX} attempts)"))
    }
}

fn given_up(name: &DomainName, serial: u32, secondary: &Secondary, problem: &dyn std::fmt::Display) -> NotifyOutcome {
    let address = secondary.address;
    log_warning(&format!("zone {name}: NOTIFY of serial {serial} to {address} given up: {problem}"));
    NotifyOutcome::GivenUp(problem.to_string())
}
