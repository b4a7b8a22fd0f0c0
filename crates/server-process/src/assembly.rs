//! A configuration's snapshot, from which clients are answered: assembled from the loaded sites and zones, and from the
//! process's other state.

use crate::challenges::ActiveChallenges;
use crate::client_policy::set_client_policies;
use crate::mail_policies::mail_policies;
use crate::request_logs::set_logs;
use crate::transfers::{notify_policy, transfer_policy};
use crate::zone_updates::update_policy;
use sanderling_config::Config;
use sanderling_dns::ZoneMap;
use sanderling_ipc::agent::{BackendAddresses, Challenge};
use sanderling_os::event_fd::EventFd;
use sanderling_server::{NotifyInbox, OutgoingTransfers, Snapshot, UnixConnector, UpdateInbox};
use std::io;
use std::sync::Arc;

/// Addresses of one name that are used.
const ADDRESSES_MAX: usize = 64;

/// The parts of a snapshot that outlive a configuration.
pub(crate) struct Assembly {
    /// The served zones, without ACME challenges.
    pub(crate) zones: Arc<ZoneMap>,
    pub(crate) challenges: ActiveChallenges,
    pub(crate) outgoing_transfers: Arc<OutgoingTransfers>,
    /// Signalled when there is something for the control thread.
    pub(crate) wakeup: Arc<EventFd>,
    /// The control thread's inboxes, which the serving threads fill. The inboxes exist before these threads, whose
    /// snapshot has its policies from the first query on.
    pub(crate) notifies: Arc<NotifyInbox>,
    pub(crate) updates: Arc<UpdateInbox>,
    /// The addresses of hosts with applications, as last found.
    pub(crate) backend_addresses: Arc<BackendAddresses>,
    /// The connections to applications that the serving threads want.
    pub(crate) unix_connector: Arc<UnixConnector>,
}

impl Assembly {
    /// The assembly of a process that starts with `config` and `zones`.
    pub(crate) fn new(config: &Config, zones: &Arc<ZoneMap>, challenges: Vec<Challenge>) -> io::Result<Assembly> {
        let (limits, wakeup) = (&config.limits, Arc::new(EventFd::new()?));
        let (count_max, signatures_max) = (limits.dns_updates_waiting_max, limits.dns_update_signatures_max);
        Ok(Assembly {
            zones: Arc::clone(zones),
            challenges: ActiveChallenges::new(challenges, config),
            outgoing_transfers: Arc::new(OutgoingTransfers::new(limits.dns_transfers_max)),
            notifies: Arc::new(NotifyInbox::new(Arc::clone(&wakeup))),
            updates: Arc::new(UpdateInbox::new(Arc::clone(&wakeup), count_max, signatures_max)),
            backend_addresses: Arc::default(),
            unix_connector: Arc::new(UnixConnector::new(Arc::clone(&wakeup))),
            wakeup,
        })
    }

    /// Adds to `snapshot`, which has the loaded sites and zones, everything else that `config` defines for answering
    /// clients, except the parts that need secrets.
    pub(crate) fn complete(&mut self, config: &Config, snapshot: &mut Snapshot) {
        self.zones = Arc::clone(&snapshot.zones);
        self.zone_parts(config)(snapshot);
        snapshot.transfers = transfer_policy(config, &self.outgoing_transfers);
        snapshot.notify = notify_policy(config, &self.notifies);
        snapshot.updates = update_policy(config, &self.updates);
        snapshot.backend_addresses = Arc::clone(&self.backend_addresses);
        snapshot.unix_connector = Some(Arc::clone(&self.unix_connector));
        set_logs(config, snapshot);
        set_client_policies(config, snapshot);
    }

    /// Takes over the addresses that the agent has found for the names of `config`. An agent that has just started may
    /// not find a name that its predecessor has found.
    pub(crate) fn update_backend_addresses(&mut self, config: &Config, found: BackendAddresses) {
        let mut addresses = BackendAddresses::clone(&self.backend_addresses);
        addresses.retain(|name, _| config.backend_names.contains(name));
        for (name, mut of_name) in found.into_iter().filter(|(name, _)| config.backend_names.contains(name)) {
            of_name.retain(|address| !address.is_unspecified() && !address.is_multicast());
            of_name.truncate(ADDRESSES_MAX);
            if !of_name.is_empty() || !addresses.contains_key(&name) {
                addresses.insert(name, of_name);
            }
        }
        self.backend_addresses = Arc::new(addresses);
    }

    /// Puts the zones into a snapshot, with the ACME challenges, and the parts that depend on zones.
    pub(crate) fn zone_parts(&self, config: &Config) -> impl FnOnce(&mut Snapshot) + use<> {
        let put_zones = self.zones_with_challenges(config);
        let mail_policies = mail_policies(config, &self.zones);
        move |snapshot| {
            put_zones(snapshot);
            snapshot.mail_policies = mail_policies;
        }
    }

    /// Puts the zones into a snapshot, with the ACME challenges.
    pub(crate) fn zones_with_challenges(&self, config: &Config) -> impl FnOnce(&mut Snapshot) + use<> {
        let (zones, challenges) = (self.challenges.overlay(&self.zones, config), self.challenges.tokens());
        move |snapshot| (snapshot.zones, snapshot.challenges) = (zones, challenges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_dns::HashSeed;

    #[test]
    fn addresses_are_kept_until_others_are_found_or_the_name_is_gone() {
        let backend_names = ["a", "b"].map(str::to_owned).into();
        let mut config = Config { backend_names, ..Config::default() };
        let zones = Arc::new(ZoneMap::new(HashSeed(1), []));
        let mut assembly = Assembly::new(&config, &zones, Vec::new()).expect("made");
        let mut check = |config: &Config, found: &[(&str, &[&str])], expected: &[(&str, &[&str])]| {
            let addresses = |all: &[(&str, &[&str])]| -> BackendAddresses {
                let parsed = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
                all.iter().map(|(name, texts)| ((*name).to_owned(), parsed(texts))).collect()
            };
            assembly.update_backend_addresses(config, addresses(found));
            assert_eq!(*assembly.backend_addresses, addresses(expected));
        };
        check(
            &config,
            &[("a", &["192.0.2.1"]), ("b", &[]), ("c", &["192.0.2.3"])],
            &[("a", &["192.0.2.1"]), ("b", &[])],
        );
        check(
            &config,
            &[("a", &[]), ("b", &["0.0.0.0", "192.0.2.2"])],
            &[("a", &["192.0.2.1"]), ("b", &["192.0.2.2"])],
        );
        check(&config, &[("a", &["192.0.2.9"])], &[("a", &["192.0.2.9"]), ("b", &["192.0.2.2"])]);
        config.backend_names.remove("a");
        check(&config, &[], &[("b", &["192.0.2.2"])]);
    }
}
