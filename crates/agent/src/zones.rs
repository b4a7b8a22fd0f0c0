//! The zones that are signed, or have primaries or secondaries: routes the reports of the server process about them.

use crate::alias_names::AliasNames;
use crate::catalogs::{Catalogs, Secondaries};
use crate::clock::unix_s;
use crate::command_answer::CommandAnswer;
use crate::journals::Journals;
use crate::keeper_client::KeeperClient;
use crate::link::Link;
use crate::name_servers::NameServers;
use crate::notifier::Notifier;
use crate::produced_catalogs::{CatalogProblems, ProducedCatalogs};
use crate::resolvers::Resolvers;
use crate::secondary_zone::{SecondaryContext, SecondaryHandle};
use crate::served_zones::ServedMap;
use crate::signed_zone::{SigningContext, SigningHandle};
use crate::tsig_keys::TsigSecrets;
use crate::updates::Updates;
use crate::zone_observer::ObserverContext;
use crate::zone_transfer::Workspace;
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{Config, DomainName, SecondaryZone, SignedZone};
use sanderling_dnssec::zone_keys::{self, Rollover};
use sanderling_ipc::agent::{
    AliasReport, ScheduledTask, ServedZone, SigningReport, TransferReport, UpdatesToStore, ZoneNotify, ZoneReport,
    served_zones_from_memfd,
};
use sanderling_ipc::derived::DerivedSet;
use sanderling_ipc::handover::Descriptors;
use sanderling_ipc::{DnssecCommand, RolloverKeys};
use sanderling_state::StateFolder;
use sanderling_zone_files::signed_derivations;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// Concurrent questions to primaries.
const QUESTIONS_MAX: usize = 64;
/// Minimum time between two requests for a connection to the keeper.
const KEEPER_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum concurrent requests to the server process to load zones; it loads them one after another.
const HAND_OVERS_MAX: usize = 4;

/// The zones of the configuration that are signed, or have primary or secondary servers.
pub(crate) struct Zones {
    config: Rc<Config>,
    /// Zones of files, and catalogs.
    configured: HashSet<DomainName>,
    keys: Rc<RefCell<TsigSecrets>>,
    notifier: Notifier,
    secondary: Secondaries,
    served: Rc<ServedMap>,
    alias_names: Rc<AliasNames>,
    signed: BTreeMap<DomainName, SigningHandle>,
    signing: Rc<SigningContext>,
    journals: Journals,
    updates: Updates,
    catalog_problems: CatalogProblems,
    changed: Rc<Notify>,
    /// The answers to commands to read zones again.
    answers: Vec<Rc<CommandAnswer>>,
    /// Invalid messages of the server process.
    ignored: RefCell<LimitedLog>,
}

impl Zones {
    /// Call this in a [`tokio::task::LocalSet`].
    pub(crate) fn new(
        config: Rc<Config>,
        keys: TsigSecrets,
        state: Arc<StateFolder>,
        link: Rc<Link>,
        derived: &DerivedSet,
    ) -> Zones {
        let (keys, changed) = (Rc::new(RefCell::new(keys)), Rc::new(Notify::new()));
        let notifier = Notifier::new(&config, Rc::clone(&keys), Rc::clone(&changed));
        let journals = Journals::new(Arc::clone(&state), &config.limits);
        let updates = Updates::new(Arc::clone(&state), Rc::clone(&link), Rc::clone(&changed));
        let alias_names = Rc::new(AliasNames::default());
        let hand_overs = Rc::new(Semaphore::new(HAND_OVERS_MAX));
        let signing = Rc::new(SigningContext {
            config: Rc::clone(&config),
            state: Arc::clone(&state),
            link: Rc::clone(&link),
            keeper: Arc::new(KeeperClient::default()),
            alias_names: Rc::clone(&alias_names),
            derivations: RefCell::new(signed_derivations(&config, derived)),
            hand_overs: Rc::clone(&hand_overs),
            signings: Semaphore::new(config.limits.zone_signings_max),
            observers: Rc::new(ObserverContext::new(NameServers::new(Rc::clone(&config)), Resolvers::new(&config))),
            changed: Rc::clone(&changed),
        });
        let of_primaries = |apex: &DomainName| config.secondary_zones.iter().find(|zone| zone.apex == *apex);
        let source = |apex: &DomainName| {
            let of_file = config.zones.iter().find(|zone| zone.apex == *apex).cloned();
            of_file.or_else(|| Some(of_primaries(apex)?.zone(state.path())))
        };
        let start = |zone: &SignedZone| {
            Some((zone.apex.clone(), SigningHandle::start(zone, source(&zone.apex)?, Rc::clone(&signing))))
        };
        tokio::task::spawn_local(replace_lost_keeper(Rc::clone(&signing)));
        let signed: BTreeMap<_, _> = config.signed_zones.iter().filter_map(start).collect();
        let context = Rc::new(SecondaryContext {
            workspace: Workspace::new(Arc::clone(&state), config.limits.clone()),
            state,
            link,
            keys: Rc::clone(&keys),
            questions: Semaphore::new(QUESTIONS_MAX),
            transfers: Semaphore::new(config.limits.zone_transfers_in_max),
            hand_overs,
            changed: Rc::clone(&changed),
        });
        let start = |zone: &SecondaryZone| {
            let signer = signed.get(&zone.apex).map(SigningHandle::source_changed);
            (zone.apex.clone(), SecondaryHandle::start(zone, signer, Rc::clone(&context), None))
        };
        let secondary: Secondaries = Rc::new(RefCell::new(config.secondary_zones.iter().map(start).collect()));
        let served = Rc::new(ServedMap::new());
        if config.consumes_catalogs() {
            let catalogs =
                Catalogs::load(Rc::clone(&config), Rc::clone(&context), Rc::clone(&secondary), Rc::clone(&served));
            tokio::task::spawn_local(catalogs.run());
        }
        let (state, link) = (Arc::clone(&context.state), Rc::clone(&context.link));
        let produced =
            ProducedCatalogs::load(Rc::clone(&config), state, link, Rc::clone(&secondary), Rc::clone(&served));
        let catalog_problems = produced.problems();
        tokio::task::spawn_local(produced.run(Rc::clone(&changed)));
        let of_files = config.zones.iter().map(|zone| &zone.apex);
        let configured = of_files.chain(config.catalogs.iter().map(|catalog| &catalog.apex)).cloned().collect();
        Zones {
            config,
            configured,
            keys,
            notifier,
            secondary,
            served,
            alias_names,
            signed,
            signing,
            journals,
            updates,
            catalog_problems,
            changed,
            answers: Vec::new(),
            ignored: RefCell::default(),
        }
    }

    /// Returns when the report may have changed.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        let changed = Rc::clone(&self.changed);
        async move { changed.notified().await }
    }

    /// The targets of `ALIAS` of all zones.
    pub(crate) fn alias_names(&self) -> &Rc<AliasNames> {
        &self.alias_names
    }

    /// Takes new secrets of keys.
    pub(crate) fn update_secrets(&mut self, descriptors: Descriptors) {
        if let Some(secrets) = descriptors.tsig_secrets {
            self.keys.borrow_mut().update_or_log(&self.config.tsig_keys, secrets);
        }
    }

    /// Handles the list of served zones, which is complete.
    pub(crate) fn on_all_served(&mut self, zones: Option<OwnedFd>) {
        let mut zones = match zones.map(served_zones_from_memfd) {
            Some(Ok(zones)) => zones,
            Some(Err(error)) => {
                let problem = format!("ignoring a malformed list of zones: {error}");
                return self.ignored.borrow_mut().warning("list of zones", &problem);
            }
            None => return,
        };
        zones.zones.retain(|zone| DomainName::parse(&zone.name).is_ok_and(|name| self.has_zone(&name)));
        self.alias_names.set_served(&zones, |name| self.signed.contains_key(name));
        self.served.replace(zones);
        let served = self.served.state();
        self.notifier.retain(|name| served.zones.contains_key(name));
        let transfers = self.config.transfers_by_zone();
        for (name, zone) in &served.zones {
            self.notifier.on_served(name, zone, &transfers.of(name).secondaries);
            self.tell_tasks(name, zone.serial);
        }
    }

    /// Handles that another version of a zone is served.
    pub(crate) fn on_served(&mut self, zone: &ServedZone) {
        if let Some(name) = DomainName::parse(&zone.name).ok().filter(|name| self.has_zone(name)) {
            let transfers = self.config.transfers_by_zone();
            self.notifier.on_served(&name, zone, &transfers.of(&name).secondaries);
            self.tell_tasks(&name, zone.serial);
            if !self.signed.contains_key(&name) {
                self.alias_names.set(&name, &zone.alias_targets, false);
            }
            self.served.insert(name, zone.clone());
        }
    }

    fn tell_tasks(&self, name: &DomainName, serial: Option<u32>) {
        if let Some(signed) = self.signed.get(name) {
            signed.on_served(serial);
        } else if let Some(secondary) = self.secondary.borrow().get(name) {
            secondary.on_served(serial);
        }
    }

    /// Asks the keeper at this socket from now on.
    pub(crate) fn use_keeper(&self, socket: Option<OwnedFd>) {
        socket.into_iter().for_each(|socket| self.signing.keeper.connect(socket));
    }

    /// Other records are derived for zones.
    pub(crate) fn on_derived(&self, set: &DerivedSet) {
        self.signing.derivations.replace(signed_derivations(&self.config, set));
        self.signed.values().for_each(SigningHandle::wake);
    }

    /// Reads the records of these zones again, or of all that are signed; `answer` is sent when all of that is done.
    pub(crate) fn read_again(&mut self, names: &[String], forced: &[String], answer: CommandAnswer) {
        let answer = Rc::new(answer);
        for (name, zone) in &self.signed {
            let is_named = |names: &[String]| names.iter().any(|other| other == name.as_str());
            if names.is_empty() || is_named(names) {
                zone.read_again(Rc::clone(&answer), is_named(names), is_named(forced));
            }
        }
        self.answers.push(answer);
    }

    /// The answers that are complete: the report has their results. Dropping them ends the clients' commands.
    pub(crate) fn take_complete_answers(&mut self) -> Vec<Rc<CommandAnswer>> {
        self.answers.extract_if(.., |answer| Rc::strong_count(answer) == 1).collect()
    }

    /// Answers a command about a signed zone.
    pub(crate) fn answer(&self, command: &DnssecCommand, answer: CommandAnswer) {
        let (DnssecCommand::Status { zone } | DnssecCommand::Rollover { zone, .. } | DnssecCommand::NewKeys { zone }) =
            command;
        let name = DomainName::parse(zone).ok();
        let Some((name, signed)) = name.and_then(|name| self.signed.get_key_value(&name)) else {
            let problem = format!("this server does not sign the zone {zone}; set dnssec = true in its domain");
            return answer.fail(&format!("sanderling: {problem}"));
        };
        match command {
            DnssecCommand::Status { .. } => answer.print(&signed.status(name, unix_s())),
            DnssecCommand::NewKeys { .. } => signed.make_new_keys(answer),
            &DnssecCommand::Rollover { keys, is_compromised, .. } => {
                let keys = match keys {
                    RolloverKeys::All => zone_keys::RolloverKeys::All,
                    RolloverKeys::Ksk => zone_keys::RolloverKeys::Ksk,
                    RolloverKeys::Zsk => zone_keys::RolloverKeys::Zsk,
                };
                signed.start_rollover(Rollover { keys, is_compromised }, answer);
            }
        }
    }

    /// Stores journals of zones.
    pub(crate) fn store_journals(&self, journals: Option<OwnedFd>) {
        self.journals.store(journals, |apex| self.has_zone(apex));
    }

    /// Whether the configuration or a catalog has the zone. Only the server process knows a folder's zones.
    fn has_zone(&self, apex: &DomainName) -> bool {
        self.config.zone_folder.is_some()
            || self.configured.contains(apex)
            || self.secondary.borrow().contains_key(apex)
    }

    /// Stores the result of a zone's dynamic updates.
    pub(crate) fn store_updates(&self, updates: UpdatesToStore, content: Option<OwnedFd>) {
        let name = DomainName::parse(&updates.zone).ok();
        let Some(name) = name.filter(|name| self.config.zone_updates.iter().any(|(apex, _)| apex == name)) else {
            self.ignored.borrow_mut().warning("updates", "ignoring updates of a zone that does not accept them");
            return self.updates.refuse(updates);
        };
        match self.signed.get(&name).filter(|signed| signed.signs_updates()) {
            Some(signed) if signed.is_full() => self.updates.refuse(updates),
            Some(signed) => signed.update(updates, content),
            None => self.updates.store(updates, content),
        }
    }

    /// Handles a primary's NOTIFY that a zone has changed.
    pub(crate) fn on_notified(&self, notify: &ZoneNotify) {
        let Ok(name) = DomainName::parse(&notify.name) else { return };
        if let Some(secondary) = self.secondary.borrow().get(&name) {
            secondary.on_notified(notify);
        }
    }

    /// The schedule of events.
    pub(crate) fn tasks(&self) -> Vec<ScheduledTask> {
        let secondary = self.secondary.borrow();
        let transfers = secondary.iter().flat_map(|(name, secondary)| {
            let TransferReport { next_at_unix_s, expires_at_unix_s, failure_count, .. } = secondary.report();
            let why = if failure_count > 0 { "they did not answer correctly" } else { "SOA refresh" };
            let task = |at_unix_s, what, why: &str| ScheduledTask { at_unix_s, what, why: why.to_owned() };
            let refresh = task(next_at_unix_s, format!("ask the primaries of zone {name}"), why);
            let expiry = expires_at_unix_s.map(|at| task(at, format!("stop serving zone {name}"), "SOA expire"));
            [Some(refresh), expiry].into_iter().flatten()
        });
        let signatures = self.signed.iter().filter_map(|(name, signed)| {
            let SigningReport { sign_again_at_unix_s, .. } = signed.report();
            let (what, why) = (format!("re-sign zone {name}"), "its signatures expire".to_owned());
            Some(ScheduledTask { at_unix_s: sign_again_at_unix_s?, what, why })
        });
        transfers.chain(signatures).collect()
    }

    /// The zones' state; `aliases` has their targets of `ALIAS`.
    pub(crate) fn report(&self, aliases: Vec<(String, Vec<AliasReport>)>) -> Vec<ZoneReport> {
        let mut reports: BTreeMap<String, ZoneReport> =
            self.notifier.report().map(|zone| (zone.name.clone(), zone)).collect();
        for (name, secondary) in &*self.secondary.borrow() {
            let report = reports.entry(name.to_string()).or_default();
            report.name = name.to_string();
            report.transfer = Some(secondary.report());
        }
        for (name, signed) in &self.signed {
            let report = reports.entry(name.to_string()).or_default();
            report.name = name.to_string();
            report.signing = Some(signed.report());
        }
        for (name, problem) in self.updates.problems() {
            let report = reports.entry(name.clone()).or_default();
            (report.name, report.updates_problem) = (name, Some(problem));
        }
        for (name, problem) in self.catalog_problems.borrow().iter() {
            let report = reports.entry(name.to_string()).or_default();
            (report.name, report.catalog_problem) = (name.to_string(), Some(problem.clone()));
        }
        for (name, aliases) in aliases {
            let report = reports.entry(name.clone()).or_default();
            (report.name, report.aliases) = (name, aliases);
        }
        reports.into_values().collect()
    }
}

/// Makes the supervisor reconnect the agent to the keeper when an exchange has failed, after a pause: the next exchange
/// may fail as well.
async fn replace_lost_keeper(signing: Rc<SigningContext>) {
    loop {
        signing.keeper.lost().await;
        tokio::time::sleep(KEEPER_RETRY_INTERVAL).await;
        signing.link.keeper_lost();
    }
}
