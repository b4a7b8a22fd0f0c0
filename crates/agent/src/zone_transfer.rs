//! A zone transfer from a primary server, over TCP: from the connection to the text of the zone, which is built as in
//! the server process, so that this process refuses every version that the server would refuse. With IXFR, the changes
//! are applied to the stored version.
//!
//! Memory use is bounded whatever a server sends: records go to a file as they arrive, changes have a limit, and only
//! one large zone is built at a time.

use crate::blocking::ZONES;
use crate::clock::unix_s;
use crate::dns_exchange::{DnsStream, IDLE_TIMEOUT, random_id};
use crate::transfer_stage::TransferStage;
use sanderling_config::{Limits, TRANSFERRED_ZONES, changes_file};
use sanderling_dns::change_log::{ChangeCollector, ChangeLog, HEAD};
use sanderling_dns::client::{QueryKind, ReplyError, SoaTimers, query};
use sanderling_dns::transfer_in::{
    LeftOut, Progress, RecordRole, SizeLimit, TransferError, TransferLimits, TransferReceiver,
};
use sanderling_dns::zone_patch::PatchError;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position, Record, Severity};
use sanderling_dns::{HashSeed, NameBuf, TsigKey, Zone, ZoneBuilder, ZoneLimits, ZoneTextWriter};
use sanderling_state::{StateError, StateFolder, UnfinishedFile};
use sanderling_zone_files::first_serial;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Bytes of the file of a large zone: a smaller one is read and written in some milliseconds.
pub(crate) const LARGE_FILE_BYTES: u64 = 1 << 20;
/// The part of the bytes of the file that the log of changes has at most.
const FILE_SHARE: u64 = 8;
/// Bytes of changes that are accepted although the stored version has fewer.
const CHANGES_BYTES_MIN: u64 = 64 * 1024;
/// Bytes of the text of a zone that are in memory until they are written.
const TEXT_BYTES: usize = 64 * 1024;

/// The reason why a server did not provide the requested zone.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection to it, or it was lost.
    Network(io::Error),
    /// The server does not answer a question in time.
    NoAnswer,
    /// The server has not sent the whole transfer in this time.
    TimedOut(Duration),
    /// The server has not accepted a connection in this time.
    Connection(Duration),
    /// The server has sent no further message of a transfer in this time.
    Idle(Duration),
    /// A reply is not accepted.
    Reply(TransferError),
    /// The zone has errors; the first one.
    Zone(String),
    /// The changes have a form that cannot be stored.
    Changes,
    /// The changes do not belong to the stored version.
    Patch(PatchError),
    /// The changes have more bytes than the stored version.
    ManyChanges(u64),
    /// The changes have more bytes than allowed.
    LongChanges(u64),
    /// The stored version cannot be read.
    Stored(String),
    /// The received records cannot be written to the state folder.
    State(StateError),
    /// The received records cannot be read back from there.
    Stage(io::Error),
}

impl Failure {
    /// Whether the server may still give the whole zone.
    pub(crate) fn is_of_changes(&self) -> bool {
        match self {
            Failure::Network(error) => error.kind() == io::ErrorKind::UnexpectedEof,
            Failure::State(_) | Failure::Stage(_) | Failure::Connection(_) => false,
            _ => true,
        }
    }

    /// The failure, and the remedy for a refusal (RFC 6895 §2.3).
    pub(crate) fn with_remedy(&self) -> String {
        const SERVFAIL: u8 = 2;
        const REFUSED: u8 = 5;
        const NOTAUTH: u8 = 9;
        let remedy = match self {
            Failure::Reply(TransferError::Reply(ReplyError::Refused(SERVFAIL))) => "; its log may say why",
            Failure::Reply(TransferError::Reply(ReplyError::Refused(REFUSED))) => {
                "; add the zone there, and allow this server to transfer it (NSD: provide-xfr, BIND: allow-transfer)"
            }
            Failure::Reply(TransferError::Reply(ReplyError::Refused(NOTAUTH))) => {
                "; add the zone there, or specify another primary"
            }
            _ => "",
        };
        format!("{self}{remedy}")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Network(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                write!(out, "it closed the connection before the end")
            }
            Failure::Network(error) => write!(out, "{error}"),
            Failure::TimedOut(time) => {
                write!(out, "it did not send everything within {} s (`zone_transfer_in_timeout`)", time.as_secs_f64())
            }
            Failure::Connection(time) => {
                let key = "zone_transfer_in_idle_timeout";
                write!(out, "it did not accept a connection within {} s (`{key}`)", time.as_secs_f64())
            }
            Failure::Idle(time) => {
                let key = "zone_transfer_in_idle_timeout";
                write!(out, "it sent no further message within {} s (`{key}`)", time.as_secs_f64())
            }
            Failure::NoAnswer => write!(out, "it does not answer"),
            Failure::Reply(error) => write!(out, "{error}"),
            Failure::Zone(problem) => write!(out, "its zone has an error: {problem}"),
            Failure::Changes => write!(out, "its changes contain records that do not belong in the zone"),
            Failure::Patch(error) => write!(out, "{error}"),
            Failure::ManyChanges(bytes) => write!(out, "its changes have more than the {bytes} bytes of the zone"),
            Failure::LongChanges(bytes) => {
                write!(out, "its changes have more than {bytes} bytes (`zone_transfer_in_changes_max`)")
            }
            Failure::Stored(problem) => write!(out, "the stored version cannot be read: {problem}"),
            Failure::State(error) => write!(out, "{error}"),
            Failure::Stage(error) => write!(
                out,
                "the transferred zone cannot be read from the state folder of this machine: {error}; check its disk"
            ),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::TimedOut => Failure::NoAnswer,
            _ => Failure::Network(error),
        }
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Failure {
        Failure::Reply(error)
    }
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Failure {
        Failure::Reply(error.into())
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Failure {
        Failure::State(error)
    }
}

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Failure {
        Failure::Patch(error)
    }
}

/// The version that there is.
#[derive(Clone, Debug)]
pub(crate) struct StoredVersion {
    pub(crate) serial: u32,
    /// The file with a whole version, with changes in a log next to it.
    pub(crate) file: PathBuf,
    /// Bytes of the log; `None` if no changes can be appended.
    pub(crate) log_bytes: Option<u64>,
}

impl StoredVersion {
    /// Whether `changes` should be appended to the log. Otherwise a whole version is written: for a small zone, whose
    /// text is written quickly, and if the log would be long.
    fn takes(&self, changes: &[u8]) -> bool {
        let file_bytes = self.file_bytes();
        let fits = |log_bytes: u64| log_bytes + changes.len() as u64 <= file_bytes / FILE_SHARE;
        file_bytes >= LARGE_FILE_BYTES && self.log_bytes.is_some_and(fits)
    }

    fn file_bytes(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |file| file.len())
    }
}

/// A transferred zone.
#[derive(Debug)]
pub(crate) struct TransferredZone {
    pub(crate) soa: SoaTimers,
    /// The changes that led to it from the stored version, in log form; empty if the whole zone was transferred.
    pub(crate) changes: Vec<u8>,
    /// The zone file, not yet renamed into place; `None` if the changes should be appended to the log.
    pub(crate) file: Option<UnfinishedFile>,
    /// The server's ignored records.
    pub(crate) left_out: LeftOut,
}

/// The state that all transfers share.
pub(crate) struct Workspace {
    pub(crate) state: Arc<StateFolder>,
    pub(crate) limits: Limits,
    /// The records of only one large zone at a time are in memory.
    large_zones: Arc<Semaphore>,
}

impl Workspace {
    pub(crate) fn new(state: Arc<StateFolder>, limits: Limits) -> Workspace {
        Workspace { state, limits, large_zones: Arc::new(Semaphore::new(1)) }
    }

    /// A zone's size limit, as sent and as stored: the server process reads no longer file.
    fn size_limit(&self) -> SizeLimit {
        let limit = |bytes_max, key| SizeLimit { bytes_max, key };
        let own = limit(self.limits.transferred_zone_bytes_max, "transferred_zone_max");
        let of_files = limit(self.limits.zone_file_bytes_max, "zone_file_max");
        if of_files.bytes_max < own.bytes_max { of_files } else { own }
    }

    fn builder(&self, apex: NameBuf) -> ZoneBuilder {
        let seed = HashSeed(RandomState::new().build_hasher().finish());
        let limits = ZoneLimits { records_per_rrset_max: self.limits.zone_records_per_rrset_max };
        ZoneBuilder::new(apex.as_name(), seed, limits)
    }
}

/// A primary, and the zone to request.
#[derive(Clone, Debug)]
pub(crate) struct TransferSource {
    pub(crate) server: SocketAddr,
    pub(crate) apex: NameBuf,
    pub(crate) key: Option<TsigKey>,
}

impl TransferSource {
    /// Asks for the SOA over TCP.
    pub(crate) async fn soa(&self) -> Result<SoaTimers, Failure> {
        let ask = async {
            let apex = self.apex.as_name();
            let (message, mut reader) = query(QueryKind::Soa, apex, random_id(), self.key.as_ref(), unix_s());
            let mut stream = DnsStream::open(self.server, IDLE_TIMEOUT).await?;
            stream.send(&message).await?;
            Ok(reader.read(stream.receive().await?, unix_s())?.soa(apex)?)
        };
        timeout(IDLE_TIMEOUT, ask).await.unwrap_or(Err(Failure::NoAnswer))
    }

    /// Transfers the zone, or the changes since the version `stored`; `None` if the server has no later one.
    pub(crate) async fn transfer(
        &self,
        workspace: &Workspace,
        stored: Option<StoredVersion>,
    ) -> Result<Option<TransferredZone>, Failure> {
        let time_max = Duration::from_millis(workspace.limits.zone_transfer_in_timeout_ms);
        let received = self.receive(workspace, stored.as_ref());
        let received = timeout(time_max, received).await.unwrap_or(Err(Failure::TimedOut(time_max)))?;
        let Some(Received { stage, changes, soa, left_out }) = received else { return Ok(None) };
        let stored = stored.filter(|_| !changes.is_empty());
        if stored.as_ref().is_some_and(|stored| stored.takes(&changes)) {
            return Ok(Some(TransferredZone { soa, changes, file: None, left_out }));
        }
        let length_bytes = stored.as_ref().map_or(stage.length_bytes(), StoredVersion::file_bytes);
        let large_zone = match length_bytes >= LARGE_FILE_BYTES {
            true => Some(Arc::clone(&workspace.large_zones).acquire_owned().await.expect("it is never closed")),
            false => None,
        };
        let (apex, size, state) = (self.apex, workspace.size_limit(), Arc::clone(&workspace.state));
        let mut builder = workspace.builder(apex);
        // A large zone takes seconds, in which other zones are not to wait.
        let write = move || {
            // This holds even if the zone's task has ended meanwhile.
            let _large_zone = large_zone;
            let zone = match &stored {
                Some(stored) => build(patched(builder, &changes, stored, apex, size.bytes_max)?)?,
                None => {
                    stage.each_record(|record| builder.add(record)).map_err(Failure::Stage)?;
                    build(builder)?
                }
            };
            match stored.filter(|_| zone.serial() != soa.serial) {
                Some(stored) => {
                    Err(Failure::Stored(format!("the stored zone file does not have serial {}", stored.serial)))
                }
                None => Ok((write_text(&zone, size, &state)?, changes)),
            }
        };
        let (file, changes) = ZONES.run(write).await?;
        Ok(Some(TransferredZone { soa, changes, file: Some(file), left_out }))
    }

    async fn receive(
        &self,
        workspace: &Workspace,
        stored: Option<&StoredVersion>,
    ) -> Result<Option<Received>, Failure> {
        let limits = &workspace.limits;
        let changes_max = ChangesLimit::new(stored, limits);
        let transfer_limits = TransferLimits {
            size: workspace.size_limit(),
            empty_messages_max: limits.zone_transfer_in_empty_messages_max,
        };
        let (stored_serial, key) = (stored.map(|stored| stored.serial), self.key.as_ref());
        let (message, mut receiver) =
            TransferReceiver::new(self.apex.as_name(), stored_serial, random_id(), key, unix_s(), transfer_limits);
        let idle_timeout = Duration::from_millis(limits.zone_transfer_in_idle_timeout_ms);
        let in_time = |of_timeout: fn(Duration) -> Failure| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::TimedOut => of_timeout(idle_timeout),
                _ => Failure::Network(error),
            }
        };
        let mut stage = TransferStage::new(&workspace.state);
        let (mut changes, mut changes_bytes) = (None, 0);
        let mut stream = DnsStream::open(self.server, idle_timeout).await.map_err(in_time(Failure::Connection))?;
        stream.send(&message).await.map_err(in_time(Failure::Idle))?;
        loop {
            let message = stream.receive().await.map_err(in_time(Failure::Idle))?;
            let progress = receiver.receive(message, unix_s(), |role, record| match role {
                RecordRole::OfZone => stage.add(record),
                RecordRole::Removed | RecordRole::Added if changes_bytes <= changes_max.bytes => {
                    changes_bytes += (record.owner.length_bytes() + record.rdata.len()) as u64;
                    changes.get_or_insert_with(|| ChangeCollector::new(self.apex.as_name())).add(role, record);
                }
                RecordRole::Removed | RecordRole::Added => {}
            })?;
            if changes_bytes > changes_max.bytes {
                return Err(changes_max.failure());
            }
            // Messages are compressed, but stored records are not.
            if stage.length_bytes() > transfer_limits.size.bytes_max {
                return Err(TransferError::TooLarge(transfer_limits.size).into());
            }
            stage.write_many().await?;
            match (progress, receiver.soa()) {
                (Progress::Complete, Some(soa)) => {
                    let changes = changes.map_or(Some(Vec::new()), ChangeCollector::finish).ok_or(Failure::Changes)?;
                    let left_out = receiver.left_out().clone();
                    return Ok(Some(Received { stage, changes, soa, left_out }));
                }
                (Progress::UpToDate, _) => return Ok(None),
                _ => {}
            }
        }
    }
}

/// Bytes that the changes of one transfer may have.
struct ChangesLimit {
    bytes: u64,
    /// Whether the stored version has no more records.
    is_of_stored: bool,
}

impl ChangesLimit {
    fn new(stored: Option<&StoredVersion>, limits: &Limits) -> ChangesLimit {
        let of_stored = stored.map_or(0, StoredVersion::file_bytes).max(CHANGES_BYTES_MIN);
        let of_all = limits.zone_transfer_in_changes_bytes_max;
        ChangesLimit { bytes: of_stored.min(of_all), is_of_stored: of_stored <= of_all }
    }

    fn failure(&self) -> Failure {
        if self.is_of_stored { Failure::ManyChanges(self.bytes) } else { Failure::LongChanges(self.bytes) }
    }
}

/// The received zone or changes.
struct Received {
    /// The records of the zone; none with changes.
    stage: TransferStage,
    /// The changes in log form; empty if there is a zone.
    changes: Vec<u8>,
    soa: SoaTimers,
    left_out: LeftOut,
}

/// The stored version with the changes of its log and `changes`, in `builder`, which is empty.
fn patched(
    mut builder: ZoneBuilder,
    changes: &[u8],
    stored: &StoredVersion,
    apex: NameBuf,
    bytes_max: u64,
) -> Result<ZoneBuilder, Failure> {
    let mut text = Vec::new();
    File::open(&stored.file)
        .and_then(|file| file.take(bytes_max.saturating_add(1)).read_to_end(&mut text))
        .map_err(|error| Failure::Stored(error.to_string()))?;
    if text.len() as u64 > bytes_max {
        return Err(Failure::Stored(format!("it has more than {bytes_max} bytes (`zone_file_bytes_max`)")));
    }
    let serial = first_serial(&text, apex.as_name()).ok_or_else(|| Failure::Stored("it has no SOA".to_owned()))?;
    let (log, _) = read_log(&stored.file, apex, serial).map_err(|error| Failure::Stored(error.to_string()))?;
    let mut patch = ChangeLog::read(&[&log, changes].concat(), apex.as_name(), serial).patch();
    let name = stored.file.display().to_string();
    let mut parser = Parser::new(name, text, apex.as_name(), ParserLimits::default());
    while let Some(entry) = parser.next() {
        match entry {
            Ok(Entry::Record(record)) => {
                if let Some(ttl_s) = patch.apply(&record)? {
                    builder.add(&Record { ttl_s, ..record });
                }
            }
            Ok(Entry::Include { .. } | Entry::Alias(_)) => {
                return Err(Failure::Stored("it has an $INCLUDE or ALIAS".to_owned()));
            }
            Err(diagnostic) if diagnostic.severity == Severity::Warning => {}
            Err(diagnostic) => return Err(Failure::Stored(diagnostic.problem)),
        }
    }
    patch.finish(|record| builder.add(record))?;
    Ok(builder)
}

/// The log next to `file`, which has the version with this serial, as far as it continues from it; and the serial at
/// its end.
pub(crate) fn read_log(file: &Path, apex: NameBuf, serial: u32) -> io::Result<(Vec<u8>, u32)> {
    let mut log = match std::fs::read(changes_file(file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    let changes = ChangeLog::read(&log, apex.as_name(), serial);
    log.truncate(changes.whole_bytes);
    if log.is_empty() {
        log = HEAD.to_vec();
    }
    Ok((log, changes.serial().unwrap_or(serial)))
}

/// The zone of all records.
fn build(builder: ZoneBuilder) -> Result<Zone, Failure> {
    let built = builder.finish(Position { file_index: 0, line: 0, column: 1 });
    let first_error = built.diagnostics.iter().find(|one| one.severity != Severity::Warning);
    built.zone.ok_or_else(|| Failure::Zone(first_error.map_or(String::new(), |diagnostic| diagnostic.problem.clone())))
}

/// A file with the text of `zone`.
fn write_text(zone: &Zone, size: SizeLimit, state: &StateFolder) -> Result<UnfinishedFile, Failure> {
    let mut file = state.begin_file(TRANSFERRED_ZONES)?;
    let (mut writer, mut text, mut length_bytes) = (ZoneTextWriter::default(), String::new(), 0);
    loop {
        text.clear();
        let has_more = writer.write(zone, None, &mut text, TEXT_BYTES);
        length_bytes += text.len() as u64;
        if length_bytes > size.bytes_max {
            // Text may be longer than the sent records.
            return Err(TransferError::TooLarge(size).into());
        }
        file.append(text.as_bytes())?;
        if !has_more {
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_dns::Name;

    #[test]
    fn refusal_has_a_remedy() {
        let refused = |rcode| Failure::from(ReplyError::Refused(rcode)).with_remedy();
        assert!(refused(5).starts_with("it answers REFUSED; add the zone there, and allow this server to transfer it"));
        assert_eq!(refused(9), "it answers NOTAUTH; add the zone there, or specify another primary");
        assert_eq!(refused(2), "it answers SERVFAIL; its log may say why");
        assert_eq!(refused(4), "it answers NOTIMP");
        assert_eq!(Failure::NoAnswer.with_remedy(), "it does not answer");
    }

    #[test]
    fn failures_say_whether_the_primary_or_this_machine_is_at_fault() {
        let text = Failure::Connection(Duration::from_secs(10)).to_string();
        assert_eq!(text, "it did not accept a connection within 10 s (`zone_transfer_in_idle_timeout`)");
        let text = Failure::Stage(io::ErrorKind::StorageFull.into()).to_string();
        assert!(text.contains("cannot be read from the state folder of this machine"), "{text}");
    }

    #[test]
    fn limits_are_those_of_the_configuration_and_of_the_stored_version() {
        let folder = tempfile::tempdir().expect("created");
        let state = Arc::new(StateFolder::open(folder.path()).expect("opened"));
        let size = |limits: &Limits| Workspace::new(Arc::clone(&state), limits.clone()).size_limit();
        let mut limits = Limits::default();
        let expected = SizeLimit { bytes_max: limits.transferred_zone_bytes_max, key: "transferred_zone_max" };
        assert_eq!(size(&limits), expected);
        limits.zone_file_bytes_max = 5_000;
        assert_eq!(size(&limits), SizeLimit { bytes_max: 5_000, key: "zone_file_max" });
        let stored = StoredVersion { serial: 1, file: folder.path().join("a.zone"), log_bytes: None };
        let check = |bytes: usize, expected_bytes: u64, expected: &str| {
            std::fs::write(&stored.file, vec![b'a'; bytes]).expect("written");
            let limit = ChangesLimit::new(Some(&stored), &limits);
            assert_eq!(limit.bytes, expected_bytes);
            assert!(limit.failure().to_string().contains(expected), "{}", limit.failure());
        };
        check(100, CHANGES_BYTES_MIN, "more than the 65536 bytes of the zone");
        check(100_000, 100_000, "more than the 100000 bytes of the zone");
        check(9 << 20, 8 << 20, "more than 8388608 bytes (`zone_transfer_in_changes_max`)");
    }

    #[test]
    fn stored_version_that_is_too_long_is_not_cut() {
        let text = ". 60 IN SOA ns. host. 1 1 1 1 1\n. 60 IN NS ns.\n";
        let folder = tempfile::tempdir().expect("created");
        let stored = StoredVersion { serial: 1, file: folder.path().join("a.zone"), log_bytes: None };
        std::fs::write(&stored.file, text).expect("written");
        let apex = Name::ROOT.to_lowercase();
        let patched = |bytes_max| {
            let builder = ZoneBuilder::new(apex.as_name(), HashSeed(1), ZoneLimits::default());
            patched(builder, &[], &stored, apex, bytes_max).map(|_| ())
        };
        let bytes = text.len() as u64;
        patched(bytes).expect("read");
        let expected =
            format!("the stored version cannot be read: it has more than {} bytes (`zone_file_bytes_max`)", bytes - 1);
        assert_eq!(patched(bytes - 1).expect_err("too long").to_string(), expected);
    }
}
