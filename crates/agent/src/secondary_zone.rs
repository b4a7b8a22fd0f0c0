//! A zone that is transferred from primary servers: asks them for a later version by the timers of its SOA (RFC 1034
//! §4.3.5), or as soon as they send NOTIFY, stores the transferred version, makes the server process load it, and
//! removes it when it has expired.
//!
//! Each zone has a task, which is one loop: it compares the actual with the desired state, and waits. The state that it
//! needs after a restart is in the state folder: the zone file, which exists as long as the zone can be served, and the
//! record next to it.

use crate::blocking::DISK;
use crate::clock::{random_between, unix_s};
use crate::dns_exchange::{ExchangeError, exchange};
use crate::link::Link;
use crate::served_zones::ServedMap;
use crate::signed_zone::SourceChanged;
use crate::tsig_keys::TsigSecrets;
use crate::zone_transfer::{
    Failure, LARGE_FILE_BYTES, StoredVersion, TransferSource, TransferredZone, Workspace, read_log,
};
use sanderling_config::log::{log, log_error, log_warning};
use sanderling_config::repeated_messages::{LimitedLog, VersionChange, VersionLog};
use sanderling_config::{DomainName, Primary, SecondaryZone, changes_file, stored_zone_file};
use sanderling_dns::change_log::HEAD;
use sanderling_dns::client::{QueryKind, SoaTimers};
use sanderling_dns::is_later;
use sanderling_ipc::agent::{TransferReport, ZoneNotify};
use sanderling_state::{StateError, StateFolder, UnfinishedFile};
use sanderling_zone_files::{first_serial, wire_name};
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::task::AbortHandle;

/// Failed work is retried after a pause, during which the system clock may be set.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Bounds of the timers of a SOA: a primary must be neither flooded nor forgotten.
const TIMER_S_MIN: u64 = 2;
const TIMER_S_MAX: u64 = 4 * 7 * 24 * 3600;
/// Maximum seconds until a version that could not be stored is transferred again.
const STATE_RETRY_S: u64 = 5;
/// Seconds until the primaries of a zone that was never transferred are asked again; the delay doubles up to the
/// maximum.
const FIRST_RETRY_S: u64 = 5;
const FIRST_RETRY_S_MAX: u64 = 900;
/// Time between two rounds of questions, however often a primary sends NOTIFY.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// Timeouts for a reply over UDP, before TCP is tried.
const UDP_TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
/// Bytes of a zone file that have the SOA, which is first.
const SOA_BYTES_MAX: u64 = 4096;
/// Time until the server process is asked again to load a version.
const HAND_OVER_INTERVAL: Duration = Duration::from_secs(5);

/// The state that all zones share.
pub(crate) struct SecondaryContext {
    pub(crate) state: Arc<StateFolder>,
    pub(crate) link: Rc<Link>,
    pub(crate) keys: Rc<RefCell<TsigSecrets>>,
    pub(crate) workspace: Workspace,
    /// Concurrent questions.
    pub(crate) questions: Semaphore,
    /// Concurrent transfers.
    pub(crate) transfers: Semaphore,
    /// Concurrent loads by the server process.
    pub(crate) hand_overs: Rc<Semaphore>,
    /// Notified when a report has changed.
    pub(crate) changed: Rc<Notify>,
}

/// The version from which the server process answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// The server process has not reported yet.
    Unknown,
    /// A version, or SERVFAIL.
    Known(Option<u32>),
}

/// A primary has, or may have, a version other than the stored version.
#[derive(Clone, Copy, Debug)]
struct Announced {
    from: IpAddr,
    /// The serial of that version, if known.
    serial: Option<u32>,
}

impl Announced {
    /// Whether the version `stored` leaves nothing to ask for.
    fn is_stored(&self, stored: Option<u32>) -> bool {
        self.serial.is_some() && self.serial == stored
    }
}

/// A zone with its task, which ends when this is dropped.
pub(crate) struct SecondaryHandle {
    shared: Rc<Shared>,
    task: AbortHandle,
}

/// The messages between the task and the rest of the agent.
struct Shared {
    wake: Notify,
    served: Cell<Served>,
    /// The primary to query immediately.
    announced: Cell<Option<Announced>>,
    /// The reason why a catalog's stored version is not used.
    catalog_problem: RefCell<Option<String>>,
    /// Held by the task while it writes files, even if it was aborted in the meantime.
    writing: Arc<Mutex<()>>,
    /// Notified when another version of a catalog is stored.
    watched_by: Option<Rc<ServedMap>>,
    report: RefCell<TransferReport>,
}

impl Shared {
    fn new(watched_by: Option<Rc<ServedMap>>) -> Shared {
        Shared {
            wake: Notify::new(),
            served: Cell::new(Served::Unknown),
            announced: Cell::new(None),
            catalog_problem: RefCell::default(),
            writing: Arc::default(),
            watched_by,
            report: RefCell::default(),
        }
    }
}

impl Drop for SecondaryHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SecondaryHandle {
    /// Starts the task of `zone`. If the zone is signed, its `signer` gets each version instead of the server process;
    /// for a catalog, `watched_by` is notified. Call this in a [`tokio::task::LocalSet`].
    pub(crate) fn start(
        zone: &SecondaryZone,
        signer: Option<SourceChanged>,
        context: Rc<SecondaryContext>,
        watched_by: Option<Rc<ServedMap>>,
    ) -> SecondaryHandle {
        let shared = Rc::new(Shared::new(watched_by));
        let zone_task = ZoneTask::new(zone, signer, context, Rc::clone(&shared));
        let task = tokio::task::spawn_local(zone_task.run()).abort_handle();
        SecondaryHandle { shared, task }
    }

    /// The server process answers from this version.
    pub(crate) fn on_served(&self, serial: Option<u32>) {
        self.shared.served.set(Served::Known(serial));
        self.shared.wake.notify_one();
    }

    /// A primary announces another version: it is queried immediately, unless that version is already stored.
    pub(crate) fn on_notified(&self, notify: &ZoneNotify) {
        let announced = Announced { from: notify.from, serial: notify.serial };
        if !announced.is_stored(self.shared.report.borrow().serial) {
            self.shared.announced.set(Some(announced));
            self.shared.wake.notify_one();
        }
    }

    pub(crate) fn report(&self) -> TransferReport {
        self.shared.report.borrow().clone()
    }

    /// Reports why a catalog's stored version is not used.
    pub(crate) fn set_catalog_problem(&self, problem: Option<&str>) {
        let before = self.shared.catalog_problem.replace(problem.map(str::to_owned));
        if before.as_deref() != problem {
            self.shared.wake.notify_one();
        }
    }

    /// Ends the task. Returns when no file is being written.
    pub(crate) async fn stop(self) {
        self.task.abort();
        let writing = Arc::clone(&self.shared.writing);
        drop(writing.lock().await);
    }
}

/// The metadata of the stored version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: Option<Version>,
    /// The records outside the zone in the last transfer of the whole zone, or in a later transfer of changes.
    #[serde(default)]
    left_out: Option<String>,
    /// Rounds without success since the last one. After a restart the primaries are queried immediately.
    #[serde(skip)]
    failure_count: u32,
    /// The end of the last round.
    #[serde(skip)]
    failed_at_unix_s: Option<u64>,
    /// Whether it ended because the transferred version could not be stored.
    #[serde(skip)]
    is_failure_of_state: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Version {
    serial: u32,
    refresh_s: u32,
    retry_s: u32,
    expire_s: u32,
    from: SocketAddr,
    transferred_at_unix_s: u64,
    checked_at_unix_s: u64,
}

impl Version {
    fn new(soa: SoaTimers, from: SocketAddr, now_unix_s: u64) -> Version {
        let SoaTimers { serial, refresh_s, retry_s, expire_s } = soa;
        let (transferred_at_unix_s, checked_at_unix_s) = (now_unix_s, now_unix_s);
        Version { serial, refresh_s, retry_s, expire_s, from, transferred_at_unix_s, checked_at_unix_s }
    }

    /// The time from which the zone must not be served.
    fn expires_at_unix_s(&self) -> u64 {
        self.checked_at_unix_s.saturating_add(bounded(self.expire_s))
    }
}

/// Seconds of a timer, within the bounds.
fn bounded(timer_s: u32) -> u64 {
    u64::from(timer_s).clamp(TIMER_S_MIN, TIMER_S_MAX)
}

impl Record {
    /// The time when the primaries are asked again.
    fn next_at_unix_s(&self) -> u64 {
        match (&self.version, self.failed_at_unix_s) {
            (Some(version), Some(failed_at)) if self.is_failure_of_state => {
                failed_at.saturating_add(bounded(version.retry_s).min(STATE_RETRY_S))
            }
            (Some(version), Some(failed_at)) => failed_at.saturating_add(bounded(version.retry_s)),
            (Some(version), None) => version.checked_at_unix_s.saturating_add(bounded(version.refresh_s)),
            (None, Some(failed_at)) => {
                let doubled = FIRST_RETRY_S << self.failure_count.saturating_sub(1).min(16);
                failed_at.saturating_add(doubled.min(FIRST_RETRY_S_MAX))
            }
            (None, None) => 0,
        }
    }

    /// This record without times in the future, in case the clock was set back.
    fn not_after(mut self, now_unix_s: u64) -> Record {
        if let Some(version) = &mut self.version {
            version.checked_at_unix_s = version.checked_at_unix_s.min(now_unix_s);
        }
        self.failed_at_unix_s = self.failed_at_unix_s.map(|at| at.min(now_unix_s));
        self
    }
}

/// The file next to a zone file with the start times of the timers.
fn record_file(zone_file: &Path) -> String {
    zone_file.with_extension("json").display().to_string()
}

/// Removes the stored state of the zone `apex`, except its journal.
pub(crate) fn remove_state(state: &StateFolder, apex: &DomainName) -> Result<(), StateError> {
    let zone_file = stored_zone_file(apex);
    state.remove(&zone_file.display().to_string())?;
    state.remove(&changes_file(&zone_file).display().to_string())?;
    state.remove(&record_file(&zone_file))
}

/// The outcome of a query to a primary.
enum Round {
    /// A primary has confirmed the stored version.
    Confirmed,
    Transferred(TransferredZone),
}

/// The write to a zone file.
enum ZoneChange {
    None,
    Replaced(UnfinishedFile),
    /// These changes are appended to the log next to it, which has this many bytes; 0 if there is none.
    Appended(Vec<u8>, u64),
    Removed,
}

/// The server process was asked to load the stored version.
struct HandOver {
    at: tokio::time::Instant,
    /// The stored version; `None` if there was none.
    serial: Option<u32>,
}

impl HandOver {
    /// Whether the server process must be asked again, because another version is stored or it has not loaded this one
    /// for a long time.
    fn is_to_be_repeated(&self, stored: Option<u32>) -> bool {
        self.serial != stored || self.at.elapsed() >= HAND_OVER_INTERVAL
    }
}

struct ZoneTask {
    zone: SecondaryZone,
    signer: Option<SourceChanged>,
    /// The version that the signer was notified of.
    told: Option<u32>,
    context: Rc<SecondaryContext>,
    shared: Rc<Shared>,
    record: Record,
    /// The changes from the previous version to the stored one, as in a log; empty if unknown.
    changes: Vec<u8>,
    /// Bytes of the log with the changes since the version in the zone file, 0 if there is none; `None` if no changes
    /// can be appended.
    log_bytes: Option<u64>,
    /// The server process has not accepted the version made by changes, so the whole zone is transferred.
    needs_whole: bool,
    /// Seconds by which the next query is early, so that many zones are not queried at the same time.
    earlier_s: u64,
    /// The first primary to ask: the last that was of use.
    primary_index: usize,
    handed_over: Option<HandOver>,
    /// The reason why the last round failed.
    problem: Option<String>,
    /// The reason why the server process does not answer from the stored version.
    load_problem: Option<String>,
    round_at: Option<tokio::time::Instant>,
    version_log: VersionLog,
    /// Errors of the state folder.
    failures: LimitedLog,
}

impl ZoneTask {
    fn new(
        zone: &SecondaryZone,
        signer: Option<SourceChanged>,
        context: Rc<SecondaryContext>,
        shared: Rc<Shared>,
    ) -> ZoneTask {
        let mut task = ZoneTask {
            zone: zone.clone(),
            signer,
            told: None,
            context,
            shared,
            record: Record::default(),
            changes: Vec::new(),
            log_bytes: None,
            needs_whole: false,
            earlier_s: 0,
            primary_index: 0,
            handed_over: None,
            problem: None,
            load_problem: None,
            round_at: None,
            version_log: VersionLog::default(),
            failures: LimitedLog::default(),
        };
        match task.context.state.read(&task.record_file()) {
            Ok(Some(text)) => match serde_json::from_slice(&text) {
                Ok(record) => task.record = record,
                Err(error) => log_error(&format!(
                    "zone {}: {} is damaged: {error}; transferring the zone as if it were new",
                    zone.apex,
                    task.record_file()
                )),
            },
            Ok(None) => {}
            Err(error) => task.problem = Some(error.to_string()),
        }
        task.log_bytes = task.stored_log_bytes();
        task
    }

    /// Whether changes of the zone are appended to a log. Others read the file of a catalog and of a signed zone.
    fn has_log(&self) -> bool {
        self.signer.is_none() && self.shared.watched_by.is_none()
    }

    /// Bytes of the log that leads to the stored version; `None` if no changes can be appended.
    fn stored_log_bytes(&self) -> Option<u64> {
        let (version, file) = (self.record.version.as_ref()?, self.context.state.path().join(self.zone.file()));
        if !self.has_log() || std::fs::metadata(&file).ok()?.len() < LARGE_FILE_BYTES {
            return None;
        }
        let mut start = Vec::new();
        File::open(&file).ok()?.take(SOA_BYTES_MAX).read_to_end(&mut start).ok()?;
        let apex = wire_name(&self.zone.apex);
        let (log, serial) = read_log(&file, apex, first_serial(&start, apex.as_name())?).ok()?;
        let has_changes = log.len() > HEAD.len();
        (serial == version.serial).then_some(if has_changes { log.len() as u64 } else { 0 })
    }

    async fn run(mut self) {
        loop {
            self.record = self.record.not_after(unix_s());
            if self.record.version.is_some() && !self.context.state.has(&self.zone_file()) {
                // The file is missing after a crash between the removal of an expired zone and of its record, or
                // because the operator removed it.
                self.record = Record::default();
            }
            self.expire_if_due().await;
            self.hand_over_if_needed().await;
            let stored = self.record.version.map(|version| version.serial);
            // A NOTIFY of the version that was being transferred when it arrived is settled.
            self.shared.announced.set(self.shared.announced.get().filter(|announced| !announced.is_stored(stored)));
            let is_due = self.next_at_unix_s() <= unix_s() || self.shared.announced.get().is_some();
            let round_wait = self.round_at.map_or(Duration::ZERO, |at| ROUND_INTERVAL.saturating_sub(at.elapsed()));
            if is_due && round_wait.is_zero() {
                if let Some(Announced { from, .. }) = self.shared.announced.take() {
                    let index = self.zone.primaries.iter().position(|primary| primary.address.ip() == from);
                    self.primary_index = index.unwrap_or(self.primary_index);
                }
                self.ask_primaries().await;
                self.round_at = Some(tokio::time::Instant::now());
                continue;
            }
            self.report();
            self.version_log.take_due(Instant::now()).iter().for_each(|line| log(line));
            let wait = if is_due { round_wait } else { self.wait_time() };
            tokio::select! {
                () = self.shared.wake.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Time until the next query, the expiry, or the next request to the server process.
    fn wait_time(&self) -> Duration {
        let expires_at = self.record.version.map_or(u64::MAX, |version| version.expires_at_unix_s());
        let wait = Duration::from_secs(self.next_at_unix_s().min(expires_at).saturating_sub(unix_s()));
        let line_wait = self.version_log.due_at().map(|at| at.saturating_duration_since(Instant::now()));
        let wait = wait.clamp(WAIT_MIN, WAIT_MAX).min(line_wait.unwrap_or(WAIT_MAX));
        match &self.handed_over {
            Some(HandOver { at, .. }) => {
                wait.min((*at + HAND_OVER_INTERVAL).saturating_duration_since(tokio::time::Instant::now()))
            }
            None => wait,
        }
    }

    fn next_at_unix_s(&self) -> u64 {
        self.record.next_at_unix_s().saturating_sub(self.earlier_s)
    }

    /// Removes a version that no primary has confirmed for too long (RFC 1034 §4.3.5).
    async fn expire_if_due(&mut self) {
        let Some(version) = self.record.version.filter(|version| version.expires_at_unix_s() <= unix_s()) else {
            return;
        };
        log_error(&format!("zone {}: serial {} has expired; answering SERVFAIL", self.zone.apex, version.serial));
        let record = Record { version: None, ..self.record.clone() };
        match self.store(ZoneChange::Removed, &record).await {
            Ok(()) => self.record = record,
            Err(error) => self.fail(&error),
        }
    }

    /// Makes the server process load the stored version, unless it already answers from it, or makes the signer sign
    /// it.
    async fn hand_over_if_needed(&mut self) {
        let stored = self.record.version.map(|version| version.serial);
        if let Some(signer) = &self.signer {
            if self.told != stored {
                self.told = stored;
                signer.tell();
            }
            return;
        }
        match self.shared.served.get() {
            Served::Unknown => return,
            Served::Known(served) if served == stored => {
                (self.handed_over, self.load_problem) = (None, None);
                // A server process that starts later reads them from the log.
                self.changes = Vec::new();
                return;
            }
            Served::Known(_) => {}
        }
        if self.handed_over.as_ref().is_some_and(|last| !last.is_to_be_repeated(stored)) {
            return;
        }
        let _permit = self.context.hand_overs.acquire().await;
        let result = self.context.link.zone_stored(self.zone.apex.as_str(), false, &self.changes).await;
        self.handed_over = Some(HandOver { at: tokio::time::Instant::now(), serial: stored });
        // Without a version, the zone is correctly out of service.
        let error = result.err().filter(|_| stored.is_some());
        self.load_problem = error.map(|error| format!("the server process cannot load it: {error}"));
        if let (Some(problem), Some(1..), false) = (&self.load_problem, self.log_bytes, self.needs_whole) {
            log_warning(&format!("zone {}: {problem}; transferring the whole zone", self.zone.apex));
            self.needs_whole = true;
            let from = self.zone.primaries[self.primary_index].address.ip();
            self.shared.announced.set(Some(Announced { from, serial: None }));
        }
    }

    /// Asks the primaries in turn, until one has confirmed the version or sent a later version.
    async fn ask_primaries(&mut self) {
        let count = self.zone.primaries.len();
        let mut problems = Vec::new();
        for offset in 0..count {
            let index = (self.primary_index + offset) % count;
            let primary = self.zone.primaries[index].clone();
            match self.ask(&primary).await {
                Ok(round) => {
                    self.primary_index = index;
                    return self.on_success(round, primary.address).await;
                }
                Err(problem) => problems.push(format!("{}: {problem}", primary.address)),
            }
        }
        self.record.failure_count = self.record.failure_count.saturating_add(1);
        self.record.failed_at_unix_s = Some(unix_s());
        self.record.is_failure_of_state = false;
        self.earlier_s = 0;
        let problem = problems.join("; ");
        if self.problem.as_ref() != Some(&problem) {
            log_error(&format!("zone {}: no primary provides it: {problem}", self.zone.apex));
        }
        self.problem = Some(problem);
    }

    /// Asks `primary` whether it has a later version, and transfers it.
    async fn ask(&self, primary: &Primary) -> Result<Round, String> {
        let key = self.context.keys.borrow().find(primary.key.as_ref())?;
        let source = TransferSource { server: primary.address, apex: wire_name(&self.zone.apex), key };
        let mut announced = None;
        if let Some(version) = self.record.version.filter(|_| !self.needs_whole) {
            let soa = self.soa(&source).await.map_err(|failure| failure.with_remedy())?;
            if soa.serial == version.serial {
                return Ok(Round::Confirmed);
            }
            self.check_serial(soa.serial)?;
            announced = Some(soa.serial);
        }
        let _permit = self.context.transfers.acquire().await;
        // A transfer that begins now gives the version of each NOTIFY that has arrived while it waited.
        let waited_for = self.shared.announced.take();
        let result = self.transfer(&source).await;
        if result.is_err() && self.shared.announced.get().is_none() {
            self.shared.announced.set(waited_for);
        }
        let zone = result.map_err(|failure| failure.with_remedy())?;
        let zone = zone.ok_or("it announced a later serial, but did not transfer it")?;
        self.check_serial(zone.soa.serial)?;
        match announced {
            Some(announced) if is_later(announced, zone.soa.serial) => {
                Err(format!("it announced serial {announced} but transferred serial {}", zone.soa.serial))
            }
            _ => Ok(Round::Transferred(zone)),
        }
    }

    /// Transfers the changes since the stored version or, if there is none or that fails, the whole zone.
    async fn transfer(&self, source: &TransferSource) -> Result<Option<TransferredZone>, Failure> {
        let workspace = &self.context.workspace;
        let file = self.context.state.path().join(self.zone.file());
        if let Some(version) = self.record.version.filter(|_| !self.needs_whole) {
            let stored = StoredVersion { serial: version.serial, file, log_bytes: self.log_bytes };
            match source.transfer(workspace, Some(stored)).await {
                Err(failure) if failure.is_of_changes() => log_warning(&format!(
                    "zone {}: {}: cannot transfer the changes since serial {}: {failure}; transferring the whole zone",
                    self.zone.apex, source.server, version.serial
                )),
                result => return result,
            }
        }
        source.transfer(workspace, None).await
    }

    /// # Errors
    /// Returns an error if `serial` is not later than the stored version's serial.
    fn check_serial(&self, serial: u32) -> Result<(), String> {
        match self.record.version {
            Some(version) if self.needs_whole && serial == version.serial => Ok(()),
            Some(version) if !is_later(serial, version.serial) => Err(format!(
                "it has serial {serial}, which is before {} (RFC 1982); raise it there, or remove {} from the state \
                 folder and run `sanderling reload {}`",
                version.serial,
                self.zone_file(),
                self.zone.apex
            )),
            _ => Ok(()),
        }
    }

    /// The SOA over UDP, or over TCP if the server does not answer, refuses, or the reply does not fit. Knot answers
    /// for catalogs only over TCP.
    async fn soa(&self, source: &TransferSource) -> Result<SoaTimers, Failure> {
        let _permit = self.context.questions.acquire().await;
        let apex = source.apex.as_name();
        for time_max in UDP_TIMEOUTS {
            let read = |reply: &sanderling_dns::client::Reply<'_>| reply.soa(apex);
            match exchange(source.server, (QueryKind::Soa, apex), source.key.as_ref(), time_max, read).await {
                Ok(soa) => return Ok(soa),
                Err(ExchangeError::Network(_) | ExchangeError::Reply(_)) => break,
                Err(ExchangeError::NoAnswer) => {}
            }
        }
        source.soa().await
    }

    async fn on_success(&mut self, round: Round, from: SocketAddr) {
        let now_unix_s = unix_s();
        let (mut by, mut new_changes) = ("", None);
        let mut left_out = self.record.left_out.clone();
        let (version, change) = match (round, self.record.version) {
            (Round::Transferred(TransferredZone { soa, changes, file, left_out: of_transfer }), _) => {
                // Changes do not tell whether the ignored records still exist.
                if of_transfer.count > 0 || changes.is_empty() {
                    left_out = (of_transfer.count > 0).then(|| of_transfer.to_string());
                }
                by = if changes.is_empty() { "" } else { ", its changes" };
                let change = match file {
                    Some(file) => ZoneChange::Replaced(file),
                    None => ZoneChange::Appended(changes.clone(), self.log_bytes.unwrap_or(0)),
                };
                new_changes = Some(changes);
                (Some(Version::new(soa, from, now_unix_s)), change)
            }
            (Round::Confirmed, Some(version)) => {
                (Some(Version { checked_at_unix_s: now_unix_s, ..version }), ZoneChange::None)
            }
            (Round::Confirmed, None) => (None, ZoneChange::None),
        };
        if let Some(left_out) = left_out.as_ref().filter(|_| self.record.left_out != left_out) {
            log_warning(&format!("zone {}: {from} sent {left_out}; ignored", self.zone.apex));
        }
        let record = Record { version, left_out, ..Record::default() };
        let log_bytes = match &change {
            ZoneChange::None => self.log_bytes,
            ZoneChange::Replaced(_) | ZoneChange::Removed => self.has_log().then_some(0),
            ZoneChange::Appended(changes, 0) => Some((HEAD.len() + changes.len()) as u64),
            ZoneChange::Appended(changes, log_bytes) => Some(log_bytes + changes.len() as u64),
        };
        if let Err(error) = self.store(change, &record).await {
            return self.fail(&error);
        }
        self.needs_whole &= log_bytes.is_some_and(|bytes| bytes > 0);
        self.log_bytes = log_bytes;
        let serials = [&self.record, &record].map(|record| record.version.map(|version| version.serial));
        match serials {
            [None, Some(new)] => log(&format!("zone {}: serial {new} transferred from {from}", self.zone.apex)),
            [Some(old), Some(new)] if old != new => {
                let line = format!("serial {old} -> {new} transferred from {from}{by}");
                let of_several = format!(" transferred, the last one from {from}");
                let change = VersionChange { from: old, to: new, line, of_several };
                let line = self.version_log.note(self.zone.apex.as_str(), change, Instant::now());
                line.iter().for_each(|line| log(line));
            }
            _ => {}
        }
        self.record = record;
        self.changes = new_changes.unwrap_or(std::mem::take(&mut self.changes));
        self.problem = None;
        let refresh_s = self.record.version.map_or(0, |version| bounded(version.refresh_s));
        self.earlier_s = random_between(0, refresh_s / 10);
    }

    /// Changes the zone file, and then the record. A crash in between leaves a zone file that is not served for too
    /// long.
    ///
    /// A disk takes some milliseconds for each file, and other zones should not wait.
    async fn store(&self, change: ZoneChange, record: &Record) -> Result<(), StateError> {
        let state = Arc::clone(&self.context.state);
        let (zone_file, record_file) = (self.zone_file(), self.record_file());
        let log_file = changes_file(&self.zone.file()).display().to_string();
        let record = serde_json::to_vec(record).expect("a record has no map");
        let writing = Arc::clone(&self.shared.writing).lock_owned().await;
        let write = move || {
            let _writing = writing;
            match change {
                ZoneChange::None => {}
                // Until the log is removed, it does not continue from the file, and is ignored.
                ZoneChange::Replaced(file) => {
                    state.finish_file(file, &zone_file)?;
                    state.remove(&log_file)?;
                }
                ZoneChange::Appended(changes, 0) => state.write(&log_file, &[&HEAD[..], &changes].concat())?,
                ZoneChange::Appended(changes, log_bytes) => state.append(&log_file, log_bytes, &changes)?,
                ZoneChange::Removed => {
                    state.remove(&zone_file)?;
                    state.remove(&log_file)?;
                }
            }
            state.write(&record_file, &record)
        };
        DISK.run(write).await
    }

    /// The state folder cannot be written: retried soon, or as if the primaries did not answer.
    fn fail(&mut self, error: &StateError) {
        self.failures.error(self.zone.apex.as_str(), &format!("zone {}: {error}", self.zone.apex));
        self.record.failure_count = self.record.failure_count.saturating_add(1);
        self.record.failed_at_unix_s = Some(unix_s());
        self.record.is_failure_of_state = true;
        self.problem = Some(error.to_string());
    }

    fn zone_file(&self) -> String {
        self.zone.file().display().to_string()
    }

    fn record_file(&self) -> String {
        record_file(&self.zone.file())
    }

    fn report(&self) {
        let version = self.record.version;
        let report = TransferReport {
            serial: version.map(|version| version.serial),
            from: version.map(|version| version.from),
            transferred_at_unix_s: version.map(|version| version.transferred_at_unix_s),
            checked_at_unix_s: version.map(|version| version.checked_at_unix_s),
            expires_at_unix_s: version.map(|version| version.expires_at_unix_s()),
            next_at_unix_s: self.next_at_unix_s(),
            failure_count: self.record.failure_count,
            left_out: self.record.left_out.clone().filter(|_| version.is_some()),
            problem: self
                .load_problem
                .clone()
                .or_else(|| self.problem.clone())
                .or_else(|| self.shared.catalog_problem.borrow().clone()),
        };
        if self.shared.report.replace(report.clone()) != report {
            self.context.changed.notify_one();
            if let Some(watcher) = &self.shared.watched_by {
                watcher.notify();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use sanderling_config::Limits;
    use sanderling_config::diagnostic::Location;
    use sanderling_ipc::Connection;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn version(refresh_s: u32, retry_s: u32, expire_s: u32) -> Version {
        let soa = SoaTimers { serial: 7, refresh_s, retry_s, expire_s };
        Version::new(soa, "192.0.2.7:53".parse().expect("an address"), 1_000)
    }

    #[test]
    fn primaries_are_asked_by_the_timers_of_the_zone() {
        let record = |version, failure_count: u32| Record {
            version,
            left_out: None,
            failure_count,
            failed_at_unix_s: (failure_count > 0).then_some(2_000),
            is_failure_of_state: false,
        };
        let check = |version, failure_count, expected| {
            assert_eq!(record(version, failure_count).next_at_unix_s(), expected, "{version:?} {failure_count}");
        };
        check(Some(version(300, 60, 3_600)), 0, 1_300);
        check(Some(version(300, 60, 3_600)), 1, 2_060);
        check(Some(version(300, 60, 3_600)), 9, 2_060);
        // The transferred version could not be stored.
        let of_state = |retry_s| Record { is_failure_of_state: true, ..record(Some(version(300, retry_s, 3_600)), 1) };
        assert_eq!([60, 3].map(|retry_s| of_state(retry_s).next_at_unix_s()), [2_005, 2_003]);
        check(Some(version(0, 0, 0)), 0, 1_002);
        check(Some(version(0, 0, 0)), 1, 2_002);
        check(Some(version(u32::MAX, 60, 0)), 0, 1_000 + TIMER_S_MAX);
        // Before the first transfer.
        check(None, 0, 0);
        for (failure_count, expected) in [(1, 2_005), (2, 2_010), (3, 2_020), (20, 2_900), (u32::MAX, 2_900)] {
            check(None, failure_count, expected);
        }
        assert_eq!(version(300, 60, 3_600).expires_at_unix_s(), 4_600);
    }

    #[test]
    fn a_version_that_was_stored_since_is_handed_over_at_once() {
        // A zone that is transferred from scratch is withdrawn first.
        let withdrawn = HandOver { at: tokio::time::Instant::now(), serial: None };
        assert!(withdrawn.is_to_be_repeated(Some(1)) && !withdrawn.is_to_be_repeated(None));
        let at = withdrawn.at.checked_sub(HAND_OVER_INTERVAL).expect("the machine runs for longer");
        assert!(HandOver { at, serial: Some(1) }.is_to_be_repeated(Some(1)));
    }

    const PRIMARY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn announcement_of_the_stored_version_leaves_nothing_to_ask_for() {
        let check = |serial, stored, expected| {
            assert_eq!(Announced { from: PRIMARY, serial }.is_stored(stored), expected, "{serial:?} {stored:?}");
        };
        check(Some(7), Some(7), true);
        check(Some(8), Some(7), false);
        check(Some(7), None, false);
        // NOTIFY need not have a SOA (RFC 1996 section 3.11).
        check(None, Some(7), false);
        check(None, None, false);
    }

    /// A task of example.com that has no version yet.
    fn zone_task(folder: &Path, primary: &Primary) -> ZoneTask {
        let state = Arc::new(StateFolder::open(folder).expect("opened"));
        let (connection, _) = Connection::pair().expect("a pair");
        let context = SecondaryContext {
            workspace: Workspace::new(Arc::clone(&state), Limits::default()),
            state,
            link: Rc::new(Link::new(connection).expect("made")),
            keys: Rc::default(),
            questions: Semaphore::new(1),
            transfers: Semaphore::new(1),
            hand_overs: Rc::new(Semaphore::new(1)),
            changed: Rc::default(),
        };
        let zone = SecondaryZone {
            apex: DomainName::parse("example.com").expect("a name"),
            primaries: vec![primary.clone()],
            location: Location::Argument(String::new()).into(),
        };
        ZoneTask::new(&zone, None, Rc::new(context), Rc::new(Shared::new(None)))
    }

    /// Sends the zone with serial 7 to the first client, or nothing, after it has called `on_question`.
    async fn serve_transfer(listener: TcpListener, sends_zone: bool, on_question: impl Fn()) {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut query = vec![0; usize::from(stream.read_u16().await.expect("a length"))];
        stream.read_exact(&mut query).await.expect("a query");
        on_question();
        if !sends_zone {
            return;
        }
        const RESPONSE_AUTHORITATIVE: [u8; 2] = [0x84, 0];
        let soa = b"\xc0\x0c\0\x06\0\x01\0\0\0\x3c\0\x16\0\0\0\0\0\x07\0\0\0\x3c\0\0\0\x3c\0\0\0\x3c\0\0\0\x3c";
        let ns = b"\xc0\x0c\0\x02\0\x01\0\0\0\x3c\0\x09\x02ns\x04test\0";
        let head = [&query[..2], &RESPONSE_AUTHORITATIVE, b"\0\x01\0\x03\0\0\0\0"].concat();
        let message = [&head, &query[12..], soa, ns, soa].concat();
        stream.write_u16(message.len() as u16).await.expect("sent");
        stream.write_all(&message).await.expect("sent");
    }

    /// The serial to act on when a transfer has ended, if `before` was announced when it began and `during` since.
    fn announced_after(sends_zone: bool, before: Option<u32>, during: Option<u32>) -> Option<u32> {
        testing::start_threads();
        let folder = tempfile::tempdir().expect("created");
        let after = Rc::new(Cell::new(None));
        let result = Rc::clone(&after);
        testing::run(async move {
            let listener = TcpListener::bind((PRIMARY, 0)).await.expect("bound");
            let primary = Primary { address: listener.local_addr().expect("bound"), key: None };
            let task = zone_task(folder.path(), &primary);
            let shared = Rc::clone(&task.shared);
            let announce = move |serial: Option<u32>| {
                if serial.is_some() {
                    shared.announced.set(Some(Announced { from: PRIMARY, serial }));
                }
            };
            announce(before);
            tokio::task::spawn_local(serve_transfer(listener, sends_zone, move || announce(during)));
            let round = task.ask(&primary).await;
            assert_eq!(round.is_ok(), sends_zone, "{:?}", round.err());
            result.set(task.shared.announced.get().and_then(|announced| announced.serial));
        });
        after.get()
    }

    #[test]
    fn transfer_settles_what_was_announced_before_it_began() {
        assert_eq!(announced_after(true, Some(7), None), None);
        assert_eq!(announced_after(true, Some(7), Some(8)), Some(8));
        // A failed transfer leaves the announcement to the next one.
        assert_eq!(announced_after(false, Some(7), None), Some(7));
        assert_eq!(announced_after(false, Some(7), Some(8)), Some(8));
    }

    #[test]
    fn times_are_not_in_the_future_if_the_clock_was_set_back() {
        let record = Record {
            version: Some(version(300, 60, 3_600)),
            failure_count: 1,
            failed_at_unix_s: Some(2_000),
            ..Record::default()
        };
        assert_eq!(record.clone().not_after(2_000), record);
        let earlier = record.not_after(500);
        assert_eq!((earlier.next_at_unix_s(), earlier.version.expect("kept").expires_at_unix_s()), (560, 4_100));
    }
}
