//! Notifies secondaries that a zone has changed (RFC 1996): immediately, and again after growing pauses until they
//! confirm it, a bounded number of times. A later version replaces the previous one. A server that gets its zones from
//! a catalog may not have a new zone yet: its errors do not end the attempts until it has confirmed a version.
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
/// Concurrent messages that wait for a reply.
const UNANSWERED_MAX: usize = 64;

/// The zones with secondary servers.
pub(crate) struct Notifier {
    shared: Rc<Shared>,
    zones: BTreeMap<DomainName, NotifiedZone>,
    /// The servers that learn of zones by a catalog.
    catalog_secondaries: Vec<Secondary>,
}

/// The shared state of the tasks.
struct Shared {
    keys: Rc<RefCell<TsigSecrets>>,
    changed: Rc<Notify>,
    unanswered: Semaphore,
}

struct NotifiedZone {
    serial: u32,
    targets: Vec<Target>,
}

/// A secondary server that receives NOTIFY of the version.
struct Target {
    secondary: Secondary,
    outcome: Rc<RefCell<NotifyOutcome>>,
    task: AbortHandle,
}

impl NotifiedZone {
    fn is_confirmed_by(&self, secondary: &Secondary) -> bool {
        let is_confirmed = |target: &&Target| *target.outcome.borrow() == NotifyOutcome::Confirmed;
        self.targets.iter().filter(is_confirmed).any(|target| target.secondary == *secondary)
    }
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

    /// Forgets zones that are no longer served.
    pub(crate) fn retain(&mut self, is_served: impl Fn(&DomainName) -> bool) {
        self.zones.retain(|name, _| is_served(name));
    }

    /// Records that a version of a zone is served, and notifies its secondaries unless this was done.
    pub(crate) fn on_served(&mut self, name: &DomainName, zone: &ServedZone, secondaries: &[Secondary]) {
        // Without a good version, secondaries cannot transfer the zone.
        let Some(serial) = zone.serial.filter(|_| !secondaries.is_empty()) else { return };
        if self.zones.get(name).is_some_and(|notified| notified.serial == serial) {
            return;
        }
        let before = self.zones.get(name);
        let start = |secondary: &Secondary| {
            let has_zone = before.is_some_and(|before| before.is_confirmed_by(secondary));
            let may_lack_zone = !has_zone && self.catalog_secondaries.contains(secondary);
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

    /// The state of NOTIFY for each secondary.
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
    log_warning(&format!("zone {name}: giving up NOTIFY of serial {serial} to {address}: {problem}"));
    NotifyOutcome::GivenUp(problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;
    use tokio::net::UdpSocket;

    const NOTAUTH: u8 = 9;

    fn served(serial: u32) -> ServedZone {
        let name = "example.com".to_owned();
        ServedZone { name, serial: Some(serial), is_of_operator: true, has_error: false, alias_targets: Vec::new() }
    }

    /// Answers the next NOTIFY.
    async fn answer(server: &UdpSocket, rcode: u8) {
        let mut message = [0; 512];
        let (length_bytes, client) = server.recv_from(&mut message).await.expect("received");
        message[2] |= 0x80;
        message[3] = message[3] & 0xf0 | rcode;
        server.send_to(&message[..length_bytes], client).await.expect("sent");
    }

    #[test]
    fn server_of_a_catalog_may_lack_a_zone_until_it_has_confirmed_a_version() {
        run(async {
            let server = UdpSocket::bind("127.0.0.1:0").await.expect("bound");
            let secondary = Secondary { address: server.local_addr().expect("an address"), key: None };
            let changed = Rc::new(Notify::new());
            let unanswered = Semaphore::new(UNANSWERED_MAX);
            let shared = Rc::new(Shared { keys: Rc::default(), changed: Rc::clone(&changed), unanswered });
            let catalog_secondaries = vec![secondary.clone()];
            let mut notifier = Notifier { shared, zones: BTreeMap::new(), catalog_secondaries };
            let name = DomainName::parse("example.com").expect("a name");
            let mut outcome_of = async |serial: u32, rcodes: &[u8]| {
                notifier.on_served(&name, &served(serial), std::slice::from_ref(&secondary));
                for &rcode in rcodes {
                    answer(&server, rcode).await;
                }
                if serial != 1 {
                    changed.notified().await;
                }
                notifier.zones[&name].targets[0].outcome.borrow().clone()
            };
            assert_eq!(outcome_of(1, &[NOTAUTH]).await, NotifyOutcome::InProgress);
            // Signing makes the second version immediately.
            assert_eq!(outcome_of(2, &[NOTAUTH, 0]).await, NotifyOutcome::Confirmed);
            assert!(matches!(outcome_of(3, &[NOTAUTH]).await, NotifyOutcome::GivenUp(_)));
        });
    }
}
