//! A zone transfer from a primary server, over TCP: from the connection to the zone, which was built as the server
//! process builds it, so that what the server would refuse is refused here. Of IXFR, the changes are applied to the
//! stored version.

use crate::blocking::ZONES;
use crate::clock::unix_s;
use crate::dns_exchange::{DnsStream, IDLE_TIMEOUT, random_id};
use sanderling_config::{Limits, changes_file};
use sanderling_dns::change_log::{ChangeCollector, ChangeLog, HEAD};
use sanderling_dns::client::{QueryKind, ReplyError, SoaTimers, query};
use sanderling_dns::transfer_in::{LeftOut, Progress, RecordRole, TransferError, TransferReceiver};
use sanderling_dns::zone_patch::PatchError;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position, Record, Severity};
use sanderling_dns::{HashSeed, NameBuf, TsigKey, Zone, ZoneBuilder, ZoneLimits, ZoneTextWriter};
use sanderling_zone_files::first_serial;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::timeout;

/// Bytes of the file of a large zone: a smaller one is read and written in some milliseconds.
pub(crate) const LARGE_FILE_BYTES: u64 = 1 << 20;
/// The part of the bytes of the file that the log of changes has at most.
const FILE_SHARE: u64 = 8;
/// Bytes of changes that are accepted although the stored version has fewer.
const CHANGES_BYTES_MIN: u64 = 64 * 1024;

/// Why a server has not given what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection to it, or it was lost.
    Network(io::Error),
    /// It does not answer in time.
    TimedOut(Duration),
    /// A reply is not accepted.
    Reply(TransferError),
    /// The zone has errors; the first one.
    Zone(String),
    /// Its changes have no form that can be stored.
    Changes,
    /// The changes are not those of the stored version.
    Patch(PatchError),
    /// The changes have more bytes than the stored version.
    ManyChanges(u64),
    /// The stored version cannot be read.
    Stored(String),
}

impl Failure {
    /// Whether the server may still give the whole zone.
    pub(crate) fn is_of_changes(&self) -> bool {
        match self {
            Failure::Network(error) => error.kind() == io::ErrorKind::UnexpectedEof,
            _ => true,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Network(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                write!(out, "it closes the connection before the end")
            }
            Failure::Network(error) => write!(out, "{error}"),
            Failure::TimedOut(time) => write!(out, "it has not sent all in {} s", time.as_secs()),
            Failure::Reply(error) => write!(out, "{error}"),
            Failure::Zone(problem) => write!(out, "its zone has an error: {problem}"),
            Failure::Changes => write!(out, "its changes have records that cannot be in the zone"),
            Failure::Patch(error) => write!(out, "{error}"),
            Failure::ManyChanges(bytes) => write!(out, "its changes have more than the {bytes} bytes of the zone"),
            Failure::Stored(problem) => write!(out, "the stored version cannot be read: {problem}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::TimedOut => Failure::TimedOut(IDLE_TIMEOUT),
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

impl From<PatchError> for Failure {
    fn from(error: PatchError) -> Failure {
        Failure::Patch(error)
    }
}

/// The version that there is.
#[derive(Clone, Debug)]
pub(crate) struct StoredVersion {
    pub(crate) serial: u32,
    /// The file with a whole version, with changes in a log beside it.
    pub(crate) file: PathBuf,
    /// Bytes of the log; `None` if no changes can be appended.
    pub(crate) log_bytes: Option<u64>,
}

impl StoredVersion {
    /// Whether `changes` are to be appended to the log. Otherwise a whole version is written: of a small zone, whose
    /// text is soon written, and if the log would be long.
    fn takes(&self, changes: &[u8]) -> bool {
        let file_bytes = std::fs::metadata(&self.file).map_or(0, |file| file.len());
        let fits = |log_bytes: u64| log_bytes + changes.len() as u64 <= file_bytes / FILE_SHARE;
        file_bytes >= LARGE_FILE_BYTES && self.log_bytes.is_some_and(fits)
    }
}

/// A zone that was transferred.
#[derive(Debug)]
pub(crate) struct TransferredZone {
    pub(crate) soa: SoaTimers,
    /// The changes that have led to it from the stored version, as a log has them; empty if all of it was transferred.
    pub(crate) changes: Vec<u8>,
    /// The text of its zone file; `None` if the changes are to be appended to the log.
    pub(crate) text: Option<String>,
    /// What the server has sent besides.
    pub(crate) left_out: LeftOut,
}

/// A primary server, and what to ask it for.
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
            let mut stream = DnsStream::open(self.server).await?;
            stream.send(&message).await?;
            Ok(reader.read(stream.receive().await?, unix_s())?.soa(apex)?)
        };
        timeout(IDLE_TIMEOUT, ask).await.unwrap_or(Err(Failure::TimedOut(IDLE_TIMEOUT)))
    }

    /// Transfers the zone, or what has changed in it since the version `stored`; `None` if the server has no later one.
    pub(crate) async fn transfer(
        &self,
        limits: &Limits,
        stored: Option<StoredVersion>,
    ) -> Result<Option<TransferredZone>, Failure> {
        let time_max = Duration::from_millis(limits.zone_transfer_in_timeout_ms);
        let received = self.receive(limits, stored.as_ref());
        let received = timeout(time_max, received).await.unwrap_or(Err(Failure::TimedOut(time_max)))?;
        let Some(Received { builder, changes, soa, left_out }) = received else { return Ok(None) };
        if let Some(stored) = &stored
            && !changes.is_empty()
            && stored.takes(&changes)
        {
            return Ok(Some(TransferredZone { soa, changes, text: None, left_out }));
        }
        let (bytes_max, apex) = (limits.zone_file_bytes_max, self.apex);
        // A large zone takes seconds, in which other zones are not to wait.
        let build_text = move || match stored {
            Some(stored) if !changes.is_empty() => {
                let text = build(patched(builder, &changes, &stored, apex, bytes_max)?)?;
                match first_serial(text.as_bytes(), apex.as_name()) == Some(soa.serial) {
                    true => Ok((text, changes)),
                    false => Err(Failure::Stored(format!("it is not that with serial {}", stored.serial))),
                }
            }
            _ => Ok((build(builder)?, changes)),
        };
        let (text, changes) = ZONES.run(build_text).await?;
        if text.len() as u64 > limits.zone_file_bytes_max {
            // The server process would not read it: text may be longer than messages.
            return Err(TransferError::TooLarge(limits.zone_file_bytes_max).into());
        }
        Ok(Some(TransferredZone { soa, changes, text: Some(text), left_out }))
    }

    async fn receive(&self, limits: &Limits, stored: Option<&StoredVersion>) -> Result<Option<Received>, Failure> {
        let stored_serial = stored.map(|stored| stored.serial);
        let stored_bytes = stored.and_then(|stored| std::fs::metadata(&stored.file).ok()).map_or(0, |file| file.len());
        let changes_bytes_max = stored_bytes.max(CHANGES_BYTES_MIN);
        let (bytes_max, key) = (limits.zone_file_bytes_max, self.key.as_ref());
        let (message, mut receiver) =
            TransferReceiver::new(self.apex.as_name(), stored_serial, random_id(), key, unix_s(), bytes_max);
        let seed = HashSeed(RandomState::new().build_hasher().finish());
        let zone_limits = ZoneLimits { records_per_rrset_max: limits.zone_records_per_rrset_max };
        let mut builder = ZoneBuilder::new(self.apex.as_name(), seed, zone_limits);
        let (mut changes, mut changes_bytes) = (None, 0);
        let mut stream = DnsStream::open(self.server).await?;
        stream.send(&message).await?;
        loop {
            let message = stream.receive().await?;
            let progress = receiver.receive(message, unix_s(), |role, record| match role {
                RecordRole::OfZone => builder.add(record),
                RecordRole::Removed | RecordRole::Added if changes_bytes <= changes_bytes_max => {
                    changes_bytes += (record.owner.length_bytes() + record.rdata.len()) as u64;
                    changes.get_or_insert_with(|| ChangeCollector::new(self.apex.as_name())).add(role, record);
                }
                RecordRole::Removed | RecordRole::Added => {}
            })?;
            if changes_bytes > changes_bytes_max {
                return Err(Failure::ManyChanges(changes_bytes_max));
            }
            match (progress, receiver.soa()) {
                (Progress::Complete, Some(soa)) => {
                    let changes = changes.map_or(Some(Vec::new()), ChangeCollector::finish).ok_or(Failure::Changes)?;
                    let left_out = receiver.left_out().clone();
                    return Ok(Some(Received { builder, changes, soa, left_out }));
                }
                (Progress::UpToDate, _) => return Ok(None),
                _ => {}
            }
        }
    }
}

/// What a server has sent: a zone, or changes.
struct Received {
    builder: ZoneBuilder,
    /// As a log has them; empty with a zone.
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

/// The log beside `file`, which has the version with this serial, as far as it leads on from it; and the serial that it
/// leads to.
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

/// The text of the zone of all records.
fn build(builder: ZoneBuilder) -> Result<String, Failure> {
    let built = builder.finish(Position { file_index: 0, line: 0, column: 1 });
    let first_error = built.diagnostics.iter().find(|one| one.severity != Severity::Warning);
    let zone = built
        .zone
        .ok_or_else(|| Failure::Zone(first_error.map_or(String::new(), |diagnostic| diagnostic.problem.clone())))?;
    Ok(text_of(&zone))
}

fn text_of(zone: &Zone) -> String {
    let (mut writer, mut text) = (ZoneTextWriter::default(), String::new());
    while writer.write(zone, None, &mut text, usize::MAX) {}
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_dns::Name;

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
