//! A zone that is signed: reads its records, has the keeper sign with the keys of [`SigningKeys`], stores the signed
//! version, and has the server process load it.
//!
//! Each zone has a task, which is one loop: it compares what is with what is to be, and waits. What it must know after
//! a restart is in the state folder: the signed version, and the state of the keys beside it, which is stored before a
//! version that follows from it.

mod in_part;
mod key_checks;
mod reading;

use crate::alias_names::AliasNames;
use crate::clock::unix_s;
use crate::command_answer::CommandAnswer;
use crate::keeper_client::{KeeperClient, KeeperSigner};
use crate::link::Link;
use crate::signed_version::{SignedFiles, SignedVersion, WrittenVersion};
use crate::signing_keys::SigningKeys;
use crate::zone_observer::{ObserverContext, ZoneObserver};
use key_checks::KeyChecks;
use reading::{LaterUpdates, ReadRecords, has_own_keys, read_records, without_own_keys};
use sanderling_config::log::{log, log_error, log_warning, report};
use sanderling_config::{
    Config, DomainName, SignedSerial, SignedZone as SignedZoneConfig, Signing, Zone, ZoneOrigin, update_file,
};
use sanderling_dns::rdata::{self, PresentationFormat};
use sanderling_dns::{NameBuf, Rtype, is_later};
use sanderling_dnssec::sign::{SignedZone, SigningJob, ZoneTtls};
use sanderling_dnssec::zone_keys::{Observations, Rollover, status_of_others};
use sanderling_dnssec::{Denial, Record, Records, RecordsBuilder, SerialPolicy, SigningParameters, ZoneKeys};
use sanderling_ipc::agent::{SigningReport, UpdatesReport, UpdatesToStore};
use sanderling_state::{StateError, StateFolder};
use sanderling_zone_files::{UpdateState, ZoneDerivation, ZoneUpdates, wire_name};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{AbortHandle, spawn_blocking};

/// The clock of the machine may be set meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Time until what has failed is tried again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The same for a version that the server process has refused several times: it reads all of it each time.
const HAND_OVER_INTERVAL_MAX: Duration = Duration::from_secs(600);

/// What all zones share.
pub(crate) struct SigningContext {
    pub(crate) config: Rc<Config>,
    pub(crate) state: Arc<StateFolder>,
    pub(crate) link: Rc<Link>,
    pub(crate) keeper: Arc<KeeperClient>,
    /// Gets the targets of `ALIAS`.
    pub(crate) alias_names: Rc<AliasNames>,
    /// What is derived for zones.
    pub(crate) derivations: RefCell<HashMap<DomainName, Arc<ZoneDerivation>>>,
    /// Loads by the server process at once.
    pub(crate) hand_overs: Rc<Semaphore>,
    /// Zones that are read and signed at once.
    pub(crate) signings: Semaphore,
    /// Asks about the zones.
    pub(crate) observers: Rc<ObserverContext>,
    /// Notified when a report has changed.
    pub(crate) changed: Rc<Notify>,
}

/// A zone with its task, which ends when this is dropped.
pub(crate) struct SigningHandle {
    shared: Rc<Shared>,
    task: AbortHandle,
}

/// What the task and the rest of the agent tell each other.
#[derive(Default)]
struct Shared {
    wake: Rc<Notify>,
    /// The serial that the server process answers with.
    served: Cell<Option<u32>>,
    /// Whether the records are to be read again.
    reread: RefCell<Option<Reread>>,
    /// Dynamic updates that are to be signed and stored.
    updates: RefCell<Vec<WaitingUpdates>>,
    /// Rollovers that are to start.
    rollovers: RefCell<Vec<(Rollover, CommandAnswer)>>,
    /// Clients that have the zone signed with new keys, whatever the parent zone has.
    new_keys: RefCell<Vec<CommandAnswer>>,
    /// What is shown of the keys; `None` as long as their state cannot be read.
    keys: RefCell<Option<ZoneKeys>>,
    /// The keys of other signers, for the operator.
    others: RefCell<Vec<String>>,
    /// Why it is not known what name servers and the parent zone have.
    unknown: RefCell<Vec<String>>,
    report: RefCell<SigningReport>,
}

/// Updates that wait to be signed. A server process has one of a zone stored at a time.
const UPDATES_MAX: usize = 64;

/// Dynamic updates that are to be signed and stored, with their change.
struct WaitingUpdates {
    updates: UpdatesToStore,
    change: Option<OwnedFd>,
    /// Since when they wait.
    since: tokio::time::Instant,
}

/// A command to read the records again.
#[derive(Clone, Default)]
struct Reread {
    answers: Vec<Rc<CommandAnswer>>,
    /// The command names the zone: its client is told also of a zone that is unchanged.
    is_named: bool,
    /// The server process is to load the zone even if it has lost records or its serial went back.
    is_forced: bool,
}

/// Tells a task that the file with its records has changed.
pub(crate) struct SourceChanged(Rc<Shared>);

impl SourceChanged {
    pub(crate) fn tell(&self) {
        self.0.reread.borrow_mut().get_or_insert_default();
        self.0.wake.notify_one();
    }
}

impl Reread {
    fn print(&self, text: &str) {
        self.answers.iter().for_each(|answer| answer.print(text));
    }

    fn fail(&self, text: &str) {
        self.answers.iter().for_each(|answer| answer.fail(text));
    }
}

impl Drop for SigningHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SigningHandle {
    /// Starts the task of `zone`, whose records are in the file of `source`. To be called in a
    /// [`tokio::task::LocalSet`].
    pub(crate) fn start(zone: &SignedZoneConfig, source: Zone, context: Rc<SigningContext>) -> SigningHandle {
        let shared = Rc::new(Shared { reread: RefCell::new(Some(Reread::default())), ..Shared::default() });
        let task = SigningTask::new(zone, source, context, Rc::clone(&shared));
        let task = tokio::task::spawn_local(task.run()).abort_handle();
        SigningHandle { shared, task }
    }

    /// The server process answers from this version.
    pub(crate) fn on_served(&self, serial: Option<u32>) {
        self.shared.served.set(serial);
        self.shared.wake.notify_one();
    }

    /// Other records are derived, or may be.
    pub(crate) fn wake(&self) {
        self.shared.wake.notify_one();
    }

    /// The file with the records has changed, or may have.
    pub(crate) fn read_again(&self, answer: Rc<CommandAnswer>, is_named: bool, is_forced: bool) {
        let mut reread = self.shared.reread.borrow_mut();
        let reread = reread.get_or_insert_default();
        reread.answers.push(answer);
        reread.is_named |= is_named;
        reread.is_forced |= is_forced;
        self.shared.wake.notify_one();
    }

    /// Whether updates are to be signed: there is a signed version, or it was not looked for yet.
    pub(crate) fn signs_updates(&self) -> bool {
        self.shared.keys.borrow().is_none() || self.shared.report.borrow().serial.is_some()
    }

    /// Whether it has as many updates to sign as may wait.
    pub(crate) fn is_full(&self) -> bool {
        self.shared.updates.borrow().len() >= UPDATES_MAX
    }

    /// Signs and stores dynamic updates, which come as a change of the unsigned records.
    pub(crate) fn update(&self, updates: UpdatesToStore, change: Option<OwnedFd>) {
        let since = tokio::time::Instant::now();
        self.shared.updates.borrow_mut().push(WaitingUpdates { updates, change, since });
        self.shared.wake.notify_one();
    }

    /// Replaces keys.
    pub(crate) fn start_rollover(&self, rollover: Rollover, answer: CommandAnswer) {
        self.shared.rollovers.borrow_mut().push((rollover, answer));
        self.shared.wake.notify_one();
    }

    /// Makes the first key, whatever the parent zone has.
    pub(crate) fn make_new_keys(&self, answer: CommandAnswer) {
        self.shared.new_keys.borrow_mut().push(answer);
        self.shared.wake.notify_one();
    }

    pub(crate) fn report(&self) -> SigningReport {
        self.shared.report.borrow().clone()
    }

    /// What tells the task that the file with its records has changed.
    pub(crate) fn source_changed(&self) -> SourceChanged {
        SourceChanged(Rc::clone(&self.shared))
    }

    /// For the operator: the keys, what the registrar is to be given, and what waits for what.
    pub(crate) fn status(&self, name: &DomainName, now_unix_s: u64) -> String {
        let apex = wire_name(name);
        let keys = self.shared.keys.borrow();
        let mut text = format!("zone {name}\n");
        let SigningReport { serial, sign_again_at_unix_s, problem, updates: _ } = self.report();
        match (serial, &*keys) {
            // As long as the state of the keys cannot be read, the version is not read either.
            (_, None) => {}
            (None, Some(_)) => text += "  not signed yet\n",
            (Some(serial), Some(keys)) if keys.is_empty() => {
                text += &format!("  unsigned again, with serial {serial}\n");
            }
            (Some(serial), Some(_)) => text += &format!("  signed with serial {serial}\n"),
        }
        if let Some(at) = sign_again_at_unix_s {
            let time = match at.saturating_sub(now_unix_s) {
                seconds @ 0..7_200 => format!("{} min", seconds / 60),
                seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
                seconds => format!("{} days", seconds / 86_400),
            };
            text += &format!("  signatures are made again in {time}\n");
        }
        problem.into_iter().for_each(|problem| text += &format!("  problem: {problem}\n"));
        let Some(keys) = &*keys else { return text + "  the keys of the zone are not known\n" };
        keys.status(apex.as_name()).into_iter().for_each(|line| text += &format!("  {line}\n"));
        let (others, unknown) = (self.shared.others.borrow(), self.shared.unknown.borrow());
        others.iter().chain(unknown.iter()).for_each(|line| text += &format!("  {line}\n"));
        if keys.keys_for_registrar().next().is_none() {
            return text;
        }
        text += "  the parent zone is to have a DS record of each key here; give the registrar the one with SHA-256 (2) or SHA-384 (4), or the \
                 DNSKEY record, whichever it asks for:\n";
        for key in keys.keys_for_registrar() {
            for ds in [key.ds(apex.as_name()), key.ds_sha384(apex.as_name())] {
                text += &format!("    {name}. IN DS {}\n", PresentationFormat::new(Rtype::DS, &ds.rdata()));
            }
            text += &format!("    {name}. IN DNSKEY {}\n", PresentationFormat::new(Rtype::DNSKEY, &key.rdata()));
        }
        text
    }
}

/// The records of the zone without signatures.
struct Unsigned {
    /// `None` after dynamic updates: the signed version has them.
    records: Option<Arc<Records>>,
    /// What dynamic updates have made of the files; `None` if the zone has none.
    updates: Option<ZoneUpdates>,
    derivation: Arc<ZoneDerivation>,
    /// The files, from which the records are read when others are derived: the operator may be changing those on the
    /// disk.
    files: Option<Vec<(PathBuf, Vec<u8>)>>,
}

/// The signed version.
struct Signed {
    stored: SignedVersion,
    /// `None` if it was not signed since the start.
    signed_at_unix_s: Option<u64>,
    sign_again_at_unix_s: Option<u64>,
    ttls: ZoneTtls,
}

/// Whether the whole version is written in the background.
#[derive(Default)]
enum Writing {
    #[default]
    None,
    InProgress,
    Done(Result<WrittenVersion, StateError>),
}

/// The server process does not load the last version.
struct Refusal {
    problem: String,
    at: tokio::time::Instant,
    /// Time until it is asked again.
    pause: Duration,
}

struct SigningTask {
    zone: SignedZoneConfig,
    source: Zone,
    apex: NameBuf,
    context: Rc<SigningContext>,
    shared: Rc<Shared>,
    keys: SigningKeys,
    observer: ZoneObserver,
    /// Whether the state of the keys was read.
    is_restored: bool,
    unsigned: Option<Unsigned>,
    signed: Option<Signed>,
    /// The records are other ones than those that were signed.
    is_outdated: bool,
    /// Changes since the version that the server process was told of, as the log has them.
    changes: Vec<u8>,
    /// What has become of the whole version that is written in the background.
    writing: Rc<RefCell<Writing>>,
    /// Whether the server process was told to load the last version.
    is_handed_over: bool,
    /// Whether it is to load the next version even if that has lost records or its serial went back.
    is_forced: bool,
    /// It has refused the last version.
    refused: Option<Refusal>,
    /// Why there is no current signed version.
    problem: Option<String>,
    /// Why the zone file is not used.
    file_problem: Option<String>,
    key_checks: KeyChecks,
    failed_at: Option<tokio::time::Instant>,
}

impl SigningTask {
    fn new(zone: &SignedZoneConfig, source: Zone, context: Rc<SigningContext>, shared: Rc<Shared>) -> SigningTask {
        let keys = SigningKeys::new(zone, Arc::clone(&context.state), Arc::clone(&context.keeper));
        let parent_servers = &zone.signing.parent_servers;
        let wake = Rc::clone(&shared.wake);
        let observer = ZoneObserver::start(&zone.apex, parent_servers, Rc::clone(&context.observers), wake);
        SigningTask {
            zone: zone.clone(),
            source,
            apex: wire_name(&zone.apex),
            context,
            shared,
            keys,
            observer,
            is_restored: false,
            unsigned: None,
            signed: None,
            is_outdated: true,
            changes: Vec::new(),
            writing: Rc::default(),
            is_handed_over: false,
            is_forced: false,
            refused: None,
            problem: None,
            file_problem: None,
            key_checks: KeyChecks::default(),
            failed_at: None,
        }
    }

    async fn run(mut self) {
        let mut connections = self.context.keeper.connections();
        // Without its state, new keys would be introduced that the parent does not know.
        while let Err(problem) = self.restore().await {
            let reread = self.shared.reread.take();
            let rollovers = self.shared.rollovers.take().into_iter().map(|(_, answer)| answer);
            for answer in rollovers.chain(self.shared.new_keys.take()) {
                answer.fail(&format!("sanderling: zone {}: {problem}", self.zone.apex));
            }
            self.fail(problem, reread.as_ref());
            drop(reread);
            self.report();
            tokio::select! {
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(RETRY_INTERVAL) => {}
            }
        }
        (self.problem, self.failed_at) = (None, None);
        loop {
            let reread = self.shared.reread.take();
            self.is_forced |= reread.as_ref().is_some_and(|reread| reread.is_forced);
            self.read_if_needed(reread.as_ref()).await;
            self.look_for_keys().await;
            let mut started = self.start_rollovers();
            started.extend(self.allow_new_keys());
            let is_paused = self.failed_at.is_some_and(|at| at.elapsed() < RETRY_INTERVAL);
            if !is_paused || reread.is_some() || !started.is_empty() {
                match self.sign_if_needed().await {
                    Ok(()) => (self.problem, self.failed_at) = (None, None),
                    Err(problem) => self.fail(problem, reread.as_ref()),
                }
            }
            for (what, answer) in started {
                match &self.problem {
                    Some(problem) => answer.fail(&format!(
                        "sanderling: zone {}: {what} goes on later, by itself: {problem}",
                        self.zone.apex
                    )),
                    None => answer.print(&format!(
                        "zone {0}: {what} has begun; `sanderling dnssec status {0}` shows what it waits for\n",
                        self.zone.apex
                    )),
                }
            }
            self.sign_updates().await;
            self.write_if_needed().await;
            self.hand_over_if_needed(reread.as_ref()).await;
            self.observer.ask(self.keys.questions());
            // The clients that wait get their answer.
            drop(reread);
            self.report();
            tokio::select! {
                () = self.shared.wake.notified() => {}
                Ok(()) = connections.changed() => {
                    self.failed_at = None;
                    self.key_checks.on_new_keeper();
                }
                () = tokio::time::sleep(self.wait_time()) => {}
            }
        }
    }

    /// Starts rollovers, and returns the clients to be told when their keys are made.
    fn start_rollovers(&mut self) -> Vec<(&'static str, CommandAnswer)> {
        let start = |(rollover, answer): (Rollover, CommandAnswer)| match self.keys.start(rollover) {
            Ok(()) => Some(("the rollover", answer)),
            Err(problem) => {
                answer.fail(&format!("sanderling: zone {}: {problem}", self.zone.apex));
                None
            }
        };
        self.shared.rollovers.take().into_iter().filter_map(start).collect()
    }

    fn fail(&mut self, problem: String, reread: Option<&Reread>) {
        if self.problem.as_ref() != Some(&problem) {
            log_error(&format!("zone {}: it is not signed: {problem}", self.zone.apex));
        }
        if let Some(reread) = reread {
            reread.fail(&format!("sanderling: zone {}: it is not signed: {problem}", self.zone.apex));
        }
        self.problem = Some(problem);
        self.failed_at = Some(tokio::time::Instant::now());
    }

    /// Time until something is due.
    fn wait_time(&self) -> Duration {
        if self.failed_at.is_some() {
            return RETRY_INTERVAL;
        }
        let of_refused = self.refused.as_ref().map(|refused| refused.pause.saturating_sub(refused.at.elapsed()));
        let sign_again = self.signed.as_ref().and_then(|signed| signed.sign_again_at_unix_s);
        let next_at = sign_again.into_iter().chain(self.keys.next_at_unix_s()).min();
        let next = next_at.map(|at| Duration::from_secs(at.saturating_sub(unix_s())));
        next.into_iter().chain(of_refused).min().map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
    }

    /// Reads the state of the keys and the signed version.
    ///
    /// # Errors
    /// They are there, and cannot be read.
    async fn restore(&mut self) -> Result<(), String> {
        self.keys.restore().await?;
        self.is_restored = true;
        self.restore_version().await
    }

    /// Reads the signed version.
    async fn restore_version(&mut self) -> Result<(), String> {
        let (state, files) = (Arc::clone(&self.context.state), self.files());
        let stored = spawn_blocking(move || files.read(&state)).await.expect("the state folder does not panic")?;
        self.signed = stored.and_then(|stored| match stored {
            Ok(stored) => {
                let ttls = ZoneTtls::default();
                Some(Signed { stored, signed_at_unix_s: None, sign_again_at_unix_s: None, ttls })
            }
            Err(problem) => {
                log_warning(&format!("the signed version of zone {}: {problem}; it is signed anew", self.zone.apex));
                None
            }
        });
        Ok(())
    }

    /// Reads the records from their files if that was asked for, or from the files before if others are derived.
    async fn read_if_needed(&mut self, reread: Option<&Reread>) {
        let derivation = self.context.derivations.borrow().get(&self.zone.apex).cloned().unwrap_or_default();
        let kept = match (&self.unsigned, reread) {
            (Some(unsigned), None) if unsigned.derivation == derivation => return,
            (Some(unsigned), None) => unsigned.files.clone(),
            (_, Some(_)) | (None, None) => None,
        };
        if self.source.origin == ZoneOrigin::Primaries && !self.source.file.exists() {
            self.file_problem = None;
            return self.withdraw(reread).await;
        }
        let context = Rc::clone(&self.context);
        let _permit = context.signings.acquire().await;
        let (source, limits) = (self.source.clone(), self.context.config.limits.clone());
        let later_file = match (&self.unsigned, &kept) {
            _ if reread.is_some_and(|reread| reread.is_forced) => LaterUpdates::Dropped,
            (Some(_), None) => LaterUpdates::FileRefused,
            // Without records that are in service, or of the version that is in service.
            (None, _) | (_, Some(_)) => LaterUpdates::Held,
        };
        let read = {
            let derivation = Arc::clone(&derivation);
            let state = Arc::clone(&self.context.state);
            let has_updates = self.context.config.zone_updates.iter().any(|(apex, _)| *apex == self.zone.apex);
            let updates = has_updates.then(|| state.path().join(update_file(&self.zone.apex)));
            spawn_blocking(move || read_records(&source, &derivation, &limits, kept, updates, later_file, &state)).await
        };
        match read.expect("reading a zone does not panic") {
            Ok(read) => {
                report(&read.warnings);
                if let Some(reread) = reread {
                    let of_updates = read.dropped.iter().map(|diagnostic| format!("{diagnostic}\n"));
                    of_updates.for_each(|text| reread.print(&text));
                }
                // It is signed all the same.
                if let Some(held) = &read.held {
                    report(std::slice::from_ref(held));
                    reread.into_iter().for_each(|reread| reread.fail(&held.to_string()));
                }
                let before = self.unsigned.as_ref().and_then(|unsigned| unsigned.records.as_ref());
                self.is_outdated |= !before.is_some_and(|before| before.iter().eq(read.records.iter()));
                let ReadRecords { records, updates, files, alias_targets, held, .. } = read;
                self.context.alias_names.set(&self.zone.apex, &alias_targets, true);
                self.unsigned = Some(Unsigned { records: Some(Arc::new(records)), updates, derivation, files });
                self.file_problem = held.map(|held| held.to_string());
            }
            Err(diagnostics) => {
                let problem = diagnostics.iter().find(|one| one.is_error()).map(ToString::to_string);
                // Without records, the file is read again from time to time, and the log says once why that fails.
                if reread.is_some() || self.file_problem != problem {
                    report(&diagnostics);
                }
                if let Some(reread) = reread {
                    diagnostics.iter().for_each(|diagnostic| reread.fail(&diagnostic.to_string()));
                }
                self.file_problem = problem;
            }
        }
    }

    /// Removes the signed version: nothing was transferred yet, or what was transferred has expired.
    async fn withdraw(&mut self, reread: Option<&Reread>) {
        self.unsigned = None;
        if self.signed.is_none() {
            return;
        }
        self.end_writing().await;
        let (state, files) = (Arc::clone(&self.context.state), self.files());
        match spawn_blocking(move || files.remove(&state)).await.expect("the state folder does not panic") {
            Ok(()) => {
                (self.signed, self.is_handed_over) = (None, false);
                if let Some(reread) = reread {
                    let apex = &self.zone.apex;
                    reread.fail(&format!(
                        "sanderling: zone {apex}: not served any more, since its stored version was removed or has expired; \
                         answered with SERVFAIL until it is transferred"
                    ));
                }
            }
            Err(error) => self.fail(error.to_string(), reread),
        }
    }

    /// Whether there is a zone that is or was signed. One that is to be unsigned, and was never signed, is left alone.
    fn is_idle(&self) -> bool {
        self.zone.is_leaving
            && self.source.origin == ZoneOrigin::Operator
            && self.keys.keys().is_empty()
            && self.signed.is_none()
    }

    /// Makes the keys that are needed and another signed version, if it is time.
    async fn sign_if_needed(&mut self) -> Result<(), String> {
        if self.is_idle() {
            return Ok(());
        }
        if !self.may_make_first_key().await? {
            return Ok(());
        }
        self.keys.advance(&self.observer.take()).await?;
        while self.is_due()
            && let Some(unsigned) = self.records_to_sign()
        {
            self.sign(unsigned).await?;
            // What waits for servers is known when the version has a serial.
            self.keys.advance(&Observations::default()).await?;
        }
        if self.signed.is_some() { self.keys.erase_unneeded().await } else { Ok(()) }
    }

    fn is_due(&self) -> bool {
        let now = unix_s();
        let Some(signed) = &self.signed else { return true };
        // With a clock that was ahead, its signatures are not valid yet.
        let is_early = signed.signed_at_unix_s.is_some_and(|at| at > now);
        self.is_outdated
            || self.is_behind()
            || self.keys.has_changed()
            || is_early
            || signed.sign_again_at_unix_s.is_some_and(|at| at <= now)
    }

    async fn sign(&mut self, unsigned: Arc<Records>) -> Result<(), String> {
        let context = Rc::clone(&self.context);
        let _permit = context.signings.acquire().await;
        if self.sign_in_part(Arc::clone(&unsigned)).await? {
            return Ok(());
        }
        let previous = self.previous();
        let (keeper, zone, apex) = (Arc::clone(&self.context.keeper), self.zone.clone(), self.apex);
        let keys = self.keys.in_use();
        let sign = move || {
            let parameters = parameters(&zone.signing);
            let job = SigningJob {
                apex: apex.as_name(),
                unsigned: &unsigned,
                previous: previous.as_deref(),
                keys: &keys,
                parameters: &parameters,
                now_unix_s: unix_s(),
            };
            let mut signer = KeeperSigner { keeper: &keeper, zone: &zone.apex };
            sanderling_dnssec::sign(&job, &mut signer).map_err(|error| error.to_string())
        };
        let signed = spawn_blocking(sign).await.expect("signing does not panic")?;
        self.store(signed).await
    }

    /// The records of the file, or those of the signed version if the file could not be read since the start: its
    /// signatures must not expire.
    fn records_to_sign(&self) -> Option<Arc<Records>> {
        let (apex, keys) = (self.apex.as_name(), self.keys.keys());
        match (&self.unsigned, &self.signed) {
            (Some(Unsigned { records: Some(records), .. }), _) if has_own_keys(records, apex, keys) => {
                Some(Arc::new(without_own_keys(records.iter(), apex, keys)))
            }
            (Some(Unsigned { records: Some(records), .. }), _) => Some(Arc::clone(records)),
            (unsigned, Some(signed)) if self.file_problem.is_some() || unsigned.is_some() => {
                Some(Arc::new(without_own_keys(signed.stored.version.iter(), apex, keys)))
            }
            _ => None,
        }
    }

    /// Whether the server process answers with a later serial than that of the stored version, which it then refuses.
    /// Another policy has given it such a serial.
    fn is_behind(&self) -> bool {
        let counts = self.zone.signing.serial != SignedSerial::Keep;
        let serials = self.signed.as_ref().zip(self.shared.served.get());
        counts && serials.is_some_and(|(signed, served)| is_later(served, signed.stored.serial))
    }

    /// The version before, with the serial from which the next one counts. Before the first one, the server process may
    /// have answered with the serial of the file: the first signed version has a later one. If the version before is
    /// not there any more, its serial still is.
    fn previous(&self) -> Option<Arc<Records>> {
        let served = self.shared.served.get();
        if let Some(signed) = &self.signed {
            let records = signed.stored.version.to_records();
            let serial = served.filter(|_| self.is_behind());
            return match serial {
                Some(serial) => with_serial(records.iter(), |_| serial).map(Arc::new),
                None => Some(Arc::new(records)),
            };
        }
        let unsigned = self.unsigned.as_ref()?.records.as_ref()?;
        let soa = unsigned.iter().filter(|record| record.rtype == Rtype::SOA);
        let latest = |one, other| if is_later(other, one) { other } else { one };
        let others = || self.keys.last_serial().into_iter().chain(served);
        with_serial(soa, |of_file| others().fold(of_file, latest)).map(Arc::new)
    }

    async fn store(&mut self, signed: SignedZone) -> Result<(), String> {
        let SignedZone { records, serial, is_changed, sign_again_at_unix_s, ttls, made_count, kept_count } = signed;
        let before = self.signed.as_ref().map(|signed| signed.stored.serial);
        let unchanged = self.signed.take_if(|signed| !is_changed && signed.stored.has_log());
        let stored = match unchanged {
            Some(signed) => signed.stored,
            None => {
                self.end_writing().await;
                let (state, files) = (Arc::clone(&self.context.state), self.files());
                let write = move || files.write(&state, records, serial).map_err(|error| error.to_string());
                let stored = spawn_blocking(write).await.expect("the state folder does not panic")?;
                let from = before.map_or(String::new(), |before| format!("{before} -> "));
                log(&format!(
                    "zone {}: serial {from}{serial} signed, {made_count} new signatures, {kept_count} kept",
                    self.zone.apex
                ));
                self.changes.clear();
                (self.is_handed_over, self.refused) = (false, None);
                stored
            }
        };
        self.signed = Some(Signed { stored, signed_at_unix_s: Some(unix_s()), sign_again_at_unix_s, ttls });
        self.is_outdated = false;
        self.keys.on_signed(serial, ttls).await
    }

    fn files(&self) -> SignedFiles {
        SignedFiles::new(&self.zone, self.apex)
    }

    /// Writes the whole version in the background if the log is long, and shortens the log when that is done.
    async fn write_if_needed(&mut self) {
        let Some(signed) = &mut self.signed else { return };
        let state = std::mem::take(&mut *self.writing.borrow_mut());
        match state {
            Writing::InProgress => *self.writing.borrow_mut() = Writing::InProgress,
            Writing::Done(Ok(written)) => {
                let files = SignedFiles::new(&self.zone, self.apex);
                if let Err(error) = files.shorten_log(&self.context.state, &mut signed.stored, &written) {
                    log_error(&format!("zone {}: the log of its changes is not shortened: {error}", self.zone.apex));
                    if !signed.stored.has_log() {
                        self.is_outdated = true;
                        self.shared.wake.notify_one();
                    }
                }
            }
            Writing::Done(Err(error)) => {
                log_error(&format!("zone {}: the signed version is not written as a whole: {error}", self.zone.apex));
            }
            Writing::None if signed.stored.has_long_log() => {
                let (version, log_bytes) = (signed.stored.version.clone(), signed.stored.log_bytes());
                let (state, files) = (Arc::clone(&self.context.state), SignedFiles::new(&self.zone, self.apex));
                let (writing, shared) = (Rc::clone(&self.writing), Rc::clone(&self.shared));
                *writing.borrow_mut() = Writing::InProgress;
                tokio::task::spawn_local(async move {
                    let write = move || files.write_again(&state, &version, log_bytes);
                    let result = spawn_blocking(write).await.expect("the state folder does not panic");
                    *writing.borrow_mut() = Writing::Done(result);
                    shared.wake.notify_one();
                });
            }
            Writing::None => {}
        }
    }

    /// Waits until no version is written in the background.
    async fn end_writing(&mut self) {
        while matches!(*self.writing.borrow(), Writing::InProgress) {
            self.shared.wake.notified().await;
        }
        *self.writing.borrow_mut() = Writing::None;
        // What has woken the task is still to be done.
        self.shared.wake.notify_one();
    }

    /// Has the server process load the signed version, unless it answers from it. A client that waits is told what has
    /// become of the zone.
    async fn hand_over_if_needed(&mut self, reread: Option<&Reread>) {
        let serial = self.signed.as_ref().map(|signed| signed.stored.serial);
        // Before the first signed version, the server process may answer from the file of the operator.
        if serial.is_none() && self.source.origin == ZoneOrigin::Operator {
            return self.reload_unsigned(reread).await;
        }
        if self.is_handed_over && self.shared.served.get() == serial {
            return self.tell_unchanged(reread);
        }
        let is_paused = self.refused.as_ref().is_some_and(|refused| refused.at.elapsed() < refused.pause);
        if is_paused && reread.is_none() {
            return;
        }
        let context = Rc::clone(&self.context);
        let _permit = context.hand_overs.acquire().await;
        // Without signatures, a version has far fewer records.
        let is_unsigned = self.zone.is_leaving && self.keys.in_use().keys.is_empty();
        let is_forced = self.is_forced || is_unsigned;
        let changes = std::mem::take(&mut self.changes);
        match context.link.zone_stored(self.zone.apex.as_str(), is_forced, &changes).await {
            // Without a version, the zone is out of service, as it should be.
            Err(error) if serial.is_some() => self.on_refused(&error, reread),
            result => {
                (self.is_handed_over, self.is_forced, self.refused) = (true, false, None);
                // Its report comes by another way, and may be late.
                self.shared.served.set(serial);
                if let (Some(reread), Ok(text)) = (reread, result) {
                    reread.print(&text);
                }
            }
        }
    }

    /// Has the server process load the file of the operator if the zone is named by a command, and is not signed yet or
    /// not any more.
    async fn reload_unsigned(&self, reread: Option<&Reread>) {
        let Some(reread) = reread.filter(|reread| reread.is_named && self.problem.is_none()) else { return };
        let context = Rc::clone(&self.context);
        let _permit = context.hand_overs.acquire().await;
        match context.link.zone_stored(self.zone.apex.as_str(), reread.is_forced, &[]).await {
            Ok(text) => reread.print(&text),
            Err(error) => reread.fail(&error),
        }
    }

    fn tell_unchanged(&self, reread: Option<&Reread>) {
        let is_failed = self.file_problem.is_some() || self.problem.is_some();
        let reread = reread.filter(|reread| reread.is_named && !is_failed);
        if let (Some(reread), Some(signed)) = (reread, &self.signed) {
            let (apex, serial) = (&self.zone.apex, signed.stored.serial);
            reread.print(&format!("zone {apex}: its records are unchanged; serial {serial} stays signed\n"));
        }
    }

    fn on_refused(&mut self, error: &str, reread: Option<&Reread>) {
        let problem = format!("the server process does not load the signed version: {error}");
        let pause = self.refused.as_ref().map_or(RETRY_INTERVAL, |refused| refused.pause * 2);
        let message = format!("zone {}: {problem}", self.zone.apex);
        if self.refused.as_ref().is_none_or(|refused| refused.problem != problem) {
            log_error(&message);
        }
        if let Some(reread) = reread {
            reread.fail(&format!("sanderling: {message}"));
        }
        let (at, pause) = (tokio::time::Instant::now(), pause.min(HAND_OVER_INTERVAL_MAX));
        self.refused = Some(Refusal { problem, at, pause });
    }

    fn report(&self) {
        self.shared.keys.replace(self.is_restored.then(|| self.keys.keys().clone()));
        self.shared.unknown.replace(self.observer.problems());
        let signed = self.signed.as_ref();
        let others = signed.filter(|_| !self.zone.signing.other_signers.is_empty()).map(|signed| {
            let apex = self.apex.as_name();
            status_of_others(self.keys.keys(), apex, signed.stored.version.rdatas(apex, Rtype::DNSKEY))
        });
        self.shared.others.replace(others.unwrap_or_default());
        let refused = self.refused.as_ref().map(|refused| refused.problem.clone());
        let report = SigningReport {
            serial: signed.map(|signed| signed.stored.serial),
            sign_again_at_unix_s: signed.and_then(|signed| signed.sign_again_at_unix_s),
            problem: [&self.file_problem, &self.problem, self.key_checks.problem()]
                .into_iter()
                .find_map(Clone::clone)
                .or(refused),
            updates: self.unsigned.as_ref().and_then(|unsigned| unsigned.updates.as_ref()).map(|updates| {
                let UpdateState { added, removed, is_none, .. } = updates.state();
                UpdatesReport { added, removed, is_none }
            }),
        };
        if self.shared.report.replace(report.clone()) != report {
            self.context.changed.notify_one();
        }
    }
}

/// `records` with the serial that `serial` gives for that of the SOA, which loses its signature.
fn with_serial<'r>(records: impl Iterator<Item = Record<'r>>, serial: impl Fn(u32) -> u32) -> Option<Records> {
    let mut out = RecordsBuilder::default();
    for record in records {
        let is_of_soa = record.rtype == Rtype::RRSIG && record.rdata.starts_with(&Rtype::SOA.0.to_be_bytes());
        if record.rtype == Rtype::SOA {
            let mut rdata = record.rdata.to_vec();
            let at = rdata.len().checked_sub(rdata::SOA_NUMBERS_BYTES)?;
            let next = serial(rdata::serial_of(&rdata)?);
            rdata[at..at + size_of::<u32>()].copy_from_slice(&next.to_be_bytes());
            out.push(Record { rdata: &rdata, ..record });
        } else if !is_of_soa {
            out.push(record);
        }
    }
    Some(out.finish())
}

fn parameters(signing: &Signing) -> SigningParameters {
    SigningParameters {
        denial: if signing.nsec3 { Denial::Nsec3 } else { Denial::Nsec },
        serial_policy: match signing.serial {
            SignedSerial::Keep => SerialPolicy::Keep,
            SignedSerial::Increment => SerialPolicy::Increment,
            SignedSerial::Date => SerialPolicy::Date,
            SignedSerial::UnixTime => SerialPolicy::UnixTime,
        },
        has_zonemd: signing.zonemd,
        dnskey_ttl_s: signing.dnskey_ttl_s,
        ..SigningParameters::default()
    }
}
