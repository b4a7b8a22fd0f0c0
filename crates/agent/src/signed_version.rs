//! The signed version of a zone and how it is stored: a file with a whole version, and a log with the changes since. A
//! change is appended to the log. When the log is long, the whole version is written in the background, and then the
//! log is replaced by one with the changes since. The changes in the log that come before the version in the file are
//! ignored, so that each crash leaves a version and the changes that continue from it.

use sanderling_config::SignedZone as SignedZoneConfig;
use sanderling_dns::change_log::{self, ChangeLog};
use sanderling_dns::journal::{RecordRole, ZoneChangeBuilder};
use sanderling_dns::rdata;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{Name, NameBuf, Rtype};
use sanderling_dnssec::sign::SignedChange;
use sanderling_dnssec::{Record, Records, RecordsBuilder, ZoneVersion};
use sanderling_state::{StateError, StateFolder};
use sanderling_zone_files::{first_serial, patch_of};
use std::io::ErrorKind;

/// Bytes of a log that is not yet long.
const LOG_BYTES_MIN: u64 = 1 << 20;
/// The part of the bytes of the whole version that a log has at most.
const FILE_SHARE: u64 = 8;

/// The files' names, below the state folder.
#[derive(Clone, Debug)]
pub(crate) struct SignedFiles {
    zone: SignedZoneConfig,
    apex: NameBuf,
}

/// A signed version that is stored.
#[derive(Debug)]
pub(crate) struct SignedVersion {
    pub(crate) version: ZoneVersion,
    pub(crate) serial: u32,
    /// Bytes of the file with the whole version.
    file_bytes: u64,
    /// Bytes of the log.
    log_bytes: u64,
}

/// A whole version that was written in the background.
#[derive(Debug)]
pub(crate) struct WrittenVersion {
    file_bytes: u64,
    /// The length of the log in bytes at that time.
    log_bytes: u64,
}

impl SignedFiles {
    pub(crate) fn new(zone: &SignedZoneConfig, apex: NameBuf) -> SignedFiles {
        SignedFiles { zone: zone.clone(), apex }
    }

    pub(crate) fn apex(&self) -> NameBuf {
        self.apex
    }

    fn file(&self) -> String {
        self.zone.file().display().to_string()
    }

    fn log(&self) -> String {
        self.zone.changes_file().display().to_string()
    }

    /// The stored version, or why it cannot be read; `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if the version cannot be read.
    pub(crate) fn read(&self, state: &StateFolder) -> Result<Option<Result<SignedVersion, String>>, String> {
        let path = state.path().join(self.zone.file());
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let log = match std::fs::read(state.path().join(self.zone.changes_file())) {
            Ok(log) => log,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(format!("cannot read {}: {error}", self.log())),
        };
        Ok(Some(self.parse(text, &log)))
    }

    /// # Errors
    /// Returns an error if the text is not a zone file, or the changes do not fit.
    fn parse(&self, text: Vec<u8>, log: &[u8]) -> Result<SignedVersion, String> {
        let (apex, file_bytes) = (self.apex.as_name(), text.len() as u64);
        let mut patch = patch_of(&text, log, &self.zone.apex);
        let log_bytes =
            first_serial(&text, apex).map_or(0, |serial| ChangeLog::read(log, apex, serial).whole_bytes as u64);
        let mut parser = Parser::new("signed".to_owned(), text, apex, ParserLimits::default());
        let mut records = RecordsBuilder::default();
        while let Some(entry) = parser.next() {
            match entry {
                Ok(Entry::Record(record)) => {
                    let ttl_s = patch.apply(&record).map_err(|error| error.to_string())?;
                    let sanderling_dns::zonefile::Record { owner, rtype, rdata, .. } = record;
                    ttl_s.into_iter().for_each(|ttl_s| records.push(Record { owner, rtype, ttl_s, rdata }));
                }
                Ok(Entry::Include { .. } | Entry::Alias(_)) => return Err("it is not a signed version".to_owned()),
                Err(diagnostic) => return Err(diagnostic.problem),
            }
        }
        let added = patch.finish(|record| {
            let sanderling_dns::zonefile::Record { owner, rtype, ttl_s, rdata, .. } = *record;
            records.push(Record { owner, rtype, ttl_s, rdata });
        });
        added.map_err(|error| error.to_string())?;
        let records = records.finish();
        let serial = serial_of(&records, apex).ok_or("it has no SOA")?;
        Ok(SignedVersion { version: ZoneVersion::from(records), serial, file_bytes, log_bytes })
    }

    /// Stores a whole version in place of the stored one.
    pub(crate) fn write(
        &self,
        state: &StateFolder,
        records: Records,
        serial: u32,
    ) -> Result<SignedVersion, StateError> {
        let mut text = String::new();
        records.write_text(&mut text);
        state.write(&self.file(), text.as_bytes())?;
        state.write(&self.log(), &change_log::HEAD)?;
        let (file_bytes, log_bytes) = (text.len() as u64, change_log::HEAD.len() as u64);
        Ok(SignedVersion { version: ZoneVersion::from(records), serial, file_bytes, log_bytes })
    }

    /// Removes the stored version.
    pub(crate) fn remove(&self, state: &StateFolder) -> Result<(), StateError> {
        state.remove(&self.file())?;
        state.remove(&self.log())
    }

    /// Stores the change that has led to `signed`. Returns it in the form of the log.
    pub(crate) fn append(
        &self,
        state: &StateFolder,
        signed: &mut SignedVersion,
        change: &SignedChange,
    ) -> Result<Vec<u8>, String> {
        let mut encoded = ZoneChangeBuilder::new(self.apex.as_name());
        for (role, records) in [(RecordRole::Removed, &change.removed), (RecordRole::Added, &change.added)] {
            records.iter().for_each(|record| encoded.add(role, &record_of(record)));
        }
        let encoded = encoded.finish().ok_or("it is not a change")?;
        let mut bytes = Vec::new();
        change_log::put_change(&encoded, &mut bytes);
        state.append(&self.log(), signed.log_bytes, &bytes).map_err(|error| error.to_string())?;
        signed.log_bytes += bytes.len() as u64;
        signed.serial = change.serial;
        if signed.version.has_large_delta() {
            signed.version = ZoneVersion::from(signed.version.to_records());
        }
        Ok(bytes)
    }

    /// Writes `version` as a whole; `log_bytes` is the length of the log that leads to it.
    pub(crate) fn write_again(
        &self,
        state: &StateFolder,
        version: &ZoneVersion,
        log_bytes: u64,
    ) -> Result<WrittenVersion, StateError> {
        let mut text = String::new();
        version.write_text(&mut text);
        state.write(&self.file(), text.as_bytes())?;
        Ok(WrittenVersion { file_bytes: text.len() as u64, log_bytes })
    }

    /// Removes the changes from the log that have led to the version that was written. If the log has lost changes, no
    /// more can be appended, so that the next version is stored as a whole.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read or written, or is shorter than what was written to it.
    pub(crate) fn shorten_log(
        &self,
        state: &StateFolder,
        signed: &mut SignedVersion,
        written: &WrittenVersion,
    ) -> Result<(), String> {
        let log = state.read_long(&self.log()).map_err(|error| error.to_string())?;
        let Some(since) = log.get(written.log_bytes as usize..signed.log_bytes as usize) else {
            let log_bytes = std::mem::take(&mut signed.log_bytes);
            return Err(format!(
                "{} has {} bytes, but {log_bytes} were written; storing the whole version",
                self.log(),
                log.len()
            ));
        };
        let log = [&change_log::HEAD[..], since].concat();
        state.write(&self.log(), &log).map_err(|error| error.to_string())?;
        (signed.file_bytes, signed.log_bytes) = (written.file_bytes, log.len() as u64);
        Ok(())
    }
}

impl SignedVersion {
    /// Whether the whole version must be written again.
    pub(crate) fn has_long_log(&self) -> bool {
        self.log_bytes > LOG_BYTES_MIN.max(self.file_bytes / FILE_SHARE)
    }

    /// Bytes of the log.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Whether changes can be appended to the log. An earlier version of the program has written none.
    pub(crate) fn has_log(&self) -> bool {
        self.log_bytes > 0
    }
}

fn record_of(record: Record<'_>) -> sanderling_dns::zonefile::Record<'_> {
    let position = sanderling_dns::zonefile::Position { file_index: 0, line: 0, column: 1 };
    let Record { owner, rtype, ttl_s, rdata } = record;
    sanderling_dns::zonefile::Record { position, owner, rtype, ttl_s, rdata }
}

/// The serial of the SOA record at `apex`.
fn serial_of(records: &Records, apex: Name<'_>) -> Option<u32> {
    let soa = records.iter().find(|record| record.rtype == Rtype::SOA && record.owner == apex)?;
    rdata::serial_of(soa.rdata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::diagnostic::Location;
    use sanderling_config::{DomainName, Signing};
    use std::fs;

    fn records(serial: u32, addresses: &[u8]) -> Records {
        let apex = Name::parse(b"\x01a\0").expect("a name");
        let soa = [&[0, 0][..], &serial.to_be_bytes(), &[0; 16]].concat();
        let mut records = RecordsBuilder::default();
        records.push(Record { owner: apex, rtype: Rtype::SOA, ttl_s: 60, rdata: &soa });
        for &address in addresses {
            records.push(Record { owner: apex, rtype: Rtype::A, ttl_s: 60, rdata: &[192, 0, 2, address] });
        }
        records.finish()
    }

    /// The changes from one version to the next.
    fn change(before: &Records, after: &Records, serial: u32) -> SignedChange {
        let missing = |records: &Records, other: &Records| {
            let mut out = RecordsBuilder::default();
            records.iter().filter(|record| !other.iter().any(|it| it == *record)).for_each(|record| out.push(record));
            out.finish()
        };
        SignedChange {
            removed: missing(before, after),
            added: missing(after, before),
            serial_before: serial - 1,
            serial,
            sign_again_at_unix_s: None,
            longest_ttl_s: 60,
            made_count: 0,
            kept_count: 0,
        }
    }

    #[test]
    fn each_crash_leaves_the_last_version() {
        let folder = tempfile::tempdir().expect("created");
        let state = StateFolder::open(folder.path()).expect("opened");
        let apex = DomainName::parse("a").expect("a name");
        let location = Location::File("a.zone".into());
        let zone = SignedZoneConfig {
            apex: apex.clone(),
            signing: Signing::default(),
            location: location.into(),
            is_leaving: false,
        };
        let files = SignedFiles::new(&zone, sanderling_zone_files::wire_name(&apex));
        let read = || files.read(&state).expect("read").map(|stored| stored.expect("good"));
        let check = |expected: &Records| {
            let stored = read().expect("stored");
            assert!(stored.version.iter().eq(expected.iter()));
            assert_eq!(Some(stored.serial), serial_of(expected, files.apex().as_name()));
            stored
        };
        assert!(read().is_none());
        let versions: Vec<Records> = (1..6).map(|serial| records(serial, &[7, serial as u8])).collect();
        let mut stored = files.write(&state, versions[0].clone(), 1).expect("written");
        check(&versions[0]);
        let append = |stored: &mut SignedVersion, serial: usize| {
            let change = change(&versions[serial - 2], &versions[serial - 1], serial as u32);
            stored.version = ZoneVersion::from(versions[serial - 1].clone());
            files.append(&state, stored, &change).expect("appended");
        };
        append(&mut stored, 2);
        append(&mut stored, 3);
        let bytes_of_3 = stored.log_bytes();
        let log = folder.path().join(zone.changes_file());
        // A partial change at the end does not count, and is overwritten by the next one.
        fs::OpenOptions::new()
            .append(true)
            .open(&log)
            .and_then(|mut log| std::io::Write::write_all(&mut log, b"part"))
            .expect("written");
        let mut stored = check(&versions[2]);
        append(&mut stored, 4);
        check(&versions[3]);
        // The agent was killed after the whole version was written, but not the log; a change may follow meanwhile.
        let written = files.write_again(&state, &ZoneVersion::from(versions[2].clone()), bytes_of_3);
        let written = written.expect("written");
        check(&versions[3]);
        append(&mut stored, 5);
        check(&versions[4]);
        let long_bytes = fs::read(&log).expect("read").len();
        // A log that has lost changes is not taken for one without changes.
        let log_content = fs::read(&log).expect("read");
        fs::write(&log, &log_content[..log_content.len() - 1]).expect("written");
        let problem = files.shorten_log(&state, &mut stored, &written).expect_err("a change is lost");
        assert!(problem.contains("were written") && !stored.has_log(), "{problem}");
        fs::write(&log, &log_content).expect("written");
        let mut stored = check(&versions[4]);
        files.shorten_log(&state, &mut stored, &written).expect("written");
        assert!(fs::read(&log).expect("read").len() < long_bytes);
        check(&versions[4]);
        files.remove(&state).expect("removed");
        assert!(read().is_none());
    }
}
