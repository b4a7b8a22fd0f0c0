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
use sanderling_ipc::agent::Challenge;
use sanderling_os::event_fd::EventFd;
use sanderling_server::{NotifyInbox, OutgoingTransfers, Snapshot, UnixConnector, UpdateInbox};
use std::io;
use std::sync::Arc;

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
        snapshot.unix_connector = Some(Arc::clone(&self.unix_connector));
        set_logs(config, snapshot);
        set_client_policies(config, snapshot);
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
