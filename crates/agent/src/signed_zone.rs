//! A signed zone: reads its records, makes the keeper sign with the keys of [`SigningKeys`], stores the signed version,
//! and makes the server process load it.
//!
//! Each zone has a task, which is one loop: it compares the actual with the desired state, and waits. The state that it
//! needs after a restart is in the state folder: the signed version, and the state of the keys next to it, which is
//! stored before a version that depends on it.

mod in_part;
mod key_checks;
mod reading;
mod handle;

use crate::alias_names::AliasNames;
use crate::blocking::{DISK, ZONES};
use crate::clock::unix_s;
use crate::command_answer::CommandAnswer;
use crate::keeper_client::{KeeperClient, KeeperSigner};
use crate::link::Link;
use crate::retry::Retry;
use crate::signed_version::{SignedFiles, SignedVersion, WrittenVersion};
use crate::signing_keys::SigningKeys;
use crate::zone_observer::{ObserverContext, ZoneObserver};
pub(crate) use handle::{SigningHandle, SourceChanged};

use handle::{Reread, Shared};
use key_checks::KeyChecks;
use reading::{LaterUpdates, ReadFailure, ReadRecords, has_own_keys, read_records, without_own_keys};
use sanderling_config::log::{log, log_error, log_warning, report};
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{
    Config, DomainName, SignedSerial, SignedZone as SignedZoneConfig, Signing, Zone, ZoneOrigin, update_file,
};
use sanderling_dns::{NameBuf, Rtype, is_later, rdata};
use sanderling_dnssec::sign::{SignedZone, SigningJob, ZoneTtls};
use sanderling_dnssec::zone_keys::{Observations, Rollover, status_of_others};
use sanderling_dnssec::{Denial, Record, Records, RecordsBuilder, SerialPolicy, SigningParameters};
use sanderling_ipc::agent::{SigningReport, UpdatesReport};
use sanderling_state::{StateError, StateFolder};
use sanderling_zone_files::{UpdateState, ZoneDerivation, ZoneUpdates, wire_name};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// The start of a message about a zone, before the cause. A version that was signed before may be served.
const CANNOT_SIGN: &str = "it cannot be signed";
/// The message prefix for a failed write.
const NOT_STORED: &str = "cannot store dynamic updates and signatures: ";
/// The machine's clock may be set in the meantime.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Time until failed work is retried: for a moment there may have been no space, or no keeper.
const RETRY_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// The maximum after several failures.
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// The same maximum for the operator's file, which is read as a whole each time.
const REREAD_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// The same maximum for a version that the server process has refused several times, and reads as a whole each time.
const HAND_OVER_INTERVAL_MAX: Duration = Duration::from_secs(600);
/// Time until a whole version is written again, if that has failed.
const WRITING_INTERVAL: Duration = Duration::from_secs(60);

/// The state that all zones share.
pub(crate) struct SigningContext {
    pub(crate) config: Rc<Config>,
    pub(crate) state: Arc<StateFolder>,
    pub(crate) link: Rc<Link>,
    pub(crate) keeper: Arc<KeeperClient>,
    /// Gets the targets of `ALIAS`.
    pub(crate) alias_names: Rc<AliasNames>,
    /// The derived records of zones.
    pub(crate) derivations: RefCell<HashMap<DomainName, Arc<ZoneDerivation>>>,
    /// Concurrent loads by the server process.
    pub(crate) hand_overs: Rc<Semaphore>,
    /// Zones that are read and signed concurrently.
    pub(crate) signings: Semaphore,
    /// Asks about the zones.
    pub(crate) observers: Rc<ObserverContext>,
    /// Notified when a report has changed.
    pub(crate) changed: Rc<Notify>,
}

/// The folder's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restored {
    Nothing,
    /// The keys' state. After a failed write since the version was read, the version in memory may differ from the
    /// stored one.
    Keys,
    /// The version was read as well.
    All,
}

/// The records of the zone without signatures.
struct Unsigned {
    /// `None` after dynamic updates: the signed version has them.
    records: Option<Arc<Records>>,
    /// The changes by dynamic updates to the files; `None` if the zone has none.
    updates: Option<ZoneUpdates>,
    derivation: Arc<ZoneDerivation>,
}

/// The signed version.
struct Signed {
    stored: SignedVersion,
    /// `None` if it was not signed since startup.
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
    /// The write failed at this time.
    Failed(tokio::time::Instant),
}

struct SigningTask {
    zone: SignedZoneConfig,
    source: Zone,
    apex: NameBuf,
    context: Rc<SigningContext>,
    shared: Rc<Shared>,
    keys: SigningKeys,
    observer: ZoneObserver,
    restored: Restored,
    unsigned: Option<Unsigned>,
    /// The files of `unsigned`, from which the records are read again when derived records change or a write has
    /// failed: the operator may be changing the files on the disk.
    files: Option<Vec<(PathBuf, Vec<u8>)>>,
    signed: Option<Signed>,
    /// The records have changed since they were signed.
    is_outdated: bool,
    /// Changes since the version that the server process was notified of, in log form.
    changes: Vec<u8>,
    /// The state of the background write of the whole version.
    writing: Rc<RefCell<Writing>>,
    /// Whether the server process was told to load the last version.
    is_handed_over: bool,
    /// Whether the server process must load the next version even if that has lost records or its serial went back.
    is_forced: bool,
    /// The reason why the server process has refused the last version.
    refusal: Option<String>,
    /// The time when the server process is asked again.
    handing_over: Retry,
    /// The reason why there is no current signed version.
    problem: Option<String>,
    /// The reason why the zone file is not used.
    file_problem: Option<String>,
    /// The next reading of the file, without records.
    reading: Retry,
    key_checks: KeyChecks,
    /// The next retry of failed work.
    retry: Retry,
    update_errors: LimitedLog,
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
            restored: Restored::Nothing,
            unsigned: None,
            files: None,
            signed: None,
            is_outdated: true,
            changes: Vec::new(),
            writing: Rc::default(),
            is_handed_over: false,
            is_forced: false,
            refusal: None,
            handing_over: Retry::new(RETRY_INTERVAL_MIN, HAND_OVER_INTERVAL_MAX),
            problem: None,
            file_problem: None,
            reading: Retry::new(RETRY_INTERVAL_MIN, REREAD_INTERVAL_MAX),
            key_checks: KeyChecks::default(),
            retry: Retry::new(RETRY_INTERVAL_MIN, RETRY_INTERVAL_MAX),
            update_errors: LimitedLog::default(),
        }
    }

    async fn run(mut self) {
        let mut connections = self.context.keeper.connections();
        loop {
            let mut reread = self.shared.reread.take();
            self.is_forced |= reread.as_ref().is_some_and(|reread| reread.is_forced);
            if self.restore_if_needed(reread.as_ref()).await {
                self.bring_up_to_date(reread.as_ref()).await;
            }
            self.sign_updates().await;
            if self.restored == Restored::All {
                self.write_if_needed().await;
                self.hand_over_if_needed(reread.as_ref()).await;
                self.observer.ask(self.keys.questions());
            }
            self.report();
            if reread.take().is_some() {
                // The clients get their answers after the report.
                self.context.changed.notify_one();
            }
            tokio::select! {
                () = self.shared.wake.notified() => {}
                Ok(()) = connections.changed() => {
                    self.retry.on_success();
                    self.key_checks.on_new_keeper();
                }
                () = tokio::time::sleep(self.wait_time()) => {}
            }
        }
    }

    /// Reads the records, starts rollovers that commands request, and signs.
    async fn bring_up_to_date(&mut self, reread: Option<&Reread>) {
        self.read_if_needed(reread).await;
        self.look_for_keys().await;
        let mut started = self.start_rollovers();
        started.extend(self.allow_new_keys());
        if !self.retry.is_paused() || reread.is_some() || !started.is_empty() {
            match self.sign_if_needed().await {
                Ok(()) => {
                    self.problem = None;
                    self.retry.on_success();
                }
                Err(problem) => self.fail(CANNOT_SIGN, problem, reread),
            }
        }
        for (what, answer) in started {
            match &self.problem {
                Some(problem) => answer.fail(&format!(
                    "sanderling: zone {}: {what} is pending, and will be retried: {problem}",
                    self.zone.apex
                )),
                None => answer.print(&format!(
                    "zone {0}: {what} has begun; `sanderling dnssec status {0}` shows the pending step\n",
                    self.zone.apex
                )),
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

    /// Reports that `what` cannot be done.
    fn fail(&mut self, what: &str, problem: String, reread: Option<&Reread>) {
        let message = format!("zone {}: {what}: {problem}", self.zone.apex);
        if self.problem.as_ref() != Some(&problem) {
            log_error(&message);
        }
        if let Some(reread) = reread {
            reread.fail(&format!("sanderling: {message}"));
        }
        self.problem = Some(problem);
        self.retry.on_failure();
    }

    /// Time until the next action is due.
    fn wait_time(&self) -> Duration {
        let of_updates = self.time_of_updates();
        if let Some(left) = self.retry.left() {
            return left.min(of_updates.unwrap_or(WAIT_MAX));
        }
        let sign_again = self.signed.as_ref().and_then(|signed| signed.sign_again_at_unix_s);
        let next_at = sign_again.into_iter().chain(self.keys.next_at_unix_s()).min();
        let next = next_at.map(|at| Duration::from_secs(at.saturating_sub(unix_s())));
        [next, self.handing_over.left(), self.reading.left(), of_updates]
            .into_iter()
            .flatten()
            .min()
            .map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
    }

    /// Reads the state of the keys and the signed version: at startup, and again after a failed write. Whether they are
    /// known.
    async fn restore_if_needed(&mut self, reread: Option<&Reread>) -> bool {
        if self.restored == Restored::All {
            return true;
        }
        if self.retry.is_paused() && reread.is_none() {
            return false;
        }
        let Err(problem) = self.restore().await else {
            self.retry.on_success();
            return true;
        };
        // The command is lost, but the zone is not.
        self.files.take_if(|_| reread.is_some());
        let commands = self.shared.rollovers.take().into_iter().map(|(_, answer)| answer);
        for answer in commands.chain(self.shared.new_keys.take()) {
            answer.fail(&format!("sanderling: zone {}: {problem}", self.zone.apex));
        }
        self.fail(CANNOT_SIGN, problem, reread);
        false
    }

    /// # Errors
    /// Returns an error if the stored version cannot be read, or nothing can be stored at the moment.
    async fn restore(&mut self) -> Result<(), String> {
        if self.restored == Restored::Nothing {
            // Without the state of the keys, new keys that the parent does not know would be introduced.
            self.keys.restore().await?;
            self.restored = Restored::Keys;
        } else {
            let state = Arc::clone(&self.context.state);
            let file = update_file(&self.zone.apex).display().to_string();
            DISK.run(move || state.check_writable(&file))
                .await
                .map_err(|error| NOT_STORED.to_owned() + &error.to_string())?;
        }
        self.end_writing().await;
        let (state, files) = (Arc::clone(&self.context.state), self.files());
        let stored = ZONES.run(move || files.read(&state)).await?;
        self.signed = stored.and_then(|stored| match stored {
            Ok(stored) => {
                let ttls = ZoneTtls::default();
                Some(Signed { stored, signed_at_unix_s: None, sign_again_at_unix_s: None, ttls })
            }
            Err(problem) => {
                log_warning(&format!("the signed version of zone {}: {problem}; re-signing the zone", self.zone.apex));
                None
            }
        });
        // The stored version may include an update that has failed.
        (self.unsigned, self.is_outdated, self.changes) = (None, true, Vec::new());
        self.restored = Restored::All;
        Ok(())
    }

    /// Reads the records from their files if that was asked for, or from the files before if others are derived.
    async fn read_if_needed(&mut self, reread: Option<&Reread>) {
        let derivation = self.context.derivations.borrow().get(&self.zone.apex).cloned().unwrap_or_default();
        let kept = match (&self.unsigned, reread) {
            (Some(unsigned), None) if unsigned.derivation == derivation => return,
            (None, None) if self.reading.is_paused() => return,
            (_, None) => self.files.clone(),
            (_, Some(_)) => None,
        };
        if self.source.origin == ZoneOrigin::Primaries && !self.source.file.exists() {
            self.file_problem = None;
            return self.withdraw(reread).await;
        }
        let is_kept = kept.is_some();
        let context = Rc::clone(&self.context);
        let _permit = context.signings.acquire().await;
        let (source, limits) = (self.source.clone(), self.context.config.limits.clone());
        let later_file = match (&self.unsigned, &kept) {
            _ if reread.is_some_and(|reread| reread.is_forced) => LaterUpdates::Dropped,
            (Some(_), None) => LaterUpdates::FileRefused,
            // This needs records that are in service, or the records of the version in service.
            (None, _) | (_, Some(_)) => LaterUpdates::Held,
        };
        let read = {
            let derivation = Arc::clone(&derivation);
            let state = Arc::clone(&self.context.state);
            let has_updates = self.context.config.zone_updates.iter().any(|(apex, _)| *apex == self.zone.apex);
            let updates = has_updates.then(|| state.path().join(update_file(&self.zone.apex)));
            ZONES.run(move || read_records(&source, &derivation, &limits, kept, updates, later_file, &state)).await
        };
        match read {
            Ok(read) => {
                report(&read.warnings);
                if let Some(reread) = reread {
                    let of_updates = read.dropped.iter().map(|diagnostic| format!("{diagnostic}\n"));
                    of_updates.for_each(|text| reread.print(&text));
                }
                // The zone is signed nevertheless.
                if let Some(held) = &read.held {
                    report(std::slice::from_ref(held));
                    reread.into_iter().for_each(|reread| reread.fail(&held.to_string()));
                }
                let before = self.unsigned.as_ref().and_then(|unsigned| unsigned.records.as_ref());
                self.is_outdated |= !before.is_some_and(|before| before.iter().eq(read.records.iter()));
                let ReadRecords { records, updates, files, alias_targets, held, .. } = read;
                self.context.alias_names.set(&self.zone.apex, &alias_targets, true);
                self.unsigned = Some(Unsigned { records: Some(Arc::new(records)), updates, derivation });
                self.files = files;
                self.reading.on_success();
                // Files that were read before do not mend those that cannot be read now.
                if !is_kept || held.is_some() {
                    self.file_problem = held.map(|held| held.to_string());
                }
            }
            Err(ReadFailure { diagnostics, is_of_state }) => {
                let problem = diagnostics.iter().find(|one| one.is_error()).map(ToString::to_string);
                // Without records, the file is read again from time to time, and the reason for a failure is logged
                // once.
                if reread.is_some() || self.file_problem != problem {
                    report(&diagnostics);
                }
                if let Some(reread) = reread {
                    diagnostics.iter().for_each(|diagnostic| reread.fail(&diagnostic.to_string()));
                }
                self.file_problem = problem;
                // The operator has asked to read it again.
                if is_of_state || self.source.origin == ZoneOrigin::Primaries {
                    (self.unsigned, self.files) = (None, None);
                }
                if self.unsigned.is_none() {
                    self.reading.on_failure();
                }
            }
        }
    }

    /// Removes the signed version: nothing was transferred yet, or the transferred version has expired.
    async fn withdraw(&mut self, reread: Option<&Reread>) {
        (self.unsigned, self.files) = (None, None);
        self.reading.on_success();
        if self.signed.is_none() {
            return;
        }
        self.end_writing().await;
        let (state, files) = (Arc::clone(&self.context.state), self.files());
        match DISK.run(move || files.remove(&state)).await {
            Ok(()) => {
                (self.signed, self.is_handed_over) = (None, false);
                if let Some(reread) = reread {
                    let apex = &self.zone.apex;
                    reread.fail(&format!(
                        "sanderling: zone {apex}: no longer served, because its stored version was removed or has \
                            expired; queries get SERVFAIL until it is transferred"
                    ));
                }
            }
            Err(error) => {
                self.restored = Restored::Keys;
                self.fail("it cannot be taken out of service", error.to_string(), reread);
            }
        }
    }

    /// Whether there is a zone that is or was signed. A zone that should be unsigned and was never signed is left
    /// alone.
    fn is_idle(&self) -> bool {
        self.zone.is_leaving
            && self.source.origin == ZoneOrigin::Operator
            && self.keys.keys().is_empty()
            && self.signed.is_none()
    }

    /// Makes the needed keys and the next signed version, if they are due.
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
            // The wait for servers is known when the version has a serial.
            self.keys.advance(&Observations::default()).await?;
        }
        if self.signed.is_some() { self.keys.erase_unneeded().await } else { Ok(()) }
    }

    fn is_due(&self) -> bool {
        let now = unix_s();
        let Some(signed) = &self.signed else { return true };
        // If the clock was ahead, its signatures are not valid yet.
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
        let signed = ZONES.run(sign).await?;
        self.store(signed).await
    }

    /// The file's records, or the signed version's records if the file could not be read since startup: the signatures
    /// must not expire.
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

    /// Whether the server process answers with a later serial than the stored version has, and so refuses that version.
    /// Another serial policy has given it such a serial.
    fn is_behind(&self) -> bool {
        let counts = self.zone.signing.serial != SignedSerial::Keep;
        let serials = self.signed.as_ref().zip(self.shared.served.get());
        counts && serials.is_some_and(|(signed, served)| is_later(served, signed.stored.serial))
    }

    /// The previous version, with the serial from which the next one counts. Before the first signed version, the
    /// server process may have answered with the file's serial: the first signed version has a later serial. If the
    /// previous version no longer exists, its serial still does.
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
                let stored = DISK.run(write).await.inspect_err(|_| self.restored = Restored::Keys)?;
                let from = before.map_or(String::new(), |before| format!("{before} -> "));
                log(&format!(
                    "zone {}: serial {from}{serial} signed, {made_count} new signatures, {kept_count} kept",
                    self.zone.apex
                ));
                self.changes.clear();
                self.hand_over_again();
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
                    self.restored = Restored::Keys;
                    self.fail("the log of its changes cannot be truncated", error, None);
                }
            }
            Writing::Done(Err(error)) => {
                log_error(&format!("zone {}: cannot write the whole signed version: {error}", self.zone.apex));
                *self.writing.borrow_mut() = Writing::Failed(tokio::time::Instant::now());
            }
            Writing::Failed(at) if at.elapsed() < WRITING_INTERVAL => *self.writing.borrow_mut() = Writing::Failed(at),
            Writing::None | Writing::Failed(_) if signed.stored.has_long_log() => {
                let (version, log_bytes) = (signed.stored.version.clone(), signed.stored.log_bytes());
                let (state, files) = (Arc::clone(&self.context.state), SignedFiles::new(&self.zone, self.apex));
                let (writing, shared) = (Rc::clone(&self.writing), Rc::clone(&self.shared));
                *writing.borrow_mut() = Writing::InProgress;
                tokio::task::spawn_local(async move {
                    let write = move || files.write_again(&state, &version, log_bytes);
                    let result = DISK.run(write).await;
                    *writing.borrow_mut() = Writing::Done(result);
                    shared.wake.notify_one();
                });
            }
            Writing::None | Writing::Failed(_) => {}
        }
    }

    /// Waits until no version is written in the background.
    async fn end_writing(&mut self) {
        while matches!(*self.writing.borrow(), Writing::InProgress) {
            self.shared.wake.notified().await;
        }
        *self.writing.borrow_mut() = Writing::None;
        // The event that woke the task is still pending.
        self.shared.wake.notify_one();
    }

    /// Makes the server process load the signed version, unless it answers from it. A waiting client gets the result
    /// for the zone.
    async fn hand_over_if_needed(&mut self, reread: Option<&Reread>) {
        let serial = self.signed.as_ref().map(|signed| signed.stored.serial);
        // Before the first signed version, the server process may answer from the operator's file.
        if serial.is_none() && self.source.origin == ZoneOrigin::Operator {
            self.handing_over.on_success();
            return self.reload_unsigned(reread).await;
        }
        if self.is_handed_over && self.shared.served.get() == serial {
            return self.tell_unchanged(reread);
        }
        if self.handing_over.is_paused() && reread.is_none() {
            return;
        }
        let context = Rc::clone(&self.context);
        let _permit = context.hand_overs.acquire().await;
        // Without signatures, a version has far fewer records.
        let is_unsigned = self.zone.is_leaving && self.keys.in_use().keys.is_empty();
        let is_forced = self.is_forced || is_unsigned;
        let changes = std::mem::take(&mut self.changes);
        match context.link.zone_stored(self.zone.apex.as_str(), is_forced, &changes).await {
            // Without a version, the zone is correctly out of service.
            Err(error) if serial.is_some() => self.on_refused(&error, reread),
            result => {
                (self.is_handed_over, self.is_forced, self.refusal) = (true, false, None);
                self.handing_over.on_success();
                // The server process's report comes on another path, and may be late.
                self.shared.served.set(serial);
                if let (Some(reread), Ok(text)) = (reread, result) {
                    reread.print(&text);
                }
            }
        }
    }

    /// Makes the server process load the operator's file if a command names the zone, and it is not signed yet or no
    /// longer signed.
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

    /// There is a newer version.
    fn hand_over_again(&mut self) {
        (self.is_handed_over, self.refusal) = (false, None);
        self.handing_over.on_success();
    }

    fn on_refused(&mut self, error: &str, reread: Option<&Reread>) {
        let problem = format!("the server process does not load the signed version: {error}");
        let message = format!("zone {}: {problem}", self.zone.apex);
        if self.refusal.as_ref() != Some(&problem) {
            log_error(&message);
        }
        if let Some(reread) = reread {
            reread.fail(&format!("sanderling: {message}"));
        }
        self.refusal = Some(problem);
        self.handing_over.on_failure();
    }

    fn report(&self) {
        let are_keys_known = self.restored != Restored::Nothing;
        self.shared.keys.replace(are_keys_known.then(|| self.keys.keys().clone()));
        self.shared.unknown.replace(self.observer.problems());
        let signed = self.signed.as_ref();
        let others = signed.filter(|_| !self.zone.signing.other_signers.is_empty()).map(|signed| {
            let apex = self.apex.as_name();
            status_of_others(self.keys.keys(), apex, signed.stored.version.rdatas(apex, Rtype::DNSKEY))
        });
        self.shared.others.replace(others.unwrap_or_default());
        let report = SigningReport {
            serial: signed.map(|signed| signed.stored.serial),
            sign_again_at_unix_s: signed.and_then(|signed| signed.sign_again_at_unix_s),
            problem: [&self.file_problem, &self.problem, self.key_checks.problem()]
                .into_iter()
                .find_map(Clone::clone)
                .or_else(|| self.refusal.clone()),
            updates: self.unsigned.as_ref().and_then(|unsigned| unsigned.updates.as_ref()).map(|updates| {
                let UpdateState { added, removed, is_none, .. } = updates.state();
                UpdatesReport { added, removed, is_none }
            }),
        };
        if self.shared.report.replace(report.clone()) != report {
            self.context.changed.notify_one();
        }
        if self.restored == Restored::All {
            self.shared.is_restored.set(true);
        }
    }
}

/// `records` with a SOA serial computed by `serial`; the SOA loses its signature.
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
