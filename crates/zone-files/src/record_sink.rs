//! Turns the records of a zone file into the version with dynamic updates, while the file is read.

use crate::wire_name::wire_name;
use sanderling_config::DomainName;
use sanderling_config::diagnostic::{Diagnostic, Location, Problem, error_text};
use sanderling_dns::difference::{
    DifferenceMerge, HASH_BYTES, LaterFile, LaterSerial, MergeOutcome, Merged, ZoneDifference,
};
use sanderling_dns::zonefile::{AliasRecord, Diagnostic as ZoneDiagnostic, Position, Record};
use sanderling_dns::{Name, ZoneBuilder};
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The changes by updates to a zone.
#[derive(Clone, Debug)]
pub struct ZoneUpdates {
    /// The differences of the version in service from the zone file.
    pub difference: ZoneDifference,
    /// The digest of the zone file's records.
    pub digest: u64,
    /// The SHA-256 at the end of the stored content; `None` if nothing is.
    pub stored: Option<[u8; HASH_BYTES]>,
}

impl ZoneUpdates {
    /// The content to store.
    pub fn encode(&self, apex: Name<'_>) -> Vec<u8> {
        self.difference.encode(apex, self.digest)
    }

    /// The numbers of records.
    pub fn state(&self) -> UpdateState {
        let [added, removed] = self.difference.counts();
        UpdateState { added, removed, is_none: self.difference.is_empty(), is_held: false }
    }
}

/// The differences between a zone's version and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UpdateState {
    /// Records that it adds.
    pub added: usize,
    /// Records of the file that it does not have.
    pub removed: usize,
    /// There were no updates since the file was written.
    #[serde(skip)]
    pub is_none: bool,
    /// The file has a later serial, and the updates are applied to it because it lacks their changes.
    #[serde(skip)]
    pub is_held: bool,
}

/// Reads the updates of the zone `apex` that are stored in `file`.
///
/// # Errors
/// Returns an error if the updates cannot be read. The zone must not be served without them.
pub fn read_updates(apex: &DomainName, file: &Path) -> Result<PriorUpdates, Diagnostic> {
    let fail = |problem: String, remedy: &str| {
        let message = format!("cannot read the dynamic updates of the zone {apex}: {problem}");
        Diagnostic::error(Location::File(file.to_owned()), Problem::new(message, remedy))
    };
    let content = match fs::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        read => read.map_err(|error| fail(error_text(&error), "allow the server's user to read the state folder"))?,
    };
    let decoded = ZoneDifference::decode(&content, wire_name(apex).as_name());
    let (difference, digest) = decoded.map_err(|_| {
        let remedy = "restore it from a backup, or remove it to serve the zone file without the updates";
        fail("it is damaged".to_owned(), remedy)
    })?;
    let stored = content.last_chunk::<HASH_BYTES>().copied();
    let updates = ZoneUpdates { difference, digest, stored };
    Ok(PriorUpdates { updates, file: file.to_owned(), later_file: LaterFile::ReplacesIfComplete })
}

/// The updates of a zone whose file is read.
#[derive(Debug)]
pub struct PriorUpdates {
    /// The stored content.
    pub updates: ZoneUpdates,
    /// Where they are stored.
    pub file: PathBuf,
    /// The effect of a file with a later serial.
    pub later_file: LaterFile,
}

/// The problem that the zone file of `apex` has a later serial than the version with the updates, but lacks their
/// changes.
pub fn held_updates(apex: &DomainName, file: &Path, later: LaterSerial) -> Diagnostic {
    let LaterSerial { of_file, of_version, lost_count } = later;
    let message = format!(
        "the serial {of_file} is later than {of_version}, the serial with dynamic updates, and {} would be lost",
        changes(lost_count)
    );
    let remedy = format!(
        "merge the output of `sanderling zone export {apex}` into the file, or drop the updates with `sanderling reload \
         --force-zone {apex}`"
    );
    Diagnostic::error(Location::File(file.to_owned()), Problem::new(message, remedy))
}

/// The updates of the zone `apex` are dropped, since the file has a later serial and was forced.
pub fn dropped_updates(apex: &DomainName, file: &Path, later: LaterSerial) -> Diagnostic {
    let message = format!("the dynamic updates of {apex} are dropped, and with them {}", changes(later.lost_count));
    Diagnostic::warning(Location::File(file.to_owned()), Problem::new(message, ""))
}

fn changes(count: usize) -> String {
    if count == 1 { "1 change of a record".to_owned() } else { format!("{count} changes of records") }
}

/// Something for the agent to store.
#[derive(Debug)]
pub struct StoreRequest {
    /// Empty if nothing more must be stored.
    pub content: Vec<u8>,
    /// The SHA-256 at the end of the previously stored content.
    pub replaces: Option<[u8; HASH_BYTES]>,
}

/// The outcome for the updates when the zone file was read.
#[derive(Debug)]
pub struct MergedUpdates {
    /// The outcome of merging the updates.
    pub merged: Merged,
    /// The previously stored content.
    pub replaces: Option<[u8; HASH_BYTES]>,
}

impl MergedUpdates {
    /// The updates of the version that was read, and the content to store for them, if it has changed.
    pub fn finish(self, apex: Name<'_>) -> (ZoneUpdates, Option<StoreRequest>) {
        let MergedUpdates { merged: Merged { difference, digest, outcome, .. }, replaces } = self;
        let mut updates = ZoneUpdates { difference, digest, stored: replaces };
        if outcome == MergeOutcome::Unchanged {
            return (updates, None);
        }
        let content = updates.encode(apex);
        updates.stored = content.last_chunk().copied();
        (updates, Some(StoreRequest { content, replaces }))
    }
}

/// Takes a zone file's records and the derived records, and turns them into the version with the updates.
pub(crate) struct RecordSink<'b> {
    builder: &'b mut ZoneBuilder,
    updates: Option<DifferenceMerge>,
    replaces: Option<[u8; HASH_BYTES]>,
}

impl<'b> RecordSink<'b> {
    pub(crate) fn new(apex: Name<'_>, builder: &'b mut ZoneBuilder, prior: Option<PriorUpdates>) -> RecordSink<'b> {
        let replaces = prior.as_ref().and_then(|prior| prior.updates.stored);
        let merge = |PriorUpdates { updates, later_file, .. }| {
            DifferenceMerge::new(apex, updates.difference, updates.digest, later_file)
        };
        RecordSink { builder, updates: prior.map(merge), replaces }
    }

    pub(crate) fn add(&mut self, record: &Record<'_>) {
        if !self.updates.as_mut().is_some_and(|updates| updates.holds_back(record)) {
            self.builder.add(record);
        }
    }

    pub(crate) fn add_alias_record(&mut self, alias: &AliasRecord<'_>) {
        self.builder.add_alias_record(alias);
    }

    /// The problems of `ALIAS`, before records are added that the file does not have.
    pub(crate) fn check_alias_records(&mut self) -> Vec<ZoneDiagnostic> {
        self.builder.check_alias_records()
    }

    /// Adds the records of updates, which get the position `of_updates`. `file_serial` is the file's serial if the
    /// records have a higher one.
    pub(crate) fn finish(self, file_serial: Option<u32>, of_updates: Position) -> Option<MergedUpdates> {
        let RecordSink { builder, updates, replaces } = self;
        let merged = updates?.finish(file_serial, of_updates, |record| builder.add(record));
        Some(MergedUpdates { merged, replaces })
    }
}
